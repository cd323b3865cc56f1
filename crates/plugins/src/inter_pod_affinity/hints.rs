//! Which changes may help a pod that was turned down.
//!
//! As upstream, namespaces are not looked up here, and a deleted pod must match every one of several anti-affinity
//! terms to count. The queue makes up for what is missed by that.

use crate::change::{is_assigned_or_nominated, is_same_pod, nodes, pods};
use berth_api::{Labels, Pod};
use berth_framework::event::{Change, Hint};
use berth_framework::pod_info::{AffinityTerm, AffinityTerms};

fn all_match(terms: &[AffinityTerm], pod: &Pod) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, Labels::default))
}

fn parsed(pod: &Pod) -> Result<AffinityTerms, String> {
    let terms = AffinityTerms::parse(pod);
    match terms.error {
        Some(error) => Err(format!("parsing pod {}: {error}", pod.key())),
        None => Ok(terms),
    }
}

/// A pod that comes, goes or changes its labels.
pub(super) fn after_pod_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = pods(change)?;
    if new.or(old).is_some_and(|changed| is_same_pod(changed, pod)) {
        return Ok(Hint::Queue);
    }
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
                || (all_match(far, old) && !all_match(far, new))
        }
        (None, Some(new)) => all_match(near, new),
        (Some(old), None) => {
            all_match(far, old) || all_match(&parsed(old)?.required_anti_affinity, pod)
        }
        (None, None) => false,
    };
    Ok(if helps { Hint::Queue } else { Hint::Skip })
}

/// A node that comes, or comes into another domain.
pub(super) fn after_node_change(pod: &Pod, change: &Change<'_>) -> Result<Hint, String> {
    let (old, new) = nodes(change)?;
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
    Ok(if helps { Hint::Queue } else { Hint::Skip })
}
