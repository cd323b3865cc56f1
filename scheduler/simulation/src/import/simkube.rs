//! Traces of SimKube, version 2 (<https://simkube.dev/simkube/docs/ref/trace-files/>): the objects that were applied to
//! and deleted from a cluster, with their times, as MessagePack.
//!
//! | object | becomes |
//! |---|---|
//! | Pod | a pod |
//! | Deployment, ReplicaSet, StatefulSet | `replicas` pods, more or less of them when it is scaled, and others when its template changes |
//! | Job | `parallelism` pods |
//! | other kinds with a `podSpecTemplatePaths` in the configuration of the trace | a pod for each path |
//! | everything else | left out; [`Imported::left_out`] has the number by kind |
//!
//! A pod ends after the time for which the pod of the same owner ran that was started in the same place in order
//! (`pod_lifecycles`). If it is deleted or scaled down earlier, it ends at that time after its arrival.

use super::msgpack::{Packed, unpack};
use crate::distribution::Distribution;
use crate::trace::{Trace, TracePod};
use berth_api::{Duration, Kind, Object, Pod, Str, Time};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The version that can be read.
const VERSION: i64 = 2;

/// A mistake in a trace of SimKube.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimkubeError {
    /// The location: `byte 12` or `events[3].applied_objs[0]`.
    pub place: String,
    /// The mistake and the way out.
    pub message: String,
}

impl fmt::Display for SimkubeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for SimkubeError {}

fn error(place: impl Into<String>, message: impl Into<String>) -> SimkubeError {
    SimkubeError {
        place: place.into(),
        message: message.into(),
    }
}

/// A trace, and the numbers of omitted objects.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Imported {
    /// The trace: pods without nodes.
    pub trace: Trace,
    /// The number of objects that were left out, by kind such as `v1.Service`.
    pub left_out: BTreeMap<String, usize>,
}

/// The kind and the name of an object: `apps/v1.Deployment`, `namespace/name`.
type OwnerKey = (String, String);

/// A workload, with its pods that have not ended.
#[derive(Debug, Default)]
struct Owner {
    /// The indices of its pods in the trace, for each template.
    pods: Vec<Vec<usize>>,
    templates: Vec<Value>,
    /// The pods that it has had.
    started: usize,
}

struct Importer {
    trace: Trace,
    left_out: BTreeMap<String, usize>,
    /// The paths of templates by kind, from the configuration of the trace.
    paths: BTreeMap<String, Vec<String>>,
    /// The durations of the pods of each owner in the order of their starts; `None` for pods that did not end.
    durations: BTreeMap<OwnerKey, Vec<Option<Duration>>>,
    owners: BTreeMap<OwnerKey, Owner>,
}

/// Reads a trace.
///
/// # Errors
/// The first mistake.
pub fn read_simkube(bytes: &[u8]) -> Result<Imported, SimkubeError> {
    let file = unpack(bytes).map_err(|e| {
        error(
            format!("byte {}", e.at),
            format!("{}; a trace of SimKube is one MessagePack map", e.message),
        )
    })?;
    match file.get("version").map(Packed::number) {
        Some(Some(VERSION)) => {}
        Some(Some(other)) => {
            let message =
                format!("is {other}; only version {VERSION} can be read, export the trace again");
            return Err(error("version", message));
        }
        _ => {
            let message =
                "there is no version; a trace of SimKube before 1.2 must be exported again";
            return Err(error("version", message));
        }
    }
    let events = file.get("events").and_then(Packed::list);
    let events = events.ok_or_else(|| error("events", "there is no list of events"))?;
    let mut importer = Importer {
        trace: Trace::default(),
        left_out: BTreeMap::new(),
        paths: paths(&file),
        durations: durations(&file),
        owners: BTreeMap::new(),
    };
    let mut first = None;
    for (number, event) in events.iter().enumerate() {
        let ts = event.get("ts").and_then(Packed::number);
        let ts = ts.ok_or_else(|| {
            error(
                format!("events[{number}].ts"),
                "is no whole number of seconds",
            )
        })?;
        let first = *first.get_or_insert(ts);
        let offset = u64::try_from(ts - first).map_err(|_| {
            let message = "is before the first event; events must be in the order of their time";
            error(format!("events[{number}].ts"), message)
        })?;
        importer.event(event, number, Duration::from_secs(offset))?;
    }
    importer.trace.start = first.map(Time::from_secs);
    Ok(Imported {
        trace: importer.trace,
        left_out: importer.left_out,
    })
}

