//! Applies changes of the cluster: pods in [`pods`], all other kinds here.

mod pods;

use crate::binding::Bindings;
use crate::cache::node_update_events;
use crate::core::Core;
use crate::cycle::Cycle;
use crate::rejections::node_changed;
use berth_api::{Kind, Node, Object, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::object_name::ObjectName;
use berth_framework::{ActionType, ClusterEvent, EventResource};
use berth_telemetry::Stopwatch;
use berth_telemetry::metrics::Metric;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A change of the cluster, as a watch reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum ClusterChange {
    /// An object is new or changed.
    Applied(Object),
    /// An object was deleted; this is its last state known to the watch.
    Deleted(Object),
    /// All current objects of a kind: the first list, or a list after a gap.
    Replaced(Kind, Vec<Object>),
}

const NODE_ADD: ClusterEvent = ClusterEvent::new(EventResource::Node, ActionType::ADD);
const NODE_DELETE: ClusterEvent = ClusterEvent::new(EventResource::Node, ActionType::DELETE);

/// Takes in one change.
pub(super) struct Intake<'a> {
    pub(super) core: &'a mut Core,
    pub(super) cycle: &'a Cycle,
    pub(super) bindings: &'a Bindings,
    /// The label of the counted event, kept to reuse its memory.
    pub(super) event_label: &'a mut String,
}

