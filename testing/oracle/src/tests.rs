//! The rules as tables. Objects are written as in the API.

// A test may panic if it cannot read its own objects.
#![allow(clippy::expect_used)]

use super::*;
use berth_api::{Labels, Node, Pod, Str};
use serde_json::{Value, json};

fn pod(spec: Value) -> Pod {
    let metadata = json!({"namespace": "ns", "name": "p", "labels": {"app": "red"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

/// A pod of the namespace with this label `app`.
fn labelled(namespace: &str, app: &str) -> Pod {
    let metadata = json!({"namespace": namespace, "name": app, "labels": {"app": app}});
    serde_json::from_value(json!({ "metadata": metadata })).expect("a pod")
}

fn node(labels: Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).expect("a node")
}

/// PL-20, PL-48.
#[test]
fn a_node_is_selected_by_its_labels_and_its_name() {
    let label = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let field = |key: &str, operator: &str, values: Value| json!({"matchFields": [{"key": key, "operator": operator, "values": values}]});
    let node = node(json!({"zone": "a", "cores": "8"}));
    for (terms, expected) in [
        (vec![], false),
        (vec![json!({})], false),
        (
            vec![json!({}), label("zone", "In", json!(["b", "a"]))],
            true,
        ),
        (vec![label("zone", "In", json!(["b"]))], false),
        (vec![label("zone", "In", json!([]))], false),
        (vec![label("zone", "NotIn", json!(["b"]))], true),
        (vec![label("zone", "NotIn", json!(["a"]))], false),
        (vec![label("rack", "NotIn", json!(["a"]))], true),
        (vec![label("rack", "NotIn", json!([]))], false),
        (vec![label("zone", "Exists", json!([]))], true),
        (vec![label("rack", "Exists", json!([]))], false),
        (vec![label("rack", "DoesNotExist", json!([]))], true),
        (vec![label("zone", "DoesNotExist", json!([]))], false),
        (vec![label("cores", "Gt", json!(["7"]))], true),
        (vec![label("cores", "Gt", json!(["8"]))], false),
        (vec![label("cores", "Lt", json!(["9"]))], true),
        (vec![label("zone", "Lt", json!(["9"]))], false),
        (vec![label("rack", "Lt", json!(["9"]))], false),
        (vec![label("cores", "Gt", json!(["1", "2"]))], false),
        (vec![label("zone", "Like", json!(["a"]))], false),
        (vec![field("metadata.name", "In", json!(["n"]))], true),
        (vec![field("metadata.name", "NotIn", json!(["n"]))], false),
        (vec![field("metadata.name", "In", json!(["n", "m"]))], false),
        (vec![field("metadata.name", "Exists", json!([]))], false),
        (vec![field("metadata.uid", "In", json!(["n"]))], false),
    ] {
        let required = json!({"nodeSelectorTerms": terms});
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let pod = pod(json!({ "affinity": affinity }));
        assert_eq!(matches_affinity(&pod, &node), expected, "{terms:?}");
    }
    for (selector, expected) in [
        (json!(null), true),
        (json!({"zone": "a", "cores": "8"}), true),
        (json!({"zone": "a", "cores": "9"}), false),
        (json!({"rack": ""}), false),
    ] {
        let pod = pod(json!({"nodeSelector": selector}));
        assert_eq!(has_selected_labels(&pod, &node), expected, "{selector}");
        assert!(matches_affinity(&pod, &node));
    }
}

/// PL-22.
#[test]
fn a_label_selector_that_is_absent_or_malformed_matches_nothing() {
    let labels = Labels::from_pairs([("app", "red")]);
    let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, expected) in [
        (json!(null), false),
        (json!({}), true),
        (json!({"matchLabels": {"app": "red"}}), true),
        (json!({"matchLabels": {"app": "blue"}}), false),
        (expression("app", "In", json!(["blue", "red"])), true),
        (expression("tier", "NotIn", json!(["web"])), true),
        (expression("tier", "DoesNotExist", json!([])), true),
        (expression("app", "Exists", json!(["red"])), false),
        (expression("app", "Gt", json!(["1"])), false),
    ] {
        let parsed = serde_json::from_value::<Option<_>>(selector.clone()).expect("a selector");
        assert_eq!(selects(parsed.as_ref(), &labels), expected, "{selector}");
    }
}

/// PL-23, PL-35, PL-38.
#[test]
fn taints_are_tolerated_by_key_effect_and_value() {
    let mut node = node(json!({}));
    node.spec.taints = serde_json::from_value(json!([
        {"key": "a", "value": "5", "effect": "NoSchedule"},
        {"key": "b", "effect": "NoExecute"},
        {"key": "c", "effect": "PreferNoSchedule"},
    ]))
    .expect("taints");
    node.spec.unschedulable = true;
    for (tolerations, untolerated_keys, is_barred) in [
        (json!([]), &["a", "b"][..], true),
        (json!([{"operator": "Exists"}]), &[], false),
        (
            json!([{"operator": "Exists", "effect": "NoExecute"}]),
            &["a"],
            true,
        ),
        (json!([{"key": "a", "value": "5"}]), &["b"], true),
        (
            json!([{"key": "a", "value": "6"}, {"key": "b", "operator": "Exists"}]),
            &["a"],
            true,
        ),
        (
            json!([{"key": "a", "operator": "Lt", "value": "6"}]),
            &["b"],
            true,
        ),
        (
            json!([{"key": "a", "operator": "Lt", "value": "06"}]),
            &["a", "b"],
            true,
        ),
        (
            json!([{"key": "a", "operator": "Gt", "value": "5"}]),
            &["a", "b"],
            true,
        ),
        (
            json!([{"key": "a", "operator": "Like", "value": "5"}]),
            &["a", "b"],
            true,
        ),
        (
            json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
            &["a", "b"],
            false,
        ),
    ] {
        let pod = pod(json!({ "tolerations": tolerations }));
        let own = &pod.spec.tolerations;
        let keys: Vec<&str> = untolerated(own, &node, SCHEDULING_EFFECTS)
            .map(|t| &*t.key)
            .collect();
        assert_eq!(keys, untolerated_keys, "{tolerations}");
        assert_eq!(is_barred_by_cordon(own, &node), is_barred, "{tolerations}");
    }
}

/// PL-11, PL-14.
#[test]
fn requests_are_those_that_run_together() {
    let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = container("1");
    sidecar["restartPolicy"] = "Always".into();
    for (situation, spec, milli_cpu) in [
        (
            "containers run together",
            json!({"containers": [container("2"), container("3")]}),
            5000,
        ),
        (
            "an init container runs before them",
            json!({"containers": [container("2")], "initContainers": [container("1"), container("3")]}),
            3000,
        ),
        (
            // 2 + 3 + 1 = 6; the last init container with the sidecar: 6 + 1 = 7.
            "a sidecar runs beside what is started later",
            json!({"containers": [container("2"), container("3")],
                "initContainers": [container("4"), sidecar, container("6")]}),
            7000,
        ),
        (
            "the pod as a whole, and its overhead",
            json!({"containers": [container("2")], "resources": {"requests": {"cpu": "1500m"}},
                "overhead": {"cpu": "100m"}}),
            1600,
        ),
    ] {
        let requests = requests(&pod(spec));
        let milli = |name| requests.get(name).map(|amount| amount.milli_value());
        assert_eq!(milli("cpu"), Some(milli_cpu), "{situation}");
        assert_eq!(milli("pods"), Some(1000), "{situation}");
    }
}

#[test]
fn a_resized_pod_has_the_resources_that_were_allocated() {
    let mut pod = pod(json!({"containers": [
        {"name": "a", "resources": {"requests": {"cpu": "2"}}},
        {"name": "b", "resources": {"requests": {"cpu": "3"}}},
    ]}));
    pod.status.container_statuses = serde_json::from_value(json!([
        {"name": "b", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
    ]))
    .expect("statuses");
    let cpu = |list: berth_api::ResourceList| list.get("cpu").map(|amount| amount.value());
    assert_eq!(cpu(requests(&pod)), Some(5));
    assert_eq!(cpu(allocated(&pod)), Some(3));
}

/// Sums of sidecars are not computed again for each container, and statuses are found by name: four times the
/// containers cause four times the reads of names, and a few more for the search among sorted names.
#[test]
fn sums_take_time_in_proportion_to_the_containers() {
    let reads = |count: usize| {
        let requests = |n: usize| json!({"requests": {format!("example.com/r{n}"): "1"}});
        let sidecars = (0..count).map(|n| {
            json!({"name": format!("s{n}"), "restartPolicy": "Always", "resources": requests(n)})
        });
        let containers =
            (0..count).map(|n| json!({"name": format!("c{n}"), "resources": requests(n)}));
        let statuses = |name: &str| -> Vec<Value> {
            let statuses = (0..count).map(|n| {
                json!({"name": format!("{name}{n}"), "resources": {},
                    "allocatedResources": {format!("example.com/r{n}"): "2"}})
            });
            statuses.collect()
        };
        let mut pod = pod(json!({
            "initContainers": sidecars.collect::<Vec<_>>(),
            "containers": containers.collect::<Vec<_>>(),
        }));
        pod.status.container_statuses =
            serde_json::from_value(statuses("c").into()).expect("statuses");
        pod.status.init_container_statuses =
            serde_json::from_value(statuses("s").into()).expect("statuses");
        let began = Str::reads();
        let (requested, allocated) = (room::requests(&pod), room::allocated(&pod));
        let reads = Str::reads() - began;
        for (list, amount) in [(requested, 2), (allocated, 4)] {
            let last = list.get(&format!("example.com/r{}", count - 1));
            assert_eq!(last.map(|amount| amount.value()), Some(amount));
        }
        reads
    };
    let [few, many] = [250, 1_000].map(reads);
    assert!(many <= 6 * few, "{few} reads, then {many}");
}

/// PL-10.
#[test]
fn a_node_lacks_the_resources_of_which_too_little_is_free() {
    let mut node = node(json!({}));
    node.status.allocatable =
        serde_json::from_value(json!({"cpu": "2", "pods": "2"})).expect("amounts");
    for (wanted, used, expected) in [
        (json!({"cpu": "500m"}), json!({"cpu": "1500m"}), &[][..]),
        (json!({"cpu": "501m"}), json!({"cpu": "1500m"}), &["cpu"]),
        (json!({"cpu": "0"}), json!({"cpu": "3"}), &[]),
        (json!({"gpu": "1"}), json!({}), &["gpu"]),
    ] {
        let (wanted, used) = (requests_of(wanted), requests_of(used));
        let short: Vec<Str> = shortages(&wanted, &used, &node)
            .map(|s| s.resource)
            .collect();
        assert_eq!(short, expected, "{wanted:?}");
    }
    let mut full = requests_of(json!({}));
    full.add_all(&full.clone());
    let short: Vec<Str> = shortages(&requests_of(json!({})), &full, &node)
        .map(|s| s.resource)
        .collect();
    assert_eq!(short, ["pods"]);
}

fn requests_of(list: Value) -> berth_api::ResourceList {
    requests(&pod(
        json!({"containers": [{"name": "c", "resources": {"requests": list}}]}),
    ))
}

/// PL-50, PL-51.
#[test]
fn host_ports_conflict_by_address_protocol_and_number() {
    let port = |ip: &str, protocol: &str, number: i32| {
        let ports = json!([{"hostIP": ip, "protocol": protocol, "hostPort": number}]);
        let pod = pod(json!({"containers": [{"name": "c", "ports": ports}]}));
        host_ports(&pod).next().expect("a port")
    };
    let web = port("", "", 80);
    for (other, expected) in [
        (port("0.0.0.0", "TCP", 80), true),
        (port("10.0.0.1", "TCP", 80), true),
        (port("", "UDP", 80), false),
        (port("", "TCP", 81), false),
    ] {
        assert_eq!(web.conflicts_with(&other), expected, "{other:?}");
        assert_eq!(other.conflicts_with(&web), expected, "{other:?}");
    }
    assert!(!port("10.0.0.1", "TCP", 80).conflicts_with(&port("10.0.0.2", "TCP", 80)));
    let init = json!({"name": "i", "ports": [{"hostPort": 1}]});
    let mut sidecar = init.clone();
    sidecar["restartPolicy"] = "Always".into();
    for (container, count) in [(init, 0), (sidecar, 1)] {
        let pod = pod(json!({"initContainers": [container]}));
        assert_eq!(host_ports(&pod).count(), count);
    }
}

/// The labels of the namespaces of these tests.
fn teams(namespace: &str) -> Labels {
    match namespace {
        "ns" => Labels::from_pairs([("team", "x")]),
        "guest" => Labels::from_pairs([("team", "y")]),
        _ => Labels::default(),
    }
}

/// PL-81 to PL-83.
#[test]
fn a_term_is_about_pods_of_its_namespaces() {
    let (own, guest) = (labelled("ns", "red"), labelled("guest", "red"));
    let of_y = json!({"matchLabels": {"team": "y"}});
    for (namespaces, selector, about_own, about_guest) in [
        (json!([]), json!(null), true, false),
        (json!(["guest"]), json!(null), false, true),
        (json!([]), of_y.clone(), false, true),
        (json!(["ns"]), of_y, true, true),
        (json!([]), json!({}), true, true),
    ] {
        let terms = json!([{"labelSelector": {"matchLabels": {"app": "red"}}, "topologyKey": "zone",
            "namespaces": namespaces, "namespaceSelector": selector}]);
        let owner = pod(json!({"affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}));
        let term = &anti_affinity_terms(&owner)[0];
        for (other, expected) in [(&own, about_own), (&guest, about_guest)] {
            let found = matches_term(&owner, term, other, &teams);
            assert_eq!(found, expected, "{terms}: {}", other.key());
        }
        assert!(!matches_term(&owner, term, &labelled("ns", "blue"), &teams));
    }
}

/// PL-80, PL-82.
#[test]
fn a_pod_finds_company_in_its_domain_or_is_the_first() {
    let with_terms = |keys: &[(&str, &str)]| {
        let term = |(key, app): &(&str, &str)| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
        let terms: Vec<Value> = keys.iter().map(term).collect();
        pod(json!({"affinity": {"podAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}))
    };
    let (red, blue) = (labelled("ns", "red"), labelled("ns", "blue"));
    let here = node(json!({"zone": "a", "rack": "1"}));
    let near = node(json!({"zone": "a", "rack": "2"}));
    let bare = node(json!({}));
    for (situation, pod, at, placed, expected) in [
        ("without terms", with_terms(&[]), &bare, vec![], true),
        (
            "in the zone",
            with_terms(&[("zone", "blue")]),
            &here,
            vec![(&blue, &near)],
            true,
        ),
        (
            "not in the rack",
            with_terms(&[("rack", "blue")]),
            &here,
            vec![(&blue, &near)],
            false,
        ),
        (
            "no company",
            with_terms(&[("zone", "blue")]),
            &here,
            vec![(&red, &near)],
            false,
        ),
        (
            "no domain",
            with_terms(&[("zone", "red")]),
            &bare,
            vec![],
            false,
        ),
        (
            "the first",
            with_terms(&[("zone", "red")]),
            &here,
            vec![(&blue, &near)],
            true,
        ),
        (
            "company outside of domains",
            with_terms(&[("zone", "red")]),
            &here,
            vec![(&red, &bare)],
            true,
        ),
        (
            "one pod for each term",
            with_terms(&[("zone", "red"), ("zone", "blue")]),
            &here,
            vec![(&red, &near), (&blue, &near)],
            false,
        ),
    ] {
        assert_eq!(
            finds_company(&pod, at, &placed, &teams),
            expected,
            "{situation}"
        );
    }
    assert!(are_together("zone", &here, &near) && !are_together("rack", &here, &near));
    assert!(!are_together("zone", &bare, &bare));
}

/// PL-97, PL-98, PL-100.
#[test]
fn pods_are_counted_in_the_domains_that_the_owner_may_use() {
    let a = node(json!({"zone": "a", "disk": "ssd"}));
    let mut b = node(json!({"zone": "b"}));
    b.spec.taints =
        serde_json::from_value(json!([{"key": "t", "effect": "NoSchedule"}])).expect("taints");
    let bare = node(json!({"disk": "ssd"}));
    let (red, blue, guest) = (
        labelled("ns", "red"),
        labelled("ns", "blue"),
        labelled("guest", "red"),
    );
    let mut terminating = red.clone();
    terminating.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let placed = [
        (&red, &a),
        (&blue, &a),
        (&guest, &a),
        (&terminating, &a),
        (&red, &b),
        (&red, &bare),
    ];
    for (situation, more, selector, expected, least) in [
        (
            "all zones",
            json!({}),
            json!(null),
            &[("a", 1), ("b", 1)][..],
            1,
        ),
        (
            "those of its selector",
            json!({}),
            json!({"disk": "ssd"}),
            &[("a", 1)],
            1,
        ),
        (
            "selectors are ignored",
            json!({"nodeAffinityPolicy": "Ignore"}),
            json!({"disk": "ssd"}),
            &[("a", 1), ("b", 1)],
            1,
        ),
        (
            "taints are honored",
            json!({"nodeTaintsPolicy": "Honor"}),
            json!(null),
            &[("a", 1)],
            1,
        ),
        (
            "too few domains",
            json!({"minDomains": 3}),
            json!(null),
            &[("a", 1), ("b", 1)],
            0,
        ),
        (
            "the values of the owner",
            json!({"labelSelector": {}, "matchLabelKeys": ["app", "none"]}),
            json!(null),
            &[("a", 1), ("b", 1)],
            1,
        ),
    ] {
        let mut constraint = json!({"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1,
            "labelSelector": {"matchLabels": {"app": "red"}}});
        for (field, value) in more.as_object().into_iter().flatten() {
            constraint[field] = value.clone();
        }
        let owner =
            pod(json!({"nodeSelector": selector, "topologySpreadConstraints": [constraint]}));
        let constraint = hard_constraints(&owner).next().expect("a constraint");
        let counts = domain_counts(
            &owner,
            constraint,
            [&a, &b, &bare].into_iter(),
            placed.into_iter(),
        );
        assert_eq!(counts, expected.iter().copied().collect(), "{situation}");
        assert_eq!(least_count(constraint, &counts), least, "{situation}");
    }
}