/// The paths of the templates of each kind.
fn paths(file: &Packed) -> BTreeMap<String, Vec<String>> {
    let config = file.get("config").map(Packed::json).unwrap_or_default();
    let tracked = config["trackedObjects"].as_object();
    let of_kind = |(kind, config): (&String, &Value)| {
        let paths = config["podSpecTemplatePaths"].as_array()?;
        let paths = paths
            .iter()
            .filter_map(|path| path.as_str().map(str::to_owned));
        Some((kind.clone(), paths.collect()))
    };
    tracked.into_iter().flatten().filter_map(of_kind).collect()
}

fn durations(file: &Packed) -> BTreeMap<OwnerKey, Vec<Option<Duration>>> {
    let mut durations: BTreeMap<OwnerKey, Vec<Option<Duration>>> = BTreeMap::new();
    let entries = file.get("pod_lifecycles").and_then(Packed::entries);
    for (key, by_hash) in entries.unwrap_or_default() {
        let Some([kind, name]) = key.list() else {
            continue;
        };
        let (Some(kind), Some(name)) = (kind.text(), name.text()) else {
            continue;
        };
        let lifecycles = by_hash.entries().unwrap_or_default();
        let lifecycles = lifecycles
            .iter()
            .flat_map(|(_, list)| list.list().unwrap_or_default());
        let known = durations
            .entry((kind.to_owned(), name.to_owned()))
            .or_default();
        known.extend(lifecycles.map(finished));
    }
    durations
}

/// The duration of `{"Finished": [START, END]}`.
fn finished(lifecycle: &Packed) -> Option<Duration> {
    let [start, end] = lifecycle.get("Finished")?.list()? else {
        return None;
    };
    let seconds = end.number()?.checked_sub(start.number()?)?;
    Some(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// `apps/v1.Deployment`.
fn kind_of(object: &Value) -> Option<String> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    Some(format!("{version}.{kind}"))
}

fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default")
}

/// The number of pods of each template.
fn replicas(kind: &str, object: &Value) -> usize {
    let count = match kind {
        "apps/v1.Deployment" | "apps/v1.ReplicaSet" | "apps/v1.StatefulSet" => {
            object["spec"]["replicas"].as_u64()
        }
        "batch/v1.Job" => object["spec"]["parallelism"].as_u64(),
        _ => None,
    };
    usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX)
}

impl Importer {
    fn event(&mut self, event: &Packed, number: usize, at: Duration) -> Result<(), SimkubeError> {
        for (list, is_applied) in [("applied_objs", true), ("deleted_objs", false)] {
            let objects = event.get(list).and_then(Packed::list).unwrap_or_default();
            for (place, object) in objects.iter().enumerate() {
                let object = object.json();
                let place = format!("events[{number}].{list}[{place}]");
                let (Some(kind), Some(name)) =
                    (kind_of(&object), object["metadata"]["name"].as_str())
                else {
                    let message =
                        "is no Kubernetes object: it needs apiVersion, kind and metadata.name";
                    return Err(error(place, message));
                };
                let key = (kind, format!("{}/{name}", namespace(&object)));
                if is_applied {
                    self.applied(key, &object, &place, at)?;
                } else if let Some(owner) = self.owners.remove(&key) {
                    let pods = owner.pods.into_iter().flatten();
                    pods.for_each(|pod| end(&mut self.trace, pod, at));
                }
            }
        }
        Ok(())
    }

