//! PreEnqueue plugins in addition to scheduling gates: one reads only the pod, and one reads its namespace.

use super::own_label_change;
use crate::shapes::{APP, CLOSED, HOLD, SHUT_OUT, closed_text, hold_text};
use berth_api::{Kind, Pod};
use berth_framework::event::{EventRegistration, Hint};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue};
use berth_framework::registry::Extensions;
use berth_framework::{ActionType, EventResource, FeatureGates, Status};
use std::sync::Arc;

/// Rejects pods with the label [`HOLD`].
#[derive(Debug, Default)]
pub struct Holds;

impl Holds {
    /// The plugin with its extension points.
    pub fn extensions() -> Extensions {
        Extensions::of(Self).pre_enqueue().events().build()
    }
}

impl PreEnqueue for Holds {
    fn pre_enqueue(&self, _cx: &Context<'_>, pod: &Pod) -> Status {
        match pod.labels().get(HOLD) {
            Some(reason) => Status::unresolvable(hold_text(reason)),
            None => Status::success(),
        }
    }
}

impl EnqueueExtensions for Holds {
    /// Another reason must be reported as well.
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![own_label_change(HOLD, |_| true)]
    }
}

/// Rejects the pods of the application [`SHUT_OUT`] while their namespace has the label [`CLOSED`].
#[derive(Debug, Default)]
pub struct Closes;

impl Closes {
    /// The plugin with its extension points.
    pub fn extensions() -> Extensions {
        Extensions::of(Self).pre_enqueue().events().build()
    }
}

impl PreEnqueue for Closes {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        let namespace = cx.cluster.namespaces().labels(pod.namespace());
        match namespace.get(CLOSED) {
            Some(reason) if pod.labels().get(APP) == Some(SHUT_OUT) => {
                Status::unresolvable(closed_text(pod.namespace(), reason))
            }
            _ => Status::success(),
        }
    }
}

impl EnqueueExtensions for Closes {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            own_label_change(APP, |_| true),
            EventRegistration::with_hint(
                EventResource::of_kind(Kind::Namespace),
                ActionType::ADD | ActionType::UPDATE,
                |_, pod, change| {
                    let namespace = change.new_namespace().ok_or("expected a namespace")?;
                    Ok(if namespace.metadata.name == *pod.namespace() {
                        Hint::Queue
                    } else {
                        Hint::Skip
                    })
                },
            ),
        ]
    }
}
