//! Changes of the cluster or the pod, which can be tried on a snapshot.

use crate::devices::taint_text;
use berth_api::devices::{
    ConsumerReference, DeviceClaim, DeviceToleration, RequestedDevices, ResourceClaim,
    ResourceSlice,
};
use berth_api::pod::{Affinity, PodAffinity};
use berth_api::quantity::QuantityFormat;
use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use berth_api::storage::{
    BIND_COMPLETED_ANNOTATION, ClaimRef, PersistentVolumeClaimSpec, PersistentVolumeSpec, STORAGE,
};
use berth_api::taint::TolerationOperator;
use berth_api::{
    CustomObject, Node, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Pod, Quantity,
    Str, Taint, TaintEffect, Toleration,
};
use berth_framework::Cluster;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The label that names a node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The size of a claim that is created to see whether that helps, in bytes.
const CLAIM_BYTES: i64 = 1 << 30;

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

/// A limit of a deferred quota that is raised.
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
        /// The place of the constraint in the claim.
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
        /// The number of devices that are left.
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
    /// Let the pod be scheduled although a spread constraint is not met.
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
        /// The lowest priority that is high enough.
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

/// A part of a change, as a watch of the cluster would report it.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// An object is new or changed.
    Set(Object),
    /// A pod is deleted.
    Delete(Arc<Pod>),
}

impl TriedChange {
    /// The key of the order of remedies: changes of one object that disturb no other workload are cheap, deletions and
    /// new nodes expensive.
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

    /// The edits of the change in this cluster; `None` when it does not apply to it.
    pub fn edits(&self, cluster: &Cluster, pod: &Pod) -> Option<Vec<Edit>> {
        let node = |name: &str| Some(Node::clone(cluster.nodes.node(name)?.node()));
        let set_node = |node: Node| vec![Edit::Set(Object::Node(Arc::new(node)))];
        Some(match self {
            Self::Uncordon { node: name } => {
                let mut node = node(name)?;
                node.spec.unschedulable = false;
                node.spec
                    .taints
                    .retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
                set_node(node)
            }
            Self::RemoveTaint { node: name, taint } => {
                let mut node = node(name)?;
                node.spec.taints.retain(|other| !taint.is(other));
                set_node(node)
            }
            Self::LabelNode {
                node: name,
                key,
                value,
            } => {
                let mut node = node(name)?;
                node.metadata.labels = node.metadata.labels.with(key, value);
                set_node(node)
            }
            Self::AddNode { like, name } => {
                let mut node = node(like)?;
                node.metadata.name = name.as_str().into();
                node.metadata.uid = format!("new-{name}").into();
                if node.metadata.labels.contains_key(HOSTNAME) {
                    node.metadata.labels = node.metadata.labels.with(HOSTNAME, name);
                }
                node.spec.unschedulable = false;
                let mut edits = set_node(node);
                edits.extend(slices_like(cluster, like, name));
                edits
            }
            Self::DeletePods { node, pods } => {
                let view = cluster.nodes.node(node)?;
                let find = |wanted: &PodRef| {
                    let mut on_node = view.pods().iter();
                    on_node.find(|info| {
                        *info.pod.name() == *wanted.name
                            && *info.pod.namespace() == *wanted.namespace
                    })
                };
                let found: Option<Vec<_>> = pods.iter().map(find).collect();
                let deleted = found?.into_iter();
                let deleted = deleted.map(|info| Edit::Delete(info.pod.clone()));
                deleted.chain(released(cluster, pods)).collect()
            }
            Self::RaiseQuota { raises } => raised(cluster, pod.namespace(), raises)?,
            Self::EndPods { pods } => {
                let find = |wanted: &PodRef| {
                    let mut known = cluster.pods.values();
                    known.find(|pod| {
                        *pod.name() == *wanted.name && *pod.namespace() == *wanted.namespace
                    })
                };
                let found: Option<Vec<_>> = pods.iter().map(find).collect();
                let ended = found?.into_iter().map(|pod| Edit::Delete(pod.clone()));
                ended.chain(released(cluster, pods)).collect()
            }
            Self::TolerateDeviceTaint { .. }
            | Self::RemoveDeviceSelectors { .. }
            | Self::RemoveDeviceConstraint { .. }
            | Self::RequestFewerDevices { .. } => {
                let (Self::TolerateDeviceTaint { claim, .. }
                | Self::RemoveDeviceSelectors { claim, .. }
                | Self::RemoveDeviceConstraint { claim, .. }
                | Self::RequestFewerDevices { claim, .. }) = self
                else {
                    return None;
                };
                let known = cluster.devices().claims().get(pod.namespace(), claim)?;
                let mut changed = ResourceClaim::clone(known);
                self.edit_claim(&mut changed);
                (changed != **known).then_some(())?;
                vec![Edit::Set(Object::ResourceClaim(Arc::new(changed)))]
            }
            Self::CreateClaim { name } => created_claim(pod.namespace(), name),
            Self::CreateResourceClaim { name } => {
                let claim = ResourceClaim {
                    metadata: new_object(pod.namespace(), name),
                    ..ResourceClaim::default()
                };
                vec![Edit::Set(Object::ResourceClaim(Arc::new(claim)))]
            }
            Self::CreateVolume { claim } => {
                let claims = cluster.storage().claims();
                let claim = claims.get(pod.namespace(), claim)?;
                let class = cluster.storage().classes().get(claim.class());
                let mode = class.and_then(|class| class.volume_binding_mode.clone());
                if mode.is_some_and(|mode| mode == "WaitForFirstConsumer") {
                    // The scheduler binds the claim.
                    vec![Edit::Set(Object::PersistentVolume(Arc::new(volume(claim))))]
                } else {
                    // The volume controller binds it before the pod is scheduled.
                    bound(PersistentVolumeClaim::clone(claim))
                }
            }
            _ => {
                let mut pod = pod.clone();
                self.edit_pod(&mut pod).then_some(())?;
                vec![Edit::Set(Object::Pod(Arc::new(pod)))]
            }
        })
    }

