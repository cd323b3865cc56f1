//! PreEnqueue for groups: one rejected member gates the whole group.
//!
//! The plugins run for one member after the other until one is rejected: a group with a rejected first member costs one
//! run, for any number of members. Each member states its own reason, or the reason of the member that gates the group
//! (KEP-5501). Members with their own reasons are indexed ([`GatedMembers`](super::gated_members::GatedMembers)), and
//! evaluated again when an event can help them.

use super::SchedulingQueue;
use super::entry::{EntryId, Gate, QueuedGroup, QueuedPodInfo};
use super::gated_members::is_filed;
use super::outputs::AskedAs;
use berth_api::{Pod, Str};
use berth_framework::condition::NOT_READY_FOR_SCHEDULING;
use berth_framework::plugin::Context;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Returns whether PreEnqueue plugins reject a popped group: a group can have become too small since its admission. One
/// member represents all.
pub fn is_rejected_now(
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

/// Runs the PreEnqueue plugins for the members of a detached group, starting at the last rejected member, until one
/// member is rejected: that gates the whole group. Members of a group that was not gated are not evaluated again unless
/// `again` is set.
pub(super) fn ask_about_group(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    id: EntryId,
    again: bool,
) {
    let Some(entry) = queue.places.get_mut(id) else {
        return;
    };
    let Some(mut group) = entry.info.own.group.take() else {
        return;
    };
    let before = entry.info.own.gate.take();
    let blocker = group.blocker.take();
    let unasked = std::mem::take(&mut group.unasked);
    let (members, mut passed) = (&group.members, FxHashSet::default());
    let mut ask = |at: usize| {
        let (uid, info) = members.get_index(at)?;
        let gate = gate_of_member(queue, cx, &info.pod);
        if gate.is_none() {
            passed.insert(uid.clone());
        }
        Some((uid.clone(), gate?))
    };
    // The member that gated the group first: as long as it is rejected, no other member is evaluated or copied.
    let stop = if again || before.is_some() {
        let first = blocker.as_ref().and_then(|uid| members.get_index_of(uid));
        let (first, len) = (first.unwrap_or(0), members.len());
        (0..len).find_map(|n| ask((first + n) % len))
    } else {
        let mut unasked = unasked.iter();
        unasked.find_map(|uid| ask(members.get_index_of(uid)?))
    };
    let (gate, all_changed) = match stop {
        None => {
            admit_members(queue, cx, &mut group, &unasked, before.is_some());
            (None, before.is_some())
        }
        Some((stopped_at, gate)) => {
            let is_as_before =
                before.as_ref() == Some(&gate) && blocker == Some(stopped_at.clone());
            group.blocker = Some(stopped_at);
            let known = if is_as_before {
                KnownGates::AllButUnasked
            } else if before.is_some() {
                KnownGates::Filed(passed)
            } else {
                KnownGates::None
            };
            gate_members(queue, cx, &mut group, (&gate, &unasked), &known);
            (Some(gate), !is_as_before)
        }
    };
    let changed = if all_changed {
        group.members.keys().cloned().collect()
    } else {
        unasked
    };
    if let Some(entry) = queue.places.get_mut(id) {
        if let Some(gate) = &gate {
            entry.info.unschedulable_plugins.insert(&gate.plugin);
        }
        entry.info.own.gate = gate;
        entry.info.own.group = Some(group);
    }
    file_members(queue, id, &changed);
}

/// The members of a gated group with known gates after PreEnqueue stopped at a member.
enum KnownGates {
    /// None: the group was not gated before.
    None,
    /// The group is gated by another member than before, or for another reason. The indexed gates are known, and these
    /// members pass.
    Filed(FxHashSet<Str>),
    /// The group is gated as before.
    AllButUnasked,
}

/// Runs the PreEnqueue plugins again for a member of a gated group with its own reason.
pub(super) fn ask_about_member(queue: &mut SchedulingQueue, cx: &Context<'_>, uid: &Str) {
    let Some(id) = queue.places.groups.entry_of_member(uid) else {
        return;
    };
    let Some(entry) = queue.places.get_mut(id).filter(|e| e.info.is_gated()) else {
        return;
    };
    let (gate, group) = (entry.info.own.gate.clone(), entry.info.own.group.take());
    let Some((gate, mut group)) = gate.zip(group) else {
        debug_assert!(false, "the entry of a member is that of its group");
        return;
    };
    if group.blocker.as_ref() != Some(uid) && group.members.contains_key(uid) {
        let of_others = gate_of_others(&group, &gate);
        if let Some(info) = group.members.get_mut(uid) {
            let own = gate_of_member(queue, cx, &info.pod);
            queue
                .out
                .set_gate(info, Some(own.unwrap_or(of_others)), cx.now);
        }
    }
    if let Some(entry) = queue.places.get_mut(id) {
        entry.info.own.group = Some(group);
    }
    file_members(queue, id, std::slice::from_ref(uid));
}

/// A new member of a gated group can end a reason of the group that members state in addition to the gating member. One
/// of these members is evaluated on behalf of all.
pub(super) fn ask_about_reason_of_group(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    id: EntryId,
) {
    let entry = queue.places.get(id).filter(|e| e.info.is_gated());
    let group = entry.and_then(|entry| entry.info.own.group.as_ref());
    let Some(root) = group.map(|group| group.key().clone()) else {
        return;
    };
    let stating = queue.gated_members.with_reason_of_group(&root);
    let Some(first) = stating.and_then(|stating| stating.first().cloned()) else {
        return;
    };
    ask_about_member(queue, cx, &first);
    let others = queue.gated_members.with_reason_of_group(&root);
    let others = others.filter(|stating| !stating.contains(&first));
    let others: Vec<Str> = others.into_iter().flatten().cloned().collect();
    for uid in others {
        ask_about_member(queue, cx, &uid);
    }
}

/// Indexes the members of a group with their own reasons, and removes the others.
pub(super) fn file_members(queue: &mut SchedulingQueue, id: EntryId, uids: &[Str]) {
    let Some(entry) = queue.places.get(id) else {
        return;
    };
    for uid in uids {
        let group = entry.info.own.group.as_ref();
        match group.and_then(|group| Some((group.key(), group.members.get(uid)?))) {
            Some((root, member)) if is_filed(&entry.info, member) => {
                queue
                    .gated_members
                    .file(&queue.places.profiles, root, member);
            }
            _ => queue.gated_members.remove(uid),
        }
    }
}

/// The gate of a member that a PreEnqueue plugin rejects.
fn gate_of_member(queue: &mut SchedulingQueue, cx: &Context<'_>, pod: &Arc<Pod>) -> Option<Gate> {
    let profile = queue.places.profiles.by_name(&pod.spec.scheduler_name);
    let asked = (pod, AskedAs::Member);
    queue
        .out
        .rejection(cx, queue.places.profiles.get(profile), asked)
}

fn admit_members(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    group: &mut QueuedGroup,
    unasked: &[Str],
    was_gated: bool,
) {
    let mut admit = |info: &mut QueuedPodInfo| queue.out.set_gate(info, None, cx.now);
    if was_gated {
        group.members.values_mut().for_each(admit)
    } else {
        for uid in unasked {
            if let Some(info) = group.members.get_mut(uid) {
                admit(info);
            }
        }
    }
}

/// The gate of the members without a rejection, in a group that `gate` gates.
fn gate_of_others(group: &QueuedGroup, gate: &Gate) -> Gate {
    let blocker = group.blocker.as_ref();
    let blocker = blocker.and_then(|uid| group.members.get(uid));
    let name = blocker.map(|info| info.pod.name().clone());
    Gate {
        reason: NOT_READY_FOR_SCHEDULING,
        message: Str::from(format!(
            "waiting for pod {:?} of the group, which {} rejects: {}",
            name.unwrap_or_default(),
            gate.plugin,
            gate.message
        )),
        is_of_sibling: true,
        ..gate.clone()
    }
}

/// A member is rejected, and all members are gated. Each states its own reason, or the reason of that member. `unasked`
/// are the members for which the plugins did not run.
fn gate_members(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    group: &mut QueuedGroup,
    (gate, unasked): (&Gate, &[Str]),
    known: &KnownGates,
) {
    let of_others = gate_of_others(group, gate);
    let blocker = group.blocker.clone();
    let changed: Vec<Str> = match known {
        KnownGates::AllButUnasked => unasked.to_vec(),
        KnownGates::Filed(_) | KnownGates::None => group.members.keys().cloned().collect(),
    };
    let unasked: FxHashSet<&Str> = unasked.iter().collect();
    for uid in changed {
        let Some(info) = group.members.get_mut(&uid) else {
            continue;
        };
        let own = match known {
            _ if Some(&uid) == blocker.as_ref() => Some(gate.clone()),
            KnownGates::Filed(passed) if passed.contains(&uid) => None,
            KnownGates::Filed(_) if !unasked.contains(&uid) => {
                // Indexed members are evaluated by the events that can help them; no event helps the others.
                let stated = info.own.gate.as_ref();
                if queue.gated_members.contains(&uid) {
                    continue;
                } else if stated.is_some_and(|gate| gate.is_of_sibling) && !gate.is_of_group() {
                    None
                } else {
                    gate_of_member(queue, cx, &info.pod)
                }
            }
            _ => gate_of_member(queue, cx, &info.pod),
        };
        let own = own.unwrap_or_else(|| of_others.clone());
        queue.out.set_gate(info, Some(own), cx.now);
    }
}
