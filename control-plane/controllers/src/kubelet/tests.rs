//! Simulated nodes and kubelets against an API: the results that users see.

use super::*;
use crate::testing::{Fake, eventually, pass};
use berth_objects::access::{DeleteOptions, StoredObject};
use berth_objects::object::{
    EVENT, LEASE, POD, condition, condition_is_true, items, seconds, time,
};
use berth_objects::well_known::SIMULATED;
use serde_json::Value;

async fn start(api: &Arc<Fake>, nodes: usize) -> Handle {
    let options = KubeletOptions {
        nodes,
        clock: api.clock(),
        ..KubeletOptions::default()
    };
    spawn(api.clone(), options).await.unwrap()
}

fn pod(name: &str, node: &str, policy: &str, annotations: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "annotations": annotations},
        "spec": {"nodeName": node, "restartPolicy": policy,
                 "containers": [{"name": "c", "image": "i:1"}]},
    })
}

fn run(api: &Fake, name: &str, node: &str, policy: &str, annotations: Value) {
    api.create(POD.resource, pod(name, node, policy, annotations))
        .unwrap();
}

fn get(api: &Fake, name: &str) -> Value {
    (*api.get(POD.resource, "n", name).unwrap()).clone()
}

fn phase(api: &Fake, name: &str) -> String {
    get(api, name)["status"]["phase"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn is_ready(api: &Fake, name: &str) -> bool {
    condition_is_true(&get(api, name)["status"], "Ready")
}

fn node(api: &Fake, name: &str) -> StoredObject {
    api.get(NODE.resource, "", name).unwrap()
}

fn lease_age(api: &Fake, name: &str) -> f64 {
    let lease = api.get(LEASE.resource, LEASE_NAMESPACE, name).unwrap();
    let renewed = time(&lease["spec"]["renewTime"]).unwrap();
    api.clock().now().duration_since(renewed).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_there_ready_and_keep_their_leases_fresh() {
    let api = Fake::new();
    let handle = start(&api, 50).await;
    pass(1.0).await;
    assert_eq!(api.list(NODE.resource, None).len(), 50);
    for _ in 0..20 {
        pass(7.3).await;
        for i in 1..=50 {
            let age = lease_age(&api, &format!("berth-node-{i}"));
            assert!(age <= 10.1, "the lease of node {i} is {age} s old");
        }
    }
    // Conditions are renewed within five minutes, though they do not change.
    pass(300.0).await;
    let node = node(&api, "berth-node-7");
    let ready = condition(&node["status"], "Ready").unwrap();
    let beat = time(&ready["lastHeartbeatTime"]).unwrap();
    assert!(api.clock().now().duration_since(beat).as_secs() <= 300);
    assert_eq!(ready["lastTransitionTime"], "2026-01-01T00:00:00Z");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_runs_and_an_unbound_one_is_left_alone() {
    let api = Fake::new();
    let handle = start(&api, 2).await;
    run(&api, "bound", "berth-node-1", "Always", json!({}));
    run(
        &api,
        "slow",
        "berth-node-2",
        "Always",
        json!({STARTUP_SECONDS: "5", READY_SECONDS: "2.5"}),
    );
    run(&api, "unbound", "", "Always", json!({}));
    run(&api, "elsewhere", "real-node", "Always", json!({}));
    pass(0.4).await;
    let waiting = get(&api, "bound");
    assert_eq!(
        waiting["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(waiting["status"]["phase"], "Pending");
    pass(0.3).await;
    let bound = get(&api, "bound");
    assert_eq!(bound["status"]["phase"], "Running");
    for kind in [
        "PodReadyToStartContainers",
        "PodScheduled",
        "Initialized",
        "Ready",
        "ContainersReady",
    ] {
        assert!(condition_is_true(&bound["status"], kind), "{kind}");
    }
    assert_eq!(bound["status"]["hostIP"], "172.16.0.1");
    pass(5.0).await;
    assert_eq!(
        (phase(&api, "slow").as_str(), is_ready(&api, "slow")),
        ("Running", false)
    );
    pass(2.5).await;
    assert!(is_ready(&api, "slow"));
    assert_ne!(
        get(&api, "slow")["status"]["podIP"],
        bound["status"]["podIP"]
    );
    for untouched in ["unbound", "elsewhere"] {
        assert_eq!(
            get(&api, untouched)["status"],
            json!({"phase": "Pending"}),
            "{untouched}"
        );
    }
    let mut reasons: Vec<_> = api
        .list(EVENT.resource, Some("n"))
        .into_iter()
        .filter(|e| e["involvedObject"]["name"] == "bound")
        .map(|e| e["reason"].as_str().unwrap().to_owned())
        .collect();
    reasons.sort();
    assert_eq!(reasons, ["Created", "Pulled", "Started"]);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_end_as_their_annotations_and_restart_policy_state() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for (name, policy, code) in [
        ("never-0", "Never", "0"),
        ("never-3", "Never", "3"),
        ("on-failure-0", "OnFailure", "0"),
        ("on-failure-3", "OnFailure", "3"),
        ("always-0", "Always", "0"),
    ] {
        run(
            &api,
            name,
            "berth-node-1",
            policy,
            json!({RUN_SECONDS: "10", EXIT_CODE: code}),
        );
    }
    pass(9.0).await;
    assert_eq!(phase(&api, "never-0"), "Running");
    pass(3.0).await;
    let restarts = |name| get(&api, name)["status"]["containerStatuses"][0]["restartCount"].clone();
    for (name, expected, restarted) in [
        ("never-0", "Succeeded", 0),
        ("never-3", "Failed", 0),
        ("on-failure-0", "Succeeded", 0),
        ("on-failure-3", "Running", 1),
        ("always-0", "Running", 1),
    ] {
        assert_eq!(
            (phase(&api, name).as_str(), restarts(name)),
            (expected, json!(restarted)),
            "{name}"
        );
    }
    let terminated = &get(&api, "never-3")["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&terminated["exitCode"], &terminated["reason"]),
        (&json!(3), &json!("Error"))
    );
    // The second run ends at about 20.5 s; then there is a pause of ten seconds.
    pass(12.0).await;
    let waiting =
        get(&api, "always-0")["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    assert!(!is_ready(&api, "always-0"));
    pass(10.0).await;
    assert_eq!(restarts("always-0"), 2);
    assert!(is_ready(&api, "always-0"));
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_stops_gracefully_within_its_grace_period() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for (name, stop) in [("quick", "0.2"), ("slow", "20"), ("stubborn", "1000")] {
        run(
            &api,
            name,
            "berth-node-1",
            "Always",
            json!({STOP_SECONDS: stop}),
        );
    }
    let held = [
        ("held", json!({}), ("Failed", 143)),
        ("held-long", json!({STOP_SECONDS: "1000"}), ("Failed", 137)),
        ("held-clean", json!({EXIT_CODE: "0"}), ("Succeeded", 0)),
    ];
    for (name, annotations, _) in &held {
        run(&api, name, "berth-node-1", "Always", annotations.clone());
        api.edit(POD.resource, ("n", name), |p| {
            p["metadata"]["finalizers"] = json!(["test/hold"])
        });
    }
    let all = ["quick", "slow", "stubborn"]
        .into_iter()
        .chain(held.iter().map(|(name, ..)| *name));
    let all: Vec<&str> = all.collect();
    eventually("all run", || {
        all.iter().all(|n| phase(&api, n) == "Running")
    })
    .await;
    for name in &all {
        api.delete(POD.resource, "n", name, &DeleteOptions::default())
            .unwrap();
    }
    let is_there = |name: &str| api.get(POD.resource, "n", name).is_ok();
    pass(1.0).await;
    assert!(!is_there("quick") && is_there("slow"));
    assert_eq!(phase(&api, "slow"), "Running");
    pass(20.0).await;
    assert!(!is_there("slow") && is_there("stubborn"));
    // Thirty seconds of grace are all it gets.
    pass(10.0).await;
    assert!(!is_there("stubborn"));
    // A pod that a finalizer keeps shows that it has ended, and how.
    for (name, _, (ended, exit_code)) in &held {
        let status = &get(&api, name)["status"];
        assert_eq!(status["phase"], *ended, "{name}");
        let terminated = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(terminated["exitCode"], *exit_code, "{name}: {status}");
    }
    api.edit(POD.resource, ("n", "held"), |p| {
        p["metadata"]["finalizers"] = json!([])
    });
    pass(1.0).await;
    assert!(!is_there("held"));
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_outlives_its_deadline_fails() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    let mut late = pod("late", "berth-node-1", "Always", json!({}));
    late["spec"]["activeDeadlineSeconds"] = 30.into();
    api.create(POD.resource, late).unwrap();
    pass(29.0).await;
    assert_eq!(phase(&api, "late"), "Running");
    pass(2.0).await;
    let status = &get(&api, "late")["status"];
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Failed"), &json!("DeadlineExceeded"))
    );
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_made_not_ready_or_silent_by_annotation() {
    let api = Fake::new();
    let handle = start(&api, 2).await;
    pass(1.0).await;
    let print_line = |node: &str, value: &str| {
        api.edit(NODE.resource, ("", node), |n| {
            n["metadata"]["annotations"] = json!({NODE_READY: value});
        });
    };
    print_line("berth-node-1", "False");
    print_line("berth-node-2", "Unknown");
    pass(60.0).await;
    let broken = node(&api, "berth-node-1");
    assert_eq!(
        condition(&broken["status"], "Ready").unwrap()["reason"],
        "KubeletNotReady"
    );
    assert!(lease_age(&api, "berth-node-1") <= 10.1);
    assert!(lease_age(&api, "berth-node-2") >= 59.0);
    run(&api, "waits", "berth-node-2", "Always", json!({}));
    pass(10.0).await;
    assert_eq!(phase(&api, "waits"), "Pending");
    print_line("berth-node-1", "True");
    print_line("berth-node-2", "True");
    pass(1.0).await;
    assert!(condition_is_true(
        &node(&api, "berth-node-1")["status"],
        "Ready"
    ));
    assert!(lease_age(&api, "berth-node-2") <= 1.1);
    assert_eq!(phase(&api, "waits"), "Running");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_of_users_are_served_only_when_labelled() {
    let api = Fake::new();
    let handle = start(&api, 0).await;
    let own = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    api.create(NODE.resource, own("theirs", json!({}))).unwrap();
    api.create(NODE.resource, own("ours", json!({SIMULATED: "true"})))
        .unwrap();
    for node in ["theirs", "ours"] {
        run(&api, node, node, "Always", json!({}));
    }
    pass(5.0).await;
    assert!(node(&api, "theirs")["status"].is_null());
    assert!(api.get(LEASE.resource, LEASE_NAMESPACE, "theirs").is_err());
    assert!(condition_is_true(&node(&api, "ours")["status"], "Ready"));
    assert_eq!(
        (phase(&api, "theirs").as_str(), phase(&api, "ours").as_str()),
        ("Pending", "Running")
    );
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kubelets_that_start_again_go_on_where_they_were() {
    let api = Fake::new();
    let first = start(&api, 1).await;
    run(
        &api,
        "old",
        "berth-node-1",
        "Never",
        json!({RUN_SECONDS: "60"}),
    );
    pass(10.0).await;
    first.stop().await;
    let before = get(&api, "old");
    let second = start(&api, 1).await;
    run(&api, "new", "berth-node-1", "Never", json!({}));
    pass(5.0).await;
    assert_eq!(
        get(&api, "old"),
        before,
        "nothing to write about a pod that runs on"
    );
    assert_ne!(
        get(&api, "new")["status"]["podIP"],
        before["status"]["podIP"]
    );
    pass(50.0).await;
    assert_eq!(phase(&api, "old"), "Succeeded");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_nodes_are_made_and_reported() {
    let api = Fake::new();
    let notified = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let teller = notified.clone();
    let options = KubeletOptions {
        nodes: 10_000,
        clock: api.clock(),
        progress: Some(Arc::new(move |n| {
            teller.store(n, std::sync::atomic::Ordering::Relaxed)
        })),
        ..KubeletOptions::default()
    };
    let handle = spawn(api.clone(), options).await.unwrap();
    assert_eq!(notified.load(std::sync::atomic::Ordering::Relaxed), 10_000);
    assert_eq!(api.list(NODE.resource, None).len(), 10_000);
    let addresses: std::collections::BTreeSet<String> = api
        .list(NODE.resource, None)
        .iter()
        .map(|n| items(&n["status"]["addresses"])[0]["address"].to_string())
        .collect();
    assert_eq!(addresses.len(), 10_000);
    assert_eq!(
        node(&api, "berth-node-1")["metadata"]["creationTimestamp"],
        seconds(api.clock().now())
    );
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_allocated_when_the_node_has_room() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    for (name, amount) in [("large", "3"), ("small", "500m")] {
        let mut pod = pod(name, "berth-node-1", "Always", json!({}));
        pod["metadata"]["generation"] = 1.into();
        pod["spec"]["containers"][0]["resources"] = cpu(amount);
        pod["spec"]["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        api.create(POD.resource, pod).unwrap();
    }
    pass(1.0).await;
    let status = |name: &str| get(&api, name)["status"]["containerStatuses"][0].clone();
    assert_eq!(status("small")["resources"], cpu("500m"));
    assert_eq!(
        status("small")["allocatedResources"],
        json!({"cpu": "500m"})
    );
    let resize = |name: &str, amount: &str, generation: i64| {
        api.edit(POD.resource, ("n", name), |pod| {
            pod["metadata"]["generation"] = generation.into();
            pod["spec"]["containers"][0]["resources"] = cpu(amount);
        });
    };
    // The node has 4 CPUs; `large` has 3 of them.
    resize("small", "2", 2);
    pass(1.0).await;
    let pending = get(&api, "small");
    let pending = condition(&pending["status"], "PodResizePending").unwrap();
    assert_eq!(pending["reason"], "Deferred");
    assert_eq!(
        pending["message"],
        "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    );
    assert_eq!(pending["observedGeneration"], 2);
    assert_eq!(status("small")["resources"], cpu("500m"));
    resize("large", "1", 2);
    pass(1.0).await;
    assert_eq!(status("large")["resources"], cpu("1"));
    assert_eq!(status("large")["restartCount"], 1);
    api.delete(POD.resource, "n", "large", &DeleteOptions::default())
        .unwrap();
    pass(40.0).await;
    assert_eq!(status("small")["resources"], cpu("2"));
    assert_eq!(status("small")["allocatedResources"], json!({"cpu": "2"}));
    let resized = get(&api, "small");
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        assert!(condition(&resized["status"], kind).is_none(), "{kind}");
    }
    assert_eq!(resized["status"]["observedGeneration"], 2);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_runs_beside_the_others() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    run(&api, "p", "berth-node-1", "Always", json!({}));
    pass(1.0).await;
    api.edit(POD.resource, ("n", "p"), |pod| {
        pod["spec"]["ephemeralContainers"] = json!([{"name": "d", "image": "debug:1"}]);
    });
    pass(1.0).await;
    let status = &get(&api, "p")["status"]["ephemeralContainerStatuses"][0];
    assert_eq!(status["name"], "d");
    assert!(status["state"]["running"].is_object(), "{status}");
    assert!(is_ready(&api, "p"));
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_stops_after_its_pre_stop_hook_within_its_grace_period() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for (name, sleep) in [("short", 10), ("long", 300)] {
        let mut pod = pod(name, "berth-node-1", "Always", json!({}));
        pod["spec"]["containers"][0]["lifecycle"] =
            json!({"preStop": {"sleep": {"seconds": sleep}}});
        api.create(POD.resource, pod).unwrap();
    }
    pass(2.0).await;
    let options = DeleteOptions {
        grace_period_seconds: Some(60),
        ..DeleteOptions::default()
    };
    for name in ["short", "long"] {
        api.delete(POD.resource, "n", name, &options).unwrap();
    }
    let exists = |name: &str| api.get(POD.resource, "n", name).is_ok();
    pass(9.0).await;
    assert!(exists("short"));
    pass(3.0).await;
    assert!(!exists("short") && exists("long"));
    pass(46.0).await;
    assert!(exists("long"));
    pass(4.0).await;
    assert!(!exists("long"), "the grace period is over");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_its_node_fails() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for name in ["first", "second"] {
        let mut pod = pod(name, "berth-node-1", "Always", json!({}));
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
        api.create(POD.resource, pod).unwrap();
    }
    pass(2.0).await;
    assert_eq!(phase(&api, "first"), "Running");
    let status = &get(&api, "second")["status"];
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["reason"], "OutOfcpu");
    assert_eq!(
        status["message"],
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
    );
    let events = api.list(EVENT.resource, None);
    assert!(events.iter().any(|e| e["reason"] == "OutOfcpu"));
    // The room of a pod that ends is free.
    let options = DeleteOptions::default();
    api.delete(POD.resource, "n", "first", &options).unwrap();
    pass(2.0).await;
    let mut third = pod("third", "berth-node-1", "Always", json!({}));
    third["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3"}});
    api.create(POD.resource, third).unwrap();
    pass(2.0).await;
    assert_eq!(phase(&api, "third"), "Running");
    handle.stop().await;
}

/// The annotation `berth.dev/reject-pods`: a number of pods, all pods, and a value that cannot be read.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_is_told_to_reject_pods_does() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for (value, expected) in [
        (Some("OutOfcpu=2"), ["OutOfcpu", "OutOfcpu", ""]),
        (Some("TopologyAffinityError"), ["TopologyAffinityError"; 3]),
        (Some("OutOfcpu=0"), [""; 3]),
        (None, [""; 3]),
    ] {
        api.edit(NODE.resource, ("", "berth-node-1"), |node| {
            node["metadata"]["annotations"] = json!({super::REJECT_PODS: value});
        });
        pass(1.0).await;
        for (number, expected) in expected.into_iter().enumerate() {
            let name = format!("p{number}");
            run(&api, &name, "berth-node-1", "Always", json!({}));
            pass(2.0).await;
            let status = get(&api, &name)["status"].clone();
            let rejected = status["reason"].as_str().unwrap_or_default();
            assert_eq!(rejected, expected, "{value:?}, pod {number}");
            let phase = if expected.is_empty() {
                "Running"
            } else {
                "Failed"
            };
            assert_eq!(status["phase"], phase, "{value:?}, pod {number}");
            let options = DeleteOptions::default();
            api.delete(POD.resource, "n", &name, &options).unwrap();
            pass(2.0).await;
        }
    }
    let events = api.list(EVENT.resource, None);
    let wrong = events.iter().filter(|e| e["reason"] == "InvalidAnnotation");
    assert_eq!(wrong.count(), 1);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_image_is_changed_starts_again() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    let mut two = pod("p", "berth-node-1", "Always", json!({}));
    two["spec"]["containers"] =
        json!([{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]);
    api.create(POD.resource, two).unwrap();
    pass(2.0).await;
    api.edit(POD.resource, ("n", "p"), |pod| {
        pod["spec"]["containers"][0]["image"] = "i:2".into();
    });
    pass(2.0).await;
    let found = get(&api, "p");
    let [changed, kept] = [0, 1].map(|i| &found["status"]["containerStatuses"][i]);
    assert_eq!(
        (&changed["image"], &changed["restartCount"]),
        (&json!("i:2"), &json!(1))
    );
    assert!(changed["lastState"]["terminated"].is_object(), "{changed}");
    assert_eq!(
        (&kept["image"], &kept["restartCount"]),
        (&json!("i:1"), &json!(0))
    );
    assert!(is_ready(&api, "p"));
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kubelets_report_events_of_their_nodes() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    pass(1.0).await;
    let reasons = || -> Vec<String> {
        let events = api.list(EVENT.resource, None);
        let of_nodes = events
            .iter()
            .filter(|e| e["involvedObject"]["kind"] == "Node");
        of_nodes
            .filter_map(|e| e["reason"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(reasons(), ["Starting"]);
    api.edit(NODE.resource, ("", "berth-node-1"), |node| {
        node["spec"]["unschedulable"] = true.into();
        node["metadata"]["annotations"] = json!({NODE_READY: "False"});
    });
    eventually("both are reported", || {
        let reasons = reasons();
        ["NodeNotReady", "NodeNotSchedulable"]
            .iter()
            .all(|reason| reasons.iter().any(|r| r == reason))
    })
    .await;
    handle.stop().await;
}

fn with_commands(name: &str, policy: &str, commands: &[&[&str]]) -> Value {
    let mut pod = pod(name, "berth-node-1", policy, json!({}));
    let containers: Vec<Value> = commands
        .iter()
        .enumerate()
        .map(
            |(i, command)| json!({"name": format!("c{i}"), "image": "busybox", "command": command}),
        )
        .collect();
    pod["spec"]["containers"] = containers.into();
    pod
}

fn codes(api: &Fake, name: &str) -> Vec<Value> {
    items(&get(api, name)["status"]["containerStatuses"])
        .iter()
        .map(|c| c["state"]["terminated"]["exitCode"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn containers_end_as_their_plain_commands_state() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for pod in [
        with_commands("succeeds", "Never", &[&["sleep", "5"]]),
        with_commands("fails", "Never", &[&["sh", "-c", "sleep 2; exit 3"]]),
        with_commands("one-fails", "Never", &[&["true"], &["sh", "-c", "exit 7"]]),
        with_commands("runs", "Never", &[&["true"], &["nginx"]]),
        with_commands("again", "OnFailure", &[&["true"], &["false"]]),
    ] {
        api.create(POD.resource, pod).unwrap();
    }
    pass(1.5).await;
    assert_eq!(phase(&api, "succeeds"), "Running");
    assert_eq!(phase(&api, "one-fails"), "Failed");
    assert_eq!(codes(&api, "one-fails"), [json!(0), json!(7)]);
    pass(2.0).await;
    assert_eq!(phase(&api, "fails"), "Failed");
    assert_eq!(codes(&api, "fails"), [json!(3)]);
    pass(3.0).await;
    assert_eq!(phase(&api, "succeeds"), "Succeeded");
    assert_eq!(codes(&api, "succeeds"), [json!(0)]);
    pass(60.0).await;
    assert_eq!(
        phase(&api, "runs"),
        "Running",
        "not all commands show their end"
    );
    // Only the container that fails is started again.
    let again = get(&api, "again");
    let [done, failing] = [0, 1].map(|i| again["status"]["containerStatuses"][i].clone());
    assert_eq!(done["restartCount"], 0);
    assert_eq!(done["state"]["terminated"]["exitCode"], 0, "{done}");
    assert!(failing["restartCount"].as_i64() >= Some(2), "{failing}");
    assert_eq!(failing["lastState"]["terminated"]["exitCode"], 1);
    // An annotation takes precedence over the command.
    let mut notified = with_commands("told", "Never", &[&["sleep", "500"]]);
    notified["metadata"]["annotations"] = json!({RUN_SECONDS: "1", EXIT_CODE: "9"});
    api.create(POD.resource, notified).unwrap();
    pass(3.0).await;
    assert_eq!(codes(&api, "told"), [json!(9)]);
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_image_cannot_be_pulled_waits_until_the_image_is_changed() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    let mut broken = pod("broken", "berth-node-1", "Always", json!({}));
    broken["spec"]["containers"][0]["image"] = "foo:non-existent".into();
    api.create(POD.resource, broken).unwrap();
    run(
        &api,
        "told",
        "berth-node-1",
        "Always",
        json!({IMAGE_PULL: "fail"}),
    );
    let waiting =
        |name: &str| get(&api, name)["status"]["containerStatuses"][0]["state"]["waiting"].clone();
    pass(1.0).await;
    assert_eq!(phase(&api, "broken"), "Pending");
    assert_eq!(waiting("broken")["reason"], "ErrImagePull");
    pass(15.0).await;
    for name in ["broken", "told"] {
        assert_eq!(waiting(name)["reason"], "ImagePullBackOff");
        assert!(!is_ready(&api, name));
    }
    let version = get(&api, "broken")["metadata"]["resourceVersion"].clone();
    pass(3600.0).await;
    assert_eq!(get(&api, "broken")["metadata"]["resourceVersion"], version);
    let events = api.list(EVENT.resource, None);
    let messages: Vec<&str> = events
        .iter()
        .filter_map(|e| e["message"].as_str())
        .collect();
    for message in [
        "Failed to pull image \"foo:non-existent\": the simulated registry does not have it",
        "Error: ErrImagePull",
        "Back-off pulling image \"foo:non-existent\"",
        "Error: ImagePullBackOff",
    ] {
        assert!(messages.contains(&message), "{messages:?}");
    }
    api.edit(POD.resource, ("n", "broken"), |pod| {
        pod["spec"]["containers"][0]["image"] = "foo:1".into();
    });
    pass(1.0).await;
    assert_eq!(phase(&api, "broken"), "Running");
    assert!(is_ready(&api, "broken"));
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn resources_of_device_classes_are_left_to_the_scheduler() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    for (name, resource) in [
        ("implicit", "deviceclass.resource.kubernetes.io/gpu"),
        ("explicit", "example.com/gpu"),
    ] {
        let mut pod = pod(name, "berth-node-1", "Always", json!({}));
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {resource: "1"}, "limits": {resource: "1"}});
        api.create(POD.resource, pod).unwrap();
    }
    pass(2.0).await;
    assert_eq!(phase(&api, "implicit"), "Running");
    assert_eq!(phase(&api, "explicit"), "Running");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn annotations_that_cannot_be_read_are_reported_once_and_count_as_absent() {
    let api = Fake::new();
    let handle = start(&api, 1).await;
    let annotations = json!({super::STARTUP_SECONDS: "soon", EXIT_CODE: "0"});
    run(&api, "p", "berth-node-1", "Always", annotations);
    pass(5.0).await;
    assert_eq!(phase(&api, "p"), "Running");
    api.edit(NODE.resource, ("", "berth-node-1"), |node| {
        node["metadata"]["annotations"] = json!({NODE_READY: "no"});
    });
    pass(5.0).await;
    let events = api.list(EVENT.resource, None);
    let wrong = events.iter().filter(|e| e["reason"] == "InvalidAnnotation");
    let mut about: Vec<&str> = wrong
        .filter_map(|e| e["involvedObject"]["name"].as_str())
        .collect();
    about.sort_unstable();
    assert_eq!(about, ["berth-node-1", "p"]);
    handle.stop().await;
}
