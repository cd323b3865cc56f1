//! Deferred quotas: schedulers that receive wrong quotas and groups, and a wrong plugin. Each guarantee has a bug that
//! breaks it.

use super::{found_behind, found_from, with, with_api};
use berth_api::{Kind, Object, Pod, Str, Time};
use berth_framework::call::ApiCall;
use berth_framework::event::{EventRegistration, Narrowed};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue, Reserve};
use berth_framework::registry::Extensions;
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{CycleState, FeatureGates, PodInfo, Status};
use berth_scheduler::ClusterChange;
use berth_simulator::shapes::DEFERRED_QUOTA;
use berth_simulator::world::{Refusal, World};
use berth_simulator::{Api, FaithfulApi, Faults, QUOTA_SEEDS, Shrunk, Subject};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KIND: Kind = Kind::Custom(DEFERRED_QUOTA);
const FIRST: u64 = QUOTA_SEEDS.start;

/// An API whose watch shows each object as changed by this function.
struct Shown<F>(F);

impl<F: Fn(Object) -> Object + Send + Sync> Api for Shown<F> {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        FaithfulApi.carry_out(world, call, now)
    }

    fn notify(&self, change: ClusterChange) -> Vec<ClusterChange> {
        vec![match change {
            ClusterChange::Applied(object) => ClusterChange::Applied((self.0)(object)),
            ClusterChange::Replaced(kind, objects) => {
                let objects = objects.into_iter().map(&self.0);
                ClusterChange::Replaced(kind, objects.collect())
            }
            other => other,
        }]
    }
}

/// A scheduler that receives the spec of each quota as changed by this function.
fn with_spec(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Subject {
    with_api(Shown(move |object: Object| {
        let Object::Custom(quota) = &object else {
            return object;
        };
        let mut quota = (**quota).clone();
        change(&mut quota.value["spec"]);
        Object::Custom(Arc::new(quota))
    }))
}

fn found_with(subject: &Subject, faults: Faults, kind: &str) -> Shrunk {
    found_from(FIRST, subject, faults, &[kind])
}

/// The same, behind seeds in which only the status of a quota shows the wrong limit.
fn found_before_status(subject: &Subject, kind: &str) {
    let consequences = ["wrong quota status"];
    found_behind(&consequences, FIRST, subject, Faults::NONE, &[kind]);
}

/// The scheduler counts by a greater limit.
#[test]
fn an_exceeded_limit_is_detected() {
    let subject = with_spec(|spec| {
        if let Some(pods) = spec["hard"]["pods"].as_i64() {
            spec["hard"]["pods"] = json!(pods + 1);
        }
    });
    found_before_status(&subject, "exceeded quota");
}

/// The scheduler lends more than the unused limits of the other quotas of the cohort.
#[test]
fn excessive_borrowing_is_detected() {
    let subject = with_spec(|spec| {
        if spec["borrowingLimit"].is_object() {
            spec["borrowingLimit"] = json!({});
        }
    });
    found_with(&subject, Faults::NONE, "exceeded quota");
}

/// The scheduler does not know the pods placed by other schedulers and former leaders.
#[test]
fn a_leader_that_ignores_pods_of_others_is_detected() {
    let subject = with("DeferredQuota", |inner| {
        let forgetful = Extensions::of(Forgetful::default());
        let forgetful = forgetful.pre_enqueue().reserve().build();
        Extensions {
            events: inner.events,
            ..forgetful
        }
    });
    let faults: Faults = "restarts,failovers".parse().expect("they exist");
    found_with(&subject, faults, "exceeded quota");
}

/// DeferredQuota with its own records instead of the pods of the cluster: until it has placed a pod, pods placed by
/// others do not count.
#[derive(Default)]
struct Forgetful {
    has_placed: AtomicBool,
}

impl PreEnqueue for Forgetful {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        let Some(obstacle) = cx.cluster.quotas().obstacle(pod) else {
            return Status::success();
        };
        let mut others = cx.cluster.pods.values();
        let is_used =
            others.any(|other| other.is_assigned() && other.namespace() == pod.namespace());
        let forgets = is_used && !self.has_placed.load(Ordering::Relaxed);
        let lack = obstacle.lack.as_ref();
        if forgets && lack.is_some_and(|lack| !lack.never_fits) {
            Status::success()
        } else {
            Status::unresolvable(obstacle.to_string())
        }
    }
}

