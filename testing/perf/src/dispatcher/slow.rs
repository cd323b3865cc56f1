//! The whole core with a slow API server, in virtual time: the cost of status writes for the pods that are bound at the
//! same time (KEP-5229, KEP-5501).
//!
//! The server answers each call after a fixed time and shows the result as a watch does. A decision takes a fixed time,
//! too, so that the figures do not depend on the machine.

use super::report::{LoopFigures, ReportFigures};
use crate::error::PerfError;
use crate::generate;
use crate::stats::milliseconds;
use berth_api::pod::PodCondition;
use berth_api::{Duration, Object, Pod, Str, Time};
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue};
use berth_framework::registry::Extensions;
use berth_framework::{ActionType, ApiCall, CallId, EventResource, Feature, FeatureGates, Status};
use berth_scheduler::profile::{EnabledPlugin, Point, ProfileSpec};
use berth_scheduler::{ClusterChange, ScheduleOutcome, Scheduler, SchedulerOptions};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// The time that a decision takes.
const DECISION: Duration = Duration::from_micros(100);
/// The idle time after which the cluster counts as settled: longer than the delay of reports.
const QUIET: Duration = Duration::from_secs(8);
/// Nodes, each with capacity for 40 of the pods that fit.
const NODES: usize = 250;
/// The most pods that fit.
pub(super) const PODS_MAX: usize = NODES * 40;

/// The action of the scheduling loop while the status of a pod is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loop {
    /// It waits for the answer, as kube-scheduler does without SchedulerAsyncAPICalls.
    Waits,
    /// It continues, and each call is sent: Berth with the gate off.
    GateOff,
    /// It continues, and calls are merged and skipped: Berth with the gate on.
    GateOn,
}

impl Loop {
    pub(super) const ALL: [Self; 3] = [Self::Waits, Self::GateOff, Self::GateOn];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Waits => "former: the loop waits",
            Self::GateOff => "gate off",
            Self::GateOn => "gate on",
        }
    }

    fn features(self) -> FeatureGates {
        let is_on = self == Self::GateOn;
        FeatureGates::default()
            .with(Feature::SchedulerAsyncAPICalls, is_on)
            .with(Feature::SchedulerPreEnqueuePodStatus, is_on)
    }
}

/// Rejects the pods with its label.
struct Quota;

const QUOTA: &str = "Quota";
const REJECTED: &str = "example.com/over-quota";

impl PreEnqueue for Quota {
    fn pre_enqueue(&self, _cx: &Context<'_>, pod: &Pod) -> Status {
        match pod.labels().get(REJECTED) {
            Some(_) => Status::unresolvable("the namespace is over its quota"),
            None => Status::success(),
        }
    }
}

impl EnqueueExtensions for Quota {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![EventRegistration::always(
            EventResource::Pod,
            ActionType::UPDATE_POD_LABEL,
        )]
    }
}

/// The calls that the API server has not answered.
struct SlowServer {
    latency: Duration,
    on_their_way: BinaryHeap<Reverse<(Time, CallId)>>,
    calls: HashMap<CallId, ApiCall>,
    statuses: usize,
}

/// The measured values.
struct MeasuredLoop {
    /// Pods that are not bound yet, with their creation time.
    created: HashMap<Str, Time>,
    waits: Vec<Duration>,
    last_bound: Time,
    patches: usize,
    events: usize,
}

/// A scheduler with a slow API server.
struct SlowCluster {
    scheduler: Scheduler,
    now: Time,
    /// Whether the scheduling loop waits while a status is written.
    is_waiting: bool,
    pods: HashMap<Str, Arc<Pod>>,
    version: u64,
    server: SlowServer,
    measured: MeasuredLoop,
}

