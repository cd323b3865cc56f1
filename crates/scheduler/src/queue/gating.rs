//! PreEnqueue for groups: one member that a plugin rejects gates the whole group.
//!
//! Members are asked one after the other until one is rejected, so a group whose first member is rejected costs one
//! question, however many members join it.

use super::SchedulingQueue;
use super::entry::{EntryId, QueuedPodInfo};
use super::group::QueuedGroup;
use super::report::{Gate, NOT_READY_FOR_SCHEDULING, message_of};
use crate::log::LogLine;
use berth_api::{Pod, Str};
use berth_framework::Feature;
use berth_framework::plugin::Context;
use std::sync::Arc;

/// Returns whether PreEnqueue plugins reject a popped group now: a group may have become too small since it was
/// admitted. One member is asked on behalf of all.
pub(crate) fn is_rejected_now(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    info: &QueuedPodInfo,
) -> bool {
    let first = info
        .own
        .group
        .as_ref()
        .and_then(|group| group.members().next());
    let Some(pod) = first.map(|member| member.pod.clone()) else {
        return false;
    };
    gate_of_member(queue, cx, &pod).is_some()
}

pub(super) fn reports_wanted(queue: &SchedulingQueue) -> bool {
    let features = &queue.config.features;
    features.enabled(Feature::SchedulerPreEnqueuePodStatus)
}

/// Asks the PreEnqueue plugins about the members of a detached group, from the one at which they stopped last, until
/// one rejects a member: that gates the whole group. Members that were admitted to a group that was not gated are not
/// asked again unless `everyone` is set.
pub(super) fn ask_about_group(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    id: EntryId,
    everyone: bool,
) {
    let Some(entry) = queue.places.get_mut(id) else {
        return;
    };
    let Some(mut group) = entry.info.own.group.take() else {
        return;
    };
    let before = entry.info.own.gate.take();
    let blocker = group.blocker.take();
    let order: Vec<usize> = if everyone || before.is_some() {
        let first = blocker
            .as_ref()
            .and_then(|uid| group.members.get_index_of(uid));
        let (first, len) = (first.unwrap_or(0), group.members.len());
        (0..len).map(|n| (first + n) % len).collect()
    } else {
        let unasked = group.unasked.iter();
        unasked
            .filter_map(|uid| group.members.get_index_of(uid))
            .collect()
    };
    let stop = order.into_iter().find_map(|at| {
        let (_, info) = group.members.get_index(at)?;
        Some((at, gate_of_member(queue, cx, &info.pod)?))
    });
    match stop {
        None => admit_members(queue, cx, &mut group, before.is_some()),
        Some((at, gate)) => {
            let stopped_at = group.members.get_index(at).map(|(uid, _)| uid.clone());
            let is_as_before = before.as_ref() == Some(&gate) && blocker == stopped_at;
            group.blocker = stopped_at;
            gate_members(queue, cx, &mut group, &gate, is_as_before);
            if let Some(entry) = queue.places.get_mut(id) {
                entry.info.unschedulable_plugins.insert(&gate.plugin);
                entry.info.own.gate = Some(gate);
            }
        }
    }
    group.unasked.clear();
    if let Some(entry) = queue.places.get_mut(id) {
        entry.info.own.group = Some(group);
    }
}

/// The gate of a member that a PreEnqueue plugin rejects.
fn gate_of_member(queue: &mut SchedulingQueue, cx: &Context<'_>, pod: &Arc<Pod>) -> Option<Gate> {
    let profile = queue.profiles.by_name(&pod.spec.scheduler_name);
    let profile = queue.profiles.get(profile)?;
    for plugin in &profile.pre_enqueue {
        let status = plugin.pre_enqueue(cx, pod);
        if status.is_success() {
            continue;
        }
        if !status.is_rejected() {
            let line = LogLine::error("Unexpected error running PreEnqueue plugin");
            let line = line
                .with("pod", &**pod)
                .with("plugin", &Str::new(plugin.name()));
            queue.log.push(line.with("err", status.message()));
        }
        let name = Str::new(plugin.name());
        let message = message_of(&name, &status.message());
        return Some(Gate {
            plugin: name,
            reason: plugin.condition_reason(),
            message,
            code: status.reason_code(),
            follows_attempt: plugin.follows_attempt(),
        });
    }
    None
}

fn admit_members(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    group: &mut QueuedGroup,
    was_gated: bool,
) {
    let unasked = std::mem::take(&mut group.unasked);
    let wanted = reports_wanted(queue);
    let mut admit = |info: &mut QueuedPodInfo| {
        let before = info.own.gate.take();
        if wanted {
            queue.reports.passed(&info.pod, before.as_ref(), cx.now);
        }
    };
    if was_gated {
        group.members.values_mut().for_each(admit)
    } else {
        for uid in &unasked {
            if let Some(info) = group.members.get_mut(uid) {
                admit(info);
            }
        }
    }
}

/// A member is rejected, and all members are gated with it. Each states the reason: its own, or that of the member.
fn gate_members(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    group: &mut QueuedGroup,
    gate: &Gate,
    is_as_before: bool,
) {
    let blocker = group.blocker.clone();
    let name = blocker.as_ref().and_then(|uid| group.members.get(uid));
    let name = name.map(|info| info.pod.name().clone()).unwrap_or_default();
    let of_others = Gate {
        reason: NOT_READY_FOR_SCHEDULING,
        message: Str::from(format!(
            "waiting for pod {name:?} of the group, which {} rejects: {}",
            gate.plugin, gate.message
        )),
        ..gate.clone()
    };
    let unasked: Vec<Str> = if is_as_before {
        std::mem::take(&mut group.unasked)
    } else {
        group.members.keys().cloned().collect()
    };
    for uid in unasked {
        let Some(info) = group.members.get_mut(&uid) else {
            continue;
        };
        let own = if Some(&uid) == blocker.as_ref() {
            gate.clone()
        } else {
            let own = gate_of_member(queue, cx, &info.pod);
            own.unwrap_or_else(|| of_others.clone())
        };
        if !info.is_rejected_by(&own.plugin) {
            let profile = &info.pod.spec.scheduler_name;
            queue.metrics.unschedulable(&own.plugin, profile, 1.0);
        }
        info.unschedulable_plugins.insert(&own.plugin);
        let before = info.own.gate.take();
        if reports_wanted(queue) {
            queue
                .reports
                .rejected(&info.pod, before.as_ref(), &own, cx.now);
        }
        info.own.gate = Some(own);
    }
}
