//! Groups with a topology constraint.

use crate::drivers::driver_of;
use crate::groups::{condition, cpus, gang, gates, group, member, node_of};
use berth_api::Kind;
use berth_framework::testing::NodeBuilder;
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

fn topology_gates() -> FeatureGates {
    gates().with(Feature::TopologyAwareWorkloadScheduling, true)
}

fn driver() -> Driver {
    driver_of(topology_gates())
}

fn of_rack(name: &str, rack: &str, cpu: &str) -> NodeBuilder {
    cpus(name, cpu).label("rack", rack)
}

fn in_one_rack(mut policy: Value) -> Value {
    policy["schedulingConstraints"] = json!({"topology": [{"key": "rack"}]});
    policy
}

fn racks(w: &Driver, pods: &[&str]) -> Vec<String> {
    let nodes = &w.scheduler.cache().cluster().nodes;
    let rack = |pod: &&str| {
        let node = node_of(w, pod);
        let view = nodes.node(&node);
        let rack = view.and_then(|view| view.labels().get("rack").map(str::to_owned));
        rack.unwrap_or_default()
    };
    pods.iter().map(rack).collect()
}

/// G-22: the rack with room for most members is taken.
#[test]
fn the_rack_with_most_members_is_selected() {
    let mut w = driver();
    w.node(of_rack("n1", "a", "3"))
        .node(of_rack("n2", "b", "4"));
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(3))));
    let pods = ["p1", "p2", "p3", "p4"];
    for pod in pods {
        w.pod(member(pod, "g", "1"));
    }
    w.attempts();
    assert_eq!(racks(&w, &pods), ["b"; 4]);
}

/// G-22: of racks that hold all members, the fullest one is taken.
#[test]
fn the_fullest_rack_is_taken() {
    let mut w = driver();
    for (name, rack, cpu) in [("n1", "a", "4"), ("n2", "b", "6"), ("n3", "c", "6")] {
        w.node(of_rack(name, rack, cpu));
    }
    w.pod(
        berth_framework::testing::pod("x")
            .request("cpu", "2")
            .on("n2"),
    );
    w.pod(
        berth_framework::testing::pod("y")
            .request("cpu", "1")
            .on("n3"),
    );
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(3))));
    let pods = ["p1", "p2", "p3"];
    for pod in pods {
        w.pod(member(pod, "g", "1"));
    }
    assert_eq!(w.attempts().len(), 1);
    assert_eq!(racks(&w, &pods), ["b"; 3]);
}

/// G-21, G-23: a gang that no rack holds starts nowhere, though the cluster has room.
#[test]
fn a_gang_that_fits_in_no_rack_waits() {
    let mut w = driver();
    w.node(of_rack("n1", "a", "2"))
        .node(of_rack("n2", "b", "2"));
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(3))));
    let pods = ["p1", "p2", "p3"];
    for pod in pods {
        w.pod(member(pod, "g", "1"));
    }
    w.attempts();
    assert_eq!(racks(&w, &pods), [""; 3]);
    let text = "False Unschedulable: 0/2 placements are available, first placement status: minCount (3) cannot be \
                satisfied: 2 scheduled, 0 remaining";
    assert!(
        condition(&w, "g").starts_with(text),
        "{}",
        condition(&w, "g")
    );
    w.node(of_rack("n3", "b", "2"));
    w.wait(10);
    w.attempts();
    assert_eq!(racks(&w, &pods), ["b"; 3]);
}

/// G-21: the running members determine the rack of later members.
#[test]
fn a_later_member_stays_in_the_rack_of_its_group() {
    let mut w = driver();
    w.node(of_rack("n1", "a", "2"))
        .node(of_rack("n2", "b", "2"));
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(2))));
    w.pod(member("p1", "g", "1").on("n1"))
        .pod(member("p2", "g", "1").on("n1"));
    w.pod(member("p3", "g", "1"));
    w.attempts();
    assert_eq!(racks(&w, &["p3"]), [""]);
    w.deleted("p1");
    w.wait(10);
    w.attempts();
    assert_eq!(racks(&w, &["p3"]), ["a"]);
}

