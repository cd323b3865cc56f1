//! CapacityBuffers (`autoscaling.x-k8s.io`): headroom that a cluster autoscaler keeps for pods that do not exist yet.
//! Each chunk of a buffer is a virtual pod with the lowest priority, so it takes only the room that is left.
//!
//! The number of chunks is the least of `replicas`, the percentage of the workload's pods, rounded down, and the chunks
//! within `limits`, as Cluster Autoscaler computes it.

use super::strict::hint;
use super::workloads::{new_pod, pods_of};
use super::{Added, DELETE, merge, name_of, namespace_of};
use crate::InputError;
use crate::json::{ClusterJson, ObjectKey, decoded_pod, set_defaults};
use berth_api::requests::{SumOptions, pod_requests};
use berth_api::{Kind, Pod, Quantity};
use berth_explain::what_if::{BufferRoom, WhatIfReport, WhatIfWorld};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The API group of CapacityBuffers.
pub(crate) const GROUP: &str = "autoscaling.x-k8s.io";
/// The kind of the buffers.
const KIND: &str = "CapacityBuffer";
/// The most chunks of a buffer.
const CHUNKS_MAX: u32 = 10_000;
/// The only strategy that requests free room, in the spelling of each version.
const STRATEGIES: [&str; 2] = ["active-capacity", "buffer.x-k8s.io/active-capacity"];

/// Returns whether an object is a CapacityBuffer.
pub(crate) fn is_buffer(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    object["kind"] == KIND && version.split_once('/').is_some_and(|(of, _)| of == GROUP)
}

/// Returns whether an object is a CapacityBuffer, or of a kind that only CapacityBuffers read: PodTemplate, Deployment
/// and Job.
pub fn is_read_by_buffers(object: &Value) -> bool {
    is_buffer(object) || is_template(object) || is_scalable(object)
}

/// Returns whether an object is a PodTemplate.
fn is_template(object: &Value) -> bool {
    object["apiVersion"] == "v1" && object["kind"] == "PodTemplate"
}

/// Returns whether an object is a workload that only buffers read: the scheduler reads the others.
fn is_scalable(object: &Value) -> bool {
    let of = |version: &str, kind: &str| object["apiVersion"] == version && object["kind"] == kind;
    of("apps/v1", "Deployment") || of("batch/v1", "Job")
}

/// The room that a CapacityBuffer requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BufferRequest {
    /// The namespace of the buffer.
    pub namespace: String,
    /// The name of the buffer.
    pub name: String,
    /// The pod with the shape of a chunk.
    pub chunk: Arc<Pod>,
    /// The number of chunks, at most 10,000.
    pub chunks: u32,
}

/// A buffer with the template and number of its chunks.
struct DefinedBuffer<'a> {
    namespace: &'a str,
    name: &'a str,
    buffer: &'a Value,
    template: Value,
    chunks: u32,
}

impl DefinedBuffer<'_> {
    /// The key of the virtual pod of a chunk.
    fn key(&self, number: u32) -> ObjectKey {
        (
            Kind::Pod,
            self.namespace.to_owned(),
            format!("{}-chunk-{number}", self.name),
        )
    }

    /// The pod that stands for a chunk.
    fn pod(&self, key: &ObjectKey) -> Value {
        chunk(key, &self.template, self.buffer, self.name)
    }
}

/// The chunks of a buffer.
#[derive(Debug, Clone)]
pub(crate) struct BufferChunks {
    /// `namespace/name` of the buffer.
    buffer: String,
    /// `namespace/name` of the virtual pods of the chunks.
    pods: Vec<String>,
}

/// The fields of `spec`.
const FIELDS: [&str; 6] = [
    "limits",
    "percentage",
    "podTemplateRef",
    "provisioningStrategy",
    "replicas",
    "scalableRef",
];

