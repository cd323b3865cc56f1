//! Scheduling with the role of `deploy/`, and with kube-scheduler's roles in Kubernetes. No request may be forbidden,
//! and each rule of `deploy/` is used.

use super::faults::{Exchange, Proxy, Refusal};
use super::outages::behind_proxy;
use super::{SHORT_TERMS, create_pod, deletion_at_once, pod, quotas, ready, scheduler_with_pages};
use crate::e2e::server::{ACCOUNT, NAMESPACE, Server, core, on_each};
use crate::e2e::{Api, Running, eventually, https, scheduled};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Group, resource and verb.
type Permission = (String, String, String);

const OPEN_PATHS: &str = "/healthz,/livez,/readyz";
const DRIVER: &str = "gpu.example.com";

const fn resource(group: &'static str, plural: &'static str) -> Resource {
    let version = "v1";
    Resource {
        group,
        version,
        plural,
    }
}

fn create(api: &Api, resource: Resource, namespace: &str, object: &Value) {
    api.send(&request::create(resource, namespace, object));
}

/// Plain pods: binding, gates, reasons, preemption, and repeated events.
fn plain_pods(api: &Api, proxy: &Proxy) {
    create_pod(api, "plain", "1", &json!({}));
    api.bound("plain");
    eventually("the binding has an event", || {
        api.event("plain", "Scheduled")
    });
    let gates = json!({"schedulingGates": [{"name": "example.com/wait"}]});
    create_pod(api, "gated", "1", &gates);
    assert_eq!(scheduled(&api.pod("gated"))["reason"], "SchedulingGated");
    let open = json!({"spec": {"schedulingGates": null}});
    api.send(&request::merge_patch(PODS, "default", "gated", &open));
    api.bound("gated");

    create_pod(api, "large", "64", &json!({}));
    let message = eventually("the pod is reported as unschedulable", || {
        let condition = scheduled(&api.pod("large"));
        (condition["reason"] == "Unschedulable").then(|| condition["message"].clone())
    });
    let message = message.as_str().unwrap_or_default();
    assert!(
        message.starts_with("0/2 nodes are available: 2 Insufficient cpu."),
        "{message}"
    );
    eventually("the failure has an event", || {
        api.event("large", "FailedScheduling")
    });
    // The same failure again is a series.
    proxy.refuse(3, Refusal::Status(400, None), |asked| {
        asked.is_binding() && asked.path.contains("/refused/")
    });
    create_pod(api, "refused", "1m", &json!({}));
    api.bound("refused");
    eventually("the events of the failures are a series", || {
        let events = api.events("refused", "FailedScheduling");
        let series = events.iter().any(|e| e["series"]["count"].is_number());
        series.then_some(())
    });

    let high = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    });
    let classes = resource("scheduling.k8s.io", "priorityclasses");
    create(api, classes, "", &high);
    let on_n1 = json!({"kubernetes.io/hostname": "n1"});
    create_pod(api, "victim", "2500m", &json!({"nodeSelector": on_n1}));
    assert_eq!(api.bound("victim")["spec"]["nodeName"], "n1");
    let important = json!({"nodeSelector": on_n1, "priorityClassName": "high"});
    create_pod(api, "important", "2500m", &important);
    let victim = || {
        let mut pods = api.pods().into_iter();
        pods.find(|pod| pod["metadata"]["name"] == "victim")
    };
    eventually("the victim is evicted", || {
        let is_evicted =
            victim().is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        is_evicted.then_some(())
    });
    if victim().is_some() {
        api.send(&deletion_at_once("victim"));
    }
    assert_eq!(api.bound("important")["spec"]["nodeName"], "n1");
}

fn claim_of_class(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "storageClassName": name, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// A volume that is bound to its claim, and a volume that a provisioner has to create.
fn volumes(api: &Api) {
    for (name, provisioner) in [
        ("local", "kubernetes.io/no-provisioner"),
        ("external", "csi.example.com"),
    ] {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        create(
            api,
            resource("storage.k8s.io", "storageclasses"),
            "",
            &class,
        );
    }
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "storageClassName": "local", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]},
            ]}]}},
        },
    });
    create(api, core("persistentvolumes"), "", &volume);
    // As the controller of volumes would.
    let available = json!({"status": {"phase": "Available"}});
    let mut patch = request::merge_patch(core("persistentvolumes"), "", "disk", &available);
    patch.path.push_str("/status");
    api.send(&patch);
    let claims = core("persistentvolumeclaims");
    for name in ["local", "external"] {
        create(api, claims, "default", &claim_of_class(name));
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
        create_pod(
            api,
            &format!("with-{name}"),
            "1m",
            &json!({"volumes": volumes}),
        );
    }
    eventually("the volume is given to the claim", || {
        let volume = api.send(&request::get(core("persistentvolumes"), "", "disk"));
        (volume["spec"]["claimRef"]["name"] == "local").then_some(())
    });
    eventually("a node is selected", || {
        let claim = api.send(&request::get(claims, "default", "external"));
        let node = &claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
        node.is_string().then_some(())
    });
}

