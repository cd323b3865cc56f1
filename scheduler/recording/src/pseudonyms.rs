//! Pseudonyms: recordings without the names and labels of a cluster.
//!
//! Each word of a name is replaced by letters that depend on a keyed hash (HMAC-SHA-256). The key is drawn at random
//! when a recording begins and is never written, so the names cannot be computed from the pseudonyms. Equal words have
//! equal pseudonyms in the whole recording: selectors match the same objects, and references remain valid. A word is a
//! run of letters and digits, so the pseudonym of a name composed with `-`, `.` or `/` is composed of the pseudonyms of
//! its parts. Pseudonyms have the order of their words ([`order`]), because the scheduler takes the first of equally
//! good volumes and devices by name.
//!
//! A value is kept only if it is listed here as a fact that decisions depend on: a new field is a pseudonym until it is
//! listed. `docs/use/recording.md` lists the kept values.

mod order;

use crate::call::{Wording, numbers};
use crate::entry::{Entry, JobValue};
use berth_api::names::generated_start;
use berth_api::{Kind, Object, Str};
use berth_framework::call::{CallError, CallResult, PodRef, Response};
use berth_scheduler::CycleResult;
use order::{OrderedWords, WORD_LEN};
use ring::hmac;
use ring::rand::SystemRandom;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::{fmt, io};

/// The number of letters that replace a text, or a part of a name whose pseudonym would be too long.
const WHOLE_LEN: usize = 20;
/// The maximum number of characters of a label value and of the last part of a label key, and of other names.
const LABEL_LEN_MAX: usize = 63;
const NAME_LEN_MAX: usize = 253;
/// The number of generated names that are remembered.
const GENERATED_MAX: usize = 64 * 1024;
/// The start of the pseudonym of a text.
pub(crate) const TEXT: &str = "text-";

/// Names that every cluster has, and values that are no names.
const KNOWN: [&str; 10] = [
    "default",
    "default-scheduler",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "true",
    "false",
    // The value of annotations of volumes and claims that are bound.
    "yes",
    "0.0.0.0",
    "::",
];
/// The message of the API server in the status of a gated pod: the core compares it with its own text.
const KNOWN_TEXT: &str = "Scheduling is blocked due to non-empty scheduling gates";
/// Words with a meaning for the scheduler: the tag of images without a tag.
const KNOWN_WORDS: [&str; 1] = ["latest"];
/// Keys of these domains, and of their subdomains, have a meaning.
const KNOWN_DOMAINS: [&str; 3] = ["kubernetes.io", "k8s.io", "berth.dev"];
/// Extended resources of this domain end with the name of a device class.
const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The ending of the name prefixes from which Berth generates the names of claims for extended resources.
const OF_EXTENDED_RESOURCES: &str = "-extended-resources-";

/// Fields whose texts are no names: enumerations, times, identities, quantities, and types of devices.
const KEPT: &[&str] = &[
    "$patch",
    "accessModes",
    "action",
    "allocationMode",
    "allocationTimestamp",
    "apiGroup",
    "apiVersion",
    "attacher",
    "bindingConditions",
    "bindingFailureConditions",
    "capacity",
    "creationTimestamp",
    "declaredFeatures",
    "deletionTimestamp",
    "distinctAttribute",
    "driver",
    "effect",
    "expression",
    "finalizers",
    "kind",
    "lastTransitionTime",
    "matchAttribute",
    "maximumVolumeSize",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "operator",
    "phase",
    "preemptionPolicy",
    "protocol",
    "provisioner",
    "reason",
    "resource",
    "resourceVersion",
    "restartPolicy",
    "schedulerName",
    "shareID",
    "source",
    "startTime",
    "status",
    "timeAdded",
    "type",
    "uid",
    "unscheduledSince",
    "volumeBindingMode",
    "volumeMode",
    "whenUnsatisfiable",
];
/// Objects whose keys are names of resources, attributes or counters.
const OF_RESOURCES: [&str; 9] = [
    "allocatable",
    "allocatedResources",
    "attributes",
    "capacity",
    "consumedCapacity",
    "counters",
    "limits",
    "overhead",
    "requests",
];
/// Objects whose keys and values are labels, if all of their values are texts.
const LABELS: [&str; 5] = [
    "annotations",
    "labels",
    "matchLabels",
    "nodeSelector",
    "selector",
];
/// Fields with the key of a label or taint.
const LABEL_KEYS: [&str; 5] = [
    "key",
    "matchLabelKeys",
    "mismatchLabelKeys",
    "topologyKey",
    "topologyKeys",
];
/// Fields with values of labels or taints.
const LABEL_VALUES: [&str; 2] = ["value", "values"];
/// Arguments of plugins in a configuration that contain labels.
const LABELS_OF_CONFIGURATION: [&str; 2] = ["addedAffinity", "defaultConstraints"];

