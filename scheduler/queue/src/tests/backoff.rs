//! Waiting for a backoff (Q-13 to Q-21; edge cases 45 to 58). The durations have a table of their own in the tests of
//! the module.

use super::setup;
use crate::{QueueConfig, SchedulingQueue};
use berth_api::Time;
use berth_framework::Feature;
use std::time::Duration;

/// cases 46, 48 and 54.
#[test]
fn backoff_doubles_and_errors_count_apart() {
    let mut bench = setup().run(
        "
        at 200
        add a
        pop -> a
        error a                 => error: a
        at 1999
        flush                   => error: a
        at 2000
        flush                   => active: a
        pop -> a
        error a
        at 4999
        flush                   => error: a
        at 5000
        flush                   => active: a
        pop -> a
        event Node/Add helps=A
        fail a A                => backoff: a
        ",
    );
    let info = bench.info("a");
    assert_eq!((info.unschedulable_count, info.in_a_row.errors), (1, 0));
    assert_eq!(
        bench.queue.places().backoff_expiry(info),
        Some(Time::from_millis(6000))
    );
    bench.run("update a x=y");
    let info = bench.info("a");
    assert_eq!(
        bench.queue.places().backoff_expiry(info),
        Some(Time::from_millis(6000)),
        "an update changes nothing"
    );
}

/// Q-13, case 49: a maximum backoff of zero disables backoff; the defaults are one and ten seconds.
#[test]
fn a_maximum_of_zero_switches_backoff_off() {
    let defaults = QueueConfig::default();
    let seconds = |secs| Duration::from_secs(secs);
    assert_eq!(
        (defaults.pod_initial_backoff, defaults.pod_max_backoff),
        (seconds(1), seconds(10))
    );
    let setup = setup().config(|config| config.pod_max_backoff = Duration::ZERO);
    setup.run(
        "
        add a
        pop -> a
        error a                 => active: a
        pop -> a
        event Node/Add helps=A
        fail a A                => active: a
        ",
    );
}

/// cases 51, 52 and 58: pods of one window are ordered by priority; without the gate, by the exact end of
/// their backoff.
#[test]
fn pods_of_one_window_come_by_priority() {
    let script = "
        at 100
        add low priority=1
        pop -> low
        event Node/Add helps=A
        fail low A
        at 900
        add high priority=9
        pop -> high
        event Node/Add helps=A
        fail high A
    ";
    for (gate, order) in [(true, "backoff: high low"), (false, "backoff: low high")] {
        let setup = setup().feature(Feature::SchedulerPopFromBackoffQ, gate);
        let mut bench = setup.run(&script.replace("pop -> high", "take high -> high"));
        assert_eq!(bench.places(), order, "gate {gate}");
        bench.run("update low priority=10");
        assert_eq!(bench.places(), "backoff: low high", "gate {gate}");
    }
    let at_once = script
        .replace("pop -> high", "take high -> high")
        .replace("at 900", "");
    for (gate, order) in [(true, "backoff: high low"), (false, "backoff: low high")] {
        let setup = setup().feature(Feature::SchedulerPopFromBackoffQ, gate);
        let bench = setup.run(&at_once);
        assert_eq!(bench.places(), order, "expiring together, gate {gate}");
    }
    let mut bench = setup()
        .unkeyed()
        .run(&script.replace("pop -> high", "take high -> high"));
    bench.run("+0 => backoff: high low");
}

/// cases 56 and 57: errors and rejections have separate backoff queues, also for successive failures of one
/// pod. A pod with only pending plugins counts as rejected. Errors are ordered only by the end of their backoff.
#[test]
fn errors_wait_apart_from_rejections() {
    setup().run(
        "
        at 100
        add low priority=1
        add high priority=9
        add pending priority=5
        pop -> high
        pop -> pending
        pop -> low
        error low
        error high              => error: low high; in flight: pending
        event Node/UpdateNodeAllocatable
        fail pending pending=Always => active: pending; error: low high
        ",
    );
    setup().run(
        "
        add pending
        pop -> pending
        activate pending
        fail pending pending=P  => backoff: pending
        ",
    );
    setup().run(
        "
        add a
        pop -> a
        error a                 => error: a
        activate a
        pop -> a
        event Node/Add helps=A
        fail a A                => backoff: a
        pop -> a
        error a                 => error: a
        +10000
        flush                   => active: a
        ",
    );
}

