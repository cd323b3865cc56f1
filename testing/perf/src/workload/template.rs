//! The template language of workload files: the subset of Go's text/template that they use.
//!
//! An action is `{{ .Index }}`, `{{ .Count }}`, a value of `templateParams` such as `{{ .podsPerGroup }}`, a whole
//! number, or a call of `Mod` or `DivideInt` with two numeric operands; each operand is any of these, a call in
//! parentheses. Everything else is an error. As in upstream, numbers are computed as 64-bit floating point numbers that
//! are truncated to integers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Calls are nested no deeper.
const DEPTH_MAX: usize = 16;

/// The values of `templateParams`, by name.
pub type Values = BTreeMap<String, TemplateValue>;

/// A value of `templateParams`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TemplateValue {
    /// A whole number.
    Number(i64),
    /// Anything else, as text.
    Text(String),
}

/// A template that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkloadTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq)]
enum TemplatePart {
    Text(String),
    Action(Operand),
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Index,
    Count,
    Number(i64),
    Call(Function, Box<[Operand; 2]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Function {
    Mod,
    DivideInt,
}

/// The reason why a template cannot be read or executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An action has no end.
    #[error("line {line}: action without closing \"}}}}\"")]
    Unclosed {
        /// The line, from 1.
        line: usize,
    },
    /// An action that is not part of the language.
    #[error(
        "line {line}: unsupported action {action:?}: {reason}; use .Index, .Count, values of templateParams, Mod and DivideInt"
    )]
    Unsupported {
        /// The line, from 1.
        line: usize,
        /// The action as written.
        action: String,
        /// The reason.
        reason: String,
    },
    /// `Mod` or `DivideInt` by zero.
    #[error("{0} by zero with .Index {1} and .Count {2}")]
    ByZero(&'static str, usize, usize),
}

impl WorkloadTemplate {
    /// Reads a template without values.
    ///
    /// # Errors
    /// As [`WorkloadTemplate::parse_with`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::parse_with(text, &Values::new())
    }

    /// Reads a template.
    ///
    /// # Errors
    /// Each error names the line and the unsupported part.
    pub fn parse_with(text: &str, values: &Values) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let line = text[..text.len() - rest.len() + at].matches('\n').count() + 1;
            if at > 0 {
                parts.push(TemplatePart::Text(rest[..at].to_owned()));
            }
            let inner = &rest[at + 2..];
            let end = inner.find("}}").ok_or(TemplateError::Unclosed { line })?;
            let action = &inner[..end];
            let part =
                parse_action(action, values).map_err(|reason| TemplateError::Unsupported {
                    line,
                    action: action.trim().to_owned(),
                    reason,
                })?;
            parts.push(part);
            rest = &inner[end + 2..];
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Ok(Self { parts })
    }

    /// Returns whether every object made from the template has the same text.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| match part {
            TemplatePart::Text(_) => true,
            TemplatePart::Action(operand) => operand.is_constant(),
        })
    }

    /// The text of object `index` of `count`.
    ///
    /// # Errors
    /// On a division by zero.
    pub fn render(&self, index: usize, count: usize) -> Result<String, TemplateError> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Action(operand) => {
                    let _ = write!(out, "{}", operand.value(index, count)?);
                }
            }
        }
        Ok(out)
    }
}

impl Operand {
    fn is_constant(&self) -> bool {
        match self {
            Self::Index => false,
            Self::Count | Self::Number(_) => true,
            Self::Call(_, operands) => operands.iter().all(Self::is_constant),
        }
    }

    fn value(&self, index: usize, count: usize) -> Result<i64, TemplateError> {
        Ok(match self {
            Self::Index => index as i64,
            Self::Count => count as i64,
            Self::Number(number) => *number,
            Self::Call(function, operands) => {
                let [a, b] = [
                    operands[0].value(index, count)?,
                    operands[1].value(index, count)?,
                ];
                if b == 0 {
                    return Err(TemplateError::ByZero(function.name(), index, count));
                }
                match function {
                    Function::Mod => a.wrapping_rem(b),
                    Function::DivideInt => (a as f64 / b as f64) as i64,
                }
            }
        })
    }
}

impl Function {
    fn name(self) -> &'static str {
        match self {
            Self::Mod => "Mod",
            Self::DivideInt => "DivideInt",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        [Self::Mod, Self::DivideInt]
            .into_iter()
            .find(|function| function.name() == name)
    }
}

fn parse_action(action: &str, values: &Values) -> Result<TemplatePart, String> {
    let spaced = action.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if let [word] = words.as_slice()
        && let Some(TemplateValue::Text(text)) = value_of(word, values)
    {
        return Ok(TemplatePart::Text(text.clone()));
    }
    let mut words = words.as_slice();
    let operand = parse_pipeline(&mut words, values, 0)?;
    match words.first() {
        None => Ok(TemplatePart::Action(operand)),
        Some(word) => Err(format!("unexpected {word:?}")),
    }
}

/// The value that a word such as `.name` refers to.
fn value_of<'v>(word: &str, values: &'v Values) -> Option<&'v TemplateValue> {
    values.get(word.strip_prefix('.')?)
}

