//! Rejects a held pod in PreEnqueue, with a message that states the reason.
//!
//! ```text
//! pod with example.com/hold=budget                         → not queued: held for "budget" until …
//! the same, its namespace with example.com/released=budget → queued
//! ```

use berth_api::{Kind, Pod, Str};
use berth_framework::event::{
    ActionType, Change, EventRegistration, EventResource, Hint, Narrowed,
};
use berth_framework::plugin::{Context, EnqueueExtensions, PreEnqueue};
use berth_framework::registry::{ArgsError, Extensions, FactoryContext};
use berth_framework::{Cluster, FeatureGates, Status};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "Hold";

/// The label of a held pod; its value states the reason for which the pod is held.
pub const HOLD: &str = "example.com/hold";
/// The label of a namespace that releases the pods that are held for its value.
pub const RELEASED: &str = "example.com/released";

/// The plugin's arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HoldArgs {
    /// The message for pods that are held for the key, instead of the message that names the label to set.
    pub messages: BTreeMap<String, String>,
}

/// Creates the plugin.
///
/// # Errors
/// All invalid arguments, each with its path.
pub fn make(cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
    let args: HoldArgs = cx.decode_args("HoldArgs")?;
    let hold = Hold {
        args: args.check()?,
    };
    Ok(Extensions::of(hold).pre_enqueue().events().build())
}

impl HoldArgs {
    fn check(self) -> Result<Self, ArgsError> {
        let empty = self.messages.iter().filter(|(_, text)| text.is_empty());
        let problems: Vec<_> = empty
            .map(|(reason, _)| (format!("messages[{reason}]"), "Required value".to_owned()))
            .collect();
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(ArgsError { problems })
        }
    }
}

/// Rejects held pods in PreEnqueue.
#[derive(Debug, Default)]
pub struct Hold {
    args: HoldArgs,
}

impl Hold {
    /// The message for the owner of the pod: the condition for its release, and who can resolve it. It contains nothing
    /// that changes often, because each new message is a write to the API.
    fn message(&self, pod: &Pod, reason: &str) -> String {
        match self.args.messages.get(reason) {
            Some(text) => format!("held for {reason:?}: {text}"),
            None => format!(
                "held for {reason:?} until namespace {namespace:?} is labelled {RELEASED}={reason}, \
                 or the pod loses its label {HOLD}",
                namespace = pod.namespace().as_str(),
            ),
        }
    }
}

/// The reason to hold the pod, unless it has been released.
fn held_for<'p>(cluster: &Cluster, pod: &'p Pod) -> Option<&'p str> {
    let reason = pod.labels().get(HOLD)?;
    let released = cluster.namespaces().labels(pod.namespace());
    (released.get(RELEASED) != Some(reason)).then_some(reason)
}

impl PreEnqueue for Hold {
    fn pre_enqueue(&self, cx: &Context<'_>, pod: &Pod) -> Status {
        match held_for(cx.cluster, pod) {
            None => Status::success(),
            Some(reason) => Status::unresolvable(self.message(pod, reason)),
        }
    }
}

impl EnqueueExtensions for Hold {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            // The pod itself is released, or held for something else, which changes the message. No other pod is
            // affected.
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::UPDATE_POD_LABEL,
                |_cluster, pod, change| {
                    let before = change.old_pod().and_then(|old| old.labels().get(HOLD));
                    let after = change.new_pod().and_then(|new| new.labels().get(HOLD));
                    Ok(if change.is_about(pod) && before != after {
                        Hint::Queue
                    } else {
                        Hint::Skip
                    })
                },
            )
            .narrowed_by(|_cluster, change| Ok(Narrowed::Pods(pod_of(change)))),
            // Its namespace releases it.
            EventRegistration::with_hint(
                EventResource::of_kind(Kind::Namespace),
                ActionType::ADD | ActionType::UPDATE,
                |cluster, pod, change| {
                    let namespace = change.new_namespace().ok_or("expected a namespace")?;
                    let is_its_own = namespace.metadata.name == *pod.namespace();
                    let released = held_for(cluster, pod).is_none();
                    Ok(if is_its_own && released {
                        Hint::Queue
                    } else {
                        Hint::Skip
                    })
                },
            ),
        ]
    }
}