    /// Changes the requests of a claim.
    fn edit_claim(&self, claim: &mut ResourceClaim) {
        let spec = &mut *claim.spec;
        match self {
            Self::TolerateDeviceTaint {
                request,
                key,
                value,
                ..
            } => {
                if let Some(requested) = requested(&mut spec.devices, request) {
                    requested.tolerations.push(DeviceToleration {
                        key: key.as_str().into(),
                        value: value.as_str().into(),
                        ..DeviceToleration::default()
                    });
                }
            }
            Self::RemoveDeviceSelectors { request, .. } => {
                if let Some(requested) = requested(&mut spec.devices, request) {
                    requested.selectors.clear();
                }
            }
            // An earlier change may have removed a constraint.
            Self::RemoveDeviceConstraint { index, .. }
                if *index < spec.devices.constraints.len() =>
            {
                spec.devices.constraints.remove(*index);
            }
            Self::RequestFewerDevices { request, count, .. } => {
                if let Some(requested) = requested(&mut spec.devices, request) {
                    requested.count = i64::try_from(*count).unwrap_or(i64::MAX);
                }
            }
            _ => {}
        }
    }

    /// Changes the pod; false when there is nothing to change.
    fn edit_pod(&self, pod: &mut Pod) -> bool {
        let before = pod.spec.clone();
        match self {
            Self::RemoveSchedulingGates { gates } => {
                let is_removed = |name: &Str| gates.iter().any(|gate| *name == **gate);
                pod.spec.scheduling_gates.retain(|g| !is_removed(&g.name));
            }
            Self::Tolerate { taint } => pod.spec.tolerations.push(Toleration {
                key: taint.key.as_str().into(),
                operator: TolerationOperator::Equal,
                value: taint.value.as_str().into(),
                effect: TaintEffect::from(taint.effect.as_str()),
                toleration_seconds: None,
            }),
            Self::RaisePriority { priority, .. } => pod.spec.priority = Some(*priority),
            Self::RequestLess { less } => {
                for less in less {
                    request_less(pod, less);
                }
            }
            Self::RemoveNodeSelector { keys } => {
                if let Some(labels) = pod.spec.node_selector.clone() {
                    let left = keys.iter().fold(labels, |labels, key| labels.without(key));
                    pod.spec.node_selector = (!left.is_empty()).then_some(left);
                }
            }
            Self::RemoveNodeAffinity => edit_affinity(pod, |affinity| {
                if let Some(node) = &mut affinity.node_affinity {
                    node.required = None;
                }
            }),
            Self::RemovePodAffinity => edit_affinity(pod, |affinity| {
                clear_required(&mut affinity.pod_affinity);
            }),
            Self::RemovePodAntiAffinity => edit_affinity(pod, |affinity| {
                clear_required(&mut affinity.pod_anti_affinity);
            }),
            Self::RelaxSpread { topology_key } => {
                for constraint in &mut pod.spec.topology_spread_constraints {
                    if constraint.topology_key == **topology_key {
                        constraint.when_unsatisfiable = "ScheduleAnyway".into();
                    }
                }
            }
            Self::RemoveHostPorts { ports } => {
                let spec = &mut *pod.spec;
                let containers = spec.containers.iter_mut().chain(&mut spec.init_containers);
                for port in containers.flat_map(|container| &mut container.ports) {
                    if ports.contains(&port.host_port) {
                        port.host_port = 0;
                    }
                }
            }
            _ => {}
        }
        pod.spec != before
    }
}

