//! Reports of PreEnqueue plugins (KEP-5501): the time when they are written, and the effect of other calls about the
//! pod.

use super::*;
use berth_framework::condition::NOT_READY_FOR_SCHEDULING as NOT_READY;

const NONE: [&str; 0] = [];

/// D-23, case 167.
#[test]
fn a_report_is_not_sent_before_its_time() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    assert_eq!(
        desk.dispatcher.next_wake(),
        Some(desk.now + Duration::from_secs(5))
    );
    assert_eq!(
        desk.pending("pod_status_patch"),
        1,
        "Q-109: it counts as pending"
    );
    desk.advance(4_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    assert_eq!(desk.dispatcher.next_wake(), None);
}

/// D-24, cases 167, 170: another report, 3 s after the first, replaces it and is written at the time of the first.
#[test]
fn a_second_report_does_not_move_the_time() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    desk.shows(pod("p"));
    desk.advance(3_000);
    desk.report(statement("p", "SchedulingGated"));
    assert_eq!(desk.pending("pod_status_patch"), 1);
    desk.advance(1_999);
    assert_eq!(desk.send(), NONE, "the first time holds");
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p SchedulingGated"]);
    assert_eq!(desk.dispatcher.next_wake(), None);
}

/// D-24, Q-105, cases 167, 170: the calls that are sent at once when another call follows the report after 3 s.
#[test]
fn what_another_call_does_to_a_report() {
    for (situation, call, sent) in [
        (
            "a condition takes its place",
            statement("p", "Unschedulable"),
            "patch p Unschedulable",
        ),
        (
            "a nomination takes it along",
            nominate("p", "n1"),
            "patch p NotReadyForScheduling on \"n1\"",
        ),
        ("a binding makes it needless", bind("p", "n1"), "bind p n1"),
        ("so does a deletion", delete("p"), "delete p"),
    ] {
        let mut desk = desk();
        desk.report(statement("p", NOT_READY));
        desk.shows(pod("p"));
        desk.advance(3_000);
        desk.call(call);
        assert_eq!(desk.send(), [sent], "{situation}");
        assert_eq!(desk.waiting_report(), None, "{situation}");
        assert_eq!(desk.dispatcher.next_wake(), None, "{situation}");
        assert_eq!(desk.dispatcher.len(), 1, "{situation}");
    }
}

/// D-24: a nomination that became needless before it was sent takes no report along: that waits for its own time.
#[test]
fn a_needless_nomination_takes_no_report_along() {
    let mut desk = desk();
    desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
    desk.report(statement("p", NOT_READY));
    desk.call(nominate("p", ""));
    desk.answer_first(error(CallErrorKind::NotFound));
    desk.advance(4_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
}

/// D-14: a report has no response, and the pod has been admitted and nominated since: the nomination does not repeat
/// the report.
#[test]
fn a_nomination_repeats_no_report_that_has_ended() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    desk.shows(pod("p"));
    desk.advance(5_000);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    desk.report(clear("p"));
    desk.call(nominate("p", "n1"));
    desk.answer_first(error(CallErrorKind::Timeout));
    desk.advance(1_000);
    assert_eq!(desk.send(), ["clear p on \"n1\""]);
}

/// A condition of another type has nothing to do with the report.
#[test]
fn another_condition_leaves_the_report() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    let mut other = condition("r", "m");
    other.kind = "Other".into();
    desk.call(ApiCall::PatchPodStatus {
        pod: pod_ref("p"),
        conditions: vec![other],
        nominated_node: None,
    });
    assert_eq!(desk.send(), ["patch p r"]);
    desk.answer_first(Ok(()));
    desk.advance(5_000);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
}

/// D-24, Q-102: a waiting patch is sent at once, and the report follows at its own time.
#[test]
fn a_report_does_not_hold_back_an_earlier_call() {
    let mut desk = desk();
    desk.call(nominate("p", "n1"));
    desk.report(statement("p", NOT_READY));
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
    desk.answer_first(Ok(()));
    desk.advance(4_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
}

/// D-27, Q-104, case 168: a rejection that ends within 5 s writes nothing at all.
#[test]
fn a_rejection_that_ends_in_time_writes_nothing() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    desk.shows(pod("p"));
    desk.advance(2_000);
    desk.report(clear("p"));
    assert_eq!(desk.waiting_report(), None);
    assert!(desk.dispatcher.is_empty());
    desk.advance(60_000);
    assert_eq!(desk.send(), NONE);
}

