//! The pods of the cluster, indexed by resource claim, volume, and topology key of required anti-affinity.
//!
//! An event of a claim finds its pods without a walk over all pods (KEP-6132). The index is updated with every pod that
//! is set or removed, so it is as current as the objects that a hint reads. Pods without claims are not in it.

use super::{ClaimKey, GroupKey};
use crate::features::{Feature, FeatureGates};
use berth_api::pod::PodAffinityTerm;
use berth_api::storage::CsiVolume;
use berth_api::volumes::PodClaim;
use berth_api::{Pod, Str};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::{Bound, Deref};
use std::sync::Arc;

/// The source of a volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum VolumeSource {
    /// A claim.
    Claim(ClaimKey),
    /// An in-tree volume that is migrated to a CSI driver.
    Inline(CsiVolume),
}

fn volume_sources(pod: &Pod) -> impl Iterator<Item = VolumeSource> {
    let volumes = pod.spec.volumes.iter();
    volumes.filter_map(|volume| match PodClaim::of(pod, volume) {
        Some(claim) => Some(VolumeSource::Claim((pod.namespace().clone(), claim.name))),
        None => volume.migrated().map(VolumeSource::Inline),
    })
}

/// Pods by UID, read like a map.
#[derive(Debug, Clone, Default)]
pub struct ClusterPods {
    by_uid: FxHashMap<Str, Arc<Pod>>,
    /// Namespace and name of a claim, and the UID of a pod that uses it.
    claim_users: BTreeSet<(Str, Str, Str)>,
    /// The number of times that pods, on nodes or not, name each source of volumes.
    volume_users: FxHashMap<VolumeSource, u32>,
    /// The number of required anti-affinity terms of pods that have each topology key.
    anti_affinity_topologies: FxHashMap<Str, usize>,
    /// The members of pod groups, if groups are in use.
    members: Option<Box<AllGroupMembers>>,
}

/// The members of all pod groups.
#[derive(Debug, Clone, Default)]
struct AllGroupMembers {
    by_group: FxHashMap<GroupKey, GroupMembers>,
    /// The scheduler names whose pending pods count.
    schedulers: Vec<Str>,
}

/// The members of a pod group by UID, each in one state.
#[derive(Debug, Clone, Default)]
pub struct GroupMembers {
    unscheduled: FxHashSet<Str>,
    scheduled: FxHashSet<Str>,
}

impl GroupMembers {
    /// The number of members, in every state.
    pub fn known(&self) -> usize {
        self.unscheduled.len() + self.scheduled.len()
    }

    /// The members that wait for a node.
    pub fn unscheduled(&self) -> &FxHashSet<Str> {
        &self.unscheduled
    }

    /// The members with a node, assumed or bound.
    pub fn scheduled(&self) -> &FxHashSet<Str> {
        &self.scheduled
    }

    fn of_state(&mut self, is_scheduled: bool) -> &mut FxHashSet<Str> {
        if is_scheduled {
            &mut self.scheduled
        } else {
            &mut self.unscheduled
        }
    }
}

impl AllGroupMembers {
    /// The group of a pod, and whether the pod has a node. Pending pods are not members if they are terminating,
    /// because they will not run, or if they belong to another scheduler.
    fn of(&self, pod: &Pod) -> Option<(GroupKey, bool)> {
        let key = GroupKey::of_pod(pod)?;
        let is_scheduled = pod.is_assigned();
        let counts = is_scheduled
            || !pod.is_terminating() && self.schedulers.contains(&pod.spec.scheduler_name);
        counts.then_some((key, is_scheduled))
    }

    fn replace(&mut self, uid: &Str, old: Option<&Pod>, new: Option<&Pod>) {
        let before = old.and_then(|pod| self.of(pod));
        let after = new.and_then(|pod| self.of(pod));
        if before == after {
            return;
        }
        if let Some((key, is_scheduled)) = before
            && let Some(members) = self.by_group.get_mut(&key)
        {
            members.of_state(is_scheduled).remove(uid);
            if members.known() == 0 {
                self.by_group.remove(&key);
            }
        }
        if let Some((key, is_scheduled)) = after {
            let members = self.by_group.entry(key).or_default();
            members.of_state(is_scheduled).insert(uid.clone());
        }
    }
}

