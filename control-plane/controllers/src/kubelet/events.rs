//! The events of pods that a kubelet records.

use super::container;
use crate::runtime::{ControllerContext, EventSubject, EventType};
use berth_objects::object::{ControllerKey, items, name, namespace, uid};
use berth_objects::pod;
use serde_json::Value;

/// The events to report about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepEvents {
    Nothing,
    Started,
    /// Containers run again because their image was changed.
    Replaced,
    BackOff,
    /// An image cannot be pulled.
    PullFailed,
    /// An image could not be pulled a moment ago, either.
    PullBackOff,
}

/// Records the events of a step.
pub(super) fn report_step(
    cx: &mut ControllerContext<ControllerKey>,
    pod: &Value,
    what: StepEvents,
) {
    match what {
        StepEvents::Nothing | StepEvents::Replaced => {}
        StepEvents::Started => {
            // As kubelet does, container by container within a step.
            for (reason, message) in [
                ("Pulled", None),
                ("Created", Some("Container created")),
                ("Started", Some("Container started")),
            ] {
                for container in items(&pod["spec"]["containers"]) {
                    let image = container["image"].as_str().unwrap_or_default();
                    let message = message.map_or_else(
                        || {
                            format!(
                                "Container image {image:?} already present on machine and can be accessed by the pod"
                            )
                        },
                        str::to_owned,
                    );
                    report_one(cx, pod, container, EventType::Normal, reason, message);
                }
            }
        }
        StepEvents::BackOff => {
            let pod_name = format!("{}_{}({})", name(pod), namespace(pod), uid(pod));
            notify(cx, pod, EventType::Warning, "BackOff", |c| {
                format!("Back-off restarting failed container {c} in pod {pod_name}")
            });
        }
        StepEvents::PullFailed | StepEvents::PullBackOff => {
            report_pull(cx, pod, what == StepEvents::PullBackOff)
        }
    }
}

fn report_pull(cx: &mut ControllerContext<ControllerKey>, pod: &Value, waits: bool) {
    for container in container::without_image(pod) {
        let image = container["image"].as_str().unwrap_or_default();
        // The events differ between the first failures and the wait after them.
        let events = if waits {
            [
                (
                    EventType::Normal,
                    "BackOff",
                    format!("Back-off pulling image {image:?}"),
                ),
                (
                    EventType::Warning,
                    "Failed",
                    "Error: ImagePullBackOff".to_owned(),
                ),
            ]
        } else {
            let message = format!("Failed to pull image {image:?}: {}", container::PULL_ERROR);
            [
                (EventType::Warning, "Failed", message),
                (
                    EventType::Warning,
                    "Failed",
                    "Error: ErrImagePull".to_owned(),
                ),
            ]
        };
        for (event_type, reason, message) in events {
            report_one(cx, pod, container, event_type, reason, message);
        }
    }
}

/// Records an event for each container of a pod.
pub(super) fn notify(
    cx: &mut ControllerContext<ControllerKey>,
    pod: &Value,
    event_type: EventType,
    reason: &'static str,
    message: impl Fn(&str) -> String,
) {
    for container in items(&pod["spec"]["containers"]) {
        let text = message(container["name"].as_str().unwrap_or_default());
        report_one(cx, pod, container, event_type, reason, text);
    }
}

/// Records an event about one container of a pod.
pub(super) fn report_one(
    cx: &mut ControllerContext<ControllerKey>,
    pod: &Value,
    container: &Value,
    event_type: EventType,
    reason: &'static str,
    message: String,
) {
    let container = container["name"].as_str().unwrap_or_default();
    let field_path = format!("spec.containers{{{container}}}");
    let subject = subject(pod, &field_path);
    cx.event(subject, event_type, reason, message);
}

/// A pod, or a part of it, as the subject of an event of its node.
pub(super) fn subject<'a>(pod: &'a Value, field_path: &'a str) -> EventSubject<'a> {
    EventSubject {
        object: pod,
        field_path,
        host: pod::node_name(pod).unwrap_or_default(),
    }
}
