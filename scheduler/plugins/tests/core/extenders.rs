//! Extenders take part in preemption, and leave resources alone that are theirs (P-14, F-43, F-44).

use crate::drivers::{driver_of, driver_with, is_deletion, is_status_of};
use berth_api::Release;
use berth_api::{Duration, Str};
use berth_framework::extender::{ChosenVictims, Extender, Extenders, Filtered, NodeVictims};
use berth_framework::testing::{FakeExtender, extender, node, pod};
use berth_framework::{ApiCall, Feature, FeatureGates};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Two full nodes of two CPUs, used by the pods `a` and `b`. The pod `idle` is on the first node.
fn full(extenders: impl IntoIterator<Item = FakeExtender>) -> Driver {
    let extenders: Vec<Arc<dyn Extender>> =
        extenders.into_iter().map(FakeExtender::build).collect();
    let mut w = driver_with(|options| options.extenders = Extenders::new(extenders));
    for (at, pod_of) in [("n1", "a"), ("n2", "b")] {
        w.node(node(at).capacity("2", "1Gi", "10"));
        w.pod(pod(pod_of).request("cpu", "2").on(at));
    }
    w.pod(pod("idle").on("n1"));
    w
}

fn victims(node: &str, pods: &[&str], violations: usize) -> ChosenVictims {
    ChosenVictims {
        node: node.into(),
        pods: pods
            .iter()
            .map(|name| Str::from(format!("uid-{name}")))
            .collect(),
        violations,
    }
}

/// Tries the preemptor and answers all calls. Returns the victims in the order of their deletions, the nominated node,
/// and the message.
fn made_room(w: &mut Driver) -> (Vec<String>, String, String) {
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    let began = w.attempt_named();
    answered(w, &began)
}

/// The same, for an attempt that has begun.
fn answered(w: &mut Driver, began: &str) -> (Vec<String>, String, String) {
    while !w.jobs.is_empty() {
        w.reply();
    }
    let patch = w.calls.iter().find_map(|(_, call)| match call {
        ApiCall::PatchPodStatus {
            pod,
            conditions,
            nominated_node,
        } if pod.name == "vip" => Some((
            nominated_node
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            conditions.first()?.message.to_string(),
        )),
        _ => None,
    });
    let (node, message) = patch.unwrap_or_else(|| panic!("{began}"));
    let mut going = Vec::new();
    while let Some(next) = w.deletions().into_iter().next() {
        w.answer_which(is_deletion, None, false);
        going.push(next);
    }
    (going, node, message)
}

