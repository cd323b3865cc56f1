//! A separate cluster for each test: the command as a child process, and the tools that use it.
//!
//! A test that uses this module names the binary in its constant `BINARY`: `berth`, or a binary with its subcommands
//! and more plugins.

// The tests use different parts of this.
#![allow(dead_code)]

pub(crate) mod https;
pub(crate) mod server;
pub(crate) mod watch_log;
pub(crate) mod webhook;

use berth_client::request::{self, PODS, Resource};
use berth_client::{ConnectOptions, Transport, connect};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit of a test, far above its normal duration.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two checks of an awaited condition.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Events as `kubectl describe` sees them.
const EVENTS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "events",
};

/// A directory that is deleted with the test.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// A fresh directory; its path contains `name`.
    pub(crate) fn new(name: &str) -> Self {
        let made = tempfile::Builder::new()
            .prefix(&format!("berth-{name}-"))
            .tempdir();
        Self(made.expect("the temporary directory can be written"))
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in it.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the temporary directory can be written");
        path
    }
}

/// A subcommand that runs until it is stopped: `up`, `apiserver` or `scheduler`. It is killed at the end of the test.
pub(crate) struct Running {
    child: Child,
    /// The output until it was ready.
    pub(crate) greeting: String,
}

impl Running {
    /// Starts the binary under test and waits until it reports that it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("berth starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (ready, greeting) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                text.push_str(&line);
                text.push('\n');
                if line.contains("Ctrl-C") {
                    let _ = ready.send(text.clone());
                }
            }
        });
        let greeting = match greeting.recv_timeout(PATIENCE) {
            Ok(greeting) => greeting,
            Err(_) => {
                let _ = child.kill();
                panic!("{command:?} is not ready after {PATIENCE:?}");
            }
        };
        Self { child, greeting }
    }

    /// The first word of the greeting that starts with `prefix`.
    pub(crate) fn greeted(&self, prefix: &str) -> String {
        self.greeting
            .split_whitespace()
            .find(|word| word.starts_with(prefix))
            .unwrap_or_else(|| panic!("no {prefix} in:\n{}", self.greeting))
            .to_owned()
    }

    /// The plain-text answer at a path, head included: `/metrics`, `/healthz`.
    pub(crate) fn http_get(&self, path: &str) -> String {
        if let Some(address) = self.secure_address() {
            return https::get(address, path, "").expect("the HTTPS port answers");
        }
        let address = self.plain_address();
        self.http_get_for(path, &address)
    }

    /// The address of the HTTPS port, if there is one.
    pub(crate) fn secure_address(&self) -> Option<&str> {
        let mut lines = self.greeting.lines();
        let serving = lines.find(|line| line.starts_with("serving"))?;
        Some(serving.split_once("https://")?.1)
    }

    /// The address of the plain port.
    fn plain_address(&self) -> String {
        let address = self.greeted("http://127.0.0.1:");
        let address = address.trim_start_matches("http://");
        address.split('/').next().unwrap_or_default().to_owned()
    }

    /// The same from the plain port, with this Host header.
    pub(crate) fn http_get_for(&self, path: &str, host: &str) -> String {
        let address = self.plain_address();
        let mut stream = TcpStream::connect(address).expect("the metrics port answers");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )
        .expect("the request is sent");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the answer is text");
        answer
    }

    /// The sum of a metric over all series whose labels contain `label`; zero when there is none.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let metrics = self.http_get("/metrics");
        let series = metrics.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            let wanted = labels.is_empty() || labels.starts_with('{');
            (wanted && labels.contains(label)).then(|| value.parse::<f64>().ok())?
        });
        series.sum()
    }

    /// The number of pods that wait in this queue of the scheduler.
    pub(crate) fn pending(&self, queue: &str) -> f64 {
        self.metric("scheduler_pending_pods", &format!("queue=\"{queue}\""))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        send_signal(signal, &self.child.id().to_string());
    }

    /// Asks it to stop with a signal and returns its exit code.
    ///
    /// # Panics
    /// When it has not stopped after [`PATIENCE`].
    pub(crate) fn stop(self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.exit_code()
    }

    /// Waits until it ends and returns its exit code.
    ///
    /// # Panics
    /// When it has not ended after [`PATIENCE`].
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        let status = eventually("berth ends", || self.child.try_wait().expect("a child"));
        status.code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago. `--secure-port 0` does not mean any port: it disables serving.
pub(crate) fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    address.port().to_string()
}

/// A cluster: a running `up`, or an `apiserver` for schedulers. Requests are sent to that process.
pub(crate) struct Cluster {
    running: Running,
    /// Everything that belongs to the test.
    pub(crate) scratch: Scratch,
}

