//! The CSI volumes of each node, used by its pods or attached to it, with the limits of its drivers.
//!
//! A pod names claims; [`Cluster`](crate::Cluster) resolves a claim to its volume. Claims and attachments are counted
//! under the name of their claim and node, so that a change of one needs no further look-ups.

use super::Slot;
use berth_api::storage::CsiVolume;
use berth_api::volumes::PodClaim;
use berth_api::{Pod, Str};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Namespace and name of a claim.
pub(crate) type ClaimKey = (Str, Str);

/// A CSI volume, quick to compare.
#[derive(Debug, Clone)]
struct KnownVolume {
    hash: u64,
    volume: Arc<CsiVolume>,
}

impl KnownVolume {
    fn new(volume: CsiVolume) -> Self {
        Self {
            hash: FxBuildHasher.hash_one(&volume),
            volume: Arc::new(volume),
        }
    }
}

impl PartialEq for KnownVolume {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && *self.volume == *other.volume
    }
}

/// The volumes of a node. A pod can have thousands.
#[derive(Debug, Clone, Default)]
struct SlotVolumes {
    counts: FxHashMap<Arc<CsiVolume>, VolumeCounts>,
    /// The number of volumes of each driver.
    by_driver: FxHashMap<Str, usize>,
}

/// The counts of a volume of a node.
#[derive(Debug, Clone, Copy, Default)]
struct VolumeCounts {
    /// The number of times that pods of the node use it.
    uses: u32,
    /// The number of attachments to the node.
    attachments: u32,
}

/// A claim that exists, or that a pod on a node names.
#[derive(Debug, Clone, Default)]
struct VolumeClaim {
    volume: Option<KnownVolume>,
    /// The number of times that the pods of each node use it.
    users: SmallVec<[(Slot, u32); 1]>,
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeVolumes {
    by_slot: Vec<SlotVolumes>,
    claims: FxHashMap<ClaimKey, VolumeClaim>,
    /// For each volume, the number of its claims plus the number of its uses by pods on nodes.
    sources: FxHashMap<Arc<CsiVolume>, u32>,
    /// By the name of the node, known or not.
    attachments: FxHashMap<Str, Vec<KnownVolume>>,
    /// The CSI drivers with their limits, by the name of the node, known or not.
    drivers: FxHashMap<Str, Vec<(Str, Option<i64>)>>,
    /// The number of these nodes with a limit, by driver.
    limited: FxHashMap<Str, usize>,
}

impl NodeVolumes {
    // --- changes -------------------------------------------------------------------------------------------

    /// A slot is given to the node of this name.
    pub(super) fn open_slot(&mut self, slot: Slot, node: &str) {
        let attached = self.attachments.get(node).cloned().unwrap_or_default();
        for volume in attached {
            self.count(slot, &volume, 0, 1);
        }
    }

    /// The slot has neither a node nor pods now.
    pub(super) fn close_slot(&mut self, slot: Slot) {
        if let Some(volumes) = self.by_slot.get_mut(slot.index()) {
            *volumes = SlotVolumes::default();
        }
    }

    /// A pod is added to a node (`sign` is 1) or removed from it (-1).
    pub(super) fn count_pod(&mut self, slot: Slot, pod: &Pod, sign: i32) {
        for volume in &pod.spec.volumes {
            if let Some(claim) = PodClaim::of(pod, volume) {
                self.count_claim(slot, (pod.namespace().clone(), claim.name), sign);
            } else if let Some(volume) = volume.migrated() {
                self.count(slot, &KnownVolume::new(volume), sign, 0);
            }
        }
    }

    fn count_claim(&mut self, slot: Slot, key: ClaimKey, sign: i32) {
        let claim = self.claims.entry(key.clone()).or_default();
        match claim.users.iter().position(|(at, _)| *at == slot) {
            Some(at) => {
                let users = &mut claim.users[at].1;
                *users = users.saturating_add_signed(sign);
                if *users == 0 {
                    claim.users.swap_remove(at);
                }
            }
            None if sign > 0 => claim.users.push((slot, 1)),
            None => debug_assert!(false, "a pod that leaves was counted"),
        }
        let has_users = !claim.users.is_empty();
        match claim.volume.clone() {
            Some(volume) => self.count(slot, &volume, sign, 0),
            None if !has_users => drop(self.claims.remove(&key)),
            None => {}
        }
    }

    fn count_source(&mut self, volume: &KnownVolume, sign: i32) {
        match self.sources.get_mut(&*volume.volume) {
            Some(sources) => {
                *sources = sources.saturating_add_signed(sign);
                if *sources == 0 {
                    self.sources.remove(&*volume.volume);
                }
            }
            None if sign > 0 => {
                self.sources
                    .insert(volume.volume.clone(), sign.unsigned_abs());
            }
            None => {}
        }
    }

    fn count(&mut self, slot: Slot, volume: &KnownVolume, uses: i32, attachments: i32) {
        if uses != 0 {
            self.count_source(volume, uses);
        }
        if self.by_slot.len() <= slot.index() {
            self.by_slot
                .resize_with(slot.index() + 1, SlotVolumes::default);
        }
        let SlotVolumes { counts, by_driver } = &mut self.by_slot[slot.index()];
        let volume = &volume.volume;
        let known = counts.entry(volume.clone()).or_insert_with(|| {
            *by_driver.entry(volume.driver.clone()).or_default() += 1;
            VolumeCounts::default()
        });
        known.uses = known.uses.saturating_add_signed(uses);
        known.attachments = known.attachments.saturating_add_signed(attachments);
        if (known.uses, known.attachments) == (0, 0) {
            counts.remove(volume);
            match by_driver.get_mut(&volume.driver) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(by_driver.remove(&volume.driver)),
            }
        }
    }

