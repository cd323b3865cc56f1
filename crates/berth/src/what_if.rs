//! `berth what-if`: what the scheduler would do if the cluster were another one. Nothing is written to a cluster.

mod daemons;
mod quotas;
mod read;
mod workloads;

use crate::cli::{Output, WhatIfArgs};
use crate::exit::Failure;
use crate::print;
use crate::settings;
use berth_api::{Kind, Object};
use berth_client::events::now;
use berth_explain::what_if::{Objects, PendingPod, Report, Usage, World, consolidate, key_of};
use berth_framework::registry::Registry;
use berth_scheduler::SchedulerOptions;
use berth_scheduler::config::Config;
use read::{documents, list_all};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How many lines of each kind the text lists.
const LINES_MAX: usize = 50;
/// How many pods the text names that wait for the same reason.
const NAMED_MAX: usize = 5;
/// An object of the changes with this annotation is deleted.
const DELETE: &str = "berth.dev/what-if";

/// The objects as JSON, so that changes can name single fields.
type Raw = BTreeMap<Key, Value>;
/// Kind, namespace and name of an object.
type Key = (Kind, String, String);

/// The pods that the changes add, in the order of the changes.
#[derive(Debug, Default)]
struct Added {
    pods: Vec<Key>,
}

/// What else belongs to the cluster: the scheduler does not read it.
#[derive(Debug, Default)]
struct Others {
    quotas: quotas::Quotas,
    /// DaemonSets with the places where they were read.
    daemons: Vec<(String, Value)>,
    notes: Vec<String>,
}

impl Others {
    /// Takes an object that is one of these.
    fn take(&mut self, place: &str, object: Value) -> Result<Option<Value>, Failure> {
        if quotas::is_one(&object) {
            quotas::change(&mut self.quotas, place, object)?;
        } else if daemons::is_one(&object) {
            self.daemons.push((place.to_owned(), object));
        } else {
            return Ok(Some(object));
        }
        Ok(None)
    }
}

/// Reads, changes, runs and prints.
///
/// # Errors
/// When a file or the cluster cannot be read, or a change does not apply.
pub(crate) async fn run(args: WhatIfArgs, registry: Registry) -> Result<(), Failure> {
    let (mut raw, mut others) = (Raw::new(), Others::default());
    for file in &args.from {
        for (place, object) in documents(file)? {
            if let Some(object) = others.take(&place, object)?
                && let Some((key, object)) = known(&place, object)?
            {
                raw.insert(key, object);
            }
        }
    }
    if args.from.is_empty() {
        list_all(&args, &mut raw, &mut others).await?;
    }
    let before = decode(&raw)?;
    let (config, not_admitted) = change_all(&args, &mut raw, &mut others)?;
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
    let mut report = if args.consolidate {
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
    report.not_admitted = not_admitted;
    report.notes.extend(others.notes);
    match args.output {
        Output::Text => print::text(text(&args, &report)),
        Output::Json => {
            let json = serde_json::to_string_pretty(&report);
            print::text(json.map_err(Failure::environment)? + "\n")
        }
    }
}

/// Applies the changes of all files. Returns the file of a changed configuration, and the new pods that no quota admits.
fn change_all(
    args: &WhatIfArgs,
    raw: &mut Raw,
    others: &mut Others,
) -> Result<(Option<PathBuf>, Vec<PendingPod>), Failure> {
    let nodes: BTreeSet<Key> = raw
        .keys()
        .filter(|key| key.0 == Kind::Node)
        .cloned()
        .collect();
    let (mut config, mut added, mut daemons) = (None, Added::default(), Vec::new());
    for file in &args.file {
        for (place, object) in documents(file)? {
            if object["kind"] == "KubeSchedulerConfiguration" {
                config = Some(file.clone());
            } else if daemons::is_one(&object) {
                daemons.push((place, object));
            } else if let Some(object) = others.take(&place, object)? {
                change(raw, &place, object, &mut added)?;
            }
        }
    }
    // Nodes that are added get a pod of each DaemonSet that the changes do not contain.
    let name = |object: &Value| (namespace_of(object), name_of(object));
    let changed: BTreeSet<_> = daemons.iter().map(|(_, object)| name(object)).collect();
    for (place, present) in &others.daemons {
        if !changed.contains(&name(present)) {
            daemons::apply(raw, place, present, &mut added, |node| {
                !nodes.contains(node)
            })?;
        }
    }
    for (place, object) in &daemons {
        daemons::apply(raw, place, object, &mut added, |_| true)?;
    }
    let refused = quotas::admit(raw, &others.quotas, &added);
    Ok((config, refused))
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
            "the configuration has extenders, which what-if does not call, so its result would differ from the \
             scheduler's; give a configuration without extenders with --config"
                .to_owned(),
        ));
    }
    Ok(config)
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
fn change(raw: &mut Raw, place: &str, object: Value, added: &mut Added) -> Result<(), Failure> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let is_workload = workloads::apply(raw, place, &object, added)?;
    let Some((key, mut object)) = known(place, object)? else {
        if is_workload {
            return Ok(());
        }
        return Err(Failure::Usage(format!(
            "{place}: the scheduler does not read objects of kind {kind}; give the pods and nodes that follow from it, or \
             their Deployment, ReplicaSet, StatefulSet, ReplicationController, DaemonSet or Job, or a ResourceQuota"
        )));
    };
    if object["metadata"]["annotations"][DELETE] == "delete" {
        added.pods.retain(|pod| *pod != key);
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
            if key.0 == Kind::Pod {
                added.pods.push(key.clone());
            }
            raw.insert(key, object);
        }
    }
    Ok(())
}

