//! The API servers of the integration suite: `berth apiserver` always, a real kube-apiserver when `KUBEBUILDER_ASSETS`
//! names a directory with `etcd` and `kube-apiserver` (the convention of envtest), and, when
//! `USE_EXISTING_CLUSTER=true` is set (also from envtest), an existing, empty cluster without a scheduler, from
//! `KUBECONFIG`.

use super::{Api, Running, Scratch, eventually, free_port};
use berth_client::request::{self, PODS, Resource};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `v1/nodes`.
pub(crate) const NODES: Resource = core("nodes");
/// `v1/serviceaccounts`.
pub(crate) const SERVICE_ACCOUNTS: Resource = core("serviceaccounts");
/// `v1/secrets`.
pub(crate) const SECRETS: Resource = core("secrets");

/// The token of the administrator of a real server.
const ADMIN_TOKEN: &str = "admin-token";
/// The namespace of the service account of `deploy/`.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The service account of `deploy/`.
pub(crate) const ACCOUNT: &str = "berth-scheduler";

/// A resource of the core group.
pub(crate) const fn core(plural: &'static str) -> Resource {
    Resource {
        group: "",
        version: "v1",
        plural,
    }
}

/// A child process that ends with the test.
pub(crate) struct Killed(Child);

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

/// The process that serves requests.
enum Process {
    /// `berth apiserver` at this address.
    Embedded(Option<Running>, String),
    /// kube-apiserver at this port, and etcd.
    Real {
        assets: PathBuf,
        etcd_url: String,
        peers: String,
        port: String,
        apiserver: Option<Killed>,
        etcd: Option<Killed>,
    },
    /// A server that the tests do not control.
    Existing,
}

/// An API server without a scheduler, without controllers and without nodes.
pub(crate) struct Server {
    /// The name, for messages.
    pub(crate) name: &'static str,
    /// The administrator.
    pub(crate) api: Api,
    /// The files of the test.
    pub(crate) scratch: Scratch,
    process: Process,
}

/// Runs a test on each API server in turn. `name` distinguishes tests.
pub(crate) fn on_each(name: &str, test: impl Fn(&mut Server)) {
    let mut server = Server::embedded(name);
    test(&mut server);
    drop(server);
    let mut has_real = false;
    for start in [Server::real, Server::existing] {
        if let Some(mut server) = start(name) {
            has_real = true;
            eprintln!("{name}: on {}", server.name);
            test(&mut server);
        }
    }
    if !has_real {
        eprintln!(
            "{name}: skipped on a real API server: KUBEBUILDER_ASSETS does not name a directory with etcd and \
             kube-apiserver, and USE_EXISTING_CLUSTER is not true"
        );
    }
}

impl Server {
    fn embedded(name: &str) -> Self {
        let scratch = Scratch::new(&format!("{name}-embedded"));
        let address = format!("127.0.0.1:{}", free_port());
        let running = start_embedded(&scratch, &address);
        let api = Api::at(scratch.path("kubeconfig"));
        let process = Process::Embedded(Some(running), address);
        let server = Self {
            name: "berth apiserver",
            api,
            scratch,
            process,
        };
        server.create_authentication_reader();
        server
    }

