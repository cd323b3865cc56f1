//! Deferred quotas: their usage by the pods of each namespace, and the pods that wait in line for room.
//!
//! A pod with a node is **usage**, whatever scheduled it. A pending pod of this scheduler is **in line** until every
//! quota that applies has room. Then it is **admitted**, and its room is kept until it has a node, is deleted, or no
//! longer waits. A gang is one entry of the line. Everything is computed from the pods, the groups, the claims and the
//! quotas of the cluster: no other state is stored, and another scheduler computes the same (DQ-1 to DQ-19).
//!
//! **Architecture invariant:** a change of a pod touches only the quotas of its namespace that select it, and the cohorts
//! of these quotas. Only a changed quota reads all pods of its namespace. A namespace without quotas costs one look-up.

mod admission;
mod cohort;
mod line;
mod needs;
mod saved;
mod spec;
#[cfg(test)]
mod tests;
mod tracking;
mod view;

pub use line::{EntryKey, LOOKS_MAX, LineKey};
pub use saved::SavedQuotas;
pub use spec::{
    DEFERRED_QUOTA, DEFERRED_QUOTA_KIND, QuotaLimit, QuotaOrder, QuotaResource, QuotaSpec,
};
pub use view::{BEFORE_MAX, LackOf, QuotaAmount, QuotaLack, QuotaObstacle, QuotaView};

use super::{ClusterPods, GroupKey, Groups, ResourceClaims};
use berth_api::requests::Footprint;
use berth_api::{CustomObject, Duration, Pod, ResourceClaim, Str, Time};
use cohort::Cohort;
use line::{Entry, Quota};
use needs::Needs;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The plugin that holds back the pods that quotas do not admit. Pods of profiles without it are usage as soon as they have
/// a node, and do not wait in line.
pub const QUOTA_GATE_PLUGIN: &str = "DeferredQuota";

/// The parts of the cluster from which quotas are computed.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) pods: &'a ClusterPods,
    pub(super) groups: &'a Groups,
    pub(super) claims: &'a ResourceClaims,
    pub(super) footprint: Footprint,
}

impl<'a> Facts<'a> {
    fn pod(&self, uid: &str) -> Option<&'a Pod> {
        self.pods.get(uid).map(|pod| &**pod)
    }
}

/// The reason why a pending pod is not in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutOfLine {
    /// It has scheduling gates.
    Gated,
    /// It terminates.
    Terminating,
    /// A claim does not exist, so the number of its devices is unknown.
    ClaimMissing,
    /// Its group does not exist.
    GroupMissing,
}

/// How a pod counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It has a node.
    Used,
    /// It waits, alone or with its gang.
    Pending {
        entry: EntryKey,
        out: Option<OutOfLine>,
    },
}

/// A pod to which quotas apply.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrackedPod {
    needs: Needs,
    place: LineKey,
    standing: Standing,
}

/// The quotas of a namespace, and the pods to which they apply.
#[derive(Debug, Clone, Default)]
struct Ruled {
    quotas: BTreeMap<Str, Quota>,
    pods: FxHashMap<Str, TrackedPod>,
    entries: FxHashMap<EntryKey, Entry>,
}

impl Ruled {
    /// A quota that is deleted, if pods wait for it.
    fn removed(&self, name: &Str) -> Option<RemovedQuota> {
        let quota = self.quotas.get(name)?;
        let (_, first) = quota.line().next()?;
        Some(RemovedQuota {
            object: quota.object.clone(),
            waiting: quota.waiting_pods,
            first: self.entries.get(first)?.members.first()?.uid.clone(),
        })
    }
}

/// A namespace with pods or quotas.
#[derive(Debug, Clone, Default)]
struct Space {
    pods: FxHashSet<Str>,
    /// The quotas whose spec cannot be read, with the reason.
    invalid: BTreeMap<Str, (Arc<CustomObject>, String)>,
    ruled: Option<Box<Ruled>>,
}

