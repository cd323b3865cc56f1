//! Label selectors: `a=b,c!=d,e in (f,g),h,!i,j>1`, with upstream's grammar and its messages.

use crate::validation::names;
use serde_json::Value;
use std::collections::BTreeSet;

/// Requirements that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Identifier,
    Not,
    Open,
    Close,
    Comma,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    End,
    Unknown,
}

impl LabelSelector {
    /// Parses a selector; the empty text matches everything.
    ///
    /// # Errors
    /// What upstream says of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser {
            tokens: tokens(text),
            position: 0,
        };
        Ok(Self {
            requirements: parser.selector()?,
        })
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether labels (an object of strings, or nothing) match.
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = labels
            .and_then(|l| l.get(&self.key))
            .and_then(Value::as_str);
        match (&self.test, value) {
            (Test::Exists, value) => value.is_some(),
            (Test::Absent, value) => value.is_none(),
            (Test::In(values), Some(value)) => values.contains(value),
            (Test::NotIn(values), Some(value)) => !values.contains(value),
            (Test::NotIn(_), None) => true,
            (Test::GreaterThan(bound), Some(value)) => {
                value.parse::<i64>().is_ok_and(|v| v > *bound)
            }
            (Test::LessThan(bound), Some(value)) => value.parse::<i64>().is_ok_and(|v| v < *bound),
            (Test::In(_) | Test::GreaterThan(_) | Test::LessThan(_), None) => false,
        }
    }
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn special(text: &str) -> Option<Token> {
    Some(match text {
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!" => Token::Not,
        "!=" => Token::NotEquals,
        "(" => Token::Open,
        ")" => Token::Close,
        "," => Token::Comma,
        ">" => Token::Greater,
        "<" => Token::Less,
        _ => return None,
    })
}

