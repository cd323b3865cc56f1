//! Orders the active queue: higher priority first, then the pod that was queued earlier.

use berth_framework::plugin::{QueueSort, QueuedPod, SortKey};
use berth_framework::registry::{ArgsKind, Extensions, Registration};

/// The plugin's name.
pub const NAME: &str = "PrioritySort";

/// Orders pods by priority, then by the time of queueing.
#[derive(Debug, Default)]
pub struct PrioritySort;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(PrioritySort).queue_sort().build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl QueueSort for PrioritySort {
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool {
        let (ours, theirs) = (a.pod.priority(), b.pod.priority());
        ours > theirs || (ours == theirs && a.timestamp < b.timestamp)
    }

    fn sort_key(&self) -> Option<fn(QueuedPod<'_>) -> SortKey> {
        Some(|pod| SortKey(-i64::from(pod.pod.priority()), pod.timestamp.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;
    use berth_api::Time;
    use serde_json::json;

    /// PL-32: priority, where none is zero; then the earlier timestamp; equal pods in neither order.
    #[test]
    fn priority_takes_precedence_over_age() {
        for (a, b, first, second) in [
            (
                (json!({"priority": 2}), 9),
                (json!({"priority": 1}), 1),
                true,
                false,
            ),
            (
                (json!({"priority": 1}), 1),
                (json!({"priority": 1}), 2),
                true,
                false,
            ),
            ((json!({}), 2), (json!({"priority": 0}), 1), false, true),
            ((json!({"priority": -1}), 1), (json!({}), 2), false, true),
            ((json!({}), 1), (json!({}), 1), false, false),
        ] {
            let (pod_a, pod_b) = (pod("a", a.0.clone()), pod("b", b.0.clone()));
            let a = QueuedPod {
                pod: &pod_a,
                timestamp: Time::from_secs(a.1),
            };
            let b = QueuedPod {
                pod: &pod_b,
                timestamp: Time::from_secs(b.1),
            };
            assert_eq!(PrioritySort.less(a, b), first, "{a:?} before {b:?}");
            assert_eq!(PrioritySort.less(b, a), second, "{b:?} before {a:?}");
            let key = PrioritySort.sort_key().expect("it has keys");
            assert_eq!(key(a) < key(b), first, "by key, {a:?} before {b:?}");
            assert_eq!(key(b) < key(a), second, "by key, {b:?} before {a:?}");
        }
    }
}
