//! Nominated nodes, and nominated pods that count as if they were on their node.

use super::*;
use berth_framework::plugin::DryRun;

/// C-16, edge case 204.
#[test]
fn the_nominated_node_is_tried_first() {
    let only = |name: &'static str| {
        fake("A").filter(move |_, _, node| {
            if node.name() == name {
                Status::success()
            } else {
                Status::unschedulable("no")
            }
        })
    };
    let prefer_n2 = || fake("S").score(|_, _, node| Ok(i64::from(node.name() == "n2")));
    for (situation, filter, nominated, placed, evaluated) in [
        (
            "feasible",
            fake("A").filter(|_, _, _| Status::success()),
            "n1",
            "n2",
            1,
        ),
        ("infeasible", only("n0"), "n1", "n0", 3),
        ("gone", only("n0"), "n9", "n0", 3),
    ] {
        let mut world = World::new(3, [filter, prefer_n2()]);
        world.pod = pod("p").nominated(nominated).info();
        let Found::Placed(placement) = world.find(None) else {
            panic!("{situation}")
        };
        let placed = if situation == "feasible" {
            "n1"
        } else {
            placed
        };
        assert_eq!(
            (placement.name.as_str(), placement.evaluated),
            (placed, evaluated),
            "{situation}"
        );
    }
}

/// Filters by the number of pods that AddPod has added, and counts its calls.
fn one_pod_a_node(calls: &Arc<AtomicUsize>) -> FakePlugin {
    let seen = calls.clone();
    fake("A")
        .pre_filter(|_, state, _| {
            state.write(0_i32);
            PreFilterResult::AllNodes
        })
        .add_pod(|state, _, node| {
            *state.read_mut::<i32>().unwrap_or(&mut 0) += 1;
            if node.pods().is_empty() {
                Status::error("notified before the table")
            } else {
                Status::success()
            }
        })
        .remove_pod(|state, _, node| {
            *state.read_mut::<i32>().unwrap_or(&mut 0) -= 1;
            if node.pods().is_empty() {
                Status::success()
            } else {
                Status::error("notified before the table")
            }
        })
        .filter(move |state, _, node| {
            seen.fetch_add(1, Ordering::Relaxed);
            if state.read::<i32>() == Some(&0) && node.pods().is_empty() {
                Status::success()
            } else {
                Status::unschedulable("taken")
            }
        })
}

/// C-18, edge case 205.
#[test]
fn nominated_pods_of_no_lower_priority_count() {
    for (situation, nominee, outcome, filter_calls) in [
        ("nobody", None, "n0", 1),
        (
            "higher",
            Some(pod("other").priority(20)),
            "0/1 nodes are available: 1 taken.",
            1,
        ),
        (
            "equal",
            Some(pod("other").priority(10)),
            "0/1 nodes are available: 1 taken.",
            1,
        ),
        ("lower", Some(pod("other").priority(9)), "n0", 1),
        ("itself", Some(pod("p").priority(10)), "n0", 1),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let mut world = World::new(1, [one_pod_a_node(&calls)]);
        world.pod = pod("p").priority(10).info();
        world
            .nominated
            .0
            .extend(nominee.map(|p| ("n0".into(), p.info())));
        assert_eq!(world.outcome(), outcome, "{situation}");
        assert_eq!(calls.load(Ordering::Relaxed), filter_calls, "{situation}");
        assert_eq!(
            world.evaluation.state.read::<i32>(),
            Some(&0),
            "{situation}: reverted"
        );
        assert!(
            world.cluster.nodes.iter().all(|n| n.pods().is_empty()),
            "{situation}: reverted"
        );
    }
}

/// C-18, case 205: both passes must succeed: a filter that needs the nominated pod fails the second.
#[test]
fn the_second_pass_is_without_the_nominated_pods() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let needs_company = fake("A").filter(move |_, _, node| {
        seen.fetch_add(1, Ordering::Relaxed);
        if node.pods().is_empty() {
            Status::unschedulable("alone")
        } else {
            Status::success()
        }
    });
    let mut world = World::new(1, [needs_company]);
    world
        .nominated
        .0
        .push(("n0".into(), pod("other").priority(1).info()));
    assert_eq!(world.outcome(), "0/1 nodes are available: 1 alone.");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// C-18: a plugin that cannot cope with a nominated pod fails the cycle.
#[test]
fn a_nominated_pod_that_cannot_be_added_is_an_error() {
    let plugin = fake("A")
        .pre_filter(|_, _, _| PreFilterResult::AllNodes)
        .add_pod(|_, _, _| Status::error("no such pod"))
        .filter(|_, _, _| Status::success());
    let mut world = World::new(1, [plugin]);
    let nominee = pod("other").priority(1).info();
    world.nominated.0.push(("n0".into(), nominee));
    let text = "running AddPod on PreFilter plugin \"A\": no such pod";
    assert_eq!(world.outcome(), text);
    assert!(world.cluster.nodes.iter().all(|n| n.pods().is_empty()));
}

/// F-21: no state is cloned: the changes of a dry run are undone step by step.
#[test]
fn dry_runs_nest_and_leave_no_trace() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut world = World::new(1, [one_pod_a_node(&calls)]);
    let resident = pod("resident").on("n0").info();
    world.cluster.nodes.add_pod(&"n0".into(), resident.clone());
    let slot = Slot::from_index(0);
    let mut evaluator = world.evaluator();
    evaluator.evaluation.state.write(1_i32);
    assert!(!evaluator.filter(slot).is_success());
    evaluator.begin();
    assert!(evaluator.remove_pod(slot, &resident).is_success());
    assert!(evaluator.filter(slot).is_success());
    evaluator.begin();
    assert!(evaluator.add_pod(slot, &resident).is_success());
    assert!(!evaluator.filter(slot).is_success());
    evaluator.rollback();
    assert!(evaluator.filter(slot).is_success());
    assert!(
        evaluator
            .remove_pod(slot, &resident)
            .message()
            .contains("no corresponding pod resident")
    );
    evaluator.rollback();
    assert!(!world.cluster.nodes.get(slot).unwrap().pods().is_empty());
    assert_eq!(world.evaluation.state.read::<i32>(), Some(&1));
}
