//! Rejects nodes where a host port of the pod is in use.
//!
//! The ports of a pod are the ports of its regular containers and sidecars; ports of other init containers are ignored.
//! The used ports are in the node's row, so dry runs of preemption update them without this plugin.

use crate::change::is_assigned_or_nominated;
use berth_api::{Pod, Str};
use berth_framework::event::{ActionType, Change, EventRegistration, EventResource, HintError};
use berth_framework::keep::constant;
use berth_framework::plugin::{Context, EnqueueExtensions};
use berth_framework::pod_info::{HostPort, host_ports};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::NodeFilter;
use berth_framework::{FeatureGates, Lack, NodeView, PodInfo, ReasonCode, Status};
use smallvec::SmallVec;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "NodePorts";

/// The reason on a node where a port is in use. Preemption may free it.
pub const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

/// Host ports.
#[derive(Debug, Default)]
pub struct NodePorts;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(NodePorts)
            .pre_filter()
            .node_filter()
            .events()
            .fragment_version(constant)
            .build())
    })
    .args(ArgsKind::None)
    .by_default(None)
}

impl NodeFilter for NodePorts {
    type Requirement = SmallVec<[HostPort; 1]>;

    fn requirement(
        &self,
        _cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Self::Requirement>, Status> {
        Ok((!pod.host_ports.is_empty()).then(|| pod.host_ports.clone()))
    }

    fn check(&self, ports: &Self::Requirement, node: NodeView<'_>) -> Status {
        if ports.iter().any(|port| node.port_conflicts(port)) {
            Status::unschedulable(ReasonCode::HostPortTaken.reason(REASON))
        } else {
            Status::success()
        }
    }

    fn lacks(&self, ports: &Self::Requirement, node: NodeView<'_>) -> Vec<Lack> {
        let taken = ports.iter().filter(|port| node.port_conflicts(port));
        taken
            .map(|port| {
                let uses = |other: &&Arc<PodInfo>| {
                    let mut used = other.host_ports.iter();
                    used.any(|used| port.conflicts_with(used))
                };
                let keys = node.pods().iter().filter(uses).map(|info| info.pod.key());
                Lack::Port {
                    port: port.clone(),
                    // The order of the pods of a node is arbitrary.
                    holder: keys.min().map(|key| Str::new(&key)),
                }
            })
            .collect()
    }
}

fn ports(pod: &Pod) -> Vec<HostPort> {
    host_ports(pod).into_vec()
}

/// The ports that a deleted pod held.
fn freed_ports(change: &Change<'_>) -> Result<Vec<HostPort>, HintError> {
    let (deleted, _) = change.pods()?;
    let deleted = deleted.filter(|pod| is_assigned_or_nominated(pod));
    Ok(deleted.map(ports).unwrap_or_default())
}

impl EnqueueExtensions for NodePorts {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::matching(EventResource::Pod, ActionType::DELETE, ports, freed_ports),
            EventRegistration::always(EventResource::Node, ActionType::ADD),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, delete, hint, pod, pod_info, unschedulable};
    use berth_framework::CycleState;
    use berth_framework::Hint;
    use berth_framework::plugin::PreFilter;
    use berth_framework::plugin::PreFilterResult;
    use serde_json::{Value, json};

    fn with_port(port: Value) -> Value {
        json!({"containers": [{"name": "c", "ports": [port]}]})
    }

    /// PL-50.
    #[test]
    fn ports_conflict_by_address_protocol_and_number() {
        for (wanted, used, conflict) in [
            (
                json!({"hostIP": "127.0.0.1", "hostPort": 8080, "protocol": "TCP"}),
                json!({"hostIP": "0.0.0.0", "hostPort": 8080, "protocol": "TCP"}),
                true,
            ),
            (
                json!({"hostIP": "127.0.0.1", "hostPort": 8080}),
                json!({"hostIP": "127.0.0.2", "hostPort": 8080}),
                false,
            ),
            (
                json!({"hostPort": 8080, "protocol": "TCP"}),
                json!({"hostPort": 8080, "protocol": "UDP"}),
                false,
            ),
            (
                json!({"hostPort": 8080}),
                json!({"hostIP": "10.0.0.1", "hostPort": 8080}),
                true,
            ),
            (json!({"hostPort": 8080}), json!({"hostPort": 8081}), false),
            (
                json!({"hostPort": 8080, "protocol": ""}),
                json!({"hostPort": 8080, "protocol": "TCP"}),
                true,
            ),
        ] {
            let world =
                World::new()
                    .node("n", json!({}))
                    .bound("n", "other", with_port(used.clone()));
            let pod = pod_info("p", with_port(wanted.clone()));
            let expected = if conflict {
                unschedulable(REASON)
            } else {
                None
            };
            assert_eq!(
                world.filter(&NodePorts, &pod),
                Ok(vec![expected]),
                "{wanted} {used}"
            );
        }
    }

    /// PL-51: sidecars count, ordinary init containers do not; without a host port there is no filter.
    #[test]
    fn which_containers_take_ports() {
        let ports = json!([{"hostPort": 80}]);
        for (spec, skipped) in [
            (
                json!({"containers": [{"name": "c", "ports": ports}]}),
                false,
            ),
            (
                json!({"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": ports}]}),
                false,
            ),
            (
                json!({"initContainers": [{"name": "i", "ports": ports}]}),
                true,
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}),
                true,
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"hostPort": -1}]}]}),
                true,
            ),
        ] {
            let world = World::new().node("n", json!({}));
            let pod = pod_info("p", spec.clone());
            let result = NodePorts.pre_filter(&world.context(), &mut CycleState::default(), &pod);
            assert_eq!(matches!(result, PreFilterResult::Skip), skipped, "{spec}");
        }
    }

    /// PL-52: a deleted pod helps when it held a port that the waiting pod wants.
    #[test]
    fn a_freed_port_wakes() {
        let on_node = |port: Value| {
            let mut spec = with_port(port);
            spec["nodeName"] = json!("n");
            pod("gone", spec)
        };
        let mut nominated = pod("gone", with_port(json!({"hostPort": 80})));
        nominated.status.nominated_node_name = "n".into();
        for (name, deleted, expected) in [
            (
                "the same port",
                on_node(json!({"hostPort": 80})),
                Hint::Queue,
            ),
            (
                "another protocol",
                on_node(json!({"hostPort": 80, "protocol": "UDP"})),
                Hint::Skip,
            ),
            ("another port", on_node(json!({"hostPort": 81})), Hint::Skip),
            (
                "no host port",
                on_node(json!({"containerPort": 80})),
                Hint::Skip,
            ),
            (
                "without a node",
                pod("gone", with_port(json!({"hostPort": 80}))),
                Hint::Skip,
            ),
            ("only nominated", nominated, Hint::Queue),
        ] {
            let got = hint(
                NodePorts,
                &World::new(),
                EventResource::Pod,
                ActionType::DELETE,
                &pod("p", with_port(json!({"hostPort": 80}))),
                delete(deleted),
            );
            assert_eq!(got, Ok(expected), "{name}");
        }
    }
}
