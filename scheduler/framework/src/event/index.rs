//! The index by which an event finds the pods that it may help: a plugin files each pod that it rejected under keys,
//! and names the keys that a change touches.
//!
//! ```text
//! NodePorts rejected a pod that wants TCP 80       → it waits under port(TCP, 80)
//! a pod with TCP 80 and UDP 53 is deleted          → touches port(TCP, 80) and port(UDP, 53)
//! ```
//!
//! The index only narrows: the hint is called for every pod that is found. Two things may share a key, and "anything"
//! is a legal answer on either side. A pod that the hint (or its supplement) would queue must always be found. This
//! generalizes KEP-6132, where a plugin names pods.

use crate::cluster::Cluster;
use crate::event::Change;
use berth_api::{Pod, Str};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

/// Something that pods wait for and changes touch, as a number. Each registration has its own keys. If two things of
/// one registration share a number, an event finds more pods than needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitKey(u64);

impl WaitKey {
    /// The key of a value, usually a tuple whose first element is the kind of the thing.
    pub fn of(what: impl Hash) -> Self {
        Self(FxBuildHasher.hash_one(what))
    }

    /// The number.
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

/// The maximum number of keys of a pod in one registration. A pod with more keys waits for anything, because thousands
/// of keys, one for each term, would cost more than they save.
const KEYS_MAX: usize = 32;

/// The keys under which a rejected pod waits, for one registration.
///
/// It must follow from the pod and the plugin's arguments alone: it is computed when the pod begins to wait, and when
/// the pod itself changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    anything: bool,
    keys: SmallVec<[(WaitKey, i64); 4]>,
}

impl Waits {
    /// Every event may help.
    pub fn for_anything() -> Self {
        Self {
            anything: true,
            keys: SmallVec::new(),
        }
    }

    /// Only an event that touches everything, or this pod, may help.
    pub fn for_nothing() -> Self {
        Self::default()
    }

    /// An event that touches `key` may help.
    pub fn add(&mut self, key: WaitKey) {
        self.add_amount(key, 0);
    }

    /// An event that touches `key` up to `amount` or more may help: a pod that waits for 4 GiB is not found by a node
    /// that offers 2 GiB.
    pub fn add_amount(&mut self, key: WaitKey, amount: i64) {
        if self.anything || self.keys.contains(&(key, amount)) {
            return;
        }
        if self.keys.len() < KEYS_MAX {
            self.keys.push((key, amount))
        } else {
            *self = Self::for_anything()
        }
    }

    /// Returns whether every event may help.
    pub fn is_for_anything(&self) -> bool {
        self.anything
    }

    /// The keys with their amounts, each once. None if every event may help.
    pub fn keys(&self) -> &[(WaitKey, i64)] {
        &self.keys
    }
}

impl FromIterator<WaitKey> for Waits {
    fn from_iter<I: IntoIterator<Item = WaitKey>>(keys: I) -> Self {
        let mut waits = Self::for_nothing();
        for key in keys {
            waits.add(key);
        }
        waits
    }
}

/// The keys that a change touches, for one registration. It finds the pods that wait under these keys, and the pods
/// that wait for anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    everything: bool,
    pods_waiting_for_anything: bool,
    keys: SmallVec<[(WaitKey, i64); 8]>,
    pod: Option<(Str, Str)>,
}

impl Touched {
    /// Any pod may be helped.
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// No pod is found, not even one that waits for anything: the hint would queue none.
    pub fn no_pod() -> Self {
        Self::default()
    }

    /// Only pods that wait for anything are found, until keys are added.
    pub fn no_key() -> Self {
        Self {
            pods_waiting_for_anything: true,
            ..Self::default()
        }
    }

    /// Pods that wait under `key` may be helped, whatever their amount.
    pub fn add(&mut self, key: WaitKey) {
        self.add_up_to(key, i64::MAX);
    }

    /// Pods that wait under `key` with at most `amount` may be helped.
    pub fn add_up_to(&mut self, key: WaitKey, amount: i64) {
        self.pods_waiting_for_anything = true;
        self.keys.push((key, amount));
    }

    /// This pod may be helped, too, whatever it waits for.
    #[must_use]
    pub fn and_pod(mut self, pod: &Pod) -> Self {
        self.pod = Some((pod.namespace().clone(), pod.name().clone()));
        self
    }

    /// Returns whether any pod may be helped.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Returns whether pods that wait for anything may be helped.
    pub fn helps_anything(&self) -> bool {
        self.everything || self.pods_waiting_for_anything
    }

    /// The keys, each with the greatest amount that helps.
    pub fn keys(&self) -> &[(WaitKey, i64)] {
        &self.keys
    }

