//! The arithmetic of a rolling update: the permitted sizes of the new and the old replica sets.
//!
//! Follows kube-controller-manager: never more than `replicas + maxSurge` pods, never fewer than `replicas -
//! maxUnavailable` available pods; unhealthy pods are removed first.

use berth_objects::object::{count, scaled};
use serde_json::Value;

/// The permitted deviations of a rollout from the desired number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bounds {
    /// The desired number of pods.
    pub(super) replicas: i32,
    /// Pods above that.
    pub(super) surge: i32,
    /// Pods of that which need not be available.
    pub(super) unavailable: i32,
}

/// The size of a replica set: asked for (`spec.replicas`) and available (`status.availableReplicas`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) replicas: i32,
    pub(super) available: i32,
}

impl Bounds {
    /// The bounds of a deployment. The percentage of maxSurge is rounded up, the percentage of maxUnavailable down. If
    /// both are zero, one pod may be unavailable, because the rollout could not proceed otherwise. Recreate has no
    /// bounds.
    pub(super) fn of(deployment: &Value) -> Self {
        let replicas = count(&deployment["spec"]["replicas"], 1);
        let strategy = &deployment["spec"]["strategy"];
        if is_recreate(deployment) {
            return Self {
                replicas,
                ..Self::default()
            };
        }
        let rolling = &strategy["rollingUpdate"];
        let surge = scaled(&rolling["maxSurge"], replicas, true);
        let mut unavailable = scaled(&rolling["maxUnavailable"], replicas, false);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Self {
            replicas,
            surge,
            unavailable: unavailable.min(replicas),
        }
    }

    /// The most pods there may be.
    pub(super) fn pods_max(self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// The fewest available pods there must be.
    pub(super) fn available_min(self) -> i32 {
        self.replicas - self.unavailable
    }

    /// The size that the new replica set, now `new`, should get while all of them together have `total` pods.
    pub(super) fn grow(self, new: i32, total: i32) -> i32 {
        if new >= self.replicas {
            return self.replicas;
        }
        let room = self.pods_max().saturating_sub(total).max(0);
        new + room.min(self.replicas - new)
    }

    /// The sizes that the old replica sets, oldest first, should get.
    pub(super) fn shrink(self, new: Size, old: &[Size]) -> Vec<i32> {
        let mut sizes: Vec<i32> = old.iter().map(|s| s.replicas).collect();
        let old_pods: i32 = sizes.iter().sum();
        // New pods that are not available yet are not counted, because old pods would be removed too early.
        let waiting = new.replicas - new.available;
        let mut surplus = old_pods + new.replicas - self.available_min() - waiting;
        if old_pods == 0 || surplus <= 0 {
            return sizes;
        }
        for (size, set) in sizes.iter_mut().zip(old) {
            let broken = (*size - set.available).clamp(0, surplus.max(0));
            *size -= broken;
            surplus -= broken;
        }
        let available: i32 = old.iter().map(|s| s.available).sum::<i32>() + new.available;
        let mut spare = available - self.available_min();
        for size in &mut sizes {
            let step = (*size).min(spare).max(0);
            *size -= step;
            spare -= step;
        }
        sizes
    }
}

/// Returns whether all old pods are deleted before the first new pod is created.
pub(super) fn is_recreate(deployment: &Value) -> bool {
    deployment["spec"]["strategy"]["type"] == "Recreate"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bounds_round_in_favour_of_progress() {
        for (replicas, surge, unavailable, expected) in [
            // 25 % of 10 is 2.5: three more, two fewer.
            (10, json!("25%"), json!("25%"), (3, 2)),
            (10, Value::Null, Value::Null, (3, 2)),
            (30, json!("25%"), json!("25%"), (8, 7)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (4, json!(0), json!(0), (0, 1)),
            // 10 % of 4 is 0.4, which rounds down to 0; without a surge one pod must be unavailable.
            (4, json!(0), json!("10%"), (0, 1)),
            (3, json!(2), json!(5), (2, 3)),
            (0, json!("25%"), json!(1), (0, 0)),
            (10, json!("100%"), json!("100%"), (10, 10)),
        ] {
            let d = json!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
            let bounds = Bounds::of(&d);
            let situation =
                format!("{replicas} replicas, surge {surge}, unavailable {unavailable}");
            assert_eq!((bounds.surge, bounds.unavailable), expected, "{situation}");
        }
        let recreate = json!({"spec": {"replicas": 5, "strategy": {"type": "Recreate"}}});
        assert_eq!(Bounds::of(&recreate).pods_max(), 5);
    }

    #[test]
    fn the_new_replica_set_grows_into_the_room_there_is() {
        let bounds = Bounds {
            replicas: 10,
            surge: 3,
            unavailable: 2,
        };
        for (situation, new, total, expected) in [
            ("the first step uses the surge", 0, 10, 3),
            ("two old ones are gone, two more", 3, 11, 5),
            ("no room", 3, 13, 3),
            ("too many already", 3, 20, 3),
            ("never above what is wanted", 8, 9, 10),
            ("scaled down meanwhile", 12, 12, 10),
            ("all there", 10, 12, 10),
        ] {
            assert_eq!(bounds.grow(new, total), expected, "{situation}");
        }
    }

    #[test]
    fn the_old_replica_sets_shrink_as_far_as_availability_allows() {
        let bounds = Bounds {
            replicas: 10,
            surge: 3,
            unavailable: 2,
        };
        let size = |replicas, available| Size {
            replicas,
            available,
        };
        for (situation, new, old, expected) in [
            // 13 pods - 8 needed - 3 not yet available = 2 to spare.
            (
                "new ones not available yet",
                size(3, 0),
                vec![size(10, 10)],
                vec![8],
            ),
            (
                "the new ones have come",
                size(5, 5),
                vec![size(8, 8)],
                vec![3],
            ),
            ("nothing to spare", size(5, 0), vec![size(8, 8)], vec![8]),
            // Four old pods are unhealthy; at most 13 - 8 - 3 = 2 pods may be removed.
            ("broken ones first", size(3, 0), vec![size(10, 6)], vec![8]),
            // 14 pods - 8 = 6 may be removed: the two unhealthy ones, then 12 available - 8 = 4 of the oldest.
            (
                "the oldest first",
                size(4, 4),
                vec![size(5, 5), size(5, 3)],
                vec![1, 3],
            ),
            ("none left", size(10, 10), vec![size(0, 0)], vec![0]),
            (
                "all new",
                size(10, 10),
                vec![size(2, 2), size(1, 0)],
                vec![0, 0],
            ),
        ] {
            assert_eq!(bounds.shrink(new, &old), expected, "{situation}");
        }
    }
}
