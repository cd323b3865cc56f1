//! Reports of pods that PreEnqueue blocks (KEP-5501) that are too early, wrong, or repeated.

use super::watches::WrongWatch;
use super::{found, with, with_api};
use berth_api::Pod;
use berth_framework::call::{ApiCall, ConditionPatch, PodRef};
use berth_framework::plugin::{NodeStatuses, Nominating, PostFilter};
use berth_framework::plugin::{PostFilterContext, PostFilterStep};
use berth_framework::registry::Extensions;
use berth_framework::stage::Wake;
use berth_framework::{PodInfo, Status};
use berth_simulator::Faults;
use berth_simulator::shapes::{APP, HOLD, SCHEDULERS, SHUT_OUT, hold_text};

/// Reports every pod without a node whenever another pod finds no node.
struct Gossip(fn(&Pod) -> Option<String>);

impl PostFilter for Gossip {
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        _: &NodeStatuses,
        _: Option<Wake<'_>>,
    ) -> PostFilterStep {
        let mut pods: Vec<_> = cx.dry_run.cluster().pods.values().cloned().collect();
        pods.sort_by(|a, b| a.uid().cmp(b.uid()));
        pods.retain(|other| !other.is_assigned() && other.uid() != pod.pod.uid());
        for other in pods {
            if let Some(message) = (self.0)(&other) {
                let reason = "NotReadyForScheduling";
                let condition =
                    ConditionPatch::of(&other, "PodScheduled", "False", reason, &message);
                cx.outbox.call(ApiCall::PatchPodStatus {
                    pod: PodRef::of(&other),
                    conditions: vec![condition],
                    nominated_node: None,
                });
            }
        }
        PostFilterStep::done(Status::unschedulable("no room"), Nominating::Keep)
    }
}

fn is_ours(pod: &Pod) -> bool {
    pod.spec.scheduler_name == SCHEDULERS[0] && pod.spec.scheduling_gates.is_empty()
}

#[test]
fn incorrect_reports_are_detected() {
    let at_once = |pod: &Pod| {
        pod.labels()
            .get(HOLD)
            .filter(|_| is_ours(pod))
            .map(hold_text)
    };
    let with_another_message = |pod: &Pod| {
        let held = pod.labels().get(HOLD).filter(|_| is_ours(pod));
        held.map(|_| "I do not like it".to_owned())
    };
    let of_pods_that_pass = |pod: &Pod| {
        let is_held = pod.labels().contains_key(HOLD) || pod.labels().get(APP) == Some(SHUT_OUT);
        (is_ours(pod) && !is_held).then(|| hold_text("review"))
    };
    for (statement, expected) in [
        (
            at_once as fn(&Pod) -> Option<String>,
            "expected nothing yet, as PreEnqueue has rejected it for",
        ),
        (
            with_another_message,
            "expected NotReadyForScheduling \"the pod is held",
        ),
        (
            of_pods_that_pass,
            "expected nothing, as PreEnqueue admits it",
        ),
    ] {
        let subject = with("DefaultPreemption", move |_| {
            Extensions::of(Gossip(statement)).post_filter().build()
        });
        let shrunk = found(&subject, Faults::NONE, &["incorrect report"]);
        let text = shrunk.failure.violation.to_string();
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// A scheduler that does not receive the conditions of its pods reports them again after a restart.
#[test]
fn a_repeated_report_is_detected() {
    let silent = |pod: &Pod| {
        let mut pod = pod.clone();
        pod.status
            .conditions
            .retain(|c| c.reason != "NotReadyForScheduling");
        vec![pod]
    };
    let faults = Faults {
        restarts: true,
        ..Faults::NONE
    };
    let shrunk = found(&with_api(WrongWatch(silent)), faults, &["incorrect report"]);
    let text = shrunk.failure.violation.to_string();
    assert!(
        text.contains("expected nothing, as its status has this condition"),
        "{text}"
    );
}
