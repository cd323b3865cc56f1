//! The thread of the core: it applies inputs, runs the scheduler, and forwards outputs.

use super::handover::{EdgeWork, Inputs};
use super::reconfigure::TakeOver;
use super::{CoreInput, feed};
use crate::edge::Pauses;
use crate::logs;
use crate::shadow::Shadow;
use crate::tasks;
use crate::traces::TraceSender;
use berth_api::{Kind, Release, Str, Time, groups};
use berth_client::clock;
use berth_client::events::{Event, EventPublisher, Regarding};
use berth_framework::call::{ApiCall, CallId, EventKind, PodRef, RelatedObject};
use berth_framework::cluster::GroupKey;
use berth_framework::job::{Job, JobId};
use berth_scheduler::{ClusterChange, NotReconfigured, Outputs, Scheduler};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// The number of inputs that are taken in before the next pod has its turn.
const INPUTS_PER_POD: usize = 256;
/// Without work, the core examines its state at least this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// While the core has more to do, it forwards the outputs of several decisions together, at this interval.
const HAND_ON_EVERY: Duration = Duration::from_millis(1);

/// The destinations of the outputs of the core.
pub(super) struct Edge {
    pub(super) publisher: EventPublisher,
    /// The number of calls in flight is limited by the dispatcher.
    pub(super) work: mpsc::UnboundedSender<EdgeWork>,
    /// The pauses of the thread that performs the work, if it has any.
    pub(super) pauses: Option<Arc<Pauses>>,
    pub(super) ready: Arc<AtomicBool>,
    /// The destination of traces of attempts, if they are on.
    pub(super) traces: Option<TraceSender>,
}

/// The type of an event in the API.
fn type_of(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Normal => "Normal",
        EventKind::Warning => "Warning",
    }
}

fn reference_to_pod(pod: PodRef) -> Regarding {
    Regarding {
        api_version: "v1".into(),
        kind: "Pod",
        namespace: pod.namespace,
        name: pod.name,
        uid: pod.uid,
    }
}

/// A group in the version of the API of a release: 1.36 serves PodGroups of v1alpha2 alone.
fn reference_to_group(group: GroupKey, uid: Str, release: Release) -> Regarding {
    let kind = group.kind.kind();
    let api_version = match release {
        Release::V1_36 => format!("{}/{}", groups::API_GROUP, groups::V1ALPHA2).into(),
        Release::V1_37 | Release::V1_38 => kind.api_version(),
    };
    Regarding {
        api_version,
        kind: kind.name(),
        namespace: group.namespace,
        name: group.name,
        uid,
    }
}

/// Runs the core until it is stopped.
pub(super) fn run(scheduler: Scheduler, inputs: Inputs, edge: Edge, shadow: Option<Shadow>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    match runtime {
        Ok(runtime) => {
            let core = Core {
                missing: feed::kinds(&scheduler),
                scheduler,
                inputs,
                edge,
                is_leading: false,
                next: None,
                shadow,
            };
            tasks::block_on(&runtime, core.run());
        }
        Err(error) => tracing::error!(%error, "failed to start the scheduler's timers"),
    }
}

struct Core {
    scheduler: Scheduler,
    inputs: Inputs,
    edge: Edge,
    /// The kinds that have not been listed yet. No pod is scheduled before all are: a decision without all pods would
    /// overcommit.
    missing: BTreeSet<Kind>,
    /// A standby only applies changes, so that it can schedule at once.
    is_leading: bool,
    /// The configuration to apply as soon as no cycle is parked.
    next: Option<Box<TakeOver>>,
    /// Set in shadow mode: such a scheduler never leads.
    shadow: Option<Shadow>,
}

/// Whether to continue.
#[derive(PartialEq, Eq)]
enum NextTurn {
    GoOn,
    Stop,
}

