//! Values of annotations that kubelets cannot read. They count as absent, and an event reports them.

use super::refusal;
use super::{
    EXIT_CODE, NODE_READY, READY_SECONDS, REJECT_PODS, RUN_SECONDS, STARTUP_SECONDS, STOP_SECONDS,
};
use berth_objects::object::{annotation, annotation_number};
use serde_json::Value;

/// The reason of the event.
pub(super) const INVALID: &str = "InvalidAnnotation";

fn message(name: &str, value: &str, takes: &str) -> String {
    format!("annotation {name} is {value:?} and has no effect: it takes {takes}")
}

/// The faults of the annotations of a pod.
pub(super) fn wrong_of_pod(pod: &Value) -> Vec<String> {
    if !pod["metadata"]["annotations"].is_object() {
        return Vec::new();
    }
    let seconds = [STARTUP_SECONDS, READY_SECONDS, RUN_SECONDS, STOP_SECONDS];
    let seconds = seconds.into_iter().filter_map(|name| {
        let value = annotation(pod, name)?;
        let number = annotation_number::<f64>(pod, name);
        let is_fine = number.is_some_and(|seconds| seconds.is_finite() && seconds >= 0.0);
        (!is_fine).then(|| message(name, value, "seconds, such as 2.5"))
    });
    let code = annotation(pod, EXIT_CODE)
        .filter(|_| annotation_number::<i32>(pod, EXIT_CODE).is_none())
        .map(|value| message(EXIT_CODE, value, "a number, such as 1"));
    seconds.chain(code).collect()
}

/// The faults of the annotations of a node.
pub(super) fn wrong_of_node(node: &Value) -> Vec<String> {
    let ready = annotation(node, NODE_READY)
        .filter(|value| !matches!(*value, "True" | "False" | "Unknown"))
        .map(|value| message(NODE_READY, value, "True, False or Unknown"));
    let rejects = annotation(node, REJECT_PODS)
        .filter(|_| refusal::is_wrong(node))
        .map(|value| message(REJECT_PODS, value, refusal::TAKES));
    ready.into_iter().chain(rejects).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_that_cannot_be_read_are_named() {
        for (name, value, is_wrong) in [
            (RUN_SECONDS, "10", false),
            (RUN_SECONDS, "0.5", false),
            (RUN_SECONDS, "10s", true),
            (STARTUP_SECONDS, "-1", true),
            (READY_SECONDS, "NaN", true),
            (STOP_SECONDS, "", true),
            (EXIT_CODE, "137", false),
            (EXIT_CODE, "one", true),
            ("example.com/other", "one", false),
        ] {
            let pod = json!({"metadata": {"annotations": {name: value}}});
            let wrong = wrong_of_pod(&pod);
            assert_eq!(
                wrong.len(),
                usize::from(is_wrong),
                "{name}={value}: {wrong:?}"
            );
            assert!(wrong.iter().all(|text| text.contains(name)), "{wrong:?}");
        }
        for (value, is_wrong) in [("True", false), ("Unknown", false), ("false", true)] {
            let node = json!({"metadata": {"annotations": {NODE_READY: value}}});
            assert_eq!(!wrong_of_node(&node).is_empty(), is_wrong, "{value}");
        }
        let both = json!({NODE_READY: "no", REJECT_PODS: "all"});
        let node = json!({"metadata": {"annotations": both}});
        assert_eq!(wrong_of_node(&node).len(), 1, "all is a reason");
        let both = json!({NODE_READY: "no", REJECT_PODS: "OutOfcpu=0"});
        let node = json!({"metadata": {"annotations": both}});
        assert_eq!(wrong_of_node(&node).len(), 2);
    }
}
