//! How objects look: informer updates (D-17, 9.9 #157, #158) and the effective pod.

use super::*;

const NONE: [&str; 0] = [];

fn pair(reason: &str, node: &str) -> (String, String) {
    (reason.to_owned(), node.to_owned())
}

/// D-17; 9.9 #157, #158.
#[test]
fn an_update_may_make_a_waiting_call_needless() {
    let unchanged = || pod("p").version(2);
    for (situation, call, update, end) in [
        ("nothing new", nominate("p", "n1"), unchanged(), "-"),
        (
            "it shows what we wanted",
            nominate("p", "n1"),
            unchanged().nominated("n1"),
            text::NO_EFFECT_AFTER_SYNC,
        ),
        (
            "it shows the condition",
            says("p", "Unschedulable"),
            pod_that_says("p", "Unschedulable").version(2),
            text::NO_EFFECT_AFTER_SYNC,
        ),
        (
            "it shows another condition",
            says("p", "Unschedulable"),
            pod_that_says("p", "SchedulerError").version(2),
            "-",
        ),
        (
            "somebody bound the pod: what we have to say of it is out of date",
            says("p", "Unschedulable"),
            unchanged().on("n2"),
            text::NO_EFFECT_AFTER_SYNC,
        ),
        (
            "somebody bound it where we would",
            bind("p", "n2"),
            unchanged().on("n2"),
            "ok",
        ),
        (
            "somebody bound it elsewhere",
            bind("p", "n1"),
            unchanged().on("n2"),
            "-",
        ),
    ] {
        let mut desk = desk();
        let id = desk.call(call);
        desk.shows(pod("p"));
        assert_eq!(desk.end_of(id), "-", "{situation}");
        desk.shows(update);
        assert_eq!(desk.end_of(id), end, "{situation}");
        assert_eq!(desk.told(id), (end != "-").then_some(true), "{situation}");
        assert_eq!(
            desk.dispatcher.len(),
            usize::from(end == "-"),
            "{situation}"
        );
    }
    let mut desk = desk();
    desk.shows(pod("unknown"));
    let stored = pod("unknown").arc();
    let effective = desk.dispatcher.effective(&stored);
    assert!(
        Arc::ptr_eq(&effective, &stored),
        "the same object, not a copy"
    );
}

/// 9.9 #157: an update during the execution does not end the call, but what waits behind it is cut to it.
#[test]
fn an_update_during_the_call_leaves_it_alone() {
    let mut desk = desk();
    let id = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.shows(pod("p").version(2).nominated("n1"));
    assert_eq!(desk.end_of(id), "-");
    assert_eq!(
        desk.effective(pod("p")),
        pair("", "n1"),
        "the call is on its way"
    );
    desk.answer(id, Ok(()));
    assert_eq!(desk.end_of(id), "ok");
}

/// Only what changes is sent, and whether the status changes is worked out from what the server has by then.
#[test]
fn a_call_is_sent_as_the_object_is_by_then() {
    let mut desk = desk();
    desk.call(says("p", "Unschedulable"));
    desk.call(nominate("p", "n1"));
    desk.shows(pod_that_says("p", "SchedulerError").nominated("n1"));
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    let ApiCall::PatchPodStatus { condition, .. } = &desk.sent[0].1 else {
        panic!("{:?}", desk.sent);
    };
    let changes = condition.as_ref().map(|c| c.status_changes);
    assert_eq!(
        changes,
        Some(false),
        "False before and after: the transition time stays"
    );
}

/// A write that has succeeded counts though no update shows it yet: taking it back is no call without effect.
#[test]
fn what_was_written_counts_before_it_is_seen() {
    let mut desk = desk();
    let set = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(set, Ok(()));
    let again = desk.call(nominate("p", "n1"));
    assert_eq!(desk.end_of(again), text::NO_EFFECT, "it is there already");
    let unset = desk.call(nominate("p", ""));
    assert_eq!(desk.end_of(unset), "-");
    assert_eq!(desk.send(), ["patch p on \"\""]);
    desk.answer(unset, Ok(()));
    assert_eq!(
        desk.effective(pod("p").version(2).nominated("n1")),
        pair("", "")
    );
}

