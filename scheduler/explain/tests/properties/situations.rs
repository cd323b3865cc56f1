//! Single situations: the explanations, word by word.

use crate::objects::{NOW, Objects, explain};
use berth_api::{Object, Pod, TaintEffect, Time};
use berth_explain::answer::PodState;
use berth_explain::{
    PodFacts, QueueFacts, Snapshot, TriedChange, explain_node, explain_pod, explain_queue,
    gate_accounts, waiting_pods,
};
use berth_framework::CallError;
use berth_framework::call::CallErrorKind;
use berth_framework::registry::Registration;
use berth_framework::testing::{fake, node, pod};
use berth_framework::{Lack, NodeView, Status};
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};
use std::collections::BTreeSet;

/// The queue and the nodes are explained from the state of the scheduler.
#[test]
fn queue_and_nodes_are_explained() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(
        pod("a")
            .on("n1")
            .request("cpu", "1500m")
            .phase("Running")
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    objects.set(pod("gated").gate("example.com/gate").object());
    let (scheduler, _) = objects.run();
    let facts = QueueFacts::take(&scheduler, NOW);
    let queue = explain_queue(&facts);
    assert_eq!((queue.unschedulable, queue.gated), (1, 1));
    let reasons: BTreeSet<&str> = queue.groups.iter().map(|g| g.reason.as_str()).collect();
    assert_eq!(
        reasons,
        BTreeSet::from(["NodeResourcesFit", "SchedulingGates"])
    );
    let mut snapshot = Snapshot::take(&scheduler, NOW);
    let answer = explain_node(&mut snapshot, &facts, "n1").expect("the node");
    assert_eq!(answer.pod_count, 1);
    let cpu = answer
        .resources
        .iter()
        .find(|r| r.name == "cpu")
        .expect("CPU");
    assert_eq!((cpu.free.as_str(), cpu.requested_percent), ("500m", 75.0));
    assert_eq!(answer.fragmentation_percent, 75.0);
    let lacks: Vec<&str> = answer
        .closest_to
        .iter()
        .filter(|kind| kind.example == "default/p")
        .flat_map(|kind| &kind.lacks)
        .map(|lack| lack.text.as_str())
        .collect();
    assert_eq!(lacks, ["500m CPU short"]);
    assert!(explain_node(&mut snapshot, &facts, "n2").is_none());
}

/// An out-of-tree plugin is explained like an in-tree one: with the lacks of a node, as text and as values, and with
/// the changes derived from them. A plugin without values is shown with its reason.
#[test]
fn plugins_of_users_are_explained_by_their_values() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(pod("p").object());
    let label = Lack::Label {
        key: "rack".into(),
        value: "r1".into(),
        found: None,
    };
    let text = "nodeSelector wants label rack=r1, the node does not have the label";
    let mismatch = "NodeAffinityMismatch";
    for (lacks, code, text, remedies) in [
        (
            vec![label],
            mismatch,
            text,
            vec!["label node n1 with rack=r1"],
        ),
        (Vec::new(), "Other", "no rack", Vec::new()),
    ] {
        let value = lacks.first().cloned();
        let mut plugins = berth_plugins::in_tree();
        let plugin = Registration::new("example.com/Racks", move |_| {
            let lacks = lacks.clone();
            let has_rack = |node: NodeView<'_>| node.labels().get("rack") == Some("r1");
            let racks = fake("example.com/Racks")
                .filter(move |_, _, node| {
                    if has_rack(node) {
                        Status::success()
                    } else {
                        Status::unresolvable("no rack")
                    }
                })
                .lacks(move |_, _| lacks.clone());
            Ok(racks.build())
        });
        plugins.add(plugin.by_default(None)).expect("a new name");
        let (scheduler, placed) = objects.run_with(&plugins);
        assert_eq!(placed, None);
        let (answer, _, _) = explain(&scheduler, "p");
        let lack = &answer.closest[0].lacks[0];
        assert_eq!(
            (lack.plugin.as_str(), lack.text.as_str(), &lack.value),
            ("example.com/Racks", text, &value)
        );
        assert_eq!(lack.code, code);
        let verdict = answer.verdict.expect("a verdict");
        assert_eq!(verdict.reasons[0].code, code);
        let proposed: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
        assert_eq!(proposed, remedies);
    }
}

