//! Deferred quotas with the whole scheduler: pods blocked by PreEnqueue, woken pods, and written statuses.

use crate::drivers::{driver, driver_with};
use berth_api::Kind;
use berth_framework::call::{CallErrorKind, RelatedObject};
use berth_framework::cluster::DEFERRED_QUOTA;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::metrics::{Metric, SeriesValue};
use berth_scheduler::profile::{PluginSet, PluginSets, ProfileSpec};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

const KIND: Kind = Kind::Custom(DEFERRED_QUOTA);

fn quota(spec: &Value) -> Value {
    json!({
        "metadata": {"name": "team-a", "namespace": "default", "uid": "uid-q", "generation": 1},
        "spec": spec,
    })
}

fn cpu(name: &str, amount: &str, created: i64) -> PodBuilder {
    pod(name).request("cpu", amount).created(created)
}

fn with_quota(spec: &Value) -> Driver {
    let mut w = driver();
    w.node(node("n1").capacity("100", "100Gi", "1000"));
    w.object(KIND, quota(spec));
    w
}

/// The number of observations of a histogram.
fn observations(w: &Driver, metric: Metric, labels: &[&str]) -> u64 {
    match w.scheduler.metrics().get(metric, labels) {
        Some(SeriesValue::Histogram(histogram)) => histogram.counts.iter().sum(),
        _ => 0,
    }
}

/// The messages of PodScheduled that are written about a pod.
fn messages(w: &Driver, name: &str) -> Vec<String> {
    let about = w
        .calls
        .iter()
        .filter(|(_, call)| call.pod().is_some_and(|pod| pod.name == *name));
    let conditions = about.filter_map(|(_, call)| call.condition("PodScheduled"));
    conditions
        .map(|condition| format!("{}: {}", condition.reason, condition.message))
        .collect()
}

/// DQ-2, DQ-4, DQ-13, Q-101: a pod without room waits before the queue with a reason that is not Unschedulable, and is
/// queued when a pod has ended.
#[test]
fn a_pod_waits_until_a_pod_ends() {
    let mut w = with_quota(&json!({"hard": {"requests.cpu": "16"}}));
    w.pod(cpu("first", "14", 1));
    assert_eq!(w.attempt(), "on n1");
    w.answer_all();
    w.pod(cpu("second", "4", 2));
    w.pod(cpu("third", "1", 3));
    assert_eq!(w.attempt_named(), "idle");
    w.wait(10);
    assert_eq!(
        messages(&w, "second"),
        [
            "NotReadyForScheduling: deferred quota \"team-a\": requests.cpu: requested 4, used 14 of 16"
        ]
    );
    assert_eq!(
        messages(&w, "third"),
        ["NotReadyForScheduling: deferred quota \"team-a\": 1 pod is before this one"]
    );
    w.answer_all();
    w.deleted("first");
    assert_eq!(w.attempt_named(), "second on n1");
    assert_eq!(w.attempt_named(), "third on n1");
    assert_eq!(observations(&w, Metric::DeferredQuotaWaitDuration, &[]), 3);
}

/// DQ-2: exactly the pods of a burst that fit are admitted.
#[test]
fn a_burst_does_not_exceed_the_limit() {
    let mut w = with_quota(&json!({"hard": {"pods": "3"}}));
    for number in 0..50 {
        w.pod(pod(&format!("p{number}")).created(number));
    }
    let active = |w: &Driver| {
        let names = (0..50).map(|number| format!("p{number}"));
        names
            .filter(|name| w.place_of(name) == Some(QueuedIn::Active))
            .count()
    };
    assert_eq!(active(&w), 3);
    assert_eq!(w.attempts().len(), 3);
    w.answer_all();
    w.deleted("p1");
    assert_eq!(w.attempt_named(), "p3 on n1");
}

/// DQ-6: a failed binding gives the pod its room back, and no other pod gets it.
#[test]
fn a_failed_binding_keeps_the_room() {
    let mut w = with_quota(&json!({"hard": {"pods": "1"}}));
    w.pod(pod("a").created(1));
    w.pod(pod("b").created(2));
    assert_eq!(w.attempt_named(), "a on n1");
    let is_bind = |call: &ApiCall| matches!(call, ApiCall::BindPod { .. });
    w.answer_which(is_bind, Some(CallErrorKind::Refused), false);
    w.wait(60);
    assert_eq!(w.attempt_named(), "a on n1");
    assert_eq!(w.place_of("b"), Some(QueuedIn::Gated));
}

