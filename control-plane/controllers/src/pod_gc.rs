//! Pod garbage: pods on nodes that no longer exist, and the oldest of very many ended pods.

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, DeleteOptions, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, NODE, POD, created_at, is_deleting, name, new_condition, put_condition, set,
};
use berth_objects::pod;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time for which a node must be absent before its pods are deleted: a node of the same name may return.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The kind of check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// The pods of a node that may have been deleted.
    Node(String),
    /// The pods that have ended.
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(super) struct PodGc {
    /// The number of ended pods that are kept.
    ended_max: usize,
    /// Pods that have ended, oldest first.
    ended: BTreeSet<(Timestamp, ControllerKey)>,
}

impl PodGc {
    pub(super) fn new(ended_max: usize) -> Self {
        Self {
            ended_max,
            ended: BTreeSet::new(),
        }
    }

    fn observe_pod(&mut self, cx: &mut ControllerContext<Task>, diff: &CacheDifference) {
        let entry = |pod: &StoredObject| (created_at(pod), ControllerKey::of(pod));
        if let Some(old) = &diff.old {
            self.ended.remove(&entry(old));
        }
        let Some(pod) = &diff.new else { return };
        if pod::is_terminal(pod) && !is_deleting(pod) {
            self.ended.insert(entry(pod));
            if self.ended.len() > self.ended_max {
                cx.enqueue(Task::Ended);
            }
        }
        let was_bound = diff
            .old
            .as_ref()
            .is_some_and(|p| pod::node_name(p).is_some());
        if let Some(node) = pod::node_name(pod)
            && !was_bound
            && cx.cache(NODE).get(&ControllerKey::new("", node)).is_none()
        {
            cx.enqueue_after(Task::Node(node.to_owned()), QUARANTINE);
        }
    }
}

/// A pod that ends because something outside ends it, with the condition that states the reason; ended pods stay as
/// they are.
pub(super) fn disrupted(pod: &Value, reason: &str, message: &str, now: Timestamp) -> Value {
    let mut new = pod.clone();
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    let condition = new_condition("DisruptionTarget", "True", reason, message, now);
    put_condition(&mut new["status"], condition);
    new
}

fn force_delete(cx: &mut ControllerContext<Task>, pod: &StoredObject) -> Result<(), AccessError> {
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    cx.delete_with(POD, pod, options)
}

impl Controller for PodGc {
    type Key = Task;
    const NAME: &'static str = "pod-garbage-collector-controller";
    const WATCHES: &'static [Watch] = &[watching(POD, &[Index::Node]), watching(NODE, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<Task>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == POD.resource {
            self.observe_pod(cx, diff);
        } else if let (Some(old), None) = (&diff.old, &diff.new) {
            cx.enqueue_after(Task::Node(name(old).to_owned()), QUARANTINE);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<Task>,
        task: &Task,
    ) -> Result<(), AccessError> {
        let node = match task {
            Task::Ended => {
                let surplus = self.ended.len().saturating_sub(self.ended_max);
                let oldest: Vec<ControllerKey> = self
                    .ended
                    .iter()
                    .take(surplus)
                    .map(|(_, k)| k.clone())
                    .collect();
                for key in oldest {
                    if let Some(pod) = cx.cache(POD).get(&key).cloned() {
                        force_delete(cx, &pod)?;
                    }
                }
                return Ok(());
            }
            Task::Node(node) => node,
        };
        // The cache can be behind: a node that was just created must not lose its pods.
        match cx.api().get(NODE.resource, "", node) {
            Ok(_) => return Ok(()),
            Err(error) if !error.is_not_found() => return Err(error),
            Err(_) => {}
        }
        let pods: Vec<StoredObject> = cx.cache(POD).by(Index::Node, node).cloned().collect();
        for pod in pods {
            let mut pod = pod;
            // The phase is set before the deletion, so that the owner of the pod sees a failure.
            if !pod::is_terminal(&pod) {
                let message = "PodGC: node no longer exists";
                let mut failed = disrupted(&pod, "DeletionByPodGC", message, cx.now());
                set(&mut failed, &["status", "phase"], "Failed".into());
                pod = match cx.update_status(POD, failed) {
                    Err(error) if error.is_not_found() => continue,
                    other => other?,
                };
            }
            force_delete(cx, &pod)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, pass};
    use berth_objects::access::Access;
    use berth_objects::object::condition_is_true;
    use std::sync::Arc;

    fn start(api: &Arc<Fake>, ended_max: usize) -> Handle {
        let mut handle = Handle::new();
        handle.start(PodGc::new(ended_max), api.clone(), api.clock());
        handle
    }

    fn pod(api: &Fake, name: &str, node: &str) {
        let pod = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": node}});
        api.create(POD.resource, pod).unwrap();
    }

    fn names(api: &Fake) -> Vec<String> {
        let pods = api.list(POD.resource, None);
        pods.iter().map(|p| name(p).to_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_a_node_that_stays_away_are_removed() {
        let api = Fake::new();
        let handle = start(&api, 100);
        let node = |name: &str| json!({"metadata": {"name": name}});
        for name in ["goes", "returns", "stays"] {
            api.create(NODE.resource, node(name)).unwrap();
            pod(&api, name, name);
        }
        pod(&api, "lost", "never-was");
        pod(&api, "unbound", "");
        pod(&api, "held", "goes");
        api.edit(POD.resource, ("n", "held"), |p| {
            p["metadata"]["finalizers"] = json!(["test/hold"])
        });
        for name in ["goes", "returns"] {
            api.delete(NODE.resource, "", name, &DeleteOptions::default())
                .unwrap();
        }
        pass(30.0).await;
        assert_eq!(names(&api).len(), 6, "a node may come back");
        api.create(NODE.resource, node("returns")).unwrap();
        pass(15.0).await;
        assert_eq!(names(&api), ["held", "returns", "stays", "unbound"]);
        let held = api.get(POD.resource, "n", "held").unwrap();
        assert_eq!(held["status"]["phase"], "Failed");
        assert!(condition_is_true(&held["status"], "DisruptionTarget"));
        handle.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_ended_pods_are_kept() {
        let api = Fake::new();
        let handle = start(&api, 2);
        for name in ["a", "b", "c", "d", "running"] {
            pod(&api, name, "");
            pass(1.0).await;
            if name != "running" {
                api.edit_status(POD.resource, ("n", name), |p| {
                    p["status"]["phase"] = "Succeeded".into();
                });
            }
        }
        pass(1.0).await;
        assert_eq!(names(&api), ["c", "d", "running"]);
        handle.stop().await;
    }
}
