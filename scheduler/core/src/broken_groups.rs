//! Groups that have started and of which a binding failed.
//!
//! ```text
//! a gang of 4, the binding of one member fails     → its node is kept for it, and it is tried first
//! 30 s later it is still not bound                 → its node is given back; with less than 4 members on nodes, the members
//!                                                    that are not bound yet are given back, too, and an event states that
//! ```
//!
//! The nodes of a group are kept once, until all members whose bindings failed are bound: a group whose bindings fail again
//! and again keeps no nodes from others.

mod kept;

pub(crate) use kept::BrokenGroups;

use crate::core::{Core, Waiter};
use crate::nominations;
use berth_api::{Duration, Pod, Str};
use berth_framework::ApiCall;
use berth_framework::call::PodRef;
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::Nominating;
use berth_framework::stage::{Wait, WaitOn};
use berth_telemetry::LogLine;
use kept::BrokenGroup;
use std::collections::BTreeMap;

/// The time for which the nodes of members are kept after a binding failed.
const KEPT_MAX: Duration = Duration::from_secs(30);

/// The binding of a pod to a node has failed. Returns whether the node is kept for it: if it is a member of a group that
/// began to fail less than 30 s ago, the node did not reject it, and it is not being deleted.
pub(crate) fn binding_failed(core: &mut Core, pod: &Pod, node: &Str, is_rejected: bool) -> bool {
    let Some(key) = GroupKey::of_pod(pod) else {
        return false;
    };
    let known = core.effective(pod.uid());
    if known.is_none_or(|pod| pod.is_terminating()) {
        return false;
    }
    forget_deleted(core);
    let now = core.now();
    let (groups, _) = core.broken_groups_mut();
    if !groups.contains(&key) {
        let wait = Wait {
            on: WaitOn::Timer,
            deadline: now + KEPT_MAX,
        };
        let timer = core.wait(Waiter::BrokenGroup(key.clone()), wait);
        let group = BrokenGroup {
            since: now,
            timer: Some(timer),
            members: BTreeMap::new(),
        };
        let (groups, _) = core.broken_groups_mut();
        groups.insert(key.clone(), group);
    }
    let (groups, _) = core.broken_groups_mut();
    let Some(group) = groups.get_mut(&key) else {
        return false;
    };
    group.members.insert(pod.uid().clone(), node.clone());
    let is_kept = group.timer.is_some() && now.since(group.since) < KEPT_MAX;
    is_kept && !is_rejected
}

/// A pod is bound. A group of which no member is left whose binding failed is whole again.
pub(crate) fn bound(core: &mut Core, pod: &Pod) {
    let (groups, _) = core.broken_groups_mut();
    if groups.is_empty() {
        return;
    }
    let Some(key) = GroupKey::of_pod(pod) else {
        return;
    };
    if let Some(group) = groups.get_mut(&key) {
        group.members.remove(pod.uid());
    }
    forget_deleted(core);
}

/// Forgets members that wait no more, and groups without such members.
fn forget_deleted(core: &mut Core) {
    let (groups, cache) = core.broken_groups_mut();
    let is_waiting = |uid: &Str| cache.stored(uid).is_some_and(|pod| !pod.is_assigned());
    for timer in groups.retain(is_waiting) {
        core.end_wait(timer);
    }
}

/// The time is over: the nodes are given back.
pub(crate) fn time_is_over(core: &mut Core, key: &GroupKey) {
    forget_deleted(core);
    let (groups, _) = core.broken_groups_mut();
    let Some(group) = groups.get_mut(key) else {
        return;
    };
    group.timer = None;
    let members = group.members.clone();
    let unbound: Vec<Str> = members
        .keys()
        .filter(|uid| !core.is_being_bound(uid))
        .cloned()
        .collect();
    for uid in &unbound {
        give_node_back(core, uid, &members[uid]);
    }
    let Some(min) = core.cluster().groups().spec(key).map(|s| s.min()) else {
        return;
    };
    let Some(known) = core.cluster().pods.members(key) else {
        return;
    };
    let placed = known.scheduled().len();
    let is_short = placed < min && placed > 0;
    let mut siblings: Vec<Str> = known
        .scheduled()
        .iter()
        .filter(|uid| is_short && core.is_being_bound(uid))
        .cloned()
        .collect();
    siblings.sort_unstable();
    let mut pods = members.keys().filter_map(|uid| core.stored(uid));
    let scheduler = pods.next().map(|pod| pod.spec.scheduler_name.clone());
    let scheduler = scheduler.unwrap_or_default();
    let text = format!(
        "{placed} of {min} pods of pod group {} have a node, and {} could not be bound for {} s",
        key.name,
        pods_text(members.len()),
        KEPT_MAX.as_secs()
    );
    siblings.retain(|uid| core.unbound_mut().release(uid, &text));
    if unbound.is_empty() && siblings.is_empty() {
        return;
    }
    let mut note = format!("{text}: no node is kept any longer");
    if !siblings.is_empty() {
        note += &format!(", and {} not bound yet released", pods_text(siblings.len()));
    }
    let line = LogLine::warning("Pod group is not complete; its nodes are given back");
    core.log(
        line.with("podGroup", key.namespaced_name())
            .with("pods", unbound.len())
            .with("siblings", siblings.len()),
    );
    core.publish_group_failure(key, &scheduler, &note);
}

fn pods_text(count: usize) -> String {
    match count {
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    }
}

/// The node is not kept for the pod any more. A node that preemption chose since then is.
fn give_node_back(core: &mut Core, uid: &Str, node: &Str) {
    let is_kept = core.nominated_node(uid) == Some(node);
    let is_preempting = core.cluster().preempting.contains(uid);
    let Some(pod) = core.effective(uid).cloned() else {
        return;
    };
    if !is_kept || is_preempting {
        return;
    }
    if pod.status.nominated_node_name == *node {
        // The end of the nomination follows from what the call writes.
        core.call(ApiCall::PatchPodStatus {
            pod: PodRef::of(&pod),
            conditions: Vec::new(),
            nominated_node: Some(Str::default()),
        });
    }
    if core.nominated_node(uid) == Some(node) {
        nominations::nominate(core, &pod, &Nominating::Set(Str::default()));
        nominations::end_at(core, &pod, node, &nominations::End::Written);
    }
}