impl Core {
    async fn run(mut self) {
        let mut handed_on = clock::now();
        loop {
            self.scheduler.set_log_verbosity(logs::highest_verbosity());
            if self.take_waiting() == NextTurn::Stop {
                return;
            }
            self.take_over();
            if !self.is_leading {
                if self.stand_by().await == NextTurn::Stop {
                    return;
                }
                continue;
            }
            let now = clock::now();
            let idle = if self.has_pod_to_try() {
                !self.scheduler.schedule_one(now).is_attempt()
            } else {
                self.scheduler.tick(now);
                // The backoff of a pod may be over.
                !self.has_pod_to_try()
            };
            if idle || now.since(handed_on) >= HAND_ON_EVERY {
                self.hand_on(now);
                handed_on = now;
            }
            if idle && self.sleep().await == NextTurn::Stop {
                return;
            }
        }
    }

    fn has_pod_to_try(&self) -> bool {
        self.missing.is_empty() && self.scheduler.has_pod_to_try()
    }

    /// Takes over the next configuration, if there is one and no cycle is parked.
    fn take_over(&mut self) {
        let Some(next) = self.next.take() else {
            return;
        };
        let now = clock::now();
        let TakeOver { new, registry, .. } = &*next;
        match self.scheduler.reconfigure(new, registry, now) {
            Err(NotReconfigured::Busy) => self.next = Some(next),
            // The requester may have stopped waiting.
            result => drop(next.answer.send(result)),
        }
    }

    /// Waits for the next input.
    async fn stand_by(&mut self) -> NextTurn {
        let look = self.shadow.as_ref().and_then(Shadow::next_look);
        let longest = look.map_or(LONGEST_SLEEP, |look| look.since(clock::now()));
        let next = match tokio::time::timeout(longest, self.inputs.next()).await {
            Ok(Some(input)) => self.take(input),
            Ok(None) => NextTurn::Stop,
            Err(_) => NextTurn::GoOn,
        };
        if let Some(shadow) = &mut self.shadow {
            shadow.look_again(&mut self.scheduler, clock::now());
        }
        next
    }

    /// Becomes the leader.
    fn lead(&mut self, now: Time) {
        if std::mem::replace(&mut self.is_leading, true) {
            return;
        }
        // Notes about pods from the time between leaders were for the leader of that time to publish.
        let Outputs { calls, jobs, .. } = self.scheduler.take_outputs(now);
        self.carry_out(calls, jobs);
    }

    /// Applies waiting inputs, up to a limit.
    fn take_waiting(&mut self) -> NextTurn {
        for _ in 0..INPUTS_PER_POD {
            match self.inputs.waiting() {
                Ok(Some(input)) => {
                    if self.take(input) == NextTurn::Stop {
                        return NextTurn::Stop;
                    }
                }
                Ok(None) => break,
                Err(_) => return NextTurn::Stop,
            }
        }
        NextTurn::GoOn
    }

    /// Waits for an input, or for the next time at which there is work.
    async fn sleep(&mut self) -> NextTurn {
        let now = clock::now();
        let longest = match self.scheduler.next_wake(now) {
            Some(wake) => wake.since(now).min(LONGEST_SLEEP),
            None => LONGEST_SLEEP,
        };
        match tokio::time::timeout(longest, self.inputs.next()).await {
            Ok(Some(input)) => self.take(input),
            Ok(None) => NextTurn::Stop,
            Err(_) => NextTurn::GoOn,
        }
    }

