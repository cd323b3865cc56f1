//! `berth what-if` over files and over a running cluster.

mod drains;
mod library;

use crate::BINARY;
use crate::e2e::{Api, Cluster, Scratch};
use crate::typed::{self, TypedPage};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
           "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}})
}

/// A pod of a replica set.
fn pod(name: &str, cpu: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
               "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs",
                                    "controller": true}]},
           "spec": {"schedulerName": "default-scheduler", "nodeName": node,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]},
           "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }}})
}

fn budget(allowed: i32) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
           "metadata": {"name": "web", "namespace": "default", "uid": "pdb"},
           "spec": {"selector": {"matchLabels": {"app": "web"}}},
           "status": {"disruptionsAllowed": allowed}})
}

fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn what_if(args: &[&str]) -> Result<Value, String> {
    let output = Command::new(BINARY)
        .args(["what-if", "--output", "json"])
        .args(args)
        .output()
        .expect("berth runs");
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        code => Err(format!(
            "{code:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A DeferredQuota among the changes: pods without room are pending with the reason, and a higher limit places them. An
/// invalid one is refused with the field.
#[test]
fn deferred_quotas_are_documents() {
    let scratch = Scratch::new("what-if-quotas");
    let quota = |hard: &str| {
        json!({"apiVersion": "scheduling.berth.dev/v1alpha1", "kind": "DeferredQuota",
               "metadata": {"name": "team-a", "uid": "q"}, "spec": {"hard": {"requests.cpu": hard}}})
        .to_string()
    };
    let cluster = [
        node("n1"),
        pod("running", "2", "n1"),
        pod("waiting", "1", ""),
        serde_json::from_str(&quota("2")).expect("JSON"),
    ];
    let cluster = shown(&scratch.file("cluster.json", &list(&cluster)));
    let report = what_if(&["--from", &cluster]).expect("a report");
    let reason = &report["pending"][0]["reason"];
    assert_eq!(
        reason, "deferred quota \"team-a\": requests.cpu: requested 1, used 2 of 2",
        "{report}"
    );
    let raised = shown(&scratch.file("raised.json", &quota("3")));
    let report = what_if(&["--from", &cluster, "-f", &raised]).expect("a report");
    assert_eq!(report["placed"][0]["pod"], "default/waiting", "{report}");
    let wrong = shown(&scratch.file("wrong.json", &quota("-1")));
    let error = what_if(&["--from", &cluster, "-f", &wrong]).expect_err("it is refused");
    assert!(
        error.contains("spec.hard[requests.cpu]: must not be negative"),
        "{error}"
    );
}

#[test]
fn changes_are_run_and_reported() {
    let scratch = Scratch::new("what-if");
    let dump = [
        node("n1"),
        pod("a", "3", "n1"),
        pod("p", "3", ""),
        pod("q", "9", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let run = |changes: &str| {
        let changes = shown(&scratch.file("changes.yaml", changes));
        what_if(&["--from", &dump, "-f", &changes])
    };
    let new_node = serde_json::to_string(&node("n2")).expect("JSON");
    for (situation, changes, placed, pending) in [
        ("nothing changes", String::new(), json!([]), 2),
        (
            "a node is added",
            new_node.clone(),
            json!([{"pod": "default/p", "node": "n2"}]),
            1,
        ),
        (
            "a node is added that is tainted",
            format!(
                "{new_node}\n---\napiVersion: v1\nkind: Node\nmetadata: {{name: n2}}\nspec: {{taints: [{{key: k, \
                 effect: NoSchedule}}]}}\n"
            ),
            json!([]),
            2,
        ),
        (
            "a pod is deleted",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {berth.dev/what-if: delete}}\n".to_owned(),
            json!([{"pod": "default/p", "node": "n1"}]),
            1,
        ),
        (
            "the replica set of the pods is scaled down",
            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\nspec: {replicas: 1}\n".to_owned(),
            json!([]),
            0,
        ),
        (
            "a deployment is added",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec: {replicas: 2, template: {spec: \
             {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}}\n"
                .to_owned(),
            json!([{"pod": "default/shop-what-if-1", "node": "n1"}]),
            3,
        ),
    ] {
        let report = run(&changes).unwrap_or_else(|error| panic!("{situation}: {error}"));
        let got = report["placed"].as_array().cloned().unwrap_or_default();
        assert_eq!(json!(got), placed, "{situation}: {report}");
        let waiting = report["pending"].as_array().map_or(0, Vec::len);
        assert_eq!(waiting, pending, "{situation}: {report}");
        assert_eq!(report["before"]["nodes"], 1, "{situation}");
    }
    let error = run("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: q}\n").expect_err("refused");
    assert!(
        error.contains("Some(2)") && error.contains("ConfigMap"),
        "{error}"
    );
    let config = scratch.file(
        "extended.yaml",
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: \
         'http://127.0.0.1:1', filterVerb: filter}]\n",
    );
    let error = what_if(&["--from", &dump, "--config", &shown(&config)]).expect_err("refused");
    let expected = "the configuration has extenders, which what-if does not call";
    assert!(error.contains(expected), "{error}");
}

/// Quotas of the cluster and of the changes limit new pods; DaemonSets run on new nodes.
#[test]
fn quotas_and_daemon_sets_are_followed() {
    let scratch = Scratch::new("what-if-quotas");
    let quota = |name: &str, hard: &Value| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"hard": hard}})
    };
    let daemons = |name: &str, cpu: &str| {
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "ops"}, "spec": {"template": {"spec": {"containers":
            [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}})
    };
    let replicas = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": 4}});
    let dump = [
        node("n1"),
        pod("a", "1", "n1"),
        quota("present", &json!({"requests.cpu": "3"})),
        daemons("logs", "500m"),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let mut deleted = quota("present", &json!({}));
    deleted["metadata"]["annotations"] = json!({"berth.dev/what-if": "delete"});
    for (situation, changes, placed, not_admitted) in [
        (
            "the quota has room for two of three",
            vec![replicas.clone()],
            2,
            1,
        ),
        (
            "the quota is deleted",
            vec![deleted.clone(), replicas.clone()],
            3,
            0,
        ),
        (
            "a quota of the changes",
            vec![
                deleted,
                quota("new", &json!({"pods": "1"})),
                replicas.clone(),
            ],
            0,
            3,
        ),
        (
            "a new node gets the pod of a DaemonSet",
            vec![node("n2")],
            1,
            0,
        ),
        (
            "a new DaemonSet runs on all nodes, a new node included",
            vec![daemons("metrics", "1"), node("n2")],
            3,
            0,
        ),
    ] {
        let changes = shown(&scratch.file("changes.json", &list(&changes)));
        let report = what_if(&["--from", &dump, "-f", &changes]);
        let report = report.unwrap_or_else(|error| panic!("{situation}: {error}"));
        let count = |field: &str| report[field].as_array().map_or(0, Vec::len);
        let counts = (count("placed"), count("notAdmitted"), count("pending"));
        assert_eq!(counts, (placed, not_admitted, 0), "{situation}: {report:#}");
    }
}

