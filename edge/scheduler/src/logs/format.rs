//! Log lines as text and as JSON, in the formats of klog.

use crate::flags::Level;
use berth_scheduler::{LogLine, LogValue};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Number, Value, json};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};

/// Keys whose values name an object, as `namespace/name` or `name`.
const OBJECT_KEYS: [&str; 6] = ["pod", "node", "preemptor", "victim", "lease", "object"];

/// The fields of an event.
#[derive(Debug, Default)]
pub(super) struct EventFields {
    message: String,
    values: Vec<(&'static str, Value)>,
    v: Option<u64>,
}

impl EventFields {
    /// The fields of a line of the core.
    pub(super) fn of(line: LogLine) -> Self {
        let values = line.values.into_iter();
        let values = values.map(|(key, value)| match value {
            LogValue::Text(text) => (key, Value::String(text)),
            LogValue::Number(number) => (key, number.into()),
        });
        Self {
            message: line.message.into_owned(),
            values: values.collect(),
            v: None,
        }
    }

    /// The level that the event names itself.
    pub(super) fn verbosity(&self) -> Option<Level> {
        self.v.map(|v| Level(u8::try_from(v).unwrap_or(u8::MAX)))
    }

    fn add(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => {
                self.message = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
            }
            "v" => self.v = value.as_u64(),
            // As klog calls it.
            "error" => self.values.push(("err", value)),
            name => self.values.push((name, value)),
        }
    }
}

impl Visit for EventFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(
            field,
            Number::from_f64(value).map_or(Value::Null, Value::Number),
        );
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_bytes(&mut self, field: &Field, bytes: &[u8]) {
        self.add(field, body(bytes, super::verbosity()).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }
}

/// A line of the log.
pub(super) struct LogLineRecord<'a> {
    pub(super) severity: tracing::Level,
    pub(super) v: Level,
    pub(super) time: Timestamp,
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) fields: &'a EventFields,
}

impl LogLineRecord<'_> {
    /// `I0102 15:04:05.000006    1234 file.rs:7] "message" key="value"`. Times are in UTC.
    pub(super) fn text(&self) -> String {
        let letter = match self.severity {
            tracing::Level::ERROR => 'E',
            tracing::Level::WARN => 'W',
            _ => 'I',
        };
        let time = self.time.to_zoned(TimeZone::UTC);
        let mut line = format!(
            "{letter}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:>7} {}:{}] {}",
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 1000,
            std::process::id(),
            self.file.rsplit('/').next().unwrap_or_default(),
            self.line,
            quoted(&self.fields.message),
        );
        for (key, value) in &self.fields.values {
            let _ = match value {
                // A text of several lines is easier to read as such.
                Value::String(text) if text.contains('\n') => {
                    write!(
                        line,
                        " {key}=<\n\t{}\n >",
                        text.trim_end().replace('\n', "\n\t")
                    )
                }
                Value::String(text) => write!(line, " {key}={}", quoted(text)),
                other => write!(line, " {key}={other}"),
            };
        }
        line.push('\n');
        line
    }

    /// `{"ts":1712.5,"caller":"file.rs:7","msg":"message","v":0,"pod":{"name":"p","namespace":"ns"}}`.
    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        let micros = self.time.as_microsecond();
        object.insert("ts".to_owned(), json!(micros as f64 / 1000.0));
        object.insert(
            "caller".to_owned(),
            format!("{}:{}", self.file, self.line).into(),
        );
        object.insert("msg".to_owned(), self.fields.message.as_str().into());
        match self.severity {
            tracing::Level::ERROR => {}
            tracing::Level::WARN => drop(object.insert("severity".to_owned(), "warning".into())),
            _ => drop(object.insert("v".to_owned(), self.v.0.into())),
        }
        for (key, value) in &self.fields.values {
            let value = match value {
                Value::String(text) if OBJECT_KEYS.contains(key) => reference(text),
                other => other.clone(),
            };
            object.insert((*key).to_owned(), value);
        }
        let mut line = Value::Object(object).to_string();
        line.push('\n');
        line
    }
}

