//! The nodes on which evictions are tried, and the end of the search.

use super::*;
use std::collections::BTreeSet;

const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// Ten full nodes, each with a pod of this priority and application.
fn ten(pod_on: impl Fn(usize) -> (i32, &'static str)) -> World {
    let pods = NAMES.iter().enumerate().map(|(i, name)| {
        let (priority, app) = pod_on(i);
        let pod = labelled(&format!("on-{name}"), priority, 4, app);
        (*name, vec![pod])
    });
    world(pods.collect())
}

fn later(mut world: World, seconds: u64) -> World {
    world.now = world.now + berth_api::Duration::from_secs(seconds);
    world
}

fn number_of(name: &str) -> usize {
    NAMES.iter().position(|n| *n == name).expect("a node")
}

/// P-8, P-9, case 235: the number of tried nodes is a percentage of the nodes that may be helped, at least the absolute
/// minimum, at most all. They are tried in order from a random node, wrapping round.
#[test]
fn enough_candidates_end_the_search() {
    for (percentage, absolute, expected) in [
        (0, 2, 2),
        (50, 1, 5),
        (50, 7, 7),
        (39, 1, 3),
        (100, 1, 10),
        (0, 100, 10),
        (10, 100, 10),
    ] {
        let mut wrapped = false;
        for second in 0..40 {
            let case = format!("{percentage} %, {absolute}, second {second}");
            let world = later(ten(|_| (1, "web")), second);
            let outcome = attempt(world, plain("p", 10, 4))
                .args(percentage, absolute)
                .run();
            let tried = &outcome.tried;
            assert_eq!(tried.len(), expected, "{case}: {tried:?}");
            for pair in tried.windows(2) {
                let (one, next) = (number_of(&pair[0]), number_of(&pair[1]));
                assert_eq!(next, (one + 1) % 10, "{case}: {tried:?}");
                wrapped |= next == 0;
            }
            // All candidates cost the same, so the first tried node by name is chosen.
            let first = tried.iter().min().expect("one at least");
            assert_eq!(outcome.text(), format!("{first}: on-{first}"), "{case}");
        }
        assert!(wrapped, "{percentage} %, {absolute}");
    }
}

/// P-8: the search starts at a random node, for each pod and each attempt.
#[test]
fn the_search_begins_anywhere() {
    let first = |name: &str, second: u64| {
        let world = later(ten(|_| (1, "web")), second);
        let outcome = attempt(world, plain(name, 10, 4)).args(0, 1).run();
        outcome.tried[0].clone()
    };
    let mut begun = std::collections::BTreeMap::new();
    for second in 0..1_000 {
        *begun.entry(first("p", second)).or_insert(0) += 1;
    }
    assert_eq!(begun.len(), 10);
    for (node, times) in begun {
        assert!((50..200).contains(&times), "{node}: {times} of 1,000");
    }
    let of_others: BTreeSet<String> = (0..50).map(|i| first(&format!("p{i}"), 0)).collect();
    assert!(of_others.len() > 5, "{of_others:?}");
}

/// P-9, case 235: the search continues past the wanted number of candidates until a candidate breaks no budget, and
/// ends with it.
#[test]
fn the_search_ends_with_a_candidate_that_breaks_no_budget() {
    for second in 0..20 {
        let nodes = ten(|i| (1, if i == 3 { "free" } else { "guarded" }));
        let world = later(with_budget(nodes, budget("x", "guarded", 0, &[])), second);
        let outcome = attempt(world, plain("p", 10, 4)).args(0, 1).run();
        assert_eq!(outcome.text(), "d: on-d");
        let last = outcome.tried.last().map(String::as_str);
        assert_eq!(last, Some("d"), "{:?}", outcome.tried);
    }
}

/// P-9: if every candidate breaks a budget, all nodes are tried, but only the first candidates up to the wanted number
/// are compared.
#[test]
fn no_more_candidates_are_weighed_than_were_wanted() {
    for second in 0..20 {
        let nodes = ten(|i| (9 - i32::try_from(i).unwrap_or(0), "guarded"));
        let world = later(with_budget(nodes, budget("x", "guarded", 0, &[])), second);
        let outcome = attempt(world, plain("p", 10, 4)).args(0, 2).run();
        assert_eq!(outcome.tried.len(), 10);
        let cheaper = outcome.tried[..2].iter().max().expect("two");
        assert_eq!(outcome.text(), format!("{cheaper}: on-{cheaper}"));
    }
}

/// P-9: an error on one node does not matter while another node is a candidate; otherwise all errors are reported. A
/// node that needs no victims is such an error.
#[test]
fn errors_count_only_without_a_candidate() {
    let full = |_: &str| Some(Status::unschedulable("full"));
    let two = |cpu: u32| {
        world(vec![
            ("a", vec![plain("on-a", 1, 4)]),
            ("b", vec![plain("on-b", 1, cpu)]),
        ])
    };
    let no_pod_on_b = "preemption: expected at least one victim pod on node \"b\"";
    for (name, world, broken, expected) in [
        ("one breaks", two(4), vec!["a"], "b: on-b"),
        ("no pod would have to go", two(1), vec![], "a: on-a"),
        (
            "one fails, on the other no pod would have to go",
            two(1),
            vec!["a"],
            "a is out of order",
        ),
        ("both break", two(4), vec!["a", "b"], "a is out of order"),
        ("both break", two(4), vec!["a", "b"], "b is out of order"),
    ] {
        let trial = attempt(world, plain("p", 10, 2)).stated(full);
        let outcome = trial.broken(&broken).run();
        let text = outcome.text();
        assert!(text.contains(expected), "{name}: {text}");
        let is_error = outcome.result.status.code() == Code::Error;
        assert_eq!(is_error, text.starts_with("preemption: "), "{name}: {text}");
        if is_error {
            assert_eq!(outcome.result.nominating, Nominating::Keep, "{name}");
        }
    }
    // Equal messages are listed once, different ones in brackets.
    let wide = |names: [&'static str; 3]| {
        world(
            names
                .into_iter()
                .map(|name| (name, vec![plain("x", 1, 4)]))
                .collect(),
        )
    };
    for (names, expected) in [
        (["a1", "a2", "a3"], vec!["preemption: a is out of order"]),
        (
            ["a1", "a2", "b"],
            vec![
                "preemption: [a is out of order, b is out of order]",
                "preemption: [b is out of order, a is out of order]",
            ],
        ),
    ] {
        let trial = attempt(wide(names), plain("p", 10, 2)).stated(full);
        let text = trial.broken(&names).run().text();
        assert!(expected.contains(&&*text), "{text}");
    }
    let alone = world(vec![("b", vec![plain("on-b", 1, 1)])]);
    let outcome = attempt(alone, plain("p", 10, 2)).stated(full).run();
    assert_eq!(outcome.text(), no_pod_on_b);
    assert_eq!(outcome.result.status.code(), Code::Error);
}

/// P-6, P-9, case 234: the answers of filters decide where evictions are tried; nodes without
/// an answer are out of the question.
#[test]
fn only_nodes_that_may_be_helped_are_tried() {
    let helpless = |nodes: usize| {
        format!(
            "preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
        )
    };
    for (name, status, expected) in [
        (
            "may be helped",
            Some(Status::unschedulable("full")),
            "b: on-b".to_owned(),
        ),
        (
            "cannot be helped",
            Some(Status::unresolvable("never")),
            helpless(10),
        ),
        ("waits", Some(Status::new(Code::Pending, [])), helpless(10)),
        ("is not spoken of", None, helpless(10)),
    ] {
        for others in [None, Some(Status::unresolvable("never"))] {
            for second in 0..6 {
                let (status, others) = (status.clone(), others.clone());
                let stated = move |node: &str| match node {
                    "b" => status.clone(),
                    _ => others.clone(),
                };
                let world = later(ten(|_| (1, "web")), second);
                let outcome = attempt(world, plain("p", 10, 4)).stated(stated).run();
                assert_eq!(outcome.text(), expected, "{name}, second {second}");
                let tried = usize::from(name == "may be helped");
                assert_eq!(outcome.tried.len(), tried, "{name}");
            }
        }
    }
}

/// P-10: without a candidate the message counts the reasons of all nodes, and the pod's nomination is cleared.
#[test]
fn without_a_candidate_every_node_states_why() {
    let nodes = vec![
        ("important", vec![plain("a", 20, 4)]),
        ("small", vec![plain("b", 1, 1), plain("c", 20, 3)]),
        ("tainted", vec![plain("d", 1, 4)]),
    ];
    let outcome = attempt(world(nodes), plain("p", 10, 2))
        .stated(|node| match node {
            "tainted" => None,
            _ => Some(Status::unschedulable("full")),
        })
        .run();
    assert_eq!(
        outcome.text(),
        "preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, \
         1 Preemption is not helpful for scheduling."
    );
    assert_eq!(outcome.result.status.code(), Code::Unschedulable);
    assert_eq!(outcome.result.nominating, Nominating::Set(Str::default()));
}
