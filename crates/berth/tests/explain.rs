//! Types the commands of docs/explain.md and compares what they print. Without kubectl the test is skipped; with
//! `BERTH_REQUIRE_KUBECTL=1` it fails.
//!
//! `BERTH_WRITE_DOCS=1 cargo test -p berth --test explain` writes the output into the page.

// A test starts processes and waits for them; it is no part of the core.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod e2e;

use e2e::{Cluster, Kubectl, Scratch, eventually};
use regex::Regex;
use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Output};

/// The command under test.
const BINARY: &str = env!("CARGO_BIN_EXE_berth");
/// The page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md");
/// The situations of the page.
const SITUATIONS: [&str; 12] = [
    "1. Insufficient CPU",
    "2. A taint",
    "3. Node affinity",
    "4. Topology spread",
    "5. A host port",
    "6. An unbound claim",
    "7. A missing claim",
    "8. A scheduling gate",
    "9. A PreEnqueue plugin",
    "10. A disruption budget",
    "11. Preemption under way",
    "12. Backoff",
];

/// Replaces what differs between two runs: times and durations.
fn normalized(text: &str) -> String {
    let patterns = [
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
        (r"\b\d+[smhd]\b", "AGE"),
        // Among equal victims, the times at which they started decide.
        (
            r"preempts default/\w+-\d; the pod fits on berth-node-\d",
            "preempts one of the pods",
        ),
        // The width of a column follows the times in it.
        (r" {2,}", "  "),
    ];
    patterns
        .iter()
        .fold(text.to_owned(), |text, (pattern, by)| {
            let pattern = Regex::new(pattern).expect("a pattern");
            pattern.replace_all(&text, *by).into_owned()
        })
}

/// One block of commands of the page.
struct Session {
    heading: String,
    /// The commands before the one whose output is shown.
    before: Vec<String>,
    shown: String,
    output: String,
    /// What the output contains when the situation has come about.
    until: String,
    after: String,
}

/// The files and the sessions of the page.
fn read(page: &str) -> (Vec<(String, String)>, Vec<Session>) {
    let (mut files, mut sessions) = (Vec::new(), Vec::<Session>::new());
    let mut heading = String::new();
    let mut lines = page.lines();
    let comment = |line: &str, name: &str| {
        let text = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        text.strip_prefix(name).map(|text| text.trim().to_owned())
    };
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text.to_owned();
        } else if line == "```yaml" {
            let name = lines.next().and_then(|line| line.strip_prefix("# "));
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if let Some(name) = name {
                files.push((name.to_owned(), body.join("\n") + "\n"));
            }
        } else if line == "```console" {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let commands = body.iter().filter_map(|line| line.strip_prefix("$ "));
            let mut commands: Vec<String> = commands.map(str::to_owned).collect();
            let shown = commands.pop().expect("a command");
            let output = body.iter().filter(|line| !line.starts_with("$ "));
            let output: Vec<&str> = output.copied().collect();
            sessions.push(Session {
                heading: heading.clone(),
                before: commands,
                shown,
                output: output.join("\n"),
                until: String::new(),
                after: String::new(),
            });
        } else if let Some(session) = sessions.last_mut() {
            if let Some(until) = comment(line, "until:") {
                session.until = until;
            }
            if let Some(after) = comment(line, "after:") {
                session.after = after;
            }
        }
    }
    (files, sessions)
}

/// A shell in the directory of a cluster, with `berth` in the PATH.
struct Shell<'a> {
    directory: &'a Path,
    kubeconfig: std::path::PathBuf,
    path: String,
}

impl Shell<'_> {
    fn run(&self, command: &str) -> Output {
        // A discovery cache of its own for kubectl. Plugins of kubectl take no flags of kubectl.
        let command = match command.starts_with("kubectl berth ") {
            true => command.to_owned(),
            false => command.replace("kubectl ", "kubectl --cache-dir ./cache "),
        };
        Command::new("sh")
            .args(["-c", &command])
            .current_dir(self.directory)
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("sh runs")
    }

    fn ok(&self, command: &str) {
        let output = self.run(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command}: {out}{err}");
    }
}