/// The answers shown in the documentation, in short.
#[test]
fn remedies_of_a_pod_that_lacks_cpu() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(
        node("n2")
            .capacity("4", "4Gi", "10")
            .taint("gpu", "true", TaintEffect::NoSchedule)
            .object(),
    );
    objects.set(
        pod("a")
            .on("n1")
            .request("cpu", "1500m")
            .phase("Running")
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(answer.state, PodState::Unschedulable);
    let closest: Vec<(&str, &str)> = answer
        .closest
        .iter()
        .map(|node| (node.node.as_str(), node.lacks[0].text.as_str()))
        .collect();
    assert_eq!(
        closest,
        [
            ("n2", "taint gpu=true:NoSchedule not tolerated"),
            ("n1", "500m CPU short")
        ]
    );
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "add a toleration for taint gpu=true:NoSchedule to the pod; the pod fits on n2 then",
            "remove taint gpu=true:NoSchedule from node n2",
            "request 500m CPU less; the pod fits on n1 then",
            "delete pod(s) default/a on node n1, or scale their owners down",
            "raise the priority of the pod to 1, so that it preempts default/a; the pod fits on n1 then",
            "add a node like n1",
        ]
    );
    assert_eq!(answer.remedies[1].node.as_deref(), Some("n2"));
    assert!(matches!(
        answer.remedies[2].changes[..],
        [TriedChange::RequestLess { .. }]
    ));
}

/// A controller replaces a deleted pod, so no pod is deleted in favor of another pod of its controller.
#[test]
fn pods_of_the_same_controller_are_not_deleted() {
    let owned = |name: &str, owner: &str| {
        let owner = format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}",
                "uid":"uid-{owner}","controller":true}}]}}}}"#
        );
        let owner: Pod = serde_json::from_str(&owner).expect("a pod");
        let made = pod(name).request("cpu", "1");
        made.with(|pod| pod.metadata.owner_references = owner.metadata.owner_references.clone())
    };
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(owned("a", "web").on("n1").phase("Running").object());
    objects.set(owned("b", "db").on("n1").phase("Running").object());
    objects.set(owned("p", "web").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let deletions: Vec<&str> = answer
        .remedies
        .iter()
        .map(|remedy| remedy.text.as_str())
        .filter(|text| text.starts_with("delete"))
        .collect();
    assert_eq!(
        deletions,
        ["delete pod(s) default/b on node n1, or scale their owners down"]
    );
}

/// A need that no single change satisfies is satisfied by two.
#[test]
fn remedies_of_a_pod_that_lacks_two_things() {
    let mut objects = Objects::default();
    let cordoned = node("n1").capacity("2", "4Gi", "10").unschedulable(true);
    objects.set(
        cordoned
            .taint("gpu", "true", TaintEffect::NoSchedule)
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "uncordon node n1, and add a toleration for taint gpu=true:NoSchedule to the pod",
            "uncordon node n1, and remove taint gpu=true:NoSchedule from node n1",
            "add a toleration for taint gpu=true:NoSchedule to the pod, and add a node like n1",
        ]
    );
    objects.set(
        pod("p")
            .request("cpu", "3")
            .gate("example.com/quota")
            .object(),
    );
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(answer.state, PodState::Gated);
    assert_eq!(
        answer.remedies[0].text,
        "remove the scheduling gate(s) example.com/quota, and request 1 CPU less; the pod fits on n1 then"
    );
}

