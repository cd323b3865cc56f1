//! The engine of what-if and of simulations: the scheduling core in virtual time, and its API server.
//!
//! The engine performs the calls of the core as an API server does. Its user decides when a call is answered: what-if
//! answers at once, a simulation after a latency. The same holds for the reactions of kubelets and controllers to a
//! call ([`Effect`]). Watches have no delay, so the stored objects are equal to the stored objects in the cache of the
//! core.
//!
//! | module | contents |
//! |---|---|
//! | `claims` | the controller of resource claims |
//! | `volumes` | the controllers of volumes and their claims |

mod claims;
mod volumes;

pub use claims::ClaimTemplates;
pub use volumes::{VOLUME_CLAIM_TEMPLATES_ANNOTATION, claim_to_bind};

use berth_api::devices::ConsumerReference;
use berth_api::pod::PodCondition;
use berth_api::{Kind, Object, Pod, ResourceClaim, Str, Time};
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind, CallId, ConditionPatch, PodRef, Response};
use berth_framework::condition::POD_SCHEDULED;
use berth_framework::write::{Action, Write};
use berth_scheduler::cache::Cache;
use berth_scheduler::{ClusterChange, ScheduleOutcome, Scheduler};
use serde::Deserialize;
use std::sync::Arc;

/// The reaction of kubelets and controllers to a call.
#[derive(Debug)]
pub enum Effect {
    /// A pod was bound, and its containers can start.
    Bound(PodRef),
    /// A pod is terminating. It exists until [`Engine::delete_pod`].
    Deleted(PodRef),
    /// An object other than a pod was written.
    Written(Object),
}

/// The change of a pod by the kubelet of its node after the binding.
pub type Acknowledgement = fn(&mut Pod, Time);

/// A scheduler in virtual time, with an API server.
pub struct Engine {
    scheduler: Scheduler,
    acknowledge: Acknowledgement,
    now: Time,
    /// The resource version of the last change: the scheduler ignores a change without a new version.
    version: u128,
    has_input: bool,
    claim_templates: ClaimTemplates,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine without objects.
    pub fn new(scheduler: Scheduler, now: Time, acknowledge: Acknowledgement) -> Self {
        Self {
            scheduler,
            acknowledge,
            now,
            version: 0,
            has_input: true,
            claim_templates: ClaimTemplates::default(),
        }
    }

    /// The scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The present virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the virtual time if it is later than the current time.
    pub fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    // --- stored objects --------------------------------------------------------------------------------------

    fn cache(&self) -> &Cache {
        self.scheduler.cache()
    }

    /// The stored pod with this UID.
    pub fn pod(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.cache().stored(uid)
    }

    /// The stored object of a kind other than pods and nodes.
    pub fn object(&self, kind: Kind, namespace: &Str, name: &Str) -> Option<&Object> {
        self.cache().object(kind, namespace, name)
    }

    /// Stores objects of an existing cluster, with their versions. New versions are greater.
    pub fn load(&mut self, objects: impl IntoIterator<Item = Object>) {
        for object in objects {
            let version = object.metadata().resource_version.parse();
            self.version = self.version.max(version.unwrap_or(0));
            self.apply(ClusterChange::Applied(object));
        }
    }

    /// Stores an object in a new version.
    pub fn set(&mut self, mut object: Object) {
        self.version = self.version.saturating_add(1);
        set_version(&mut object, self.version.to_string().into());
        self.apply(ClusterChange::Applied(object));
    }

    /// Changes a stored pod.
    pub fn change_pod(&mut self, uid: &str, change: impl FnOnce(&mut Pod)) {
        if let Some(pod) = self.pod(uid) {
            let mut pod = Pod::clone(pod);
            change(&mut pod);
            self.set(Object::Pod(Arc::new(pod)));
        }
    }

    /// Deletes a pod. The devices of its claims that no other pod uses are released, as by the claim controller. Its
    /// claims continue to exist; see [`Self::end_pod`].
    pub fn delete_pod(&mut self, uid: &str) {
        let Some(pod) = self.pod(uid).cloned() else {
            return;
        };
        self.release_claims(&pod);
        self.apply(ClusterChange::Deleted(Object::Pod(pod)));
    }

