//! Nothing pretends: a feature gate that can be switched is read somewhere, and every metric family is written.

// It reads the project's own files; it is no part of the core.
#![allow(clippy::disallowed_methods)]

use berth_framework::Feature;
use berth_framework::features::Support;
use berth_scheduler::metrics::Metric;
use std::path::{Path, PathBuf};

/// The crates whose sources make up a scheduler.
const CRATES: [&str; 6] = [
    "api",
    "framework",
    "plugins",
    "scheduler",
    "client",
    "berth",
];

/// Where gates and metrics are declared; what only these name is neither read nor written.
const DECLARATIONS: [&str; 3] = [
    "framework/src/features",
    "scheduler/src/metrics/family.rs",
    "scheduler/src/metrics/reference.rs",
];

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

/// Whether some source names the path as a whole word.
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
        .filter(|feature| feature.support() == Support::Switchable)
        .map(|feature| feature.name())
        .filter(|name| !is_named(&sources, &format!("Feature::{name}")))
        .collect();
    assert_eq!(
        pretending, [""; 0],
        "gates that can be switched without effect: give them a reader, or another Support"
    );
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
    let source = include_str!("../src/metrics.rs");
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
