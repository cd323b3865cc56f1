//! Started groups with a failed binding.
//!
//! ```text
//! a gang of 4, the binding of one member fails     → its node is kept for it, and it is tried first
//! 30 s later it is still not bound                 → its node is released; with fewer than 4 members on nodes, the
//!                                                    members that are not bound yet are released, too, and an event
//!                                                    states that
//! ```
//!
//! The nodes of a group are kept once, until all members with failed bindings are bound: a group whose bindings fail
//! repeatedly blocks no nodes for other pods.

use crate::core::{BrokenGroups, Calls, Core, Framework};
use crate::nominations;
use berth_api::Str;
use berth_framework::ApiCall;
use berth_framework::call::PodRef;
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::Nominating;
use berth_queue::SchedulingQueue;
use berth_telemetry::LogLine;

/// The time has passed: the nodes are released.
pub(crate) fn time_is_over(core: &mut Core, key: &GroupKey) {
    let broken_groups = &mut core.broken_groups;
    let Some(members) = broken_groups.time_is_over(&core.framework.cache, &mut core.waits, key)
    else {
        return;
    };
    let unbound: Vec<Str> = members
        .keys()
        .filter(|uid| !core.framework.unbound.contains(uid))
        .cloned()
        .collect();
    for uid in &unbound {
        let Core {
            framework,
            queue,
            calls,
            ..
        } = &mut *core;
        give_node_back(framework, queue, calls, uid, &members[uid]);
    }
    let Some(min) = core
        .framework
        .cache
        .cluster()
        .groups()
        .spec(key)
        .map(|s| s.min())
    else {
        return;
    };
    let Some(known) = core.framework.cache.cluster().pods.members(key) else {
        return;
    };
    let placed = known.scheduled().len();
    // A group that still has enough members continues to run, and a group without any has no nodes to release.
    let is_short = placed < min && placed > 0;
    let mut siblings: Vec<Str> = known
        .scheduled()
        .iter()
        .filter(|uid| is_short && core.framework.unbound.contains(uid))
        .cloned()
        .collect();
    siblings.sort_unstable();
    let mut pods = members
        .keys()
        .filter_map(|uid| core.framework.cache.stored(uid));
    let scheduler = pods.next().map(|pod| pod.spec.scheduler_name.clone());
    let scheduler = scheduler.unwrap_or_default();
    let text = format!(
        "{placed} of {min} pods of pod group {} have a node, and {} could not be bound for {} s",
        key.name,
        pods_text(members.len()),
        BrokenGroups::KEPT_MAX.as_secs()
    );
    siblings.retain(|uid| core.framework.unbound.release(uid, &text));
    if unbound.is_empty() && siblings.is_empty() {
        return;
    }
    let mut note = format!("{text}: no node is kept any longer");
    if !siblings.is_empty() {
        note += &format!(", and {} not bound yet released", pods_text(siblings.len()));
    }
    let line = LogLine::warning("Pod group is not complete; its nodes are given back");
    core.framework.outbound.log.push(
        line.with("podGroup", key.namespaced_name())
            .with("pods", unbound.len())
            .with("siblings", siblings.len()),
    );
    core.framework.publish_group_failure(key, &scheduler, &note);
}

fn pods_text(count: usize) -> String {
    match count {
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    }
}

/// The node is not kept for the pod any more, unless preemption has chosen it since then.
fn give_node_back(
    framework: &Framework,
    queue: &mut SchedulingQueue,
    calls: &mut Calls,
    uid: &Str,
    node: &Str,
) {
    let cluster = framework.cache.cluster();
    let is_kept = queue.nominator().node_of(uid) == Some(node);
    let is_preempting = cluster.preempting.contains(uid);
    let Some(pod) = framework.cache.effective(uid) else {
        return;
    };
    if !is_kept || is_preempting {
        return;
    }
    if pod.status.nominated_node_name == *node {
        // The nomination ends with the write of this call.
        let call = ApiCall::PatchPodStatus {
            pod: PodRef::of(pod),
            conditions: Vec::new(),
            nominated_node: Some(Str::default()),
        };
        calls.make(call, framework.clock.now());
    }
    if queue.nominator().node_of(uid) == Some(node) {
        let nominating = Nominating::Set(Str::default());
        queue.nominator_mut().add(cluster, pod, &nominating);
        nominations::end_at(framework, queue, pod, node, &nominations::End::Written);
    }
}
