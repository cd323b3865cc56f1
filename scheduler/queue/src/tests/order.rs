//! The order in which pods are popped (Q-1 to Q-12, Q-33, Q-34, Q-73, Q-90; edge cases 25 to 44).

use super::{profile, setup};
use crate::{POD_POPPED, PluginSet, QueueConfig, QueuedIn, QueuedPodInfo, SchedulingQueue};
use berth_api::Time;
use berth_framework::Feature;
use berth_framework::testing::fake;
use berth_telemetry::metrics::Metric;

/// Q-1, Q-8, Q-33, case 25: pods are ordered by priority (0 if unset), then by age; with and without keys.
#[test]
fn pods_come_by_priority_then_by_age() {
    let script = "
        add old priority=1
        +1
        add new priority=1
        +1
        add high priority=9
        +1
        add none                => active: high old new none
        +1
        add below priority=-1
        +1
        add zero priority=0     => active: high old new none zero below
        pop -> high
        pop -> old
        pop -> new
        pop -> none
        pop -> zero
        pop -> below
        pop -> nothing          => in flight: below high new none old zero
    ";
    setup().run(script);
    setup().unkeyed().run(script);
}

/// Q-8: equal pods are popped in the order of their arrival, regardless of the order of upstream's heap.
#[test]
fn equal_pods_come_in_order_of_arrival() {
    let script = "
        add c priority=1
        add a priority=1
        add b priority=1        => active: c a b
        delete c
        add c priority=1        => active: a b c
    ";
    setup().run(script);
    setup().unkeyed().run(script);
}

/// Case 26: the order is the plugin's.
#[test]
fn the_queue_sort_decides() {
    let mut hooks = profile("default-scheduler", &[]);
    let lowest_first = fake("LowestFirst").less(|a, b| a.pod.priority() < b.pod.priority());
    hooks.queue_sort = lowest_first.build().queue_sort.expect("a queue sort");
    setup().profiles(vec![hooks]).run(
        "
        add high priority=9
        add low priority=1
        add middle priority=5   => active: low middle high
        ",
    );
}

/// Q-9, Q-42, cases 27 to 29: a pop never blocks. An empty queue returns nothing, and a closed queue still returns its
/// active pods; in-flight tracking and flushes have ended.
#[test]
fn a_closed_queue_hands_out_what_is_left() {
    let mut bench = setup().run(
        "
        pop -> nothing
        add a
        pop -> a
        pop -> nothing
        add b
        add broken
        take broken
        error broken
        event Node/Add          => active: b; error: broken; in flight: a
        ",
    );
    assert!(bench.queue.is_poppable());
    bench.queue.close();
    assert_eq!(bench.queue.in_flight().len(), 0);
    bench.run("pop -> b\npop -> nothing\n+600000");
    assert!(!bench.queue.is_poppable());
    assert_eq!(bench.queue.next_wake(bench.now), None);
    let (queue, cx) = super::fields!(bench);
    assert!(!queue.run_due(&cx), "the flushes have ended");
    assert_eq!(bench.places(), "error: broken; in flight: b");
    bench.queue.close();
    let inflight = super::numbers(&bench.queue, Metric::InflightEvents);
    assert!(inflight.values().all(|count| *count == 0), "{inflight:?}");
    bench.run("done a\ndone b => error: broken");
}

/// Q-10, Q-12, cases 31 to 34 and 37: an idle scheduler pops a rejected pod before the end of its backoff, but never a
/// pod that failed with an error. Active pods are popped first, regardless of priority.
#[test]
fn an_idle_scheduler_takes_pods_from_backoff() {
    let in_backoff = "
        add high priority=9
        pop -> high
        event Node/Add helps=A
        fail high A             => backoff: high
    ";
    for (on, script) in [
        (
            true,
            "
            add low
            pop -> low          => backoff: high; in flight: low
            pop -> high
            pop -> nothing      => in flight: high low
            ",
        ),
        (
            false,
            "
            add low
            pop -> low          => backoff: high; in flight: low
            pop -> nothing      => backoff: high; in flight: low
            +2001
            flush               => active: high; in flight: low
            pop -> high
            ",
        ),
    ] {
        let setup = setup().feature(Feature::SchedulerPopFromBackoffQ, on);
        let mut bench = setup.run(in_backoff);
        assert_eq!(bench.queue.is_poppable(), on);
        bench.run(script);
        let early = bench.incoming().contains("active/PopFromBackoffQ=1");
        assert_eq!(early, on, "{}", bench.incoming());
    }
    let mut bench = setup().run(
        "
        add broken
        pop -> broken
        error broken            => error: broken
        pop -> nothing          => error: broken
        ",
    );
    assert!(!bench.queue.is_poppable());
    bench.run(
        "
        at 1999
        flush
        pop -> nothing
        at 2000
        flush
        pop -> broken
        ",
    );
}