/// Replaces names and labels.
pub struct Pseudonyms {
    key: hmac::Key,
    words: OrderedWords,
    /// The names that the scheduler has generated. Their random ends, which a replay generates again, are kept.
    generated: HashMap<Box<str>, String>,
    /// Names that are kept, and domains whose keys are kept, because plugins compare them.
    kept: Vec<String>,
}

impl fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pseudonyms").finish_non_exhaustive()
    }
}

/// Returns whether the text is a number: `Gt` and `Lt` compare label values.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether the text is the name of a request in a claim for extended resources, `container-0-request-0`.
fn is_of_request(text: &str) -> bool {
    let numbers = text.strip_prefix("container-");
    let numbers = numbers.and_then(|rest| rest.split_once("-request-"));
    numbers.is_some_and(|(container, request)| is_number(container) && is_number(request))
}

/// Returns whether a domain is this one or below it.
fn is_in(domain: &str, of: &str) -> bool {
    let rest = domain.strip_suffix(of);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Pseudonyms {
    /// Pseudonyms of a key of their own.
    ///
    /// # Errors
    /// When the system provides no random numbers.
    pub fn new() -> io::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| io::Error::other("the system provides no random numbers"))?;
        Ok(Self {
            key,
            words: OrderedWords::default(),
            generated: HashMap::new(),
            kept: Vec::new(),
        })
    }

    /// With kept names, and domains whose label keys are kept, for values that an out-of-tree plugin compares.
    #[must_use]
    pub fn keeping(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kept.extend(names.into_iter().map(Into::into));
        self
    }

    /// Returns whether a name or a label key has a meaning.
    fn is_known(&self, text: &str) -> bool {
        let kept = self.kept.iter().map(String::as_str);
        let is_name = KNOWN.contains(&text) || kept.clone().any(|name| name == text);
        let domain = text.split_once('/').map(|(domain, _)| domain);
        let mut domains = KNOWN_DOMAINS.into_iter().chain(kept);
        is_name || domain.is_some_and(|domain| domains.any(|known| is_in(domain, known)))
    }

    /// A number of letters for a text.
    fn letters(&self, text: &str, len: usize) -> String {
        let tag = hmac::sign(&self.key, text.as_bytes());
        let letters = tag.as_ref().iter().take(len);
        letters.map(|byte| char::from(b'a' + byte % 26)).collect()
    }

    fn word(&mut self, word: &str) -> Str {
        let key = &self.key;
        let random = || {
            let tag = hmac::sign(key, word.as_bytes());
            let bytes = tag.as_ref().iter().take(8);
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        match self.words.of(word, random) {
            Some(ordered) => ordered,
            None => self.letters(word, WORD_LEN).into(),
        }
    }

    /// A part of a name, of limited length in characters.
    fn part(&mut self, part: &str, len_max: usize) -> String {
        let mut made = String::new();
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let is_of_word = |c: char| c.is_alphanumeric();
            let end = rest.find(|c| is_of_word(c) != is_of_word(first));
            let (head, tail) = rest.split_at(end.unwrap_or(rest.len()));
            if is_of_word(first) && !KNOWN_WORDS.contains(&head) {
                made.push_str(&self.word(head))
            } else {
                made.push_str(head)
            }
            rest = tail;
        }
        if made.len() > len_max {
            self.letters(part, WHOLE_LEN)
        } else {
            made
        }
    }

    fn of(&mut self, text: &str, len_max: usize) -> String {
        if let Some(class) = text.strip_prefix(DEVICE_CLASS_PREFIX) {
            return format!("{DEVICE_CLASS_PREFIX}{}", self.of(class, NAME_LEN_MAX));
        }
        if text.is_empty() || is_number(text) || is_of_request(text) || self.is_known(text) {
            return text.to_owned();
        }
        if let Some(generated) = self.generated.get(text) {
            return generated.clone();
        }
        if let Some(pod) = text.strip_suffix(OF_EXTENDED_RESOURCES) {
            return self.of(pod, NAME_LEN_MAX) + OF_EXTENDED_RESOURCES;
        }
        let parts: Vec<&str> = text.split('/').collect();
        let last = parts.len() - 1;
        let parts = parts.iter().enumerate().map(|(at, part)| {
            let max = if at < last { NAME_LEN_MAX } else { len_max };
            self.part(part, max)
        });
        parts.collect::<Vec<_>>().join("/")
    }

    /// The pseudonym of a label's key or value.
    fn label(&mut self, label: &str) -> String {
        self.of(label, LABEL_LEN_MAX)
    }

    // --- objects -------------------------------------------------------------------------------------------

    /// Replaces the names in a value of this field.
    fn replace(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => self.replace_fields(field, fields),
            Value::Array(items) => {
                for item in items {
                    // The drivers of a node are named by the field `name`.
                    let driver = item.get("name").cloned().filter(|_| field == "drivers");
                    // The items of `requests` are objects, not resources.
                    let field = if item.is_object() { "" } else { field };
                    self.replace(field, item);
                    if let Some(driver) = driver {
                        item["name"] = driver;
                    }
                }
            }
            Value::String(text) => *text = self.replaced(field, text),
            _ => {}
        }
    }

    fn replaced(&mut self, field: &str, text: &str) -> String {
        if KEPT.contains(&field) {
            text.to_owned()
        } else if field == "message" {
            self.text(text)
        } else if field == "extendedResourceName" {
            self.resource(text)
        } else if LABEL_KEYS.contains(&field) || LABEL_VALUES.contains(&field) {
            self.label(text)
        } else {
            self.name(text)
        }
    }

    /// Resources keep their names, but for the name of a device class.
    fn resource(&mut self, name: &str) -> String {
        if name.starts_with(DEVICE_CLASS_PREFIX) {
            self.name(name)
        } else {
            name.to_owned()
        }
    }

    fn replace_fields(&mut self, field: &str, fields: &mut Map<String, Value>) {
        if LABELS.contains(&field) && fields.values().all(Value::is_string) {
            let labels = fields.iter().map(|(key, value)| {
                let value = value.as_str().unwrap_or_default();
                let value = match field {
                    "annotations" => self.name(value),
                    _ => self.label(value),
                };
                (self.label(key), Value::from(value))
            });
            // Sorted by the pseudonyms, as the labels of an object that has them.
            let labels: std::collections::BTreeMap<_, _> = labels.collect();
            *fields = labels.into_iter().collect();
        } else if OF_RESOURCES.contains(&field) {
            let resources = fields.iter();
            let resources = resources.map(|(key, value)| (self.resource(key), value.clone()));
            let resources: std::collections::BTreeMap<_, _> = resources.collect();
            *fields = resources.into_iter().collect();
        } else if field == "disruptedPods" {
            let pods = fields.iter();
            *fields = pods.map(|(pod, at)| (self.name(pod), at.clone())).collect();
        } else if field == "opaque" {
            // Only the driver reads its parameters.
            fields.insert("parameters".to_owned(), Value::Object(Map::new()));
        } else {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    // The keys are fields of objects, the values are names.
                    ("matchFields", Value::Array(terms)) => {
                        for value in terms.iter_mut().filter_map(|term| term.get_mut("values")) {
                            self.replace("names", value);
                        }
                    }
                    (name, value) => self.replace(name, value),
                }
            }
        }
    }

    /// An object with pseudonyms, with the fields that scheduling reads.
    ///
    /// # Errors
    /// When the object cannot be read with its pseudonyms, which is a defect.
    fn object(&mut self, object: &Object) -> Result<Object, serde_json::Error> {
        let mut value = serde_json::to_value(object)?;
        let driver = value["metadata"]["name"].clone();
        self.replace("", &mut value);
        if object.kind() == Kind::CsiDriver {
            value["metadata"]["name"] = driver;
        }
        object.kind().decode(&serde_json::to_vec(&value)?)
    }

    /// An object that the API returned.
    fn response(&mut self, body: &[u8]) -> Vec<u8> {
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
            return Vec::new();
        };
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        let read = Kind::by_name(&version, &kind).and_then(|kind| kind.decode(body).ok());
        if let Some(read) = read {
            let replaced = self.object(&read).ok();
            let replaced = replaced.and_then(|object| serde_json::to_value(object).ok());
            let mut replaced = replaced.unwrap_or_default();
            replaced["apiVersion"] = version.into();
            replaced["kind"] = kind.into();
            return replaced.to_string().into_bytes();
        }
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        self.replace("", &mut value);
        value.to_string().into_bytes()
    }

    /// Replaces the labels in a KubeSchedulerConfiguration, and the addresses of its extenders.
    pub fn configuration(&mut self, configuration: &mut Value) {
        match configuration {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        name if LABELS_OF_CONFIGURATION.contains(&name) => {
                            self.replace(name, value);
                        }
                        "urlPrefix" => {
                            let letters = self.letters(&value.to_string(), WORD_LEN);
                            *value = format!("https://{letters}.invalid").into();
                        }
                        // The connection to the API server is not part of a replay.
                        "clientConnection" | "leaderElection" => {}
                        _ => self.configuration(value),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.configuration(item);
                }
            }
            _ => {}
        }
    }

    // --- entries -------------------------------------------------------------------------------------------

    fn pod(&mut self, pod: &PodRef) -> PodRef {
        PodRef {
            namespace: self.name(&pod.namespace).into(),
            name: self.name(&pod.name).into(),
            uid: pod.uid.clone(),
        }
    }

    fn nodes<T: Clone>(&mut self, nodes: &[(Str, T)]) -> Vec<(Str, T)> {
        let nodes = nodes.iter();
        nodes
            .map(|(node, of)| (self.name(node).into(), of.clone()))
            .collect()
    }

    fn failed(&mut self, nodes: &[(Str, String)]) -> Vec<(Str, String)> {
        let nodes = nodes.iter();
        nodes
            .map(|(node, reason)| (self.name(node).into(), self.text(reason)))
            .collect()
    }

    fn job(&mut self, value: &JobValue) -> JobValue {
        match value {
            JobValue::Done | JobValue::Opaque => value.clone(),
            JobValue::Filtered {
                nodes,
                failed,
                unresolvable,
            } => JobValue::Filtered {
                nodes: nodes.iter().map(|node| self.name(node).into()).collect(),
                failed: self.failed(failed),
                unresolvable: self.failed(unresolvable),
            },
            JobValue::Scores(scores) => JobValue::Scores(self.nodes(scores)),
            JobValue::Victims(victims) => {
                let victims = victims.iter();
                let victims = victims.map(|(node, pods, violated)| {
                    (self.name(node).into(), pods.clone(), *violated)
                });
                JobValue::Victims(victims.collect())
            }
            JobValue::Failed(error) => JobValue::Failed(self.text(error)),
        }
    }

    fn result(&mut self, result: &CallResult) -> CallResult {
        match result {
            Ok(response) => Ok(Response {
                resource_version: response.resource_version.clone(),
                body: if response.body.is_empty() {
                    response.body.clone()
                } else {
                    self.response(&response.body).into()
                },
            }),
            Err(error) => Err(CallError {
                kind: error.kind,
                message: self.text(&error.message),
                retry_after: error.retry_after,
            }),
        }
    }

    /// The entry with pseudonyms. Calls are described with pseudonyms in the first place.
    ///
    /// # Errors
    /// When an object cannot be read with its pseudonyms: a defect.
    pub(crate) fn entry(&mut self, entry: Entry) -> Result<Entry, serde_json::Error> {
        Ok(match entry {
            Entry::Item(object) => Entry::Item(self.object(&object)?),
            Entry::Apply(object) => Entry::Apply(self.object(&object)?),
            Entry::Delete(object) => Entry::Delete(self.object(&object)?),
            Entry::Complete(id, result) => Entry::Complete(id, self.result(&result)),
            Entry::JobDone(id, value) => Entry::JobDone(id, self.job(&value)),
            Entry::Decided(pod, result) => {
                let result = match result {
                    CycleResult::Placed { node } => CycleResult::Placed {
                        node: self.name(&node).into(),
                    },
                    CycleResult::Unschedulable { message } => CycleResult::Unschedulable {
                        message: self.text(&message),
                    },
                    CycleResult::Error { message } => CycleResult::Error {
                        message: self.text(&message),
                    },
                    CycleResult::Skipped => CycleResult::Skipped,
                };
                Entry::Decided(self.pod(&pod), result)
            }
            Entry::Reconfigure(text) => {
                let mut configuration = serde_json::from_str(&text)?;
                self.configuration(&mut configuration);
                Entry::Reconfigure(configuration.to_string())
            }
            Entry::Start(_)
            | Entry::Checkpoint { .. }
            | Entry::List(..)
            | Entry::Tick
            | Entry::ScheduleOne
            | Entry::TakeOutputs
            | Entry::Close
            | Entry::Called(..)
            | Entry::End => entry,
        })
    }
}

impl Wording for Pseudonyms {
    fn name(&mut self, name: &str) -> String {
        self.of(name, NAME_LEN_MAX)
    }

    /// A text can contain any name. Only its numbers are kept, for the comparison with the text of a replay.
    fn text(&mut self, text: &str) -> String {
        if text.is_empty() || text == KNOWN_TEXT {
            return text.to_owned();
        }
        let letters = self.letters(text, WHOLE_LEN);
        format!("{TEXT}{letters}: {}", numbers(text).join(" "))
    }

    fn generated(&mut self, name: &str, from: &str) {
        let Some(end) = name.strip_prefix(generated_start(from)) else {
            return;
        };
        if self.generated.len() >= GENERATED_MAX {
            self.generated.clear();
        }
        let from = self.of(from, NAME_LEN_MAX);
        let made = generated_start(&from).to_owned() + end;
        self.generated.insert(name.into(), made);
    }

    fn body(&mut self, body: &Value) -> Value {
        let mut body = body.clone();
        self.replace("", &mut body);
        body
    }
}

#[cfg(test)]
mod tests;
