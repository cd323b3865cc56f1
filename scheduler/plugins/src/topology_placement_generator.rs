//! A group with a topology constraint is placed on nodes with one value of a label (KEP-5732).
//!
//! ```text
//! schedulingConstraints: {topology: [{key: rack}]}, nodes of the racks a, b and c
//!     → three placements; one with running members of the group is the only one
//! ```

use berth_api::{Object, Pod, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, Hint};
use berth_framework::plugin::{Context, EnqueueExtensions, GroupPlacement, PlacementGenerate};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::{Cluster, Feature, FeatureGates, Slot, Status};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "TopologyPlacementGenerator";

/// Topology constraints of groups.
#[derive(Debug, Default)]
pub struct TopologyPlacementGenerator;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(TopologyPlacementGenerator)
            .placement_generate()
            .events()
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
    .gated_by(Feature::TopologyAwareWorkloadScheduling)
}

/// The domain of the members that have a node. Members on nodes that do not exist any more have none.
fn domain_of(
    cx: &Context<'_>,
    key: &Str,
    scheduled: &[(String, Str)],
) -> Result<Option<Str>, Status> {
    let mut domains: BTreeSet<&Str> = BTreeSet::new();
    for (pod, node) in scheduled {
        let Some(node) = cx.cluster.nodes.node(node) else {
            continue;
        };
        let Some(domain) = node.labels().get_str(key) else {
            return Err(Status::error(format!(
                "cannot determine domain for already scheduled pods: no topology domain found for pod {pod}"
            )));
        };
        domains.insert(domain);
    }
    if domains.len() > 1 {
        let names: Vec<&str> = domains.iter().map(|domain| domain.as_str()).collect();
        return Err(Status::error(format!(
            "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: {}",
            names.join(", ")
        )));
    }
    Ok(domains.into_iter().next().cloned())
}

impl PlacementGenerate for TopologyPlacementGenerator {
    fn placements(
        &self,
        cx: &Context<'_>,
        group: &GroupKey,
        scheduled: &[(String, Str)],
        nodes: &[Slot],
    ) -> Result<Option<Vec<GroupPlacement>>, Status> {
        let spec = cx.cluster.groups().spec(group);
        let Some(key) = spec.and_then(|spec| spec.topology_key()) else {
            return Ok(None);
        };
        // Scheduled members determine the domain (G-21).
        let only = domain_of(cx, key, scheduled)?;
        let topology = cx.cluster.nodes.topology(key);
        let nodes_of_scope = nodes.len();
        let sizes = topology.nodes_of().iter();
        let mut domains: Vec<Vec<Slot>> = sizes
            .map(|nodes| Vec::with_capacity((*nodes as usize).min(nodes_of_scope)))
            .collect();
        for slot in nodes {
            if let Some(domain) = topology.domain(*slot) {
                domains[domain as usize].push(*slot);
            }
        }
        // A domain without nodes in `nodes` has no name, and is no placement.
        let name = |nodes: &[Slot]| {
            let first = cx.cluster.nodes.get(*nodes.first()?)?;
            first.labels().get_str(key).cloned()
        };
        let placements = domains.into_iter().filter_map(|nodes| {
            let name = name(&nodes)?;
            Some(GroupPlacement { name, nodes })
        });
        let mut placements: Vec<GroupPlacement> = placements
            .filter(|placement| only.as_ref().is_none_or(|only| *only == placement.name))
            .collect();
        // Equal scores are decided by name (G-22). The numbers of domains depend on the history of the cluster.
        placements.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Some(placements))
    }
}

/// The topology keys of a pod's group and of its ancestors.
fn keys_of(cluster: &Cluster, pod: &Pod) -> Vec<Str> {
    let leaf = GroupKey::of_pod(pod);
    let path = leaf.and_then(|leaf| cluster.groups().path_to_root(&leaf).ok());
    let specs = path.into_iter().flatten().filter_map(|key| {
        let spec = cluster.groups().spec(&key)?;
        spec.topology_key().cloned()
    });
    specs.collect()
}

/// Returns whether a node joins or leaves a domain. When it leaves, its members no longer determine the domain of the
/// group.
fn changes_a_domain(cluster: &Cluster, pod: &Pod, change: Change<'_>) -> bool {
    let label = |object: Option<&Object>, key: &Str| match object {
        Some(Object::Node(node)) => node.metadata.labels.get_str(key).cloned(),
        _ => None,
    };
    let keys = keys_of(cluster, pod);
    keys.iter()
        .any(|key| label(change.old, key) != label(change.new, key))
}

/// Returns whether the deleted pod was a member of the group, which may have determined its domain.
fn is_sibling(cluster: &Cluster, pod: &Pod, change: Change<'_>) -> bool {
    let root = |pod: &Pod| cluster.groups().root_of(&GroupKey::of_pod(pod)?).ok();
    let gone = change.old_pod().and_then(root);
    gone.is_some() && gone == root(pod) && !keys_of(cluster, pod).is_empty()
}

impl EnqueueExtensions for TopologyPlacementGenerator {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        let on = |resource, action, helps: fn(&Cluster, &Pod, Change<'_>) -> bool| {
            EventRegistration::with_hint(resource, action, move |cluster, pod, change| {
                Ok(if helps(cluster, pod, change) {
                    Hint::Queue
                } else {
                    Hint::Skip
                })
            })
        };
        let node = ActionType::ADD | ActionType::DELETE | ActionType::UPDATE_NODE_LABEL;
        vec![
            on(EventResource::Node, node, changes_a_domain),
            on(EventResource::AssignedPod, ActionType::DELETE, is_sibling),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::{Kind, Object};
    use berth_framework::testing::{World, node};
    use serde_json::json;

    fn group() -> Object {
        let json = json!({
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
        });
        Kind::PodGroup
            .decode(json.to_string().as_bytes())
            .expect("a group")
    }

    /// G-21: a placement for each value of the label, or the placement of the running members.
    #[test]
    fn a_placement_is_a_value_of_the_label() {
        let mut world = World::default();
        for (name, rack) in [("n1", "b"), ("n2", "a"), ("n3", "b")] {
            world = world.node(node(name).label("rack", rack));
        }
        world = world.node(node("elsewhere"));
        world.cluster.set(&group());
        let nodes: Vec<Slot> = world.views().map(|view| view.slot()).collect();
        let key = GroupKey::pod_group(&"default".into(), &"g".into());
        for (scheduled, expected) in [
            (&[][..], "a 1, b 2"),
            (&["n3"], "b 2"),
            (&["gone"], "a 1, b 2"),
            (
                &["n1", "n2"],
                "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: a, b",
            ),
            (
                &["elsewhere"],
                "cannot determine domain for already scheduled pods: no topology domain found for pod default/p",
            ),
        ] {
            let scheduled: Vec<(String, Str)> = scheduled
                .iter()
                .map(|node| ("default/p".to_owned(), Str::from(*node)))
                .collect();
            let plugin = TopologyPlacementGenerator;
            let found = plugin.placements(&world.context(), &key, &scheduled, &nodes);
            let shown = match found {
                Ok(placements) => {
                    let placements = placements.unwrap_or_default().into_iter();
                    let texts = placements.map(|p| format!("{} {}", p.name, p.nodes.len()));
                    texts.collect::<Vec<_>>().join(", ")
                }
                Err(status) => status.message(),
            };
            assert_eq!(shown, expected);
        }
    }
}
