//! Forgets events an hour after they last happened.

use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource};
use berth_objects::object::{ControllerKey, EVENT, created_at, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// See the module.
#[derive(Debug)]
pub(super) struct EventTtl {
    ttl: SignedDuration,
}

impl EventTtl {
    pub(super) fn new(ttl: SignedDuration) -> Self {
        Self { ttl }
    }

    fn ends_at(&self, event: &Value) -> Timestamp {
        let last = [
            &event["lastTimestamp"],
            &event["series"]["lastObservedTime"],
            &event["eventTime"],
        ];
        let last = last.into_iter().filter_map(time).max();
        last.unwrap_or_default()
            .max(created_at(event))
            .checked_add(self.ttl)
            .unwrap_or(Timestamp::MAX)
    }
}

impl Controller for EventTtl {
    type Key = ControllerKey;
    const NAME: &'static str = "event-ttl-controller";
    const WATCHES: &'static [Watch] = &[watching(EVENT, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if let (None, Some(event)) = (&diff.old, &diff.new) {
            cx.enqueue_at(ControllerKey::of(event), self.ends_at(event));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(event) = cx.cache(EVENT).get(key).cloned() else {
            return Ok(());
        };
        let ends_at = self.ends_at(&event);
        if ends_at > cx.now() {
            // The event has occurred again in the meantime.
            cx.enqueue_at(key.clone(), ends_at);
            return Ok(());
        }
        cx.delete(EVENT, &event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, pass};
    use berth_objects::access::Access;
    use berth_objects::object::seconds;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn an_event_is_forgotten_an_hour_after_it_last_happened() {
        let api = Fake::new();
        let mut handle = Handle::new();
        let hour = SignedDuration::from_hours(1);
        handle.start(EventTtl::new(hour), api.clone(), api.clock());
        for name in ["once", "again"] {
            let event = json!({"metadata": {"name": name, "namespace": "n"},
                               "lastTimestamp": seconds(api.clock().now())});
            api.create(EVENT.resource, event).unwrap();
        }
        pass(1800.0).await;
        let now = seconds(api.clock().now());
        api.edit(EVENT.resource, ("n", "again"), |e| {
            e["lastTimestamp"] = now.clone()
        });
        pass(1799.0).await;
        assert_eq!(api.list(EVENT.resource, None).len(), 2);
        pass(2.0).await;
        assert_eq!(api.list(EVENT.resource, None).len(), 1);
        pass(1800.0).await;
        assert!(api.list(EVENT.resource, None).is_empty());
        handle.stop().await;
    }
}
