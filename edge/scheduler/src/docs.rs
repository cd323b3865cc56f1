//! The reference pages `flags.md`, `versions.md` and `metrics.md` of `docs/use/reference`, generated from the tables in
//! the code.
//!
//! `BERTH_WRITE_DOCS=1 cargo test -p berth-edge docs` writes them; without the variable the tests compare.

use crate::flags::{FLAGS, Flag, FlagEffect, Section};
use crate::metrics::{EdgeMetric, HealthMetric, SpreadMetric, WaitingMetric};
use crate::shadow::SHADOW_FAMILIES;
use berth_api::Release;
use berth_config::FIELDS;
use berth_framework::Feature;
use berth_framework::features::{Behaviour, FeatureStage, GateState, Support, Versions};
use berth_scheduler::metrics::{Families, Family, Metric, MetricKind, go_number};
use std::fmt::Write as _;
use std::path::Path;

/// Set to write the pages instead of comparing them.
const WRITE: &str = "BERTH_WRITE_DOCS";

/// A text within a cell of a table.
fn cell(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('\n', " ");
    // Outside of code, it would begin an element of HTML.
    text.replace('<', "\\<")
}

fn flag_row(page: &mut String, flag: &Flag) {
    let kind = match flag.type_name {
        "" => "bool",
        name => name,
    };
    let default = match flag.default {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let note = match flag.effect {
        FlagEffect::Works => String::new(),
        FlagEffect::Deprecated("") => "Deprecated. ".to_owned(),
        FlagEffect::Deprecated(field) => format!("Deprecated; use `{field}`. "),
        FlagEffect::Ignored(reason) => format!("**No effect**, with a warning: {reason}. "),
    };
    let (name, help) = (flag.name(), cell(flag.help));
    let _ = writeln!(page, "| `--{name}` | {kind} | {default} | {note}{help} |");
}

fn flags_page() -> String {
    let mut page = "# Flags, configuration and feature gates of `berth scheduler`\n\n\
        <!-- Generated from the code: BERTH_WRITE_DOCS=1 cargo test -p berth-edge docs -->\n\n\
        Berth accepts the flags, the configuration file and the feature gates of kube-scheduler 1.36 to 1.38 ([versions.md](versions.md)). \
        Settings without effect give a warning\nat start-up, or are rejected.\n\n## Flags\n"
        .to_owned();
    for section in Section::ALL {
        let _ = write!(
            page,
            "\n### {}\n\n| Flag | Type | Default | Meaning |\n|---|---|---|---|\n",
            section.title()
        );
        for flag in FLAGS.iter().filter(|flag| flag.section == *section) {
            flag_row(&mut page, flag);
        }
    }
    page.push_str(
        "\n## Fields of KubeSchedulerConfiguration\n\n\
        `kubescheduler.config.k8s.io/v1`, in the file of `--config`. `berth scheduler --config FILE --check` lists every \
        problem of a file.\n\n| Field | Meaning |\n|---|---|\n",
    );
    for field in FIELDS {
        let note = match field.no_effect {
            "" => String::new(),
            reason => format!("**No effect**, with a warning: {reason}. "),
        };
        let _ = writeln!(page, "| `{}` | {note}{} |", field.path, cell(field.meaning));
    }
    page.push_str(
        "\n## Feature gates\n\nThe state in Berth with each emulated version. *Locked* gates cannot be changed. A dash is \
        a gate that the version does not have\nand rejects.\n\n\
        | Gate | 1.36 | 1.37 | 1.38 | Setting | Meaning |\n|---|---|---|---|---|---|\n",
    );
    for feature in Feature::ALL {
        let states = Release::ALL.map(|release| state_cell(*feature, release));
        let setting = match feature.support() {
            Support::Switchable | Support::OnInBerth => "`true` or `false` unless locked",
            Support::AlwaysOn => "always on; `false` gives a warning, or is rejected if locked",
            Support::NoEffect => "no effect, with a warning",
            Support::Missing => "not in Berth; `true` is rejected",
        };
        let _ = writeln!(
            page,
            "| `{feature}` | {} | {setting} | {} |",
            states.join(" | "),
            cell(feature.description())
        );
    }
    page
}

/// The state of a gate in Berth with an emulated version.
fn state_cell(feature: Feature, release: Release) -> String {
    let versions = Versions::of(release);
    let Some(spec) = feature.state(versions).spec() else {
        return "–".to_owned();
    };
    let stage = match spec.stage.as_str() {
        "" => "GA",
        stage => stage,
    };
    let setting = match (spec.locked, feature.default_on(versions)) {
        (true, _) => "locked",
        (false, true) => "on",
        (false, false) => "off",
    };
    format!("{stage} {setting}")
}

/// The state of a gate in kube-scheduler, in words.
fn upstream_words(state: GateState) -> String {
    match state {
        GateState::PreAlpha => "unknown".to_owned(),
        GateState::Removed => "removed".to_owned(),
        GateState::Known(spec) => {
            let stage = match spec.stage {
                FeatureStage::Alpha => "alpha",
                FeatureStage::Beta => "beta",
                FeatureStage::Stable => "GA",
            };
            let setting = match (spec.locked, spec.on) {
                (true, _) => "locked",
                (false, true) => "on",
                (false, false) => "off",
            };
            format!("{stage}, {setting}")
        }
    }
}

/// The gates that a release changed.
fn gate_rows(page: &mut String, before: Release, release: Release) {
    for feature in Feature::ALL {
        let (old, new) = (feature.upstream(before), feature.upstream(release));
        if old == new {
            continue;
        }
        let support = match feature.support() {
            Support::Switchable => "follows",
            Support::OnInBerth => "on with every version",
            Support::AlwaysOn => "always on",
            Support::NoEffect => "no effect",
            Support::Missing => "not in Berth",
        };
        let _ = writeln!(
            page,
            "| `{feature}` | {} | {} | {support} | {} |",
            upstream_words(old),
            upstream_words(new),
            cell(feature.description())
        );
    }
}

fn versions_page() -> String {
    let mut page = include_str!("docs/versions.md").to_owned();
    // Each release is compared with its predecessor.
    for pair in Release::ALL.windows(2) {
        let (before, release) = (pair[0], pair[1]);
        let _ = write!(
            page,
            "\n## What Kubernetes {release} changes\n\n### Without a feature gate\n\n\
            | Behaviour | Rule |\n|---|---|\n"
        );
        for behaviour in Behaviour::ALL.iter().filter(|b| b.since() == release) {
            let _ = writeln!(
                page,
                "| {} | {} |",
                cell(behaviour.title()),
                behaviour.rule()
            );
        }
        let _ = write!(
            page,
            "\n### Feature gates\n\n| Gate | {before} | {release} | Berth | Meaning |\n|---|---|---|---|---|\n"
        );
        gate_rows(&mut page, before, release);
        let changes = berth_objects::catalog::changes_of(release);
        if !changes.is_empty() {
            page += "\n### API of the embedded API server\n\n";
            for change in changes {
                let _ = writeln!(page, "- {change}");
            }
        }
    }
    page
}

fn metric_row(page: &mut String, family: &Family) {
    let kind = match family.kind {
        MetricKind::Counter => "counter".to_owned(),
        MetricKind::Gauge => "gauge".to_owned(),
        MetricKind::Histogram(buckets) => {
            let bounds: Vec<String> = buckets.bounds().map(go_number).collect();
            let (first, last) = (bounds.first(), bounds.last());
            let text = |bound: Option<&String>| bound.cloned().unwrap_or_default();
            format!(
                "histogram, {} buckets from {} to {}",
                bounds.len(),
                text(first),
                text(last)
            )
        }
    };
    let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
    let _ = writeln!(
        page,
        "| `{}` | {kind} | {} | {} | {} |",
        family.name,
        labels.join(", "),
        family.stability.as_str(),
        cell(family.help)
    );
}

fn metrics_page() -> String {
    let mut page = "# Metrics\n\n\
        <!-- Generated from the code: BERTH_WRITE_DOCS=1 cargo test -p berth-edge docs -->\n\n\
        Names, types, labels and buckets equal those of kube-scheduler 1.36, with the exceptions in\n\
        [differences.md](differences.md#metrics-that-are-not-served). `/metrics/resources` serves `kube_pod_resource_request` \
        and\n`kube_pod_resource_limit` on the leader. `DELETE` on a path sets its counters to zero.\n"
        .to_owned();
    let tables = [
        ("/metrics: scheduling", Metric::FAMILIES),
        ("/metrics: the process", EdgeMetric::FAMILIES),
        ("/metrics: waiting pods", WaitingMetric::FAMILIES),
        ("/metrics: workloads", SpreadMetric::FAMILIES),
        ("/metrics/slis", HealthMetric::FAMILIES),
        ("/metrics: shadow mode", SHADOW_FAMILIES),
    ];
    for (title, families) in tables {
        let _ = write!(
            page,
            "\n## {title}\n\n| Metric | Type | Labels | Stability | Meaning |\n|---|---|---|---|---|\n"
        );
        let mut families: Vec<&Family> = families.iter().collect();
        families.sort_by_key(|family| family.name);
        for family in families {
            metric_row(&mut page, family);
        }
    }
    page
}

fn compare(name: &str, page: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/use/reference/{name}"));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page).expect("the page can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = written
        .lines()
        .zip(page.lines())
        .find(|(written, made)| written != made);
    assert!(
        written == page,
        "docs/use/reference/{name} differs from the code; run {WRITE}=1 cargo test -p berth-edge docs. First difference: {differing:?}"
    );
}

#[test]
fn the_page_of_flags_is_made_from_the_tables() {
    compare("flags.md", &flags_page());
}

#[test]
fn the_page_of_versions_is_made_from_the_tables() {
    compare("versions.md", &versions_page());
}

#[test]
fn the_page_of_metrics_is_made_from_the_tables() {
    compare("metrics.md", &metrics_page());
}
