//! Changes during the call of an extender: it may be late, nodes and pods may change.

use super::*;

/// F-41: an extender without an answer in time contributes no score; the scores of the others count.
#[test]
fn a_late_score_does_not_count() {
    let favours = |name: &str, node: &'static str, weight, seconds| {
        let prefers = move |_: &_, _: &_| Ok(vec![(Str::from(node), 10)]);
        extender(name)
            .prioritize(weight, prefers)
            .timeout(Duration::from_secs(seconds))
    };
    let mut w = extended(
        [favours("late", "n1", 9, 3), favours("slow", "n2", 1, 10)],
        [fits(), fake("Flat").score(|_, _, _| Ok(0))],
    );
    nodes(&mut w, ALL);
    w.pod(pod("p"));
    let ScheduleOutcome::Parked(wait) = w.schedule() else {
        panic!("not parked");
    };
    assert_eq!(
        wait.deadline,
        w.now + Duration::from_secs(10),
        "the longest"
    );
    w.advance(Duration::from_secs(3));
    let (late, job) = w.jobs.remove(0);
    w.reply_to(late, job);
    assert_eq!(w.calls_text(), [""; 0]);
    w.advance(Duration::from_secs(6));
    w.reply();
    assert_eq!(w.calls_text(), ["bind p n2"]);
}

/// F-37, F-39: an extender is called with a timeout; a later answer is ignored.
#[test]
fn an_extender_that_is_late_has_failed() {
    for (situation, ignorable, expected) in [
        (
            "it may not",
            false,
            "patch p PodScheduled=False SchedulerError: no answer from extender http://e within 1500 ms",
        ),
        ("it may", true, "bind p n1"),
    ] {
        let late = extender("http://e")
            .keeps(&[])
            .timeout(Duration::from_millis(1500));
        let late = if ignorable { late.ignorable() } else { late };
        let mut w = extended([late], [fits()]);
        nodes(&mut w, &["n1"]);
        w.pod(pod("p"));
        w.pod(pod("next").request("cpu", "1"));
        assert_eq!(w.attempt(), "parked", "{situation}");
        assert_eq!(w.attempt(), "parked", "{situation}: no other pod is tried");
        assert!(!w.scheduler.has_pod_to_try(), "{situation}");
        assert_eq!(
            w.scheduler.next_wake(w.now),
            Some(w.now + Duration::from_millis(1500))
        );
        w.advance(Duration::from_millis(1499));
        assert_eq!(w.calls_text(), [""; 0], "{situation}");
        w.advance(Duration::from_millis(1));
        assert_eq!(w.calls_text(), [expected], "{situation}");
        w.reply();
        assert_eq!(w.calls_text(), [expected], "{situation}: too late");
        assert_eq!(
            w.attempt(),
            "parked",
            "{situation}: the next one has its turn"
        );
    }
}

