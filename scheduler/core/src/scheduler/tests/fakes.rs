//! Fake plugins, drivers with them, and accessors for tests.

use crate::LogLevel;
use crate::SchedulerOptions;
use crate::testing::{Driver, registered};
use berth_api::Duration;
use berth_framework::call::CallId;
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{PermitStep, PreFilterResult, SortKey};
use berth_framework::registry::Registry;
use berth_framework::stage::{Step, Wait, WaitOn, Wake, WakeReason};
use berth_framework::testing::{FakePlugin, fake};
use berth_framework::{ActionType, ApiCall, EventResource, FeatureGates, Hint, Status};
use berth_profile::ProfileSpec;
use berth_telemetry::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stopwatch that the test advances.
#[derive(Debug, Clone, Default)]
pub(super) struct HandWatch(Arc<AtomicU64>);

impl HandWatch {
    /// Time has passed, in milliseconds.
    pub(super) fn go(&self, millis: u64) {
        self.0.fetch_add(millis * 1_000_000, Ordering::Relaxed);
    }
}

impl Stopwatch for HandWatch {
    fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A plugin for all points from PreFilter to PostBind except PostFilter. It accepts everything and records its calls.
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

/// As [`fits`], with answers that are cached for pods with the same CPU request.
pub(super) fn fits_alike() -> FakePlugin {
    fits()
        .score(|_, _, _| Ok(0))
        .keep(|pod, fragment| fragment.put(&pod.requests.milli_cpu))
}

/// A driver with these plugins, a QueueSort plugin and a binder.
pub(super) fn driver(plugins: impl IntoIterator<Item = FakePlugin>) -> Driver {
    driver_of(
        plugins.into_iter().chain([binder()]),
        FeatureGates::default(),
    )
}

/// A driver with exactly these plugins and a QueueSort plugin.
pub(super) fn driver_of(
    plugins: impl IntoIterator<Item = FakePlugin>,
    features: FeatureGates,
) -> Driver {
    driver_with(plugins, |options| options.features = features)
}

/// A registry of these plugins and a QueueSort plugin, and a profile of exactly them.
pub(super) fn profile_with(
    plugins: impl IntoIterator<Item = FakePlugin>,
) -> (Registry, ProfileSpec) {
    let sort = fake("Sort").sorted_by(|queued| {
        SortKey(
            -i64::from(queued.pod.priority()),
            queued.timestamp.as_nanos(),
        )
    });
    let plugins = [sort].into_iter().chain(plugins);
    registered(plugins.map(FakePlugin::build))
}

/// A driver with exactly these plugins, a QueueSort plugin and other options.
pub(super) fn driver_with(
    plugins: impl IntoIterator<Item = FakePlugin>,
    change: impl FnOnce(&mut SchedulerOptions),
) -> Driver {
    let (registry, profile) = profile_with(plugins);
    Driver::new(&registry, |options| {
        options.profiles = vec![profile];
        change(options);
    })
}

impl Driver {
    /// Makes a call, as a stage of the core does.
    pub(super) fn call(&mut self, call: ApiCall) -> CallId {
        self.scheduler.core.framework.clock.begin_step(self.now);
        self.scheduler.core.call(call)
    }

    /// The waiting calls, in short.
    pub(super) fn calls_text(&self) -> Vec<String> {
        self.calls
            .iter()
            .map(|(_, call)| match call {
                ApiCall::BindPod { pod, node } => format!("bind {} {node}", pod.name),
                ApiCall::PatchPodStatus {
                    pod,
                    conditions,
                    nominated_node,
                } => {
                    let mut text = format!("patch {}", pod.name);
                    for c in conditions {
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

    /// The events since the last call, in short.
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

    /// The lines of the log that begin with `start`, each with its level, and with its keys.
    pub(super) fn logged(&self, start: &str) -> Vec<(LogLevel, String)> {
        let lines = self.log.iter().map(|line| (line.level, line.to_string()));
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

    /// Names of the pods counted on a node, sorted.
    pub(super) fn on(&self, node: &str) -> Vec<String> {
        let view = self.scheduler.cache().cluster().nodes.node(node);
        let pods = view.into_iter().flat_map(|v| v.pods());
        let mut names: Vec<String> = pods.map(|p| p.pod.name().to_string()).collect();
        names.sort();
        names
    }
}

/// Wakes a pod when any node is new or changes.
pub(super) fn node_changes() -> EventRegistration {
    let actions = ActionType::ADD | ActionType::UPDATE;
    EventRegistration::with_hint(EventResource::Node, actions, |_, _, _| Ok(Hint::Queue))
}
