//! Clusters with names and in the background, and manifests of `berth up`, as users type the commands.

use super::berth;
use crate::BINARY;
use crate::e2e::server::core;
use crate::e2e::{Api, Cluster, Scratch, eventually, send_signal};
use berth_client::request::{self, Resource};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

const THEIRS: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: prod, cluster: {server: 'https://prod.example'}}]
users: [{name: me, user: {token: secret}}]
contexts: [{name: prod, context: {cluster: prod, user: me}}]
current-context: prod
";

/// A user with a separate home directory. Clusters that still run at the end are stopped.
struct Home {
    scratch: Scratch,
    started: Vec<String>,
}

impl Home {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        scratch.file("config", THEIRS);
        Self {
            scratch,
            started: Vec::new(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .env("BERTH_STATE_DIR", self.scratch.path("state"))
            .env("KUBECONFIG", self.scratch.path("config"))
            .current_dir(self.scratch.path(""));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("berth runs")
    }

    /// Runs a command that must succeed, and returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that must fail, and returns its exit code and error message.
    fn fails(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?} succeeded");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), error)
    }

    fn up(&mut self, name: &str, args: &[&str]) -> String {
        self.started.push(name.to_owned());
        self.ok(&[&["up", "--detach", "--name", name], args].concat())
    }

    fn contexts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.scratch.path("config")).expect("a kubeconfig");
        let config: Value = serde_saphyr::from_str(&text).expect("YAML");
        let contexts = config["contexts"].as_array().expect("contexts").iter();
        let names = contexts.map(|context| context["name"].as_str().expect("a name").to_owned());
        names.collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for name in &self.started {
            let _ = self.run(&["down", "--name", name]);
        }
    }
}

#[test]
fn clusters_have_names_contexts_and_an_end() {
    let mut home = Home::new("up-names");
    let printed = home.up("one", &["--nodes", "1"]);
    for part in [
        "https://127.0.0.1:",
        "context     berth-one",
        "down --name one stops",
    ] {
        assert!(printed.contains(part), "no {part:?} in {printed}");
    }
    home.up("two", &["--nodes", "0"]);
    assert_eq!(home.contexts(), ["prod", "berth-one", "berth-two"]);
    let list = home.ok(&["get", "clusters"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(
        lines[1].starts_with("one ") && lines[1].ends_with("berth-one"),
        "{list}"
    );
    assert!(lines[2].contains(" Ready "), "{list}");
    let list: Value =
        serde_json::from_str(&home.ok(&["get", "clusters", "--output", "json"])).expect("JSON");
    assert_eq!(list[1]["name"], "two");

    // The context of the most recently started cluster is the current one.
    let version = home.ok(&["version"]);
    assert!(version.contains("Client Version: v"), "{version}");
    let url = list[1]["cluster"]["server"].as_str().expect("a URL");
    assert!(version.contains("Server Version: v1."), "{version}");
    assert!(version.contains(url), "{version}");
    let explained = home.ok(&["explain", "queue"]);
    assert!(!explained.is_empty());

    let (code, error) = home.fails(&["up", "-d", "--name", "one"]);
    assert_eq!(code, Some(3));
    assert!(error.contains("down --name one"), "{error}");

    let stopped = home.ok(&["down", "--name", "one"]);
    assert!(stopped.contains("one is stopped"), "{stopped}");
    assert_eq!(home.contexts(), ["prod", "berth-two"]);
    let (code, error) = home.fails(&["down", "--name", "one"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("get clusters"), "{error}");
    home.ok(&["down", "--name", "two"]);
    assert_eq!(home.contexts(), ["prod"]);
    assert_eq!(home.ok(&["get", "clusters"]), "");

    let (code, error) = home.fails(&[
        "up",
        "-d",
        "--name",
        "bad",
        "--feature-gates",
        "NoSuch=true",
    ]);
    assert_eq!(code, Some(2));
    assert!(
        error.contains("unrecognized feature gate: NoSuch"),
        "{error}"
    );
    let (_, error) = home.fails(&["up", "--name", "Not/A/Name"]);
    assert!(error.contains("lower-case"), "{error}");
    let version = home.run(&["version", "--client"]);
    assert!(version.status.success());
}

/// A process that was killed leaves its entries, which the next command removes.
#[test]
fn a_killed_cluster_can_be_taken_down_and_started_again() {
    let mut home = Home::new("up-killed");
    home.up("gone", &["--nodes", "0"]);
    let list: Value =
        serde_json::from_str(&home.ok(&["get", "clusters", "--output", "json"])).expect("JSON");
    let pid = list[0]["cluster"]["pid"].to_string();
    send_signal("-KILL", &pid);
    eventually("it is not listed", || {
        home.ok(&["get", "clusters"]).is_empty().then_some(())
    });
    assert_eq!(home.contexts(), ["prod", "berth-gone"]);
    let printed = home.ok(&["down", "--name", "gone"]);
    assert!(printed.contains("was not running"), "{printed}");
    assert_eq!(home.contexts(), ["prod"]);
    home.up("gone", &["--nodes", "0"]);
    home.ok(&["down", "--name", "gone"]);
}

const SHOP: &str = "\
apiVersion: example.com/v1
kind: Shop
metadata: {name: corner}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prices, namespace: shops}
---
apiVersion: v1
kind: Namespace
metadata: {name: shops}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shops, singular: shop, kind: Shop}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";
const WORK: &str = "\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 3
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: 'registry.example/c:1'}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: 'registry.example/c:1'}]
";
const NODES: &str = "\
apiVersion: v1
kind: Node
metadata:
  name: big
  annotations: {berth.dev/count: '2'}
  labels: {type: big}