/// Checks the fields of a CapacityBuffer. Each cluster has its own version of the definition, so what-if checks no
/// other rules.
///
/// # Errors
/// When `spec` has a field that exists in no version.
pub(crate) fn check(place: &str, buffer: &Value) -> Result<(), InputError> {
    let fields = buffer["spec"].as_object();
    let mut fields = fields.into_iter().flat_map(|fields| fields.keys());
    match fields.find(|field| !FIELDS.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => Err(InputError::object(
            place,
            format!(
                "{KIND}: unknown field \"spec.{field}\"{}",
                hint(field, FIELDS.into_iter())
            ),
        )),
    }
}

/// CapacityBuffers, and the objects that define their chunks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers {
    /// By kind, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
}

impl Buffers {
    /// Takes a CapacityBuffer or PodTemplate, or copies a workload. Returns whether the object is not needed otherwise.
    ///
    /// # Errors
    /// When it has no name, or an object that does not exist is deleted.
    pub(crate) fn take(
        &mut self,
        place: &str,
        object: &Value,
        is_change: bool,
    ) -> Result<bool, InputError> {
        let is_own = is_buffer(object) || is_template(object);
        if !is_own && !is_scalable(object) {
            return Ok(false);
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let wrong = |what: String| InputError::object(place, format!("{kind}: {what}"));
        let Some(name) = name_of(object) else {
            return if is_own {
                Err(wrong("metadata.name is missing".to_owned()))
            } else {
                Ok(false)
            };
        };
        let key = (kind.clone(), namespace_of(object), name);
        if object["metadata"]["annotations"][DELETE] == "delete" {
            if self.objects.remove(&key).is_none() && is_own {
                let known = self.objects.keys();
                let known = known.filter(|known| (&known.0, &known.1) == (&key.0, &key.1));
                let hint = hint(&key.2, known.map(|known| known.2.as_str()));
                return Err(wrong(format!(
                    "there is no {}/{} to delete{hint}",
                    key.1, key.2
                )));
            }
        } else {
            let known = self.objects.entry(key).or_default();
            merge(known, object.clone());
            set_defaults(known);
        }
        // A change of a workload also changes its pods.
        Ok(is_own || !is_change)
    }

    /// Returns whether there is a buffer.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffers().next().is_none()
    }

    fn buffers(&self) -> impl Iterator<Item = (&(String, String, String), &Value)> {
        self.objects.iter().filter(|(key, _)| key.0 == KIND)
    }

    /// Adds the chunks of all buffers as pods. Returns them, and a note for each buffer without chunks.
    pub(crate) fn add_chunks(
        &self,
        raw: &mut ClusterJson,
        added: &mut Added,
    ) -> (Vec<BufferChunks>, Vec<String>) {
        let (defined, notes) = self.defined(raw);
        let mut all = Vec::new();
        for buffer in defined {
            let mut pods = Vec::new();
            for number in 1..=buffer.chunks {
                let key = buffer.key(number);
                pods.push(format!("{}/{}", key.1, key.2));
                raw.insert(key.clone(), buffer.pod(&key));
                added.pods.push(key);
            }
            let buffer = format!("{}/{}", buffer.namespace, buffer.name);
            all.push(BufferChunks { buffer, pods });
        }
        (all, notes)
    }

    /// The room that each buffer requests, and a note for each buffer without chunks.
    pub(crate) fn requests(&self, raw: &ClusterJson) -> (Vec<BufferRequest>, Vec<String>) {
        let (defined, mut notes) = self.defined(raw);
        let mut all = Vec::new();
        for buffer in defined {
            match decoded(&buffer.pod(&buffer.key(1))) {
                Ok(chunk) => all.push(BufferRequest {
                    namespace: buffer.namespace.to_owned(),
                    name: buffer.name.to_owned(),
                    chunk,
                    chunks: buffer.chunks,
                }),
                Err(reason) => notes.push(no_room(buffer.namespace, buffer.name, &reason)),
            }
        }
        (all, notes)
    }

