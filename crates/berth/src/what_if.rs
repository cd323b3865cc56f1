//! `berth what-if`: what the scheduler would do if the cluster were another one. Nothing is written to a cluster.

mod workloads;

use crate::cli::{Output, WhatIfArgs};
use crate::exit::Failure;
use crate::print;
use crate::settings;
use berth_api::{Kind, Object};
use berth_apiserver::schema;
use berth_client::events::now;
use berth_client::request::{self, Resource};
use berth_client::{ApiError, ConnectOptions, Transport, connect};
use berth_explain::what_if::{Objects, Report, Usage, World, consolidate, key_of};
use berth_framework::registry::Registry;
use berth_scheduler::SchedulerOptions;
use berth_scheduler::config::Config;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// How many objects a page of a list has.
const PAGE: u32 = 500;
/// How many lines of each kind the text lists.
const LINES_MAX: usize = 50;
/// An object of the changes with this annotation is deleted.
const DELETE: &str = "berth.dev/what-if";

/// The objects as JSON, so that changes can name single fields.
type Raw = BTreeMap<Key, Value>;
/// Kind, namespace and name of an object.
type Key = (Kind, String, String);

/// Reads, changes, runs and prints.
///
/// # Errors
/// When a file or the cluster cannot be read, or a change does not apply.
pub(crate) async fn run(args: WhatIfArgs, registry: Registry) -> Result<(), Failure> {
    let mut raw = Raw::new();
    let mut config = None;
    for file in &args.from {
        for (place, object) in documents(file)? {
            if let Some((key, object)) = known(&place, object)? {
                raw.insert(key, object);
            }
        }
    }
    if args.from.is_empty() {
        list_all(&args, &mut raw).await?;
    }
    let before = decode(&raw)?;
    for file in &args.file {
        for (place, object) in documents(file)? {
            match object["kind"].as_str() {
                Some("KubeSchedulerConfiguration") => config = Some(file.clone()),
                _ => change(&mut raw, &place, object)?,
            }
        }
    }
    let after = decode(&raw)?;
    let present = configured(&args, args.config.as_deref(), &registry)?;
    let changed = configured(
        &args,
        config.as_deref().or(args.config.as_deref()),
        &registry,
    )?;
    let world = |config: &Config, objects: Objects| {
        let mut options = SchedulerOptions {
            seed: args.seed,
            ..SchedulerOptions::default()
        };
        config.set_options(&mut options);
        World::new(options, &registry, objects, now()).map_err(Failure::usage)
    };
    let usage = world(&present, before)?.usage();
    let report = if args.consolidate {
        let mut report = consolidate(after, |objects| world(&changed, objects))?;
        report.before = usage;
        report
    } else {
        let mut run = world(&changed, after)?;
        run.run();
        let (mut moved, mut blocked, mut drained) = (Vec::new(), Vec::new(), Vec::new());
        for node in &args.drain {
            if !raw.contains_key(&(Kind::Node, String::new(), node.clone())) {
                return Err(Failure::Usage(format!(
                    "--drain {node}: there is no such node"
                )));
            }
            let (of_node, blocking) = run.drain(node);
            if blocking.is_empty() {
                drained.push(node.clone());
            }
            moved.extend(of_node);
            blocked.extend(blocking);
        }
        Report {
            moved,
            blocked,
            drained,
            ..run.report(usage)
        }
    };
    match args.output {
        Output::Text => print::text(text(&args, &report)),
        Output::Json => {
            let json = serde_json::to_string_pretty(&report);
            print::text(json.map_err(Failure::environment)? + "\n")
        }
    }
}

