//! External programs against the embedded control plane: the scheduler of `BERTH_FOREIGN_SCHEDULER`, and the end-to-end
//! test binary of Kubernetes of `BERTH_E2E_TEST`. Without these variables, Berth's own scheduler passes the first test,
//! and the second one is skipped.
//!
//! ```text
//! BERTH_FOREIGN_SCHEDULER=/path/to/kube-scheduler cargo test -p kube-berth --test suite suites:: -- --nocapture
//! BERTH_E2E_TEST=/path/to/e2e.test BERTH_E2E_FOCUS='\[sig-apps\].*\[Conformance\]' \
//!     cargo test -p kube-berth --test suite suites::end_to_end -- --nocapture
//! ```

use crate::e2e::{Api, Cluster, eventually, free_port, scheduled};
use berth_client::request::{self, Resource};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// The number of simulated nodes for the end-to-end specs. Some poll each pod of all nodes once a second, within a
/// limit.
const E2E_NODES: &str = "3";
/// The specs that run when `BERTH_E2E_FOCUS` is not set.
const E2E_FOCUS: &str = r"\[sig-scheduling\]";

const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};
const PRIORITY_CLASSES: Resource = Resource {
    group: "scheduling.k8s.io",
    version: "v1",
    plural: "priorityclasses",
};

/// A child process that ends with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pod with this spec in addition to its container.
fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn cpus(number: u32) -> Value {
    json!([{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": number.to_string()}}}])
}

/// A term of pod affinity or anti-affinity to the pods of an app.
fn near(app: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}},
    ]})
}

/// The result of a manifest.
enum Outcome {
    /// It is bound to this node.
    On(&'static str),
    /// It is bound to some node.
    Bound,
    /// It stays without a node, and the condition contains this.
    Waits(&'static str),
}

use Outcome::{Bound, On, Waits};

/// The manifests of the integration suite, in order, on three nodes with 4 CPUs each.
fn manifests() -> Vec<(Value, Outcome)> {
    let gates = json!({"schedulingGates": [{"name": "example.com/hold"}]});
    let third = json!({"kubernetes.io/hostname": "berth-node-3"});
    let tolerates = json!([{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}]);
    vec![
        (pod("plain", json!({})), Bound),
        (
            pod("selected", json!({"nodeSelector": third})),
            On("berth-node-3"),
        ),
        (
            pod(
                "beside",
                json!({"affinity": {"podAffinity": near("selected")}}),
            ),
            On("berth-node-3"),
        ),
        (pod("gated", gates), Waits("non-empty scheduling gates")),
        (
            pod("huge", json!({"containers": cpus(64)})),
            Waits("0/3 nodes are available: 3 Insufficient cpu."),
        ),
        (
            pod("nowhere", json!({"nodeSelector": {"disk": "none"}})),
            Waits("3 node(s) didn't match Pod's node affinity/selector"),
        ),
        (
            pod(
                "full-1",
                json!({"containers": cpus(3), "nodeSelector": {"kubernetes.io/hostname": "berth-node-1"}}),
            ),
            On("berth-node-1"),
        ),
        (
            pod(
                "full-2",
                json!({"containers": cpus(3), "nodeSelector": {"kubernetes.io/hostname": "berth-node-2"}}),
            ),
            On("berth-node-2"),
        ),
        (
            pod(
                "rest",
                json!({"containers": cpus(3), "tolerations": tolerates}),
            ),
            On("berth-node-3"),
        ),
        // Every node is full for it; the pod of lower priority on the only node that it may use is preempted.
        (
            pod(
                "urgent",
                json!({"containers": cpus(3), "priorityClassName": "urgent",
                "nodeSelector": {"kubernetes.io/hostname": "berth-node-2"}}),
            ),
            On("berth-node-2"),
        ),
    ]
}

/// Creates the manifests and waits until each is where it belongs.
fn run_manifests(cluster: &Cluster) {
    let api = Api::of(cluster);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "urgent"}, "value": 1000});
    api.send(&request::create(PRIORITY_CLASSES, "", &class));
    eventually("three nodes are ready", || {
        let nodes = api.send(&request::list(NODES, "", 10, ""));
        let ready = |node: &&Value| node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        (nodes.iter().filter(ready).count() == 3).then_some(())
    });
    for (manifest, outcome) in manifests() {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        api.send(&request::create(request::PODS, "default", &manifest));
        let what = format!("the outcome of {name}");
        eventually(&what, || {
            let pod = api.pod(name);
            let node = pod["spec"]["nodeName"].as_str();
            let condition = scheduled(&pod);
            match outcome {
                On(wanted) => node.is_some_and(|node| node == wanted),
                Bound => node.is_some(),
                Waits(why) => {
                    node.is_none()
                        && condition["status"] == "False"
                        && condition["message"]
                            .as_str()
                            .is_some_and(|m| m.contains(why))
                }
            }
            .then_some(())
        });
    }
    eventually("the event of a binding", || api.event("plain", "Scheduled"));
    eventually("the event of a failure", || {
        api.event("huge", "FailedScheduling")
    });
}

