//! The same assertions on every API server: on `berth apiserver` always, and on a real kube-apiserver when
//! `KUBEBUILDER_ASSETS` names a directory with `etcd` and `kube-apiserver` (the convention of envtest). There Berth
//! runs with the role of `deploy/` and with kube-scheduler's own role, and no request may be forbidden.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod e2e;

use berth_client::request::{self, PODS, Resource};
use e2e::{Api, Cluster, Running, Scratch, eventually, free_port, scheduled};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");

const NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
};

/// A user of the real server: its token, its name, and its group.
const USERS: [(&str, &str, &str); 3] = [
    ("admin-token", "admin", "system:masters"),
    (
        "deploy-token",
        "system:serviceaccount:kube-system:berth-scheduler",
        "system:serviceaccounts",
    ),
    ("upstream-token", "system:kube-scheduler", "schedulers"),
];

/// A child process that ends with the test.
struct Killed(Child);

impl Killed {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = std::fs::File::create(log).expect("a log file");
        let errors = log.try_clone().expect("a log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        Self(child.unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// etcd and kube-apiserver.
struct Real {
    scratch: Scratch,
    assets: PathBuf,
    etcd_url: String,
    port: String,
    apiserver: Option<Killed>,
    _etcd: Killed,
}

impl Real {
    /// Starts both; prints a line and returns `None` when the binaries are missing.
    fn start(name: &str) -> Option<Self> {
        let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
            eprintln!(
                "skipped: KUBEBUILDER_ASSETS does not name a directory with etcd and kube-apiserver"
            );
            return None;
        };
        let scratch = Scratch::new(name);
        let url = || format!("http://127.0.0.1:{}", free_port());
        let (etcd_url, peers) = (url(), url());
        let mut etcd = Command::new(assets.join("etcd"));
        etcd.arg("--data-dir")
            .arg(scratch.path("etcd"))
            .args(["--listen-client-urls", &etcd_url])
            .args(["--advertise-client-urls", &etcd_url])
            .args(["--listen-peer-urls", &peers]);
        let etcd = Killed::start(&mut etcd, &scratch.path("etcd.log"));
        let key = rcgen::KeyPair::generate().expect("a key");
        scratch.file("accounts.key", &key.serialize_pem());
        scratch.file("accounts.pub", &key.public_key_pem());
        let users =
            USERS.map(|(token, name, group)| format!("{token},{name},{name},\"{group}\"\n"));
        scratch.file("tokens.csv", &users.concat());
        let mut real = Self {
            scratch,
            assets,
            etcd_url,
            port: free_port(),
            apiserver: None,
            _etcd: etcd,
        };
        real.restart();
        Some(real)
    }

    /// Kills the API server, if it runs, and starts it.
    fn restart(&mut self) {
        self.apiserver = None;
        let mut command = Command::new(self.assets.join("kube-apiserver"));
        command
            .args(["--etcd-servers", &self.etcd_url])
            .args(["--bind-address", "127.0.0.1", "--secure-port", &self.port])
            .arg("--cert-dir")
            .arg(self.scratch.path("certificates"))
            .arg("--token-auth-file")
            .arg(self.scratch.path("tokens.csv"))
            .args(["--authorization-mode", "RBAC"])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .arg("--service-account-key-file")
            .arg(self.scratch.path("accounts.pub"))
            .arg("--service-account-signing-key-file")
            .arg(self.scratch.path("accounts.key"))
            .args(["--service-cluster-ip-range", "10.0.0.0/24"])
            .args(["--disable-admission-plugins", "ServiceAccount"]);
        let log = self.scratch.path("apiserver.log");
        self.apiserver = Some(Killed::start(&mut command, &log));
        let api = Api::at(self.kubeconfig(0));
        let mut ready = request::get(PODS, "", "");
        // Ready when the roles of system users exist, too.
        ready.path = "/readyz".to_owned();
        eventually("kube-apiserver is ready", || {
            api.runtime.block_on(api.transport.execute(&ready)).ok()
        });
    }

    /// The kubeconfig of a user, by its place in [`USERS`].
    fn kubeconfig(&self, user: usize) -> PathBuf {
        let server = format!("https://127.0.0.1:{}", self.port);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": USERS[user].0}}],
            "current-context": "c",
        });
        self.scratch
            .file(&format!("{user}.kubeconfig"), &config.to_string())
    }
}

/// Creates the objects of a file of `deploy/`.
fn deploy(api: &Api, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(file);
    let text = std::fs::read_to_string(path).expect("a manifest");
    for document in text.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document).expect("YAML");
        let plural = format!(
            "{}s",
            object["kind"].as_str().unwrap_or_default().to_lowercase()
        );
        let plural = [
            "roles",
            "rolebindings",
            "clusterroles",
            "clusterrolebindings",
        ]
        .into_iter()
        .find(|known| *known == plural)
        .expect("a kind of RBAC");
        let resource = Resource {
            group: "rbac.authorization.k8s.io",
            version: "v1",
            plural,
        };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        api.send(&request::create(resource, namespace, &object));
    }
}