    /// The Role of kube-apiserver that reads the client CA of the cluster, which the embedded server does not have.
    fn create_authentication_reader(&self) {
        let name = "extension-apiserver-authentication-reader";
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{
                "apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": ["extension-apiserver-authentication"], "verbs": ["get", "list", "watch"],
            }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"}],
        });
        for (plural, object) in [("roles", role), ("rolebindings", binding)] {
            let resource = Resource {
                group: "rbac.authorization.k8s.io",
                version: "v1",
                plural,
            };
            self.api
                .ensure(&request::create(resource, NAMESPACE, &object));
        }
    }

    /// kube-apiserver with etcd, if `KUBEBUILDER_ASSETS` names their directory.
    pub(crate) fn real(name: &str) -> Option<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from)?;
        let scratch = Scratch::new(&format!("{name}-real"));
        let url = || format!("http://127.0.0.1:{}", free_port());
        let (etcd_url, peers) = (url(), url());
        let etcd = start_etcd(&assets, &scratch, &etcd_url, &peers);
        let key = rcgen::KeyPair::generate().expect("a key");
        scratch.file("accounts.key", &key.serialize_pem());
        scratch.file("accounts.pub", &key.public_key_pem());
        scratch.file(
            "tokens.csv",
            &format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"),
        );
        let port = free_port();
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "insecure-skip-tls-verify": true,
            }}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": ADMIN_TOKEN}}],
            "current-context": "c",
        });
        let kubeconfig = scratch.file("kubeconfig", &config.to_string());
        let process = Process::Real {
            assets,
            etcd_url,
            peers,
            port,
            apiserver: None,
            etcd: Some(etcd),
        };
        let mut server = Self {
            name: "kube-apiserver",
            api: Api::at(kubeconfig),
            scratch,
            process,
        };
        server.restart();
        // The controllers of a real cluster make these.
        server.ensure_account("default", "default");
        Some(server)
    }

    fn existing(name: &str) -> Option<Self> {
        let wanted = std::env::var("USE_EXISTING_CLUSTER").is_ok_and(|value| value == "true");
        let kubeconfig = std::env::var_os("KUBECONFIG").filter(|_| wanted)?;
        let scratch = Scratch::new(&format!("{name}-existing"));
        let text = std::fs::read_to_string(&kubeconfig).expect("KUBECONFIG names a file");
        let kubeconfig = scratch.file("kubeconfig", &text);
        Some(Self {
            name: "the cluster of KUBECONFIG",
            api: Api::at(kubeconfig),
            scratch,
            process: Process::Existing,
        })
    }

    /// Kills the API server with SIGKILL, if it runs, and starts it again with the same data. Returns whether it could.
    pub(crate) fn restart(&mut self) -> bool {
        match &mut self.process {
            Process::Existing => return false,
            Process::Embedded(running, address) => {
                drop(running.take());
                *running = Some(start_embedded(&self.scratch, address));
            }
            Process::Real {
                assets,
                etcd_url,
                port,
                apiserver,
                ..
            } => {
                drop(apiserver.take());
                let mut command = Command::new(assets.join("kube-apiserver"));
                command
                    .args(["--etcd-servers", etcd_url])
                    .args(["--bind-address", "127.0.0.1", "--secure-port", port])
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
                    .args(["--runtime-config", "resource.k8s.io/v1beta2=true"])
                    .args(["--feature-gates", "DRADeviceTaintRules=true"])
                    .args(["--disable-admission-plugins", "ServiceAccount"]);
                let log = self.scratch.path("apiserver.log");
                *apiserver = Some(Killed::start(&mut command, &log));
            }
        }
        // Ready when the roles of system users exist, too.
        let mut ready = request::get(PODS, "", "");
        ready.path = "/readyz".to_owned();
        eventually("the API server is ready", || {
            let answer = self.api.transport.execute(&ready);
            self.api.runtime.block_on(answer).ok()
        });
        true
    }

    /// Kills the API server and starts it again with an empty store and the same certificates. Returns whether it
    /// could.
    pub(crate) fn restart_empty(&mut self) -> bool {
        match &mut self.process {
            Process::Existing => return false,
            Process::Embedded(running, _) => {
                drop(running.take());
                let store = self.scratch.path("data").join("berth.redb");
                std::fs::remove_file(store).expect("the store of the server");
            }
            Process::Real {
                assets,
                etcd_url,
                peers,
                apiserver,
                etcd,
                ..
            } => {
                drop(apiserver.take());
                drop(etcd.take());
                std::fs::remove_dir_all(self.scratch.path("etcd")).expect("the data of etcd");
                *etcd = Some(start_etcd(assets, &self.scratch, etcd_url, peers));
            }
        }
        self.restart()
    }

    /// kube-scheduler in its default configuration, if it is in the directory of kube-apiserver.
    pub(crate) fn kube_scheduler(&self) -> Option<Killed> {
        let Process::Real { assets, .. } = &self.process else {
            return None;
        };
        let program = assets.join("kube-scheduler");
        let mut command = Command::new(&program);
        command
            .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
            .args(["--secure-port", &free_port(), "--kubeconfig"])
            .arg(self.kubeconfig());
        let log = self.scratch.path("kube-scheduler.log");
        program.exists().then(|| Killed::start(&mut command, &log))
    }

    /// The address of the server, as its kubeconfig names it.
    pub(crate) fn url(&self) -> String {
        let url = &self.kubeconfig_value()["clusters"][0]["cluster"]["server"];
        url.as_str().expect("an address").to_owned()
    }

    /// The bearer token of the administrator.
    pub(crate) fn token(&self) -> String {
        let token = &self.kubeconfig_value()["users"][0]["user"]["token"];
        token
            .as_str()
            .expect("KUBECONFIG has a user with a token")
            .to_owned()
    }

    fn kubeconfig_value(&self) -> Value {
        let text = std::fs::read_to_string(self.kubeconfig()).expect("a kubeconfig");
        serde_saphyr::from_str(&text).expect("YAML")
    }

    /// The kubeconfig of the administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.scratch.path("kubeconfig")
    }

    /// A kubeconfig with changes: `change` gets the cluster and the user of the administrator's.
    pub(crate) fn kubeconfig_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut Value, &mut Value),
    ) -> PathBuf {
        let mut config = self.kubeconfig_value();
        let mut cluster = config["clusters"][0]["cluster"].take();
        let mut user = config["users"][0]["user"].take();
        change(&mut cluster, &mut user);
        config["clusters"][0]["cluster"] = cluster;
        config["users"][0]["user"] = user;
        self.scratch
            .file(&format!("{name}.kubeconfig"), &config.to_string())
    }

    /// Creates a service account unless it exists.
    pub(crate) fn ensure_account(&self, namespace: &str, name: &str) {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
        });
        self.api
            .ensure(&request::create(SERVICE_ACCOUNTS, namespace, &account));
    }

    /// A token of the service account of `deploy/`. It becomes invalid with the Secret that `secret` names, if it does.
    pub(crate) fn account_token(&self, secret: Option<&str>) -> String {
        self.token_of(ACCOUNT, secret)
    }

    /// The same for another service account in the namespace of `deploy/`.
    pub(crate) fn token_of(&self, account: &str, secret: Option<&str>) -> String {
        let mut spec = json!({"expirationSeconds": 3600});
        if let Some(name) = secret {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            });
            let created = self.api.send(&request::create(SECRETS, NAMESPACE, &secret));
            spec["boundObjectRef"] = json!({
                "apiVersion": "v1", "kind": "Secret", "name": name, "uid": created["metadata"]["uid"],
            });
        }
        let body =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let mut token = request::create(SERVICE_ACCOUNTS, NAMESPACE, &body);
        let path = SERVICE_ACCOUNTS.object_path(NAMESPACE, account);
        token.path = format!("{path}/token");
        let answer = self.api.send(&token);
        let token = answer["status"]["token"].as_str();
        token.expect("a token").to_owned()
    }

    /// Creates the objects of a file of `deploy/` that are about permissions: service accounts, roles and bindings.
    pub(crate) fn deploy(&self, file: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../deploy")
            .join(file);
        let text = std::fs::read_to_string(path).expect("a manifest");
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).expect("YAML");
            let of_rbac = |plural| Resource {
                group: "rbac.authorization.k8s.io",
                version: "v1",
                plural,
            };
            let resource = match object["kind"].as_str().unwrap_or_default() {
                "ServiceAccount" => SERVICE_ACCOUNTS,
                "Role" => of_rbac("roles"),
                "RoleBinding" => of_rbac("rolebindings"),
                "ClusterRole" => of_rbac("clusterroles"),
                "ClusterRoleBinding" => of_rbac("clusterrolebindings"),
                kind => panic!("{file}: {kind:?} is not about permissions"),
            };
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            self.api
                .ensure(&request::create(resource, namespace, &object));
        }
    }

    /// Creates nodes `n1`, `n2` and so on with room for a number of pods, and four CPUs each.
    pub(crate) fn create_nodes(&self, nodes: usize, pods: usize) {
        let names: Vec<String> = (1..=nodes).map(|i| format!("n{i}")).collect();
        let create = names.iter().map(|name| {
            let node = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            });
            request::create(NODES, "", &node)
        });
        self.api.send_all(create.collect());
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": pods.to_string()});
        let status = json!({"status": {
            "capacity": room, "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch = names.iter().map(|name| {
            let mut patch = request::merge_patch(NODES, "", name, &status);
            patch.path.push_str("/status");
            patch
        });
        self.api.send_all(patch.collect());
        // kube-apiserver taints new nodes until a controller has seen them.
        let untainted = json!({"spec": {"taints": null}});
        let untaint = names
            .iter()
            .map(|name| request::merge_patch(NODES, "", name, &untainted));
        self.api.send_all(untaint.collect());
    }
}

fn start_etcd(assets: &Path, scratch: &Scratch, url: &str, peers: &str) -> Killed {
    let mut etcd = Command::new(assets.join("etcd"));
    etcd.arg("--data-dir")
        .arg(scratch.path("etcd"))
        .args(["--listen-client-urls", url])
        .args(["--advertise-client-urls", url])
        .args(["--listen-peer-urls", peers]);
    Killed::start(&mut etcd, &scratch.path("etcd.log"))
}

fn start_embedded(scratch: &Scratch, address: &str) -> Running {
    let mut command = Command::new(crate::BINARY);
    command
        .args(["apiserver", "--controllers", "off", "--nodes", "0"])
        .args(["--listen", address, "--metrics", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(scratch.path("data"))
        .arg("--kubeconfig")
        .arg(scratch.path("kubeconfig"));
    Running::start(&mut command)
}
