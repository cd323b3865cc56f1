//! Random groups: gangs of several sizes are created, changed and deleted, with nodes, failed bindings, preemption and
//! topology.
//!
//! After each step, the records of the scheduler agree (the driver checks that), and no gang is bound below its
//! minimum. In the end, with room for all, every complete gang runs.

use crate::drivers::driver_with;
use crate::groups::{cpus, gang, gates, group, member, node_of};
use berth_api::Kind;
use berth_framework::call::CallErrorKind;
use berth_framework::cluster::GroupKey;
use berth_framework::testing::{PodBuilder, pod};
use berth_framework::{ApiCall, Feature};
use berth_scheduler::ScheduleOutcome;
use berth_scheduler::testing::Driver;
use fastrand::Rng;
use serde_json::json;
use std::collections::BTreeMap;

/// The seeds of one run.
const SEEDS: std::ops::Range<u64> = 0..20;
const STEPS: usize = 120;

/// A gang as the test knows it.
struct Gang {
    min: usize,
    priority: i32,
    exists: bool,
    pods: Vec<String>,
}

struct World {
    w: Driver,
    rng: Rng,
    gangs: BTreeMap<String, Gang>,
    next: usize,
    nodes: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let topology = rng.bool();
        let w = driver_with(|options| {
            options.seed = seed;
            options.features = gates()
                .with(Feature::TopologyAwareWorkloadScheduling, topology)
                .with(Feature::CompositePodGroup, topology);
        });
        Self {
            w,
            rng,
            gangs: BTreeMap::new(),
            next: 0,
            nodes: 0,
        }
    }

    fn object(&self, name: &str) -> serde_json::Value {
        let known = &self.gangs[name];
        let mut spec = gang(known.min as i32);
        spec["priority"] = json!(known.priority);
        if known.priority == 10 {
            spec["disruptionMode"] = json!({"all": {}});
        }
        if name.ends_with('3') {
            spec["schedulingConstraints"] = json!({"topology": [{"key": "rack"}]});
        }
        group(name, spec)
    }

    fn node(&mut self) {
        let name = format!("n{}", self.nodes);
        let rack = format!("r{}", self.nodes % 3);
        self.nodes += 1;
        let size = self.rng.u32(1..5).to_string();
        self.w.node(cpus(&name, &size).label("rack", &rack));
    }

    fn some_gang(&mut self) -> Option<String> {
        let names: Vec<String> = self.gangs.keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.rng.usize(0..names.len())].clone())
    }

    fn add_pod(&mut self, name: &str) {
        self.next += 1;
        let pod = format!("{name}-{}", self.next);
        let known = self.gangs.get_mut(name).expect("it is known");
        let cpu = if self.next.is_multiple_of(4) {
            "2"
        } else {
            "1"
        };
        known.pods.push(pod.clone());
        let built: PodBuilder = member(&pod, name, cpu).priority(known.priority);
        self.w.pod(built);
    }

    fn new_gang(&mut self) {
        self.next += 1;
        let name = format!("g{}", self.next);
        let known = Gang {
            min: self.rng.usize(1..5),
            priority: [0, 0, 10, 100][self.rng.usize(0..4)],
            exists: true,
            pods: Vec::new(),
        };
        let pods = known.min + self.rng.usize(0..2);
        self.gangs.insert(name.clone(), known);
        let object = self.object(&name);
        let pods_first = self.rng.bool();
        if !pods_first {
            self.w.object(Kind::PodGroup, object.clone());
        }
        for _ in 0..pods {
            self.add_pod(&name);
        }
        if pods_first {
            self.w.object(Kind::PodGroup, object);
        }
    }

    /// Deletes a pod, if it still exists.
    fn delete_pod(&mut self, name: &str) {
        let known = self.gangs.get_mut(name).expect("it is known");
        if known.pods.is_empty() {
            return;
        }
        let at = self.rng.usize(0..known.pods.len());
        let pod = known.pods.swap_remove(at);
        self.w.deleted(&pod);
    }

    fn answer_some(&mut self) {
        while !self.w.calls.is_empty() && self.rng.u8(0..5) > 0 {
            let failure = match self.rng.u8(0..12) {
                0 => Some(CallErrorKind::Refused),
                _ => None,
            };
            let grace = self.rng.bool();
            self.w.answer_which(|_| true, failure, grace);
        }
    }

    fn attempt(&mut self) -> bool {
        let binds = |w: &Driver| {
            let calls = w.calls.iter();
            let binds = calls.filter_map(|(_, call)| match call {
                ApiCall::BindPod { pod, .. } => Some(pod.name.to_string()),
                _ => None,
            });
            binds.collect::<Vec<String>>()
        };
        let before = binds(&self.w);
        let outcome = self.w.schedule();
        for pod in binds(&self.w).iter().filter(|pod| !before.contains(pod)) {
            let Some((name, _)) = pod.split_once('-') else {
                continue;
            };
            let key = GroupKey::pod_group(&"default".into(), &name.into());
            let cluster = self.w.scheduler.cache().cluster();
            let scheduled = cluster
                .pods
                .members(&key)
                .map_or(0, |m| m.scheduled().len());
            let min = cluster.groups().spec(&key).map_or(0, |spec| spec.min());
            assert!(scheduled >= min, "{pod} is bound with {scheduled} of {min}");
        }
        !matches!(outcome, ScheduleOutcome::Idle { .. })
    }

    fn step(&mut self) {
        match self.rng.u8(0..16) {
            0 | 1 => self.new_gang(),
            2 if self.nodes < 8 => self.node(),
            3 => {
                self.next += 1;
                let name = format!("single-{}", self.next);
                let priority = [0, 50][self.rng.usize(0..2)];
                self.w
                    .pod(pod(&name).request("cpu", "1").priority(priority));
            }
            4 => {
                if let Some(name) = self.some_gang() {
                    self.delete_pod(&name);
                }
            }
            5 => {
                if let Some(name) = self.some_gang() {
                    self.add_pod(&name);
                }
            }
            6 => {
                if let Some(name) = self.some_gang() {
                    let min = self.rng.usize(1..5);
                    self.gangs.get_mut(&name).expect("it is known").min = min;
                    if self.gangs[&name].exists {
                        let object = self.object(&name);
                        self.w.object(Kind::PodGroup, object);
                    }
                }
            }
            7 => {
                if let Some(name) = self.some_gang() {
                    let object = self.object(&name);
                    let known = self.gangs.get_mut(&name).expect("it is known");
                    known.exists = !known.exists;
                    if known.exists {
                        self.w.object(Kind::PodGroup, object);
                    } else {
                        self.w.object_gone(Kind::PodGroup, &object);
                    }
                }
            }
            8 | 9 => self.answer_some(),
            10 => drop(self.w.wait(self.rng.u64(1..20))),
            _ => drop(self.attempt()),
        }
    }

    /// All objects exist, every call succeeds, and there is room: each gang with enough pods runs.
    fn settle(&mut self, seed: u64) {
        for name in self.gangs.keys().cloned().collect::<Vec<_>>() {
            let object = self.object(&name);
            if !self.gangs[&name].exists {
                self.w.object(Kind::PodGroup, object);
            }
        }
        for rack in 0..3 {
            let name = format!("big{rack}");
            let big = cpus(&name, "400").capacity("400", "900Gi", "1000");
            self.w.node(big.label("rack", &format!("r{rack}")));
        }
        for _ in 0..60 {
            self.w.answer_all();
            for _ in 0..200 {
                if !self.attempt() {
                    break;
                }
                self.w.answer_all();
            }
            // Pods that were evicted gracefully end at last.
            let dying: Vec<String> = self
                .w
                .pods
                .values()
                .filter(|pod| pod.is_terminating())
                .map(|pod| pod.name().to_string())
                .collect();
            for name in dying {
                self.w.deleted(&name);
            }
            self.w.wait(30);
        }
        for (name, known) in &self.gangs {
            let alive: Vec<&String> = known
                .pods
                .iter()
                .filter(|p| self.w.pods.contains_key(*p))
                .collect();
            if alive.len() < known.min {
                continue;
            }
            for pod in alive {
                assert_ne!(
                    node_of(&self.w, pod),
                    "",
                    "seed {seed}: {pod} of {name} (min {}) waits: {:?}",
                    known.min,
                    self.w
                        .scheduler
                        .explanation(&format!("uid-{pod}"))
                        .map(|e| e.message.clone()),
                );
            }
        }
    }
}

/// G-9, G-12, G-17: whatever happens, no gang is bound below its minimum, and none is forgotten.
#[test]
fn gangs_at_random_start_whole_and_in_the_end() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        world.node();
        for _ in 0..STEPS {
            world.step();
        }
        world.settle(seed);
    }
}
