//! Checks the workspace against ARCHITECTURE.md: the allowed dependencies between crates, and that the core cannot do
//! I/O.

mod fields;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that are state machines: no I/O, no clock, no runtime, no lock.
const CORE: [&str; 17] = [
    "berth-api",
    "berth-cel",
    "berth-devices",
    "berth-framework",
    "berth-plugins",
    "berth-telemetry",
    "berth-profile",
    "berth-queue",
    "berth-dispatcher",
    "berth-evaluator",
    "berth-scheduler",
    "berth-config",
    "berth-explain",
    "berth-core",
    "berth-oracle",
    "berth-simulator",
    "berth-simulation",
];

/// The dependencies that would bring sockets, runtimes, locks or the generated client types into the core.
const FORBIDDEN_IN_CORE: [&str; 16] = [
    "tokio",
    "mio",
    "socket2",
    "hyper",
    "hyper-util",
    "h2",
    "tower",
    "rustls",
    "ring",
    "kube",
    "kube-client",
    "k8s-openapi",
    "parking_lot",
    "crossbeam-channel",
    "futures-executor",
    "rayon",
];

/// The dependencies that would bring sockets or a runtime into `berth-objects`.
const FORBIDDEN_IN_OBJECTS: [&str; 7] = [
    "tokio",
    "mio",
    "socket2",
    "hyper",
    "hyper-util",
    "h2",
    "tower",
];

/// Dependencies that are allowed although they are in a list above: the CEL parser caches grammar predictions behind
/// a short lock. The cache changes how fast an expression is parsed, never the result.
const EXCEPTIONS: [(&str, &str); 1] = [("antlr4rust", "parking_lot")];