/// A pair is not proposed where preemption follows a single change, or none.
#[test]
fn preemption_after_one_change_takes_the_place_of_pairs() {
    let mut objects = Objects::default();
    let tainted = node("n1").capacity("2", "4Gi", "10");
    let tainted = tainted.taint("gpu", "true", TaintEffect::NoSchedule);
    objects.set(tainted.object());
    objects.set(pod("low").on("n1").request("cpu", "2").object());
    objects.set(pod("p").priority(10).request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let shown: Vec<(&str, usize)> = answer
        .remedies
        .iter()
        .map(|remedy| (remedy.text.as_str(), remedy.changes.len()))
        .collect();
    assert_eq!(
        shown,
        [
            (
                "add a toleration for taint gpu=true:NoSchedule to the pod; preemption then evicts default/low from n1",
                1
            ),
            (
                "remove taint gpu=true:NoSchedule from node n1; preemption then evicts default/low from n1",
                1
            ),
        ]
    );
    assert_eq!(answer.remedies[0].victims.len(), 1);

    // The same for a resource claim that is missing, for which PreEnqueue rejects the pod.
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    let claims = r#"{"spec":{"resourceClaims":[{"name":"gpu","resourceClaimName":"gpu"}]}}"#;
    let claims: Pod = serde_json::from_str(claims).expect("a pod");
    let claiming = pod("p").priority(10).request("cpu", "1");
    let claiming =
        claiming.with(|pod| pod.spec.resource_claims = claims.spec.resource_claims.clone());
    objects.set(claiming.object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "create ResourceClaim gpu (tried with one that requests no devices); preemption then evicts default/low \
             from n1"
        ]
    );

    // The same behind a gate: only the gate has to be removed.
    let gated = pod("p").priority(10).request("cpu", "1");
    objects.set(gated.gate("example.com/quota").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(
        answer.remedies[0].text,
        "remove the scheduling gate(s) example.com/quota; preemption then evicts default/low from n1"
    );
}

/// The error of a refused call is in the answer.
#[test]
fn errors_of_calls_are_in_the_answer() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(pod("p").request("cpu", "1").object());
    let options = SchedulerOptions::default();
    let scheduler = Scheduler::new(options, &berth_plugins::in_tree(), NOW);
    let mut scheduler = scheduler.unwrap_or_else(|e| panic!("{e}"));
    for object in objects.0 {
        scheduler.apply(ClusterChange::Applied(object), NOW);
    }
    scheduler.schedule_one(NOW);
    for (id, _) in scheduler.take_outputs(NOW).calls {
        let message = "admission webhook denied the request";
        let error = CallError::new(CallErrorKind::Refused, message);
        scheduler.complete(id, Err::<(), _>(error), NOW);
    }
    let (answer, _, _) = explain(&scheduler, "p");
    let failed = answer.calls.iter().find(|call| call.state == "Failed");
    let failed = failed.unwrap_or_else(|| panic!("{:?}", answer.calls));
    assert_eq!(failed.call_type, "pod_binding");
    assert_eq!(
        failed.error.as_deref(),
        Some("admission webhook denied the request")
    );
}

