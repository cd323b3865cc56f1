//! Judges the devices that a scheduler chooses for claims.

use super::{Checker, Violation};
use crate::rules::device_faults;
use berth_api::devices::AllocationResult;
use berth_api::{ResourceClaim, Str};
use std::sync::Arc;

/// The key of a decision.
fn key_of(claim: &ResourceClaim) -> Str {
    let meta = &claim.metadata;
    if meta.uid.is_empty() {
        meta.name.clone()
    } else {
        meta.uid.clone()
    }
}

impl Checker {
    /// All claims that the scheduler shows with devices that the API does not show.
    ///
    /// # Errors
    /// When a newly chosen device is allocated to another claim, or must not be allocated to this claim.
    pub fn devices_chosen(&mut self, assumed: &[Arc<ResourceClaim>]) -> Result<u64, Violation> {
        let known = std::mem::take(&mut self.devices);
        let mut new = Vec::new();
        for claim in assumed {
            let Some(allocation) = &claim.status.allocation else {
                continue;
            };
            // A claim that was still to be created has a UID now.
            let earlier = known
                .get(&key_of(claim))
                .or(known.get(&claim.metadata.name));
            // The time of the allocation is set when it is written.
            if earlier.is_some_and(|earlier| earlier.devices == allocation.devices) {
                self.devices.insert(key_of(claim), allocation.clone());
            } else {
                new.push((claim, allocation))
            }
        }
        let count = new.len() as u64;
        for (claim, allocation) in new {
            self.check_devices(claim, allocation)?;
            self.devices.insert(key_of(claim), allocation.clone());
        }
        Ok(count)
    }

    fn check_devices(
        &self,
        claim: &ResourceClaim,
        allocation: &AllocationResult,
    ) -> Result<(), Violation> {
        let owner = claim.metadata.controller().map(|owner| &owner.uid);
        let uses = |uid: &&Str| {
            let pod = self.pods.get(*uid);
            pod.is_some_and(|pod| {
                let mut names = crate::rules::claim_names(pod).flatten();
                let is_named = names.any(|name| *name == claim.metadata.name)
                    && *pod.namespace() == claim.metadata.namespace;
                is_named || owner == Some(pod.uid())
            })
        };
        let placed = self.placed.iter();
        let nodes = placed.filter(|(uid, _)| uses(uid));
        let nodes: Vec<_> = nodes
            .filter_map(|(_, placement)| self.nodes.get(&placement.node))
            .collect();
        let mut wrong = None;
        for node in &nodes {
            wrong = device_faults(&self.scene(), claim, allocation, node);
            if wrong.is_none() {
                return Ok(());
            }
        }
        match wrong {
            None => Ok(()),
            Some((device, problem)) => Err(Violation::WrongDevice {
                claim: claim.metadata.name.clone(),
                device,
                problem,
            }),
        }
    }
}
