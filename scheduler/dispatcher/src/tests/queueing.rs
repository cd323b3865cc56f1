//! The queueing, sending and ending of calls: identities, types, ends, and the limit of calls in flight.

use super::*;
use berth_framework::write::{POD_BINDING, POD_DELETION, POD_STATUS_PATCH};

const NONE: [&str; 0] = [];

/// A write to a claim with this UID.
fn select(uid: &str) -> ApiCall {
    let json = format!(
        r#"{{"metadata":{{"name":"claim","namespace":"default","uid":"{uid}","resourceVersion":"1"}}}}"#
    );
    let claim = Kind::PersistentVolumeClaim.decode(json.as_bytes());
    annotate(&claim.expect("a claim"), "selected-node", "n1").into()
}

/// D-2, D-3: the call types, their names and their relevance. Calls for different kinds of objects never compete, so
/// equal relevance is never ambiguous.
#[test]
fn types_of_calls_are_ordered_by_relevance() {
    for (call_type, name, relevance) in [
        (&POD_STATUS_PATCH, "pod_status_patch", 1),
        (&POD_BINDING, "pod_binding", 2),
        (&POD_DELETION, "pod_deletion", 3),
        (&VOLUME_UPDATE, "persistent_volume_update", 1),
        (&CLAIM_UPDATE, "persistent_volume_claim_update", 1),
    ] {
        let is = (call_type.name(), call_type.relevance());
        assert_eq!(is, (name, relevance));
    }
    for (call, name) in [
        (statement("p", "r"), "pod_status_patch"),
        (nominate("p", "n1"), "pod_status_patch"),
        (clear("p"), "pod_status_patch"),
        (bind("p", "n1"), "pod_binding"),
        (delete("p"), "pod_deletion"),
        (select("u"), "persistent_volume_claim_update"),
    ] {
        assert_eq!(call.call_type().name(), name);
    }
}

/// D-4: every call has an object, a kind, and a rule for similar calls. The caller receives the end of its call exactly
/// once, however it ends.
#[test]
fn every_call_keeps_the_contract() {
    let stored = || pod("p");
    let calls = [
        statement("p", "Unschedulable"),
        nominate("p", "n1"),
        clear("p"),
        bind("p", "n1"),
        delete("p"),
        select("uid-p"),
    ];
    for call in calls {
        let what = short(&call);
        let kind = call.object().kind;
        let key = call.key();
        assert_eq!((key.kind, key.uid.as_str()), (kind, "uid-p"), "{what}");
        assert_eq!(call.pod().is_some(), kind == Kind::Pod, "{what}");
        // The same again merges or joins: one is carried out, both end.
        let mut desk = desk();
        let ids = [desk.call(call.clone()), desk.call(call.clone())];
        assert_eq!(desk.dispatcher.pending().values().sum::<usize>(), 1);
        assert_eq!(desk.send().len(), 1, "{what}");
        desk.answer_first(Ok(()));
        for id in ids {
            assert_eq!(desk.notified(id), Some(true), "{what}");
        }
        assert!(desk.dispatcher.is_empty(), "{what}");
        // If the object shows all of it, it is not sent.
        let mut desk = self::desk();
        let id = desk.call(call.clone());
        let shown = match &call {
            ApiCall::BindPod { node, .. } => Some(stored().on(node)),
            ApiCall::PatchPodStatus { conditions, .. } if conditions.is_empty() => {
                Some(stored().nominated("n1"))
            }
            ApiCall::PatchPodStatus { .. } => Some(pod_that_states("p", "Unschedulable")),
            ApiCall::ClearPreEnqueueStatus { .. } => Some(stored()),
            ApiCall::DeletePod { .. } | ApiCall::Write(_) => None,
        };
        if let Some(shown) = shown {
            desk.shows(shown);
            assert_eq!(
                (desk.send(), desk.notified(id)),
                (vec![], Some(true)),
                "{what}"
            );
        }
    }
}

