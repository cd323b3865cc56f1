//! Pods that wait for deferred quotas: the place in line, and changes that admit the pod.

use crate::objects::{NOW, Objects, explain};
use berth_api::{Kind, Object};
use berth_explain::answer::PodState;
use berth_explain::{QueueFacts, explain_queue, text};
use berth_framework::cluster::DEFERRED_QUOTA;
use berth_framework::testing::{PodBuilder, node, pod};
use serde_json::{Value, json};

fn quota(name: &str, spec: &Value) -> Object {
    let quota = json!({
        "apiVersion": "scheduling.berth.dev/v1alpha1", "kind": "DeferredQuota",
        "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec,
    });
    let text = quota.to_string();
    let decoded = Kind::Custom(DEFERRED_QUOTA).decode(text.as_bytes());
    decoded.expect("a quota")
}

fn cpu(name: &str, amount: &str) -> PodBuilder {
    pod(name).request("cpu", amount)
}

fn running(name: &str, amount: &str) -> Object {
    cpu(name, amount).on("n1").phase("Running").object()
}

/// The place in line is explained, and every proposed change places the pod: a higher limit for it and the pods before
/// it, and the end of pods.
#[test]
fn the_place_in_line_and_what_makes_room() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("100", "100Gi", "100").object());
    objects.set(quota("team-a", &json!({"hard": {"requests.cpu": "4"}})));
    objects.set(running("a", "3"));
    objects.set(cpu("first", "2").created(1).object());
    objects.set(cpu("p", "1").created(2).object());
    let (scheduler, placed) = objects.run();
    assert_eq!(placed, None);
    let (answer, ..) = explain(&scheduler, "p");
    assert_eq!(answer.state, PodState::Gated);
    let wait = answer.quota.clone().expect("the quota");
    assert_eq!(
        (
            wait.quota.as_str(),
            wait.place,
            wait.entries,
            wait.first.as_str()
        ),
        ("team-a", 2, 2, "default/first")
    );
    let texts: Vec<&str> = answer
        .remedies
        .iter()
        .map(|remedy| remedy.text.as_str())
        .collect();
    assert_eq!(
        texts,
        [
            "raise requests.cpu of deferred quota team-a by 2 to 6; the pod fits on n1 then",
            "wait for the end of default/a, or delete it; the pod fits on n1 then",
        ]
    );
    for remedy in &answer.remedies {
        let node = objects.placed_after(&remedy.changes);
        assert_eq!(node.as_deref(), Some("n1"), "{}", remedy.text);
    }
    let shown = text::pod(&answer);
    assert!(shown.contains("place           2 of 2 in line"), "{shown}");
    // The first one lacks an amount.
    let (answer, ..) = explain(&scheduler, "first");
    let wait = answer.quota.expect("the quota");
    let amounts = [
        &wait.key,
        &wait.requested,
        &wait.used,
        &wait.limit,
        &wait.missing,
    ];
    assert_eq!(amounts, ["requests.cpu", "2", "3", "4", "1"]);
    let queue = explain_queue(&QueueFacts::take(&scheduler, NOW));
    let line = queue.quotas.first().expect("a line");
    assert_eq!(
        (line.waiting, line.first.as_str(), line.is_stuck),
        (2, "first", false)
    );
    let shown = text::queue(&queue);
    assert!(
        shown.contains("requests.cpu: requested 2, used 3 of 4"),
        "{shown}"
    );
}

/// Several pods have to end if no single one is enough; a request above the limit is admitted by a higher limit alone.
#[test]
fn several_ends_and_a_request_above_the_limit() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("100", "100Gi", "100").object());
    objects.set(quota(
        "team-a",
        &json!({"hard": {"requests.cpu": "4", "pods": "9"}}),
    ));
    for name in ["a", "b", "c"] {
        objects.set(running(name, "1"));
    }
    objects.set(cpu("p", "3").object());
    let (scheduler, _) = objects.run();
    let (answer, ..) = explain(&scheduler, "p");
    let texts: Vec<&str> = answer
        .remedies
        .iter()
        .map(|remedy| remedy.text.as_str())
        .collect();
    assert_eq!(
        texts,
        [
            "raise requests.cpu of deferred quota team-a by 2 to 6; the pod fits on n1 then",
            "wait for the end of default/a, default/b, or delete them; the pod fits on n1 then",
        ]
    );
    for remedy in &answer.remedies {
        assert!(
            objects.placed_after(&remedy.changes).is_some(),
            "{}",
            remedy.text
        );
    }
    objects.set(cpu("p", "5").object());
    let (scheduler, _) = objects.run();
    let (answer, ..) = explain(&scheduler, "p");
    assert!(answer.quota.is_some_and(|wait| wait.never_fits));
    let texts: Vec<&str> = answer
        .remedies
        .iter()
        .map(|remedy| remedy.text.as_str())
        .collect();
    assert_eq!(
        texts,
        ["raise requests.cpu of deferred quota team-a by 4 to 8; the pod fits on n1 then"]
    );
    assert!(objects.placed_after(&answer.remedies[0].changes).is_some());
}
