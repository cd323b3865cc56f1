//! Shadow mode in parallel with another scheduler: its report, and that it writes nothing.
//!
//! It always runs in parallel with Berth's own scheduler. It also runs with kube-scheduler, with `BERTH_SHADOW_PODS`
//! pods (300 if it is not set):
//!
//! - with the role of `deploy/shadow`, on a separate API server, if `KUBEBUILDER_ASSETS` names a directory with `etcd`,
//!   `kube-apiserver` and `kube-scheduler`;
//! - on the cluster of `BERTH_KUBE_SCHEDULER_KUBECONFIG`, on which kube-scheduler runs, if that is set.

use crate::BINARY;
use crate::e2e::server::{NAMESPACE, NODES, Server};
use crate::e2e::{Api, Cluster, Running, eventually, free_port, scheduled};
use berth_client::election::LEASES;
use berth_client::request::{self, PODS};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A shadow on the cluster of a kubeconfig.
fn shadow(kubeconfig: &Path, args: &[&str]) -> Running {
    let mut command = Command::new(BINARY);
    command
        .args(["scheduler", "--shadow", "--bind-address=127.0.0.1"])
        .args(["--secure-port", &free_port()])
        .arg("--authorization-always-allow-paths=/*")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args);
    let shadow = Running::start(&mut command);
    eventually("the shadow is ready", || {
        shadow.http_get("/readyz").ends_with("ok").then_some(())
    });
    shadow
}

/// The answer at `/shadow`.
fn report(shadow: &Running) -> Value {
    let answer = shadow.http_get("/shadow");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// A pod of one of twelve shapes.
fn pod(at: usize) -> Value {
    let mut spec = json!({"containers": [{
        "name": "c",
        "image": "registry.example/c:1",
        "resources": {"requests": {"cpu": format!("{}m", 20 + at % 7 * 10), "memory": "16Mi"}},
    }]});
    let container = &mut spec["containers"][0];
    let app = json!({"matchLabels": {"app": format!("app-{}", at % 3)}});
    let near = |topology_key: &str, labels: &Value| json!({"topologyKey": topology_key, "labelSelector": labels});
    match at % 12 {
        1 => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app,
            }]);
        }
        2 => {
            let term = near("kubernetes.io/hostname", &app);
            spec["affinity"] = json!({"podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm": term}],
            }});
        }
        3 => spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"}),
        4 => spec["nodeSelector"] = json!({"example.com/missing": "yes"}),
        5 => container["resources"]["requests"]["cpu"] = "1k".into(),
        6 => spec["tolerations"] = json!([{"key": "dedicated", "operator": "Exists"}]),
        7 => {
            let term =
                json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
            spec["affinity"] = json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            }});
        }
        8 => {
            let term = near("topology.kubernetes.io/zone", &app);
            spec["affinity"] = json!({"podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
            }});
        }
        9 => {
            let term = near(
                "kubernetes.io/hostname",
                &json!({"matchLabels": {"shape": "9"}}),
            );
            spec["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
            }});
        }
        10 => container["ports"] = json!([{"containerPort": 80, "hostPort": 8080 + at / 12 % 3}]),
        11 => container["resources"]["requests"]["memory"] = "256Mi".into(),
        _ => {}
    }
    let labels = json!({"app": format!("app-{}", at % 3), "shape": (at % 12).to_string()});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("p-{at}"), "labels": labels},
        "spec": spec,
    })
}

/// Gives nodes zones, disks and taints.
fn mix_nodes(api: &Api) {
    let list = api.send(&request::list(NODES, "", 0, ""));
    let names = list["items"].as_array().into_iter().flatten();
    let names = names.filter_map(|node| node["metadata"]["name"].as_str());
    let patches = names.enumerate().map(|(at, name)| {
        let disk = if at % 4 == 0 { "ssd" } else { "hdd" };
        let zone = format!("zone-{}", at % 3);
        let taints = match at % 6 {
            5 => json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]),
            _ => json!([]),
        };
        let patch = json!({
            "metadata": {"labels": {
                "disk": disk, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone,
            }},
            "spec": {"taints": taints},
        });
        request::merge_patch(NODES, "", name, &patch)
    });
    api.send_all(patches.collect());
}

