//! Writes of objects other than pods: their types, lane and retries, and their end when the object is shown.

use super::*;
use CallErrorKind::{Conflict, NotFound, Refused, Timeout, Unavailable};
use berth_api::Object;
use berth_framework::write::{Action, Merge, MergeError, Write};
use serde_json::json;

/// Writes that are valid after each other, except after writes of `other`.
static SHARED: CallType =
    CallType::new("shared_claim_update", Kind::ResourceClaim).holding_after(|_, later| match later
        .action()
    {
        Action::Patch(body) => body["metadata"]["annotations"]["other"].is_null(),
        _ => false,
    });

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
    annotate(&claim(1, ""), "volume.kubernetes.io/selected-node", node).into()
}

fn give() -> ApiCall {
    let json = r#"{"metadata":{"name":"v","uid":"uid-p","resourceVersion":"1"}}"#;
    annotate(&object(Kind::PersistentVolume, json), "given-to", "p").into()
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
    assert_eq!(desk.dispatcher.in_flight(Lane::Write), 2);
    for _ in 0..3 {
        desk.answer_first(Ok(()));
    }
    assert_eq!(calls.map(|id| desk.end_of(id)), ["ok", "ok", "ok"]);
    assert!(desk.dispatcher.is_empty());
}

/// D-30: a write that holds after another one is sent for the version that this one has made, with the gate
/// SchedulerAsyncAPICalls and without it. Others are sent for the version for which they were made.
#[test]
fn a_write_that_holds_after_another_is_sent_for_its_version() {
    let patch = |pod: &str, version: &str| -> ApiCall {
        let meta = berth_api::ObjectMeta {
            uid: "uid-p".into(),
            resource_version: version.into(),
            ..berth_api::ObjectMeta::default()
        };
        let body = json!({"metadata": {"annotations": {pod: "uses"}}});
        Write::patch(&SHARED, "default", "p", body)
            .of_version(&meta)
            .into()
    };
    let sent_for = |desk: &mut Desk| {
        desk.send();
        let (_, call) = desk.sent.first().expect("a write is sent");
        let ApiCall::Write(write) = call else {
            panic!("{call:?} is no write")
        };
        write.resource_version().map(ToString::to_string)
    };
    let mut desk = desk_with(DispatcherOptions {
        asynchronous: false,
        ..DispatcherOptions::default()
    });
    assert_eq!(desk.dispatcher.register(&SHARED), Ok(()));
    let ids = ["a", "b", "other"].map(|pod| desk.call(patch(pod, "1")));
    assert_eq!(sent_for(&mut desk).as_deref(), Some("1"));
    desk.answer_first(Ok(Response::written("5")));
    // The watch shows no version yet: a later write is for the first one, too.
    let late = desk.call(patch("c", "1"));
    assert_eq!(sent_for(&mut desk).as_deref(), Some("5"));
    desk.answer_first(Ok(Response::written("7")));
    assert_eq!(
        sent_for(&mut desk).as_deref(),
        Some("1"),
        "it does not hold after others"
    );
    desk.answer_first(error(Conflict));
    assert_eq!(sent_for(&mut desk).as_deref(), Some("7"));
    desk.answer_first(Ok(()));
    assert_eq!(ids.map(|id| desk.end_of(id)), ["ok", "ok", "Conflict"]);
    assert_eq!(desk.end_of(late), "ok");
    assert!(desk.dispatcher.is_empty());
}

/// D-11: a burst of status patches never delays a write that a binding waits for, and the other way round.
#[test]
fn writes_have_a_lane_of_their_own() {
    let options = DispatcherOptions::for_in_flight(8);
    let mut desk = desk_with(options);
    for i in 0..20 {
        desk.call(statement(&format!("p{i}"), "Unschedulable"));
    }
    desk.call(select("n1"));
    let sent = desk.send();
    assert_eq!(sent[0], "write p", "{sent:?}");
    assert_eq!(desk.dispatcher.in_flight(Lane::Write), 1);
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
        assert_eq!(desk.notified(id), (!repeated).then_some(false), "{kind:?}");
    }
}

/// D-14: the first attempt was carried out and its answer lost: the second one is refused for the version that it made.
#[test]
fn a_write_that_was_carried_out_after_all_has_succeeded() {
    for (situation, seen, after, notified) in [
        ("seen before the refusal", Some("n1"), None, Some(true)),
        ("seen after the refusal", None, Some("n1"), Some(true)),
        ("another component's", Some("n2"), None, None),
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
        assert_eq!(desk.notified(id), notified, "{situation}");
    }
}

/// D-17, D-25: a call is not sent if the object has the wanted state already, if the claim was deleted, or if the call
/// was cancelled.
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
        assert_eq!(desk.notified(id), Some(end == "ok"), "{situation}");
    }
}

/// D-7: the pod is tried again while its first write is in flight: one result for both. Another node is another write.
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
    assert_eq!(desk.notified(other), Some(false));
}

/// Notes on nodes, as a plugin registers them. Two that wait become one.
static NOTE: CallType = CallType::new("node_note", Kind::Node).merging(Merge::Patches);

fn note(node: &str, key: &str, value: &str) -> ApiCall {
    let body = json!({"metadata": {"annotations": {key: value}}});
    Write::patch(&NOTE, "", node, body).into()
}

