//! Replays requests that create and update pods: compares the errors in order, or the stored pod.
//!
//! The recording had no admission, so each case runs only the strategy of pods: defaults, preparation, metadata,
//! validation.

use crate::report::CaseReport;
use berth_objects::access::gr;
use berth_objects::field::FieldError;
use berth_objects::kinds::strategy;
use berth_objects::strategy::{KindStrategy, Subresource};
use berth_objects::validation::metadata;
use berth_objects::validation::metadata::NameRule;
use serde::Deserialize;
use serde_json::Value;
use std::io::BufRead;

/// The time of the recorded requests does not matter, because transition times are not compared.
const NOW: &str = "2026-01-01T00:00:00Z";

#[derive(Debug, Deserialize)]
struct PodCase {
    id: String,
    op: PodOperation,
    #[serde(default)]
    old: Value,
    new: Value,
    expect: PodExpectation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PodOperation {
    Create,
    Update,
}

#[derive(Debug, Deserialize)]
struct PodExpectation {
    #[serde(default)]
    errors: Vec<RecordedError>,
    stored: Option<Value>,
}

/// A field error as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct RecordedError {
    #[serde(rename = "type")]
    kind: String,
    field: String,
    #[serde(default)]
    detail: String,
    error: String,
}

/// Replays cases, one JSON object per line. Unreadable lines fail under their number.
pub fn replay(reader: impl BufRead) -> CaseReport {
    let mut report = CaseReport::new();
    for (i, line) in reader.lines().enumerate() {
        let number = i + 1;
        let line = match line {
            Ok(line) => line,
            Err(e) => {
                report.fail(format!("line {number}"), format!("cannot be read: {e}"));
                break;
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<PodCase>(&line) {
            Ok(case) => match check(&case) {
                Ok(()) => report.pass(case.id),
                Err(what) => report.fail(case.id, what),
            },
            Err(e) => report.fail(format!("line {number}"), format!("is no case: {e}")),
        }
    }
    report
}

fn check(case: &PodCase) -> Result<(), String> {
    let rules = strategy(gr("", "pods"));
    let (errors, stored) = match case.op {
        PodOperation::Create => create(rules, case.new.clone()),
        PodOperation::Update => update(rules, case.new.clone(), case.old.clone()),
    };
    let got: Vec<RecordedError> = errors.iter().map(as_recorded).collect();
    let wanted: Vec<RecordedError> = case.expect.errors.iter().cloned().map(cut_diff).collect();
    if got != wanted {
        return Err(format!(
            "errors: recorded {}, got {}",
            show_errors(&wanted),
            show_errors(&got)
        ));
    }
    match &case.expect.stored {
        Some(recorded) => {
            let (recorded, stored) = (without_times(recorded.clone()), without_times(stored));
            match first_difference("", &recorded, &stored) {
                None => Ok(()),
                Some(difference) => Err(format!("stored: {difference}")),
            }
        }
        None if wanted.is_empty() => Err("recorded neither errors nor a stored pod".to_owned()),
        None => Ok(()),
    }
}

fn create(rules: &dyn KindStrategy, mut pod: Value) -> (Vec<FieldError>, Value) {
    rules.default(&mut pod);
    rules.prepare_for_create(&mut pod, NOW);
    set_generation(&mut pod, 1);
    let mut errors = metadata::validate_create(&pod, true, NameRule::Subdomain);
    errors.extend(rules.validate(&pod));
    (errors, pod)
}

fn update(rules: &dyn KindStrategy, mut new: Value, mut old: Value) -> (Vec<FieldError>, Value) {
    rules.default(&mut old);
    rules.default(&mut new);
    metadata::prepare_for_update(&mut new, &old);
    rules.prepare_for_update(&mut new, &old, Subresource::Main, NOW);
    if new.get("spec") != old.get("spec") {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
        set_generation(&mut new, generation.unwrap_or(0).saturating_add(1));
    }
    let mut errors = metadata::validate_update(&new, &old);
    errors.extend(rules.validate_update(&new, &old, Subresource::Main));
    (errors, new)
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

fn as_recorded(error: &FieldError) -> RecordedError {
    cut_diff(RecordedError {
        kind: error.kind.reason().to_owned(),
        field: error.field.clone(),
        detail: error.detail.clone(),
        error: error.to_string(),
    })
}

/// Removes the text after the first line of "may not change fields other than …", which is not stable.
fn cut_diff(mut error: RecordedError) -> RecordedError {
    if error.kind == "FieldValueForbidden" && error.field == "spec" {
        for text in [&mut error.detail, &mut error.error] {
            if let Some(end) = text.find('\n') {
                text.truncate(end);
            }
        }
    }
    error
}

fn show_errors(errors: &[RecordedError]) -> String {
    let lines: Vec<&str> = errors.iter().map(|e| e.error.as_str()).collect();
    format!("[{}]", lines.join("; "))
}

/// Leaves out when conditions changed.
fn without_times(mut pod: Value) -> Value {
    let conditions = pod
        .pointer_mut("/status/conditions")
        .and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    pod
}

/// The first place in which two values differ, with both values.
fn first_difference(path: &str, recorded: &Value, got: &Value) -> Option<String> {
    match (recorded, got) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort_unstable();
            names.dedup();
            names.into_iter().find_map(|name| {
                let path = format!("{path}.{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => first_difference(&path, a, b),
                    (Some(a), None) => Some(format!("{path}: recorded {a}, got nothing")),
                    (None, Some(b)) => Some(format!("{path}: recorded nothing, got {b}")),
                    (None, None) => None,
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(i, (a, b))| first_difference(&format!("{path}[{i}]"), a, b)),
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: recorded {a}, got {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::BufReader;

    #[test]
    fn every_recorded_request_is_answered_as_recorded() {
        let packed = include_bytes!("../vectors/podapi.jsonl.gz");
        let report = replay(BufReader::new(GzDecoder::new(packed.as_slice())));
        assert!(report.is_ok(), "{report}");
        assert_eq!(report.passed.len(), 930);
    }

    #[test]
    fn a_wrong_answer_and_an_unreadable_line_fail() {
        let cases = concat!(
            r#"{"id":"a","op":"create","new":{"metadata":{"name":"p","namespace":"d"},"spec":{"containers":[{"name":"c","image":"i:1"}]}},"expect":{"errors":[],"stored":{"spec":{}}}}"#,
            "\n",
            r#"{"id":"b","op":"create","new":{"metadata":{"name":"p","namespace":"d"},"spec":{}},"expect":{"errors":[{"type":"FieldValueRequired","field":"spec.containers","detail":"","error":"spec.containers: Required value"}]}}"#,
            "\nnonsense\n",
        );
        let report = replay(cases.as_bytes());
        assert_eq!(report.passed, ["b"]);
        let failed: Vec<&str> = report.failed.iter().map(|m| m.case.as_str()).collect();
        assert_eq!(failed, ["a", "line 3"]);
    }
}
