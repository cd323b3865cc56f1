//! The cost of an event in a cluster whose answers are kept: the event itself, and the decision after it.

use super::Row;
use super::crowd;
use super::world::CoreWorld;
use crate::generate;
use berth_api::{Object, Pod};
use berth_scheduler::ClusterChange;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// The number of times that each event is raised.
const ROUNDS: usize = 50;
/// Numbers of pods that are added start here, so that no name is given twice.
const PODS_FROM: usize = 30_000_000;
/// Outcomes that are waited for until the pod that was added is decided on.
const OUTCOMES_MAX: usize = 10;

/// The cost of an event.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventCost {
    /// The event.
    pub event: &'static str,
    /// The median time to take it in, in microseconds.
    pub event_micros_median: f64,
    /// The longest such time, in microseconds.
    pub event_micros_max: f64,
    /// The median time of the decision after it, in microseconds.
    pub decision_micros_median: f64,
    /// The longest such time, in microseconds.
    pub decision_micros_max: f64,
}

impl fmt::Display for EventCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<20} {:>9.1} µs (at most {:.1}), the decision after it {:>9.1} µs (at most {:.1})",
            self.event,
            self.event_micros_median,
            self.event_micros_max,
            self.decision_micros_median,
            self.decision_micros_max
        )
    }
}

/// An event: its name, and what is shown to the core in each round.
type PerfEvent = (&'static str, fn(Row, usize, usize) -> ClusterChange);

fn node(row: Row, round: usize, nodes: usize, more: impl FnOnce(&mut Value)) -> ClusterChange {
    let at = round * 7919 % nodes;
    let mut value = json!({});
    more(&mut value);
    let changed = generate::node(at, |node| {
        row.shape_node(at, node);
        merge(node, value);
        node["metadata"]["resourceVersion"] = format!("7{round:09}").into();
    });
    ClusterChange::Applied(Object::Node(changed))
}

/// Puts fields into an object.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn bound(round: usize, nodes: usize) -> Arc<Pod> {
    generate::pod(PODS_FROM - 1 - round, |pod| {
        pod["spec"]["nodeName"] = format!("node-{}", round * 7919 % nodes).into();
        pod["status"]["phase"] = "Running".into();
    })
}

/// The events, in this order: each next one may undo the one before it.
const EVENTS: [PerfEvent; 9] = [
    ("node heartbeat", |row, round, nodes| {
        node(row, round, nodes, |_| {})
    }),
    ("node relabelled", |row, round, nodes| {
        node(row, round, nodes, |node| {
            node["metadata"]["labels"]["example.com/pool"] = format!("pool-{}", round % 3).into();
        })
    }),
    ("node tainted", |row, round, nodes| {
        node(row, round, nodes, |node| {
            node["spec"]["taints"] =
                json!([{"key": "example.com/maintenance", "effect": "NoSchedule"}]);
        })
    }),
    ("node untainted", |row, round, nodes| {
        node(row, round, nodes, |_| {})
    }),
    ("node added", |row, round, nodes| {
        ClusterChange::Applied(Object::Node(row.node(2 * nodes + round)))
    }),
    ("node deleted", |row, round, nodes| {
        ClusterChange::Deleted(Object::Node(row.node(2 * nodes + round)))
    }),
    ("bound pod added", |_, round, nodes| {
        ClusterChange::Applied(Object::Pod(bound(round, nodes)))
    }),
    ("bound pod deleted", |_, round, nodes| {
        ClusterChange::Deleted(Object::Pod(bound(round, nodes)))
    }),
    ("gated pod added", |_, round, _| {
        ClusterChange::Applied(Object::Pod(crowd::gated(PODS_FROM - 1_000 - round)))
    }),
];

/// Raises every event several times; `pods` pods of the row exist.
pub(super) fn costs(world: &mut CoreWorld, row: Row, nodes: usize) -> Vec<EventCost> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut next = PODS_FROM;
    EVENTS
        .iter()
        .map(|(event, change)| {
            let (mut events, mut decisions) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                let change = change(row, round, nodes);
                let begun = Instant::now();
                world.show(change);
                events.push(begun.elapsed().as_secs_f64() * 1e6);
                world.settle_calls();
                let (pod, objects) = row.pod(next, nodes, &mut rng);
                next += 1;
                world.show_stored(objects);
                world.add(pod);
                decisions.push(decide(world));
            }
            let [event_micros_median, event_micros_max] = middle_and_last(&mut events);
            let [decision_micros_median, decision_micros_max] = middle_and_last(&mut decisions);
            EventCost {
                event,
                event_micros_median,
                event_micros_max,
                decision_micros_median,
                decision_micros_max,
            }
        })
        .collect()
}

/// Makes the next decision. Returns how long it took, in microseconds.
fn decide(world: &mut CoreWorld) -> f64 {
    let begun = Instant::now();
    for _ in 0..OUTCOMES_MAX {
        if world.step().is_attempt() {
            break;
        }
    }
    begun.elapsed().as_secs_f64() * 1e6
}

fn middle_and_last(values: &mut [f64]) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or_default();
    [at(values.len() / 2), at(values.len().saturating_sub(1))]
}