/// P-14, F-43, case 239: the changes of two candidates by one extender.
#[test]
fn an_extender_chooses_where_room_is_made_and_who_goes() {
    type Stated = Result<Vec<ChosenVictims>, String>;
    type Answer = fn() -> Stated;
    // The situation, the answer, whether the extender is ignorable, the victims, the nominated node, the message.
    type Case = (
        &'static str,
        Answer,
        bool,
        &'static [&'static str],
        &'static str,
        &'static str,
    );
    let no_cpu = "0/2 nodes are available: 2 Insufficient cpu.";
    let none = "no new claims to deallocate, preemption: no candidate node for preemption";
    let cases: [Case; 14] = [
        (
            "it leaves all",
            || Ok(vec![victims("n1", &["a"], 0), victims("n2", &["b"], 0)]),
            false,
            &["a"],
            "n1",
            "",
        ),
        (
            "it leaves one",
            || Ok(vec![victims("n2", &["b"], 0)]),
            false,
            &["b"],
            "n2",
            "",
        ),
        (
            "it names another victim",
            || Ok(vec![victims("n1", &["idle"], 0)]),
            false,
            &["idle"],
            "n1",
            "",
        ),
        (
            "it names two",
            || Ok(vec![victims("n1", &["idle", "a"], 0)]),
            false,
            &["idle", "a"],
            "n1",
            "",
        ),
        (
            "it knows of a budget",
            || Ok(vec![victims("n1", &["a"], 1), victims("n2", &["b"], 0)]),
            false,
            &["b"],
            "n2",
            "",
        ),
        ("it leaves nothing", || Ok(Vec::new()), false, &[], "", none),
        (
            "no victims, and it may fail",
            || Ok(vec![victims("n1", &[], 0), victims("n2", &["b"], 0)]),
            true,
            &["b"],
            "n2",
            "",
        ),
        (
            "nothing but that",
            || Ok(vec![victims("n1", &[], 0)]),
            true,
            &[],
            "",
            none,
        ),
        (
            "no victims",
            || Ok(vec![victims("n1", &[], 0), victims("n2", &["b"], 0)]),
            false,
            &[],
            "",
            "preemption: expected at least one victim pod on node \"n1\"",
        ),
        (
            "a pod of another node",
            || Ok(vec![victims("n1", &["b"], 0)]),
            false,
            &[],
            "",
            "preemption: extender: http://e claims to preempt pod (UID: uid-b) on node: n1, but the pod is not found \
             on that node",
        ),
        (
            "a node that there is not",
            || Ok(vec![victims("n9", &["b"], 0)]),
            false,
            &[],
            "",
            "preemption: nodeinfo not found for node name \"n9\"",
        ),
        (
            "the same, and it may fail",
            || Ok(vec![victims("n9", &["b"], 0)]),
            true,
            &["a"],
            "n1",
            "",
        ),
        (
            "it fails",
            || Err("out of order".into()),
            false,
            &[],
            "",
            "preemption: out of order",
        ),
        (
            "it fails, and may",
            || Err("out of order".into()),
            true,
            &["a"],
            "n1",
            "",
        ),
    ];
    for (situation, answer, ignorable, going, nominated, stated) in cases {
        let statement = extender("http://e").preempt(move |_, _| Ok(answer()?));
        let mut w = full([if ignorable {
            statement.ignorable()
        } else {
            statement
        }]);
        let (deletions, node, message) = made_room(&mut w);
        assert_eq!(deletions, going, "{situation}");
        assert_eq!(node, nominated, "{situation}");
        let expected = [no_cpu, stated].join(" ");
        assert_eq!(message, expected.trim_end(), "{situation}");
        let is_skipped = "Going on without extender http://e: ";
        let messages = w.log.iter().map(|line| &line.message);
        let skipped = messages.filter(|m| m.starts_with(is_skipped)).count();
        let is_passed_over = situation.ends_with("may") || situation.ends_with("may fail");
        assert_eq!(
            skipped,
            usize::from(is_passed_over && nominated == "n1"),
            "{situation}"
        );
    }
}

/// P-14: a preemptor keeps its nomination when extenders leave no candidate, or fail.
#[test]
fn a_nomination_outlives_extenders_that_leave_no_node() {
    for (situation, statement) in [
        (
            "nothing is left",
            extender("e").preempt(|_, _| Ok(Vec::new())),
        ),
        (
            "it fails",
            extender("e").preempt(|_, _| Err("out of order".into())),
        ),
    ] {
        let mut w = full([statement]);
        w.pod(pod("vip").priority(10).request("cpu", "2").nominated("n2"));
        assert_eq!(w.attempt_named(), "parked", "{situation}");
        w.reply();
        assert!(w.jobs.is_empty(), "{situation}");
        assert_eq!(w.nominated("vip"), "n2", "{situation}");
        assert_eq!(w.deletions(), [""; 0], "{situation}");
    }
}

/// P-14, F-40, F-44: extenders are called one after another with the remaining candidates; an extender that is not
/// interested in the pod is not called.
#[test]
fn extenders_are_asked_in_turn_about_what_is_left() {
    let (notify, asked) = channel();
    let asks = |name: &'static str, left: &'static [(&'static str, &'static str)]| {
        let notify = notify.clone();
        extender(name).preempt(move |pod, notified| {
            let mut notified: Vec<String> = notified
                .iter()
                .map(|of| {
                    let pods: Vec<&str> = of.pods.iter().map(|p| p.name().as_str()).collect();
                    format!("{} {}", of.node, pods.join(" "))
                })
                .collect();
            notified.sort();
            let _ = notify.send(format!(
                "{name} about {}: {}",
                pod.name(),
                notified.join(", ")
            ));
            Ok(left
                .iter()
                .map(|(node, pod)| victims(node, &[pod], 0))
                .collect())
        })
    };
    let mut w = full([
        asks("may fail", &[("n2", "b")]).ignorable(),
        asks("elsewhere", &[]).managing("example.com/gpu"),
        asks("first", &[("n1", "idle"), ("n2", "b")]),
        asks("unasked", &[]).ignorable().managing("example.com/gpu"),
    ]);
    let (deletions, node, _) = made_room(&mut w);
    assert_eq!((deletions, node.as_str()), (vec!["b".to_owned()], "n2"));
    assert_eq!(
        asked.try_iter().collect::<Vec<_>>(),
        [
            "first about vip: n1 a, n2 b",
            "may fail about vip: n1 idle, n2 b"
        ]
    );
}

