//! Configurations as users see them: the result, and the errors of invalid ones.

mod arbitrary;
mod extenders;
mod fields;
mod plugins;
mod reading;
mod validation;
mod written;

use super::*;
use berth_plugins::in_tree;
use serde_json::{Value, json};

/// A configuration with these fields in addition to `apiVersion` and `kind`.
fn text(fields: &Value) -> String {
    let mut document = json!({"apiVersion": API_VERSION, "kind": KIND});
    for (name, value) in fields.as_object().expect("fields") {
        document[name] = value.clone();
    }
    document.to_string()
}

fn parse_text(text: &str) -> Result<Config, ConfigErrors> {
    parse(text, "F", FeatureGates::default(), &in_tree())
}

/// The configuration with these fields.
fn config(fields: &Value) -> Config {
    parse_text(&text(fields)).unwrap_or_else(|e| panic!("{fields}: {e}"))
}

/// The faults of a text, a problem a line.
fn problems_of_text(text: &str) -> Vec<String> {
    match parse_text(text) {
        Ok(_) => Vec::new(),
        Err(errors) => {
            assert_eq!(errors.source_name, "F");
            assert!(!errors.errors.is_empty(), "an error has a problem: {text}");
            errors.errors.iter().map(ToString::to_string).collect()
        }
    }
}

/// The faults of a configuration of these fields.
fn problems(fields: &Value) -> Vec<String> {
    problems_of_text(&text(fields))
}
