//! Objects of one kind by their names.

use berth_api::{ObjectMeta, Str};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Cluster-scoped objects of one kind, by name.
pub type ByName<T> = FxHashMap<Str, Arc<T>>;

/// Sets or removes an object. Returns the previous version.
pub(super) fn put<T>(
    objects: &mut ByName<T>,
    name: &Str,
    object: &Arc<T>,
    is_there: bool,
) -> Option<Arc<T>> {
    if is_there {
        objects.insert(name.clone(), object.clone())
    } else {
        objects.remove(name)
    }
}

/// Namespaced objects of one kind.
#[derive(Debug)]
pub struct Namespaced<T> {
    namespaces: FxHashMap<Str, ByName<T>>,
}

impl<T> Clone for Namespaced<T> {
    fn clone(&self) -> Self {
        Self {
            namespaces: self.namespaces.clone(),
        }
    }
}

impl<T> Default for Namespaced<T> {
    fn default() -> Self {
        Self {
            namespaces: FxHashMap::default(),
        }
    }
}

impl<T> Namespaced<T> {
    /// An object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// The objects of a namespace, in no particular order.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flat_map(ByName::values)
    }

    /// All objects, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.namespaces.values().flat_map(ByName::values)
    }

    /// Sets or removes an object with this metadata. Returns the previous version.
    pub(super) fn put(
        &mut self,
        meta: &ObjectMeta,
        object: &Arc<T>,
        is_there: bool,
    ) -> Option<Arc<T>> {
        let (namespace, name) = (&meta.namespace, &meta.name);
        if is_there {
            let objects = self.namespaces.entry(namespace.clone()).or_default();
            return objects.insert(name.clone(), object.clone());
        }
        let objects = self.namespaces.get_mut(namespace)?;
        let removed = objects.remove(name);
        if objects.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed
    }
}