/// A pod that is tried again waits since its first rejection, in every answer; a scheduler that starts later reads it
/// from the condition of the pod.
#[test]
fn ages_count_from_the_first_rejection() {
    let at = |seconds: i64| Time::from_secs(1_000 + seconds);
    let start = |pod: Object, now: Time| {
        let options = SchedulerOptions::default();
        let scheduler = Scheduler::new(options, &berth_plugins::in_tree(), now);
        let mut scheduler = scheduler.unwrap_or_else(|e| panic!("{e}"));
        let node = node("n1").capacity("1", "4Gi", "10").object();
        scheduler.apply(ClusterChange::Applied(node), now);
        scheduler.apply(ClusterChange::Applied(pod), now);
        scheduler.schedule_one(now);
        scheduler.take_outputs(now);
        scheduler
    };
    let check = |scheduler: &Scheduler, attempts: u32| {
        let now = at(480);
        let facts = PodFacts::take(scheduler, "default", "p").expect("the pod");
        let answer = explain_pod(&mut Snapshot::take(scheduler, now), &facts);
        let place = answer.queue.expect("its place");
        assert_eq!((place.seconds, place.attempts), (480.0, attempts));
        assert_eq!(place.since, at(0).rfc3339());
        let expected = "The pod has been unschedulable for 8m";
        assert!(answer.summary.starts_with(expected), "{}", answer.summary);
        let queue = explain_queue(&QueueFacts::take(scheduler, now));
        assert_eq!(queue.groups[0].seconds, 480.0);
        let waiting = waiting_pods(scheduler, now);
        assert!(
            waiting.iter().all(|row| row.oldest_seconds == 480.0),
            "{waiting:?}"
        );
    };
    let wanted = pod("p").request("cpu", "2");
    let mut scheduler = start(wanted.object(), at(0));
    // The pod is tried again because of a node that has room and a taint.
    let tainted = node("n2").capacity("4", "4Gi", "10");
    let tainted = tainted.taint("gpu", "true", TaintEffect::NoSchedule);
    scheduler.apply(ClusterChange::Applied(tainted.object()), at(290));
    scheduler.tick(at(300));
    scheduler.schedule_one(at(300));
    scheduler.take_outputs(at(300));
    check(&scheduler, 2);
    // Reasons have codes and numbers for programs.
    let (answer, _, _) = explain(&scheduler, "p");
    let reasons = answer.verdict.expect("a verdict").reasons;
    let short = reasons.iter().find(|r| r.code == "InsufficientResource");
    let short = short.expect("a resource is short");
    assert_eq!(
        (
            short.resource.as_deref(),
            short.wanted,
            short.free,
            short.nodes
        ),
        (Some("cpu"), Some(2_000), Some(1_000), 1)
    );
    assert!(reasons.iter().any(|r| r.code == "UntoleratedTaint"));
    let waiting = waiting_pods(&scheduler, at(480));
    let codes: Vec<&str> = waiting.iter().map(|row| row.code.as_str()).collect();
    assert_eq!(codes, ["InsufficientResource", "UntoleratedTaint"]);
    let again = pod("p").request("cpu", "2");
    let again = again.condition("PodScheduled", "False", "Unschedulable", "no");
    let again = again.with(|pod| pod.status.unscheduled_since = Some(at(0)));
    check(&start(again.object(), at(400)), 1);
}

/// A gate has its age and its usual age at removal, and is orphaned if it is much older and no removal is seen.
#[test]
fn gates_are_accounted_for() {
    let at = |seconds: i64| Time::from_secs(1_000 + seconds);
    let gated = |name: &str, created: Time| {
        let made = pod(name).gate("example.com/quota");
        made.with(move |pod| pod.metadata.creation_timestamp = Some(created))
    };
    let scheduler = Scheduler::new(
        SchedulerOptions::default(),
        &berth_plugins::in_tree(),
        at(0),
    );
    let mut scheduler = scheduler.unwrap_or_else(|e| panic!("{e}"));
    scheduler.apply(
        ClusterChange::Applied(gated("stays", at(0)).object()),
        at(0),
    );
    let account = |scheduler: &Scheduler, now: Time| {
        let accounts = gate_accounts(scheduler, now);
        assert_eq!(accounts.len(), 1, "{accounts:?}");
        accounts[0].clone()
    };
    assert_eq!(account(&scheduler, at(500)).usage, None);
    for number in 0..10 {
        let before = gated(&format!("p{number}"), at(number));
        let pod = before.clone().object();
        scheduler.apply(ClusterChange::Applied(pod), at(number));
        let open = before
            .ungated()
            .with(|pod| pod.metadata.resource_version = "2".into());
        scheduler.apply(ClusterChange::Applied(open.object()), at(number + 20));
    }
    let usual = account(&scheduler, at(100));
    let usage = usual.usage.expect("removals");
    assert_eq!(
        (usage.removals, usage.median_seconds, usage.p99_seconds),
        (10, Some(20.0), Some(20.0))
    );
    assert_eq!(
        (usual.pods, usual.oldest_seconds, usual.orphans),
        (1, 100.0, 0)
    );
    // Ten times the usual age is 200 s; the last removal was seen at 29 s.
    assert_eq!(account(&scheduler, at(229)).orphans, 0);
    let late = at(230);
    assert_eq!(account(&scheduler, late).orphans, 1);
    let facts = PodFacts::take(&scheduler, "default", "stays").expect("the pod");
    let answer = explain_pod(&mut Snapshot::take(&scheduler, late), &facts);
    assert!(answer.gates[0].is_orphaned, "{answer:?}");
    let text = berth_explain::text::pod(&answer);
    for line in [
        "removed from 10 other pods, last at",
        "usual age 20s (median), 20s (p99)",
        "no component seems to remove it any more",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