/// Q-4, Q-12, Q-25, cases 72 and 145: the changes to a pod's history by each operation; nothing else changes it.
#[test]
fn a_pod_carries_its_history() {
    let mut bench = setup().build();
    for (script, history) in [
        (
            "+100\nadd a gates=x",
            "at 100, tried 0, rejected 0, errors 0, by SchedulingGates, gated by SchedulingGates",
        ),
        (
            "+100\nupdate a gates=x,y",
            "at 100, tried 0, rejected 0, errors 0, by SchedulingGates, gated by SchedulingGates",
        ),
        (
            "+100\nupdate a",
            "at 100, tried 0, rejected 0, errors 0, active from 300, by SchedulingGates",
        ),
        (
            "+100\npop -> a",
            "at 100, tried 1, rejected 0, errors 0, active from 300, by SchedulingGates",
        ),
        (
            "error a",
            "at 400, tried 1, rejected 0, errors 1, active from 300",
        ),
        (
            "at 2000\nflush\npop -> a",
            "at 400, tried 2, rejected 0, errors 1, active from 300",
        ),
        (
            "error a",
            "at 2000, tried 2, rejected 0, errors 2, active from 300",
        ),
        (
            "activate a\nupdate a v=1\npop -> a",
            "at 2000, tried 3, rejected 0, errors 2, active from 300",
        ),
        (
            "+10\nfail a A,C pending=P",
            "at 2010, tried 3, rejected 1, errors 0, active from 300, by A C, P pending",
        ),
        (
            "+10\nevent Node/Add helps=A\nupdate a v=2",
            "at 2010, tried 3, rejected 1, errors 0, active from 300, by A C, P pending",
        ),
        (
            "pop -> a",
            "at 2010, tried 4, rejected 1, errors 0, active from 300, by A C, P pending",
        ),
        (
            "fail a Mute",
            "at 2020, tried 4, rejected 2, errors 0, active from 300, by Mute",
        ),
        (
            "+300001\nflush-leftover",
            "at 2020, tried 4, rejected 2, errors 0, active from 300, by Mute, flushed",
        ),
        (
            "pop -> a",
            "at 2020, tried 5, rejected 2, errors 0, active from 300, by Mute, flushed",
        ),
        (
            "update a G1=shut\nerror a",
            "at 302021, tried 5, rejected 2, errors 1, active from 300, by G1, gated by G1",
        ),
    ] {
        bench.run(script);
        let queued = bench.queue.get("default", "a").map(|(_, info)| info);
        let info = queued.unwrap_or_else(|| &bench.popped["a"]);
        assert_eq!(notified(info), history, "{script}");
    }
}

fn notified(info: &QueuedPodInfo) -> String {
    let mut text = format!(
        "at {}, tried {}, rejected {}, errors {}",
        info.timestamp.as_millis(),
        info.attempts,
        info.unschedulable_count,
        info.in_a_row.errors
    );
    let names = |plugins: &PluginSet| {
        let names: Vec<&str> = plugins.iter().map(|plugin| plugin.as_str()).collect();
        names.join(" ")
    };
    if let Some(first) = info.initial_attempt_timestamp {
        text += &format!(", active from {}", first.as_millis());
    }
    if !info.unschedulable_plugins.is_empty() {
        text += &format!(", by {}", names(&info.unschedulable_plugins));
    }
    if !info.pending_plugins.is_empty() {
        text += &format!(", {} pending", names(&info.pending_plugins));
    }
    if let Some(gate) = info.gating_plugin() {
        text += &format!(", gated by {gate}");
    }
    if info.was_flushed_from_unschedulable {
        text += ", flushed";
    }
    text
}

