//! The indexes of waiting pods: by profile and rejecting plugin (for gated pods by the gating plugin first), so that an
//! event finds the pods that it can help without a walk of all pods; and by the keys that pods wait for, for
//! plugins that declare keys ([`WaitIndex`]).

use super::entry::{EntryId, QueuedPodInfo};
use super::hooks::{ProfileId, QueueProfile};
use super::wait_index::WaitIndex;
use berth_api::Str;
use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::BTreeSet;

type Ids = IndexSet<EntryId, FxBuildHasher>;

/// Pods of one profile, by each rejecting plugin. A pod without a rejecting plugin has the empty name: any event can
/// help it.
#[derive(Debug, Default)]
struct ByRejector(FxHashMap<Str, Ids>);

impl ByRejector {
    fn change(&mut self, plugin: &Str, id: EntryId, add: bool) {
        if add {
            let added = self.0.entry(plugin.clone()).or_default().insert(id);
            debug_assert!(added, "a pod is indexed once");
            return;
        }
        let Some(ids) = self.0.get_mut(plugin) else {
            debug_assert!(false, "an indexed pod is found again");
            return;
        };
        let removed = ids.swap_remove(&id);
        debug_assert!(removed, "an indexed pod is found again");
        if ids.is_empty() {
            self.0.remove(plugin);
        }
    }
}

type ByProfile = FxHashMap<Option<ProfileId>, ByRejector>;

/// The pods that wait for an event.
#[derive(Debug, Default)]
pub(super) struct Pool {
    waiting: ByProfile,
    gated: FxHashMap<Str, ByProfile>,
    /// The pods by the keys that they wait for.
    pub(super) by_wait: WaitIndex,
}

impl Pool {
    /// Adds a pod, as gated if it has a gating plugin.
    pub(super) fn insert(
        &mut self,
        id: EntryId,
        profile: Option<(ProfileId, &QueueProfile)>,
        info: &QueuedPodInfo,
    ) {
        self.change(id, profile.map(|(profile, _)| profile), info, true);
        self.by_wait.insert(id, profile, info);
    }

    /// Removes a pod. Its plugins must not have changed since it was added.
    pub(super) fn remove(&mut self, id: EntryId, profile: Option<ProfileId>, info: &QueuedPodInfo) {
        self.change(id, profile, info, false);
        self.by_wait.remove(id);
    }

    fn change(&mut self, id: EntryId, profile: Option<ProfileId>, info: &QueuedPodInfo, add: bool) {
        let by_profile = match info.gating_plugin() {
            None => &mut self.waiting,
            Some(gate) => self.gated.entry(gate.clone()).or_default(),
        };
        let by_rejector = by_profile.entry(profile).or_default();
        let mut any = false;
        for plugin in info.rejectors() {
            by_rejector.change(plugin, id, add);
            any = true;
        }
        if !any {
            by_rejector.change(&Str::default(), id, add);
        }
    }

    /// The pods that `plugin` (or, for the empty name, no plugin) rejected, behind `gate` or without a gate.
    pub(super) fn rejected_by(
        &self,
        gate: Option<&str>,
        profile: Option<ProfileId>,
        plugin: &str,
    ) -> impl Iterator<Item = EntryId> + '_ {
        self.of(gate, profile)
            .and_then(|by_rejector| by_rejector.0.get(plugin))
            .into_iter()
            .flat_map(|ids| ids.iter().copied())
    }

    /// All pods of a profile behind `gate` (or without a gate); a pod occurs once per rejector.
    pub(super) fn all(
        &self,
        gate: Option<&str>,
        profile: Option<ProfileId>,
    ) -> impl Iterator<Item = EntryId> + '_ {
        let mut sets: Vec<(&Str, &Ids)> = self
            .of(gate, profile)
            .into_iter()
            .flat_map(|by_rejector| &by_rejector.0)
            .collect();
        sets.sort_unstable_by_key(|(plugin, _)| *plugin);
        sets.into_iter().flat_map(|(_, ids)| ids.iter().copied())
    }

    /// Returns whether `plugin` rejected a waiting pod of the profile.
    pub(super) fn has_rejected_by(&self, profile: ProfileId, plugin: &str) -> bool {
        let has = |by_profile: &ByProfile| {
            by_profile
                .get(&Some(profile))
                .is_some_and(|by_rejector| by_rejector.0.contains_key(plugin))
        };
        has(&self.waiting) || self.gated.values().any(has)
    }

    /// Returns whether any pod of the profile is behind `gate` (or without a gate).
    pub(super) fn has(&self, gate: Option<&str>, profile: Option<ProfileId>) -> bool {
        self.of(gate, profile)
            .is_some_and(|by_rejector| !by_rejector.0.is_empty())
    }

    fn of(&self, gate: Option<&str>, profile: Option<ProfileId>) -> Option<&ByRejector> {
        let by_profile = match gate {
            None => &self.waiting,
            Some(gate) => self.gated.get(gate)?,
        };
        by_profile.get(&profile)
    }

    /// Every index entry of a pod.
    fn links(&self) -> BTreeSet<(Option<&Str>, Option<ProfileId>, &Str, EntryId)> {
        let gated = self.gated.iter().map(|(gate, of)| (Some(gate), of));
        let mut links = BTreeSet::new();
        for (gate, by_profile) in gated.chain([(None, &self.waiting)]) {
            for (profile, by_rejector) in by_profile {
                for (plugin, ids) in &by_rejector.0 {
                    links.extend(ids.iter().map(|id| (gate, *profile, plugin, *id)));
                }
            }
        }
        links
    }

    /// Checks that the index is equal to a new index of the same pods.
    ///
    /// # Errors
    /// The first disagreement.
    pub(super) fn check(&self, expected: &Self) -> Result<(), String> {
        let (links, expected_links) = (self.links(), expected.links());
        if let Some(link) = links.symmetric_difference(&expected_links).next() {
            let is_indexed = links.contains(link);
            return Err(format!("index entry {link:?} exists: {is_indexed}"));
        }
        self.by_wait.check(&expected.by_wait)
    }
}