#[test]
fn a_higher_priority_evicts() {
    let scratch = Scratch::new("what-if-preemption");
    let mut vip = pod("vip", "3", "");
    vip["spec"]["priority"] = 10.into();
    let dump = list(&[node("n1"), pod("a", "3", "n1"), vip]);
    let dump = shown(&scratch.file("dump.json", &dump));
    let report = what_if(&["--from", &dump]).expect("a report");
    assert_eq!(
        report["evicted"],
        json!([{"pod": "default/a", "node": "n1"}]),
        "{report}"
    );
    assert_eq!(
        report["placed"],
        json!([{"pod": "default/vip", "node": "n1"}]),
        "{report}"
    );
}

/// The run uses the configuration of the changes; `--config` is the configuration before the changes.
#[test]
fn another_configuration_places_pods_elsewhere() {
    let scratch = Scratch::new("what-if-config");
    let dump = [
        node("empty"),
        node("full"),
        pod("a", "2", "full"),
        pod("p", "1", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let scoring = |strategy: &str| {
        let file = format!("{strategy}.yaml");
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
                "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": strategy}}}],
            }],
        });
        shown(&scratch.file(&file, &config.to_string()))
    };
    let (least, most) = (scoring("LeastAllocated"), scoring("MostAllocated"));
    for (args, node) in [
        (vec!["--config", &least], "empty"),
        (vec!["--config", &most], "full"),
        (vec!["-f", &most], "full"),
        (vec!["--config", &most, "-f", &least], "empty"),
    ] {
        let args: Vec<&str> = ["--from", &dump].into_iter().chain(args).collect();
        let report = what_if(&args).expect("a report");
        let placed = json!([{"pod": "default/p", "node": node}]);
        assert_eq!(report["placed"], placed, "{args:?}: {report}");
    }
}