/// The directions of the workspace: each crate with the crates of the workspace that it may use.
const DIRECTIONS: [(&str, &[&str]); 34] = [
    ("berth-api", &[]),
    ("berth-cel", &["berth-api"]),
    ("berth-devices", &["berth-api", "berth-cel"]),
    ("berth-framework", &["berth-api", "berth-devices"]),
    (
        "berth-plugins",
        &["berth-api", "berth-devices", "berth-framework"],
    ),
    ("berth-telemetry", &["berth-api", "berth-framework"]),
    ("berth-profile", &["berth-api", "berth-framework"]),
    (
        "berth-queue",
        &["berth-api", "berth-framework", "berth-telemetry"],
    ),
    ("berth-dispatcher", &["berth-api", "berth-framework"]),
    (
        "berth-evaluator",
        &[
            "berth-api",
            "berth-framework",
            "berth-telemetry",
            "berth-profile",
        ],
    ),
    (
        "berth-scheduler",
        &[
            "berth-api",
            "berth-framework",
            "berth-telemetry",
            "berth-profile",
            "berth-queue",
            "berth-dispatcher",
            "berth-evaluator",
        ],
    ),
    (
        "berth-config",
        &[
            "berth-api",
            "berth-dispatcher",
            "berth-framework",
            "berth-profile",
            "berth-scheduler",
        ],
    ),
    (
        "berth-recording",
        &["berth-api", "berth-framework", "berth-scheduler"],
    ),
    (
        "berth-explain",
        &[
            "berth-api",
            "berth-devices",
            "berth-framework",
            "berth-scheduler",
        ],
    ),
    ("berth-oracle", &["berth-api"]),
    ("berth-protobuf", &["berth-api"]),
    ("berth-tls", &[]),
    (
        "berth-client",
        &["berth-api", "berth-protobuf", "berth-tls"],
    ),
    (
        "berth-objects",
        &["berth-api", "berth-cel", "berth-oracle", "berth-protobuf"],
    ),
    (
        "berth-apiserver",
        &[
            "berth-api",
            "berth-cel",
            "berth-protobuf",
            "berth-objects",
            "berth-tls",
        ],
    ),
    (
        "berth-controllers",
        &["berth-api", "berth-objects", "berth-oracle"],
    ),
    (
        "berth-core",
        &[
            "berth-api",
            "berth-explain",
            "berth-framework",
            "berth-objects",
            "berth-plugins",
            "berth-scheduler",
            "berth-config",
        ],
    ),
    (
        "berth-simulator",
        &[
            "berth-api",
            "berth-oracle",
            "berth-framework",
            "berth-plugins",
            "berth-scheduler",
        ],
    ),
    (
        "berth-simulation",
        &[
            "berth-api",
            "berth-explain",
            "berth-oracle",
            "berth-framework",
            "berth-scheduler",
        ],
    ),
    (
        "berth-edge",
        &[
            "berth-api",
            "berth-framework",
            "berth-scheduler",
            "berth-config",
            "berth-recording",
            "berth-explain",
            "berth-core",
            "berth-client",
            "berth-tls",
        ],
    ),
    (
        "berth-embedded",
        &[
            "berth-api",
            "berth-framework",
            "berth-plugins",
            "berth-core",
            "berth-client",
            "berth-edge",
            "berth-objects",
            "berth-apiserver",
            "berth-controllers",
        ],
    ),
    (
        "berth-perf",
        &[
            "berth-api",
            "berth-oracle",
            "berth-framework",
            "berth-plugins",
            "berth-scheduler",
            "berth-explain",
            "berth-client",
            "berth-config",
            "berth-edge",
            "berth-embedded",
            "berth-protobuf",
            "berth-apiserver",
            "berth-controllers",
        ],
    ),
    (
        "berth-conformance",
        &[
            "berth-api",
            "berth-cel",
            "berth-devices",
            "berth-framework",
            "berth-plugins",
            "berth-scheduler",
            "berth-config",
            "berth-objects",
            "berth-apiserver",
        ],
    ),
    (
        "kube-berth",
        &[
            "berth-api",
            "berth-framework",
            "berth-plugins",
            "berth-scheduler",
            "berth-config",
            "berth-recording",
            "berth-explain",
            "berth-core",
            "berth-client",
            "berth-edge",
            "berth-embedded",
            "berth-objects",
            "berth-apiserver",
            "berth-controllers",
            "berth-simulator",
            "berth-simulation",
            "berth-perf",
            "berth-conformance",
        ],
    ),
    (
        "custom-scheduler",
        &["berth-api", "berth-framework", "kube-berth"],
    ),
    (
        "gpu-fragmentation",
        &[
            "berth-api",
            "berth-framework",
            "berth-plugins",
            "berth-scheduler",
            "berth-config",
            "berth-simulation",
        ],
    ),
    ("autoscaler", &["berth-core"]),
    ("berth-test", &["kube-berth"]),
    ("xtask", &[]),
];

struct Workspace {
    /// Package id by name, of the members.
    members: BTreeMap<String, String>,
    /// Name by package id.
    names: BTreeMap<String, String>,
    /// Ids of the packages that a package uses in a normal build (neither dev- nor build-dependencies).
    uses: BTreeMap<String, Vec<String>>,
}

/// The platform of this machine: only its dependencies have been downloaded.
fn host() -> String {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .expect("rustc runs");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("rustc names its host")
        .to_owned()
}

/// The project's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folders of the crates below a folder of the project.
fn crates_in(group: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(group)).expect("crates can be listed");
    let folders = entries.map(|entry| entry.expect("an entry").path());
    folders
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect()
}

/// The folders of all crates but examples and tools.
fn members() -> Vec<PathBuf> {
    let groups = ["scheduler", "control-plane", "edge", "testing"];
    let mut folders: Vec<_> = groups.into_iter().flat_map(crates_in).collect();
    folders.push(root().join("berth"));
    folders
}