/// G-23: a group without a constraint has one placement, which the text mentions.
#[test]
fn a_group_without_a_constraint_has_one_placement() {
    let mut w = driver();
    w.node(of_rack("n1", "a", "1"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    w.attempts();
    let text = "False Unschedulable: 0/1 placements are available, first placement status: minCount (2) cannot be \
                satisfied: 1 scheduled, 0 remaining";
    assert!(
        condition(&w, "g").starts_with(text),
        "{}",
        condition(&w, "g")
    );
}

/// G-21: nodes without the label are in no placement.
#[test]
fn without_the_label_there_is_no_placement() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(1))));
    w.pod(member("p1", "g", "1"));
    w.attempts();
    assert!(
        condition(&w, "g").starts_with("False Unschedulable: no feasible placements found"),
        "{}",
        condition(&w, "g")
    );
}

/// G-22: the search by bounds takes the placement that trying every one and comparing scores would take: most members
/// first, then the fullest nodes, then the name.
#[test]
fn the_search_equals_the_exhaustive_one() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut w = driver();
        let racks_len = random.usize(1..6);
        let mut room: Vec<(i64, i64)> = Vec::new();
        for rack in 0..racks_len {
            let (size, used) = (random.i64(1..9), random.i64(0..5));
            let used = used.min(size);
            let name = format!("n{rack}");
            w.node(
                of_rack(&name, &format!("r{rack}"), &size.to_string()).capacity(
                    &size.to_string(),
                    "64000Gi",
                    "110",
                ),
            );
            for n in 0..used {
                let x = berth_framework::testing::pod(&format!("x{rack}-{n}"));
                w.pod(x.request("cpu", "1").on(&name));
            }
            room.push((size, used));
        }
        let pods = random.usize(1..6);
        let min = random.usize(1..=pods);
        w.object(Kind::PodGroup, group("g", in_one_rack(gang(min as i32))));
        for n in 0..pods {
            w.pod(member(&format!("p{n}"), "g", "1"));
        }
        // Worked out directly from the scores: the members that fit, and the used part of CPU. Memory is negligible.
        let placed = |(size, used): (i64, i64)| (size - used).min(pods as i64);
        let feasible: Vec<usize> = (0..racks_len)
            .filter(|rack| placed(room[*rack]) >= min as i64)
            .collect();
        let most = feasible
            .iter()
            .map(|rack| placed(room[*rack]))
            .max()
            .unwrap_or(1)
            .max(1);
        let score = |rack: usize| {
            let (size, used) = room[rack];
            let fits = placed(room[rack]);
            fits * 100 / most + ((used + fits) * 100 / size) / 2
        };
        let best = feasible
            .iter()
            .copied()
            .min_by_key(|rack| (-score(*rack), *rack));
        w.attempts();
        let names: Vec<String> = (0..pods).map(|n| format!("p{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let racks = racks(&w, &names);
        let mut used: Vec<&String> = racks.iter().filter(|rack| !rack.is_empty()).collect();
        let placed_pods = used.len();
        used.dedup();
        let expected: Vec<String> = best.iter().map(|rack| format!("r{rack}")).collect();
        let case = format!("seed {seed}: {room:?}, {min} of {pods}: {racks:?}");
        assert_eq!(used, expected.iter().collect::<Vec<_>>(), "{case}");
        let fits = best.map_or(0, |rack| placed(room[rack]));
        assert_eq!(placed_pods as i64, fits, "{case}");
    }
}

/// G-12, G-21: a group that no domain holds waits for nodes that join one, and for the end of members that fix it.
#[test]
fn a_change_of_the_domains_wakes_the_group() {
    let mut w = driver();
    w.node(of_rack("full", "a", "1"));
    w.node(cpus("elsewhere", "4"));
    w.object(Kind::PodGroup, group("g", in_one_rack(gang(2))));
    for pod in ["p1", "p2"] {
        w.pod(member(pod, "g", "1"));
    }
    w.attempts();
    assert_eq!(racks(&w, &["p1", "p2"]), ["", ""]);
    w.node(of_rack("elsewhere", "a", "4").version(2));
    w.advance(berth_api::Duration::from_secs(10));
    w.attempts();
    assert_eq!(racks(&w, &["p1", "p2"]), ["a", "a"]);
}
