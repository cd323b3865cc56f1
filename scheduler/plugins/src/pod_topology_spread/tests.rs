//! The nodes that PodTopologySpread rejects, and the events that may help.

use super::constraints::DO_NOT_SCHEDULE;
use super::*;
use crate::testing::{
    Answer, World, add, delete, full_pod, hint, node, unresolvable, unschedulable, update,
};
use berth_api::{Node, Pod};
use berth_framework::event::{Hint, HintError};
use berth_framework::plugin::{PreFilter, PreFilterResult};
use berth_framework::{Code, CycleState, PodInfo};
use serde_json::{Value, json};

/// A constraint on pods `app=web`.
pub(super) fn constraint(key: &str, max_skew: i32, action: &str) -> Value {
    json!({
        "topologyKey": key,
        "maxSkew": max_skew,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "web"}},
    })
}

fn hard(key: &str, max_skew: i32) -> Value {
    constraint(key, max_skew, DO_NOT_SCHEDULE)
}

pub(super) fn with(mut constraint: Value, field: &str, value: Value) -> Value {
    constraint[field] = value;
    constraint
}

pub(super) fn web(name: &str, spec: Value) -> Pod {
    full_pod(
        name,
        json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}),
    )
}

pub(super) fn spread(constraints: Value) -> Pod {
    web("p", json!({"topologySpreadConstraints": constraints}))
}

pub(super) fn info(pod: Pod) -> PodInfo {
    PodInfo::new(Arc::new(pod))
}

/// Two nodes in each of zones a and b, with these numbers of pods `app=web`.
pub(super) fn zones(pods: [usize; 4]) -> World {
    let mut world = World::new();
    for ((name, zone), count) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")]
        .into_iter()
        .zip(pods)
    {
        let labels = json!({"zone": zone, "kubernetes.io/hostname": name});
        world = world.node(name, json!({"metadata": {"labels": labels}}));
        for i in 0..count {
            world = world.bound_pod(name, web(&format!("{name}-{i}"), json!({})));
        }
    }
    world
}

/// Letters for the answers: `.` fits, `S` skew, `L` the label is missing.
fn picture(answers: Result<Vec<Answer>, Answer>) -> String {
    let letter = |answer: &Answer| match answer {
        None => '.',
        some if *some == unschedulable(REASON_SKEW) => 'S',
        some if *some == unresolvable(REASON_NO_DOMAIN) => 'L',
        _ => '?',
    };
    answers
        .expect("no rejection by PreFilter")
        .iter()
        .map(letter)
        .collect()
}

fn filtered(world: &World, pod: Pod) -> String {
    picture(world.filter(&PodTopologySpread::default(), &info(pod)))
}

const HOST: &str = "kubernetes.io/hostname";

/// PL-99: skew against the emptiest domain.
#[test]
fn the_emptiest_domain_sets_the_limit() {
    let other = |constraints: Value| {
        full_pod(
            "p",
            json!({"metadata": {"labels": {"app": "db"}}, "spec": {"topologySpreadConstraints": constraints}}),
        )
    };
    for (name, pods, pod, expected) in [
        (
            "3/3 zones",
            [2, 1, 3, 0],
            spread(json!([hard("zone", 1)])),
            "....",
        ),
        (
            "hosts 2/1/0/3, maxSkew 1",
            [2, 1, 0, 3],
            spread(json!([hard(HOST, 1)])),
            "SS.S",
        ),
        (
            "hosts 2/1/0/3, maxSkew 2",
            [2, 1, 0, 3],
            spread(json!([hard(HOST, 2)])),
            "S..S",
        ),
        (
            "a pod outside of its own selector",
            [2, 1, 0, 3],
            other(json!([hard(HOST, 1)])),
            "S..S",
        ),
        (
            "zone 3/3 and host 2/1/0/3",
            [2, 1, 0, 3],
            spread(json!([hard("zone", 1), hard(HOST, 1)])),
            "SS.S",
        ),
        (
            "zone 4/1",
            [2, 2, 1, 0],
            spread(json!([hard("zone", 1)])),
            "SS..",
        ),
        (
            "no such label anywhere",
            [0, 0, 0, 0],
            spread(json!([hard("rack", 1)])),
            "LLLL",
        ),
        (
            "soft constraints do not filter",
            [9, 0, 0, 0],
            spread(json!([constraint("zone", 1, "ScheduleAnyway")])),
            "....",
        ),
    ] {
        assert_eq!(filtered(&zones(pods), pod), expected, "{name}");
    }
}