impl Deref for ClusterPods {
    type Target = FxHashMap<Str, Arc<Pod>>;

    fn deref(&self) -> &Self::Target {
        &self.by_uid
    }
}

/// The names of the resource claims that a pod uses, in its namespace: claims named in its spec, claims created for it
/// from templates, and the claim for its extended resources. A name may be listed twice.
pub fn claim_names(pod: &Pod) -> impl Iterator<Item = &Str> {
    let named = pod.spec.resource_claims.iter();
    let made = pod.status.resource_claim_statuses.iter();
    let extended = pod.status.extended_resource_claim_status.iter();
    named
        .filter_map(|claim| claim.resource_claim_name.as_ref())
        .chain(made.filter_map(|claim| claim.resource_claim_name.as_ref()))
        .chain(extended.map(|claim| &claim.resource_claim_name))
        .filter(|name| !name.is_empty())
}

/// Returns whether both certainly use the same claims, because they share the fields.
fn use_the_same(old: &Pod, new: &Pod) -> bool {
    old.metadata.namespace == new.metadata.namespace
        && old.spec.resource_claims == new.spec.resource_claims
        && old.status.resource_claim_statuses == new.status.resource_claim_statuses
        && old.status.extended_resource_claim_status == new.status.extended_resource_claim_status
}

/// The required anti-affinity terms of a pod.
fn anti_affinity(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref();
    let terms = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    terms.map_or(&[], |terms| &terms.required)
}

impl ClusterPods {
    /// Counts the members of groups if groups are in use. Before there are pods.
    pub(super) fn follow(&mut self, features: &FeatureGates) {
        let in_use = features.enabled(Feature::GenericWorkload);
        self.members = in_use.then(Box::default);
    }

    /// The pod group in which a pod is counted as a member.
    pub(super) fn group_counting(&self, pod: &Pod) -> Option<GroupKey> {
        let (group, _) = self.members.as_ref()?.of(pod)?;
        Some(group)
    }

    /// Returns whether groups are in use.
    pub(super) fn follows_groups(&self) -> bool {
        self.members.is_some()
    }

    /// Sets the schedulers whose pending pods count as members of their groups. Walks all pods.
    pub fn count_members_of(&mut self, schedulers: Vec<Str>) {
        if let Some(members) = &mut self.members {
            members.schedulers = schedulers;
            members.by_group.clear();
            for (uid, pod) in &self.by_uid {
                members.replace(uid, None, Some(pod));
            }
        }
    }

    /// The members of a pod group, if it has any. The group need not exist.
    pub fn members(&self, group: &GroupKey) -> Option<&GroupMembers> {
        self.members.as_ref()?.by_group.get(group)
    }

    /// Sets a pod under its UID. Returns the previous version.
    pub fn insert(&mut self, uid: Str, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let before = self.by_uid.insert(uid.clone(), pod.clone());
        self.replace_topologies(before.as_deref(), Some(&pod));
        self.replace_volumes(before.as_deref(), Some(&pod));
        if let Some(members) = &mut self.members {
            members.replace(pod.uid(), before.as_deref(), Some(&pod));
        }
        if before.as_ref().is_some_and(|old| use_the_same(old, &pod)) {
            return before;
        }
        if let Some(old) = &before {
            self.forget_claims(&uid, old);
        }
        for claim in claim_names(&pod) {
            let entry = (pod.namespace().clone(), claim.clone(), uid.clone());
            self.claim_users.insert(entry);
        }
        before
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let (uid, pod) = self.by_uid.remove_entry(uid)?;
        self.replace_topologies(Some(&pod), None);
        self.replace_volumes(Some(&pod), None);
        if let Some(members) = &mut self.members {
            members.replace(&uid, Some(&pod), None);
        }
        self.forget_claims(&uid, &pod);
        Some(pod)
    }

