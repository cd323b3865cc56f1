//! The objects of a cluster, as `kubectl get -A -o yaml` prints them: running pods, waiting pods, nodes.

use super::Input;
use super::input::trace_node;
use berth_api::{Object, Pod, Quantity, ResourceClaim, ResourceList};
use berth_core::{
    ClusterObjects, Document, decoded, documents, is_priority_class, is_read_by_buffers,
    note_volume_templates,
};
use berth_edge::exit::CommandFailure;
use berth_objects::daemon_set::assign;
use berth_simulation::Trace;
use berth_simulation::trace::{
    BudgetBound, CapacityBuffer, DaemonSet, DisruptionBudget, GRACE_PERIOD_ANNOTATION, PodShare,
    Quota, TraceGroup, TracePod,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The API group of resource claims.
const DEVICES: &str = "resource.k8s.io/";
/// The controllers that replace pods.
const REPLACING: [&str; 4] = ["ReplicaSet", "StatefulSet", "Job", "ReplicationController"];

/// The field by which a JSON text is an object of Kubernetes.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "apiVersion")]
    api_version: Option<IgnoredAny>,
}

/// Returns whether a text has objects of Kubernetes: they state their API version and kind.
pub(super) fn is_objects(text: &str) -> bool {
    if text.trim_start().starts_with('{') {
        // A trace has objects in its list `objects`.
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Head>();
        return documents
            .next()
            .is_some_and(|head| head.is_ok_and(|head| head.api_version.is_some()));
    }
    text.lines()
        .any(|line| line.starts_with("apiVersion:") || line.starts_with("kind:"))
}

/// Reads objects.
///
/// # Errors
/// When an object is malformed.
pub(super) fn read(file: &Path, text: &str, input: &mut Input) -> Result<Trace, CommandFailure> {
    let shown = file.display().to_string();
    let documents = documents(&shown, text).map_err(CommandFailure::usage)?;
    objects(&shown, documents, input)
}

/// The objects of a file as a trace.
///
/// # Errors
/// When an object is malformed.
pub(super) fn objects(
    file: &str,
    documents: Vec<Document>,
    input: &mut Input,
) -> Result<Trace, CommandFailure> {
    let mut trace = Trace::default();
    let mut left_out = std::collections::BTreeSet::new();
    let has_buffers = buffers(&documents, &mut trace, &mut input.notes)?;
    for Document { place, object } in documents {
        if has_buffers && is_read_by_buffers(&object) {
            continue;
        }
        if object["kind"] == "ResourceQuota" {
            trace.quotas.extend(quota(&object));
            continue;
        }
        if is_priority_class(&object) {
            let classes = &mut input.priority_classes;
            classes
                .change(&place, object)
                .map_err(CommandFailure::usage)?;
            continue;
        }
        let spec = object["spec"].clone();
        match (object["apiVersion"].as_str(), object["kind"].as_str()) {
            (Some("apps/v1"), Some("DaemonSet")) => {
                trace.daemon_sets.push(daemon_set(place, &object)?);
                continue;
            }
            (Some(version), Some("ResourceClaimTemplate")) if version.starts_with(DEVICES) => {
                trace.claim_templates.push(claim_template(place, object)?);
                continue;
            }
            _ => {}
        }
        let shown = place.clone();
        match decoded(Document { place, object }).map_err(CommandFailure::usage)? {
            Ok(Object::PodDisruptionBudget(object)) => {
                let bound = budget_bound(&spec).map_err(|e| malformed(&shown, &e))?;
                trace.budgets.push(DisruptionBudget { object, bound });
            }
            Ok(Object::Pod(mut pod)) => {
                let noted = note_unread(Arc::make_mut(&mut pod), &spec);
                noted.map_err(|e| malformed(&shown, &e))?;
                add(&mut trace, Object::Pod(pod));
            }
            Ok(object @ Object::PodGroup(_)) => {
                add(&mut trace, object);
                let class = spec["priorityClassName"].as_str().unwrap_or_default();
                if let Some(group) = trace.groups.last_mut() {
                    group.priority_class = Some(class.into());
                }
            }
            Ok(object) => add(&mut trace, object),
            Err(kind) => {
                left_out.insert(kind);
            }
        }
    }
    // The simulation creates the pods of DaemonSets itself.
    let sets = trace.daemon_sets.iter();
    let sets = sets.map(|set| (set.pod.namespace().clone(), set.name.clone()));
    let sets: std::collections::BTreeSet<_> = sets.collect();
    trace.pods.retain(|pod| {
        let owner = pod.pod.metadata.controller();
        !owner.is_some_and(|owner| {
            let set = (pod.pod.namespace().clone(), owner.name.clone());
            owner.kind == "DaemonSet" && sets.contains(&set)
        })
    });
    // Pods on nodes are placed before other pods request the resources.
    trace.pods.sort_by_key(|pod| !pod.pod.is_assigned());
    if !left_out.is_empty() {
        let kinds: Vec<String> = left_out.into_iter().collect();
        input.notes.push(format!(
            "{file}: kinds that the scheduler does not read are left out: {}",
            kinds.join(", ")
        ));
    }
    if trace
        .pods
        .iter()
        .any(|pod| pod.pod.is_assigned() && pod.duration.is_none())
    {
        input.notes.push(format!(
            "{file}: its pods do not end unless --durations states how long they run"
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
            priority_class: None,
        }),
        // A recording has no bounds of budgets: they are derived from the initial number of allowed disruptions.
        Object::PodDisruptionBudget(object) => {
            let allowed = u32::try_from(object.status.disruptions_allowed).unwrap_or(0);
            let bound = BudgetBound::MaxUnavailable(PodShare::Pods(allowed));
            trace.budgets.push(DisruptionBudget { object, bound });
        }
        // The simulation has the namespaces of its pods; their labels matter.
        object => trace.objects.push(object),
    }
}