/// The changes since the last call, for the owner of the cluster.
#[derive(Debug, Clone, Default)]
pub struct QuotaChanges {
    /// The UIDs of pods that were admitted, or to which no quota applies any more, in order.
    pub admitted: Vec<Str>,
    /// The UIDs of pods that lost their admission, or to which a quota without room applies now.
    pub withdrawn: Vec<Str>,
    /// The time that each admitted entry was in line.
    pub waits: Vec<Duration>,
    /// The quotas whose numbers may have changed, by namespace and name. Deleted ones are among them.
    pub quotas: BTreeSet<(Str, Str)>,
    /// The deleted quotas for which pods waited.
    pub removed: Vec<RemovedQuota>,
}

/// A deleted quota for which pods waited.
#[derive(Debug, Clone)]
pub struct RemovedQuota {
    /// Its last state.
    pub object: Arc<CustomObject>,
    /// The number of pods that waited for it.
    pub waiting: usize,
    /// The UID of a pod of the first entry in line.
    pub first: Str,
}

impl QuotaChanges {
    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.withdrawn.is_empty() && self.quotas.is_empty()
    }
}

/// The deferred quotas: their usage by pods, and the waiting pods.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    /// The scheduler names whose pending pods wait in line.
    schedulers: Vec<Str>,
    /// Whether there has been a quota. Before the first one, nothing is tracked.
    is_active: bool,
    spaces: FxHashMap<Str, Space>,
    cohorts: FxHashMap<Str, Cohort>,
    now: Time,
    changes: QuotaChanges,
    /// The number of entries checked for admission.
    looks: u64,
}

impl Quotas {
    /// Returns whether no quota exists or existed.
    pub fn is_idle(&self) -> bool {
        !self.is_active
    }

    /// Returns whether quotas let a pending pod pass: none applies, or all have admitted it.
    pub fn passes(&self, pod: &Pod) -> bool {
        let tracked = self.tracked(pod.namespace(), pod.uid());
        tracked.is_none_or(|(ruled, tracked)| ruled.is_admitted(tracked))
    }

    fn ruled(&self, namespace: &str) -> Option<&Ruled> {
        self.spaces.get(namespace)?.ruled.as_deref()
    }

    fn tracked(&self, namespace: &str, uid: &str) -> Option<(&Ruled, &TrackedPod)> {
        if !self.is_active {
            return None;
        }
        let ruled = self.ruled(namespace)?;
        Some((ruled, ruled.pods.get(uid)?))
    }

    /// The changes since the last call.
    pub fn take_changes(&mut self) -> QuotaChanges {
        std::mem::take(&mut self.changes)
    }

    /// The changes since [`Quotas::take_changes`].
    pub fn changes(&self) -> &QuotaChanges {
        &self.changes
    }

    /// The number of entries checked for admission so far.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// The time, from which the waiting time of entries is measured.
    pub fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    // --- changes of the cluster ------------------------------------------------------------------------------

    /// From now on, pending pods of these schedulers wait in line.
    pub(super) fn defer_pods_of(&mut self, schedulers: Vec<Str>, facts: &Facts<'_>) {
        if self.schedulers != schedulers {
            self.schedulers = schedulers;
            let ruled = self
                .spaces
                .iter()
                .filter(|(_, space)| space.ruled.is_some());
            let mut namespaces: Vec<Str> = ruled.map(|(namespace, _)| namespace.clone()).collect();
            namespaces.sort_unstable();
            for namespace in namespaces {
                self.rebuild(&namespace, None, facts);
            }
        }
    }

    /// A quota is new, changed or deleted.
    pub(super) fn put(&mut self, object: &Arc<CustomObject>, is_there: bool, facts: &Facts<'_>) {
        let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
        if !self.is_active {
            if !is_there {
                return;
            }
            self.is_active = true;
            for (uid, pod) in facts.pods.iter() {
                let space = self.spaces.entry(pod.namespace().clone()).or_default();
                space.pods.insert(uid.clone());
            }
        }
        let space = self.spaces.entry(namespace.clone()).or_default();
        let id = (namespace.clone(), name.clone());
        self.changes.quotas.insert(id);
        let spec = is_there.then(|| QuotaSpec::read(object));
        space.invalid.remove(name);
        if !is_there
            && let Some(removed) = space.ruled.as_deref().and_then(|ruled| ruled.removed(name))
        {
            self.changes.removed.push(removed);
        }
        let spec = match spec {
            Some(Ok(spec)) => Some(Arc::new(spec)),
            Some(Err(error)) => {
                space.invalid.insert(name.clone(), (object.clone(), error));
                None
            }
            None => None,
        };
        let known = space.ruled.as_deref_mut();
        let known = known.and_then(|ruled| ruled.quotas.get_mut(name));
        match (known, &spec) {
            (None, None) => {}
            // Its status has changed.
            (Some(known), Some(spec)) if known.spec == *spec => known.object = object.clone(),
            _ => self.rebuild(namespace, Some((name, object, spec)), facts),
        }
        self.drop_empty(namespace);
    }

