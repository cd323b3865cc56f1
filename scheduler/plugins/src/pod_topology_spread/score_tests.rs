//! The scores of nodes by PodTopologySpread.

use super::constraints::SCHEDULE_ANYWAY;
use super::tests::{constraint, info, spread, web, with, zones};
use super::*;
use crate::testing::{World, full_pod};
use berth_api::{Kind, Pod};
use serde_json::{Value, json};

const HOST: &str = "kubernetes.io/hostname";

fn soft(key: &str, max_skew: i32) -> Value {
    constraint(key, max_skew, SCHEDULE_ANYWAY)
}

fn scores(world: &World, args: Value, pod: Pod) -> Option<Vec<i64>> {
    let args = PodTopologySpreadArgs::decode(&args).expect("arguments");
    world.scores(&PodTopologySpread::new(args), &info(pod))
}

/// PL-104: for example hosts 2/1/0/3 with maxSkew 1: round(n·ln 6) is 4, 2, 0, 5, and 100·(5 + 0 − s)/5.
#[test]
fn the_worked_scores() {
    for (name, pods, constraints, expected) in [
        (
            "hosts, maxSkew 1",
            [2, 1, 0, 3],
            json!([soft(HOST, 1)]),
            vec![20, 60, 100, 0],
        ),
        (
            "hosts, maxSkew 2",
            [2, 1, 0, 3],
            json!([soft(HOST, 2)]),
            vec![33, 66, 100, 16],
        ),
        (
            "hosts, maxSkew 3",
            [4, 3, 2, 1],
            json!([soft(HOST, 3)]),
            vec![44, 66, 77, 100],
        ),
        (
            "everything counts none",
            [2, 1, 0, 3],
            json!([with(soft(HOST, 1), "labelSelector", json!({}))]),
            vec![100, 100, 100, 100],
        ),
        // ln 4 = 1.386: 3 → 4, 4 → 6; 100·(6 + 4 − 4)/6 and 100·4/6.
        (
            "zones 3 and 4",
            [2, 1, 4, 0],
            json!([soft("zone", 1)]),
            vec![100, 100, 66, 66],
        ),
        (
            "no pod anywhere",
            [0, 0, 0, 0],
            json!([soft("zone", 1)]),
            vec![100, 100, 100, 100],
        ),
    ] {
        let got = scores(&zones(pods), json!(null), spread(constraints));
        assert_eq!(got, Some(expected), "{name}");
    }
}

/// PL-97: an empty selector counts all pods since 1.38, also for scores: as app=web in the first of the worked scores.
#[test]
fn an_empty_selector_scores_all_pods_since_1_38() {
    let mut world = zones([2, 1, 0, 3]);
    let constraints = || json!([with(soft(HOST, 1), "labelSelector", json!({}))]);
    for (release, expected) in [
        (berth_api::Release::V1_36, vec![100, 100, 100, 100]),
        (berth_api::Release::V1_37, vec![100, 100, 100, 100]),
        (berth_api::Release::V1_38, vec![20, 60, 100, 0]),
    ] {
        world.features = berth_framework::FeatureGates::of(release);
        let got = scores(&world, json!(null), spread(constraints()));
        assert_eq!(got, Some(expected), "{release}");
    }
}

/// PL-103: nodes without a label are worth nothing to a pod that names it, and zones that are not feasible do
/// not count.
#[test]
fn nodes_without_the_label() {
    let world = zones([0, 0, 1, 0]).node("x", json!({"metadata": {"labels": {HOST: "x"}}}));
    // ln 4·1 = 1.386, rounded 1: 100·(1 + 0 − 1)/1 = 0.
    let got = scores(&world, json!(null), spread(json!([soft("zone", 1)])));
    assert_eq!(got, Some(vec![100, 100, 0, 0, 0]));
}

