//! The pods and nodes of a run as shown by the watches: for the waits of operations, the measurements, and the log for
//! the verifier.

use super::ops::LabelSet;
use super::verify::{LogEntry, ObjectChange};
use super::watch::Followed;
use berth_api::{Kind, Object};
use berth_client::content::{DecodeError, Payload};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The state that watches keep up to date.
#[derive(Default)]
pub(super) struct WatchView {
    state: Mutex<ViewState>,
}

#[derive(Default)]
struct ViewState {
    pods: HashMap<Arc<str>, KnownPod>,
    log: Vec<LogEntry>,
    /// The times at which the creation of pods was sent, by UID, for pods that the watch has not shown yet.
    sent: HashMap<Arc<str>, Instant>,
    measured: Option<MeasuredPods>,
    steady: Option<(String, mpsc::UnboundedSender<()>)>,
    lost: Option<String>,
}

/// A pod.
struct KnownPod {
    namespace: Arc<str>,
    name: Arc<str>,
    labels: BTreeMap<String, String>,
    generation: Option<i64>,
    is_terminal: bool,
    is_bound: bool,
    is_gone: bool,
    /// The message of the PodScheduled condition, if any.
    attempted: Option<String>,
    sent: Option<Instant>,
    bound: Option<Instant>,
}

/// The measured pods.
#[derive(Debug, Clone)]
pub(super) struct PodFilter {
    /// The namespaces.
    pub(super) namespaces: HashSet<String>,
    /// The labels that pods must have.
    pub(super) labels: LabelSet,
}

impl PodFilter {
    fn takes(&self, pod: &KnownPod) -> bool {
        self.namespaces.contains(&*pod.namespace) && has_labels(&pod.labels, &self.labels)
    }
}

struct MeasuredPods {
    filter: PodFilter,
    scheduled: u64,
    latencies: Vec<Duration>,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// The measurements.
#[derive(Debug, Clone, Default)]
pub(super) struct Measurement {
    /// Pods that were scheduled.
    pub(super) scheduled: u64,
    /// From sending the creation of a pod to observing its binding.
    pub(super) latencies: Vec<Duration>,
    /// From the first to the last pod that was scheduled.
    pub(super) span: Duration,
}

/// Pods of a namespace by their scheduling state.
#[derive(Debug, Clone, Default)]
pub(super) struct PodCounts {
    /// With a node.
    pub(super) scheduled: usize,
    /// Without a node, with a PodScheduled condition.
    pub(super) attempted: usize,
    /// A pod that is not scheduled, and its condition.
    pub(super) pending: Option<(String, Option<String>)>,
}

#[derive(Deserialize)]
struct LeanPod<'a> {
    #[serde(borrow)]
    metadata: LeanMeta<'a>,
    #[serde(borrow, default)]
    spec: LeanSpec<'a>,
    #[serde(borrow, default)]
    status: LeanStatus<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct LeanSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LeanStatus<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<LeanCondition<'a>>>,
}

#[derive(Deserialize)]
struct LeanCondition<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

impl WatchView {
    fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the object of a watch event. Returns its resourceVersion.
    ///
    /// # Errors
    /// When it cannot be decoded.
    pub(super) fn apply(
        &self,
        followed: Followed,
        kind: &str,
        object: Payload<'_>,
    ) -> Result<String, DecodeError> {
        match followed {
            Followed::Nodes => {
                let object = object.of_kind(Kind::Node)?;
                let version = object.metadata().resource_version.to_string();
                let change = match object {
                    Object::Node(node) if kind != "DELETED" => ObjectChange::Node(node),
                    object => ObjectChange::NodeGone(object.metadata().name.as_str().into()),
                };
                self.lock().log.push(LogEntry::new(&version, change));
                Ok(version)
            }
            Followed::Pods => {
                let lean: LeanPod<'_> = object.decode()?;
                let seen = Instant::now();
                let mut state = self.lock();
                state.apply_pod(kind, &lean, object, seen)?;
                Ok(lean.metadata.resource_version.into_owned())
            }
        }
    }