/// DQ-12, DQ-15: a new quota holds back pods in the queue; when it is deleted, they continue.
#[test]
fn quotas_come_and_go_while_pods_wait() {
    let mut w = driver();
    for name in ["a", "b"] {
        w.pod(pod(name));
    }
    assert_eq!(w.place_of("a"), Some(QueuedIn::Active));
    let quota = quota(&json!({"hard": {"pods": "0"}}));
    w.object(KIND, quota.clone());
    assert_eq!(w.place_of("a"), Some(QueuedIn::Gated));
    w.object_gone(KIND, &quota);
    assert_eq!(w.place_of("a"), Some(QueuedIn::Active));
    assert_eq!(w.place_of("b"), Some(QueuedIn::Active));
}

/// DQ-15: one event states that pods do not wait for a deleted quota any more. It is about the first pod, and names the
/// quota. A quota for which no pod waited has none.
#[test]
fn a_deleted_quota_has_one_event() {
    for (limit, expected) in [
        (
            1,
            vec!["p0: deferred quota \"team-a\" was deleted: 3 waiting pods continue"],
        ),
        (9, Vec::new()),
    ] {
        let mut w = driver();
        let quota = quota(&json!({"hard": {"pods": limit}}));
        w.object(KIND, quota.clone());
        w.pod(pod("runs").on("n1"));
        for number in 0..3 {
            w.pod(pod(&format!("p{number}")).created(number));
        }
        w.object_gone(KIND, &quota);
        for _ in 0..20 {
            w.wait(1);
        }
        let events = w.events.iter();
        let events = events.filter(|event| event.event.reason == "DeferredQuotaDeleted");
        let texts = events.map(|event| {
            let Some(RelatedObject::Custom {
                kind, name, uid, ..
            }) = &event.event.related
            else {
                panic!("the quota is named: {event:?}");
            };
            assert_eq!(
                (*kind, &**name, &**uid),
                ("DeferredQuota", "team-a", "uid-q")
            );
            format!("{}: {}", event.event.regarding.name, event.event.note)
        });
        assert_eq!(texts.collect::<Vec<_>>(), expected, "{limit}");
    }
}

/// The number of entries and pods checked when a pod ends. Each namespace has a quota of two pods; two pods run and the
/// others wait.
fn looks_at_the_end_of_a_pod(namespaces: usize, pods: usize, with_hints: bool) -> Vec<u64> {
    let mut w = driver_with(|options| {
        options.features =
            FeatureGates::default().with(Feature::SchedulerPreQueueingHints, with_hints);
    });
    // With many pods, the checks would take the square of their number.
    w.is_checked = namespaces * pods <= 10_000;
    w.node(node("n1").capacity("1000000", "1000Ti", "1000000"));
    let place = |namespace: usize| format!("ns{namespace:05}");
    for namespace in 0..namespaces {
        let mut quota = quota(&json!({"hard": {"pods": 2}}));
        quota["metadata"]["namespace"] = json!(place(namespace));
        quota["metadata"]["uid"] = json!(format!("q{namespace}"));
        w.object(KIND, quota);
        for number in 0..pods + 2 {
            let name = format!("p{namespace:05}-{number:03}");
            let pod = pod(&name).namespace(&place(namespace));
            let created = i64::try_from(number).expect("few pods");
            let pod = pod.created(created);
            w.pod(if number < 2 { pod.on("n1") } else { pod });
        }
    }
    let ends = (0..namespaces).step_by((namespaces / 5).max(1)).take(5);
    let counted = ends.map(|namespace| {
        let counts = |w: &Driver| w.scheduler.cache().cluster().quotas().looks() + hint_calls(w);
        let before = counts(&w);
        w.deleted(&format!("p{namespace:05}-000"));
        let looked_at = counts(&w) - before;
        let expected = format!("p{namespace:05}-002 on n1");
        assert_eq!(w.attempt_named(), expected, "{with_hints}");
        looked_at
    });
    counted.collect()
}

/// DQ-9, Q-91: after the end of a pod, at most ten entries and pods are checked for any number of waiting pods, with
/// and without SchedulerPreQueueingHints.
#[test]
fn the_end_of_a_pod_looks_at_few_pods() {
    for with_hints in [true, false] {
        let looks = looks_at_the_end_of_a_pod(50, 40, with_hints);
        assert!(
            looks.iter().all(|looks| *looks <= 10),
            "{with_hints}: {looks:?}"
        );
    }
}

/// The same with 1,000,000 pods in 10,000 namespaces.
#[test]
#[ignore = "takes a minute"]
fn the_end_of_a_pod_looks_at_few_of_a_million_pods() {
    for with_hints in [true, false] {
        let looks = looks_at_the_end_of_a_pod(10_000, 100, with_hints);
        println!("SchedulerPreQueueingHints={with_hints}: {looks:?}");
        assert!(looks.iter().all(|looks| *looks <= 10), "{looks:?}");
    }
}

