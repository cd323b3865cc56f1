//! The data of the dashboard, from a core with the in-tree plugins.

use super::*;
use berth_api::{Kind, Time};
use berth_framework::Feature;
use berth_framework::testing::{node, pod};
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};

fn scheduler(nodes: usize, pods: usize) -> (Scheduler, Time) {
    let now = Time::from_secs(1_000);
    let registry = berth_plugins::in_tree();
    let mut options = SchedulerOptions::default();
    options.features = options.features.with(Feature::GenericWorkload, true);
    let mut scheduler = Scheduler::new(options, &registry, now).expect("the default profile");
    let nodes = (0..nodes).map(|at| node(&format!("n{at:05}")).capacity("4", "8Gi", "110"));
    let nodes = nodes.map(|node| node.object()).collect();
    scheduler.apply(ClusterChange::Replaced(Kind::Node, nodes), now);
    let pods = (0..pods).map(|at| {
        let pod = pod(&format!("p{at:05}")).scheduler("default-scheduler");
        pod.request("cpu", "8").object()
    });
    scheduler.apply(ClusterChange::Replaced(Kind::Pod, pods.collect()), now);
    (scheduler, now)
}

fn pods_question(place: &str, from: usize) -> PageQuestion {
    PageQuestion::Pods {
        place: place.to_owned(),
        from,
    }
}

#[test]
fn paths_are_questions() {
    let filter = WaitingFilter {
        namespace: "team a".into(),
        owner: "Job/x".into(),
        sort: "oldest".into(),
        limit: 10,
        ..WaitingFilter::default()
    };
    for (path, query, expected) in [
        ("/dashboard/state", "", Some(PageQuestion::State)),
        (
            "/dashboard/heat",
            "resource=example.com%2Fgpu",
            Some(PageQuestion::Heat("example.com/gpu".into())),
        ),
        (
            "/dashboard/waiting",
            "namespace=team+a&owner=Job%2Fx&sort=oldest&limit=10",
            Some(PageQuestion::Waiting(filter)),
        ),
        (
            "/dashboard/pods",
            "place=gated&from=100",
            Some(pods_question("gated", 100)),
        ),
        ("/dashboard/pods", "from=-1", Some(pods_question("", 0))),
        (
            "/dashboard/node",
            "name=%zz%4",
            Some(PageQuestion::Node("%zz%4".into())),
        ),
        ("/dashboard/", "", None),
        ("/dashboard/../metrics", "", None),
        ("/metrics", "", None),
    ] {
        assert_eq!(PageQuestion::of(path, query), expected, "{path}?{query}");
    }
}

#[test]
fn pods_are_counted_by_queue_and_the_oldest_is_named() {
    let (mut scheduler, now) = scheduler(3, 5);
    let gated = pod("gated")
        .scheduler("default-scheduler")
        .gate("example.com/quota");
    scheduler.apply(ClusterChange::Applied(gated.object()), now);
    for _ in 0..5 {
        scheduler.schedule_one(now);
    }
    let later = now + berth_api::Duration::from_secs(60);
    let state = answer(&scheduler, &PageQuestion::State, later);
    assert_eq!(state["nodes"], 3);
    assert_eq!(state["queue"]["unschedulable"], 5, "{state:#}");
    assert_eq!(state["queue"]["gated"], 1);
    assert_eq!(state["flushRescues"], 0);
    assert_eq!(state["placedPerSecond"], 0.0);
    assert_eq!(state["attempts"]["unschedulable"], 5.0, "{state:#}");
    assert_eq!(state["oldest"]["seconds"], 60);
    let oldest = state["oldest"]["pod"].as_str().expect("a pod");
    assert!(oldest.starts_with("default/p0"), "{oldest}");
    let one = answer(
        &scheduler,
        &PageQuestion::Pod("default/p00001".into()),
        later,
    );
    assert_eq!(one["reasons"][0]["text"], "Insufficient cpu", "{one:#}");
    assert_eq!(one["reasons"][0]["nodes"], 3);
    let none = answer(&scheduler, &PageQuestion::Pod("default/none".into()), later);
    assert_eq!(none["missing"], true);
    for (place, total, text) in [
        ("gated", 1, "example.com/quota"),
        ("unschedulable", 5, "Insufficient cpu"),
        ("active", 0, ""),
    ] {
        let found = answer(&scheduler, &pods_question(place, 0), later);
        assert_eq!(found["total"], total, "{place}: {found:#}");
        if total > 0 {
            assert_eq!(found["rows"][0]["reasons"][0]["text"], text, "{found:#}");
        }
    }
}

