//! Events of events.k8s.io/v1, which are stored as events of core/v1.

use serde_json::{Map, Value, json};

/// Field of core/v1 and of events.k8s.io/v1.
const RENAMED: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];
const RENAMED_REPORTER: (&str, &str) = ("reportingComponent", "reportingController");

/// An event of events.k8s.io/v1 as it is stored.
pub(super) fn from_events_v1(object: Value) -> Value {
    rename(object, "v1", true)
}

/// A stored event as events.k8s.io/v1 shows it.
pub(super) fn to_events_v1(object: &Value) -> Value {
    let mut event = rename(object.clone(), "events.k8s.io/v1", false);
    if let Some(map) = event.as_object_mut() {
        fill(
            map,
            &[
                ("deprecatedSource", json!({})),
                ("deprecatedFirstTimestamp", Value::Null),
                ("deprecatedLastTimestamp", Value::Null),
                ("eventTime", Value::Null),
                ("regarding", json!({})),
            ],
        );
        for empty in ["reportingController", "reportingInstance"] {
            if map.get(empty).is_some_and(|v| v == "") {
                map.remove(empty);
            }
        }
    }
    event
}

fn fill(map: &mut Map<String, Value>, fields: &[(&str, Value)]) {
    for (field, value) in fields {
        if !map.contains_key(*field) {
            map.insert((*field).to_owned(), value.clone());
        }
    }
}

fn rename(object: Value, api_version: &str, to_core: bool) -> Value {
    let Value::Object(mut map) = object else {
        return object;
    };
    for (core, events) in RENAMED.into_iter().chain([RENAMED_REPORTER]) {
        let (from, to) = if to_core {
            (events, core)
        } else {
            (core, events)
        };
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".to_owned(), api_version.into());
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod"}, "message": "m", "count": 3,
            "reportingComponent": "c", "reportingInstance": "i", "reason": "R", "type": "Normal",
            "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
        });
        let events = to_events_v1(&core);
        assert_eq!(events["apiVersion"], "events.k8s.io/v1");
        assert_eq!(events["regarding"]["kind"], "Pod");
        assert_eq!(events["deprecatedCount"], 3);
        assert_eq!(events["reportingController"], "c");
        assert_eq!(events.get("involvedObject"), None);
        assert_eq!(from_events_v1(events), core);
    }
}
