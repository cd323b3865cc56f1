//! The nodes that extenders leave, and the weight of their scores (F-39 to F-41).

use super::*;

/// F-39, F-40, cases 208, 209, 210 and 239: the answers of one extender for three nodes.
#[test]
fn an_extender_leaves_some_nodes_none_or_states_nothing() {
    let unschedulable = "patch p PodScheduled=False Unschedulable: 0/3 nodes are available:";
    let error = "patch p PodScheduled=False SchedulerError:";
    let cases: Vec<(&str, FakeExtender, String, &[&str])> = vec![
        (
            "one node is left",
            extender("e").keeps(&["n2"]),
            "bind p n2".into(),
            &[],
        ),
        (
            "none is left, with reasons",
            extender("e").filter(|_, _| {
                Ok(filtered(
                    &[],
                    &[("n1", "no gpu"), ("n2", "no gpu")],
                    &[("n3", "too old")],
                ))
            }),
            format!("{unschedulable} 1 too old, 2 no gpu."),
            &["Extender"],
        ),
        (
            "none is left, without a word",
            extender("e").keeps(&[]),
            "patch p PodScheduled=False Unschedulable: 0/3 nodes are available:".into(),
            &["Extender"],
        ),
        (
            "a node in both maps",
            extender("e").filter(|_, _| {
                Ok(filtered(
                    &[],
                    &[("n1", "soft"), ("n2", "soft")],
                    &[("n1", "hard"), ("n3", "hard")],
                ))
            }),
            format!("{unschedulable} 1 soft, 2 hard."),
            &["Extender"],
        ),
        (
            "a node that does not exist has failed",
            extender("e").filter(|_, _| Ok(filtered(&["n1"], &[("n9", "what is that")], &[]))),
            "bind p n1".into(),
            &[],
        ),
        (
            "a node that it was not asked about",
            extender("e").keeps(&["n1", "n9"]),
            format!(
                "{error} extender \"e\" claims a filtered node \"n9\" which is not found in the input node list"
            ),
            &[],
        ),
        (
            "it fails",
            extender("e").filter(|_, _| Err("out of order".into())),
            format!("{error} out of order"),
            &[],
        ),
        (
            "it fails, and may",
            extender("e")
                .filter(|_, _| Err("out of order".into()))
                .ignorable(),
            "bind p n".into(),
            &[],
        ),
        (
            "it names a strange node, and may",
            extender("e").keeps(&["n9"]).ignorable(),
            "bind p n".into(),
            &[],
        ),
        (
            "it is not interested",
            extender("e").keeps(&[]).managing("example.com/gpu"),
            "on n".into(),
            &[],
        ),
        (
            "it only scores",
            extender("e").prioritize(1, |_, _| Ok(Vec::new())),
            "bind p n".into(),
            &[],
        ),
    ];
    for (situation, extender, expected, rejectors) in cases {
        let mut w = extended([extender], [fits(), fake("Flat").score(|_, _, _| Ok(0))]);
        nodes(&mut w, ALL);
        w.pod(pod("p").request("cpu", "1"));
        let outcome = outcome(&mut w);
        assert!(outcome.starts_with(&expected), "{situation}: {outcome}");
        assert_eq!(w.rejectors_of("p").0, rejectors, "{situation}");
        let skipped = w.logged("Going on without extender e");
        assert_eq!(
            skipped.len(),
            usize::from(situation.ends_with("and may")),
            "{situation}"
        );
    }
}

/// F-39, F-44, case 209: extenders are called in sequence, ignorable ones last, each with the remaining nodes; the
/// answers of plugins are kept.
#[test]
fn extenders_are_asked_one_after_another() {
    let (may_fail, asked_may_fail) =
        reporting("may fail", || Ok(filtered(&["n2"], &[("n3", "no")], &[])));
    let (first, asked_first) = reporting("first", || {
        Ok(filtered(&["n2", "n3"], &[("n4", "full")], &[]))
    });
    let (last, asked_last) = reporting("last", || Ok(filtered(&[], &[("n2", "never")], &[])));
    let (unasked, asked_unasked) = reporting("unasked", || Ok(Filtered::default()));
    let extenders = [
        may_fail.ignorable(),
        first,
        last.ignorable(),
        unasked.ignorable(),
    ];
    let mut w = extended(extenders, [fits()]);
    nodes(&mut w, &["n2", "n3", "n4"]);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(
        outcome(&mut w),
        "patch p PodScheduled=False Unschedulable: 0/4 nodes are available: 1 Insufficient cpu, 1 full, 1 never, \
         1 no."
    );
    assert_eq!(notified(&asked_first), ["n2 n3 n4"]);
    assert_eq!(notified(&asked_may_fail), ["n2 n3"]);
    assert_eq!(notified(&asked_last), ["n2"]);
    assert_eq!(
        notified(&asked_unasked),
        [""; 0],
        "nothing was left to ask about"
    );
    assert_eq!(w.rejectors_of("p").0, ["Extender", "Fits"]);
}