/// Creates pods and waits until the other scheduler has decided about each, and the shadow too.
fn compare(api: &Api, shadow: &Running, pods: usize) -> Value {
    let create = (0..pods).map(|at| request::create(PODS, "default", &pod(at)));
    api.send_all(create.collect());
    let (bound, decided) = (Cell::new(0), Cell::new(0));
    // The patience is for further decisions: the rate of a scheduler may be limited.
    while decided.get() < pods {
        let before = decided.get();
        eventually("further pods are bound or unschedulable", || {
            let all = api.pods();
            let mine = all.iter().filter(|pod| {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                name.starts_with("p-")
            });
            let (assigned, waiting): (Vec<&Value>, Vec<&Value>) =
                mine.partition(|pod| pod["spec"]["nodeName"].is_string());
            let unschedulable = waiting
                .iter()
                .filter(|pod| scheduled(pod)["reason"] == "Unschedulable");
            bound.set(assigned.len() as u64);
            decided.set(assigned.len() + unschedulable.count());
            (decided.get() > before).then_some(())
        });
    }
    eventually("the shadow has compared them", || {
        let report = report(shadow);
        let seen = report["bound"].as_u64()? + report["unseen"].as_u64()?;
        (seen >= bound.get() && report["open"] == 0).then_some(report)
    })
}

fn agrees(report: &Value) {
    for disagreement in [
        "nodeInfeasible",
        "onlyOtherFinds",
        "onlyBerthFinds",
        "otherReasons",
    ] {
        assert_eq!(report[disagreement], 0, "{report:#}");
    }
}

/// Berth's client counts its requests by method.
fn sends_nothing_but_get(shadow: &Running) {
    let metrics = shadow.http_get("/metrics");
    let requests = metrics
        .lines()
        .filter(|line| line.starts_with("rest_client_requests_total{"));
    let requests: Vec<&str> = requests.collect();
    assert!(!requests.is_empty(), "{metrics}");
    for line in requests {
        assert!(line.contains("method=\"GET\""), "{line}");
    }
}

