//! Pods that PreEnqueue blocks (Q-22 to Q-32; edge cases 110 to 124).

use super::script::{pre_enqueue, profile};
use super::setup;
use berth_api::{Pod, Str, Time};
use berth_framework::features::Behaviour;
use berth_framework::testing::fake;
use berth_framework::{Feature, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn gates(bench: &super::Bench, name: &str) -> (Option<String>, String) {
    let info = bench.info(name);
    let plugins: Vec<&str> = info.rejectors().map(Str::as_str).collect();
    (
        info.gating_plugin().map(ToString::to_string),
        plugins.join(" "),
    )
}

/// Q-5, Q-25, Q-26, Q-29, Q-34, cases 94, 110, 111, 115 and 123: only the end of its last gate admits a pod, and the
/// time behind its gates does not count as scheduling.
#[test]
fn a_gated_pod_waits_until_its_last_gate_is_gone() {
    let mut bench = setup().run("add a gates=x,y => gated: a");
    let counts = bench.queue.places().counts();
    assert_eq!((counts.gated, counts.unschedulable), (1, 0));
    bench.run(
        "
        pop -> nothing
        update a gates=y        => gated: a
        event Node/Add helps=all
        event AssignedPod/Delete helps=all
        +400000
        flush-leftover          => gated: a
        update a                => active: a
        pop -> a
        ",
    );
    let info = &bench.popped["a"];
    assert_eq!(
        format!("{:?}", info.unschedulable_plugins),
        r#"{"SchedulingGates"}"#
    );
    assert!(!info.is_gated());
    assert_eq!(
        info.initial_attempt_timestamp,
        Some(Time::from_millis(400_000))
    );
    assert_eq!(info.timestamp, Time::EPOCH);
    assert_eq!(
        bench.hints(),
        "SchedulingGates:Queue=1",
        "no other hint was ever asked"
    );
}

/// Q-23, Q-24, Q-25, case 112: the current gate is evaluated first, then the others in their order. Each rejecting
/// plugin stays a rejector.
#[test]
fn the_gate_changes_hands() {
    let mut bench = setup().run("add a gates=x G1=shut G2=shut");
    assert_eq!(
        gates(&bench, "a"),
        (Some("SchedulingGates".into()), "SchedulingGates".into())
    );
    bench.run("update a G1=shut G2=shut => gated: a");
    assert_eq!(
        gates(&bench, "a"),
        (Some("G1".into()), "G1 SchedulingGates".into())
    );
    assert_eq!(bench.unschedulable_gauge(), "G1=1 SchedulingGates=1");
    bench.run("update a G2=shut helps=G1 => gated: a");
    assert_eq!(
        gates(&bench, "a"),
        (Some("G2".into()), "G1 G2 SchedulingGates".into())
    );
    // The event is registered by G2, and G2 is evaluated first although G1 would reject again.
    bench.run("event Node/UpdateNodeCondition helps=none => gated: a");
    bench.run("update a G1=shut helps=none");
    bench.run("event Node/UpdateNodeCondition helps=G2 => gated: a");
    assert_eq!(
        gates(&bench, "a"),
        (Some("G1".into()), "G1 G2 SchedulingGates".into())
    );
}

/// Q-23: the order of the runs, counted.
#[test]
fn the_current_gate_is_asked_first_and_the_first_no_ends_the_run() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let plugin = |name: &'static str, digit: usize| {
        fake(name).pre_enqueue(move |pod: &Pod| {
            ASKED.store(ASKED.load(Ordering::SeqCst) * 10 + digit, Ordering::SeqCst);
            if pod.labels().contains_key(name) {
                Status::unschedulable("no")
            } else {
                Status::success()
            }
        })
    };
    let mut hooks = profile("default-scheduler", &[]);
    hooks.pre_enqueue = pre_enqueue([plugin("One", 1), plugin("Two", 2), plugin("Three", 3)]);
    let mut bench = setup().profiles(vec![hooks]).build();
    for (script, asked) in [
        ("add a Two=no", 12),
        ("activate a", 2),
        ("update a\nactivate a", 213),
        ("add b", 123),
    ] {
        ASKED.store(0, Ordering::SeqCst);
        bench.run(script);
        assert_eq!(ASKED.load(Ordering::SeqCst), asked, "{script}");
    }
}