/// F-5, F-39, case 209: PostFilter receives the nodes on which evictions may help.
#[test]
fn post_filter_knows_where_evictions_may_help() {
    let (notify, codes) = channel();
    let look = fake("Look").post_filter(move |_, _, statuses, _| {
        let mut seen = Vec::new();
        statuses.each(|_, status| {
            let plugin = status.plugin().map(ToString::to_string);
            seen.push((status.code(), plugin.unwrap_or_default()));
            std::ops::ControlFlow::Continue(())
        });
        let _ = notify.send(seen);
        PostFilterStep::Done(PostFilterResult {
            status: Status::unschedulable("looked"),
            nominating: Nominating::Keep,
        })
    });
    let statement = extender("e").filter(|_, _| {
        Ok(filtered(
            &[],
            &[("n1", "busy"), ("n2", "busy")],
            &[("n1", "wrong model")],
        ))
    });
    let mut w = extended([statement], [fits(), look]);
    nodes(&mut w, &["n1", "n2"]);
    w.pod(pod("p"));
    outcome(&mut w);
    let extender = || "Extender".to_owned();
    assert_eq!(
        codes.try_recv().unwrap(),
        [
            (Code::UnschedulableAndUnresolvable, extender()),
            (Code::Unschedulable, extender()),
        ]
    );
}

/// F-41, C-25, case 239: contributions are score × weight × 10, added to the scores of the plugins; an extender that
/// fails or names unknown nodes contributes nothing.
#[test]
fn scores_of_extenders_add_up() {
    let gives = |name: &str, weight, scores: &'static [(&'static str, i64)]| {
        extender(name).prioritize(weight, move |_, _| {
            Ok(scores
                .iter()
                .map(|(name, score)| (Str::from(*name), *score))
                .collect())
        })
    };
    // The plugin scores n1 with 90, n2 with 60, n3 with 30.
    let plugin = || {
        fake("Rank").score(|_, _, node| match node.name().as_str() {
            "n1" => Ok(90),
            "n2" => Ok(60),
            _ => Ok(30),
        })
    };
    let broken = || extender("broken").prioritize(1000, |_, _| Err("out of order".into()));
    let cases: Vec<(&str, Vec<FakeExtender>, bool, &str)> = vec![
        (
            "one is too weak",
            vec![gives("a", 1, &[("n2", 2)])],
            true,
            "n1",
        ),
        (
            "one is strong enough",
            vec![gives("a", 1, &[("n2", 4)])],
            true,
            "n2",
        ),
        (
            "its weight makes it so",
            vec![gives("a", 2, &[("n2", 2)])],
            true,
            "n2",
        ),
        (
            "two add up",
            vec![
                gives("a", 1, &[("n2", 2), ("n3", 3)]),
                gives("b", 1, &[("n3", 4)]),
            ],
            true,
            "n3",
        ),
        (
            "a node named twice",
            vec![gives("a", 1, &[("n2", 2), ("n2", 2)])],
            true,
            "n2",
        ),
        (
            "strangers",
            vec![gives("a", 1, &[("n9", 10), ("n3", 7)])],
            true,
            "n3",
        ),
        (
            "one is broken",
            vec![broken(), gives("b", 1, &[("n2", 4)])],
            true,
            "n2",
        ),
        (
            "one that only filters",
            vec![extender("f").keeps(ALL)],
            true,
            "n1",
        ),
        (
            "without plugins that score",
            vec![gives("a", 1, &[("n3", 1)])],
            false,
            "n3",
        ),
        (
            "beyond all measure",
            vec![gives("a", i64::MAX, &[("n3", i64::MAX), ("n1", i64::MIN)])],
            true,
            "n3",
        ),
    ];
    for (situation, extenders, scored, expected) in cases {
        let asked = extenders.len();
        let mut w = extended(extenders, scored.then(plugin).into_iter().chain([fits()]));
        w.scheduler.set_log_verbosity(5);
        nodes(&mut w, ALL);
        w.pod(pod("p"));
        assert_eq!(w.attempt(), "parked", "{situation}");
        assert_eq!(w.jobs.len(), asked, "{situation}: all at once");
        let asked = match situation {
            "one that only filters" => {
                w.reply();
                0
            }
            _ => asked,
        };
        for left in (0..asked).rev() {
            let running = w.metric(Metric::Goroutines, &["prioritizing_extender"]);
            assert_eq!(running, (left + 1) as f64, "{situation}");
            // The last is answered first.
            let (id, job) = w.jobs.remove(left);
            w.reply_to(id, job);
        }
        assert_eq!(
            w.calls_text(),
            [format!("bind p {expected}")],
            "{situation}"
        );
        assert_eq!(
            w.metric(Metric::Goroutines, &["prioritizing_extender"]),
            0.0
        );
        let notified = w.logged("Failed to run extender's priority function");
        assert_eq!(
            notified.len(),
            usize::from(situation == "one is broken"),
            "{situation}"
        );
    }
}

