//! The dashboard of `berth up`: its page and its data, and the page in headless Chromium where one is installed.

mod browser;
use crate::BINARY;
use crate::e2e::{Api, Cluster, eventually, free_port, scheduled};
use berth_client::request::{self, PODS};
use browser::Page;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

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
    let scheduler = crate::e2e::Running::start(&mut command);
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
    let address = dashboard_of(&cluster);
    page.go(&address);
    shows(&mut page, "#status", "updated ");
    shows(&mut page, "#health", "1 pod does not fit");
    shows(&mut page, "#groups", "cpu (5)");
    shows(&mut page, "#groups", "5 Insufficient cpu");
    shows(&mut page, "#pods", "default/huge");

    // The same page shows a change: the rows stay the same elements, and the focus stays.
    page.value("window.row = document.querySelector('#pods tbody tr'); document.querySelector('#pods a').focus()");
    create_huge(&api, "another");
    shows(&mut page, "#pods", "default/another");
    assert_eq!(page.value("window.row.isConnected"), true);
    assert_eq!(
        page.value("document.activeElement.textContent"),
        "default/huge"
    );
    shows(&mut page, "#groups td", "2");

    // Everything is reached with the keyboard: the search, a pod in it, its explanation, and back.
    page.value("document.activeElement.blur()");
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
    assert_eq!(page.value("location.hash"), "#/pod/default/huge");
    page.value("history.back()");
    eventually("Back leads to the overview", || {
        (page.value("document.getElementById('overview').hidden") == false).then_some(())
    });

    // The heat map: an arrow key moves, Enter opens the node.
    page.value("document.getElementById('heat').focus()");
    page.key("ArrowRight", 39, "");
    shows(&mut page, "#cell", "of cpu requested");
    page.key("Enter", 13, "\r");
    shows(&mut page, "#detail-title", "Node berth-node-");
    shows(&mut page, "#detail-body", "0 CPU of 4 CPU");
    page.key("Escape", 27, "");

    // A bound pod has an address: it shows why the pod is on its node.
    api.create_pod("small", &Value::Null);
    api.bound("small");
    page.value("location.hash = '#/pod/default/small'");
    shows(&mut page, "#detail-title", "Pod default/small");
    shows(&mut page, "#explanation", "(chosen)");
    shows(&mut page, "#explanation", "NodeResourcesFit");
    page.key("Escape", 27, "");

    // Filters by reason: a code, and a plugin that rejects no pod.
    for (reason, text) in [
        ("InsufficientResource", "default/huge"),
        ("TaintToleration", "No pod waits."),
    ] {
        let set = format!(
            "document.getElementById('reason').value = {reason:?}; \
             document.getElementById('reason').dispatchEvent(new Event('input'))"
        );
        page.value(&set);
        shows(&mut page, "#groups", text);
    }

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

fn dashboard_of(cluster: &Cluster) -> String {
    let address = cluster.greeted("http://127.0.0.1:");
    address.replace("/metrics", "/dashboard")
}

fn shows(page: &mut Page, selector: &str, text: &str) {
    eventually(&format!("{selector} shows {text:?}"), || {
        page.text(selector).contains(text).then_some(())
    });
}