/// C-14: changes are applied during the call of an extender, and changed nodes are evaluated again.
#[test]
fn nodes_that_changed_meanwhile_are_looked_at_again() {
    type Change = fn(&mut Driver);
    fn taken(w: &mut Driver) {
        w.pod(pod("x").request("cpu", "4").on("n1"));
    }
    fn gone(w: &mut Driver) {
        w.gone(node("n1").object());
    }
    let unfit = "patch p PodScheduled=False Unschedulable:";
    let cases: [(&str, Change, &[&str], String); 8] = [
        ("nothing happened", |_| {}, &["n1"], "bind p n1".into()),
        (
            "a pod was added, there is room",
            |w| {
                w.pod(pod("x").request("cpu", "1").on("n1"));
            },
            &["n1"],
            "bind p n1".into(),
        ),
        (
            "the room was taken, there is another",
            taken,
            &["n1", "n2"],
            "bind p n2".into(),
        ),
        (
            "the room was taken",
            taken,
            &["n1"],
            format!("{unfit} 0/3 nodes are available: 1 Insufficient cpu."),
        ),
        (
            "the node is gone, there is another",
            gone,
            &["n1", "n2"],
            "bind p n2".into(),
        ),
        (
            "the node is gone",
            gone,
            &["n1"],
            format!("{unfit} 0/2 nodes are available:"),
        ),
        (
            "the pod is gone",
            |w| w.deleted("p"),
            &["n1"],
            String::new(),
        ),
        (
            "the pod was bound by another scheduler",
            |w| {
                w.change("p", |p| {
                    p.on("n2").condition("PodScheduled", "True", "", "")
                })
            },
            &["n1"],
            String::new(),
        ),
    ];
    for (situation, change, kept, expected) in cases {
        for scores in [false, true] {
            // The nodes of the last call: to the filter, or to the extender that scores.
            let kept: Vec<Str> = kept.iter().map(|name| Str::from(*name)).collect();
            let several = kept.len() > 1;
            let filter = extender("f").filter(move |_, _| {
                Ok(Filtered {
                    nodes: kept.clone(),
                    ..Filtered::default()
                })
            });
            let prefers = extender("p").prioritize(1, |_, _| Ok(vec![("n1".into(), 10)]));
            let extenders = [Some(filter), scores.then_some(prefers)];
            let mut w = extended(
                extenders.into_iter().flatten(),
                [fits(), fake("Flat").score(|_, _, _| Ok(0))],
            );
            nodes(&mut w, ALL);
            w.pod(pod("p").request("cpu", "2"));
            assert_eq!(w.attempt(), "parked", "{situation}");
            if scores && several {
                w.reply();
                assert_eq!(w.jobs.len(), 1, "{situation}: the scores are asked for");
            }
            change(&mut w);
            reply_all(&mut w);
            let calls = w.calls_text();
            assert_eq!(calls.join(""), expected, "{situation}, scores: {scores}");
            assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{situation}");
        }
    }
}

/// Q-49, case 91: a pod that an extender rejected is tried again after any event.
#[test]
fn any_event_wakes_a_pod_that_an_extender_rejected() {
    let never = || extender("e").keeps(&[]);
    type Event = fn(&mut Driver);
    let events: [(&str, Event); 3] = [
        ("a label of a node", |w| {
            w.applied(
                node("n1")
                    .capacity("4", "1Gi", "9")
                    .label("a", "b")
                    .version(99)
                    .object(),
            );
        }),
        ("another pod", |w| {
            w.pod(pod("x").on("n1"));
        }),
        ("its own label", |w| w.change("p", |p| p.label("a", "b"))),
    ];
    for (situation, event) in events {
        let mut w = extended([never()], [fits()]);
        nodes(&mut w, &["n1"]);
        w.pod(pod("p"));
        outcome(&mut w);
        // The first write of its own status is such an event as well.
        w.answer_all().advance(Duration::from_secs(10));
        outcome(&mut w);
        assert_eq!(
            w.place_of("p"),
            Some(QueuedIn::Unschedulable),
            "{situation}"
        );
        event(&mut w);
        assert_ne!(
            w.place_of("p"),
            Some(QueuedIn::Unschedulable),
            "{situation}"
        );
    }
}

/// Case 91: an event during the call of the extender is not lost.
#[test]
fn an_event_during_the_question_wakes_the_pod() {
    let mut w = extended([extender("e").keeps(&[])], [fits()]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "parked");
    nodes(&mut w, &["n2"]);
    reply_all(&mut w);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Backoff));
}

/// A request to an extender is a job with a timeout: the cycle waits for the job, not for an API call, and not forever.
#[test]
fn a_question_is_a_job() {
    let mut w = extended(
        [extender("e").keeps(&[]).timeout(Duration::from_secs(7))],
        [fits()],
    );
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    let deadline = w.now + Duration::from_secs(7);
    let ScheduleOutcome::Parked(wait) = w.schedule() else {
        panic!("not parked");
    };
    let on = WaitOn::Job(w.jobs[0].0);
    assert_eq!(wait, Wait { on, deadline });
}