/// C-20, C-24: one feasible node needs no score; all nodes are evaluated when an extender scores or filters them.
#[test]
fn no_more_nodes_are_evaluated_than_scores_distinguish() {
    let gives = || extender("e").prioritize(1, |_, _| Ok(vec![("n3".into(), 10)]));
    let all = || {
        extender("e").filter(|_, nodes| {
            Ok(Filtered {
                nodes: nodes.to_vec(),
                ..Filtered::default()
            })
        })
    };
    let binds = || extender("e").bind(|_, _| Ok(()));
    let elsewhere = || gives().managing("example.com/gpu");
    for (situation, extender, nodes_of_it, looked_at, asked) in [
        ("scores, several nodes", gives(), ALL, 3, 1),
        ("scores, one node", gives(), &ALL[..1], 1, 0),
        ("filters", all(), ALL, 3, 1),
        ("scores, but not this pod", elsewhere(), ALL, 3, 0),
        ("only binds", binds(), ALL, 1, 1),
    ] {
        let (notify, looks) = channel();
        let look = fake("Look").filter(move |_, _, node| {
            let _ = notify.send(node.name().clone());
            Status::success()
        });
        let mut w = extended([extender], [look]);
        nodes(&mut w, nodes_of_it);
        w.pod(pod("p"));
        w.attempt();
        assert_eq!(looks.try_iter().count(), looked_at, "{situation}");
        assert_eq!(w.jobs.len(), asked, "{situation}");
    }
}

/// C-14, C-16: filters and extenders try the nominated node alone first. The other nodes follow if that node is
/// rejected, or if the extender fails.
#[test]
fn a_nominated_node_is_tried_alone() {
    type Answer = fn(&[Str]) -> Result<Filtered, String>;
    let cases: [(&str, Answer, &str, &[&str]); 3] = [
        (
            "it is taken",
            |nodes| {
                Ok(Filtered {
                    nodes: nodes.to_vec(),
                    ..Filtered::default()
                })
            },
            "bind p n2",
            &["n2"],
        ),
        (
            "it is rejected",
            |nodes| {
                let failed = vec![(Str::from("n2"), "not that".to_owned())];
                let nodes = nodes.iter().filter(|n| **n == "n3").cloned().collect();
                Ok(Filtered {
                    nodes,
                    failed,
                    ..Filtered::default()
                })
            },
            "bind p n3",
            &["n2", "n1 n2 n3"],
        ),
        (
            "the question fails",
            |nodes| match nodes.len() {
                1 => Err("out of order".into()),
                _ => Ok(filtered(&["n1"], &[], &[])),
            },
            "bind p n1",
            &["n2", "n1 n2 n3"],
        ),
    ];
    for (situation, answer, expected, asked) in cases {
        let (notify, questions) = channel();
        let filter = extender("e").filter(move |_, nodes| {
            let mut names: Vec<&str> = nodes.iter().map(Str::as_str).collect();
            names.sort_unstable();
            let _ = notify.send(names.join(" "));
            Ok(answer(nodes)?)
        });
        let mut w = extended([filter], [fits(), fake("Flat").score(|_, _, _| Ok(0))]);
        nodes(&mut w, ALL);
        w.pod(pod("p").nominated("n2"));
        assert_eq!(outcome(&mut w), expected, "{situation}");
        assert_eq!(notified(&questions), asked, "{situation}");
        let failed = w.logged("Evaluation failed on nominated node");
        assert_eq!(
            failed.len(),
            usize::from(situation == "the question fails"),
            "{situation}"
        );
    }
}

/// C-16: the nominated node is only a preference: if every extender rejects it, this alone does not clear the
/// nomination.
#[test]
fn a_pod_that_fits_nowhere_states_what_was_stated_of_every_node() {
    let no = extender("e").filter(|_, nodes| {
        let failed = nodes
            .iter()
            .map(|name| (name.clone(), format!("not {name}")));
        Ok(Filtered {
            failed: failed.collect(),
            ..Filtered::default()
        })
    });
    let mut w = extended([no], [fits()]);
    nodes(&mut w, &["n1", "n2"]);
    w.pod(pod("p").nominated("n2"));
    let outcome = outcome(&mut w);
    assert!(
        outcome.starts_with(
            "patch p PodScheduled=False Unschedulable: 0/2 nodes are available: 1 not n1, 1 not n2."
        ),
        "{outcome}"
    );
    assert_eq!(w.rejectors_of("p").0, ["Extender"]);
}

/// C-54: cached answers are not used if an extender takes part, and cause no wrong decision.
#[test]
fn the_same_shape_may_go_elsewhere() {
    let by_name = extender("e").filter(|pod, _| {
        let node = if pod.name() == "a" { "n1" } else { "n3" };
        Ok(filtered(&[node], &[], &[]))
    });
    let mut w = extended([by_name], [fits(), fake("Flat").score(|_, _, _| Ok(0))]);
    nodes(&mut w, ALL);
    for (name, node) in [("a", "n1"), ("b", "n3"), ("c", "n3")] {
        w.pod(pod(name));
        assert_eq!(outcome(&mut w), format!("bind {name} {node}"));
        w.answer_all();
    }
}
