//! Types the commands of a page and compares their output. Without kubectl the test is skipped; with
//! `BERTH_REQUIRE_KUBECTL=1` it fails.
//!
//! `BERTH_WRITE_DOCS=1 cargo test -p kube-berth --test suite explain::` writes the output into the page.

use crate::BINARY;
use crate::e2e::{Cluster, Kubectl, Scratch, eventually};
use regex::Regex;
use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Output};

/// A page whose commands are typed.
pub(crate) struct TypedPage<'a> {
    /// The name of the cluster.
    pub(crate) name: &'a str,
    /// The file in `docs`.
    pub(crate) file: &'a str,
    /// Further arguments of `berth up`.
    pub(crate) args: &'a [&'a str],
    /// The headings of the sessions that name the contents of their output.
    pub(crate) situations: &'a [&'a str],
}

/// Replaces values that differ between two runs: times and durations.
fn normalized(text: &str) -> String {
    let patterns = [
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
        (r"\b\d+[smhd]\b", "AGE"),
        // Among equal victims, their start times decide.
        (
            r"preempts default/\w+-\d; the pod fits on berth-node-\d",
            "preempts one of the pods",
        ),
        // Pods of a StatefulSet are on nodes that are drawn among equal ones.
        (r"\bdb-\d", "db-N"),
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
    /// The commands before the compared command.
    before: Vec<String>,
    shown: String,
    output: String,
    /// The text that the output contains when the situation is reached.
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
            let after = line.strip_prefix("Clean up: `");
            if let Some(after) = after.and_then(|rest| rest.strip_suffix('`')) {
                session.after = after.to_owned();
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
        // A separate discovery cache for kubectl. Plugins of kubectl take no flags of kubectl.
        let command = if command.starts_with("kubectl berth ") {
            command.to_owned()
        } else {
            command.replace("kubectl ", "kubectl --cache-dir ./cache ")
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

/// Types the commands of the page.
pub(crate) fn check(page_of: &TypedPage<'_>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(page_of.file);
    let path = path.as_path();
    let mut page = std::fs::read_to_string(path).expect("the page");
    let is_written = std::env::var("BERTH_WRITE_DOCS").is_ok_and(|value| value == "1");
    let (files, sessions) = read(&page);
    let situations = sessions.iter().filter(|s| !s.until.is_empty());
    let situations: Vec<&str> = situations.map(|s| s.heading.as_str()).collect();
    assert_eq!(situations, page_of.situations);
    let config = Scratch::new(&format!("{}-config", page_of.name));
    let mut args: Vec<String> = page_of.args.iter().map(ToString::to_string).collect();
    if let Some((_, text)) = files.iter().find(|(name, _)| name == "config.yaml") {
        let file = config.file("config.yaml", text).display().to_string();
        args.extend(["--config".to_owned(), file]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let cluster = Cluster::up(page_of.name, &args);
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
            let error = String::from_utf8_lossy(&output.stderr);
            let printed = if output.status.success() {
                String::from_utf8_lossy(&output.stdout)
            } else {
                error.clone()
            };
            let text = printed.trim_end().to_owned();
            *last.borrow_mut() = format!("{text}{error}\n--- expected:\n{}", session.output);
            let is_there = if is_written {
                // Calls end after a moment.
                text.contains(&session.until) && !text.contains("API calls")
            } else {
                normalized(&text) == wanted
            };
            is_there.then_some(text)
        });
        // The plugin of kubectl prints the same.
        let of_plugin = session.shown.replace("berth ", "kubectl berth ");
        let output = shell.run(&of_plugin);
        let error = String::from_utf8_lossy(&output.stderr);
        let printed = if output.status.success() {
            String::from_utf8_lossy(&output.stdout)
        } else {
            error.clone()
        };
        assert_eq!(
            normalized(printed.trim_end()).replace("kubectl berth", "berth"),
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
        std::fs::write(path, page).expect("the page can be written");
    }
}

/// As [`eventually`], and reports the last seen state.
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