/// Notes the parts of a pod's spec that controllers read and the scheduler does not.
///
/// # Errors
/// The template of an ephemeral volume is malformed.
pub(super) fn note_unread(pod: &mut Pod, spec: &Value) -> Result<(), String> {
    if let Some(seconds) = spec["terminationGracePeriodSeconds"].as_u64() {
        let annotations = &mut pod.metadata.annotations;
        *annotations = annotations.with(GRACE_PERIOD_ANNOTATION, &seconds.to_string());
    }
    note_volume_templates(pod, spec)
}

fn malformed(place: &str, reason: &str) -> CommandFailure {
    CommandFailure::Usage(format!("{place}: {reason}"))
}

/// The pods that the spec of a PodDisruptionBudget keeps.
fn budget_bound(spec: &Value) -> Result<BudgetBound, String> {
    let share = |field: &str| {
        let wrong = || {
            format!(
                "spec.{field} is {}; write a number of pods or a percentage such as 50%",
                spec[field]
            )
        };
        let percent = spec[field].as_str().map(|text| {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            percent.map(PodShare::Percent)
        });
        let pods = || {
            let pods = spec[field].as_u64();
            pods.and_then(|pods| u32::try_from(pods).ok())
                .map(PodShare::Pods)
        };
        percent.unwrap_or_else(pods).ok_or_else(wrong)
    };
    // A budget without a bound allows no eviction.
    match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Null, Value::Null) => Ok(BudgetBound::MaxUnavailable(PodShare::Pods(0))),
        (Value::Null, _) => share("maxUnavailable").map(BudgetBound::MaxUnavailable),
        _ => share("minAvailable").map(BudgetBound::MinAvailable),
    }
}

/// A DaemonSet with the pod that its controller creates.
fn daemon_set(place: String, object: &Value) -> Result<DaemonSet, CommandFailure> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut pod = object["spec"]["template"].clone();
    if name.is_empty() || !pod["spec"].is_object() {
        let reason = "the DaemonSet has no metadata.name or no spec.template";
        return Err(malformed(&place, reason));
    }
    let mut directed = pod.clone();
    assign(&mut directed, "");
    pod["spec"]["tolerations"] = directed["spec"]["tolerations"].take();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["namespace"] = object["metadata"]["namespace"].clone();
    pod["metadata"]["ownerReferences"] = serde_json::json!([
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "controller": true},
    ]);
    let name = name.into();
    let shown = place.clone();
    match decoded(Document { place, object: pod }).map_err(CommandFailure::usage)? {
        Ok(Object::Pod(pod)) => Ok(DaemonSet { name, pod }),
        _ => Err(malformed(
            &shown,
            "spec.template of the DaemonSet is not the template of a pod",
        )),
    }
}

/// A ResourceClaimTemplate, as a claim with its name.
fn claim_template(place: String, mut object: Value) -> Result<Arc<ResourceClaim>, CommandFailure> {
    object["kind"] = "ResourceClaim".into();
    object["spec"] = object["spec"]["spec"].take();
    let shown = place.clone();
    match decoded(Document { place, object }).map_err(CommandFailure::usage)? {
        Ok(Object::ResourceClaim(claim)) => Ok(claim),
        _ => Err(malformed(
            &shown,
            "spec.spec of the ResourceClaimTemplate is not the spec of a claim",
        )),
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