/// The device request of a request, or of an alternative of one.
fn requested<'c>(claim: &'c mut DeviceClaim, name: &str) -> Option<&'c mut RequestedDevices> {
    let (request, alternative) = match name.split_once('/') {
        Some((request, alternative)) => (request, Some(alternative)),
        None => (name, None),
    };
    let found = claim.requests.iter_mut().find(|r| r.name == *request)?;
    match alternative {
        None => found.exactly.as_mut(),
        Some(alternative) => {
            let mut alternatives = found.first_available.iter_mut();
            alternatives.find(|requested| requested.name == *alternative)
        }
    }
}

/// The claims whose devices are released because these pods alone use them.
pub(crate) fn released(cluster: &Cluster, pods: &[PodRef]) -> Vec<Edit> {
    let claims = cluster.devices().claims().iter();
    let released = claims.filter(|claim| {
        let users = &claim.status.reserved_for;
        let is_deleted = |user: &ConsumerReference| {
            pods.iter()
                .any(|pod| claim.metadata.namespace == *pod.namespace && user.name == *pod.name)
        };
        claim.is_allocated() && !users.is_empty() && users.iter().all(is_deleted)
    });
    let released = released.map(|claim| {
        let mut claim = ResourceClaim::clone(claim);
        claim.status.allocation = None;
        claim.status.reserved_for.clear();
        Edit::Set(Object::ResourceClaim(Arc::new(claim)))
    });
    released.collect()
}

/// The devices of a node as another node of the same kind would have them.
fn slices_like(cluster: &Cluster, like: &str, name: &str) -> Vec<Edit> {
    let slices = cluster.devices().inventory().slices();
    let of_node = slices.filter(|slice| {
        let node = slice.slice().spec.node_name.as_ref();
        node.is_some_and(|node| *node == *like)
    });
    let copied = of_node.map(|slice| {
        let mut slice = ResourceSlice::clone(slice.slice());
        slice.metadata.name = format!("{}-{name}", slice.metadata.name).into();
        slice.metadata.uid = format!("new-{}", slice.metadata.name).into();
        slice.spec.node_name = Some(name.into());
        slice.spec.pool.name = if slice.spec.pool.name == *like {
            name.into()
        } else {
            format!("{}-{name}", slice.spec.pool.name).into()
        };
        Edit::Set(Object::ResourceSlice(Arc::new(slice)))
    });
    copied.collect()
}

/// Deferred quotas with raised limits, each once.
fn raised(cluster: &Cluster, namespace: &Str, raises: &[QuotaRaise]) -> Option<Vec<Edit>> {
    let mut changed: Vec<CustomObject> = Vec::new();
    for raise in raises {
        let at = changed.iter().position(|q| q.metadata.name == *raise.quota);
        let at = match at {
            Some(at) => at,
            None => {
                let quota = cluster
                    .quotas()
                    .get(namespace, &raise.quota.as_str().into())?;
                changed.push(CustomObject::clone(quota.object));
                changed.len() - 1
            }
        };
        let quota = changed.get_mut(at)?;
        let hard = quota.value.pointer_mut("/spec/hard")?.as_object_mut()?;
        hard.insert(raise.key.clone(), raise.to.clone().into());
    }
    let edits = changed
        .into_iter()
        .map(|quota| Edit::Set(Object::Custom(Arc::new(quota))));
    Some(edits.collect())
}

/// The pods, in words.
fn names(pods: &[PodRef]) -> String {
    let names = pods
        .iter()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name));
    names.collect::<Vec<_>>().join(", ")
}

fn edit_affinity(pod: &mut Pod, edit: impl FnOnce(&mut Affinity)) {
    if let Some(affinity) = &mut pod.spec.affinity {
        edit(affinity);
    }
}