/// The pods with a different decision of another release, and the responsible changes. The cluster is of
/// 1.36, the version of its kubelets.
#[test]
fn an_upgrade_is_previewed_pod_by_pod() {
    let scratch = Scratch::new("what-if-upgrade");
    let in_zone = |name: &str, zone: &str| {
        let mut node = node(name);
        node["metadata"]["labels"] = json!({"zone": zone, "kubernetes.io/hostname": name});
        node["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.36.2"});
        node
    };
    let mut spread = pod("spread", "1", "");
    spread["spec"]["nodeSelector"] = json!({"zone": "a"});
    spread["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {},
        "nodeAffinityPolicy": "Ignore",
    }]);
    let dump = [
        in_zone("n1", "a"),
        in_zone("n2", "b"),
        pod("a", "1", "n1"),
        pod("b", "1", "n1"),
        spread,
        pod("plain", "1", ""),
    ];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let upgrade = |version: &str| {
        let report = what_if(&["--from", &dump, "--emulated-version", version]);
        report.expect("a report")
    };
    let none = upgrade("1.37");
    assert_eq!(none["upgrade"]["present"], "1.36", "{none}");
    assert_eq!(none["upgrade"]["podsDiffer"], 0, "{none}");
    let report = upgrade("1.38");
    let pods = &report["upgrade"]["pods"];
    assert_eq!(pods.as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(pods[0]["pod"], "default/spread");
    assert_eq!(pods[0]["present"], "on n1");
    let other = pods[0]["other"].as_str().unwrap_or_default();
    assert!(other.starts_with("not placed: "), "{report}");
    assert_eq!(
        pods[0]["causes"][0]["name"],
        "EmptySpreadSelectorCountsAllPods"
    );
    // The report itself is for the other release.
    assert_eq!(report["pending"][0]["pod"], "default/spread", "{report}");
    let plain = what_if(&["--from", &dump]).expect("a report");
    assert_eq!(plain["pending"], json!([]), "{plain}");
    assert_eq!(plain["upgrade"], Value::Null);
    for (args, expected) in [
        (
            &["--emulated-version", "1.39"][..],
            "emulation version 1.39 is not between [1.36, 1.38.0]",
        ),
        (
            &[
                "--emulated-version",
                "1.37",
                "--feature-gates",
                "SidecarContainers=true",
            ],
            "with Kubernetes 1.37, the scheduler would not start with these settings: --feature-gates: unrecognized \
             feature gate: SidecarContainers",
        ),
    ] {
        let args: Vec<&str> = ["--from", &dump]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let error = what_if(&args).expect_err("a refusal");
        assert!(error.contains(expected), "{error}");
    }
}

/// A running cluster is read and not written.
#[test]
fn a_cluster_is_only_read() {
    let cluster = Cluster::apiserver("what-if-cluster", &["--nodes", "2"]);
    let api = Api::of(&cluster);
    api.create_pod("web-1", &json!({}));
    let kubeconfig = shown(&cluster.kubeconfig());
    let before = cluster.requests(["DELETE"]);
    let report = what_if(&["--kubeconfig", &kubeconfig]).expect("a report");
    let placed = report["placed"].as_array().cloned().unwrap_or_default();
    assert_eq!(placed.len(), 1, "{report}");
    assert_eq!(placed[0]["pod"], "default/web-1");
    assert_eq!(api.pod("web-1")["spec"]["nodeName"], Value::Null);
    assert_eq!(cluster.requests(["DELETE"]), before);
}

