//! The table of scores of an explanation has the scores that kube-scheduler recorded.

// A test reads a file.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::{Kind, Object, Pod, Time};
use berth_explain::answer::DecisionTable;
use berth_explain::{PodFacts, Snapshot, explain_pod};
use berth_framework::FeatureGates;
use berth_framework::registry::Registry;
use berth_scheduler::profile::ProfileSpec;
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::Arc;

const NOW: Time = Time::from_secs(1_000);
/// The number of recorded decisions with scores.
const SCORED: usize = 936;

/// The recorded decisions with scores: objects, pod, configuration and the answers of kube-scheduler.
fn recorded() -> impl Iterator<Item = Value> {
    let packed: &[u8] = include_bytes!("../../../testing/conformance/vectors/decisions.jsonl.gz");
    let lines = BufReader::new(flate2::read::GzDecoder::new(packed)).lines();
    let cases = lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("a case"));
    cases.filter(|case: &Value| {
        let scores = case["expect"]["scores"].as_object();
        scores.is_some_and(|scores| !scores.is_empty())
    })
}

fn decode(raw: &Value) -> Option<Object> {
    let text = |field: &str| raw[field].as_str().unwrap_or_default();
    let kind = Kind::by_name(text("apiVersion"), text("kind"))?;
    let decoded = kind.decode(raw.to_string().as_bytes());
    Some(decoded.unwrap_or_else(|e| panic!("{raw}: {e}")))
}

/// The profile of a case.
fn profile(case: &Value, registry: &Registry) -> ProfileSpec {
    if case["config"].is_null() {
        return ProfileSpec::default();
    }
    let text = case["config"].to_string();
    let (config, _) =
        berth_config::load(&text, "config", FeatureGates::default(), registry, |_| {})
            .unwrap_or_else(|e| panic!("{e}"));
    let name = case["pod"]["spec"]["schedulerName"].as_str();
    let mut profiles = config.profile_specs().into_iter();
    let mut spec = profiles
        .find(|profile| name.is_none_or(|name| profile.scheduler_name == name))
        .expect("the profile of the pod");
    spec.percentage_of_nodes_to_score = spec
        .percentage_of_nodes_to_score
        .or(config.percentage_of_nodes_to_score);
    spec
}

/// Schedules the pod of a case, and returns the table of the explanation why it is on its node.
fn explained(case: &Value, registry: &Registry) -> Result<DecisionTable, String> {
    let spec = profile(case, registry);
    let scheduler_name = spec.scheduler_name.as_str().into();
    let options = SchedulerOptions {
        profiles: vec![spec],
        ..SchedulerOptions::default()
    };
    let mut scheduler = Scheduler::new(options, registry, NOW).map_err(|e| e.to_string())?;
    let raw = case["objects"].as_array().expect("objects");
    let mut objects: Vec<Object> = raw.iter().filter_map(decode).collect();
    // Pods are known after their nodes, and the pod of the case after all others.
    objects.sort_by_key(|object| match object {
        Object::Pod(_) => 2,
        Object::Node(_) => 1,
        _ => 0,
    });
    let decoded = Kind::Pod.decode(case["pod"].to_string().as_bytes());
    let Ok(Object::Pod(pod)) = decoded else {
        return Err("the pod does not decode".to_owned());
    };
    let mut pod = Pod::clone(&pod);
    pod.spec.scheduler_name = scheduler_name;
    let (namespace, name) = (pod.namespace().to_string(), pod.name().to_string());
    objects.push(Object::Pod(Arc::new(pod)));
    for object in objects {
        scheduler.apply(ClusterChange::Applied(object), NOW);
    }
    while scheduler.schedule_one(NOW).is_attempt() {}
    let facts = PodFacts::take(&scheduler, &namespace, &name).ok_or("the pod is not known")?;
    let answer = explain_pod(&mut Snapshot::take(&scheduler, NOW), &facts);
    let table = answer.decision.clone();
    table.ok_or_else(|| format!("no decision: {}", answer.summary))
}

/// Compares the listed nodes with the recorded scores, which have no entry for plugins without a preference.
fn compare(case: &Value, table: &DecisionTable) -> Result<(), String> {
    let recorded = &case["expect"]["scores"];
    let totals = recorded.as_object().into_iter().flatten();
    let best = totals
        .filter_map(|(_, scores)| scores["total"].as_i64())
        .max();
    if table.nodes.first().map(|node| node.total) != best {
        return Err(format!(
            "the best total is {best:?}, the table has {table:?}"
        ));
    }
    for listed in &table.nodes {
        let scores = listed.scores.iter();
        let plugins: serde_json::Map<String, Value> = scores
            .map(|score| (score.plugin.clone(), score.weighted.into()))
            .collect();
        let ours = json!({"total": listed.total, "plugins": plugins});
        let recorded = &recorded[&listed.node];
        if *recorded != ours {
            let node = &listed.node;
            return Err(format!("{node}: recorded {recorded}, explained {ours}"));
        }
    }
    Ok(())
}

#[test]
fn explanations_have_the_recorded_scores() {
    let registry = berth_plugins::in_tree();
    let (mut compared, mut inexact) = (0, 0);
    for case in recorded() {
        let id = case["id"].to_string();
        let mut table = explained(&case, &registry).unwrap_or_else(|e| panic!("{id}: {e}"));
        if !table.is_exact {
            // The scheduler has bound a claim of the pod since, and the log of changes does not contain volumes.
            let spec = &case["pod"]["spec"];
            let has_claims = !spec["volumes"].is_null() || !spec["resourceClaims"].is_null();
            assert!(has_claims, "{id}");
            inexact += 1;
            continue;
        }
        compare(&case, &table).unwrap_or_else(|e| panic!("{id}: {e}"));
        compared += 1;

        // Guards against a vacuous comparison.
        if let Some(score) = table.nodes[0].scores.first_mut() {
            score.weighted += 1;
            assert!(compare(&case, &table).is_err(), "{id}");
        }
    }
    assert_eq!(compared + inexact, SCORED);
    assert!(inexact < SCORED / 10, "{inexact}");
}