/// D-5: ids increase with every accepted call, whatever its result.
#[test]
fn calls_are_numbered_as_they_come() {
    let mut desk = desk();
    let ids = [
        desk.call(bind("p", "n1")),
        // Dropped at once.
        desk.call(statement("p", "Unschedulable")),
        desk.call(statement("q", "Unschedulable")),
        // Takes the place of that one.
        desk.call(bind("q", "n1")),
        // Joins.
        desk.call(bind("q", "n1")),
    ];
    assert_eq!(ids, [0, 1, 2, 3, 4].map(CallId));
    assert_eq!(desk.dispatcher.len(), 3);
    assert_eq!(desk.send(), ["bind p n1", "bind q n1"]);
}

/// D-6, D-9, D-14, cases 159, 160: a call waits, then is in flight; afterwards a newer call waits, or nothing is left.
#[test]
fn an_object_goes_from_state_to_state() {
    let state = |desk: &Desk| {
        let pending = desk.pending("pod_status_patch");
        let ready = desk.dispatcher.ready(Lane::Status);
        (pending, ready, desk.dispatcher.in_flight(Lane::Status))
    };
    let mut desk = desk();
    assert_eq!((state(&desk), desk.send()), ((0, 0, 0), vec![]));
    let first = desk.call(statement("p", "Unschedulable"));
    assert_eq!(state(&desk), (1, 1, 0), "waits");
    assert!(desk.dispatcher.has_calls_to_send());
    desk.call(nominate("p", "n1"));
    assert_eq!(state(&desk), (1, 1, 0), "merged: one place in line");
    desk.send();
    assert_eq!(state(&desk), (0, 0, 1), "on its way");
    assert_eq!(desk.end_of(first), text::SAME_TYPE);
    desk.call(statement("p", "SchedulerError"));
    assert_eq!(state(&desk), (1, 0, 1), "a newer one waits, in no line");
    desk.call(statement("other", "Unschedulable"));
    desk.answer_first(Ok(()));
    assert_eq!(state(&desk), (2, 2, 0), "waits again, at the end");
    assert_eq!(
        desk.send(),
        ["patch other Unschedulable", "patch p SchedulerError"]
    );
    desk.answer_first(Ok(()));
    desk.answer_first(Ok(()));
    assert_eq!(state(&desk), (0, 0, 0));
    assert!(desk.dispatcher.is_empty());
}

/// D-10, case 162: the result of a dropped call for its waiter: success for a status patch, which is outdated, and a
/// failure for any other call.
#[test]
fn a_dropped_call_ends_the_waits_for_it_with_a_result() {
    let dropped = [CallErrorKind::Skipped, CallErrorKind::Overwritten];
    for kind in dropped {
        assert!(kind.is_dropped());
        for (call, well) in [
            (statement("p", "Unschedulable"), true),
            (clear("p"), true),
            (bind("p", "n1"), false),
            (delete("p"), false),
            (select("u"), false),
        ] {
            let finished = Finished {
                id: CallId(0),
                result: error(kind),
                call,
                took: None,
            };
            assert_eq!(finished.for_waiter().is_ok(), well, "{finished:?}");
        }
    }
    for kind in [
        CallErrorKind::NotFound,
        CallErrorKind::Conflict,
        CallErrorKind::Unavailable,
        CallErrorKind::Timeout,
        CallErrorKind::Refused,
    ] {
        assert!(!kind.is_dropped());
        let finished = Finished {
            id: CallId(0),
            result: error(kind),
            call: statement("p", "Unschedulable"),
            took: None,
        };
        assert_eq!(finished.for_waiter(), error(kind), "failures are reported");
    }
}

/// D-11, D-12, D-16, cases 160, 165, 166: two calls may be in flight. The third waits until one has ended; if the
/// dispatcher closes before, it ends with an error. A slot that is free then stays free.
#[test]
fn the_limit_holds_until_the_dispatcher_closes() {
    let mut options = DispatcherOptions::for_in_flight(4);
    options.lanes.binding = LaneShare {
        reserved: 1,
        max: 2,
    };
    for close_while_full in [true, false] {
        let mut desk = desk_with(options);
        for name in ["a", "b", "c", "d"] {
            desk.call(bind(name, "n1"));
        }
        assert!(desk.dispatcher.has_calls_to_send());
        assert_eq!(desk.send(), ["bind a n1"], "one reserved, none to share");
        desk.answer_first(Ok(()));
        assert_eq!(desk.send(), ["bind b n1"]);
        assert!(!desk.dispatcher.has_calls_to_send(), "full");
        assert_eq!(desk.send(), NONE);
        if !close_while_full {
            desk.answer_first(Ok(()));
        }
        desk.dispatcher.close(desk.now);
        desk.look();
        assert_eq!(desk.send(), NONE);
        for id in [CallId(2), CallId(3)] {
            assert_eq!(desk.end_of(id), text::CLOSED);
        }
        if close_while_full {
            desk.answer_first(Ok(()));
        }
        assert_eq!(desk.end_of(CallId(1)), "ok", "what was on its way ends");
        assert!(desk.dispatcher.is_empty());
    }
}