/// PL-103: only feasible nodes define domains, but the pods on all nodes of these domains count, except on nodes that
/// the policies exclude.
#[test]
fn feasible_nodes_make_the_domains() {
    let out_of_reach = |pod: Pod| {
        let mut pod = pod;
        pod.spec.node_selector = serde_json::from_value(json!({"zone": "a"})).expect("labels");
        pod
    };
    for (name, pods, feasible, pod, expected) in [
        // Zones a and b with 3 and 1, though 2 of the 3 are on a node that is not feasible: 3·ln 4 → 4, 1·ln 4 → 1.
        (
            "pods beside the feasible nodes count",
            [1, 2, 1, 0],
            vec!["a1", "b1"],
            spread(json!([soft("zone", 1)])),
            vec![25, 100],
        ),
        // One zone: 1·ln 3 → 1 for both.
        (
            "zones without a feasible node do not",
            [1, 0, 9, 9],
            vec!["a1", "a2"],
            spread(json!([soft("zone", 1)])),
            vec![100, 100],
        ),
        // Each host is a domain with its own pods: 1·ln 4 → 1, 3·ln 4 → 4; 100·(4 + 1 − s)/4.
        (
            "hosts",
            [1, 9, 3, 0],
            vec!["a1", "b1"],
            spread(json!([soft(HOST, 1)])),
            vec![100, 25],
        ),
        // Zone b is no place for the pod: its pods count nothing, though the node is among the feasible.
        (
            "pods that the policies leave out do not count",
            [1, 0, 9, 0],
            vec!["a1", "b1"],
            out_of_reach(spread(json!([soft("zone", 1)]))),
            vec![0, 100],
        ),
        // Two constraints: 2·ln 4 + 2·ln 4 = 5.5 → 6 and 1·ln 4 + 1·ln 4 = 2.8 → 3; 100·(6 + 3 − s)/6.
        (
            "two constraints add up",
            [2, 0, 1, 0],
            vec!["a1", "b1"],
            spread(json!([soft("zone", 1), soft(HOST, 1)])),
            vec![50, 100],
        ),
    ] {
        let plugin = PodTopologySpread::new(PodTopologySpreadArgs::default());
        let got = zones(pods).scores_among(&plugin, &info(pod), &feasible);
        assert_eq!(got, Some(expected), "{name}");
    }
}

/// PL-106: without nodes, or without soft constraints, there is nothing to score; a selector that does not parse
/// fails the cycle.
#[test]
fn what_pre_score_states() {
    use berth_framework::plugin::PreScore;
    let ask = |world: &World, pod: Pod| {
        let mut state = berth_framework::CycleState::default();
        PodTopologySpread::default().pre_score(&world.context(), &mut state, &info(pod), &[])
    };
    let wants = || spread(json!([soft("zone", 1)]));
    assert!(ask(&World::new(), wants()).is_skip());
    let hard = spread(json!([constraint("zone", 1, "DoNotSchedule")]));
    assert!(ask(&zones([0; 4]), hard).is_skip());
    assert!(ask(&zones([0; 4]), wants()).is_success());
    let bad = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    let status = ask(
        &zones([0; 4]),
        spread(json!([with(soft("zone", 1), "labelSelector", bad)])),
    );
    assert_eq!(status.code(), berth_framework::Code::Error);
}

/// PL-105: under the built-in defaults a node without the zone's label is not excluded; only its host constraint
/// counts.
#[test]
fn the_built_in_defaults_take_nodes_without_labels() {
    let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}});
    let zone = |name: &str, zone: &str| json!({"metadata": {"labels": {HOST: name, "topology.kubernetes.io/zone": zone}}});
    let world = World::new()
        .node("a", zone("a", "a"))
        .node("b", zone("b", "b"))
        .node("x", json!({"metadata": {"labels": {HOST: "x"}}}))
        .bound_pod("a", web("w", json!({})));
    let world = with_object(world, Kind::Service, service);
    // Hosts of three, maxSkew 3: 1·ln 5 + 2 = 3.6 on a, 2 elsewhere. Zones a, b and none, maxSkew 5: 1·ln 5 + 4 = 5.6
    // in a, 4 in b. Together 9, 6 and 2; 100·(9 + 2 − s)/9.
    let got = scores(&world, json!(null), web("p", json!({})));
    assert_eq!(got, Some(vec![22, 55, 100]));
}

