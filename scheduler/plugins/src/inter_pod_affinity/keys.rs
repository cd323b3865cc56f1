//! The keys by which events find the pods that they may help, including pods that only the supplements queue.
//!
//! A pod waits under one label that each of its terms requires, with the namespaces of the term, and under its own
//! labels, for the terms of other pods. For events of nodes it waits under the topology keys of its terms.

use super::hints::parsed;
use crate::change::changed_labels;
use crate::change::is_assigned_or_nominated;
use berth_api::{Labels, Namespace, Pod, Selector, Str};
use berth_framework::Cluster;
use berth_framework::event::{Change, Touched, WaitKey, Waits};
use berth_framework::pod_info::AffinityTerm;

/// The keys of a pod that waits for another pod.
#[derive(Debug, Clone, Copy, Hash)]
enum WantedPods {
    /// Such a pod near.
    Near,
    /// No such pod near.
    Far,
    /// The pod itself, excluded by the terms of another pod.
    Own,
}

/// A pod with the label in the namespace; without a namespace, in a namespace that depends on labels; without a label,
/// any pod.
fn key(wanted: WantedPods, namespace: Option<&str>, label: Option<(&str, &str)>) -> WaitKey {
    WaitKey::of(("pod", wanted, namespace, label))
}

fn topology(key: &str) -> WaitKey {
    WaitKey::of(("topology", key))
}

/// A pod whose terms, or whose own place among pods with terms, look up the namespace.
fn in_namespace(namespace: &str) -> WaitKey {
    WaitKey::of(("in namespace", namespace))
}

fn looks_up_namespaces() -> WaitKey {
    WaitKey::of("looks up namespaces")
}

fn any_new_node() -> WaitKey {
    WaitKey::of("any new node")
}

fn exact(selector: &Selector) -> Option<(&str, &str)> {
    let (label, value) = selector.first_exact()?;
    Some((label, value))
}

/// The keys of the pods that a term matches.
fn of_term(wanted: WantedPods, term: &AffinityTerm) -> impl Iterator<Item = WaitKey> {
    let label = exact(&term.selector);
    let named = term.namespaces.iter();
    let named = named.map(move |namespace| key(wanted, Some(namespace), label));
    let looked_up = (!term.namespace_selector.is_nothing()).then(|| key(wanted, None, label));
    let means_any = !term.selector.is_nothing();
    named.chain(looked_up).filter(move |_| means_any)
}

/// The keys of waiting pods whose terms may match `pod`.
fn of_pod(wanted: WantedPods, pod: &Pod) -> impl Iterator<Item = WaitKey> {
    [Some(pod.namespace().as_str()), None]
        .into_iter()
        .flat_map(move |namespace| {
            let labels = pod.labels().iter();
            labels
                .map(|(label, value)| Some((label.as_str(), value.as_str())))
                .chain([None])
                .map(move |label| key(wanted, namespace, label))
        })
}

/// The pods that a rejected pod waits for.
pub(super) fn waits_for_pods(pod: &Pod) -> Waits {
    let Ok(terms) = parsed(pod) else {
        return Waits::for_anything();
    };
    let near = terms.required_affinity.iter();
    let far = terms.required_anti_affinity.iter();
    let own = pod.labels().iter();
    let own = own.map(|(label, value)| Some((label.as_str(), value.as_str())));
    let namespace = Some(pod.namespace().as_str());
    near.flat_map(|term| of_term(WantedPods::Near, term))
        .chain(far.flat_map(|term| of_term(WantedPods::Far, term)))
        .chain(
            own.chain([None])
                .map(|l| key(WantedPods::Own, namespace, l)),
        )
        .collect()
}

/// The keys that a pod touches when it is added, deleted or relabelled.
pub(super) fn touched_by_pod(change: &Change<'_>) -> Touched {
    let Ok((old, new)) = change.pods() else {
        return Touched::everything();
    };
    let mut touched = Touched::no_key();
    if let Some(new) = new.filter(|pod| is_assigned_or_nominated(pod)) {
        of_pod(WantedPods::Near, new).for_each(|key| touched.add(key));
    }
    if let Some(old) = old.filter(|pod| is_assigned_or_nominated(pod)) {
        of_pod(WantedPods::Far, old).for_each(|key| touched.add(key));
        // A pod with affinity to it may be the first of its kind now.
        of_pod(WantedPods::Near, old).for_each(|key| touched.add(key));
        if new.is_none() && !frees_others(old, &mut touched) {
            return Touched::everything();
        }
    }
    match new {
        Some(new) => touched.and_pod(new),
        None => touched,
    }
}

