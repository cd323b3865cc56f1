//! A recording of a scheduler's inputs as a trace: the arrivals and run times of pods, and the times at which nodes
//! joined and left.

use super::Input;
use super::cluster::{add, trace_pod};
use super::input::trace_node;
use crate::replay::chosen;
use berth_api::{Duration, Node, Object, Pod, Time};
use berth_edge::exit::CommandFailure;
use berth_recording::{Entry, FoundEntry, RunEntries, runs};
use berth_simulation::Distribution;
use berth_simulation::trace::{Gate, GateRemoval, TraceNode, TracePod};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// A pod of a recording.
struct SeenPod {
    /// Its first version.
    first: Arc<Pod>,
    /// The number of pods before it.
    number: usize,
    arrived: Time,
    runs_since: Option<Time>,
    ended: Option<Time>,
    /// The gates that were removed, with the time.
    removed: BTreeMap<berth_api::Str, Time>,
}

/// The prefix of taints that controllers set on new and unready nodes, and remove again.
const TAINTS_OF_CONDITIONS: &str = "node.kubernetes.io/";

/// A node of a recording.
struct SeenNode {
    /// Its last version: the first versions may lack its resources.
    last: Arc<Node>,
    joined: Time,
    left: Option<Time>,
}

/// Everything that is seen in a recording.
#[derive(Default)]
struct Seen {
    start: Option<Time>,
    pods: BTreeMap<String, SeenPod>,
    nodes: BTreeMap<String, SeenNode>,
    others: Vec<Object>,
    known_others: BTreeSet<(berth_api::Kind, String, String)>,
}

/// Reads the last run of a recording, with its options.
///
/// # Errors
/// There is no recording, or it is damaged.
pub(super) fn read(dir: &Path, input: &mut Input) -> Result<(), CommandFailure> {
    let all = runs(dir).map_err(CommandFailure::usage)?;
    let run = chosen(&all, None)?;
    let (mut seen, mut damage) = (Seen::default(), None);
    for found in RunEntries::of(run) {
        let FoundEntry { at, entry, .. } = match found {
            Ok(found) => found,
            Err(found) => {
                damage = Some(found);
                break;
            }
        };
        match entry {
            Entry::Start(start) => {
                seen.start.get_or_insert(Time::from_nanos(start.at_nanos));
                input.recorded.get_or_insert(start);
            }
            Entry::Item(object) | Entry::Apply(object) => seen.applied(object, at),
            Entry::Delete(object) => seen.deleted(&object, at),
            _ => {}
        }
    }
    match (&input.recorded, damage) {
        (Some(_), None) => {}
        (Some(_), Some(damage)) => {
            input.notes.push(format!("{damage}; the trace ends there"));
        }
        (None, Some(damage)) => return Err(CommandFailure::usage(damage)),
        (None, None) => {
            return Err(CommandFailure::Usage(format!(
                "{}: the recording does not begin with the options of a scheduler",
                dir.display()
            )));
        }
    }
    seen.finish(input);
    Ok(())
}

impl Seen {
    fn applied(&mut self, object: Object, at: Time) {
        match object {
            Object::Pod(pod) => self.pod_applied(pod, at),
            Object::Node(node) => {
                let known = self.nodes.entry(node.name().to_string());
                let known = known.or_insert_with(|| SeenNode {
                    last: node.clone(),
                    joined: at,
                    left: None,
                });
                known.last = node;
                known.left = None;
            }
            other => {
                let metadata = other.metadata();
                let (namespace, name) = (metadata.namespace.to_string(), metadata.name.to_string());
                if self.known_others.insert((other.kind(), namespace, name)) {
                    self.others.push(other);
                }
            }
        }
    }

