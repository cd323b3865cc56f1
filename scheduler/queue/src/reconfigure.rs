//! Applies a configuration with other profiles and backoffs to the queue.
//!
//! All data that is computed from a profile is computed again: the order, the indexes by profile and rejecting plugin,
//! the results of PreEnqueue plugins. A pod that waits for an event is retried: the events that can help it depend on
//! the plugins that rejected it, and the new plugins can accept it.

use super::entry::{EntryId, QueuedIn};
use super::hooks::ProfileHooks;
use super::{SchedulingQueue, label, profiles_of};
use berth_api::Duration;
use berth_framework::ClusterEvent;
use berth_framework::plugin::Context;

impl SchedulingQueue {
    /// Applies the profiles of a new configuration and its initial and maximum backoff. Pods without a profile in the
    /// new configuration were removed before.
    ///
    /// A pod keeps its history: attempts, timestamps, failures. Active pods and pods in backoff keep their place unless
    /// a PreEnqueue plugin rejects them now.
    pub fn reconfigure(
        &mut self,
        cx: &Context<'_>,
        initial: Duration,
        max: Duration,
        hooks: Vec<ProfileHooks>,
    ) {
        let sort = hooks.first().map(|profile| profile.queue_sort.clone());
        // Detach with the former order and profiles, under which the pods are indexed.
        let detached = self.places.detach_all();
        self.places.remove_members();
        self.config.pod_initial_backoff = initial;
        self.config.pod_max_backoff = max;
        self.places.profiles = profiles_of(&self.config, hooks, &mut self.out.log);
        self.places.follow(&self.config, sort);
        // Events in the log refer to registrations of the former profiles.
        if !self.in_flight.is_empty() {
            let anything = ClusterEvent::wildcard(label::CONFIGURATION_CHANGE);
            let anything = self.places.profiles.matched(&anything);
            self.in_flight.collapse(anything, &mut self.out.metrics);
        }
        for (id, place) in detached {
            self.put_back(cx, id, place);
        }
    }

    /// Puts a detached pod into its place under the new profiles.
    fn put_back(&mut self, cx: &Context<'_>, id: EntryId, before: QueuedIn) {
        let Some(entry) = self.places.get_mut(id) else {
            return;
        };
        // The results for the members of a group are of the former plugins, so all members are evaluated again.
        if let Some(group) = &mut entry.info.own.group {
            group.forget_answers();
            entry.info.own.gate = None;
        }
        // The template is of the former plugins.
        entry.info.own.template = None;
        let event = label::CONFIGURATION_CHANGE;
        if !self.is_admitted(cx, id) {
            self.attach_gated(id, Some(before), event);
            return;
        }
        let Some(entry) = self.places.get(id) else {
            return;
        };
        let place = match before {
            QueuedIn::Active | QueuedIn::Backoff | QueuedIn::ErrorBackoff => before,
            _ if !self.places.backoff().is_backing_off(&entry.info, cx.now) => QueuedIn::Active,
            _ => entry.info.backoff_place(),
        };
        if place == before {
            self.places.attach(id, place);
        } else if place == QueuedIn::Active {
            self.enter_active(cx, id, event);
        } else {
            self.places.attach(id, place);
            self.arrived(id, place, event);
        }
    }
}
