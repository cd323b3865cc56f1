//! The dashboard of `berth up`: its page and its data, and the page in headless Chromium where one is installed.

pub(crate) mod browser;
use crate::BINARY;
use crate::e2e::{Api, Cluster, eventually, free_port, scheduled};
use berth_client::request::{self, PODS, Resource};
use browser::Page;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const POD_GROUPS: Resource = Resource {
    group: "scheduling.k8s.io",
    version: "v1beta1",
    plural: "podgroups",
};

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
    assert_eq!(state["oldest"]["pod"], "default/huge");
    let heat = data(&cluster, "/dashboard/heat?resource=pods");
    assert_eq!(heat["cells"].as_array().map(Vec::len), Some(3), "{heat}");
    let pods = data(&cluster, "/dashboard/pods?place=unschedulable");
    assert_eq!(pods["total"], 1);
    let pod = data(&cluster, "/dashboard/pod?name=default/huge");
    assert_eq!(pod["reasons"][0]["text"], "Insufficient cpu", "{pod}");
    assert!(
        cluster
            .http_get("/dashboard/nothing")
            .starts_with("HTTP/1.1 404")
    );
}

/// A page of another site that reaches the port under its own name (DNS rebinding) is refused.
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
    shows(&mut page, "#numbers", "1 rejected");
    shows(&mut page, "#waiting", "none in default");
    shows(&mut page, "#waiting", "1,000 CPU requested, at most ");
    shows(&mut page, "#waiting", " free: 5 nodes");
    // A few nodes are shown by name, with the requested amount.
    shows(&mut page, "#named", "berth-node-5");
    shows(&mut page, "#named", "0 of ");

    // The same page shows a change: the rows stay the same elements, and the focus stays.
    page.value("window.row = document.querySelector('#waiting tbody tr'); document.querySelector('#waiting a').focus()");
    create_huge(&api, "another");
    shows(&mut page, "#numbers", "2 rejected");
    assert_eq!(page.value("window.row.isConnected"), true);
    page.value("location.hash = '#/pods'");
    shows(&mut page, "#detail-body", "default/another");
    page.value("history.back()");

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

    // A node is opened from the overview.
    shows(&mut page, "#named", "berth-node-2");
    page.value("document.querySelectorAll('#named a')[1].focus()");
    page.key("Enter", 13, "\r");
    shows(&mut page, "#detail-title", "Node berth-node-");
    shows(&mut page, "#detail-body", "Allocatable");
    page.key("Escape", 27, "");

    // A bound pod has an address: it shows why the pod is on its node.
    api.create_pod("small", &Value::Null);
    api.bound("small");
    page.value("location.hash = '#/pod/default/small'");
    shows(&mut page, "#detail-title", "Pod default/small");
    shows(&mut page, "#explanation", "(chosen)");
    shows(&mut page, "#explanation", "NodeResourcesFit");
    page.key("Escape", 27, "");

    // Filters by reason: a code, and a plugin that rejects no pod. They are part of the address.
    for (reason, text) in [
        ("InsufficientResource", "huge"),
        ("TaintToleration", "No waiting pod matches the filters."),
    ] {
        let set = format!(
            "document.getElementById('reason').value = {reason:?}; \
             document.getElementById('reason').dispatchEvent(new Event('input'))"
        );
        page.value(&set);
        shows(&mut page, "#waiting", text);
        eventually("the filter is part of the address", || {
            (page.value("location.hash") == format!("#/?reason={reason}")).then_some(())
        });
    }
    page.go("about:blank");
    page.go(&format!("{address}#/?reason=NodeCordoned"));
    shows(&mut page, "#waiting", "No waiting pod matches the filters.");
    assert_eq!(
        page.value("document.getElementById('reason').value"),
        "NodeCordoned"
    );

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