/// Q-20, case 53: both empty, only backoff, only error, partially, all, none.
#[test]
fn a_flush_moves_exactly_what_is_over() {
    let prepare = "
        add r1 priority=9
        add r2 priority=8
        add e1 priority=7
        add e2 priority=6
        pop
        pop
        pop
        pop
        event Node/Add helps=A
        at 500
        fail r1 A
        error e1
        at 1500
        fail r2 A
        error e2                => backoff: r1 r2; error: e1 e2
    ";
    for (at, places) in [
        (1999, "backoff: r1 r2; error: e1 e2"),
        (2000, "active: r1 e1; backoff: r2; error: e2"),
        (3000, "active: r1 r2 e1 e2"),
    ] {
        let mut bench = setup().run(prepare);
        bench.run(&format!("at {at}\nflush => {places}"));
    }
    for (leave, places) in [("r1 r2", "active: e1 e2"), ("e1 e2", "active: r1 r2")] {
        let mut bench = setup().run(prepare);
        for name in ["r1", "r2", "e1", "e2"] {
            if leave.contains(name) {
                bench.run(&format!("delete {name}"));
            }
        }
        bench.run(&format!("at 3000\nflush => {places}"));
    }
    setup().run("flush => nothing");
}

/// the wake-up times for the flushes; waking up at these times is sufficient.
#[test]
fn the_queue_states_when_to_look_again() {
    let mut bench = setup().run(
        "
        at 200
        add a
        pop -> a
        ",
    );
    assert_eq!(bench.queue.next_wake(bench.now), None, "nothing waits");
    bench.run("event Node/Add helps=A\nfail a A => backoff: a");
    assert_eq!(
        bench.queue.next_wake(bench.now),
        Some(Time::from_millis(2000))
    );
    bench.now = Time::from_millis(1999);
    assert!(!bench.queue_due(), "too early");
    assert_eq!(
        bench.queue.next_wake(bench.now),
        Some(Time::from_millis(2000))
    );
    bench.now = Time::from_millis(2000);
    assert!(bench.queue_due());
    assert_eq!(bench.places(), "active: a");
    bench.run("pop -> a\nfail a A => unschedulable: a");
    // Unschedulable at 2 s: the wait exceeds five minutes after 302 s, and the flush at 330 s moves the pod.
    assert_eq!(
        bench.queue.next_wake(bench.now),
        Some(Time::from_millis(330_000))
    );
    bench.now = Time::from_millis(330_000);
    assert_eq!(bench.queue.next_wake(bench.now), Some(bench.now));
    assert!(bench.queue_due());
    assert_eq!(bench.places(), "active: a");
    assert_eq!(bench.queue.next_wake(bench.now), None);

    let mut bench = setup()
        .feature(Feature::SchedulerPopFromBackoffQ, false)
        .run(
            "
        at 200
        add a
        pop -> a
        error a                 => error: a
        ",
        );
    // The backoff ends at 1.2 s; the flush runs every second from 1 s on.
    assert_eq!(
        bench.queue.next_wake(bench.now),
        Some(Time::from_millis(2000))
    );
    bench.now = Time::from_millis(2000);
    assert!(bench.queue_due());
    assert_eq!(bench.places(), "active: a");
}

/// Q-20, case 55: the flush of a queue that starts within a second runs on full seconds; without the gate, at whole
/// seconds after its start.
#[test]
fn the_flush_comes_on_the_second() {
    for (gate, expected) in [(true, 4000), (false, 3300)] {
        let mut bench = setup()
            .feature(Feature::SchedulerPopFromBackoffQ, gate)
            .build();
        let config = QueueConfig {
            features: bench.features,
            ..QueueConfig::default()
        };
        let profiles = vec![super::profile("default-scheduler", &[])];
        bench.queue = SchedulingQueue::new(config, profiles, Time::from_millis(300));
        bench.run("at 300\nadd a\npop -> a\nat 2100\nerror a => error: a");
        // The backoff ends at 3.1 s: the flush runs after the third second, or at the next whole second since its
        // start.
        let wake = bench.queue.next_wake(bench.now);
        assert_eq!(wake, Some(Time::from_millis(expected)), "gate {gate}");
        let due = (2100..=5000).step_by(100).find(|millis| {
            bench.now = Time::from_millis(*millis);
            bench.queue_due()
        });
        assert_eq!(due, Some(expected), "gate {gate}");
    }
}

impl super::Bench {
    fn queue_due(&mut self) -> bool {
        let (queue, cx) = super::fields!(*self);
        queue.run_due(&cx)
    }
}
