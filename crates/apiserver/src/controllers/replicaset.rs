//! The controller of ReplicaSets and of ReplicationControllers, which differ in their selectors only: keeps as many
//! pods of a template as asked for.

mod ranking;
mod status;

use self::ranking::pods_to_delete;
use self::status::{Failed, summarize};
use super::object::{
    Key, Kind, POD, REPLICA_SET, controller_reference, controller_uid, count, is_deleting, name,
    namespace,
};
use super::ownership::{Ownership, owned};
use super::pod;
use super::runtime::{Context, Controller, Difference, EventType, Index, Watch};
use crate::access::{AccessError, DeleteOptions, GroupResource, Object};
use serde_json::{Value, json};

/// How many pods one reconcile makes or deletes at most.
const BURST: usize = 500;
/// Whether a write was refused because its namespace is going away, after which there is nothing to do.
pub(super) fn is_namespace_terminating(error: &AccessError) -> bool {
    error.code == 403 && error.message.contains("because it is being terminated")
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReplicaSets {
    kind: Kind,
    ownership: Ownership,
}

impl ReplicaSets {
    /// The controller of one of both kinds.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            ownership: Ownership::new(kind),
        }
    }
}

impl Controller for ReplicaSets {
    type Key = Key;

    fn name(&self) -> &'static str {
        if self.kind == REPLICA_SET {
            "replicaset-controller"
        } else {
            "replication-controller"
        }
    }

    fn watches(&self) -> Vec<Watch> {
        self.ownership.watches()
    }

    fn observe(&mut self, cx: &mut Context<Key>, kind: GroupResource, diff: &Difference) {
        self.ownership.observe(cx, kind, diff);
    }

    fn reconcile(&mut self, cx: &mut Context<Key>, key: &Key) -> Result<(), AccessError> {
        let kind = self.kind;
        let Some(set) = cx.cache(kind).get(key).cloned() else {
            return Ok(());
        };
        let mut pods = self.ownership.claim(cx, key, &set)?;
        let mut failed = None;
        if !is_deleting(&set) {
            match manage(cx, kind, &set, &pods) {
                Ok(false) => {}
                Ok(true) => pods = owned(cx, &set).collect(),
                Err(error) => {
                    pods = owned(cx, &set).collect();
                    failed = Some(error);
                }
            }
        }
        let problem = failed.as_ref().map(|(creating, error)| match creating {
            true => Failed::Create(error),
            false => Failed::Delete(error),
        });
        let summary = summarize(&set, &pods, problem, cx.now());
        if summary.status != set["status"] {
            let mut new = (*set).clone();
            new["status"] = summary.status;
            cx.update_status(kind, new)?;
        }
        if let Some(at) = summary.next_available {
            cx.enqueue_at(key.clone(), at);
        }
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Makes or deletes pods until there are as many as wanted; whether that was needed. The error says whether it was
/// about creating.
fn manage(
    cx: &mut Context<Key>,
    kind: Kind,
    set: &Object,
    pods: &[Object],
) -> Result<bool, (bool, AccessError)> {
    let wanted = usize::try_from(count(&set["spec"]["replicas"], 1)).unwrap_or_default();
    let active = pods.iter().filter(|p| pod::is_active(p));
    let there = active.clone().count();
    let burst = there.abs_diff(wanted).min(BURST);
    if there < wanted {
        create_pods(cx, kind, set, burst).map_err(|error| (true, error))?;
    } else if there > wanted {
        let active = active.cloned().collect();
        delete_pods(cx, kind, set, active, burst).map_err(|error| (false, error))?;
    }
    if there.abs_diff(wanted) > BURST {
        cx.enqueue(Key::of(set));
    }
    Ok(there != wanted)
}

/// Makes pods in batches that double, so that a namespace without quota is not asked in vain for each of them.
fn create_pods(
    cx: &mut Context<Key>,
    kind: Kind,
    set: &Object,
    wanted: usize,
) -> Result<(), AccessError> {
    let template = pod_from_template(&set["spec"]["template"], kind, set);
    let mut left = wanted;
    let mut batch = 1;
    while left > 0 {
        let mut problem = None;
        for _ in 0..batch.min(left) {
            match cx.create(POD, template.clone()) {
                Ok(pod) => {
                    let message = format!("Created pod: {}", name(&pod));
                    cx.event(kind, set, EventType::Normal, "SuccessfulCreate", message);
                }
                Err(error) if is_namespace_terminating(&error) => return Ok(()),
                Err(error) => {
                    let message = format!("Error creating: {error}");
                    cx.event(kind, set, EventType::Warning, "FailedCreate", message);
                    problem = Some(error);
                }
            }
        }
        if let Some(error) = problem {
            return Err(error);
        }
        left -= batch.min(left);
        batch *= 2;
    }
    Ok(())
}

fn delete_pods(
    cx: &mut Context<Key>,
    kind: Kind,
    set: &Object,
    active: Vec<Object>,
    surplus: usize,
) -> Result<(), AccessError> {
    let related: Vec<Object> = match controller_uid(set) {
        Some(owner) => cx
            .cache(kind)
            .by(Index::Controller, owner)
            .flat_map(|sibling| owned(cx, sibling))
            .collect(),
        None => active.clone(),
    };
    let mut problem = Ok(());
    for pod in pods_to_delete(active, &related, surplus, cx.now()) {
        match cx.delete(POD.resource, &pod, DeleteOptions::default()) {
            Ok(()) => {
                let message = format!("Deleted pod: {}", name(&pod));
                cx.event(kind, set, EventType::Normal, "SuccessfulDelete", message);
            }
            Err(error) => {
                let message = format!("Error deleting: {error}");
                cx.event(kind, set, EventType::Warning, "FailedDelete", message);
                problem = Err(error);
            }
        }
    }
    problem
}

/// The pod that a workload's template asks for, owned by the workload.
pub(super) fn pod_from_template(template: &Value, kind: Kind, owner: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", name(owner)),
        "namespace": namespace(owner),
        "ownerReferences": [controller_reference(kind, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    json!({
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": metadata,
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests;