impl SlowCluster {
    fn new(latency: Duration, is_waiting: bool, features: FeatureGates) -> Result<Self, PerfError> {
        let mut registry = berth_plugins::in_tree();
        registry
            .register(QUOTA, |_| {
                Ok(Extensions::of(Quota).pre_enqueue().events().build())
            })
            .map_err(|error| PerfError::Setup(error.to_string()))?;
        let mut profile = ProfileSpec::default();
        let pre_enqueue = profile.plugins.point_mut(Point::PreEnqueue);
        pre_enqueue.enabled = vec![EnabledPlugin::new(QUOTA)];
        let now = Time::from_secs(1_800_000_000);
        let options = SchedulerOptions {
            profiles: vec![profile],
            features,
            seed: 1,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(options, &registry, now)
            .map_err(|error| PerfError::Setup(error.to_string()))?;
        for index in 0..NODES {
            let node = Object::Node(generate::node(index, |_| {}));
            scheduler.apply(ClusterChange::Applied(node), now);
        }
        Ok(Self {
            scheduler,
            now,
            is_waiting,
            pods: HashMap::new(),
            version: 0,
            server: SlowServer {
                latency,
                on_their_way: BinaryHeap::new(),
                calls: HashMap::new(),
                statuses: 0,
            },
            measured: MeasuredLoop {
                created: HashMap::new(),
                waits: Vec::new(),
                last_bound: now,
                patches: 0,
                events: 0,
            },
        })
    }

    fn create(&mut self, pod: Arc<Pod>, is_measured: bool) {
        if is_measured {
            self.measured.created.insert(pod.uid().clone(), self.now);
        }
        self.pods.insert(pod.uid().clone(), pod.clone());
        let change = ClusterChange::Applied(Object::Pod(pod));
        self.scheduler.apply(change, self.now);
        self.send();
    }

    /// Sends the pending calls.
    fn send(&mut self) {
        let outputs = self.scheduler.take_outputs(self.now);
        self.measured.events += outputs.events.len();
        for (id, call) in outputs.calls {
            if is_status(&call) {
                self.server.statuses += 1;
                self.measured.patches += 1;
            }
            self.server.calls.insert(id, call);
            self.server
                .on_their_way
                .push(Reverse((self.now + self.server.latency, id)));
        }
    }

    /// Answers the calls that are due by `until`, and advances the time to `until`.
    fn pass(&mut self, until: Time) {
        while let Some(Reverse((at, id))) = self.server.on_their_way.peek().copied()
            && at <= until
        {
            self.server.on_their_way.pop();
            self.now = self.now.max(at);
            if let Some(call) = self.server.calls.remove(&id) {
                self.server.statuses -= usize::from(is_status(&call));
                self.scheduler.complete(id, Ok(()), self.now);
                self.carry_out(call);
            }
            self.send();
        }
        self.now = self.now.max(until);
        self.scheduler.tick(self.now);
        self.send();
    }

    fn carry_out(&mut self, call: ApiCall) {
        let Some(stored) = call.pod().and_then(|pod| self.pods.get_mut(&pod.uid)) else {
            return;
        };
        self.version += 1;
        let mut pod = Pod::clone(stored);
        pod.metadata.resource_version = Str::from(format!("9{:09}", self.version));
        match call {
            ApiCall::BindPod { node, .. } => {
                pod.spec.node_name = node;
                self.measured.last_bound = self.now;
                if let Some(created) = self.measured.created.remove(pod.uid()) {
                    self.measured.waits.push(self.now.since(created));
                }
            }
            ApiCall::PatchPodStatus { conditions, .. } => {
                for patch in conditions {
                    pod.status.conditions.retain(|c| c.kind != patch.kind);
                    pod.status.conditions.push(PodCondition {
                        kind: patch.kind,
                        status: patch.status,
                        reason: patch.reason,
                        message: patch.message,
                        observed_generation: patch.observed_generation,
                    });
                }
            }
            _ => {}
        }
        *stored = Arc::new(pod);
        let change = ClusterChange::Applied(Object::Pod(stored.clone()));
        self.scheduler.apply(change, self.now);
    }

    /// Attempts pods until `until`, or until no pod or event is left.
    fn run(&mut self, until: Option<Time>) {
        let is_over = |now: Time| until.is_some_and(|until| now >= until);
        while !is_over(self.now) {
            let is_held = self.is_waiting && self.server.statuses > 0;
            if !is_held && self.scheduler.has_pod_to_try() {
                let outcome = self.scheduler.schedule_one(self.now);
                self.send();
                if !matches!(outcome, ScheduleOutcome::Idle { .. }) {
                    self.pass(self.now + DECISION);
                    continue;
                }
            }
            let answer = self.server.on_their_way.peek().map(|Reverse((at, _))| *at);
            let wake = self.scheduler.next_wake(self.now);
            let wake = wake.filter(|wake| *wake > self.now);
            let next = [answer, wake, until].into_iter().flatten().min();
            match next {
                Some(next) if until.is_some() || next.since(self.now) < QUIET => self.pass(next),
                _ => return,
            }
        }
    }

    /// The waits of the pods, in milliseconds: the median and the 99th percentile.
    fn waits(&self) -> (f64, f64) {
        let waits = milliseconds(&self.measured.waits);
        waits.map_or((0.0, 0.0), |b| (b.perc50, b.perc99))
    }
}

fn is_status(call: &ApiCall) -> bool {
    matches!(call, ApiCall::PatchPodStatus { .. })
}

/// Schedules equal numbers of pods that fit and pods that do not, alternating, until all pods that fit are bound.
pub(super) fn loops(kind: Loop, latency: Duration, pods: usize) -> Result<LoopFigures, PerfError> {
    let mut cluster = SlowCluster::new(latency, kind == Loop::Waits, kind.features())?;
    let began = cluster.now;
    for index in 0..pods {
        let too_large = generate::pod(2 * index, |pod| {
            let amounts = json!({"cpu": "500"});
            pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts});
        });
        cluster.create(too_large, false);
        cluster.create(generate::pod(2 * index + 1, |_| {}), true);
    }
    cluster.run(None);
    let seconds = cluster.measured.last_bound.since(began).as_secs_f64();
    Ok(LoopFigures {
        status_writes: kind.name(),
        latency_millis: latency.as_secs_f64() * 1e3,
        rejected: pods,
        bound: cluster.measured.waits.len(),
        bound_per_second: cluster.measured.waits.len() as f64 / seconds.max(f64::EPSILON),
        wait_millis_p99: cluster.waits().1,
        patches: cluster.measured.patches,
    })
}