/// Q-30, Q-69: the flush evaluates a pod again that is gated for five minutes, and again five minutes later. If a gate
/// opened without an event, the pod is admitted and does not count as flushed from unschedulable.
#[test]
fn the_flush_asks_again_about_gated_pods() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    const OPENS_AT: usize = 3;
    let door = fake("Door").pre_enqueue(|_: &Pod| {
        if ASKED.fetch_add(1, Ordering::SeqCst) + 1 >= OPENS_AT {
            Status::success()
        } else {
            Status::unschedulable("closed")
        }
    });
    let mut hooks = profile("default-scheduler", &[]);
    hooks.pre_enqueue = pre_enqueue([door]);
    let mut bench = setup().profiles(vec![hooks]).build();
    for (script, asked) in [
        ("add a => gated: a", 1),
        ("at 300000\nflush-leftover => gated: a", 1),
        ("at 300001\nflush-leftover => gated: a", 2),
        ("at 330001\nflush-leftover => gated: a", 2),
        ("at 600001\nflush-leftover => gated: a", 2),
        ("at 600002\nflush-leftover => active: a", 3),
        ("pop -> a", 3),
    ] {
        bench.run(script);
        assert_eq!(ASKED.load(Ordering::SeqCst), asked, "{script}");
    }
    assert!(!bench.popped["a"].was_flushed_from_unschedulable);
}

/// Q-24, case 116: every result except Success blocks the pod, and an error is logged.
#[test]
fn any_answer_but_success_gates() {
    for (answer, gated, line) in [
        ("open", false, None),
        ("shut", true, None),
        ("pending", true, None),
        ("other", true, None),
        (
            "broken",
            true,
            Some(
                "Unexpected error running PreEnqueue plugin pod=default/a plugin=G1 err=G1 is broken",
            ),
        ),
    ] {
        let mut bench = setup().run(&format!("add a G1={answer}"));
        assert_eq!(bench.places() == "gated: a", gated, "{answer}");
        let lines = bench.logged();
        assert_eq!(lines.first().map(String::as_str), line, "{answer}");
    }
}

/// Q-30, cases 84 and 85: a pod that failed before it was gated is not moved by the events of the plugins that rejected
/// it then. An event of its gate runs PreEnqueue again.
#[test]
fn only_events_of_the_gating_plugin_reach_a_gated_pod() {
    let mut bench = setup().run(
        "
        add a
        pop -> a
        update a G1=shut
        fail a A                => unschedulable: a
        +3000
        event Node/Add helps=A  => gated: a
        ",
    );
    assert_eq!(bench.hints(), "A:Queue=1");
    bench.run("event Node/Add helps=A => gated: a");
    assert_eq!(bench.hints(), "A:Queue=1", "not asked");
    bench.run("event Node/UpdateNodeAnnotation helps=none => gated: a");
    assert_eq!(bench.hints(), "A:Queue=1 G1:QueueSkip=1");
    bench.run("event Node/UpdateNodeAnnotation helps=G1 => gated: a");
    assert_eq!(bench.hints(), "A:Queue=1 G1:Queue=1 G1:QueueSkip=1");
    bench.run("update a helps=G1 => active: a");
}

/// Q-30, Q-31: an event that the gating plugin registered in any profile is evaluated with the hints of all rejectors
/// of the pod.
#[test]
fn behind_its_gate_a_pod_is_asked_about_like_any_other() {
    let plugins = &[("A", "Node/Add"), ("G1", "Node/Add")];
    let mut bench = setup()
        .plugins(plugins)
        .run("add a\npop\nupdate a G1=shut\nfail a A\n+3000\nevent Node/Add helps=A => gated: a");
    bench.run("update a\nevent Node/Add helps=A => active: a");
    assert_eq!(bench.hints(), "A:Queue=2");

    for (elsewhere, places) in [("Node/Add", "active: a"), ("Node/Delete", "gated: a")] {
        let other = profile("other", &[("G1", elsewhere)]);
        let mut bench = setup()
            .profiles(vec![
                profile("default-scheduler", &[("A", "Node/Add")]),
                other,
            ])
            .run("add a\npop\nupdate a G1=shut\nfail a A\nactivate a\n+3000 => gated: a");
        bench.run("update a\nevent Node/Add helps=A");
        assert_eq!(bench.places(), places, "G1 receives {elsewhere} there");
    }
}