    /// The namespace and the name of the pod that is found whatever it waits for.
    pub fn pod(&self) -> Option<(&Str, &Str)> {
        self.pod.as_ref().map(|(namespace, name)| (namespace, name))
    }
}

impl FromIterator<WaitKey> for Touched {
    fn from_iter<I: IntoIterator<Item = WaitKey>>(keys: I) -> Self {
        let mut touched = Self::no_key();
        for key in keys {
            touched.add(key);
        }
        touched
    }
}

/// The keys under which a pod waits.
pub type WaitsFn = Arc<dyn Fn(&Pod) -> Waits + Send + Sync>;

/// The keys that a change touches, once per event. The cluster is as the hints will see it.
pub type TouchedFn = Arc<dyn Fn(&Cluster, Change<'_>) -> Touched + Send + Sync>;

/// Both sides of the index of one registration.
#[derive(Clone)]
pub struct EventIndex {
    /// The keys under which a pod waits. Without it no pod is filed, and a change touches all pods, none, or one.
    pub waits: Option<WaitsFn>,
    /// The keys that a change touches.
    pub touched: TouchedFn,
}

impl EventIndex {
    /// Returns whether the change finds the pod.
    pub fn finds(&self, cluster: &Cluster, pod: &Pod, change: Change<'_>) -> bool {
        let touched = (self.touched)(cluster, change);
        if touched.everything || touched.pod() == Some((pod.namespace(), pod.name())) {
            return true;
        }
        let Some(waits) = &self.waits else {
            return false;
        };
        let waits = waits(pod);
        if waits.anything {
            return touched.helps_anything();
        }
        touched.keys.iter().any(|(key, up_to)| {
            let mut keys = waits.keys.iter();
            keys.any(|(own, amount)| own == key && amount <= up_to)
        })
    }
}

impl fmt::Debug for EventIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventIndex")
            .field("files", &self.waits.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Object;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = "default".into();
        pod.metadata.name = name.into();
        pod
    }

    fn key(of: &str) -> WaitKey {
        WaitKey::of(("test", of))
    }

    /// A pod is found by its keys up to its amount, by a change of the pod itself, and by a change that touches
    /// everything. A pod that waits for anything is found by every change that touches something.
    #[test]
    fn a_change_finds_the_pods_that_it_may_help() {
        let small = |key| {
            let mut waits = Waits::for_nothing();
            waits.add_amount(key, 2);
            waits
        };
        let up_to = |amount| {
            let mut touched = Touched::no_key();
            touched.add_up_to(key("cpu"), amount);
            touched
        };
        for (situation, waits, touched, found) in [
            ("its key", small(key("cpu")), up_to(2), true),
            ("too little of it", small(key("cpu")), up_to(1), false),
            ("another key", small(key("memory")), up_to(2), false),
            ("anything", Waits::for_anything(), up_to(0), true),
            (
                "anything, no key",
                Waits::for_anything(),
                Touched::no_key(),
                true,
            ),
            (
                "anything, no pod",
                Waits::for_anything(),
                Touched::no_pod(),
                false,
            ),
            ("nothing", Waits::for_nothing(), up_to(2), false),
            (
                "nothing, everything",
                Waits::for_nothing(),
                Touched::everything(),
                true,
            ),
            (
                "itself",
                Waits::for_nothing(),
                Touched::no_pod().and_pod(&pod("p")),
                true,
            ),
            (
                "another pod",
                Waits::for_anything(),
                Touched::no_pod().and_pod(&pod("q")),
                false,
            ),
        ] {
            let index = EventIndex {
                waits: Some(Arc::new(move |_| waits.clone())),
                touched: Arc::new(move |_, _| touched.clone()),
            };
            let object = Object::Pod(Arc::new(pod("changed")));
            let change = Change {
                old: None,
                new: Some(&object),
            };
            let cluster = Cluster::default();
            assert_eq!(
                index.finds(&cluster, &pod("p"), change),
                found,
                "{situation}"
            );
        }
    }

    #[test]
    fn a_key_is_filed_once() {
        let waits: Waits = [key("a"), key("b"), key("a")].into_iter().collect();
        assert_eq!(waits.keys().len(), 2);
    }

    /// The cost of filing a pod does not grow with the square of its terms.
    #[test]
    fn a_pod_with_very_many_keys_waits_for_anything() {
        for (keys, is_for_anything) in [(KEYS_MAX, false), (KEYS_MAX + 1, true), (100_000, true)] {
            let waits: Waits = (0..keys).map(WaitKey::of).collect();
            assert_eq!(waits.is_for_anything(), is_for_anything, "{keys}");
            assert_eq!(waits.keys().len(), if is_for_anything { 0 } else { keys });
        }
    }
}