/// F-43: victims that an extender names are evicted like others, the least important last, in whatever order it names
/// them.
#[test]
fn the_least_important_goes_last() {
    let names = extender("e").preempt(|_, _| Ok(vec![victims("n1", &["a", "more"], 0)]));
    let mut w = full([names]);
    w.pod(pod("more").priority(5).on("n1"));
    assert_eq!(made_room(&mut w).0, ["more", "a"]);
}

/// P-14: once no candidate is left, no further extender is called.
#[test]
fn no_plugin_is_asked_without_a_pod() {
    let mut w = full([
        extender("a").preempt(|_, _| Ok(Vec::new())),
        extender("b").preempt(|_, _| panic!("there is nothing to ask about")),
    ]);
    assert_eq!(made_room(&mut w).0, [""; 0]);
}

/// F-37, P-3, P-14: an extender has a timeout. No victim is evicted for a preemptor that was deleted during the call,
/// or for resources that are free already.
#[test]
fn time_goes_on_while_an_extender_thinks_about_evictions() {
    let agrees = || extender("http://e").preempt(|_, _| Ok(vec![victims("n1", &["a"], 0)]));
    let vip = || pod("vip").priority(10).request("cpu", "2");

    let mut w = full([agrees().timeout(Duration::from_secs(2))]);
    w.pod(vip());
    assert_eq!(w.attempt_named(), "parked");
    w.wait(2);
    let notified = w.calls.iter().any(|(_, call)| {
        let stated = call.condition("PodScheduled");
        stated.is_some_and(|c| {
            c.message
                .ends_with("preemption: no answer from extender http://e within 2000 ms")
        })
    });
    assert!(notified, "{:?}", w.calls);
    w.reply();
    assert_eq!(w.deletions(), [""; 0], "too late");

    let mut w = full([agrees()]);
    w.pod(vip());
    assert_eq!(w.attempt_named(), "parked");
    w.deleted("vip");
    w.reply();
    assert_eq!(w.deletions(), [""; 0], "no pod needs the room");

    let mut w = full([agrees()]);
    w.pod(vip());
    assert_eq!(w.attempt_named(), "parked");
    w.deleted("a");
    w.reply();
    assert_eq!(w.deletions(), [""; 0], "there is room now");
    assert_eq!(w.nominated("vip"), "n1");
    assert_eq!(w.place_of("vip"), Some(QueuedIn::Backoff));
    w.wait(1);
    assert_eq!(w.attempt_named(), "vip on n1");
}

fn node_gone(w: &mut Driver, name: &str) {
    w.gone(node(name).object());
}

