//! Cells of ComponentStatuses, whose conditions are not in a status.

use super::text::{CellFn, items, text};
use serde_json::Value;

/// A cell by its name.
pub(super) fn find(name: &str) -> Option<CellFn> {
    Some(match name {
        "component-status" => |o, _| {
            match healthy(o, "/status") {
                "True" => "Healthy",
                "False" => "Unhealthy",
                _ => "Unknown",
            }
            .into()
        },
        "component-message" => |o, _| healthy(o, "/message").into(),
        "component-error" => |o, _| healthy(o, "/error").into(),
        _ => return None,
    })
}

/// A field of the condition Healthy.
fn healthy<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let mut conditions = items(object, "/conditions").iter();
    let healthy = conditions.find(|condition| text(condition, "/type") == "Healthy");
    healthy.map_or("", |condition| text(condition, pointer))
}