    /// Sets the volume of a claim. Returns the nodes with pods that use it, if it has changed.
    pub(super) fn set_claim(
        &mut self,
        key: &ClaimKey,
        volume: Option<CsiVolume>,
    ) -> Option<Vec<Slot>> {
        let volume = volume.map(KnownVolume::new);
        let claim = match self.claims.get_mut(key) {
            Some(claim) => claim,
            // An unused claim without a volume needs no entry.
            None if volume.is_none() => return None,
            None => self.claims.entry(key.clone()).or_default(),
        };
        if claim.volume == volume {
            return None;
        }
        let before = std::mem::replace(&mut claim.volume, volume.clone());
        let users = claim.users.clone();
        if let Some(before) = &before {
            self.count_source(before, -1);
        }
        if let Some(volume) = &volume {
            self.count_source(volume, 1);
        }
        // An entry is kept while the claim has a volume or is used.
        if volume.is_none() && users.is_empty() {
            self.claims.remove(key);
        }
        for (slot, uses) in &users {
            let uses = i32::try_from(*uses).unwrap_or(i32::MAX);
            if let Some(before) = &before {
                self.count(*slot, before, -uses, 0);
            }
            if let Some(volume) = &volume {
                self.count(*slot, volume, uses, 0);
            }
        }
        Some(users.into_iter().map(|(slot, _)| slot).collect())
    }

    /// Sets the attachments of a node; `slot` is the node's, if it has one. Returns whether they changed.
    pub(super) fn set_attachments(
        &mut self,
        node: &Str,
        slot: Option<Slot>,
        volumes: Vec<CsiVolume>,
    ) -> bool {
        let volumes: Vec<KnownVolume> = volumes.into_iter().map(KnownVolume::new).collect();
        let before = if volumes.is_empty() {
            self.attachments.remove(node)
        } else {
            self.attachments.insert(node.clone(), volumes.clone())
        };
        let before = before.unwrap_or_default();
        if before == volumes {
            return false;
        }
        if let Some(slot) = slot {
            for volume in &before {
                self.count(slot, volume, 0, -1);
            }
            for volume in &volumes {
                self.count(slot, volume, 0, 1);
            }
        }
        true
    }

    /// Sets the CSI drivers of a node, each with its limit. Returns whether they changed.
    pub(super) fn set_drivers(&mut self, node: &Str, drivers: Vec<(Str, Option<i64>)>) -> bool {
        let before = if drivers.is_empty() {
            self.drivers.remove(node)
        } else {
            self.drivers.insert(node.clone(), drivers.clone())
        };
        let before = before.unwrap_or_default();
        for (driver, _) in drivers.iter().filter(|(_, limit)| limit.is_some()) {
            *self.limited.entry(driver.clone()).or_default() += 1;
        }
        for (driver, _) in before.iter().filter(|(_, limit)| limit.is_some()) {
            match self.limited.get_mut(driver) {
                Some(nodes) if *nodes > 1 => *nodes -= 1,
                _ => drop(self.limited.remove(driver)),
            }
        }
        before != drivers
    }

    // --- questions -----------------------------------------------------------------------------------------

    /// See [`NodeView::volume_limit`](super::NodeView::volume_limit).
    pub(super) fn limit(&self, node: &str, driver: &str) -> Option<i64> {
        let drivers = self.drivers.get(node)?;
        let found = drivers.iter().find(|(name, _)| name == driver);
        found.and_then(|(_, limit)| *limit)
    }

    /// See [`NodeView::has_csi_driver`](super::NodeView::has_csi_driver).
    pub(super) fn has_driver(&self, node: &str, driver: &str) -> bool {
        let drivers = self.drivers.get(node);
        drivers.is_some_and(|drivers| drivers.iter().any(|(name, _)| name == driver))
    }

    /// See [`NodeView::has_csi_drivers`](super::NodeView::has_csi_drivers).
    pub(super) fn has_drivers(&self, node: &str) -> bool {
        self.drivers.contains_key(node)
    }

    /// Returns whether any node, known or not, has a limit for the volumes of a CSI driver.
    pub(crate) fn has_limit(&self, driver: &str) -> bool {
        self.limited.contains_key(driver)
    }

    /// The number of claims for the CSI volume plus the number of its uses by pods on nodes.
    pub(crate) fn sources(&self, volume: &CsiVolume) -> u32 {
        self.sources.get(volume).copied().unwrap_or(0)
    }

    /// See [`NodeView::attached_volumes`](super::NodeView::attached_volumes).
    pub(super) fn attached(&self, slot: Slot, driver: &str) -> usize {
        let volumes = self.by_slot.get(slot.index());
        let of_driver = volumes.and_then(|volumes| volumes.by_driver.get(driver));
        of_driver.copied().unwrap_or(0)
    }

    /// See [`NodeView::uses_volume`](super::NodeView::uses_volume).
    pub(super) fn uses(&self, slot: Slot, volume: &CsiVolume) -> bool {
        let volumes = self.by_slot.get(slot.index());
        let counts = volumes.and_then(|volumes| volumes.counts.get(volume));
        counts.is_some_and(|counts| counts.uses > 0)
    }

    /// The nodes, known or not, with pods that use the claim.
    pub(super) fn users(&self, key: &ClaimKey) -> impl Iterator<Item = Slot> {
        let claim = self.claims.get(key);
        let users = claim.map_or(&[][..], |claim| &claim.users);
        users.iter().map(|(slot, _)| *slot)
    }
}
