//! The kinds that are served, for controllers that watch all of them: CustomResourceDefinitions add and remove kinds.

use super::runtime::CacheDifference;
use berth_objects::access::{Access, GroupResource, KindInfo, gr};
use rustc_hash::FxHashSet;
use std::time::Duration;

pub(super) const DEFINITIONS: GroupResource =
    gr("apiextensions.k8s.io", "customresourcedefinitions");
/// The kind of a new CustomResourceDefinition is served by then.
pub(super) const SERVED_AFTER: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct ServedKinds {
    /// Selects the relevant kinds.
    filter: fn(&KindInfo) -> bool,
    kinds: Vec<KindInfo>,
    /// Kinds that are not watched yet.
    added: Vec<GroupResource>,
    /// Kinds that are watched and no longer served.
    removed: Vec<GroupResource>,
}

impl ServedKinds {
    pub(super) fn new(api: &dyn Access, filter: fn(&KindInfo) -> bool) -> Self {
        Self {
            filter,
            kinds: api.kinds().into_iter().filter(filter).collect(),
            added: Vec::new(),
            removed: Vec::new(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KindInfo> {
        self.kinds.iter()
    }

    /// Returns whether a change concerns the kinds that are served.
    pub(super) fn concerns(kind: GroupResource, diff: &CacheDifference) -> bool {
        kind == DEFINITIONS && (diff.old.is_some() || diff.new.is_some())
    }

    /// Finds the kinds that CustomResourceDefinitions have added or removed. Returns whether there are any.
    pub(super) fn refresh(&mut self, api: &dyn Access) -> bool {
        let served: Vec<KindInfo> = api.kinds().into_iter().filter(self.filter).collect();
        let names: FxHashSet<GroupResource> = served.iter().map(|k| k.resource).collect();
        let known: FxHashSet<GroupResource> = self.kinds.iter().map(|k| k.resource).collect();
        let new = names.iter().filter(|kind| !known.contains(kind));
        self.added.extend(new.copied());
        // The watch of a kind that is no longer served would be reopened repeatedly.
        let gone = known.iter().filter(|kind| !names.contains(kind));
        self.removed.extend(gone.copied());
        self.kinds = served;
        !self.added.is_empty() || !self.removed.is_empty()
    }

    pub(super) fn take_added(&mut self) -> Vec<GroupResource> {
        std::mem::take(&mut self.added)
    }

    pub(super) fn take_removed(&mut self) -> Vec<GroupResource> {
        std::mem::take(&mut self.removed)
    }
}
