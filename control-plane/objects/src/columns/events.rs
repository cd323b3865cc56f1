//! Cells of events, whose fields depend on the API with which they were written.

use super::text::{CellFn, first_of, number, since, text};
use serde_json::Value;

/// A cell by its name.
pub(super) fn find(name: &str) -> Option<CellFn> {
    Some(match name {
        "event-count" => |o, _| count(o).into(),
        "event-first" => |o, now| since(first(o), now).into(),
        "event-last" => |o, now| since(last(o), now).into(),
        "event-message" => |o, _| text(o, "/message").trim().into(),
        "event-object" => |o, _| object(o).into(),
        "event-source" => |o, _| source(o).into(),
        _ => return None,
    })
}

fn first(event: &Value) -> &str {
    first_of(event, &["/firstTimestamp", "/eventTime"])
}

/// The time of the series takes precedence over the timestamps of core/v1, which take precedence over the time of the
/// event.
fn last(event: &Value) -> &str {
    match event.pointer("/series") {
        Some(series) => text(series, "/lastObservedTime"),
        None => first_of(event, &["/lastTimestamp", "/firstTimestamp", "/eventTime"]),
    }
}

fn count(event: &Value) -> i64 {
    match event.pointer("/series") {
        Some(series) => number(series, "/count"),
        None => number(event, "/count").max(1),
    }
}

fn object(event: &Value) -> String {
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let reporter = first_of(event, &["/source/component", "/reportingComponent"]);
    match first_of(event, &["/source/host", "/reportingInstance"]) {
        "" => reporter.to_owned(),
        instance => format!("{reporter}, {instance}"),
    }
}
