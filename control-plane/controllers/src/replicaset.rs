//! The controller of ReplicaSets and of ReplicationControllers, which differ in their selectors only: keeps as many
//! pods of a template as asked for.

mod back_off;
mod ranking;
mod status;

use self::ranking::pods_to_delete;
use self::status::{Failed, summarize};
use super::ownership::{Ownership, owned};
use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch};
use super::workload::{create_pod, delete_pod, pod_from_template};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, ControllerKind, REPLICA_SET, controller_uid, count, is_deleting,
};
use berth_objects::pod;

/// The number of pods that one reconcile makes or deletes at most.
const BURST: usize = 500;
/// See the module.
#[derive(Debug)]
pub(super) struct ReplicaSets {
    kind: ControllerKind,
    ownership: Ownership,
}

impl ReplicaSets {
    /// The controller of one of both kinds.
    pub(super) fn new(kind: ControllerKind) -> Self {
        Self {
            kind,
            ownership: Ownership::new(kind),
        }
    }
}

impl Controller for ReplicaSets {
    type Key = ControllerKey;

    const NAME: &'static str = "replicaset-controller";

    fn name(&self) -> &'static str {
        if self.kind == REPLICA_SET {
            Self::NAME
        } else {
            "replication-controller"
        }
    }

    fn watches(&self) -> Vec<Watch> {
        self.ownership.watches()
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        self.ownership.observe(cx, kind, diff);
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let kind = self.kind;
        let Some(set) = cx.cache(kind).get(key).cloned() else {
            return Ok(());
        };
        let mut pods = self.ownership.claim(cx, key, &set)?;
        let mut failed = None;
        let resumes = back_off::ends(&set, &pods).filter(|at| *at > cx.now());
        if let Some(at) = resumes {
            cx.enqueue_at(key.clone(), at);
        }
        if !is_deleting(&set) {
            match manage(cx, kind, &set, &pods, resumes.is_none()) {
                Ok(false) => {}
                // The status counts the pods as they are after the changes, not before.
                Ok(true) => pods = owned(cx, &set).collect(),
                Err(error) => {
                    pods = owned(cx, &set).collect();
                    failed = Some(error);
                }
            }
        }
        let problem = failed.as_ref().map(|(creating, error)| {
            if *creating {
                Failed::Create(error)
            } else {
                Failed::Delete(error)
            }
        });
        let summary = summarize(&set, &pods, problem, cx.now());
        cx.write_status(kind, &set, summary.status)?;
        if let Some(at) = summary.next_available {
            cx.enqueue_at(key.clone(), at);
        }
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Creates or deletes pods until the desired number exists; stops when new pods fail immediately. Returns whether a
/// change was necessary. The error states whether a creation failed.
fn manage(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    set: &StoredObject,
    pods: &[StoredObject],
    may_create: bool,
) -> Result<bool, (bool, AccessError)> {
    let wanted = usize::try_from(count(&set["spec"]["replicas"], 1)).unwrap_or_default();
    let active = pods.iter().filter(|p| pod::is_active(p));
    let there = active.clone().count();
    let burst = there.abs_diff(wanted).min(BURST);
    if there < wanted && !may_create {
        return Ok(false);
    }
    if there < wanted {
        create_pods(cx, kind, set, burst).map_err(|error| (true, error))?;
    } else if there > wanted {
        let active = active.cloned().collect();
        delete_pods(cx, kind, set, active, burst).map_err(|error| (false, error))?;
    }
    if there.abs_diff(wanted) > BURST {
        cx.enqueue(ControllerKey::of(set));
    }
    Ok(there != wanted)
}

/// Makes pods in batches that double, so that a namespace without quota does not receive one failing request for each
/// of them.
fn create_pods(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    set: &StoredObject,
    wanted: usize,
) -> Result<(), AccessError> {
    let template = pod_from_template(&set["spec"]["template"], kind, set);
    let mut left = wanted;
    let mut batch = 1;
    while left > 0 {
        let mut problem = Ok(());
        for _ in 0..batch.min(left) {
            match create_pod(cx, set, template.clone()) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => problem = Err(error),
            }
        }
        problem?;
        left -= batch.min(left);
        batch *= 2;
    }
    Ok(())
}

fn delete_pods(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    set: &StoredObject,
    active: Vec<StoredObject>,
    surplus: usize,
) -> Result<(), AccessError> {
    let related: Vec<StoredObject> = match controller_uid(set) {
        Some(owner) => cx
            .cache(kind)
            .by(Index::Controller, owner)
            .flat_map(|sibling| owned(cx, sibling))
            .collect(),
        None => active.clone(),
    };
    let mut problem = Ok(());
    for pod in pods_to_delete(active, &related, surplus, cx.now()) {
        if let Err(error) = delete_pod(cx, set, &pod) {
            problem = Err(error);
        }
    }
    problem
}

#[cfg(test)]
mod tests;
