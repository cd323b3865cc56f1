//! The calls and events of stages that several parts determine.

use super::{Core, GroupEvent, event_note};
use berth_api::Str;
use berth_framework::ApiCall;
use berth_framework::call::{CallId, EventKind};
use berth_framework::cluster::GroupKey;

impl Core {
    /// Passes a call to the dispatcher.
    pub(crate) fn call(&mut self, call: ApiCall) -> CallId {
        self.calls.make(call, self.clock.now())
    }

    /// Publishes that a group was not scheduled.
    pub(crate) fn publish_group_failure(&mut self, group: &GroupKey, scheduler: &Str, text: &str) {
        let Some(view) = self.cache.cluster().groups().get(group) else {
            return;
        };
        let event = GroupEvent {
            group: group.clone(),
            uid: view.metadata.uid.clone(),
            kind: EventKind::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: event_note(text),
            reporting_controller: scheduler.clone(),
        };
        self.outbound.publish_of_group(event);
    }
}
