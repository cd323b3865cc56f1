//! What follows when our own calls change how a pod looks, before the API shows it or when they come to nothing.

use super::Scheduler;
use berth_api::{Pod, Time};
use berth_framework::plugin::{Context, Nominating};
use std::sync::Arc;

impl Scheduler {
    /// From now on everybody sees the pod with what our calls make of it.
    pub(super) fn show_writes(&mut self, uid: &str, now: Time) {
        let before = self.cache.effective(uid).cloned();
        self.cache.set_writes(uid, self.io.dispatcher.writes(uid));
        let after = self.cache.effective(uid).cloned();
        if let (Some(before), Some(after)) = (before, after)
            && !Arc::ptr_eq(&before, &after)
        {
            if !after.is_assigned() {
                self.renominated(&before, &after, now);
                self.spared(&before, &after, now);
            } else if before.is_terminating() && !after.is_terminating() {
                self.wake_nominees(&before, now);
            }
        }
    }

    /// The nomination counts from when it is decided, and so does its end: the updates that tell of it later change
    /// nothing any more.
    fn renominated(&mut self, before: &Arc<Pod>, after: &Arc<Pod>, now: Time) {
        let node = &after.status.nominated_node_name;
        if before.status.nominated_node_name == *node {
            return;
        }
        let cx = Context {
            now,
            cluster: self.cache.cluster(),
            features: &self.features,
        };
        let nominating = Nominating::Set(node.clone());
        self.queue.add_nominated_pod(&cx, after, &nominating);
        if !before.status.nominated_node_name.is_empty() {
            self.promise_ended(before, now);
        }
    }

    /// A pod needs the room that it was promised no more: others of no more importance may have it.
    pub(crate) fn promise_ended(&mut self, nominee: &Arc<Pod>, now: Time) {
        let (uid, priority) = (nominee.uid().clone(), nominee.priority());
        let affected = move |pod: &Pod| pod.priority() <= priority && *pod.uid() != uid;
        self.placement_freed(nominee, Some(&affected), now);
    }

    /// A pod that we were about to delete lives on. Should it have been dropped meanwhile, it is tried again.
    fn spared(&mut self, before: &Pod, after: &Arc<Pod>, now: Time) {
        let uid = after.uid();
        if !before.is_terminating() || after.is_terminating() || !self.is_responsible(after) {
            return;
        }
        let queued = self.queue.get(after.namespace(), after.name()).is_some();
        let held = self.queue.is_in_flight(uid)
            || self.binding_of.contains_key(uid)
            || self.returning.values().any(|r| r.is_about(uid));
        if !queued && !held {
            let cx = Context {
                now,
                cluster: self.cache.cluster(),
                features: &self.features,
            };
            self.queue.add(&cx, after.clone());
        }
    }
}