/// A body of a request or an answer, as much of it as is logged at this level: text, or protobuf as hexadecimal
/// numbers.
fn body(bytes: &[u8], level: Level) -> String {
    let bytes_max = match level.0 {
        ..8 => 0,
        8 => 1 << 10,
        9 => 10 << 10,
        _ => usize::MAX,
    };
    let shown = &bytes[..bytes.len().min(bytes_max)];
    let mut text = match std::str::from_utf8(bytes) {
        Ok(_) => String::from_utf8_lossy(shown).into_owned(),
        Err(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if shown.len() < bytes.len() {
        let _ = write!(text, " [truncated {} bytes]", bytes.len() - shown.len());
    }
    text
}

/// An object's name, and its namespace if it has one.
fn reference(text: &str) -> Value {
    match text.split_once('/') {
        Some((namespace, name)) => json!({"name": name, "namespace": namespace}),
        None => json!({"name": text}),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &EventFields, severity: tracing::Level) -> LogLineRecord<'_> {
        LogLineRecord {
            severity,
            v: Level(2),
            time: "2026-01-02T03:04:05.000678Z".parse().expect("a time"),
            file: "edge/scheduler/src/runner/core.rs",
            line: 7,
            fields,
        }
    }

    fn fields(values: &[(&'static str, Value)]) -> EventFields {
        EventFields {
            message: "bound \"it\"".to_owned(),
            values: values.to_vec(),
            v: None,
        }
    }

    #[test]
    fn text_is_klogs() {
        let fields = fields(&[
            ("pod", "ns/p".into()),
            ("feasibleNodes", 3.into()),
            ("config", "a: 1\nb: 2\n".into()),
        ]);
        let pid = format!("{:>7}", std::process::id());
        for (severity, letter) in [
            (tracing::Level::ERROR, 'E'),
            (tracing::Level::WARN, 'W'),
            (tracing::Level::DEBUG, 'I'),
        ] {
            assert_eq!(
                record(&fields, severity).text(),
                format!(
                    "{letter}0102 03:04:05.000678 {pid} core.rs:7] \"bound \\\"it\\\"\" pod=\"ns/p\" \
                     feasibleNodes=3 config=<\n\ta: 1\n\tb: 2\n >\n"
                )
            );
        }
    }

    #[test]
    fn bodies_are_cut_by_level() {
        for (bytes, level, expected) in [
            (&b"{}"[..], 8, "{}".to_owned()),
            (b"k8s\0\xff", 8, "6b387300ff".to_owned()),
            (
                &[b'a'; 1025],
                8,
                format!("{} [truncated 1 bytes]", "a".repeat(1024)),
            ),
            (&[b'a'; 1025], 9, "a".repeat(1025)),
            (&[b'a'; 20_000], 10, "a".repeat(20_000)),
        ] {
            assert_eq!(body(bytes, Level(level)), expected, "level {level}");
        }
    }

    #[test]
    fn json_names_objects_by_namespace_and_name() {
        let fields = fields(&[
            ("pod", "ns/p".into()),
            ("node", "n".into()),
            ("took", 1.5.into()),
        ]);
        for (severity, level) in [
            (tracing::Level::INFO, json!({"v": 2})),
            (tracing::Level::WARN, json!({"severity": "warning"})),
            (tracing::Level::ERROR, json!({})),
        ] {
            let line = record(&fields, severity).json();
            assert!(line.ends_with("}\n"), "{line}");
            let got: Value = serde_json::from_str(&line).expect("JSON");
            let mut expected = json!({
                "ts": 1_767_323_045_000.678_f64,
                "caller": "edge/scheduler/src/runner/core.rs:7",
                "msg": "bound \"it\"",
                "pod": {"name": "p", "namespace": "ns"},
                "node": {"name": "n"},
                "took": 1.5,
            });
            for (key, value) in level.as_object().expect("an object") {
                expected[key] = value.clone();
            }
            assert_eq!(got, expected);
        }
    }
}