/// Q-11, Q-22, cases 117 to 120: the moves for which PreEnqueue runs, with the gate on and off.
#[test]
fn pre_enqueue_runs_where_it_must() {
    for (case, script, on, off) in [
        ("added", "add a G1=shut", "gated: a", "gated: a"),
        (
            "updated when unknown",
            "update a G1=shut",
            "gated: a",
            "gated: a",
        ),
        (
            "entering backoff after an error",
            "add a\npop\nupdate a G1=shut\nerror a",
            "gated: a",
            "error: a",
        ),
        (
            "entering backoff after an event in flight",
            "add a\npop\nevent Node/Add helps=A\nupdate a G1=shut\nfail a A",
            "gated: a",
            "backoff: a",
        ),
        (
            "entering backoff through an event",
            "add a\npop\nfail a A\nupdate a G1=shut\nevent Node/Add helps=A",
            "gated: a",
            "backoff: a",
        ),
        (
            "active again through an event",
            "add a\npop\nfail a A\nupdate a G1=shut\n+3000\nevent Node/Add helps=A",
            "gated: a",
            "gated: a",
        ),
        (
            "its own update helps",
            "add a\npop\nfail a C\n+3000\nupdate a G1=shut helps=C",
            "gated: a",
            "gated: a",
        ),
        (
            "flushed after five minutes",
            "add a\npop\nfail a A\nupdate a G1=shut\n+300001\nflush-leftover",
            "gated: a",
            "gated: a",
        ),
        (
            "activated while waiting",
            "add a\npop\nfail a A\nupdate a G1=shut\nactivate a",
            "gated: a",
            "gated: a",
        ),
        (
            "activated in backoff",
            "add a\npop\nerror a\nupdate a G1=shut\nactivate a",
            "active: a",
            "gated: a",
        ),
        (
            "backoff over",
            "add a\npop\nerror a\nupdate a G1=shut\n+2001\nflush",
            "active: a",
            "gated: a",
        ),
        (
            "updated while active",
            "add a\nupdate a G1=shut",
            "active: a",
            "active: a",
        ),
        (
            "updated in backoff",
            "add a\npop\nerror a\nupdate a G1=shut",
            "error: a",
            "error: a",
        ),
        (
            "popped from backoff",
            "add a\npop\nevent Node/Add helps=A\nfail a A\nupdate a G1=shut\npop",
            "in flight: a",
            "backoff: a",
        ),
        (
            "popped while active",
            "add a\nupdate a G1=shut\npop",
            "in flight: a",
            "in flight: a",
        ),
        (
            "taken out of turn while waiting",
            "add a\npop\nfail a A\nupdate a G1=shut\ntake a",
            "gated: a",
            "gated: a",
        ),
        (
            "taken out of turn in backoff",
            "add a\npop\nerror a\nupdate a G1=shut\ntake a",
            "in flight: a",
            "gated: a",
        ),
        (
            "its own update helps, still backing off",
            "add a\npop\nfail a C\nupdate a G1=shut helps=C",
            "gated: a",
            "backoff: a",
        ),
        (
            "back without rejection and without backoff",
            "add a\npop\nevent Pod/Add helps=P\nupdate a G1=shut\nfail a pending=P",
            "gated: a",
            "gated: a",
        ),
    ] {
        for (gate, places) in [(true, on), (false, off)] {
            let setup = setup().feature(Feature::SchedulerPopFromBackoffQ, gate);
            assert_eq!(setup.run(script).places(), places, "{case}, gate {gate}");
        }
    }
}

