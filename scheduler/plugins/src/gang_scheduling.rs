//! The pods of a gang start together or not at all (KEP-4671).
//!
//! ```text
//! a pod group with minCount 3, two pods          → PreEnqueue rejects both
//! a third pod                                    → the group is tried
//! room for two of them                           → none is placed
//! ```

use berth_api::{Object, Pod};
use berth_framework::cluster::{GROUP_GATE_PLUGIN, GroupKey, GroupKind};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, Touched, WaitKey, Waits,
};
use berth_framework::plugin::{
    Context, EnqueueExtensions, GroupProgress, PlacementFeasible, PreEnqueue,
};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{Cluster, Code, Feature, FeatureGates, ReasonCode, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = GROUP_GATE_PLUGIN;

/// The reason why a pod of a gang with too few pods is rejected.
pub const REASON_TOO_FEW: &str =
    "waiting for minCount pods from a gang to appear in scheduling queue";

/// Gangs.
#[derive(Debug, Default)]
pub struct GangScheduling;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(GangScheduling)
            .pre_enqueue()
            .placement_feasible()
            .events()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
    .gated_by(Feature::GenericWorkload)
}

impl PreEnqueue for GangScheduling {
    /// Only the root of a hierarchy decides: members of a subtree that is not ready pass if the root is ready without
    /// it.
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        let Some(leaf) = GroupKey::of_pod(pod) else {
            return Status::success();
        };
        let Ok(root) = cx.cluster.groups().root_of(&leaf) else {
            return Status::unresolvable(ReasonCode::PodGroup.reason(format!(
                "waiting for pod's pod group {:?} to appear in scheduling queue",
                leaf.name.as_str()
            )));
        };
        if cx.cluster.is_ready(&root) {
            return Status::success();
        }
        match root.kind {
            // Any pod makes a basic group ready; the pod itself may not be counted yet.
            GroupKind::PodGroup if is_basic(cx.cluster, &root) => Status::success(),
            GroupKind::PodGroup => {
                Status::unresolvable(ReasonCode::PodGroup.reason(REASON_TOO_FEW))
            }
            GroupKind::CompositePodGroup => {
                Status::unresolvable(ReasonCode::PodGroup.reason(format!(
                    "waiting for composite pod group {:?} tree to meet quorum",
                    root.name.as_str()
                )))
            }
        }
    }
}

fn is_basic(cluster: &Cluster, group: &GroupKey) -> bool {
    let spec = cluster.groups().spec(group);
    spec.is_some_and(|spec| spec.gang_min().is_none())
}

impl PlacementFeasible for GangScheduling {
    fn placement_feasible(&self, cx: &Context<'_>, progress: &GroupProgress<'_>) -> Status {
        let GroupProgress {
            group,
            scheduled,
            remaining,
        } = *progress;
        let Some(spec) = cx.cluster.groups().spec(group) else {
            return Status::error(format!(
                "failed to get podGroup state for podGroup {} to compute gang feasibility: the group does not exist",
                group.namespaced_name()
            ));
        };
        let min = spec.min();
        if scheduled >= min {
            return Status::success();
        }
        if scheduled + remaining < min {
            return Status::unschedulable(ReasonCode::PodGroup.reason(format!(
                "minCount ({min}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"
            )));
        }
        let text = format!(
            "minCount ({min}) is not yet satisfied: {scheduled} scheduled, {remaining} remaining"
        );
        Status::new(Code::Wait, [ReasonCode::PodGroup.reason(text)])
    }
}

/// The group of a change: the group of a pod, or the object itself.
fn changed_group(change: Change<'_>) -> Option<GroupKey> {
    let object = change.new.or(change.old)?;
    match object {
        Object::Pod(pod) => GroupKey::of_pod(pod),
        other => GroupKey::of_object(other),
    }
}

/// A change of a group concerns every pod of its hierarchy.
fn is_of_hierarchy(cluster: &Cluster, pod: &Pod, change: Change<'_>) -> bool {
    let (Some(leaf), Some(changed)) = (GroupKey::of_pod(pod), changed_group(change)) else {
        return false;
    };
    if leaf == changed {
        return true;
    }
    let root = |key: &GroupKey| cluster.groups().root_of(key).ok();
    leaf.namespace == changed.namespace
        && root(&leaf).is_some_and(|own| root(&changed) == Some(own))
}

/// Returns whether the minimum of a group decreased.
fn needs_less(change: Change<'_>) -> bool {
    let min = |object: Option<&Object>| match object? {
        Object::PodGroup(group) => group.spec.gang_min(),
        Object::CompositePodGroup(group) => group.spec.gang_min(),
        _ => None,
    };
    matches!((min(change.old), min(change.new)), (Some(before), Some(after)) if after < before)
}

fn key_of(group: &GroupKey) -> WaitKey {
    WaitKey::of((&group.namespace, &group.name))
}

fn waits(pod: &Pod) -> Waits {
    GroupKey::of_pod(pod).iter().map(key_of).collect()
}

/// The pods of all groups of the hierarchy.
fn touched(cluster: &Cluster, change: Change<'_>) -> Touched {
    let Some(changed) = changed_group(change) else {
        return Touched::no_pod();
    };
    match cluster.groups().root_of(&changed) {
        Ok(root) => cluster.groups().leaves(&root).iter().map(key_of).collect(),
        Err(_) => [key_of(&changed)].into_iter().collect(),
    }
}

