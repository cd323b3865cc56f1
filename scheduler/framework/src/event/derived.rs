//! Registrations whose hint and index are derived from one function or value.

use super::{
    ActionType, Change, EventRegistration, EventResource, Hint, HintError, Touched, WaitKey, Waits,
};
use crate::pod_info::HostPort;
use berth_api::{Node, Object, Pod};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// Something that a rejected pod waits for and that a change may provide, such as a host port or a claim.
pub trait Wanted: 'static {
    /// The part that is equal in all changes that can meet the same want. Pods are filed under it, and changes look it
    /// up.
    fn key(&self) -> WaitKey;

    /// Returns whether a provided thing with the same key helps the waiting pod.
    fn is_met_by(&self, provided: &Self) -> bool;
}

/// Pods wait for ports that other pods hold.
impl Wanted for HostPort {
    fn key(&self) -> WaitKey {
        WaitKey::of((self.protocol.as_str(), self.port))
    }

    fn is_met_by(&self, freed: &Self) -> bool {
        self.conflicts_with(freed)
    }
}

/// The object before and after a change.
pub type Versions<'a, T> = (Option<&'a T>, Option<&'a T>);

impl<'a> Change<'a> {
    /// The object before and after the change, as its own type: `change.versions(Object::as_pod, "a pod")`.
    ///
    /// # Errors
    /// If the change is about another kind of object.
    pub fn versions<T>(
        &self,
        of: impl Fn(&'a Object) -> Option<&'a Arc<T>>,
        expected: &'static str,
    ) -> Result<Versions<'a, T>, HintError> {
        let version = |object: &'a Object| {
            let found = object.kind();
            of(object)
                .map(|object| &**object)
                .ok_or(HintError::OtherKind { expected, found })
        };
        match (self.old, self.new) {
            (None, None) => Err(HintError::NoObject { expected }),
            (old, new) => Ok((old.map(version).transpose()?, new.map(version).transpose()?)),
        }
    }

    /// The pod before and after the change.
    ///
    /// # Errors
    /// If the change is about another kind of object.
    pub fn pods(&self) -> Result<Versions<'a, Pod>, HintError> {
        self.versions(Object::as_pod, "a pod")
    }

    /// The node before and after the change.
    ///
    /// # Errors
    /// If the change is about another kind of object.
    pub fn nodes(&self) -> Result<Versions<'a, Node>, HintError> {
        self.versions(Object::as_node, "a node")
    }
}

