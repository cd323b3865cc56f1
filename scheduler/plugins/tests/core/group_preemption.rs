//! Preemption by groups and of groups.

use crate::drivers::{driver_of, is_deletion};
use crate::groups::{condition, cpus, gang, gates, group, member, node_of, stated};
use berth_api::Kind;
use berth_framework::Feature;
use berth_framework::call::RelatedObject;
use berth_framework::testing::{PodBuilder, pod};
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

fn driver() -> Driver {
    driver_of(gates())
}

fn of_priority(mut spec: Value, priority: i32) -> Value {
    spec["priority"] = json!(priority);
    spec
}

fn as_a_whole(mut spec: Value) -> Value {
    spec["disruptionMode"] = json!({"all": {}});
    spec
}

fn low(name: &str, cpu: &str) -> PodBuilder {
    pod(name).request("cpu", cpu).priority(0)
}

/// The pods that were deleted, in order of their names; all deletions succeed.
fn evicted(w: &mut Driver) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(next) = w.deletions().first().cloned() {
        all.push(next);
        w.answer_which(is_deletion, None, false);
    }
    all.sort();
    all
}

/// A gang of two pods of two CPUs each, of a higher priority.
fn vip_gang(w: &mut Driver, cpu: &str) {
    w.object(Kind::PodGroup, group("g", of_priority(gang(2), 100)));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", cpu).priority(100));
    }
}

/// G-24, G-27: all pods of lower priority that are in the way are evicted, the members are nominated, and the gang
/// starts.
#[test]
fn a_gang_evicts_pods_of_lower_priority() {
    let mut w = driver();
    w.node(cpus("n1", "4"));
    for name in ["a", "b", "c", "d"] {
        w.pod(low(name, "1").on("n1"));
    }
    vip_gang(&mut w, "2");
    assert_eq!(w.attempts().len(), 1);
    assert_eq!(
        condition(&w, "g"),
        "False Unschedulable: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining, pod group preemption: found a \
         placement for podgroup, preempting 4 victims"
    );
    assert_eq!([w.nominated("p1"), w.nominated("p2")], ["n1"; 2]);
    assert_eq!(evicted(&mut w), ["a", "b", "c", "d"]);
    // As in kube-scheduler, the group is the related object of each event.
    for event in w.events.iter().filter(|e| e.event.reason == "Preempted") {
        let Some(RelatedObject::Group { group, uid }) = &event.event.related else {
            panic!("{event:?}");
        };
        assert_eq!((group.name.as_str(), uid.as_str()), ("g", "uid-group-g"));
    }
    let events = w.take_events();
    let preempted = "Preempted Preempted by podgroup uid-group-g on node cluster".to_owned();
    assert_eq!(
        events.iter().filter(|e| **e == preempted).count(),
        4,
        "{events:?}"
    );
    w.wait(10);
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
    w.answer_all();
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
}

/// G-24, G-26: pods that need not be evicted are not: the most important ones stay.
#[test]
fn no_pod_is_evicted_that_could_stay() {
    let mut w = driver();
    w.node(cpus("n1", "4"));
    for (n, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let started = berth_api::Time::from_secs(n as i64);
        w.pod(
            low(name, "1")
                .on("n1")
                .with(|pod| pod.status.start_time = Some(started)),
        );
    }
    vip_gang(&mut w, "1");
    w.attempts();
    assert_eq!(evicted(&mut w), ["c", "d"], "those that started last");
    w.wait(10);
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
}

/// G-25: a group of mode `all` is evicted as a whole, one of mode `single` pod by pod.
#[test]
fn a_group_is_evicted_as_a_whole_or_pod_by_pod() {
    for (spec, expected) in [
        (as_a_whole(gang(1)), &["v1", "v2", "v3"][..]),
        (gang(1), &["v3"][..]),
    ] {
        let mut w = driver();
        w.node(cpus("n1", "2")).node(cpus("n2", "1"));
        w.object(Kind::PodGroup, group("v", spec));
        for (n, (name, node)) in [("v1", "n1"), ("v2", "n1"), ("v3", "n2")]
            .into_iter()
            .enumerate()
        {
            let started = berth_api::Time::from_secs(n as i64);
            let victim = member(name, "v", "1").on(node);
            w.pod(victim.with(|pod| pod.status.start_time = Some(started)));
        }
        w.object(Kind::PodGroup, group("g", of_priority(gang(1), 100)));
        let only_there = berth_api::Labels::default().with("kubernetes.io/hostname", "n2");
        w.node(cpus("n2", "1").label("kubernetes.io/hostname", "n2"));
        w.pod(member("p1", "g", "1").priority(100).with(|pod| {
            pod.spec.node_selector = Some(only_there);
        }));
        w.attempts();
        assert!(
            condition(&w, "g").ends_with(&format!("preempting {} victims", expected.len())),
            "{}",
            condition(&w, "g")
        );
        assert_eq!(evicted(&mut w), expected);
    }
}

/// G-24: without enough room even then, no pod is evicted, and the reason of the group is repeated.
#[test]
fn no_pod_is_evicted_in_vain() {
    let mut w = driver();
    w.node(cpus("n1", "3"));
    w.pod(low("a", "1").on("n1"));
    vip_gang(&mut w, "2");
    w.attempts();
    assert_eq!(evicted(&mut w), [""; 0]);
    assert_eq!(
        condition(&w, "g"),
        "False Unschedulable: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, pod group preemption: minCount \
         (2) cannot be satisfied: 1 scheduled, 0 remaining"
    );
    assert_eq!(
        stated(&w, "p2"),
        "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."
    );
}

