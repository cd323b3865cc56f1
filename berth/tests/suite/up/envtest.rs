//! Berth as a replacement for envtest's etcd and kube-apiserver, used as controller-runtime's pkg/envtest uses them:
//! the same flags and files, the same health checks, SIGTERM at the end.

use super::berth;
use crate::BINARY;
use crate::e2e::{self, Api, PATIENCE, Scratch, eventually, free_port, https, send_signal};
use berth_client::request::{self, PODS, Resource};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const ACCOUNTS: Resource = e2e::server::SERVICE_ACCOUNTS;
const NAMESPACES: Resource = e2e::server::core("namespaces");

/// A process that ends with the test.
struct Program(Child);

impl Program {
    fn start(assets: &Path, name: &str, args: &[String], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(assets.join(name));
        let child = command
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.unwrap_or_else(|e| panic!("{name}: {e}")))
    }

    /// Stops it as envtest does, and returns its exit code and its log.
    fn stop(mut self) -> (Option<i32>, String) {
        let pid = self.0.id().to_string();
        send_signal("-TERM", &pid);
        let mut log = String::new();
        let mut errors = self.0.stderr.take().expect("it is piped");
        errors.read_to_string(&mut log).expect("text");
        let status = eventually("it ends", || self.0.try_wait().expect("a child"));
        (status.code(), log)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A certificate authority, as envtest makes them: one for serving and one for clients.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "envtest-environment");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "envtest");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn issue(
        &self,
        name: &str,
        groups: &[&str],
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> (String, String) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// The fields of envtest's Environment after its start.
struct Environment {
    scratch: Scratch,
    address: String,
    serving: Authority,
    clients: Authority,
    etcd: Program,
    apiserver: Program,
}

fn plain_get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

impl Environment {
    /// Starts both programs with these further flags and variables.
    fn start(name: &str, flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new(name);
        let assets = scratch.path("assets");
        let written = berth(&["envtest", &assets.display().to_string()]);
        let printed = String::from_utf8_lossy(&written.stdout).into_owned();
        assert!(written.status.success(), "{written:?}");
        assert_eq!(
            printed,
            format!("export KUBEBUILDER_ASSETS={}\n", assets.display())
        );
        let etcd_address = format!("127.0.0.1:{}", free_port());
        let etcd_url = format!("http://{etcd_address}");
        let etcd = Program::start(
            &assets,
            "etcd",
            &[
                format!("--advertise-client-urls={etcd_url}"),
                format!("--data-dir={}", scratch.path("etcd").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()),
            ],
            &[],
        );
        let health = eventually("etcd is healthy", || plain_get(&etcd_address, "/health"));
        assert!(health.starts_with("HTTP/1.1 200"), "{health}");
        assert!(health.contains("\"health\":\"true\""), "{health}");

        let (serving, clients) = (Authority::new(), Authority::new());
        let (certificate, key) = serving.issue(
            "localhost",
            &["envtest"],
            &["localhost", "127.0.0.1"],
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        scratch.file("apiserver.crt", &certificate);
        scratch.file("apiserver.key", &key);
        scratch.file("client-cert-auth-ca.crt", &clients.pem);
        let accounts = Authority::new();
        scratch.file("sa-signer.crt", &accounts.pem);
        scratch.file("sa-signer.key", &accounts.issuer.key().serialize_pem());
        let port = free_port();
        let dir = scratch.path("").display().to_string();
        let dir = dir.trim_end_matches('/');
        let mut args = vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={dir}"),
            format!("--client-ca-file={dir}/client-cert-auth-ca.crt"),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--etcd-servers={etcd_url}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={dir}/sa-signer.crt"),
            format!("--service-account-signing-key-file={dir}/sa-signer.key"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let apiserver = Program::start(&assets, "kube-apiserver", &args, variables);
        let environment = Self {
            scratch,
            address: format!("127.0.0.1:{port}"),
            serving,
            clients,
            etcd,
            apiserver,
        };
        for path in ["/healthz", "/readyz"] {
            let answer = eventually("the API server is healthy", || {
                https::get(&environment.address, path, "")
            });
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
        environment
    }

    /// A kubeconfig with these credentials. The certificate of the server is checked.
    fn kubeconfig(&self, name: &str, user: &Value) -> PathBuf {
        self.scratch.file("serving-ca.crt", &self.serving.pem);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority": self.scratch.path("serving-ca.crt"),
            }}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "c",
        });
        self.scratch
            .file(&format!("{name}.kubeconfig"), &config.to_string())
    }

    /// A client with a certificate for a user, as envtest's AddUser makes it.
    fn user(&self, name: &str, groups: &[&str]) -> Api {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let (certificate, key) = self.clients.issue(name, groups, &[], usage);
        let certificate = self.scratch.file(&format!("{name}.crt"), &certificate);
        let key = self.scratch.file(&format!("{name}.key"), &key);
        let user = json!({"client-certificate": certificate, "client-key": key});
        Api::at(self.kubeconfig(name, &user))
    }

    fn admin(&self) -> Api {
        self.user("admin", &["system:masters"])
    }

    /// Stops both programs, the API server first, and returns the logs.
    fn stop(self) -> (String, String) {
        let (code, apiserver) = self.apiserver.stop();
        assert_eq!(code, Some(0), "{apiserver}");
        let (code, etcd) = self.etcd.stop();
        assert_eq!(code, Some(0), "{etcd}");
        (apiserver, etcd)
    }
}

