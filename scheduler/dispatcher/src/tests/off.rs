//! The gate SchedulerAsyncAPICalls off: one call after another, none merged, skipped or delayed.

use super::*;

fn off() -> Desk {
    desk_with(DispatcherOptions {
        asynchronous: false,
        ..DispatcherOptions::default()
    })
}

/// D-1.
#[test]
fn every_call_is_sent_in_order() {
    let mut desk = off();
    let calls = [
        (statement("p", "Unschedulable"), "patch p Unschedulable"),
        (nominate("p", "n1"), "patch p on \"n1\""),
        (bind("p", "n1"), "bind p n1"),
        (delete("p"), "delete p"),
        (statement("p", "SchedulerError"), "patch p SchedulerError"),
    ];
    let ids: Vec<CallId> = calls
        .iter()
        .map(|(call, _)| desk.call(call.clone()))
        .collect();
    assert_eq!(desk.dispatcher.len(), 5);
    for (id, (_, text)) in ids.into_iter().zip(calls) {
        assert_eq!(desk.send(), [text]);
        assert_eq!(desk.end_of(id), "-");
        desk.answer(id, Ok(()));
        assert_eq!(desk.end_of(id), "ok");
    }
    assert!(desk.dispatcher.is_empty());
}

/// D-1.
#[test]
fn objects_do_not_wait_for_each_other() {
    let mut desk = off();
    desk.call(nominate("a", "n1"));
    desk.call(nominate("a", "n2"));
    desk.call(nominate("b", "n1"));
    assert_eq!(desk.send(), ["patch a on \"n1\"", "patch b on \"n1\""]);
}

/// D-1, D-19: the rule also applies without the gate: a patch is retried before later calls, and a patch without
/// changes succeeds without a request.
#[test]
fn a_failed_call_is_repeated_before_the_next() {
    let mut desk = off();
    let first = desk.call(nominate("p", "n1"));
    let second = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    desk.answer(first, error(CallErrorKind::Conflict));
    assert_eq!(desk.send(), Vec::<String>::new());
    desk.advance(11);
    assert_eq!(desk.send(), ["patch p on \"n1\""]);
    desk.answer(first, Ok(()));
    assert_eq!(desk.send(), Vec::<String>::new());
    assert_eq!(desk.end_of(second), "ok");
}

/// D-1, D-25.
#[test]
fn nothing_more_is_sent_about_an_object_that_is_gone() {
    let mut desk = off();
    let first = desk.call(nominate("a", "n1"));
    let others = [desk.call(nominate("a", "n2")), desk.call(bind("a", "n2"))];
    desk.send();
    desk.dispatcher.forget("uid-a", desk.now);
    desk.look();
    for id in others {
        assert_eq!(desk.end_of(id), text::GONE);
        assert_eq!(desk.ended[&id].took, None);
    }
    desk.answer(first, Ok(()));
    assert!(desk.dispatcher.is_empty());
}
