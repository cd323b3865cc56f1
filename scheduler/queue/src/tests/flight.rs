//! Pods in flight and the log of events during their flight (Q-35 to; edge cases 59 to 73).

use super::setup;
use berth_telemetry::metrics::Metric;

/// cases 59 to 61: the queue logs no event while no pod is in flight, and no event that no plugin
/// registered for; then it does not call the pre-check either. Events before the pop of a pod do not count for it.
#[test]
fn only_interesting_events_are_logged_and_only_in_flight() {
    let mut bench = setup().run("add a\nevent Node/Add helps=A\nadd x\npop -> a");
    assert_eq!(bench.queue.in_flight().events_len(), 0, "before the pop");
    bench.run("event Node/Delete helps=A");
    assert_eq!(
        bench.queue.in_flight().events_len(),
        0,
        "no plugin registered"
    );
    bench.run("event Node/Add helps=A");
    assert_eq!(bench.queue.in_flight().events_len(), 1);
    bench.run("fail a A => active: x; backoff: a");
    assert_eq!(
        bench.queue.in_flight().events_len(),
        0,
        "no pod needs it any more"
    );

    let mut bench = setup().run("add a\npop -> a\nfail a A");
    let (queue, cx) = super::fields!(bench);
    let event = super::script::event_of("Node/Delete");
    let change = berth_framework::event::Change {
        old: None,
        new: None,
    };
    let never = |_: &berth_api::Pod| panic!("no plugin wants the event");
    queue.move_all(&cx, &event, change, Some(&never));
}

/// cases 62 to 65 and 78: the first event that queues immediately takes precedence, then any
/// event with Queue.
#[test]
fn what_happened_in_flight_decides_where_a_failed_pod_goes() {
    for (meanwhile, outcome, place) in [
        ("event Node/Add helps=A", "fail a A", "backoff: a"),
        ("event Node/Add helps=B", "fail a A", "unschedulable: a"),
        ("event Node/Add helps=B", "fail a A,B", "backoff: a"),
        (
            "event Node/Add helps=all",
            "fail a Mute",
            "unschedulable: a",
        ),
        (
            "event Node/Add helps=all",
            "fail a Unknown",
            "unschedulable: a",
        ),
        ("event Pod/Add helps=P", "fail a pending=P", "active: a"),
        (
            "event Pod/Add helps=none",
            "fail a pending=P",
            "unschedulable: a",
        ),
        ("event Node/Add helps=A", "fail a A pending=P", "backoff: a"),
        (
            "event Node/Add helps=A\nevent Pod/Add helps=P",
            "fail a A pending=P",
            "active: a",
        ),
        (
            "event Node/Add helps=A\nevent Pod/Add helps=P",
            "fail a A",
            "backoff: a",
        ),
        ("", "fail a A", "unschedulable: a"),
        ("", "error a", "error: a"),
        ("event Node/Add helps=all", "error a", "error: a"),
        ("event Node/Add helps=error", "fail a A", "backoff: a"),
        (
            "event Node/UpdateNodeAllocatable",
            "fail a Always",
            "backoff: a",
        ),
    ] {
        let mut bench = setup().run("add a\npop -> a");
        bench.run(meanwhile);
        bench.run(outcome);
        assert_eq!(bench.places(), place, "{meanwhile} · {outcome}");
        assert!(
            bench.incoming().contains("ScheduleAttemptFailure=1"),
            "{outcome}"
        );
        assert_eq!(bench.queue.in_flight().len(), 0, "{outcome}");
    }
}

/// Q-35, cases 66 to 68.
#[test]
fn a_pod_sees_the_events_after_its_own_pop() {
    let mut bench = setup().run(
        "
        add a priority=9
        add b priority=8
        add c priority=7
        pop -> a
        event Node/Add helps=A
        pop -> b
        event Node/UpdateNodeLabel helps=A
        pop -> c
        event Node/UpdateNodeTaint helps=C
        ",
    );
    assert_eq!(bench.queue.in_flight().events_len(), 3);
    bench.run("done b");
    assert_eq!(
        bench.queue.in_flight().events_len(),
        3,
        "a may still need all"
    );
    bench.run("fail c A => unschedulable: c; in flight: a");
    assert_eq!(bench.queue.in_flight().events_len(), 3);
    bench.run("fail a A => backoff: a; unschedulable: c");
    assert_eq!(bench.queue.in_flight().events_len(), 0);

    let mut bench = setup().run(
        "
        add a priority=9
        add b priority=8
        pop -> a
        event Node/Add helps=A
        pop -> b
        event Node/UpdateNodeTaint helps=C
        done a
        ",
    );
    assert_eq!(
        bench.queue.in_flight().events_len(),
        1,
        "what precedes b is dropped"
    );
    bench.run("fail b A => unschedulable: b");
    bench.queue.done("uid-b");
    bench.queue.done("nobody");
}

