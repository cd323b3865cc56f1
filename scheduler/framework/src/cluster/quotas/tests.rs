//! Deferred quotas against an independent model that computes admission from the rules alone.

use super::*;
use crate::cluster::Cluster;
use crate::features::{Feature, FeatureGates};
use crate::testing::{PodBuilder, pod};
use berth_api::{Kind, Object};
use serde_json::{Value, json};

fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    let features = FeatureGates::default()
        .with(Feature::GenericWorkload, true)
        .with(Feature::TopologyAwareWorkloadScheduling, true)
        .with(Feature::CompositePodGroup, true);
    cluster.follow(&features);
    let schedulers: Vec<Str> = vec!["default-scheduler".into()];
    cluster.pods.count_members_of(schedulers.clone());
    cluster.defer_pods_of(schedulers);
    cluster
}

fn object(kind: Kind, namespace: &str, name: &str, spec: &Value) -> Object {
    let json =
        json!({"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec});
    kind.decode(json.to_string().as_bytes()).expect("an object")
}

fn quota(namespace: &str, name: &str, spec: &Value) -> Object {
    object(Kind::Custom(DEFERRED_QUOTA), namespace, name, spec)
}

fn set(cluster: &mut Cluster, pod: PodBuilder) {
    let pod = pod.arc();
    cluster.set_pod(pod.uid().clone(), pod);
}

fn admitted(cluster: &mut Cluster) -> Vec<String> {
    let changes = cluster.quotas_mut().take_changes();
    let names = changes.admitted.iter();
    names
        .map(|uid| uid.trim_start_matches("uid-").to_owned())
        .collect()
}

fn withdrawn(cluster: &mut Cluster) -> Vec<String> {
    let changes = cluster.quotas_mut().take_changes();
    let names = changes.withdrawn.iter();
    names
        .map(|uid| uid.trim_start_matches("uid-").to_owned())
        .collect()
}

fn obstacle(cluster: &Cluster, name: &str) -> String {
    let pod = cluster
        .pods
        .get(&*format!("uid-{name}"))
        .expect("it is known");
    cluster
        .quotas()
        .obstacle(pod)
        .map(|obstacle| obstacle.to_string())
        .unwrap_or_default()
}

/// DQ-2, DQ-4, DQ-9: the first in line fits when a pod has ended, and nothing overtakes it.
#[test]
fn the_line_is_admitted_in_order() {
    let mut cluster = cluster();
    cluster.set(&quota(
        "default",
        "q",
        &json!({"hard": {"requests.cpu": "4"}}),
    ));
    set(&mut cluster, pod("runs").request("cpu", "3").on("n"));
    set(&mut cluster, pod("large").request("cpu", "4").created(1));
    set(&mut cluster, pod("small").request("cpu", "1").created(2));
    set(
        &mut cluster,
        pod("urgent").request("cpu", "2").created(3).priority(10),
    );
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    assert_eq!(
        obstacle(&cluster, "urgent"),
        "deferred quota \"q\": requests.cpu: requested 2, used 3 of 4"
    );
    assert_eq!(
        obstacle(&cluster, "large"),
        "deferred quota \"q\": requests.cpu: requested 4, used 3 of 4, 1 pod is before this one"
    );
    cluster.unset_pod("uid-runs");
    assert_eq!(admitted(&mut cluster), ["urgent"]);
    cluster.unset_pod("uid-urgent");
    assert_eq!(admitted(&mut cluster), ["large"]);
    // It ends without having had a node.
    cluster.unset_pod("uid-large");
    assert_eq!(admitted(&mut cluster), ["small"]);
}

/// DQ-8: with order BestEffort, a pod that fits overtakes.
#[test]
fn best_effort_overtakes() {
    let mut cluster = cluster();
    let spec = json!({"hard": {"requests.cpu": "4"}, "order": "BestEffort"});
    cluster.set(&quota("default", "q", &spec));
    set(&mut cluster, pod("runs").request("cpu", "2").on("n"));
    set(&mut cluster, pod("large").request("cpu", "4").created(1));
    for name in ["a", "b", "c"] {
        set(&mut cluster, pod(name).request("cpu", "1").created(2));
    }
    assert_eq!(admitted(&mut cluster), ["a", "b"]);
    cluster.unset_pod("uid-a");
    assert_eq!(admitted(&mut cluster), ["c"]);
}

/// DQ-3: gates are checked first; a pod without gates enters the line at its place.
#[test]
fn a_gated_pod_is_not_in_line() {
    let mut cluster = cluster();
    cluster.set(&quota("default", "q", &json!({"hard": {"pods": "1"}})));
    set(&mut cluster, pod("gated").gate("g").created(1));
    set(&mut cluster, pod("runs").on("n"));
    set(&mut cluster, pod("later").created(2));
    set(&mut cluster, pod("gated").created(1));
    cluster.unset_pod("uid-runs");
    assert_eq!(admitted(&mut cluster), ["gated"]);
    // Gated again, it gives its room to the next one.
    set(&mut cluster, pod("gated").gate("g").created(1));
    assert_eq!(admitted(&mut cluster), ["later"]);
}

/// DQ-6: an admitted pod keeps its room until it has a node; then it is usage, and it gets its room back if its binding
/// fails.
#[test]
fn an_admitted_pod_keeps_its_room() {
    let mut cluster = cluster();
    cluster.set(&quota("default", "q", &json!({"hard": {"pods": "1"}})));
    set(&mut cluster, pod("a").created(1));
    set(&mut cluster, pod("b").created(2));
    assert_eq!(admitted(&mut cluster), ["a"]);
    set(&mut cluster, pod("a").created(1).on("n"));
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    set(&mut cluster, pod("a").created(1));
    assert_eq!(admitted(&mut cluster), Vec::<String>::new());
    assert_eq!(obstacle(&cluster, "a"), "");
    let view = cluster
        .quotas()
        .get(&"default".into(), &"q".into())
        .expect("it exists");
    assert_eq!(
        (view.amounts[0].used, view.amounts[0].admitted, view.waiting),
        (0, 1, 1)
    );
}

/// DQ-7: a gang is admitted as a whole.
#[test]
fn a_gang_is_one_entry() {
    let mut cluster = cluster();
    let gang = json!({"schedulingPolicy": {"gang": {"minCount": 2}}});
    cluster.set(&object(Kind::PodGroup, "default", "g", &gang));
    cluster.set(&quota("default", "q", &json!({"hard": {"pods": "3"}})));
    for name in ["r1", "r2"] {
        set(&mut cluster, pod(name).on("n"));
    }
    set(&mut cluster, pod("a").member_of("g").created(1));
    assert_eq!(
        obstacle(&cluster, "a"),
        "deferred quota \"q\": the group of the pod is not complete"
    );
    set(&mut cluster, pod("b").member_of("g").created(1));
    assert_eq!(
        obstacle(&cluster, "a"),
        "deferred quota \"q\": pods: requested 2, used 2 of 3"
    );
    set(&mut cluster, pod("next").created(2));
    assert_eq!(
        obstacle(&cluster, "next"),
        "deferred quota \"q\": 1 pod is before this one"
    );
    cluster.unset_pod("uid-r1");
    assert_eq!(admitted(&mut cluster), ["a", "b"]);
    // A third member arrives before the gang has nodes: the whole gang waits again, and no pod overtakes it.
    set(&mut cluster, pod("c").member_of("g").created(3));
    assert_eq!(withdrawn(&mut cluster), ["a", "b", "c"]);
    cluster.unset_pod("uid-r2");
    assert_eq!(admitted(&mut cluster), ["a", "b", "c"]);
}

/// DQ-10, DQ-11: a cohort lends unused amounts up to the limit, except amounts that another quota claims for its own
/// limit.
#[test]
fn a_cohort_lends_what_it_does_not_use() {
    let mut cluster = cluster();
    let spec = json!({"hard": {"pods": "2"}, "cohort": "c", "borrowingLimit": {"pods": "1"}});
    cluster.set(&quota("default", "q", &spec));
    cluster.set(&quota("other", "q", &spec));
    for name in ["a", "b", "c", "d"] {
        set(&mut cluster, pod(name).created(1));
    }
    assert_eq!(admitted(&mut cluster), ["a", "b", "c"]);
    assert_eq!(
        obstacle(&cluster, "d"),
        "deferred quota \"q\": pods: requested 1, used 3 of 3"
    );
    for name in ["x", "y"] {
        set(&mut cluster, pod(name).namespace("other").created(9));
    }
    assert_eq!(admitted(&mut cluster), ["x"]);
    assert_eq!(
        obstacle(&cluster, "y"),
        "deferred quota \"q\": pods: requested 1, used 4 of 4 in cohort \"c\""
    );
    // The own limit takes precedence over an older pod that would borrow.
    cluster.unset_pod("uid-a");
    assert_eq!(admitted(&mut cluster), ["y"]);
    cluster.unset_pod("uid-x");
    assert_eq!(admitted(&mut cluster), ["d"]);
}

/// DQ-12: a changed limit, a deleted quota, and a changed label take effect at once.
#[test]
fn changes_of_quotas_and_labels_take_effect() {
    let mut cluster = cluster();
    let spec =
        |pods: &str| json!({"hard": {"pods": pods}, "podSelector": {"matchLabels": {"team": "a"}}});
    cluster.set(&quota("default", "q", &spec("1")));
    for name in ["a", "b", "c"] {
        set(&mut cluster, pod(name).label("team", "a").created(1));
    }
    assert_eq!(admitted(&mut cluster), ["a"]);
    cluster.set(&quota("default", "q", &spec("2")));
    assert_eq!(admitted(&mut cluster), ["b"]);
    cluster.set(&quota("default", "q", &spec("1")));
    assert_eq!(withdrawn(&mut cluster), ["b"]);
    set(&mut cluster, pod("b").label("team", "other").created(1));
    assert_eq!(admitted(&mut cluster), ["b"]);
    cluster.unset(&quota("default", "q", &spec("1")));
    assert_eq!(admitted(&mut cluster), ["c"]);
    // A new quota without room withdraws waiting pods from the scheduling queue.
    cluster.set(&quota("default", "q", &json!({"hard": {"pods": "0"}})));
    assert_eq!(withdrawn(&mut cluster), ["a", "b", "c"]);
}

/// DQ-16: a quota that cannot be read holds no pod back.
#[test]
fn an_invalid_quota_holds_nothing_back() {
    for (spec, error) in [
        (
            json!({"hard": {"limits.cpu": "1"}}),
            "spec.hard[limits.cpu]: unknown key; use pods, requests.<resource> or <class>.deviceclass.resource.k8s.io/devices",
        ),
        (
            json!({"hard": {"pods": "-1"}}),
            "spec.hard[pods]: must not be negative",
        ),
        (
            json!({"hard": {"pods": "0"}, "borrowingLimit": {"pods": "1"}}),
            "spec.borrowingLimit: requires spec.cohort",
        ),
        (
            json!({"hard": {"pods": "0"}, "order": "Random"}),
            "spec.order: \"Random\" is neither Strict nor BestEffort",
        ),
        (
            json!({"hard": {"pods": "0"}, "cohort": "c", "borrowingLimit": {"requests.cpu": "1"}}),
            "spec.borrowingLimit[requests.cpu]: spec.hard has no such key",
        ),
    ] {
        let mut cluster = cluster();
        cluster.set(&quota("default", "q", &spec));
        set(&mut cluster, pod("a"));
        assert_eq!(obstacle(&cluster, "a"), "", "{spec}");
        let view = cluster
            .quotas()
            .get(&"default".into(), &"q".into())
            .expect("it exists");
        assert_eq!(view.error, Some(error));
    }
}

/// DQ-1: the counted amounts are equal to ResourceQuota's.
#[test]
fn usage_is_that_of_resource_quota() {
    let mut cluster = cluster();
    let hard = json!({"pods": "9", "requests.cpu": "9", "requests.memory": "9Gi", "requests.example.com/gpu": "9",
        "gpu.example.com.deviceclass.resource.k8s.io/devices": "9"});
    cluster.set(&quota("default", "q", &json!({"hard": hard})));
    let claim = json!({"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}},
        {"name": "b", "firstAvailable": [
            {"name": "x", "deviceClassName": "gpu.example.com", "count": 3},
            {"name": "y", "deviceClassName": "other", "count": 7}]},
    ]}});
    let with_claim = |name: &str| {
        let json = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}],
                     "resourceClaims": [{"name": "a", "resourceClaimName": "c"}]},
        });
        let pod: Pod = serde_json::from_value(json).expect("a pod");
        Arc::new(pod)
    };
    let pod_with_claim = with_claim("claims");
    cluster.set_pod(pod_with_claim.uid().clone(), pod_with_claim);
    assert_eq!(
        obstacle(&cluster, "claims"),
        "deferred quota \"q\": a resource claim of the pod does not exist"
    );
    cluster.set(&object(Kind::ResourceClaim, "default", "c", &claim));
    assert_eq!(admitted(&mut cluster), ["claims"]);
    let requests = pod("runs")
        .request("cpu", "1500m")
        .request("memory", "1Gi")
        .request("example.com/gpu", "2");
    set(&mut cluster, requests.scheduler("another").on("n"));
    let view = cluster
        .quotas()
        .get(&"default".into(), &"q".into())
        .expect("it exists");
    let amounts: Vec<(&str, i64, i64)> = view
        .amounts
        .iter()
        .map(|amount| (amount.key.as_str(), amount.used, amount.admitted))
        .collect();
    assert_eq!(
        amounts,
        [
            ("gpu.example.com.deviceclass.resource.k8s.io/devices", 0, 5),
            ("pods", 1, 1),
            ("requests.cpu", 1500, 0),
            ("requests.example.com/gpu", 2, 0),
            ("requests.memory", 1 << 30, 0),
        ]
    );
}

