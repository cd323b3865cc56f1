//! The API server's part: carries out the scheduler's calls on the world.

use crate::script::Answer;
use crate::world::{Refusal, World};
use berth_api::Time;
use berth_framework::call::{ApiCall, CallError, CallErrorKind, CallResult, PodRef};

/// Carries out calls. Tests put a faulty one in its place.
pub trait Api: Send + Sync {
    /// Carries out a call on the world.
    ///
    /// # Errors
    /// What the API server says against it.
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal>;
}

/// An API that does what it says.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaithfulApi;

impl Api for FaithfulApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        // The world has no volumes that could be written.
        let Some(PodRef { name, uid, .. }) = call.pod() else {
            return Err(Refusal::NotFound);
        };
        match call {
            ApiCall::BindPod { node, .. } => world.bind(name, uid, node),
            ApiCall::PatchPodStatus {
                condition,
                nominated_node,
                ..
            } => {
                let condition = condition.as_ref().map(|c| {
                    let (kind, status) = (c.kind.as_str(), c.status.as_str());
                    (kind, status, c.reason.as_str(), c.message.as_str())
                });
                world.patch_status(name, uid, condition, nominated_node.as_deref())
            }
            ApiCall::ClearPreEnqueueStatus { nominated_node, .. } => {
                world.clear_condition(name, uid, "PodScheduled", "NotReadyForScheduling")?;
                world.patch_status(name, uid, None, nominated_node.as_deref())
            }
            ApiCall::DeletePod { condition: c, .. } => {
                let (kind, status) = (c.kind.as_str(), c.status.as_str());
                let condition = (kind, status, c.reason.as_str(), c.message.as_str());
                match world.patch_status(name, uid, Some(condition), None) {
                    // Gone already: so much the better.
                    Err(Refusal::NotFound) => return Ok(()),
                    answer => answer?,
                }
                world.terminate_pod(name, now);
                Ok(())
            }
            ApiCall::UpdateStorage(_) => Err(Refusal::NotFound),
        }
    }
}

/// Answers a call.
pub(crate) fn answer(
    api: &dyn Api,
    world: &mut World,
    call: &ApiCall,
    answer: Answer,
    now: Time,
) -> CallResult {
    let failure = |kind, message: &str| {
        Err(CallError::new(kind, message))
    };
    match answer {
        Answer::Honest => match api.carry_out(world, call, now) {
            Ok(()) => Ok(()),
            Err(Refusal::NotFound) => failure(CallErrorKind::NotFound, "the pod is not found"),
            Err(Refusal::Conflict) => {
                failure(CallErrorKind::Conflict, "the pod is in another state")
            }
        },
        Answer::Conflict => failure(CallErrorKind::Conflict, "the object has been modified"),
        Answer::TooManyRequests => failure(CallErrorKind::Unavailable, "too many requests"),
        Answer::ServerError => failure(CallErrorKind::Unavailable, "internal error"),
        Answer::TimeoutBefore => failure(CallErrorKind::Timeout, "timed out"),
        Answer::TimeoutAfter => {
            // Whoever called does not learn what has come of it.
            let _ = api.carry_out(world, call, now);
            failure(CallErrorKind::Timeout, "timed out")
        }
    }
}
