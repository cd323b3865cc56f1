//! Deferred quotas in random runs of the scheduler, with failed calls and with schedulers that exit and restart. An
//! independent check follows the objects of the API. Planted bugs must be found.

use berth_api::{Kind, Pod};
use berth_framework::call::CallErrorKind;
use berth_framework::cluster::DEFERRED_QUOTA;
use berth_framework::event::{EventRegistration, Narrowed};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue};
use berth_framework::registry::{Extensions, Registry};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_framework::{FeatureGates, Status};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const KIND: Kind = Kind::Custom(DEFERRED_QUOTA);
const PODS_MAX: i64 = 4;
const CPU_MAX: i64 = 6;

/// The quota of the runs: 4 pods and 6 CPUs, in strict order.
fn quota() -> Value {
    json!({
        "metadata": {"name": "q", "namespace": "default", "uid": "uid-q"},
        "spec": {"hard": {"pods": PODS_MAX, "requests.cpu": CPU_MAX.to_string()}},
    })
}

/// A bug that is put into the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// PreEnqueue and Reserve do not check the limit.
    Limit,
    /// PreEnqueue lets pods overtake.
    Order,
    /// The event that makes room wakes no pod.
    Wake,
    /// None.
    Nothing,
}

/// DeferredQuota with a bug.
#[derive(Debug)]
struct Faulty(Bug);

impl PreEnqueue for Faulty {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        let obstacle = cx.cluster.quotas().obstacle(pod);
        match obstacle {
            Some(obstacle)
                if self.0 == Bug::Wake || self.0 == Bug::Order && obstacle.lack.is_some() =>
            {
                Status::unresolvable(obstacle.to_string())
            }
            _ => Status::success(),
        }
    }
}

impl EnqueueExtensions for Faulty {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let own = Arc::new(berth_plugins::deferred_quota::DeferredQuota).events(features);
        let narrowed = own.into_iter().map(|registration| match self.0 {
            Bug::Wake => registration.narrowed_by(|_, _| Ok(Narrowed::Pods(Vec::new()))),
            _ => registration,
        });
        narrowed.collect()
    }
}

fn registry(bug: Bug) -> Registry {
    let mut registry = Registry::default();
    for registration in berth_plugins::in_tree().iter() {
        let registration = registration.clone();
        let is_quota = registration.name() == "DeferredQuota" && bug != Bug::Nothing;
        let changed = if is_quota {
            registration.changed_by(move |_| {
                let faulty = Extensions::of(Faulty(bug)).pre_enqueue().events();
                faulty.build()
            })
        } else {
            registration
        };
        registry.add(changed).expect("each name once");
    }
    registry
}

/// A random number generator: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn cpus(pod: &Pod) -> i64 {
    let container = pod.spec.containers.first().expect("a container");
    container
        .resources
        .requests
        .get("cpu")
        .map_or(0, |cpu| cpu.value())
}

/// The place in line according to the rules.
fn place(pod: &Pod) -> (i64, Option<berth_api::Time>, String) {
    (
        -i64::from(pod.priority()),
        pod.metadata.creation_timestamp,
        pod.uid().to_string(),
    )
}

struct Run {
    w: Driver,
    bug: Bug,
    random: Random,
    serial: i64,
    waiting: BTreeSet<String>,
}

impl Run {
    fn new(bug: Bug, seed: u64) -> Self {
        let mut run = Self {
            w: Driver::new(&registry(bug), |_| {}),
            bug,
            random: Random(0x9e37_79b9_7f4a_7c15 ^ (seed << 20)),
            serial: 0,
            waiting: BTreeSet::new(),
        };
        run.show_all();
        run
    }

    fn show_all(&mut self) {
        self.w.node(node("n1").capacity("1000", "100Gi", "1000"));
        self.w.object(KIND, quota());
    }

    /// Another scheduler takes over; calls on their way are lost.
    fn fail_over(&mut self) {
        let pods = std::mem::take(&mut self.w.pods);
        let now = self.w.now;
        self.w = Driver::new(&registry(self.bug), |_| {});
        self.w.now = now;
        self.show_all();
        for pod in pods.values() {
            self.w.pod(PodBuilder::of(pod));
        }
        self.waiting.clear();
    }