/// Case 121: the gauges are correct, also with the gate off, through the active queue and through backoff.
#[test]
fn a_pod_can_be_gated_and_freed_again() {
    for gate in [true, false] {
        for (wait, places) in [(3000, "active: a"), (0, "backoff: a")] {
            let mut bench = setup()
                .feature(Feature::SchedulerPopFromBackoffQ, gate)
                .run("add a\npop -> a\nfail a C => unschedulable: a");
            let gauge = |bench: &super::Bench| {
                let counts = bench.queue.places().counts();
                (counts.unschedulable, counts.gated)
            };
            assert_eq!(gauge(&bench), (1, 0));
            bench.run("update a G1=shut\nactivate a => gated: a");
            assert_eq!(gauge(&bench), (0, 1), "gate {gate}");
            bench.run(&format!("+{wait}\nupdate a helps=G1+C"));
            assert_eq!(bench.places(), places, "gate {gate}");
            assert_eq!(gauge(&bench), (0, 0), "gate {gate}");
            assert_eq!(bench.unschedulable_gauge(), "C=1 G1=1", "gate {gate}");
        }
    }
}

/// Q-34, case 122: an update also nominates a gated pod. The status at its creation takes effect when the pod becomes
/// active.
#[test]
fn the_nomination_of_a_gated_pod_is_followed() {
    let mut bench = setup().build();
    for (step, nodes) in [
        ("add a gates=x nominated=n1", vec![]),
        ("update a gates=x nominated=n1 v=2", vec!["n1"]),
        ("update a gates=x nominated=n2", vec!["n2"]),
        ("update a gates=x", vec![]),
        ("update a gates=x nominated=n1", vec!["n1"]),
        ("update a nominated=n1 => active: a", vec!["n1"]),
        // Another plugin than SchedulingGates blocks the pod.
        ("add b G1=shut", vec!["n1"]),
        ("update b G1=shut nominated=n2", vec!["n1", "n2"]),
        ("delete b", vec!["n1"]),
        ("add c nominated=n2", vec!["n1", "n2"]),
    ] {
        bench.run(step);
        let nominated = bench.queue.nominator().nodes();
        let mut nominated: Vec<String> = nominated.map(ToString::to_string).collect();
        nominated.sort();
        assert_eq!(nominated, nodes, "{step}");
    }
}

/// Q-34: since 1.37, the nominated node in the status of a new gated pod takes effect immediately.
#[test]
fn a_gated_pod_is_nominated_from_its_creation_since_1_37() {
    for (on, expected) in [(false, 0), (true, 1)] {
        for script in [
            "add a gates=x nominated=n1",
            "update a gates=x nominated=n1",
        ] {
            let setup = setup().behaviour(Behaviour::GatedPodsAreNominated, on);
            let mut bench = setup.run(script);
            let nominated = bench.queue.nominator().pods_on("n1").len();
            assert_eq!(nominated, expected, "{script}, {on}");
            bench.run("delete a");
            assert_eq!(bench.queue.nominator().nodes().count(), 0, "{script}, {on}");
        }
    }
}

/// A preemptor that PreEnqueue blocks during its own preemption keeps its nomination.
#[test]
fn a_pod_that_was_active_stays_nominated_behind_its_gate() {
    let mut bench = setup().run("add a\npop -> a\nupdate a G1=shut");
    let a = bench.pods["a"].clone();
    let (queue, cx) = super::fields!(bench);
    queue.nominator_mut().add(
        cx.cluster,
        &a,
        &berth_framework::plugin::Nominating::Set("n1".into()),
    );
    bench.run("error a => gated: a");
    bench.run("update a G1=shut nominated=n1");
    bench.run("update a G1=shut nominated=n2");
    let nodes: Vec<String> = bench
        .queue
        .nominator()
        .nodes()
        .map(|n| n.to_string())
        .collect();
    assert_eq!(nodes, ["n2"]);
}

/// Q-30, Q-98: an event for another plugin examines none of many gated pods (see also `scale`).
#[test]
fn a_gated_pod_is_found_only_by_its_plugin() {
    let mut bench = setup().build();
    for n in 0..50 {
        bench.run(&format!("add g{n} gates=x\nadd h{n} G1=shut"));
    }
    assert_eq!(bench.event("Node/Add", "all").examined, 0);
    assert_eq!(
        bench.event("Node/UpdateNodeAnnotation", "none").examined,
        50
    );
    assert_eq!(
        Arc::strong_count(&bench.pods["g1"]),
        3,
        "queue, cluster and test"
    );
}