#[test]
fn lists_are_pages_that_together_are_everything() {
    let (scheduler, now) = scheduler(1, 2 * ROWS_MAX + 7);
    let mut names = Vec::new();
    for from in [0, ROWS_MAX, 2 * ROWS_MAX] {
        let page = answer(&scheduler, &pods_question("", from), now);
        assert_eq!(page["total"], 2 * ROWS_MAX + 7);
        let rows = page["rows"].as_array().expect("rows");
        assert!(rows.len() <= ROWS_MAX);
        names.extend(rows.iter().map(|row| row["pod"].to_string()));
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 2 * ROWS_MAX + 7);
    let beyond = answer(&scheduler, &pods_question("", 10_000), now);
    assert_eq!(beyond["rows"].as_array().map(Vec::len), Some(0));
}

#[test]
fn the_heat_map_has_a_limited_number_of_cells() {
    for (nodes, cells, per_cell) in [(0, 0, 1), (7, 7, 1), (CELLS_MAX + 1, 2501, 2)] {
        let (mut scheduler, now) = scheduler(nodes, 0);
        if nodes > 0 {
            let bound = pod("bound").request("cpu", "1").on("n00000");
            scheduler.apply(ClusterChange::Applied(bound.object()), now);
        }
        let heat = answer(&scheduler, &PageQuestion::Heat("cpu".into()), now);
        assert_eq!(
            heat["cells"].as_array().map(Vec::len),
            Some(cells),
            "{nodes}"
        );
        assert_eq!(heat["nodesPerCell"], per_cell, "{nodes}");
        if nodes > 0 {
            assert_eq!(heat["cells"][0][0], "n00000");
            assert_eq!(heat["cells"][0][1], 0.25 / f64::from(per_cell));
            // A few nodes are shown with their amounts.
            let amounts = serde_json::json!([1_000, 4_000]);
            let shown = &heat["cells"][0].as_array().expect("a cell")[3..];
            assert_eq!(shown == amounts.as_array().expect("two"), nodes == 7);
            assert_eq!(heat["hasAmounts"], nodes == 7);
        }
        assert_eq!(
            answer(&scheduler, &PageQuestion::Heat("odd".into()), now)["resource"],
            "cpu"
        );
    }
}

fn owned(name: &str, kind: &str, owner: &str) -> berth_framework::testing::PodBuilder {
    let json = format!(
        r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"apps/v1","kind":"{kind}","name":"{owner}",
            "uid":"{owner}","controller":true}}]}}}}"#
    );
    let owner: berth_api::Pod = serde_json::from_str(&json).expect("a pod");
    let made = pod(name).scheduler("default-scheduler").request("cpu", "8");
    made.with(|pod| pod.metadata.owner_references = owner.metadata.owner_references.clone())
}

fn waiting(scheduler: &Scheduler, filter: WaitingFilter, now: Time) -> serde_json::Value {
    answer(scheduler, &PageQuestion::Waiting(filter), now)
}