/// PL-95, PL-97: selectors of nothing and of everything, and keys that the pod's labels complete.
#[test]
fn which_pods_count() {
    let terminating = {
        let mut pod = web("gone", json!({}));
        pod.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
        pod
    };
    let mut elsewhere = web("far", json!({}));
    elsewhere.metadata.namespace = "other".into();
    let revision = |name: &str, rev: &str| {
        full_pod(
            name,
            json!({"metadata": {"labels": {"app": "web", "rev": rev}}}),
        )
    };
    let with_revision = |constraints: Value| {
        let mut pod = revision("p", "2");
        pod.spec = spread(constraints).spec;
        pod
    };
    let keyed = || with(hard("zone", 1), "matchLabelKeys", json!(["rev", "absent"]));
    for (name, world, pod, expected) in [
        (
            "no selector: none counts, nor the pod",
            zones([5, 0, 0, 0]),
            spread(json!([with(hard("zone", 1), "labelSelector", Value::Null)])),
            "....",
        ),
        (
            "everything counts none, but the pod",
            zones([5, 0, 0, 0]),
            spread(json!([with(hard("zone", 1), "labelSelector", json!({}))])),
            "....",
        ),
        (
            "terminating pods do not count",
            zones([1, 0, 0, 0]).bound_pod("a1", terminating),
            spread(json!([hard("zone", 2)])),
            "....",
        ),
        (
            "pods of other namespaces do not count",
            zones([1, 0, 0, 0]).bound_pod("a1", elsewhere),
            spread(json!([hard("zone", 2)])),
            "....",
        ),
        (
            "no selector stays none, whatever the keys add",
            zones([5, 0, 0, 0]),
            with_revision(json!([with(keyed(), "labelSelector", Value::Null)])),
            "....",
        ),
        (
            "only its own revision counts",
            zones([2, 0, 0, 0]),
            with_revision(json!([keyed()])),
            "....",
        ),
        (
            "its own revision counts",
            zones([0, 0, 0, 0]).bound_pod("a1", revision("r", "2")),
            with_revision(json!([keyed()])),
            "SS..",
        ),
    ] {
        assert_eq!(filtered(&world, pod), expected, "{name}");
    }
}

/// PL-100: with fewer domains than wanted, the emptiest has none.
#[test]
fn domains_that_are_missing_are_empty() {
    for (name, pods, min_domains, expected) in [
        (
            "three wanted, two there with 1 and 1",
            [1, 0, 1, 0],
            3,
            "SSSS",
        ),
        ("two wanted, two there", [1, 0, 1, 0], 2, "...."),
        ("three wanted, no pod there yet", [0, 0, 0, 0], 3, "...."),
    ] {
        let pod = spread(json!([with(
            hard("zone", 1),
            "minDomains",
            json!(min_domains)
        )]));
        assert_eq!(filtered(&zones(pods), pod), expected, "{name}");
    }
    let third = zones([1, 0, 1, 0]).node("c1", json!({"metadata": {"labels": {"zone": "c"}}}));
    let pod = spread(json!([with(hard("zone", 1), "minDomains", json!(3))]));
    assert_eq!(filtered(&third, pod), "SSSS.", "only the third, empty one");
}