/// P-14: changes of the cluster during the call of an extender count. No pod is evicted if the resources are free
/// already or if its eviction would not be enough any more, and a deleted pod is not evicted.
#[test]
fn the_cluster_changes_while_an_extender_thinks_about_evictions() {
    let vip = || pod("vip").priority(10).request("cpu", "2");
    let important = |name: &str, cpu: &str| pod(name).priority(20).request("cpu", cpu);
    let room = "there is room on node \"n2\" by now";
    type Stated = fn(&[NodeVictims]) -> Result<Vec<ChosenVictims>, String>;
    type Change<'a> = &'a dyn Fn(&mut Driver);
    // The extenders accept all candidates, or only one node, or fail and are ignorable.
    let agrees: Stated = |notified| {
        let same = |of: &NodeVictims| ChosenVictims {
            node: of.node.clone(),
            pods: of.pods.iter().map(|pod| pod.uid().clone()).collect(),
            violations: of.violations,
        };
        Ok(notified.iter().map(same).collect())
    };
    let first: Stated = |notified| {
        let first = notified.iter().min_by_key(|of| of.node.clone());
        let first = first.expect("there is one");
        let pods: Vec<&str> = first.pods.iter().map(|pod| pod.name().as_str()).collect();
        Ok(vec![victims(&first.node, &pods, 0)])
    };
    let fails: Stated = |_| Err("out of order".into());
    let chooses: Stated = |_| Ok(vec![victims("n1", &["idle"], 0)]);
    // The situation, the extender's answer, the change during the call, the victims, the nominated node, the message,
    // and how often the extender is called.
    type Case<'a> = (
        &'a str,
        Stated,
        Change<'a>,
        &'a [&'a str],
        &'a str,
        &'a str,
        usize,
    );
    let cases: [Case<'_>; 10] = [
        (
            "there is room elsewhere",
            first,
            &|w| w.deleted("b"),
            &[],
            "n2",
            room,
            1,
        ),
        (
            "the same, though it fails",
            fails,
            &|w| w.deleted("b"),
            &[],
            "n2",
            room,
            1,
        ),
        (
            "the victim has gone, and others have its place",
            first,
            &|w| {
                w.deleted("a");
                w.pod(pod("c").request("cpu", "1").on("n1"));
                w.pod(pod("d").request("cpu", "1").on("n1"));
            },
            &["c", "d"],
            "n1",
            "",
            2,
        ),
        (
            "what is left is not enough",
            agrees,
            &|w| {
                w.pod(important("x", "1").on("n1"));
            },
            &["b"],
            "n2",
            "",
            1,
        ),
        (
            "the only one that it left is not enough",
            first,
            &|w| {
                w.pod(important("x", "1").on("n1"));
            },
            &["b"],
            "n2",
            "",
            2,
        ),
        (
            "it fails, the node is gone, and another has its place",
            fails,
            &|w| {
                w.deleted("a");
                w.deleted("idle");
                node_gone(w, "n1");
                w.node(node("n3").capacity("2", "1Gi", "10"));
                w.pod(important("x", "2").on("n3"));
                w.pod(pod("low").request("cpu", "2").nominated("n3"));
            },
            &["b"],
            "n2",
            "",
            1,
        ),
        (
            "the node that it left is gone",
            agrees,
            &|w| {
                w.deleted("a");
                w.deleted("idle");
                node_gone(w, "n1");
            },
            &["b"],
            "n2",
            "",
            1,
        ),
        (
            "it has its own reasons",
            chooses,
            &|w| {
                w.pod(important("x", "1").on("n2"));
            },
            &["idle"],
            "n1",
            "",
            1,
        ),
        (
            "it has its own reasons, and one of those that it chose has gone",
            |_| Ok(vec![victims("n1", &["idle", "a"], 0)]),
            &|w| {
                w.deleted("a");
                w.pod(important("x", "2").on("n1"));
            },
            &["idle"],
            "n1",
            "",
            1,
        ),
        (
            "its own choice has gone",
            chooses,
            &|w| {
                w.deleted("idle");
            },
            &[],
            "",
            "extender: http://e claims to preempt pod (UID: uid-idle) on node: n1, but the pod is not found on that node",
            1,
        ),
    ];
    for (situation, statement, change, going, nominated, stated, times) in cases {
        let (notify, asked) = channel();
        let extender = extender("http://e").preempt(move |_, notified| {
            let _ = notify.send(());
            Ok(statement(notified)?)
        });
        let may_fail = situation.contains("it fails");
        let mut w = full([if may_fail {
            extender.ignorable()
        } else {
            extender
        }]);
        w.pod(vip());
        assert_eq!(w.attempt_named(), "parked", "{situation}");
        change(&mut w);
        let (deletions, node, message) = answered(&mut w, "parked");
        assert_eq!(deletions, going, "{situation}");
        assert_eq!(node, nominated, "{situation}");
        assert!(message.ends_with(stated), "{situation}: {message}");
        assert_eq!(asked.try_iter().count(), times, "{situation}");
        let others = w.calls.iter().any(|(_, call)| is_status_of("low")(call));
        assert!(
            !others,
            "{situation}: no pod loses a nomination of another node"
        );
    }
}