    /// The buffers that define chunks, and a note for each other buffer.
    fn defined(&self, raw: &ClusterJson) -> (Vec<DefinedBuffer<'_>>, Vec<String>) {
        let (mut all, mut notes) = (Vec::new(), Vec::new());
        for ((_, namespace, name), buffer) in self.buffers() {
            match self.chunks(raw, namespace, buffer) {
                Ok((template, chunks)) => all.push(DefinedBuffer {
                    namespace,
                    name,
                    buffer,
                    template,
                    chunks,
                }),
                Err(reason) => notes.push(no_room(namespace, name, &reason)),
            }
        }
        (all, notes)
    }

    /// The template of a chunk, and the number of chunks.
    fn chunks(
        &self,
        raw: &ClusterJson,
        namespace: &str,
        buffer: &Value,
    ) -> Result<(Value, u32), String> {
        let spec = &buffer["spec"];
        if let Some(strategy) = spec["provisioningStrategy"].as_str()
            && !STRATEGIES.contains(&strategy)
        {
            return Err(format!(
                "spec.provisioningStrategy {strategy:?} is not known"
            ));
        }
        let (template, pods) = self.template(raw, namespace, spec)?;
        let mut chunks: Option<u64> = None;
        let mut at_most = |number: u64| chunks = Some(chunks.map_or(number, |n| n.min(number)));
        if let Some(replicas) = spec["replicas"].as_i64() {
            at_most(u64::try_from(replicas).unwrap_or(0));
        }
        if let (Some(percentage), Some(pods)) = (spec["percentage"].as_u64(), pods) {
            at_most(pods.saturating_mul(percentage) / 100);
        }
        if spec["limits"].is_object() {
            at_most(within_limits(&template, &spec["limits"])?);
        }
        let chunks = chunks.ok_or("spec has neither replicas, nor a percentage, nor limits")?;
        let supported = u32::try_from(chunks).ok();
        let supported = supported.filter(|chunks| *chunks <= CHUNKS_MAX);
        let chunks = supported
            .ok_or_else(|| format!("it has {chunks} chunks; at most {CHUNKS_MAX} are supported"))?;
        Ok((template, chunks))
    }

    /// The template of a buffer; for a workload, with the number of its pods.
    fn template(
        &self,
        raw: &ClusterJson,
        namespace: &str,
        spec: &Value,
    ) -> Result<(Value, Option<u64>), String> {
        if let Some(name) = spec["podTemplateRef"]["name"].as_str() {
            let key = ("PodTemplate".into(), namespace.to_owned(), name.to_owned());
            let found = self.objects.get(&key);
            let found =
                found.ok_or_else(|| format!("there is no PodTemplate {namespace}/{name}"))?;
            return Ok((found["template"].clone(), None));
        }
        let reference = &spec["scalableRef"];
        let (Some(kind), Some(name)) = (reference["kind"].as_str(), reference["name"].as_str())
        else {
            return Err("spec has neither a podTemplateRef nor a scalableRef".to_owned());
        };
        let own = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let read_by_scheduler = raw.iter().find_map(|(key, object)| {
            let is_it = key.0.name() == kind && key.1 == namespace && key.2 == name;
            is_it.then_some(object)
        });
        let pods = pods_of(raw, kind, namespace, name);
        let count = |object: &Value| {
            let field = if kind == "Job" {
                "parallelism"
            } else {
                "replicas"
            };
            let stated = object["spec"][field].as_u64();
            stated.unwrap_or(pods.len().max(1) as u64)
        };
        let known = self.objects.get(&own).or(read_by_scheduler);
        if let Some(object) = known
            && object["spec"]["template"].is_object()
        {
            return Ok((object["spec"]["template"].clone(), Some(count(object))));
        }
        let Some(pod) = pods.first() else {
            return Err(format!(
                "there is no {kind} {namespace}/{name} and no pod of it"
            ));
        };
        let template = json!({
            "metadata": {"labels": raw[pod]["metadata"]["labels"]},
            "spec": raw[pod]["spec"],
        });
        Ok((template, Some(known.map_or(pods.len() as u64, count))))
    }
}