impl EventRegistration {
    /// Queues every pod if `helps` holds for the change, and none otherwise.
    pub fn when(
        resource: EventResource,
        action: ActionType,
        helps: impl Fn(&Change<'_>) -> Result<bool, HintError> + Clone + Send + Sync + 'static,
    ) -> Self {
        let hint = helps.clone();
        Self::with_hint(resource, action, move |_, _, change| {
            hint(&change).map(Hint::queue_if)
        })
        .touching(move |_, change| match helps(&change) {
            Ok(false) => Touched::no_pod(),
            Ok(true) | Err(_) => Touched::everything(),
        })
    }

    /// Queues the pod that was changed itself if `helps` holds for its old and new version, and no other pod.
    pub fn when_itself(
        action: ActionType,
        helps: impl Fn(Option<&Pod>, &Pod) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::with_hint(EventResource::Pod, action, move |_, pod, change| {
            let (old, new) = change.pods()?;
            let itself = new.filter(|new| new.uid() == pod.uid());
            Ok(Hint::queue_if(itself.is_some_and(|new| helps(old, new))))
        })
        .touching_itself()
    }

    /// Limits the event to the changed pod itself.
    #[must_use]
    pub fn touching_itself(self) -> Self {
        self.touching(|_, change| match change.pods() {
            Ok((_, Some(new))) => Touched::no_pod().and_pod(new),
            Ok((_, None)) => Touched::no_pod(),
            Err(_) => Touched::everything(),
        })
    }

    /// Queues the pods that want something that the change provides. `wanted` is read when a pod begins to wait, and
    /// again when the pod changes.
    pub fn matching<W: Wanted>(
        resource: EventResource,
        action: ActionType,
        wanted: impl Fn(&Pod) -> Vec<W> + Clone + Send + Sync + 'static,
        provided: impl Fn(&Change<'_>) -> Result<Vec<W>, HintError> + Clone + Send + Sync + 'static,
    ) -> Self {
        let (hint_wanted, hint_provided) = (wanted.clone(), provided.clone());
        Self::with_hint(resource, action, move |_, pod, change| {
            let provided = hint_provided(&change)?;
            let helps = !provided.is_empty() && meets_any(&provided, &hint_wanted(pod));
            Ok(Hint::queue_if(helps))
        })
        .found_by(
            move |pod| Waits::from_iter(wanted(pod).iter().map(Wanted::key)),
            move |_, change| match provided(&change) {
                Err(_) => Touched::everything(),
                Ok(provided) if provided.is_empty() => Touched::no_pod(),
                Ok(provided) => Touched::from_iter(provided.iter().map(Wanted::key)),
            },
        )
    }
}

/// The number of provided things up to which they are compared one by one. A pod can want thousands, and a change can
/// provide thousands.
const FEW: usize = 8;

/// Returns whether any provided thing is wanted.
fn meets_any<W: Wanted>(provided: &[W], wanted: &[W]) -> bool {
    if provided.len() <= FEW {
        return wanted.iter().any(|wanted| {
            let mut provided = provided.iter().filter(|p| p.key() == wanted.key());
            provided.any(|provided| wanted.is_met_by(provided))
        });
    }
    let mut by_key: FxHashMap<WaitKey, SmallVec<[&W; 1]>> = FxHashMap::default();
    for thing in provided {
        by_key.entry(thing.key()).or_default().push(thing);
    }
    wanted.iter().any(|wanted| {
        let mut provided = by_key.get(&wanted.key()).into_iter().flatten();
        provided.any(|provided| wanted.is_met_by(provided))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;

    fn pod(name: &str, labels: &[(&str, &str)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = name.into();
        pod.metadata.name = name.into();
        pod.metadata.labels = berth_api::Labels::from_pairs(labels.iter().copied());
        pod
    }

    /// A label as something to wait for: the key is the label's, and the value decides.
    struct Label(String, String);

    impl Wanted for Label {
        fn key(&self) -> WaitKey {
            WaitKey::of(&self.0)
        }

        fn is_met_by(&self, provided: &Self) -> bool {
            self.1 == provided.1
        }
    }

    fn labels(pod: &Pod) -> Vec<Label> {
        let labels = pod.metadata.labels.iter();
        labels
            .map(|(k, v)| Label(k.to_string(), v.to_string()))
            .collect()
    }

    /// Many things are matched as few are.
    #[test]
    fn one_of_many_things_is_enough() {
        let label = |key: usize, value: &str| Label(format!("key-{key}"), value.to_owned());
        for count in [1, FEW, FEW + 1, 1_000] {
            let provided: Vec<Label> = (0..count).map(|key| label(key, "1")).collect();
            for (wanted, expected) in [
                (label(count - 1, "1"), true),
                (label(count - 1, "2"), false),
                (label(count, "1"), false),
            ] {
                let wanted = [label(count + 1, "1"), wanted];
                assert_eq!(meets_any(&provided, &wanted), expected, "{count}");
            }
        }
    }

    /// the index finds every pod that the hint queues, for every kind of derived registration.
    #[test]
    fn one_statement_gives_the_hint_and_the_index() {
        let (resource, action) = (EventResource::Pod, ActionType::ALL);
        let is_gone = |change: &Change<'_>| Ok(change.pods()?.1.is_none());
        let freed = |change: &Change<'_>| Ok(change.pods()?.0.map(labels).unwrap_or_default());
        let registrations = [
            EventRegistration::when(resource.clone(), action, is_gone),
            EventRegistration::when_itself(action, |_, new| !new.metadata.labels.is_empty()),
            EventRegistration::matching(resource, action, labels, freed),
        ];
        let waiting = pod("waiting", &[("a", "1")]);
        let [own, same, other, unlike] = [
            pod("waiting", &[("b", "1")]),
            pod("x", &[("a", "1")]),
            pod("x", &[("a", "2")]),
            pod("x", &[]),
        ]
        .map(|pod| Object::Pod(Arc::new(pod)));
        let node = Object::Node(Arc::default());
        // For each change: the answer of the hint, and whether the index finds the pod.
        const YES: (Option<Hint>, bool) = (Some(Hint::Queue), true);
        const NO: (Option<Hint>, bool) = (Some(Hint::Skip), false);
        const FOUND: (Option<Hint>, bool) = (Some(Hint::Skip), true);
        const ERROR: (Option<Hint>, bool) = (None, true);
        for (situation, old, new, expected) in [
            ("deleted, same label", Some(&same), None, [YES, NO, YES]),
            ("deleted, other value", Some(&other), None, [YES, NO, FOUND]),
            ("deleted, other label", Some(&unlike), None, [YES, NO, NO]),
            ("the pod itself", None, Some(&own), [NO, YES, NO]),
            ("another pod", None, Some(&same), [NO, NO, NO]),
            ("a node", None, Some(&node), [ERROR, ERROR, ERROR]),
        ] {
            let change = Change { old, new };
            let got = registrations.each_ref().map(|registration| {
                let hint = registration.hint.as_ref().expect("a hint");
                let index = registration.index.as_ref().expect("an index");
                let cluster = Cluster::default();
                let hint = hint(&cluster, &waiting, change).ok();
                (hint, index.finds(&cluster, &waiting, change))
            });
            assert_eq!(got, expected, "{situation}");
        }
    }
}