/// P-14, P-9, case 239: a filter extender rejects a node on which the pod fits for the plugins, so that no pod has to
/// be evicted there. The node `full` needs a victim. Since 1.38, the extender receives both nodes.
#[test]
fn extenders_receive_nodes_without_victims_since_1_38() {
    type Stated = fn() -> Vec<ChosenVictims>;
    let both: Stated = || vec![victims("free", &[], 0), victims("full", &["b"], 0)];
    let free: Stated = || vec![victims("free", &[], 0)];
    let emptied: Stated = || vec![victims("full", &[], 0)];
    let emptied_and_free: Stated = || vec![victims("full", &[], 0), victims("free", &[], 0)];
    let no_victim =
        |node: &str| format!("preemption: expected at least one victim pod on node {node:?}");
    let none = || "preemption: no candidate node for preemption".to_owned();
    let ok = String::new;
    // The situation, the answer, whether the extender is ignorable, the release; the victims, the nominated node, the
    // end of the message.
    for (situation, stated, ignorable, release, expected) in [
        (
            "both",
            both,
            false,
            Release::V1_37,
            ("", "", no_victim("free")),
        ),
        ("both", both, true, Release::V1_37, ("b", "full", ok())),
        ("both", both, false, Release::V1_38, ("", "free", ok())),
        (
            "free",
            free,
            false,
            Release::V1_36,
            ("", "", no_victim("free")),
        ),
        ("free", free, true, Release::V1_36, ("", "", none())),
        ("free", free, false, Release::V1_38, ("", "free", ok())),
        ("free", free, true, Release::V1_38, ("", "free", ok())),
        (
            "emptied",
            emptied,
            false,
            Release::V1_38,
            ("", "", no_victim("full")),
        ),
        ("emptied", emptied, true, Release::V1_38, ("", "", none())),
        (
            "emptied and free",
            emptied_and_free,
            true,
            Release::V1_38,
            ("", "free", ok()),
        ),
    ] {
        let (notified, asked) = channel();
        let extender = extender("e")
            .filter(|_, nodes| {
                Ok(Filtered {
                    failed: nodes
                        .iter()
                        .map(|n| (n.clone(), "no license".to_owned()))
                        .collect(),
                    ..Filtered::default()
                })
            })
            .preempt(move |_, received| {
                let shown = received
                    .iter()
                    .map(|node| format!("{}:{}", node.node, node.pods.len()));
                let mut shown: Vec<String> = shown.collect();
                shown.sort();
                notified.send(shown.join(" ")).expect("a receiver");
                Ok(stated())
            });
        let extender = if ignorable {
            extender.ignorable()
        } else {
            extender
        };
        let extenders: Vec<Arc<dyn Extender>> = vec![extender.build()];
        let mut w = driver_with(|options| {
            options.extenders = Extenders::new(extenders);
            options.features = FeatureGates::of(release);
        });
        for (at, pod_of, cpu) in [("free", "a", "1"), ("full", "b", "2")] {
            w.node(node(at).capacity("2", "1Gi", "10"));
            w.pod(pod(pod_of).request("cpu", cpu).on(at));
        }
        w.pod(pod("vip").priority(10).request("cpu", "1"));
        let began = w.attempt_named();
        let (going, nominated, message) = answered(&mut w, &began);
        let case = format!("{situation} in {release}, ignorable {ignorable}");
        let received = match release {
            Release::V1_38 => "free:0 full:1",
            Release::V1_36 | Release::V1_37 => "full:1",
        };
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [received], "{case}");
        assert_eq!(going.join(" "), expected.0, "{case}");
        assert_eq!(nominated, expected.1, "{case}");
        assert!(message.contains(&expected.2), "{case}: {message}");
    }
}

/// P-14: the next extender does not receive victims and nodes that were deleted.
#[test]
fn the_next_extender_does_not_receive_rejected_nodes() {
    let (notify, asked) = channel();
    let leaves_all = |name: &str| {
        let notify = notify.clone();
        extender(name).preempt(move |_, notified| {
            let mut nodes: Vec<&str> = notified.iter().map(|of| of.node.as_str()).collect();
            nodes.sort_unstable();
            let _ = notify.send(nodes.join(" "));
            Ok(vec![victims("n1", &["a"], 0), victims("n2", &["b"], 0)])
        })
    };
    let mut w = full([leaves_all("e"), leaves_all("f").ignorable()]);
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    assert_eq!(w.attempt_named(), "parked");
    w.deleted("a");
    w.deleted("idle");
    node_gone(&mut w, "n1");
    let (going, node, _) = answered(&mut w, "parked");
    assert_eq!((going, node.as_str()), (vec!["b".to_owned()], "n2"));
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), ["n1 n2", "n2"]);
}