/// Splits the text; the last token is always `End`.
fn tokens(text: &str) -> Vec<(Token, String)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches([' ', '\t', '\r', '\n']);
    while let Some(first) = rest.chars().next() {
        let len = if is_special(first) {
            // The longest run that is a token: all of them are ASCII and at most two long.
            match rest.get(..2) {
                Some(two) if special(two).is_some() => 2,
                _ => 1,
            }
        } else {
            rest.find(|c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n'))
                .unwrap_or(rest.len())
        };
        let (literal, after) = rest.split_at(len);
        let token = match literal {
            "in" => Token::In,
            "notin" => Token::NotIn,
            _ if is_special(first) => special(literal).unwrap_or(Token::Unknown),
            _ => Token::Identifier,
        };
        tokens.push((token, literal.to_owned()));
        rest = after.trim_start_matches([' ', '\t', '\r', '\n']);
    }
    tokens.push((Token::End, String::new()));
    tokens
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

impl Parser {
    /// The next token as a value: the words `in` and `notin` are identifiers there.
    fn peek(&self) -> (Token, &str) {
        match self.tokens.get(self.position) {
            Some((Token::In | Token::NotIn, literal)) => (Token::Identifier, literal),
            Some((token, literal)) => (*token, literal),
            None => (Token::End, ""),
        }
    }

    fn next(&mut self) -> (Token, String) {
        let (token, literal) = self.peek();
        let next = (token, literal.to_owned());
        self.position += 1;
        next
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|e| format!("unable to parse requirement: {e}"))?;
                    requirements.push(requirement);
                    match self.next() {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => {
                            let (token, literal) = self.peek();
                            if !matches!(token, Token::Identifier | Token::Not) {
                                return Err(format!(
                                    "found '{literal}', expected: identifier after ','"
                                ));
                            }
                        }
                        (_, literal) => {
                            return Err(format!(
                                "found '{literal}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, literal) => {
                    return Err(format!(
                        "found '{literal}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let absent = token == Token::Not;
        if absent {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let faults = names::qualified_name(&key);
        if !faults.is_empty() {
            return Err(format!(
                "key: Invalid value: {key:?}: {}",
                faults.join("; ")
            ));
        }
        if absent {
            return Ok(Requirement {
                key,
                test: Test::Absent,
            });
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(Requirement {
                key,
                test: Test::Exists,
            });
        }
        let (operator, literal) = match self.tokens.get(self.position) {
            Some((token, literal)) => (*token, literal.clone()),
            None => (Token::End, String::new()),
        };
        self.position += 1;
        let test = match operator {
            Token::In => Test::In(values(&key, self.value_list()?)?),
            Token::NotIn => Test::NotIn(values(&key, self.value_list()?)?),
            Token::Equals | Token::DoubleEquals => Test::In(values(&key, self.one_value()?)?),
            Token::NotEquals => Test::NotIn(values(&key, self.one_value()?)?),
            Token::Greater => Test::GreaterThan(bound(&self.one_value()?)?),
            Token::Less => Test::LessThan(bound(&self.one_value()?)?),
            _ => return Err(format!("found '{literal}', expected: {OPERATORS}")),
        };
        Ok(Requirement { key, test })
    }

    fn value_list(&mut self) -> Result<BTreeSet<String>, String> {
        let (token, literal) = self.next();
        if token != Token::Open {
            return Err(format!("found '{literal}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {
                let values = self.identifiers()?;
                let (token, literal) = self.next();
                if token != Token::Close {
                    return Err(format!("found '{literal}', expected: ')'"));
                }
                Ok(values)
            }
            (Token::Close, _) => {
                self.position += 1;
                Ok(BTreeSet::new())
            }
            (_, literal) => Err(format!(
                "found '{literal}', expected: ',', ')' or identifier"
            )),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Token::Identifier, literal) => {
                    values.insert(literal);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => {
                            return Err(format!("found '{literal}', expected: ',' or ')'"));
                        }
                    }
                }
                // A comma with nothing before or after it stands for the empty value.
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.position += 1;
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                (_, literal) => {
                    return Err(format!("found '{literal}', expected: ',', or identifier"));
                }
            }
        }
    }

    fn one_value(&mut self) -> Result<BTreeSet<String>, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.next() {
            (Token::Identifier, literal) => Ok(BTreeSet::from([literal])),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }
}

fn values(key: &str, values: BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    if values.is_empty() {
        return Err(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                .to_owned(),
        );
    }
    for (i, value) in values.iter().enumerate() {
        let faults = names::label_value(value);
        if !faults.is_empty() {
            return Err(format!(
                "values[{i}][{key}]: Invalid value: {value:?}: {}",
                faults.join("; ")
            ));
        }
    }
    Ok(values)
}

fn bound(values: &BTreeSet<String>) -> Result<i64, String> {
    let value = values.first().map_or("", String::as_str);
    value.parse().map_err(|_| {
        format!(
            "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selects_by_every_operator() {
        let labels = json!({"app": "web", "tier": "1", "in": "x"});
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!nope", true),
            ("app=web", true),
            ("app==web,tier=1", true),
            ("app!=web", false),
            ("nope!=web", true),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("nope notin (x)", true),
            ("tier>0", true),
            ("tier < 1", false),
            ("in in (x)", true),
            ("app=", false),
            ("nope in (,)", false),
        ];
        for (text, expect) in cases {
            let got = LabelSelector::parse(text).map(|s| s.matches(Some(&labels)));
            assert_eq!(got, Ok(expect), "{text}");
        }
    }

    #[test]
    fn refuses_with_the_words_of_upstream() {
        let cases = [
            (
                "app inn (x)",
                "unable to parse requirement: found 'inn', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "app in x",
                "unable to parse requirement: found 'x' expected: '('",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                ",a",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
            (
                "a=(",
                "unable to parse requirement: found '(', expected: identifier",
            ),
            (
                "a in ()",
                "unable to parse requirement: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (text, expect) in cases {
            assert_eq!(
                LabelSelector::parse(text).err().as_deref(),
                Some(expect),
                "{text}"
            );
        }
        assert!(
            LabelSelector::parse("a/b/c=d")
                .err()
                .is_some_and(|e| e.starts_with("unable to parse requirement: key: Invalid value:"))
        );
    }
}
