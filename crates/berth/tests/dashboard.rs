//! The dashboard of `berth up`: its page and its data, and the page in headless Chromium where one is installed.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "dashboard/browser.rs"]
mod browser;
mod e2e;

use berth_client::request::{self, PODS};
use browser::Page;
use e2e::{Api, Cluster, eventually, free_port, scheduled};
use serde_json::{Value, json};
use std::process::Command;

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");

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

/// One page in a browser: it shows reasons and explanations, follows changes, is used with the keyboard, and has both
/// themes. The console stays empty.
#[test]
fn a_browser_shows_reasons_and_follows_changes() {
    let cluster = Cluster::up("dashboard-browser", &["--nodes", "5"]);
    let Some(mut page) = Page::open(&cluster.scratch.path("")) else {
        return;
    };
    let api = Api::of(&cluster);
    create_huge(&api, "huge");
    let address = cluster.greeted("http://127.0.0.1:");
    page.go(&address.replace("/metrics", "/dashboard"));
    let shows = |page: &mut Page, selector: &str, text: &str| {
        eventually(&format!("{selector} shows {text:?}"), || {
            page.text(selector).contains(text).then_some(())
        });
    };
    shows(&mut page, "#status", "updated ");
    shows(&mut page, "#reasons", "NodeResourcesFit");
    shows(&mut page, "#reasons", "5 Insufficient cpu");
    shows(&mut page, "#pods", "default/huge");

    // The same page shows a change.
    create_huge(&api, "another");
    shows(&mut page, "#pods", "default/another");

    // Everything is reached with the keyboard: the search, a pod in it, its explanation, and back.
    page.key("/", 191, "/");
    assert_eq!(page.value("document.activeElement.id"), "search");
    page.types("huge");
    shows(&mut page, "#found-rows", "default/huge");
    page.key("Tab", 9, "");
    let is_pod = "document.activeElement.textContent === 'default/huge'";
    for _ in 0..20 {
        if page.value(is_pod) == true {
            break;
        }
        page.key("Tab", 9, "");
    }
    assert_eq!(page.value(is_pod), true, "Tab reaches the pod");
    page.key("Enter", 13, "\r");
    shows(&mut page, "#detail-title", "Pod default/huge");
    shows(&mut page, "#explanation", "What would free it");
    shows(&mut page, "#explanation", "CPU less");
    page.key("Escape", 27, "");
    assert_eq!(page.value("document.getElementById('detail').open"), false);

    // The heat map: an arrow key moves, Enter opens the node.
    page.value("document.getElementById('heat').focus()");
    page.key("ArrowRight", 39, "");
    shows(&mut page, "#cell", "of cpu requested");
    page.key("Enter", 13, "\r");
    shows(&mut page, "#detail-title", "Node berth-node-");
    page.key("Escape", 27, "");

    // A bound pod shows why it is on its node.
    api.create_pod("small", &Value::Null);
    api.bound("small");
    page.value("void openPod('default/small')");
    shows(&mut page, "#detail-title", "Pod default/small");
    shows(&mut page, "#explanation", "(chosen)");
    shows(&mut page, "#explanation", "NodeResourcesFit");
    page.key("Escape", 27, "");

    // A reason leads to its pods, those that all of its plugins reject.
    page.value("document.querySelector('#reasons button').click()");
    shows(&mut page, "#filter", "rejected by NodeResourcesFit");
    shows(&mut page, "#range", "1 to 2 of 2");

    // The theme follows the system, and the button overrides it.
    let background = "getComputedStyle(document.body).backgroundColor";
    page.prefers("light");
    let light = page.value(background);
    page.prefers("dark");
    let dark = page.value(background);
    assert_ne!(light, dark);
    page.value("document.getElementById('theme').focus()");
    page.key("Enter", 13, "\r");
    assert_eq!(page.text("#theme"), "Theme: light");
    assert_eq!(page.value(background), light);
    assert_eq!(page.console, Vec::<String>::new());
}