/// Q-12, Q-4: the changes to a pod by popping.
#[test]
fn popping_counts_an_attempt_and_keeps_the_plugins() {
    let mut bench = setup().run(
        "
        +700
        add a
        +100
        pop -> a
        event Node/Add helps=A
        fail a A,B              => backoff: a
        +100
        pop -> a
        ",
    );
    let info = &bench.popped["a"];
    assert_eq!(info.attempts, 2);
    assert_eq!(info.unschedulable_count, 1);
    assert_eq!(info.timestamp, Time::from_millis(800), "when it came back");
    assert_eq!(info.initial_attempt_timestamp, Some(Time::from_millis(700)));
    assert_eq!(format!("{:?}", info.unschedulable_plugins), r#"{"A", "B"}"#);
    assert_eq!(
        bench.unschedulable_gauge(),
        "",
        "not counted while in flight"
    );
    bench.run(
        "
        error a
        update a x=y
        +3000
        flush
        pop -> a
        ",
    );
    assert_eq!(bench.popped["a"].attempts, 3);
}

/// Q-41, case 35: only one identity under two names leads to this state. The second pod leaves no records, and neither
/// does the first when it is done.
#[test]
fn a_pod_in_flight_is_not_popped_again() {
    let mut bench = setup().run(
        "
        add a uid=u priority=3
        add b uid=u priority=2
        add c priority=1
        pop -> a
        pop -> c                => in flight: a c
        ",
    );
    assert_eq!(
        bench.logged(),
        [
            "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler pod=default/b"
        ]
    );
    bench.run("event Node/Add\ndone c => in flight: a");
    assert_eq!(bench.queue.in_flight().events_len(), 1);
    bench.run("done a => nothing");
    assert_eq!(bench.queue.in_flight().events_len(), 0);
    let inflight = super::numbers(&bench.queue, Metric::InflightEvents);
    assert!(inflight.values().all(|count| *count == 0), "{inflight:?}");
    assert_eq!(bench.unschedulable_gauge(), "");
}

/// Cases 36, 38 and 39: an attempted pod is queued behind earlier pods, and its age counts from the attempt, regardless
/// of its place.
#[test]
fn a_failed_pod_queues_up_behind_untried_ones() {
    setup().run(
        "
        add a
        +1
        pop -> a
        +1
        add b
        +1
        fail a pending=P        => active: b; unschedulable: a
        +1
        add c
        event Pod/Add helps=P   => active: b a c
        pop -> b
        fail b A                => active: a c; unschedulable: b
        +3000
        add d
        event Node/Add helps=A  => active: a c b d
        ",
    );
    // A pod that fails repeatedly does not delay other pods of its priority, and keeps its age through backoff.
    setup().run(
        "
        add greedy
        pop -> greedy
        +1
        add b
        +1
        error greedy            => active: b; error: greedy
        +1
        add c
        +3000
        flush                   => active: b greedy c
        pop -> b
        pop -> greedy
        +1
        error greedy            => active: c; error: greedy; in flight: b
        +1
        add d
        +5000
        flush                   => active: c greedy d; in flight: b
        ",
    );
}

/// Q-1, cases 40 and 124: the plugins of a pod's own profile decide; a profile without PreEnqueue plugins gates no pod.
#[test]
fn each_profile_has_its_own_plugins() {
    let mut other = profile("other", &[("A", "Node/Delete")]);
    other.pre_enqueue.clear();
    setup()
        .profiles(vec![
            profile("default-scheduler", &[("A", "Node/Add")]),
            other,
        ])
        .run(
            "
            add gated gates=x
            +1
            add free gates=x scheduler=other    => active: free; gated: gated
            add mine
            pop -> free
            pop -> mine
            fail free A
            fail mine A                         => unschedulable: free mine; gated: gated
            +3000
            event Node/Add helps=all            => active: mine; unschedulable: free; gated: gated
            event Node/Delete helps=all         => active: free mine; gated: gated
            ",
        );
}

/// Q-90, cases 41 and 42.
#[test]
fn every_pod_can_be_looked_up() {
    let bench = setup().run(
        "
        add rejected priority=9
        add broken priority=8
        add waiting priority=7
        add flying priority=6
        add gated gates=x
        add ready
        pop -> rejected
        pop -> broken
        pop -> waiting
        pop -> flying
        event Node/Add helps=A
        fail rejected A
        error broken
        fail waiting C
        ",
    );
    for (name, place) in [
        ("ready", Some(QueuedIn::Active)),
        ("rejected", Some(QueuedIn::Backoff)),
        ("broken", Some(QueuedIn::ErrorBackoff)),
        ("waiting", Some(QueuedIn::Unschedulable)),
        ("gated", Some(QueuedIn::Gated)),
        ("flying", None),
        ("missing", None),
    ] {
        let got = bench.queue.get("default", name);
        assert_eq!(got.map(|(place, _)| place), place, "{name}");
    }
    let counts = bench.queue.places().counts();
    assert_eq!(
        counts.to_string(),
        "activeQ:1; backoffQ:2; unschedulablePods:2"
    );
    assert_eq!(
        (counts.unschedulable, counts.gated, counts.total()),
        (1, 1, 5)
    );
    assert_eq!(bench.queue.places().pods().count(), 5);
    assert!(bench.queue.in_flight().contains("uid-flying"));
    assert_eq!(bench.queue.in_flight().len(), 1);
}

/// Q-65, case 43: deletions in each place, of unknown pods, and of pods in flight.
#[test]
fn a_deleted_pod_is_gone_from_everywhere() {
    let mut bench = setup().run(
        "
        add rejected priority=9 nominated=n1
        add broken priority=8 nominated=n2
        add waiting priority=7 nominated=n3
        add gated gates=x nominated=n4
        add ready nominated=n5
        add flying priority=6 nominated=n6
        pop
        pop
        pop
        pop
        event Node/Add helps=A
        fail rejected A
        error broken
        fail waiting C          => active: ready; backoff: rejected; error: broken; unschedulable: waiting; gated: gated; in flight: flying
        ",
    );
    assert_eq!(
        bench.queue.nominator().nodes().count(),
        5,
        "all but the gated one"
    );
    bench.run(
        "
        delete rejected
        delete broken
        delete waiting
        delete gated            => active: ready; in flight: flying
        delete ready            => in flight: flying
        delete flying           => in flight: flying
        ",
    );
    assert_eq!(bench.queue.nominator().nodes().count(), 0);
    assert_eq!(
        bench.queue.in_flight().len(),
        1,
        "its cycle ends the flight"
    );
    bench.queue.done("uid-flying");
    assert_eq!(bench.places(), "nothing");
    let mut bench = setup().run("add a uid=1 nominated=n1");
    assert_eq!(
        bench.queue.nominator().node_of("1").map(|n| n.as_str()),
        Some("n1")
    );
    let a = bench.pods["a"].clone();
    bench.run("delete a => nothing");
    assert_eq!(bench.queue.nominator().nodes().count(), 0);
    bench.queue.delete(&a);
    bench.run("add a uid=2 => active: a");
    bench.queue.delete(&a);
    bench.run("pop -> a");
}

/// Q-73, case 44: a pod is taken from every place, in backoff or not; gated, no longer gated, and unknown pods. It is
/// popped like any other.
#[test]
fn a_pod_can_be_taken_out_of_turn() {
    let mut bench = setup().run(
        "
        add ready priority=5
        add other priority=9
        take ready -> ready     => active: other; in flight: ready
        event Node/Add helps=A
        fail ready A            => active: other; backoff: ready
        take ready -> ready     => active: other; in flight: ready
        fail ready C            => active: other; unschedulable: ready
        take ready -> ready
        error ready             => active: other; error: ready
        take ready -> ready
        take ready -> nothing   => active: other; in flight: ready
        add gated gates=x
        take gated -> nothing   => active: other; gated: gated; in flight: ready
        ",
    );
    let info = &bench.popped["ready"];
    assert_eq!(info.attempts, 4);
    let inflight = super::numbers(&bench.queue, Metric::InflightEvents);
    assert_eq!(inflight[&[POD_POPPED.to_owned()][..]], 1);
    assert_eq!(
        bench.unschedulable_gauge(),
        "SchedulingGates=1",
        "that of the gated pod"
    );
    let unknown = berth_framework::testing::pod("unknown").arc();
    let (queue, cx) = super::fields!(bench);
    assert!(queue.pop_specific(&cx, &unknown).is_none());
    // The gate opened without an event; taking the pod runs PreEnqueue again.
    let mut bench = setup().run("add gated G1=shut");
    let opened = berth_framework::testing::PodBuilder::of(&bench.pods["gated"])
        .label("G1", "open")
        .label("helps", "nobody")
        .arc();
    let old = bench.pods["gated"].clone();
    bench.know(opened.clone());
    let (queue, cx) = super::fields!(bench);
    queue.update(&cx, &old, &opened);
    bench.run(
        "
        add x                   => active: x; gated: gated
        take gated -> gated     => active: x; in flight: gated
        ",
    );
}

/// A queue without profiles still holds pods and pops them in the order of their timestamps.
#[test]
fn a_queue_without_profiles_is_first_come_first_served() {
    let mut queue = SchedulingQueue::new(QueueConfig::default(), Vec::new(), Time::EPOCH);
    let bench = setup().build();
    let mut cx = bench.context();
    for (name, at) in [("b", 2), ("a", 1)] {
        cx.now = Time::from_secs(at);
        queue.add(&cx, berth_framework::testing::pod(name).arc());
    }
    let popped: Vec<String> = std::iter::from_fn(|| queue.pop(Time::from_secs(3)))
        .map(|info| info.pod.name().to_string())
        .collect();
    assert_eq!(popped, ["a", "b"]);
}

/// Q-64: a pod that is added twice is queued once; a pod recreated under the same name replaces the old one.
#[test]
fn a_pod_added_again_is_there_once() {
    let mut bench = setup().run(
        "
        add a
        pop -> a
        fail a A                => unschedulable: a
        add a                   => unschedulable: a
        add a uid=other         => active: a
        pop -> a
        add a uid=other         => in flight: a
        ",
    );
    assert_eq!(
        bench.popped["a"].attempts, 1,
        "the recreated pod starts anew"
    );
    assert_eq!(bench.unschedulable_gauge(), "");
    assert!(bench.logged().is_empty());
}
