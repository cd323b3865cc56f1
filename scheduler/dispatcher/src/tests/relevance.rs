//! The effects of calls about one object on each other.

use super::*;

const NONE: [&str; 0] = [];

/// D-5, case 147: calls about different objects are independent, and are sent in order.
#[test]
fn first_come_first_served_across_objects() {
    let mut desk = desk();
    for name in ["c", "a", "b"] {
        desk.call(statement(name, "Unschedulable"));
    }
    assert_eq!(desk.pending("pod_status_patch"), 3);
    assert_eq!(
        desk.send(),
        [
            "patch c Unschedulable",
            "patch a Unschedulable",
            "patch b Unschedulable"
        ]
    );
    assert_eq!(desk.pending("pod_status_patch"), 0);
    assert_eq!(desk.dispatcher.in_flight(Lane::Status), 3);
    desk.answer_first(Ok(()));
    assert_eq!(desk.end_of(CallId(0)), "ok");
    assert_eq!(desk.dispatcher.len(), 2);
}

/// D-2, D-7, D-8, D-10, cases 149 to 151: the old call waits.
#[test]
fn a_waiting_call_and_a_newer_one() {
    struct Case {
        situation: &'static str,
        old: ApiCall,
        new: ApiCall,
        /// The ends of the old and the new call before anything is sent.
        ends: (&'static str, &'static str),
        /// The result that the waiter of the old call receives.
        notified: Option<bool>,
        sent: &'static [&'static str],
    }
    for case in [
        Case {
            situation: "D-7.1 a status patch is nothing to a binding",
            old: bind("p", "n1"),
            new: statement("p", "Unschedulable"),
            ends: ("-", text::LESS_RELEVANT),
            notified: None,
            sent: &["bind p n1"],
        },
        Case {
            situation: "D-7.1 a binding is nothing to a deletion",
            old: delete("p"),
            new: bind("p", "n1"),
            ends: ("-", text::LESS_RELEVANT),
            notified: None,
            sent: &["delete p"],
        },
        Case {
            situation: "D-7.3 a binding overwrites a status patch, and who made that is content",
            old: statement("p", "Unschedulable"),
            new: bind("p", "n1"),
            ends: (text::MORE_RELEVANT, "-"),
            notified: Some(true),
            sent: &["bind p n1"],
        },
        Case {
            situation: "a deletion overwrites a binding, which has failed by that",
            old: bind("p", "n1"),
            new: delete("p"),
            ends: (text::MORE_RELEVANT, "-"),
            notified: Some(false),
            sent: &["delete p"],
        },
        Case {
            situation: "D-7.4 status patches merge",
            old: statement("p", "Unschedulable"),
            new: nominate("p", "n1"),
            ends: (text::SAME_TYPE, "-"),
            notified: Some(true),
            sent: &["patch p Unschedulable on \"n1\""],
        },
        Case {
            situation: "D-7.4 what is new wins",
            old: statement("p", "Unschedulable"),
            new: statement("p", "SchedulerError"),
            ends: (text::SAME_TYPE, "-"),
            notified: Some(true),
            sent: &["patch p SchedulerError"],
        },
        Case {
            situation: "a binding to another node takes the place of the first, which has failed by that",
            old: bind("p", "n1"),
            new: bind("p", "n2"),
            ends: (text::SAME_TYPE, "-"),
            notified: Some(false),
            sent: &["bind p n2"],
        },
        Case {
            situation: "two bindings to one node are one",
            old: bind("p", "n1"),
            new: bind("p", "n1"),
            ends: ("-", "-"),
            notified: None,
            sent: &["bind p n1"],
        },
        Case {
            situation: "two deletions are one",
            old: delete("p"),
            new: delete("p"),
            ends: ("-", "-"),
            notified: None,
            sent: &["delete p"],
        },
        Case {
            situation: "D-8 a call that reverts one that was not sent removes both",
            old: nominate("p", "n1"),
            new: nominate("p", ""),
            ends: (text::SAME_TYPE, text::NO_EFFECT),
            notified: Some(true),
            sent: &NONE,
        },
    ] {
        let name = case.situation;
        let mut desk = desk();
        let old = desk.call(case.old);
        desk.shows(pod("p"));
        let new = desk.call(case.new);
        let ends = (desk.end_of(old), desk.end_of(new));
        assert_eq!((ends.0.as_str(), ends.1.as_str()), case.ends, "{name}");
        assert_eq!(desk.notified(old), case.notified, "{name}");
        assert_eq!(desk.send(), case.sent, "{name}");
        while !desk.sent.is_empty() {
            desk.answer_first(Ok(()));
        }
        assert!(
            desk.notified(old).is_some() && desk.notified(new).is_some(),
            "{name}"
        );
        assert!(desk.dispatcher.is_empty(), "{name}");
        if case.ends == ("-", "-") {
            assert_eq!(
                (desk.end_of(old), desk.end_of(new)),
                ("ok".into(), "ok".into())
            );
            let took = [old, new].map(|id| desk.ended[&id].took.is_some());
            assert_eq!(
                took.iter().filter(|took| **took).count(),
                1,
                "{name}: one execution"
            );
        }
    }
}

