//! Tests of the rules.

use super::*;
use crate::shapes::{
    Access, ClaimShape, Domain, GPU, Near, NodeShape, PodShape, Reach, Spread, ZoneRule,
};
use crate::world::World;

fn node() -> NodeShape {
    NodeShape {
        cpu_milli: 2000,
        memory_mebibytes: 1024,
        pods: 3,
        gpus: 1,
        zone: Some("a"),
        ..NodeShape::default()
    }
}

fn pod(cpu_milli: i64) -> PodShape {
    PodShape {
        cpu_milli,
        ..PodShape::default()
    }
}

/// Returns whether `pod` may run on the first of `nodes`, with `neighbours` on that node and `far` on the second one.
/// Two claims exist: 0 for one pod in zone b, 1 for one node and reachable from everywhere.
fn judged(
    pod: &PodShape,
    nodes: &[NodeShape],
    neighbours: &[PodShape],
    far: &[PodShape],
) -> Option<Forbids> {
    let mut world = World::furnished();
    for (at, node) in nodes.iter().enumerate() {
        world.create_node(&format!("n{at}"), node);
    }
    for (number, access, reach) in [
        (0, Access::OnePod, Reach::Zone("b")),
        (1, Access::OneNode, Reach::Everywhere),
        (2, Access::OneNode, Reach::Everywhere),
        (3, Access::OnePod, Reach::Everywhere),
    ] {
        let class = None;
        let shape = ClaimShape {
            access,
            reach,
            class,
        };
        world.create_claim(number, &shape);
    }
    for (node, shapes) in [("n0", neighbours), ("n1", far)] {
        for (at, shape) in shapes.iter().enumerate() {
            let mut pod = shape.build();
            pod.spec.node_name = node.into();
            world.create_pod(&format!("p{at}-on-{node}"), pod);
        }
    }
    world.create_pod("new", pod.build());
    let pods = world.pods().values().filter(|pod| pod.is_assigned());
    let scene = Scene {
        nodes: world.nodes().values().map(|node| &**node).collect(),
        placed: pods.map(|p| (&**p, p.spec.node_name.as_str())).collect(),
        others: world.others(),
        decided_devices: &crate::rules::DecidedDevices::new(),
    };
    forbids(&scene, &world.pods()["new"], &world.nodes()["n0"])
}

fn lacks(what: &str) -> Option<Forbids> {
    Some(Forbids::Lacks(what.to_owned()))
}

const APART: Option<Forbids> = Some(Forbids::Rule("a pod that it must be apart from is near"));
const ALONE: Option<Forbids> = Some(Forbids::Rule("a pod that it must be near to is not there"));
const CROWD: Option<Forbids> = Some(Forbids::Rule("there would be too many pods in one place"));

#[test]
fn pods_fit_within_allocatable_resources() {
    let port = |ip| PodShape {
        host_port: Some((ip, 80)),
        ..pod(0)
    };
    let init = PodShape {
        init_cpu_milli: 2500,
        ..pod(0)
    };
    for (what, pod, neighbours, expected) in [
        ("an empty node", pod(2000), vec![], None),
        ("the last bit", pod(500), vec![pod(1500)], None),
        ("too little CPU", pod(501), vec![pod(1500)], lacks("cpu")),
        ("an init container", init, vec![], lacks("cpu")),
        (
            "no device left",
            PodShape { gpus: 2, ..pod(0) },
            vec![],
            lacks(GPU),
        ),
        ("too many pods", pod(0), vec![pod(0); 3], lacks("pods")),
        (
            "one port, two addresses",
            port("10.0.0.1"),
            vec![port("10.0.0.2")],
            None,
        ),
        (
            "any address",
            port("10.0.0.1"),
            vec![port("")],
            lacks("host port 80"),
        ),
    ] {
        assert_eq!(
            judged(&pod, &[node()], &neighbours, &[]),
            expected,
            "{what}"
        );
    }
}

#[test]
fn taints_selectors_and_conditions_are_checked() {
    let zone = |rule| PodShape {
        zone: Some(rule),
        ..pod(0)
    };
    let tolerant = PodShape {
        tolerates: Some("t"),
        ..pod(0)
    };
    let tainted = NodeShape {
        taint: Some("t"),
        ..node()
    };
    let cordoned = NodeShape {
        cordoned: true,
        ..node()
    };
    for (what, pod, node, expected) in [
        ("tolerated", tolerant, tainted.clone(), None),
        ("tainted", pod(0), tainted, Some("a taint is not tolerated")),
        ("cordoned", pod(0), cordoned, Some("the node is cordoned")),
        ("zone", zone(ZoneRule::Selector("a")), node(), None),
        (
            "another zone",
            zone(ZoneRule::Selector("b")),
            node(),
            Some("the node selector does not match"),
        ),
        (
            "not in another zone",
            zone(ZoneRule::NotIn("b")),
            node(),
            None,
        ),
        (
            "not in this zone",
            zone(ZoneRule::NotIn("a")),
            node(),
            Some("the node affinity does not match"),
        ),
    ] {
        let expected = expected.map(Forbids::Rule);
        assert_eq!(judged(&pod, &[node], &[], &[]), expected, "{what}");
    }
}

