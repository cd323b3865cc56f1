//! The Deployment controller: one replica set per pod template, rolled from the old ones to the new one.
//!
//! The arithmetic is in `rolling` and `scaling`, conditions and events in `status`, both pure; here is the order of
//! things, as kube-controller-manager does them. Each reconcile takes one step; the replica sets' changes bring
//! the next one.

mod revision;
mod rolling;
mod rollout;
mod scaling;
mod status;
pub(super) mod template;

use self::rollout::Rollout;
use self::status::set_condition;
use super::object::{
    self, DEPLOYMENT, Key, POD, REPLICA_SET, controller_of, controller_reference, is_deleting,
    labels, namespace, uid,
};
use super::pod;
use super::runtime::{Context, Controller, Difference, EventType, Index, Watch, watching};
use super::selector::Selector;
use crate::access::{AccessError, GroupResource, Object};
use serde_json::Value;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Deployments;

impl Controller for Deployments {
    type Key = Key;

    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            watching(DEPLOYMENT, &[Index::Namespace]),
            watching(REPLICA_SET, &[Index::Controller, Index::Orphan]),
            watching(POD, &[Index::Controller]),
        ]
    }

    fn observe(&mut self, cx: &mut Context<Key>, kind: GroupResource, diff: &Difference) {
        if kind == POD.resource {
            observe_pod(cx, diff);
        } else if kind == REPLICA_SET.resource {
            observe_set(cx, diff);
        } else if let Some(deployment) = &diff.new {
            cx.enqueue(Key::of(deployment));
        }
    }

    fn reconcile(&mut self, cx: &mut Context<Key>, key: &Key) -> Result<(), AccessError> {
        let Some(deployment) = cx.cache(DEPLOYMENT).get(key).cloned() else {
            return Ok(());
        };
        let selector = Selector::parse(&deployment["spec"]["selector"]);
        if selector.is_everything() {
            let message =
                "This deployment is selecting all pods. A non-empty selector is required.";
            let message = message.to_owned();
            cx.event(
                DEPLOYMENT,
                &deployment,
                EventType::Warning,
                "SelectingAll",
                message,
            );
            return Ok(());
        }
        let sets = claim(cx, &deployment, &selector)?;
        let mut rollout = Rollout::new(deployment, sets);
        if is_deleting(&rollout.deployment) {
            return rollout.sync_status_only(cx);
        }
        if let Some(condition) = status::pause_condition(&rollout.deployment, cx.now()) {
            let mut paused = (*rollout.deployment).clone();
            set_condition(&mut paused["status"], condition);
            rollout.deployment = cx.update_status(DEPLOYMENT, paused)?;
        }
        if rollout.deployment["spec"]["paused"] == true || rollout.is_being_scaled() {
            rollout.sync(cx)
        } else if rolling::is_recreate(&rollout.deployment) {
            rollout.recreate(cx)
        } else {
            rollout.roll(cx)
        }
    }
}

fn deployment_of(set: &Value) -> Option<Key> {
    let owner = controller_of(set)?;
    (owner["kind"] == DEPLOYMENT.kind && owner["apiVersion"] == DEPLOYMENT.api_version)
        .then(|| Key::new(namespace(set), owner["name"].as_str().unwrap_or_default()))
}

fn observe_set(cx: &mut Context<Key>, diff: &Difference) {
    for set in [&diff.old, &diff.new].into_iter().flatten() {
        if let Some(key) = deployment_of(set) {
            cx.enqueue(key);
        }
    }
    if let Some(set) = &diff.new
        && controller_of(set).is_none()
    {
        let adopters: Vec<Key> = cx
            .cache(DEPLOYMENT)
            .by(Index::Namespace, namespace(set))
            .filter(|d| Selector::parse(&d["spec"]["selector"]).matches(labels(set)))
            .map(|d| Key::of(d))
            .collect();
        for key in adopters {
            cx.enqueue(key);
        }
    }
}

/// The end of a pod matters to a deployment that waits for its old pods to go.
fn observe_pod(cx: &mut Context<Key>, diff: &Difference) {
    let Some(pod) = diff.old.as_ref().or(diff.new.as_ref()) else {
        return;
    };
    if diff.new.as_ref().is_some_and(|new| !pod::is_terminal(new)) {
        return;
    }
    let key = controller_of(pod)
        .filter(|owner| owner["kind"] == REPLICA_SET.kind)
        .map(|owner| Key::new(namespace(pod), owner["name"].as_str().unwrap_or_default()))
        .and_then(|key| cx.cache(REPLICA_SET).get(&key))
        .and_then(|set| deployment_of(set));
    if let Some(key) = key
        && cx
            .cache(DEPLOYMENT)
            .get(&key)
            .is_some_and(|d| rolling::is_recreate(d))
    {
        cx.enqueue(key);
    }
}

/// The deployment's replica sets: adopts those that match and have no controller, releases those that no longer
/// match.
fn claim(
    cx: &mut Context<Key>,
    deployment: &Object,
    selector: &Selector,
) -> Result<Vec<Object>, AccessError> {
    let owned: Vec<Object> = cx
        .cache(REPLICA_SET)
        .by(Index::Controller, uid(deployment))
        .cloned()
        .collect();
    let mut sets = Vec::with_capacity(owned.len());
    for set in owned {
        if selector.matches(labels(&set)) {
            sets.push(set);
        } else if !is_deleting(deployment) {
            let mut released = (*set).clone();
            object::remove_owners(&mut released, |owner| owner == uid(deployment));
            cx.update(REPLICA_SET.resource, released)?;
        }
    }
    if is_deleting(deployment) {
        return Ok(sets);
    }
    let strays: Vec<Object> = cx
        .cache(REPLICA_SET)
        .by(Index::Orphan, namespace(deployment))
        .filter(|set| !is_deleting(set) && selector.matches(labels(set)))
        .cloned()
        .collect();
    for stray in strays {
        let key = Key::of(deployment);
        let fresh = cx
            .api()
            .get(DEPLOYMENT.resource, &key.namespace, &key.name)?;
        if uid(&fresh) != uid(deployment) || is_deleting(&fresh) {
            break;
        }
        let mut adopted = (*stray).clone();
        object::add_owner(&mut adopted, controller_reference(DEPLOYMENT, deployment));
        sets.push(cx.update(REPLICA_SET.resource, adopted)?);
    }
    Ok(sets)
}

#[cfg(test)]
mod tests;
