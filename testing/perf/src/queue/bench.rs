//! A queue with the plugins of the default profile, and the clock.

use super::crowd::{Crowd, Mould};
use super::report::EventFigures;
use super::scene::Scene;
use crate::error::PerfError;
use crate::stats::median;
use berth_api::{Duration, Object, Pod, ResourceClaim, Time};
use berth_framework::cluster::claim_names;
use berth_framework::plugin::Context;
use berth_framework::{Cluster, Feature, FeatureGates};
use berth_scheduler::profile::{Profile, ProfileSpec};
use berth_scheduler::queue::{ProfileHooks, QueueConfig, SchedulingQueue};
use std::sync::Arc;
use std::time::Instant;

/// The number of pods that each event helps.
pub(super) const HELPED: usize = 8;

/// A queue and its surroundings.
pub(super) struct Bench {
    queue: SchedulingQueue,
    cluster: Cluster,
    features: FeatureGates,
    now: Time,
}

/// The cost of one event.
pub(super) struct Played {
    events: usize,
    looked_at: usize,
    moved: usize,
    hints: u64,
    micros: Vec<f64>,
}

impl Played {
    pub(super) fn of(self, scene: &Scene, crowd: Crowd, waiting: usize) -> EventFigures {
        let events = self.events.max(1) as f64;
        EventFigures {
            event: scene.name,
            crowd: crowd.name(),
            waiting,
            events: self.events,
            looked_at_per_event: self.looked_at as f64 / events,
            moved_per_event: self.moved as f64 / events,
            hints_per_event: self.hints as f64 / events,
            gate: "on",
            micros_median: median(&self.micros).unwrap_or_default(),
        }
    }
}

impl Bench {
    /// An empty queue, with SchedulerPreQueueingHints on or off. Pods have no backoff, so a moved pod can be attempted
    /// immediately.
    pub(super) fn new(gate: bool) -> Result<Self, PerfError> {
        let registry = berth_plugins::in_tree();
        let features = FeatureGates::default().with(Feature::SchedulerPreQueueingHints, gate);
        let profile = Profile::build(&ProfileSpec::default(), &registry, &features)
            .map_err(|errors| PerfError::Setup(format!("{errors:?}")))?;
        let sort = profile.queue_sort.plugin.clone();
        let mut hooks = ProfileHooks::new(profile.name.clone(), sort);
        for member in &profile.pre_enqueue {
            hooks = hooks.with_pre_enqueue(member.name.clone(), member.plugin.clone());
        }
        for plugin in &profile.plugins {
            hooks = hooks.with_plugin(plugin, &features);
        }
        let config = QueueConfig {
            pod_max_backoff: Duration::ZERO,
            features,
            ..QueueConfig::default()
        };
        let now = Time::from_secs(1_000);
        Ok(Self {
            queue: SchedulingQueue::new(config, vec![hooks], now),
            cluster: Cluster::default(),
            features,
            now,
        })
    }

    /// Adds a pod with existing claims for devices.
    fn add(&mut self, pod: Arc<Pod>) {
        for name in claim_names(&pod) {
            let mut claim = ResourceClaim::default();
            claim.metadata.name = name.clone();
            claim.metadata.namespace = pod.namespace().clone();
            claim.metadata.uid = name.clone();
            self.cluster.set(&Object::ResourceClaim(Arc::new(claim)));
            self.cluster.pods.insert(pod.uid().clone(), pod.clone());
        }
        let cx = Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        };
        self.queue.add(&cx, pod);
    }

    /// Attempts every active pod, and rejects each in the name of `plugin`.
    fn reject_all(&mut self, plugin: &str) {
        let cx = Context {
            now: self.now,
            cluster: &self.cluster,
            features: &self.features,
            work: None,
        };
        while let Some(mut info) = self.queue.pop(self.now) {
            info.clear_rejectors();
            info.unschedulable_plugins = [plugin].into_iter().collect();
            // Nothing else adds the pod at the same time.
            let given_back = self.queue.add_unschedulable(&cx, info);
            debug_assert!(given_back.is_ok());
        }
    }

    /// Adds a crowd of waiting pods.
    pub(super) fn gather(&mut self, crowd: Crowd, pods: usize) {
        for (at, like) in crowd.likes().iter().enumerate() {
            let mould = Mould::new(like.edit);
            for n in (at..pods).step_by(crowd.likes().len()) {
                self.add(mould.cast(&format!("waiting-{n}")));
                if let Some(plugin) = like.plugin {
                    self.reject_all(plugin);
                }
            }
        }
    }

    /// Raises the event of a scene repeatedly, each time with the same pods waiting.
    pub(super) fn play(&mut self, scene: &Scene, events: usize) -> Played {
        let mould = Mould::new(scene.helped);
        let helped: Vec<Arc<Pod>> = (0..HELPED)
            .map(|n| mould.cast(&format!("helped-{n}")))
            .collect();
        for pod in &helped {
            self.add(pod.clone());
        }
        let mut played = Played {
            events,
            looked_at: 0,
            moved: 0,
            hints: 0,
            micros: Vec::with_capacity(events),
        };
        for _ in 0..events {
            self.now = self.now + Duration::from_millis(1);
            self.reject_all(scene.plugin);
            let cx = Context {
                now: self.now,
                cluster: &self.cluster,
                features: &self.features,
                work: None,
            };
            let began = Instant::now();
            let moved = self.queue.move_all(&cx, &scene.event, scene.change(), None);
            played.micros.push(began.elapsed().as_secs_f64() * 1e6);
            played.looked_at += moved.examined;
            played.moved += moved.active;
            played.hints += moved.hints;
        }
        for pod in &helped {
            self.queue.delete(pod);
            self.cluster.pods.remove(pod.uid());
        }
        played
    }
}
