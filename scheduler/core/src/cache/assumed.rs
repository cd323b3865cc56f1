//! The expected state of objects until the API shows our writes.
//!
//! A volume chosen for a claim, a claim with a selected node or allocated devices: each is **assumed** from the
//! decision on, because the next pod must not choose the same one. The assumption is applied to the stored object as
//! long as that object is not newer than the version that the write is based on. A newer object either shows the write
//! or makes the API refuse it, so such an assumption never has to expire. An object that the write would not change
//! ends it, too. A write that is valid for any version is otherwise assumed until it is reverted.

use super::{Cache, Key, key_of, unshown_node};
use berth_api::{Object, Pod, Str};
use berth_framework::Write;
use berth_framework::write::PodEdit;
use std::sync::Arc;

/// An object as seen before and after a change of its assumptions.
pub(crate) type Looks = (Object, Object);

impl Cache {
    /// Shows the object from now on as if the write had been made. Has no effect if the object was deleted, already
    /// shows the write, or is newer than the version that the write is based on, because such a write will be refused.
    pub(crate) fn assume_write(&mut self, write: Write) {
        let name = write.object();
        let key = (name.kind, name.namespace.clone(), name.name.clone());
        let Some(stored) = self.others.get(&key).or(write.created()) else {
            return;
        };
        if write.is_ahead_of(stored) {
            self.cluster.set(&write.applied_to(stored));
            self.assumed_writes.insert(key, write);
        } else if write.is_shown_by(stored) && self.assumed_writes.remove(&key).is_some() {
            // This write replaces the assumed one before that was sent, and restores the stored object.
            self.cluster.set(stored);
        }
    }

    /// The write will not be made, or its result is unknown. Returns the previously visible object and the visible
    /// object now, if they differ.
    pub(crate) fn revert_write(&mut self, write: &Write) -> Option<Looks> {
        let name = write.object();
        let key = (name.kind, name.namespace.clone(), name.name.clone());
        if self.assumed_writes.get(&key) != Some(write) {
            return None;
        }
        self.assumed_writes.remove(&key);
        let Some(stored) = self.others.get(&key) else {
            let created = write.created()?;
            let looked = write.applied_to(created);
            self.cluster.unset(&looked);
            return Some((looked, created.clone()));
        };
        self.cluster.set(stored);
        Some((write.applied_to(stored), stored.clone()))
    }

    /// Adds an edit to an assumed pod, which applies to it and its updates until it is bound or forgotten.
    pub(crate) fn count_with(&mut self, uid: &Str, edit: PodEdit) {
        let counted = self.known.get(uid).and_then(|k| k.counted.clone());
        let (Some(node), Some(pod)) = (unshown_node(&counted), self.effective(uid).cloned()) else {
            return;
        };
        self.edits.entry(uid.clone()).or_default().push(edit);
        let placed = self.placed(&pod, node);
        self.count_on(uid, counted, &placed);
    }

    /// A pod as counted on the node on which it is assumed.
    pub(super) fn placed(&self, pod: &Pod, node: &Str) -> Arc<Pod> {
        let mut placed = pod.clone();
        placed.spec.node_name = node.clone();
        for edit in self.edits.get(pod.uid()).into_iter().flatten() {
            edit.apply(&mut placed);
        }
        Arc::new(placed)
    }

    /// A stored object as the core sees it.
    pub(super) fn seen(&self, key: &Key) -> Option<Object> {
        let stored = self.others.get(key)?;
        Some(match self.assumed_writes.get(key) {
            Some(write) => write.applied_to(stored),
            None => stored.clone(),
        })
    }

    /// The object as the core sees it. An assumption about an earlier version is dropped.
    pub(super) fn with_assumed_write(&mut self, stored: &Object) -> Object {
        if self.assumed_writes.is_empty() {
            return stored.clone();
        }
        let key = key_of(stored);
        match self.assumed_writes.get(&key) {
            Some(write) if write.is_ahead_of(stored) => write.applied_to(stored),
            Some(_) => {
                self.assumed_writes.remove(&key);
                stored.clone()
            }
            None => stored.clone(),
        }
    }

    /// The number of volumes and claims with an assumed write.
    pub fn assumed_objects(&self) -> usize {
        self.assumed_writes.len()
    }

    /// Checks that every assumption is about an object that exists, or that the write creates.
    pub(super) fn check_writes(&self) -> Result<(), String> {
        for (key, write) in &self.assumed_writes {
            let stored = self.others.get(key).or(write.created());
            if !stored.is_some_and(|stored| write.is_ahead_of(stored)) {
                return Err(format!(
                    "a write to {} is assumed, which is gone or has changed since",
                    write.object()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::storage::SELECTED_NODE_ANNOTATION;
    use berth_api::{Kind, Str};
    use berth_framework::testing::annotate;

    fn claim(uid: &str, version: u64, node: &str) -> Object {
        let json = format!(
            r#"{{"metadata":{{"name":"c","namespace":"ns","uid":"{uid}","resourceVersion":"{version}",
                "annotations":{{"volume.kubernetes.io/selected-node":"{node}"}}}}}}"#
        );
        let kind = Kind::PersistentVolumeClaim;
        kind.decode(json.as_bytes()).expect("a claim")
    }

    fn select(stored: &Object, node: &str) -> Write {
        annotate(stored, SELECTED_NODE_ANNOTATION, node)
    }

    /// The node that the core sees as selected.
    fn seen(cache: &Cache) -> Option<&str> {
        let claims = cache.cluster().storage().claims();
        let claim = claims.get("ns", "c")?;
        claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)
    }

