//! Random operations on the queue and on the [model](super::model): after each operation, both have the same state.

use super::model::{Known, Model, ModelProfile, Place};
use super::script::{PLUGINS, event_of, profile};
use super::{Bench, fields, numbers, setup};
use crate::{QueuedIn, QueuedPodInfo};
use berth_api::{Duration, Pod, Str, Time, Toleration};
use berth_framework::event::Change;
use berth_framework::plugin::Nominating;
use berth_framework::testing::{node, pod};
use berth_framework::{ActionType, EventResource, Feature};
use berth_telemetry::metrics::Metric;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
/// The plugins of the other profile, whose only gate is G1.
const OTHER: &[(&str, &str)] = &[
    ("A", "Node/Add|UpdateNodeTaint"),
    ("C", "Pod/Update"),
    ("P", "Pod/UpdatePodToleration */Delete!"),
    ("G2", "Node/Add"),
];
const REJECTORS: [&str; 9] = [
    "A",
    "B",
    "C",
    "P",
    "Always",
    "Mute",
    "Unknown",
    "G1",
    "SchedulingGates",
];
const EVENTS: [&str; 12] = [
    "Node/Add",
    "Node/Delete",
    "Node/UpdateNodeLabel",
    "Node/UpdateNodeTaint",
    "Node/UpdateNodeAllocatable",
    "Node/UpdateNodeAnnotation",
    "Node/UpdateNodeCondition",
    "AssignedPod/Delete",
    "AssignedPod/Add",
    "AssignedPod/UpdatePodLabel",
    "AssignedPod/UpdatePodToleration",
    "ResourceClaim/Update",
];
const HELPS: [&str; 9] = ["all", "none", "A", "B", "C", "P", "A+P", "G1+G2", "error"];

/// The operation on both.
enum Op {
    Wait(u64),
    Add(Arc<Pod>),
    /// The second pod replaces the first.
    Update(Arc<Pod>, Arc<Pod>),
    Delete(Arc<Pod>),
    Pop,
    Take(Arc<Pod>),
    /// The flight of the pod with this UID ends in this way.
    Done(Str),
    Fail(Str, Vec<&'static str>, Vec<&'static str>),
    Event(&'static str, &'static str, Option<i32>),
    Activate(Arc<Pod>),
    Nominate(Arc<Pod>, &'static str),
    FlushBackoff,
    FlushLeftover,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(millis) => write!(f, "+{millis}"),
            Self::Add(pod) => write!(f, "add {}", short(pod)),
            Self::Update(old, new) => write!(f, "update {} -> {}", short(old), short(new)),
            Self::Delete(pod) => write!(f, "delete {}", pod.name()),
            Self::Pop => f.write_str("pop"),
            Self::Take(pod) => write!(f, "take {}", pod.name()),
            Self::Done(uid) => write!(f, "done {uid}"),
            Self::Fail(uid, unschedulable, pending) => {
                write!(f, "fail {uid} {unschedulable:?} {pending:?}")
            }
            Self::Event(event, helps, up_to) => write!(f, "event {event} {helps} {up_to:?}"),
            Self::Activate(pod) => write!(f, "activate {}", pod.name()),
            Self::Nominate(pod, node) => write!(f, "nominate {} {node:?}", pod.name()),
            Self::FlushBackoff => f.write_str("flush"),
            Self::FlushLeftover => f.write_str("flush-leftover"),
        }
    }
}

/// The state of a pod that matters.
fn short(pod: &Pod) -> String {
    format!(
        "{} uid={} scheduler={} priority={} gates={} tolerations={} nominated={} {:?}",
        pod.name(),
        pod.uid(),
        pod.spec.scheduler_name,
        pod.priority(),
        pod.spec.scheduling_gates.len(),
        pod.spec.tolerations.len(),
        pod.status.nominated_node_name,
        pod.labels()
    )
}

/// The queue and its model, with the pods in flight.
struct Both {
    bench: Bench,
    model: Model,
    /// The pods in flight as popped from both, by UID.
    flying: BTreeMap<Str, (QueuedPodInfo, Known)>,
    uids: u32,
}

impl Both {
    fn new(pops_from_backoff: bool, keyed: bool) -> Self {
        let mut other = profile("other", OTHER);
        other.pre_enqueue.retain(|(name, _)| *name == *"G1");
        let mut setup = setup()
            .profiles(vec![profile("default-scheduler", PLUGINS), other])
            .feature(Feature::SchedulerPopFromBackoffQ, pops_from_backoff);
        if !keyed {
            setup = setup.unkeyed();
        }
        let profiles = BTreeMap::from([
            (
                "default-scheduler",
                ModelProfile::new(&["SchedulingGates", "G1", "G2"], PLUGINS),
            ),
            ("other", ModelProfile::new(&["G1"], OTHER)),
        ]);
        Self {
            bench: setup.build(),
            model: Model::new(profiles, pops_from_backoff),
            flying: BTreeMap::new(),
            uids: 0,
        }
    }