impl EnqueueExtensions for GangScheduling {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let on = |resource, action, helps: fn(&Cluster, &Pod, Change<'_>) -> bool| {
            EventRegistration::with_hint(resource, action, move |cluster, pod, change| {
                Ok(if helps(cluster, pod, change) {
                    Hint::Queue
                } else {
                    Hint::Skip
                })
            })
            .found_by(waits, touched)
        };
        // Only a lower minimum can admit a waiting group (G-6).
        let of_less: fn(&Cluster, &Pod, Change<'_>) -> bool =
            |cluster, pod, change| needs_less(change) && is_of_hierarchy(cluster, pod, change);
        vec![
            // A new member, with or without a node, may complete the quorum.
            on(
                EventResource::UnscheduledPod,
                ActionType::ADD,
                is_of_hierarchy,
            ),
            on(EventResource::AssignedPod, ActionType::ADD, is_of_hierarchy),
            on(EventResource::PodGroup, ActionType::ADD, is_of_hierarchy),
            on(EventResource::PodGroup, ActionType::UPDATE, of_less),
            on(
                EventResource::CompositePodGroup,
                ActionType::ADD,
                is_of_hierarchy,
            ),
            on(
                EventResource::CompositePodGroup,
                ActionType::UPDATE,
                of_less,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;
    use berth_framework::testing::{PodBuilder, World, pod};
    use serde_json::{Value, json};

    fn world() -> World {
        let mut world = World::default();
        world.features = world.features.with(Feature::GenericWorkload, true);
        world.cluster.follow(&world.features);
        let names = vec!["default-scheduler".into()];
        world.cluster.pods.count_members_of(names);
        world
    }

    fn group(kind: Kind, name: &str, spec: Value) -> Object {
        let json = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": spec,
        });
        kind.decode(json.to_string().as_bytes()).expect("a group")
    }

    fn gang(name: &str, min: i32) -> Object {
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": min}}});
        group(Kind::PodGroup, name, spec)
    }

    fn asked(world: &World, pod: PodBuilder) -> String {
        let status = GangScheduling.pre_enqueue(&world.context(), &pod.build());
        status.message()
    }

    /// G-4.
    #[test]
    fn a_gang_waits_for_its_minimum() {
        let mut world = world();
        assert_eq!(asked(&world, pod("alone")), "");
        assert_eq!(
            asked(&world, pod("a").member_of("g")),
            "waiting for pod's pod group \"g\" to appear in scheduling queue"
        );
        world.cluster.set(&gang("g", 2));
        let mut world = world.pod(pod("a").member_of("g"));
        assert_eq!(asked(&world, pod("a").member_of("g")), REASON_TOO_FEW);
        world = world.pod(pod("b").member_of("g"));
        assert_eq!(asked(&world, pod("a").member_of("g")), "");
        let basic = json!({"schedulingPolicy": {"basic": {}}});
        world.cluster.set(&group(Kind::PodGroup, "basic", basic));
        assert_eq!(asked(&world, pod("c").member_of("basic")), "");
    }

    /// G-5.
    #[test]
    fn the_root_of_a_hierarchy_decides() {
        let mut world = world();
        let root = json!({"schedulingPolicy": {"gang": {"minGroupCount": 1}}});
        world
            .cluster
            .set(&group(Kind::CompositePodGroup, "top", root));
        for (name, min) in [("one", 1), ("two", 2)] {
            let spec = json!({
                "parentCompositePodGroupName": "top",
                "schedulingPolicy": {"gang": {"minCount": min}},
            });
            world.cluster.set(&group(Kind::PodGroup, name, spec));
        }
        let world = world.pod(pod("b").member_of("two"));
        assert_eq!(
            asked(&world, pod("b").member_of("two")),
            "waiting for composite pod group \"top\" tree to meet quorum"
        );
        let world = world.pod(pod("a").member_of("one"));
        assert_eq!(asked(&world, pod("b").member_of("two")), "");
    }

    /// G-16.
    #[test]
    fn a_gang_can_start_when_its_minimum_is_placed() {
        let mut world = world();
        world.cluster.set(&gang("g", 3));
        let group = GroupKey::pod_group(&"default".into(), &"g".into());
        for (scheduled, remaining, code, text) in [
            (
                0,
                3,
                Code::Wait,
                "minCount (3) is not yet satisfied: 0 scheduled, 3 remaining",
            ),
            (3, 2, Code::Success, ""),
            (
                2,
                0,
                Code::Unschedulable,
                "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining",
            ),
        ] {
            let progress = GroupProgress {
                group: &group,
                scheduled,
                remaining,
            };
            let status = GangScheduling.placement_feasible(&world.context(), &progress);
            assert_eq!((status.code(), status.message().as_str()), (code, text));
        }
    }

    /// G-6: an update of the group helps only if the minimum decreased.
    #[test]
    fn a_lower_minimum_helps() {
        let mut world = world();
        world.cluster.set(&gang("g", 2));
        let waiting = pod("a").member_of("g").build();
        let events = Arc::new(GangScheduling).events(&world.features);
        for (before, after, expected) in
            [(3, 2, Hint::Queue), (2, 2, Hint::Skip), (1, 2, Hint::Skip)]
        {
            let (old, new) = (gang("g", before), gang("g", after));
            let change = Change {
                old: Some(&old),
                new: Some(&new),
            };
            let of_updates = events.iter().find(|on| {
                on.event.resource == EventResource::PodGroup
                    && on.event.action == ActionType::UPDATE
            });
            let on = of_updates.expect("it is registered");
            let hint = on.hint.as_ref().expect("it decides");
            assert_eq!(hint(&world.cluster, &waiting, change), Ok(expected));
            let index = on.index.as_ref().expect("it is indexed");
            assert!(index.finds(&world.cluster, &waiting, change));
            assert!(!index.finds(&world.cluster, &pod("b").member_of("h").build(), change));
        }
    }
}
