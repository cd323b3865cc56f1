//! Searches for the devices of nodes. Nodes that can use the same devices for the claims share one search, and its result
//! is kept until devices that several nodes can use are allocated or freed.

use super::args::DynamicResourcesArgs;
use super::filter;
use super::state::ClaimsState;
use berth_devices::{AllocateError, ClaimRequests, SharedView};
use berth_framework::allocator::{allocator, target};
use berth_framework::keep::FollowOutcome;
use berth_framework::plugin::Context;
use berth_framework::{NodeView, Slot};
use rustc_hash::FxHashMap;

/// The preference of the alternatives; `None` if the devices are not available.
type SearchResult = Result<Option<i64>, AllocateError>;

/// The results of searches that several nodes share.
#[derive(Default)]
pub(super) struct SharedResults {
    /// The versions of the shared devices and of their allocations to which the results belong.
    versions: Option<(u64, u64)>,
    /// By view, in the order in which the views were found.
    results: Vec<(SharedView, SearchResult)>,
    places: FxHashMap<SharedView, usize>,
    /// The search that was made last for a node, by slot.
    searches: Vec<NodeSearch>,
    /// Whether the claims select devices that several nodes can use; computed on demand.
    selects_shared: Option<bool>,
}

/// The search that gave the answer about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum NodeSearch {
    /// There was none, because another reason was found first.
    #[default]
    None,
    /// A search shared with other nodes; the index of its result.
    Shared(usize),
    /// One for the node alone.
    Own,
}

impl SharedResults {
    fn note(&mut self, slot: Slot, search: NodeSearch) {
        let at = slot.index();
        if self.searches.len() <= at {
            self.searches.resize(at + 1, NodeSearch::None);
        }
        self.searches[at] = search;
    }

    fn add(&mut self, view: SharedView, result: SearchResult) -> usize {
        let place = self.results.len();
        self.places.insert(view.clone(), place);
        self.results.push((view, result));
        place
    }
}

fn versions(cx: &Context<'_>) -> (u64, u64) {
    let devices = cx.cluster.devices().inventory();
    let allocations = devices.shared_allocations_version();
    (devices.shared_slices_version(), allocations)
}

impl ClaimsState {
    /// Searches the devices of a node for all claims without an allocation, and for the claim for extended resources.
    pub(super) fn search(
        &self,
        args: &DynamicResourcesArgs,
        cx: &Context<'_>,
        extended: Option<&ClaimRequests>,
        node: NodeView<'_>,
    ) -> SearchResult {
        let target = target(node);
        let shared = &mut *self.shared.borrow_mut();
        let current = versions(cx);
        // Results from before a change are updated by `follow`, or not used any more.
        let is_current = *shared.versions.get_or_insert(current) == current;
        let allocator = allocator(cx.cluster, cx.features);
        let requests = self.requests(extended);
        let view = match extended {
            None if is_current => {
                filter::search(args, cx, |budget| allocator.view(target, &requests, budget))
            }
            // The requests for extended resources differ between nodes.
            None | Some(_) => None,
        };
        let Some(view) = view else {
            shared.note(node.slot(), NodeSearch::Own);
            return filter::search(args, cx, |budget| {
                allocator.preference(target, &requests, budget)
            });
        };
        let known = shared.places.get(&view).copied();
        if let Some(place) = known {
            shared.note(node.slot(), NodeSearch::Shared(place));
            return shared.results[place].1.clone();
        }
        let result = self.search_in(args, cx, &view);
        // Another attempt may have more budget.
        let search = match result {
            Err(AllocateError::OutOfSteps) => NodeSearch::Own,
            _ => NodeSearch::Shared(shared.add(view, result.clone())),
        };
        shared.note(node.slot(), search);
        result
    }

    /// Searches the devices that the nodes with a view see.
    fn search_in(
        &self,
        args: &DynamicResourcesArgs,
        cx: &Context<'_>,
        view: &SharedView,
    ) -> SearchResult {
        let allocator = allocator(cx.cluster, cx.features);
        let requests = self.requests(None);
        filter::search(args, cx, |budget| {
            allocator.preference_in(view, &requests, budget)
        })
    }

    /// Returns whether an allocation of devices that several nodes can use may change the answer about a node that has
    /// others as well.
    fn selects_shared(&self, args: &DynamicResourcesArgs, cx: &Context<'_>) -> bool {
        let allocator = allocator(cx.cluster, cx.features);
        let requests = self.requests(None);
        self.extended.is_some()
            || filter::search(args, cx, |budget| {
                allocator.selects_shared(&requests, budget)
            })
    }

    /// Tracks the allocations of devices that several nodes can use. One search per view checks whether the answer for
    /// its nodes has changed; while devices are left, it has not. Nodes with devices of their own are searched again
    /// only if the claims select shared devices.
    pub(super) fn follow(
        &mut self,
        args: &DynamicResourcesArgs,
        cx: &Context<'_>,
        changed: &mut Vec<Slot>,
    ) -> FollowOutcome {
        if self.requests.is_empty() && self.extended.is_none() {
            return FollowOutcome::Nothing;
        }
        let current = versions(cx);
        match self.shared.get_mut().versions {
            None => return FollowOutcome::Changes,
            Some(known) if known == current => return FollowOutcome::Same,
            // The views themselves have changed.
            Some((slices, _)) if slices != current.0 => return FollowOutcome::Lost,
            Some(_) => {}
        }
        let mut shared = std::mem::take(self.shared.get_mut());
        shared.versions = Some(current);
        let mut differs = Vec::new();
        for (place, (view, result)) in shared.results.iter_mut().enumerate() {
            let now = self.search_in(args, cx, view);
            if matches!(now, Err(AllocateError::OutOfSteps)) {
                return FollowOutcome::Lost;
            }
            if *result != now {
                *result = now;
                differs.push(place);
            }
        }
        let selects_shared = *shared
            .selects_shared
            .get_or_insert_with(|| self.selects_shared(args, cx));
        if selects_shared || !differs.is_empty() {
            let searches = shared.searches.iter().enumerate();
            let differing = searches.filter(|(_, search)| match search {
                NodeSearch::None => false,
                NodeSearch::Shared(place) => differs.contains(place),
                NodeSearch::Own => selects_shared,
            });
            changed.extend(differing.map(|(at, _)| Slot::from_index(at as u32)));
        }
        *self.shared.get_mut() = shared;
        FollowOutcome::Changes
    }
}