    /// The templates of the pods of an object; `None` for a kind without known templates.
    fn templates(&self, kind: &str, object: &Value) -> Option<Vec<Value>> {
        let configured = self.paths.get(kind);
        let usual = match kind {
            "v1.Pod" => "",
            "apps/v1.Deployment"
            | "apps/v1.ReplicaSet"
            | "apps/v1.StatefulSet"
            | "batch/v1.Job" => "/spec/template",
            // A CronJob's jobs are separate objects, and the number of pods of a DaemonSet follows the nodes.
            "batch/v1.CronJob" | "apps/v1.DaemonSet" => return None,
            _ => {
                let paths = configured.filter(|paths| !paths.is_empty())?;
                let found = paths.iter().filter_map(|path| object.pointer(path));
                return Some(found.cloned().collect());
            }
        };
        Some(object.pointer(usual).cloned().into_iter().collect())
    }

    fn applied(
        &mut self,
        key: OwnerKey,
        object: &Value,
        place: &str,
        at: Duration,
    ) -> Result<(), SimkubeError> {
        let Some(templates) = self.templates(&key.0, object) else {
            *self.left_out.entry(key.0).or_default() += 1;
            return Ok(());
        };
        let wanted = replicas(&key.0, object);
        let mut owner = self.owners.remove(&key).unwrap_or_default();
        if owner.templates != templates {
            // A rollout, taken as one step.
            let before = std::mem::take(&mut owner.pods);
            before
                .into_iter()
                .flatten()
                .for_each(|pod| end(&mut self.trace, pod, at));
            owner.pods = vec![Vec::new(); templates.len()];
        }
        let recreated = key.0 != "v1.Pod";
        let (_, name) = key.1.split_once('/').unwrap_or_default();
        for (template, pods) in templates.iter().zip(&mut owner.pods) {
            while pods.len() > wanted {
                pods.pop()
                    .into_iter()
                    .for_each(|pod| end(&mut self.trace, pod, at));
            }
            if pods.len() == wanted {
                continue;
            }
            let pod = Arc::new(pod(template, namespace(object), place)?);
            while pods.len() < wanted {
                let known = self.durations.get(&key).filter(|known| !known.is_empty());
                let duration = known.and_then(|known| known[owner.started % known.len()]);
                let name: Str = if recreated {
                    format!("{name}-{}", owner.started).into()
                } else {
                    name.into()
                };
                owner.started += 1;
                pods.push(self.trace.pods.len());
                self.trace.pods.push(TracePod {
                    arrival: at,
                    duration: duration.map(Distribution::Constant),
                    recreated,
                    ..TracePod::new(name, pod.clone())
                });
            }
        }
        owner.templates = templates;
        self.owners.insert(key, owner);
        Ok(())
    }
}

/// The pod ends at that time, unless it has ended before.
fn end(trace: &mut Trace, pod: usize, at: Duration) {
    let pod = &mut trace.pods[pod];
    let until = at.saturating_sub(pod.arrival);
    pod.duration = Some(match pod.duration.take() {
        Some(Distribution::Constant(own)) => Distribution::Constant(own.min(until)),
        _ => Distribution::Constant(until),
    });
}

/// The pod of a template, without the decisions of the cluster of the trace.
fn pod(template: &Value, namespace: &str, place: &str) -> Result<Pod, SimkubeError> {
    let mut spec = template["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        for decided in ["nodeName", "volumes"] {
            fields.remove(decided);
        }
    }
    let pod = json!({
        "metadata": {"namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": spec,
    });
    match Kind::Pod.decode(pod.to_string().as_bytes()) {
        Ok(Object::Pod(pod)) => Ok(Arc::unwrap_or_clone(pod)),
        Ok(_) => Err(error(place, "the template is no pod")),
        Err(mistake) => Err(error(place, format!("the template is no pod: {mistake}"))),
    }
}

#[cfg(test)]
mod tests;