#[test]
fn the_commands_of_the_page_print_what_it_shows() {
    let mut page = std::fs::read_to_string(PAGE).expect("the page");
    let is_written = std::env::var("BERTH_WRITE_DOCS").is_ok_and(|value| value == "1");
    let (files, sessions) = read(&page);
    let situations = sessions.iter().filter(|s| !s.until.is_empty());
    let situations: Vec<&str> = situations.map(|s| s.heading.as_str()).collect();
    assert_eq!(situations, SITUATIONS);
    let config = Scratch::new("explain-config");
    let config_text = files.iter().find(|(name, _)| name == "config.yaml");
    let config_file = config.file("config.yaml", &config_text.expect("the configuration").1);
    let config_file = config_file.display().to_string();
    let gates = "SchedulerPopFromBackoffQ=false";
    let args = [
        "--nodes",
        "3",
        "--config",
        &config_file,
        "--feature-gates",
        gates,
    ];
    let cluster = Cluster::up("explain", &args);
    if Kubectl::find(&cluster).is_none() {
        return;
    }
    let directory = cluster.kubeconfig();
    let directory = directory.parent().expect("a directory");
    for (name, text) in &files {
        cluster.scratch.file(name, text);
    }
    let binaries = Path::new(BINARY).parent().expect("a directory");
    // kubectl finds plugins by the names of programs in the PATH.
    let plugin = cluster.scratch.path("kubectl-berth");
    std::os::unix::fs::symlink(BINARY, plugin).expect("a link");
    let shell = Shell {
        directory,
        kubeconfig: cluster.kubeconfig(),
        path: format!(
            "{}:{}:{}",
            binaries.display(),
            directory.display(),
            std::env::var("PATH").unwrap_or_default()
        ),
    };
    shell.ok("kubectl wait --for=condition=Ready node --all --timeout=60s");
    let mut written = 0;
    for session in &sessions {
        for command in &session.before {
            shell.ok(command);
        }
        let last = RefCell::new(String::new());
        let wanted = normalized(&session.output);
        let what = format!("{}: {}", session.heading, session.shown);
        let shown = eventually_or(&what, &last, || {
            let output = shell.run(&session.shown);
            let text = String::from_utf8_lossy(&output.stdout)
                .trim_end()
                .to_owned();
            let error = String::from_utf8_lossy(&output.stderr);
            *last.borrow_mut() = format!("{text}{error}\n--- expected:\n{}", session.output);
            let is_there = match is_written {
                // Calls end after a moment.
                true => text.contains(&session.until) && !text.contains("API calls"),
                false => normalized(&text) == wanted,
            };
            is_there.then_some(text)
        });
        // The plugin of kubectl prints the same.
        let of_plugin = session
            .shown
            .replace("berth explain", "kubectl berth explain");
        assert_ne!(of_plugin, session.shown);
        let output = shell.run(&of_plugin);
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            normalized(printed.trim_end()),
            normalized(&shown),
            "{of_plugin}: {error}"
        );
        if is_written {
            let command = format!("$ {}\n", session.shown);
            let found = page[written..].find(&command).expect("the command");
            let begin = written + found + command.len();
            let end = begin + page[begin..].find("```").expect("the end of the block");
            page.replace_range(begin..end, &format!("{shown}\n"));
            written = begin;
        }
        if !session.after.is_empty() {
            for command in session.after.split(" && ") {
                shell.ok(command);
            }
            // It fails when no pod is left.
            shell.run("kubectl wait --for=delete pod --all --timeout=60s");
        }
    }
    if is_written {
        std::fs::write(PAGE, page).expect("the page can be written");
    }
}

/// As [`eventually`], and reports what was seen last.
fn eventually_or<T>(what: &str, last: &RefCell<String>, look: impl FnMut() -> Option<T>) -> T {
    struct Report<'a>(&'a RefCell<String>);
    impl Drop for Report<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("printed last:\n{}", self.0.borrow());
            }
        }
    }
    let _report = Report(last);
    eventually(what, look)
}

/// A bound pod, a node and the queue are explained, in every format, and what is not known is named.
#[test]
fn bound_pods_nodes_and_the_queue_are_explained() {
    let cluster = Cluster::up("explain-bound", &["--nodes", "2"]);
    let api = e2e::Api::of(&cluster);
    api.create_pod("web-1", &serde_json::json!({"app": "web"}));
    api.bound("web-1");
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let berth = |args: &[&str]| {
        let output = Command::new(BINARY)
            .arg("explain")
            .args(args)
            .args(["--kubeconfig", &kubeconfig])
            .output()
            .expect("berth runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let answer = eventually("the pod is bound for the scheduler", || {
        let (_, json, _) = berth(&["pod", "web-1", "--output", "json"]);
        let answer: serde_json::Value = serde_json::from_str(&json).ok()?;
        (answer["state"] == "Bound").then_some(answer)
    });
    let table = &answer["decision"];
    assert_eq!(table["feasible"], 2, "{answer}");
    assert_eq!(table["nodes"][0]["node"], answer["node"], "{answer}");
    let (code, text, _) = berth(&["pod", "default/web-1"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("(chosen)") && text.contains("NodeResourcesFit"),
        "{text}"
    );
    let node = answer["node"].as_str().expect("a node").to_owned();
    let (code, yaml, _) = berth(&["node", &node, "-o", "yaml"]);
    assert_eq!(code, Some(0));
    assert!(yaml.contains("podCount: 1"), "{yaml}");
    let (code, text, _) = berth(&["queue"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("0 pods wait"), "{text}");
    let gated = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"},
        "spec": {"schedulingGates": [{"name": "example.com/gate"}], "containers": [{"name": "c", "image": "i"}]},
    });
    api.send(&berth_client::request::create(
        berth_client::request::PODS,
        "default",
        &gated,
    ));
    eventually(
        "the queue has the pod, by a name that can be asked about",
        || {
            let (_, text, _) = berth(&["queue"]);
            text.contains("default/gated").then_some(())
        },
    );
    for (args, named) in [
        (
            ["pod", "no-such-pod"],
            "there is no pod no-such-pod in namespace default",
        ),
        (["node", "no-such-node"], "there is no node no-such-node"),
    ] {
        let (code, _, error) = berth(&args);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(named), "{error}");
    }
    // Only loopback addresses are answered: not a page in a browser that has another name for the port.
    let response = cluster.http_get("/explain/queue");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}