status: {capacity: {cpu: '64', memory: 256Gi, pods: '500'}}
---
apiVersion: v1
kind: Node
metadata:
  name: kwok-node-0
  annotations: {kwok.x-k8s.io/node: fake, node.alpha.kubernetes.io/ttl: '0'}
  labels: {type: kwok}
spec:
  taints: [{effect: NoSchedule, key: kwok.x-k8s.io/node, value: fake}]
status:
  allocatable: {cpu: 32, memory: 256Gi, pods: 110}
  capacity: {cpu: 32, memory: 256Gi, pods: 110}
  nodeInfo: {kubeletVersion: fake}
  phase: Running
";

fn resource(group: &'static str, version: &'static str, plural: &'static str) -> Resource {
    Resource {
        group,
        version,
        plural,
    }
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array();
    let keys = taints
        .into_iter()
        .flatten()
        .map(|taint| taint["key"].as_str());
    keys.map(|key| key.unwrap_or_default().to_owned()).collect()
}

#[test]
fn directories_standard_input_and_nodes_of_a_file_are_ready_after_wait() {
    let mut home = Home::new("up-files");
    home.started.push("files".to_owned());
    std::fs::create_dir(home.scratch.path("manifests")).expect("a directory");
    home.scratch.file("manifests/shop.yaml", SHOP);
    home.scratch.file("manifests/README.md", "not a manifest");
    home.scratch.file("nodes.yaml", NODES);
    let mut command = home.command(&[
        "up",
        "-d",
        "--name=files",
        "--wait=100s",
        "--node-file=nodes.yaml",
        "--job-seconds=0.1",
        "-f",
        "manifests",
        "-f",
        "-",
    ]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("berth starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(WORK.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("berth ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for part in [
        "nodes       3, simulated",
        "applied     Shop corner",
        "applied     Job sum",
    ] {
        assert!(printed.contains(part), "no {part:?} in {printed}");
    }

    // All objects exist already: nothing is awaited any more.
    let api = Api::at(home.scratch.path("config"));
    let node = |name: &str| api.send(&request::get(core("nodes"), "", name));
    let second = node("big-2");
    assert_eq!(second["status"]["allocatable"]["cpu"], "64");
    assert_eq!(
        second["metadata"]["labels"]["kubernetes.io/hostname"],
        "big-2"
    );
    assert!(taints(&second).is_empty(), "{second}");
    assert_eq!(taints(&node("kwok-node-0")), ["kwok.x-k8s.io/node"]);
    let claim = core("persistentvolumeclaims");
    let claim = api.send(&request::get(claim, "default", "data"));
    assert_eq!(claim["spec"]["storageClassName"], "standard");
    assert_eq!(claim["status"]["phase"], "Bound");
    let job = api.send(&request::get(
        resource("batch", "v1", "jobs"),
        "default",
        "sum",
    ));
    assert_eq!(job["status"]["succeeded"], 3);
    let web = api.send(&request::get(super::DEPLOYMENTS, "default", "web"));
    assert_eq!(web["status"]["availableReplicas"], 2);
    api.send(&request::get(
        resource("example.com", "v1", "shops"),
        "default",
        "corner",
    ));

    // No kubelet serves this node, so it stays as it was created. One of kwok is served.
    for (name, annotations) in [
        ("foreign", json!({})),
        ("late", json!({"kwok.x-k8s.io/node": "fake"})),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node",
                          "metadata": {"name": name, "annotations": annotations}});
        api.send(&request::create(core("nodes"), "", &node));
    }
    eventually("the node of kwok is ready", || {
        taints(&node("late")).is_empty().then_some(())
    });
    assert_eq!(taints(&node("foreign")), ["node.kubernetes.io/not-ready"]);
    home.ok(&["down", "--name", "files"]);
}

