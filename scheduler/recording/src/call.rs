//! Calls as text: everything that a call sends, in one line.

use berth_framework::call::{ApiCall, ConditionPatch};
use berth_framework::object_name::ObjectName;
use berth_framework::write::Action;
use serde_json::Value;
use std::fmt::Write as _;

/// The form of a recorded call: unchanged, or without the names of a cluster.
pub(crate) trait Wording {
    /// The name of an object or a node.
    fn name(&mut self, name: &str) -> String;
    /// A text for people.
    fn text(&mut self, text: &str) -> String;
    /// A created object with this name, which was generated from the other name.
    fn generated(&mut self, name: &str, from: &str);
    /// An object, or a part of it, in the API's JSON.
    fn body(&mut self, body: &Value) -> Value;
}

/// Records calls unchanged.
struct AsItIs;

impl Wording for AsItIs {
    fn name(&mut self, name: &str) -> String {
        name.to_owned()
    }

    fn text(&mut self, text: &str) -> String {
        text.to_owned()
    }

    fn generated(&mut self, _name: &str, _from: &str) {}

    fn body(&mut self, body: &Value) -> Value {
        body.clone()
    }
}

/// The numbers of a text, sorted: words like `12` and `0/12`.
pub(crate) fn numbers(text: &str) -> Vec<&str> {
    let words = text.split_whitespace().map(|word| {
        let is_of_number = |c: char| c.is_alphanumeric() || c == '/';
        word.trim_matches(|c| !is_of_number(c))
    });
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut found: Vec<&str> = words
        .filter(|word| word.split('/').all(is_digits))
        .collect();
    found.sort_unstable();
    found
}

/// A call with everything that it sends. Two calls have the same text if and only if they send the same.
pub fn describe(call: &ApiCall) -> String {
    describe_in(call, &mut AsItIs)
}

/// The same in other words.
pub(crate) fn describe_in(call: &ApiCall, wording: &mut impl Wording) -> String {
    if let ApiCall::Write(write) = call
        && let Action::Create(body) = write.action()
        && let metadata = &body["metadata"]
        && let (Some(name), Some(from)) =
            (metadata["name"].as_str(), metadata["generateName"].as_str())
    {
        wording.generated(name, from);
    }
    let object = call.object();
    let object = ObjectName {
        kind: object.kind,
        namespace: wording.name(&object.namespace).into(),
        name: wording.name(&object.name).into(),
    };
    match call {
        ApiCall::BindPod { pod, node } => {
            format!("bind {object} ({}) to {}", pod.uid, wording.name(node))
        }
        ApiCall::PatchPodStatus {
            pod,
            conditions,
            nominated_node,
        } => {
            let mut text = format!("patch status of {object} ({})", pod.uid);
            for condition in conditions {
                push_condition(&mut text, condition, wording);
            }
            if let Some(node) = nominated_node {
                let _ = write!(text, " nominatedNodeName={:?}", wording.name(node));
            }
            text
        }
        ApiCall::ClearPreEnqueueStatus {
            pod,
            resource_version,
            conditions,
            nominated_node,
        } => {
            let mut text = format!("clear NotReadyForScheduling of {object} ({})", pod.uid);
            if let Some(version) = resource_version {
                let _ = write!(text, " resourceVersion={version}");
            }
            for condition in conditions {
                push_condition(&mut text, condition, wording);
            }
            if let Some(node) = nominated_node {
                let _ = write!(text, " nominatedNodeName={:?}", wording.name(node));
            }
            text
        }
        ApiCall::DeletePod { pod, condition } => {
            let mut text = format!("delete {object} ({})", pod.uid);
            push_condition(&mut text, condition, wording);
            text
        }
        ApiCall::Write(write) => {
            let (verb, body) = match write.action() {
                Action::Create(body) => ("create", Some(body)),
                Action::Update(body) => ("update", Some(body)),
                Action::Patch(body) => ("patch", Some(body)),
                Action::StrategicPatch(body) => ("strategic patch", Some(body)),
                Action::Delete => ("delete", None),
            };
            let mut text = format!("{}: {verb} {object}", write.call_type().name());
            if !write.subresource().is_empty() {
                let _ = write!(text, "/{}", write.subresource());
            }
            let _ = write!(text, " ({})", write.uid());
            if let Some(version) = write.resource_version() {
                let _ = write!(text, " resourceVersion={version}");
            }
            if let Some(body) = body {
                let _ = write!(text, " {}", wording.body(body));
            }
            text
        }
    }
}

fn push_condition(text: &mut String, condition: &ConditionPatch, wording: &mut impl Wording) {
    let ConditionPatch {
        kind,
        status,
        reason,
        message,
        observed_generation,
        status_changes,
    } = condition;
    let message = wording.text(message);
    let _ = write!(text, " {kind}={status} {reason} {message:?}");
    if let Some(generation) = observed_generation {
        let _ = write!(text, " observedGeneration={generation}");
    }
    if *status_changes {
        text.push_str(" (transition)");
    }
}
