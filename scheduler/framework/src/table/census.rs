//! The number of pods of each kind on each node, by their labels and by their affinity terms.
//!
//! Pods are created from templates, so there are few kinds. To count the pods that a selector matches, each kind is
//! checked once, and most kinds are skipped by comparing one word, their [`LabelSignature`].

use super::Slot;
use crate::pod_info::{Computed, LabelSignature, PodInfo};
use berth_api::{Labels, Str};
use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Pods of one kind: how many are on which node. The node may be unknown.
pub type PodsPerNode = [(Slot, u32)];

/// The place of the count of a kind on a node.
#[derive(Debug, Clone, Copy)]
struct CountPlace {
    kind: u32,
    at: u32,
}

/// The number of pods of each kind on each node, by kind and by node.
#[derive(Debug, Clone, Default)]
struct KindCounts {
    by_kind: Vec<SmallVec<[(Slot, u32); 1]>>,
    by_slot: Vec<SmallVec<[CountPlace; 2]>>,
}

impl KindCounts {
    fn add(&mut self, kind: u32, slot: Slot) {
        let kinds = self.by_kind.len().max(kind as usize + 1);
        self.by_kind.resize_with(kinds, SmallVec::new);
        let slots = self.by_slot.len().max(slot.index() + 1);
        self.by_slot.resize_with(slots, SmallVec::new);
        let per_node = &mut self.by_kind[kind as usize];
        let places = &mut self.by_slot[slot.index()];
        match places.iter().find(|place| place.kind == kind) {
            Some(place) => per_node[place.at as usize].1 += 1,
            None => {
                let at = per_node.len() as u32;
                places.push(CountPlace { kind, at });
                per_node.push((slot, 1));
            }
        }
    }

    /// Returns whether that was the last pod of the kind.
    fn remove(&mut self, kind: u32, slot: Slot) -> bool {
        let per_node = &mut self.by_kind[kind as usize];
        let places = &mut self.by_slot[slot.index()];
        let Some(index) = places.iter().position(|place| place.kind == kind) else {
            debug_assert!(false, "a pod that is removed was counted");
            return false;
        };
        let at = places[index].at;
        let (_, pods) = &mut per_node[at as usize];
        *pods -= 1;
        if *pods > 0 {
            return false;
        }
        places.swap_remove(index);
        per_node.swap_remove(at as usize);
        if let Some((moved, _)) = per_node.get(at as usize) {
            let places = &mut self.by_slot[moved.index()];
            if let Some(place) = places.iter_mut().find(|place| place.kind == kind) {
                place.at = at;
            }
        }
        if per_node.is_empty() {
            *per_node = SmallVec::new();
            return true;
        }
        false
    }

    fn of(&self, kind: usize) -> &PodsPerNode {
        self.by_kind.get(kind).map_or(&[], |per_node| per_node)
    }
}

/// Pods that selectors cannot distinguish.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct SelectableFields {
    namespace: Str,
    labels: Labels,
    is_terminating: bool,
}

/// Pods that selectors cannot distinguish, and their nodes.
#[derive(Debug, Clone, Copy)]
pub struct Alike<'a> {
    /// Their namespace.
    pub namespace: &'a Str,
    /// Their labels.
    pub labels: &'a Labels,
    /// Whether they are terminating.
    pub is_terminating: bool,
    /// The number of them on each node.
    pub per_node: &'a PodsPerNode,
}

/// Pods by the fields that selectors read.
#[derive(Debug, Clone, Default)]
struct PodsByFields {
    /// By kind; an unused one has no pods.
    fields: Vec<SelectableFields>,
    signatures: Vec<LabelSignature>,
    kinds: HashTable<u32>,
    free: Vec<u32>,
    counts: KindCounts,
}

fn hash(pod: &SelectableFields) -> u64 {
    FxBuildHasher.hash_one(pod)
}

impl PodsByFields {
    fn add(&mut self, slot: Slot, pod: SelectableFields) {
        let hash_of = hash(&pod);
        let fields = &mut self.fields;
        let known = self
            .kinds
            .find(hash_of, |kind| fields[*kind as usize] == pod);
        let kind = match known {
            Some(kind) => *kind,
            None => {
                let kind = self.free.pop().unwrap_or(fields.len() as u32);
                if kind as usize == fields.len() {
                    fields.push(SelectableFields::default());
                    self.signatures.push(LabelSignature::default());
                }
                self.signatures[kind as usize] = LabelSignature::of(&pod.namespace, &pod.labels);
                fields[kind as usize] = pod;
                self.kinds
                    .insert_unique(hash_of, kind, |kind| hash(&fields[*kind as usize]));
                kind
            }
        };
        self.counts.add(kind, slot);
    }

    fn remove(&mut self, slot: Slot, pod: &SelectableFields) {
        let fields = &mut self.fields;
        let is_it = |kind: &u32| fields[*kind as usize] == *pod;
        let Ok(entry) = self.kinds.find_entry(hash(pod), is_it) else {
            debug_assert!(false, "a pod that is removed was counted");
            return;
        };
        let kind = *entry.get();
        if self.counts.remove(kind, slot) {
            entry.remove();
            fields[kind as usize] = SelectableFields::default();
            self.signatures[kind as usize] = LabelSignature::default();
            self.free.push(kind);
        }
    }
}

