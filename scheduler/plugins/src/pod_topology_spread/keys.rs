//! The keys by which events find the pods that they may help.
//!
//! A pod waits under one label that each of its hard constraints selects, in its namespace, and for events of nodes
//! under its topology keys. A pod with the default constraints waits for anything: their selectors depend on the
//! services and controllers that exist at the time of an event.

use super::PodTopologySpread;
use super::constraints::DO_NOT_SCHEDULE;
use crate::change::changed_labels;
use crate::change::is_assigned_or_nominated;
use berth_api::{LabelSelector, Labels, Object, Pod, Selector};
use berth_framework::event::{Change, Hint, Touched, WaitKey, Waits};
use berth_framework::{Cluster, FeatureGates};

fn counted(namespace: &str, label: Option<(&str, &str)>) -> WaitKey {
    WaitKey::of(("counted", namespace, label))
}

fn topology(key: &str) -> WaitKey {
    WaitKey::of(("topology", key))
}

fn by_default(namespace: &str) -> WaitKey {
    WaitKey::of(("by default", namespace))
}

impl PodTopologySpread {
    /// Returns whether the default constraints may reject pods without constraints.
    pub(super) fn has_hard_defaults(&self) -> bool {
        let mut defaults = self.args.default_constraints.iter();
        defaults.any(|constraint| constraint.when_unsatisfiable == DO_NOT_SCHEDULE)
    }

    /// The keys of pods under which a rejected pod waits.
    pub(super) fn waits_for_pods(&self, features: &FeatureGates, pod: &Pod) -> Waits {
        self.waits(features, pod, |constraint| {
            let label = constraint.selector.first_exact();
            let label = label.map(|(label, value)| (label.as_str(), value.as_str()));
            (!constraint.selector.is_nothing()).then(|| counted(pod.namespace(), label))
        })
    }

    /// The keys of nodes under which a rejected pod waits.
    pub(super) fn waits_for_nodes(&self, features: &FeatureGates, pod: &Pod) -> Waits {
        self.waits(features, pod, |constraint| {
            Some(topology(&constraint.topology_key))
        })
    }

    fn waits(
        &self,
        features: &FeatureGates,
        pod: &Pod,
        key: impl Fn(&super::constraints::Constraint) -> Option<WaitKey>,
    ) -> Waits {
        // The cluster does not matter for a pod with constraints of its own.
        let own = if pod.spec.topology_spread_constraints.is_empty() {
            return Waits::for_anything();
        } else {
            self.constraints(&Cluster::default(), features, pod, DO_NOT_SCHEDULE)
        };
        match own {
            Ok(constraints) if !constraints.is_empty() => {
                constraints.iter().filter_map(key).collect()
            }
            _ => Waits::for_anything(),
        }
    }

    /// Wake-ups for events without a hint in kube-scheduler: a change of a service or controller changes the pods that
    /// the default constraints count.
    pub(super) fn missed_of_selectors(&self, pod: &Pod, change: &Change<'_>) -> Hint {
        let own = !pod.spec.topology_spread_constraints.is_empty();
        let namespace = change.new.or(change.old).map(|o| &o.metadata().namespace);
        if own || namespace != Some(pod.namespace()) {
            return Hint::Skip;
        }
        let (old, new) = (
            change.old.map(CountedSelection::of),
            change.new.map(CountedSelection::of),
        );
        let concerns =
            |counts: &Option<CountedSelection<'_>>| counts.as_ref().is_some_and(|c| c.concern(pod));
        if old != new && (concerns(&old) || concerns(&new)) {
            Hint::Queue
        } else {
            Hint::Skip
        }
    }
}

/// The pods that a service or controller makes the default constraints count.
#[derive(Debug, PartialEq)]
enum CountedSelection<'a> {
    /// The pods of a service, for pods that it serves.
    Service(Option<&'a Labels>),
    /// The pods of a replication controller of this name, for its pods.
    Labels(&'a str, Option<&'a Labels>),
    /// The pods of another controller, for its pods.
    Selector(&'a str, Option<&'a LabelSelector>),
    /// Nothing: not an object that counts.
    Nothing,
}

impl<'a> CountedSelection<'a> {
    fn of(object: &'a Object) -> Self {
        let name = object.metadata().name.as_str();
        match object {
            Object::Service(service) => Self::Service(service.spec.selector.as_ref()),
            Object::ReplicationController(owner) => {
                Self::Labels(name, owner.spec.selector.as_ref())
            }
            Object::ReplicaSet(owner) => Self::Selector(name, owner.spec.selector.as_ref()),
            Object::StatefulSet(owner) => Self::Selector(name, owner.spec.selector.as_ref()),
            _ => Self::Nothing,
        }
    }

    fn concern(&self, pod: &Pod) -> bool {
        let owned_by = |name: &str| {
            let owner = pod.metadata.controller();
            owner.is_some_and(|owner| owner.name == name)
        };
        match self {
            Self::Service(selector) => {
                selector.is_some_and(|labels| Selector::from_labels(labels).matches(pod.labels()))
            }
            Self::Labels(name, _) | Self::Selector(name, _) => owned_by(name),
            Self::Nothing => false,
        }
    }
}

/// The keys that a pod touches that is added, deleted or counts differently.
pub(super) fn touched_by_pod(change: &Change<'_>) -> Touched {
    let Ok((old, new)) = change.pods() else {
        return Touched::everything();
    };
    let mut touched = Touched::no_key();
    for pod in [old, new].into_iter().flatten() {
        if is_assigned_or_nominated(pod) {
            touched.add(counted(pod.namespace(), None));
            for (label, value) in pod.labels().iter() {
                touched.add(counted(pod.namespace(), Some((label, value))));
            }
        }
    }
    match new {
        Some(new) => touched.and_pod(new),
        None => touched,
    }
}

/// The keys that a node touches that is added, deleted or moves to another domain.
pub(super) fn touched_by_node(change: &Change<'_>) -> Touched {
    let Ok((old, new)) = change.nodes() else {
        return Touched::everything();
    };
    match (old, new) {
        // It may count differently in every domain.
        (Some(old), Some(new)) if old.spec.taints != new.spec.taints => {
            all_labels(new.labels(), old.labels())
        }
        (Some(old), Some(new)) => changed_labels(old.labels(), new.labels())
            .map(|(label, _)| topology(label))
            .collect(),
        (old, new) => new.or(old).map_or_else(Touched::no_pod, |node| {
            all_labels(node.labels(), &Labels::default())
        }),
    }
}

fn all_labels(of: &Labels, and: &Labels) -> Touched {
    let labels = of.iter().chain(and.iter());
    labels.map(|(label, _)| topology(label)).collect()
}

/// The keys of services and controllers under which a rejected pod waits.
pub(super) fn waits_for_selectors(pod: &Pod) -> Waits {
    if pod.spec.topology_spread_constraints.is_empty() {
        Waits::from_iter([by_default(pod.namespace())])
    } else {
        Waits::for_nothing()
    }
}

/// The keys that a service or controller touches that changes.
pub(super) fn touched_by_selector(change: &Change<'_>) -> Touched {
    let object = change.new.or(change.old);
    object.map_or_else(Touched::no_pod, |object| {
        Touched::from_iter([by_default(&object.metadata().namespace)])
    })
}
