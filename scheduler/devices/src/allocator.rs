//! Allocates the devices of claims on nodes: searches, and turns what a search finds into allocations.

mod shared;

use crate::budget::SearchBudget;
use crate::claims::ClaimRequests;
use crate::error::AllocateError;
use crate::inventory::Inventory;
use crate::location::At;
use crate::pool::NodePool;
use crate::search::{DeviceSearch, RequestSurvey};
use crate::target::TargetNode;
use crate::{AllocatorFeatures, result};
use berth_api::devices::AllocationResult;

/// Allocates devices on nodes.
#[derive(Debug, Clone, Copy)]
pub struct Allocator<'i> {
    inventory: &'i Inventory,
    features: AllocatorFeatures,
}

impl<'i> Allocator<'i> {
    /// An allocator of these devices.
    pub fn new(inventory: &'i Inventory, features: AllocatorFeatures) -> Self {
        Self {
            inventory,
            features,
        }
    }

    /// Allocates devices to all claims together, one allocation per claim; `None` if the node does not have them. The
    /// devices are not marked as allocated: see [`Inventory::set_allocation`]. Identities of shares are left empty.
    ///
    /// # Errors
    /// The search did not end within the budget, or the input is wrong.
    pub fn allocate(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut SearchBudget,
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let Some(solution) = self.search(node, claims, budget)? else {
            return Ok(None);
        };
        let claims = (0..claims.len()).map(|index| result::of_claim(&solution, index));
        claims
            .collect::<Result<_, String>>()
            .map(Some)
            .map_err(AllocateError::Failed)
    }

    /// Returns whether [`Self::allocate`] would allocate devices, and how much the alternatives that it would choose
    /// are preferred: for each list [`crate::ALTERNATIVES_MAX`] minus the index of the alternative.
    ///
    /// # Errors
    /// Those of [`Self::allocate`].
    pub fn preference(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut SearchBudget,
    ) -> Result<Option<i64>, AllocateError> {
        let solution = self.search(node, claims, budget)?;
        Ok(solution.map(|solution| solution.preference()))
    }

    /// The devices of a node for each alternative of each request. Nothing is allocated.
    ///
    /// # Errors
    /// The budget is used up, or the claims or what drivers publish are wrong.
    pub fn survey(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut SearchBudget,
    ) -> Result<Vec<RequestSurvey>, AllocateError> {
        let mut search = self.on(node, claims, budget)?;
        let mut surveys = Vec::new();
        for (claim, requests) in claims.iter().enumerate() {
            for (request, prepared) in requests.requests.iter().enumerate() {
                if let Some(problem) = &prepared.problem {
                    return Err(AllocateError::Failed(problem.clone()));
                }
                for alternative in 0..prepared.alternatives.len() {
                    let at = At {
                        claim,
                        request,
                        alternative,
                        device: 0,
                    };
                    surveys.push(search.survey(at)?);
                }
            }
        }
        Ok(surveys)
    }

    fn search<'a, 'b>(
        &self,
        node: TargetNode<'a>,
        claims: &'a [&'a ClaimRequests],
        budget: &'b mut SearchBudget,
    ) -> Result<Option<DeviceSearch<'a, 'b>>, AllocateError>
    where
        'i: 'a,
    {
        self.on(node, claims, budget)?.run()
    }

    /// A search on a node that has not begun.
    fn on<'a, 'b>(
        &self,
        node: TargetNode<'a>,
        claims: &'a [&'a ClaimRequests],
        budget: &'b mut SearchBudget,
    ) -> Result<DeviceSearch<'a, 'b>, AllocateError>
    where
        'i: 'a,
    {
        let pools = || self.inventory.pools_for(node, self.features);
        self.start(node, pools, claims, budget)
    }

    /// A search that has not begun, in the pools that the node can see.
    fn start<'a, 'b>(
        &self,
        target: TargetNode<'a>,
        pools: impl FnOnce() -> Result<Vec<NodePool<'i>>, String>,
        claims: &'a [&'a ClaimRequests],
        budget: &'b mut SearchBudget,
    ) -> Result<DeviceSearch<'a, 'b>, AllocateError>
    where
        'i: 'a,
    {
        // Also keeps a budget that is used up from gathering pools.
        budget.step()?;
        let pools = pools()
            .map_err(|why| AllocateError::Failed(format!("gather pool information: {why}")))?;
        budget.steps(pools.iter().map(NodePool::len).sum())?;
        Ok(DeviceSearch::new(
            self.features,
            target,
            pools,
            claims,
            budget,
        ))
    }
}