/// The namespace and name of the changed pod.
fn pod_of(change: Change<'_>) -> Vec<(Str, Str)> {
    let pod = change.new_pod().or_else(|| change.old_pod());
    pod.map(|pod| (pod.namespace().clone(), pod.name().clone()))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::ClusterEvent;
    use berth_framework::testing::{World, pod};

    const HOW: &str = "held for \"budget\" until namespace \"default\" is labelled example.com/released=budget, or the \
                       pod loses its label example.com/hold";

    #[test]
    fn a_pod_is_held_until_its_reason_is_released() {
        let frozen = "held for \"freeze\": the winter freeze ends on 7 January – ask Zoë";
        for (case, label, released, notified) in [
            ("not held", None, "budget", None),
            ("held", Some("budget"), "", Some(HOW)),
            ("released", Some("budget"), "budget", None),
            (
                "another reason is released",
                Some("freeze"),
                "budget",
                Some(frozen),
            ),
        ] {
            let world = World::default().namespace("default", [(RELEASED, released)]);
            let mut pod = pod("p");
            if let Some(reason) = label {
                pod = pod.label(HOLD, reason);
            }
            let text = "the winter freeze ends on 7 January – ask Zoë".to_owned();
            let hold = Hold {
                args: HoldArgs {
                    messages: BTreeMap::from([("freeze".to_owned(), text)]),
                },
            };
            let status = hold.pre_enqueue(&world.context(), &pod.build());
            assert_eq!(status.is_success(), notified.is_none(), "{case}");
            assert_eq!(status.message(), notified.unwrap_or_default(), "{case}");
        }
    }

    #[test]
    fn a_message_states_something() {
        let args = HoldArgs {
            messages: [("a", "why"), ("b", ""), ("c", "")]
                .map(|(reason, text)| (reason.to_owned(), text.to_owned()))
                .into(),
        };
        let problem = |path: &str| (path.to_owned(), "Required value".to_owned());
        let problems = vec![problem("messages[b]"), problem("messages[c]")];
        assert_eq!(args.check(), Err(ArgsError { problems }));
    }

    #[test]
    fn what_releases_a_pod_wakes_it() {
        let relabelled = ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_LABEL);
        let namespace = EventResource::of_kind(Kind::Namespace);
        let namespace = ClusterEvent::new(namespace, ActionType::UPDATE);
        let closed = || World::default().namespace("default", []);
        let open = || World::default().namespace("default", [(RELEASED, "budget")]);
        let held = |name: &str| pod(name).label(HOLD, "budget");
        for (case, world, event, new, expected) in [
            (
                "its label goes",
                closed(),
                &relabelled,
                pod("p").object(),
                Hint::Queue,
            ),
            (
                "another pod's goes",
                closed(),
                &relabelled,
                pod("q").object(),
                Hint::Skip,
            ),
            (
                "it is held for something else",
                closed(),
                &relabelled,
                pod("p").label(HOLD, "freeze").object(),
                Hint::Queue,
            ),
            (
                "another label changes",
                closed(),
                &relabelled,
                held("p").label("app", "web").object(),
                Hint::Skip,
            ),
            (
                "its namespace lets go",
                open(),
                &namespace,
                namespace_of(&open(), "default"),
                Hint::Queue,
            ),
            (
                "its namespace changes otherwise",
                closed(),
                &namespace,
                namespace_of(&closed(), "default"),
                Hint::Skip,
            ),
            (
                "another namespace changes",
                open().namespace("other", []),
                &namespace,
                namespace_of(&open().namespace("other", []), "other"),
                Hint::Skip,
            ),
        ] {
            let waiting = held("p").build();
            let old = Some(held("p").object());
            let hint = world.hint(Hold::default(), event, &waiting, old, Some(new));
            assert_eq!(hint, Ok(Some(expected)), "{case}");
        }
    }

    fn namespace_of(world: &World, name: &str) -> berth_api::Object {
        berth_api::Object::Namespace(world.cluster.namespaces()[name].clone())
    }

    /// KEP-6132: a label of one pod concerns no other.
    #[test]
    fn a_label_of_a_pod_concerns_that_pod_alone() {
        let registrations = Arc::new(Hold::default()).events(&FeatureGates::default());
        let narrow = registrations[0].pre_queueing_hint.as_ref();
        let new = pod("p").object();
        let change = Change {
            old: None,
            new: Some(&new),
        };
        let narrowed = narrow.map(|narrow| narrow(&Cluster::default(), change));
        let only = vec![("default".into(), "p".into())];
        assert_eq!(narrowed, Some(Ok(Narrowed::Pods(only))));
    }
}
