//! The changes that may help a rejected pod.
//!
//! As in kube-scheduler, the hints do not look up namespaces, a pod counts only if it matches all affinity terms (until
//! 1.36 all anti-affinity terms, too), and changes of nodes do not help pods excluded by the terms of other pods. The
//! supplements cover these missed cases.

use super::keys::{moves_others, namespace_labels};
use crate::change::is_assigned_or_nominated;
use berth_api::{Labels, Pod};
use berth_framework::Cluster;
use berth_framework::event::{Change, Hint, HintError};
use berth_framework::pod_info::{AffinityTerm, AffinityTerms};

fn all_match(terms: &[AffinityTerm], pod: &Pod) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, Labels::default))
}

pub(super) fn parsed(pod: &Pod) -> Result<AffinityTerms, HintError> {
    let terms = AffinityTerms::parse(pod);
    match terms.error {
        Some(error) => Err(HintError::Pod {
            place: "parsing pod",
            pod: pod.key(),
            error,
        }),
        None => Ok(terms),
    }
}

fn any_matches(terms: &[AffinityTerm], pod: &Pod) -> bool {
    terms.iter().any(|term| term.matches(pod, Labels::default))
}

/// A pod that is added, deleted or relabelled. With `each_term`, a pod helps that no longer matches one of the
/// anti-affinity terms, otherwise only a pod that no longer matches all of them.
pub(super) fn after_pod_change(
    pod: &Pod,
    change: &Change<'_>,
    each_term: bool,
) -> Result<Hint, HintError> {
    let excludes = if each_term { any_matches } else { all_match };
    let (old, new) = change.pods()?;
    // A change of the pod's own labels changes the terms of other pods that match it (PL-89).
    if new
        .or(old)
        .is_some_and(|changed| changed.uid() == pod.uid())
    {
        return Ok(Hint::Queue);
    }
    // Pods without a node or a nomination do not count.
    if [old, new]
        .into_iter()
        .flatten()
        .any(|pod| !is_assigned_or_nominated(pod))
    {
        return Ok(Hint::Skip);
    }
    let terms = parsed(pod)?;
    let (near, far) = (&terms.required_affinity, &terms.required_anti_affinity);
    let helps = match (old, new) {
        (Some(old), Some(new)) => {
            (!all_match(near, old) && all_match(near, new))
                || (excludes(far, old) && !excludes(far, new))
        }
        (None, Some(new)) => all_match(near, new),
        // The deleted pod may have excluded this pod by either pod's anti-affinity.
        (Some(old), None) => {
            excludes(far, old) || excludes(&parsed(old)?.required_anti_affinity, pod)
        }
        (None, None) => false,
    };
    Ok(Hint::queue_if(helps))
}

/// A node that is added, or moves to another domain.
pub(super) fn after_node_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, HintError> {
    let (old, new) = change.nodes()?;
    let Some(new) = new else {
        return Ok(Hint::Skip);
    };
    let terms = parsed(pod)?;
    let after = |term: &AffinityTerm| new.labels().get(&term.topology_key);
    let helps = match old {
        None => {
            terms
                .required_affinity
                .iter()
                .any(|term| after(term).is_some())
                || !terms.required_anti_affinity.is_empty()
        }
        Some(old) => {
            let before = |term: &AffinityTerm| old.labels().get(&term.topology_key);
            let comes = |term: &AffinityTerm| after(term).is_some() && before(term) != after(term);
            let goes = |term: &AffinityTerm| before(term).is_some() && before(term) != after(term);
            terms.required_affinity.iter().any(comes)
                || terms.required_anti_affinity.iter().any(goes)
        }
    };
    Ok(Hint::queue_if(helps))
}

/// Wake-ups after a change of another pod that the hint misses, because it does not look up the labels of namespaces,
/// requires several anti-affinity terms to be freed at once, and does not handle the first pod of a series:
///
/// - the other pod now matches all affinity terms;
/// - it no longer matches one of several anti-affinity terms;
/// - it is deleted, and one of its own anti-affinity terms matched the pod;
/// - it no longer matches all affinity terms, and the pod matches them itself.
pub(super) fn missed_of_pods(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, new) = change.pods()?;
    let placed = |pod: &'_ &Pod| is_assigned_or_nominated(pod);
    let (old, new) = (old.filter(placed), new.filter(placed));
    let matches = |term: &AffinityTerm, pod: &Pod| {
        term.matches(pod, || cluster.namespaces().labels(pod.namespace()))
    };
    let matches_all = |terms: &[AffinityTerm], pod: &Pod| {
        !terms.is_empty() && terms.iter().all(|term| matches(term, pod))
    };
    let terms = parsed(pod)?;
    let near = &terms.required_affinity;
    let is_near = |other: Option<&Pod>| other.is_some_and(|other| matches_all(near, other));
    let is_far =
        |term: &AffinityTerm, other: Option<&Pod>| other.is_some_and(|other| matches(term, other));
    let comes = !is_near(old) && is_near(new);
    let may_be_first = is_near(old) && !is_near(new) && matches_all(near, pod);
    let mut far = terms.required_anti_affinity.iter();
    let is_freed = far.any(|term| is_far(term, old) && !is_far(term, new));
    let frees = match (old, change.new) {
        (Some(old), None) => {
            let own = parsed(old)?.required_anti_affinity;
            own.iter().any(|term| matches(term, pod))
        }
        _ => false,
    };
    Ok(if comes || may_be_first || is_freed || frees {
        Hint::Queue
    } else {
        Hint::Skip
    })
}