/// D-3, D-29: a type that a plugin has registered counts under its name, and one that none has is refused.
#[test]
fn plugins_register_their_types() {
    let mut desk = desk();
    let early = desk.call(note("n", "a", "1"));
    assert_eq!(desk.end_of(early), text::UNREGISTERED);
    assert_eq!(desk.notified(early), Some(false));
    assert_eq!(desk.dispatcher.register(&NOTE), Ok(()));
    let id = desk.call(note("n", "a", "1"));
    assert_eq!(desk.pending("node_note"), 1);
    assert_eq!(desk.send(), ["write n"]);
    assert_eq!(desk.dispatcher.in_flight(Lane::Write), 1);
    let body = br#"{"metadata":{"name":"n"}}"#;
    let response = Response {
        resource_version: Some("7".into()),
        body: body.as_slice().into(),
    };
    desk.answer(id, Ok(response.clone()));
    assert_eq!(
        desk.ended[&id].for_waiter(),
        Ok(response),
        "the answer itself"
    );
    assert!(desk.dispatcher.is_empty());
}

/// D-7, D-29: the combination of two calls that wait for one object, by the rule of their type.
#[test]
fn writes_merge_by_the_rule_of_their_type() {
    static ADDS_UP: CallType =
        CallType::new("adds_up", Kind::Namespace).merging(Merge::With(|older, newer| {
            match (older.action(), newer.action()) {
                (Action::Patch(older), Action::Patch(newer)) => {
                    let sum = older["pods"].as_i64().zip(newer["pods"].as_i64());
                    let (older, newer) = sum.ok_or("no number of pods")?;
                    let body = json!({"pods": older + newer});
                    Ok(Write::patch(&ADDS_UP, "", "ns", body))
                }
                _ => Err("no patch".into()),
            }
        }));
    let add = |pods: serde_json::Value| -> ApiCall {
        Write::patch(&ADDS_UP, "", "ns", json!({"pods": pods})).into()
    };
    for (case, older, newer, sent, ends) in [
        (
            "patches become one",
            note("n", "a", "1"),
            note("n", "b", "2"),
            json!({"metadata": {"annotations": {"a": "1", "b": "2"}}}),
            (text::SAME_TYPE, "-"),
        ),
        (
            "a function of the plugin",
            add(json!(2)),
            add(json!(3)),
            json!({"pods": 5}),
            (text::SAME_TYPE, "-"),
        ),
        (
            "the function refuses",
            add(json!(2)),
            add(json!("x")),
            json!({"pods": 2}),
            ("-", "failed to merge API calls: no number of pods"),
        ),
        (
            "the newer one replaces the older",
            select("n1"),
            select("n2"),
            json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n2"}}}),
            (text::SAME_TYPE, "-"),
        ),
    ] {
        let mut desk = desk();
        for call_type in [&NOTE, &ADDS_UP] {
            assert_eq!(desk.dispatcher.register(call_type), Ok(()));
        }
        let ids = [desk.call(older), desk.call(newer)];
        assert_eq!(
            (&*desk.end_of(ids[0]), &*desk.end_of(ids[1])),
            ends,
            "{case}"
        );
        assert_eq!(desk.send().len(), 1, "{case}");
        let ApiCall::Write(write) = &desk.sent[0].1 else {
            panic!("{case}: {:?}", desk.sent);
        };
        assert_eq!(write.action(), &Action::Patch(sent), "{case}");
    }
}

/// D-29: two writes that one call cannot do are both made, in the order in which they were made, and a write of the type of
/// the last one still merges with it.
#[test]
fn writes_that_do_not_merge_are_made_one_after_the_other() {
    static SEPARATE: CallType =
        CallType::new("separate", Kind::Namespace).merging(Merge::With(|older, newer| {
            match (older.action(), newer.action()) {
                (Action::Patch(older), Action::Patch(newer)) if older["part"] != newer["part"] => {
                    Err(MergeError::Separate)
                }
                _ => Ok(newer.clone()),
            }
        }));
    let write = |part: &str, value: i32| -> ApiCall {
        Write::patch(&SEPARATE, "", "ns", json!({"part": part, "value": value})).into()
    };
    for first in [Ok(Response::default()), error(Unavailable)] {
        let mut desk = desk();
        assert_eq!(desk.dispatcher.register(&SEPARATE), Ok(()));
        let is_repeated = first.is_err();
        desk.call(write("a", 1));
        desk.send();
        let calls = [("a", 2), ("b", 3), ("b", 4)];
        let ids = calls.map(|(part, value)| desk.call(write(part, value)));
        desk.dispatcher.check().expect("the books agree");
        desk.answer_first(first);
        desk.advance(10_000);
        let mut sent = Vec::new();
        while !desk.send().is_empty() {
            let ApiCall::Write(write) = &desk.sent[0].1 else {
                panic!("{:?}", desk.sent);
            };
            let Action::Patch(body) = write.action() else {
                panic!("{write:?}");
            };
            sent.push(body["value"].clone());
            desk.answer_first(Ok(()));
            desk.dispatcher.check().expect("the books agree");
        }
        assert_eq!(sent, [json!(2), json!(4)], "repeated: {is_repeated}");
        let ends = ids.map(|id| desk.end_of(id));
        assert_eq!(
            ends,
            ["ok", text::SAME_TYPE, "ok"],
            "repeated: {is_repeated}"
        );
        assert!(desk.dispatcher.is_empty());
    }
}

/// D-19, D-29: a conflict is repeated where the write does not hold for one version, as it would go through now.
#[test]
fn a_conflict_ends_a_write_for_one_version() {
    for (call, repeated) in [(note("n", "a", "1"), true), (select("n1"), false)] {
        let mut desk = desk();
        assert_eq!(desk.dispatcher.register(&NOTE), Ok(()));
        desk.call(call);
        desk.send();
        desk.answer_first(error(Conflict));
        desk.advance(100);
        assert_eq!(!desk.send().is_empty(), repeated);
    }
}