/// DQ-9: after the end of a pod, at most ten entries are checked for any number of waiting pods, in either order.
#[test]
fn the_end_of_a_pod_looks_at_few_entries() {
    for order in ["Strict", "BestEffort"] {
        let mut cluster = cluster();
        for namespace in 0..100 {
            let namespace = format!("ns{namespace}");
            let spec = json!({"hard": {"pods": "1", "requests.cpu": "8"}, "order": order});
            cluster.set(&quota(&namespace, "q", &spec));
            for number in 0..200 {
                let name = format!("{namespace}-{number}");
                let waits = pod(&name)
                    .namespace(&namespace)
                    .created(number)
                    .request("cpu", "1");
                set(&mut cluster, waits);
            }
        }
        cluster.quotas_mut().take_changes();
        for number in 0..20 {
            let before = cluster.quotas().looks();
            cluster.unset_pod(&format!("uid-ns7-{number}"));
            let looks = cluster.quotas().looks() - before;
            assert!(looks <= 10, "{order}: {looks}");
            assert_eq!(
                admitted(&mut cluster),
                [format!("ns7-{}", number + 1)],
                "{order}"
            );
        }
    }
}

/// A trial of a change copies the namespaces that the change can reach, and leaves nothing behind.
#[test]
fn saved_quotas_are_restored() {
    let mut cluster = cluster();
    let spec = json!({"hard": {"pods": "1"}, "cohort": "c", "borrowingLimit": {"pods": "0"}});
    for namespace in ["default", "lender"] {
        cluster.set(&quota(namespace, "q", &spec));
    }
    cluster.set(&quota("apart", "q", &json!({"hard": {"pods": "0"}})));
    for (name, namespace) in [("a", "default"), ("b", "default"), ("c", "apart")] {
        set(&mut cluster, pod(name).namespace(namespace).created(1));
    }
    cluster.quotas_mut().take_changes();
    let before = format!("{:?}", cluster.quotas().get(&"default".into(), &"q".into()));
    let saved = cluster.quotas().saved([Str::new("default")].iter());
    let copied = format!("{saved:?}");
    assert!(
        copied.contains("lender") && !copied.contains("apart"),
        "{copied}"
    );
    let raised = json!({"hard": {"pods": "2"}, "cohort": "c", "borrowingLimit": {"pods": "0"}});
    cluster.set(&quota("default", "q", &raised));
    assert_eq!(obstacle(&cluster, "b"), "");
    // The object and the resulting admission are reverted.
    cluster.set(&quota("default", "q", &spec));
    cluster.quotas_mut().restore(saved);
    let after = format!("{:?}", cluster.quotas().get(&"default".into(), &"q".into()));
    assert_eq!(after, before);
    assert!(cluster.quotas().changes().is_empty());
    assert_eq!(
        obstacle(&cluster, "b"),
        "deferred quota \"q\": pods: requested 1, used 1 of 1"
    );
}

mod groups;
mod model;
