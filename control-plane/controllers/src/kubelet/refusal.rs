//! Rejections by annotation: a simulated kubelet rejects all new pods, or a number of pods. Tests use it for kubelets
//! whose checks exceed the information of the API server.

use super::REJECT_PODS;
use super::admission::Rejection;
use berth_objects::object::{annotation, name};
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The longest reason; a reason is in the status of each pod.
const REASON_LENGTH_MAX: usize = 128;

/// The values that the annotation takes, for messages.
pub(super) const TAKES: &str =
    "a reason, such as OutOfcpu, or a reason and a number of pods, such as OutOfcpu=3";

/// The pods that a kubelet is to reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal<'a> {
    reason: &'a str,
    /// The number of pods; `None` for all.
    pods: Option<u32>,
}

/// Reads a value of the annotation: `REASON` or `REASON=NUMBER`.
fn read(value: &str) -> Option<Refusal<'_>> {
    let (reason, pods) = match value.split_once('=') {
        Some((reason, number)) => (reason, Some(number.parse().ok().filter(|n| *n > 0)?)),
        None => (value, None),
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_');
    let is_reason = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.len() <= REASON_LENGTH_MAX
        && reason.chars().all(is_part);
    is_reason.then_some(Refusal { reason, pods })
}

/// Returns whether the annotation of a node cannot be read.
pub(super) fn is_wrong(node: &Value) -> bool {
    annotation(node, REJECT_PODS).is_some_and(|value| read(value).is_none())
}

/// The pods that were rejected because of the present value of the annotation of each node.
#[derive(Debug, Default)]
pub(super) struct Refusals(FxHashMap<String, (String, u32)>);

impl Refusals {
    /// The rejection that the annotation of a node requests for the next new pod.
    pub(super) fn next(&self, node: &Value) -> Option<Rejection> {
        let value = annotation(node, REJECT_PODS)?;
        let refusal = read(value)?;
        let known = self.0.get(name(node));
        let rejected = known.map_or(0, |(known, n)| if known == value { *n } else { 0 });
        let is_done = refusal.pods.is_some_and(|pods| rejected >= pods);
        (!is_done).then(|| Rejection {
            reason: refusal.reason.to_owned(),
            message: format!("annotation {REJECT_PODS} of the node is {value:?}"),
        })
    }

    /// A pod was rejected because of the annotation.
    pub(super) fn rejected(&mut self, node: &Value) {
        let Some(value) = annotation(node, REJECT_PODS) else {
            return;
        };
        let entry = self.0.entry(name(node).to_owned()).or_default();
        if entry.0 != value {
            *entry = (value.to_owned(), 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }

    /// A node was changed or deleted: another value of the annotation starts over.
    pub(super) fn follow(&mut self, node: &str, new: Option<&Value>) {
        let value = new.and_then(|node| annotation(node, REJECT_PODS));
        let known = self.0.get(node);
        if known.is_some_and(|(known, _)| Some(known.as_str()) != value) {
            self.0.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_a_reason_and_a_number() {
        let of = |reason, pods| Some(Refusal { reason, pods });
        for (value, expected) in [
            ("OutOfcpu", of("OutOfcpu", None)),
            ("OutOfcpu=3", of("OutOfcpu", Some(3))),
            (
                "OutOfexample.com/gpu=1",
                of("OutOfexample.com/gpu", Some(1)),
            ),
            ("", None),
            ("=3", None),
            ("3", None),
            ("OutOfcpu=", None),
            ("OutOfcpu=0", None),
            ("OutOfcpu=-1", None),
            ("OutOfcpu=many", None),
            ("Out of cpu", None),
            (&"a".repeat(129), None),
        ] {
            assert_eq!(read(value), expected, "{value}");
            let node = json!({"metadata": {"annotations": {REJECT_PODS: value}}});
            assert_eq!(is_wrong(&node), expected.is_none(), "{value}");
        }
    }

    #[test]
    fn another_value_starts_over() {
        let node =
            |value: &str| json!({"metadata": {"name": "n", "annotations": {REJECT_PODS: value}}});
        let mut refusals = Refusals::default();
        let mut count = |value: &str, pods: usize| {
            let node = node(value);
            refusals.follow("n", Some(&node));
            let rejected = (0..pods).filter(|_| {
                let rejects = refusals.next(&node).is_some();
                if rejects {
                    refusals.rejected(&node);
                }
                rejects
            });
            rejected.count()
        };
        assert_eq!(count("OutOfcpu=2", 5), 2);
        assert_eq!(count("OutOfcpu=2", 5), 0);
        assert_eq!(count("OutOfcpu=1", 5), 1);
        assert_eq!(count("OutOfcpu", 5), 5);
        refusals.follow("n", None);
        assert!(refusals.0.is_empty());
    }
}