    fn take(&mut self, input: CoreInput) -> NextTurn {
        let now = clock::now();
        match input {
            CoreInput::Change(change) => {
                // The scheduler is ready when each kind was listed once.
                if let ClusterChange::Replaced(kind, _) = &change
                    && self.missing.remove(kind)
                    && self.missing.is_empty()
                {
                    self.edge.ready.store(true, Ordering::Relaxed);
                }
                // The comparison needs the state before the change.
                if let Some(shadow) = &mut self.shadow
                    && self.missing.is_empty()
                {
                    shadow.before(&mut self.scheduler, &change, now);
                }
                self.scheduler.apply(change, now);
            }
            CoreInput::Call(id, answer) => self.scheduler.complete(id, answer, now),
            CoreInput::Job(id, result) => self.scheduler.job_done(id, result, now),
            CoreInput::Lead => self.lead(now),
            CoreInput::ResetMetrics => self.scheduler.reset_metrics(),
            CoreInput::TakeOver(next) => self.next = Some(next),
            CoreInput::Look(look) => look(&self.scheduler, now),
            CoreInput::Stop => {
                self.scheduler.close(now);
                if let Some(shadow) = self.shadow.take() {
                    shadow.end();
                }
                return NextTurn::Stop;
            }
        }
        NextTurn::GoOn
    }

    fn carry_out(&self, calls: Vec<(CallId, ApiCall)>, jobs: Vec<(JobId, Job)>) {
        if calls.is_empty() && jobs.is_empty() {
            return;
        }
        let calls = calls.into_iter().map(|(id, call)| EdgeWork::Call(id, call));
        let jobs = jobs.into_iter().map(|(id, job)| EdgeWork::Job(id, job));
        for work in calls.chain(jobs) {
            // The edge ends after the core.
            let _ = self.edge.work.send(work);
        }
        if let Some(pauses) = &self.edge.pauses {
            pauses.end();
        }
    }

    fn hand_on(&mut self, now: Time) {
        let Outputs {
            calls,
            jobs,
            events,
            group_events,
            log,
            traces,
            dropped,
        } = self.scheduler.take_outputs(now);
        let release = self.scheduler.features().release();
        for event in events {
            let related = event.event.related.map(|related| match related {
                RelatedObject::Pod(pod) => reference_to_pod(pod),
                RelatedObject::Group { group, uid } => reference_to_group(group, uid, release),
                RelatedObject::Custom {
                    resource,
                    kind,
                    namespace,
                    name,
                    uid,
                } => Regarding {
                    api_version: format!("{}/{}", resource.group, resource.version).into(),
                    kind,
                    namespace,
                    name,
                    uid,
                },
            });
            let notified = Event {
                regarding: reference_to_pod(event.event.regarding),
                related,
                kind: type_of(event.event.kind),
                reason: event.event.reason.into(),
                action: event.event.action.into(),
                note: event.event.note,
                reporting_controller: event.reporting_controller,
            };
            self.edge.publisher.publish(notified, now);
        }
        for event in group_events {
            let published = Event {
                regarding: reference_to_group(event.group, event.uid, release),
                related: None,
                kind: type_of(event.kind),
                reason: event.reason.into(),
                action: event.action.into(),
                note: event.note,
                reporting_controller: event.reporting_controller,
            };
            self.edge.publisher.publish(published, now);
        }
        self.carry_out(calls, jobs);
        if let Some(sender) = &self.edge.traces {
            traces.into_iter().for_each(|trace| sender.send(trace));
        }
        log.into_iter().for_each(logs::write);
        // A line in the log is the only trace of dropped events.
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "events and log lines were dropped: too many at once"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::cluster::GroupKind;

    /// GRP-14: events name a group in the version that API servers of the release serve.
    #[test]
    fn events_name_groups_in_the_version_of_the_release() {
        let versions = Release::ALL.map(|release| {
            let group = GroupKey {
                kind: GroupKind::PodGroup,
                namespace: "ns".into(),
                name: "g".into(),
            };
            let reference = reference_to_group(group, "u".into(), release);
            assert_eq!((reference.kind, &*reference.name), ("PodGroup", "g"));
            reference.api_version.to_string()
        });
        let expected = ["v1alpha2", "v1beta1", "v1beta1"];
        assert_eq!(
            versions,
            expected.map(|version| format!("scheduling.k8s.io/{version}"))
        );
    }
}
