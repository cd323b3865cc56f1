//! Pods that wait for their resource claims: PreEnqueue blocks them, reports the reason, and admits them when the
//! claims exist.

use crate::drivers::{driver, driver_of};
use berth_api::{Kind, Str};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::ClusterChange;
use berth_scheduler::metrics::{Metric, SeriesValue};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::json;

/// A pod with one claim: by its name, or from a template.
pub(crate) fn wanting(name: &str, claim: Option<&str>) -> PodBuilder {
    let entry = match claim {
        Some(claim) => json!({"name": "gpu", "resourceClaimName": claim}),
        None => json!({"name": "gpu", "resourceClaimTemplateName": "gpu"}),
    };
    pod(name).with(|pod| {
        let claims = serde_json::from_value(json!([entry]));
        pod.spec.resource_claims = claims.expect("claims");
    })
}

/// The pod's status names a claim that was made for it, or states that none is needed.
pub(crate) fn linked(pod: PodBuilder, claim: Option<&str>) -> PodBuilder {
    pod.with(|pod| {
        let made = json!([{"name": "gpu", "resourceClaimName": claim}]);
        pod.status.resource_claim_statuses = serde_json::from_value(made).expect("a status");
    })
}

/// A claim as the API shows it, made for a pod if one is named.
pub(crate) fn claim(name: &str, owner: &str) -> serde_json::Value {
    let owner =
        json!({"kind": "Pod", "name": owner, "uid": format!("uid-{owner}"), "controller": true});
    json!({"metadata": {
        "name": name, "namespace": "default", "uid": format!("uid-{name}"), "ownerReferences": [owner],
    }})
}

fn with_devices(mut claim: serde_json::Value) -> serde_json::Value {
    let device = json!({"request": "r", "driver": "d", "pool": "p", "device": "dev-0"});
    claim["status"] = json!({"allocation": {"devices": {"results": [device]}}});
    claim
}

/// The reasons and messages of PodScheduled that are being written.
fn written(w: &Driver) -> Vec<String> {
    let conditions = w.calls.iter().filter_map(|(_, call)| {
        let c = call.condition("PodScheduled")?;
        Some(format!("{}: {}", c.reason, c.message))
    });
    conditions.collect()
}

/// Q-28, Q-101, Q-102, Q-106, case 126: a pod waits for its claim without being tried. After five seconds its condition
/// names the claim, and later changes of the reason. The claim itself, or the link to it in the pod's status, admits
/// the pod.
#[test]
fn a_pod_waits_for_its_claims_and_states_so() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(wanting("named", Some("mine")));
    w.pod(wanting("made", None));
    assert_eq!(w.attempts(), [""; 0]);
    for name in ["named", "made"] {
        assert_eq!(w.place_of(name), Some(QueuedIn::Gated), "{name}");
    }
    w.wait(4);
    assert_eq!((w.calls.len(), w.events.len()), (0, 0), "not yet");
    w.wait(1);
    let named = "NotReadyForScheduling: Waiting for resource claim \"mine\" to be present";
    let made = "NotReadyForScheduling: Waiting for a resource claim to be created from ResourceClaimTemplate \"gpu\"";
    assert_eq!(written(&w), [named, made]);
    w.answer_all();
    let noted = |text: &str| text.replacen(": ", " ", 1);
    assert_eq!(w.take_events(), [noted(named), noted(made)]);

    // The claim of a template admits the pod only after the pod's status names it.
    w.object(Kind::ResourceClaim, claim("made-x7k2p", "made"));
    assert_eq!(w.place_of("made"), Some(QueuedIn::Gated));
    w.change("made", |p| linked(p, Some("made-x7k2p")));
    w.object(Kind::ResourceClaim, claim("mine", ""));
    let tried = w.attempts();
    for name in ["named", "made"] {
        assert!(tried.iter().any(|text| text.starts_with(name)), "{tried:?}");
    }
}

/// Q-96, Q-97: a claim is seen before the pod's status names it. The event of the claim names no pod and calls no hint.
/// The pod's own update admits it, and the flush has nothing to do.
#[test]
fn a_claim_that_is_seen_before_its_link_wakes_the_pod_through_its_status() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    for name in ["p", "q"] {
        w.pod(wanting(name, None));
    }
    w.object(Kind::ResourceClaim, claim("p-1", "p"));
    assert_eq!(w.attempts(), [""; 0]);
    for name in ["p", "q"] {
        assert_eq!(w.place_of(name), Some(QueuedIn::Gated), "{name}");
    }
    let narrowed = ["DynamicResources", "narrowed"];
    assert_eq!(w.metric(Metric::PreQueueingHintEvaluations, &narrowed), 1.0);
    assert_eq!(hints(&w), 0);
    w.change("p", |p| linked(p, Some("p-1")));
    assert_eq!(w.attempt_named(), "p on n1");
    assert_eq!(
        w.place_of("q"),
        Some(QueuedIn::Gated),
        "the update of another pod does not wake it"
    );
    w.answer_all();
    w.wait(600);
    assert_eq!(w.metric(Metric::PodScheduledAfterFlush, &[]), 0.0);
}

