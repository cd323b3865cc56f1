//! The API server's part: executes the scheduler's calls on the world.

use crate::script::CallAnswer;
use crate::shapes::DEFERRED_QUOTA;
use crate::world::{Devices, Refusal, World};
use berth_api::{Kind, Object, Time};
use berth_framework::Write;
use berth_framework::call::{
    ApiCall, CallError, CallErrorKind, CallResult, ConditionPatch, PodRef, Response,
};
use berth_framework::write::Action;
use berth_scheduler::ClusterChange;

/// Executes calls. Tests replace it with a faulty implementation.
pub trait Api: Send + Sync {
    /// Executes a call on the world.
    ///
    /// # Errors
    /// The reason for the refusal by the API server.
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal>;

    /// The changes that a scheduler receives for a change that its watch delivers; by default the change itself. The
    /// checker always receives the real change.
    fn notify(&self, change: ClusterChange) -> Vec<ClusterChange> {
        vec![change]
    }
}

/// A patch of conditions and the nominated node, as one write.
fn patch_status(
    world: &mut World,
    pod: &PodRef,
    conditions: &[ConditionPatch],
    nominated_node: Option<&str>,
) -> Result<(), Refusal> {
    let conditions = conditions.iter().map(|c| {
        let (kind, status) = (c.kind.as_str(), c.status.as_str());
        (kind, status, c.reason.as_str(), c.message.as_str())
    });
    let conditions: Vec<_> = conditions.collect();
    world.patch_status(&pod.name, &pod.uid, &conditions, nominated_node)
}

/// An API that is honest.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaithfulApi;

impl Api for FaithfulApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        match call {
            ApiCall::BindPod { pod, node } => world.bind(&pod.name, &pod.uid, node),
            ApiCall::PatchPodStatus {
                pod,
                conditions,
                nominated_node,
            } => patch_status(world, pod, conditions, nominated_node.as_deref()),
            ApiCall::ClearPreEnqueueStatus {
                pod,
                resource_version,
                conditions,
                nominated_node,
            } => {
                let PodRef { name, uid, .. } = pod;
                world.remove_condition(name, uid, "PodScheduled", resource_version.as_deref())?;
                patch_status(world, pod, conditions, nominated_node.as_deref())
            }
            ApiCall::DeletePod { pod, .. } => {
                match patch_status(world, pod, call.conditions(), None) {
                    // The pod is deleted already.
                    Err(Refusal::NotFound) => return Ok(()),
                    answer => answer?,
                }
                world.terminate_pod(&pod.name, now);
                Ok(())
            }
            ApiCall::Write(write) => match write.object().kind {
                Kind::ResourceClaim => write_claim(world, write, now),
                Kind::Pod => publish_claim(world, write),
                Kind::PodGroup => world.write_group(write),
                Kind::Custom(DEFERRED_QUOTA) => world.write_quota(write),
                _ => update_storage(world, write),
            },
        }
    }
}

fn write_claim(world: &mut World, write: &Write, now: Time) -> Result<(), Refusal> {
    let mut claims = Devices::of(world);
    let (namespace, name) = (&write.object().namespace, &write.object().name);
    let version = write.resource_version().map(|version| version.as_str());
    let (body, is_strategic) = match write.action() {
        Action::Create(body) => return claims.create_claim_object(body),
        Action::Delete => return claims.delete_claim_object(namespace, name, write.uid(), now),
        Action::Patch(body) => (body, false),
        Action::StrategicPatch(body) => (body, true),
        Action::Update(_) => return Err(Refusal::Conflict),
    };
    claims.patch_claim(namespace, name, write.uid(), version, body, is_strategic)
}

fn publish_claim(world: &mut World, write: &Write) -> Result<(), Refusal> {
    match write.action() {
        Action::Patch(body) => Devices::of(world).publish_claim(&write.object().name, body),
        _ => Err(Refusal::Conflict),
    }
}

fn update_storage(world: &mut World, write: &Write) -> Result<(), Refusal> {
    let name = write.object();
    let stored = match name.kind {
        Kind::PersistentVolume => {
            let volume = world.others().volume(&name.name);
            volume.cloned().map(Object::PersistentVolume)
        }
        _ => {
            let claim = world.others().claim(&name.namespace, &name.name);
            claim.cloned().map(Object::PersistentVolumeClaim)
        }
    };
    let stored = stored.ok_or(Refusal::NotFound)?;
    if stored.metadata().uid != *write.uid() {
        return Err(Refusal::Conflict);
    }
    let version = write
        .resource_version()
        .unwrap_or(&stored.metadata().resource_version);
    world.update_storage(write.applied_to(&stored), version)
}

/// The result for the caller, given the outcome of the call if it was executed.
pub(crate) fn answer_of(answer: CallAnswer, outcome: Option<Result<(), Refusal>>) -> CallResult {
    let failure = |kind, message: &str| Err(CallError::new(kind, message));
    match answer {
        CallAnswer::Honest => match outcome {
            Some(Ok(())) => Ok(Response::default()),
            Some(Err(Refusal::Conflict)) => failure(
                CallErrorKind::Conflict,
                "the object is in another state or has another version",
            ),
            Some(Err(Refusal::NotFound)) | None => {
                failure(CallErrorKind::NotFound, "the object is not found")
            }
        },
        CallAnswer::Conflict => failure(CallErrorKind::Conflict, "the object has been modified"),
        CallAnswer::TooManyRequests => failure(CallErrorKind::Unavailable, "too many requests"),
        CallAnswer::ServerError => failure(CallErrorKind::Unavailable, "internal error"),
        CallAnswer::TimeoutBefore | CallAnswer::TimeoutAfter => {
            failure(CallErrorKind::Timeout, "timed out")
        }
    }
}

/// The result with the version that the call has created, which servers return for pods that are patched or deleted.
pub(crate) fn full_answer_of(world: &World, call: &ApiCall, result: CallResult) -> CallResult {
    if let ApiCall::Write(write) = call
        && write.object().kind == Kind::ResourceClaim
        && result.is_ok()
    {
        let name = write.object();
        let stored = world.others().device_claim(&name.namespace, &name.name);
        let version = stored.map(|claim| claim.metadata.resource_version.clone());
        return Ok(version.map_or_else(Response::default, Response::written));
    }
    let pod = match call {
        ApiCall::Write(_) => None,
        call => call.pod(),
    };
    let stored = pod.and_then(|pod| world.pods().get(&pod.name).filter(|p| *p.uid() == pod.uid));
    match (result, stored) {
        (Ok(_), Some(stored)) => Ok(Response::written(stored.metadata.resource_version.clone())),
        (result, _) => result,
    }
}

/// Returns whether a call with this answer is executed.
pub(crate) fn is_carried_out(answer: CallAnswer) -> bool {
    matches!(answer, CallAnswer::Honest | CallAnswer::TimeoutAfter)
}
