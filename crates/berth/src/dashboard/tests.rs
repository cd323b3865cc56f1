//! The data of the dashboard, from a core with the in-tree plugins.

use super::*;
use berth_api::{Kind, Time};
use berth_framework::testing::{node, pod};
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};

fn scheduler(nodes: usize, pods: usize) -> (Scheduler, Time) {
    let now = Time::from_secs(1_000);
    let registry = berth_plugins::in_tree();
    let options = SchedulerOptions::default();
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

fn pods_question(search: &str, from: usize) -> PageQuestion {
    PageQuestion::Pods {
        place: String::new(),
        plugin: String::new(),
        search: search.to_owned(),
        from,
    }
}

#[test]
fn paths_are_questions() {
    let pods = PageQuestion::Pods {
        place: "gated".into(),
        plugin: String::new(),
        search: "team a/x".into(),
        from: 100,
    };
    for (path, query, expected) in [
        ("/dashboard/state", "", Some(PageQuestion::State)),
        (
            "/dashboard/heat",
            "resource=example.com%2Fgpu",
            Some(PageQuestion::Heat("example.com/gpu".into())),
        ),
        (
            "/dashboard/pods",
            "place=gated&search=team+a%2Fx&from=100",
            Some(pods),
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

/// `berth perf dashboard` counts the questions of an open page with the numbers of the page.
#[test]
fn the_page_asks_as_often_as_the_constants_state() {
    let asks = format!(
        "const EVERY = {}, HEAT_EVERY = {HEAT_EVERY};",
        REFRESH.as_millis()
    );
    assert!(PAGE.contains(&asks), "{asks}");
}

#[test]
fn pending_pods_are_counted_by_reason_and_gate() {
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
    assert_eq!(state["attempts"]["unschedulable"], 5.0, "{state:#}");
    let reason = &state["reasons"]["rows"][0];
    assert_eq!(reason["plugins"][0], "NodeResourcesFit");
    assert_eq!(
        (&reason["pods"], &reason["oldestSeconds"]),
        (&5.into(), &60.into())
    );
    let text = reason["reason"].as_str().expect("a text");
    assert!(
        text.starts_with("0/3 nodes are available: 3 Insufficient cpu."),
        "{text}"
    );
    let gate = &state["gates"]["rows"][0];
    assert_eq!(
        (&gate["plugin"], &gate["reason"]),
        (&"SchedulingGates".into(), &"example.com/quota".into())
    );

    let one = answer(
        &scheduler,
        &PageQuestion::Pod("default/p00001".into()),
        later,
    );
    assert_eq!(one["reasons"][0]["text"], "Insufficient cpu", "{one:#}");
    assert_eq!(one["reasons"][0]["nodes"], 3);
    let none = answer(&scheduler, &PageQuestion::Pod("default/none".into()), later);
    assert_eq!(none["missing"], true);
    for (place, plugin, total) in [
        ("gated", "SchedulingGates", 1),
        ("", "NodeResourcesFit", 5),
        ("gated", "NodeResourcesFit", 0),
        ("", "NodeResourcesFit,TaintToleration", 0),
    ] {
        let question = PageQuestion::Pods {
            place: place.into(),
            plugin: plugin.into(),
            search: String::new(),
            from: 0,
        };
        let found = answer(&scheduler, &question, later);
        assert_eq!(found["total"], total, "{place} {plugin}: {found:#}");
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
    for (search, total) in [("p00042", 1), ("default/p0000", 10), ("nothing", 0)] {
        let page = answer(&scheduler, &pods_question(search, 0), now);
        assert_eq!(page["total"], total, "{search}");
    }
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
        }
        assert_eq!(
            answer(&scheduler, &PageQuestion::Heat("odd".into()), now)["resource"],
            "cpu"
        );
    }
}

/// One row for pods of one owner that wait for the same, with the lacking resource; filters narrow it.
#[test]
fn waiting_pods_are_grouped_by_owner_and_reason() {
    let (mut scheduler, now) = scheduler(3, 0);
    let owned = |name: &str, owner: &str| {
        let json = format!(
            r#"{{"metadata":{{"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{owner}",
                "uid":"{owner}","controller":true}}]}}}}"#
        );
        let owner: berth_api::Pod = serde_json::from_str(&json).expect("a pod");
        let made = pod(name).scheduler("default-scheduler").request("cpu", "8");
        made.with(|pod| pod.metadata.owner_references = owner.metadata.owner_references.clone())
    };
    for at in 0..30 {
        let owner = if at < 20 { "web" } else { "shop" };
        let pod = owned(&format!("p{at}"), owner).object();
        scheduler.apply(ClusterChange::Applied(pod), now);
        scheduler.schedule_one(now);
    }
    let groups = |owner: &str, reason: &str, place: &str| {
        let filter = GroupFilter {
            namespace: String::new(),
            owner: owner.to_owned(),
            reason: reason.to_owned(),
            place: place.to_owned(),
        };
        answer(&scheduler, &PageQuestion::Groups(filter), now)
    };
    let all = groups("", "", "");
    assert_eq!(all["total"], 2, "{all:#}");
    let first = &all["rows"][0];
    assert_eq!(
        (&first["pods"], &first["owner"]),
        (&20.into(), &"ReplicaSet/web".into())
    );
    assert_eq!(first["reasons"][0]["resource"], "cpu", "{first:#}");
    assert_eq!(first["reasons"][0]["code"], "InsufficientResource");
    for (owner, reason, place, total) in [
        ("shop", "", "", 1),
        ("", "InsufficientResource", "", 2),
        ("", "TaintToleration", "", 0),
        ("", "", "gated", 0),
    ] {
        let found = groups(owner, reason, place);
        assert_eq!(found["total"], total, "{owner} {reason} {place}: {found:#}");
    }
    let owner = answer(
        &scheduler,
        &PageQuestion::Owner("default/ReplicaSet/shop".into()),
        now,
    );
    assert_eq!(
        (&owner["pods"], &owner["bound"]),
        (&10.into(), &0.into()),
        "{owner:#}"
    );
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
        serde_json::json!([["n00000", 0.5, 0], ["n00001", null, 2]])
    );
    let nodes = answer(
        &scheduler,
        &PageQuestion::Nodes {
            search: String::new(),
            from: 0,
        },
        now,
    );
    assert_eq!(nodes["rows"][1]["notReady"], true, "{nodes:#}");
    assert_eq!(nodes["classes"][0]["nodes"], 2, "{nodes:#}");
}

/// The bytes that a page loads in one refresh, and a search, in a cluster of 5,000 nodes and 50,000 waiting pods.
#[test]
fn answers_about_a_large_cluster_are_small() {
    let (scheduler, now) = scheduler(5_000, 50_000);
    for (question, bytes_max) in [
        (PageQuestion::State, 16 * 1024),
        (PageQuestion::Heat("cpu".into()), 256 * 1024),
        (pods_question("", 0), 64 * 1024),
        (pods_question("", 49_900), 64 * 1024),
        (pods_question("p0", 0), 64 * 1024),
        (
            PageQuestion::Nodes {
                search: "n".into(),
                from: 0,
            },
            64 * 1024,
        ),
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

/// Nothing is loaded from elsewhere, and no text of the cluster can become HTML.
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
