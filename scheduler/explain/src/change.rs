//! Changes of the cluster or the pod, which can be tried on a snapshot.

mod edits;

pub use edits::Edit;

use crate::words::taint_text;
use berth_api::{Pod, Taint, TaintEffect};
use serde::{Deserialize, Serialize};

/// A pod by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl PodRef {
    pub(crate) fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.namespace().to_string(),
            name: pod.name().to_string(),
        }
    }
}

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaintRef {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    pub value: String,
    /// `NoSchedule` or `NoExecute`.
    pub effect: String,
}

impl TaintRef {
    pub(crate) fn of(taint: &Taint) -> Self {
        Self {
            key: taint.key.to_string(),
            value: taint.value.to_string(),
            effect: taint.effect.as_str().to_owned(),
        }
    }

    fn is(&self, taint: &Taint) -> bool {
        taint.key == *self.key
            && taint.value == *self.value
            && taint.effect == TaintEffect::from(self.effect.as_str())
    }
}

impl std::fmt::Display for TaintRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let effect = TaintEffect::from(self.effect.as_str());
        Taint::new(&self.key, &self.value, effect).fmt(f)
    }
}

/// Less of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Less {
    /// The resource.
    pub resource: String,
    /// The difference: milli-CPU for `cpu`, otherwise in the unit of the resource.
    pub amount: i64,
}

/// A raised limit of a deferred quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaRaise {
    /// The name of the quota, in the pod's namespace.
    pub quota: String,
    /// The key of `spec.hard`.
    pub key: String,
    /// The difference, as a quantity.
    pub by: String,
    /// The new limit, as a quantity.
    pub to: String,
}

/// A single change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum TriedChange {
    /// Remove scheduling gates from the pod.
    RemoveSchedulingGates {
        /// The gates.
        gates: Vec<String>,
    },
    /// Uncordon a node.
    Uncordon {
        /// The node.
        node: String,
    },
    /// Remove a taint from a node.
    RemoveTaint {
        /// The node.
        node: String,
        /// The taint.
        taint: TaintRef,
    },
    /// Let the pod tolerate a taint.
    Tolerate {
        /// The taint.
        taint: TaintRef,
    },
    /// Set a label of a node.
    LabelNode {
        /// The node.
        node: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Create a claim that the pod uses.
    CreateClaim {
        /// The name of the claim, in the pod's namespace.
        name: String,
    },
    /// Create a volume for a claim that the pod uses.
    CreateVolume {
        /// The name of the claim, in the pod's namespace.
        claim: String,
    },
    /// Create a resource claim that the pod uses.
    CreateResourceClaim {
        /// The name of the claim, in the pod's namespace.
        name: String,
    },
    /// Let a request for devices tolerate a taint of devices.
    TolerateDeviceTaint {
        /// The claim, in the pod's namespace.
        claim: String,
        /// The request, or `request/alternative`.
        request: String,
        /// The key of the taint.
        key: String,
        /// The value of the taint.
        value: String,
    },
    /// Remove the selectors of a request for devices.
    RemoveDeviceSelectors {
        /// The claim, in the pod's namespace.
        claim: String,
        /// The request, or `request/alternative`.
        request: String,
    },
    /// Remove a constraint on the devices of a claim.
    RemoveDeviceConstraint {
        /// The claim, in the pod's namespace.
        claim: String,
        /// The index of the constraint in the claim.
        index: usize,
        /// The constraint in words.
        constraint: String,
    },
    /// Request fewer devices.
    RequestFewerDevices {
        /// The claim, in the pod's namespace.
        claim: String,
        /// The request, or `request/alternative`.
        request: String,
        /// The remaining number of devices.
        count: usize,
    },
    /// Request less.
    RequestLess {
        /// The differences.
        less: Vec<Less>,
    },
    /// Remove labels from the pod's node selector.
    RemoveNodeSelector {
        /// The keys.
        keys: Vec<String>,
    },
    /// Remove the required node affinity of the pod.
    RemoveNodeAffinity,
    /// Remove the required affinity of the pod to pods.
    RemovePodAffinity,
    /// Remove the required anti-affinity of the pod to pods.
    RemovePodAntiAffinity,
    /// Let the pod be scheduled although a spread constraint is not satisfied.
    RelaxSpread {
        /// The topology key of the constraint.
        topology_key: String,
    },
    /// Do not use host ports.
    RemoveHostPorts {
        /// The ports.
        ports: Vec<i32>,
    },
    /// Delete pods, or scale their owners down.
    DeletePods {
        /// The node on which they are.
        node: String,
        /// The pods.
        pods: Vec<PodRef>,
    },
    /// Raise limits of deferred quotas.
    RaiseQuota {
        /// The limits.
        raises: Vec<QuotaRaise>,
    },
    /// Wait for the end of pods, or delete them, so that deferred quotas have room.
    EndPods {
        /// The pods.
        pods: Vec<PodRef>,
    },
    /// Give the pod a higher priority, so that it preempts other pods.
    RaisePriority {
        /// The lowest sufficient priority.
        priority: i32,
        /// The pods that it preempts then.
        victims: Vec<PodRef>,
    },
    /// Add a node.
    AddNode {
        /// The node whose labels, taints and resources the new one has.
        like: String,
        /// The name of the new node.
        name: String,
    },
}

