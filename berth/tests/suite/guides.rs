//! Types the commands of README.md and of the guides in docs/use/start, in order, and compares their output. Without
//! kubectl the tests are skipped; with `BERTH_REQUIRE_KUBECTL=1` they fail.
//!
//! On a page, a line `…` stands for any lines, and `…` within a line for any text.

use crate::BINARY;
use crate::e2e::{Cluster, Kubectl, eventually};
use regex::Regex;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of a page.
struct Step {
    command: String,
    /// The lines that the page shows below the command.
    shown: Vec<String>,
}

/// A page in pieces.
#[derive(Default)]
struct Guide {
    /// Files of the page: the name in the first line's comment, and the text.
    files: Vec<(String, String)>,
    steps: Vec<Step>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads the blocks of a page: fenced blocks, and blocks that are indented by four spaces.
fn read(page: &str) -> Guide {
    let mut guide = Guide::default();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let fence = line.strip_prefix("```");
        let mut block = Vec::new();
        if fence.is_some() {
            block.extend(lines.by_ref().take_while(|line| *line != "```"));
        } else if let Some(first) = line.strip_prefix("    ") {
            block.push(first);
            while let Some(line) = lines.next_if(|l| l.is_empty() || l.starts_with("    ")) {
                block.push(line.strip_prefix("    ").unwrap_or(""));
            }
        }
        let first = block.first().copied().unwrap_or("");
        if let (Some("yaml" | "csv"), Some(name)) = (fence, first.strip_prefix("# ")) {
            let text = block[1..].join("\n") + "\n";
            guide.files.push((name.to_owned(), text));
        } else if first.starts_with("$ ") {
            for line in block {
                match line.strip_prefix("$ ") {
                    Some(command) => guide.steps.push(Step {
                        command: command.to_owned(),
                        shown: Vec::new(),
                    }),
                    None => {
                        let step = guide.steps.last_mut().expect("a command comes first");
                        step.shown.push(line.to_owned());
                    }
                }
            }
        }
    }
    guide
}

/// Replaces values that differ between two runs: addresses, paths, ages and the width of columns.
fn normalized(text: &str) -> String {
    let patterns = [
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"[\w./-]*/(berth\.)?kubeconfig", "KUBECONFIG"),
        (r"\b\d+(ms|[smhd])\b", "AGE"),
        (r"[ \t]+", " "),
    ];
    let replace = |text: String, (pattern, by): &(&str, &str)| {
        let pattern = Regex::new(pattern).expect("a pattern");
        pattern.replace_all(&text, *by).into_owned()
    };
    let text = patterns.iter().fold(text.to_owned(), replace);
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The pattern of an output on a page.
fn pattern(shown: &[String]) -> Regex {
    let mut pattern = String::from(r"\A");
    for line in normalized(&shown.join("\n")).lines() {
        if line == "…" {
            pattern.push_str(r"(?:[^\n]*\n)*?");
        } else {
            pattern.push_str(&regex::escape(line).replace('…', r"[^\n]*"));
            pattern.push('\n');
        }
    }
    pattern.push_str(r"\z");
    Regex::new(&pattern).expect("a pattern")
}

/// Returns whether a command only reads, so that it can be repeated until the cluster has reached the expected state.
fn only_reads(command: &str) -> bool {
    let reading = [
        "kubectl get ",
        "kubectl describe ",
        "berth explain ",
        "berth simulate ",
        "ls ",
    ];
    !command.contains("xargs") && reading.iter().any(|prefix| command.starts_with(prefix))
}

/// Types a page.
fn type_page(name: &str, page: &str) {
    let text = std::fs::read_to_string(root().join(page)).expect("the page");
    let guide = read(&text);
    let (up, later): (Vec<&Step>, Vec<&Step>) = guide
        .steps
        .iter()
        .partition(|step| step.command.starts_with("berth up "));
    let [up] = up[..] else {
        panic!("{page} starts {} clusters", up.len());
    };
    let files = tempfile::tempdir().expect("a directory");
    for (name, text) in &guide.files {
        std::fs::write(files.path().join(name), text).expect("a file");
    }
    for folder in ["deploy", "examples"] {
        std::os::unix::fs::symlink(root().join(folder), files.path().join(folder)).expect("a link");
    }
    let args = up.command.split_whitespace().skip(2);
    let args: Vec<String> = args
        .map(|arg| {
            if files.path().join(arg).is_file() {
                files.path().join(arg).display().to_string()
            } else {
                arg.to_owned()
            }
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let cluster = Cluster::up(name, &args);
    if Kubectl::find(&cluster).is_none() {
        return;
    }
    // The directory of `berth up --record recordings`.
    let recordings = cluster.scratch.path("recordings");
    std::os::unix::fs::symlink(recordings, files.path().join("recordings")).expect("a link");
    let greeting = normalized(&cluster.greeting);
    let expected = pattern(&up.shown);
    assert!(expected.is_match(&greeting), "{}:\n{greeting}", up.command);
    let run = |command: &str| {
        // A separate discovery cache for kubectl.
        let command = command.replace("kubectl ", "kubectl --cache-dir ./cache ");
        let path = Path::new(BINARY).parent().expect("a directory").display();
        let output = Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(files.path())
            .env(
                "PATH",
                format!("{path}:{}", std::env::var("PATH").unwrap_or_default()),
            )
            .env("HOME", files.path())
            .env("KUBECONFIG", cluster.kubeconfig())
            .output()
            .expect("sh runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for step in later {
        // The file belongs to the cluster.
        if step.command.starts_with("export ") {
            assert!(step.shown.is_empty(), "{}", step.command);
            continue;
        }
        let expected = pattern(&step.shown);
        let last = RefCell::new(String::new());
        let what = format!("{page}: {}", step.command);
        let _report = Report(&last);
        let look = || {
            let printed = run(&step.command);
            let is_shown = expected.is_match(&normalized(&printed));
            *last.borrow_mut() = printed;
            is_shown.then_some(())
        };
        if only_reads(&step.command) {
            eventually(&what, look)
        } else {
            assert!(look().is_some(), "{what}")
        }
    }
}

/// Prints the last output of a command, if the test fails.
struct Report<'a>(&'a RefCell<String>);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("printed last:\n{}", self.0.borrow());
        }
    }
}

#[test]
fn the_readme_prints_what_it_shows() {
    type_page("readme", "README.md");
}

#[test]
fn operators_take_their_first_steps() {
    type_page("operators", "docs/use/start/operators.md");
}

#[test]
fn authors_of_controllers_take_their_first_steps() {
    type_page("authors", "docs/use/start/controller-authors.md");
}

#[test]
fn capacity_planners_take_their_first_steps() {
    type_page("planners", "docs/use/start/capacity-planners.md");
}

#[test]
fn ai_platforms_take_their_first_steps() {
    type_page("platforms", "docs/use/start/ai-platforms.md");
}

#[test]
fn simulations_print_what_they_show() {
    type_page("simulate", "docs/use/simulate.md");
}

#[test]
fn groups_of_pods_start_as_shown() {
    type_page("groups", "docs/use/groups.md");
}

#[test]
fn packing_fills_one_node() {
    type_page("packing", "docs/use/packing.md");
}

#[test]
fn capacity_buffers_count_in_plans() {
    type_page("buffers", "docs/use/capacity-buffers.md");
}

#[test]
fn the_spread_of_a_workload_is_restored_by_one_deletion() {
    type_page("spread", "docs/use/spread.md");
}
