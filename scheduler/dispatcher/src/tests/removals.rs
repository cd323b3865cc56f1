//! The removal of reports of PreEnqueue plugins (KEP-5501) when a pod is admitted: the version for which it is valid,
//! and its result.

use super::*;
use berth_framework::condition::NOT_READY_FOR_SCHEDULING as NOT_READY;

const NONE: [&str; 0] = [];

/// the removal of a report has no response, and the pod is rejected again for the same reason, before or after
/// the failure. The watch shows the old report still. The removal is repeated, and the new report is not lost.
#[test]
fn a_rejection_after_a_removal_without_response_is_reported() {
    for is_rejected_first in [true, false] {
        let mut desk = desk();
        desk.shows(pod_that_states("p", NOT_READY));
        desk.report(clear("p"));
        desk.advance(5_000);
        assert_eq!(desk.send(), ["clear p"]);
        if is_rejected_first {
            desk.report(statement("p", NOT_READY));
            desk.answer_first(error(CallErrorKind::Timeout));
        } else {
            desk.answer_first(error(CallErrorKind::Timeout));
            desk.report(statement("p", NOT_READY));
        }
        desk.advance(4_999);
        assert_eq!(desk.send(), ["clear p"], "{is_rejected_first}");
        desk.answer_first(error(CallErrorKind::Timeout));
        desk.advance(1_000);
        assert_eq!(desk.send(), ["clear p"], "{is_rejected_first}");
        desk.answer_first(Ok(()));
        assert_eq!(desk.send(), ["patch p NotReadyForScheduling"]);
    }
    // Admitted again, so the new rejection is not reported.
    let mut desk = desk();
    desk.shows(pod_that_states("p", NOT_READY));
    desk.report(clear("p"));
    desk.advance(5_000);
    desk.send();
    desk.answer_first(error(CallErrorKind::Timeout));
    desk.report(statement("p", NOT_READY));
    desk.report(clear("p"));
    desk.advance(5_000);
    assert_eq!(desk.send(), ["clear p"]);
    desk.answer_first(Ok(()));
    desk.advance(5_000);
    assert_eq!(desk.send(), NONE);
}

/// D-27, Q-104, case 169: a rejection that was written is cleared after 5 s, unless something is written before.
#[test]
fn a_rejection_that_was_written_is_cleared() {
    for (situation, before, sent) in [
        ("nothing comes before", None, "clear p"),
        (
            "a cycle fails",
            Some(statement("p", "Unschedulable")),
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
            desk.report(statement("p", NOT_READY));
            desk.shows(pod("p"));
            desk.advance(5_000);
            desk.send();
            desk.answer_first(Ok(()));
            let shown = || {
                if seen {
                    pod_that_states("p", NOT_READY)
                } else {
                    pod("p")
                }
            };
            desk.shows(shown());
            desk.report(clear("p"));
            desk.shows(shown());
            assert!(desk.waiting_report().is_some(), "{situation}");
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

/// A report on the wire, for the version of the pod that it holds for.
fn sent_removal(desk: &mut Desk) -> String {
    let sent = desk.send();
    assert_eq!(sent, ["clear p"]);
    match desk.sent.last() {
        Some((
            _,
            ApiCall::ClearPreEnqueueStatus {
                resource_version: Some(version),
                ..
            },
        )) => version.to_string(),
        other => panic!("{other:?}"),
    }
}

/// D-27: the removal of a report is valid for one version of the pod. If the pod has a later version, the removal is
/// decided again when that version is shown.
#[test]
fn a_report_is_removed_from_the_version_that_has_it() {
    let states = |reason: &str| pod_that_states("p", reason);
    let bound = pod("p").on("n1").condition("PodScheduled", "True", "", "");
    for (situation, shown, removed_from) in [
        ("the pod still has the report", states(NOT_READY), Some("8")),
        (
            "a cycle has written its result",
            states("Unschedulable"),
            None,
        ),
        ("the pod was bound", bound, None),
    ] {
        let mut desk = desk();
        desk.call(clear("p"));
        desk.shows(states(NOT_READY).version(7));
        assert_eq!(sent_removal(&mut desk), "7", "{situation}");
        desk.answer_first(error(CallErrorKind::Conflict));
        desk.advance(29_000);
        assert_eq!(desk.send(), NONE, "{situation}");
        // A list shows the same version again.
        desk.shows(states(NOT_READY).version(7));
        assert_eq!(desk.send(), NONE, "{situation}");
        desk.shows(shown.version(8));
        match removed_from {
            Some(version) => assert_eq!(sent_removal(&mut desk), version, "{situation}"),
            None => assert_eq!(desk.send(), NONE, "{situation}"),
        }
        assert_eq!(desk.dispatcher.is_empty(), removed_from.is_none());
    }
}

/// D-27: the effect of our calls on the pod is known before the watch shows it.
#[test]
fn a_report_is_removed_from_the_version_that_the_report_made() {
    let mut desk = desk();
    desk.call(statement("p", NOT_READY));
    desk.shows(pod("p").version(7));
    desk.send();
    desk.answer_first(Ok(Response::written("9")));
    desk.call(clear("p"));
    assert_eq!(sent_removal(&mut desk), "9");
}

/// D-17, D-27: the removal of a report with an unknown result removes any condition of the pod. Until that is shown,
/// the pod has no condition, and the result of the next cycle is written again.
#[test]
fn a_removal_also_removes_an_older_condition() {
    let mut desk = desk();
    let stored = || pod_that_states("p", "Unschedulable").version(4);
    desk.call(statement("p", NOT_READY));
    desk.shows(stored());
    desk.send();
    desk.answer_first(error(CallErrorKind::Timeout));
    desk.call(clear("p"));
    desk.advance(1_000);
    assert_eq!(desk.send(), ["clear p"]);
    desk.answer_first(Ok(Response::written("6")));
    assert_eq!(desk.effective(stored()), (String::new(), String::new()));
    desk.call(statement("p", "Unschedulable"));
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    // A conflict does not make it needless.
    desk.answer_first(error(CallErrorKind::Conflict));
    desk.advance(1_000);
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
}

/// D-27: no other status waits for the update, and without one the removal is repeated after 30 s.
#[test]
fn a_removal_for_an_earlier_version_delays_no_other_status() {
    let conflict = || {
        let mut desk = desk();
        desk.call(clear("p"));
        desk.shows(pod_that_states("p", NOT_READY).version(7));
        desk.send();
        desk.answer_first(error(CallErrorKind::Conflict));
        assert_eq!(desk.send(), NONE);
        desk
    };
    let mut desk = conflict();
    desk.call(statement("p", "Unschedulable"));
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    // The pod is rejected again: the nomination that was written with the removal does not wait.
    let mut desk = conflict();
    desk.call(nominate("p", "n1"));
    assert_eq!(desk.send(), NONE);
    desk.report(statement("p", "SchedulingGated"));
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
    let mut desk = conflict();
    desk.advance(30_000);
    assert_eq!(sent_removal(&mut desk), "7");
}
