//! The report of `berth simulate --html` in a browser.

use crate::BINARY;
use crate::dashboard::browser::Page;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Twelve pods of 2 CPU, one each minute, on two nodes of 4 CPU: from the fifth on, pods wait.
const TRACE: &str = "name,namespace,arrival,every,duration,count,cpu,memory\n\
                     train,research,0,1m,20m,12,2,1Gi\n";
const NODES: &str = "name,count,cpu,memory,price-per-hour\nbig,2,4,32Gi,2.5\n";
const PACKED: &str = "apiVersion: kubescheduler.config.k8s.io/v1\n\
                      kind: KubeSchedulerConfiguration\n\
                      profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, \
                      resources: [{name: cpu, weight: 1}]}}}]}]\n";

/// Simulates and returns the address of the page.
fn page(directory: &Path) -> String {
    for (name, text) in [
        ("trace.csv", TRACE),
        ("nodes.csv", NODES),
        ("packed.yaml", PACKED),
    ] {
        std::fs::write(directory.join(name), text).expect("a file");
    }
    let output = Command::new(BINARY)
        .current_dir(directory)
        .args(["simulate", "trace.csv", "--nodes", "nodes.csv"])
        .args(["--config", "default", "--config", "packed.yaml"])
        .args(["--seeds", "2", "--html", "report.html"])
        .output()
        .expect("berth starts");
    let notified = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notified}");
    assert!(!output.stdout.is_empty(), "the table is printed as well");
    format!("file://{}", directory.join("report.html").display())
}

#[test]
fn the_page_has_results_charts_and_waiting_times() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let address = page(scratch.path());
    let Some(mut page) = Page::open(scratch.path()) else {
        return;
    };
    for theme in ["light", "dark"] {
        page.prefers(theme);
        for width in [390, 1280, 1920, 2560] {
            page.resize(width, 1200);
            page.go("about:blank");
            page.go(&address);
            // The page is drawn when it is loaded; charts follow when they have a width.
            let drawn = page.resolved(
                "new Promise(done => { const look = () => document.querySelectorAll('#charts polyline').length >= 8 && \
                 document.querySelector('#waits rect') ? done(true) : requestAnimationFrame(look); look(); })",
            );
            assert_eq!(drawn, true, "{theme} {width}");
            let fits = page.value("document.documentElement.scrollWidth <= window.innerWidth");
            assert_eq!(fits, true, "{theme} {width}");
            // Each value is on one line, with its unit and deviation.
            let broken = page.value(
                "[...document.querySelectorAll('td.n')].filter(cell => { const range = document.createRange(); \
                 range.selectNodeContents(cell.firstChild); return range.getClientRects().length > 1; }) \
                 .map(cell => cell.textContent)",
            );
            assert_eq!(broken, json!([]), "{theme} {width}");
        }
    }
    let results = page.text("#compared");
    for text in ["default", "packed.yaml", "Pods that ran", "12", "Cost"] {
        assert!(results.contains(text), "{text}: {results}");
    }
    let titles = page
        .value("[...document.querySelectorAll('#charts strong')].map(title => title.textContent)");
    let titles = titles.to_string();
    for title in [
        "Utilization of cpu",
        "Pods that wait",
        "Nodes (dashed) and nodes with pods",
        "Cost since the start",
    ] {
        assert!(titles.contains(title), "{title}: {titles}");
    }
    assert!(page.text("#groups").contains("research"));
    page.value(
        "document.getElementById('by').value = 'bySize'; document.getElementById('by').onchange()",
    );
    assert!(page.text("#groups").contains("medium"));
    // The values under the pointer are shown.
    page.value("document.querySelector('#charts svg').onpointermove({offsetX: 300})");
    assert!(page.text("#charts output").contains("packed.yaml"));
    let background = "getComputedStyle(document.body).backgroundColor";
    let dark = page.value(background);
    page.value("document.getElementById('theme').click()");
    assert_eq!(page.text("#theme"), "Theme: light");
    assert_ne!(page.value(background), dark);
    assert_eq!(json!(page.console), json!([]));
}

#[test]
fn a_page_that_cannot_be_written_is_reported() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(scratch.path().join("trace.csv"), TRACE).expect("a file");
    let output = Command::new(BINARY)
        .current_dir(scratch.path())
        .args([
            "simulate",
            "trace.csv",
            "--nodes",
            "2",
            "--html",
            "no/such/report.html",
        ])
        .output()
        .expect("berth starts");
    let notified = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{notified}");
    assert!(notified.contains("no/such/report.html"), "{notified}");
}
