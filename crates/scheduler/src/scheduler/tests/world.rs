//! A scheduler with fake plugins, and an API server with configured answers.

use crate::core::{AttemptTrace, Event, LogLevel, LogLine};
use crate::evaluator::Stopwatch;
use crate::profile::ProfileSpec;
use crate::queue::QueuedIn;
use crate::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use berth_api::{Duration, Object, Pod, Time};
use berth_framework::call::{CallError, CallErrorKind, CallId};
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{PermitStep, PreFilterResult, SortKey};
use berth_framework::registry::Registry;
use berth_framework::stage::{Job, JobId, Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::testing::{FakePlugin, PodBuilder, fake};
use berth_framework::{ActionType, ApiCall, EventResource, FeatureGates, Hint, Status};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The scheduler and its surroundings.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) now: Time,
    pub(super) calls: Vec<(CallId, ApiCall)>,
    pub(super) jobs: Vec<(JobId, Job)>,
    pub(super) events: Vec<Event>,
    pub(super) log: Vec<LogLine>,
    pub(super) traces: Vec<AttemptTrace>,
    /// The pods as the API stores them.
    pub(super) pods: BTreeMap<String, Pod>,
    version: u64,
}

/// A stopwatch that the test advances.
#[derive(Debug, Clone, Default)]
pub(super) struct HandWatch(Arc<AtomicU64>);