fn configured(
    args: &WhatIfArgs,
    path: Option<&Path>,
    registry: &Registry,
) -> Result<Config, Failure> {
    let mut warnings = Vec::new();
    let features = settings::parse_gates(&args.feature_gates, &mut warnings)?;
    let config = match path {
        Some(path) => {
            let (config, more) = settings::read_config(path, features, registry, |_| {})?;
            warnings.extend(more);
            config
        }
        None => Config::new(features, registry),
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if !config.extenders.is_empty() {
        return Err(Failure::Usage(
            "the configuration has extenders, which what-if does not ask; give one without"
                .to_owned(),
        ));
    }
    Ok(config)
}

/// The documents of a file with their places; lists are flattened.
fn documents(file: &PathBuf) -> Result<Vec<(String, Value)>, Failure> {
    let shown = file.display();
    let unreadable = |reason: String| Failure::Usage(format!("failed to read {shown}: {reason}"));
    let size = std::fs::metadata(file)
        .map_err(|e| unreadable(e.to_string()))?
        .len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(format!(
            "it has more than the {FILE_BYTES_MAX} bytes that are read at once"
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(e.to_string()))?;
    let mut found = Vec::new();
    for (index, document) in crate::manifest::split(&text).into_iter().enumerate() {
        let place = format!("{shown}, document {}", index + 1);
        let value = match serde_json::from_str(&document) {
            Ok(value) => value,
            Err(_) => {
                let parsed = schema::parse_yaml(document.as_bytes());
                parsed
                    .map_err(|e| Failure::Usage(format!("failed to parse {place}: {e}")))?
                    .value
            }
        };
        flatten(place, value, &mut found);
    }
    Ok(found)
}

fn flatten(place: String, mut value: Value, found: &mut Vec<(String, Value)>) {
    if value.is_null() {
        return;
    }
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    match value["items"].take() {
        Value::Array(items) if is_list => {
            for (index, item) in items.into_iter().enumerate() {
                flatten(format!("{place}, item {}", index + 1), item, found);
            }
        }
        _ => found.push((place, value)),
    }
}

/// The key of an object that the scheduler reads; `None` for one of another kind.
fn known(place: &str, mut object: Value) -> Result<Option<(Key, Value)>, Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if kind.is_empty() || version.is_empty() {
        return Err(Failure::Usage(format!(
            "{place}: apiVersion or kind is missing; give objects as kubectl get -o yaml prints them"
        )));
    }
    let Some(found) = Kind::by_name(&version, &kind) else {
        return Ok(None);
    };
    let name = text(&object["metadata"]["name"]);
    if name.is_empty() {
        return Err(Failure::Usage(format!("{place}: metadata.name is missing")));
    }
    let mut namespace = text(&object["metadata"]["namespace"]);
    if namespace.is_empty() && is_namespaced(found) {
        namespace = "default".to_owned();
        object["metadata"]["namespace"] = "default".into();
    }
    Ok(Some(((found, namespace, name), object)))
}

/// Whether objects of a kind are in namespaces.
fn is_namespaced(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pod
            | Kind::Service
            | Kind::ReplicationController
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::PodDisruptionBudget
            | Kind::PersistentVolumeClaim
            | Kind::CsiStorageCapacity
            | Kind::ResourceClaim
    )
}

/// Applies a change: a new object, fields of a known one, or its deletion.
fn change(raw: &mut Raw, place: &str, object: Value) -> Result<(), Failure> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let is_workload = workloads::apply(raw, place, &object)?;
    let Some((key, mut object)) = known(place, object)? else {
        if is_workload {
            return Ok(());
        }
        return Err(Failure::Usage(format!(
            "{place}: the scheduler does not read objects of kind {kind}; give the pods and nodes that follow from it, or \
             their Deployment, ReplicaSet, StatefulSet, ReplicationController or Job"
        )));
    };
    if object["metadata"]["annotations"][DELETE] == "delete" {
        return match raw.remove(&key) {
            Some(_) => Ok(()),
            None => Err(Failure::Usage(format!(
                "{place}: there is no {kind} {} to delete",
                key.2
            ))),
        };
    }
    match raw.get_mut(&key) {
        Some(known) => merge(known, object),
        None => {
            let uid = &mut object["metadata"]["uid"];
            if uid.is_null() {
                *uid = format!("what-if-{kind}-{}-{}", key.1, key.2).into();
            }
            if key.0 == Kind::Pod && object["spec"]["schedulerName"].is_null() {
                object["spec"]["schedulerName"] = "default-scheduler".into();
            }
            raw.insert(key, object);
        }
    }
    Ok(())
}

/// A JSON merge patch (RFC 7396).
fn merge(into: &mut Value, patch: Value) {
    match patch {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = Value::Object(serde_json::Map::new());
            }
            for (name, value) in fields {
                match value {
                    Value::Null => {
                        into.as_object_mut().map(|object| object.remove(&name));
                    }
                    value => merge(&mut into[name], value),
                }
            }
        }
        value => *into = value,
    }
}

fn decode(raw: &Raw) -> Result<Objects, Failure> {
    let decoded = raw.iter().map(|((kind, namespace, name), value)| {
        let object: Object = kind.decode(value.to_string().as_bytes()).map_err(|e| {
            Failure::Usage(format!(
                "failed to decode {} {namespace}/{name}: {e}",
                kind.name()
            ))
        })?;
        Ok((key_of(&object), object))
    });
    decoded.collect()
}