/// One row for the pods of an owner, with the amounts that they lack; filters narrow the rows.
#[test]
fn waiting_pods_are_summed_up_by_owner_with_the_amounts_that_they_lack() {
    let (mut scheduler, now) = scheduler(3, 0);
    let full = pod("full").request("cpu", "3").on("n00001");
    scheduler.apply(ClusterChange::Applied(full.object()), now);
    for at in 0..30 {
        let owner = if at < 20 { "web" } else { "shop" };
        let pod = owned(&format!("p{at}"), "ReplicaSet", owner).object();
        scheduler.apply(ClusterChange::Applied(pod), now);
        scheduler.schedule_one(now);
    }
    let all = waiting(&scheduler, WaitingFilter::default(), now);
    assert_eq!((&all["total"], &all["pods"]), (&2.into(), &30.into()));
    let first = &all["rows"][0];
    assert_eq!(first["owner"], "ReplicaSet/web", "{all:#}");
    assert_eq!(first["places"], serde_json::json!({"unschedulable": 20}));
    let expected = serde_json::json!([{
        "code": "InsufficientResource", "text": "Insufficient cpu", "pods": 20, "nodes": 3,
        "resource": "cpu", "wanted": 8_000, "free": 4_000,
    }]);
    assert_eq!(first["reasons"], expected);
    for (owner, reason, place, total) in [
        ("shop", "", "", 1),
        ("", "InsufficientResource", "", 2),
        ("", "NodeResourcesFit", "", 2),
        ("", "TaintToleration", "", 0),
        ("", "", "gated", 0),
    ] {
        let filter = WaitingFilter {
            owner: owner.to_owned(),
            reason: reason.to_owned(),
            place: place.to_owned(),
            ..WaitingFilter::default()
        };
        let found = waiting(&scheduler, filter, now);
        assert_eq!(found["total"], total, "{owner} {reason} {place}: {found:#}");
    }
    for (sort, limit, first, rows) in [
        ("", 0, "ReplicaSet/web", 2),
        ("owner", 0, "ReplicaSet/shop", 2),
        ("owner", 1, "ReplicaSet/shop", 1),
    ] {
        let filter = WaitingFilter {
            sort: sort.to_owned(),
            limit,
            ..WaitingFilter::default()
        };
        let found = waiting(&scheduler, filter, now);
        assert_eq!(found["rows"][0]["owner"], first, "{sort} {limit}");
        assert_eq!(found["rows"].as_array().map(Vec::len), Some(rows));
        assert_eq!(found["total"], 2);
    }
}

/// While all pods wait, the chart of attempts has the attempts that ended without a node.
#[test]
fn attempts_that_place_no_pod_are_in_the_history() {
    let (mut scheduler, now) = scheduler(3, 2);
    let history = SampleHistory::default();
    history.push(Sample::take(&scheduler, now));
    scheduler.schedule_one(now);
    scheduler.schedule_one(now);
    history.push(Sample::take(&scheduler, now + Duration::from_secs(10)));
    let answer = history.answer();
    let sample = &answer["samples"][0];
    assert_eq!(sample["waiting"], 2, "{answer:#}");
    assert!(sample["decisionMilliseconds"].is_number(), "{answer:#}");
    assert!(answer["decisionP99AtMost"].is_number(), "{answer:#}");
    assert!(sample["bindingMilliseconds"].is_null(), "{answer:#}");
}

