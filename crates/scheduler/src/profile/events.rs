//! Which events wake the pods that a plugin rejected.

use super::Profile;
use berth_api::Str;
use berth_framework::event::EventRegistration;
use berth_framework::registry::Extensions;
use berth_framework::{ActionType, EventResource, FeatureGates};

/// The registrations of one plugin.
#[derive(Debug, Clone)]
pub struct Registrations {
    /// The plugin.
    pub plugin: Str,
    /// What it registered for.
    pub events: Vec<EventRegistration>,
}

impl Profile {
    /// What the profile's plugins registered for, as they said it: of those that can reject a pod only, and
    /// everything for one that says nothing of events.
    pub fn registrations(&self, features: &FeatureGates) -> Vec<Registrations> {
        self.plugins()
            .iter()
            .filter(|plugin| can_reject(plugin))
            .map(|plugin| Registrations {
                plugin: Str::new(&plugin.name),
                events: match &plugin.events {
                    Some(events) => events.clone().events(features),
                    None => everything(),
                },
            })
            .collect()
    }

    /// [`Profile::registrations`] with what goes without saying: who waits for new nodes hears of nodes that
    /// lose a taint too.
    pub fn registrations_with_implied(&self, features: &FeatureGates) -> Vec<Registrations> {
        let mut all = self.registrations(features);
        for registrations in &mut all {
            imply_taint_updates(&mut registrations.events);
        }
        all
    }
}

fn imply_taint_updates(events: &mut Vec<EventRegistration>) {
    let untainted = ActionType::UPDATE_NODE_TAINT;
    let of_nodes = |e: &&EventRegistration| e.event.resource == EventResource::Node;
    let hears_adds = events.iter().filter(of_nodes).any(|e| {
        e.event.action.intersects(ActionType::ADD) && !e.event.action.intersects(untainted)
    });
    let hears_taints = events
        .iter()
        .filter(of_nodes)
        .any(|e| e.event.action.intersects(untainted));
    if hears_adds && !hears_taints {
        events.push(EventRegistration::always(EventResource::Node, untainted));
    }
}

/// Only who takes part in one of these points can turn a pod down.
fn can_reject(plugin: &Extensions) -> bool {
    plugin.pre_enqueue.is_some()
        || plugin.pre_filter.is_some()
        || plugin.filter.is_some()
        || plugin.reserve.is_some()
        || plugin.permit.is_some()
}

/// Every event that may help a pod, for plugins that do not say which do.
fn everything() -> Vec<EventRegistration> {
    [
        EventResource::Pod,
        EventResource::Node,
        EventResource::PersistentVolume,
        EventResource::PersistentVolumeClaim,
        EventResource::CsiNode,
        EventResource::CsiDriver,
        EventResource::CsiStorageCapacity,
        EventResource::StorageClass,
        EventResource::ResourceClaim,
        EventResource::DeviceClass,
    ]
    .into_iter()
    .map(|resource| EventRegistration::always(resource, ActionType::ALL))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_nodes_imply_lost_taints() {
        let node = |action| EventRegistration::always(EventResource::Node, action);
        let pod = |action| EventRegistration::always(EventResource::Pod, action);
        for (situation, mut events, implied) in [
            ("nodes added", vec![node(ActionType::ADD)], 1),
            (
                "taints heard",
                vec![node(ActionType::ADD | ActionType::UPDATE_NODE_TAINT)],
                0,
            ),
            (
                "taints heard elsewhere",
                vec![node(ActionType::ADD), node(ActionType::UPDATE_NODE_TAINT)],
                0,
            ),
            ("labels only", vec![node(ActionType::UPDATE_NODE_LABEL)], 0),
            ("pods only", vec![pod(ActionType::ADD)], 0),
        ] {
            let said = events.len();
            imply_taint_updates(&mut events);
            assert_eq!(events.len() - said, implied, "{situation}");
        }
    }
}
