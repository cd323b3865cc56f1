//! The paths of fields that definitions state for rules and for selectable fields: `.spec.size`, `.spec['a.b']`.
//!
//! Unlike a JSON path, such a path leads to one field of the schema.

use crate::validation::errors::ErrorPath;
use crate::view::FieldView;
use serde_json::Value;

/// The name of a field or the key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldStep {
    Field(String),
    Key(String),
}

/// A path, and the schema of its field.
#[derive(Debug)]
pub(super) struct FieldPath<'s> {
    pub(super) steps: Vec<FieldStep>,
    pub(super) schema: &'s Value,
}

/// The reason why a text is not a path of a schema; the text equals kube-apiserver's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldPathError {
    #[error("array notation is not allowed")]
    Brackets,
    #[error("unexpected end of JSON path")]
    End,
    #[error("expected single quoted string but got {0}")]
    NotQuoted(String),
    #[error("invalid string literal: invalid escape char {0}")]
    Escape(String),
    #[error("expected ] but got {0}")]
    NotClosed(String),
    #[error("expected [ or . but got: {0}")]
    Start(String),
    #[error("does not refer to a valid field")]
    NoField,
}

impl<'s> FieldPath<'s> {
    /// Reads a path of a schema.
    ///
    /// # Errors
    /// The text is not a path, or the schema does not have the field.
    pub(super) fn parse(
        text: &str,
        schema: &'s Value,
        allows_brackets: bool,
    ) -> Result<Self, FieldPathError> {
        let mut path = Self {
            steps: Vec::new(),
            schema,
        };
        let mut rest = text;
        while let Some(token) = next_token(&mut rest) {
            match token {
                "[" if !allows_brackets => return Err(FieldPathError::Brackets),
                "[" => {
                    let quoted = next_token(&mut rest).ok_or(FieldPathError::End)?;
                    let name = quoted.strip_prefix('\'').and_then(|t| t.strip_suffix('\''));
                    let name = name.ok_or_else(|| FieldPathError::NotQuoted(quoted.to_owned()))?;
                    path.step(&unescaped(name)?)?;
                    match next_token(&mut rest) {
                        Some("]") => {}
                        Some(other) => return Err(FieldPathError::NotClosed(other.to_owned())),
                        None => return Err(FieldPathError::End),
                    }
                }
                "." => path.step(next_token(&mut rest).ok_or(FieldPathError::End)?)?,
                other => return Err(FieldPathError::Start(other.to_owned())),
            }
        }
        Ok(path)
    }

    fn step(&mut self, name: &str) -> Result<(), FieldPathError> {
        let properties = self.schema.map("properties");
        let additional = self.schema.field("additionalProperties");
        let (step, schema) = match (properties, additional.filter(|schema| schema.is_object())) {
            (Some(properties), _) => (FieldStep::Field(name.to_owned()), properties.get(name)),
            (None, values) => (FieldStep::Key(name.to_owned()), values),
        };
        self.schema = schema.ok_or(FieldPathError::NoField)?;
        self.steps.push(step);
        Ok(())
    }
}

impl FieldStep {
    /// The name or the key.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Field(name) | Self::Key(name) => name,
        }
    }

    /// The error path one step below another one.
    pub(super) fn below<'p>(&'p self, path: &ErrorPath<'p>) -> ErrorPath<'p> {
        match self {
            Self::Field(name) => path.child(name),
            Self::Key(key) => path.key(key),
        }
    }
}

/// The next token of a path: a dot, a bracket, a text in single quotes, or the text up to the next dot or bracket.
fn next_token<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let text = *rest;
    let first = text.chars().next()?;
    let length = match first {
        '.' | '[' | ']' => 1,
        '\'' => {
            // Without an end, the rest is one token.
            let ends = text.char_indices().skip(1);
            let mut ends = ends.filter(|(at, c)| *c == '\'' && !text[..*at].ends_with('\\'));
            ends.next().map_or(text.len(), |(at, _)| at + 1)
        }
        _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
    };
    let (token, after) = text.split_at(length);
    *rest = after;
    Some(token)
}

/// A text with its escapes replaced.
fn unescaped(text: &str) -> Result<String, FieldPathError> {
    let mut read = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match (c, chars.clone().next()) {
            ('\\', Some(escape)) => {
                chars.next();
                match escape {
                    'a' => '\x07',
                    'b' => '\x08',
                    'f' => '\x0c',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\x0b',
                    '\'' | '\\' => escape,
                    other => return Err(FieldPathError::Escape(format!("\\{other}"))),
                }
            }
            _ => c,
        };
        read.push(c);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_fields_of_the_schema() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "size": {"type": "integer"},
                "a.b": {"type": "string"},
                "it's": {"type": "boolean"},
                "labels": {"additionalProperties": {"type": "string"}},
                "any": {"x-kubernetes-preserve-unknown-fields": true},
            }},
        }});
        for (path, expect) in [
            (".spec.size", Ok("integer")),
            (".spec['size']", Ok("integer")),
            (".spec['a.b']", Ok("string")),
            (r".spec['it\'s']", Ok("boolean")),
            (".spec.labels.x", Ok("string")),
            (".spec.labels['x/y']", Ok("string")),
            (".spec.none", Err("does not refer to a valid field")),
            (".spec.any.x", Err("does not refer to a valid field")),
            (".spec.size.x", Err("does not refer to a valid field")),
            ("spec.size", Err("expected [ or . but got: spec")),
            (".spec.", Err("unexpected end of JSON path")),
            (".spec[", Err("unexpected end of JSON path")),
            (".spec['size'", Err("unexpected end of JSON path")),
            (".spec['size'.", Err("expected ] but got .")),
            (".spec[0]", Err("expected single quoted string but got 0")),
            (
                r".spec['\q']",
                Err(r"invalid string literal: invalid escape char \q"),
            ),
        ] {
            let found = FieldPath::parse(path, &schema, true);
            let found = found.map(|found| found.schema.text("type"));
            let expect = expect.map_err(str::to_owned);
            assert_eq!(found.map_err(|error| error.to_string()), expect, "{path}");
        }
        let brackets = FieldPath::parse(".spec['size']", &schema, false);
        assert_eq!(brackets.err(), Some(FieldPathError::Brackets));
    }
}