/// Pods with affinity by their terms. Pods of a template share their terms.
#[derive(Debug, Clone, Default)]
struct Terms {
    /// By kind; `None` when it is not in use.
    computed: Vec<Option<Arc<Computed>>>,
    /// The bits in the signature of a pod that the first term matches, and of one that any other term matches.
    signatures: Vec<[LabelSignature; 2]>,
    /// By the address of the terms.
    kinds: FxHashMap<usize, u32>,
    free: Vec<u32>,
    counts: KindCounts,
}

impl Terms {
    fn add(&mut self, slot: Slot, computed: &Arc<Computed>) {
        let address = Arc::as_ptr(computed) as usize;
        let kind = match self.kinds.get(&address) {
            Some(kind) => *kind,
            None => {
                let kind = self.free.pop().unwrap_or(self.computed.len() as u32);
                if kind as usize == self.computed.len() {
                    self.computed.push(None);
                    self.signatures.push([LabelSignature::IMPOSSIBLE; 2]);
                }
                self.signatures[kind as usize] = computed.matched_by_terms;
                self.computed[kind as usize] = Some(computed.clone());
                self.kinds.insert(address, kind);
                kind
            }
        };
        self.counts.add(kind, slot);
    }

    fn remove(&mut self, slot: Slot, computed: &Arc<Computed>) {
        let address = Arc::as_ptr(computed) as usize;
        let Some(kind) = self.kinds.get(&address).copied() else {
            debug_assert!(false, "a pod that is removed was counted");
            return;
        };
        if self.counts.remove(kind, slot) {
            self.kinds.remove(&address);
            self.computed[kind as usize] = None;
            self.signatures[kind as usize] = [LabelSignature::IMPOSSIBLE; 2];
            self.free.push(kind);
        }
    }
}

/// The pods on nodes, by kind, without supposed changes.
#[derive(Debug, Clone, Default)]
pub struct Census {
    by_fields: PodsByFields,
    terms: Terms,
}