    fn some_pod(&mut self) -> Option<String> {
        let len = self.w.pods.len() as u64;
        let at = usize::try_from(self.random.below(len.max(1))).unwrap_or(0);
        self.w.pods.keys().nth(at).cloned()
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0..4 => {
                self.serial += 1;
                let created = i64::try_from(self.random.below(500)).unwrap_or(0);
                let priority = i32::try_from(self.random.below(3)).unwrap_or(0);
                let cpu = self.random.below(3) + 1;
                let mut new = pod(&format!("p{:04}", self.serial))
                    .created(created)
                    .priority(priority)
                    .request("cpu", &cpu.to_string());
                if self.random.below(6) == 0 {
                    new = new.gate("g");
                }
                self.w.pod(new);
            }
            4..6 => drop(self.w.schedule()),
            6 => {
                if let Some(name) = self.some_pod() {
                    self.w.deleted(&name);
                }
            }
            7 => {
                if let Some(name) = self.some_pod() {
                    self.w.change(&name, PodBuilder::ungated);
                }
            }
            8 if !self.w.calls.is_empty() => self.w.fail(CallErrorKind::Unavailable),
            9 if !self.w.calls.is_empty() => self.w.fail(CallErrorKind::Refused),
            10 if self.random.below(20) == 0 => self.fail_over(),
            _ => {
                self.w.answer_all();
                self.w.wait(1);
            }
        }
    }

    /// Checks the limits, and that no admitted pod was behind a waiting pod in line.
    fn check(&mut self) -> Result<(), String> {
        let bound = self.w.pods.values().filter(|pod| pod.is_assigned());
        let (pods, cpu) = bound.fold((0, 0), |(pods, sum), pod| (pods + 1, sum + cpus(pod)));
        if pods > PODS_MAX || cpu > CPU_MAX {
            return Err(format!("exceeded: {pods} pods, {cpu} CPUs"));
        }
        let mut waiting = BTreeSet::new();
        let mut passed = Vec::new();
        for (name, pod) in &self.w.pods {
            if pod.is_assigned() || !pod.spec.scheduling_gates.is_empty() {
                continue;
            }
            if self.w.place_of(name) == Some(QueuedIn::Gated) {
                waiting.insert(name.clone());
            } else if self.waiting.contains(name) {
                passed.push(place(pod));
            }
        }
        let first = waiting
            .iter()
            .filter_map(|name| self.w.pods.get(name))
            .map(place)
            .min();
        self.waiting = waiting;
        if let Some(first) = first
            && let Some(behind) = passed.iter().find(|place| **place > first)
        {
            return Err(format!("overtaken: {behind:?} passes before {first:?}"));
        }
        Ok(())
    }

    /// Runs until nothing changes any more; the first waiting pod must not fit then.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            self.w.answer_all();
            self.w.attempts();
            self.w.answer_all();
            self.w.wait(5);
        }
        self.check()?;
        let waiting = self.waiting.iter().filter_map(|name| self.w.pods.get(name));
        let Some(first) = waiting.min_by_key(|pod| place(pod)) else {
            return Ok(());
        };
        let bound = self.w.pods.values().filter(|pod| pod.is_assigned());
        let (pods, cpu) = bound.fold((0, 0), |(pods, sum), pod| (pods + 1, sum + cpus(pod)));
        if pods < PODS_MAX && cpu + cpus(first) <= CPU_MAX {
            return Err(format!("lost: {} waits and fits", first.name()));
        }
        Ok(())
    }
}

fn run(bug: Bug, seed: u64) -> Result<(), String> {
    let mut run = Run::new(bug, seed);
    for step in 0..250 {
        run.step();
        run.check()
            .map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    run.rest()
        .map_err(|error| format!("seed {seed}, at rest: {error}"))
}

/// DQ-2, DQ-4, DQ-5, DQ-6, DQ-9: with failed calls and schedulers that take over, no limit is exceeded, no pod overtakes,
/// and no pod that fits is left behind.
#[test]
fn random_runs_keep_the_rules() {
    for seed in 1..30 {
        run(Bug::Nothing, seed).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The check of the random runs sees a plugin that exceeds the limit, lets pods overtake, or does not wake them.
#[test]
fn planted_bugs_are_found() {
    for (bug, word) in [
        (Bug::Limit, "exceeded"),
        (Bug::Order, "overtaken"),
        (Bug::Wake, "lost"),
    ] {
        let mut found = (1..30).filter_map(|seed| run(bug, seed).err());
        let is_found = found.any(|error| error.contains(word));
        assert!(is_found, "{bug:?} is not found as {word}");
    }
}