fn clear_required(terms: &mut Option<PodAffinity>) {
    if let Some(terms) = terms {
        terms.required.clear();
    }
}

/// Reduces what the containers request, the greatest request first, and the request of the pod as a whole.
fn request_less(pod: &mut Pod, less: &Less) {
    let name = Str::new(&less.resource);
    let in_unit = |quantity: &Quantity| match name.as_str() {
        CPU => quantity.milli_value(),
        _ => quantity.value(),
    };
    let quantity = |amount: i64| match name.as_str() {
        CPU => Quantity::from_milli(amount),
        MEMORY | EPHEMERAL_STORAGE => Quantity::from_value(amount, QuantityFormat::BinarySI),
        _ => Quantity::from_value(amount, QuantityFormat::DecimalSI),
    };
    // The request of the pod as a whole covers those of its containers.
    if let Some(resources) = &mut pod.spec.resources
        && let Some(before) = resources.requests.get(&name).map(in_unit)
    {
        let after = quantity((before - less.amount).max(0));
        resources.requests.set(name.clone(), after);
    }
    let mut left = less.amount;
    // The greatest request is reduced first: it is the most likely one to be too large.
    loop {
        let containers = pod.spec.containers.iter_mut();
        let greatest = containers.max_by_key(|container| {
            let requests = &container.resources.requests;
            requests.get(&name).map_or(0, in_unit)
        });
        let Some(container) = greatest.filter(|_| left > 0) else {
            return;
        };
        let resources = &mut container.resources;
        let before = resources.requests.get(&name).map_or(0, in_unit);
        if before <= 0 {
            return;
        }
        let after = (before - left).max(0);
        left -= before - after;
        resources.requests.set(name.clone(), quantity(after));
    }
}

fn new_object(namespace: &Str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: namespace.clone(),
        uid: format!("new-{name}").into(),
        ..ObjectMeta::default()
    }
}

/// A claim that is bound to a volume which every node can reach.
fn created_claim(namespace: &Str, name: &str) -> Vec<Edit> {
    let mut claim = PersistentVolumeClaim {
        metadata: new_object(namespace, name),
        spec: PersistentVolumeClaimSpec {
            access_modes: vec!["ReadWriteOnce".into()],
            storage_class_name: Some(Str::default()),
            ..PersistentVolumeClaimSpec::default()
        },
        ..PersistentVolumeClaim::default()
    };
    let storage = Quantity::from_value(CLAIM_BYTES, QuantityFormat::BinarySI);
    claim.spec.resources.requests.set(STORAGE.into(), storage);
    bound(claim)
}

/// A claim with a volume that it is bound to.
fn bound(mut claim: PersistentVolumeClaim) -> Vec<Edit> {
    let mut volume = volume(&claim);
    let annotations = &mut claim.metadata.annotations;
    *annotations = annotations.with(BIND_COMPLETED_ANNOTATION, "yes");
    claim.spec.volume_name = volume.metadata.name.clone();
    claim.status.phase = "Bound".into();
    volume.status.phase = "Bound".into();
    volume.spec.claim_ref = Some(ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
    });
    vec![
        Edit::Set(Object::PersistentVolume(Arc::new(volume))),
        Edit::Set(Object::PersistentVolumeClaim(Arc::new(claim))),
    ]
}

/// A volume of the class, size and modes of a claim, which every node can reach.
fn volume(claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut capacity = berth_api::ResourceList::default();
    capacity.set(STORAGE.into(), claim.request().unwrap_or_default());
    let selector = claim.spec.selector.as_ref();
    let labels = selector.map(|selector| selector.match_labels.clone());
    PersistentVolume {
        metadata: ObjectMeta {
            name: format!("new-volume-{}", claim.metadata.name).into(),
            uid: format!("new-volume-{}", claim.metadata.name).into(),
            labels: labels.unwrap_or_default(),
            ..ObjectMeta::default()
        },
        spec: PersistentVolumeSpec {
            capacity,
            access_modes: claim.spec.access_modes.clone(),
            storage_class_name: Some(claim.class().into()),
            volume_mode: claim.spec.volume_mode.clone(),
            volume_attributes_class_name: claim.spec.volume_attributes_class_name.clone(),
            ..PersistentVolumeSpec::default()
        },
        status: berth_api::storage::VolumePhase {
            phase: "Available".into(),
        },
    }
}
