//! The reasons of waiting pods, with the missing amounts. The amounts refer to the present cluster, the reasons to the
//! last attempt of each pod.

use berth_api::Time;
use berth_api::taint::tolerates_taint;
use berth_explain::{free, gate_text, wanted};
use berth_framework::{Cluster, NodeView, PodInfo, ReasonCode};
use berth_scheduler::queue::{QueuedIn, QueuedPodInfo};
use berth_scheduler::{RejectionReason, Scheduler};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Reverse;

/// The number of reasons that are listed.
const LISTED_MAX: usize = 4;
/// The maximum number of distinct reasons; the pods of further reasons are not counted.
const KEPT_MAX: usize = 32;

/// A reason, and the pods that have it.
struct WaitingReason<'a> {
    code: ReasonCode,
    text: Cow<'a, str>,
    plugin: &'a str,
    pods: usize,
    /// The pod that was tried last, and when.
    latest: (Time, &'a QueuedPodInfo),
    /// The answer of the nodes about it; none of a PreEnqueue plugin, and none of a message.
    nodes: Option<&'a RejectionReason>,
    /// Whether the text is the message of an attempt without answers of nodes.
    is_message: bool,
}

/// The reasons of some pods.
#[derive(Default)]
pub(super) struct WaitingReasons<'a> {
    reasons: Vec<WaitingReason<'a>>,
}

impl<'a> WaitingReasons<'a> {
    /// The reasons of one pod.
    pub(super) fn of(
        scheduler: &'a Scheduler,
        (place, info): (QueuedIn, &'a QueuedPodInfo),
    ) -> Self {
        let mut reasons = Self::default();
        reasons.add(scheduler, place, info);
        // The message of a member refers to the attempt of its group, which has its own page.
        let is_member = info.pod.pod_group_name().is_some();
        for reason in reasons
            .reasons
            .iter_mut()
            .filter(|of| of.is_message && is_member)
        {
            reason.text = "rejected with its group".into();
        }
        reasons
    }

    /// Adds the reasons of a pod. A pod that was not tried yet has none.
    pub(super) fn add(
        &mut self,
        scheduler: &'a Scheduler,
        place: QueuedIn,
        info: &'a QueuedPodInfo,
    ) {
        let known = scheduler.explanation(info.pod.uid());
        let at = known.map_or(info.timestamp, |known| known.at);
        let one = |code, text, plugin| WaitingReason {
            code,
            text,
            plugin,
            pods: 1,
            latest: (at, info),
            nodes: None,
            is_message: false,
        };
        let plugin = info.gating_plugin().or_else(|| info.rejectors().next());
        let plugin = plugin.map_or("", |plugin| plugin.as_str());
        if place == QueuedIn::Gated {
            self.put(one(info.gate_code(), gate_text(info).into(), plugin));
            return;
        }
        match known {
            Some(known) if known.reasons.is_empty() => {
                self.put(WaitingReason {
                    is_message: true,
                    ..one(known.code, known.message.as_str().into(), plugin)
                });
            }
            Some(known) => {
                for reason in &known.reasons {
                    self.put(WaitingReason {
                        nodes: Some(reason),
                        ..one(reason.code, reason.text.as_str().into(), &reason.plugin)
                    });
                }
            }
            // The reasons of the last attempt are kept for a limited number of pods.
            None if info.has_rejectors() => {
                self.put(one(ReasonCode::Other, plugin.into(), plugin));
            }
            None => {}
        }
    }

    fn put(&mut self, reason: WaitingReason<'a>) {
        let mut known = self.reasons.iter_mut();
        let known = known.find(|known| known.code == reason.code && known.text == reason.text);
        if let Some(known) = known {
            let pods = known.pods + 1;
            if known.latest.0 <= reason.latest.0 {
                *known = reason;
            }
            known.pods = pods;
        } else if self.reasons.len() < KEPT_MAX {
            self.reasons.push(reason);
        }
    }

    /// Returns whether a text is part of a reason: of its text, its code, its plugin.
    pub(super) fn contains(&self, text: &str) -> bool {
        let mut reasons = self.reasons.iter();
        reasons.any(|reason| {
            let names = [&reason.text, reason.plugin, reason.code.as_str()];
            names.iter().any(|name| name.contains(text))
        })
    }

    /// The same as reasons of a group. Nodes reject the member that did not fit; the others have a message that a
    /// member did not fit. The amounts that were free depend on the other members, so they are left out.
    pub(super) fn of_group(mut self, scheduler: &Scheduler) -> Value {
        if self.reasons.iter().any(|reason| reason.nodes.is_some()) {
            self.reasons.retain(|reason| !reason.is_message);
        }
        let mut listed = self.listed(scheduler);
        let rows = listed.as_array_mut().into_iter().flatten();
        for reason in rows.filter_map(Value::as_object_mut) {
            reason.remove("free");
            reason.remove("pods");
        }
        listed
    }

    /// The reasons of the most pods and nodes first.
    pub(super) fn listed(mut self, scheduler: &Scheduler) -> Value {
        let nodes = |reason: &WaitingReason<'_>| reason.nodes.map_or(0, |reason| reason.nodes);
        self.reasons
            .sort_by_key(|reason| Reverse((reason.pods, nodes(reason))));
        let cluster = scheduler.cache().cluster();
        let listed = self.reasons.iter().take(LISTED_MAX);
        listed.map(|reason| reason.described(cluster)).collect()
    }
}

impl WaitingReason<'_> {
    fn described(&self, cluster: &Cluster) -> Value {
        let mut described =
            json!({"code": self.code.as_str(), "text": self.text, "pods": self.pods});
        let Some(answers) = self.nodes else {
            return described;
        };
        described["nodes"] = answers.nodes.into();
        if let Some(resource) = self.code.resource(&self.text) {
            let pod = PodInfo::new(self.latest.1.pod.clone());
            let wanted = wanted(&pod, resource);
            described["resource"] = resource.into();
            described["wanted"] = wanted.into();
            described["free"] = most_free(cluster, &pod, answers, resource, wanted).into();
        }
        described
    }
}

/// The largest free amount on a node that has too little of a resource. `None` if that would require an evaluation of
/// the pod's node affinity on each node.
fn most_free(
    cluster: &Cluster,
    pod: &PodInfo,
    answers: &RejectionReason,
    resource: &str,
    wanted: i64,
) -> Option<i64> {
    let free_on = |node: NodeView<'_>| Some(free(node, resource)).filter(|free| *free < wanted);
    if answers.examples.len() >= answers.nodes {
        let nodes = answers.examples.iter();
        let nodes = nodes.filter_map(|name| cluster.nodes.node(name));
        return nodes.filter_map(free_on).max();
    }
    let spec = &pod.pod.spec;
    let affinity = spec.affinity.as_ref();
    if spec.node_selector.is_some() || affinity.is_some_and(|of| of.node_affinity.is_some()) {
        return None;
    }
    // Nodes that reject the pod before the filter of resources have another reason.
    let nodes = cluster.nodes.iter().filter(|view| {
        let spec_of_node = &view.node().spec;
        let mut taints = spec_of_node.taints.iter();
        !spec_of_node.unschedulable
            && taints.all(|taint| {
                !taint.effect.forbids_scheduling()
                    || tolerates_taint(&spec.tolerations, taint, true)
            })
    });
    nodes.filter_map(free_on).max()
}