/// PL-98: affinity and taints decide which nodes count; all keys must be there.
#[test]
fn which_nodes_count() {
    let tainted = |pods: [usize; 4]| {
        let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        let labels = json!({"zone": "c", HOST: "c1"});
        zones(pods).node(
            "c1",
            json!({"metadata": {"labels": labels}, "spec": {"taints": taints}}),
        )
    };
    let in_zone_a = |constraint: Value| {
        web(
            "p",
            json!({"nodeSelector": {"zone": "a"}, "topologySpreadConstraints": [constraint]}),
        )
    };
    let no_host = || zones([1, 0, 1, 0]).node("c1", json!({"metadata": {"labels": {"zone": "c"}}}));
    for (name, world, pod, expected) in [
        (
            "zone b is out of reach and does not count",
            zones([2, 1, 0, 0]),
            in_zone_a(hard("zone", 1)),
            "....",
        ),
        (
            "its pods do not count either: 2/~1~/~0~/3",
            zones([2, 3, 1, 0]),
            in_zone_a(hard(HOST, 1)),
            ".S..",
        ),
        (
            "unless affinity is ignored",
            zones([2, 1, 0, 0]),
            in_zone_a(with(hard("zone", 1), "nodeAffinityPolicy", json!("Ignore"))),
            "SS..",
        ),
        (
            "taints are ignored",
            tainted([1, 0, 1, 0]),
            spread(json!([hard("zone", 1)])),
            "SSSS.",
        ),
        (
            "unless they are honoured",
            tainted([1, 0, 1, 0]),
            spread(json!([with(
                hard("zone", 1),
                "nodeTaintsPolicy",
                json!("Honor")
            )])),
            ".....",
        ),
        (
            "a taint that is only to be avoided is no reason",
            zones([1, 0, 1, 0]).node(
                "c1",
                json!({
                    "metadata": {"labels": {"zone": "c", HOST: "c1"}},
                    "spec": {"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]},
                }),
            ),
            spread(json!([with(
                hard("zone", 1),
                "nodeTaintsPolicy",
                json!("Honor")
            )])),
            "SSSS.",
        ),
        (
            "tolerated taints are no reason",
            tainted([1, 0, 1, 0]),
            web(
                "p",
                json!({
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    "topologySpreadConstraints":
                        [with(hard("zone", 1), "nodeTaintsPolicy", json!("Honor"))],
                }),
            ),
            "SSSS.",
        ),
        // No domain at all: the least is 0, and the filter of affinity keeps the pod away, not this one.
        (
            "no node is in reach",
            zones([2, 1, 3, 0]),
            web(
                "p",
                json!({"nodeSelector": {"zone": "z"}, "topologySpreadConstraints": [hard("zone", 1)]}),
            ),
            "....",
        ),
        (
            "a node without every key is in no domain",
            no_host(),
            spread(json!([hard("zone", 1), hard(HOST, 9)])),
            "....L",
        ),
    ] {
        assert_eq!(filtered(&world, pod), expected, "{name}");
    }
}

/// PL-101: pods that a dry run adds and removes.
#[test]
fn pods_come_and_go() {
    let world = zones([1, 0, 1, 0]);
    let pod = info(spread(json!([hard("zone", 1)])));
    let plugin = PodTopologySpread::default();
    let mut state = CycleState::default();
    let _ = plugin.pre_filter(&world.context(), &mut state, &pod);
    let now = |state: &CycleState| picture(Ok(world.filter_with(&plugin, state, &pod)));
    assert_eq!(now(&state), "....");
    let cx = world.context();
    let on = |name: &str| world.cluster.nodes.node(name).expect("it exists");
    let other = info(web("x", json!({})));
    let mut stranger = web("y", json!({}));
    stranger.metadata.namespace = "other".into();
    let stranger = info(stranger);
    assert!(
        plugin
            .remove_pod(&cx, &mut state, &pod, &other, on("b1"))
            .is_success()
    );
    assert_eq!(now(&state), "SS..");
    assert!(
        plugin
            .add_pod(&cx, &mut state, &pod, &stranger, on("b1"))
            .is_success()
    );
    assert_eq!(now(&state), "SS..", "another namespace");
    let third =
        |name: &str, labels: Value| info(full_pod(name, json!({"metadata": {"labels": labels}})));
    let db = third("z", json!({"app": "db"}));
    assert!(
        plugin
            .add_pod(&cx, &mut state, &pod, &db, on("b1"))
            .is_success()
    );
    assert_eq!(now(&state), "SS..", "it does not match");
    assert!(
        plugin
            .add_pod(&cx, &mut state, &pod, &other, on("b2"))
            .is_success()
    );
    assert_eq!(now(&state), "....");
}

/// PL-97: an empty selector counts only the new pod until 1.37, and all pods of the namespace since 1.38.
#[test]
fn an_empty_selector_counts_all_pods_since_1_38() {
    let going = || {
        let mut pod = web("gone", json!({}));
        pod.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
        pod
    };
    let far = || {
        let mut pod = web("far", json!({}));
        pod.metadata.namespace = "other".into();
        pod
    };
    let other = || full_pod("other", json!({"metadata": {"labels": {"app": "db"}}}));
    let everything = |skew| with(hard("zone", skew), "labelSelector", json!({}));
    let keyed = || with(everything(1), "matchLabelKeys", json!(["app"]));
    let empty_lists = json!({"matchLabels": {}, "matchExpressions": []});
    for (name, world, constraint, expected) in [
        // Zone a: 5 and the new pod, less 1, is 5. Zone b: 1 and the new pod, less 1, is 1.
        (
            "5 and 1",
            zones([5, 0, 1, 0]),
            everything(1),
            ["....", "....", "SS.."],
        ),
        (
            "empty lists",
            zones([5, 0, 1, 0]),
            with(hard("zone", 1), "labelSelector", empty_lists),
            ["....", "....", "SS.."],
        ),
        (
            "within maxSkew",
            zones([2, 0, 1, 0]),
            everything(2),
            ["....", "....", "...."],
        ),
        (
            "whatever the labels",
            zones([1, 0, 1, 0]).bound_pod("a1", other()),
            everything(1),
            ["....", "....", "SS.."],
        ),
        (
            "not terminating pods",
            zones([1, 0, 1, 0]).bound_pod("a1", going()),
            everything(1),
            ["....", "....", "...."],
        ),
        (
            "not pods of other namespaces",
            zones([1, 0, 1, 0]).bound_pod("a1", far()),
            everything(1),
            ["....", "....", "...."],
        ),
        // The key makes the selector app=web in every release.
        (
            "with matchLabelKeys",
            zones([2, 0, 1, 0]).bound_pod("b1", other()),
            keyed(),
            ["SS..", "SS..", "SS.."],
        ),
        (
            "no selector",
            zones([5, 0, 1, 0]),
            with(hard("zone", 1), "labelSelector", Value::Null),
            ["....", "....", "...."],
        ),
    ] {
        let mut world = world;
        for (release, expected) in berth_api::Release::ALL.into_iter().zip(expected) {
            world.features = berth_framework::FeatureGates::of(release);
            let mut pod = spread(json!([constraint]));
            pod.metadata.labels = pod.metadata.labels.with("app", "web");
            assert_eq!(filtered(&world, pod), expected, "{name} in {release}");
        }
    }
}

/// PL-101: as in kube-scheduler, a terminating victim is subtracted though it was never counted, and added pods count
/// for `{}` though existing ones do not.
#[test]
fn supposed_pods_count_where_others_do_not() {
    let plugin = PodTopologySpread::default();
    let mut going = web("gone", json!({}));
    going.metadata.deletion_timestamp = Some(berth_api::Time::EPOCH);
    let everything = with(hard("zone", 1), "labelSelector", json!({}));
    for (name, constraint, comes, expected) in [
        (
            "a going pod is taken off",
            hard("zone", 1),
            false,
            ("....", "..SS"),
        ),
        (
            "everything counts who comes",
            everything,
            true,
            ("....", "SS.."),
        ),
    ] {
        // A pod in each zone, and one more in zone a that is going.
        let world = zones([1, 0, 1, 0]).bound_pod("a1", going.clone());
        let pod = info(spread(json!([constraint])));
        let mut state = CycleState::default();
        let _ = plugin.pre_filter(&world.context(), &mut state, &pod);
        let now = |state: &CycleState| picture(Ok(world.filter_with(&plugin, state, &pod)));
        assert_eq!(now(&state), expected.0, "{name}: before");
        let cx = world.context();
        let node = world.cluster.nodes.node("a1").expect("it exists");
        let other = info(going.clone());
        let status = if comes {
            plugin.add_pod(&cx, &mut state, &pod, &other, node)
        } else {
            plugin.remove_pod(&cx, &mut state, &pod, &other, node)
        };
        assert!(status.is_success());
        assert_eq!(now(&state), expected.1, "{name}");
    }
}

/// PL-101: pods on nodes without every key, or that the policies leave out, change nothing.
#[test]
fn supposed_pods_on_nodes_that_do_not_count() {
    let plugin = PodTopologySpread::default();
    let world = zones([1, 0, 1, 0]).node("c1", json!({"metadata": {"labels": {"zone": "c"}}}));
    let other = info(web("x", json!({})));
    for (name, spec, node) in [
        (
            "without the host",
            json!({"topologySpreadConstraints": [hard("zone", 1), hard(HOST, 9)]}),
            "c1",
        ),
        (
            "out of reach",
            json!({"nodeSelector": {"zone": "a"}, "topologySpreadConstraints": [hard("zone", 1)]}),
            "b1",
        ),
    ] {
        let pod = info(web("p", spec));
        let mut state = CycleState::default();
        let _ = plugin.pre_filter(&world.context(), &mut state, &pod);
        let now = |state: &CycleState| picture(Ok(world.filter_with(&plugin, state, &pod)));
        let before = now(&state);
        let cx = world.context();
        let view = world.cluster.nodes.node(node).expect("it exists");
        for _ in 0..3 {
            assert!(
                plugin
                    .add_pod(&cx, &mut state, &pod, &other, view)
                    .is_success()
            );
        }
        assert_eq!(now(&state), before, "{name}");
    }
}

/// PL-102: the answers of PreFilter.
#[test]
fn what_pre_filter_states() {
    let outcome = |pod: Pod| {
        let world = zones([0, 0, 0, 0]);
        PodTopologySpread::default().pre_filter(
            &world.context(),
            &mut CycleState::default(),
            &info(pod),
        )
    };
    for pod in [
        web("p", json!({})),
        spread(json!([constraint("zone", 1, "ScheduleAnyway")])),
    ] {
        let result = outcome(pod);
        assert!(matches!(result, PreFilterResult::Skip), "{result:?}");
    }
    let bad = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let PreFilterResult::Reject(status) =
        outcome(spread(json!([with(hard("zone", 1), "labelSelector", bad)])))
    else {
        panic!("an error");
    };
    assert_eq!(status.code(), Code::Error);
    let text = "get constraints from pod: obtaining pod's hard topology spread constraints: ";
    assert!(status.message().starts_with(text), "{}", status.message());
}

fn ask(
    waiting: &Pod,
    resource: EventResource,
    action: ActionType,
    changed: crate::testing::Changed,
) -> Result<Hint, HintError> {
    hint(
        PodTopologySpread::default(),
        &World::new(),
        resource,
        action,
        waiting,
        changed,
    )
}

/// PL-107: pods.
#[test]
fn pods_that_help() {
    let waiting = || {
        spread(json!([with(
            hard("zone", 1),
            "nodeTaintsPolicy",
            json!("Honor")
        )]))
    };
    let bound = |app: &str, namespace: &str| {
        full_pod(
            "o",
            json!({"metadata": {"labels": {"app": app}, "namespace": namespace}, "spec": {"nodeName": "n"}}),
        )
    };
    let pending = web("o", json!({}));
    let mut tolerant = waiting();
    tolerant.spec.tolerations =
        serde_json::from_value(json!([{"operator": "Exists"}])).expect("tolerations");
    let mut relabelled = waiting();
    relabelled.metadata.labels = relabelled.metadata.labels.with("app", "db");
    let label = ActionType::UPDATE_POD_LABEL;
    for (name, action, change, expected) in [
        (
            "a counted pod comes",
            ActionType::ADD,
            add(bound("web", "default")),
            Hint::Queue,
        ),
        (
            "another pod comes",
            ActionType::ADD,
            add(bound("db", "default")),
            Hint::Skip,
        ),
        (
            "of another namespace",
            ActionType::ADD,
            add(bound("web", "other")),
            Hint::Skip,
        ),
        ("without a node", ActionType::ADD, add(pending), Hint::Skip),
        (
            "a counted pod goes",
            ActionType::DELETE,
            delete(bound("web", "default")),
            Hint::Queue,
        ),
        (
            "another pod goes",
            ActionType::DELETE,
            delete(bound("db", "default")),
            Hint::Skip,
        ),
        (
            "a pod counts no more",
            label,
            update(bound("web", "default"), bound("db", "default")),
            Hint::Queue,
        ),
        (
            "a pod stays counted",
            label,
            update(bound("web", "default"), bound("web", "default")),
            Hint::Skip,
        ),
        (
            "its own labels",
            label,
            update(waiting(), relabelled),
            Hint::Queue,
        ),
        (
            "its own labels, as little to the point as before",
            label,
            update(waiting(), {
                let mut pod = waiting();
                pod.metadata.labels = pod.metadata.labels.with("tier", "2");
                pod
            }),
            Hint::Skip,
        ),
        (
            "its own tolerations",
            ActionType::UPDATE_POD_TOLERATION,
            update(waiting(), tolerant.clone()),
            Hint::Queue,
        ),
        (
            "a counted pod that is nominated comes",
            ActionType::ADD,
            add({
                let mut pod = web("o", json!({}));
                pod.status.nominated_node_name = "n".into();
                pod
            }),
            Hint::Queue,
        ),
    ] {
        assert_eq!(
            ask(&waiting(), EventResource::Pod, action, change),
            Ok(expected),
            "{name}"
        );
    }
    // If taints do not count, tolerations do not help.
    let indifferent = spread(json!([hard("zone", 1)]));
    let change = update(indifferent.clone(), {
        let mut pod = indifferent.clone();
        pod.spec.tolerations = tolerant.spec.tolerations.clone();
        pod
    });
    let tolerations = ActionType::UPDATE_POD_TOLERATION;
    assert_eq!(
        ask(&indifferent, EventResource::Pod, tolerations, change),
        Ok(Hint::Skip)
    );
}

/// PL-108: nodes.
#[test]
fn nodes_that_help() {
    let waiting = spread(json!([hard("zone", 1), hard("rack", 1)]));
    let labels = |labels: Value| node("n", json!({"metadata": {"labels": labels}}));
    let both = |zone: &str| labels(json!({"zone": zone, "rack": "1"}));
    let one = || labels(json!({"zone": "a"}));
    let tainted = || -> Node {
        let mut node = both("a");
        node.spec.taints =
            serde_json::from_value(json!([{"key": "k", "effect": "NoSchedule"}])).expect("taints");
        node
    };
    let label = ActionType::UPDATE_NODE_LABEL;
    for (name, action, change, expected) in [
        (
            "new with all keys",
            ActionType::ADD,
            add(both("a")),
            Hint::Queue,
        ),
        (
            "new without all keys",
            ActionType::ADD,
            add(one()),
            Hint::Skip,
        ),
        (
            "gone with all keys",
            ActionType::DELETE,
            delete(both("a")),
            Hint::Queue,
        ),
        (
            "gone without all keys",
            ActionType::DELETE,
            delete(one()),
            Hint::Skip,
        ),
        (
            "comes to have all keys",
            label,
            update(one(), both("a")),
            Hint::Queue,
        ),
        ("loses one", label, update(both("a"), one()), Hint::Queue),
        (
            "another zone",
            label,
            update(both("a"), both("b")),
            Hint::Queue,
        ),
        (
            "nothing of it",
            label,
            update(both("a"), both("a")),
            Hint::Skip,
        ),
        (
            "taints",
            ActionType::UPDATE_NODE_TAINT,
            update(both("a"), tainted()),
            Hint::Queue,
        ),
    ] {
        assert_eq!(
            ask(&waiting, EventResource::Node, action, change),
            Ok(expected),
            "{name}"
        );
    }
}