    fn pod_applied(&mut self, pod: Arc<Pod>, at: Time) {
        let number = self.pods.len();
        let known = self.pods.entry(pod.uid().to_string());
        let known = known.or_insert_with(|| SeenPod {
            arrived: at,
            first: pod.clone(),
            number,
            runs_since: None,
            ended: None,
            removed: BTreeMap::new(),
        });
        let left = &pod.spec.scheduling_gates;
        for gate in &known.first.spec.scheduling_gates {
            if !left.iter().any(|left| left.name == gate.name) {
                known.removed.entry(gate.name.clone()).or_insert(at);
            }
        }
        if pod.status.phase == "Running" {
            known.runs_since.get_or_insert(at);
        }
        if pod.is_terminal() {
            known.ended.get_or_insert(at);
        }
    }

    fn deleted(&mut self, object: &Object, at: Time) {
        match object {
            Object::Pod(pod) => {
                if let Some(known) = self.pods.get_mut(pod.uid().as_str()) {
                    known.ended.get_or_insert(at);
                }
            }
            Object::Node(node) => {
                if let Some(known) = self.nodes.get_mut(node.name().as_str()) {
                    known.left = Some(at);
                }
            }
            _ => {}
        }
    }

    fn finish(self, input: &mut Input) {
        let start = self.start.unwrap_or_default();
        input.trace.start = Some(start.align_down(Duration::from_secs(1)));
        let offset = |time: Time| time.since(input.trace.start.unwrap_or_default());
        let mut pods: Vec<&SeenPod> = self.pods.values().collect();
        pods.sort_by_key(|pod| (pod.arrived, !pod.first.is_assigned(), pod.number));
        let mut names = BTreeSet::new();
        let mut never_started = 0_usize;
        for pod in pods {
            never_started += usize::from(pod.ended.is_some() && pod.runs_since.is_none());
            let mut of = pod.trace_pod(&offset);
            // Another pod may have had the name before.
            let mut copy = 1;
            while !names.insert((of.pod.namespace().clone(), of.name.clone())) {
                copy += 1;
                of.name = format!("{}-{copy}", pod.first.name()).into();
            }
            input.trace.pods.push(of);
        }
        for node in self.nodes.values() {
            let is_first = offset(node.joined) < Duration::from_secs(5);
            let joins = if is_first {
                Duration::ZERO
            } else {
                offset(node.joined)
            };
            let mut template = Node::clone(&node.last);
            template.spec.unschedulable = false;
            let taints = &mut template.spec.taints;
            taints.retain(|taint| !taint.key.starts_with(TAINTS_OF_CONDITIONS));
            input.trace.nodes.push(TraceNode {
                joins,
                leaves: node.left.map(offset),
                ..trace_node(&template)
            });
        }
        for object in self.others {
            add(&mut input.trace, object);
        }
        if never_started > 0 {
            input.notes.push(format!(
                "{never_started} pods were deleted before they ran; they arrive, and end as soon as they have started"
            ));
        }
        input.notes.push(
            "ResourceQuotas are not recorded; pods that still ran at the end of the recording do not end unless \
             --durations states how long they run"
                .to_owned(),
        );
    }
}

impl SeenPod {
    fn trace_pod(&self, offset: &impl Fn(Time) -> Duration) -> TracePod {
        let mut pod = Pod::clone(&self.first);
        let gates = std::mem::take(&mut pod.spec.scheduling_gates);
        let gates = gates.into_iter().map(|gate| {
            let at = self.removed.get(&gate.name).map(|at| offset(*at));
            // A gate that was not removed is never removed: no object has the empty name.
            let removal = at.map_or(GateRemoval::Ended("".into()), GateRemoval::At);
            Gate {
                name: gate.name,
                removal,
            }
        });
        let gates = gates.collect();
        let ran = self.ended.map(|end| {
            self.runs_since
                .map_or(Duration::ZERO, |since| end.since(since))
        });
        TracePod {
            arrival: offset(self.arrived),
            duration: ran.map(Distribution::Constant),
            gates,
            ..trace_pod(&pod)
        }
    }
}