/// D-13, D-15: a call ends before its waiter is notified, so a call made in response is sent at once. The dispatcher
/// continues even if no caller reads the results.
#[test]
fn a_call_is_over_before_its_end_is_reported() {
    let mut desk = desk();
    let first = desk.dispatcher.enqueue(bind("p", "n1"), desk.now);
    for (id, _) in desk.dispatcher.next_calls(desk.now) {
        desk.dispatcher
            .complete(id, error(CallErrorKind::Refused), desk.now);
    }
    assert!(desk.dispatcher.is_empty() && desk.dispatcher.has_finished());
    let second = desk
        .dispatcher
        .enqueue(statement("p", "SchedulerError"), desk.now);
    let sent = desk.dispatcher.next_calls(desk.now);
    assert_eq!(sent.len(), 1, "no caller has listened yet");
    desk.dispatcher.complete(second, Ok(()), desk.now);
    let ended: Vec<CallId> = desk
        .dispatcher
        .take_finished()
        .iter()
        .map(|f| f.id)
        .collect();
    assert_eq!(ended, [first, second], "in the order in which they ended");
    assert!(!desk.dispatcher.has_finished(), "reported once");
}

/// D-17, D-18: objects are identified by kind and UID. An object of another kind with the same UID, or an unknown
/// object, changes nothing.
#[test]
fn an_object_of_another_kind_is_not_taken_for_a_pod() {
    let mut desk = desk();
    let id = desk.call(nominate("p", "n1"));
    let json =
        r#"{"metadata":{"name":"p","namespace":"default","uid":"uid-p","resourceVersion":"9"}}"#;
    for kind in [Kind::PersistentVolumeClaim, Kind::PersistentVolume] {
        let object = kind.decode(json.as_bytes()).expect("an object");
        desk.dispatcher.sync_object(&object, desk.now);
        desk.dispatcher.forget_object(kind, "uid-p", desk.now);
    }
    desk.shows(pod("unknown").nominated("n1"));
    assert_eq!(desk.end_of(id), "-");
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
}

/// D-14, case 161: an error ends the call and removes its state. The next call for the object is a new one.
#[test]
fn an_error_ends_a_call() {
    let mut desk = desk();
    let id = desk.call(statement("p", "Unschedulable"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(id, error(CallErrorKind::Refused));
    assert_eq!(
        (desk.end_of(id).as_str(), desk.notified(id)),
        ("Refused", Some(false))
    );
    assert_eq!((desk.send(), desk.dispatcher.next_wake()), (vec![], None));
    assert_eq!(desk.dispatcher.counts().retried, 0);
    assert!(
        desk.dispatcher.writes("uid-p").is_empty(),
        "nothing was written"
    );
    let next = desk.call(statement("p", "Unschedulable"));
    assert_eq!(desk.send(), ["patch p Unschedulable"]);
    desk.answer(next, Ok(()));
    assert_eq!(desk.end_of(next), "ok");
}

/// A call can have its ID before it is passed on. No other call has this ID.
#[test]
fn a_call_keeps_the_id_that_it_was_given_before() {
    let mut d = desk();
    let id = d.dispatcher.ids().take();
    let other = d.dispatcher.enqueue(bind("q", "n1"), d.now);
    d.dispatcher.enqueue_as(id, bind("p", "n1"), d.now);
    let calls = d.dispatcher.next_calls(d.now);
    let mut calls: Vec<(CallId, String)> = calls.iter().map(|(id, c)| (*id, short(c))).collect();
    calls.sort_unstable();
    let expected = [
        (id, "bind p n1".to_owned()),
        (other, "bind q n1".to_owned()),
    ];
    assert_eq!(calls, expected);
}
