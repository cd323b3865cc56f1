//! Reads the text form of a label selector, as `?labelSelector=` and `kubectl -l` take it.
//!
//! ```text
//! selector     = [ requirement { "," requirement } ]
//! requirement  = [ "!" ] KEY | KEY operator VALUE | KEY ( "in" | "notin" ) "(" VALUE { "," VALUE } ")"
//! operator     = "=" | "==" | "!=" | ">" | "<"
//! ```
//!
//! Values may be empty, and `in` and `notin` are values too where a value is due.

use super::{Operator, Requirement, Selector, SelectorError};
use crate::{Str, field_error, names};
use std::str::FromStr;

impl FromStr for Selector {
    type Err = SelectorError;

    /// Reads the text form. The empty text is everything.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser {
            tokens: SelectorTokens { rest: text }.collect(),
            at: 0,
        };
        let requirements = parser.selector().map_err(SelectorError)?;
        Ok(Self::from_requirements(requirements))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// One of `=`, `==`, `!=`, `<`, `>`, `!`, `(`, `)`, `,`.
    Symbol(&'a str),
    /// Anything else, `in` and `notin` included.
    Word(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Symbol(text) | Self::Word(text) => text,
            Self::End => "",
        }
    }
}

/// Splits a text into tokens; spaces, tabs and line ends only separate.
struct SelectorTokens<'a> {
    rest: &'a str,
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}

impl<'a> Iterator for SelectorTokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let text = self.rest.trim_start_matches(is_space);
        let first = text.chars().next()?;
        let is_word = !is_symbol(first);
        let len = if is_word {
            text.find(|c| is_space(c) || is_symbol(c))
                .unwrap_or(text.len())
        } else if text.starts_with("==") || text.starts_with("!=") {
            2
        } else {
            1
        };
        let (token, rest) = text.split_at(len);
        self.rest = rest;
        Some(if is_word {
            Token::Word(token)
        } else {
            Token::Symbol(token)
        })
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        match self.peek() {
            Token::End => return Ok(requirements),
            Token::Word(_) | Token::Symbol("!") => {}
            other => {
                return Err(format!(
                    "found '{}', expected: !, identifier, or 'end of string'",
                    other.text()
                ));
            }
        }
        loop {
            let requirement = self
                .requirement()
                .map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match self.take() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            other.text()
                        ));
                    }
                },
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.take();
        }
        let key = match self.take() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        let problems = names::label_key(key);
        if !problems.is_empty() {
            // The API has no path for this error, and prints `<nil>`.
            return Err(field_error::invalid("<nil>", key, &problems.join("; ")));
        }
        let (operator, values) = if negated {
            (Operator::DoesNotExist, Vec::new())
        } else if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            (Operator::Exists, Vec::new())
        } else {
            let operator = self.operator()?;
            let mut values = match operator {
                Operator::In | Operator::NotIn => self.values()?,
                _ => vec![self.value()?],
            };
            values.sort_unstable();
            values.dedup();
            (operator, values)
        };
        let values = values.into_iter().map(Str::new).collect();
        Requirement::new(Str::new(key), operator, values, "").map_err(|error| error.0)
    }

    fn operator(&mut self) -> Result<Operator, String> {
        Ok(match self.take() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=" | "==") => Operator::Equals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        })
    }

    /// The value after an equality operator; an absent value is the empty value.
    fn value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        match self.take() {
            Token::Word(value) => Ok(value),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// The values in parentheses after `in` and `notin`. `()` is one empty value, and so is an omitted value before or
    /// after a comma.
    fn values(&mut self) -> Result<Vec<&'a str>, String> {
        match self.take() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.take();
                return Ok(vec![""]);
            }
            other => {
                return Err(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.text()
                ));
            }
        }
        let mut values = Vec::new();
        loop {
            match self.take() {
                Token::Word(value) => {
                    values.push(value);
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek() {
                        Token::Symbol(")") => {
                            values.push("");
                            break;
                        }
                        Token::Symbol(",") => values.push(""),
                        _ => {}
                    }
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', or identifier",
                        other.text()
                    ));
                }
            }
        }
        self.take();
        Ok(values)
    }
}
