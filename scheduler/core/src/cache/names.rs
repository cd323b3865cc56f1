//! The stored pods by namespace and name. The names are read from the pods, so an entry is a single pointer.

use berth_api::Pod;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct PodsByName(HashTable<Arc<Pod>>);

fn hash_of(namespace: &str, name: &str) -> u64 {
    FxBuildHasher.hash_one((namespace, name))
}

fn hash(pod: &Arc<Pod>) -> u64 {
    hash_of(pod.namespace(), pod.name())
}

fn is_named(pod: &Pod, namespace: &str, name: &str) -> bool {
    pod.name().as_str() == name && pod.namespace().as_str() == namespace
}

impl PodsByName {
    /// The pod of a name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        let hash = hash_of(namespace, name);
        self.0.find(hash, |pod| is_named(pod, namespace, name))
    }

    /// Inserts a pod; replaces another pod of its name.
    pub(super) fn insert(&mut self, pod: &Arc<Pod>) {
        let same = |other: &Arc<Pod>| is_named(other, pod.namespace(), pod.name());
        self.0
            .entry(hash(pod), same, hash)
            .and_modify(|other| *other = pod.clone())
            .or_insert_with(|| pod.clone());
    }

    /// Removes a pod, unless its name belongs to another pod now.
    pub(super) fn remove(&mut self, pod: &Arc<Pod>) {
        let same = |other: &Arc<Pod>| {
            is_named(other, pod.namespace(), pod.name()) && other.uid() == pod.uid()
        };
        if let Ok(found) = self.0.find_entry(hash(pod), same) {
            found.remove();
        }
    }
}

impl fmt::Debug for PodsByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|pod| pod.key()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str, uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.namespace = namespace.into();
        pod.metadata.name = name.into();
        pod.metadata.uid = uid.into();
        Arc::new(pod)
    }

    #[test]
    fn a_name_means_the_pod_that_arrived_last() {
        let mut pods = PodsByName::default();
        let (first, second) = (pod("ns", "a", "1"), pod("ns", "a", "2"));
        pods.insert(&first);
        pods.insert(&pod("other", "a", "3"));
        pods.insert(&second);
        let uid = |pods: &PodsByName, namespace: &str| {
            pods.get(namespace, "a").map(|pod| pod.uid().to_string())
        };
        assert_eq!(uid(&pods, "ns").as_deref(), Some("2"));
        // The component that had the name before does not take it along.
        pods.remove(&first);
        assert_eq!(uid(&pods, "ns").as_deref(), Some("2"));
        pods.remove(&second);
        assert_eq!(uid(&pods, "ns"), None);
        assert_eq!(uid(&pods, "other").as_deref(), Some("3"));
    }
}