    /// A new version of the existing pod, or a new pod.
    fn version(&mut self, random: &mut fastrand::Rng, name: &str, anew: bool) -> Arc<Pod> {
        let there = self.bench.pods.get(name).filter(|_| !anew);
        let mut builder = match there {
            Some(there) => pod(name)
                .uid(there.uid())
                .scheduler(&there.spec.scheduler_name),
            None => {
                self.uids += 1;
                let scheduler = ["default-scheduler", "default-scheduler", "other", "nobody"];
                let scheduler = scheduler[random.usize(0..4)];
                pod(name)
                    .uid(&format!("uid-{}", self.uids))
                    .scheduler(scheduler)
            }
        };
        builder = builder.priority(random.i32(-1..3));
        for (chance, label, values) in [
            (3, "G1", &["shut", "open"][..]),
            (5, "G2", &["pending", "broken"]),
            (2, "helps", &HELPS),
            (3, "v", &["1", "2"]),
        ] {
            if random.u8(0..chance) == 0 {
                builder = builder.label(label, values[random.usize(0..values.len())]);
            }
        }
        for gate in ["x", "y"] {
            if random.u8(0..6) == 0 {
                builder = builder.gate(gate);
            }
        }
        if random.u8(0..4) == 0 {
            builder = builder.toleration(Toleration::default());
        }
        if random.u8(0..3) == 0 {
            builder = builder.nominated(["n1", "n2"][random.usize(0..2)]);
        }
        builder.request("cpu", ["1", "2"][random.usize(0..2)]).arc()
    }

