//! The views of objects: the effects of updates on calls, and the effective pod.

use super::*;

const NONE: [&str; 0] = [];

fn pair(reason: &str, node: &str) -> (String, String) {
    (reason.to_owned(), node.to_owned())
}

/// D-17, cases 157, 158.
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
            statement("p", "Unschedulable"),
            pod_that_states("p", "Unschedulable").version(2),
            text::NO_EFFECT_AFTER_SYNC,
        ),
        (
            "it shows another condition",
            statement("p", "Unschedulable"),
            pod_that_states("p", "SchedulerError").version(2),
            "-",
        ),
        (
            "another scheduler bound the pod: our report is out of date",
            statement("p", "Unschedulable"),
            unchanged().on("n2"),
            text::NO_EFFECT_AFTER_SYNC,
        ),
        (
            "another scheduler bound it where we would",
            bind("p", "n2"),
            unchanged().on("n2"),
            "ok",
        ),
        (
            "another scheduler bound it elsewhere",
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
        assert_eq!(
            desk.notified(id),
            (end != "-").then_some(true),
            "{situation}"
        );
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

/// D-17, case 157: an update during the execution does not end the call, but reduces the calls that wait for it.
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

/// D-19: only changes are sent, and the change of the condition's status is computed from the latest version of the
/// server.
#[test]
fn a_call_is_sent_as_the_object_is_by_then() {
    let mut desk = desk();
    desk.call(statement("p", "Unschedulable"));
    desk.call(nominate("p", "n1"));
    desk.shows(pod_that_states("p", "SchedulerError").nominated("n1"));
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    let changes = desk.sent[0].1.condition("PodScheduled");
    let changes = changes.map(|c| c.status_changes);
    assert_eq!(
        changes,
        Some(false),
        "False before and after: the transition time stays"
    );
}

/// D-17: a write that has succeeded counts though no update shows it yet: taking it back is no call without effect.
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

/// D-17: the effective pod at every stage of a call's life.
#[test]
fn every_part_sees_what_our_calls_make_of_a_pod() {
    let mut desk = desk();
    let stored = || pod_that_states("p", "SchedulingGated");
    let id = desk.call(statement("p", "Unschedulable"));
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

/// D-17: another client overwrote the write at once, so no update shows it, and the server did not return its version.
/// The dispatcher assumes the write for 30 seconds, then forgets it.
#[test]
fn a_write_that_the_watch_never_shows_is_forgotten() {
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

/// D-17: a victim looks deleted as soon as that is decided, a bound pod lost its nomination with the binding, and a
/// report that is held back is not seen.
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

    desk.report(statement("q", "NotReadyForScheduling"));
    assert_eq!(desk.effective(pod("q")), pair("", ""));
    desk.advance(5_000);
    desk.send();
    assert_eq!(desk.effective(pod("q")), pair("NotReadyForScheduling", ""));
    desk.shows(pod("other"));
    assert_eq!(desk.send(), NONE);
}

/// D-17: a preemptor whose nomination is pending, failing and pending again still looks nominated.
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

/// One update of a pod: its version, and the node that it is nominated to.
type Update = (u64, &'static str);

/// D-17: the effective pod after updates, when its nomination to n1 was answered with version 7.
#[test]
fn a_write_counts_until_an_update_shows_its_version() {
    let cases: [(&str, &[Update], &str); 8] = [
        ("nothing comes", &[], "n1"),
        ("an earlier version", &[(6, "")], "n1"),
        ("one that was nominated before", &[(5, "n1"), (6, "")], "n1"),
        ("its version", &[(7, "n1")], "n1"),
        ("its version, then another", &[(7, "n1"), (8, "n2")], "n2"),
        ("another scheduler was faster", &[(8, "n2")], "n2"),
        ("another client reverted it", &[(8, "")], ""),
        ("numbers, not letters", &[(10, "")], ""),
    ];
    for (situation, updates, expected) in cases {
        for answered_first in [true, false] {
            let mut desk = desk();
            let id = desk.call(nominate("p", "n1"));
            desk.shows(pod("p").version(4));
            desk.send();
            if answered_first {
                desk.answer(id, Ok(Response::written("7")));
            }
            for (version, node) in updates {
                desk.shows(pod("p").version(*version).nominated(node));
            }
            if !answered_first {
                desk.answer(id, Ok(Response::written("7")));
            }
            let (version, node) = updates.last().copied().unwrap_or((4, ""));
            let stored = pod("p").version(version).nominated(node);
            let what = format!("{situation}, answered first: {answered_first}");
            assert_eq!(desk.effective(stored), pair("", expected), "{what}");
            let remembered = !desk.dispatcher.writes("uid-p").is_empty();
            assert_eq!(remembered, version < 7, "{what}");
            assert_eq!(desk.dispatcher.next_wake().is_some(), version < 7, "{what}");
        }
    }
}

/// D-17: a nomination is set, cleared, and set again. An update that shows the first write looks like the last one, but
/// does not confirm it.
#[test]
fn an_update_that_shows_an_earlier_write_is_not_taken_for_a_later_one() {
    let mut desk = desk();
    for (node, version) in [("n1", "5"), ("", "6"), ("n1", "7")] {
        desk.call(nominate("p", node));
        desk.shows(pod("p").version(4));
        desk.send();
        desk.answer_first(Ok(Response::written(version)));
    }
    for (version, node) in [(5, "n1"), (6, ""), (7, "n1")] {
        let stored = || pod("p").version(version).nominated(node);
        desk.shows(stored());
        assert_eq!(desk.effective(stored()), pair("", "n1"), "{version}");
    }
    assert_eq!(desk.dispatcher.next_wake(), None);
}

/// D-17: condition and nomination were written by two calls, and each ends by itself.
#[test]
fn every_write_ends_with_its_own_version() {
    let mut desk = desk();
    desk.call(statement("p", "Unschedulable"));
    desk.shows(pod("p").version(4));
    desk.send();
    desk.answer_first(Ok(Response::written("5")));
    desk.call(nominate("p", "n1"));
    desk.send();
    desk.answer_first(Ok(Response::written("7")));
    assert_eq!(desk.effective(pod("p")), pair("Unschedulable", "n1"));
    let stored = || pod_that_states("p", "Other").version(6);
    desk.shows(stored());
    assert_eq!(desk.effective(stored()), pair("Other", "n1"));
    let stored = || pod_that_states("p", "Other").version(8);
    desk.shows(stored());
    assert_eq!(desk.effective(stored()), pair("Other", ""));
}

/// D-17: versions that are no numbers cannot be ordered. The write ends when the pod looks like it, or after a while.
#[test]
fn versions_that_are_no_numbers_are_not_compared() {
    let version = |version: &str, node: &str| {
        let version = Str::from(version);
        pod("p")
            .nominated(node)
            .with(|p| p.metadata.resource_version = version)
    };
    for (situation, answered, shown, remembered) in [
        ("the answer is none", "b", version("8", ""), true),
        ("the update is none", "7", version("c", ""), true),
        ("it looks like it", "b", version("c", "n1"), false),
        ("both are numbers", "7", version("8", ""), false),
    ] {
        let mut desk = desk();
        let id = desk.call(nominate("p", "n1"));
        desk.shows(version("1", ""));
        desk.send();
        desk.answer(id, Ok(Response::written(answered)));
        desk.shows(shown);
        let is = !desk.dispatcher.writes("uid-p").is_empty();
        assert_eq!(is, remembered, "{situation}");
    }
}

/// D-17: updates of a watch that is far behind do not drop the known later writes. The time limit ends them at last.
#[test]
fn a_write_of_a_known_version_outlasts_a_slow_watch() {
    for (answer, seconds) in [
        (Ok(Response::default()), 30),
        (Ok(Response::written("7")), 600),
    ] {
        let mut desk = desk();
        let id = desk.call(nominate("p", "n1"));
        desk.shows(pod("p").version(4));
        desk.send();
        desk.answer(id, answer);
        let wake = desk.now + Duration::from_secs(seconds);
        assert_eq!(desk.dispatcher.next_wake(), Some(wake));
        desk.advance(seconds * 1000 - 1);
        assert_eq!(desk.dispatcher.expire(desk.now), Vec::<Str>::new());
        assert_eq!(desk.effective(pod("p")), pair("", "n1"), "{seconds} s");
        desk.advance(1);
        assert_eq!(desk.dispatcher.expire(desk.now), ["uid-p"]);
        assert_eq!(desk.effective(pod("p")), pair("", ""), "{seconds} s");
        desk.look();
    }
}

/// D-17: a deleted victim counts as terminating, whatever version an update shows, until an update shows the deletion:
/// servers may answer with the version before.
#[test]
fn a_deletion_counts_until_an_update_shows_it() {
    let mut desk = desk();
    let id = desk.call(delete("p"));
    desk.shows(pod("p").version(4));
    desk.send();
    desk.answer(id, Ok(Response::written("7")));
    let is_leaving = |desk: &Desk, stored: PodBuilder| {
        let pod = desk.dispatcher.effective(&stored.arc());
        pod.is_terminating()
    };
    for version in [6, 7, 8] {
        desk.shows(pod("p").version(version));
        assert!(is_leaving(&desk, pod("p").version(version)), "{version}");
    }
    let now = desk.now;
    desk.shows(pod("p").version(9).deleting(now));
    assert!(desk.dispatcher.writes("uid-p").is_empty());
    assert_eq!(desk.dispatcher.next_wake(), None);
}