/// case 69: an update in flight does not queue the pod; each part of it is logged and evaluated when the
/// pod returns.
#[test]
fn an_update_in_flight_is_remembered() {
    for (update, place) in [
        ("update a v=2 helps=C", "backoff: a"),
        ("update a v=2", "unschedulable: a"),
        ("update a", "unschedulable: a"),
    ] {
        let mut bench = setup().run("add a v=1\npop -> a");
        bench.run(update);
        assert_eq!(bench.places(), "in flight: a", "{update}");
        bench.run("fail a C");
        assert_eq!(bench.places(), place, "{update}");
    }
    let mut bench = setup().run("add a gates=x\nupdate a\npop -> a");
    bench.run("update a v=2 gates=x");
    assert_eq!(bench.queue.in_flight().events_len(), 1, "labels");
    bench.run("update a");
    assert_eq!(bench.queue.in_flight().events_len(), 3, "labels and gates");
}

/// cases 70, 83 and 139: an activation in flight helps that pod and no other.
#[test]
fn activating_a_pod_in_flight_helps_it_alone() {
    setup().run(
        "
        add a priority=9
        add b
        pop -> a
        pop -> b
        activate a
        fail a Mute
        fail b Mute             => backoff: a; unschedulable: b
        ",
    );
}

/// Q-69, case 71: after a flush of long-unschedulable pods, every failed pod is retried.
#[test]
fn a_leftover_flush_counts_for_pods_in_flight() {
    let mut bench = setup().run(
        "
        add old
        pop -> old
        fail old Mute           => unschedulable: old
        at 300000
        add a
        pop -> a
        flush-leftover          => unschedulable: old; in flight: a
        at 300001
        flush-leftover          => active: old; in flight: a
        ",
    );
    assert_eq!(bench.queue.in_flight().events_len(), 1, "logged once");
    bench.run("fail a Mute => active: old; backoff: a");
    // Gated pods are old, too, although they stay.
    setup().run(
        "
        add gated gates=x
        at 300001
        add a
        pop -> a
        flush-leftover          => gated: gated; in flight: a
        fail a Mute             => backoff: a; gated: gated
        ",
    );
}

/// a pod that is returned although it is not in flight is retried after its backoff, and an error is logged.
#[test]
fn a_pod_that_is_not_in_flight_is_not_lost() {
    let mut bench = setup().run("add a\npop -> a");
    bench.queue.done("uid-a");
    bench.run("fail a A => backoff: a");
    assert_eq!(
        bench.logged(),
        [
            "in flight Pod isn't found in the scheduling queue. If you see this error log, it's likely a bug in the scheduler pod=default/a"
        ]
    );
}

/// case 30: the pod is refused with kube-scheduler's message, and its flight has ended.
#[test]
fn a_queued_pod_is_not_given_back_twice() {
    for (prepare, words) in [
        ("", "in the active queue"),
        ("pop -> b\nfail b A", "in unschedulable queue"),
        (
            "pop -> b\nupdate b G1=shut\nerror b",
            "in unschedulable queue",
        ),
        ("pop -> b\nerror b", "in the backoff queue"),
        (
            "pop -> b\nevent Node/Add helps=A\nfail b A",
            "in the backoff queue",
        ),
    ] {
        let mut bench = setup().run("add a\npop -> a\nadd b");
        bench.run(prepare);
        let mut info = bench.popped["a"].clone();
        let b = berth_framework::testing::PodBuilder::of(&bench.pods["b"]);
        info.pod = b.uid("uid-a").arc();
        let before = bench.places();
        let (queue, cx) = super::fields!(bench);
        let error = queue.add_unschedulable(&cx, info).expect_err(words);
        assert_eq!(
            error.to_string(),
            format!("Pod default/b is already present {words}")
        );
        assert!(!bench.queue.in_flight().contains("uid-a"), "{words}");
        assert_eq!(before.replace("; in flight: a", ""), bench.places());
    }
}

/// The log of events is bounded. On overflow, one entry represents any event, so that no wake-up is lost.
#[test]
fn a_full_log_collapses_into_one_entry_for_anything() {
    let mut bench = setup()
        .config(|config| config.in_flight_events_max = 3)
        .run("add a priority=9\nadd b priority=8\nadd c priority=7\npop -> a");
    bench.event("Node/Add", "none");
    bench.run("pop -> b");
    bench.event("Node/Add", "none");
    bench.event("Node/Add", "none");
    assert_eq!(bench.queue.in_flight().events_len(), 3);
    bench.run("event Node/Add helps=A");
    assert_eq!(bench.queue.in_flight().events_len(), 1);
    assert_eq!(
        bench.queue.metrics().number(Metric::EventLogCollapses, &[]),
        1.0
    );
    bench.run(
        "
        pop -> c
        event Node/UpdateNodeTaint helps=none
        fail c A                => unschedulable: c; in flight: a b
        fail a A                => backoff: a; unschedulable: c; in flight: b
        fail b Mute             => backoff: a b; unschedulable: c
        ",
    );
    assert_eq!(bench.queue.in_flight().events_len(), 0);
    let inflight = super::numbers(&bench.queue, Metric::InflightEvents);
    assert!(inflight.values().all(|count| *count == 0), "{inflight:?}");
    assert_eq!(
        bench.logged(),
        [
            "more events came while pods were in flight than are kept: each of those pods that fails is retried after its backoff events=3"
        ]
    );
}