    /// Deletes a node.
    pub fn delete_node(&mut self, name: &str) {
        if let Some(node) = self.cache().node(name).cloned() {
            self.apply(ClusterChange::Deleted(Object::Node(node)));
        }
    }

    /// Deletes an object of a kind other than pods and nodes.
    pub fn delete(&mut self, kind: Kind, namespace: &Str, name: &Str) {
        if let Some(object) = self.object(kind, namespace, name).cloned() {
            self.apply(ClusterChange::Deleted(object));
        }
    }

    fn apply(&mut self, change: ClusterChange) {
        self.has_input = true;
        self.scheduler.apply(change, self.now);
    }

    // --- the scheduler ---------------------------------------------------------------------------------------

    /// Returns whether the scheduler received an input after its last attempt.
    pub fn has_input(&self) -> bool {
        self.has_input
    }

    /// Lets the scheduler try a pod. Its calls are passed to `on_call`, which answers them at once or later
    /// ([`Self::answer`]). Jobs are calls to extenders, which are not supported.
    pub fn attempt(
        &mut self,
        mut on_call: impl FnMut(&mut Self, CallId, ApiCall),
    ) -> ScheduleOutcome {
        self.has_input = false;
        let outcome = self.scheduler.schedule_one(self.now);
        loop {
            let outputs = self.scheduler.take_outputs(self.now);
            if outputs.calls.is_empty() && outputs.jobs.is_empty() {
                return outcome;
            }
            for (id, _) in outputs.jobs {
                let refused = Err("extenders are not called".into());
                self.scheduler.job_done(id, refused, self.now);
            }
            for (id, call) in outputs.calls {
                on_call(self, id, call);
            }
        }
    }

    /// Performs a call and answers it.
    pub fn answer(&mut self, id: CallId, call: ApiCall) -> Option<Effect> {
        self.has_input = true;
        if let Some(error) = self.refusal(&call) {
            self.scheduler.complete(id, Err::<(), _>(error), self.now);
            return None;
        }
        let version = self.version.saturating_add(1).to_string();
        let written = Response::written(version.as_str());
        self.scheduler.complete(id, Ok(written), self.now);
        self.carry_out(call)
    }

    /// The reason why the API server refuses a call.
    fn refusal(&self, call: &ApiCall) -> Option<CallError> {
        let pod = call.pod()?;
        let error = |kind, text: &str| Some(CallError::new(kind, format!("pods {pod}: {text}")));
        let Some(stored) = self.pod(&pod.uid) else {
            return error(CallErrorKind::NotFound, "not found");
        };
        match call {
            ApiCall::BindPod { .. } if stored.is_assigned() => {
                error(CallErrorKind::Conflict, "the pod is assigned to a node")
            }
            ApiCall::BindPod { .. } if !stored.spec.scheduling_gates.is_empty() => {
                error(CallErrorKind::Conflict, "the pod has scheduling gates")
            }
            ApiCall::ClearPreEnqueueStatus {
                resource_version: Some(version),
                ..
            } if stored.metadata.resource_version != *version => {
                error(CallErrorKind::Conflict, "the pod was changed")
            }
            _ => None,
        }
    }

    fn carry_out(&mut self, call: ApiCall) -> Option<Effect> {
        match call {
            ApiCall::BindPod { pod, node } => {
                let (acknowledge, now) = (self.acknowledge, self.now);
                self.change_pod(&pod.uid, |pod| {
                    bind(pod, &node);
                    acknowledge(pod, now);
                });
                Some(Effect::Bound(pod))
            }
            ApiCall::PatchPodStatus {
                pod,
                conditions,
                nominated_node,
            } => {
                self.patch_status(&pod, conditions, nominated_node, false);
                None
            }
            ApiCall::ClearPreEnqueueStatus {
                pod,
                conditions,
                nominated_node,
                ..
            } => {
                self.patch_status(&pod, conditions, nominated_node, true);
                None
            }
            ApiCall::DeletePod { pod, .. } => Some(Effect::Deleted(pod)),
            ApiCall::Write(write) => self.write(&write),
        }
    }