/// A pod that was tried after a cordon has another reason than the others. It is in the row of its owner.
#[test]
fn an_owner_has_one_row_with_the_reasons_of_all_its_pods() {
    let (mut scheduler, now) = scheduler(3, 0);
    for at in 0..3 {
        let pod = owned(&format!("p{at}"), "Job", "batch").object();
        scheduler.apply(ClusterChange::Applied(pod), now);
        scheduler.schedule_one(now);
    }
    let cordoned = node("n00000").version(2).capacity("4", "8Gi", "110");
    scheduler.apply(
        ClusterChange::Applied(cordoned.unschedulable(true).object()),
        now,
    );
    let gated = owned("p3", "Job", "batch").gate("example.com/quota");
    for pod in [gated, owned("p4", "Job", "batch")] {
        scheduler.apply(ClusterChange::Applied(pod.object()), now);
    }
    let later = now + berth_api::Duration::from_secs(1);
    scheduler.schedule_one(later);
    let all = waiting(&scheduler, WaitingFilter::default(), later);
    assert_eq!(
        (&all["total"], &all["rows"][0]["pods"]),
        (&1.into(), &5.into())
    );
    let reasons = all["rows"][0]["reasons"].as_array().expect("reasons");
    let shown: Vec<_> = reasons
        .iter()
        .map(|reason| {
            (
                reason["code"].as_str(),
                reason["pods"].as_u64(),
                reason["nodes"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            // The nodes are taken from the most recently tried pod.
            (Some("InsufficientResource"), Some(4), Some(2)),
            (Some("NodeCordoned"), Some(1), Some(1)),
            (Some("SchedulingGate"), Some(1), None),
        ],
        "{all:#}"
    );
}

/// The pods of all ReplicaSets of a Deployment have the Deployment as their owner, the members of a group the group.
#[test]
fn owners_are_deployments_and_groups() {
    let (mut scheduler, now) = scheduler(1, 0);
    for set in ["web-1", "web-2"] {
        let json = format!(
            r#"{{"metadata":{{"name":"{set}","namespace":"default","ownerReferences":[{{"apiVersion":"apps/v1",
            "kind":"Deployment","name":"web","uid":"web","controller":true}}]}}}}"#
        );
        let set = Kind::ReplicaSet.decode(json.as_bytes());
        let set = set.unwrap_or_else(|e| panic!("{e}"));
        scheduler.apply(ClusterChange::Applied(set), now);
    }
    let group = r#"{"metadata":{"name":"ring","namespace":"default"},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}"#;
    let group = Kind::PodGroup.decode(group.as_bytes());
    scheduler.apply(
        ClusterChange::Applied(group.unwrap_or_else(|e| panic!("{e}"))),
        now,
    );
    let members = ["a", "b"].map(|name| owned(name, "Job", "ring").member_of("ring"));
    let pods = [
        owned("p1", "ReplicaSet", "web-1"),
        owned("p2", "ReplicaSet", "web-2"),
    ];
    for pod in pods.into_iter().chain(members) {
        scheduler.apply(ClusterChange::Applied(pod.object()), now);
    }
    let filter = WaitingFilter {
        sort: "owner".to_owned(),
        ..WaitingFilter::default()
    };
    let all = waiting(&scheduler, filter, now);
    let rows = all["rows"].as_array().expect("rows").iter();
    let rows: Vec<_> = rows
        .map(|row| (row["owner"].as_str(), row["pods"].as_u64(), &row["group"]))
        .collect();
    let none = serde_json::Value::Null;
    let group = serde_json::json!({"need": 3, "known": 2, "scheduled": 0});
    assert_eq!(
        rows,
        [
            (Some("Deployment/web"), Some(2), &none),
            (Some("PodGroup/ring"), Some(2), &group)
        ],
        "{all:#}"
    );
    for (owner, pods) in [
        ("Deployment/web", 2),
        ("ReplicaSet/web-1", 1),
        ("PodGroup/ring", 2),
        ("Job/ring", 2),
    ] {
        let question = PageQuestion::Owner(format!("default/{owner}"));
        let found = answer(&scheduler, &question, now);
        assert_eq!(found["pods"], pods, "{owner}: {found:#}");
    }
}

