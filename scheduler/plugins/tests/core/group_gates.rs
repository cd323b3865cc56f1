//! Gated groups: each member states its own present obstacle, in whatever order the obstacles end.

use crate::claims::{claim, linked, wanting};
use crate::groups::{driver, gang, group, member, stated};
use berth_api::Kind;
use berth_framework::testing::{PodBuilder, node};
use berth_scheduler::metrics::Metric;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;

const QUORUM: &str =
    "NotReadyForScheduling: waiting for minCount pods from a gang to appear in scheduling queue";
const GATED: &str = "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates";
const NO_CLAIM: &str = "NotReadyForScheduling: Waiting for a resource claim to be created from \
                        ResourceClaimTemplate \"gpu\"";

/// The reports of PreEnqueue are due and written.
fn stated_now(w: &mut Driver, names: &[&str]) -> Vec<String> {
    w.wait(6);
    w.answer_all();
    names.iter().map(|name| stated(w, name)).collect()
}

fn orders(of: &[&'static str]) -> Vec<Vec<&'static str>> {
    let Some((first, rest)) = of.split_first() else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for order in orders(rest) {
        for at in 0..=order.len() {
            let mut order = order.clone();
            order.insert(at, *first);
            all.push(order);
        }
    }
    all
}

fn waits_for(blocker: &str, plugin: &str, stated: &str) -> String {
    let message = stated.split_once(": ").map_or("", |(_, message)| message);
    format!(
        "NotReadyForScheduling: waiting for pod {blocker:?} of the group, which {plugin} rejects: {message}"
    )
}

/// G-10: a member without gates reports its current reason, in every order in which members lose their gates.
#[test]
fn a_member_that_loses_its_gate_states_the_quorum() {
    const NAMES: [&str; 3] = ["q1", "q2", "q3"];
    for order in orders(&NAMES) {
        let mut w = driver();
        w.node(node("n1").capacity("8", "64Gi", "110"));
        w.object(Kind::PodGroup, group("g", gang(4)));
        for name in NAMES {
            w.pod(member(name, "g", "1").gate("quota"));
        }
        assert_eq!(stated_now(&mut w, &NAMES), [GATED; 3], "{order:?}");
        for (done, name) in order.iter().enumerate() {
            w.change(name, PodBuilder::ungated);
            let open = &order[..=done];
            for (name, text) in NAMES.iter().zip(stated_now(&mut w, &NAMES)) {
                let expected = if open.contains(name) { QUORUM } else { GATED };
                assert_eq!(
                    text, expected,
                    "{name}, gates removed in the order {open:?}"
                );
            }
        }
        let rejected = |plugin| [plugin, "default-scheduler"];
        let count = w.metric(Metric::UnschedulablePods, &rejected("GangScheduling"));
        assert_eq!(count, 3.0, "{order:?}");
        w.pod(member("q4", "g", "1"));
        assert_eq!(w.attempts().len(), 1, "{order:?}");
    }
}

/// G-10: a member whose claim exists does not report a missing claim, in every order in which claims are created. It
/// reports the reason of a member whose claim is missing.
#[test]
fn a_member_whose_claim_was_made_states_the_reason_of_another() {
    const NAMES: [&str; 3] = ["q1", "q2", "q3"];
    for order in orders(&NAMES) {
        let mut w = driver();
        w.node(node("n1").capacity("8", "64Gi", "110"));
        w.object(Kind::PodGroup, group("g", gang(3)));
        for name in NAMES {
            w.pod(wanting(name, None).member_of("g"));
        }
        assert_eq!(stated_now(&mut w, &NAMES), [NO_CLAIM; 3], "{order:?}");
        let (last, first) = order.split_last().expect("three members");
        for (done, name) in first.iter().enumerate() {
            let made = format!("of-{name}");
            w.object(Kind::ResourceClaim, claim(&made, name));
            w.change(name, |p| linked(p, Some(&made)));
            let has_claim = &order[..=done];
            for (name, text) in NAMES.iter().zip(stated_now(&mut w, &NAMES)) {
                let blocked = NAMES.iter().filter(|name| !has_claim.contains(name));
                let of_others: Vec<String> = blocked
                    .map(|name| waits_for(name, "DynamicResources", NO_CLAIM))
                    .collect();
                if has_claim.contains(name) {
                    assert!(
                        of_others.contains(&text),
                        "{name} after {has_claim:?}: {text}"
                    );
                } else {
                    assert_eq!(text, NO_CLAIM, "{name} after {has_claim:?}");
                }
            }
        }
        let made = format!("of-{last}");
        w.object(Kind::ResourceClaim, claim(&made, last));
        w.change(last, |p| linked(p, Some(&made)));
        assert_ne!(w.place_of("q1"), Some(QueuedIn::Gated), "{order:?}");
    }
}

/// G-10, G-6: if another member has a gate, a member that waits for the quorum reports that gate once the quorum is
/// met.
#[test]
fn the_quorum_is_not_stated_once_it_is_met() {
    let mut w = driver();
    w.node(node("n1").capacity("8", "64Gi", "110"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    w.pod(member("p1", "g", "1").gate("quota"));
    w.pod(member("p2", "g", "1"));
    assert_eq!(stated_now(&mut w, &["p1", "p2"]), [GATED, QUORUM]);
    w.pod(member("p3", "g", "1"));
    let of_others = waits_for("p1", "SchedulingGates", GATED);
    assert_eq!(
        stated_now(&mut w, &["p1", "p2", "p3"]),
        [GATED, &of_others, &of_others]
    );
    // The member that gated the group is deleted, and the quorum with it.
    w.deleted("p1");
    assert_eq!(stated_now(&mut w, &["p2", "p3"]), [QUORUM; 2]);
}

/// G-10, Q-30: the flush evaluates PreEnqueue of all members of a gated group again.
#[test]
fn the_flush_asks_every_member_again() {
    use berth_framework::testing::fake;
    use berth_framework::{ReasonCode, Status};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let is_shut = Arc::new(AtomicBool::new(true));
    let seen = is_shut.clone();
    // A plugin that registers for no event.
    let extra = fake("Extra").pre_enqueue(move |pod| {
        if *pod.name() == *"p2" && seen.load(Ordering::Relaxed) {
            Status::unresolvable(ReasonCode::Other.reason("shut"))
        } else {
            Status::success()
        }
    });
    let extra = extra.events(Vec::new).build();
    let mut w = crate::groups::driver_and(extra);
    w.node(node("n1").capacity("8", "64Gi", "110"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1").gate("quota"));
    w.pod(member("p2", "g", "1"));
    assert_eq!(
        stated_now(&mut w, &["p1", "p2"]),
        [GATED, "NotReadyForScheduling: shut"]
    );
    is_shut.store(false, Ordering::Relaxed);
    for _ in 0..34 {
        w.wait(10);
    }
    let of_others = waits_for("p1", "SchedulingGates", GATED);
    assert_eq!(stated_now(&mut w, &["p1", "p2"]), [GATED, &of_others]);
}
