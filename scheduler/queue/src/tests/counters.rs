//! The metrics of the queue (Q-12, Q-24, Q-32, Q-40, Q-57, Q-60, Q-66; edge cases 141 to 146). `pending_pods` needs no
//! test, because it is the length of the heaps.

use super::setup;
use crate::POD_POPPED;
use berth_framework::features::Behaviour;
use berth_telemetry::metrics::Metric;

/// Q-1, case 141: `pending_pods` after every kind of move; pods in backoff after a rejection and after an error are
/// counted together.
#[test]
fn pending_pods_follow_every_move() {
    let mut bench = setup().build();
    for (script, active, backoff, unschedulable, gated) in [
        (
            "add a priority=9\nadd b priority=8\nadd c priority=7\nadd g gates=x",
            3,
            0,
            0,
            1,
        ),
        ("pop\npop\npop", 0, 0, 0, 1),
        ("fail a A\nerror b\nfail c B", 0, 1, 2, 1),
        ("event Node/Add helps=all", 0, 3, 0, 1),
        ("at 2000\nflush", 3, 0, 0, 1),
        ("update g", 4, 0, 0, 0),
        ("delete a\ndelete g", 2, 0, 0, 0),
        ("update b priority=1", 2, 0, 0, 0),
    ] {
        bench.run(script);
        let counts = bench.queue.places().counts();
        assert_eq!(
            (
                counts.active,
                counts.backoff,
                counts.unschedulable,
                counts.gated
            ),
            (active, backoff, unschedulable, gated),
            "{script}"
        );
    }
}

/// case 142: incoming pods are counted under each event, also for moves that no object causes.
#[test]
fn incoming_pods_are_counted_by_queue_and_event() {
    for (script, counted) in [
        ("add a", "active/UnschedulablePodAdd=1"),
        ("update a", "active/UnschedulablePodUpdate=1"),
        ("add a gates=x", "unschedulable/UnschedulablePodAdd=1"),
        (
            "add a\npop\nfail a A",
            "unschedulable/ScheduleAttemptFailure=1",
        ),
        ("add a\npop\nerror a", "backoff/ScheduleAttemptFailure=1"),
        (
            "add a\npop\nerror a\nat 2000\nflush",
            "active/BackoffComplete=1",
        ),
        ("add a\npop\nerror a\nactivate a", "active/ForceActivate=1"),
        (
            "add a\npop\nfail a A\nevent Node/Add helps=A",
            "backoff/NodeAdd=1",
        ),
        (
            "add a\npop\nfail a A\nat 2000\nevent Node/UpdateNodeLabel helps=A",
            "active/NodeUpdateNodeLabel=1",
        ),
        (
            "add a\npop\nfail a B\nat 2000\nevent AssignedPod/Delete helps=B",
            "active/AssignedPodDelete=1",
        ),
        (
            "add a gates=x\nupdate a",
            "active/UnschedulablePodUpdatePodSchedulingGatesEliminated=1",
        ),
        (
            "add a\npop\nfail a Mute\nat 301000\nflush-leftover",
            "active/UnschedulableTimeout=1",
        ),
        (
            "add a\npop\nevent Node/Add helps=A\nfail a A\npop",
            "active/PopFromBackoffQ=1",
        ),
        (
            "add a\npop\nevent Pod/Add helps=P\nfail a pending=P",
            "active/ScheduleAttemptFailure=1",
        ),
        (
            "add a\npop\nupdate a G1=shut\nerror a",
            "unschedulable/ScheduleAttemptFailure=1",
        ),
        (
            "add a\npop\nfail a A\nupdate a G1=shut\nevent Node/Add helps=A",
            "unschedulable/ScheduleAttemptFailure=1",
        ),
        (
            "add a gates=x\nupdate a gates=x G1=shut",
            "unschedulable/UnschedulablePodAdd=1",
        ),
    ] {
        let bench = setup().run(script);
        assert!(
            bench.incoming().split(' ').any(|count| count == counted),
            "{script}: {counted} in {}",
            bench.incoming()
        );
    }
}

/// the events of pods without a node by release.
#[test]
fn events_of_pods_without_a_node_name_the_target_since_1_37() {
    for (script, until_1_36, since_1_37) in [
        (
            "add a",
            "active/UnschedulablePodAdd=1",
            "active/UnscheduledPodAdd=1",
        ),
        (
            "update a",
            "active/UnschedulablePodUpdate=1",
            "active/UnscheduledPodUpdate=1",
        ),
        (
            "add a gates=x\nupdate a",
            "active/UnschedulablePodUpdatePodSchedulingGatesEliminated=1",
            "active/TargetPodUpdatePodSchedulingGatesEliminated=1",
        ),
    ] {
        for (on, counted) in [(false, until_1_36), (true, since_1_37)] {
            let setup = setup().behaviour(Behaviour::PodEventsNameTheTarget, on);
            let bench = setup.run(script);
            assert!(
                bench.incoming().split(' ').any(|count| count == counted),
                "{script}: {counted} in {}",
                bench.incoming()
            );
        }
    }
}