/// Q-61, Q-96: the claim that was created for a pod that had the name before does not admit the pod that has it now.
#[test]
fn what_an_earlier_pod_of_the_name_gets_does_not_wake_the_new_one() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(wanting("p", None));
    w.deleted("p");
    w.pod(wanting("p", None).with(|pod| pod.metadata.uid = "uid-new".into()));
    w.object(Kind::ResourceClaim, claim("p-1", "p"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.change("p", |p| linked(p, Some("p-1")));
    assert_eq!(
        w.place_of("p"),
        Some(QueuedIn::Gated),
        "the claim was created for the earlier pod"
    );
    let mut own = claim("p-2", "p");
    own["metadata"]["ownerReferences"][0]["uid"] = json!("uid-new");
    w.object(Kind::ResourceClaim, own);
    w.change("p", |p| linked(p, Some("p-2")));
    assert_eq!(w.attempt_named(), "p on n1");
}

/// Q-28: the link to a claim may be seen before the claim.
#[test]
fn the_link_may_come_first() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(wanting("p", None));
    w.change("p", |p| linked(p, Some("p-1")));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    // The claim of the pod that had the name before.
    w.object(Kind::ResourceClaim, claim("p-1", "another"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.wait(5);
    let why = "NotReadyForScheduling: Resource claim \"p-1\" was created for something else: waiting for one that is created for this pod from ResourceClaimTemplate \"gpu\"";
    assert_eq!(written(&w), [why]);
    let mut own = claim("p-1", "p");
    own["metadata"]["uid"] = json!("uid-p-2");
    w.object(Kind::ResourceClaim, own);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
}

/// Q-101: the condition names the currently missing claim, not the claim that was missing first.
#[test]
fn the_latest_obstacle_is_reported() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    let claims = json!([
        {"name": "a", "resourceClaimName": "first"},
        {"name": "b", "resourceClaimName": "second"},
    ]);
    w.pod(pod("p").with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(claims).expect("claims");
    }));
    let missing = |name: &str| {
        format!("NotReadyForScheduling: Waiting for resource claim \"{name}\" to be present")
    };
    w.wait(5);
    assert_eq!(written(&w), [missing("first")]);
    w.answer_all();
    w.object(Kind::ResourceClaim, claim("first", ""));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.wait(5);
    assert_eq!(written(&w), [missing("second")]);
    w.answer_all();
    w.object(Kind::ResourceClaim, claim("second", ""));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
}

/// Q-101: the same while a single claim is being deleted, and after its deletion.
#[test]
fn a_deleted_claim_is_reported_as_far_as_it_matters() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    let mut going = claim("mine", "");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    w.object(Kind::ResourceClaim, going.clone());
    w.pod(wanting("p", Some("mine")));
    w.wait(5);
    let why = "NotReadyForScheduling: Resource claim \"mine\" is being deleted: waiting for a new one of that name";
    assert_eq!(written(&w), [why]);
    w.answer_all();
    w.object_gone(Kind::ResourceClaim, &going);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    w.wait(5);
    let why = "NotReadyForScheduling: Waiting for resource claim \"mine\" to be present";
    assert_eq!(written(&w), [why]);
}

/// Q-28: a claim whose owner becomes the pod admits it, though no other field of the claim has changed.
#[test]
fn a_claim_may_be_made_over_to_the_pod() {
    for (owner, place) in [("p", QueuedIn::Active), ("else", QueuedIn::Gated)] {
        let mut w = driver();
        w.node(node("n1").capacity("2", "1Gi", "10"));
        w.object(Kind::ResourceClaim, claim("p-1", "another"));
        w.pod(linked(wanting("p", None), Some("p-1")));
        assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
        w.object(Kind::ResourceClaim, claim("p-1", owner));
        assert_eq!(w.place_of("p"), Some(place), "{owner}");
    }
}

