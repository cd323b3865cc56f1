//! The pods that may preempt, and the messages of the other pods.

use super::*;

/// Q-78, P-4 to P-6, P-10, cases 240, 247, 248: the pods that may not preempt keep their nomination; without a
/// candidate it is cleared.
#[test]
fn who_may_not_preempt() {
    let going_as = |priority: i32, status: &str, reason: &str| {
        pod(
            "victim",
            priority,
            4,
            json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "DisruptionTarget", "status": status, "reason": reason}]},
            }),
        )
    };
    let going = |reason: &str| going_as(1, "True", reason);
    let nominated_to = |node: &str, cpu: u32| {
        let mut preemptor = plain("p", 10, cpu);
        preemptor.status.nominated_node_name = node.into();
        preemptor
    };
    let nominated = |cpu: u32| nominated_to("n", cpu);
    let mut never = plain("p", 10, 4);
    never.spec.preemption_policy = Some("Never".into());
    let waits = "preemption: not eligible due to a terminating pod on the nominated node.";
    let helpless =
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let nothing = Nominating::Set(Str::default());
    for (name, there, preemptor, text, nominating) in [
        (
            "never",
            plain("victim", 1, 4),
            never,
            "preemption: not eligible due to preemptionPolicy=Never.",
            Nominating::Keep,
        ),
        (
            "its victim is going",
            going("PreemptionByScheduler"),
            nominated(4),
            waits,
            Nominating::Keep,
        ),
        // A pod that terminates for another reason does not block preemption, and it is not evicted again.
        (
            "another pod is going",
            going("EvictionByEvictionAPI"),
            nominated(4),
            "n: ",
            Nominating::Set("n".into()),
        ),
        (
            "its pod goes, and it is not stated that it does so for a preemptor",
            going_as(1, "False", "PreemptionByScheduler"),
            nominated(4),
            "n: ",
            Nominating::Set("n".into()),
        ),
        (
            "its victim is being deleted, and still runs",
            pod(
                "victim",
                1,
                4,
                json!({"status": {"conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ]}}),
            ),
            nominated(4),
            "n: victim",
            Nominating::Set("n".into()),
        ),
        (
            "one that is as important is going",
            going_as(10, "True", "PreemptionByScheduler"),
            nominated(4),
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            nothing.clone(),
        ),
        (
            "it is nominated to a node that is gone",
            plain("victim", 1, 4),
            nominated_to("gone", 4),
            "n: victim",
            Nominating::Set("n".into()),
        ),
        (
            "its node is out of the question now",
            going("PreemptionByScheduler"),
            nominated(8),
            helpless,
            nothing.clone(),
        ),
        (
            "no candidate",
            plain("victim", 1, 4),
            plain("p", 10, 8),
            helpless,
            nothing,
        ),
    ] {
        let outcome = attempt(world(vec![("n", vec![there])]), preemptor).run();
        assert_eq!(outcome.text(), text, "{name}");
        assert_eq!(outcome.result.nominating, nominating, "{name}");
    }
    let empty = attempt(World::new(), plain("p", 10, 1)).run();
    assert_eq!(empty.text(), "preemption: no nodes available");
    assert_eq!(empty.result.status.code(), Code::Error);
}

/// P-3: the scheduling cycle may have waited since it popped the pod. Preemption uses the current state of the pod, and
/// a deleted pod preempts no pods.
#[test]
fn what_counts_is_how_the_pod_looks_now() {
    let going = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        ]},
    });
    let there = world(vec![("n", vec![pod("victim", 1, 4, going)])]);
    let mut trial = attempt(there, plain("p", 10, 4));
    let mut nominated = plain("p", 10, 4);
    nominated.status.nominated_node_name = "n".into();
    let uid = nominated.uid().clone();
    trial
        .world
        .cluster
        .pods
        .insert(uid.clone(), nominated.into());
    assert_eq!(
        trial.run().text(),
        "preemption: not eligible due to a terminating pod on the nominated node."
    );

    let there = world(vec![("n", vec![plain("victim", 1, 4)])]);
    let mut trial = attempt(there, plain("p", 10, 4));
    trial.world.cluster.pods.remove(&uid);
    let outcome = trial.run();
    assert_eq!(outcome.text(), "preemption: pod \"p\" not found");
    assert_eq!(outcome.result.status.code(), Code::Error);
    assert_eq!(outcome.result.nominating, Nominating::Keep);
    assert_eq!(
        outcome.outbox.observations,
        [Observation::PreemptionAttempt]
    );
}