/// A scheduler that takes part in an election with short terms.
fn scheduler(kubeconfig: &Path, reviews: &Path) -> Running {
    let mut command = Command::new(BINARY);
    command
        .args([
            "scheduler",
            "--bind-address=127.0.0.1",
            "--secure-port",
            &free_port(),
        ])
        .args([
            "--leader-elect-lease-duration=4s",
            "--leader-elect-renew-deadline=3s",
        ])
        .args([
            "--leader-elect-retry-period=1s",
            "--authorization-always-allow-paths=/*",
        ])
        .arg("--authentication-kubeconfig")
        .arg(reviews)
        .arg("--kubeconfig")
        .arg(kubeconfig);
    Running::start(&mut command)
}

fn create_nodes(api: &Api) {
    for name in ["n1", "n2"] {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        });
        api.send(&request::create(NODES, "", &node));
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let status = json!({"status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let mut patch = request::merge_patch(NODES, "", name, &status);
        patch.path.push_str("/status");
        api.send(&patch);
        // kube-apiserver taints new nodes until a controller has seen them.
        api.send(&request::merge_patch(
            NODES,
            "",
            name,
            &json!({"spec": {"taints": null}}),
        ));
    }
}

fn create_pod(api: &Api, name: &str, cpu: &str, more: &Value) {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{
            "name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    api.send(&request::create(PODS, "default", &pod));
}

fn delete_at_once(api: &Api, name: &str) {
    let mut delete = request::delete(PODS, "default", name, &json!({}));
    delete.path.push_str("?gracePeriodSeconds=0");
    delete.body = Default::default();
    api.send(&delete);
}

/// What holds on any API server, with a scheduler of this kubeconfig.
fn schedules(api: &Api, kubeconfig: &Path) -> Running {
    let first = scheduler(kubeconfig, kubeconfig);
    create_pod(api, "plain", "1", &json!({}));
    api.bound("plain");
    eventually("the binding has an event", || {
        api.event("plain", "Scheduled")
    });

    create_pod(
        api,
        "gated",
        "1",
        &json!({"schedulingGates": [{"name": "example.com/wait"}]}),
    );
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

    let high = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
    });
    let classes = Resource {
        group: "scheduling.k8s.io",
        version: "v1",
        plural: "priorityclasses",
    };
    api.send(&request::create(classes, "", &high));
    let on = |node: &str| json!({"kubernetes.io/hostname": node});
    create_pod(api, "victim", "2500m", &json!({"nodeSelector": on("n1")}));
    let placed = eventually("the victim is bound or does not fit", || {
        let pod = api.pod("victim");
        pod["spec"]["nodeName"].is_string().then_some(pod)
    });
    assert_eq!(placed["spec"]["nodeName"], "n1");
    let important = json!({"nodeSelector": on("n1"), "priorityClassName": "high"});
    create_pod(api, "important", "2500m", &important);
    eventually("the victim is evicted", || {
        let pods = api.pods();
        let victim = pods.iter().find(|pod| pod["metadata"]["name"] == "victim");
        victim
            .is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string())
            .then_some(())
    });
    if api
        .pods()
        .iter()
        .any(|pod| pod["metadata"]["name"] == "victim")
    {
        delete_at_once(api, "victim");
    }
    assert_eq!(api.bound("important")["spec"]["nodeName"], "n1");

    // A standby takes over from a leader that is killed.
    let second = scheduler(kubeconfig, kubeconfig);
    for scheduler in [&first, &second] {
        let forbidden = scheduler.metric("rest_client_requests_total", "code=\"403\"");
        assert_eq!(forbidden, 0.0, "forbidden requests");
        assert!(!scheduler.http_get("/statusz").contains("Unavailable"));
    }
    drop(first);
    create_pod(api, "after", "100m", &json!({}));
    api.bound("after");
    assert_eq!(second.metric("leader_election_master_status", ""), 1.0);
    second
}

#[test]
fn berth_schedules_on_the_embedded_api_server() {
    let server = Cluster::apiserver(
        "servers-embedded",
        &["--nodes", "0", "--controllers", "off"],
    );
    let api = Api::of(&server);
    create_nodes(&api);
    drop(schedules(&api, &server.kubeconfig()));
}

/// With the role of `deploy/`. The API server is killed and comes back; nothing is bound twice or lost.
#[test]
fn berth_schedules_on_a_real_api_server_with_its_own_role() {
    let Some(mut real) = Real::start("servers-deploy") else {
        return;
    };
    let api = Api::at(real.kubeconfig(0));
    deploy(&api, "base/rbac.yaml");
    deploy(&api, "replacement/leader-election.yaml");
    create_nodes(&api);
    let scheduler = schedules(&api, &real.kubeconfig(1));
    real.restart();
    create_pod(&api, "after-restart", "100m", &json!({}));
    api.bound("after-restart");
    eventually("the binding has an event", || {
        api.event("after-restart", "Scheduled")
    });
    drop(scheduler);
}

/// With the roles that Kubernetes gives to kube-scheduler.
#[test]
fn berth_schedules_on_a_real_api_server_with_kube_schedulers_role() {
    let Some(real) = Real::start("servers-upstream") else {
        return;
    };
    let api = Api::at(real.kubeconfig(0));
    create_nodes(&api);
    drop(schedules(&api, &real.kubeconfig(2)));
}