impl Cluster {
    /// Starts a whole cluster with these further arguments and waits until it reports that it is ready.
    pub(crate) fn up(name: &str, args: &[&str]) -> Self {
        Self::start(name, "up", args)
    }

    /// Starts a control plane without scheduler.
    pub(crate) fn apiserver(name: &str, args: &[&str]) -> Self {
        Self::start(name, "apiserver", args)
    }

    fn start(name: &str, subcommand: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new(name);
        let mut command = Command::new(crate::BINARY);
        command
            .args([subcommand, "--listen", "127.0.0.1:0"])
            .args(["--metrics", "127.0.0.1:0", "--kubeconfig"])
            .arg(scratch.path("kubeconfig"))
            .args(args)
            .current_dir(&scratch.0);
        Self {
            running: Running::start(&mut command),
            scratch,
        }
    }

    /// Starts a scheduler of this cluster and waits until it has seen all of it.
    pub(crate) fn scheduler(&self, args: &[&str]) -> Running {
        let mut command = Command::new(crate::BINARY);
        command
            .args(["scheduler", "--leader-elect=false"])
            .args(["--bind-address=127.0.0.1", "--secure-port", &free_port()])
            .args(["--authorization-always-allow-paths=/*", "--kubeconfig"])
            .arg(self.kubeconfig())
            .args(args);
        let scheduler = Running::start(&mut command);
        eventually("the scheduler is ready", || {
            scheduler.http_get("/readyz").ends_with("ok").then_some(())
        });
        scheduler
    }

    /// The number of requests of these verbs that were carried out, of an `apiserver`: `["POST", "PATCH"]`.
    pub(crate) fn requests<const N: usize>(&self, verbs: [&str; N]) -> [f64; N] {
        verbs.map(|verb| {
            let of = |code| format!("code=\"{code}\",verb=\"{verb}\"");
            let count = |code| self.metric("apiserver_request_total", &of(code));
            count("200") + count("201")
        })
    }

    /// The path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.scratch.path("kubeconfig")
    }

    /// Asks it to stop with a signal and returns its exit code.
    pub(crate) fn stop(self, signal: &str) -> Option<i32> {
        self.running.stop(signal)
    }
}

impl Deref for Cluster {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

/// Polls until `look` returns a value.
///
/// # Panics
/// When it returns none within [`PATIENCE`]; the message contains `what`.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Sends a signal, such as `-TERM`, to a process. The shell does it: not every machine has a program `kill`.
pub(crate) fn send_signal(signal: &str, pid: &str) {
    let sent = Command::new("sh")
        .args(["-c", "kill \"$0\" \"$1\"", signal, pid])
        .status();
    assert!(sent.expect("sh runs").success(), "{signal} {pid}");
}

/// kubectl for one cluster, with its own discovery cache.
pub(crate) struct Kubectl {
    program: String,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// kubectl, if it is on the PATH. Without it the test is skipped, or fails if `BERTH_REQUIRE_KUBECTL=1` is set.
    pub(crate) fn find(cluster: &Cluster) -> Option<Self> {
        Self::all(cluster).into_iter().next()
    }

    /// kubectl of the PATH for commands that need no cluster, if there is one.
    pub(crate) fn program() -> Option<String> {
        let program = "kubectl".to_owned();
        let output = Command::new(&program)
            .args(["version", "--client"])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(program),
            _ => {
                eprintln!("skipped: kubectl is not on the PATH");
                None
            }
        }
    }

    /// The kubectl of the PATH and the kubectl of the variable `KUBECTL`.
    pub(crate) fn all(cluster: &Cluster) -> Vec<Self> {
        let mut programs = vec!["kubectl".to_owned()];
        programs.extend(std::env::var("KUBECTL"));
        let found: Vec<Self> = programs
            .into_iter()
            .enumerate()
            .map(|(i, program)| Self {
                program,
                kubeconfig: cluster.kubeconfig(),
                cache: cluster.scratch.path(&format!("kubectl-cache-{i}")),
            })
            .filter(|kubectl| !kubectl.version().is_empty())
            .collect();
        if found.is_empty() {
            let required = std::env::var("BERTH_REQUIRE_KUBECTL").is_ok_and(|v| v == "1");
            assert!(
                !required,
                "BERTH_REQUIRE_KUBECTL=1 is set and kubectl is not on the PATH"
            );
            eprintln!("skipped: kubectl is not on the PATH and KUBECTL is not set");
        }
        found
    }

