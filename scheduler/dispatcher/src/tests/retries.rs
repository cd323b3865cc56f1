//! Failures: the retried ones, the number of retries, and the effect on newer calls.

use super::*;
use CallErrorKind::{Conflict, NotFound, Refused, Timeout, Unavailable};

const NONE: [&str; 0] = [];

/// Answers every attempt with the same failure until none follows; how many there were, and after how many
/// milliseconds.
fn attempts_until_given_up(desk: &mut Desk, failure: &CallResult) -> Vec<i64> {
    let began = desk.now;
    let mut attempts = Vec::new();
    for _ in 0..100 {
        if !desk.send().is_empty() {
            attempts.push(desk.now.as_millis() - began.as_millis());
            desk.answer_first(failure.clone());
        }
        match desk.dispatcher.next_wake() {
            Some(wake) => desk.now = wake,
            None => return attempts,
        }
        // A status that is offered again after all attempts is not repeated by the dispatcher.
        while desk.dispatcher.take_due_offer(desk.now).is_some() {}
    }
    panic!("it is repeated for ever: {attempts:?}");
}

/// D-14, D-19, cases 161, 164: passing failures are repeated within the budget, others not at all.
#[test]
fn which_failures_are_repeated() {
    let patch = statement("p", "Unschedulable");
    for (call, failure, attempts) in [
        (patch.clone(), Conflict, 4),
        (patch.clone(), Unavailable, 4),
        (patch.clone(), Timeout, 4),
        (patch.clone(), NotFound, 1),
        (patch, Refused, 1),
        (bind("p", "n1"), Unavailable, 8),
        (bind("p", "n1"), Conflict, 1),
        (bind("p", "n1"), NotFound, 1),
        (delete("p"), Conflict, 8),
        (delete("p"), Refused, 1),
    ] {
        let mut desk = desk();
        let what = format!("{} {failure:?}", short(&call));
        let id = desk.call(call);
        let made = attempts_until_given_up(&mut desk, &error(failure));
        assert_eq!(made.len(), attempts, "{what}: {made:?}");
        assert_eq!(desk.end_of(id), format!("{failure:?}"), "{what}");
        assert_eq!(desk.notified(id), Some(false), "{what}");
        let counts = desk.dispatcher.counts();
        assert_eq!(
            (counts.sent, counts.retried),
            (attempts as u64, attempts as u64 - 1)
        );
        assert!(desk.dispatcher.is_empty(), "{what}");
    }
}

/// D-19: the dispatcher waits for the time that the server requests (Retry-After), and every attempt still counts.
#[test]
fn the_pause_that_the_server_asks_for_is_made() {
    let mut desk = desk();
    let id = desk.call(statement("p", "Unschedulable"));
    let mut busy = CallError::new(Unavailable, "too many requests");
    busy.retry_after = Some(Duration::from_secs(3));
    let made = attempts_until_given_up(&mut desk, &Err(busy));
    assert_eq!(made.len(), 4, "{made:?}");
    for pair in made.windows(2) {
        let waited = pair[1] - pair[0];
        assert!((3000..=3300).contains(&waited), "{made:?}");
    }
    assert_eq!(desk.end_of(id), "too many requests");
}

/// D-19: 10 ms, 50 ms, 250 ms between the attempts, each up to a tenth longer; the same for the same seed.
#[test]
fn pauses_grow_and_come_from_the_seed() {
    let run = |seed| {
        let mut desk = desk_with(DispatcherOptions {
            seed,
            ..DispatcherOptions::default()
        });
        let id = desk.call(statement("p", "Unschedulable"));
        let made = attempts_until_given_up(&mut desk, &error(Unavailable));
        assert!(desk.ended[&id].took >= Some(Duration::from_millis(310)));
        made
    };
    let made = run(1);
    for (pair, pause) in made.windows(2).zip([10, 50, 250]) {
        let waited = pair[1] - pair[0];
        assert!(
            (pause..=pause + pause / 10 + 1).contains(&waited),
            "{made:?}"
        );
    }
    assert_eq!(run(1), made);
    assert!((2..20).any(|seed| run(seed) != made), "there is jitter");
}

/// D-14: a pause does not occupy a slot, and success after it is success.
#[test]
fn a_repeated_call_succeeds_once() {
    let mut desk = desk();
    let id = desk.call(bind("p", "n1"));
    desk.send();
    desk.answer(id, error(Unavailable));
    assert_eq!(desk.dispatcher.in_flight(Lane::Binding), 0);
    assert_eq!((desk.end_of(id).as_str(), desk.send()), ("-", vec![]));
    desk.advance(11);
    assert_eq!(desk.send(), ["bind p n1"]);
    desk.answer(id, Ok(()));
    assert_eq!(desk.end_of(id), "ok");
    assert!(desk.dispatcher.is_empty());
}

/// D-14: a newer call takes over the unfinished part of a failed one; a pause applies to both.
#[test]
fn a_newer_call_carries_on_a_failed_one() {
    for (situation, old, new, old_ends, sent, at_once) in [
        (
            "status patches merge",
            statement("p", "Unschedulable"),
            nominate("p", "n1"),
            text::SAME_TYPE,
            "patch p Unschedulable on \"n1\"",
            false,
        ),
        (
            "a binding takes precedence",
            statement("p", "Unschedulable"),
            bind("p", "n1"),
            text::MORE_RELEVANT,
            "bind p n1",
            true,
        ),
        (
            "a deletion takes precedence",
            bind("p", "n1"),
            delete("p"),
            text::MORE_RELEVANT,
            "delete p",
            true,
        ),
    ] {
        for newer_arrived_first in [true, false] {
            let mut desk = desk();
            let old = desk.call(old.clone());
            desk.shows(pod("p"));
            desk.send();
            if newer_arrived_first {
                desk.call(new.clone());
                desk.answer(old, error(Unavailable));
            } else {
                desk.answer(old, error(Unavailable));
                desk.call(new.clone());
            }
            assert_eq!(desk.end_of(old), old_ends, "{situation}");
            assert_eq!(desk.send().is_empty(), !at_once, "{situation}");
            if !at_once {
                desk.advance(11);
                assert_eq!(desk.send(), [sent], "{situation}");
            }
        }
    }
}

