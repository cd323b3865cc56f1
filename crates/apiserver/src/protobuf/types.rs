//! The table of messages, parsed from `types.txt` at first use.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::LazyLock;

/// The facts.
const TABLE: &str = include_str!("types.txt");

/// How often a field may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    /// From strings.
    Map,
    /// The fields of the message stand in the one around it.
    Inline,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Boolean,
    Bytes,
    Double,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    Json,
    /// A message that holds nothing but a list of strings, and is that list in JSON.
    Strings,
    Message(&'static str),
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    number: u32,
    /// As in JSON.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) kind: Kind,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    fields: Vec<Field>,
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|f| f.number == number)
    }
}

impl Kind {
    fn parse(text: &'static str) -> Self {
        match text {
            "s" => Self::Text,
            "i" => Self::Integer,
            "b" => Self::Boolean,
            "y" => Self::Bytes,
            "d" => Self::Double,
            "quantity" => Self::Quantity,
            "intorstring" => Self::IntOrString,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "duration" => Self::Duration,
            "json" => Self::Json,
            message if message.ends_with(".ExtraValue") => Self::Strings,
            message => Self::Message(message),
        }
    }

    /// What an entry of a map holds that has a key only.
    pub(super) fn zero(self) -> Value {
        match self {
            Self::Text | Self::Bytes | Self::Quantity => json!(""),
            Self::Integer | Self::IntOrString | Self::Double => json!(0),
            Self::Boolean => json!(false),
            Self::Strings => json!([]),
            Self::Message(_) => json!({}),
            Self::Time | Self::MicroTime | Self::Duration | Self::Json => Value::Null,
        }
    }
}

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(parse)
        .collect()
});

fn parse(line: &'static str) -> Option<(&'static str, Message)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let fields = words.map(field).collect::<Option<Vec<_>>>()?;
    Some((name, Message { fields }))
}

fn field(word: &'static str) -> Option<Field> {
    let (number, rest) = word.split_once('=')?;
    let (name, kind) = rest.split_once(':')?;
    let (shape, kind) = match (name, kind.strip_prefix('*'), kind.strip_prefix('{')) {
        ("^", _, _) => (Shape::Inline, kind),
        (_, Some(kind), _) => (Shape::List, kind),
        (_, _, Some(kind)) => (Shape::Map, kind),
        _ => (Shape::One, kind),
    };
    Some(Field {
        number: number.parse().ok()?,
        name,
        shape,
        kind: Kind::parse(kind),
    })
}

/// The message of this name.
pub(super) fn find(name: &str) -> Option<&'static Message> {
    MESSAGES.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_message_and_every_message_that_is_named_is_there() {
        let lines = TABLE.lines().filter(|l| !l.starts_with('#')).count();
        assert_eq!(MESSAGES.len(), lines);
        for (name, message) in MESSAGES.iter() {
            for field in &message.fields {
                if let Kind::Message(inner) = field.kind {
                    assert!(find(inner).is_some(), "{name}.{}: {inner}", field.name);
                }
            }
        }
    }
}
