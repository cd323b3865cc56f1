//! The objects of the cluster at a moment of a recording, without a core.

use crate::entry::Entry;
use crate::reader::{Damage, FoundEntry};
use berth_api::{Kind, Object, Time};
use std::collections::BTreeMap;

/// The objects of a cluster, by kind, namespace and name.
pub type ClusterObjects = BTreeMap<(Kind, String, String), Object>;

/// A cluster at a moment.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    /// The objects.
    pub objects: ClusterObjects,
    /// The time of the last entry that was read.
    pub at: Option<Time>,
    /// The first damage, after which nothing was read.
    pub damage: Option<Damage>,
}

impl ClusterState {
    fn key(object: &Object) -> (Kind, String, String) {
        let meta = object.metadata();
        let (namespace, name) = (meta.namespace.to_string(), meta.name.to_string());
        (object.kind(), namespace, name)
    }

    fn set(&mut self, object: Object) {
        self.objects.insert(Self::key(&object), object);
    }

    /// Reads the entries up to a time, or to the end. Files that were removed at the beginning are not needed: each
    /// file begins with all objects.
    pub fn read(
        entries: impl IntoIterator<Item = Result<FoundEntry, Damage>>,
        until: Option<Time>,
    ) -> Self {
        let mut state = Self::default();
        let mut items = 0;
        for found in entries {
            let FoundEntry { at, entry, .. } = match found {
                Ok(found) => found,
                Err(damage) => {
                    state.damage = Some(damage);
                    break;
                }
            };
            if items == 0 && until.is_some_and(|until| at > until) {
                break;
            }
            state.at = state.at.max(Some(at));
            match entry {
                Entry::Checkpoint { objects, .. } => {
                    state.objects.clear();
                    items = objects;
                }
                Entry::List(kind, count) => {
                    state.objects.retain(|key, _| key.0 != kind);
                    items = count;
                }
                Entry::Item(object) => {
                    items = items.saturating_sub(1);
                    state.set(object);
                }
                Entry::Apply(object) => state.set(object),
                Entry::Delete(object) => {
                    state.objects.remove(&Self::key(&object));
                }
                _ => {}
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}"}}}}"#);
        let decoded = Kind::Pod.decode(json.as_bytes());
        decoded.unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_state_is_that_of_the_moment() {
        let entries = [
            (0, Entry::List(Kind::Pod, 2)),
            (0, Entry::Item(pod("a", ""))),
            (0, Entry::Item(pod("b", ""))),
            (1, Entry::Apply(pod("a", "n1"))),
            (2, Entry::Delete(pod("b", ""))),
            (
                3,
                Entry::Checkpoint {
                    objects: 1,
                    dropped: 0,
                },
            ),
            (3, Entry::Item(pod("c", "n2"))),
        ];
        for (until, expected) in [
            (Some(0), vec![("a", ""), ("b", "")]),
            (Some(1), vec![("a", "n1"), ("b", "")]),
            (Some(2), vec![("a", "n1")]),
            (None, vec![("c", "n2")]),
        ] {
            let entries = entries.iter().enumerate().map(|(number, (at, entry))| {
                Ok(FoundEntry {
                    number: number as u64,
                    at: Time::from_secs(*at),
                    entry: entry.clone(),
                })
            });
            let state = ClusterState::read(entries, until.map(Time::from_secs));
            let pods: Vec<(&str, &str)> = state
                .objects
                .values()
                .filter_map(Object::as_pod)
                .map(|pod| (pod.name().as_str(), pod.spec.node_name.as_str()))
                .collect();
            assert_eq!(pods, expected, "{until:?}");
        }
    }
}