/// C-14: a node that becomes feasible during the call of an extender is used, and PostFilter does not run. Extenders
/// are not called twice for the same node.
#[test]
fn room_that_appears_meanwhile_is_used() {
    let post_filter = || fake("Evicts").post_filter(|_, _, _, _| panic!("there is room"));
    let (picky, questions) = reporting("picky", || Ok(Filtered::default()));
    let (notify, asked) = channel();
    let not_n2 = extender("not n2").filter(move |_, nodes| {
        let _ = notify.send(nodes.len());
        let left = nodes.iter().filter(|name| **name != "n2").cloned();
        Ok(Filtered {
            nodes: left.collect(),
            ..Filtered::default()
        })
    });
    let mut w = extended(
        [not_n2, picky.managing("example.com/x")],
        [fits(), post_filter()],
    );
    nodes(&mut w, &["n1", "n2"]);
    w.pod(pod("x").request("cpu", "4").on("n1"));
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(w.attempt(), "parked");
    w.deleted("x");
    w.reply();
    assert_eq!(w.calls_text(), [""; 0], "n1 is asked about now");
    w.reply();
    assert_eq!(w.calls_text(), ["bind p n1"]);
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [1, 1]);
    assert_eq!(notified(&questions), [""; 0]);
}

/// C-14: if nodes are added continuously, the number of rounds is limited; then the pod is retried later.
#[test]
fn a_search_comes_to_an_end() {
    let mut w = extended([extender("e").keeps(&[])], [fits()]);
    nodes(&mut w, &["n0"]);
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "parked");
    let mut questions = 0;
    while !w.jobs.is_empty() {
        questions += 1;
        nodes(&mut w, &[&format!("n{questions}")]);
        w.reply();
    }
    assert_eq!(questions, 4);
    assert_eq!(
        w.calls_text(),
        [
            "patch p PodScheduled=False SchedulerError: the nodes keep changing while extenders are asked"
        ]
    );
    assert_eq!(w.place_of("p"), Some(QueuedIn::ErrorBackoff));
}

/// C-5: a pod that begins to terminate while its cycle waits is dropped like one that was already terminating: nothing
/// is written, and no attempt counts.
#[test]
fn a_pod_that_is_being_deleted_is_dropped() {
    let wait = |cx_now| Wait {
        on: WaitOn::Timer,
        deadline: cx_now + Duration::from_secs(1),
    };
    for situation in ["filtering", "scoring", "making room", "reserving"] {
        let extender = match situation {
            "filtering" => Some(extender("e").keeps(ALL)),
            "scoring" => Some(extender("e").prioritize(1, |_, _| Ok(Vec::new()))),
            _ => None,
        };
        let makes_room = fake("MakesRoom").post_filter(move |cx, _, _, wake| match wake {
            None => PostFilterStep::Wait(wait(cx.now)),
            Some(_) => PostFilterStep::Done(PostFilterResult {
                status: Status::success(),
                nominating: Nominating::Set("n1".into()),
            }),
        });
        let reserves = fake("Reserves").reserve(move |cx, _, _, _, wake| match wake {
            None if situation == "reserving" => Step::Wait(wait(cx.now)),
            _ => Step::success(),
        });
        let flat = fake("Flat").score(|_, _, _| Ok(0));
        let mut w = extended(extender, [fits(), flat, makes_room, reserves]);
        nodes(&mut w, ALL);
        let cpu = if situation == "making room" { "5" } else { "1" };
        w.pod(pod("p").request("cpu", cpu));
        assert_eq!(w.attempt(), "parked", "{situation}");
        let now = w.now;
        w.change("p", |p| p.deleting(now));
        reply_all(&mut w);
        w.advance(Duration::from_secs(1));
        assert_eq!(w.calls_text(), [""; 0], "{situation}");
        assert_eq!(
            w.events_text(),
            ["Warning FailedScheduling skip schedule deleting pod: default/p"],
            "{situation}"
        );
        for result in ["scheduled", "unschedulable", "error"] {
            let labels = [result, "default-scheduler"];
            assert_eq!(w.metric(Metric::ScheduleAttempts, &labels), 0.0);
        }
        assert_eq!(w.place_of("p"), None, "{situation}");
        assert_eq!(w.scheduler.queue().in_flight().len(), 0, "{situation}");
        assert!(ALL.iter().all(|n| w.on(n).is_empty()), "{situation}");
    }
}

