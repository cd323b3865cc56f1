//! A controller's own view of one kind: the objects, and the indexes it asked for.
//!
//! A controller reads its own writes: a write is applied to the view at once, and an older change from the watch is
//! ignored. Expected creations and deletions need no counting.

use berth_objects::access::{StoredObject, WatchedChange};
use berth_objects::object::{self, ControllerKey};
use berth_objects::pod::{claims_of, templates_of};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;
use std::collections::BTreeSet;

/// The keys of lookups other than the object's own key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    /// The UID of the managing controller.
    Controller,
    /// The namespace.
    Namespace,
    /// The namespace, only for objects without a managing controller.
    Orphan,
    /// `spec.nodeName`.
    Node,
    /// `spec.claimRef.name`: the claim of a volume, in any namespace.
    ClaimName,
    /// `spec.volumeName`: the volume of a claim.
    VolumeName,
    /// The names of the resource claims of a pod, in any namespace.
    ResourceClaim,
    /// The names of the resource claim templates of a pod, in any namespace.
    ResourceClaimTemplate,
    /// `spec.schedulingGroup.podGroupName`: the group of a pod, in any namespace.
    PodGroup,
    /// `spec.parentCompositePodGroupName`: the parent of a group, in any namespace.
    ParentGroup,
}

impl Index {
    fn values(self, object: &Value) -> impl Iterator<Item = &str> {
        let claims = (self == Self::ResourceClaim).then(|| claims_of(object));
        let templates = (self == Self::ResourceClaimTemplate).then(|| templates_of(object));
        let many = claims.into_iter().flatten();
        let many = many.chain(templates.into_iter().flatten());
        self.value(object).into_iter().chain(many)
    }

    fn value(self, object: &Value) -> Option<&str> {
        match self {
            Self::ResourceClaim | Self::ResourceClaimTemplate => None,
            Self::Controller => object::controller_uid(object),
            Self::Namespace => Some(object::namespace(object)),
            Self::Orphan => object::controller_of(object)
                .is_none()
                .then(|| object::namespace(object)),
            Self::Node => object["spec"]["nodeName"]
                .as_str()
                .filter(|n| !n.is_empty()),
            Self::PodGroup => object["spec"]["schedulingGroup"]["podGroupName"].as_str(),
            Self::ParentGroup => object["spec"]["parentCompositePodGroupName"].as_str(),
            Self::ClaimName => object["spec"]["claimRef"]["name"].as_str(),
            Self::VolumeName => object["spec"]["volumeName"]
                .as_str()
                .filter(|n| !n.is_empty()),
        }
    }
}

/// A difference that a change made to the view.
#[derive(Debug, Clone)]
pub(crate) struct CacheDifference {
    /// The object before; `None` when it is new.
    pub(crate) old: Option<StoredObject>,
    /// The object now; `None` when it was deleted.
    pub(crate) new: Option<StoredObject>,
}

type CachedEntries = FxHashMap<String, BTreeSet<ControllerKey>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    objects: FxHashMap<ControllerKey, StoredObject>,
    indexes: Vec<(Index, CachedEntries)>,
    /// UIDs that this controller deleted before the watch reported it. An entry lives until the watch does.
    gone: FxHashSet<String>,
}

impl Cache {
    /// An empty view with these indexes.
    pub(crate) fn new(indexes: &[Index]) -> Self {
        Self {
            indexes: indexes
                .iter()
                .map(|i| (*i, CachedEntries::default()))
                .collect(),
            ..Self::default()
        }
    }