/// The page is typed as it reads.
#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    typed::check(&TypedPage {
        name: "what-if-page",
        file: "use/what-if.md",
        args: &["--nodes", "3"],
        situations: &["Example"],
    });
}

/// Typing errors are errors, not changes without an effect.
#[test]
fn changes_are_as_strict_as_the_api() {
    let scratch = Scratch::new("what-if-strict");
    let dump = [node("node-a"), pod("a", "1", "node-a")];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    for (changes, expected) in [
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nspec: {unscheduleable: true}\n",
            "document 1: Node: unknown field \"spec.unscheduleable\"; did you mean \"unschedulable\"?",
        ),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\nspec: {unschedulable: true}\n",
            "there is no Node node-b; did you mean \"node-a\"? A new Node is invalid: status.allocatable",
        ),
        (
            "apiVersion: v1\nkind: Node\nmetadata: {name: node-a}\nspec: {unschedulable: 'yes'}\n",
            "unschedulable",
        ),
        (
            "apiVersion: v1\nkind: Podd\nmetadata: {name: a}\n",
            "no kind \"Podd\" in v1; did you mean \"Pod\"?",
        ),
        (
            "apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\n",
            "did you mean apiVersion apps/v1?",
        ),
        (
            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: webb}\nspec: {replicas: 3}\n",
            "default/webb has no pods, so spec.template is needed; did you mean \"web\"?",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop, annotations: {berth.dev/what-if: delete}}\n",
            "there is no Pod shop/a to delete; did you mean the one in namespace \"default\"?",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {priorityClassName: high, containers: [{name: c}]}\n",
            "Pod default/b: no PriorityClass with name high was found",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nmetadata: {name: b}\n",
            "metadata",
        ),
    ] {
        let file = shown(&scratch.file("changes.yaml", changes));
        let error = what_if(&["--from", &dump, "-f", &file]).expect_err(changes);
        assert!(
            error.starts_with("Some(2)") && error.contains(expected),
            "{changes}: {error}"
        );
    }
}

/// A new pod has the priority of its class, and evicts pods of lower priority.
#[test]
fn new_pods_have_the_priority_of_their_class() {
    let scratch = Scratch::new("what-if-priority");
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    let dump = [node("n1"), pod("a", "3", "n1"), class];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let new = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vip"},
        "spec": {"priorityClassName": "high", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}});
    let changes = shown(&scratch.file("new.json", &new.to_string()));
    let report = what_if(&["--from", &dump, "-f", &changes]).expect("a report");
    assert_eq!(report["evicted"][0]["pod"], "default/a", "{report}");
    assert_eq!(report["balance"]["evicted"], 1, "{report}");
    assert_eq!(report["balance"]["added"], 1, "{report}");
    let group = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "ring", "namespace": "default"},
        "spec": {"priorityClassName": "hihg", "schedulingPolicy": {"gang": {"minCount": 1}}}});
    let changes = shown(&scratch.file("group.json", &group.to_string()));
    let error = what_if(&["--from", &dump, "-f", &changes]).expect_err("refused");
    let wanted =
        "PodGroup default/ring: no PriorityClass with name hihg was found; did you mean \"high\"?";
    assert!(error.contains(wanted), "{error}");
}

