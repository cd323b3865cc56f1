//! The dashboard of `berth up`: its page and its data, and the page in headless Chromium where one is installed.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod e2e;

use berth_client::request::{self, PODS};
use e2e::{Api, Cluster, eventually, free_port, scheduled};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");

/// The names under which Chromium is installed.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

fn data(cluster: &Cluster, path: &str) -> Value {
    let answer = cluster.http_get(path);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains("application/json"), "{head}");
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"))
}

fn create_huge(api: &Api, name: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": "1k"}}}]},
    });
    api.send(&request::create(PODS, "default", &pod));
    eventually("the pod has a reason", || {
        (scheduled(&api.pod(name))["reason"] == "Unschedulable").then_some(())
    });
}

#[test]
fn the_page_and_its_data_are_served_read_only() {
    let cluster = Cluster::up("dashboard", &["--nodes", "3"]);
    let api = Api::of(&cluster);
    api.create_pod("small", &Value::Null);
    api.bound("small");
    create_huge(&api, "huge");
    let page = cluster.http_get("/dashboard");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    for header in [
        "content-security-policy: default-src 'none'",
        "x-content-type-options: nosniff",
    ] {
        assert!(page.to_ascii_lowercase().contains(header), "{header}");
    }
    assert!(page.contains("<title>Berth</title>"));
    let state = eventually("the state shows the pod", || {
        let state = data(&cluster, "/dashboard/state");
        (state["queue"]["unschedulable"] == 1).then_some(state)
    });
    assert_eq!(state["nodes"], 3);
    assert_eq!(state["reasons"]["rows"][0]["example"], "default/huge");
    let heat = data(&cluster, "/dashboard/heat?resource=pods");
    assert_eq!(heat["cells"].as_array().map(Vec::len), Some(3), "{heat}");
    let pods = data(&cluster, "/dashboard/pods?search=huge");
    assert_eq!(pods["total"], 1);
    let pod = data(&cluster, "/dashboard/pod?name=default/huge");
    assert_eq!(pod["reasons"][0]["text"], "Insufficient cpu", "{pod}");
    assert!(
        cluster
            .http_get("/dashboard/nothing")
            .starts_with("HTTP/1.1 404")
    );
}

/// A page of another site that reaches the port under its own name (DNS rebinding) gets nothing.
#[test]
fn the_plain_port_names_no_pods_to_requests_for_another_host() {
    let cluster = Cluster::up("dashboard-host", &["--nodes", "1"]);
    for path in ["/dashboard", "/dashboard/state", "/explain/queue"] {
        let answer = cluster.http_get_for(path, "rebound.example:10251");
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        let answer = cluster.http_get_for(path, "localhost:10251");
        assert!(!answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
}

/// The HTTPS port serves the page and its data only to users who may read them.
#[test]
fn the_https_port_authorizes_the_dashboard_like_metrics() {
    let cluster = Cluster::apiserver("dashboard-https", &["--nodes", "1"]);
    let port = free_port();
    let mut command = Command::new(BINARY);
    command
        .args([
            "scheduler",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ])
        .args(["--secure-port", &port, "--kubeconfig"])
        .arg(cluster.kubeconfig());
    let scheduler = e2e::Running::start(&mut command);
    for path in ["/metrics", "/dashboard", "/dashboard/state"] {
        let answer = scheduler.http_get(path);
        assert!(
            answer.contains(" 401 ") || answer.contains(" 403 "),
            "{path}: {answer}"
        );
    }
    drop(scheduler);
    let open = cluster.scheduler(&[]);
    assert!(open.http_get("/dashboard").contains("<title>Berth</title>"));
    assert!(open.http_get("/dashboard/state").contains("\"queue\""));
}

/// What Chromium shows of a page after some seconds, and what its console says.
fn browse(browser: &str, url: &str, profile: &Path) -> (String, String) {
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--log-level=0",
        ])
        .args([
            "--virtual-time-budget=8000",
            "--window-size=1280,1600",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .output()
        .expect("the browser runs");
    let console = String::from_utf8_lossy(&output.stderr);
    let console = console.lines().filter(|line| line.contains("CONSOLE"));
    let console: Vec<&str> = console.collect();
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        console.join("\n"),
    )
}

#[test]
fn a_browser_shows_reasons_and_follows_changes() {
    let runs = |browser: &&&str| {
        let version = Command::new(browser).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let Some(browser) = BROWSERS.iter().find(runs) else {
        eprintln!("skipped: none of {BROWSERS:?} is on the PATH");
        return;
    };
    let cluster = Cluster::up("dashboard-browser", &["--nodes", "5"]);
    let api = Api::of(&cluster);
    create_huge(&api, "huge");
    let address = cluster.greeted("http://127.0.0.1:");
    let url = address.replace("/metrics", "/dashboard");
    let profile = cluster.scratch.path("chromium");
    let shows = |texts: &[&str]| {
        let (page, console) = browse(browser, &url, &profile);
        assert_eq!(console, "", "the console is empty");
        texts.iter().all(|text| page.contains(text))
    };
    let reasons = [
        "default/huge",
        "NodeResourcesFit",
        "5 Insufficient cpu",
        "updated ",
    ];
    eventually("the page shows the reasons", || {
        shows(&reasons).then_some(())
    });
    create_huge(&api, "another");
    eventually("the page shows the new pod", || {
        shows(&["default/another"]).then_some(())
    });
}
