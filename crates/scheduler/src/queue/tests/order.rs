//! What is popped when (Q-1 to Q-12, Q-33, Q-34, Q-73, Q-90; edge cases 25 to 44).

use super::{profile, setup};
use crate::queue::{QueueConfig, QueuedIn, SchedulingQueue};
use berth_api::Time;
use berth_framework::Feature;
use berth_framework::testing::fake;

/// Q-1, Q-8, Q-33: add_orders_by_priority_then_time; with and without keys.
#[test]
fn pods_come_by_priority_then_by_age() {
    let script = "
        add old priority=1
        +1
        add new priority=1
        +1
        add high priority=9
        +1
        add low                 => active: high old new low
        pop -> high
        pop -> old
        pop -> new
        pop -> low
        pop -> nothing          => in flight: high low new old
    ";
    setup().run(script);
    setup().unkeyed().run(script);
}

/// Q-8: equal pods come in the order of their arrival, whatever upstream's heap would have done.
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

/// Edge case reverse_less_function: the order is the plugin's.
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

/// Q-9: pop_blocks_until_add, pop_after_close, close_with_pods_in_flight; Q-42. Nothing blocks here: an empty queue
/// says so, and a closed one still hands out what it has.
#[test]
fn a_closed_queue_hands_out_what_is_left() {
    let mut bench = setup().run(
        "
        pop -> nothing
        add a
        add b
        pop -> a
        event Node/Add
        ",
    );
    bench.queue.close();
    assert!(bench.queue.is_closed());
    bench.run("pop -> b\npop -> nothing");
    bench.queue.close();
    let inflight = bench.queue.metrics().inflight_events();
    assert!(inflight.values().all(|count| *count == 0), "{inflight:?}");
    bench.run("done a => nothing");
}

/// Q-10, Q-12: pop_from_backoff_when_active_empty, pop_from_backoff_gate_off, pop_never_takes_error_backoff,
/// pop_prefers_active_even_if_backoff_has_higher_priority, high_priority_pod_in_backoff_does_not_block_lower.
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
    let bench = setup().run(
        "
        add broken
        pop -> broken
        error broken            => error: broken
        pop -> nothing          => error: broken
        ",
    );
    assert!(!bench.queue.is_poppable());
}

/// Q-12, Q-4: what popping changes on the pod.
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
    // popped_pod_keeps_plugin_sets (72)
    assert_eq!(format!("{:?}", info.unschedulable_plugins), r#"{"A", "B"}"#);
    assert_eq!(
        bench.unschedulable_gauge(),
        "",
        "not counted while in flight"
    );
    assert_eq!(bench.queue.scheduling_cycle(), 2);
    // attempts_count with update between pops (145)
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

/// Q-11, Q-41: same_pod_popped_twice. The same identity under two names is the only way in here.
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
        bench.notices(),
        [
            "Discarding the popped pod: the same pod is tracked in multiple places in the scheduler: default/b"
        ]
    );
    assert_eq!(
        bench.queue.scheduling_cycle(),
        2,
        "the discarded pod is no cycle"
    );
}

/// Edge cases failed_pod_repeatedly_does_not_starve_newer_same_priority,
/// recently_tried_pod_goes_back_behind_untried (edge case 38),
/// pod_timestamp_ordering_survives_move_from_unschedulable_and_backoff.
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
}

/// Q-1, edge case multiple_profiles_have_own_preenqueue_and_hints (40), profile_without_preenqueue_plugins (124).
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

/// Q-90: get_pod_in_each_substructure_and_missing, pending_pods_summary_string.
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
    let counts = bench.queue.counts();
    assert_eq!(
        counts.to_string(),
        "activeQ:1; backoffQ:2; unschedulablePods:2"
    );
    assert_eq!(
        (counts.unschedulable, counts.gated, counts.total()),
        (1, 1, 5)
    );
    assert_eq!(bench.queue.pending_pods().count(), 5);
    assert!(bench.queue.is_in_flight("uid-flying"));
    assert_eq!(bench.queue.in_flight_len(), 1);
}

/// Q-65: delete_in_each_substructure, and of unknown pods and pods in flight.
#[test]
fn a_deleted_pod_is_gone_from_everywhere() {
    setup().run(
        "
        add rejected priority=9 nominated=n1
        add broken priority=8
        add waiting priority=7
        add gated gates=x
        add ready
        pop
        pop
        pop
        event Node/Add helps=A
        fail rejected A
        error broken
        fail waiting C          => active: ready; backoff: rejected; error: broken; unschedulable: waiting; gated: gated
        delete rejected
        delete broken
        delete waiting
        delete gated            => active: ready
        pop -> ready
        delete ready            => in flight: ready
        done ready              => nothing
        ",
    );
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

/// Q-73, edge case 44: pop_specific in every place, gated, gated but free now, unknown.
#[test]
fn a_pod_can_be_taken_out_of_turn() {
    setup().run(
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
    // The gate opened without an event: taking asks again.
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

/// A queue without profiles still holds pods: they come in the order of their timestamps.
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

/// A pod that is added twice is there once; recreated under the same name, it is the new one.
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
    assert!(bench.notices().is_empty());
}