impl Census {
    pub(super) fn add(&mut self, slot: Slot, pod: &PodInfo) {
        self.by_fields.add(slot, fields_of(pod));
        if pod.has_affinity() {
            self.terms.add(slot, pod.computed());
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, pod: &PodInfo) {
        self.by_fields.remove(slot, &fields_of(pod));
        if pod.has_affinity() {
            self.terms.remove(slot, pod.computed());
        }
    }

    /// The number of kinds of pods, by their labels.
    pub fn kinds(&self) -> usize {
        self.by_fields.signatures.len()
    }

    /// The pods that have all of one of the signatures, by their labels.
    pub fn alike<'a>(&'a self, wanted: &'a [LabelSignature]) -> impl Iterator<Item = Alike<'a>> {
        let signatures = self.by_fields.signatures.iter().enumerate();
        signatures
            .filter(|(_, signature)| wanted.iter().any(|wanted| wanted.is_in(**signature)))
            .map(|(kind, _)| {
                let pods = &self.by_fields.fields[kind];
                Alike {
                    namespace: &pods.namespace,
                    labels: &pods.labels,
                    is_terminating: pods.is_terminating,
                    per_node: self.by_fields.counts.of(kind),
                }
            })
            .filter(|alike| !alike.per_node.is_empty())
    }

    /// The pods with affinity terms that may match a pod with the signature, by their terms.
    pub fn may_mean(&self, pod: LabelSignature) -> impl Iterator<Item = (&Computed, &PodsPerNode)> {
        let signatures = self.terms.signatures.iter().enumerate();
        signatures
            .filter(move |(_, required)| required.iter().any(|signature| signature.is_in(pod)))
            .filter_map(|(kind, _)| {
                let computed = self.terms.computed[kind].as_deref()?;
                Some((computed, self.terms.counts.of(kind)))
            })
    }
}

fn fields_of(pod: &PodInfo) -> SelectableFields {
    SelectableFields {
        namespace: pod.pod.namespace().clone(),
        labels: pod.pod.labels().clone(),
        is_terminating: pod.pod.is_terminating(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::NodeTable;
    use crate::testing::pod;
    use berth_api::Selector;
    use berth_api::pod::Affinity;
    use fastrand::Rng;
    use std::collections::BTreeMap;

    fn some_pod(rng: &mut Rng, at: usize) -> Arc<PodInfo> {
        let mut made = pod(&format!("p{at}")).namespace(["x", "y"][rng.usize(..2)]);
        for key in ["app", "tier", "track"] {
            if rng.bool() {
                made = made.label(key, ["a", "b", "c"][rng.usize(..3)]);
            }
        }
        if rng.u32(..4) == 0 {
            made = made.label("name", &format!("p{at}"));
        }
        if rng.u32(..5) == 0 {
            made = made.deleting(berth_api::Time::EPOCH);
        }
        if rng.bool() {
            let terms: Vec<String> = (0..rng.usize(..4))
                .map(|_| {
                    let selector = match rng.u32(..4) {
                        0 => "{}".to_owned(),
                        1 => r#"{"matchExpressions": [{"key": "tier", "operator": "Exists"}]}"#
                            .to_owned(),
                        _ => format!(
                            r#"{{"matchLabels": {{"{}": "{}"}}}}"#,
                            ["app", "tier"][rng.usize(..2)],
                            ["a", "b"][rng.usize(..2)]
                        ),
                    };
                    let namespaces = ["", r#""namespaces": ["y"],"#, r#""namespaceSelector": {},"#];
                    let namespaces = namespaces[rng.usize(..3)];
                    format!(
                        r#"{{"topologyKey": "zone", {namespaces} "labelSelector": {selector}}}"#
                    )
                })
                .collect();
            let json = format!(
                r#"{{"podAntiAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}}"#,
                terms.join(",")
            );
            let affinity: Affinity =
                serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
            made = made.with(|p| p.spec.affinity = Some(affinity.into()));
        }
        made.info()
    }

    fn selector(rng: &mut Rng) -> Selector {
        let pairs = [("app", "a"), ("app", "b"), ("tier", "a"), ("track", "c")];
        let pairs = pairs.into_iter().filter(|_| rng.u32(..3) == 0);
        Selector::from_labels(&Labels::from_pairs(pairs))
    }

    type Counted = BTreeMap<(Slot, bool), u32>;

    /// Pods are added, removed and assumed: the census returns the same counts as a scan of every pod.
    #[test]
    fn the_census_counts_what_is_there() {
        let rng = &mut Rng::with_seed(5);
        let mut table = NodeTable::default();
        let mut there: Vec<(Slot, Arc<PodInfo>)> = Vec::new();
        let (mut counted, mut meant) = (0, 0);
        for at in 0..4_000 {
            if there.is_empty() || rng.u32(..9) < 5 && there.len() < 60 {
                let pod = some_pod(rng, at);
                let node = format!("n{}", rng.u32(..8)).into();
                there.push((table.add_pod(&node, pod.clone()), pod));
            } else {
                let (slot, pod) = there.swap_remove(rng.usize(..there.len()));
                assert!(table.remove_pod_at(slot, pod.pod.uid()).is_some());
            }
            if let Some((slot, pod)) = there.last().filter(|_| rng.bool()) {
                table.begin();
                table.remove_pod_at(*slot, pod.pod.uid());
                table.add_pod(&"n0".into(), some_pod(rng, 9_999));
                table.rollback();
            }
            let (namespace, selector) = (["x", "y"][rng.usize(..2)], selector(rng));
            let signature = [LabelSignature::required(Some(namespace), &selector)];
            let mut got = Counted::new();
            for alike in table.census().alike(&signature) {
                if alike.namespace == namespace && selector.matches(alike.labels) {
                    for (slot, pods) in alike.per_node {
                        *got.entry((*slot, alike.is_terminating)).or_default() += pods;
                    }
                }
            }
            let mut expected = Counted::new();
            for (slot, pod) in &there {
                if pod.pod.namespace() == namespace && selector.matches(pod.pod.labels()) {
                    *expected
                        .entry((*slot, pod.pod.is_terminating()))
                        .or_default() += 1;
                }
            }
            assert_eq!(got, expected, "{at}");
            counted += got.len();

            let pod = some_pod(rng, at);
            let means = |computed: &Computed| {
                let mut terms = computed.affinity.iter().flat_map(|terms| terms.all());
                terms.any(|term| term.matches(&pod.pod, Labels::default))
            };
            let signature = LabelSignature::of(pod.pod.namespace(), pod.pod.labels());
            let mut got = BTreeMap::<Slot, u32>::new();
            for (computed, per_node) in table.census().may_mean(signature) {
                for (slot, pods) in per_node.iter().filter(|_| means(computed)) {
                    *got.entry(*slot).or_default() += pods;
                }
            }
            let mut expected = BTreeMap::<Slot, u32>::new();
            for (slot, _) in there.iter().filter(|(_, other)| means(other)) {
                *expected.entry(*slot).or_default() += 1;
            }
            assert_eq!(got, expected, "{at}");
            meant += got.len();
        }
        assert!(counted > 1_000 && meant > 1_000, "{counted} {meant}");
        for (slot, pod) in there {
            table.remove_pod_at(slot, pod.pod.uid());
        }
        assert_eq!(table.census().by_fields.kinds.len(), 0);
        assert_eq!(table.census().terms.kinds.len(), 0);
    }

    #[test]
    fn few_kinds_are_looked_at() {
        let mut table = NodeTable::default();
        for at in 0..2_000 {
            let app = format!("app-{at}");
            table.add_pod(&"n".into(), pod(&app).label("app", &app).info());
        }
        let app = Labels::from_pairs([("app", "app-7")]);
        let signature = [LabelSignature::required(
            Some("default"),
            &Selector::from_labels(&app),
        )];
        let looked_at = table.census().alike(&signature).count();
        assert!((1..200).contains(&looked_at), "{looked_at}");
    }
}
