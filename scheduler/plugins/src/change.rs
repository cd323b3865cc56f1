//! The parts of a change that several plugins read.

use berth_api::{Labels, Pod, Str};

/// Returns whether a pod is assigned to a node or nominated to one.
pub(crate) fn is_assigned_or_nominated(pod: &Pod) -> bool {
    pod.is_assigned() || !pod.status.nominated_node_name.is_empty()
}

/// The changed labels with their new values; `None` for removed labels.
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