/// G-24: without a pod of lower priority there is nothing to evict.
#[test]
fn a_gang_does_not_evict_its_equals() {
    let mut w = driver();
    w.node(cpus("n1", "1"));
    w.pod(low("a", "1").priority(100).on("n1"));
    vip_gang(&mut w, "1");
    w.attempts();
    assert_eq!(evicted(&mut w), [""; 0]);
    assert!(
        condition(&w, "g").ends_with(
            ", pod group preemption: No preemption victims found for incoming preemptor"
        ),
        "{}",
        condition(&w, "g")
    );
}

/// G-27: while the victims terminate, a further attempt chooses no second set of victims and keeps the nominations.
#[test]
fn no_second_victims_are_chosen_while_the_first_terminate() {
    let mut w = driver();
    w.node(cpus("n1", "4")).node(cpus("n2", "4"));
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        w.pod(low(name, "4").on(node));
    }
    vip_gang(&mut w, "2");
    w.attempts();
    while !w.deletions().is_empty() {
        w.answer_which(is_deletion, None, true);
    }
    w.answer_all();
    let nominated = [w.nominated("p1"), w.nominated("p2")];
    w.node(cpus("n3", "1"));
    w.wait(30);
    w.pod(low("other", "1"));
    w.attempts();
    w.node(cpus("n4", "2"));
    w.pod(low("block", "2").on("n4"));
    w.node(cpus("n4", "2").label("changed", "yes"));
    w.wait(30);
    w.attempts();
    assert_eq!(w.deletions(), [""; 0]);
    assert_eq!([w.nominated("p1"), w.nominated("p2")], nominated);
}

/// G-28: a policy `Never` of a member keeps the gang from evicting others.
#[test]
fn a_gang_may_not_preempt() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.pod(low("a", "2").on("n1"));
    w.object(Kind::PodGroup, group("g", of_priority(gang(1), 100)));
    let never = |pod: &mut berth_api::Pod| pod.spec.preemption_policy = Some("Never".into());
    w.pod(member("p1", "g", "1").priority(100).with(never));
    w.attempts();
    assert_eq!(evicted(&mut w), [""; 0]);
    assert!(
        condition(&w, "g")
            .ends_with(", pod group preemption: not eligible due to preemptionPolicy=Never."),
        "{}",
        condition(&w, "g")
    );
}

/// G-24: only the pods of one rack are evicted for a gang that must be in one.
#[test]
fn a_gang_with_a_constraint_evicts_in_one_rack() {
    let gates = gates().with(Feature::TopologyAwareWorkloadScheduling, true);
    let mut w = driver_of(gates);
    for (node, rack) in [("n1", "a"), ("n2", "b")] {
        w.node(cpus(node, "2").label("rack", rack));
        w.pod(low(&format!("x-{rack}"), "2").on(node));
    }
    let mut spec = of_priority(gang(2), 100);
    spec["schedulingConstraints"] = json!({"topology": [{"key": "rack"}]});
    w.object(Kind::PodGroup, group("g", spec));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", "1").priority(100));
    }
    w.attempts();
    assert_eq!(evicted(&mut w).len(), 1);
    w.wait(10);
    w.attempts();
    w.answer_all();
    assert_ne!(node_of(&w, "p1"), "");
    assert_eq!(node_of(&w, "p1"), node_of(&w, "p2"));
}

/// G-26: the budget of a pod is respected where another pod can be evicted instead.
#[test]
fn a_gang_respects_disruption_budgets() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(
        Kind::PodDisruptionBudget,
        json!({
            "metadata": {"name": "b", "namespace": "default", "uid": "b"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": 0},
        }),
    );
    w.pod(low("db", "1").label("app", "db").on("n1"));
    w.pod(low("web", "1").on("n1"));
    w.object(Kind::PodGroup, group("g", of_priority(gang(1), 100)));
    w.pod(member("p1", "g", "1").priority(100));
    w.attempts();
    assert_eq!(evicted(&mut w), ["web"]);
}

/// G-25: a pod alone evicts a group of mode `all` as a whole, also its pods on other nodes.
#[test]
fn a_pod_alone_evicts_a_whole_group() {
    for (spec, expected) in [
        (as_a_whole(gang(1)), &["v1", "v2", "v3"][..]),
        (gang(1), &["v1"][..]),
    ] {
        let mut w = driver();
        w.node(cpus("n1", "1")).node(cpus("n2", "4"));
        w.object(Kind::PodGroup, group("v", spec));
        w.pod(member("v1", "v", "1").on("n1"));
        w.pod(member("v2", "v", "1").on("n2"));
        w.pod(member("v3", "v", "1").on("n2"));
        w.node(cpus("n2", "2"));
        let only_there = berth_api::Labels::default().with("kubernetes.io/hostname", "n1");
        w.node(cpus("n1", "1").label("kubernetes.io/hostname", "n1"));
        w.pod(low("vip", "1").priority(100).with(|pod| {
            pod.spec.node_selector = Some(only_there);
        }));
        let attempts = w.attempts();
        assert!(
            attempts[0].ends_with(&format!(
                "preemption: found a potential placement for pod on node n1, preempting {} victims",
                expected.len()
            )),
            "{attempts:?}"
        );
        assert_eq!(evicted(&mut w), expected);
    }
}
