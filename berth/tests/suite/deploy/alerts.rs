//! The unit tests of the alert rules: every alert has a case in which it fires and a case in which it does not.
//! promtool runs them if it is installed.

use super::{document, documents, read};
use crate::e2e::Scratch;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

const RULES: &str = "monitoring/prometheusrule.yaml";
const TESTS: &str = "monitoring/prometheusrule_test.yaml";

/// The names of the alerts.
fn alerts() -> BTreeSet<String> {
    let rules = document(RULES, "PrometheusRule");
    let groups = rules["spec"]["groups"].as_array().expect("groups");
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"));
    rules
        .map(|rule| rule["alert"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let tests = documents(TESTS).remove(0);
    let cases = tests["tests"].as_array().expect("tests").iter();
    let cases = cases.flat_map(|test| test["alert_rule_test"].as_array().expect("cases"));
    let (mut firing, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases {
        let name = case["alertname"].as_str().expect("a name").to_owned();
        if case["exp_alerts"].as_array().is_some_and(|a| !a.is_empty()) {
            firing.insert(name)
        } else {
            silent.insert(name)
        };
    }
    assert_eq!(firing, alerts(), "alerts with a case in which they fire");
    assert_eq!(silent, alerts(), "alerts with a case in which they do not");
}

/// promtool of the PATH, or of the variable `PROMTOOL`.
#[test]
fn promtool_passes_the_unit_tests_of_the_alerts() {
    let promtool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    if Command::new(&promtool).arg("--version").output().is_err() {
        eprintln!("skipped: promtool is not on the PATH and PROMTOOL is not set");
        return;
    }
    let scratch = Scratch::new("deploy-alerts");
    // JSON is YAML. promtool reads the groups without the resource around them.
    let groups: &Value = &document(RULES, "PrometheusRule")["spec"];
    scratch.file("rules.yaml", &groups.to_string());
    let tests = scratch.file("tests.yaml", &read(TESTS));
    let output = Command::new(&promtool)
        .args(["test", "rules"])
        .arg(tests)
        .output()
        .expect("promtool runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