    fn patch_status(
        &mut self,
        pod: &PodRef,
        conditions: Vec<ConditionPatch>,
        nominated_node: Option<Str>,
        clears: bool,
    ) {
        let now = self.now;
        self.change_pod(&pod.uid, |pod| {
            if let Some(node) = nominated_node {
                pod.status.nominated_node_name = node;
            }
            if clears {
                let conditions = &mut pod.status.conditions;
                conditions.retain(|condition| condition.kind != POD_SCHEDULED);
                pod.status.unscheduled_since = None;
            }
            for new in conditions {
                if new.kind == POD_SCHEDULED && new.status_changes {
                    pod.status.unscheduled_since = (new.status == "False").then_some(now);
                }
                set_condition(pod, new);
            }
        });
    }

    /// Applies a write to its object: an allocated claim, a volume, a pod that a plugin writes.
    fn write(&mut self, write: &Write) -> Option<Effect> {
        let object = write.object();
        let is_deletion = matches!(write.action(), Action::Delete);
        if object.kind == Kind::Pod {
            let pod = self
                .cache()
                .stored_by_name(&object.namespace, &object.name)?;
            if is_deletion {
                return Some(Effect::Deleted(PodRef::of(pod)));
            }
            self.set(write.applied_to(&Object::Pod(pod.clone())));
            return None;
        }
        if is_deletion {
            self.delete(object.kind, &object.namespace, &object.name);
            return None;
        }
        let stored = self.object(object.kind, &object.namespace, &object.name);
        let written = written(write, stored.or(write.created())?);
        self.set(written.clone());
        Some(Effect::Written(written))
    }
}

/// Binds a pod to a node, as the API server does.
pub fn bind(pod: &mut Pod, node: &Str) {
    pod.spec.node_name = node.clone();
    pod.status.nominated_node_name = Str::default();
    pod.status.unscheduled_since = None;
    let bound = ConditionPatch::of(pod, POD_SCHEDULED, "True", "", "");
    set_condition(pod, bound);
}

fn set_condition(pod: &mut Pod, new: ConditionPatch) {
    let conditions = &mut pod.status.conditions;
    conditions.retain(|known| known.kind != new.kind);
    conditions.push(PodCondition {
        kind: new.kind,
        status: new.status,
        reason: new.reason,
        message: new.message,
        observed_generation: new.observed_generation,
    });
}

/// Sets the resource version of an object of a kind whose versions the scheduler compares.
fn set_version(object: &mut Object, version: Str) {
    let metadata = match object {
        Object::Pod(pod) => &mut Arc::make_mut(pod).metadata,
        Object::Node(node) => &mut Arc::make_mut(node).metadata,
        Object::PodDisruptionBudget(budget) => &mut Arc::make_mut(budget).metadata,
        Object::ResourceClaim(claim) => &mut Arc::make_mut(claim).metadata,
        Object::PersistentVolume(volume) => &mut Arc::make_mut(volume).metadata,
        Object::PersistentVolumeClaim(claim) => &mut Arc::make_mut(claim).metadata,
        Object::PodGroup(group) => &mut Arc::make_mut(group).metadata,
        Object::Custom(custom) => &mut Arc::make_mut(custom).metadata,
        _ => return,
    };
    metadata.resource_version = version;
}

/// The object after a write. In a claim, the marks of assumed devices are removed, and the users are changed as in the
/// patch of a reservation.
fn written(write: &Write, object: &Object) -> Object {
    let Object::ResourceClaim(claim) = write.applied_to(object) else {
        return write.applied_to(object);
    };
    let mut claim = ResourceClaim::clone(&claim);
    let status = &mut claim.status;
    status.is_assumed = false;
    status.assumed_for.clear();
    if let Action::StrategicPatch(body) = write.action() {
        let users = body["status"]["reservedFor"].as_array();
        for user in users.into_iter().flatten() {
            status
                .reserved_for
                .retain(|known| user["uid"] != *known.uid);
            if user["$patch"] != "delete" {
                let user = ConsumerReference::deserialize(user);
                status.reserved_for.extend(user.ok());
            }
        }
    }
    Object::ResourceClaim(Arc::new(claim))
}
