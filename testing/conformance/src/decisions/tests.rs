//! Replays the recorded decisions, and checks that the replay detects differences.

use super::*;
use serde_json::{Value, json};
use std::io::BufReader;

fn recorded() -> impl Iterator<Item = String> {
    let packed: &[u8] = include_bytes!("../../vectors/decisions.jsonl.gz");
    BufReader::new(flate2::read::GzDecoder::new(packed))
        .lines()
        .map(|line| line.expect("a line"))
}

fn replay_lines(lines: impl IntoIterator<Item = String>) -> CaseReport {
    let text: Vec<String> = lines.into_iter().collect();
    replay(text.join("\n").as_bytes(), Evaluators::All, Release::V1_36)
}

fn is_kept(case: &DecisionCase, registry: &Registry) -> Result<bool, String> {
    let features = FeatureGates::of(Release::V1_36);
    let pod = cluster::decode_pod(&case.pod)?;
    if !pod.spec.resource_claims.is_empty() {
        return Ok(false);
    }
    let spec = match &case.config {
        None => ProfileSpec::default(),
        Some(config) => config::profile(config, &pod.spec.scheduler_name, registry, features)?,
    };
    let profile = Profile::build(&spec, registry, &features).map_err(|e| format!("{e:?}"))?;
    let pod = Arc::new(PodInfo::new(pod));
    Ok(from_kept(case, &profile, &features, &pod, registry)?.is_some())
}

fn family(id: &str) -> &str {
    id.rsplit_once('-').map_or(id, |(family, _)| family)
}

#[test]
fn every_decision_is_as_recorded() {
    let report = replay_lines(recorded());
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.passed.len(), 1_543);
}

/// Every case has its recorded answer, or the answer in `later/decisions.jsonl`. The differential test of the
/// evaluators draws the release, so the plain evaluator is enough here.
fn is_decided_as(release: Release) {
    let text: Vec<String> = recorded().collect();
    let report = replay(text.join("\n").as_bytes(), Evaluators::Plain, release);
    assert!(report.is_ok(), "{release}: {report}");
    assert_eq!(report.passed.len(), 1_543, "{release}");
}

#[test]
fn every_decision_is_that_of_1_37() {
    is_decided_as(Release::V1_37);
}

#[test]
fn every_decision_is_that_of_1_38() {
    is_decided_as(Release::V1_38);
}

/// The lists contain only answers that a release changes, and each of them names a rule.
#[test]
fn every_later_answer_differs_from_the_recorded_one() {
    let registry = berth_plugins::in_tree();
    let answers = LaterAnswers::read(LATER, Release::NEWEST).expect("a list");
    let listed: Vec<_> = answers.iter().collect();
    assert_eq!(listed.len(), 35);
    let rules = include_str!("../../../../docs/contribute/rules/plugins.md");
    let mut found = 0;
    for line in recorded() {
        let case: DecisionCase = serde_json::from_str(&line).expect("a case");
        for answer in listed.iter().filter(|answer| answer.case == case.id) {
            found += 1;
            let mut releases = Release::ALL.into_iter();
            let since = releases
                .find(|r| r.as_str() == answer.since)
                .expect("a release");
            let features = FeatureGates::of(since);
            let result = check(&case, &registry, Evaluators::Plain, features);
            assert!(result.is_err(), "{} is as recorded in {since}", case.id);
            assert!(
                rules.contains(&format!("**{}**", answer.rule)),
                "{}",
                answer.rule
            );
        }
    }
    assert_eq!(found, listed.len(), "every answer is that of a case");
}

/// The plain evaluator decides pods with volumes of their own, and pods that PreFilter rejects or narrows to some
/// nodes. Nearly all other pods are decided from kept answers.
#[test]
fn most_cases_are_decided_from_kept_answers() {
    let mut kept: std::collections::BTreeMap<String, (usize, usize)> = Default::default();
    let registry = berth_plugins::in_tree();
    for line in recorded() {
        let case: DecisionCase = serde_json::from_str(&line).expect("a case");
        let (of, all) = kept.entry(family(&case.id).to_owned()).or_default();
        *all += 1;
        *of += usize::from(is_kept(&case, &registry).expect("a case that can be replayed"));
    }
    for family in [
        "images",
        "interpod",
        "ports",
        "preemption",
        "resources",
        "spread",
        "taints",
    ] {
        let (of, all) = kept[family];
        assert_eq!(of, all, "{family}");
    }
    let of: usize = kept.values().map(|(of, _)| of).sum();
    assert!(of > 1_150, "{kept:?}");
}

/// A replay that cannot fail shows nothing.
#[test]
fn a_difference_is_noticed() {
    let line = recorded()
        .find(|line| {
            line.contains("\"id\":\"taints-00000\"") || line.contains("\"id\": \"taints-00000\"")
        })
        .expect("the first of the family");
    let change = |change: &dyn Fn(&mut Value)| {
        let mut case: Value = serde_json::from_str(&line).expect("a case");
        change(&mut case["expect"]);
        replay_lines([case.to_string()])
    };
    assert!(change(&|_| {}).is_ok());
    type Edit<'a> = &'a dyn Fn(&mut Value);
    let changes: [(&str, Edit<'_>); 5] = [
        ("filter of node-01", &|e| {
            e["filter"]["node-01"] = Value::Null
        }),
        ("filter of node-00", &|e| {
            e["filter"]["node-00"] =
                json!({"code": "Unschedulable", "plugin": "NodePorts", "reasons": ["x"]});
        }),
        ("filter of node-01", &|e| {
            e["filter"]["node-01"]["reasons"] = json!(["other"])
        }),
        ("scores of node-02", &|e| {
            e["scores"]["node-02"]["plugins"]["TaintToleration"] = json!(299)
        }),
        ("total of node-00", &|e| {
            e["scores"]
                .as_object_mut()
                .expect("scores")
                .remove("node-00");
        }),
    ];
    for (what, edit) in changes {
        let report = change(edit);
        let notified = report
            .failed
            .iter()
            .any(|mismatch| mismatch.what.contains(what));
        assert!(notified, "{what}: {report}");
    }
}

/// The same for victims.
#[test]
fn another_victim_is_noticed() {
    let line = recorded()
        .find(|line| line.contains("\"victims\""))
        .expect("a preemption");
    let mut case: Value = serde_json::from_str(&line).expect("a case");
    assert!(replay_lines([case.to_string()]).is_ok());
    case["expect"]["postFilter"]["victims"] = json!(["default/somebody-else"]);
    let report = replay_lines([case.to_string()]);
    assert!(
        report.failed.iter().any(|m| m.what.contains("PostFilter")),
        "{report}"
    );
}

#[test]
fn unreadable_lines_fail_under_their_number() {
    let report = replay_lines(["{}".to_owned(), String::new(), "no".to_owned()]);
    let names: Vec<&str> = report.failed.iter().map(|m| m.case.as_str()).collect();
    assert_eq!(names, ["line 1", "line 3"]);
}