/// The effective pod at every stage of a call's life.
#[test]
fn everybody_sees_what_our_calls_make_of_a_pod() {
    let mut desk = desk();
    let stored = || pod_that_says("p", "SchedulingGated");
    let id = desk.call(says("p", "Unschedulable"));
    desk.shows(stored());
    assert_eq!(
        desk.effective(stored()),
        pair("Unschedulable", ""),
        "waiting"
    );
    desk.send();
    let second = desk.call(nominate("p", "n1"));
    assert_eq!(
        desk.effective(stored()),
        pair("Unschedulable", "n1"),
        "on its way, and waiting"
    );
    desk.answer(id, error(CallErrorKind::Refused));
    assert_eq!(
        desk.effective(stored()),
        pair("SchedulingGated", "n1"),
        "a failed write never happened"
    );
    desk.send();
    desk.answer(second, Ok(()));
    assert_eq!(
        desk.effective(stored()),
        pair("SchedulingGated", "n1"),
        "succeeded, not seen"
    );
    desk.shows(stored().version(2));
    assert_eq!(
        desk.effective(stored()),
        pair("SchedulingGated", "n1"),
        "an update too early to show it"
    );
    desk.shows(stored().version(3).nominated("n1"));
    assert_eq!(
        desk.effective(stored()),
        pair("SchedulingGated", ""),
        "seen: the API decides again"
    );
    assert_eq!(desk.dispatcher.next_wake(), None);
}

/// Somebody else overwrote our write at once, so no update ever shows it: it is believed for a while, not for ever.
#[test]
fn a_write_that_nobody_sees_is_forgotten() {
    let mut desk = desk();
    let id = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(id, Ok(()));
    desk.shows(pod("p").version(3));
    let wake = desk.dispatcher.next_wake();
    assert_eq!(wake, Some(desk.now + Duration::from_secs(30)));
    desk.advance(29_999);
    assert_eq!(desk.dispatcher.expire(desk.now), Vec::<Str>::new());
    assert_eq!(desk.effective(pod("p")), pair("", "n1"));
    desk.advance(1);
    assert_eq!(desk.dispatcher.expire(desk.now), ["uid-p"]);
    assert_eq!(desk.effective(pod("p")), pair("", ""));
    desk.look();
    assert_eq!(desk.dispatcher.next_wake(), None);
}

/// A victim looks deleted as soon as that is decided, a bound pod lost its nomination with the binding, and a report
/// that is held back is not seen.
#[test]
fn deletions_bindings_and_reports_in_the_effective_pod() {
    let mut desk = desk();
    desk.call(delete("victim"));
    let victim = desk.dispatcher.effective(&pod("victim").arc());
    assert_eq!(victim.metadata.deletion_timestamp, Some(desk.now));
    assert!(victim.condition("DisruptionTarget").is_some());

    let nominated = desk.call(nominate("p", "n1"));
    desk.send();
    desk.answer(nominated, Ok(()));
    desk.shows(pod("p").version(2).on("n1"));
    assert_eq!(desk.effective(pod("p").on("n1")), pair("", ""));

    desk.delayed(says("q", "NotReadyForScheduling"), 5);
    assert_eq!(desk.effective(pod("q")), pair("", ""));
    desk.advance(5_000);
    desk.send();
    assert_eq!(desk.effective(pod("q")), pair("NotReadyForScheduling", ""));
    desk.shows(pod("other"));
    assert_eq!(desk.send(), NONE);
}

/// Issue 4: a preemptor whose nomination is pending, failing and pending again still looks nominated.
#[test]
fn a_nomination_is_seen_while_its_write_is_repeated() {
    let mut desk = desk();
    let id = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    for _ in 0..3 {
        desk.send();
        assert_eq!(desk.effective(pod("p")), pair("", "n1"));
        desk.answer(id, error(CallErrorKind::Conflict));
        assert_eq!(desk.effective(pod("p")), pair("", "n1"));
        desk.advance(1_000);
    }
    desk.send();
    desk.answer(id, error(CallErrorKind::Conflict));
    assert_eq!(desk.effective(pod("p")), pair("", ""), "given up");
}