/// Creates many pods at once that a PreEnqueue plugin rejects, and then 500 ordinary pods per second: the cost of the
/// reports for the ordinary pods.
pub(super) fn reports(
    rejected: usize,
    is_reported: bool,
    latency: Duration,
    pods: usize,
) -> Result<ReportFigures, PerfError> {
    let features = FeatureGates::default().with(Feature::SchedulerPreEnqueuePodStatus, is_reported);
    let mut cluster = SlowCluster::new(latency, false, features)?;
    for index in 0..rejected {
        let pod = generate::pod(1_000_000 + index, |pod| {
            pod["metadata"]["labels"][REJECTED] = json!("true");
        });
        cluster.create(pod, false);
    }
    // Reports are delayed by 5 s. The pods are created before, during and after their writes.
    let began = cluster.now;
    let interval = Duration::from_millis(2);
    for index in 0..pods {
        cluster.run(Some(began + interval.mul_f64(index as f64)));
        cluster.create(generate::pod(index, |_| {}), true);
    }
    cluster.run(None);
    let (wait_millis_median, wait_millis_p99) = cluster.waits();
    Ok(ReportFigures {
        rejected,
        gate: if is_reported { "on" } else { "off" },
        patches: cluster.measured.patches,
        events: cluster
            .measured
            .events
            .saturating_sub(cluster.measured.waits.len()),
        bound: cluster.measured.waits.len(),
        wait_millis_median,
        wait_millis_p99,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(20);

    /// KEP-5229: if the loop waits for each write, pods are bound at the rate of the writes. With the dispatcher they
    /// are bound at the rate of decisions, without additional writes.
    #[test]
    fn the_dispatcher_frees_the_loop_from_a_slow_server() {
        let of = |kind| loops(kind, LATENCY, 200).expect("the profile is built");
        let [former, off, on] = Loop::ALL.map(of);
        for row in [&former, &off, &on] {
            assert_eq!(row.bound, 200, "{row:?}");
            assert!(row.patches >= 200, "{row:?}");
        }
        assert!(former.bound_per_second < 50.0, "{former:?}");
        assert!(
            on.bound_per_second > 20.0 * former.bound_per_second,
            "{on:?}"
        );
        assert!(
            off.bound_per_second > 20.0 * former.bound_per_second,
            "{off:?}"
        );
        assert!(
            on.patches <= off.patches && on.patches <= former.patches,
            "{on:?}"
        );
    }

    /// KEP-5501: each rejected pod gets one patch and one event, and does not delay ordinary pods.
    #[test]
    fn reports_do_not_delay_other_pods() {
        let of =
            |rejected, gate| reports(rejected, gate, LATENCY, 1_000).expect("the profile is built");
        let alone = of(0, true);
        let beside = of(2_000, true);
        let off = of(2_000, false);
        assert_eq!((alone.patches, alone.events), (0, 0), "{alone:?}");
        assert_eq!(
            (beside.patches, beside.events),
            (2_000, 2_000),
            "{beside:?}"
        );
        assert_eq!((off.patches, off.events), (0, 0), "{off:?}");
        for row in [&beside, &off] {
            assert_eq!(row.bound, 1_000, "{row:?}");
            assert_eq!(row.wait_millis_median, alone.wait_millis_median, "{row:?}");
            assert!(
                row.wait_millis_p99 <= alone.wait_millis_p99 + 5.0,
                "{row:?}"
            );
        }
    }
}
