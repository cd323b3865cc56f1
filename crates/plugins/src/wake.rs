//! How events find the pods that they may help: what several plugins say alike.
//!
//! A plugin's own keys stand beside its hints. What they have to keep to is checked for all plugins together: no pod
//! that a hint or a supplement would queue is missed (`wake_tests`).

use crate::change::pods;
use berth_api::volumes::claims;
use berth_api::{Labels, PersistentVolumeClaim, Pod, Str};
use berth_framework::event::{Change, Hint, Touched, WaitKey, Waits};

/// For a hint that says the same of every pod.
pub(crate) fn all_or_nobody(answer: &Result<Hint, String>) -> Touched {
    match answer {
        Ok(Hint::Skip) => Touched::nobody(),
        Ok(Hint::Queue) | Err(_) => Touched::everything(),
    }
}

/// For a hint that queues the changed pod at most.
pub(crate) fn only_the_pod(change: Change<'_>) -> Touched {
    match pods(&change) {
        Ok((_, Some(new))) => Touched::nobody().and_pod(new),
        Ok((_, None)) => Touched::nobody(),
        Err(_) => Touched::everything(),
    }
}

/// The key of a claim.
pub(crate) fn claim_key(namespace: &str, name: &str) -> WaitKey {
    WaitKey::of(("claim", namespace, name))
}

/// A pod waits for its claims, those that live and die with it included.
pub(crate) fn waits_for_claims(pod: &Pod) -> Waits {
    claims(pod)
        .map(|claim| claim_key(pod.namespace(), &claim.name))
        .collect()
}

/// A claim that comes or changes touches those who use it.
pub(crate) fn touched_by_claim(change: Change<'_>) -> Touched {
    let claim = |claim: &PersistentVolumeClaim| {
        let meta = &claim.metadata;
        Touched::from_iter([claim_key(&meta.namespace, &meta.name)])
    };
    let new = change.new.and_then(|new| new.as_persistent_volume_claim());
    new.map_or_else(Touched::everything, |new| claim(new))
}

/// The labels that are not as they were, with their value now.
pub(crate) fn changed_labels<'a>(
    old: &'a Labels,
    new: &'a Labels,
) -> impl Iterator<Item = (&'a Str, Option<&'a Str>)> {
    let gone = old
        .iter()
        .filter(|(key, _)| !new.contains_key(key))
        .map(|(key, _)| (key, None));
    let changed = new
        .iter()
        .filter(|(key, value)| old.get_str(key) != Some(*value))
        .map(|(key, value)| (key, Some(value)));
    gone.chain(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_change_when_they_come_go_or_get_another_value() {
        let old = Labels::from_pairs([("same", "1"), ("gone", "1"), ("other", "1")]);
        let new = Labels::from_pairs([("same", "1"), ("new", "1"), ("other", "2")]);
        let changed: Vec<(&str, Option<&str>)> = changed_labels(&old, &new)
            .map(|(key, value)| (key.as_str(), value.map(Str::as_str)))
            .collect();
        assert_eq!(
            changed,
            [("gone", None), ("new", Some("1")), ("other", Some("2"))]
        );
        assert_eq!(changed_labels(&new, &new).count(), 0);
    }
}