    /// The object of that key.
    pub(crate) fn get(&self, key: &ControllerKey) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    /// All objects, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ControllerKey, &StoredObject)> {
        self.objects.iter()
    }

    /// The objects that `index` files under `value`, in key order. An index that was not asked for is empty.
    pub(crate) fn by(&self, index: Index, value: &str) -> impl Iterator<Item = &StoredObject> {
        self.indexes
            .iter()
            .find(|(i, _)| *i == index)
            .and_then(|(_, entries)| entries.get(value))
            .into_iter()
            .flatten()
            .filter_map(|key| self.objects.get(key))
    }

    /// The number of objects that `index` files under `value`.
    pub(crate) fn count_by(&self, index: Index, value: &str) -> usize {
        self.indexes
            .iter()
            .find(|(i, _)| *i == index)
            .and_then(|(_, entries)| entries.get(value))
            .map_or(0, BTreeSet::len)
    }

    /// Takes in a change of the watch.
    pub(crate) fn apply(&mut self, change: WatchedChange) -> Vec<CacheDifference> {
        match change {
            WatchedChange::Added(object) | WatchedChange::Modified(object) => self.put(object),
            WatchedChange::Deleted(object) => {
                if self.gone.remove(object::uid(&object)) {
                    return Vec::new();
                }
                self.remove(&ControllerKey::of(&object), object::uid(&object))
            }
        }
    }

    /// Takes in an object, unless the view is newer.
    pub(crate) fn put(&mut self, object: StoredObject) -> Vec<CacheDifference> {
        if self.gone.contains(object::uid(&object)) {
            return Vec::new();
        }
        let key = ControllerKey::of(&object);
        let mut differences = Vec::with_capacity(1);
        let mut old = self.objects.get(&key).cloned();
        if let Some(known) = &old {
            if object::version(known) >= object::version(&object) {
                return Vec::new();
            }
            if object::uid(known) != object::uid(&object) {
                differences.append(&mut self.remove(&key, object::uid(known)));
                old = None;
            }
        }
        for (index, entries) in &mut self.indexes {
            if let Some(old) = &old {
                // Mostly something else has changed.
                if index.values(old).eq(index.values(&object)) {
                    continue;
                }
                unindex(*index, entries, &key, old);
            }
            for value in index.values(&object) {
                match entries.get_mut(value) {
                    Some(keys) => _ = keys.insert(key.clone()),
                    None => _ = entries.insert(value.to_owned(), BTreeSet::from([key.clone()])),
                }
            }
        }
        self.objects.insert(key, object.clone());
        differences.push(CacheDifference {
            old,
            new: Some(object),
        });
        differences
    }

    /// Takes out an object that this controller knows to be deleted, ahead of the watch.
    pub(crate) fn remove_ahead(&mut self, key: &ControllerKey, uid: &str) -> Vec<CacheDifference> {
        let differences = self.remove(key, uid);
        if !differences.is_empty() {
            self.gone.insert(uid.to_owned());
        }
        differences
    }

    /// Makes the view equal to `list`, as a new watch begins.
    pub(crate) fn reset(&mut self, list: Vec<StoredObject>) -> Vec<CacheDifference> {
        self.gone.clear();
        let listed: FxHashMap<ControllerKey, &StoredObject> =
            list.iter().map(|o| (ControllerKey::of(o), o)).collect();
        let vanished: Vec<(ControllerKey, String)> = self
            .objects
            .iter()
            .filter(|(key, object)| {
                listed
                    .get(*key)
                    .is_none_or(|o| object::uid(o) != object::uid(object))
            })
            .map(|(key, object)| (key.clone(), object::uid(object).to_owned()))
            .collect();
        let mut differences = Vec::with_capacity(list.len());
        for (key, uid) in vanished {
            differences.append(&mut self.remove(&key, &uid));
        }
        for object in list {
            differences.append(&mut self.put(object));
        }
        differences
    }

    fn remove(&mut self, key: &ControllerKey, uid: &str) -> Vec<CacheDifference> {
        if self.objects.get(key).is_none_or(|o| object::uid(o) != uid) {
            return Vec::new();
        }
        let Some(old) = self.objects.remove(key) else {
            return Vec::new();
        };
        for (index, entries) in &mut self.indexes {
            unindex(*index, entries, key, &old);
        }
        vec![CacheDifference {
            old: Some(old),
            new: None,
        }]
    }
}

