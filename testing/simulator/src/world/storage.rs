//! Claims and volumes, and the controllers that bind them.

use super::{Refusal, World};
use crate::shapes::{ClaimShape, HOSTNAME, NAMESPACES, ZONE, claim_name, volume_name};
use crate::shapes::{bind_claim, reachable_from};
use berth_api::storage::{
    ClaimRef, CsiVolume, PersistentVolume, PersistentVolumeClaim, SELECTED_NODE_ANNOTATION,
};
use berth_api::{Kind, Object, Str};
use std::sync::Arc;

impl World {
    /// Creates a claim, unless it exists, and its volume, unless that is created later.
    pub fn create_claim(&mut self, number: usize, shape: &ClaimShape) {
        let name = claim_name(number);
        if self.others().claim(NAMESPACES[0], &name).is_some()
            || self.others().volume(&volume_name(number)).is_some()
        {
            return;
        }
        let mut claim = shape.build_claim(number);
        self.store.create(&mut claim.metadata);
        if let Some(mut volume) = shape.build_volume(number) {
            if let Some(of) = &mut volume.spec.claim_ref {
                of.uid = claim.metadata.uid.clone();
            }
            self.store.create(&mut volume.metadata);
            self.store.put(Object::PersistentVolume(Arc::new(volume)));
        }
        self.store
            .put(Object::PersistentVolumeClaim(Arc::new(claim)));
    }

    /// Deletes a claim and its volume, unless they are protected because a pod on a node uses them.
    pub fn delete_claim(&mut self, number: usize) {
        let name = claim_name(number);
        let is_used = self.pods().values().any(|pod| {
            let used = pod.spec.volumes.iter();
            let mut used = used.filter_map(|v| v.persistent_volume_claim.as_ref());
            pod.is_assigned() && !pod.is_terminal() && used.any(|claim| claim.claim_name == name)
        });
        let Some(claim) = self.others().claim(NAMESPACES[0], &name).cloned() else {
            return;
        };
        if is_used {
            return;
        }
        self.store
            .remove(Object::PersistentVolumeClaim(claim.clone()));
        let given: Vec<Object> = self
            .others()
            .of_kind(Kind::PersistentVolume)
            .filter(|object| match object {
                Object::PersistentVolume(volume) => {
                    let of = volume.spec.claim_ref.as_ref();
                    of.is_some_and(|of| of.uid == claim.metadata.uid)
                        || *volume.metadata.name == *volume_name(number)
                }
                _ => false,
            })
            .cloned()
            .collect();
        for volume in &given {
            self.store.remove(volume.clone());
        }
    }

    /// Acts as the controllers of claims: binds claims to their reserved volumes, and creates volumes for claims with a
    /// selected node. If that node was deleted, the selection is removed.
    pub fn bind_claims(&mut self) {
        let claims: Vec<Arc<PersistentVolumeClaim>> = self
            .others()
            .of_kind(Kind::PersistentVolumeClaim)
            .filter_map(|object| match object {
                Object::PersistentVolumeClaim(claim) if !claim.is_fully_bound() => Some(claim),
                _ => None,
            })
            .cloned()
            .collect();
        for claim in claims {
            let volume = match self.given_to(&claim) {
                Some(volume) => Some(volume),
                None => self.make_volume(&claim),
            };
            let mut changed = PersistentVolumeClaim::clone(&claim);
            if let Some(volume) = volume {
                bind_claim(&mut changed, &volume);
            } else if self.has_lost_its_node(&claim) {
                let annotations = &mut changed.metadata.annotations;
                *annotations = annotations.without(SELECTED_NODE_ANNOTATION);
            } else {
                continue;
            }
            self.store.change(&mut changed.metadata);
            self.store
                .put(Object::PersistentVolumeClaim(Arc::new(changed)));
        }
    }

