//! Schedulers that receive wrong watch events: their view is wrong, and the checker detects their actions.

use super::{found, with_api};
use berth_api::{Kind, Object, Pod, Time};
use berth_framework::call::ApiCall;
use berth_scheduler::ClusterChange;
use berth_simulator::shapes::{HOLD, SCHEDULERS};
use berth_simulator::world::{Refusal, World};
use berth_simulator::{Api, FaithfulApi, Faults};
use std::sync::Arc;

/// An API whose watch shows each pod as changed by this closure.
pub(crate) struct WrongWatch<F>(pub(crate) F);

impl<F: Fn(&Pod) -> Vec<Pod> + Send + Sync> Api for WrongWatch<F> {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        FaithfulApi.carry_out(world, call, now)
    }

    fn notify(&self, change: ClusterChange) -> Vec<ClusterChange> {
        let notified = |object: Object| -> Vec<Object> {
            match &object {
                Object::Pod(pod) => {
                    let pods = (self.0)(pod).into_iter();
                    pods.map(|pod| Object::Pod(Arc::new(pod))).collect()
                }
                _ => vec![object],
            }
        };
        match change {
            ClusterChange::Applied(object) => notified(object)
                .into_iter()
                .map(ClusterChange::Applied)
                .collect(),
            ClusterChange::Deleted(object) => notified(object)
                .into_iter()
                .map(ClusterChange::Deleted)
                .collect(),
            ClusterChange::Replaced(Kind::Pod, objects) => {
                let objects = objects.into_iter().flat_map(notified).collect();
                vec![ClusterChange::Replaced(Kind::Pod, objects)]
            }
            change => vec![change],
        }
    }
}

#[test]
fn a_pending_pod_outside_of_the_queue_is_detected() {
    let deaf = |pod: &Pod| {
        if pod.name().ends_with('3') {
            Vec::new()
        } else {
            vec![pod.clone()]
        }
    };
    let shrunk = found(
        &with_api(WrongWatch(deaf)),
        Faults::NONE,
        &["inconsistent state"],
    );
    let text = shrunk.failure.violation.to_string();
    assert!(
        text.contains("neither queued nor in flight nor placed"),
        "{text}"
    );
}

#[test]
fn a_pod_in_the_queue_twice_is_detected() {
    let twins = |pod: &Pod| {
        let mut twin = pod.clone();
        twin.metadata.name = format!("{}-twin", pod.name()).into();
        vec![pod.clone(), twin]
    };
    let shrunk = found(
        &with_api(WrongWatch(twins)),
        Faults::NONE,
        &["inconsistent state"],
    );
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("and elsewhere"), "{text}");
}

/// Shows the pods of the absent scheduler, with or without the hold label, as pods of the judged scheduler.
fn usurping(held: bool) -> impl Fn(&Pod) -> Vec<Pod> {
    move |pod| {
        let mut pod = pod.clone();
        let is_absent = pod.spec.scheduler_name == SCHEDULERS[2];
        if is_absent && pod.labels().contains_key(HOLD) == held {
            pod.spec.scheduler_name = SCHEDULERS[0].into();
        }
        vec![pod]
    }
}

#[test]
fn bindings_and_statuses_for_pods_of_other_schedulers_are_detected() {
    for held in [false, true] {
        let subject = with_api(WrongWatch(usurping(held)));
        let shrunk = found(&subject, Faults::NONE, &["foreign pod"]);
        let text = shrunk.failure.violation.to_string();
        assert!(text.contains("is for another scheduler to place"), "{text}");
        let creates_held = shrunk
            .script
            .steps
            .iter()
            .any(|step| step.to_string().contains("held for"));
        let holds = shrunk
            .script
            .steps
            .iter()
            .any(|step| step.to_string().starts_with("hold pod"));
        assert_eq!(creates_held || holds, held, "{shrunk}");
    }
}