/// Devices: a claim, and an extended resource, whose first binding fails so that its claim is deleted again.
fn devices(api: &Api, proxy: &Proxy) {
    let group = "resource.k8s.io";
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        })
    };
    let selector = json!([{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]);
    let class = json!({"selectors": selector, "extendedResourceName": "example.com/gpu"});
    let class = object("DeviceClass", DRIVER, class);
    create(api, resource(group, "deviceclasses"), "", &class);
    let slice = json!({
        "driver": DRIVER, "nodeName": "n2",
        "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}, {"name": "gpu-2"}],
    });
    let slice = object("ResourceSlice", "n2", slice);
    create(api, resource(group, "resourceslices"), "", &slice);
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": DRIVER}}]);
    let opaque =
        json!({"driver": DRIVER, "parameters": {"kind": "X", "apiVersion": "example.com/v1"}});
    for (name, spec) in [
        ("one", json!({"devices": {"requests": requests}})),
        (
            "configured",
            json!({"devices": {"requests": requests, "config": [{"opaque": opaque}]}}),
        ),
    ] {
        let claim = object("ResourceClaim", name, spec);
        create(api, resource(group, "resourceclaims"), "default", &claim);
        let claims = json!({"resourceClaims": [{"name": name, "resourceClaimName": name}]});
        let pod = format!("with-claim-{name}");
        create_pod(api, &pod, "1m", &claims);
        assert_eq!(api.bound(&pod)["spec"]["nodeName"], "n2");
    }

    proxy.refuse(1, Refusal::Status(409, None), |asked| {
        asked.is_binding() && asked.path.contains("/extended/")
    });
    let mut extended = pod("extended", "1m", &json!({}));
    let resources = &mut extended["spec"]["containers"][0]["resources"];
    resources["limits"] = json!({"example.com/gpu": "1"});
    create(api, PODS, "default", &extended);
    assert_eq!(api.bound("extended")["spec"]["nodeName"], "n2");
}

/// Returns whether the server has the kinds of group scheduling; kube-apiserver 1.36 has other versions of them.
fn has_groups(server: &Server) -> bool {
    server.name == "berth apiserver"
}

/// A group of pods in a hierarchy.
fn groups(api: &Api) {
    let of = |version, plural| Resource {
        group: "scheduling.k8s.io",
        version,
        plural,
    };
    let trees = of("v1alpha3", "compositepodgroups");
    let leaves = of("v1beta1", "podgroups");
    let workload = |template: &str| json!({"workloadName": "training", "templateName": template});
    let tree = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "CompositePodGroup", "metadata": {"name": "tree"},
        "spec": {"workloadRef": workload("tree"), "schedulingPolicy": {"gang": {"minGroupCount": 1}}},
    });
    create(api, trees, "default", &tree);
    let leaf = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "leaf"},
        "spec": {
            "workloadRef": workload("leaf"), "parentCompositePodGroupName": "tree",
            "schedulingPolicy": {"gang": {"minCount": 1}},
        },
    });
    create(api, leaves, "default", &leaf);
    let group = json!({"schedulingGroup": {"podGroupName": "leaf"}});
    create_pod(api, "member", "1m", &group);
    api.bound("member");
    for (resource, name) in [(leaves, "leaf"), (trees, "tree")] {
        eventually("the status of the group is written", || {
            let group = api.send(&request::get(resource, "default", name));
            (group["status"]["conditions"][0]["status"] == "True").then_some(())
        });
    }
}

/// Requests to the HTTPS port: the API server authenticates the token, and authorizes the user.
fn pages(server: &Server, scheduler: &Running) {
    let address = scheduler.secure_address().expect("it serves HTTPS");
    server.ensure_account(NAMESPACE, ACCOUNT);
    // The service account of the scheduler itself may not read them.
    for (token, code) in [
        (server.token(), "200"),
        (server.account_token(None), "403"),
        ("invalid".to_owned(), "401"),
    ] {
        let header = format!("Authorization: Bearer {token}");
        let answer = https::get(address, "/metrics", &header).expect("an answer");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{code}: {}",
            answer.lines().next().unwrap_or_default()
        );
    }
}