/// Q-102: a pod that had passed and is rejected again is reported 5 s after the second rejection.
#[test]
fn a_rejection_after_a_pass_has_its_own_time() {
    let mut desk = desk();
    desk.report(statement("p", NOT_READY));
    desk.shows(pod_that_states("p", NOT_READY).version(2));
    assert_eq!(desk.waiting_report(), None, "the pod states it already");
    desk.report(clear("p"));
    desk.advance(3_000);
    desk.report(statement("p", "SchedulingGated"));
    desk.advance(4_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p SchedulingGated"]);
}

/// D-14: a report that is due and waits for its turn states the present answer of the plugins.
#[test]
fn a_due_report_that_waits_for_its_turn_is_kept_up_to_date() {
    for (situation, newer, sent) in [
        (
            "another plugin rejects it",
            &[statement("p", "SchedulingGated")][..],
            &["patch p SchedulingGated"][..],
        ),
        ("it passes", &[clear("p")], &NONE),
        (
            "another plugin, and then it passes",
            &[
                statement("p", "SchedulingGated"),
                statement("p", NOT_READY),
                clear("p"),
            ],
            &NONE,
        ),
        (
            "it passes and is rejected anew",
            &[clear("p"), statement("p", NOT_READY)],
            &NONE,
        ),
    ] {
        // One status patch at a time.
        let mut desk = desk_with(DispatcherOptions::for_in_flight(4));
        desk.call(statement("other", "Unschedulable"));
        assert_eq!(desk.send(), ["patch other Unschedulable"]);
        desk.report(statement("p", NOT_READY));
        desk.shows(pod("p"));
        desk.advance(5_000);
        assert_eq!(desk.send(), NONE, "{situation}");
        for report in newer {
            desk.report(report.clone());
        }
        desk.answer_first(Ok(()));
        let later = desk.send();
        assert_eq!(later, sent, "{situation}");
    }
}

/// Q-102: a report fails while the pod passes and is rejected again: the new rejection waits for its own 5 s. A report
/// that may have been carried out is removed until then.
#[test]
fn a_failed_report_does_not_write_a_new_rejection() {
    for (kind, meanwhile) in [
        (CallErrorKind::Conflict, &NONE[..]),
        (CallErrorKind::Timeout, &["clear p"][..]),
    ] {
        let mut desk = desk();
        desk.shows(pod("p"));
        desk.report(statement("p", NOT_READY));
        desk.advance(5_000);
        desk.send();
        desk.report(clear("p"));
        desk.report(statement("p", "SchedulingGated"));
        desk.answer_first(error(kind));
        desk.advance(4_999);
        assert_eq!(desk.send(), meanwhile, "{kind:?}");
        while !desk.sent.is_empty() {
            desk.answer_first(Ok(()));
        }
        desk.advance(1);
        assert_eq!(desk.send(), ["patch p SchedulingGated"], "{kind:?}");
    }
}

/// D-14, Q-105: a report in flight fails after the result of a cycle was added and the pod was rejected again. The result
/// is written first, and the rejection at its own time.
#[test]
fn a_report_that_follows_the_result_of_a_cycle_is_not_lost() {
    let mut desk = desk();
    desk.shows(pod("p"));
    desk.report(statement("p", NOT_READY));
    desk.advance(5_000);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    desk.call(statement("p", "Unschedulable"));
    desk.report(statement("p", "SchedulingGated"));
    desk.answer_first(error(CallErrorKind::Conflict));
    desk.advance(1_000);
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    desk.answer_first(Ok(()));
    desk.advance(3_999);
    assert_eq!(desk.send(), NONE);
    desk.advance(1);
    assert_eq!(desk.send(), ["patch p SchedulingGated"]);
}

/// D-14, D-26: a report is made while another one is in flight or retried.
#[test]
fn a_report_meets_an_earlier_one() {
    for (situation, newer, answer, at_once, later) in [
        (
            "another message, and the first is written",
            statement("p", "SchedulingGated"),
            Ok(()),
            &NONE[..],
            &["patch p SchedulingGated"][..],
        ),
        (
            "another message, and the first failed",
            statement("p", "SchedulingGated"),
            Err(CallErrorKind::Conflict),
            &["patch p SchedulingGated"],
            &NONE,
        ),
        (
            "the same message",
            statement("p", NOT_READY),
            Ok(()),
            &NONE,
            &NONE,
        ),
        (
            "it passes, and the first was not carried out",
            clear("p"),
            Err(CallErrorKind::Conflict),
            &NONE,
            &NONE,
        ),
        (
            "it passes, and the first may have been carried out",
            clear("p"),
            Err(CallErrorKind::Timeout),
            &["clear p"],
            &NONE,
        ),
        (
            "it passes, and the first is written",
            clear("p"),
            Ok(()),
            &NONE,
            &["clear p"],
        ),
    ] {
        for newer_comes_first in [true, false] {
            // Once the first one is over, a newer one is a report like any other.
            if !newer_comes_first && answer.is_ok() {
                continue;
            }
            let mut desk = desk();
            desk.report(statement("p", NOT_READY));
            desk.shows(pod("p"));
            desk.advance(5_000);
            desk.send();
            let answer = match answer {
                Ok(()) => Ok(Response::default()),
                Err(kind) => error(kind),
            };
            if newer_comes_first {
                desk.report(newer.clone());
                desk.answer_first(answer);
            } else {
                desk.answer_first(answer);
                desk.report(newer.clone());
            }
            desk.advance(100);
            assert_eq!(desk.send(), at_once, "{situation}");
            while !desk.sent.is_empty() {
                desk.answer_first(Ok(()));
            }
            desk.advance(5_000);
            assert_eq!(desk.send(), later, "{situation}");
        }
    }
}

/// D-25, Q-108, case 172.
#[test]
fn a_waiting_call_can_be_cancelled_and_one_on_its_way_cannot() {
    let mut desk = desk();
    let id = desk.call(statement("p", "Unschedulable"));
    let bindings = |call: &ApiCall| matches!(call, ApiCall::BindPod { .. });
    assert_eq!(desk.dispatcher.cancel(&key("uid-p"), bindings, desk.now), 0);
    assert_eq!(desk.end_of(id), "-");
    assert_eq!(desk.dispatcher.cancel(&key("uid-p"), |_| true, desk.now), 1);
    desk.look();
    assert_eq!(
        (desk.end_of(id).as_str(), desk.notified(id)),
        (text::CANCELLED, Some(true))
    );
    assert_eq!(
        (desk.dispatcher.next_wake(), desk.dispatcher.len()),
        (None, 0)
    );

    let away = desk.call(bind("p", "n1"));
    desk.send();
    assert_eq!(desk.dispatcher.cancel(&key("uid-p"), |_| true, desk.now), 0);
    assert_eq!(
        desk.dispatcher
            .cancel(&key("uid-unknown"), |_| true, desk.now),
        0
    );
    desk.answer(away, Ok(()));
    assert_eq!(desk.end_of(away), "ok");
}

/// D-25, Q-108, case 172: nothing is sent about a pod that was deleted.
#[test]
fn calls_about_what_is_gone_are_dropped() {
    let mut reported = desk();
    reported.report(statement("p", NOT_READY));
    reported.dispatcher.forget("uid-p", reported.now);
    reported.look();
    assert!(reported.dispatcher.is_empty(), "its report is dropped");
    reported.advance(5_000);
    assert_eq!(reported.send(), NONE);
    for (situation, call, notified) in [
        ("a status", statement("p", "Unschedulable"), true),
        ("a binding has failed", bind("p", "n1"), false),
        ("a deletion has come about", delete("p"), true),
    ] {
        let mut desk = desk();
        let id = desk.call(call);
        desk.dispatcher.forget("uid-p", desk.now);
        desk.look();
        assert_eq!(desk.notified(id), Some(notified), "{situation}");
        assert_eq!(desk.send(), NONE, "{situation}");
    }
    let mut desk = desk();
    let away = desk.call(bind("p", "n1"));
    desk.send();
    desk.dispatcher.forget("uid-p", desk.now);
    let late = desk.call(statement("p", "Unschedulable"));
    assert_eq!(desk.end_of(late), text::GONE);
    desk.report(statement("p", NOT_READY));
    assert_eq!(desk.waiting_report(), None);
    desk.answer(away, error(CallErrorKind::Unavailable));
    assert_eq!(desk.end_of(away), "Unavailable", "it is not repeated");
    assert!(desk.dispatcher.is_empty());

    // After a gap a list may still contain the pod: a listed pod exists.
    let away = desk.call(bind("p", "n1"));
    desk.send();
    desk.dispatcher.forget("uid-p", desk.now);
    desk.shows(pod("p"));
    let late = desk.call(delete("p"));
    assert_eq!(desk.end_of(late), "-");
    desk.answer(away, error(CallErrorKind::Unavailable));
    assert_eq!(desk.send(), ["delete p"]);
}

/// D-26: a report that waits for a call in flight keeps its time.
#[test]
fn a_report_behind_a_call_in_flight_has_its_own_time() {
    for (answered_after, left) in [(1_000, 4_000), (7_000, 0)] {
        let mut desk = desk();
        let away = desk.call(nominate("p", "n1"));
        desk.send();
        desk.report(statement("p", NOT_READY));
        desk.advance(answered_after);
        desk.answer(away, Ok(()));
        if left > 0 {
            desk.advance(left - 1);
            assert_eq!(desk.send(), NONE);
            desk.advance(1);
        }
        assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    }
}

/// D-14: a status refused in all attempts is offered again after 30 s, once, unless a newer one or the deletion of the
/// pod is earlier.
#[test]
fn what_the_api_did_not_take_is_offered_again() {
    type Act = fn(&mut Desk);
    let cases: [(&str, CallErrorKind, Act, bool); 8] = [
        ("no server", CallErrorKind::Unavailable, |_| (), true),
        ("no answer", CallErrorKind::Timeout, |_| (), true),
        ("conflicts", CallErrorKind::Conflict, |_| (), true),
        ("refused", CallErrorKind::Refused, |_| (), false),
        (
            "a newer status",
            CallErrorKind::Unavailable,
            |desk| {
                desk.call(nominate("p", "n1"));
            },
            false,
        ),
        (
            "a report",
            CallErrorKind::Unavailable,
            |desk| desk.report(statement("p", NOT_READY)),
            false,
        ),
        (
            "the pod is deleted",
            CallErrorKind::Unavailable,
            |desk| {
                desk.call(delete("p"));
            },
            false,
        ),
        (
            "the pod is gone",
            CallErrorKind::Unavailable,
            |desk| desk.dispatcher.forget("uid-p", desk.now),
            false,
        ),
    ];
    for (situation, kind, act, offered) in cases {
        let mut desk = desk();
        desk.call(statement("p", "Unschedulable"));
        while !desk.send().is_empty() {
            desk.answer_first(error(kind));
            desk.advance(300);
        }
        act(&mut desk);
        desk.look();
        let due = desk.dispatcher.backlog.offers.first().map(|(due, _)| *due);
        assert_eq!(due.is_some(), offered, "{situation}");
        desk.advance(29_000);
        assert_eq!(
            desk.dispatcher.take_due_offer(desk.now),
            None,
            "{situation}"
        );
        desk.advance(1_000);
        let offer = desk.dispatcher.take_due_offer(desk.now);
        assert_eq!(offer.is_some(), offered, "{situation}");
        desk.look();
        assert_eq!(
            desk.dispatcher.take_due_offer(desk.now),
            None,
            "{situation}: once"
        );
    }
}

/// D-14: the next condition leaves a nomination alone that was not taken: it is offered again on its own.
#[test]
fn a_nomination_that_the_api_did_not_take_is_offered_again() {
    let mut desk = desk();
    let mut first = statement("p", "Unschedulable");
    if let ApiCall::PatchPodStatus { nominated_node, .. } = &mut first {
        *nominated_node = Some("n1".into());
    }
    desk.call(first);
    while !desk.send().is_empty() {
        desk.answer_first(error(CallErrorKind::Conflict));
        desk.advance(300);
    }
    desk.call(statement("p", "SchedulerError"));
    assert_eq!(desk.send(), ["patch p SchedulerError"]);
    desk.answer_first(Ok(()));
    desk.advance(30_000);
    let offer = desk.dispatcher.take_due_offer(desk.now);
    assert_eq!(offer, Some(nominate("p", "n1")));
    assert_eq!(desk.dispatcher.take_due_offer(desk.now), None, "once");
}

/// D-14, D-24: a pod that has passed is rejected again while its first report is in flight, as when a new configuration asks
/// the plugins about pods that wait for an attempt. The new rejection has its own time, whatever becomes of the first report.
#[test]
fn a_rejection_after_a_pass_does_not_use_the_report_in_flight() {
    for (answer, later) in [
        (
            Err(CallError::new(CallErrorKind::Conflict, "")),
            vec!["patch p NotReadyForScheduling"],
        ),
        (Ok(()), NONE.to_vec()),
    ] {
        let mut desk = desk();
        desk.report(statement("p", NOT_READY));
        desk.shows(pod("p"));
        desk.advance(5_000);
        assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
        desk.report(clear("p"));
        desk.report(statement("p", NOT_READY));
        desk.answer_first(answer);
        desk.advance(4_999);
        assert_eq!(desk.send(), NONE);
        desk.advance(1);
        assert_eq!(desk.send(), later);
    }
}