impl TriedChange {
    /// The sort key of remedies: changes of one object that disturb no other workload are cheap, deletions and new
    /// nodes expensive.
    pub fn cost(&self) -> u32 {
        let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Self::RemoveSchedulingGates { .. } => 10,
            Self::Uncordon { .. } => 20,
            Self::CreateClaim { .. } => 22,
            Self::CreateVolume { .. } => 24,
            Self::CreateResourceClaim { .. } => 26,
            Self::RaiseQuota { .. } => 28,
            Self::Tolerate { .. } => 30,
            Self::RemoveTaint { .. } => 32,
            Self::LabelNode { .. } => 34,
            Self::TolerateDeviceTaint { .. } => 36,
            Self::RemoveNodeSelector { keys } => 40 + many(keys.len()),
            Self::RemoveNodeAffinity => 44,
            Self::RelaxSpread { .. } => 46,
            Self::RemovePodAntiAffinity => 48,
            Self::RemovePodAffinity => 49,
            Self::RemoveHostPorts { .. } => 50,
            Self::RemoveDeviceConstraint { .. } => 52,
            Self::RemoveDeviceSelectors { .. } => 54,
            Self::RequestFewerDevices { .. } => 58,
            Self::RequestLess { less } => 60 + many(less.len()),
            Self::DeletePods { pods, .. } => 70_u32.saturating_add(many(pods.len())),
            Self::EndPods { pods } => 68_u32.saturating_add(many(pods.len())),
            Self::RaisePriority { victims, .. } => 300_u32.saturating_add(many(victims.len())),
            Self::AddNode { .. } => 1000,
        }
    }

    /// Returns whether the change adds a node.
    pub fn is_new_node(&self) -> bool {
        matches!(self, Self::AddNode { .. })
    }

    /// The change in words.
    pub fn text(&self) -> String {
        match self {
            Self::RemoveSchedulingGates { gates } => {
                format!("remove the scheduling gate(s) {}", gates.join(", "))
            }
            Self::Uncordon { node } => format!("uncordon node {node}"),
            Self::RemoveTaint { node, taint } => format!("remove taint {taint} from node {node}"),
            Self::Tolerate { taint } => format!("add a toleration for taint {taint} to the pod"),
            Self::LabelNode { node, key, value } => format!("label node {node} with {key}={value}"),
            Self::CreateClaim { name } => {
                format!("create PersistentVolumeClaim {name} and bind it to a volume")
            }
            Self::CreateVolume { claim } => {
                format!("create a PersistentVolume that claim {claim} can be bound to")
            }
            Self::CreateResourceClaim { name } => {
                format!("create ResourceClaim {name} (tried with one that requests no devices)")
            }
            Self::TolerateDeviceTaint {
                claim,
                request,
                key,
                value,
            } => format!(
                "add a toleration for device taint {} to request {request} of claim {claim}",
                taint_text(key, value)
            ),
            Self::RemoveDeviceSelectors { claim, request } => {
                format!("remove the selectors of request {request} of claim {claim}")
            }
            Self::RemoveDeviceConstraint {
                claim, constraint, ..
            } => format!("remove {constraint} from claim {claim}"),
            Self::RequestFewerDevices {
                claim,
                request,
                count,
            } => format!("request {count} device(s) in request {request} of claim {claim}"),
            Self::RequestLess { less } => {
                let parts: Vec<String> = less
                    .iter()
                    .map(|less| berth_framework::quantity::with_name(&less.resource, less.amount))
                    .collect();
                format!("request {} less", parts.join(" and "))
            }
            Self::RemoveNodeSelector { keys } => {
                format!("remove {} from the pod's nodeSelector", keys.join(", "))
            }
            Self::RemoveNodeAffinity => "remove the pod's required node affinity".to_owned(),
            Self::RemovePodAffinity => "remove the pod's required affinity to pods".to_owned(),
            Self::RemovePodAntiAffinity => {
                "remove the pod's required anti-affinity to pods".to_owned()
            }
            Self::RelaxSpread { topology_key } => {
                format!("set whenUnsatisfiable: ScheduleAnyway on the spread over {topology_key}")
            }
            Self::RemoveHostPorts { ports } => {
                let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
                format!("do not use host port(s) {}", ports.join(", "))
            }
            Self::DeletePods { node, pods } => format!(
                "delete pod(s) {} on node {node}, or scale their owners down",
                names(pods)
            ),
            Self::RaiseQuota { raises } => {
                let raises = raises.iter().map(|raise| {
                    let QuotaRaise { quota, key, by, to } = raise;
                    format!("raise {key} of deferred quota {quota} by {by} to {to}")
                });
                raises.collect::<Vec<_>>().join(" and ")
            }
            Self::EndPods { pods } => {
                let them = if pods.len() == 1 { "it" } else { "them" };
                format!("wait for the end of {}, or delete {them}", names(pods))
            }
            Self::RaisePriority { priority, victims } => format!(
                "raise the priority of the pod to {priority}, so that it preempts {}",
                names(victims)
            ),
            Self::AddNode { like, .. } => format!("add a node like {like}"),
        }
    }
}

/// The pods, in words.
fn names(pods: &[PodRef]) -> String {
    let names = pods
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name));
    names.collect::<Vec<_>>().join(", ")
}
