//! The effect of a tried change: the objects that a watch of the cluster would report.

use super::{Less, PodRef, QuotaRaise, TriedChange};
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
    Str, TaintEffect, Toleration,
};
use berth_framework::Cluster;
use std::sync::Arc;

/// The label that names a node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The size of a claim that is created in a trial, in bytes.
const CLAIM_BYTES: i64 = 1 << 30;

/// A part of a change, as a watch of the cluster would report it.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// An object is new or changed.
    Set(Object),
    /// A pod is deleted.
    Delete(Arc<Pod>),
}

impl TriedChange {
    /// The edits of the change in this cluster; `None` if it does not apply.
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

    /// Changes the pod. Returns false if there is nothing to change.
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

/// The device request of a request or of an alternative.
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

/// The claims whose devices are released with these pods, because no other pod uses them.
fn released(cluster: &Cluster, pods: &[PodRef]) -> Vec<Edit> {
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

/// Reduces the requests of the containers, the greatest request first, and the pod-level request.
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
    // The pod-level request covers the requests of its containers.
    if let Some(resources) = &mut pod.spec.resources
        && let Some(before) = resources.requests.get(&name).map(in_unit)
    {
        let after = quantity((before - less.amount).max(0));
        resources.requests.set(name.clone(), after);
    }
    let mut left = less.amount;
    // The greatest request is reduced first: it is the most likely to be too large.
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

/// A claim that is bound to a volume accessible from every node.
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

/// A claim with a volume bound to it.
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

/// A volume of the class, size and modes of a claim, accessible from every node.
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
