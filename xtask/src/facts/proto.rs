//! The numbers and types of fields in `.proto` files.

use super::FactsError;
use std::collections::HashMap;
use std::path::Path;

/// A field of a message.
#[derive(Debug, Clone)]
pub(super) struct ProtoField {
    pub(super) number: u32,
    pub(super) repeated: bool,
    /// The type of the values of a map with string keys.
    pub(super) map: bool,
    /// `string`, `int32`, …, or the full name of a message without a leading dot.
    pub(super) type_name: String,
}

/// The messages of one package: fields by name.
pub(super) type Messages = HashMap<String, HashMap<String, ProtoField>>;

/// Reads a `.proto` file in the format of go-to-protobuf.
pub(super) fn read(file: &Path) -> Result<Messages, FactsError> {
    let text = std::fs::read_to_string(file).map_err(|e| FactsError::read(file, e))?;
    let mut package = String::new();
    let mut messages = Messages::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';').to_owned();
        } else if let Some(name) = line.strip_prefix("message ") {
            let name = name.trim_end_matches(" {").to_owned();
            messages.entry(name.clone()).or_default();
            current = Some(name);
        } else if line == "}" {
            current = None;
        } else if let Some(message) = &current
            && let Some((name, field)) = field(line, &package)
            && let Some(fields) = messages.get_mut(message)
        {
            fields.insert(name, field);
        }
    }
    Ok(messages)
}

fn field(line: &str, package: &str) -> Option<(String, ProtoField)> {
    let (declared, number) = line.trim_end_matches(';').split_once(" = ")?;
    let number = number.parse().ok()?;
    let (map, repeated, rest) = if let Some(rest) = declared.strip_prefix("map<string, ") {
        (true, false, rest.replace('>', ""))
    } else if let Some(rest) = declared.strip_prefix("repeated ") {
        (false, true, rest.to_owned())
    } else {
        (false, false, declared.strip_prefix("optional ")?.to_owned())
    };
    let (type_name, name) = rest.split_once(' ')?;
    let is_scalar = matches!(
        type_name,
        "string" | "bool" | "int32" | "int64" | "double" | "bytes" | "uint32"
    );
    let type_name = match type_name.strip_prefix('.') {
        Some(full) => full.to_owned(),
        None if is_scalar => type_name.to_owned(),
        None => format!("{package}.{type_name}"),
    };
    let field = ProtoField {
        number,
        repeated,
        map,
        type_name,
    };
    Some((name.to_owned(), field))
}
