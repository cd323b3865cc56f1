//! Many calls: lanes under a burst, and bounds.

use super::*;

fn many(tracked_max: usize) -> Desk {
    desk_with(DispatcherOptions {
        tracked_max,
        ..DispatcherOptions::for_in_flight(16)
    })
}

/// D-11, case 166: a burst of status patches never delays a binding.
#[test]
fn a_burst_of_status_patches_does_not_delay_a_binding() {
    let mut desk = many(1 << 18);
    for i in 0..100_000 {
        let call = nominate(&format!("p{i}"), "n1");
        desk.dispatcher.enqueue(call, desk.now);
    }
    assert_eq!(desk.send().len(), 4, "a quarter, and no more");
    for i in 0..12 {
        desk.dispatcher
            .enqueue(bind(&format!("b{i}"), "n1"), desk.now);
    }
    let sent = desk.send();
    assert_eq!(
        sent.len(),
        10,
        "16, less 4 patches and one reserved for deletions and for claims"
    );
    assert!(sent.iter().all(|call| call.starts_with("bind")), "{sent:?}");
    for _ in 0..4 {
        desk.answer_first(Ok(()));
    }
    let sent = desk.send();
    assert_eq!(
        &sent[..2],
        ["bind b10 n1", "bind b11 n1"],
        "higher lanes first"
    );
    assert_eq!(sent.len(), 4);
}

/// The waits of bindings, one each millisecond, with a server that takes 10 ms for every call.
fn waits_of_bindings(patches: usize) -> Vec<i64> {
    const BINDINGS: usize = 200;
    let mut dispatcher = Dispatcher::new(DispatcherOptions::default());
    let began = Time::from_secs(1000);
    for i in 0..patches {
        dispatcher.enqueue(nominate(&format!("p{i}"), "n1"), began);
    }
    let mut made = BTreeMap::new();
    let mut waits = Vec::new();
    let mut answers: BTreeMap<Time, Vec<CallId>> = BTreeMap::new();
    for millis in 0..1_000 {
        let now = began + Duration::from_millis(millis);
        if made.len() < BINDINGS {
            let call = bind(&format!("b{millis}"), "n1");
            made.insert(dispatcher.enqueue(call, now), now);
        }
        for id in answers.remove(&now).unwrap_or_default() {
            dispatcher.complete(id, Ok(()), now);
        }
        let calls = dispatcher.next_calls(now);
        for (id, _) in calls {
            let made_at: Option<&Time> = made.get(&id);
            waits.extend(made_at.map(|at| now.as_millis() - at.as_millis()));
            answers
                .entry(now + Duration::from_millis(10))
                .or_default()
                .push(id);
        }
        dispatcher.take_finished();
    }
    assert_eq!(waits.len(), BINDINGS);
    waits
}

/// D-11, case 166.
#[test]
fn bindings_wait_no_longer_during_a_burst() {
    assert_eq!(waits_of_bindings(100_000), waits_of_bindings(0));
}

/// D-11: the other way round, bindings without end leave every lane its share.
#[test]
fn a_burst_of_bindings_leaves_the_other_lanes_a_share() {
    let mut desk = many(1 << 18);
    for i in 0..100 {
        desk.call(bind(&format!("b{i}"), "n1"));
    }
    assert_eq!(desk.send().len(), 13, "all but one for each other lane");
    desk.call(delete("victim"));
    desk.call(nominate("p", "n1"));
    assert_eq!(desk.send(), ["delete victim", "patch p on \"n1\""]);
}

/// D-11: the number of calls is limited; a call above the limit is refused with a message.
#[test]
fn calls_without_end_are_refused() {
    let mut desk = many(16);
    let patches: Vec<CallId> = (0..10)
        .map(|i| desk.call(nominate(&format!("p{i}"), "n")))
        .collect();
    let kept = patches.iter().filter(|id| desk.end_of(**id) == "-").count();
    assert_eq!(kept, 8, "status patches may take half");
    let refused = &desk.ended[&patches[9]];
    assert_eq!(
        refused.result,
        Err(CallError::new(
            CallErrorKind::Unavailable,
            "the API dispatcher holds 8 status patches that have not been answered: call refused; it is \
                      made again when the pod is next tried"
        ))
    );
    let merged = desk.call(statement("p0", "Unschedulable"));
    assert_eq!(desk.end_of(merged), "-", "merging takes no more room");
    assert!(!desk.dispatcher.is_saturated());
    let bindings: Vec<CallId> = (0..9)
        .map(|i| desk.call(bind(&format!("b{i}"), "n")))
        .collect();
    assert!(desk.dispatcher.is_saturated());
    let kept = bindings
        .iter()
        .filter(|id| desk.end_of(**id) == "-")
        .count();
    assert_eq!((kept, desk.dispatcher.len()), (8, 16));
    assert_eq!(desk.dispatcher.counts().refused, 3);
    while !desk.dispatcher.is_empty() {
        desk.send();
        while !desk.sent.is_empty() {
            desk.answer_first(Ok(()));
        }
    }
    assert!(!desk.dispatcher.is_saturated());
}

/// D-11: reports may use a quarter, so that they never block the results of cycles.
#[test]
fn reports_leave_capacity_for_other_calls() {
    let mut desk = many(16);
    for i in 0..4 {
        assert!(desk.dispatcher.takes_reports(), "{i}");
        desk.report(statement(&format!("p{i}"), "NotReadyForScheduling"));
    }
    assert!(!desk.dispatcher.takes_reports());
    assert_eq!(desk.dispatcher.len(), 4);
    let id = desk.call(statement("q", "Unschedulable"));
    assert_eq!(desk.end_of(id), "-");
}

/// Writes that the watch has not shown yet are remembered for at most the maximum number of waiting calls.
#[test]
fn unseen_writes_are_bounded() {
    let mut desk = many(16);
    for i in 0..100 {
        desk.call(nominate(&format!("p{i}"), "n1"));
        desk.send();
        desk.answer_first(Ok(()));
        desk.advance(1);
    }
    let seen = |desk: &Desk, name| desk.effective(pod(name)).1;
    assert_eq!(
        (seen(&desk, "p99").as_str(), seen(&desk, "p83").as_str()),
        ("n1", "")
    );
    assert_eq!(desk.dispatcher.backlog.objects.iter().count(), 16);
}

/// The work for a call does not grow with the number of existing calls, so that 200,000 calls a second are possible.
/// The time is measured by the benches.
#[test]
fn a_million_calls_about_few_objects_stay_few() {
    let mut desk = many(1 << 10);
    for i in 0..1_000_000_u64 {
        let name = ["a", "b", "c", "d"][(i % 4) as usize];
        let node = ["n1", "n2", "n3"][(i % 3) as usize];
        let call = ApiCall::PatchPodStatus {
            pod: PodRef {
                namespace: "default".into(),
                name: name.into(),
                uid: name.into(),
            },
            conditions: Vec::new(),
            nominated_node: Some(node.into()),
        };
        desk.dispatcher.enqueue(call, desk.now);
        desk.dispatcher.take_finished();
    }
    assert_eq!(desk.dispatcher.len(), 4);
    assert_eq!(desk.dispatcher.counts().overwritten, 1_000_000 - 4);
}