    fn draw(&mut self, random: &mut fastrand::Rng) -> Option<Op> {
        let name = NAMES[random.usize(0..NAMES.len())];
        let there = self.bench.pods.get(name).cloned();
        let flying: Vec<Str> = self.flying.keys().cloned().collect();
        let flier = |random: &mut fastrand::Rng| {
            let at = random.usize(0..flying.len().max(1));
            flying.get(at).cloned()
        };
        Some(match random.u8(0..40) {
            0..=5 => Op::Add(match random.u8(0..6) {
                0 => self.version(random, name, true),
                // The same pod again.
                1 => there?,
                _ if there.is_some() => return None,
                _ => self.version(random, name, true),
            }),
            6..=11 => {
                let anew = random.u8(0..12) == 0;
                let new = self.version(random, name, anew);
                Op::Update(there.unwrap_or_else(|| new.clone()), new)
            }
            12 => Op::Delete(there?),
            13..=18 => Op::Pop,
            19 => Op::Take(there?),
            20..=21 => Op::Done(flier(random)?),
            22..=27 => {
                let some = |random: &mut fastrand::Rng, max: usize| -> Vec<&'static str> {
                    let count = random.usize(0..=max);
                    (0..count)
                        .map(|_| REJECTORS[random.usize(0..REJECTORS.len())])
                        .collect()
                };
                let (unschedulable, pending) = (some(random, 2), some(random, 1));
                Op::Fail(flier(random)?, unschedulable, pending)
            }
            28..=33 => Op::Event(
                EVENTS[random.usize(0..EVENTS.len())],
                HELPS[random.usize(0..HELPS.len())],
                (random.u8(0..6) == 0).then(|| random.i32(-1..3)),
            ),
            34 => Op::Activate(there?),
            35 => Op::Nominate(there?, ["n1", "n3", ""][random.usize(0..3)]),
            36 => Op::FlushBackoff,
            37 => Op::FlushLeftover,
            _ => Op::Wait([0, 1, 10, 700, 1000, 3000, 200_000][random.usize(0..7)]),
        })
    }

    fn apply(&mut self, op: &Op) {
        self.model.now = self.bench.now;
        let model = &mut self.model;
        match op {
            Op::Wait(millis) => self.bench.now = self.bench.now + Duration::from_millis(*millis),
            Op::Add(pod) => {
                // The cluster processes the deletion of another pod with that name first.
                if let Some(other) = self.bench.pods.get(pod.name().as_str()) {
                    self.bench.cluster.pods.remove(&other.uid().clone());
                }
                self.bench.know(pod.clone());
                let (queue, cx) = fields!(self.bench);
                queue.add(&cx, pod.clone());
                model.add(cx.cluster, pod);
            }
            Op::Update(old, new) => {
                if old.uid() != new.uid() {
                    self.bench.cluster.pods.remove(old.uid());
                }
                self.bench.know(new.clone());
                let (queue, cx) = fields!(self.bench);
                queue.update(&cx, old, new);
                model.update(cx.cluster, old, new);
            }
            Op::Delete(pod) => {
                self.bench.cluster.pods.remove(pod.uid());
                self.bench.pods.remove(pod.name().as_str());
                self.bench.queue.delete(pod);
                model.delete(pod);
            }
            Op::Pop => {
                let popped = self.bench.queue.pop(self.bench.now);
                let expected = model.pop();
                self.fly(popped, expected);
            }
            Op::Take(pod) => {
                let (queue, cx) = fields!(self.bench);
                let popped = queue.pop_specific(&cx, pod);
                let expected = model.take(cx.cluster, pod);
                self.fly(popped, expected);
            }
            Op::Done(uid) => {
                self.flying.remove(uid);
                self.bench.queue.done(uid);
                model.done(uid);
            }
            Op::Fail(uid, unschedulable, pending) => {
                let Some((mut info, mut known)) = self.flying.remove(uid) else {
                    return;
                };
                let latest = self.bench.pods.get(info.pod.name().as_str());
                if let Some(latest) = latest.filter(|latest| latest.uid() == uid) {
                    info.pod = latest.clone();
                    known.pod = latest.clone();
                }
                info.unschedulable_plugins = unschedulable.iter().copied().collect();
                info.pending_plugins = pending.iter().copied().collect();
                known.unschedulable = unschedulable.iter().map(|p| Str::new(p)).collect();
                known.pending = pending.iter().map(|p| Str::new(p)).collect();
                let (queue, cx) = fields!(self.bench);
                let taken = queue.add_unschedulable(&cx, info).is_ok();
                assert_eq!(taken, model.give_back(cx.cluster, known));
            }
            Op::Event(event, helps, up_to) => {
                let event = event_of(event);
                let object = match event.resource {
                    EventResource::Node => node("changed").label("helps", helps).object(),
                    _ => pod("changed").label("helps", helps).object(),
                };
                let old = (event.action != ActionType::ADD).then_some(&object);
                let new = (event.action != ActionType::DELETE).then_some(&object);
                let passes = |pod: &Pod| up_to.is_none_or(|up_to| pod.priority() <= up_to);
                let check: &dyn Fn(&Pod) -> bool = &passes;
                let (queue, cx) = fields!(self.bench);
                let change = Change { old, new };
                queue.move_all(&cx, &event, change, up_to.is_some().then_some(check));
                model.event(cx.cluster, &event, old, new, check);
            }
            Op::Activate(pod) => {
                let (queue, cx) = fields!(self.bench);
                queue.activate(&cx, [pod]);
                model.activate(cx.cluster, pod);
            }
            Op::Nominate(pod, on) => {
                let (queue, cx) = fields!(self.bench);
                queue
                    .nominator_mut()
                    .add(cx.cluster, pod, &Nominating::Set(Str::new(on)));
                model.nominate(cx.cluster, pod, Str::new(on));
            }
            Op::FlushBackoff => {
                let (queue, cx) = fields!(self.bench);
                queue.flush_backoff(&cx);
                model.flush_backoff(cx.cluster);
            }
            Op::FlushLeftover => {
                let (queue, cx) = fields!(self.bench);
                queue.flush_leftover(&cx);
                model.flush_leftover(cx.cluster);
            }
        }
    }

    fn fly(&mut self, popped: Option<QueuedPodInfo>, expected: Option<Known>) {
        let name = |pod: &Pod| pod.name().to_string();
        assert_eq!(
            popped.as_ref().map(|info| name(&info.pod)),
            expected.as_ref().map(|known| name(&known.pod)),
            "the pod that was popped"
        );
        if let Some((info, known)) = popped.zip(expected) {
            let uid = info.pod.uid().clone();
            assert_eq!(of_queue(&info), of_model(&known));
            self.flying.insert(uid, (info, known));
        }
    }

    /// Everything that can be seen, of both.
    fn compare(&self) {
        let queue = &self.bench.queue;
        for (place, in_model) in QueuedIn::ALL.into_iter().zip(Place::ALL) {
            let mine: Vec<String> = queue
                .places()
                .pods_in(place)
                .into_iter()
                .map(of_queue)
                .collect();
            let other: Vec<String> = self
                .model
                .in_order(in_model)
                .into_iter()
                .map(of_model)
                .collect();
            assert_eq!(mine, other, "{place:?}");
        }
        let mut in_flight: Vec<Str> = queue.in_flight().pods().map(|p| p.uid().clone()).collect();
        in_flight.sort_unstable();
        let expected: Vec<Str> = self.model.in_flight.keys().cloned().collect();
        assert_eq!(in_flight, expected, "in flight");
        let incoming: BTreeMap<_, _> = self
            .model
            .incoming
            .iter()
            .map(|((queue, event), n)| (vec![(*queue).to_owned(), event.clone()], *n as i64))
            .collect();
        let counted = numbers(queue, Metric::QueueIncomingPods);
        assert_eq!(counted, incoming, "incoming pods");
        let gauge: BTreeMap<_, _> = numbers(queue, Metric::UnschedulablePods)
            .into_iter()
            .filter(|(_, count)| *count != 0)
            .map(|(labels, n)| ((labels[0].clone(), labels[1].clone()), n))
            .collect();
        assert_eq!(
            gauge,
            self.model.unschedulable_gauge(),
            "unschedulable pods"
        );
        let gauge: BTreeMap<_, _> = numbers(queue, Metric::InflightEvents)
            .into_iter()
            .filter(|(_, count)| *count != 0)
            .map(|(labels, n)| (labels[0].clone(), n))
            .collect();
        assert_eq!(gauge, self.model.in_flight_gauge(), "events in flight");
        let hints: BTreeMap<_, _> = self
            .model
            .hints
            .iter()
            .map(|((plugin, event, hint), n)| {
                let labels = vec![plugin.clone(), event.clone(), (*hint).to_owned()];
                (labels, *n as i64)
            })
            .collect();
        let counted = numbers(queue, Metric::QueueingHintExecutionDuration);
        assert_eq!(counted, hints, "hints");
        let nominator = queue.nominator();
        let mut nominated = BTreeMap::new();
        for node in nominator.nodes() {
            for info in nominator.pods_on(node) {
                let before = nominated.insert(info.pod.uid().clone(), node.clone());
                assert_eq!(before, None, "{} is nominated twice", info.pod.name());
            }
        }
        assert_eq!(nominated, self.model.nominated, "nominations");
        queue.check().unwrap_or_else(|problem| panic!("{problem}"));
    }
}