/// A member of a group that cannot start: the overview has a row of the group, and the page of the member lists the
/// changes with which the group can start.
#[test]
fn a_group_has_a_row_and_its_members_show_what_lets_it_start() {
    let cluster = Cluster::up("dashboard-groups", &["--nodes", "1"]);
    let Some(mut page) = Page::open(&cluster.scratch.path("")) else {
        return;
    };
    let api = Api::of(&cluster);
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "ring"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    });
    api.send(&request::create(POD_GROUPS, "default", &group));
    for name in ["ring-0", "ring-1"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "schedulingGroup": {"podGroupName": "ring"},
                "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": "3"}}}],
            },
        });
        api.send(&request::create(PODS, "default", &pod));
    }
    let address = dashboard_of(&cluster);
    page.go(&address);
    shows(&mut page, "#waiting", "PodGroup/ring");
    shows(
        &mut page,
        "#waiting",
        "2 must start together; 0 of 2 have a node",
    );
    shows(
        &mut page,
        "#waiting",
        "3 CPU requested, too little free with the other members: 1 node",
    );
    page.go("about:blank");
    page.go(&format!("{address}#/pod/default/ring-1"));
    shows(
        &mut page,
        "#explanation",
        "lower minCount of podgroup ring to 1",
    );
    shows(&mut page, "#explanation", "Members (2)");
    // No change is proposed for the pod alone.
    assert!(!page.text("#detail-body").contains("What would free it"));
    assert!(!page.text("#detail-body").contains("CPU less"));
    let link = "document.querySelector('#detail-body a[href^=\"#/group\"]')";
    assert_eq!(page.value(&format!("{link}.textContent")), "PodGroup/ring");
    page.value(&format!("{link}.click()"));
    shows(&mut page, "#detail-title", "PodGroup default/ring");
    shows(&mut page, "#detail-body", "default/ring-0");
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
    for (width, height) in [(390, 844), (1280, 800), (1920, 1080), (2560, 1440)] {
        page.resize(width, height);
        for part in [
            "",
            &format!("#/pod/default/{name}"),
            "#/pods",
            "#/calls",
            "#/nodes",
            "#/node/berth-node-1",
        ] {
            page.go("about:blank");
            page.go(&format!("{address}{part}"));
            let (element, text) = match part {
                "" => ("#waiting", name),
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
        shows(&mut page, "#waiting", name);
        let used = page.value(
            "document.getElementById('overview').getBoundingClientRect().width / window.innerWidth",
        );
        assert!(used.as_f64() > Some(0.95), "{width}: {used}");
        // No row of charts has fewer charts than the others, and lines of the table are short enough to be read.
        shows(&mut page, "#history", "Queue to node");
        let rows = page.value(
            "Object.values(Object.groupBy(document.getElementById('history').children, e => e.offsetTop)).map(row => row.length)",
        );
        let rows = rows.as_array().expect("rows");
        assert!(rows.iter().all(|row| *row == rows[0]), "{width}: {rows:?}");
        let table =
            page.value("document.querySelector('#waiting table').getBoundingClientRect().width");
        assert!(table.as_f64() < Some(1_900.0), "{width}: {table}");
        // The place on the page stays when the data is refreshed.
        let updated = page.text("#status");
        page.value("window.scrollTo(0, 300)");
        let place = page.value("window.scrollY");
        eventually("the data is refreshed", || {
            (page.text("#status") != updated).then_some(())
        });
        assert_eq!(page.value("window.scrollY"), place, "{width}");
    }
    // The heat map: an arrow key moves, Enter opens the node.
    page.value("document.getElementById('heat').focus()");
    page.key("ArrowRight", 39, "");
    shows(&mut page, "#cell", "of cpu requested");
    page.key("Enter", 13, "\r");
    shows(&mut page, "#detail-title", "Node berth-node-");
    page.key("Escape", 27, "");
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
            ("", "#waiting", "huge"),
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

/// Writes the pictures of docs/use/dashboard.md, with `BERTH_WRITE_DOCS=1`.
#[test]
fn pictures_of_the_documentation() {
    if std::env::var("BERTH_WRITE_DOCS").is_err() {
        return;
    }
    let cluster = Cluster::up("dashboard-pictures", &["--nodes", "12"]);
    let mut page = Page::open(&cluster.scratch.path("")).expect("a browser");
    let api = Api::of(&cluster);
    let deployments = Resource {
        group: "apps",
        version: "v1",
        plural: "deployments",
    };
    let create = |resource, object: &Value| {
        api.send(&request::create(resource, "default", object));
    };
    let container = |cpu: &str, memory: &str| json!([{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]);
    for (name, replicas, cpu, memory, selector) in [
        ("checkout", 26, "1200m", "1Gi", json!({})),
        ("recommendations", 4, "6", "2Gi", json!({})),
        ("search-index", 8, "500m", "48Gi", json!({})),
        ("crawler", 3, "200m", "1Gi", json!({"disk": "ssd"})),
    ] {
        let labels = json!({"app": name});
        let spec = json!({"containers": container(cpu, memory), "nodeSelector": selector});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        });
        create(deployments, &deployment);
    }
    create(
        POD_GROUPS,
        &json!({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "train"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 12}}},
        }),
    );
    for at in 0..12 {
        let mut spec = json!({"containers": container("3", "8Gi")});
        spec["schedulingGroup"] = json!({"podGroupName": "train"});
        let metadata = json!({"name": format!("train-{at}")});
        create(
            PODS,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        );
    }
    for at in 0..4 {
        let mut spec = json!({"containers": container("1", "1Gi")});
        spec["schedulingGates"] = json!([{"name": "example.com/quota"}]);
        let metadata = json!({"name": format!("nightly-{at}")});
        create(
            PODS,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}),
        );
    }
    let address = dashboard_of(&cluster);
    page.resize(1366, 980);
    page.go(&address);
    eventually("the charts have lines", || {
        let history = data(&cluster, "/dashboard/history");
        (history["samples"].as_array().map(Vec::len) > Some(8)).then_some(())
    });
    for text in [
        "Deployment/crawler",
        "3 rejected",
        "12 must start",
        "4 gated",
    ] {
        shows(&mut page, "#waiting", text);
    }
    let oldest = data(&cluster, "/dashboard/waiting?owner=search-index");
    let pod = oldest["rows"][0]["oldest"].as_str().expect("a pod");
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    for (theme, part, file, selector, text) in [
        (
            "light",
            String::new(),
            "dashboard-light.png",
            "#history",
            "p99",
        ),
        (
            "dark",
            String::new(),
            "dashboard-dark.png",
            "#history",
            "p99",
        ),
        (
            "light",
            format!("#/pod/{pod}"),
            "dashboard-pod.png",
            "#explanation",
            "Closest nodes",
        ),
    ] {
        page.prefers(theme);
        page.go("about:blank");
        page.go(&format!("{address}{part}"));
        shows(&mut page, "#status", "updated ");
        shows(&mut page, selector, text);
        page.screenshot(&images.join(file));
    }
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