/// Wake-ups after a change of a node that the hint misses: a pod without affinity terms that is excluded by the terms
/// of other pods may fit on any new node, and on a node that leaves the domain of those pods.
pub(super) fn missed_of_nodes(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (old, new) = change.nodes()?;
    let Some(new) = new else {
        return Ok(Hint::Skip);
    };
    let helps = match old {
        None => parsed(pod)?.required_affinity.is_empty(),
        Some(old) => moves_others(cluster, old.labels(), new.labels()),
    };
    Ok(Hint::queue_if(helps))
}

/// Wake-ups for events without a hint in kube-scheduler: a change of the labels of a namespace changes the matches of
/// terms. The terms of other pods may no longer match the pod, and its own terms with a namespace selector may match
/// other pods than before. A pod that matches its own affinity terms may be the first of its kind if they match no
/// other pod any more.
pub(super) fn missed_of_namespaces(
    cluster: &Cluster,
    pod: &Pod,
    change: &Change<'_>,
) -> Result<Hint, HintError> {
    let (name, old, new) = namespace_labels(change).ok_or(HintError::NoObject {
        expected: "a namespace",
    })?;
    if old == new {
        return Ok(Hint::Skip);
    }
    if name == pod.namespace() {
        return Ok(Hint::Queue);
    }
    let terms = parsed(pod)?;
    let means = |term: &AffinityTerm, labels: &Labels| {
        term.namespaces.contains(name) || term.namespace_selector.matches(labels)
    };
    let comes = |term: &AffinityTerm| !means(term, &old) && means(term, &new);
    let goes = |term: &AffinityTerm| means(term, &old) && !means(term, &new);
    let near = &terms.required_affinity;
    let matches_itself =
        |term: &AffinityTerm| term.matches(pod, || cluster.namespaces().labels(pod.namespace()));
    let may_be_first = near.iter().any(goes) && near.iter().all(matches_itself);
    let helps =
        near.iter().any(comes) || may_be_first || terms.required_anti_affinity.iter().any(goes);
    Ok(Hint::queue_if(helps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, full_pod};
    use berth_api::Object;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn labelled(app: &str, node: &str, affinity: Value) -> Object {
        let pod = json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": node, "affinity": affinity}});
        Object::Pod(Arc::new(full_pod(app, pod)))
    }

    fn terms(kind: &str, apps: &[&str]) -> Value {
        let terms: Vec<Value> = apps
            .iter()
            .map(|app| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}))
            .collect();
        json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    }

    #[test]
    fn supplements_wake_the_pods_that_the_hints_miss() {
        let world = World::new();
        let (near, far) = ("podAffinity", "podAntiAffinity");
        let plain = || Value::Null;
        let on = |app: &str| labelled(app, "n1", plain());
        let also = |pod: Object| {
            let mut pod = Pod::clone(pod.as_pod().expect("a pod"));
            pod.metadata.labels = pod.metadata.labels.with("also", "this");
            Object::Pod(Arc::new(pod))
        };
        for (situation, affinity, old, new, hint, supplement) in [
            (
                "one of two is gone",
                terms(far, &["a", "b"]),
                Some(on("a")),
                None,
                Hint::Skip,
                Hint::Queue,
            ),
            (
                "another one is gone",
                terms(far, &["a", "b"]),
                Some(on("c")),
                None,
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "one that matches one of two affinity terms has come",
                terms(near, &["a", "b"]),
                None,
                Some(on("b")),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "one of two is relabelled",
                terms(far, &["a", "b"]),
                Some(on("a")),
                Some(on("c")),
                Hint::Skip,
                Hint::Queue,
            ),
            (
                "one of two gets another label",
                terms(far, &["a", "b"]),
                Some(on("a")),
                Some(also(on("a"))),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "what it wants near gets another label",
                terms(near, &["a"]),
                Some(on("a")),
                Some(also(on("a"))),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "the last of its kind gets another label",
                terms(near, &["waiting"]),
                Some(on("waiting")),
                Some(also(on("waiting"))),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "the last of its kind is relabelled",
                terms(near, &["waiting"]),
                Some(on("waiting")),
                Some(on("c")),
                Hint::Skip,
                Hint::Queue,
            ),
            (
                "another one has come",
                terms(near, &["a", "b"]),
                None,
                Some(on("c")),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "one that is nowhere has come",
                terms(near, &["a", "b"]),
                None,
                Some(labelled("a", "", plain())),
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "the last of its kind is gone",
                terms(near, &["waiting"]),
                Some(on("waiting")),
                None,
                Hint::Skip,
                Hint::Queue,
            ),
            (
                "what it wants near is gone, and it is not like that itself",
                terms(near, &["a"]),
                Some(on("a")),
                None,
                Hint::Skip,
                Hint::Skip,
            ),
            (
                "one of the terms that kept it away is gone",
                plain(),
                Some(labelled("x", "n1", terms(far, &["waiting", "z"]))),
                None,
                Hint::Skip,
                Hint::Queue,
            ),
        ] {
            let spec =
                json!({"metadata": {"labels": {"app": "waiting"}}, "spec": {"affinity": affinity}});
            let waiting = full_pod("w", spec);
            let change = Change {
                old: old.as_ref(),
                new: new.as_ref(),
            };
            let until_1_36 = after_pod_change(&waiting, &change, false);
            assert_eq!(until_1_36, Ok(hint), "{situation}");
            let cluster = world.context().cluster;
            assert_eq!(
                missed_of_pods(cluster, &waiting, &change),
                Ok(supplement),
                "{situation}"
            );
        }
    }
}