impl Reserve for Forgetful {
    fn reserve(
        &self,
        _: &mut StageContext<'_>,
        _: &mut CycleState,
        _: &PodInfo,
        _: &Str,
        _: Option<Wake<'_>>,
    ) -> Step {
        self.has_placed.store(true, Ordering::Relaxed);
        Step::success()
    }

    fn unreserve(&self, _: &mut StageContext<'_>, _: &mut CycleState, _: &PodInfo, _: &Str) {}
}

/// The scheduler treats each line as BestEffort.
#[test]
fn overtaking_in_a_strict_line_is_detected() {
    let subject = with_spec(|spec| spec["order"] = json!("BestEffort"));
    found_with(&subject, Faults::NONE, "overtaken pod");
}

/// The scheduler treats each line as Strict.
#[test]
fn waiting_for_the_first_pod_of_a_best_effort_line_is_detected() {
    let subject = with_spec(|spec| spec["order"] = json!("Strict"));
    found_with(&subject, Faults::NONE, "needless wait");
}

/// The scheduler counts by a smaller limit.
#[test]
fn a_waiting_pod_that_fits_is_detected() {
    let subject = with_spec(|spec| {
        if let Some(pods) = spec["hard"]["pods"].as_i64() {
            spec["hard"]["pods"] = json!((pods - 1).max(0));
        }
    });
    found_before_status(&subject, "needless wait");
}

/// The scheduler takes the members of gangs for single pods: a quota admits only some of them. A gang that starts in
/// part is a consequence.
#[test]
fn a_partially_admitted_gang_is_detected() {
    let subject = with_api(Shown(|object: Object| {
        let Object::PodGroup(group) = &object else {
            return object;
        };
        let mut group = (**group).clone();
        let policy = &mut group.spec.scheduling_policy;
        if policy.gang.take().is_some() {
            policy.basic = Some(Default::default());
        }
        Object::PodGroup(Arc::new(group))
    }));
    let consequences = ["short gang", "needless wait", "overtaken pod"];
    found_behind(
        &consequences,
        FIRST,
        &subject,
        Faults::NONE,
        &["split gang"],
    );
}

/// DeferredQuota whose event wakes no pod.
struct Deaf(Extensions);

impl EnqueueExtensions for Deaf {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let own = self.0.events.clone();
        let own = own.map(|own| own.events(features)).unwrap_or_default();
        let woken = own
            .into_iter()
            .map(|registration| registration.narrowed_by(|_, _| Ok(Narrowed::Pods(Vec::new()))));
        woken.collect()
    }
}

/// Admitted pods stay gated, and their conditions state that they wait.
#[test]
fn an_admitted_pod_that_stays_gated_is_detected() {
    let subject = with("DeferredQuota", |inner| {
        let events = Extensions::of(Deaf(inner.clone())).events().build().events;
        Extensions { events, ..inner }
    });
    found_from(
        FIRST,
        &subject,
        Faults::NONE,
        &["lost pod", "wrong status", "incorrect report"],
    );
}

/// The writes of statuses are lost.
#[test]
fn a_missing_quota_status_is_detected() {
    struct Lossy;
    impl Api for Lossy {
        fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
            match call {
                ApiCall::Write(write) if write.object().kind == KIND => Ok(()),
                call => FaithfulApi.carry_out(world, call, now),
            }
        }
    }
    found_with(&with_api(Lossy), Faults::NONE, "wrong quota status");
}