/// The pod that stands for a chunk.
fn chunk(key: &ObjectKey, template: &Value, buffer: &Value, name: &str) -> Value {
    let version = buffer["apiVersion"].as_str().unwrap_or(GROUP);
    let mut pod = new_pod(key, template, version, KIND, name);
    // The lowest priority, so that a chunk only uses room that no other pod needs.
    pod["spec"]["priority"] = i32::MIN.into();
    pod["spec"]["preemptionPolicy"] = "Never".into();
    pod
}

/// The note about a buffer without chunks.
fn no_room(namespace: &str, name: &str, reason: &str) -> String {
    format!("CapacityBuffer {namespace}/{name} keeps no room: {reason}")
}

/// The pod of a chunk as a type.
fn decoded(pod: &Value) -> Result<Arc<Pod>, String> {
    decoded_pod(pod).map_err(|error| format!("its template cannot be read: {error}"))
}

/// The number of chunks whose requests are within the limits.
fn within_limits(template: &Value, limits: &Value) -> Result<u64, String> {
    let key = (Kind::Pod, String::new(), "chunk".to_owned());
    let pod = decoded(&new_pod(&key, template, "", KIND, ""))?;
    let requests = pod_requests(&pod, SumOptions::PENDING);
    let mut chunks: Option<u64> = None;
    for (resource, limit) in limits.as_object().into_iter().flatten() {
        let text = limit
            .as_str()
            .map_or_else(|| limit.to_string(), str::to_owned);
        let limit: Quantity = text
            .parse()
            .map_err(|_| format!("spec.limits.{resource}: {text:?} is no quantity"))?;
        let requested = requests
            .get(resource)
            .map_or(0, |amount| amount.milli_value());
        if requested > 0 {
            let fitting = u64::try_from(limit.milli_value() / requested).unwrap_or(0);
            chunks = Some(chunks.map_or(fitting, |n| n.min(fitting)));
        }
    }
    chunks.ok_or_else(|| "its template requests no resource of spec.limits".to_owned())
}