    /// PL-145: which updates take the place of the assumption.
    #[test]
    fn an_assumption_holds_until_something_newer_is_shown() {
        for (situation, shown, expected, assumed) in [
            ("nothing", None, Some("n1"), 1),
            ("the same version", Some(claim("u", 5, "")), Some("n1"), 1),
            ("an older version", Some(claim("u", 4, "")), Some("n1"), 1),
            ("our write", Some(claim("u", 6, "n1")), Some("n1"), 0),
            (
                "what we write, at the version that we write to",
                Some(claim("u", 5, "n1")),
                Some("n1"),
                0,
            ),
            (
                "another client's write",
                Some(claim("u", 6, "n2")),
                Some("n2"),
                0,
            ),
            (
                "another claim of the name",
                Some(claim("w", 5, "")),
                Some(""),
                0,
            ),
        ] {
            let mut cache = Cache::default();
            let stored = claim("u", 5, "");
            cache.set_object(stored.clone());
            cache.assume_write(select(&stored, "n1"));
            assert_eq!(seen(&cache), Some("n1"), "{situation}");
            if let Some(shown) = shown {
                cache.set_object(shown);
            }
            assert_eq!(seen(&cache), expected, "{situation}");
            assert_eq!(cache.assumed_objects(), assumed, "{situation}");
            assert_eq!(cache.check(), Ok(()), "{situation}");
        }
    }

    /// PL-145.
    #[test]
    fn what_is_reverted_is_seen_as_it_is_stored() {
        let stored = claim("u", 5, "");
        let write = select(&stored, "n1");
        for (situation, meanwhile, expected, seen_now) in [
            ("nothing happened", None, true, Some("")),
            ("changed", Some(claim("u", 6, "n2")), false, Some("n2")),
        ] {
            let mut cache = Cache::default();
            cache.set_object(stored.clone());
            cache.assume_write(write.clone());
            if let Some(meanwhile) = meanwhile {
                cache.set_object(meanwhile);
            }
            let looks = cache.revert_write(&write);
            assert_eq!(looks.is_some(), expected, "{situation}");
            assert_eq!(seen(&cache), seen_now, "{situation}");
            assert_eq!(cache.revert_write(&write), None, "{situation}: once");
        }
    }

    /// A write that failed with a retryable error is replaced by a write that restores the stored object.
    #[test]
    fn a_write_of_what_is_stored_ends_the_assumption() {
        let stored = claim("u", 5, "n1");
        let mut cache = Cache::default();
        cache.set_object(stored.clone());
        cache.assume_write(select(&stored, "n2"));
        assert_eq!((seen(&cache), cache.assumed_objects()), (Some("n2"), 1));
        cache.assume_write(select(&stored, "n1"));
        assert_eq!((seen(&cache), cache.assumed_objects()), (Some("n1"), 0));
        assert_eq!(cache.check(), Ok(()));
    }

    /// Hints compare the states that pods could see, including the assumptions about an object.
    #[test]
    fn changes_start_from_what_was_seen() {
        let stored = claim("u", 5, "");
        let node_of = |object: &Object| {
            let annotations = &object.metadata().annotations;
            annotations.get(SELECTED_NODE_ANNOTATION).map(str::to_owned)
        };
        let assumed = || {
            let mut cache = Cache::default();
            cache.set_object(stored.clone());
            cache.assume_write(select(&stored, "n1"));
            cache
        };
        let seen = |node: &str| Some(node.to_owned());
        for (situation, shown, expected) in [
            ("the same version", claim("u", 5, ""), seen("n1")),
            ("a newer version", claim("u", 6, ""), seen("")),
        ] {
            let (before, now) = assumed().set_object(shown);
            let before = before.as_ref().and_then(node_of);
            assert_eq!(
                (before, node_of(&now)),
                (seen("n1"), expected),
                "{situation}"
            );
        }
        let (namespace, name) = (Str::from("ns"), Str::from("c"));
        let kind = Kind::PersistentVolumeClaim;
        let deleted = assumed().remove_object(kind, &namespace, &name);
        assert_eq!(deleted.as_ref().and_then(node_of), seen("n1"));
    }

    #[test]
    fn nothing_is_assumed_of_what_is_gone_or_newer() {
        let stored = claim("u", 5, "");
        let write = select(&stored, "n1");
        let mut cache = Cache::default();
        cache.assume_write(write.clone());
        assert_eq!((seen(&cache), cache.assumed_objects()), (None, 0));
        cache.set_object(claim("u", 6, ""));
        cache.assume_write(write.clone());
        assert_eq!((seen(&cache), cache.assumed_objects()), (Some(""), 0));
        cache.set_object(stored);
        cache.assume_write(write);
        let (namespace, name) = (Str::new("ns"), Str::new("c"));
        cache.remove_object(Kind::PersistentVolumeClaim, &namespace, &name);
        assert_eq!((seen(&cache), cache.assumed_objects()), (None, 0));
        assert_eq!(cache.check(), Ok(()));
    }
}
