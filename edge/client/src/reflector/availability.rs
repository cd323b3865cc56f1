//! Kinds that the API server does not serve or does not permit to read, and unreadable objects.

use crate::ApiError;
use crate::request::Resource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds that the API server does not have, or does not let us read, and that are done without.
/// And the objects that cannot be read.
#[derive(Debug, Default)]
pub struct Availability {
    missing: Mutex<BTreeMap<String, String>>,
    unreadable: Mutex<BTreeMap<&'static str, UnreadableObjects>>,
}

/// The objects of a kind that cannot be read, by namespace and name.
#[derive(Debug, Default)]
struct UnreadableObjects {
    known: BTreeSet<(String, String)>,
    /// The unreadable objects of the list in progress.
    listed: Option<BTreeSet<(String, String)>>,
}

/// The number of objects of a kind that are kept apart. Further ones are not counted.
const UNREADABLE_MAX: usize = 1_000;

impl Availability {
    /// The missing kinds, and the kinds with objects that cannot be read, each in a sentence.
    pub fn list(&self) -> Vec<String> {
        let mut all: Vec<String> = self.lock().values().cloned().collect();
        for (kind, count) in self.unreadable_objects() {
            if count > 0 {
                all.push(format!(
                    "{kind}: {count} of these cannot be read; see the log"
                ));
            }
        }
        all
    }

    /// The number of objects that cannot be read, by the plural of each kind that had some.
    pub fn unreadable_objects(&self) -> Vec<(&'static str, usize)> {
        let all = self.lock_unreadable();
        all.iter()
            .map(|(kind, objects)| (*kind, objects.known.len()))
            .collect()
    }

    /// Returns whether an object of the kind cannot be read.
    pub(super) fn has_unreadable(&self, resource: Resource) -> bool {
        let all = self.lock_unreadable();
        all.get(resource.plural)
            .is_some_and(|objects| !objects.known.is_empty())
    }

    /// An object cannot be read. Returns whether that is news.
    pub fn unreadable(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        let mut all = self.lock_unreadable();
        let objects = all.entry(resource.plural).or_default();
        let key = (namespace.to_owned(), name.to_owned());
        let is_news = !objects.known.contains(&key);
        let set = objects.listed.as_mut().unwrap_or(&mut objects.known);
        if set.len() < UNREADABLE_MAX {
            return set.insert(key) && is_news;
        }
        false
    }

    /// An object can be read, or was deleted.
    pub fn readable(&self, resource: Resource, namespace: &str, name: &str) {
        let mut all = self.lock_unreadable();
        if let Some(objects) = all.get_mut(resource.plural)
            && !objects.known.is_empty()
        {
            objects
                .known
                .remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    /// All objects of a kind are being read.
    pub(super) fn list_begins(&self, resource: Resource) {
        if let Some(objects) = self.lock_unreadable().get_mut(resource.plural) {
            objects.listed = Some(BTreeSet::new());
        }
    }

    /// All objects of a kind have been read.
    pub(super) fn list_ends(&self, resource: Resource) {
        if let Some(objects) = self.lock_unreadable().get_mut(resource.plural)
            && let Some(listed) = objects.listed.take()
        {
            objects.known = listed;
        }
    }

    /// A kind could be listed.
    pub(super) fn found(&self, resource: Resource) {
        let name = resource.to_string();
        if self.lock().remove(&name).is_some() {
            tracing::info!(resource = name, "the API server serves this kind now");
        }
    }

    /// A kind cannot be listed.
    pub(super) fn missing(&self, resource: Resource, error: &ApiError) {
        let name = resource.to_string();
        let text = if error.is_forbidden() {
            format!(
                "{name}: the API server does not allow reading these, so there are taken to be none; if there are, allow \
                 list and watch in a role ({error})"
            )
        } else {
            format!("{name}: the API server does not serve these, so there are none")
        };
        tracing::warn!("{text}");
        self.lock().insert(name, text);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_unreadable(&self) -> MutexGuard<'_, BTreeMap<&'static str, UnreadableObjects>> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