    /// A pod was added, changed or deleted. `before` is the previous version.
    pub(super) fn pod_changed(
        &mut self,
        namespace: &Str,
        uid: &Str,
        before: Option<&Pod>,
        facts: &Facts<'_>,
    ) {
        if !self.is_active {
            return;
        }
        let pod = facts.pods.get(uid);
        let space = self.spaces.entry(namespace.clone()).or_default();
        let is_new = match pod {
            Some(_) => space.pods.insert(uid.clone()),
            None => {
                space.pods.remove(uid);
                false
            }
        };
        if space.ruled.is_some() {
            let pod = pod.map(|pod| &**pod);
            let gangs = tracking::gangs_of_change(before, pod, facts);
            self.follow(namespace, uid, pod, is_new, &gangs, facts);
        } else if pod.is_none() {
            self.drop_empty(namespace);
        }
    }

    fn drop_empty(&mut self, namespace: &Str) {
        let space = self.spaces.get(namespace);
        let is_empty = |space: &Space| {
            space.pods.is_empty() && space.invalid.is_empty() && space.ruled.is_none()
        };
        if space.is_some_and(is_empty) {
            self.spaces.remove(namespace);
        }
    }

    /// A claim is new, changed or was deleted: the pods that use it count for other devices.
    pub(super) fn claim_changed(&mut self, claim: &ResourceClaim, facts: &Facts<'_>) {
        let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
        let quotas = self.ruled(namespace).map(|ruled| ruled.quotas.values());
        let mut quotas = quotas.into_iter().flatten();
        if quotas.any(|quota| quota.spec.counts_devices()) {
            let users = facts.pods.using_claim(namespace, name);
            let uids: Vec<Str> = users.map(|pod| pod.uid().clone()).collect();
            for uid in uids {
                self.follow(namespace, &uid, facts.pod(&uid), false, &[], facts);
            }
        }
    }

    /// The groups of a hierarchy before a change of one of them, for [`Quotas::groups_changed`].
    pub(super) fn leaves_of(&self, key: &GroupKey, groups: &Groups) -> Vec<GroupKey> {
        if self.ruled(&key.namespace).is_none() {
            return Vec::new();
        }
        match groups.root_of(key) {
            Ok(root) => groups.leaves(&root),
            Err(_) => groups.leaves(key),
        }
    }

    /// A group has changed: the members of its pod groups may wait as another gang, or be complete.
    pub(super) fn groups_changed(&mut self, leaves: Vec<GroupKey>, facts: &Facts<'_>) {
        let leaves: BTreeSet<GroupKey> = leaves.into_iter().collect();
        let members = leaves.iter().filter_map(|leaf| facts.pods.members(leaf));
        let members = members.flat_map(|members| members.unscheduled());
        // In the order of the line, so that none enters it behind a later pod that has been admitted already.
        let members = members.filter_map(|uid| facts.pod(uid));
        let members: BTreeMap<LineKey, &Pod> = members.map(|pod| (LineKey::of(pod), pod)).collect();
        let mut gangs = BTreeMap::new();
        for pod in members.into_values() {
            self.follow(pod.namespace(), pod.uid(), Some(pod), false, &[], facts);
            if let Some(gang) = tracking::gang_of(pod, facts) {
                gangs.insert(gang, pod);
            }
        }
        // The number of members that a gang requires may have changed.
        for (gang, pod) in gangs {
            let (namespace, uid) = (pod.namespace(), pod.uid());
            self.follow(namespace, uid, Some(pod), false, &[gang], facts);
        }
    }
}