#[test]
fn pod_affinity_and_anti_affinity_are_checked() {
    let red = || PodShape {
        app: Some("red"),
        ..pod(0)
    };
    let guest = || PodShape {
        namespace: "guest",
        ..red()
    };
    let near = |domain, team| Near {
        app: "red",
        domain,
        team,
    };
    let away = |domain, team| PodShape {
        apart_from: Some(near(domain, team)),
        ..pod(0)
    };
    let close = |domain| PodShape {
        near: Some(near(domain, None)),
        ..pod(0)
    };
    let first = PodShape {
        app: Some("red"),
        ..close(Domain::Zone)
    };
    let (n, z) = (Domain::Node, Domain::Zone);
    for (what, pod, here, far, expected) in [
        ("apart", away(n, None), vec![red()], vec![], APART),
        (
            "the other way round",
            red(),
            vec![away(n, None)],
            vec![],
            APART,
        ),
        ("far enough", away(n, None), vec![], vec![red()], None),
        ("not by zone", away(z, None), vec![], vec![red()], APART),
        (
            "another namespace",
            away(n, None),
            vec![guest()],
            vec![],
            None,
        ),
        (
            "of that team",
            away(n, Some("y")),
            vec![guest()],
            vec![],
            APART,
        ),
        (
            "of another team",
            away(n, Some("x")),
            vec![guest()],
            vec![],
            None,
        ),
        ("near", close(n), vec![red()], vec![], None),
        ("not near enough", close(n), vec![], vec![red()], ALONE),
        ("near by zone", close(z), vec![], vec![red()], None),
        ("no pod there", close(z), vec![], vec![], ALONE),
        ("the first", first, vec![], vec![], None),
    ] {
        let nodes = [node(), node()];
        assert_eq!(judged(&pod, &nodes, &here, &far), expected, "{what}");
    }
}

#[test]
fn topology_spread_is_checked() {
    let red = |spread: Option<(Domain, i32, Option<i32>)>| PodShape {
        app: Some("red"),
        spread: spread.map(|(domain, max_skew, min_domains)| Spread {
            app: "red",
            domain,
            max_skew,
            min_domains,
        }),
        ..pod(0)
    };
    let other_zone = NodeShape {
        zone: Some("b"),
        ..node()
    };
    let bare = NodeShape {
        zone: None,
        ..node()
    };
    let (n, z) = (Domain::Node, Domain::Zone);
    for (what, spread, first, here, far, expected) in [
        ("an empty cluster", (n, 1, None), node(), 0, 0, None),
        ("one ahead", (n, 1, None), node(), 1, 0, CROWD),
        ("two may be ahead", (n, 2, None), node(), 1, 0, None),
        ("even", (n, 1, None), node(), 1, 1, None),
        ("by zone", (z, 1, None), node(), 1, 0, CROWD),
        ("too few zones", (z, 1, Some(3)), node(), 1, 1, CROWD),
        ("no zone", (z, 1, None), bare, 0, 0, CROWD),
    ] {
        let nodes = [first, other_zone.clone()];
        let (here, far) = (vec![red(None); here], vec![red(None); far]);
        let found = judged(&red(Some(spread)), &nodes, &here, &far);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn volume_topology_limits_and_access_modes_are_checked() {
    let with = |claim| PodShape {
        claim: Some(claim),
        ..pod(0)
    };
    let limited = NodeShape {
        attachable: Some(1),
        ..node()
    };
    let missing = Some(Forbids::Rule("a claim is not there"));
    let beyond = Some(Forbids::Rule("a volume cannot be reached"));
    let one_pod = lacks("claim c3 (ReadWriteOncePod)");
    let attachable = lacks("attachable volumes");
    for (what, claim, node, here, far, expected) in [
        ("reached", 1, node(), vec![], vec![], None),
        ("no such claim", 9, node(), vec![], vec![], missing),
        ("in another zone", 0, node(), vec![], vec![], beyond),
        (
            "shared on a node",
            1,
            limited.clone(),
            vec![with(1)],
            vec![],
            None,
        ),
        (
            "one too many",
            1,
            limited,
            vec![with(2)],
            vec![],
            attachable,
        ),
        ("for one pod", 3, node(), vec![], vec![], None),
        ("for another pod", 3, node(), vec![], vec![with(3)], one_pod),
    ] {
        let nodes = [node, self::node()];
        let found = judged(&with(claim), &nodes, &here, &far);
        assert_eq!(found, expected, "{what}");
    }
}
