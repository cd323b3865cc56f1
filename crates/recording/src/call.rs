//! Calls as text: everything that a call sends, in one line.

use berth_framework::call::{ApiCall, ConditionPatch};
use berth_framework::write::Action;
use std::fmt::Write as _;

/// A call with everything that it sends. Two calls have the same text if and only if they send the same.
pub fn describe(call: &ApiCall) -> String {
    let object = call.object();
    match call {
        ApiCall::BindPod { pod, node } => format!("bind {object} ({}) to {node}", pod.uid),
        ApiCall::PatchPodStatus {
            pod,
            condition,
            nominated_node,
        } => {
            let mut text = format!("patch status of {object} ({})", pod.uid);
            if let Some(condition) = condition {
                push_condition(&mut text, condition);
            }
            if let Some(node) = nominated_node {
                let _ = write!(text, " nominatedNodeName={:?}", node.as_str());
            }
            text
        }
        ApiCall::ClearPreEnqueueStatus {
            pod,
            nominated_node,
        } => {
            let mut text = format!("clear NotReadyForScheduling of {object} ({})", pod.uid);
            if let Some(node) = nominated_node {
                let _ = write!(text, " nominatedNodeName={:?}", node.as_str());
            }
            text
        }
        ApiCall::DeletePod { pod, condition } => {
            let mut text = format!("delete {object} ({})", pod.uid);
            push_condition(&mut text, condition);
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
                let _ = write!(text, " {body}");
            }
            text
        }
    }
}

fn push_condition(text: &mut String, condition: &ConditionPatch) {
    let ConditionPatch {
        kind,
        status,
        reason,
        message,
        observed_generation,
        status_changes,
    } = condition;
    let _ = write!(text, " {kind}={status} {reason} {:?}", message.as_str());
    if let Some(generation) = observed_generation {
        let _ = write!(text, " observedGeneration={generation}");
    }
    if *status_changes {
        text.push_str(" (transition)");
    }
}