/// The largest free amount among the nodes that reject the pod for the resource. With a node selector it is left out,
/// unless all of these nodes are known by name.
#[test]
fn the_largest_free_amount_is_that_of_nodes_with_too_little() {
    for (nodes, has_selector, free) in [
        (3, false, Some(4_000)),
        (3, true, Some(4_000)),
        (9, false, Some(4_000)),
        (9, true, None),
    ] {
        let (mut scheduler, now) = scheduler(nodes, 0);
        for (name, cordoned, tainted) in [("cordoned", true, false), ("tainted", false, true)] {
            let large = node(name)
                .capacity("6", "8Gi", "110")
                .unschedulable(cordoned);
            let large = if tainted {
                large.taint("dedicated", "x", berth_api::TaintEffect::NoSchedule)
            } else {
                large
            };
            scheduler.apply(ClusterChange::Applied(large.object()), now);
        }
        let made = owned("p", "Job", "batch");
        let made = if has_selector {
            made.with(|pod| {
                let labels = [("kubernetes.io/os", "linux")];
                pod.spec.node_selector = Some(berth_api::Labels::from_pairs(labels));
            })
        } else {
            made
        };
        for at in 0..nodes {
            let labelled = node(&format!("n{at:05}"))
                .version(2)
                .capacity("4", "8Gi", "110");
            let labelled = labelled.label("kubernetes.io/os", "linux");
            scheduler.apply(ClusterChange::Applied(labelled.object()), now);
        }
        scheduler.apply(ClusterChange::Applied(made.object()), now);
        scheduler.schedule_one(now);
        let all = waiting(&scheduler, WaitingFilter::default(), now);
        let reason = &all["rows"][0]["reasons"][0];
        assert_eq!(reason["nodes"], nodes, "{all:#}");
        assert_eq!(
            reason["free"].as_i64(),
            free,
            "{nodes} {has_selector}: {all:#}"
        );
    }
}

/// The search finds pods that are bound, owners and nodes; the heat map has devices and marks nodes that are not ready.
#[test]
fn bound_pods_are_found_and_devices_are_a_resource() {
    let (mut scheduler, now) = scheduler(2, 0);
    let bound = pod("bound-1").on("n00000").object();
    scheduler.apply(ClusterChange::Applied(bound), now);
    let found = answer(&scheduler, &PageQuestion::Search("bound".into()), now);
    assert_eq!(found["pods"][0]["node"], "n00000", "{found:#}");
    let found = answer(&scheduler, &PageQuestion::Search("n0000".into()), now);
    assert_eq!(found["nodes"].as_array().map(Vec::len), Some(2));
    let slice = r#"{"metadata":{"name":"s"},"spec":{"driver":"gpu.example.com","nodeName":"n00000",
        "pool":{"name":"n00000","generation":1,"resourceSliceCount":1},"devices":[{"name":"a"},{"name":"b"}]}}"#;
    let claim = r#"{"metadata":{"name":"c","namespace":"default"},"status":{"allocation":{"devices":{"results":[
        {"request":"r","driver":"gpu.example.com","pool":"n00000","device":"a"}]}}}}"#;
    for (kind, json) in [(Kind::ResourceSlice, slice), (Kind::ResourceClaim, claim)] {
        let object = kind.decode(json.as_bytes());
        let object = object.unwrap_or_else(|e| panic!("{e}"));
        scheduler.apply(ClusterChange::Applied(object), now);
    }
    let broken = node("n00001").version(2).capacity("4", "8Gi", "110");
    let broken = broken.taint(
        "node.kubernetes.io/not-ready",
        "",
        berth_api::TaintEffect::NoSchedule,
    );
    scheduler.apply(ClusterChange::Applied(broken.object()), now);
    let resource = "devices of gpu.example.com";
    let heat = answer(&scheduler, &PageQuestion::Heat(resource.into()), now);
    assert_eq!(heat["resource"], resource, "{heat:#}");
    assert_eq!(
        heat["cells"],
        serde_json::json!([["n00000", 0.5, 0, 1, 2], ["n00001", null, 2, 0, 0]])
    );
    let nodes = answer(&scheduler, &PageQuestion::Nodes(0), now);
    assert_eq!(nodes["rows"][1]["notReady"], true, "{nodes:#}");
    assert_eq!(nodes["classes"][0]["nodes"], 2, "{nodes:#}");
}