/// C-14, F-39: if a node that the extenders accepted was full temporarily, they are called for it again. They are not
/// called again for a node that they rejected.
#[test]
fn a_node_that_was_full_for_a_moment_is_asked_about_again() {
    let (notify, asked) = channel();
    let not_n2 = extender("not n2").filter(move |_, nodes| {
        let _ = notify.send(nodes.join(" "));
        Ok(Filtered {
            nodes: nodes.iter().filter(|n| **n != "n2").cloned().collect(),
            ..Filtered::default()
        })
    });
    let mut w = extended([not_n2], [fits()]);
    nodes(&mut w, &["n1", "n2"]);
    let x = |on: &str| pod("x").request("cpu", "4").on(on);
    let y = |on: &str| pod("y").request("cpu", "4").on(on);
    w.pod(x("n2"));
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(w.attempt(), "parked");
    w.pod(y("n1"));
    w.deleted("x");
    w.reply();
    w.deleted("y");
    w.reply();
    w.reply();
    assert_eq!(w.calls_text(), ["bind p n1"]);
    assert_eq!(notified(&asked), ["n1", "n2", "n1"]);
}

/// C-16, C-23: if a filter fails when a node is evaluated again, the node is excluded, and the attempt continues with
/// the other nodes.
#[test]
fn a_node_on_which_a_filter_breaks_meanwhile_is_left_out() {
    let bind = |node: &str| format!("bind p {node}");
    let broken =
        "patch p PodScheduled=False SchedulerError: running \"Brittle\" filter plugin: oops";
    let on_nominated = "Evaluation failed on nominated node, all nodes are evaluated pod=default/p err=running \"Brittle\" filter plugin: oops";
    let left_out = "A node is left out, because a Filter plugin failed pod=default/p err=running \"Brittle\" filter plugin: oops";
    // The situation, the nominated node, the nodes that the extender leaves, how often the filter fails, the outcome,
    // the log lines, and the nodes of each request.
    type Case = (
        &'static str,
        &'static str,
        &'static [&'static str],
        usize,
        String,
        Option<&'static str>,
        &'static [&'static str],
    );
    let cases: [Case; 4] = [
        (
            "the nominated node",
            "n2",
            &["n2", "n3"],
            1,
            bind("n"),
            Some(on_nominated),
            &["n2", "n1 n2 n3"],
        ),
        (
            "one of several",
            "",
            &["n2", "n3"],
            1,
            bind("n3"),
            Some(left_out),
            &["n1 n2 n3"],
        ),
        (
            "the only one, for a moment",
            "",
            &["n2"],
            1,
            bind("n2"),
            None,
            &["n1 n2 n3", "n2"],
        ),
        (
            "the only one, for good",
            "",
            &["n2"],
            usize::MAX,
            broken.into(),
            None,
            &["n1 n2 n3"],
        ),
    ];
    for (situation, nominated, left, times, expected, logged, asked) in cases {
        let breaks = Arc::new(AtomicUsize::new(0));
        let left_to_break = breaks.clone();
        let brittle = fake("Brittle").filter(move |_, _, node| {
            let breaks = |n: usize| n.checked_sub(1);
            let (order, n2) = (Ordering::Relaxed, node.name() == "n2");
            if n2 && left_to_break.fetch_update(order, order, breaks).is_ok() {
                Status::error("oops")
            } else {
                Status::success()
            }
        });
        let (notify, questions) = channel();
        let leaves = extender("e").filter(move |_, nodes| {
            let mut names: Vec<&str> = nodes.iter().map(Str::as_str).collect();
            names.sort_unstable();
            let _ = notify.send(names.join(" "));
            let kept = nodes.iter().filter(|n| left.contains(&n.as_str()));
            Ok(Filtered {
                nodes: kept.cloned().collect(),
                ..Filtered::default()
            })
        });
        let flat = fake("Flat").score(|_, _, _| Ok(0));
        let mut w = extended([leaves], [fits(), brittle, flat]);
        nodes(&mut w, ALL);
        w.pod(pod("p").request("cpu", "2").nominated(nominated));
        assert_eq!(w.attempt(), "parked", "{situation}");
        breaks.store(times, Ordering::Relaxed);
        w.pod(pod("x").request("cpu", "1").on("n1"));
        reply_all(&mut w);
        let calls = w.calls_text();
        assert!(calls[0].starts_with(&expected), "{situation}: {calls:?}");
        for line in [on_nominated, left_out] {
            let times = usize::from(logged == Some(line));
            assert_eq!(w.logged(line).len(), times, "{situation}: {line}");
        }
        assert_eq!(notified(&questions), asked, "{situation}");
    }
}