impl HandWatch {
    /// So many milliseconds have passed.
    pub(super) fn go(&self, millis: u64) {
        self.0.fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

impl Stopwatch for HandWatch {
    fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A plugin that takes part from PreFilter to PostBind, but for PostFilter, has nothing against anything, and says
/// where it is asked.
pub(super) fn everywhere(
    name: &str,
    asked: impl Fn(&'static str) + Send + Sync + 'static,
) -> FakePlugin {
    let asked = Arc::new(asked);
    let at = |point: &'static str| {
        let asked = asked.clone();
        move || asked(point)
    };
    let passes = |point: &'static str| {
        let asked = at(point);
        move || {
            asked();
            Status::success()
        }
    };
    let (pre_filter, add, remove) = (at("prefilter"), passes("addpod"), passes("removepod"));
    let (filter, pre_score) = (passes("filter"), passes("prescore"));
    let (score, normalize) = (at("score"), passes("normalize"));
    let (reserve, unreserve, permit) = (at("reserve"), at("unreserve"), passes("permit"));
    let (pre_flight, pre_bind) = (passes("preflight"), at("prebind"));
    let (bind, post_bind) = (at("bind"), at("postbind"));
    fake(name)
        .pre_filter(move |_, _, _| {
            pre_filter();
            PreFilterResult::AllNodes
        })
        .add_pod(move |_, _, _| add())
        .remove_pod(move |_, _, _| remove())
        .filter(move |_, _, _| filter())
        .pre_score(move |_, _, _| pre_score())
        .score(move |_, _, _| {
            score();
            Ok(0)
        })
        .normalize(move |_| normalize())
        .reserve(move |_, _, _, _, _| {
            reserve();
            Step::success()
        })
        .unreserve(move |_, _| unreserve())
        .permit(move |_, _, _, _| PermitStep::Done(permit()))
        .pre_flight(move |_, _| pre_flight())
        .pre_bind(move |_, _, _, _, _| {
            pre_bind();
            Step::success()
        })
        .bind(move |_, _, _, _, _| {
            bind();
            Step::success()
        })
        .post_bind(move |_, _, _| post_bind())
}

/// A Bind plugin that makes one call and waits for it.
pub(super) fn binder() -> FakePlugin {
    fake("Binder").bind(|cx, _, pod, node, wake| match wake.map(Wake::reason) {
        None => {
            let call = cx.outbox.call(ApiCall::BindPod {
                pod: berth_framework::call::PodRef::of(&pod.pod),
                node: node.clone(),
            });
            Step::Wait(Wait {
                on: WaitOn::Call(call),
                deadline: cx.now + Duration::from_secs(60),
            })
        }
        Some(WakeReason::Call(Ok(_))) => Step::success(),
        Some(WakeReason::Call(Err(error))) => Step::Done(Status::error(error.to_string())),
        Some(_) => Step::Done(Status::error("no answer")),
    })
}

/// A Filter plugin for CPU, woken by new nodes and deleted pods.
pub(super) fn fits() -> FakePlugin {
    fake("Fits")
        .filter(|_, pod, node| {
            let free = node.allocatable_of("cpu") - node.requested_of("cpu");
            if pod.requests.milli_cpu <= free {
                Status::success()
            } else {
                Status::unschedulable("Insufficient cpu")
            }
        })
        .events(|| {
            vec![
                EventRegistration::always(EventResource::Node, ActionType::ADD),
                EventRegistration::always(EventResource::Pod, ActionType::DELETE),
            ]
        })
}

/// As [`fits`], with answers that are kept for pods that request as much CPU.
pub(super) fn fits_alike() -> FakePlugin {
    fits()
        .score(|_, _, _| Ok(0))
        .keep(|pod, fragment| fragment.put(&pod.requests.milli_cpu))
}

/// A world with these plugins besides an order of the queue and a binder.
pub(super) fn world(plugins: impl IntoIterator<Item = FakePlugin>) -> World {
    World::new(
        plugins.into_iter().chain([binder()]),
        FeatureGates::default(),
    )
}

impl World {
    /// A world with exactly these plugins besides an order of the queue.
    pub(super) fn new(
        plugins: impl IntoIterator<Item = FakePlugin>,
        features: FeatureGates,
    ) -> Self {
        Self::with(plugins, |options| options.features = features)
    }

    /// A world with exactly these plugins besides an order of the queue, and other options than usual.
    pub(super) fn with(
        plugins: impl IntoIterator<Item = FakePlugin>,
        change: impl FnOnce(&mut SchedulerOptions),
    ) -> Self {
        let mut registry = Registry::default();
        let mut names = Vec::new();
        let sort = fake("Sort").sorted_by(|queued| {
            SortKey(
                -i64::from(queued.pod.priority()),
                queued.timestamp.as_nanos(),
            )
        });
        for plugin in [sort].into_iter().chain(plugins) {
            let extensions = plugin.build();
            let name = extensions.name.clone();
            registry
                .register(&name, move |_| Ok(extensions.clone()))
                .unwrap_or_else(|e| panic!("{e}"));
            names.push(name);
        }
        let profile =
            ProfileSpec::of_plugins("default-scheduler", names.iter().map(String::as_str));
        let mut options = SchedulerOptions {
            profiles: vec![profile],
            seed: 1,
            ..SchedulerOptions::default()
        };
        change(&mut options);
        let now = Time::from_secs(1000);
        Self {
            scheduler: Scheduler::new(options, &registry, now).unwrap_or_else(|e| panic!("{e}")),
            now,
            calls: Vec::new(),
            jobs: Vec::new(),
            events: Vec::new(),
            log: Vec::new(),
            traces: Vec::new(),
            pods: BTreeMap::new(),
            version: 10,
        }
    }

    /// Makes a call, as a stage of the core does.
    pub(super) fn call(&mut self, call: ApiCall) -> CallId {
        self.scheduler.core.clock.begin_step(self.now);
        self.scheduler.core.call(call)
    }

    pub(super) fn take(&mut self) {
        let outputs = self.scheduler.take_outputs(self.now);
        self.calls.extend(outputs.calls);
        self.jobs.extend(outputs.jobs);
        self.events.extend(outputs.events);
        self.log.extend(outputs.log);
        self.traces.extend(outputs.traces);
        self.scheduler.check().unwrap_or_else(|e| panic!("{e}"));
    }

    pub(super) fn applied(&mut self, object: Object) -> &mut Self {
        self.scheduler
            .apply(ClusterChange::Applied(object), self.now);
        self.take();
        self
    }

    /// Stores a pod and sends it to the scheduler.
    pub(super) fn pod(&mut self, pod: PodBuilder) -> &mut Self {
        self.version += 1;
        let pod = pod.version(self.version).build();
        self.pods.insert(pod.name().to_string(), pod.clone());
        self.applied(PodBuilder::of(&pod).object())
    }

    /// Changes a stored pod and sends it to the scheduler.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(PodBuilder) -> PodBuilder) {
        let pod = change(PodBuilder::of(&self.pods[name]));
        self.pod(pod);
    }

    pub(super) fn deleted(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            let object = PodBuilder::of(&pod).object();
            self.scheduler
                .apply(ClusterChange::Deleted(object), self.now);
            self.take();
        }
    }

    pub(super) fn advance(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now + duration;
        self.scheduler.tick(self.now);
        self.take();
        self
    }

    pub(super) fn schedule(&mut self) -> Outcome {
        let outcome = self.scheduler.schedule_one(self.now);
        self.take();
        outcome
    }

    /// Tries one pod; how it ended, in a word or the message.
    pub(super) fn attempt(&mut self) -> String {
        match self.schedule() {
            Outcome::Idle { .. } => "idle".to_owned(),
            Outcome::Parked(_) => "parked".to_owned(),
            Outcome::Done { result, .. } => match result {
                CycleResult::Placed { node } => format!("on {node}"),
                CycleResult::Unschedulable { message } => message,
                CycleResult::Error { message } => format!("error: {message}"),
                CycleResult::Skipped => "skipped".to_owned(),
            },
        }
    }

    /// Answers the oldest call: carries it out, or refuses it.
    pub(super) fn answer(&mut self, refusal: Option<&str>) -> ApiCall {
        assert!(!self.calls.is_empty(), "there is no call to answer");
        let (id, call) = self.calls.remove(0);
        let result = match refusal {
            Some(message) => Err(CallError::new(CallErrorKind::Refused, message)),
            None => Ok(()),
        };
        let done = result.is_ok();
        self.scheduler.complete(id, result, self.now);
        self.take();
        if done {
            self.carry_out(&call);
        }
        call
    }