/// A call without parentheses, or an operand.
fn parse_pipeline(words: &mut &[&str], values: &Values, depth: usize) -> Result<Operand, String> {
    let Some((first, rest)) = words.split_first() else {
        return Err("missing value".to_owned());
    };
    let Some(function) = Function::by_name(first) else {
        return parse_operand(words, values, depth);
    };
    *words = rest;
    let a = parse_operand(words, values, depth)?;
    let b = parse_operand(words, values, depth)?;
    Ok(Operand::Call(function, Box::new([a, b])))
}

fn parse_operand(words: &mut &[&str], values: &Values, depth: usize) -> Result<Operand, String> {
    let Some((first, rest)) = words.split_first() else {
        return Err("missing operand".to_owned());
    };
    *words = rest;
    match *first {
        ".Index" => Ok(Operand::Index),
        ".Count" => Ok(Operand::Count),
        "(" if depth >= DEPTH_MAX => Err(format!("nested deeper than {DEPTH_MAX}")),
        "(" => {
            let operand = parse_pipeline(words, values, depth + 1)?;
            match words.split_first() {
                Some((&")", rest)) => {
                    *words = rest;
                    Ok(operand)
                }
                _ => Err("missing \")\"".to_owned()),
            }
        }
        word if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => word
            .parse()
            .map(Operand::Number)
            .map_err(|_| format!("{word:?} is not a whole number")),
        word if word.starts_with('.') => match value_of(word, values) {
            Some(TemplateValue::Number(number)) => Ok(Operand::Number(*number)),
            Some(TemplateValue::Text(_)) => Err(format!("{word:?} is not a whole number")),
            None => Err(format!("unknown value {word:?}")),
        },
        word => Err(format!("unknown function {word:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_render_as_in_scheduler_perf() {
        for (text, index, count, expect) in [
            ("name: plain", 3, 10, "name: plain"),
            ("pod-{{ .Index }}", 3, 10, "pod-3"),
            ("{{.Index}} of {{ .Count }}", 3, 10, "3 of 10"),
            ("8{{ Mod .Index 12 }}", 25, 100, "81"),
            ("{{DivideInt .Index 5}}", 14, 100, "2"),
            ("{{ DivideInt 30000 .Count }}Mi", 0, 1000, "30Mi"),
            ("{{ DivideInt -7 2 }}", 0, 1, "-3"),
            ("{{ Mod -7 5 }}", 0, 1, "-2"),
            ("{{ Mod (DivideInt .Index 10) 3 }}", 57, 100, "2"),
            ("{{ 7 }}", 0, 1, "7"),
            ("{ not } an action", 0, 1, "{ not } an action"),
        ] {
            let template = WorkloadTemplate::parse(text).unwrap();
            assert_eq!(template.render(index, count).unwrap(), expect, "{text}");
        }
    }

    #[test]
    fn unsupported_syntax_is_an_error_with_its_line() {
        for (text, expect) in [
            ("a\nb {{ .Index", "line 2: action without closing \"}}\""),
            ("{{ .Name }}", "unknown value \".Name\""),
            ("{{ printf .Index }}", "unknown function \"printf\""),
            ("{{ if .Index }}", "unknown function \"if\""),
            ("{{ .Index | Mod 3 }}", "unexpected \"|\""),
            ("{{- .Index }}", "\"-\" is not a whole number"),
            ("{{ Mod .Index }}", "missing operand"),
            ("{{ Mod .Index 1.5 }}", "\"1.5\" is not a whole number"),
            ("{{ Mod (.Index 2 }}", "missing \")\""),
            ("{{ }}", "missing value"),
        ] {
            let error = WorkloadTemplate::parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn values_are_numbers_calls_or_strings() {
        let number = |n| TemplateValue::Number(n);
        let values = Values::from([
            ("size".to_owned(), number(3)),
            ("cpu".to_owned(), TemplateValue::Text("100m".to_owned())),
        ]);
        for (text, expect) in [
            ("gang-{{DivideInt .Index .size}}", "gang-2"),
            ("minCount: {{ .size }}", "minCount: 3"),
            ("cpu: {{.cpu}}", "cpu: 100m"),
        ] {
            let template = WorkloadTemplate::parse_with(text, &values).unwrap();
            assert_eq!(template.render(7, 9).unwrap(), expect, "{text}");
        }
        let error = WorkloadTemplate::parse_with("{{ Mod .Index .cpu }}", &values).unwrap_err();
        assert!(error.to_string().contains("\".cpu\" is not a whole number"));
    }

    #[test]
    fn a_division_by_zero_is_an_error() {
        let template = WorkloadTemplate::parse("{{ Mod 5 .Index }}").unwrap();
        assert_eq!(
            template.render(0, 3),
            Err(TemplateError::ByZero("Mod", 0, 3))
        );
        assert_eq!(template.render(3, 3).as_deref(), Ok("2"));
    }

    #[test]
    fn only_the_index_makes_objects_differ() {
        for (text, expect) in [
            ("x", true),
            ("{{ DivideInt 30000 .Count }}", true),
            ("{{ Mod .Index 2 }}", false),
        ] {
            assert_eq!(
                WorkloadTemplate::parse(text).unwrap().is_constant(),
                expect,
                "{text}"
            );
        }
    }
}
