//! Random calls, answers, updates and deletions; a failed run prints its seed.
//!
//! Checked: each call ends exactly once; at most one call per object is in flight; no lane uses another's reserved
//! share; a binding that may be sent is sent at once; memory is bounded; after all answers nothing is left.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const PODS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const NODES: [&str; 2] = ["n1", "n2"];
const REASONS: [&str; 3] = ["Unschedulable", "SchedulerError", "NotReadyForScheduling"];

fn options(rng: &mut fastrand::Rng, asynchronous: bool) -> DispatcherOptions {
    DispatcherOptions {
        asynchronous,
        tracked_max: rng.usize(12..40),
        seed: rng.u64(..),
        ..DispatcherOptions::for_in_flight(rng.usize(4..9))
    }
}

fn any_of<'a>(rng: &mut fastrand::Rng, among: &[&'a str]) -> &'a str {
    among[rng.usize(..among.len())]
}

fn any_call(rng: &mut fastrand::Rng) -> ApiCall {
    let name = any_of(rng, &PODS);
    match rng.u8(..10) {
        0..4 => statement(name, any_of(rng, &REASONS)),
        4..6 => nominate(name, ["", "n1", "n2"][rng.usize(..3)]),
        6 => clear(name),
        7..9 => bind(name, any_of(rng, &NODES)),
        _ => delete(name),
    }
}

fn any_pod(rng: &mut fastrand::Rng) -> PodBuilder {
    let name = any_of(rng, &PODS);
    let mut pod = if rng.bool() {
        pod_that_states(name, any_of(rng, &REASONS))
    } else {
        pod(name)
    };
    if rng.u8(..3) == 0 {
        pod = pod.nominated(any_of(rng, &NODES));
    }
    if rng.u8(..6) == 0 {
        pod = pod.on(any_of(rng, &NODES));
    }
    pod.version(rng.u64(1..9))
}

fn any_result(rng: &mut fastrand::Rng) -> CallResult {
    use CallErrorKind::{Conflict, NotFound, Refused, Timeout, Unavailable};
    match rng.usize(..10) {
        at @ 0..5 => error([Conflict, NotFound, Refused, Timeout, Unavailable][at]),
        _ => Ok(Response::default()),
    }
}

struct Run {
    desk: Desk,
    options: DispatcherOptions,
    made: BTreeMap<CallId, ApiCall>,
}

impl Run {
    fn step(&mut self, rng: &mut fastrand::Rng) {
        match rng.u8(..12) {
            0..5 => {
                let call = any_call(rng);
                let is_clear = matches!(call, ApiCall::ClearPreEnqueueStatus { .. });
                let reports = is_clear || call.condition("PodScheduled").is_some();
                let reports = reports && !matches!(call, ApiCall::DeletePod { .. });
                if reports && rng.bool() {
                    if self.options.asynchronous && self.desk.dispatcher.takes_reports() {
                        self.desk.report(call);
                    }
                    return;
                }
                let id = self.desk.call(call.clone());
                assert_eq!(self.made.insert(id, call), None, "ids are given out once");
            }
            5..8 if !self.desk.sent.is_empty() => {
                let at = rng.usize(..self.desk.sent.len());
                let id = self.desk.sent[at].0;
                self.desk.answer(id, any_result(rng));
            }
            8 => self.desk.shows(any_pod(rng)),
            9 => {
                let uid = format!("uid-{}", any_of(rng, &PODS));
                let now = self.desk.now;
                if rng.bool() {
                    self.desk.dispatcher.forget(&uid, now);
                } else {
                    self.desk.dispatcher.cancel(&key(&uid), |_| true, now);
                }
                self.desk.look();
            }
            10 => {
                self.desk.advance(rng.u64(..3_000));
                let now = self.desk.now;
                self.desk.dispatcher.expire(now);
                self.desk.look();
            }
            _ => {
                self.desk.send();
            }
        }
    }

    fn check(&self) {
        let desk = &self.desk;
        let waiting = self.made.keys().filter(|id| !desk.ended.contains_key(*id));
        // Reports become calls when they are due.
        let others = desk.dispatcher.len() - waiting.count();
        assert!(
            others <= PODS.len() && (self.options.asynchronous || others == 0),
            "each call ends, once"
        );
        assert!(
            desk.dispatcher.len() <= self.options.tracked_max,
            "memory is bounded"
        );
        let objects: BTreeSet<Str> = desk.sent.iter().map(|(_, call)| call.key().uid).collect();
        assert_eq!(
            objects.len(),
            desk.sent.len(),
            "one call per object is on its way"
        );
        assert!(desk.sent.len() <= self.options.in_flight_max);
        for lane in Lane::ALL {
            let share = self.options.lanes.of(lane);
            let of_lane = |call: &ApiCall| call.call_type().lane() == lane;
            let mine = desk.sent.iter().filter(|(_, call)| of_lane(call)).count();
            assert_eq!(mine, desk.dispatcher.in_flight(lane));
            assert!(mine <= share.max, "{lane:?}");
        }
    }

    /// Sends all calls that may be sent. Then no lane below its reserved share has a call that is ready.
    fn check_no_pod_starves(&mut self) {
        self.desk.send();
        for lane in Lane::ALL {
            let share = self.options.lanes.of(lane);
            let dispatcher = &self.desk.dispatcher;
            assert!(
                dispatcher.ready(lane) == 0 || dispatcher.in_flight(lane) >= share.reserved,
                "{lane:?} has a share and does not get it"
            );
        }
        assert!(!self.desk.dispatcher.has_calls_to_send());
    }
}

fn run(seed: u64, asynchronous: bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let options = options(&mut rng, asynchronous);
    let mut run = Run {
        desk: desk_with(options),
        options,
        made: BTreeMap::new(),
    };
    for _ in 0..400 {
        run.step(&mut rng);
        run.check();
        if rng.u8(..10) == 0 {
            run.check_no_pod_starves();
        }
    }
    // No more faults: all calls end.
    for _ in 0..500 {
        run.desk.send();
        run.check();
        while !run.desk.sent.is_empty() {
            run.desk.answer_first(Ok(()));
        }
        while run.desk.dispatcher.take_due_offer(run.desk.now).is_some() {}
        let dispatcher = &run.desk.dispatcher;
        match dispatcher.next_wake() {
            Some(wake) => run.desk.now = run.desk.now.max(wake),
            None if run.desk.dispatcher.is_empty() => break,
            None => {}
        }
        let now = run.desk.now;
        run.desk.dispatcher.expire(now);
        run.desk.look();
    }
    assert!(run.desk.dispatcher.is_empty(), "everything has ended");
    let ended = |id| run.desk.ended.contains_key(id);
    assert!(run.made.keys().all(ended), "every call ends");
    assert_eq!(
        run.desk.dispatcher.backlog.objects.iter().count(),
        0,
        "nothing is remembered"
    );
}

/// D-4 to D-6, D-13, D-14, cases 159, 166.
#[test]
fn random_operations_keep_the_rules() {
    for seed in 0..300 {
        for asynchronous in [true, false] {
            let outcome = std::panic::catch_unwind(|| run(seed, asynchronous));
            if let Err(panic) = outcome {
                eprintln!("seed {seed}, asynchronous: {asynchronous}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