/// No part of the page is wider than the window of a phone, a laptop and a large screen; the whole width is used. A
/// refresh does not scroll. Every control has a name, every heading and table cell a head.
#[test]
fn the_page_fits_on_small_and_large_screens() {
    let cluster = Cluster::up("dashboard-sizes", &["--nodes", "60"]);
    let Some(mut page) = Page::open(&cluster.scratch.path("")) else {
        return;
    };
    let api = Api::of(&cluster);
    let name = "a-pod-with-a-name-as-long-as-generated-names-of-deployments-are-7d4b9c6f5d-x2x4z";
    create_huge(&api, name);
    let address = dashboard_of(&cluster);
    for (width, height) in [(390, 844), (1366, 768), (1920, 1080)] {
        page.resize(width, height);
        for part in [
            "",
            &format!("#/pod/default/{name}"),
            "#/nodes",
            "#/node/berth-node-1",
        ] {
            page.go("about:blank");
            page.go(&format!("{address}{part}"));
            let (element, text) = match part {
                "" => ("#groups", name),
                _ => ("#detail-body", ""),
            };
            shows(&mut page, "#status", "updated ");
            shows(&mut page, element, text);
            eventually(&format!("{part} fits into {width} pixels"), || {
                let fits = page.value("document.documentElement.scrollWidth <= window.innerWidth");
                (fits == true).then_some(())
            });
        }
        page.go("about:blank");
        page.go(&address);
        shows(&mut page, "#groups", name);
        let used = page.value(
            "document.getElementById('overview').getBoundingClientRect().width / window.innerWidth",
        );
        assert!(used.as_f64() > Some(0.95), "{width}: {used}");
        // The place on the page stays when the data is refreshed.
        let updated = page.text("#status");
        page.value("window.scrollTo(0, 300)");
        let place = page.value("window.scrollY");
        eventually("the data is refreshed", || {
            (page.text("#status") != updated).then_some(())
        });
        assert_eq!(page.value("window.scrollY"), place, "{width}");
    }
    if std::env::var("BERTH_WRITE_DOCS").is_ok_and(|value| value == "1") {
        write_pictures(&mut page, &address, name);
    }
    let nameless = page.value(
        "[...document.querySelectorAll('input,select,button,canvas,a')].filter(e => !(e.labels?.length || e.ariaLabel \
         || e.textContent.trim())).map(e => e.outerHTML.slice(0, 80))",
    );
    assert_eq!(nameless, json!([]));
    let headless = page
        .value("[...document.querySelectorAll('td')].filter(e => !('head' in e.dataset)).length");
    assert_eq!(headless, 0);
}

/// The accessibility rules of axe-core, on the overview and on the pages, in both themes. The variable `BERTH_AXE`
/// names axe.min.js (npm install axe-core); without it the test is skipped.
#[test]
fn axe_finds_no_violation() {
    let Ok(axe) = std::env::var("BERTH_AXE") else {
        eprintln!("skipped: BERTH_AXE does not name axe.min.js of axe-core");
        return;
    };
    let axe = std::fs::read_to_string(axe).expect("axe.min.js");
    let cluster = Cluster::up("dashboard-axe", &["--nodes", "3"]);
    let Some(mut page) = Page::open(&cluster.scratch.path("")) else {
        return;
    };
    create_huge(&Api::of(&cluster), "huge");
    let address = dashboard_of(&cluster);
    for theme in ["light", "dark"] {
        page.prefers(theme);
        for (part, selector, text) in [
            ("", "#groups", "default/huge"),
            ("#/pod/default/huge", "#explanation", "What would free it"),
            ("#/node/berth-node-1", "#detail-body", "Resources"),
            ("#/nodes", "#detail-body", "berth-node-3"),
        ] {
            page.go("about:blank");
            page.go(&format!("{address}{part}"));
            shows(&mut page, selector, text);
            page.value(&format!("{axe};0"));
            let found = page.resolved(
                "axe.run().then(found => found.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 120)).join(' | ')))",
            );
            assert_eq!(found, json!([]), "{theme} {part}");
        }
    }
}

/// The pictures of docs/use/dashboard.md.
fn write_pictures(page: &mut Page, address: &str, pod: &str) {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    page.resize(1366, 1200);
    for (theme, part, file, selector) in [
        ("light", String::new(), "dashboard-light.png", "#groups"),
        ("dark", String::new(), "dashboard-dark.png", "#groups"),
        (
            "light",
            format!("#/pod/default/{pod}"),
            "dashboard-pod.png",
            "#explanation",
        ),
    ] {
        page.prefers(theme);
        page.go("about:blank");
        page.go(&format!("{address}{part}"));
        shows(page, "#status", "updated ");
        shows(page, selector, if part.is_empty() { "cpu" } else { "CPU" });
        page.screenshot(&images.join(file));
    }
    page.prefers("light");
    page.go("about:blank");
    page.go(address);
    shows(page, "#groups", pod);
}

/// Data that is not refreshed is greyed and has its time.
#[test]
fn data_is_greyed_when_the_scheduler_is_gone() {
    let cluster = Cluster::up("dashboard-stale", &["--nodes", "1"]);
    let Some(mut page) = Page::open(&cluster.scratch.path("")) else {
        return;
    };
    page.go(&dashboard_of(&cluster));
    shows(&mut page, "#status", "updated ");
    drop(cluster);
    shows(&mut page, "#status", "the data is of ");
    assert_eq!(
        page.value("document.body.classList.contains('stale')"),
        true
    );
}