#[test]
fn what_does_not_become_available_is_named() {
    let mut home = Home::new("up-wait");
    home.scratch.file(
        "huge.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: huge}\nspec: {containers: [{name: c, image: i, resources: \
         {requests: {cpu: 1k}}}]}\n",
    );
    home.started.push("late".to_owned());
    let (code, error) = home.fails(&["up", "-d", "--name=late", "--wait=1s", "huge.yaml"]);
    assert_eq!(code, Some(3));
    assert!(
        error.contains("not available after 1 s: Pod huge"),
        "{error}"
    );
    std::fs::create_dir(home.scratch.path("empty")).expect("a directory");
    let (code, error) = home.fails(&["up", "-f", "empty"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("empty"), "{error}");
}

#[test]
fn a_second_scheduler_is_a_standby() {
    let cluster = Cluster::up("up-second", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    let lease = resource("coordination.k8s.io", "v1", "leases");
    let lease = request::get(lease, "kube-system", "kube-scheduler");
    let holder = eventually("the scheduler of the cluster leads", || {
        let lease = api
            .runtime
            .block_on(api.transport.request::<Value>(&lease))
            .ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
        (!holder.is_empty()).then_some(holder)
    });
    assert!(holder.ends_with("_berth-up"), "{holder}");
    let second = cluster.scheduler(&["--leader-elect=true"]);
    for n in 0..20 {
        api.create_pod(&format!("pod-{n}"), &Value::Null);
    }
    eventually("the pods are bound", || {
        let pods = api.pods();
        pods.iter()
            .all(|pod| pod["spec"]["nodeName"].is_string())
            .then_some(())
    });
    assert_eq!(second.metric("scheduler_schedule_attempts_total", ""), 0.0);
    assert_eq!(api.send(&lease)["spec"]["holderIdentity"], holder.as_str());
}

#[test]
fn shells_get_completions() {
    for (shell, part) in [
        ("bash", "complete -F _berth"),
        ("zsh", "#compdef berth"),
        ("fish", "complete -c berth"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = berth(&["completion", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains(part), "{shell}");
        assert!(script.contains("what-if"), "{shell}");
    }
}

#[test]
fn commands_have_manual_pages() {
    let scratch = Scratch::new("man");
    let directory = scratch.path("man1");
    let output = berth(&["man", &directory.display().to_string()]);
    assert!(output.status.success(), "{output:?}");
    for (page, part) in [
        ("berth.1", "berth\\-what\\-if(1)"),
        ("berth-what-if.1", ".TH berth-what-if 1"),
        ("berth-explain-pod.1", ".SH SYNOPSIS"),
    ] {
        let text = std::fs::read_to_string(directory.join(page)).expect(page);
        assert!(text.contains(part), "{page}:\n{text}");
    }
    let file = scratch.file("file", "");
    let output = berth(&["man", &file.display().to_string()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("manual pages cannot be written"),
        "{error}"
    );
}