/// Runs all functions that need a permission. Returns the requests of the schedulers.
fn schedules(server: &Server, proxy: &Proxy, kubeconfig: &Path, gates: &[&str]) -> Vec<Exchange> {
    server.create_nodes(2, 110);
    let args = [gates, &SHORT_TERMS].concat();
    let start = || scheduler_with_pages(kubeconfig, OPEN_PATHS, &args);
    let first = start();
    ready(&first);
    let api = &server.api;
    plain_pods(api, proxy);
    volumes(api);
    devices(api, proxy);
    if gates.iter().any(|gates| gates.contains("GenericWorkload")) {
        groups(api);
    }
    pages(server, &first);
    // The lease exists: another candidate updates it. It lists by pages, as with servers that do not stream lists.
    proxy.refuse(usize::MAX, Refusal::Status(422, None), |asked| {
        asked.path.contains("sendInitialEvents")
    });
    let second = start();
    ready(&second);
    drop(first);
    create_pod(api, "after", "1m", &json!({}));
    api.bound("after");
    drop(second);
    let log = proxy.log();
    let mut forbidden: BTreeSet<_> = log.iter().filter(|e| e.code == 403).collect_permissions();
    // kube-scheduler's roles do not include deferred quotas: the scheduler continues without them.
    forbidden.retain(|(group, _, _)| group != "scheduling.berth.dev");
    assert!(
        forbidden.is_empty(),
        "{}: forbidden: {forbidden:?}",
        server.name
    );
    log
}

trait Permissions {
    fn collect_permissions(self) -> BTreeSet<Permission>;
}

impl<'a, I: Iterator<Item = &'a Exchange>> Permissions for I {
    fn collect_permissions(self) -> BTreeSet<Permission> {
        self.map(Exchange::permission).collect()
    }
}

/// The permissions of the roles of a manifest.
fn allowed(file: &str) -> BTreeSet<Permission> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(file);
    let text = std::fs::read_to_string(path).expect("a manifest");
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().into_iter().flatten();
        values
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let mut all = BTreeSet::new();
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).expect("YAML");
        for rule in object["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let of = |verb| (group.clone(), resource.clone(), verb);
                    all.extend(texts(&rule["verbs"]).into_iter().map(of));
                }
            }
        }
    }
    all
}

/// The kubeconfig with another user.
fn kubeconfig_of(server: &Server, proxied: &Path, user: Value) -> PathBuf {
    let text = std::fs::read_to_string(proxied).expect("a kubeconfig");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["users"][0]["user"] = user;
    server.scratch.file("user.kubeconfig", &config.to_string())
}

#[test]
fn the_role_of_deploy_suffices_and_each_rule_is_used() {
    const ROLES: [&str; 2] = ["base/rbac.yaml", "replacement/leader-election.yaml"];
    on_each("deploy-role", |server| {
        server.ensure_account(NAMESPACE, ACCOUNT);
        // The status of this quota is written.
        quotas::define(server);
        let quota = quotas::quota(&json!({"hard": {"pods": "100"}}));
        create(&server.api, quotas::QUOTAS, "default", &quota);
        let (proxy, proxied) = behind_proxy(server);
        let mut rules = BTreeSet::new();
        for role in ROLES {
            server.deploy(role);
            rules.extend(allowed(role));
        }
        let user = json!({"token": server.account_token(None)});
        let kubeconfig = kubeconfig_of(server, &proxied, user);
        // Without them, DeviceTaintRules and groups are not read.
        let gates: &[&str] = if has_groups(server) {
            &[
                "--emulated-version=1.38",
                "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
            ]
        } else {
            &["--feature-gates=DRADeviceTaintRules=true"]
        };
        if !has_groups(server) {
            rules.retain(|(group, _, _)| group != "scheduling.k8s.io");
        }
        let log = schedules(server, &proxy, &kubeconfig, gates);
        let used: BTreeSet<Permission> = log.iter().collect_permissions();
        // Not a subresource: the server asks for these permissions when the status of a claim is written.
        for verb in ["patch", "update"] {
            let implied = ("resource.k8s.io", "resourceclaims/binding", verb);
            let implied = (implied.0.into(), implied.1.into(), implied.2.into());
            assert!(rules.remove(&implied));
        }
        let unused: Vec<_> = rules.difference(&used).collect();
        assert!(
            unused.is_empty(),
            "{}: no request uses these rules of deploy/: {unused:?}",
            server.name
        );
    });
}

#[test]
fn the_roles_of_kube_scheduler_suffice() {
    on_each("upstream-role", |server| {
        let (proxy, proxied) = behind_proxy(server);
        let user = json!({"token": server.token(), "as": "system:kube-scheduler"});
        let kubeconfig = kubeconfig_of(server, &proxied, user);
        schedules(server, &proxy, &kubeconfig, &[]);
    });
}