/// The chunks of each buffer that have room at the end of a run.
pub(crate) fn rooms(
    chunks: &[BufferChunks],
    run: &WhatIfWorld,
    report: &WhatIfReport,
) -> Vec<BufferRoom> {
    let has_room = |pod: &&String| run.pod(pod).is_some_and(|pod| pod.is_assigned());
    let reason_of = |pod: &String| {
        let mut waiting = report.pending.iter().chain(&report.not_admitted);
        let found = waiting.find(|waiting| waiting.pod == *pod);
        found.map_or_else(String::new, |waiting| waiting.reason.clone())
    };
    let room = |of: &BufferChunks| {
        let missing = of.pods.iter().find(|pod| !has_room(pod));
        BufferRoom {
            buffer: of.buffer.clone(),
            chunks: of.pods.len(),
            fitting: of.pods.iter().filter(has_room).count(),
            reason: missing.map_or_else(String::new, reason_of),
        }
    };
    chunks.iter().map(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, rest: Value) -> Value {
        let version = match kind {
            KIND => "autoscaling.x-k8s.io/v1beta1",
            "Deployment" => "apps/v1",
            _ => "v1",
        };
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        merge(&mut object, rest);
        object
    }

    fn template() -> Value {
        json!({"spec": {"containers": [
            {"name": "a", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "b", "image": "i", "resources": {"requests": {"cpu": "500m"}}},
        ]}})
    }

    /// The number of chunks of a buffer, or the reason why it has none.
    fn chunks_of(spec: Value) -> Result<usize, String> {
        let (mut buffers, mut raw) = (Buffers::default(), ClusterJson::new());
        for object in [
            object("PodTemplate", "t", json!({"template": template()})),
            object(
                "Deployment",
                "web",
                json!({"spec": {"replicas": 15, "template": template()}}),
            ),
            object(KIND, "room", json!({ "spec": spec })),
        ] {
            buffers.take("f", &object, false).expect("taken");
        }
        let mut added = Added::default();
        let (chunks, notes) = buffers.add_chunks(&mut raw, &mut added);
        match &notes[..] {
            [] => {
                assert_eq!(chunks.len(), 1);
                assert_eq!(raw.len(), added.pods.len());
                Ok(chunks[0].pods.len())
            }
            notes => Err(notes.join("; ")),
        }
    }

    #[test]
    fn the_least_of_all_numbers_is_the_number_of_chunks() {
        let of_template = json!({"name": "t"});
        let of_web = json!({"apiGroup": "apps", "kind": "Deployment", "name": "web"});
        for (spec, expected) in [
            (json!({"podTemplateRef": of_template, "replicas": 3}), 3),
            (json!({"podTemplateRef": of_template, "replicas": 0}), 0),
            (json!({"podTemplateRef": of_template, "replicas": -1}), 0),
            // 1 CPU for each chunk.
            (
                json!({"podTemplateRef": of_template, "limits": {"cpu": "4500m"}}),
                4,
            ),
            (
                json!({"podTemplateRef": of_template, "limits": {"cpu": 9, "memory": "2Gi"}}),
                2,
            ),
            (
                json!({"podTemplateRef": of_template, "replicas": 3, "limits": {"cpu": "2"}}),
                2,
            ),
            // 20 % of 15, rounded down.
            (json!({"scalableRef": of_web, "percentage": 20}), 3),
            (json!({"scalableRef": of_web, "percentage": 5}), 0),
            (
                json!({"scalableRef": of_web, "percentage": 50, "replicas": 4}),
                4,
            ),
            (
                json!({"scalableRef": of_web, "replicas": 2,
                       "provisioningStrategy": "buffer.x-k8s.io/active-capacity"}),
                2,
            ),
        ] {
            assert_eq!(chunks_of(spec.clone()), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_one() {
        let buffer = object(KIND, "room", json!({"spec": {"replica": 1}}));
        let text = check("f", &buffer).expect_err("a fault").to_string();
        assert!(text.contains("unknown field \"spec.replica\""), "{text}");
        assert!(text.contains("replicas"), "{text}");
    }

    #[test]
    fn a_buffer_that_defines_no_chunks_is_named_with_the_reason() {
        let of_template = json!({"name": "t"});
        for (spec, expected) in [
            (
                json!({"replicas": 1}),
                "neither a podTemplateRef nor a scalableRef",
            ),
            (
                json!({"podTemplateRef": {"name": "other"}, "replicas": 1}),
                "there is no PodTemplate default/other",
            ),
            (
                json!({"scalableRef": {"kind": "Deployment", "name": "api"}, "replicas": 1}),
                "there is no Deployment default/api and no pod of it",
            ),
            (
                json!({"podTemplateRef": of_template}),
                "neither replicas, nor a percentage, nor limits",
            ),
            (
                json!({"podTemplateRef": of_template, "limits": {"example.com/gpu": "1"}}),
                "requests no resource of spec.limits",
            ),
            (
                json!({"podTemplateRef": of_template, "limits": {"cpu": "much"}}),
                "spec.limits.cpu: \"much\" is no quantity",
            ),
            (
                json!({"podTemplateRef": of_template, "replicas": 20_000}),
                "at most 10000 are supported",
            ),
            (
                json!({"podTemplateRef": of_template, "replicas": 1, "provisioningStrategy": "other"}),
                "spec.provisioningStrategy \"other\" is not known",
            ),
        ] {
            let reason = chunks_of(spec.clone()).expect_err("no chunks");
            assert!(reason.contains("CapacityBuffer default/room"), "{reason}");
            assert!(reason.contains(expected), "{spec}: {reason}");
        }
    }
}