fn unindex(index: Index, entries: &mut CachedEntries, key: &ControllerKey, object: &Value) {
    for value in index.values(object) {
        if let Some(keys) = entries.get_mut(value) {
            keys.remove(key);
            if keys.is_empty() {
                entries.remove(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn pod(name: &str, uid: &str, version: u32, node: &str, owner: &str) -> StoredObject {
        let owners = if owner.is_empty() {
            json!([])
        } else {
            json!([{"uid": owner, "controller": true}])
        };
        Arc::new(json!({
            "metadata": {"namespace": "n", "name": name, "uid": uid,
                         "resourceVersion": version.to_string(), "ownerReferences": owners},
            "spec": {"nodeName": node},
        }))
    }

    fn names(cache: &Cache, index: Index, value: &str) -> Vec<String> {
        cache
            .by(index, value)
            .map(|o| object::name(o).to_owned())
            .collect()
    }

    #[test]
    fn indexes_follow_the_objects() {
        let mut cache = Cache::new(&[Index::Controller, Index::Orphan, Index::Node]);
        cache.put(pod("b", "1", 1, "", "rs"));
        cache.put(pod("a", "2", 2, "node", "rs"));
        cache.put(pod("c", "3", 3, "", ""));
        assert_eq!(names(&cache, Index::Controller, "rs"), ["a", "b"]);
        assert_eq!(names(&cache, Index::Orphan, "n"), ["c"]);
        assert_eq!(names(&cache, Index::Node, "node"), ["a"]);
        cache.apply(WatchedChange::Modified(pod("b", "1", 4, "node", "")));
        assert_eq!(names(&cache, Index::Controller, "rs"), ["a"]);
        assert_eq!(names(&cache, Index::Orphan, "n"), ["b", "c"]);
        cache.apply(WatchedChange::Deleted(pod("b", "1", 5, "node", "")));
        assert_eq!(names(&cache, Index::Node, "node"), ["a"]);
        assert_eq!(names(&cache, Index::Orphan, "n"), ["c"]);
    }

    #[test]
    fn what_the_view_already_knows_makes_no_difference() {
        let mut cache = Cache::default();
        assert_eq!(cache.put(pod("a", "1", 5, "", "")).len(), 1);
        assert!(
            cache
                .apply(WatchedChange::Added(pod("a", "1", 5, "", "")))
                .is_empty()
        );
        assert!(
            cache
                .apply(WatchedChange::Modified(pod("a", "1", 4, "", "")))
                .is_empty()
        );
        // The name was reused: the first object was deleted, the second one is new.
        let differences = cache.apply(WatchedChange::Added(pod("a", "2", 7, "", "")));
        assert_eq!(differences.len(), 2);
        assert!(differences[0].new.is_none() && differences[1].old.is_none());
        // The late deletion event of the first object does not remove the second.
        assert!(
            cache
                .apply(WatchedChange::Deleted(pod("a", "1", 6, "", "")))
                .is_empty()
        );
        assert!(cache.get(&ControllerKey::new("n", "a")).is_some());
    }

    #[test]
    fn an_object_removed_ahead_of_the_watch_does_not_come_back() {
        let mut cache = Cache::default();
        let key = ControllerKey::new("n", "a");
        cache.put(pod("a", "1", 5, "", ""));
        assert_eq!(cache.remove_ahead(&key, "1").len(), 1);
        assert!(
            cache
                .apply(WatchedChange::Modified(pod("a", "1", 6, "", "")))
                .is_empty()
        );
        assert!(
            cache
                .apply(WatchedChange::Deleted(pod("a", "1", 7, "", "")))
                .is_empty()
        );
        assert!(cache.gone.is_empty());
        assert!(cache.get(&key).is_none());
    }

    #[test]
    fn a_new_watch_shows_what_was_deleted_and_added_meanwhile() {
        let mut cache = Cache::default();
        cache.put(pod("gone", "1", 1, "", ""));
        cache.put(pod("kept", "2", 2, "", ""));
        cache.put(pod("replaced", "3", 3, "", ""));
        let differences = cache.reset(vec![
            pod("kept", "2", 2, "", ""),
            pod("new", "4", 4, "", ""),
            pod("replaced", "5", 5, "", ""),
        ]);
        let mut seen: Vec<_> = differences
            .iter()
            .map(|d| match (&d.old, &d.new) {
                (Some(o), None) => format!("-{}", object::uid(o)),
                (None, Some(o)) => format!("+{}", object::uid(o)),
                _ => "~".to_owned(),
            })
            .collect();
        seen.sort();
        assert_eq!(seen, ["+4", "+5", "-1", "-3"]);
    }
}
