//! Claims with their volumes, namespaces and disruption budgets.

use super::{
    APP, CLASS_LATE, CLASS_MADE, DRIVER, HOSTNAME, NAMESPACES, TEAM, ZONE, bytes, chance,
    random_app, random_zone,
};
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::storage::{
    BIND_COMPLETED_ANNOTATION, ClaimRef, CsiVolume, PersistentVolume, PersistentVolumeClaim,
    STORAGE, StorageClass, VolumeNodeAffinity,
};
use berth_api::workload::PodDisruptionBudget;
use berth_api::{LabelSelector, Labels, Namespace, ResourceList, Str};
use fastrand::Rng;
use std::fmt;

/// The access mode of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The pods of one node at a time (`ReadWriteOnce`).
    OneNode,
    /// One pod at a time (`ReadWriteOncePod`).
    OnePod,
}

impl Access {
    /// The access mode.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneNode => "ReadWriteOnce",
            Self::OnePod => "ReadWriteOncePod",
        }
    }
}

/// The nodes from which a volume can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All.
    Everywhere,
    /// The nodes of a zone.
    Zone(&'static str),
    /// One, by number.
    Node(usize),
}

/// The time at which a claim is bound to its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    Bound,
    Late,
    Made,
}

/// A claim and its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimShape {
    /// The access mode.
    pub access: Access,
    /// From where the volume can be reached.
    pub reach: Reach,
    /// The class: none, so that claim and volume are bound from the beginning, [`CLASS_LATE`] or [`CLASS_MADE`].
    pub class: Option<&'static str>,
}

impl ClaimShape {
    /// Any claim.
    pub fn random(rng: &mut Rng, nodes: usize) -> Self {
        Self {
            access: if chance(rng, 40) {
                Access::OnePod
            } else {
                Access::OneNode
            },
            reach: match rng.u32(..5) {
                0 | 1 => Reach::Everywhere,
                2 | 3 => Reach::Zone(random_zone(rng)),
                _ => Reach::Node(rng.usize(..nodes.max(1))),
            },
            class: match rng.u32(..10) {
                0..5 => None,
                5..8 => Some(CLASS_LATE),
                _ => Some(CLASS_MADE),
            },
        }
    }

    fn binding(&self) -> Binding {
        match self.class {
            None => Binding::Bound,
            Some(CLASS_MADE) => Binding::Made,
            Some(_) => Binding::Late,
        }
    }

    /// The claim with that number, without identity.
    pub fn build_claim(&self, number: usize) -> PersistentVolumeClaim {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = claim_name(number);
        claim.metadata.namespace = NAMESPACES[0].into();
        claim.spec.access_modes = vec![self.access.as_str().into()];
        claim.spec.storage_class_name = Some(self.class.unwrap_or("").into());
        claim.spec.resources.requests = ResourceList::from_pairs([(STORAGE, bytes(1024))]);
        claim.status.phase = "Pending".into();
        if self.binding() == Binding::Bound {
            bind_claim(&mut claim, &volume_name(number));
        }
        claim
    }

    /// The volume of the claim with that number, without identity; none if it is still to be created.
    pub fn build_volume(&self, number: usize) -> Option<PersistentVolume> {
        if self.binding() == Binding::Made {
            return None;
        }
        let mut volume = PersistentVolume::default();
        volume.metadata.name = volume_name(number);
        volume.spec.access_modes = vec![self.access.as_str().into()];
        volume.spec.storage_class_name = Some(self.class.unwrap_or("").into());
        volume.spec.capacity = ResourceList::from_pairs([(STORAGE, bytes(1024))]);
        volume.spec.csi = Some(CsiVolume {
            driver: DRIVER.into(),
            volume_handle: Str::from(format!("handle-{number}")),
        });
        volume.spec.node_affinity = match self.reach {
            Reach::Everywhere => None,
            Reach::Zone(zone) => Some(reachable_from(ZONE, zone)),
            Reach::Node(node) => Some(reachable_from(HOSTNAME, &format!("n{node}"))),
        };
        volume.status.phase = "Available".into();
        if self.binding() == Binding::Bound {
            volume.spec.claim_ref = Some(ClaimRef {
                namespace: NAMESPACES[0].into(),
                name: claim_name(number),
                ..ClaimRef::default()
            });
            volume.status.phase = "Bound".into();
        }
        Some(volume)
    }
}

/// Volume and claim know of each other.
pub(crate) fn bind_claim(claim: &mut PersistentVolumeClaim, volume: &Str) {
    claim.spec.volume_name = volume.clone();
    let annotations = &mut claim.metadata.annotations;
    *annotations = annotations.with(BIND_COMPLETED_ANNOTATION, "yes");
    claim.status.phase = "Bound".into();
}

/// The nodes with that label.
pub(crate) fn reachable_from(key: &str, value: &str) -> VolumeNodeAffinity {
    VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: vec![NodeSelectorRequirement {
                    key: key.into(),
                    operator: "In".into(),
                    values: vec![value.into()],
                }],
                match_fields: Vec::new(),
            }],
        }),
    }
}

/// The name of a claim.
pub(crate) fn claim_name(number: usize) -> Str {
    Str::from(format!("c{number}"))
}

/// The name of a volume.
pub(crate) fn volume_name(number: usize) -> Str {
    Str::from(format!("v{number}"))
}

impl fmt::Display for ClaimShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.access.as_str())?;
        match (self.binding(), self.reach) {
            (Binding::Made, _) => f.write_str(", volume made for the node of its pod"),
            (binding, reach) => {
                f.write_str(match binding {
                    Binding::Late => ", bound with its pod, a volume",
                    _ => ", bound to a volume",
                })?;
                match reach {
                    Reach::Everywhere => f.write_str(" reached everywhere"),
                    Reach::Zone(zone) => write!(f, " reached in zone {zone}"),
                    Reach::Node(node) => write!(f, " reached on node n{node}"),
                }
            }
        }
    }
}

/// A class whose claims wait for their first pod.
pub(crate) fn storage_class(name: &str) -> StorageClass {
    let mut class = StorageClass {
        provisioner: match name {
            CLASS_MADE => DRIVER.into(),
            _ => "kubernetes.io/no-provisioner".into(),
        },
        volume_binding_mode: Some("WaitForFirstConsumer".into()),
        ..StorageClass::default()
    };
    class.metadata.name = name.into();
    class
}

/// A namespace of a team.
pub(crate) fn namespace(name: &str, team: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = name.into();
    namespace.metadata.labels = Labels::from_pairs([(TEAM, team)]);
    namespace
}

/// The number of pods of an application that may be disrupted concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The application.
    pub app: &'static str,
    /// The number of pods that may be disrupted.
    pub allowed: i32,
}

impl Budget {
    /// Any budget.
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            app: random_app(rng),
            allowed: rng.i32(0..3),
        }
    }

    /// The object, without identity.
    pub fn build(&self) -> PodDisruptionBudget {
        let mut budget = PodDisruptionBudget::default();
        budget.metadata.name = self.app.into();
        budget.metadata.namespace = NAMESPACES[0].into();
        budget.spec.selector = Some(LabelSelector {
            match_labels: Labels::from_pairs([(APP, self.app)]),
            match_expressions: Vec::new(),
        });
        budget.status.disruptions_allowed = self.allowed;
        budget
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pods of app {} may go", self.allowed, self.app)
    }
}
