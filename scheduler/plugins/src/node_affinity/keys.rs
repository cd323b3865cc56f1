//! The keys by which node events find the pods that they may help.
//!
//! A new node is looked up by its labels and its name: each alternative of a pod is indexed by one requirement, the one
//! that probably the fewest nodes meet. A changed node is looked up by the changed labels: only a change of a label in
//! some requirement can make it match, so a pod is indexed by all requirements.

use super::{NodeAffinity, wire};
use crate::change::changed_labels;
use berth_api::node_selector::{
    CompiledNodeSelector, NAME_FIELD, NodeSelectorRequirement, NodeSelectorTerm,
};
use berth_api::{Pod, Str};
use berth_framework::event::{Change, Touched, WaitKey, Waits};

/// Labels that every node has, each value on many of them.
const COMMON_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/os",
    "kubernetes.io/arch",
];

/// One of the requirements that a node must meet together.
#[derive(Debug, Clone, Copy)]
enum Need<'a> {
    /// One of these names.
    Name(&'a [Str]),
    /// The label with one of these values.
    Value(&'a Str, &'a [Str]),
    /// The label, whatever its value.
    Label(&'a Str),
    /// Not the label, or not some values of it.
    Not(&'a Str),
    /// A requirement on fields that never change.
    Other,
}

impl<'a> Need<'a> {
    fn of_label(requirement: &'a NodeSelectorRequirement) -> Self {
        let key = &requirement.key;
        match requirement.operator.as_str() {
            "In" => Self::Value(key, &requirement.values),
            "NotIn" | "DoesNotExist" => Self::Not(key),
            _ => Self::Label(key),
        }
    }

    fn of_field(requirement: &'a NodeSelectorRequirement) -> Self {
        if requirement.key == NAME_FIELD && requirement.operator == "In" {
            Self::Name(&requirement.values)
        } else {
            Self::Other
        }
    }

    /// A lower rank for requirements that probably fewer nodes meet.
    fn rank(self) -> usize {
        const MANY: usize = 1 << 20;
        let common = |key: &Str| {
            if COMMON_LABELS.contains(&key.as_str()) {
                MANY
            } else {
                0
            }
        };
        match self {
            Self::Name(_) => 0,
            Self::Value(key, values) => 1 + values.len() + common(key),
            Self::Label(key) => MANY / 2 + common(key),
            Self::Not(_) | Self::Other => usize::MAX,
        }
    }

    /// Adds the keys of a pod for new nodes that meet this.
    fn file_for_new(self, waits: &mut Waits) {
        match self {
            Self::Name(names) => names.iter().for_each(|name| waits.add(new_node(name))),
            Self::Value(key, values) => {
                values.iter().for_each(|value| waits.add(new(key, value)));
            }
            Self::Label(key) => waits.add(new_with(key)),
            Self::Not(_) | Self::Other => waits.add(any_new()),
        }
    }

    /// Adds the keys of a pod for changed nodes that newly meet this.
    fn file_for_changed(self, waits: &mut Waits) {
        match self {
            Self::Value(key, values) => {
                let values = values.iter();
                values.for_each(|value| waits.add(changed_to(key, value)));
            }
            Self::Label(key) | Self::Not(key) => waits.add(changed(key)),
            Self::Name(_) | Self::Other => {}
        }
    }
}

fn any_new() -> WaitKey {
    WaitKey::of("any new node")
}

fn new_node(name: &str) -> WaitKey {
    WaitKey::of(("new node", name))
}

fn new(key: &str, value: &str) -> WaitKey {
    WaitKey::of(("new", key, value))
}

fn new_with(key: &str) -> WaitKey {
    WaitKey::of(("new with", key))
}

fn changed_to(key: &str, value: &str) -> WaitKey {
    WaitKey::of(("changed to", key, value))
}

fn changed(key: &str) -> WaitKey {
    WaitKey::of(("changed", key))
}

/// The keys under which a rejected pod waits.
pub(super) fn waits(pod: &Pod) -> Waits {
    let required = wire(pod).and_then(|affinity| affinity.required.as_ref());
    // A term that does not parse makes the hint fail, and then the pod is queued.
    if required.is_some_and(|terms| CompiledNodeSelector::compile_strict(terms, "").is_err()) {
        return Waits::for_anything();
    }
    let selector = pod.spec.node_selector.as_ref();
    let selector = selector.map_or(&[][..], |labels| labels.as_slice());
    let selector: Vec<Need<'_>> = selector
        .iter()
        .map(|(key, value)| Need::Value(key, std::slice::from_ref(value)))
        .collect();
    let mut waits = Waits::for_nothing();
    let rarest_of_selector = selector.iter().copied().min_by_key(|need| need.rank());
    let alternatives: Vec<Vec<Need<'_>>> = match required {
        None => vec![Vec::new()],
        Some(terms) => {
            let terms = terms.node_selector_terms.iter();
            terms.filter(|t| !t.is_empty()).map(needs).collect()
        }
    };
    if alternatives.is_empty() {
        return waits;
    }
    // The selector is part of each alternative, and is added only once, because alternatives and selectors can both be
    // long.
    for need in &selector {
        need.file_for_changed(&mut waits);
    }
    let mut is_selector_rarest = false;
    for needs in alternatives {
        let rarest = needs.iter().copied().min_by_key(|need| need.rank());
        match (rarest_of_selector, rarest) {
            (Some(need), of_term) if of_term.is_none_or(|other| need.rank() <= other.rank()) => {
                is_selector_rarest = true;
            }
            (_, Some(need)) => need.file_for_new(&mut waits),
            (_, None) => Need::Other.file_for_new(&mut waits),
        }
        needs
            .iter()
            .for_each(|need| need.file_for_changed(&mut waits));
    }
    if let Some(need) = rarest_of_selector.filter(|_| is_selector_rarest) {
        need.file_for_new(&mut waits);
    }
    waits
}

fn needs(term: &NodeSelectorTerm) -> Vec<Need<'_>> {
    let fields = term.match_fields.iter().map(Need::of_field);
    fields
        .chain(term.match_expressions.iter().map(Need::of_label))
        .collect()
}

impl NodeAffinity {
    /// The keys that a change of a node touches.
    pub(super) fn touched(&self, change: &Change<'_>) -> Touched {
        let Ok((old, node)) = change.nodes() else {
            return Touched::everything();
        };
        let Some(node) = node.filter(|node| self.is_allowed(node)) else {
            return Touched::no_pod();
        };
        let mut touched = Touched::no_key();
        if let Some(old) = old {
            for (key, value) in changed_labels(old.labels(), node.labels()) {
                touched.add(changed(key));
                if let Some(value) = value {
                    touched.add(changed_to(key, value));
                }
            }
            return touched;
        }
        touched.add(any_new());
        touched.add(new_node(node.name()));
        for (key, value) in node.labels().iter() {
            touched.add(new_with(key));
            touched.add(new(key, value));
        }
        touched
    }
}