    /// Returns whether the selected node of a claim was deleted.
    fn has_lost_its_node(&self, claim: &PersistentVolumeClaim) -> bool {
        let node = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION);
        node.is_some_and(|node| !self.nodes().contains_key(node))
    }

    /// The volume that is reserved for a claim.
    fn given_to(&mut self, claim: &PersistentVolumeClaim) -> Option<Str> {
        let volume =
            self.others()
                .of_kind(Kind::PersistentVolume)
                .find_map(|object| match object {
                    Object::PersistentVolume(volume) => {
                        let of = volume.spec.claim_ref.as_ref()?;
                        (of.uid == claim.metadata.uid).then(|| volume.clone())
                    }
                    _ => None,
                })?;
        if volume.status.phase != "Bound" {
            let mut bound = PersistentVolume::clone(&volume);
            bound.status.phase = "Bound".into();
            self.store.change(&mut bound.metadata);
            self.store.put(Object::PersistentVolume(Arc::new(bound)));
        }
        Some(volume.metadata.name.clone())
    }

    /// Creates a volume that the selected node of the claim can reach: in its zone, if it has one.
    fn make_volume(&mut self, claim: &PersistentVolumeClaim) -> Option<Str> {
        let node = claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)?;
        let node = self.nodes().get(node)?;
        let near = match node.labels().get(ZONE) {
            Some(zone) => reachable_from(ZONE, zone),
            None => reachable_from(HOSTNAME, node.name()),
        };
        let mut volume = PersistentVolume::default();
        volume.metadata.name = Str::from(format!("made-for-{}", claim.metadata.uid));
        volume.spec.access_modes = claim.spec.access_modes.clone();
        volume.spec.storage_class_name = claim.spec.storage_class_name.clone();
        volume.spec.capacity = claim.spec.resources.requests.clone();
        volume.spec.csi = Some(CsiVolume {
            driver: crate::shapes::DRIVER.into(),
            volume_handle: volume.metadata.name.clone(),
        });
        volume.spec.node_affinity = Some(near);
        volume.spec.claim_ref = Some(ClaimRef {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
        });
        volume.status.phase = "Bound".into();
        self.store.create(&mut volume.metadata);
        let name = volume.metadata.name.clone();
        self.store.put(Object::PersistentVolume(Arc::new(volume)));
        Some(name)
    }

    /// Stores the new state of a volume or claim, based on its version `version`.
    ///
    /// # Errors
    /// When the object was deleted or replaced, or has another version.
    pub fn update_storage(&mut self, updated: Object, version: &str) -> Result<(), Refusal> {
        let metadata = updated.metadata();
        let stored = match &updated {
            Object::PersistentVolume(v) => {
                let stored = self.others().volume(&v.metadata.name);
                stored.map(|stored| stored.metadata.clone())
            }
            Object::PersistentVolumeClaim(c) => {
                let stored = self.others().claim(&c.metadata.namespace, &c.metadata.name);
                stored.map(|stored| stored.metadata.clone())
            }
            _ => None,
        };
        let stored = stored.ok_or(Refusal::NotFound)?;
        if stored.uid != metadata.uid || *stored.resource_version != *version {
            return Err(Refusal::Conflict);
        }
        match updated {
            Object::PersistentVolume(volume) => {
                let mut volume = PersistentVolume::clone(&volume);
                self.store.change(&mut volume.metadata);
                self.store.put(Object::PersistentVolume(Arc::new(volume)));
            }
            Object::PersistentVolumeClaim(claim) => {
                let mut claim = PersistentVolumeClaim::clone(&claim);
                self.store.change(&mut claim.metadata);
                self.store
                    .put(Object::PersistentVolumeClaim(Arc::new(claim)));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{Access, CLASS_LATE, CLASS_MADE, NodeShape, PodShape, Reach};

    fn claim(class: Option<&'static str>) -> ClaimShape {
        ClaimShape {
            access: Access::OneNode,
            reach: Reach::Everywhere,
            class,
        }
    }

    fn is_bound(world: &World, number: usize) -> bool {
        let claim = world.others().claim(NAMESPACES[0], &claim_name(number));
        claim.is_some_and(|claim| claim.is_fully_bound())
    }

    #[test]
    fn claims_are_bound_after_a_node_is_selected() {
        let mut world = World::furnished();
        world.create_node("n0", &NodeShape::default());
        for (number, class) in [(1, None), (2, Some(CLASS_LATE)), (3, Some(CLASS_MADE))] {
            world.create_claim(number, &claim(class));
        }
        world.bind_claims();
        assert_eq!([1, 2, 3].map(|n| is_bound(&world, n)), [true, false, false]);

        let late = world.others().claim(NAMESPACES[0], "c2").cloned();
        let volume = world.others().volume("v2").cloned();
        let (late, volume) = late.zip(volume).expect("both are there");
        let mut given = PersistentVolume::clone(&volume);
        given.spec.claim_ref = Some(ClaimRef {
            uid: late.metadata.uid.clone(),
            ..ClaimRef::default()
        });
        let given = Object::PersistentVolume(Arc::new(given));
        let version = volume.metadata.resource_version.clone();
        assert_eq!(world.update_storage(given.clone(), &version), Ok(()));
        assert_eq!(
            world.update_storage(given, &version),
            Err(Refusal::Conflict),
            "it has another version by now"
        );

        select(&mut world, "n0");
        world.bind_claims();
        assert_eq!([1, 2, 3].map(|n| is_bound(&world, n)), [true, true, true]);
    }

    /// Chooses a node for claim c3.
    fn select(world: &mut World, node: &str) {
        let made = world.others().claim(NAMESPACES[0], "c3").cloned();
        let mut selected = PersistentVolumeClaim::clone(&made.expect("it is there"));
        let version = selected.metadata.resource_version.clone();
        let annotations = &mut selected.metadata.annotations;
        *annotations = annotations.with(SELECTED_NODE_ANNOTATION, node);
        let selected = Object::PersistentVolumeClaim(Arc::new(selected));
        assert_eq!(world.update_storage(selected, &version), Ok(()));
    }

    #[test]
    fn a_claim_gets_another_node_if_its_node_is_deleted_before_provisioning() {
        let mut world = World::furnished();
        world.create_claim(3, &claim(Some(CLASS_MADE)));
        select(&mut world, "n0");
        world.bind_claims();
        let selected = |world: &World| {
            let claim = world.others().claim(NAMESPACES[0], "c3")?;
            claim
                .metadata
                .annotations
                .get(SELECTED_NODE_ANNOTATION)
                .map(str::to_owned)
        };
        assert_eq!((is_bound(&world, 3), selected(&world)), (false, None));
        world.create_node("n0", &NodeShape::default());
        select(&mut world, "n0");
        world.bind_claims();
        assert!(is_bound(&world, 3));
    }

    #[test]
    fn a_claim_in_use_is_protected() {
        let mut world = World::furnished();
        world.create_claim(1, &claim(None));
        let shape = PodShape {
            claim: Some(1),
            ..PodShape::default()
        };
        let mut pod = shape.build();
        pod.spec.node_name = "n0".into();
        world.create_pod("p", pod);
        world.delete_claim(1);
        assert!(is_bound(&world, 1));
        world.delete_pod("p");
        world.delete_claim(1);
        assert!(!is_bound(&world, 1));
        assert!(world.others().volume("v1").is_none());
    }
}
