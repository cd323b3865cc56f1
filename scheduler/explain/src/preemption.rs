//! The effect of preemption for a pod.

use crate::answer::{Nomination, PodName, Preemption};
use crate::examine::Examination;
use crate::facts::PodFacts;
use crate::snapshot::Snapshot;
use berth_api::{Pod, Selector, Str};
use berth_framework::PodInfo;
use berth_framework::call::PodRef;
use berth_framework::plugin::Nominating;
use berth_scheduler::profile::Profile;
use std::sync::Arc;

fn named(snapshot: &Snapshot, pod: &PodRef) -> PodName {
    let known = snapshot.cluster.pods.get(&pod.uid);
    PodName {
        namespace: pod.namespace.to_string(),
        name: pod.name.to_string(),
        priority: known.map_or(0, |pod| pod.priority()),
        violated_budgets: known.map_or_else(Vec::new, |pod| violated_budgets(snapshot, pod)),
    }
}

/// The disruption budgets that do not allow the eviction of a pod.
pub(crate) fn violated_budgets(snapshot: &Snapshot, pod: &Pod) -> Vec<String> {
    let budgets = snapshot.cluster.budgets();
    let mut names: Vec<String> = budgets
        .of_namespace(pod.namespace())
        .filter(|budget| {
            let selector = Selector::from_label_selector(budget.spec.selector.as_ref());
            let status = &budget.status;
            status.disruptions_allowed <= 0
                && !status.disrupted_pods.contains_key(pod.name())
                && !pod.labels().is_empty()
                && selector.is_ok_and(|s| !s.is_empty() && s.matches(pod.labels()))
        })
        .map(|budget| budget.metadata.name.to_string())
        .collect();
    names.sort_unstable();
    names
}

/// The nomination of the pod, and the terminating victims on its node.
pub(crate) fn nomination(snapshot: &Snapshot, facts: &PodFacts) -> Option<Nomination> {
    let node: &Str = facts.nominated_node.as_ref()?;
    let priority = facts.pod.priority();
    let pods = snapshot.cluster.nodes.node(node);
    let pods = pods.into_iter().flat_map(|view| view.pods());
    let awaited = pods
        .filter_map(|info| snapshot.cluster.pods.get(info.pod.uid()))
        .filter(|pod| pod.is_terminating() && pod.priority() < priority)
        .map(|pod| named(snapshot, &PodRef::of(pod)));
    Some(Nomination {
        node: node.to_string(),
        awaited: awaited.collect(),
    })
}

/// A pod that was examined.
#[derive(Clone, Copy)]
pub(crate) struct ExaminedPod<'a> {
    /// The profile of its scheduler.
    pub(crate) profile: &'a Profile,
    /// The pod.
    pub(crate) pod: &'a Arc<PodInfo>,
    /// The answers of the nodes.
    pub(crate) examination: &'a Examination,
}

/// The running preemption, or the preemption that PostFilter would start now.
pub(crate) fn preemption(
    snapshot: &mut Snapshot,
    facts: &PodFacts,
    tried: Option<ExaminedPod<'_>>,
) -> Option<Preemption> {
    if let Some(running) = facts.preemptions.first() {
        let victims = running.evicting.iter().chain(&running.last);
        let message = if running.has_failed {
            format!("{}: an eviction has failed", running.plugin)
        } else {
            format!("{}: the victims are being evicted", running.plugin)
        };
        return Some(Preemption {
            is_running: true,
            node: facts.nominated_node.as_ref().map(ToString::to_string),
            victims: victims.map(|pod| named(snapshot, pod)).collect(),
            message,
        });
    }
    let ExaminedPod {
        profile,
        pod,
        examination,
    } = tried?;
    // PostFilter does not run for a pod that fits, and cannot help a pod that PreFilter rejects on every node.
    if !examination.feasible.is_empty() || examination.pre_filter.is_some() {
        return None;
    }
    let answers = snapshot.post_filter(profile, pod, &examination.statuses());
    let mut messages = Vec::new();
    for (result, preemptions) in answers {
        let node = match &result.nominating {
            Nominating::Set(node) if !node.is_empty() => Some(node.to_string()),
            _ => None,
        };
        if node.is_some() {
            let victims = preemptions.iter().flat_map(|p| &p.victims);
            return Some(Preemption {
                is_running: false,
                node,
                victims: victims
                    .map(|victim| named(snapshot, &victim.event.regarding))
                    .collect(),
                message: "the next attempt evicts these pods".to_owned(),
            });
        }
        let message = result.status.message();
        if !message.is_empty() {
            messages.push(message);
        }
    }
    (!messages.is_empty()).then(|| Preemption {
        message: messages.join("; "),
        ..Preemption::default()
    })
}
