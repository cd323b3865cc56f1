//! Every switchable feature gate is read, and every metric family is written.

use berth_framework::Feature;
use berth_framework::features::{Behaviour, Support};
use berth_scheduler::metrics::Metric;
use std::path::{Path, PathBuf};

/// The crates whose sources make up a scheduler.
const CRATES: [&str; 14] = [
    "scheduler/api",
    "scheduler/framework",
    "scheduler/plugins",
    "scheduler/telemetry",
    "scheduler/profile",
    "scheduler/queue",
    "scheduler/dispatcher",
    "scheduler/evaluator",
    "scheduler/core",
    "scheduler/config",
    "edge/client",
    "edge/scheduler",
    "control-plane/embedded",
    "berth",
];

/// The declarations of gates and metrics; a name that occurs only here is neither read nor written.
const DECLARATIONS: [&str; 2] = ["framework/src/features", "telemetry/src/metrics/family.rs"];

/// The production sources: without tests and without the declarations themselves.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    let mut open: Vec<PathBuf> = CRATES.map(|name| crates.join(name).join("src")).into();
    while let Some(path) = open.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains("tests") || name == "testing" || name == "testing.rs" {
            continue;
        }
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("sources can be listed");
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !DECLARATIONS
                .iter()
                .any(|d| path.to_string_lossy().contains(d))
        {
            let text = std::fs::read_to_string(&path).expect("sources can be read");
            let code = text.split("#[cfg(test)]\nmod tests {").next();
            sources.push((path, code.unwrap_or_default().to_owned()));
        }
    }
    assert!(sources.len() > 100, "only {} files found", sources.len());
    sources
}

/// Returns whether some source names the path as a whole word.
fn is_named(sources: &[(PathBuf, String)], path: &str) -> bool {
    sources.iter().any(|(_, text)| {
        text.match_indices(path).any(|(at, _)| {
            let next = text[at + path.len()..].chars().next();
            !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}

#[test]
fn every_gate_that_can_be_switched_has_a_reader() {
    let sources = sources();
    let pretending: Vec<&str> = Feature::ALL
        .iter()
        .filter(|f| matches!(f.support(), Support::Switchable | Support::OnInBerth))
        .map(|feature| feature.name())
        .filter(|name| !is_named(&sources, &format!("Feature::{name}")))
        .collect();
    assert_eq!(
        pretending, [""; 0],
        "gates that can be switched without effect: give them a reader, or another Support"
    );
}

/// Decisions of two releases differ only where the code reads a behaviour or a gate.
#[test]
fn every_behaviour_has_a_reader() {
    let sources = sources();
    let pretending: Vec<&str> = Behaviour::ALL
        .iter()
        .map(|behaviour| behaviour.name())
        .filter(|name| !is_named(&sources, &format!("Behaviour::{name}")))
        .collect();
    assert_eq!(pretending, [""; 0], "behaviours that nothing reads");
}

/// The names of a set of metrics that the source of this crate declares with `families!`.
fn declared(source: &str, set: &str) -> Vec<String> {
    let (_, rest) = source
        .split_once(&format!("\n    {set}:\n"))
        .unwrap_or_default();
    let (rows, _) = rest.split_once("\n}\n").unwrap_or_default();
    let names = rows.lines().filter_map(|row| row.split_once(": "));
    let names = names.map(|(name, _)| name.trim().to_owned());
    names
        .filter(|name| name.chars().all(char::is_alphanumeric))
        .collect()
}

#[test]
fn every_metric_family_around_the_core_is_written() {
    let sources = sources();
    let source = include_str!("../../../edge/scheduler/src/metrics.rs");
    for (set, count_min) in [("EdgeMetric", 15), ("HealthMetric", 2)] {
        let names = declared(source, set);
        assert!(names.len() >= count_min, "{set}: {names:?}");
        for name in names {
            let path = format!("{set}::{name}");
            assert!(is_named(&sources, &path), "{path} is never written");
        }
    }
}

#[test]
fn every_metric_family_is_written() {
    let sources = sources();
    let pretending: Vec<String> = Metric::ALL
        .iter()
        .map(|metric| format!("{metric:?}"))
        .filter(|name| !is_named(&sources, &format!("Metric::{name}")))
        .collect();
    assert_eq!(
        pretending, [""; 0],
        "metric families that nothing writes: write them or delete them"
    );
}

/// Returns whether a source reads a field of this name. Sources whose path contains one of `declaring` do not count.
fn is_read(sources: &[(PathBuf, String)], field: &str, declaring: &[&str]) -> bool {
    let readers: Vec<_> = sources
        .iter()
        .filter(|(path, _)| !declaring.iter().any(|d| path.to_string_lossy().contains(d)))
        .cloned()
        .collect();
    is_named(&readers, &format!(".{field}"))
}

/// A flag that works has a reader. Flags without a reader are declared `Ignored`, which causes a warning.
#[test]
fn every_flag_that_works_has_a_reader() {
    let sources = sources();
    let table = include_str!("../../../edge/scheduler/src/flags/table.rs");
    let rows = table.lines().filter_map(|line| {
        let (name, rest) = line.trim().split_once(": ")?;
        let is_flag = rest.contains(" = \"") && line.starts_with("        ");
        is_flag.then(|| {
            (
                name.to_owned(),
                rest.contains("Ignored(")
                    || !rest.contains(", Works,") && !rest.contains(", Deprecated("),
            )
        })
    });
    let rows: Vec<(String, bool)> = rows.collect();
    assert!(rows.len() > 60, "only {} flags found", rows.len());
    let pretending: Vec<&String> = rows
        .iter()
        .filter(|(_, is_ignored)| !is_ignored)
        .map(|(name, _)| name)
        .filter(|name| !is_read(&sources, name, &["edge/scheduler/src/flags/table.rs"]))
        .collect();
    assert_eq!(
        pretending, [""; 0],
        "flags that nothing reads: read them, or declare them Ignored with a reason"
    );
}

/// A configuration field with an effect has a reader outside of decoding, validating and writing.
#[test]
fn every_configuration_field_with_an_effect_has_a_reader() {
    let sources = sources();
    let declaring =
        ["decode", "validate", "write", "fields", "extender"].map(|f| format!("config/src/{f}"));
    let declaring: Vec<&str> = declaring.iter().map(String::as_str).collect();
    let rust_name = |path: &str| {
        let name = path.rsplit('.').next().unwrap_or_default();
        // The only field with another name in the code.
        let name = if name == "tlsConfig" { "tls" } else { name };
        let mut snake = String::new();
        for c in name
            .replace("TLS", "Tls")
            .replace("URL", "Url")
            .replace("HTTPS", "Https")
            .chars()
        {
            if c.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    };
    let pretending: Vec<&str> = berth_config::FIELDS
        .iter()
        .filter(|field| field.no_effect.is_empty())
        .map(|field| field.path)
        .filter(|path| !is_read(&sources, &rust_name(path), &declaring))
        .collect();
    assert_eq!(
        pretending, [""; 0],
        "configuration fields that nothing reads: read them, or give them a reason in `no_effect`"
    );
}