/// Q-32, case 75: a pod that keeps its place is not counted as incoming, gated or not.
#[test]
fn a_pod_that_stays_is_not_counted_as_incoming() {
    for script in [
        "add a\npop\nfail a A\nevent Node/Add helps=none",
        "add a\npop\nfail a C\nupdate a v=1",
    ] {
        let bench = setup().run(script);
        assert_eq!(
            bench.incoming(),
            "active/UnschedulablePodAdd=1 unschedulable/ScheduleAttemptFailure=1",
            "{script}"
        );
    }
    let bench = setup().run("add g G1=shut\nevent Node/UpdateNodeAnnotation helps=G1");
    assert_eq!(bench.incoming(), "unschedulable/UnschedulablePodAdd=1");
}

/// cases 113 to 115 and 146: a pod counts once for each of its rejectors while it is queued.
#[test]
fn rejections_are_counted_while_the_pod_waits() {
    for (script, gauge) in [
        ("add a\npop\nfail a A,B", "A=1 B=1"),
        ("add a\npop\nfail a A pending=A,P", "A=1 P=1"),
        (
            "add a\npop\nfail a A\nat 2000\nevent Node/Add helps=A",
            "A=1",
        ),
        (
            "add a\npop\nfail a A\nat 2000\nevent Node/Add helps=A\npop",
            "",
        ),
        ("add a\npop\nfail a A\ndelete a", ""),
        ("add a\npop\nevent Node/Add helps=A\nfail a A\ndelete a", ""),
        (
            "add a\npop\nfail a A\nat 2000\nevent Node/Add helps=A\ndelete a",
            "",
        ),
        ("add g gates=x", "SchedulingGates=1"),
        ("add g gates=x\ndelete g", ""),
        ("add g gates=x\nupdate g", "SchedulingGates=1"),
        ("add g gates=x\nupdate g\npop", ""),
        ("add g G1=shut\nactivate g\nactivate g", "G1=1"),
        ("add g G1=shut\nupdate g G2=shut\nactivate g", "G1=1 G2=1"),
    ] {
        assert_eq!(setup().run(script).unschedulable_gauge(), gauge, "{script}");
    }
}

/// case 68: the log's length by event, and the pods in flight.
#[test]
fn logged_events_are_counted_until_they_are_dropped() {
    let mut bench = setup().run(
        "
        add a priority=9
        add b
        pop -> a
        event Node/Add
        pop -> b
        event Node/Add
        activate a
        ",
    );
    let counted = |bench: &super::Bench| {
        let number = |label| {
            let metrics = bench.queue.metrics();
            metrics.number(Metric::InflightEvents, &[label])
        };
        [POD_POPPED, "NodeAdd", "ForceActivate"].map(number)
    };
    assert_eq!(counted(&bench), [2.0, 2.0, 1.0]);
    bench.run("done a");
    assert_eq!(counted(&bench), [1.0, 1.0, 1.0]);
    bench.run("done b");
    assert_eq!(counted(&bench), [0.0, 0.0, 0.0]);
}

/// case 76: hints are counted by plugin, event label and result.
#[test]
fn hints_are_counted_by_plugin_event_and_answer() {
    let mut bench = setup().run("add a\npop\nfail a A,B");
    bench.run(
        "
        event Node/Add helps=none
        event AssignedPod/Delete helps=error
        activate a
        pop -> a
        event Node/UpdateNodeLabel helps=A
        fail a A
        ",
    );
    let counts = super::numbers(&bench.queue, Metric::QueueingHintExecutionDuration);
    let counts: Vec<_> = counts
        .iter()
        .map(|(labels, count)| (labels.join(" "), *count))
        .collect();
    assert_eq!(
        counts,
        [
            ("A NodeAdd QueueSkip".to_owned(), 1),
            ("A NodeUpdateNodeLabel Queue".to_owned(), 1),
            ("B AssignedPodDelete Error".to_owned(), 1),
            ("B NodeAdd QueueSkip".to_owned(), 1),
        ]
    );
}

/// Q-6, case 93: the popped pod carries the flag, and the flag is cleared when the pod fails again.
#[test]
fn a_flushed_pod_states_so_until_it_fails_again() {
    let mut bench = setup().run(
        "
        add a
        pop -> a
        fail a Mute
        at 300001
        flush-leftover          => active: a
        pop -> a
        ",
    );
    assert!(bench.popped["a"].was_flushed_from_unschedulable);
    let kept = bench.popped["a"].clone();
    assert!(kept.was_flushed_from_unschedulable, "copies keep the flag");
    bench.run("fail a Mute");
    assert!(!bench.info("a").was_flushed_from_unschedulable);
}