/// D-7, D-9, D-14, cases 150, 153, 154, 159: the old call is in flight.
#[test]
fn a_call_on_its_way_and_a_newer_one() {
    struct Case {
        situation: &'static str,
        old: ApiCall,
        new: ApiCall,
        new_ends: &'static str,
        /// The call that is sent after the end of the old one.
        then: &'static [&'static str],
    }
    for case in [
        Case {
            situation: "D-7.1 a status patch during a binding is skipped",
            old: bind("p", "n1"),
            new: statement("p", "Unschedulable"),
            new_ends: text::LESS_RELEVANT,
            then: &NONE,
        },
        Case {
            situation: "D-7.2 a binding waits for the status patch",
            old: statement("p", "Unschedulable"),
            new: bind("p", "n1"),
            new_ends: "-",
            then: &["bind p n1"],
        },
        Case {
            situation: "D-7.4 a second status patch waits for the first",
            old: statement("p", "Unschedulable"),
            new: statement("p", "SchedulerError"),
            new_ends: "-",
            then: &["patch p SchedulerError"],
        },
        Case {
            situation: "a deletion waits for the binding",
            old: bind("p", "n1"),
            new: delete("p"),
            new_ends: "-",
            then: &["delete p"],
        },
        Case {
            situation: "a second deletion joins the first",
            old: delete("p"),
            new: delete("p"),
            new_ends: "-",
            then: &NONE,
        },
    ] {
        let name = case.situation;
        let mut desk = desk();
        desk.shows(pod("p"));
        let old = desk.call(case.old);
        desk.send();
        let new = desk.call(case.new);
        assert_eq!(desk.end_of(new), case.new_ends, "{name}");
        let pending: usize = desk.dispatcher.pending().values().sum();
        assert_eq!(pending, case.then.len(), "{name}: it counts as pending");
        let ready = Lane::ALL.map(|lane| desk.dispatcher.ready(lane));
        assert_eq!(ready, [0; 4], "{name}: it is in no line");
        assert_eq!(desk.send(), NONE, "{name}: one at a time");
        desk.answer(old, Ok(()));
        assert_eq!(
            desk.end_of(old),
            "ok",
            "{name}: notified of the real result"
        );
        assert_eq!(desk.send(), case.then, "{name}");
        while !desk.sent.is_empty() {
            desk.answer_first(Ok(()));
        }
        assert!(desk.notified(new).is_some(), "{name}");
        assert!(desk.dispatcher.is_empty(), "{name}");
    }
}

/// D-7, cases 154, 155: the waiter of a waiting call that is replaced receives an error, unlike upstream.
#[test]
fn a_replaced_call_behind_one_in_flight_ends_its_waits() {
    let mut desk = desk();
    let first = desk.call(statement("p", "Unschedulable"));
    desk.send();
    let second = desk.call(nominate("p", "n1"));
    let binding = desk.call(bind("p", "n1"));
    assert_eq!(desk.end_of(second), text::MORE_RELEVANT);
    let third = desk.call(statement("p", "SchedulerError"));
    assert_eq!(desk.end_of(third), text::LESS_RELEVANT);
    desk.answer(first, Ok(()));
    assert_eq!(desk.send(), ["bind p n1"]);
    desk.answer(binding, Ok(()));
    assert!(desk.dispatcher.is_empty());
}

/// D-7, case 149: the gauge moves with the call, and the object keeps its place in line.
#[test]
fn a_call_that_overwrites_keeps_the_place_in_line() {
    let mut desk = desk();
    desk.call(statement("p", "Unschedulable"));
    desk.call(bind("q", "n1"));
    desk.call(bind("p", "n1"));
    let gauges = |desk: &Desk| {
        (
            desk.pending("pod_status_patch"),
            desk.pending("pod_binding"),
        )
    };
    assert_eq!(gauges(&desk), (0, 2));
    assert_eq!(desk.send(), ["bind p n1", "bind q n1"]);
    assert_eq!(gauges(&desk), (0, 0));
}

