//! Searches for the devices that several nodes can use.

use super::{AllocateError, Allocator};
use crate::budget::SearchBudget;
use crate::claims::{Alternative, ClaimRequests};
use crate::inventory::SharedView;
use crate::pool::PoolView;
use crate::slice::PreparedSlice;
use crate::target::TargetNode;
use berth_api::Labels;

impl Allocator<'_> {
    /// The view of a node for claims; `None` if the node has devices of its own that the claims may select.
    pub fn view(
        &self,
        node: TargetNode<'_>,
        claims: &[&ClaimRequests],
        budget: &mut SearchBudget,
    ) -> Option<SharedView> {
        self.inventory.shared_view(node, self.features, |pool| {
            let is_usable = matches!(pool.view(), PoolView::Usable(_));
            is_usable
                && !pool
                    .slices()
                    .any(|slice| selects_any(claims, slice, budget))
        })
    }

    /// [`Self::preference`] on all nodes with this view.
    ///
    /// # Errors
    /// The errors of [`Self::allocate`].
    pub fn preference_in(
        &self,
        view: &SharedView,
        claims: &[&ClaimRequests],
        budget: &mut SearchBudget,
    ) -> Result<Option<i64>, AllocateError> {
        // The view has been selected by the labels already.
        let labels = Labels::default();
        let target = TargetNode {
            name: "",
            labels: &labels,
            skips_operations: view.skips_operations,
        };
        let pools = || self.inventory.pools_in(view, self.features);
        let solution = self.start(target, pools, claims, budget)?.run()?;
        Ok(solution.map(|solution| solution.preference()))
    }

    /// Returns whether the claims select any device that several nodes can use, allocated or not. If not, no allocation
    /// of such a device changes the devices that a node has for them.
    pub fn selects_shared(&self, claims: &[&ClaimRequests], budget: &mut SearchBudget) -> bool {
        let mut slices = self.inventory.shared_slices();
        slices.any(|slice| selects_any(claims, slice, budget))
    }
}

/// Returns whether claims may select some of the devices of a slice.
fn selects_any(
    claims: &[&ClaimRequests],
    slice: &PreparedSlice,
    budget: &mut SearchBudget,
) -> bool {
    (0..slice.devices().len()).any(|device| {
        let requests = claims.iter().flat_map(|claim| &claim.requests);
        let mut alternatives = requests.flat_map(|request| &request.alternatives);
        alternatives.any(|alternative| selects(alternative, slice, device, budget))
    })
}

/// Returns whether an alternative may select a device. If a selector fails, the search has to report it.
fn selects(
    alternative: &Alternative,
    slice: &PreparedSlice,
    device: usize,
    budget: &mut SearchBudget,
) -> bool {
    let of_class = alternative.class_selectors.iter();
    let mut selectors = of_class.chain(&alternative.selectors);
    selectors.all(|selector| match selector {
        Ok(selector) => !matches!(selector.matches(slice, device, budget), Ok(false)),
        Err(_) => true,
    })
}