/// The pods that the anti-affinity of a deleted pod rejected; false if it may be any pod.
fn frees_others(gone: &Pod, touched: &mut Touched) -> bool {
    let Ok(terms) = parsed(gone) else {
        return false;
    };
    let terms = &terms.required_anti_affinity;
    if terms
        .iter()
        .any(|term| !term.namespace_selector.is_nothing())
    {
        return false;
    }
    for term in terms {
        of_term(WantedPods::Own, term).for_each(|key| touched.add(key));
    }
    true
}

/// The nodes that a rejected pod waits for. For affinity terms, a node has to be in a domain;
/// otherwise any new node may do.
pub(super) fn waits_for_nodes(pod: &Pod) -> Waits {
    let Ok(terms) = parsed(pod) else {
        return Waits::for_anything();
    };
    let (near, far) = (&terms.required_affinity, &terms.required_anti_affinity);
    let keys = near.iter().chain(far).map(|t| topology(&t.topology_key));
    let any = (near.is_empty() || !far.is_empty()).then(any_new_node);
    keys.chain(any).collect()
}

/// The keys that a change of a node touches.
pub(super) fn touched_by_node(cluster: &Cluster, change: &Change<'_>) -> Touched {
    let Ok((old, new)) = change.nodes() else {
        return Touched::everything();
    };
    let Some(new) = new else {
        return Touched::no_pod();
    };
    let Some(old) = old else {
        let labels = new.labels().iter();
        let keys = labels.map(|(label, _)| topology(label));
        return keys.chain([any_new_node()]).collect();
    };
    if moves_others(cluster, old.labels(), new.labels()) {
        return Touched::everything();
    }
    changed_labels(old.labels(), new.labels())
        .map(|(label, _)| topology(label))
        .collect()
}

/// Returns whether a label of a node changes that is the topology key of some pod's required anti-affinity: the node
/// may enter or leave a domain from which that pod keeps others away.
pub(super) fn moves_others(cluster: &Cluster, old: &Labels, new: &Labels) -> bool {
    changed_labels(old, new).any(|(label, _)| cluster.pods.is_anti_affinity_topology(label))
}

/// The namespaces that a rejected pod waits for.
pub(super) fn waits_for_namespaces(pod: &Pod) -> Waits {
    let Ok(terms) = parsed(pod) else {
        return Waits::for_anything();
    };
    let mut all = terms
        .required_affinity
        .iter()
        .chain(&terms.required_anti_affinity);
    let looks_up = all.any(|term| !term.namespace_selector.is_nothing());
    [in_namespace(pod.namespace())]
        .into_iter()
        .chain(looks_up.then(looks_up_namespaces))
        .collect()
}

/// The keys that a change of a namespace touches.
pub(super) fn touched_by_namespace(change: &Change<'_>) -> Touched {
    let Some((name, old, new)) = namespace_labels(change) else {
        return Touched::everything();
    };
    if old == new {
        return Touched::no_pod();
    }
    [in_namespace(name), looks_up_namespaces()]
        .into_iter()
        .collect()
}

/// The name of a changed namespace, and its labels before and after. One that is not there has none.
pub(super) fn namespace_labels<'a>(change: &Change<'a>) -> Option<(&'a Str, Labels, Labels)> {
    let namespace = |object: Option<&'a berth_api::Object>| -> Option<&'a Namespace> {
        Some(object?.as_namespace()?)
    };
    let (old, new) = (namespace(change.old), namespace(change.new));
    let labels = |namespace: Option<&Namespace>| {
        namespace.map_or_else(Labels::default, |n| n.metadata.labels.clone())
    };
    Some((&new.or(old)?.metadata.name, labels(old), labels(new)))
}
