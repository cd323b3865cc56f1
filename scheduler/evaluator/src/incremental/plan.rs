//! The way in which the answers of the plugins of a profile are kept. Determined once for each profile.

use berth_api::Str;
use berth_framework::PodInfo;
use berth_framework::keep::{Domains, Fragment, FragmentVersion, Keep, Kept};
use berth_framework::plugin::Context;
use berth_profile::{PluginId, Profile};
use smallvec::SmallVec;
use std::sync::Arc;

/// The reason why nothing is kept about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unkeepable;

/// A plugin that judges by domains.
pub(super) struct DomainMember {
    pub(super) name: Str,
    pub(super) plugin: Arc<dyn Domains>,
    /// Its place among the filters, if it filters.
    pub(super) filter: Option<usize>,
    /// Its place among the scorers, if it scores.
    pub(super) scorer: Option<usize>,
}

/// The part of a node on which the answers of a plugin depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// The node itself.
    Node,
    /// Its pods as well.
    Pods,
}

/// The plan of a profile.
pub(super) struct Plan {
    /// By plugin, if it judges nodes one by one.
    keeps: Vec<Option<(Group, Arc<dyn Keep>)>>,
    pub(super) domains: Vec<DomainMember>,
    /// The versions of all fragments; `None` if a plugin has none.
    versions: Option<Vec<FragmentVersion>>,
    /// The PreFilter plugins (by their place) that nothing is known about. They neither filter nor score, and run
    /// in every cycle.
    pub(super) unkept: Vec<usize>,
}

impl Plan {
    /// `None` when a plugin judges nodes and does not declare what its answers depend on.
    pub(super) fn new(profile: &Profile) -> Option<Self> {
        let mut plan = Self {
            keeps: vec![None; profile.plugins.len()],
            domains: Vec::new(),
            versions: Some(Vec::new()),
            unkept: Vec::new(),
        };
        // Without scores the first feasible node is taken: nothing to be gained.
        if profile.score.is_empty() {
            return None;
        }
        for (at, extensions) in profile.plugins.iter().enumerate() {
            let is = |id: PluginId| id.index() == at;
            let pre_filter = profile.pre_filter.iter().position(|m| is(m.id));
            let filter = profile.filter.iter().position(|m| is(m.id));
            let pre_score = profile.pre_score.iter().any(|m| is(m.id));
            let scorer = profile.score.iter().position(|s| is(s.member.id));
            if pre_filter.is_none() && filter.is_none() && !pre_score && scorer.is_none() {
                continue;
            }
            if let Some(plugin) = &extensions.domains {
                // Only as a whole does the ledger mean the plugin.
                if pre_filter.is_some() != filter.is_some() || pre_score != scorer.is_some() {
                    return None;
                }
                plan.domains.push(DomainMember {
                    name: Str::new(&extensions.name),
                    plugin: plugin.clone(),
                    filter,
                    scorer,
                });
            } else if let Some(keep) = &extensions.keep {
                let groups = [Group::Node, Group::Pods];
                let group = groups[usize::from(keep.reads_pods())];
                plan.keeps[at] = Some((group, keep.clone()));
            } else if filter.is_none() && !pre_score && scorer.is_none() {
                plan.unkept.extend(pre_filter);
                continue;
            } else {
                return None;
            }
            match (&mut plan.versions, extensions.fragment_version) {
                (Some(versions), Some(version)) => versions.push(version),
                (versions, _) => *versions = None,
            }
        }
        Some(plan)
    }

    /// The plugins of a group.
    pub(super) fn keeps(&self, group: Group) -> impl Iterator<Item = &Arc<dyn Keep>> {
        let keeps = self.keeps.iter().flatten();
        let of_group = keeps.filter(move |(of, _)| *of == group);
        of_group.map(|(_, keep)| keep)
    }

    /// A plugin that judges nodes one by one, with its group.
    pub(super) fn keep(&self, id: PluginId) -> Option<&(Group, Arc<dyn Keep>)> {
        self.keeps.get(id.index())?.as_ref()
    }

    /// The version of all fragments of pods with a [template key](PodInfo::template_key): fragments of one key and one
    /// version are equal. `None` if they must be written for each pod.
    pub(super) fn fragment_version(&self, cx: &Context<'_>) -> Option<u64> {
        // No version decreases, so the sum is the same only if each of them is.
        let versions = self.versions.as_ref()?.iter();
        versions.map(|version| version(cx)).sum()
    }

    /// Writes all fragments of a pod: of the two groups of plugins, and of the ledgers. False when the answers about this
    /// pod cannot be kept.
    pub(super) fn write(
        &self,
        profile: &Profile,
        cx: &Context<'_>,
        pod: &PodInfo,
        fragments: &mut [Fragment; 3],
    ) -> bool {
        for (kind, fragment) in (0_u8..).zip(&mut *fragments) {
            fragment.clear();
            fragment.put(&(&profile.name, kind));
        }
        let [of_node, of_pods, of_ledgers] = fragments;
        // The set of nominations that count depends on it.
        of_pods.put(&pod.pod.priority());
        let of_keep = |keep: &Arc<dyn Keep>, fragment: &mut _| keep.fragment(cx, pod, fragment);
        parts(of_node, self.keeps(Group::Node), of_keep)
            && parts(of_pods, self.keeps(Group::Pods), of_keep)
            && parts(of_ledgers, self.domains.iter(), |member, fragment| {
                member.plugin.fragment(cx, pod, fragment)
            })
    }
}

/// Writes the parts of several plugins, and then their lengths, so that bytes of one part never pass for bytes of another.
fn parts<T>(
    fragment: &mut Fragment,
    plugins: impl Iterator<Item = T>,
    write: impl Fn(T, &mut Fragment) -> Kept,
) -> bool {
    let mut ends: SmallVec<[usize; 16]> = SmallVec::new();
    for plugin in plugins {
        if write(plugin, fragment) == Kept::Never {
            return false;
        }
        ends.push(fragment.as_bytes().len());
    }
    ends.iter().for_each(|end| fragment.put(end));
    true
}
