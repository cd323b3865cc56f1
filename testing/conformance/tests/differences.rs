//! The tables of `docs/use/reference/differences.md` are complete: every row has its own ID and all cells, and names
//! tests that exist. The feature gates that they name have the stated support, and the metrics that they exclude do not
//! exist.

// It reads the project's own files and is not part of the core.
#![allow(clippy::disallowed_methods, clippy::expect_used)]

use berth_api::Release;
use berth_framework::features::{FeatureStage, Support, Versions};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::metrics::FAMILIES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// ID, area, kube-scheduler, Berth, reason, test.
const COLUMNS: usize = 6;

/// The project's root.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Adds the names of the test functions in all Rust files below `dir`.
fn add_tests(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a folder that can be read") {
        let path = entry.expect("an entry that can be read").path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                add_tests(&path, names);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            names.extend(tests(&fs::read_to_string(&path).expect("a source file")));
        }
    }
}

/// The names of the functions that have a `test` attribute.
fn tests(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((before, after)) = line.split_once("fn ")
            && (before.is_empty() || before == "async ")
        {
            if is_test {
                let end = after.find('(').unwrap_or(after.len());
                found.push(after[..end].to_owned());
            }
            is_test = false;
        }
    }
    found
}

/// The cells of a row of a table; an escaped `|` is text.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_matches('|').replace("\\|", "\u{0}");
    row.split('|')
        .map(|cell| cell.trim().replace('\u{0}', "|"))
        .collect()
}