/// D-7, D-19: one patch writes both conditions.
#[test]
fn a_condition_of_another_type_goes_with_the_one_that_waits() {
    let mut desk = desk();
    let old = desk.call(statement("p", "Unschedulable"));
    let mut other = condition("r", "m");
    other.kind = "Other".into();
    let new = desk.call(ApiCall::PatchPodStatus {
        pod: pod_ref("p"),
        conditions: vec![other.clone()],
        nominated_node: None,
    });
    assert_eq!(desk.end_of(old), text::SAME_TYPE);
    // The newer value of a type takes the place of the older one.
    desk.call(statement("p", "SchedulerError"));
    assert_eq!(desk.send(), ["patch p SchedulerError r"]);
    desk.answer_first(Ok(()));
    assert_eq!(desk.notified(new), Some(true));
    // Both are known to be written: neither is written again.
    let again = desk.call(ApiCall::PatchPodStatus {
        pod: pod_ref("p"),
        conditions: vec![other, condition("SchedulerError", "m")],
        nominated_node: None,
    });
    desk.shows(pod("p"));
    assert_eq!(desk.end_of(again), text::NO_EFFECT);
    assert_eq!(desk.send(), NONE);
}

/// D-8, cases 148, 156.
#[test]
fn a_call_without_effect_is_skipped_unless_one_is_on_its_way() {
    let mut desk = desk();
    let id = desk.call(statement("p", "Unschedulable"));
    desk.shows(pod_that_states("p", "Unschedulable"));
    assert_eq!(
        (desk.end_of(id).as_str(), desk.notified(id)),
        (text::NO_EFFECT, Some(true))
    );
    assert!(desk.dispatcher.is_empty());

    let away = desk.call(nominate("p", "n1"));
    desk.shows(pod("p"));
    desk.send();
    let back = desk.call(nominate("p", ""));
    assert_eq!(desk.end_of(back), "-", "the call on its way changes things");
    desk.shows(pod("p").version(2));
    assert_eq!(desk.end_of(back), "-");
    desk.answer(away, Ok(()));
    assert_eq!(desk.send(), ["patch p on \"\""]);
    let needless = desk.call(nominate("p", ""));
    desk.answer(back, Ok(()));
    assert_eq!(desk.send(), NONE, "nothing is left to do");
    assert_eq!(desk.end_of(needless), "ok");
    assert_eq!(desk.ended[&needless].took, None);
}

/// D-16, D-28, case 160.
#[test]
fn a_closed_dispatcher_sends_nothing() {
    let mut desk = desk();
    let away = desk.call(bind("a", "n1"));
    desk.send();
    let waiting = desk.call(bind("b", "n1"));
    desk.report(statement("c", "NotReadyForScheduling"));
    desk.dispatcher.close(desk.now);
    desk.look();
    assert_eq!(desk.end_of(waiting), text::CLOSED);
    let late = desk.call(bind("d", "n1"));
    assert_eq!(
        (desk.end_of(late).as_str(), desk.notified(late)),
        (text::CLOSED, Some(false))
    );
    desk.advance(60_000);
    assert_eq!((desk.send(), desk.dispatcher.next_wake()), (vec![], None));
    desk.answer(away, error(CallErrorKind::Unavailable));
    assert_eq!(
        desk.end_of(away),
        "Unavailable",
        "what was on its way ends, for good or bad"
    );
    assert!(desk.dispatcher.is_empty());
}

/// D-13: the time that a call was in flight; it ends once.
#[test]
fn a_call_knows_how_long_it_took() {
    let mut desk = desk();
    let id = desk.call(bind("p", "n1"));
    desk.advance(300);
    desk.send();
    desk.advance(250);
    desk.answer(id, Ok(()));
    assert_eq!(desk.ended[&id].took, Some(Duration::from_millis(250)));
    assert_eq!(desk.dispatcher.counts().sent, 1);
    desk.dispatcher.complete(id, Ok(()), desk.now);
    desk.dispatcher.complete(CallId(99), Ok(()), desk.now);
    assert!(
        desk.dispatcher.take_finished().is_empty(),
        "what is not on its way cannot end"
    );
}
