//! The Deployment controller: one replica set per pod template, and rollouts to the current template.
//!
//! The arithmetic is in `rolling` and `scaling`, conditions and events in `status`, both pure. This module has the
//! order of the steps, as in kube-controller-manager. Each reconcile takes one step; the changes of the replica sets
//! cause the next reconcile.

mod revision;
mod rolling;
mod rollout;
mod scaling;
mod status;
pub(super) mod template;

use self::rollout::Rollout;
use self::status::set_condition;
use super::ownership::Ownership;
use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource};
use berth_objects::object::{
    ControllerKey, DEPLOYMENT, POD, REPLICA_SET, controller_key, is_deleting,
};
use berth_objects::pod;
use berth_objects::selectors::workload::ControllerSelector;

/// See the module.
#[derive(Debug)]
pub(super) struct Deployments {
    ownership: Ownership,
}

impl Default for Deployments {
    fn default() -> Self {
        Self {
            ownership: Ownership::over(DEPLOYMENT, REPLICA_SET),
        }
    }
}

impl Controller for Deployments {
    type Key = ControllerKey;
    const NAME: &'static str = "deployment-controller";

    fn watches(&self) -> Vec<Watch> {
        let mut watches = self.ownership.watches();
        watches.push(watching(POD, &[Index::Controller]));
        watches
    }

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        self.ownership.observe(cx, kind, diff);
        if kind == POD.resource {
            observe_pod(cx, diff);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(deployment) = cx.cache(DEPLOYMENT).get(key).cloned() else {
            return Ok(());
        };
        let selector = ControllerSelector::parse(&deployment["spec"]["selector"]);
        if selector.is_everything() {
            let message =
                "This deployment is selecting all pods. A non-empty selector is required.";
            cx.warn(&deployment, "SelectingAll", message);
            return Ok(());
        }
        let sets = self.ownership.claim(cx, key, &deployment)?;
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

/// The end of a pod is relevant for a deployment that waits for the removal of its old pods.
fn observe_pod(cx: &mut ControllerContext<ControllerKey>, diff: &CacheDifference) {
    let Some(pod) = diff.old.as_ref().or(diff.new.as_ref()) else {
        return;
    };
    if diff.new.as_ref().is_some_and(|new| !pod::is_terminal(new)) {
        return;
    }
    let key = controller_key(REPLICA_SET, pod)
        .and_then(|key| cx.cache(REPLICA_SET).get(&key))
        .and_then(|set| controller_key(DEPLOYMENT, set));
    if let Some(key) = key
        && cx
            .cache(DEPLOYMENT)
            .get(&key)
            .is_some_and(|d| rolling::is_recreate(d))
    {
        cx.enqueue(key);
    }
}

#[cfg(test)]
mod tests;