/// P-14: only the victims that are still needed are evicted, even if an extender agreed to more.
#[test]
fn victims_that_are_not_needed_any_more_stay() {
    let agrees = extender("e").preempt(|_, _| Ok(vec![victims("n1", &["a", "b"], 0)]));
    let agrees: Arc<dyn Extender> = agrees.build();
    let mut w = driver_with(|options| options.extenders = Extenders::new([agrees]));
    w.node(node("n1").capacity("3", "1Gi", "10"));
    for (name, priority) in [("a", 1), ("b", 0), ("c", 20)] {
        w.pod(pod(name).priority(priority).request("cpu", "1").on("n1"));
    }
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    assert_eq!(w.attempt_named(), "parked");
    w.deleted("c");
    w.reply();
    assert_eq!(w.deletions(), ["b"]);
    assert_eq!(w.nominated("vip"), "n1");
}

/// P-14: the search for candidates is repeated a limited number of times if candidates become invalid.
#[test]
fn the_search_for_candidates_comes_to_an_end() {
    let (notify, asked) = channel();
    let first = extender("e").preempt(move |_, notified| {
        let first = notified.iter().min_by_key(|of| of.node.clone());
        let first = first.expect("there is one");
        let _ = notify.send(first.node.clone());
        let pods: Vec<&str> = first.pods.iter().map(|pod| pod.name().as_str()).collect();
        Ok(vec![victims(&first.node, &pods, 0)])
    });
    let mut w = full([first]);
    for at in ["n3", "n4", "n5", "n6"] {
        w.node(node(at).capacity("2", "1Gi", "10"));
        w.pod(pod(&format!("on-{at}")).request("cpu", "2").on(at));
    }
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    assert_eq!(w.attempt_named(), "parked");
    let mut at = 0;
    while !w.jobs.is_empty() {
        at += 1;
        let important = pod(&format!("x{at}")).priority(20).request("cpu", "1");
        w.pod(important.on(&format!("n{at}")));
        w.reply();
    }
    assert_eq!(
        asked.try_iter().collect::<Vec<_>>(),
        ["n1", "n2", "n3", "n4"]
    );
    let (going, _, message) = answered(&mut w, "");
    assert_eq!(going, [""; 0]);
    let end = "preemption: the nodes keep changing while extenders are asked";
    assert!(message.ends_with(end), "{message}");
}

/// P-24: without SchedulerAsyncPreemption the scheduling cycle waits for the deletion of its victims. If their node is
/// deleted in the meantime, the nominations to another node that reuses its slot remain.
#[test]
fn the_place_of_a_node_is_not_the_node() {
    let features = FeatureGates::default().with(Feature::SchedulerAsyncPreemption, false);
    let mut w = driver_of(features);
    w.node(node("n1").capacity("2", "1Gi", "10"));
    w.pod(pod("a").request("cpu", "2").on("n1"));
    w.pod(pod("vip").priority(10).request("cpu", "2"));
    assert_eq!(w.attempt_named(), "parked");
    let (id, _) = w.calls.remove(0);
    w.deleted("a");
    node_gone(&mut w, "n1");
    w.node(node("n3").capacity("2", "1Gi", "10"));
    w.pod(pod("x").priority(20).request("cpu", "2").on("n3"));
    w.pod(pod("low").request("cpu", "2").nominated("n3"));
    w.complete(id, Ok(()));
    let others = w.calls.iter().any(|(_, call)| is_status_of("low")(call));
    assert!(!others, "{:?}", w.calls);
}

/// C-20, F-41: with every plugin at work, an extender that likes one node a lot decides.
#[test]
fn an_extender_outweighs_the_plugins() {
    let likes = extender("e").prioritize(100, |_, _| Ok(vec![("n3".into(), 10)]));
    let mut w = full([likes]);
    for name in ["n3", "n4", "n5"] {
        w.node(node(name).capacity("8", "8Gi", "10"));
    }
    w.pod(pod("p").request("cpu", "2"));
    assert_eq!(w.attempt_named(), "parked");
    w.reply();
    w.answer_all();
    assert_eq!(w.pods["p"].spec.node_name, "n3");
}
