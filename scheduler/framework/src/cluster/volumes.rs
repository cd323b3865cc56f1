//! Persistent volumes with the indexes that are looked up per pod.

use super::namespaced::ByName;
use super::placed::PlacedLabels;
use crate::table::ClaimKey;
use berth_api::{Labels, ObjectMeta, PersistentVolume, Quantity, Str};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// Persistent volumes by name, read like a map.
#[derive(Debug, Clone, Default)]
pub struct PersistentVolumes {
    by_name: ByName<PersistentVolume>,
    /// The volumes that are for no claim, by class, the smallest first.
    free: FxHashMap<Str, PlacedLabels<(Quantity, Str), PersistentVolume>>,
    /// See [`PersistentVolumes::free_version`].
    free_version: u64,
    /// The volumes that are for a claim, by the claim and the volume's name.
    given: BTreeMap<(ClaimKey, Str), Arc<PersistentVolume>>,
}

impl Deref for PersistentVolumes {
    type Target = ByName<PersistentVolume>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl PersistentVolumes {
    /// Sets or removes a volume. Returns the previous version.
    pub(super) fn put(
        &mut self,
        volume: &Arc<PersistentVolume>,
        is_there: bool,
    ) -> Option<Arc<PersistentVolume>> {
        let before = self.remove(&volume.metadata.name);
        if !is_there {
            return before;
        }
        let name = volume.metadata.name.clone();
        match &volume.spec.claim_ref {
            Some(claim) => {
                let claim = (claim.namespace.clone(), claim.name.clone());
                self.given.insert((claim, name.clone()), volume.clone());
            }
            None => {
                let class = self.free.entry(Str::new(volume.class())).or_default();
                class.insert(&(volume.capacity(), name.clone()), volume);
            }
        }
        self.by_name.insert(name, volume.clone());
        before
    }

    fn remove(&mut self, name: &str) -> Option<Arc<PersistentVolume>> {
        let (name, volume) = self.by_name.remove_entry(name)?;
        match &volume.spec.claim_ref {
            Some(claim) => {
                let claim = (claim.namespace.clone(), claim.name.clone());
                self.given.remove(&(claim, name));
            }
            None => {
                if let Some(class) = self.free.get_mut(volume.class()) {
                    class.remove(&(volume.capacity(), name), &volume);
                    if class.is_empty() {
                        self.free.remove(volume.class());
                    }
                }
            }
        }
        Some(volume)
    }

    /// The first `suitable` volume of a class, by size and name, that is reserved for no claim and has at least this
    /// size. Volumes whose node affinity certainly does not match the labels are omitted; the caller checks the others.
    pub fn first_free(
        &self,
        class: &str,
        size: Quantity,
        labels: &Labels,
        suitable: impl Fn(&PersistentVolume) -> bool,
    ) -> Option<&Arc<PersistentVolume>> {
        let class = self.free.get(class)?;
        class.first(&(size, Str::default()), labels, suitable)
    }

    /// A volume that is for no claim was changed, and that may matter to several nodes.
    pub(super) fn renew_free(&mut self) {
        self.free_version += 1;
    }

    /// Changes whenever a volume that is for no claim is added, changed or removed, unless that matters to one node
    /// alone: then the log of the node table has a change of this node. `None` while the class has no such volume.
    pub fn free_version(&self, class: &str) -> Option<u64> {
        self.free.get(class).map(|_| self.free_version)
    }

    /// The volumes whose `claimRef` names the claim, by name.
    pub fn given_to(&self, claim: &ObjectMeta) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.given
            .range((key.clone(), Str::default())..)
            .take_while(move |((claim, _), _)| *claim == key)
            .map(|(_, volume)| volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(name: &str, class: &str, gib: u32, claim: Option<&str>) -> Arc<PersistentVolume> {
        let claim = claim.map(|claim| json!({"namespace": "default", "name": claim}));
        let spec = json!({
            "capacity": {"storage": format!("{gib}Gi")}, "storageClassName": class, "claimRef": claim,
        });
        let volume = json!({"metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value(volume).expect("a volume"))
    }

    /// Volumes are found by class and size, and by the claim that they are for.
    #[test]
    fn volumes_are_found_by_class_and_by_claim() {
        let mut volumes = PersistentVolumes::default();
        for volume in [
            volume("c", "fast", 1, None),
            volume("b", "fast", 2, None),
            volume("a", "fast", 2, None),
            volume("slow", "slow", 1, None),
            volume("taken", "fast", 1, Some("x")),
            volume("also-taken", "fast", 9, Some("x")),
        ] {
            volumes.put(&volume, true);
        }
        let free = |volumes: &PersistentVolumes, class: &str, size: &str| -> Vec<String> {
            let size = size.parse().expect("a quantity");
            let mut names: Vec<String> = Vec::new();
            let next = |names: &[String]| {
                let is_new = |volume: &PersistentVolume| {
                    !names.iter().any(|name| *volume.metadata.name == **name)
                };
                let volume = volumes.first_free(class, size, &Labels::default(), is_new);
                volume.map(|volume| volume.metadata.name.to_string())
            };
            while let Some(name) = next(&names) {
                names.push(name);
            }
            names
        };
        let given = |volumes: &PersistentVolumes, claim: &str| -> Vec<String> {
            let meta = ObjectMeta {
                name: claim.into(),
                namespace: "default".into(),
                ..ObjectMeta::default()
            };
            let volumes = volumes.given_to(&meta);
            volumes.map(|v| v.metadata.name.to_string()).collect()
        };
        assert_eq!(free(&volumes, "fast", "0"), ["c", "a", "b"]);
        assert_eq!(free(&volumes, "fast", "1500Mi"), ["a", "b"]);
        assert_eq!(free(&volumes, "none", "0"), [""; 0]);
        assert_eq!(given(&volumes, "x"), ["also-taken", "taken"]);
        volumes.put(&volume("a", "fast", 2, Some("y")), true);
        volumes.put(&volume("taken", "fast", 1, None), true);
        volumes.put(&volume("b", "fast", 2, None), false);
        assert_eq!(free(&volumes, "fast", "0"), ["c", "taken"]);
        assert_eq!(given(&volumes, "y"), ["a"]);
        assert_eq!(given(&volumes, "x"), ["also-taken"]);
        for name in ["a", "c", "taken", "also-taken", "slow"] {
            volumes.put(&volume(name, "", 1, None), false);
        }
        assert!(volumes.free.is_empty());
        assert!(volumes.given.is_empty());
    }
}