fn refusal(api: &Api, request: &request::ApiRequest) -> (Option<u16>, String) {
    let answer = api.runtime.block_on(api.transport.execute(request));
    match answer {
        Ok(_) => panic!("{} succeeded", request.describe()),
        Err(error) => (error.code(), error.to_string()),
    }
}

#[test]
fn a_bare_control_plane_with_the_users_and_keys_of_envtest() {
    let environment = Environment::start(
        "envtest-bare",
        &[
            "--feature-gates=AllAlpha=true",
            "--runtime-config=api/all=true",
        ],
        &[],
    );
    let admin = environment.admin();
    for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        admin.send(&request::get(NAMESPACES, "", namespace));
    }
    let services = e2e::server::core("services");
    admin.send(&request::get(services, "default", "kubernetes"));
    // The service account of the namespace does not exist, and pods need none.
    let default = request::get(ACCOUNTS, "default", "default");
    assert_eq!(refusal(&admin, &default).0, Some(404));
    let pod = admin.create_pod("lonely", &Value::Null);
    assert!(pod["spec"]["serviceAccountName"].is_null(), "{pod}");

    // Other users have the permissions of their roles.
    let dev = environment.user("dev", &["developers"]);
    let (code, message) = refusal(&dev, &request::list(PODS, "default", 0, ""));
    assert_eq!(code, Some(403));
    assert!(
        message.contains("User \"dev\" cannot list resource \"pods\""),
        "{message}"
    );

    // Tokens are signed with the key of the files.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                         "metadata": {"name": "robot", "namespace": "default"}});
    admin.send(&request::create(ACCOUNTS, "default", &account));
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let mut ask = request::create(ACCOUNTS, "default", &review);
    ask.path.push_str("/robot/token");
    let answer = admin.send(&ask);
    let issuer = format!("https://{}/", environment.address);
    assert_eq!(answer["spec"]["audiences"], json!([issuer]));
    let user = json!({"token": answer["status"]["token"]});
    let robot = Api::at(environment.kubeconfig("robot", &user));
    let (code, message) = refusal(&robot, &request::list(PODS, "default", 0, ""));
    assert_eq!(code, Some(403));
    assert!(
        message.contains("User \"system:serviceaccount:default:robot\" cannot list"),
        "{message}"
    );

    let (apiserver, etcd) = environment.stop();
    for part in [
        "--etcd-servers: Berth keeps the objects in memory",
        "--feature-gates, --runtime-config: Berth serves the versions",
        "serving in the place of kube-apiserver",
    ] {
        assert!(apiserver.contains(part), "no {part:?} in {apiserver}");
    }
    assert!(etcd.contains("--data-dir"), "{etcd}");
}

#[test]
fn the_environment_adds_controllers_nodes_and_a_scheduler() {
    let environment = Environment::start(
        "envtest-full",
        &[],
        &[
            ("BERTH_CONTROLLERS", "on"),
            ("BERTH_NODES", "2"),
            ("BERTH_SCHEDULER", "on"),
        ],
    );
    let admin = environment.admin();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
            },
        },
    });
    admin.send(&request::create(super::DEPLOYMENTS, "default", &deployment));
    eventually("three pods run", || {
        let pods = admin.pods();
        let running = pods.iter().filter(|p| p["status"]["phase"] == "Running");
        (running.count() == 3).then_some(())
    });
    environment.stop();
}

#[test]
fn wrong_flags_and_foreign_programs_are_refused() {
    let scratch = Scratch::new("envtest-wrong");
    let assets = scratch.path("assets");
    let dir = assets.display().to_string();
    assert!(berth(&["envtest", &dir]).status.success());
    let run = |args: &[&str]| {
        let output = Command::new(assets.join("kube-apiserver"))
            .args(args)
            .output();
        let output = output.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, _, error) = run(&["--secure-prot=1"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("'--secure-port'"), "{error}");
    let (code, _, error) = run(&["--authorization-mode=Webhook"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("--authorization-mode"), "{error}");
    let (code, printed, _) = run(&["--version"]);
    assert_eq!(code, Some(0));
    assert!(printed.starts_with("Kubernetes v1.36."), "{printed}");

    // The links are replaced again; a program of another origin is not.
    assert!(berth(&["envtest", &dir]).status.success());
    let etcd = assets.join("etcd");
    std::fs::remove_file(&etcd).expect("a link");
    std::fs::write(&etcd, "another etcd").expect("a file");
    let refused = berth(&["envtest", &dir]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("--force"), "{error}");
    assert!(
        berth(&["envtest", &dir, "--force", "--copy"])
            .status
            .success()
    );
    let (own, copied) = (std::fs::read(BINARY), std::fs::read(&etcd));
    assert_eq!(own.expect("berth").len(), copied.expect("a copy").len());
}