/// The name of an object, if it has one.
fn name_of(object: &Value) -> Option<String> {
    let name = object["metadata"]["name"].as_str();
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// The namespace of a namespaced object.
fn namespace_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = namespace.filter(|name| !name.is_empty());
    namespace.unwrap_or("default").to_owned()
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
            let slash = if namespace.is_empty() { "" } else { "/" };
            let kind = kind.name();
            Failure::Usage(format!(
                "failed to decode {kind} {namespace}{slash}{name}: {e}"
            ))
        })?;
        Ok((key_of(&object), object))
    });
    decoded.collect()
}

// --- for people --------------------------------------------------------------------------------------------

/// A row for each reason, in the order of the pods, with the names of some pods.
fn by_reason(pods: &[PendingPod]) -> Vec<String> {
    let (mut groups, mut known) = (Vec::<(&str, Vec<&str>)>::new(), BTreeMap::new());
    for pod in pods {
        let at = *known.entry(pod.reason.as_str()).or_insert(groups.len());
        if at == groups.len() {
            groups.push((&pod.reason, Vec::new()));
        }
        groups[at].1.push(&pod.pod);
    }
    let rows = groups.iter().map(|(reason, pods)| match &pods[..] {
        [pod] => format!("{pod}: {reason}"),
        pods => {
            let more = match pods.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = &pods[..pods.len().min(NAMED_MAX)];
            format!(
                "{} pods: {reason}\n    {}{more}",
                pods.len(),
                named.join(", ")
            )
        }
    });
    rows.collect()
}

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
    let mut section = |title: &str, count: usize, rows: Vec<String>| {
        if rows.is_empty() {
            return;
        }
        line(String::new());
        line(format!("{title} ({count})"));
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
    let evicted = report.evicted.iter();
    let evicted = evicted.map(|p| format!("{} from {}", p.pod, p.node));
    let title_of_drained = match args.consolidate {
        true => "Nodes that are not needed, in the order in which they can be drained",
        false => "Drained nodes",
    };
    for (title, count, rows) in [
        (
            "Pending pods that get a node",
            report.placed.len(),
            arrow(&report.placed),
        ),
        (
            "Evicted by preemption",
            report.evicted.len(),
            evicted.collect(),
        ),
        (
            "Not admitted by quotas",
            report.not_admitted.len(),
            by_reason(&report.not_admitted),
        ),
        (
            "Moved by the drain",
            report.moved.len(),
            arrow(&report.moved),
        ),
        (
            "Blocks the drain",
            report.blocked.len(),
            by_reason(&report.blocked),
        ),
        ("Pending", report.pending.len(), by_reason(&report.pending)),
        (
            title_of_drained,
            report.drained.len(),
            report.drained.clone(),
        ),
    ] {
        section(title, count, rows);
    }
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
    fn pods_that_wait_for_one_reason_are_one_row() {
        let pending = |pod: &str, reason: &str| PendingPod {
            pod: pod.to_owned(),
            reason: reason.to_owned(),
        };
        let mut pods = vec![pending("gated", "gates")];
        pods.extend((0..7).map(|at| pending(&format!("p{at}"), "cpu")));
        pods.insert(3, pending("other", "memory"));
        assert_eq!(
            by_reason(&pods),
            [
                "gated: gates",
                "7 pods: cpu\n    p0, p1, p2, p3, p4 and 2 more",
                "other: memory",
            ]
        );
    }

    #[test]
    fn a_change_adds_patches_or_deletes() {
        let (mut raw, mut added) = (Raw::new(), Added::default());
        let node = |spec: Value, annotations: Value| {
            json!({"apiVersion": "v1", "kind": "Node",
                   "metadata": {"name": "n1", "annotations": annotations}, "spec": spec})
        };
        let key = (Kind::Node, String::new(), "n1".to_owned());
        change(
            &mut raw,
            "f",
            node(json!({"unschedulable": true}), json!({})),
            &mut added,
        )
        .expect("added");
        let taints = json!([{"key": "gpu", "effect": "NoSchedule"}]);
        let tainted = node(json!({ "taints": taints }), json!({}));
        change(&mut raw, "f", tainted, &mut added).expect("changed");
        assert_eq!(
            raw[&key]["spec"],
            json!({"unschedulable": true, "taints": taints})
        );
        change(
            &mut raw,
            "f",
            node(json!({"unschedulable": null}), json!({})),
            &mut added,
        )
        .expect("changed");
        assert_eq!(raw[&key]["spec"], json!({ "taints": taints }));
        let deletion = node(json!({}), json!({DELETE: "delete"}));
        change(&mut raw, "f", deletion.clone(), &mut added).expect("deleted");
        assert!(raw.is_empty());
        let refused = change(&mut raw, "f", deletion, &mut added);
        assert!(matches!(refused, Err(Failure::Usage(text)) if text.contains("no Node n1")));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
        let refused = change(&mut raw, "f", other, &mut added);
        assert!(matches!(refused, Err(Failure::Usage(text)) if text.contains("kind ConfigMap")));
    }
}