    /// The watch has a gap.
    pub(super) fn lost(&self, reason: String) {
        self.lock().lost.get_or_insert(reason);
    }

    /// The reason for a gap of the watch, if any.
    pub(super) fn why_lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    /// Records the time at which the creation of a pod was sent.
    pub(super) fn created(&self, uid: &str, sent: Instant) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(known) = state.pods.get_mut(uid) else {
            state.sent.insert(uid.into(), sent);
            return;
        };
        known.sent = Some(sent);
        // The pod was bound before its creation was answered.
        if let (Some(bound), Some(measured)) = (known.bound, &mut state.measured)
            && measured.filter.takes(known)
        {
            measured
                .latencies
                .push(bound.saturating_duration_since(sent));
        }
    }

    /// Starts a measurement. As in upstream, pods that are scheduled already count before the first sample.
    pub(super) fn measure(&self, filter: PodFilter) {
        let mut state = self.lock();
        let there = state
            .pods
            .values()
            .filter(|pod| !pod.is_gone && pod.is_bound && filter.takes(pod));
        let scheduled = there.count() as u64;
        state.measured = Some(MeasuredPods {
            filter,
            scheduled,
            latencies: Vec::new(),
            first: None,
            last: None,
        });
    }

    /// The number of measured pods that were scheduled so far.
    pub(super) fn scheduled(&self) -> u64 {
        self.lock().measured.as_ref().map_or(0, |m| m.scheduled)
    }

    /// Ends the measurement.
    pub(super) fn measured(&self) -> Measurement {
        let Some(measured) = self.lock().measured.take() else {
            return Measurement::default();
        };
        Measurement {
            scheduled: measured.scheduled,
            latencies: measured.latencies,
            span: match (measured.first, measured.last) {
                (Some(first), Some(last)) => last.saturating_duration_since(first),
                _ => Duration::ZERO,
            },
        }
    }

    /// Reports every pod of a namespace that is scheduled, until the receiver is dropped.
    pub(super) fn steady(&self, namespace: &str) -> mpsc::UnboundedReceiver<()> {
        // The channel holds at most one message per pod of a batch.
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().steady = Some((namespace.to_owned(), sender));
        receiver
    }

    /// Counts the pods of a namespace.
    pub(super) fn count(&self, namespace: &str, labels: &LabelSet) -> PodCounts {
        let state = self.lock();
        let mut counts = PodCounts::default();
        for pod in state.pods.values() {
            if pod.is_gone || *pod.namespace != *namespace || !has_labels(&pod.labels, labels) {
                continue;
            }
            if pod.is_bound {
                counts.scheduled += 1;
                continue;
            }
            if pod.attempted.is_some() {
                counts.attempted += 1;
            }
            if counts.pending.is_none() {
                let key = format!("{namespace}/{}", pod.name);
                counts.pending = Some((key, pod.attempted.clone()));
            }
        }
        counts
    }

    /// The number of all pods, and of pods with a node, for the progress.
    pub(super) fn totals(&self) -> (usize, usize) {
        let state = self.lock();
        let there = state.pods.values().filter(|pod| !pod.is_gone);
        there.fold((0, 0), |(all, bound), pod| {
            (all + 1, bound + usize::from(pod.is_bound))
        })
    }

    /// The names of the pods of a namespace.
    pub(super) fn names(&self, namespace: &str, labels: &LabelSet) -> Vec<Arc<str>> {
        let state = self.lock();
        let there = state.pods.values().filter(|pod| {
            !pod.is_gone && *pod.namespace == *namespace && has_labels(&pod.labels, labels)
        });
        let mut names: Vec<_> = there.map(|pod| Arc::clone(&pod.name)).collect();
        names.sort();
        names
    }

    /// Takes the log out.
    pub(super) fn take_log(&self) -> Vec<LogEntry> {
        std::mem::take(&mut self.lock().log)
    }
}