/// Changes can be in several files, a directory and standard input; the report has the usual formats.
#[test]
fn changes_come_from_several_places() {
    let scratch = Scratch::new("what-if-places");
    let dump = shown(&scratch.file("dump.json", &list(&[node("n1")])));
    let pod_of = |name: &str| pod(name, "1", "").to_string();
    let directory = scratch.path("changes");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("b.json"), pod_of("b")).expect("a file");
    std::fs::write(directory.join("README"), "no change").expect("a file");
    let file = shown(&scratch.file("a.json", &pod_of("a")));
    let directory = shown(&directory);
    let mut child = Command::new(BINARY)
        .args([
            "what-if", "--from", &dump, "-f", &file, "-f", &directory, "-f", "-", "-o", "yaml",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("berth runs");
    let mut input = child.stdin.take().expect("standard input");
    input.write_all(pod_of("c").as_bytes()).expect("is read");
    drop(input);
    let output = child.wait_with_output().expect("berth ends");
    let yaml = String::from_utf8_lossy(&output.stdout);
    for pod in ["default/a", "default/b", "default/c"] {
        assert!(yaml.contains(&format!("pod: {pod}")), "{yaml}");
    }
    let error = what_if(&["--from", "-", "-f", "-"]).expect_err("refused");
    assert!(error.contains("give - once"), "{error}");
}

/// All commands find the cluster in the same way: the context that is named, of the same files.
#[test]
fn commands_take_a_context() {
    let cluster = Cluster::up("what-if-context", &["--nodes", "1"]);
    let text = std::fs::read_to_string(cluster.kubeconfig()).expect("the kubeconfig");
    // Another file has the context; the first file of KUBECONFIG lacks it.
    let first = cluster
        .scratch
        .file("first", "apiVersion: v1\nkind: Config\n");
    let second = cluster.scratch.file(
        "second",
        &text.replace("current-context", "not-the-context"),
    );
    let files = format!("{}:{}", shown(&first), shown(&second));
    let name = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("current-context:"));
    let name = name.expect("a current context").trim().trim_matches('"');
    for command in [&["what-if"][..], &["explain", "queue"], &["version"]] {
        let run = |context: &str| {
            let output = Command::new(BINARY)
                .args(command)
                .args(["--context", context])
                .env("KUBECONFIG", &files)
                .output()
                .expect("berth runs");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), error)
        };
        let (is_fine, error) = run(name);
        assert!(is_fine, "{command:?}: {error}");
        let (is_fine, error) = run("no-such-context");
        assert!(!is_fine, "{command:?}");
        assert!(
            error.contains("no-such-context") && error.contains(name),
            "{command:?}: {error}"
        );
    }
}

/// A command that fails names the kubeconfig that it used, and does not retry.
#[test]
fn commands_name_the_kubeconfig_that_they_used() {
    let scratch = Scratch::new("what-if-kubeconfig");
    let extension =
        json!({"name": "berth.dev/scheduler", "extension": {"url": "http://127.0.0.1:1"}});
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", "extensions": [extension]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    });
    let kubeconfig = shown(&scratch.file("berth.kubeconfig", &config.to_string()));
    for command in [&["what-if"][..], &["explain", "queue"], &["version"]] {
        let output = Command::new(BINARY)
            .args(command)
            .args(["--kubeconfig", &kubeconfig])
            .output()
            .expect("berth runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command:?}");
        let named = format!("(kubeconfig {kubeconfig})");
        assert!(error.contains(&named), "{command:?}: {error}");
        assert!(!error.contains("retrying"), "{command:?}: {error}");
    }
}

/// The number of further pods of a template that fit, their nodes, and what the next pod lacks.
#[test]
fn more_pods_of_a_template_are_counted() {
    let scratch = Scratch::new("what-if-fit");
    let dump = [node("n1"), node("n2"), pod("a", "1", "n1")];
    let dump = shown(&scratch.file("dump.json", &list(&dump)));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}});
    let file = shown(&scratch.file("web.json", &deployment.to_string()));
    let report = what_if(&["--from", &dump, "--fit", &file]).expect("a report");
    let fit = &report["fit"];
    assert_eq!(fit["pods"], 7, "{report:#}");
    assert_eq!(
        fit["nodes"],
        json!([{"node": "n2", "pods": 4}, {"node": "n1", "pods": 3}]),
        "{report:#}"
    );
    let reason = &fit["bottleneck"][0];
    assert_eq!(reason["code"], "InsufficientResource", "{report:#}");
    assert_eq!(
        (&reason["resource"], &reason["wanted"], &reason["nodes"]),
        (&json!("cpu"), &json!(1000), &json!(2)),
        "{report:#}"
    );
    // The report itself is not about the copies.
    assert_eq!(report["after"]["pods"], 1, "{report:#}");
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let file = shown(&scratch.file("config.json", &config.to_string()));
    let error = what_if(&["--from", &dump, "--fit", &file]).expect_err("refused");
    assert!(error.contains("ConfigMap has no template"), "{error}");
}