    /// The program and its version; empty when it cannot be run.
    pub(crate) fn version(&self) -> String {
        let args = ["version", "--client", "-o", "json"];
        let output = Command::new(&self.program).args(args).output();
        // A client with an unknown version fails after it has printed the versions.
        let known: Option<Value> = output
            .ok()
            .and_then(|o| serde_json::from_slice(&o.stdout).ok());
        let Some(known) = known else {
            return String::new();
        };
        let version = &known["clientVersion"]["gitVersion"];
        format!("{} {version}", self.program)
    }

    /// A kubectl command that has not been started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(args)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command, and returns its output also after a failure.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("kubectl runs")
    }

    /// Runs a command that must succeed and returns its output.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "kubectl {args:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that must fail and returns its error message.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            !output.status.success(),
            "kubectl {args:?} succeeded: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs `get … -o json`.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).expect("kubectl prints JSON")
    }

    /// Applies a manifest.
    pub(crate) fn apply(&self, manifest: &Path) -> String {
        self.ok(&["apply", "-f", &manifest.display().to_string()])
    }
}

/// A client with its own runtime.
pub(crate) struct Api {
    /// The connection.
    pub(crate) transport: Transport,
    /// The runtime.
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl Api {
    /// Connects to a cluster.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self::at(cluster.kubeconfig())
    }

    /// Connects to the cluster of a kubeconfig.
    pub(crate) fn at(kubeconfig: PathBuf) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let transport = runtime
            .block_on(connect(&ConnectOptions {
                kubeconfig: Some(kubeconfig),
                user_agent: "berth-test".into(),
                ..ConnectOptions::default()
            }))
            .expect("the kubeconfig can be used");
        Self { transport, runtime }
    }

    /// Sends a request that must succeed.
    pub(crate) fn send(&self, request: &request::ApiRequest) -> Value {
        self.runtime
            .block_on(self.transport.request(request))
            .unwrap_or_else(|e| panic!("{}: {e}", request.describe()))
    }

    /// Sends requests that must succeed, several at a time.
    pub(crate) fn send_all(&self, requests: Vec<request::ApiRequest>) {
        const AT_ONCE: usize = 32;
        let sending = requests.into_iter().map(|request| async move {
            let answer = self.transport.execute(&request).await;
            answer.unwrap_or_else(|e| panic!("{}: {e}", request.describe()));
        });
        let sending = futures_util::stream::iter(sending).buffer_unordered(AT_ONCE);
        self.runtime.block_on(sending.collect::<()>());
    }

    /// Creates an object unless it exists.
    pub(crate) fn ensure(&self, create: &request::ApiRequest) {
        match self.runtime.block_on(self.transport.execute(create)) {
            Err(error) if error.code() != Some(409) => panic!("{}: {error}", create.describe()),
            _ => {}
        }
    }

    /// All pods.
    pub(crate) fn pods(&self) -> Vec<Value> {
        let list = self.send(&request::list(PODS, "", 0, ""));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Creates a pod with these labels in the default namespace.
    pub(crate) fn create_pod(&self, name: &str, labels: &Value) -> Value {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
        });
        self.send(&request::create(PODS, "default", &pod))
    }

    /// Sets labels of an object, and removes labels that are null.
    pub(crate) fn label(&self, resource: Resource, namespace: &str, name: &str, labels: &Value) {
        let patch = json!({"metadata": {"labels": labels}});
        self.send(&request::merge_patch(resource, namespace, name, &patch));
    }

    /// Waits until a pod of the default namespace is bound.
    pub(crate) fn bound(&self, name: &str) -> Value {
        eventually("the pod is bound", || {
            let pod = self.pod(name);
            pod["spec"]["nodeName"].is_string().then_some(pod)
        })
    }

    /// One pod of the default namespace.
    pub(crate) fn pod(&self, name: &str) -> Value {
        self.send(&request::get(PODS, "default", name))
    }

    /// An event about an object of the default namespace, by its reason.
    pub(crate) fn event(&self, object: &str, reason: &str) -> Option<Value> {
        self.events(object, reason).into_iter().next()
    }

    /// The events about an object of the default namespace with this reason.
    pub(crate) fn events(&self, object: &str, reason: &str) -> Vec<Value> {
        let mut events = self.send(&request::list(EVENTS, "", 500, ""))["items"].take();
        let about = |e: &Value| e["involvedObject"]["name"] == object && e["reason"] == reason;
        let events = events.as_array_mut().map(std::mem::take);
        events.into_iter().flatten().filter(about).collect()
    }
}

/// A time of the API, in whole seconds.
pub(crate) fn seconds(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_default();
    let time: berth_api::Time = serde_json::from_value(json!(text)).expect("a time");
    time.as_millis() / 1000
}

/// The PodScheduled condition of a pod; null when it has none.
pub(crate) fn scheduled(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "PodScheduled")
        .cloned()
        .unwrap_or_default()
}