#[test]
fn every_difference_has_an_id_a_reason_and_a_test_that_exists() {
    let page =
        fs::read_to_string(root().join("docs/use/reference/differences.md")).expect("the page");
    let mut known = BTreeSet::new();
    for part in [
        "scheduler",
        "control-plane",
        "edge",
        "testing",
        "berth",
        "examples",
    ] {
        add_tests(&root().join(part), &mut known);
    }
    let mut last: BTreeMap<String, u32> = BTreeMap::new();
    let mut problems = Vec::new();
    let is_head = |row: &str| row.starts_with("| ID |") || row.starts_with("|---");
    for row in page.lines().filter(|l| l.starts_with('|') && !is_head(l)) {
        let cells = cells(row);
        let id = cells[0].clone();
        if cells.len() != COLUMNS || cells.iter().any(String::is_empty) {
            problems.push(format!(
                "{id}: {} cells, of {COLUMNS}, or an empty one",
                cells.len()
            ));
            continue;
        }
        let parts = id.split_once('-');
        match parts.and_then(|(area, number)| Some((area, number.parse::<u32>().ok()?))) {
            Some((area, number)) => {
                let last = last.entry(area.to_owned()).or_default();
                if number <= *last {
                    problems.push(format!("{id}: not above the ID before it"));
                }
                *last = number;
            }
            None => problems.push(format!("{id}: not letters, a hyphen and a number")),
        }
        let named: Vec<&str> = cells[COLUMNS - 1].split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            problems.push(format!("{id}: no test"));
        }
        for test in named.into_iter().filter(|test| !known.contains(*test)) {
            problems.push(format!("{id}: there is no test {test}"));
        }
    }
    assert!(
        !last.is_empty(),
        "docs/use/reference/differences.md has no rows"
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The gates on the page: the readiness gates are on by default, the gates of features that Berth does not have are
/// rejected, and the gates of features that are always on cause a warning.
#[test]
fn gates_are_supported_as_the_page_states() {
    let page =
        fs::read_to_string(root().join("docs/use/reference/differences.md")).expect("the page");
    let area = |id: &str| -> BTreeSet<String> {
        let row = page.lines().find(|l| l.starts_with(&format!("| {id} |")));
        let cell = &cells(row.unwrap_or_else(|| panic!("there is no row {id}")))[1];
        let names = cell.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    };
    let gates = |support: Support| -> BTreeSet<String> {
        let all = Feature::ALL.iter().filter(|f| f.support() == support);
        all.map(|feature| feature.name().to_owned()).collect()
    };
    let spec = |feature: Feature, release| feature.state(Versions::of(release)).spec();
    assert_eq!(area("GATE-4"), gates(Support::Missing));
    assert_eq!(area("GATE-6"), gates(Support::NoEffect));
    let unlocked = |name: &String| {
        let feature = Feature::by_name(name).expect("it is known");
        let mut specs = Release::ALL.into_iter().filter_map(|r| spec(feature, r));
        specs.any(|spec| !spec.locked)
    };
    let always_on: BTreeSet<String> = gates(Support::AlwaysOn)
        .into_iter()
        .filter(unlocked)
        .collect();
    assert_eq!(area("GATE-5"), always_on);
    for release in Release::ALL {
        let parse = |name: &str, on: bool| {
            FeatureGates::parse(&format!("{name}={on}"), Versions::of(release))
        };
        for name in area("GATE-4") {
            let feature = Feature::by_name(&name).expect("it is known");
            let is_known = spec(feature, release).is_some();
            assert!(parse(&name, true).is_err(), "{name} in {release}");
            assert_eq!(parse(&name, false).is_ok(), is_known, "{name} in {release}");
            assert!(!FeatureGates::of(release).enabled(feature), "{name}");
        }
        for name in area("GATE-5") {
            let feature = Feature::by_name(&name).expect("it is known");
            if spec(feature, release).is_some_and(|spec| spec.locked) {
                continue;
            }
            let (gates, warnings) = parse(&name, false).expect("no error");
            assert!(gates.enabled(feature), "{name}");
            assert_eq!(warnings.len(), 1, "{name}");
        }
    }
    for name in ["GATE-1", "GATE-2", "GATE-3"].into_iter().flat_map(area) {
        let feature = Feature::by_name(&name).expect("it is known");
        for release in Release::ALL {
            assert!(FeatureGates::of(release).enabled(feature), "{name}");
        }
    }
}

/// A gate that can be switched is not stable while a required gate is beta or alpha, so the stage of
/// SchedulerPreEnqueuePodStatus follows SchedulerAsyncAPICalls.
#[test]
fn a_gate_is_not_more_mature_than_those_it_needs() {
    for release in Release::ALL {
        let stage = |feature: Feature| {
            let spec = feature.state(Versions::of(release)).spec();
            spec.map(|spec| spec.stage)
        };
        for feature in Feature::ALL {
            for needed in feature.needs() {
                let immature = stage(*needed).is_some_and(|stage| stage != FeatureStage::Stable);
                let stable = stage(*feature) == Some(FeatureStage::Stable);
                assert!(
                    !(immature && stable),
                    "{feature} needs {needed} in {release}"
                );
            }
        }
        let reports = Feature::SchedulerPreEnqueuePodStatus;
        assert_eq!(stage(reports), stage(Feature::SchedulerAsyncAPICalls));
        assert_eq!(stage(reports), Some(FeatureStage::Beta), "{release}");
    }
}

/// Excluded families have no metric of that name in the scheduler.
#[test]
fn families_that_are_not_served_do_not_exist() {
    let page =
        fs::read_to_string(root().join("docs/use/reference/differences.md")).expect("the page");
    let section = page.split("## Metrics that are not served").nth(1);
    let section = section.expect("the section").split("\n## ").next();
    let mut patterns = Vec::new();
    for row in section.unwrap_or_default().lines().map(cells) {
        if row.len() == COLUMNS && row[3] == "not served" {
            patterns.extend(row[1].split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(patterns.len() > 10, "{patterns:?}");
    for family in FAMILIES {
        for pattern in &patterns {
            let is_it = match pattern.strip_suffix('*') {
                Some(prefix) => family.name.starts_with(prefix),
                None => family.name == pattern,
            };
            assert!(!is_it, "{} is served, and listed as {pattern}", family.name);
        }
    }
}

#[test]
fn only_functions_with_a_test_attribute_are_tests() {
    let source = "fn a() {}\n#[test]\nfn b() {}\n#[tokio::test(start_paused = true)]\n#[cfg(x)]\nasync fn c() {}\n";
    assert_eq!(tests(source), ["b", "c"]);
    assert_eq!(cells(r"| X-1 | `a\|b` | |"), ["X-1", "`a|b`", ""]);
}
