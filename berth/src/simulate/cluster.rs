//! The objects of a cluster, as `kubectl get -A -o yaml` prints them: the pods that run now, those that wait, the nodes.

use super::input::trace_node;
use berth_api::{Object, Pod, Quantity, ResourceList};
use berth_core::{ClusterObjects, Document, decoded, documents, is_read_by_buffers};
use berth_edge::exit::CommandFailure;
use berth_simulation::Trace;
use berth_simulation::trace::{CapacityBuffer, Quota, TraceGroup, TracePod};
use serde_json::Value;
use std::path::Path;

/// The controllers that replace pods.
const REPLACING: [&str; 4] = ["ReplicaSet", "StatefulSet", "Job", "ReplicationController"];

/// Returns whether a text has objects of Kubernetes: they state their API version and kind.
pub(super) fn is_objects(text: &str) -> bool {
    if text.trim_start().starts_with('{') {
        return text.contains("\"apiVersion\"");
    }
    text.lines()
        .any(|line| line.starts_with("apiVersion:") || line.starts_with("kind:"))
}

/// Reads objects.
///
/// # Errors
/// When an object is malformed.
pub(super) fn read(
    file: &Path,
    text: &str,
    notes: &mut Vec<String>,
) -> Result<Trace, CommandFailure> {
    let mut trace = Trace::default();
    let mut left_out = std::collections::BTreeSet::new();
    let documents = documents(&file.display().to_string(), text).map_err(CommandFailure::usage)?;
    let has_buffers = buffers(&documents, &mut trace, notes)?;
    for Document { place, object } in documents {
        if has_buffers && is_read_by_buffers(&object) {
            continue;
        }
        if object["kind"] == "ResourceQuota" {
            trace.quotas.extend(quota(&object));
            continue;
        }
        match decoded(Document { place, object }).map_err(CommandFailure::usage)? {
            Ok(object) => add(&mut trace, object),
            Err(kind) => {
                left_out.insert(kind);
            }
        }
    }
    // Pods on nodes are there before others ask for the room.
    trace.pods.sort_by_key(|pod| !pod.pod.is_assigned());
    if !left_out.is_empty() {
        let kinds: Vec<String> = left_out.into_iter().collect();
        notes.push(format!(
            "{}: kinds that the scheduler does not read are left out: {}",
            file.display(),
            kinds.join(", ")
        ));
    }
    if trace
        .pods
        .iter()
        .any(|pod| pod.pod.is_assigned() && pod.duration.is_none())
    {
        notes.push(format!(
            "{}: its pods do not end unless --durations states how long they run",
            file.display()
        ));
    }
    Ok(trace)
}

/// Adds an object of a cluster to a trace.
pub(super) fn add(trace: &mut Trace, object: Object) {
    match object {
        Object::Pod(pod) if pod.is_terminal() || pod.is_terminating() => {}
        Object::Pod(pod) => trace.pods.push(trace_pod(&pod)),
        Object::Node(node) => trace.nodes.push(trace_node(&node)),
        Object::PodGroup(group) => trace.groups.push(TraceGroup {
            namespace: group.metadata.namespace.clone(),
            name: group.metadata.name.clone(),
            minimum: u32::try_from(group.spec.min()).unwrap_or(1),
            topology: group.spec.topology_key().cloned(),
            priority: group.spec.priority,
        }),
        // The simulation has the namespaces of its pods; their labels matter.
        object => trace.objects.push(object),
    }
}

/// A pod of a cluster, as traces have it.
pub(super) fn trace_pod(pod: &Pod) -> TracePod {
    let controller = pod.metadata.controller();
    let recreated = controller.is_some_and(|owner| REPLACING.contains(&owner.kind.as_str()));
    TracePod {
        recreated,
        ..TracePod::new(pod.name().clone(), pod.clone())
    }
}

/// Adds the CapacityBuffers. Returns whether there are any.
fn buffers(
    documents: &[Document],
    trace: &mut Trace,
    notes: &mut Vec<String>,
) -> Result<bool, CommandFailure> {
    let mut cluster = ClusterObjects::new();
    for document in documents {
        if is_read_by_buffers(&document.object) {
            cluster
                .set(document.clone())
                .map_err(CommandFailure::usage)?;
        }
    }
    if !cluster.has_buffers() {
        return Ok(false);
    }
    // A buffer may refer to any workload, and to the pods of one that is not among the objects.
    for document in documents {
        if !is_read_by_buffers(&document.object) {
            cluster
                .set(document.clone())
                .map_err(CommandFailure::usage)?;
        }
    }
    let (requests, without_chunks) = cluster.buffers();
    trace.buffers = requests
        .into_iter()
        .map(|request| CapacityBuffer {
            namespace: request.namespace.into(),
            name: request.name.into(),
            pod: request.chunk,
            chunks: request.chunks,
        })
        .collect();
    notes.extend(without_chunks);
    Ok(true)
}

/// A quota by its limits on requests and the number of pods.
fn quota(object: &Value) -> Option<Quota> {
    let hard = object["spec"]["hard"].as_object()?;
    let hard = hard.iter().filter_map(|(name, amount)| {
        let name = match name.as_str() {
            "cpu" | "memory" | "pods" => name.as_str(),
            "count/pods" => "pods",
            name => name.strip_prefix("requests.")?,
        };
        let text = amount
            .as_str()
            .map_or_else(|| amount.to_string(), str::to_owned);
        Some((name.to_owned(), text.parse::<Quantity>().ok()?))
    });
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    Some(Quota {
        namespace: namespace.into(),
        hard: ResourceList::from_pairs(hard),
    })
}
