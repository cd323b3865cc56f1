//! A scheduler at rest: how often it wakes up while nothing happens in the cluster.

use crate::groups::{cpus, driver, gang, group, member};
use berth_api::{Duration, Kind};
use berth_framework::testing::pod;
use berth_scheduler::testing::Driver;

/// The longest time for which the process sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Lets time pass until the scheduler has something to do, as its thread does, for an hour. Returns how often it woke
/// up, and how many attempts it made.
fn hour_of_rest(w: &mut Driver) -> (usize, usize) {
    let end = w.now + HOUR;
    let (mut wakeups, mut attempts) = (0, 0);
    while w.now < end {
        let wake = w.scheduler.next_wake(w.now);
        let sleep = wake.map_or(LONGEST_SLEEP, |wake| wake.since(w.now).min(LONGEST_SLEEP));
        w.advance(sleep);
        wakeups += 1;
        attempts += w.attempts().len();
        w.answer_all();
        assert!(wakeups < 100_000, "the scheduler never sleeps");
    }
    (wakeups, attempts)
}

/// An idle scheduler looks around twice a minute. Pods that wait cost one attempt in 5 minutes and the wake-ups that
/// belong to it, whatever they wait for.
#[test]
fn a_scheduler_at_rest_sleeps() {
    type Prepare = fn(&mut Driver);
    let cases: [(&str, Prepare, usize, usize); 5] = [
        ("no pod waits", |_| (), 0, 0),
        (
            "a gated pod",
            |w| {
                w.pod(pod("p").gate("example.com/a"));
            },
            0,
            0,
        ),
        (
            "a pod that fits nowhere",
            |w| {
                w.pod(pod("p").request("cpu", "99"));
            },
            12,
            24,
        ),
        (
            "a gang that is not complete",
            |w| {
                w.object(Kind::PodGroup, group("g", gang(3)));
                w.pod(member("p", "g", "1"));
            },
            0,
            0,
        ),
        (
            "a gang that fits nowhere",
            |w| {
                w.object(Kind::PodGroup, group("g", gang(2)));
                for name in ["p", "q"] {
                    w.pod(member(name, "g", "99"));
                }
            },
            12,
            24,
        ),
    ];
    for (situation, prepare, attempts_max, wakeups_more) in cases {
        let mut w = driver();
        w.node(cpus("n1", "8"));
        prepare(&mut w);
        w.attempts();
        w.answer_all();
        w.wait(60);
        w.answer_all();
        let (wakeups, attempts) = hour_of_rest(&mut w);
        assert!(
            attempts <= attempts_max,
            "{situation}: {attempts} attempts of {attempts_max}"
        );
        let wakeups_max = 120 + wakeups_more;
        assert!(
            wakeups <= wakeups_max,
            "{situation}: {wakeups} wake-ups of {wakeups_max}"
        );
    }
}