/// The bytes that a page loads in one refresh, and a search, in a cluster of 5,000 nodes and 50,000 waiting pods.
#[test]
fn answers_about_a_large_cluster_are_small() {
    let (scheduler, now) = scheduler(5_000, 50_000);
    for (question, bytes_max) in [
        (PageQuestion::State, 4 * 1024),
        (PageQuestion::Heat("cpu".into()), 256 * 1024),
        (pods_question("", 0), 64 * 1024),
        (pods_question("", 49_900), 64 * 1024),
        (PageQuestion::Nodes(0), 64 * 1024),
        (PageQuestion::Waiting(WaitingFilter::default()), 64 * 1024),
    ] {
        let bytes = answer(&scheduler, &question, now).to_string().len();
        assert!(bytes <= bytes_max, "{question:?}: {bytes} bytes");
    }
    let all = answer(&scheduler, &pods_question("", 0), now);
    assert_eq!(all["total"], 50_000);
}

#[test]
fn a_node_shows_its_pods_and_resources() {
    let (mut scheduler, now) = scheduler(1, 0);
    let bound = pod("bound")
        .request("cpu", "1")
        .request("memory", "2Gi")
        .on("n00000");
    scheduler.apply(ClusterChange::Applied(bound.object()), now);
    let node = answer(&scheduler, &PageQuestion::Node("n00000".into()), now);
    assert_eq!(node["podsTotal"], 1);
    assert_eq!(node["resources"]["cpu"]["load"], 0.25, "{node:#}");
    assert_eq!(node["resources"]["memory"]["load"], 0.25);
    assert_eq!(
        answer(&scheduler, &PageQuestion::Node("no".into()), now)["missing"],
        true
    );
}

#[test]
fn equal_questions_are_answered_from_memory_for_a_second() {
    let (answers, now) = (DashboardAnswers::default(), Instant::now());
    answers.put(PageQuestion::State, 1.into(), now);
    assert_eq!(answers.get(&PageQuestion::State, now), Some(1.into()));
    assert_eq!(answers.get(&PageQuestion::Heat(String::new()), now), None);
    for at in 0..2 * KEPT_MAX {
        answers.put(PageQuestion::Node(at.to_string()), 2.into(), now);
    }
    assert_eq!(answers.0.lock().expect("no panic").len(), KEPT_MAX);
    assert_eq!(answers.get(&PageQuestion::State, now + FRESH), None);
    assert_eq!(answers.0.lock().expect("no panic").len(), 0);
}

/// The page loads nothing from other origins, and no text of the cluster can become HTML.
#[test]
fn the_page_is_complete_and_sets_only_text() {
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "http://",
        "https://",
        "src=",
        "@import",
        "url(",
    ] {
        assert!(!PAGE.contains(forbidden), "{forbidden}");
    }
}

/// The first page lists the quotas for which pods wait, with the first pod in line and its reason.
#[test]
fn quotas_with_waiting_pods_are_listed() {
    let (mut scheduler, now) = scheduler(1, 0);
    let state =
        |scheduler: &Scheduler| answer(scheduler, &PageQuestion::State, now)["quotas"].clone();
    assert_eq!(state(&scheduler), serde_json::json!([]));
    let quota = serde_json::json!({
        "metadata": {"name": "team-a", "namespace": "default", "uid": "q"},
        "spec": {"hard": {"requests.cpu": "2"}},
    });
    let kind = Kind::Custom(berth_framework::cluster::DEFERRED_QUOTA);
    let quota = kind.decode(quota.to_string().as_bytes()).expect("a quota");
    scheduler.apply(ClusterChange::Applied(quota), now);
    for (name, created) in [("first", 900), ("second", 950)] {
        let pod = pod(name).scheduler("default-scheduler").request("cpu", "3");
        scheduler.apply(ClusterChange::Applied(pod.created(created).object()), now);
    }
    assert_eq!(
        state(&scheduler),
        serde_json::json!([{
            "quota": "default/team-a",
            "waiting": 2,
            "seconds": 100.0,
            "first": "default/first",
            "reason": "deferred quota \"team-a\": requests.cpu: requested 3, used 0 of 2",
            "isStuck": true,
        }])
    );
}