/// Q-102, Q-104: a problem that is resolved within five seconds is not written at all.
#[test]
fn a_claim_that_comes_soon_costs_no_call() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(wanting("p", None));
    w.wait(4);
    // Its template asks for no claim after all.
    w.change("p", |p| linked(p, None));
    assert_eq!(w.attempt_named(), "p on n1");
    w.wait(60);
    let calls = w.calls.iter().map(|(_, call)| call.call_type().name());
    let calls: Vec<&str> = calls.collect();
    assert_eq!(calls, ["pod_binding"]);
    assert_eq!(w.take_events(), [""; 0]);
}

/// The number of questions to hints of DynamicResources about claims.
fn hints(w: &Driver) -> u64 {
    let snapshot = w.scheduler.metrics();
    let asked = |event: &str, hint: &str| {
        let labels = ["DynamicResources", event, hint];
        match snapshot.get(Metric::QueueingHintExecutionDuration, &labels) {
            Some(SeriesValue::Histogram(asked)) => asked.count(),
            _ => 0,
        }
    };
    let events = ["ResourceClaimAdd", "ResourceClaimUpdate"];
    let labels = events.map(|event| format!("resource.k8s.io/{event}"));
    let all = labels.iter();
    all.map(|event| asked(event, "Queue") + asked(event, "QueueSkip"))
        .sum()
}

/// Q-96, Q-97, case 179: with a thousand pods waiting for claims, a change of a claim evaluates only the pods that use
/// it, and freed devices evaluate all. The index entries are removed with the pods.
#[test]
fn a_claim_finds_its_pods_among_a_thousand() {
    let mut w = driver();
    w.node(node("n1").capacity("2", "1Gi", "10"));
    for n in 0..1_000 {
        w.pod(wanting(&format!("p{n}"), Some(&format!("c{}", n / 2))));
    }
    let narrowed = |w: &Driver, result| {
        w.metric(
            Metric::PreQueueingHintEvaluations,
            &["DynamicResources", result],
        )
    };
    assert_eq!((hints(&w), narrowed(&w, "narrowed")), (0, 0.0));
    w.object(Kind::ResourceClaim, claim("unused", ""));
    assert_eq!((hints(&w), narrowed(&w, "narrowed")), (0, 1.0));
    w.object(Kind::ResourceClaim, claim("c7", ""));
    assert_eq!((hints(&w), narrowed(&w, "narrowed")), (2, 2.0));
    for name in ["p14", "p15"] {
        assert_eq!(w.place_of(name), Some(QueuedIn::Active), "{name}");
    }
    // The devices of another claim are released: that may help any of the pods that still wait.
    w.object(Kind::ResourceClaim, with_devices(claim("unused", "")));
    assert_eq!((hints(&w), narrowed(&w, "all_pods")), (2, 0.0));
    w.object(Kind::ResourceClaim, claim("unused", ""));
    assert_eq!((hints(&w), narrowed(&w, "all_pods")), (2 + 998, 1.0));

    assert_eq!(w.scheduler.cache().cluster().pods.claim_uses(), 1_000);
    for n in 0..1_000 {
        w.deleted(&format!("p{n}"));
    }
    assert_eq!(w.scheduler.cache().cluster().pods.claim_uses(), 0);
}

/// The number of strings that the core reads and copies for an event of the claim of one pod among `pods` waiting pods.
fn reads_of_a_claim(is_on: bool, pods: usize) -> u64 {
    let features = FeatureGates::default().with(Feature::SchedulerPreQueueingHints, is_on);
    let mut w = driver_of(features);
    w.node(node("n1").capacity("2", "1Gi", "10"));
    for n in 0..pods {
        w.pod(wanting(&format!("p{n}"), Some(&format!("c{n}"))));
    }
    let shown = Kind::ResourceClaim.decode(claim("c7", "").to_string().as_bytes());
    let shown = ClusterChange::Applied(shown.expect("a claim"));
    let before = Str::reads();
    w.scheduler.apply(shown, w.now);
    let reads = Str::reads() - before;
    assert_eq!(w.place_of("p7"), Some(QueuedIn::Active));
    reads
}

/// Q-96, case 179: with the gate SchedulerPreQueueingHints, the work of the core for a claim does not depend on the number
/// of waiting pods. Without it, each of them is evaluated.
#[test]
fn the_work_for_a_claim_does_not_depend_on_the_waiting_pods() {
    let [on, off] = [true, false].map(|is_on| [100, 800].map(|pods| reads_of_a_claim(is_on, pods)));
    assert!(on[1] <= 2 * on[0], "{on:?} reads for 100 and 800 pods");
    assert!(
        off[1] >= 4 * off[0],
        "{off:?} reads for 100 and 800 pods without the gate"
    );
    assert!(
        off[1] >= 10 * on[1],
        "{off:?} reads without the gate, {on:?} with it"
    );
}
