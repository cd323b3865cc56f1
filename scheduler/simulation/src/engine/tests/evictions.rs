//! Deleted pods, drains and disruption budgets. Pods have a grace period of 30 s unless stated.

use super::*;
use crate::trace::{BudgetBound, DisruptionBudget, GRACE_PERIOD_ANNOTATION, PodShare};
use berth_api::{LabelSelector, OwnerReference, PodDisruptionBudget};

/// A pod of an application that its controller replaces, and that runs for 600 s from the start on.
fn app(name: &str, of: &str, cpu: &str) -> TracePod {
    let mut pod = pod_of(cpu, 0);
    pod.metadata.labels = Labels::from_pairs([("app", of)]);
    TracePod {
        pod: pod.into(),
        recreated: true,
        ..super::pod(name, cpu, 0, 600)
    }
}

fn with(mut of: TracePod, change: impl FnOnce(&mut Pod)) -> TracePod {
    let mut pod = Pod::clone(&of.pod);
    change(&mut pod);
    of.pod = pod.into();
    of
}

fn with_grace(of: TracePod, seconds: &str) -> TracePod {
    with(of, |pod| {
        let annotations = pod
            .metadata
            .annotations
            .with(GRACE_PERIOD_ANNOTATION, seconds);
        pod.metadata.annotations = annotations;
    })
}

fn budget(of: &str, bound: BudgetBound) -> DisruptionBudget {
    let mut object = PodDisruptionBudget::default();
    object.metadata.namespace = "default".into();
    object.metadata.name = of.into();
    object.spec.selector = Some(LabelSelector {
        match_labels: Labels::from_pairs([("app", of)]),
        ..LabelSelector::default()
    });
    DisruptionBudget {
        object: object.into(),
        bound,
    }
}

/// Three pods of `web` on a node that is drained, or fails, after 60 s; a second node joins after 30 s.
fn three_on_one_node(drain: bool) -> Trace {
    let pods = ["w0", "w1", "w2"].map(|name| app(name, "web", "1"));
    let mut of = trace(&["4", "4"], pods.into());
    of.nodes[1].joins = Duration::from_secs(30);
    of.nodes[0].outages = vec![Outage {
        at: Duration::from_secs(60),
        length: None,
        drain,
    }];
    of
}

#[test]
fn a_preempted_pod_keeps_its_room_for_its_grace_period() {
    let high = TracePod {
        pod: pod_of("2", 100).into(),
        ..pod("high", "2", 100, 60)
    };
    let low = || pod("low", "2", 0, 600);
    // The pod is deleted 20 ms after the attempt of the other one at 100 s.
    for (situation, low, bound) in [
        ("the default", low(), 130.04),
        ("5 s", with_grace(low(), "5"), 105.04),
        ("none", with_grace(low(), "0"), 100.04),
        ("its work is done before", pod("low", "2", 0, 110), 111.04),
    ] {
        let run = play(&trace(&["2"], vec![low, high.clone()]));
        let high = row(&run, "high").bound.unwrap_or_default();
        assert!((high - bound).abs() < 1e-6, "{situation}: {high}");
        assert_eq!(
            (run.summary.preempted, run.summary.lost),
            (1, 1),
            "{situation}"
        );
    }
}

#[test]
fn the_replacement_of_a_stateful_set_waits_for_the_end_of_the_pod() {
    let owned = |kind: &str| {
        with(app("a", "a", "1"), |pod| {
            let owner = OwnerReference {
                kind: kind.into(),
                name: "a".into(),
                controller: Some(true),
                ..OwnerReference::default()
            };
            pod.metadata.owner_references = vec![owner].into();
        })
    };
    // Drained at 60 s, replaced a second later, bound after 20 ms, started after another second.
    for (kind, ended) in [("ReplicaSet", 662.02), ("StatefulSet", 692.02)] {
        let mut of = trace(&["1", "1"], vec![owned(kind)]);
        for node in &mut of.nodes {
            node.outages = vec![Outage {
                at: Duration::from_secs(60),
                length: Some(Duration::from_secs(1)),
                drain: true,
            }];
        }
        let run = play(&of);
        let row = row(&run, "a");
        assert!(
            row.ended.is_some_and(|at| (at - ended).abs() < 1e-6),
            "{kind}: {row:?}"
        );
    }
}