    /// Answers the next call with an error of this kind.
    pub(super) fn fail(&mut self, kind: CallErrorKind) {
        assert!(!self.calls.is_empty(), "there is no call to answer");
        let (id, _) = self.calls.remove(0);
        let error = CallError::new(kind, format!("{kind:?}"));
        self.scheduler.complete(id, Err::<(), _>(error), self.now);
        self.take();
    }

    /// Answers all calls with success until there is none.
    pub(super) fn answer_all(&mut self) -> &mut Self {
        while !self.calls.is_empty() {
            self.answer(None);
        }
        self
    }

    fn carry_out(&mut self, call: &ApiCall) {
        let name = call.object().name.to_string();
        if !self.pods.contains_key(&name) {
            return;
        }
        match call {
            ApiCall::BindPod { node, .. } => {
                self.change(&name, |p| p.on(node).nominated(""));
            }
            ApiCall::PatchPodStatus {
                condition,
                nominated_node,
                ..
            } => self.change(&name, |mut p| {
                if let Some(c) = condition {
                    p = p.condition(&c.kind, &c.status, &c.reason, &c.message);
                }
                match nominated_node {
                    Some(node) => p.nominated(node),
                    None => p,
                }
            }),
            ApiCall::DeletePod { .. } => self.deleted(&name),
            ApiCall::ClearPreEnqueueStatus { .. } | ApiCall::Write(_) => {}
        }
    }

    /// The calls that wait for an answer, in short.
    pub(super) fn calls_text(&self) -> Vec<String> {
        self.calls
            .iter()
            .map(|(_, call)| match call {
                ApiCall::BindPod { pod, node } => format!("bind {} {node}", pod.name),
                ApiCall::PatchPodStatus {
                    pod,
                    condition,
                    nominated_node,
                } => {
                    let mut text = format!("patch {}", pod.name);
                    if let Some(c) = condition {
                        text += &format!(" {}={} {}: {}", c.kind, c.status, c.reason, c.message);
                    }
                    if let Some(node) = nominated_node {
                        text += &format!(" nominated={node:?}");
                    }
                    text
                }
                ApiCall::ClearPreEnqueueStatus { pod, .. } => format!("clear {}", pod.name),
                ApiCall::DeletePod { pod, .. } => format!("delete {}", pod.name),
                ApiCall::Write(write) => format!("write {}", write.object()),
            })
            .collect()
    }

    /// The events since the last time, in short.
    pub(super) fn events_text(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
            .into_iter()
            .map(|e| {
                format!(
                    "{} {} {}",
                    e.event.kind.as_str(),
                    e.event.reason,
                    e.event.note
                )
            })
            .collect()
    }

    /// The lines of the log that begin with `start`, each with its level.
    pub(super) fn logged(&self, start: &str) -> Vec<(LogLevel, &str)> {
        let lines = self.log.iter().map(|line| (line.level, &*line.message));
        lines.filter(|(_, line)| line.starts_with(start)).collect()
    }

    /// The plugins that rejected a waiting pod, and the plugins that returned Pending.
    pub(super) fn rejectors_of(&self, name: &str) -> (Vec<String>, Vec<String>) {
        let Some((_, info)) = self.scheduler.queue().get("default", name) else {
            return Default::default();
        };
        let names = |plugins: &mut dyn Iterator<Item = &berth_api::Str>| {
            let mut names: Vec<String> = plugins.map(ToString::to_string).collect();
            names.sort();
            names
        };
        (
            names(&mut info.unschedulable_plugins.iter()),
            names(&mut info.pending_plugins.iter()),
        )
    }

    /// Where a pod is in the queue.
    pub(super) fn place_of(&self, name: &str) -> Option<QueuedIn> {
        Some(self.scheduler.queue().get("default", name)?.0)
    }

    /// Names of the pods counted on a node, sorted.
    pub(super) fn on(&self, node: &str) -> Vec<String> {
        let view = self.scheduler.cache().cluster().nodes.node(node);
        let pods = view.into_iter().flat_map(|v| v.pods());
        let mut names: Vec<String> = pods.map(|p| p.pod.name().to_string()).collect();
        names.sort();
        names
    }

    pub(super) fn metric(&self, metric: crate::metrics::Metric, labels: &[&str]) -> f64 {
        self.scheduler.metrics().number(metric, labels)
    }
}

/// Wakes a pod when any node is new or changes.
pub(super) fn node_changes() -> EventRegistration {
    let actions = ActionType::ADD | ActionType::UPDATE;
    EventRegistration::with_hint(EventResource::Node, actions, |_, _, _| Ok(Hint::Queue))
}