    fn replace_topologies(&mut self, old: Option<&Pod>, new: Option<&Pod>) {
        for term in new.map_or(&[][..], anti_affinity) {
            let terms = self
                .anti_affinity_topologies
                .entry(term.topology_key.clone());
            *terms.or_default() += 1;
        }
        for term in old.map_or(&[][..], anti_affinity) {
            if let Some(terms) = self.anti_affinity_topologies.get_mut(&term.topology_key) {
                *terms -= 1;
                if *terms == 0 {
                    self.anti_affinity_topologies.remove(&term.topology_key);
                }
            }
        }
    }

    fn replace_volumes(&mut self, old: Option<&Pod>, new: Option<&Pod>) {
        let volumes = |pod: Option<&Pod>| pod.is_some_and(|pod| !pod.spec.volumes.is_empty());
        if !volumes(old) && !volumes(new) {
            return;
        }
        for source in new.into_iter().flat_map(volume_sources) {
            *self.volume_users.entry(source).or_default() += 1;
        }
        for source in old.into_iter().flat_map(volume_sources) {
            if let Some(users) = self.volume_users.get_mut(&source) {
                *users -= 1;
                if *users == 0 {
                    self.volume_users.remove(&source);
                }
            }
        }
    }

    /// The number of times that pods, on nodes or not, name a source of volumes.
    pub(crate) fn volume_users(&self, source: &VolumeSource) -> u32 {
        self.volume_users.get(source).copied().unwrap_or(0)
    }

    /// Returns whether the label is the topology key of a required anti-affinity term of some pod.
    pub fn is_anti_affinity_topology(&self, label: &str) -> bool {
        self.anti_affinity_topologies.contains_key(label)
    }

    fn forget_claims(&mut self, uid: &Str, pod: &Pod) {
        let claims: SmallVec<[&Str; 4]> = claim_names(pod).collect();
        for claim in claims {
            let entry = (pod.namespace().clone(), claim.clone(), uid.clone());
            self.claim_users.remove(&entry);
        }
    }

    /// The pods that use the resource claim, as [`claim_names`] has it; each once.
    pub fn using_claim(&self, namespace: &Str, claim: &Str) -> impl Iterator<Item = &Arc<Pod>> {
        let first = (namespace.clone(), claim.clone(), Str::default());
        let from_first = (Bound::Included(first), Bound::Unbounded);
        self.claim_users
            .range(from_first)
            .take_while(move |(its_namespace, name, _)| its_namespace == namespace && name == claim)
            .filter_map(|(_, _, uid)| self.by_uid.get(uid))
    }