fn workspace() -> Workspace {
    let manifest = root().join("Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", &host()])
        .arg("--manifest-path")
        .arg(&manifest)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let names: BTreeMap<String, String> = list(&metadata["packages"])
        .iter()
        .map(|p| (text(&p["id"]), text(&p["name"])))
        .collect();
    let members = list(&metadata["workspace_members"])
        .iter()
        .map(|id| (names[&text(id)].clone(), text(id)))
        .collect();
    let uses = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let normal = list(&node["deps"])
                .iter()
                .filter(|dep| {
                    list(&dep["dep_kinds"])
                        .iter()
                        .any(|kind| kind["kind"].is_null())
                })
                .map(|dep| text(&dep["pkg"]))
                .collect();
            (text(&node["id"]), normal)
        })
        .collect();
    Workspace {
        members,
        names,
        uses,
    }
}

impl Workspace {
    /// The names of a member and of all its dependencies in a normal build.
    fn reached(&self, member: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.members[member].clone()];
        while let Some(id) = open.pop() {
            if seen.insert(id.clone()) {
                let user = self.names[&id].as_str();
                let uses = self.uses.get(&id).into_iter().flatten();
                let counts =
                    |used: &&String| !EXCEPTIONS.contains(&(user, self.names[*used].as_str()));
                open.extend(uses.filter(counts).cloned());
            }
        }
        seen.iter().map(|id| self.names[id].as_str()).collect()
    }
}

#[test]
fn the_core_depends_on_nothing_that_can_block() {
    let workspace = workspace();
    // The workspace switches on features of `berth-objects` that `berth-core` does not need.
    let core = CORE.into_iter().filter(|member| *member != "berth-core");
    let core = core.map(|member| (member, &FORBIDDEN_IN_CORE[..]));
    let objects = ("berth-objects", &FORBIDDEN_IN_OBJECTS[..]);
    for (member, all_forbidden) in core.chain([objects]) {
        let names = workspace.reached(member);
        assert!(
            names.contains("serde"),
            "{member}: the walk has found its dependencies"
        );
        for forbidden in all_forbidden {
            assert!(
                !names.contains(forbidden),
                "{member} must not depend on {forbidden}, not even through another crate"
            );
        }
    }
}

/// A user of the library builds it alone, with its own features.
#[test]
fn the_library_builds_without_a_server() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "berth-core"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8_lossy(&output.stdout);
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains("berth-scheduler") && names.contains("serde"));
    let edge = [
        "berth-client",
        "berth-apiserver",
        "tokio-rustls",
        "x509-parser",
        "clap",
    ];
    let allowed: BTreeSet<&str> = EXCEPTIONS.iter().map(|(_, used)| *used).collect();
    for forbidden in FORBIDDEN_IN_CORE.into_iter().chain(edge) {
        assert!(
            !names.contains(forbidden) || allowed.contains(forbidden),
            "berth-core must not depend on {forbidden}"
        );
    }
}

#[test]
fn crates_use_only_the_rooms_below_them() {
    let workspace = workspace();
    let expected: BTreeSet<&str> = DIRECTIONS.iter().map(|(name, _)| *name).collect();
    let members: BTreeSet<&str> = workspace.members.keys().map(String::as_str).collect();
    assert_eq!(members, expected, "a new crate needs a line in DIRECTIONS");
    for (member, allowed) in DIRECTIONS {
        for used in &workspace.uses[&workspace.members[member]] {
            let name = workspace.names[used].as_str();
            if members.contains(name) {
                assert!(allowed.contains(&name), "{member} must not use {name}");
            }
        }
    }
}

