//! Calls that are held back (KEP-5501), and what they are for: what PreEnqueue plugins say of a pod.

use super::*;
use crate::queue::NOT_READY_FOR_SCHEDULING as NOT_READY;

const NONE: [&str; 0] = [];

/// D-23, case 167.
#[test]
fn a_delayed_call_is_not_sent_before_its_time() {
    let mut desk = desk();
    desk.delayed(says("p", NOT_READY), 5);
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

/// D-24, cases 167, 170: when what is sent, by the second call, which comes 3 s after the first.
#[test]
fn what_a_second_call_does_to_a_delayed_one() {
    let other = says("p", "Other");
    for (situation, second, delay, sent_after, sent) in [
        ("another message", other.clone(), 5, 2_000, "patch p Other"),
        ("a message at once", other, 0, 0, "patch p Other"),
        (
            "a nomination at once takes the message along",
            nominate("p", "n1"),
            0,
            0,
            "patch p NotReadyForScheduling on \"n1\"",
        ),
        ("a binding", bind("p", "n1"), 0, 0, "bind p n1"),
        ("a deletion", delete("p"), 0, 0, "delete p"),
    ] {
        let mut desk = desk();
        let first = desk.delayed(says("p", NOT_READY), 5);
        desk.shows(pod("p"));
        desk.advance(3_000);
        desk.delayed(second, delay);
        assert_eq!(desk.told(first), Some(true), "{situation}");
        if sent_after > 0 {
            desk.advance(sent_after - 1);
            assert_eq!(desk.send(), NONE, "{situation}: the first deadline holds");
            desk.advance(1);
        }
        assert_eq!(desk.send(), [sent], "{situation}");
        assert_eq!(desk.dispatcher.next_wake(), None, "{situation}");
    }
}

/// D-24: what may go at once is not held back by a later call that may not.
#[test]
fn a_delayed_call_does_not_hold_back_an_earlier_one() {
    let mut desk = desk();
    desk.call(nominate("p", "n1"));
    desk.delayed(says("p", NOT_READY), 5);
    assert_eq!(desk.send(), ["patch p NotReadyForScheduling on \"n1\""]);
}

/// D-27, Q-104, case 168: a rejection that passes within 5 s writes nothing at all.
#[test]
fn a_rejection_that_passes_in_time_writes_nothing() {
    let mut desk = desk();
    let rejected = desk.delayed(says("p", NOT_READY), 5);
    desk.shows(pod("p"));
    desk.advance(2_000);
    let passed = desk.delayed(clear("p"), 5);
    assert_eq!(
        (desk.end_of(rejected).as_str(), desk.end_of(passed).as_str()),
        (text::SAME_TYPE, text::NO_EFFECT)
    );
    desk.advance(60_000);
    assert_eq!(desk.send(), NONE);
    assert!(desk.dispatcher.is_empty());
}

/// D-27, Q-104, case 169: a rejection that was written is cleared after 5 s, unless something is written before.
#[test]
fn a_rejection_that_was_written_is_cleared() {
    for (situation, before, sent) in [
        ("nothing comes before", None, "clear p"),
        (
            "a cycle fails",
            Some(says("p", "Unschedulable")),
            "patch p Unschedulable",
        ),
        (
            "it is nominated",
            Some(nominate("p", "n1")),
            "clear p on \"n1\"",
        ),
        ("it is bound", Some(bind("p", "n1")), "bind p n1"),
    ] {
        for seen in [true, false] {
            let mut desk = desk();
            let rejected = desk.delayed(says("p", NOT_READY), 5);
            desk.shows(pod("p"));
            desk.advance(5_000);
            desk.send();
            desk.answer(rejected, Ok(()));
            if seen {
                desk.shows(pod_that_says("p", NOT_READY));
            }
            let cleared = desk.delayed(clear("p"), 5);
            desk.shows(if seen {
                pod_that_says("p", NOT_READY)
            } else {
                pod("p")
            });
            assert_eq!(
                desk.end_of(cleared),
                "-",
                "{situation}: there is something to clear"
            );
            desk.advance(4_000);
            assert_eq!(desk.send(), NONE, "{situation}");
            match before.clone() {
                Some(call) => {
                    desk.call(call);
                }
                None => desk.advance(1_000),
            }
            assert_eq!(desk.send(), [sent], "{situation}, seen: {seen}");
        }
    }
}

/// D-25, Q-108, case 172.
#[test]
fn a_waiting_call_can_be_cancelled_and_one_on_its_way_cannot() {
    let mut desk = desk();
    let id = desk.delayed(says("p", NOT_READY), 5);
    let bindings = |call: &ApiCall| matches!(call, ApiCall::BindPod { .. });
    assert_eq!(desk.dispatcher.cancel(&key("uid-p"), bindings, desk.now), 0);
    assert_eq!(desk.end_of(id), "-");
    assert_eq!(desk.dispatcher.cancel(&key("uid-p"), |_| true, desk.now), 1);
    desk.look();
    assert_eq!(
        (desk.end_of(id).as_str(), desk.told(id)),
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

/// D-25, Q-108, case 172: nothing is sent about a pod that is gone.
#[test]
fn calls_about_what_is_gone_are_dropped() {
    for (situation, call, told) in [
        ("a report", says("p", NOT_READY), true),
        ("a binding has failed", bind("p", "n1"), false),
        ("a deletion has come about", delete("p"), true),
    ] {
        let mut desk = desk();
        let id = desk.delayed(call, 5);
        desk.dispatcher.forget("uid-p", desk.now);
        desk.look();
        assert_eq!(desk.told(id), Some(told), "{situation}");
        desk.advance(5_000);
        assert_eq!(desk.send(), NONE, "{situation}");
    }
    let mut desk = desk();
    let away = desk.call(bind("p", "n1"));
    desk.send();
    desk.dispatcher.forget("uid-p", desk.now);
    let late = desk.call(says("p", "Unschedulable"));
    assert_eq!(desk.end_of(late), text::GONE);
    desk.answer(away, error(CallErrorKind::Unavailable));
    assert_eq!(desk.end_of(away), "Unavailable", "it is not repeated");
    assert!(desk.dispatcher.is_empty());

    // After a gap a list may show it all the same: who is shown is there.
    let away = desk.call(bind("p", "n1"));
    desk.send();
    desk.dispatcher.forget("uid-p", desk.now);
    desk.shows(pod("p"));
    let late = desk.call(delete("p"));
    assert_eq!(desk.end_of(late), "-");
    desk.answer(away, error(CallErrorKind::Unavailable));
    assert_eq!(desk.send(), ["delete p"]);
}

/// D-26: a delayed call that waits for one on its way keeps its deadline.
#[test]
fn a_delayed_call_behind_one_on_its_way_has_its_own_time() {
    for (answered_after, left) in [(1_000, 4_000), (7_000, 0)] {
        let mut desk = desk();
        let away = desk.call(nominate("p", "n1"));
        desk.send();
        desk.delayed(says("p", NOT_READY), 5);
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