/// A pod with its history in the queue.
fn of_queue(info: &QueuedPodInfo) -> String {
    let first = info.initial_attempt_timestamp;
    let mut text = history(
        &info.pod,
        info.timestamp,
        [
            info.attempts,
            info.unschedulable_count,
            info.in_a_row.errors,
        ],
        info.was_flushed_from_unschedulable,
        first,
    );
    let unschedulable: Vec<&str> = info.unschedulable_plugins.iter().map(Str::as_str).collect();
    let pending: Vec<&str> = info.pending_plugins.iter().map(Str::as_str).collect();
    let gate = info.gating_plugin().map(Str::as_str);
    let _ = write!(text, " {unschedulable:?} {pending:?} {gate:?}");
    text
}

/// A pod with its history in the model.
fn of_model(known: &Known) -> String {
    let counts = [known.attempts, known.rejections, known.errors];
    let mut text = history(
        &known.pod,
        known.since,
        counts,
        known.flushed,
        known.first_active,
    );
    let unschedulable: Vec<&str> = known.unschedulable.iter().map(Str::as_str).collect();
    let pending: Vec<&str> = known.pending.iter().map(Str::as_str).collect();
    let gate = known.gate.as_deref();
    let _ = write!(text, " {unschedulable:?} {pending:?} {gate:?}");
    text
}

fn history(pod: &Pod, since: Time, counts: [u32; 3], flushed: bool, first: Option<Time>) -> String {
    format!(
        "{} {} at {} tried {counts:?} flushed {flushed} first {:?}",
        pod.name(),
        pod.uid(),
        since.as_millis(),
        first.map(Time::as_millis)
    )
}

///
/// cases 35 and 139: the queue agrees with its model after every random operation, with and without
/// SchedulerPopFromBackoffQ. Pods are recreated under their names, updated and activated in flight, and returned when
/// another pod has their name.
#[test]
fn the_queue_does_what_its_model_does() {
    for seed in 0..240 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut both = Both::new(seed % 3 != 0, seed % 2 == 0);
        let mut done = Vec::new();
        for _ in 0..250 {
            let Some(op) = both.draw(&mut random) else {
                continue;
            };
            done.push(op.to_string());
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                both.apply(&op);
                both.compare();
            }));
            if outcome.is_err() {
                panic!("seed {seed}, after:\n{}", done.join("\n"));
            }
        }
    }
}