impl Intake<'_> {
    pub(super) fn take_in(&mut self, change: ClusterChange) {
        let awaited = match &change {
            ClusterChange::Applied(object) | ClusterChange::Deleted(object)
                if self.core.waits.any_for_objects() =>
            {
                Some(ObjectName::of(object))
            }
            _ => None,
        };
        match change {
            ClusterChange::Applied(Object::Pod(pod)) => self.pod_applied(pod),
            ClusterChange::Applied(Object::Node(node)) => self.node_applied(node),
            ClusterChange::Applied(object) => self.object_applied(&object),
            // By its UID, because a new pod can have the same name.
            ClusterChange::Deleted(Object::Pod(pod)) => self.pod_deleted(&pod),
            ClusterChange::Deleted(object) => {
                let metadata = object.metadata();
                self.deleted(object.kind(), &metadata.namespace, &metadata.name);
            }
            ClusterChange::Replaced(kind, objects) => self.replaced(kind, objects),
        }
        if let Some(object) = awaited {
            self.core.waits.object_changed(&object);
        }
    }

    fn deleted(&mut self, kind: Kind, namespace: &Str, name: &Str) {
        match kind {
            Kind::Pod => {
                if let Some(pod) = self
                    .core
                    .framework
                    .cache
                    .stored_by_name(namespace, name)
                    .cloned()
                {
                    self.pod_deleted(&pod);
                }
            }
            Kind::Node => self.node_deleted(name),
            kind => self.object_deleted(kind, namespace, name),
        }
    }

    /// Objects that are missing in the list were deleted; the others are new, changed or unchanged. An object was also
    /// deleted if another object has its name now.
    fn replaced(&mut self, kind: Kind, objects: Vec<Object>) {
        let listed: FxHashMap<(&Str, &Str), &Str> = objects
            .iter()
            .map(|object| {
                let metadata = object.metadata();
                ((&metadata.namespace, &metadata.name), &metadata.uid)
            })
            .collect();
        let mut dropped = 0_u32;
        for (namespace, name, uid) in self.core.framework.cache.identities(kind) {
            match listed.get(&(&namespace, &name)) {
                Some(listed) if **listed == uid => {}
                // The new object of that name replaces it when it is applied below.
                Some(_) => dropped += 1,
                None => {
                    dropped += 1;
                    self.deleted(kind, &namespace, &name);
                    let object = ObjectName::new(kind, &namespace, &name);
                    self.core.waits.object_changed(&object);
                }
            }
        }
        if dropped > 0 {
            let (_, _, plural) = kind.resource();
            let labels = [plural];
            self.core.framework.metrics.add(
                Metric::ObjectsDroppedByList,
                &labels,
                f64::from(dropped),
            );
        }
        for object in objects {
            if object.kind() == kind {
                self.take_in(ClusterChange::Applied(object));
            }
        }
    }

    // --- nodes ---------------------------------------------------------------------------------------------

    fn node_applied(&mut self, node: Arc<Node>) {
        let began = self.stage_began();
        let old = self.core.framework.cache.node(node.name()).cloned();
        match old {
            None => {
                self.seen(3, "Add event for node", node.name());
                self.core.framework.cache.set_node(node.clone());
                let new = Object::Node(node);
                self.core.move_all(&NODE_ADD, None, Some(&new), None);
                self.handled(&NODE_ADD, began);
            }
            Some(old)
                if old.metadata.resource_version == node.metadata.resource_version
                    && old.metadata.uid == node.metadata.uid => {}
            Some(old) => {
                self.seen(4, "Update event for node", node.name());
                let events =
                    node_update_events(&old, &node, &self.core.framework.settings.features);
                self.core.framework.cache.set_node(node.clone());
                node_changed(&mut self.core.framework.cache, &old, &node);
                let updating = self.nanos().saturating_sub(began);
                let (old, new) = (Object::Node(old), Object::Node(node));
                for event in events {
                    self.move_timed(&event, &old, &new, updating);
                }
            }
        }
    }

    fn node_deleted(&mut self, name: &str) {
        let began = self.stage_began();
        let Some(node) = self.core.framework.cache.node(name).cloned() else {
            return;
        };
        self.seen(3, "Delete event for node", name);
        // Before the node is removed from the cache, so that hints still see it.
        let old = Object::Node(node);
        self.core.move_all(&NODE_DELETE, Some(&old), None, None);
        let rejections = self.core.framework.cache.cluster_mut().rejections_mut();
        rejections.node_changed(name);
        self.core.framework.cache.remove_node(name);
        self.handled(&NODE_DELETE, began);
    }

    /// Logs a change of a node.
    #[track_caller]
    fn seen(&mut self, level: u8, what: &'static str, node: &str) {
        self.core
            .framework
            .outbound
            .log
            .v(level, what, |line| line.with("node", node));
    }

    // --- other kinds ---------------------------------------------------------------------------------------

    fn object_applied(&mut self, object: &Object) {
        let began = self.stage_began();
        let (old, new) = self.core.store_object(object);
        let action = match old.as_ref().map(Object::metadata) {
            None => ActionType::ADD,
            Some(before) => {
                let after = new.metadata();
                if before.resource_version == after.resource_version && before.uid == after.uid {
                    return;
                }
                ActionType::UPDATE
            }
        };
        self.group_changed(&new);
        let event = ClusterEvent::new(EventResource::of_kind(object.kind()), action);
        self.core.move_all(&event, old.as_ref(), Some(&new), None);
        self.handled(&event, began);
    }

    fn object_deleted(&mut self, kind: Kind, namespace: &Str, name: &Str) {
        let began = self.stage_began();
        let Some(object) = self.core.remove_object(kind, namespace, name) else {
            return;
        };
        self.group_changed(&object);
        let event = ClusterEvent::new(EventResource::of_kind(kind), ActionType::DELETE);
        self.core.move_all(&event, Some(&object), None, None);
        self.handled(&event, began);
    }

    /// If the object is a group, moves its members according to its new state.
    fn group_changed(&mut self, object: &Object) {
        if let Some(key) = GroupKey::of_object(object) {
            let (queue, cx) = self.core.queue_with_context();
            queue.group_changed(&cx, &key);
        }
    }

    // --- durations -----------------------------------------------------------------------------------------

    /// Wakes the pods that one of several events of a change may help. The event's duration is that of the change,
    /// which took `updating` nanoseconds, and its own.
    fn move_timed(&mut self, event: &ClusterEvent, old: &Object, new: &Object, updating: u64) {
        let began = self.stage_began();
        self.core.move_all(event, Some(old), Some(new), None);
        let nanos = updating.saturating_add(self.nanos().saturating_sub(began));
        self.observe_handling(event, nanos);
    }

    /// The end of the previous measurement: of the previous change, or the beginning of the step.
    fn stage_began(&self) -> u64 {
        self.core.framework.clock.laps().last_nanos()
    }

    fn nanos(&self) -> u64 {
        self.core.framework.clock.laps().nanos()
    }

    fn handled(&mut self, event: &ClusterEvent, began: u64) {
        let nanos = self.nanos().saturating_sub(began);
        self.observe_handling(event, nanos);
    }

    fn observe_handling(&mut self, event: &ClusterEvent, nanos: u64) {
        event.write_label(self.event_label);
        let labels = [self.event_label.as_str()];
        self.core.framework.metrics.observe(
            Metric::EventHandlingDuration,
            &labels,
            nanos as f64 / 1e9,
        );
    }
}