/// D-14: a status patch fails permanently while a newer one waits: the newer one is sent alone.
#[test]
fn a_call_that_fails_for_good_is_over() {
    let mut desk = desk();
    let old = desk.call(statement("p", "Unschedulable"));
    desk.send();
    desk.call(nominate("p", "n1"));
    desk.answer(old, error(Refused));
    assert_eq!(desk.end_of(old), "Refused");
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
}

/// D-19: a binding that may have been carried out is retried until that is known.
#[test]
fn a_binding_that_was_carried_out_after_all_has_succeeded() {
    // An update shows it during the pause.
    let mut desk = desk();
    let id = desk.call(bind("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(id, error(Timeout));
    desk.shows(pod("p").version(2).on("n1"));
    assert_eq!(desk.end_of(id), "ok");
    assert_eq!(desk.send(), NONE);

    // The second attempt is refused before the update arrives.
    let mut desk = self::desk();
    let id = desk.call(bind("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(id, error(Timeout));
    desk.advance(11);
    desk.send();
    desk.answer(id, error(Conflict));
    assert_eq!(desk.end_of(id), "-", "it may be our own");
    desk.shows(pod("p").version(2).on("n1"));
    assert_eq!(desk.end_of(id), "ok");

    // The update arrives while the second attempt is in flight.
    let mut desk = self::desk();
    let id = desk.call(bind("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(id, error(Unavailable));
    desk.advance(11);
    desk.send();
    desk.shows(pod("p").version(2).on("n1"));
    desk.answer(id, error(Conflict));
    assert_eq!(desk.end_of(id), "ok");

    // Another client bound the pod to another node.
    let mut desk = self::desk();
    let id = desk.call(bind("p", "n1"));
    desk.shows(pod("p").on("n2"));
    desk.send();
    desk.answer(id, error(Conflict));
    assert_eq!(
        (desk.end_of(id).as_str(), desk.notified(id)),
        ("Conflict", Some(false))
    );
}

/// Once an update shows that another scheduler was faster, nothing is sent again.
#[test]
fn a_binding_by_another_client_is_not_repeated() {
    for (situation, update_first, answer) in [
        ("seen during the pause", false, Timeout),
        ("seen before a lost answer", true, Timeout),
        ("seen before the server fails", true, Unavailable),
    ] {
        let mut desk = desk();
        let id = desk.call(bind("p", "n1"));
        desk.shows(pod("p"));
        desk.send();
        if update_first {
            desk.shows(pod("p").version(2).on("n2"));
        }
        desk.answer(id, error(answer));
        if !update_first {
            assert_eq!(desk.end_of(id), "-", "{situation}: not seen yet");
            desk.shows(pod("p").version(2).on("n2"));
        }
        assert_eq!(desk.notified(id), Some(false), "{situation}");
        desk.advance(60_000);
        assert_eq!(desk.send(), NONE, "{situation}");
    }
}

/// D-14, D-19: a status with the message that a pod has no node is not retried once the pod has one, even if the first
/// attempt may have been carried out. The rest of the call is retried.
#[test]
fn a_status_that_denies_a_binding_is_not_repeated() {
    let both = |name: &str| ApiCall::PatchPodStatus {
        pod: pod_ref(name),
        conditions: vec![condition("Unschedulable", "m")],
        nominated_node: Some("n2".into()),
    };
    for (situation, call, bound_first, repeated) in [
        (
            "seen during the pause",
            statement("p", "Unschedulable"),
            false,
            &NONE[..],
        ),
        (
            "seen before the server fails",
            statement("p", "Unschedulable"),
            true,
            &NONE[..],
        ),
        (
            "with a nomination",
            both("p"),
            false,
            &["patch p on \"n2\""][..],
        ),
    ] {
        let mut desk = desk();
        let id = desk.call(call);
        desk.shows(pod("p"));
        desk.send();
        let bound = pod("p").version(2).on("n1");
        if bound_first {
            desk.shows(bound.clone());
        }
        desk.answer(id, error(Unavailable));
        if !bound_first {
            desk.shows(bound);
        }
        let is_over = repeated.is_empty();
        assert_eq!(desk.end_of(id) != "-", is_over, "{situation}");
        desk.advance(60_000);
        assert_eq!(desk.send(), repeated, "{situation}");
    }
}

/// P-17: a victim that was deleted before its deletion is sent counts as deleted, also until the watch shows that. The
/// caller still receives the error.
#[test]
fn deleting_what_is_gone_succeeds() {
    for (answer, done) in [(NotFound, true), (Refused, false)] {
        let mut desk = desk();
        let calls = [desk.call(delete("p")), desk.call(delete("p"))];
        desk.send();
        desk.answer_first(error(answer));
        for call in calls {
            let finished = &desk.ended[&call];
            assert_eq!(finished.is_done(), done, "{answer:?}");
            let kind = finished.result.as_ref().map_err(|e| e.kind);
            assert_eq!(kind, Err(answer));
        }
        let seen = desk.dispatcher.effective(&pod("p").arc());
        assert_eq!(seen.is_terminating(), done, "{answer:?}");
    }
}
