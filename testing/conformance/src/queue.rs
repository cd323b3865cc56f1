//! Replays traces of the scheduling queue: the whole state after every operation.

use crate::cases::{self, LaterAnswers};
use crate::report::CaseReport;
use berth_api::meta::ObjectMeta;
use berth_api::pod::SchedulingGate;
use berth_api::{Labels, Node, Object, Pod, Release, Str, Time};
use berth_framework::event::{Change, EventRegistration};
use berth_framework::features::Behaviour;
use berth_framework::plugin::Context;
use berth_framework::{ActionType, Cluster, ClusterEvent, EventResource, FeatureGates, Hint};
use berth_plugins::priority_sort::PrioritySort;
use berth_plugins::scheduling_gates::{self, SchedulingGates};
use berth_scheduler::queue::{
    PluginEvents, ProfileHooks, QueueConfig, QueuedIn, QueuedPodInfo, SchedulingQueue,
};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

/// The label with which the events of a trace name the plugin that they help.
const HELPS: &str = "helps";
const SCHEDULER_NAME: &str = "default-scheduler";
const NAMESPACE: &str = "default";

#[derive(Debug, Deserialize)]
struct Trace {
    id: String,
    /// The events that each plugin registered for, as `resource/action`.
    hints: BTreeMap<String, Vec<String>>,
    ops: Vec<QueueOperation>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueOperation {
    op: OperationKind,
    advance_millis: u64,
    pod: Option<RecordedPod>,
    name: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    resource: Option<String>,
    action: Option<String>,
    helps: Option<String>,
    #[serde(default)]
    unschedulable_plugins: Vec<String>,
    #[serde(default)]
    pending_plugins: Vec<String>,
    expect: QueueExpectation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum OperationKind {
    Add,
    Update,
    Delete,
    Pop,
    Bound,
    Fail,
    Activate,
    Event,
    FlushBackoff,
    FlushUnschedulable,
}

#[derive(Debug, Deserialize)]
struct RecordedPod {
    name: String,
    priority: i32,
    #[serde(default)]
    gates: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The state after an operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueExpectation {
    popped: Option<String>,
    #[serde(rename = "activeQ")]
    active: Vec<String>,
    #[serde(rename = "backoffQ")]
    backoff: Vec<InBackoff>,
    unschedulable: Vec<String>,
    gated: Vec<String>,
    in_flight: Vec<String>,
    /// Attempts, consecutive rejections and consecutive errors of every queued pod.
    counts: BTreeMap<String, [u32; 3]>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InBackoff {
    // First, because the recorded list is sorted by expiry, then name.
    expires_at_millis: i64,
    name: String,
}

/// Replays traces, one JSON object per line, as a release. Unreadable lines fail under their number.
pub fn replay(reader: impl BufRead, release: Release) -> CaseReport {
    let mut report = CaseReport::new();
    let answers = LaterAnswers::default();
    cases::each(
        reader,
        &answers,
        &mut report,
        |trace: Trace, report| match check(&trace, release) {
            Ok(()) => report.pass(trace.id),
            Err(what) => report.fail(trace.id, what),
        },
    );
    report
}

fn check(trace: &Trace, release: Release) -> Result<(), String> {
    let mut replayed = Replayed::new(&trace.hints, release)?;
    for (at, operation) in trace.ops.iter().enumerate() {
        let place = |e: String| format!("operation {at} ({:?}): {e}", operation.op);
        let popped = replayed.apply(operation).map_err(place)?;
        let got = replayed.state(popped);
        if got != operation.expect {
            return Err(place(format!(
                "recorded {:?}, got {got:?}",
                operation.expect
            )));
        }
    }
    Ok(())
}

/// The queue of a trace with its cluster and pods.
struct Replayed {
    queue: SchedulingQueue,
    now: Time,
    cluster: Cluster,
    features: FeatureGates,
    /// The latest version of every pod, as in an informer.
    pods: HashMap<String, Arc<Pod>>,
    popped: HashMap<String, QueuedPodInfo>,
}

impl Replayed {
    fn new(hints: &BTreeMap<String, Vec<String>>, release: Release) -> Result<Self, String> {
        let mut profile = ProfileHooks::new(SCHEDULER_NAME, Arc::new(PrioritySort))
            .with_pre_enqueue("SchedulingGates", Arc::new(SchedulingGates));
        for (plugin, events) in hints {
            profile.events.push(PluginEvents {
                plugin: Str::new(plugin),
                registrations: events
                    .iter()
                    .map(|event| registration(plugin, event))
                    .collect::<Result<_, _>>()?,
            });
        }
        let config = QueueConfig {
            // The vectors have explicit registrations only.
            features: FeatureGates::of(release)
                .with_behaviour(Behaviour::NodeAddDoesNotImplyTaints, true),
            ..QueueConfig::default()
        };
        Ok(Self {
            queue: SchedulingQueue::new(config, vec![profile], Time::EPOCH),
            now: Time::EPOCH,
            cluster: Cluster::default(),
            features: FeatureGates::of(release),
            pods: HashMap::new(),
            popped: HashMap::new(),
        })
    }

    /// Executes an operation. Returns the name of the popped pod.
    fn apply(&mut self, operation: &QueueOperation) -> Result<Option<String>, String> {
        self.now = self.now + Duration::from_millis(operation.advance_millis);
        let cx = Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        };
        let name = || operation.name.as_deref().ok_or("has no name");
        match operation.op {
            OperationKind::Add | OperationKind::Update => {
                let recorded = operation.pod.as_ref().ok_or("has no pod")?;
                let pod = Arc::new(recorded.pod());
                let old = self.pods.insert(recorded.name.clone(), pod.clone());
                if operation.op == OperationKind::Add {
                    self.queue.add(&cx, pod);
                } else {
                    let old = old.unwrap_or_else(|| pod.clone());
                    self.queue.update(&cx, &old, &pod);
                }
            }
            OperationKind::Delete => {
                let pod = self.pods.remove(name()?).ok_or("names an unknown pod")?;
                self.queue.delete(&pod);
            }
            OperationKind::Pop => {
                let Some(info) = self.queue.pop(self.now) else {
                    return Ok(None);
                };
                let name = info.pod.name().to_string();
                self.popped.insert(name.clone(), info);
                return Ok(Some(name));
            }
            OperationKind::Bound => {
                let info = self.popped.remove(name()?).ok_or("was not popped")?;
                self.queue.done(info.pod.uid());
            }
            OperationKind::Fail => {
                let name = name()?;
                let mut info = self.popped.remove(name).ok_or("was not popped")?;
                info.pod = self.pods.get(name).ok_or("names an unknown pod")?.clone();
                info.unschedulable_plugins = operation.unschedulable_plugins.iter().collect();
                info.pending_plugins = operation.pending_plugins.iter().collect();
                self.queue
                    .add_unschedulable(&cx, info)
                    .map_err(|e| e.to_string())?;
            }
            OperationKind::Activate => {
                let pods: Vec<Arc<Pod>> = operation
                    .names
                    .iter()
                    .filter_map(|name| self.pods.get(name).cloned())
                    .collect();
                self.queue.activate(&cx, &pods);
            }
            OperationKind::Event => {
                let (event, old, new) = raised(operation)?;
                let change = Change {
                    old: old.as_ref(),
                    new: new.as_ref(),
                };
                self.queue.move_all(&cx, &event, change, None);
            }
            OperationKind::FlushBackoff => {
                self.queue.flush_backoff(&cx);
            }
            OperationKind::FlushUnschedulable => {
                self.queue.flush_leftover(&cx);
            }
        }
        Ok(None)
    }

    fn state(&self, popped: Option<String>) -> QueueExpectation {
        let names = |place| -> Vec<String> {
            let pods = self.queue.places().pods_in(place);
            pods.iter().map(|i| i.pod.name().to_string()).collect()
        };
        let sorted = |mut names: Vec<String>| {
            names.sort_unstable();
            names
        };
        let mut backoff: Vec<InBackoff> = [QueuedIn::Backoff, QueuedIn::ErrorBackoff]
            .into_iter()
            .flat_map(|place| self.queue.places().pods_in(place))
            .map(|info| InBackoff {
                expires_at_millis: self
                    .queue
                    .places()
                    .backoff_expiry(info)
                    .map_or(0, Time::as_millis),
                name: info.pod.name().to_string(),
            })
            .collect();
        backoff.sort_unstable();
        let in_flight = self.queue.in_flight().pods();
        QueueExpectation {
            popped,
            active: names(QueuedIn::Active),
            backoff,
            unschedulable: sorted(names(QueuedIn::Unschedulable)),
            gated: sorted(names(QueuedIn::Gated)),
            in_flight: sorted(in_flight.map(|pod| pod.name().to_string()).collect()),
            counts: self
                .queue
                .places()
                .pods()
                .map(|(_, info)| {
                    let counts = [
                        info.attempts,
                        info.unschedulable_count,
                        info.in_a_row.errors,
                    ];
                    (info.pod.name().to_string(), counts)
                })
                .collect(),
        }
    }
}

impl RecordedPod {
    fn pod(&self) -> Pod {
        let mut pod = Pod {
            metadata: ObjectMeta {
                name: Str::new(&self.name),
                namespace: Str::new(NAMESPACE),
                uid: Str::new(&self.name),
                labels: Labels::from_pairs(&self.labels),
                ..ObjectMeta::default()
            },
            ..Pod::default()
        };
        pod.spec.scheduler_name = Str::new(SCHEDULER_NAME);
        pod.spec.priority = Some(self.priority);
        let gates = self.gates.iter().map(|gate| SchedulingGate {
            name: Str::new(gate),
        });
        pod.spec.scheduling_gates = gates.collect();
        pod
    }
}

/// A registration as in the traces: the hint of SchedulingGates queues the pod itself when it has no gates; other hints
/// queue a pod when the label of the object names their plugin.
fn registration(plugin: &str, event: &str) -> Result<EventRegistration, String> {
    let (resource, action) = event
        .split_once('/')
        .ok_or_else(|| format!("hints: {event:?} is not written resource/action"))?;
    let is_gates = plugin == scheduling_gates::NAME;
    let plugin = plugin.to_owned();
    Ok(EventRegistration::with_hint(
        event_resource(resource)?,
        event_action(action)?,
        move |_, pod, change| {
            let helps = if is_gates {
                change.new_pod().is_some_and(|new| {
                    new.uid() == pod.uid() && new.spec.scheduling_gates.is_empty()
                })
            } else {
                change
                    .new
                    .or(change.old)
                    .and_then(|object| object.metadata().labels.get(HELPS))
                    .is_some_and(|helped| helped == plugin || helped == "all")
            };
            Ok(if helps { Hint::Queue } else { Hint::Skip })
        },
    ))
}

/// The event of an operation, with the old and the new object.
fn raised(
    operation: &QueueOperation,
) -> Result<(ClusterEvent, Option<Object>, Option<Object>), String> {
    let resource = event_resource(operation.resource.as_deref().unwrap_or_default())?;
    let action = event_action(operation.action.as_deref().unwrap_or_default())?;
    let helps = operation
        .helps
        .as_deref()
        .ok_or("names no plugin that it helps")?;
    let metadata = ObjectMeta {
        name: Str::new("changed"),
        uid: Str::new("uid-of-changed"),
        labels: Labels::from_pairs([(HELPS, helps)]),
        ..ObjectMeta::default()
    };
    let object = match resource {
        EventResource::Node => Object::Node(Arc::new(Node {
            metadata,
            ..Node::default()
        })),
        _ => Object::Pod(Arc::new(Pod {
            metadata,
            ..Pod::default()
        })),
    };
    let old = (action != ActionType::ADD).then(|| object.clone());
    let new = (action != ActionType::DELETE).then_some(object);
    Ok((ClusterEvent::new(resource, action), old, new))
}

fn event_resource(name: &str) -> Result<EventResource, String> {
    match name {
        "Pod" => Ok(EventResource::Pod),
        "Node" => Ok(EventResource::Node),
        _ => Err(format!("resource {name:?} is neither Pod nor Node")),
    }
}

fn event_action(name: &str) -> Result<ActionType, String> {
    ActionType::ALL
        .bits()
        .find(|(_, known)| *known == name)
        .map(|(action, _)| action)
        .ok_or_else(|| format!("unknown action {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    /// Every recorded trace is reproduced, operation by operation.
    #[test]
    fn the_recorded_traces_come_out_as_recorded() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/queue.jsonl.gz");
        let file = std::fs::File::open(path).expect("the vectors are part of the repository");
        let mut packed = Vec::new();
        std::io::copy(&mut BufReader::new(file), &mut packed).expect("a readable file");
        for release in Release::ALL {
            let traces = flate2::read::GzDecoder::new(&packed[..]);
            let report = replay(BufReader::new(traces), release);
            assert!(report.is_ok(), "{release}: {report}");
            assert_eq!(report.passed.len(), 300, "{release}");
        }
    }

    #[test]
    fn a_wrong_state_fails_with_the_operation_that_led_to_it() {
        let trace = r#"{"id":"t","hints":{},"ops":[{"op":"add","advanceMillis":5,"pod":{"name":"p","priority":1},"expect":{"activeQ":[],"backoffQ":[],"unschedulable":[],"gated":[],"inFlight":[],"counts":{}}}]}"#;
        let report = replay(trace.as_bytes(), Release::V1_36);
        assert_eq!(report.failed.len(), 1);
        assert!(
            report.failed[0]
                .what
                .starts_with("operation 0 (Add): recorded"),
            "{report}"
        );
    }

    #[test]
    fn what_is_no_trace_fails_under_its_line() {
        let report = replay(&b"\n{\"id\":\"t\"}\n"[..], Release::V1_36);
        assert_eq!(report.failed[0].case, "line 2");
    }
}