#[test]
fn a_terminating_pod_counts_in_its_quota() {
    let mut of = trace(&["1", "1"], vec![app("a", "a", "1")]);
    of.nodes[1].joins = Duration::from_secs(30);
    of.nodes[0].outages = vec![Outage {
        at: Duration::from_secs(60),
        length: None,
        drain: true,
    }];
    of.quotas = vec![Quota {
        namespace: "default".into(),
        hard: amounts(&[("pods", "1")]),
    }];
    assert_times(&play(&of), "a", 0.02, 691.02);
}

#[test]
fn a_drain_evicts_pods_as_their_budgets_allow_and_a_failure_ignores_them() {
    let min = |pods| BudgetBound::MinAvailable(PodShare::Pods(pods));
    let max = |pods| BudgetBound::MaxUnavailable(PodShare::Pods(pods));
    // The run times that are lost are those from 1.02 s to the eviction. With a budget for one pod at a time, a
    // replacement starts 2.02 s after each eviction, and the drain tries again 5 s later.
    let at_once = 3.0 * 58.98;
    let one_by_one = 58.98 + 66.0 + 73.02;
    for (situation, drain, bound, evictions, lost_work) in [
        ("no budget", true, None, 3, at_once),
        ("two must run", true, Some(min(2)), 3, one_by_one),
        ("one may be absent", true, Some(max(1)), 3, one_by_one),
        (
            "a third may be absent",
            true,
            Some(BudgetBound::MaxUnavailable(PodShare::Percent(33))),
            3,
            one_by_one,
        ),
        ("two at a time", true, Some(min(1)), 3, 2.0 * 58.98 + 66.0),
        ("none may be absent", true, Some(max(0)), 0, 0.0),
        ("a failure", false, Some(max(0)), 3, at_once),
    ] {
        let mut of = three_on_one_node(drain);
        of.budgets.extend(bound.map(|bound| budget("web", bound)));
        let run = play(&of);
        let summary = &run.summary;
        assert_eq!(
            (summary.disrupted, summary.finished),
            (evictions, 3),
            "{situation}"
        );
        let lost = summary.lost_work_seconds;
        assert!((lost - lost_work).abs() < 1e-6, "{situation}: {lost}");
    }
}

#[test]
fn a_drain_that_budgets_block_goes_on_when_pods_end() {
    let mut of = three_on_one_node(true);
    of.pods[0] = TracePod {
        duration: Some(Distribution::Constant(Duration::from_secs(100))),
        ..of.pods[0].clone()
    };
    // Three pods run until 101.02 s; then, one of two may be absent.
    of.budgets = vec![budget(
        "web",
        BudgetBound::MinAvailable(PodShare::Percent(50)),
    )];
    of.pods.truncate(2);
    of.nodes[1].joins = Duration::from_secs(80);
    let run = play(&of);
    assert_eq!((run.summary.disrupted, run.summary.finished), (2, 2));
}

#[test]
fn preemption_prefers_pods_whose_budget_allows_it() {
    let victim = |name: &str, priority: i32| {
        let mut of = with(app(name, name, "2"), |pod| {
            pod.spec.priority = Some(priority)
        });
        of.recreated = false;
        of
    };
    let high = TracePod {
        pod: pod_of("2", 100).into(),
        ..pod("high", "2", 100, 60)
    };
    let mut of = trace(
        &["2", "2"],
        vec![victim("kept", 0), victim("free", 1), high],
    );
    for (budgets, evicted) in [
        (vec![], "kept"),
        (
            vec![budget("kept", BudgetBound::MinAvailable(PodShare::Pods(1)))],
            "free",
        ),
    ] {
        of.budgets = budgets;
        let run = play(&of);
        let victims: Vec<&str> = run
            .pods
            .iter()
            .filter(|pod| pod.evictions > 0)
            .map(|pod| &*pod.name)
            .collect();
        assert_eq!(victims, [evicted]);
    }
}
