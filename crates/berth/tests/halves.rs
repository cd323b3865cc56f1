//! `berth apiserver` and `berth scheduler` as two processes: the scheduler has no way in but the API.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// One half, killed with the test.
struct Half {
    child: Child,
    greeting: String,
}

impl Half {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("berth starts");
        let mut greeting = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            greeting.push_str(&line);
            greeting.push('\n');
            if line.contains("Ctrl-C") {
                break;
            }
        }
        assert!(greeting.contains("Ctrl-C"), "it is ready: {greeting}");
        Self { child, greeting }
    }

    /// Asks the plain endpoint.
    fn get(&self, path: &str) -> String {
        let address = self
            .greeting
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .expect("it says where its metrics are");
        let mut stream = TcpStream::connect(address).expect("it answers");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout can be set");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )
        .expect("the request is sent");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("the answer is text");
        answer
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_scheduler_of_its_own_schedules_and_takes_over_from_one_that_was_killed() {
    let dir = std::env::temp_dir().join(format!("berth-halves-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
    let kubeconfig: PathBuf = dir.join("kubeconfig");
    let kubeconfig = kubeconfig.display().to_string();
    let server = Half::start(&[
        "apiserver",
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--nodes",
        "3",
        "--kubeconfig",
        &kubeconfig,
    ]);
    assert!(server.get("/healthz").ends_with("ok"));
    assert!(
        server
            .get("/metrics")
            .contains("apiserver_storage_objects{resource=\"nodes\"} 3")
    );

    let start = || {
        Half::start(&[
            "scheduler",
            "--kubeconfig",
            &kubeconfig,
            "--metrics",
            "127.0.0.1:0",
        ])
    };
    let scheduled = |half: &Half, pods: usize| {
        let line = format!(
            "scheduler_schedule_attempts_total{{profile=\"default-scheduler\",result=\"scheduled\"}} {pods}\n"
        );
        let begun = Instant::now();
        while !half.get("/metrics").contains(&line) {
            assert!(begun.elapsed() < PATIENCE, "{pods} pods are scheduled");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let create = |from: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime starts");
        runtime.block_on(async {
            let transport = berth_client::connect(&berth_client::ConnectOptions {
                kubeconfig: Some(kubeconfig.clone().into()),
                user_agent: "berth-test".to_owned(),
                ..berth_client::ConnectOptions::default()
            })
            .await
            .expect("the kubeconfig can be used");
            for index in from..from + 5 {
                let pod = serde_json::json!({
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": format!("pod-{index}"), "namespace": "default"},
                    "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
                });
                let request =
                    berth_client::request::create(berth_client::request::PODS, "default", &pod);
                transport
                    .execute(&request)
                    .await
                    .expect("the pod is created");
            }
        });
    };
    let first = start();
    assert!(first.get("/healthz").ends_with("ok"));
    create(0);
    scheduled(&first, 5);
    // Dropping kills: nothing is told to anybody.
    drop(first);
    create(5);
    let second = start();
    // The five that wait, and none of the five that were bound before.
    scheduled(&second, 5);
    assert!(
        second
            .get("/metrics")
            .contains("scheduler_pending_pods{queue=\"active\"} 0")
    );
    drop(second);
    drop(server);
    let _ = std::fs::remove_dir_all(&dir);
}