/// Lists everything that the scheduler reads.
async fn list_all(args: &WhatIfArgs, raw: &mut Raw) -> Result<(), Failure> {
    let transport = connect(&ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        server: None,
        user_agent: format!("berth-what-if/{}", env!("CARGO_PKG_VERSION")),
    })
    .await
    .map_err(Failure::environment)?;
    for kind in Kind::ALL {
        let listed = list(&transport, *kind, raw).await;
        let is_needed = Kind::ESSENTIAL.contains(kind);
        match listed {
            Err(ApiError::Status { code: 404, .. }) if !is_needed => {}
            Err(error) => {
                return Err(Failure::Environment(format!(
                    "failed to list {} at {}: {error}",
                    kind.name(),
                    transport.server()
                )));
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

async fn list(transport: &Transport, kind: Kind, raw: &mut Raw) -> Result<(), ApiError> {
    let (group, version, plural) = kind.resource();
    let resource = Resource {
        group,
        version,
        plural,
    };
    let mut token = String::new();
    loop {
        let request = request::list(resource, "", PAGE, &token);
        let mut page: Value = transport.request(&request).await?;
        if let Value::Array(items) = page["items"].take() {
            for item in items {
                let text = |field: &str| {
                    let value = item["metadata"][field].as_str();
                    value.unwrap_or_default().to_owned()
                };
                raw.insert((kind, text("namespace"), text("name")), item);
            }
        }
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => return Ok(()),
        }
    }
}

// --- for people --------------------------------------------------------------------------------------------

fn text(args: &WhatIfArgs, report: &Report) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let usage = |usage: &Usage| {
        format!(
            "{} nodes, {} pods on them, {} pending; requested: CPU {:.1} %, memory {:.1} %",
            usage.nodes, usage.pods, usage.pending, usage.cpu_percent, usage.memory_percent
        )
    };
    line(format!("before  {}", usage(&report.before)));
    line(format!("after   {}", usage(&report.after)));
    let mut section = |title: &str, rows: Vec<String>| {
        if rows.is_empty() {
            return;
        }
        line(String::new());
        line(format!("{title} ({})", rows.len()));
        for row in rows.iter().take(LINES_MAX) {
            line(format!("  {row}"));
        }
        if rows.len() > LINES_MAX {
            line(format!(
                "  and {} more; --output json lists all",
                rows.len() - LINES_MAX
            ));
        }
    };
    let arrow = |pods: &[berth_explain::what_if::PlacedPod]| {
        let rows = pods.iter().map(|p| format!("{} -> {}", p.pod, p.node));
        rows.collect::<Vec<_>>()
    };
    section("Pending pods that get a node", arrow(&report.placed));
    section(
        "Evicted by preemption",
        report
            .evicted
            .iter()
            .map(|p| format!("{} from {}", p.pod, p.node))
            .collect(),
    );
    section("Moved by the drain", arrow(&report.moved));
    section(
        "Blocks the drain",
        report
            .blocked
            .iter()
            .map(|p| format!("{}: {}", p.pod, p.reason))
            .collect(),
    );
    section(
        "Pending",
        report
            .pending
            .iter()
            .map(|p| format!("{}: {}", p.pod, p.reason))
            .collect(),
    );
    let title = match args.consolidate {
        true => "Nodes that are not needed, in the order in which they can be drained",
        false => "Drained nodes",
    };
    section(title, report.drained.clone());
    for note in &report.notes {
        line(format!("Note: {note}."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_adds_patches_or_deletes() {
        let mut raw = Raw::new();
        let node = |spec: Value, annotations: Value| {
            json!({"apiVersion": "v1", "kind": "Node",
                   "metadata": {"name": "n1", "annotations": annotations}, "spec": spec})
        };
        let key = (Kind::Node, String::new(), "n1".to_owned());
        change(
            &mut raw,
            "f",
            node(json!({"unschedulable": true}), json!({})),
        )
        .expect("added");
        let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        change(&mut raw, "f", node(json!({ "taints": taints }), json!({}))).expect("changed");
        assert_eq!(
            raw[&key]["spec"],
            json!({"unschedulable": true, "taints": taints})
        );
        change(
            &mut raw,
            "f",
            node(json!({"unschedulable": null}), json!({})),
        )
        .expect("changed");
        assert_eq!(raw[&key]["spec"], json!({ "taints": taints }));
        let deletion = node(json!({}), json!({DELETE: "delete"}));
        change(&mut raw, "f", deletion.clone()).expect("deleted");
        assert!(raw.is_empty());
        let refused = change(&mut raw, "f", deletion);
        assert!(matches!(refused, Err(Failure::Usage(text)) if text.contains("no Node n1")));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
        let refused = change(&mut raw, "f", other);
        assert!(matches!(refused, Err(Failure::Usage(text)) if text.contains("kind ConfigMap")));
    }

    #[test]
    fn lists_are_flattened() {
        let mut found = Vec::new();
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name}});
        let list =
            json!({"kind": "List", "items": [pod("a"), {"kind": "PodList", "items": [pod("b")]}]});
        flatten("f".to_owned(), list, &mut found);
        let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(places, ["f, item 1", "f, item 2, item 1"]);
    }
}