    /// The number of uses of claims that are known.
    pub fn claim_uses(&self) -> usize {
        self.claim_users.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, namespace: &str, spec: &str, status: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"uid-{name}"}},
                "spec":{{"resourceClaims":{spec}}},"status":{status}}}"#
        );
        Arc::new(serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}")))
    }

    fn set(pods: &mut ClusterPods, pod: Arc<Pod>) {
        pods.insert(pod.uid().clone(), pod);
    }

    fn users(pods: &ClusterPods, namespace: &str, claim: &str) -> Vec<String> {
        let (namespace, claim) = (Str::new(namespace), Str::new(claim));
        let users = pods.using_claim(&namespace, &claim);
        users.map(|pod| pod.name().to_string()).collect()
    }

    const NAMED: &str = r#"[{"name":"a","resourceClaimName":"shared"}]"#;
    const MADE: &str = r#"[{"name":"a","resourceClaimTemplateName":"t"}]"#;

    /// Q-96: a claim is found by its name, by the name that was generated for the pod, and for extended resources.
    #[test]
    fn claims_find_the_pods_that_use_them() {
        let mut pods = ClusterPods::default();
        set(&mut pods, pod("named", "ns", NAMED, "{}"));
        set(&mut pods, pod("elsewhere", "other", NAMED, "{}"));
        let made = r#"{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"made-1"}]}"#;
        set(&mut pods, pod("made", "ns", MADE, made));
        let shares = r#"{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"shared"}]}"#;
        set(&mut pods, pod("shares", "ns", MADE, shares));
        let extended = r#"{"extendedResourceClaimStatus":{"resourceClaimName":"ext"}}"#;
        set(&mut pods, pod("extended", "ns", "null", extended));
        set(&mut pods, pod("none", "ns", "null", "{}"));
        for (namespace, claim, expected) in [
            ("ns", "shared", vec!["named", "shares"]),
            ("other", "shared", vec!["elsewhere"]),
            ("ns", "made-1", vec!["made"]),
            ("ns", "made", vec![]),
            ("ns", "ext", vec!["extended"]),
            ("ns", "", vec![]),
        ] {
            assert_eq!(
                users(&pods, namespace, claim),
                expected,
                "{namespace}/{claim}"
            );
        }
    }

    /// Q-96: the size of the index follows the pods.
    #[test]
    fn the_index_follows_the_pods() {
        let mut pods = ClusterPods::default();
        set(&mut pods, pod("p", "ns", MADE, "{}"));
        assert_eq!((pods.len(), pods.claim_uses()), (1, 0));
        for (status, claim, found) in [
            (
                r#"{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"x"}]}"#,
                "x",
                1,
            ),
            (
                r#"{"phase":"Pending","resourceClaimStatuses":[{"name":"a","resourceClaimName":"x"}]}"#,
                "x",
                1,
            ),
            (
                r#"{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"y"}]}"#,
                "y",
                1,
            ),
            (r#"{"resourceClaimStatuses":[{"name":"a"}]}"#, "y", 0),
            (
                r#"{"resourceClaimStatuses":[{"name":"a","resourceClaimName":"z"}]}"#,
                "z",
                1,
            ),
        ] {
            set(&mut pods, pod("p", "ns", MADE, status));
            assert_eq!(users(&pods, "ns", claim).len(), found, "{status}");
            assert_eq!(pods.claim_uses(), found, "{status}: and nothing else");
        }
        assert!(pods.remove("uid-p").is_some());
        assert_eq!((pods.len(), pods.claim_uses()), (0, 0));
        assert!(pods.remove("uid-p").is_none());
    }

    #[test]
    fn the_topology_keys_of_anti_affinity_follow_the_pods() {
        let apart = |name: &str, keys: &[&str]| {
            let terms: Vec<String> = keys
                .iter()
                .map(|key| format!(r#"{{"topologyKey":"{key}","labelSelector":{{}}}}"#))
                .collect();
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"spec":{{"affinity":{{"podAntiAffinity":
                {{"requiredDuringSchedulingIgnoredDuringExecution":[{}]}}}}}}}}"#,
                terms.join(",")
            );
            Arc::new(serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}")))
        };
        let mut pods = ClusterPods::default();
        for (change, zone, rack) in [
            (Ok(apart("a", &["zone", "zone"])), true, false),
            (Ok(apart("b", &["zone", "rack"])), true, true),
            (Ok(apart("b", &["zone"])), true, false),
            (Err("a"), true, false),
            (Err("b"), false, false),
        ] {
            match change {
                Ok(pod) => set(&mut pods, pod),
                Err(uid) => drop(pods.remove(uid)),
            }
            let known = ["zone", "rack"].map(|key| pods.is_anti_affinity_topology(key));
            assert_eq!(known, [zone, rack]);
        }
        assert!(pods.anti_affinity_topologies.is_empty());
    }

    /// Q-96, case 179: a thousand pods are added and deleted with their claims, and the index is empty.
    #[test]
    fn a_thousand_pods_leave_nothing_behind() {
        let mut pods = ClusterPods::default();
        let name = |n: usize| format!("p{n}");
        for n in 0..1_000 {
            let spec = format!(
                r#"[{{"name":"own","resourceClaimName":"c{n}"}},{{"name":"s","resourceClaimName":"shared"}}]"#
            );
            set(&mut pods, pod(&name(n), "ns", &spec, "{}"));
        }
        assert_eq!(pods.claim_uses(), 2_000);
        assert_eq!(users(&pods, "ns", "shared").len(), 1_000);
        assert_eq!(users(&pods, "ns", "c7"), ["p7"]);
        for n in 0..1_000 {
            pods.remove(&format!("uid-p{n}"));
        }
        assert_eq!((pods.len(), pods.claim_uses()), (0, 0));
    }
}
