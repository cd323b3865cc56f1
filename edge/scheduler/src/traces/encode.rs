//! Traces of attempts as OTLP writes them in JSON.
//!
//! All attempts of a pod are one trace, whose ID is the UID of the pod without its hyphens. An attempt is a span, and
//! each of its extension points is a child of it.

use berth_api::Time;
use berth_framework::Code;
use berth_scheduler::AttemptTrace;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;
/// The longest message of a span, in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The ID of the trace of a pod: its UID if that has 128 bits, otherwise a hash of it.
pub(super) fn trace_id(uid: &str) -> u128 {
    let digits: String = uid.chars().filter(|c| *c != '-').collect();
    let parsed = u128::from_str_radix(&digits, 16).ok();
    let is_uuid = digits.len() == 32;
    // Zero is not a valid ID.
    parsed.filter(|id| is_uuid && *id != 0).unwrap_or_else(|| {
        let halves = [0_u8, 1].map(|half| hash(&(uid, half)));
        (u128::from(halves[0]) << 64) | u128::from(halves[1]) | 1
    })
}

/// Returns whether a sampler with this ratio exports the trace: as specified, by the last 56 bits of the ID.
pub(super) fn is_sampled(trace_id: u128, ratio: f64) -> bool {
    const BITS: u32 = 56;
    let random = (trace_id & ((1 << BITS) - 1)) as f64;
    random < ratio * f64::powi(2.0, BITS as i32)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The body of a request with these traces.
pub(super) fn body(resource: &[(String, String)], traces: &[AttemptTrace]) -> Vec<u8> {
    let attributes: Vec<Value> = resource
        .iter()
        .map(|(key, value)| text(key, value))
        .collect();
    let spans: Vec<Value> = traces.iter().flat_map(spans).collect();
    let body = json!({"resourceSpans": [{
        "resource": {"attributes": attributes},
        "scopeSpans": [{
            "scope": {"name": "berth-scheduler", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]});
    body.to_string().into_bytes()
}

/// The span of an attempt, and the spans of its extension points.
fn spans(trace: &AttemptTrace) -> Vec<Value> {
    let id = format!("{:032x}", trace_id(&trace.pod.uid));
    // Another process may try the pod again: the time distinguishes its attempts.
    let span_id = |part: usize| {
        let unique = (&*trace.pod.uid, trace.began.as_nanos(), trace.attempt, part);
        format!("{:016x}", hash(&unique).max(1))
    };
    let root = span_id(0);
    let mut attributes = vec![
        text("k8s.namespace.name", &trace.pod.namespace),
        text("k8s.pod.name", &trace.pod.name),
        text("k8s.pod.uid", &trace.pod.uid),
        text("berth.profile", &trace.profile),
        text("berth.result", trace.result),
        json!({"key": "berth.attempt", "value": {"intValue": trace.attempt.to_string()}}),
    ];
    if let Some(node) = &trace.node {
        attributes.push(text("k8s.node.name", node));
    }
    let message = shortened(&trace.message);
    if !message.is_empty() {
        attributes.push(text("berth.message", message));
    }
    let mut attempt = span(&id, &root, "scheduling attempt", trace.began, trace.ended);
    attempt["attributes"] = attributes.into();
    if trace.result == "error" {
        attempt["status"] = json!({"code": ERROR, "message": message});
    }
    let mut spans = vec![attempt];
    for (place, point) in trace.points.iter().enumerate() {
        let own = span_id(place + 1);
        let mut child = span(&id, &own, point.point, point.began, point.ended);
        child["parentSpanId"] = root.as_str().into();
        child["attributes"] = json!([text("berth.status", point.code.as_str())]);
        if point.code == Code::Error {
            child["status"] = json!({"code": ERROR});
        }
        spans.push(child);
    }
    spans
}

fn span(trace: &str, id: &str, name: &str, began: Time, ended: Time) -> Value {
    json!({
        "traceId": trace,
        "spanId": id,
        "name": name,
        "kind": INTERNAL,
        "startTimeUnixNano": began.as_nanos().to_string(),
        "endTimeUnixNano": ended.as_nanos().to_string(),
    })
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn shortened(message: &str) -> &str {
    let end = message
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MESSAGE_BYTES_MAX)
        .last();
    &message[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::call::PodRef;
    use berth_scheduler::TracedPoint;

    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn trace(result: &'static str) -> AttemptTrace {
        let at = Time::from_nanos;
        AttemptTrace {
            pod: PodRef {
                namespace: "ns".into(),
                name: "p".into(),
                uid: UID.into(),
            },
            profile: "default-scheduler".into(),
            attempt: 2,
            result,
            node: (result == "scheduled").then(|| "n1".into()),
            message: match result {
                "scheduled" => String::new(),
                _ => "0/1 nodes are available".to_owned(),
            },
            began: at(1_000),
            ended: at(9_000),
            points: vec![TracedPoint {
                point: "Filter",
                code: Code::Unschedulable,
                began: at(2_000),
                ended: at(3_000),
            }],
        }
    }

    #[test]
    fn an_attempt_is_a_span_and_its_points_are_children() {
        let resource = [("service.name".to_owned(), "s".to_owned())];
        let body = body(&resource, &[trace("scheduled")]);
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let of = &body["resourceSpans"][0];
        assert_eq!(of["resource"]["attributes"][0]["value"]["stringValue"], "s");
        let spans = of["scopeSpans"][0]["spans"].as_array().expect("spans");
        let [attempt, filter] = &spans[..] else {
            panic!("{spans:?}");
        };
        for span in [attempt, filter] {
            assert_eq!(span["traceId"], "0f8fad5bd9cb469fa16570867728950e");
            assert_eq!(span["spanId"].as_str().map(str::len), Some(16));
        }
        assert_ne!(attempt["spanId"], filter["spanId"]);
        assert_eq!(filter["parentSpanId"], attempt["spanId"]);
        assert_eq!(filter["name"], "Filter");
        assert_eq!(attempt["startTimeUnixNano"], "1000");
        assert_eq!(attempt["endTimeUnixNano"], "9000");
        let attributes = attempt["attributes"].as_array().expect("attributes");
        let value = |key: &str| {
            let found = attributes.iter().find(|a| a["key"] == key);
            found.map(|a| a["value"].clone()).unwrap_or_default()
        };
        assert_eq!(value("k8s.node.name")["stringValue"], "n1");
        assert_eq!(value("k8s.pod.uid")["stringValue"], UID);
        assert_eq!(value("berth.attempt")["intValue"], "2");
        assert!(value("berth.message").is_null());
        assert!(attempt["status"].is_null());
    }

    #[test]
    fn only_errors_have_the_status_of_an_error() {
        for (result, code) in [
            ("unschedulable", Value::Null),
            ("error", json!(2)),
            ("scheduled", Value::Null),
        ] {
            let spans = spans(&trace(result));
            assert_eq!(spans[0]["status"]["code"], code, "{result}");
        }
    }

    #[test]
    fn all_attempts_of_a_pod_are_sampled_or_none() {
        assert!(is_sampled(trace_id(UID), 1.0));
        assert!(!is_sampled(trace_id(UID), 0.0));
        // 0x70867728950e & 56 bits = 0x6570867728950e of 2^56: about 0.396.
        assert!(is_sampled(trace_id(UID), 0.4));
        assert!(!is_sampled(trace_id(UID), 0.39));
        assert_ne!(trace_id("not a UUID"), 0);
        assert_eq!(trace_id("not a UUID"), trace_id("not a UUID"));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = "ä".repeat(MESSAGE_BYTES_MAX);
        assert_eq!(shortened(&long).len(), MESSAGE_BYTES_MAX);
        let odd = format!("x{long}");
        assert_eq!(shortened(&odd).len(), MESSAGE_BYTES_MAX - 1);
        assert_eq!(shortened(""), "");
    }
}
