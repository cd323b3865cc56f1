//! Pods that change to another scheduler: their statuses are not sent any more, and are written again if they change back.

use super::*;
use berth_framework::condition::NOT_READY_FOR_SCHEDULING as NOT_READY;

const NONE: [&str; 0] = [];

/// D-31: the profile of a waiting pod is removed.
#[test]
fn statuses_of_a_pod_that_is_left_to_another_scheduler_are_not_sent() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    let patch = desk.call(statement("q", "Unschedulable"));
    for uid in ["uid-p", "uid-q"] {
        desk.dispatcher.leave_status(uid, desk.now);
    }
    desk.look();
    assert_eq!(desk.notified(patch), Some(true), "a wait for it ends");
    desk.advance(60_000);
    assert_eq!(desk.send(), NONE);
    assert_eq!(desk.dispatcher.len(), 0);
}

/// D-31: a call in flight is not repeated, unless a profile schedules the pod again and another status is written.
#[test]
fn a_status_in_flight_of_a_pod_that_is_left_is_not_repeated() {
    for (comes_back, sent) in [
        (false, NONE.to_vec()),
        (true, vec!["patch p SchedulerError"]),
    ] {
        let mut desk = desk();
        desk.call(statement("p", "Unschedulable"));
        desk.shows(pod("p"));
        assert_eq!(desk.send(), ["patch p Unschedulable"]);
        desk.dispatcher.leave_status("uid-p", desk.now);
        if comes_back {
            desk.call(statement("p", "SchedulerError"));
        }
        desk.answer_first(error(CallErrorKind::Timeout));
        desk.advance(60_000);
        assert_eq!(desk.send(), sent);
    }
}

/// D-31: the write that had no answer may have been carried out, so the same status is written when the profile is back.
#[test]
fn what_may_have_been_written_before_a_pod_was_left_is_written_again() {
    for fails_first in [false, true] {
        let mut desk = desk();
        desk.call(statement("p", "SchedulerError"));
        desk.shows(pod_that_states("p", "Unschedulable"));
        assert_eq!(desk.send(), ["patch p SchedulerError"]);
        if fails_first {
            desk.answer_first(error(CallErrorKind::Timeout));
            desk.dispatcher.leave_status("uid-p", desk.now);
        } else {
            desk.dispatcher.leave_status("uid-p", desk.now);
            desk.answer_first(error(CallErrorKind::Timeout));
        }
        desk.advance(60_000);
        assert_eq!(desk.send(), NONE);
        desk.call(statement("p", "Unschedulable"));
        assert_eq!(desk.send(), ["patch p Unschedulable"]);
    }
}

/// D-14, D-31: a profile schedules the pod again while a report of before is in flight. The new rejection has its own time.
#[test]
fn a_report_after_a_pod_was_left_has_its_own_time() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    desk.shows(pod("p"));
    desk.advance(5_000);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    desk.dispatcher.leave_status("uid-p", desk.now);
    desk.report(statement("p", NOT_READY));
    desk.answer_first(error(CallErrorKind::Conflict));
    desk.advance(4_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
}
