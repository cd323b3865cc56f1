//! The API as the scheduler meets it: calls are carried out and answered after a latency, objects have versions.

use super::Simulation;
use super::events::{CallAnswer, Event, PodIndex};
use super::pods::{Phase, set_condition};
use berth_api::{Kind, Object, Str};
use berth_explain::stored::{set_version, written};
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind, ConditionPatch, PodRef, Response};
use berth_framework::write::{Action, Write};
use std::sync::Arc;

impl Simulation {
    /// Takes the calls of the scheduler. Jobs are those of extenders, which are not called.
    pub(super) fn take_outputs(&mut self) {
        loop {
            let outputs = self.scheduler.take_outputs(self.now);
            for (id, call) in outputs.calls {
                let latency = self.plan.world.api_latency.draw(&mut self.rng);
                let answer = Event::Answer(Box::new(CallAnswer { id, call }));
                self.events.push(self.now + latency, answer);
            }
            if outputs.jobs.is_empty() {
                return;
            }
            for (id, _) in outputs.jobs {
                let refused = Err("extenders are not called in a simulation".into());
                self.scheduler.job_done(id, refused, self.now);
            }
        }
    }

    /// Carries out a call and answers it.
    pub(super) fn answer(&mut self, answer: CallAnswer) {
        let CallAnswer { id, call } = answer;
        self.has_input = true;
        match self.refusal(&call) {
            Some(error) => self.scheduler.complete(id, Err::<(), _>(error), self.now),
            None => {
                let version = (self.version + 1).to_string();
                let written = Response::written(version.as_str());
                self.scheduler.complete(id, Ok(written), self.now);
                self.carry_out(call);
            }
        }
    }

    /// The reason why the API server refuses a call.
    fn refusal(&self, call: &ApiCall) -> Option<CallError> {
        let pod = call.pod()?;
        let error = |kind, text: &str| Some(CallError::new(kind, format!("pods {pod}: {text}")));
        if self.daemons.has(&pod.uid) {
            return None;
        }
        let Some((_, object)) = self.pods.existing(&pod.uid) else {
            return error(CallErrorKind::NotFound, "not found");
        };
        let is_stale = |version: &Str| object.metadata.resource_version != *version;
        match call {
            ApiCall::BindPod { .. } if object.is_assigned() => {
                error(CallErrorKind::Conflict, "the pod is assigned to a node")
            }
            ApiCall::BindPod { .. } if !object.spec.scheduling_gates.is_empty() => {
                error(CallErrorKind::Conflict, "the pod has scheduling gates")
            }
            ApiCall::ClearPreEnqueueStatus {
                resource_version: Some(version),
                ..
            } if is_stale(version) => error(CallErrorKind::Conflict, "the pod was changed"),
            _ => None,
        }
    }

    fn carry_out(&mut self, call: ApiCall) {
        let index = |pod: &PodRef| self.pods.index_of(&pod.uid);
        match call {
            ApiCall::BindPod { pod, node } => {
                if let Some(index) = index(&pod) {
                    self.pod_bound(index, &node);
                }
            }
            ApiCall::PatchPodStatus {
                pod,
                conditions,
                nominated_node,
            } => {
                if let Some(index) = index(&pod) {
                    self.patch_status(index, &conditions, nominated_node, false);
                }
            }
            ApiCall::ClearPreEnqueueStatus {
                pod,
                conditions,
                nominated_node,
                ..
            } => {
                if let Some(index) = index(&pod) {
                    self.patch_status(index, &conditions, nominated_node, true);
                }
            }
            ApiCall::DeletePod { pod, .. } if self.daemons.has(&pod.uid) => {
                self.end_daemon(&pod.uid);
            }
            ApiCall::DeletePod { pod, .. } => {
                if let Some(index) = index(&pod)
                    && self.pods.get(index).phase != Phase::Finished
                {
                    self.delete_with_grace(index, true);
                }
            }
            ApiCall::Write(write) => self.write(&write),
        }
    }

    fn patch_status(
        &mut self,
        index: PodIndex,
        conditions: &[ConditionPatch],
        nominated_node: Option<Str>,
        clears: bool,
    ) {
        let now = self.now;
        self.change_pod(index, |pod| {
            if let Some(node) = nominated_node {
                pod.status.nominated_node_name = node;
            }
            if clears {
                let conditions = &mut pod.status.conditions;
                conditions.retain(|condition| condition.kind != "PodScheduled");
                pod.status.unscheduled_since = None;
            }
            for new in conditions {
                if new.kind == "PodScheduled" && new.status_changes {
                    pod.status.unscheduled_since = (new.status == "False").then_some(now);
                }
                set_condition(pod, &new.kind, &new.status, &new.reason, &new.message);
                if let Some(last) = pod.status.conditions.last_mut() {
                    last.observed_generation = new.observed_generation;
                }
            }
        });
    }

    /// Another object looks as the write states.
    fn write(&mut self, write: &Write) {
        let object = write.object();
        if object.kind == Kind::Pod {
            return self.write_pod(write);
        }
        let key = (object.kind, object.namespace.clone(), object.name.clone());
        if matches!(write.action(), Action::Delete) {
            if let Some(object) = self.objects.remove(&key) {
                self.apply_deleted(object);
            }
            return;
        }
        let stored = self.objects.get(&key).or(write.created());
        if let Some(written) = stored.map(|stored| written(write, stored)) {
            self.set(written.clone());
            self.plan_binding(&written);
        }
    }

    /// A pod looks as the write of a plugin states: one that writes a label, for instance.
    fn write_pod(&mut self, write: &Write) {
        let Some(index) = self.pods.index_of(write.uid()) else {
            return;
        };
        self.change_pod(index, |pod| {
            let written = write.applied_to(&Object::Pod(Arc::new(pod.clone())));
            if let Object::Pod(written) = written {
                *pod = Arc::unwrap_or_clone(written);
            }
        });
    }

    /// Stores an object other than a pod or node, and notifies the scheduler.
    pub(super) fn set(&mut self, mut object: Object) {
        set_version(&mut object, self.next_version());
        let metadata = object.metadata();
        let key = (
            object.kind(),
            metadata.namespace.clone(),
            metadata.name.clone(),
        );
        self.objects.insert(key, object.clone());
        self.apply(object);
    }

    /// Deletes an object other than a pod or node.
    pub(super) fn delete(&mut self, object: Object) {
        let metadata = object.metadata();
        let key = (
            object.kind(),
            metadata.namespace.clone(),
            metadata.name.clone(),
        );
        let stored = self.objects.remove(&key).unwrap_or(object);
        self.apply_deleted(stored);
    }
}
