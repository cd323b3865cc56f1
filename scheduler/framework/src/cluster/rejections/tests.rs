use super::*;
use crate::testing::{PodBuilder, pod};
use berth_api::OwnerReference;

fn at(n: i64) -> Time {
    Time::from_secs(1000 + n)
}

const POLICY: RejectionPolicy = RejectionPolicy {
    exclude_after: 3,
    window: Duration::from_secs(600),
    exclude_for: Duration::from_secs(300),
    half_life: Duration::from_secs(100),
};

fn rejections() -> Rejections {
    let mut rejections = Rejections::default();
    rejections.set_policies([("default-scheduler".into(), POLICY)].into());
    rejections
}

fn owned(builder: PodBuilder, owner: &str) -> PodBuilder {
    builder.with(|pod| {
        let owner = OwnerReference {
            uid: owner.into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        pod.metadata.owner_references = vec![owner].into();
    })
}

/// A pod of the template that is rejected.
fn of_web(name: &str) -> PodBuilder {
    owned(pod(name).request("cpu", "2"), "web")
}

fn reject(rejections: &mut Rejections, node: &str, now: Time) {
    let reason = Str::from("OutOfcpu");
    rejections.remember(&of_web("p").info(), &node.into(), &reason, now);
}

/// Node, weight and end of the exclusion in seconds, for the template.
fn read(rejections: &Rejections) -> Vec<(String, u32, Option<i64>)> {
    let read = rejections.of(&of_web("another").info());
    let read = read.map(|of| {
        let until = of.excluded_until.map(|until| until.since(at(0)).as_secs());
        let until = until.map(|until| i64::try_from(until).expect("a small number"));
        (of.node.to_string(), of.weight, until)
    });
    read.collect()
}

/// PL-350: which failed pods a kubelet rejected.
#[test]
fn rejected_pods_never_started() {
    let failed = |reason: &str| {
        let failed = pod("p").on("n").phase("Failed");
        failed.with(|pod| pod.status.reason = reason.into())
    };
    for (situation, pod, expected) in [
        ("no cpu", failed("OutOfcpu"), Some("OutOfcpu")),
        (
            "an extended resource",
            failed("OutOfexample.com/gpu"),
            Some("OutOfexample.com/gpu"),
        ),
        (
            "the topology manager",
            failed("TopologyAffinityError"),
            Some("TopologyAffinityError"),
        ),
        ("no reason: the containers failed", failed(""), None),
        ("the deadline of a Job", failed("DeadlineExceeded"), None),
        ("the node is shut down", failed("Terminated"), None),
        ("without a node", failed("OutOfcpu").on(""), None),
        ("it runs", failed("OutOfcpu").phase("Running"), None),
        (
            "it has started",
            failed("Evicted").with(|pod| {
                pod.status.container_statuses = vec![berth_api::pod::ContainerStatus::default()];
            }),
            None,
        ),
    ] {
        let reason = rejection_of(&pod.build()).map(ToString::to_string);
        assert_eq!(reason.as_deref(), expected, "{situation}");
    }
}

/// PL-351: the template is the controller and the requests; PL-356: rejections of other profiles are not remembered.
#[test]
fn rejections_are_remembered_for_the_pods_of_a_template() {
    let mut rejections = rejections();
    reject(&mut rejections, "n", at(0));
    for (situation, pod, is_remembered) in [
        ("another pod of the controller", of_web("q"), true),
        (
            "another controller",
            owned(pod("q").request("cpu", "2"), "other"),
            false,
        ),
        ("no controller", pod("q").request("cpu", "2"), false),
        (
            "other requests",
            owned(pod("q").request("cpu", "1"), "web"),
            false,
        ),
        ("another host port", of_web("q").host_port(80), false),
        ("another profile", of_web("q").scheduler("other"), false),
        ("another namespace", of_web("q").namespace("other"), false),
    ] {
        let found = rejections.of(&pod.info()).count();
        assert_eq!(found, usize::from(is_remembered), "{situation}");
    }
    let foreign = of_web("q").scheduler("other").info();
    let (node, reason) = ("n".into(), "OutOfcpu".into());
    rejections.remember(&foreign, &node, &reason, at(1));
    assert_eq!(rejections.len(), 1);
}

/// PL-352: the weight halves with each half-life: 64, 32, 16, …, 1, 0, and nothing changes in between.
#[test]
fn weights_halve_with_each_half_life() {
    let mut rejections = rejections();
    reject(&mut rejections, "n", at(0));
    let mut version = rejections.version();
    for (now, weight) in [
        (0, 64),
        (99, 64),
        (100, 32),
        (199, 32),
        (200, 16),
        (599, 2),
        (600, 1),
        (699, 1),
    ] {
        rejections.advance(at(now));
        assert_eq!(read(&rejections), [("n".to_owned(), weight, None)], "{now}");
        assert!(rejections.version() >= version);
        version = rejections.version();
    }
    rejections.advance(at(650));
    assert_eq!(rejections.version(), version, "nothing has changed");
    rejections.advance(at(700));
    assert!(rejections.is_empty());
    assert!(rejections.version() > version);
    assert!(!rejections.take_freed(), "the node was not excluded");
}

/// PL-353: after three rejections within the window, the node is excluded until five minutes after the last one.
#[test]
fn rejections_within_the_window_exclude_the_node() {
    for (times, until) in [
        (vec![0, 10], None),
        (vec![0, 10, 20], Some(320)),
        (vec![0, 10, 20, 50], Some(350)),
        // The first one is out of the window of 600 s.
        (vec![0, 10, 600], None),
        (vec![0, 10, 599], Some(899)),
    ] {
        let mut rejections = rejections();
        for time in &times {
            reject(&mut rejections, "n", at(*time));
        }
        let read = read(&rejections);
        assert_eq!(read[0].2, until, "{times:?}");
        assert_eq!(rejections.next_end(), until.map(at), "{times:?}");
    }
}

/// PL-354: the end of an exclusion frees the node but does not clear its rejections: one more rejection within the
/// window excludes the node again.
#[test]
fn an_exclusion_ends() {
    let mut rejections = rejections();
    for time in [0, 1, 2] {
        reject(&mut rejections, "n", at(time));
        reject(&mut rejections, "m", at(time + 50));
    }
    rejections.advance(at(301));
    assert!(!rejections.take_freed());
    rejections.advance(at(302));
    assert!(rejections.take_freed() && !rejections.take_freed());
    let ends = |rejections: &Rejections| -> Vec<Option<i64>> {
        let read = read(rejections);
        read.iter().map(|(_, _, until)| *until).collect()
    };
    assert_eq!(
        ends(&rejections),
        [Some(352), None],
        "m is excluded, n is not"
    );
    reject(&mut rejections, "n", at(303));
    assert_eq!(ends(&rejections), [Some(352), Some(603)]);
    rejections.advance(at(2000));
    assert!(rejections.is_empty() && rejections.take_freed());
    assert_eq!(rejections.next_end(), None);
}

/// PL-355: a change of the node clears its rejections.
#[test]
fn a_change_of_the_node_clears_its_memory() {
    let mut rejections = rejections();
    for time in [0, 1, 2] {
        reject(&mut rejections, "n", at(time));
    }
    reject(&mut rejections, "m", at(3));
    rejections.node_changed("other");
    assert_eq!(rejections.len(), 2);
    rejections.node_changed("m");
    assert!(!rejections.take_freed(), "m was not excluded");
    rejections.node_changed("n");
    assert!(rejections.take_freed());
    assert!(rejections.is_empty() && rejections.nodes.is_empty());
}

/// PL-356: another policy starts over.
#[test]
fn another_policy_starts_over() {
    let mut rejections = rejections();
    for time in [0, 1, 2] {
        reject(&mut rejections, "n", at(time));
    }
    rejections.set_policies([("default-scheduler".into(), POLICY)].into());
    assert_eq!(rejections.len(), 1, "the same policy");
    rejections.set_policies(BTreeMap::new());
    assert!(rejections.is_empty() && rejections.take_freed());
}

/// PL-357: the oldest pair is forgotten first.
#[test]
fn no_more_pairs_are_remembered_than_the_limit() {
    let mut rejections = rejections();
    for number in 0..=REJECTIONS_MAX {
        reject(&mut rejections, &format!("n{number}"), at(0));
        // The first node stays the node with the latest rejection.
        if number == 1 {
            reject(&mut rejections, "n0", at(0));
        }
    }
    assert_eq!(rejections.len(), REJECTIONS_MAX);
    let nodes: Vec<String> = read(&rejections).into_iter().map(|(n, _, _)| n).collect();
    assert!(nodes.contains(&"n0".to_owned()) && !nodes.contains(&"n1".to_owned()));
    assert_eq!(rejections.nodes.len(), REJECTIONS_MAX);
}

#[test]
fn reasons_have_few_labels() {
    for (reason, label) in [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/gpu", "OutOfOtherResource"),
        ("TopologyAffinityError", "TopologyAffinityError"),
        ("VendorCheck", "Other"),
    ] {
        assert_eq!(rejection_label(reason), label);
    }
}
