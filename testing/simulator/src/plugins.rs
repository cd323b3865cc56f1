//! The simulator's own plugins. They make the scheduler use paths that in-tree plugins rarely take: PreEnqueue
//! rejections other than gates, parked cycles, waits for permits, timers and jobs.

mod readiness;
mod stages;

pub use readiness::{Closes, Holds};
pub use stages::Stages;

use berth_framework::event::{EventRegistration, Hint};
use berth_framework::{ActionType, EventResource};

/// The name of the plugin that rejects pods with the hold label.
pub const HOLDS: &str = "SimulatedHolds";
/// The name of the plugin that rejects pods of closed namespaces.
pub const CLOSES: &str = "SimulatedCloses";
/// The name of the plugin with slow stages.
pub const STAGES: &str = "SimulatedStages";

/// A hint about a change of the pod's own label: queues the pod if `helps` accepts the new value.
fn own_label_change(key: &'static str, helps: fn(Option<&str>) -> bool) -> EventRegistration {
    EventRegistration::with_hint(
        EventResource::Pod,
        ActionType::UPDATE_POD_LABEL,
        move |_, pod, change| {
            let before = change.old_pod().and_then(|old| old.labels().get(key));
            let after = change.new_pod().and_then(|new| new.labels().get(key));
            Ok(if change.is_about(pod) && before != after && helps(after) {
                Hint::Queue
            } else {
                Hint::Skip
            })
        },
    )
}