#[test]
fn a_shadow_agrees_with_berths_own_scheduler_and_writes_nothing() {
    let cluster = Cluster::up("shadow", &["--nodes", "6"]);
    let api = Api::of(&cluster);
    mix_nodes(&api);
    let cases = cluster.scratch.path("cases");
    let cases = format!("--shadow-cases={}", cases.display());
    let shadow = shadow(&cluster.kubeconfig(), &[&cases]);
    let report = compare(&api, &shadow, 120);
    agrees(&report);
    assert!(report["bound"].as_u64() >= Some(60), "{report:#}");
    assert!(report["unschedulable"].as_u64() >= Some(30), "{report:#}");
    sends_nothing_but_get(&shadow);
    let metrics = shadow.http_get("/metrics");
    assert!(
        metrics.contains("berth_shadow_decisions_total{decision=\"bound\",result=\"agreed\"}"),
        "{metrics}"
    );

    // The report is printed for people.
    let mut printing = Command::new(BINARY)
        .args(["shadow", "report", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("berth runs");
    let mut input = printing.stdin.take().expect("a pipe");
    input
        .write_all(report.to_string().as_bytes())
        .expect("it reads");
    drop(input);
    let output = printing.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("100.00 %"), "{printed}");

    // Without a file, the report is read from the running shadow.
    let address = shadow.secure_address().expect("the HTTPS port");
    let output = Command::new(BINARY)
        .args(["shadow", "report", "--output", "json", "--server"])
        .arg(format!("https://{address}"))
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .output()
        .expect("berth runs");
    let error = String::from_utf8_lossy(&output.stderr);
    let asked: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    assert_eq!(asked["bound"], report["bound"], "{error}");
    assert_eq!(asked["agreementPercent"], 100.0, "{asked:#}");
}

#[test]
fn a_shadow_without_a_scheduler_leads_nothing_and_binds_nothing() {
    let cluster = Cluster::apiserver("shadow-alone", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    let shadow = shadow(&cluster.kubeconfig(), &["--leader-elect=true"]);
    api.create_pod("waits", &Value::Null);
    eventually("the shadow knows the pod", || {
        (shadow.pending("active") == 1.0).then_some(())
    });
    assert!(api.pod("waits")["spec"]["nodeName"].is_null());
    sends_nothing_but_get(&shadow);
    assert_eq!(shadow.stop("-TERM"), Some(0));
    assert!(api.event("waits", "FailedScheduling").is_none());
}

#[test]
fn what_shadow_mode_cannot_do_is_refused() {
    for (args, expected) in [
        (vec!["--shadow-cases=x"], "--shadow-cases needs --shadow"),
        (
            vec!["--record-pseudonyms"],
            "--record-pseudonyms needs --record DIR",
        ),
        (
            vec!["--record-kept-names=a"],
            "--record-kept-names needs --record-pseudonyms",
        ),
    ] {
        let output = Command::new(BINARY)
            .arg("scheduler")
            .args(&args)
            .arg("--check")
            .output()
            .expect("berth runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

/// Pods to create for kube-scheduler.
fn pods_of_environment() -> usize {
    std::env::var("BERTH_SHADOW_PODS").map_or(300, |n| n.parse().expect("a number"))
}

/// In parallel with kube-scheduler, with the role of `deploy/shadow`, which allows no write.
#[test]
fn a_shadow_agrees_with_kube_scheduler_and_may_not_write() {
    let started = Server::real("shadow-kube").and_then(|server| {
        server.create_nodes(60, 110);
        mix_nodes(&server.api);
        let scheduler = server.kube_scheduler()?;
        Some((server, scheduler))
    });
    let Some((server, _scheduler)) = started else {
        eprintln!(
            "skipped: KUBEBUILDER_ASSETS names no directory with etcd, kube-apiserver and kube-scheduler"
        );
        return;
    };
    server.deploy("shadow/rbac.yaml");
    let token = server.token_of("berth-shadow", None);
    let kubeconfig = server.kubeconfig_with("shadow", |_, user| *user = json!({"token": token}));
    let shadow = shadow(&kubeconfig, &[]);
    let report = compare(&server.api, &shadow, pods_of_environment());
    println!("{report:#}");
    agrees(&report);
    sends_nothing_but_get(&shadow);
    // The role allows every request that was sent.
    assert_eq!(
        shadow.metric("rest_client_requests_total", "code=\"403\""),
        0.0
    );

    // The server, too, allows no write: neither a binding nor an event, a Lease or a condition.
    let api = Api::at(kubeconfig);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p-4"}, "target": {"kind": "Node", "name": "n1"},
    });
    let mut bind = request::create(PODS, "default", &binding);
    bind.path = format!("{}/binding", PODS.object_path("default", "p-4"));
    let label = json!({"metadata": {"labels": {"written": "yes"}}});
    for write in [
        bind,
        request::merge_patch(PODS, "default", "p-4", &label),
        request::delete(PODS, "default", "p-4", &json!({})),
        request::create(
            LEASES,
            NAMESPACE,
            &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
        ),
    ] {
        let refused = api.runtime.block_on(api.transport.execute(&write));
        let code = refused.expect_err("a write").code();
        assert_eq!(code, Some(403), "{}", write.describe());
    }
}

/// On a cluster with kube-scheduler.
#[test]
fn a_shadow_agrees_with_the_kube_scheduler_of_a_cluster() {
    let variable = "BERTH_KUBE_SCHEDULER_KUBECONFIG";
    let Ok(kubeconfig) = std::env::var(variable) else {
        eprintln!("skipped: {variable} names no cluster with a running kube-scheduler");
        return;
    };
    let api = Api::at(kubeconfig.clone().into());
    let shadow = shadow(Path::new(&kubeconfig), &[]);
    let report = compare(&api, &shadow, pods_of_environment());
    println!("{report:#}");
    agrees(&report);
    sends_nothing_but_get(&shadow);
}
