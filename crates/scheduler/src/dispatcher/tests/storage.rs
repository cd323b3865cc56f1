//! Writes of claims and volumes: their lane, their retries, and what becomes of them when the object is seen.

use super::*;
use CallErrorKind::{Conflict, NotFound, Refused, Timeout, Unavailable};
use berth_api::Object;
use berth_framework::storage::StorageWrite;

fn object(kind: Kind, json: &str) -> Object {
    kind.decode(json.as_bytes()).expect("an object")
}

/// A claim of this version for which a volume is to be made on a node; empty for none.
fn claim(version: u64, node: &str) -> Object {
    let annotations = if node.is_empty() {
        String::new()
    } else {
        format!(r#","annotations":{{"volume.kubernetes.io/selected-node":"{node}"}}"#)
    };
    let json = format!(
        r#"{{"metadata":{{"name":"p","namespace":"default","uid":"uid-p","resourceVersion":"{version}"{annotations}}}}}"#
    );
    object(Kind::PersistentVolumeClaim, &json)
}

/// Selects a node for version 1 of the claim.
fn select(node: &str) -> ApiCall {
    let claim = claim(1, "");
    let claim = claim.as_persistent_volume_claim().expect("a claim");
    let write = StorageWrite::select_node(claim, &node.into());
    ApiCall::UpdateStorage(write.expect("a write"))
}

fn give() -> ApiCall {
    let json = r#"{"metadata":{"name":"v","uid":"uid-p","resourceVersion":"1"}}"#;
    let volume = object(Kind::PersistentVolume, json);
    let claim = claim(1, "");
    let write = StorageWrite::give(
        volume.as_persistent_volume().expect("a volume"),
        claim.as_persistent_volume_claim().expect("a claim"),
    );
    ApiCall::UpdateStorage(write.expect("a write"))
}

/// D-3, D-5: one call per object: a claim, a volume and a pod are three, whatever their UIDs.
#[test]
fn kinds_do_not_get_in_each_others_way() {
    let mut desk = desk();
    let calls = [
        desk.call(select("n1")),
        desk.call(give()),
        desk.call(bind("p", "n1")),
    ];
    assert_eq!(desk.pending("persistent_volume_update"), 1);
    assert_eq!(desk.pending("persistent_volume_claim_update"), 1);
    assert_eq!(desk.send(), ["bind p n1", "write p", "write v"]);
    assert_eq!(desk.dispatcher.in_flight(Lane::Storage), 2);
    for _ in 0..3 {
        desk.answer_first(Ok(()));
    }
    assert_eq!(calls.map(|id| desk.end_of(id)), ["ok", "ok", "ok"]);
    assert!(desk.dispatcher.is_empty());
}

/// D-11: a burst of status patches never holds up a write that a binding waits for, and the other way round.
#[test]
fn writes_have_a_lane_of_their_own() {
    let options = DispatcherOptions::for_in_flight(8);
    let mut desk = desk_with(options);
    for i in 0..20 {
        desk.call(says(&format!("p{i}"), "Unschedulable"));
    }
    desk.call(select("n1"));
    let sent = desk.send();
    assert_eq!(sent[0], "write p", "{sent:?}");
    assert_eq!(desk.dispatcher.in_flight(Lane::Storage), 1);
}

/// D-14.
#[test]
fn failures_that_pass_are_repeated() {
    for (kind, repeated) in [
        (Unavailable, true),
        (Timeout, true),
        (Conflict, false),
        (NotFound, false),
        (Refused, false),
    ] {
        let mut desk = desk();
        let id = desk.call(select("n1"));
        desk.send();
        desk.answer_first(error(kind));
        desk.advance(100);
        let sent = desk.send();
        assert_eq!(!sent.is_empty(), repeated, "{kind:?}: {sent:?}");
        assert_eq!(desk.told(id), (!repeated).then_some(false), "{kind:?}");
    }
}

/// D-14: the first attempt was carried out and its answer lost: the second one is refused for the version that it made.
#[test]
fn a_write_that_was_carried_out_after_all_has_succeeded() {
    for (situation, seen, after, told) in [
        ("seen before the refusal", Some("n1"), None, Some(true)),
        ("seen after the refusal", None, Some("n1"), Some(true)),
        ("somebody else's", Some("n2"), None, None),
    ] {
        let mut desk = desk();
        let id = desk.call(select("n1"));
        desk.send();
        desk.answer_first(error(Timeout));
        desk.advance(100);
        desk.send();
        let see = |desk: &mut Desk, node: Option<&str>| {
            if let Some(node) = node {
                desk.dispatcher.sync_object(&claim(2, node), desk.now);
                desk.look();
            }
        };
        see(&mut desk, seen);
        desk.answer_first(error(Conflict));
        see(&mut desk, after);
        assert_eq!(desk.told(id), told, "{situation}");
    }
}

/// D-17, D-25: calls that were not sent: what was wanted is there, the claim is gone, or nobody wants it any more.
#[test]
fn what_has_become_needless_is_not_sent() {
    type Act = fn(&mut Desk, &ApiCall);
    let cases: [(&str, Act, &str); 3] = [
        (
            "there already",
            |desk, _| desk.dispatcher.sync_object(&claim(2, "n1"), desk.now),
            "ok",
        ),
        (
            "gone",
            |desk, _| {
                let kind = Kind::PersistentVolumeClaim;
                desk.dispatcher.forget_object(kind, "uid-p", desk.now);
            },
            text::GONE,
        ),
        (
            "cancelled",
            |desk, call| {
                let cancelled = desk.dispatcher.cancel(&call.key(), |c| c == call, desk.now);
                assert_eq!(cancelled, 1);
            },
            text::CANCELLED,
        ),
    ];
    for (situation, act, end) in cases {
        let mut desk = desk();
        let call = select("n1");
        let id = desk.call(call.clone());
        act(&mut desk, &call);
        desk.look();
        assert_eq!(desk.send(), Vec::<String>::new(), "{situation}");
        assert_eq!(desk.end_of(id), end, "{situation}");
        assert_eq!(desk.told(id), Some(end == "ok"), "{situation}");
    }
}

/// D-7: the pod is tried again while its first write is on its way: one result for both. Another node is another write.
#[test]
fn equal_writes_share_one_call() {
    let mut desk = desk();
    let first = desk.call(select("n1"));
    desk.send();
    let second = desk.call(select("n1"));
    let other = desk.call(select("n2"));
    assert_eq!(desk.send(), Vec::<String>::new(), "one at a time");
    desk.answer_first(Ok(()));
    assert_eq!([first, second].map(|id| desk.end_of(id)), ["ok", "ok"]);
    assert_eq!(desk.send(), ["write p"]);
    desk.answer_first(error(Conflict));
    assert_eq!(desk.told(other), Some(false));
}