#[test]
fn manifests_run_through_any_scheduler() {
    let cluster = Cluster::apiserver("suites-own", &["--nodes", "3"]);
    let own = cluster.scheduler(&[]);
    run_manifests(&cluster);
    drop(own);
    let Some(scheduler) = std::env::var_os("BERTH_FOREIGN_SCHEDULER") else {
        eprintln!("skipped: BERTH_FOREIGN_SCHEDULER does not name a scheduler");
        return;
    };
    let cluster = Cluster::apiserver("suites-foreign", &["--nodes", "3"]);
    let log = std::fs::File::create(cluster.scratch.path("scheduler.log")).expect("a log file");
    let foreign = Command::new(&scheduler)
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(["--leader-elect=false", "--authentication-skip-lookup"])
        .args(["--bind-address=127.0.0.1", "--secure-port", &free_port()])
        .arg("--cert-dir")
        .arg(cluster.scratch.path("certificates"))
        .stdin(Stdio::null())
        .stderr(log)
        .spawn();
    let _foreign = Killed(foreign.unwrap_or_else(|e| panic!("{}: {e}", scheduler.display())));
    run_manifests(&cluster);
    println!("{}: every manifest has its outcome", scheduler.display());
}

/// The specs of a JUnit report that ran: their names, and whether they passed.
fn specs(report: &str) -> Vec<(String, bool)> {
    let attribute = |case: &str, name: &str| {
        let (_, rest) = case.split_once(&format!(" {name}=\""))?;
        let text = rest.split('"').next()?;
        let text = text.replace("&#34;", "\"").replace("&#39;", "'");
        Some(
            text.replace("&lt;", "<")
                .replace("&gt;", ">")
                .replace("&amp;", "&"),
        )
    };
    report
        .split("<testcase")
        .skip(1)
        .filter_map(|case| Some((attribute(case, "name")?, attribute(case, "status")?)))
        .filter(|(name, status)| {
            name.starts_with("[It]") && status != "skipped" && status != "pending"
        })
        .map(|(name, status)| (name, status == "passed"))
        .collect()
}

#[test]
fn end_to_end_specs_pass() {
    let Some(binary) = std::env::var_os("BERTH_E2E_TEST") else {
        eprintln!("skipped: BERTH_E2E_TEST does not name an end-to-end test binary");
        return;
    };
    let focus = std::env::var("BERTH_E2E_FOCUS").unwrap_or_else(|_| E2E_FOCUS.to_owned());
    let cluster = Cluster::up("suites-e2e", &["--nodes", E2E_NODES]);
    let report = cluster.scratch.path("report.xml");
    let log = std::fs::File::create(cluster.scratch.path("e2e.log")).expect("a log file");
    let mut command = Command::new(&binary);
    command
        .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
        .arg("--provider=local")
        .arg(format!("--ginkgo.focus={focus}"))
        .arg(format!("--ginkgo.junit-report={}", report.display()))
        .args(["--ginkgo.no-color", "--ginkgo.output-interceptor-mode=none"]);
    if let Ok(skip) = std::env::var("BERTH_E2E_SKIP") {
        command.arg(format!("--ginkgo.skip={skip}"));
    }
    let status = command
        .current_dir(cluster.scratch.path(""))
        .stdin(Stdio::null())
        .stdout(log)
        .status();
    let status = status.unwrap_or_else(|e| panic!("{}: {e}", binary.display()));
    let report = std::fs::read_to_string(&report)
        .unwrap_or_else(|e| panic!("no report of {} ({status}): {e}", binary.display()));
    let specs = specs(&report);
    for (name, passed) in &specs {
        println!("{} {name}", if *passed { "passed" } else { "FAILED" });
    }
    let passed = specs.iter().filter(|(_, passed)| *passed).count();
    println!("{passed} passed, {} failed", specs.len() - passed);
    assert!(!specs.is_empty(), "no spec matches {focus}");
    assert_eq!(passed, specs.len(), "specs failed");
}

#[test]
fn a_report_names_the_specs_that_ran() {
    let report = r#"<testsuite>
        <testcase name="[SynchronizedBeforeSuite]" status="passed" time="1"></testcase>
        <testcase name="[It] [sig-a] works &#34;well&#34; [Conformance]" classname="x" status="passed" time="2"></testcase>
        <testcase name="[It] [sig-a] fails &amp; says so" classname="x" status="failed"><failure message="m"></failure></testcase>
        <testcase name="[It] [sig-b] other" classname="x" status="skipped"><skipped></skipped></testcase>"#;
    let expect = [
        ("[It] [sig-a] works \"well\" [Conformance]".to_owned(), true),
        ("[It] [sig-a] fails & says so".to_owned(), false),
    ];
    assert_eq!(specs(report), expect);
}