fn hint_calls(w: &Driver) -> u64 {
    let labels = ["DeferredQuota", "DeferredQuotaRoom", "Queue"];
    let skipped = ["DeferredQuota", "DeferredQuotaRoom", "QueueSkip"];
    let metric = Metric::QueueingHintExecutionDuration;
    observations(w, metric, &labels) + observations(w, metric, &skipped)
}

/// DQ-9: the waiting pods do not depend on the leftover flush.
#[test]
fn no_pod_depends_on_the_flush() {
    let mut w = with_quota(&json!({"hard": {"pods": "1"}}));
    for number in 0..5 {
        w.pod(pod(&format!("p{number}")).created(number));
    }
    for number in 0..5 {
        assert_eq!(w.attempt_named(), format!("p{number} on n1"));
        w.answer_all();
        w.deleted(&format!("p{number}"));
    }
}

/// DQ-17: the status of a quota is written at most once per second, and is not written again while it is right.
#[test]
fn the_status_is_written_once_per_second() {
    let mut w = with_quota(&json!({"hard": {"pods": "1"}}));
    let statuses = |w: &Driver| -> Vec<Value> {
        let writes = w.calls.iter().filter_map(|(_, call)| match call {
            ApiCall::Write(write) if write.call_type().name() == "deferred_quota_status_patch" => {
                match write.action() {
                    berth_framework::write::Action::Patch(body) => Some(body["status"].clone()),
                    _ => None,
                }
            }
            _ => None,
        });
        writes.collect()
    };
    for number in 0..20 {
        w.pod(pod(&format!("p{number}")).created(number));
    }
    w.wait(1);
    let written = statuses(&w);
    assert_eq!(written.len(), 1, "{written:?}");
    w.answer_all();
    w.wait(1);
    let written = statuses(&w);
    assert!(written.len() <= 1, "{written:?}");
    w.answer_all();
    w.wait(1);
    let quotas = w.scheduler.cache().cluster().quotas();
    let view = quotas
        .get(&"default".into(), &"team-a".into())
        .expect("it exists");
    assert_eq!((view.waiting, view.amounts[0].admitted), (19, 1));
}

/// DQ-18: the first pod in line that can never be admitted is a condition of the quota and a metric.
#[test]
fn a_request_beyond_the_limit_is_reported() {
    let mut w = with_quota(&json!({"hard": {"requests.cpu": "2"}}));
    w.pod(cpu("large", "3", 1));
    w.wait(2);
    let labels = ["default", "team-a"];
    assert_eq!(w.metric(Metric::DeferredQuotaStuck, &labels), 1.0);
    assert_eq!(w.metric(Metric::DeferredQuotaWaiting, &labels), 1.0);
    let labels = ["default", "team-a", "requests.cpu"];
    assert_eq!(w.metric(Metric::DeferredQuotaHard, &labels), 2.0);
    assert_eq!(w.metric(Metric::DeferredQuotaUsed, &labels), 0.0);
}

/// DQ-19: without the plugin, quotas have no effect.
#[test]
fn a_profile_without_the_plugin_ignores_quotas() {
    let mut w = driver_with(|options| {
        let disabled = PluginSet {
            disabled: vec!["DeferredQuota".into()],
            ..PluginSet::default()
        };
        options.profiles = vec![ProfileSpec {
            plugins: PluginSets {
                multi_point: disabled,
                ..PluginSets::default()
            },
            ..ProfileSpec::default()
        }];
    });
    w.node(node("n1"));
    w.object(KIND, quota(&json!({"hard": {"pods": "0"}})));
    w.pod(pod("a"));
    assert_eq!(w.attempt_named(), "a on n1");
}

/// DQ-14: the condition of a pod at the head of the line follows the quota, at most every 30 s.
#[test]
fn pods_first_in_line_state_the_present_obstacle() {
    let mut w = with_quota(&json!({"hard": {"pods": "9", "requests.cpu": "16"}}));
    for (name, amount) in [("a", "8"), ("b", "6")] {
        w.pod(cpu(name, amount, 1));
    }
    w.attempts();
    w.answer_all();
    w.pod(cpu("waits", "12", 2));
    w.wait(10);
    let stated = |used: &str| {
        format!(
            "NotReadyForScheduling: deferred quota \"team-a\": requests.cpu: requested 12, used {used} of 16"
        )
    };
    assert_eq!(messages(&w, "waits"), [stated("14")]);
    w.answer_all();
    w.deleted("b");
    for _ in 0..60 {
        w.wait(1);
    }
    assert_eq!(messages(&w, "waits"), [stated("8")]);
}