/// A world with one more object.
fn with_object(mut world: World, kind: Kind, object: Value) -> World {
    let object = kind
        .decode(object.to_string().as_bytes())
        .expect("it decodes");
    assert!(world.cluster.set(&object), "neither a pod nor a node");
    world
}

fn owned_by(api_version: &str, kind: &str) -> Pod {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": true});
    full_pod(
        "p",
        json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [owner]}}),
    )
}

/// PL-96: the defaults follow services and controllers; without either there are none.
#[test]
fn the_defaults_follow_services_and_controllers() {
    let named =
        |spec: Value| json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    let by_map = || named(json!({"selector": {"app": "web"}}));
    let by_selector = || named(json!({"selector": {"matchLabels": {"app": "web"}}}));
    let world = || zones([2, 0, 0, 0]);
    // Hosts of four, maxSkew 3: ln 6·2 + 2 = 5.58 → 6, else 2; no node has the zone label of the defaults.
    // 100·(6 + 2 − s)/6.
    let spread_out = Some(vec![33, 100, 100, 100]);
    for (name, world, pod, expected) in [
        (
            "nothing selects the pod",
            world(),
            web("p", json!({})),
            None,
        ),
        (
            "a service",
            with_object(world(), Kind::Service, by_map()),
            web("p", json!({})),
            spread_out.clone(),
        ),
        (
            "a service without a selector",
            with_object(world(), Kind::Service, named(json!({}))),
            web("p", json!({})),
            None,
        ),
        (
            "a service of other pods",
            with_object(
                world(),
                Kind::Service,
                named(json!({"selector": {"app": "db"}})),
            ),
            web("p", json!({})),
            None,
        ),
        (
            "a replica set",
            with_object(world(), Kind::ReplicaSet, by_selector()),
            owned_by("apps/v1", "ReplicaSet"),
            spread_out.clone(),
        ),
        (
            "a stateful set",
            with_object(world(), Kind::StatefulSet, by_selector()),
            owned_by("apps/v1", "StatefulSet"),
            spread_out.clone(),
        ),
        (
            "a replication controller",
            with_object(world(), Kind::ReplicationController, by_map()),
            owned_by("v1", "ReplicationController"),
            spread_out,
        ),
        (
            "a controller of another group",
            with_object(world(), Kind::ReplicaSet, by_selector()),
            owned_by("example.com/v1", "ReplicaSet"),
            None,
        ),
        (
            "a controller that does not exist",
            world(),
            owned_by("apps/v1", "ReplicaSet"),
            None,
        ),
        // Both must match: no pod here has the tier.
        (
            "a service and a replica set",
            with_object(
                with_object(world(), Kind::Service, by_map()),
                Kind::ReplicaSet,
                named(json!({"selector": {"matchLabels": {"tier": "1"}}})),
            ),
            owned_by("apps/v1", "ReplicaSet"),
            Some(vec![100, 100, 100, 100]),
        ),
        (
            "constraints of its own",
            with_object(world(), Kind::Service, by_map()),
            spread(json!([constraint("zone", 1, "DoNotSchedule")])),
            None,
        ),
    ] {
        assert_eq!(scores(&world, json!(null), pod), expected, "{name}");
    }
}

/// PL-103, PL-105: listed defaults need all labels, the built-in ones do not.
#[test]
fn listed_defaults() {
    let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}});
    let world = with_object(
        zones([1, 0, 0, 0]).node("x", json!({"metadata": {"labels": {HOST: "x"}}})),
        Kind::Service,
        service,
    );
    let list = json!({"defaultingType": "List", "defaultConstraints":
        [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]});
    // Zone a 1.386 → 1, zone b 0, x ignored.
    assert_eq!(
        scores(&world, list, web("p", json!({}))),
        Some(vec![0, 0, 100, 100, 0])
    );
    let none = json!({"defaultingType": "List"});
    assert_eq!(scores(&world, none, web("p", json!({}))), None);
}