/// No core crate disables the bans of clippy.toml.
#[test]
fn no_core_crate_switches_the_bans_off() {
    let root = root();
    let bans = std::fs::read_to_string(root.join("clippy.toml")).expect("clippy.toml is there");
    for banned in [
        "std::time::Instant::now",
        "std::sync::Mutex",
        "std::net::TcpStream",
    ] {
        assert!(bans.contains(banned), "clippy.toml bans {banned}");
    }
    let mut files = 0;
    for member in CORE {
        let folder = match &member["berth-".len()..] {
            "scheduler" => "scheduler/core",
            "core" => "scheduler/library",
            name => name,
        };
        let folder = members().into_iter().find(|path| path.ends_with(folder));
        let mut open = vec![folder.expect("the crate has a folder").join("src")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).expect("sources can be listed");
                open.extend(entries.filter_map(Result::ok).map(|e| e.path()));
            } else if path.extension().is_some_and(|e| e == "rs") {
                files += 1;
                let source = std::fs::read_to_string(&path).expect("sources can be read");
                for switch in ["disallowed_methods", "disallowed_types"] {
                    assert!(
                        !source.contains(switch),
                        "{} must not speak of clippy::{switch}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(files > 20, "only {files} files of the core were found");
}

/// Tests that wait on the clock of the machine fail when it is slow. Tests of timing run under the paused time of tokio
/// or with time as an argument; end-to-end tests wait for conditions, by the functions of the files listed here.
#[test]
fn no_test_sleeps_or_measures_time() {
    // The second one delays requests.
    const WAIT_FOR_CONDITIONS: [&str; 2] = [
        "berth/tests/e2e/mod.rs",
        "berth/tests/suite/api_servers/faults.rs",
    ];
    let root = root();
    let mut open: Vec<_> = [
        "scheduler",
        "control-plane",
        "edge",
        "testing",
        "berth",
        "examples",
    ]
    .map(|part| root.join(part))
    .into();
    let (mut files, mut found) = (0, Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("sources can be listed");
            open.extend(entries.filter_map(Result::ok).map(|e| e.path()));
            continue;
        }
        if path.extension().is_none_or(|ending| ending != "rs")
            || path.ends_with(file!())
            || WAIT_FOR_CONDITIONS.iter().any(|file| path.ends_with(file))
        {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("sources can be read");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || ["tests", "testing"].iter().any(|end| name.ends_with(end));
        let tests = if is_test {
            Some(source.as_str())
        } else {
            source
                .split_once("#[cfg(test)]\nmod tests {")
                .map(|(_, tests)| tests)
        };
        let Some(tests) = tests else { continue };
        files += 1;
        // Tokio's own time does not follow the machine's while it is paused.
        let is_paused = source.contains("start_paused = true") || name == "testing";
        let banned: &[&str] = if is_paused {
            &["thread::sleep", "std::time::Instant"]
        } else {
            &["sleep(", ".elapsed()"]
        };
        for (at, line) in tests.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = banned.iter().find(|word| code.contains(**word)) {
                found.push(format!(
                    "{}: line {} of its tests: {word}",
                    path.display(),
                    at + 1
                ));
            }
        }
    }
    assert!(files > 100, "only {files} files with tests were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Facts about a plugin (its arguments, its place in the default profile) are in its registration. The code of the
/// scheduler, without comments and tests, names no in-tree plugin.
#[test]
fn the_scheduler_names_no_plugin() {
    let registry = berth_plugins::in_tree();
    let names: Vec<&str> = registry.names().collect();
    let parts = [
        "telemetry",
        "profile",
        "queue",
        "dispatcher",
        "evaluator",
        "core",
    ];
    let mut open: Vec<_> = parts
        .map(|part| root().join("scheduler").join(part).join("src"))
        .into();
    let (mut files, mut found) = (0, Vec::new());
    while let Some(path) = open.pop() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("sources can be listed");
            open.extend(entries.filter_map(Result::ok).map(|e| e.path()));
            continue;
        }
        files += 1;
        let source = std::fs::read_to_string(&path).expect("sources can be read");
        let code = source.split("#[cfg(test)]\nmod tests {").next();
        for (at, line) in code.unwrap_or_default().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // A feature gate may have the name of a plugin.
            let code = code.replace("Feature::", "Feature");
            let mut words = code.split(|c: char| !c.is_ascii_alphanumeric());
            if let Some(plugin) = words.find(|word| names.contains(word)) {
                found.push(format!("{}:{}: {plugin}", path.display(), at + 1));
            }
        }
    }
    assert!(files > 50, "only {files} files of the scheduler were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