/// New pods get the claims that a controller makes from ResourceClaimTemplates: pods among the changes, pods of
/// workloads, and the copies of `--fit`.
#[test]
fn new_pods_get_claims_from_templates() {
    let scratch = Scratch::new("what-if-claims");
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu", "uid": "class"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    let slice = |node: &str, devices: u32| {
        let devices: Vec<Value> = (0..devices)
            .map(|at| json!({"name": format!("gpu-{at}")}))
            .collect();
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node, "uid": node},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    };
    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}}});
    let dump = [
        node("n1"),
        node("n2"),
        class,
        slice("n1", 2),
        slice("n2", 1),
    ];
    let without = shown(&scratch.file("without.json", &list(&dump)));
    let with = [&dump[..], &[template]].concat();
    let with = shown(&scratch.file("with.json", &list(&with)));
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"parallelism": 4, "template": {"spec": {"restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "containers": [{"name": "c", "image": "train:1", "resources": {"claims": [{"name": "gpu"}]}}]}}}});
    let job = shown(&scratch.file("job.json", &job.to_string()));

    let report = what_if(&["--from", &with, "-f", &job]).expect("a report");
    let placed = report["placed"].as_array().map_or(0, Vec::len);
    assert_eq!(placed, 3, "three devices exist: {report:#}");
    let waiting = report["pending"][0]["reason"].as_str().unwrap_or_default();
    assert!(waiting.contains("cannot allocate all claims"), "{report:#}");

    let report = what_if(&["--from", &with, "--fit", &job]).expect("a report");
    assert_eq!(report["fit"]["pods"], 3, "{report:#}");
    let nodes = json!([{"node": "n1", "pods": 2}, {"node": "n2", "pods": 1}]);
    assert_eq!(report["fit"]["nodes"], nodes, "{report:#}");
    assert_eq!(
        report["fit"]["bottleneck"][0]["code"], "DevicesUnavailable",
        "{report:#}"
    );

    for flag in ["-f", "--fit"] {
        let report = what_if(&["--from", &without, flag, &job]).expect("a report");
        let notes = report["notes"].to_string();
        let expected = "ResourceClaimTemplate default/one-gpu is not known";
        assert!(notes.contains(expected), "{flag}: {report:#}");
        assert!(
            report["placed"].as_array().is_none_or(Vec::is_empty),
            "{report:#}"
        );
    }
}

/// The number of nodes of a shape that the waiting pods need.
#[test]
fn nodes_of_a_shape_are_counted() {
    let scratch = Scratch::new("what-if-shape");
    let mut objects = vec![node("n1"), pod("a", "4", "n1"), pod("huge", "100", "")];
    objects.extend((0..5).map(|at| pod(&format!("p{at}"), "3", "")));
    let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "logs", "namespace": "ops"},
        "spec": {"template": {"spec": {"containers":
            [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}}});
    let plain = shown(&scratch.file("plain.json", &list(&objects)));
    objects.push(daemons);
    let with_daemons = shown(&scratch.file("daemons.json", &list(&objects)));
    for (dump, shape, nodes, placed) in [
        (&plain, "cpu=8,memory=32Gi", 3, 5),
        (&plain, "n1", 5, 5),
        (&plain, "cpu=200,memory=999Gi", 1, 6),
        (&plain, "cpu=1,memory=1Gi", 0, 0),
        (&with_daemons, "cpu=8,memory=32Gi", 5, 5),
    ] {
        let report = what_if(&["--from", dump, "--add-nodes", shape]).expect("a report");
        let added = &report["addNodes"];
        assert_eq!(added["waiting"], 6, "{shape}: {report:#}");
        let got = (added["nodes"].as_u64(), added["placed"].as_u64());
        assert_eq!(got, (Some(nodes), Some(placed)), "{shape}: {report:#}");
        assert_eq!(report["after"]["nodes"], 1 + nodes, "{shape}: {report:#}");
    }
    let error = what_if(&["--from", &plain, "--add-nodes", "n2"]).expect_err("refused");
    assert!(error.contains("did you mean \"n1\"?"), "{error}");
}