impl ViewState {
    fn apply_pod(
        &mut self,
        kind: &str,
        lean: &LeanPod<'_>,
        object: Payload<'_>,
        seen: Instant,
    ) -> Result<(), DecodeError> {
        let meta = &lean.metadata;
        let version = &*meta.resource_version;
        if kind == "DELETED" {
            if let Some(known) = self.pods.get_mut(&*meta.uid) {
                known.is_gone = true;
            }
            let change = ObjectChange::PodGone(meta.uid.as_ref().into());
            self.log.push(LogEntry::new(version, change));
            return Ok(());
        }
        let node = lean.spec.node_name.as_deref().filter(|n| !n.is_empty());
        let phase = lean.status.phase.as_deref();
        let is_terminal = matches!(phase, Some("Succeeded" | "Failed"));
        let attempted = lean.status.conditions.iter().flatten().find_map(|c| {
            let message = c.message.as_deref().unwrap_or_default();
            (c.kind == "PodScheduled").then(|| message.to_owned())
        });
        let same_labels = |labels: &BTreeMap<String, String>| {
            let new = meta.labels.as_ref();
            labels.len() == new.map_or(0, BTreeMap::len)
                && new.is_none_or(|new| {
                    labels
                        .iter()
                        .all(|(k, v)| new.get(k.as_str()).is_some_and(|value| **value == **v))
                })
        };
        let labels = || {
            let labels = meta.labels.iter().flatten();
            labels
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect::<BTreeMap<_, _>>()
        };
        let Some(known) = self.pods.get_mut(&*meta.uid) else {
            let uid: Arc<str> = meta.uid.as_ref().into();
            self.log.extend(pod_entry(version, object)?);
            let known = KnownPod {
                namespace: meta.namespace.as_ref().into(),
                name: meta.name.as_ref().into(),
                labels: labels(),
                generation: meta.generation,
                is_terminal,
                is_bound: node.is_some(),
                is_gone: false,
                attempted,
                sent: self.sent.remove(&uid),
                bound: None,
            };
            if known.is_bound {
                count_bound(&mut self.measured, &self.steady, &known, seen);
            }
            self.pods.insert(uid, known);
            return Ok(());
        };
        let newly_bound = node.is_some() && !known.is_bound;
        let spec_changed =
            !newly_bound && (meta.generation.is_none() || meta.generation != known.generation);
        if !same_labels(&known.labels) || spec_changed || is_terminal != known.is_terminal {
            self.log.extend(pod_entry(version, object)?);
            known.labels = labels();
        }
        known.generation = meta.generation;
        known.is_terminal = is_terminal;
        known.attempted = attempted;
        if let Some(node) = node {
            let change = ObjectChange::Bound {
                uid: meta.uid.as_ref().into(),
                node: node.into(),
            };
            // A pod that moves to another node is a violation, so each different node name is recorded.
            if newly_bound || spec_changed {
                self.log.push(LogEntry::new(version, change));
            }
        }
        if newly_bound {
            known.is_bound = true;
            known.bound = Some(seen);
            count_bound(&mut self.measured, &self.steady, known, seen);
        }
        Ok(())
    }
}

/// The entry for a pod that is new or changed.
fn pod_entry(version: &str, object: Payload<'_>) -> Result<Option<LogEntry>, DecodeError> {
    let object = object.of_kind(Kind::Pod)?;
    let change = object.as_pod().cloned().map(ObjectChange::Pod);
    Ok(change.map(|change| LogEntry::new(version, change)))
}

/// A pod was scheduled.
fn count_bound(
    measured: &mut Option<MeasuredPods>,
    steady: &Option<(String, mpsc::UnboundedSender<()>)>,
    pod: &KnownPod,
    seen: Instant,
) {
    if let Some((namespace, sender)) = steady
        && **namespace == *pod.namespace
    {
        // The operation may be over.
        let _ = sender.send(());
    }
    let Some(measured) = measured.as_mut().filter(|m| m.filter.takes(pod)) else {
        return;
    };
    measured.scheduled += 1;
    measured.first.get_or_insert(seen);
    measured.last = Some(seen);
    if let Some(sent) = pod.sent {
        measured
            .latencies
            .push(seen.saturating_duration_since(sent));
    }
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &LabelSet) -> bool {
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
