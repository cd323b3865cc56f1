//! The members of groups: entering the queue, joining their group, waiting for it, and returning from an attempt.

use super::entry::{
    EntryId, EntryState, Gate, Members, PluginSet, QueuedGroup, QueuedIn, QueuedPodInfo, stand_in,
};
use super::gating::{ask_about_group, ask_about_member, ask_about_reason_of_group, file_members};
use super::group::{MemberPlace, RootPlace};
use super::hints::MoveStrategy;
use super::outputs::QueueOutputs;
use super::pod_events::{PodEvents, pod_update_events};
use super::{SchedulingQueue, label, strategy_after_flight, strategy_of};
use berth_api::{Object, Pod, Str, Time};
use berth_framework::cluster::{GROUP_GATE_PLUGIN, GroupKey, NoRoot};
use berth_framework::condition::NOT_READY_FOR_SCHEDULING;
use berth_framework::event::Change;
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{ClusterEvent, Feature, ReasonCode};
use std::sync::Arc;

/// The result of the attempt of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEnd {
    /// Some members were placed.
    Success,
    /// The group was rejected, by these plugins in addition to those that rejected its members.
    Rejected(Vec<Str>),
    /// An error occurred.
    Error,
}

/// The pod group of a queued pod, if it is queued with a group.
pub(super) fn group_of(queue: &SchedulingQueue, pod: &Pod) -> Option<GroupKey> {
    // A pod with a node that waits for a resize is alone.
    let is_on = queue.config.features.enabled(Feature::GenericWorkload) && !pod.is_assigned();
    is_on.then(|| GroupKey::of_pod(pod)).flatten()
}

/// A new member of a group, or a changed one.
pub(super) fn add_member(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    pod: Arc<Pod>,
    event: &str,
) {
    let known = queue.places.groups.uid_of(pod.namespace(), pod.name());
    if let Some(uid) = known.cloned()
        && let Some(old) = member(queue, &uid).map(|info| info.pod.clone())
    {
        if uid == *pod.uid() {
            update_member(queue, cx, &old, &pod);
            return;
        }
        remove_pod(queue, cx, &old);
    }
    queue.nominator.add(cx.cluster, &pod, &Nominating::Keep);
    seat(queue, cx, QueuedPodInfo::new(pod, cx.now), event, None);
}

/// Places a member: in its queued group, among the pending members of a group in an attempt, in a new entry, or among
/// the incomplete members. A member that returns from an attempt moves a new entry according to `strategy`.
fn seat(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    info: QueuedPodInfo,
    event: &str,
    strategy: Option<MoveStrategy>,
) {
    let Some(leaf) = GroupKey::of_pod(&info.pod) else {
        debug_assert!(false, "a member names its group");
        return;
    };
    let root = match cx.cluster.groups().root_of(&leaf) {
        Ok(root) => root,
        Err(why) => return hold_incomplete(queue, cx, leaf, info, &why),
    };
    let place = MemberPlace::Root(root.clone());
    queue.places.groups.locate(&info.pod, place);
    match queue.places.groups.roots.get_mut(&root) {
        Some(RootPlace::InFlight(pending)) => {
            pending.insert(info.pod.uid().clone(), info);
        }
        Some(RootPlace::Queued(id)) => {
            let id = *id;
            join(queue, cx, id, info, (event, strategy));
        }
        None => enter_group(queue, cx, root, info, (event, strategy)),
    }
}

/// A member that creates an entry of its group.
fn enter_group(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    root: GroupKey,
    info: QueuedPodInfo,
    (event, strategy): (&str, Option<MoveStrategy>),
) {
    let mut entity = entity(cx, &root, &info);
    if strategy.is_some() {
        entity = with_group_rejectors(entity, &info);
    }
    let mut group = QueuedGroup::new(root.clone());
    group.unasked.push(info.pod.uid().clone());
    group.members.insert(info.pod.uid().clone(), info);
    group.choose_representatives();
    entity.own.group = Some(Box::new(group));
    let id = queue.places.enter(entity);
    queue
        .places
        .groups
        .roots
        .insert(root, RootPlace::Queued(id));
    match strategy {
        None => drop(queue.move_to_active(cx, id, event, false)),
        Some(strategy) => drop(queue.requeue(cx, id, strategy, event)),
    }
}

/// The entry or the member, with the plugins that rejected the group of `member`.
fn with_group_rejectors(mut entry: QueuedPodInfo, member: &QueuedPodInfo) -> QueuedPodInfo {
    for plugin in member.own.group_rejectors.iter() {
        entry.unschedulable_plugins.insert(plugin);
    }
    entry
}

/// The entry of a group whose first member is `first`, with the history of that member.
fn entity(cx: &Context<'_>, root: &GroupKey, first: &QueuedPodInfo) -> QueuedPodInfo {
    let spec = cx.cluster.groups().spec(root);
    let priority = spec.map_or(0, |spec| spec.priority());
    let pod = stand_in(root, priority, &first.pod.spec.scheduler_name);
    QueuedPodInfo {
        pod,
        own: EntryState {
            group_attempt: first.own.group_attempt,
            ..EntryState::default()
        },
        ..first.clone()
    }
}

/// A member joins its queued group, whose place changes only by PreEnqueue. A group that waits for events is retried:
/// the new member can be the missing one.
fn join(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    id: EntryId,
    mut info: QueuedPodInfo,
    (event, strategy): (&str, Option<MoveStrategy>),
) {
    let Some(place) = queue.places.detach(id) else {
        debug_assert!(false, "a queued group is in a place");
        return;
    };
    let uid = info.pod.uid().clone();
    // A member that returns from an earlier attempt is new to a group that was attempted without it since then.
    let is_of_last_attempt = queue
        .places
        .get(id)
        .is_some_and(|e| e.info.own.group_attempt == info.own.group_attempt);
    let waits_on = place == QueuedIn::Unschedulable
        && strategy == Some(MoveStrategy::Skip)
        && is_of_last_attempt;
    let rejectors =
        waits_on.then(|| with_group_rejectors(info.clone(), &info).unschedulable_plugins);
    if place == QueuedIn::Active {
        info.initial_attempt_timestamp.get_or_insert(cx.now);
    }
    if let Some(group) = queue
        .places
        .get_mut(id)
        .and_then(|e| e.info.own.group.as_mut())
    {
        group.unasked.push(uid.clone());
        group.members.insert(uid, info);
        if place == QueuedIn::Unschedulable {
            group.choose_representatives();
        }
    }
    if let (Some(rejectors), Some(entry)) = (rejectors, queue.places.get_mut(id)) {
        // It returns from the attempt after which the group started to wait.
        for plugin in rejectors.iter() {
            entry.info.unschedulable_plugins.insert(plugin);
        }
        queue.places.attach(id, place);
        return;
    }
    match place {
        QueuedIn::Gated => {
            queue.places.attach(id, place);
            queue.out.metrics.pods_arrived(place, event, 1);
            queue.move_to_active(cx, id, event, false);
            ask_about_reason_of_group(queue, cx, id);
        }
        QueuedIn::Unschedulable => {
            queue.places.attach(id, place);
            queue.requeue(cx, id, MoveStrategy::AfterBackoff, event);
        }
        QueuedIn::Active | QueuedIn::Backoff | QueuedIn::ErrorBackoff => {
            ask_about_group(queue, cx, id, false);
            let is_gated = queue.places.get(id).is_some_and(|e| e.info.is_gated());
            let place = if is_gated { QueuedIn::Gated } else { place };
            queue.places.attach(id, place);
            queue.out.metrics.pods_arrived(place, event, 1);
        }
    }
}

/// A member of an incomplete group waits for the missing groups.
fn hold_incomplete(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    leaf: GroupKey,
    mut info: QueuedPodInfo,
    why: &NoRoot,
) {
    let before = info.own.gate.take();
    if queue.out.reports_wanted {
        let message = match why {
            NoRoot::Missing(missing) if *missing == leaf => format!(
                "waiting for pod's pod group {:?} to appear in scheduling queue",
                leaf.name.as_str()
            ),
            other => other.to_string(),
        };
        let gate = Gate {
            plugin: Str::new(GROUP_GATE_PLUGIN),
            reason: NOT_READY_FOR_SCHEDULING,
            message: Str::from(message),
            code: ReasonCode::PodGroup,
            follows_attempt: false,
            is_of_sibling: false,
        };
        queue
            .out
            .reports
            .rejected(&info.pod, before.as_ref(), &gate, cx.now);
        info.own.gate = Some(gate);
    }
    let place = MemberPlace::Incomplete(leaf.clone());
    queue.places.groups.locate(&info.pod, place);
    let members = queue.places.groups.incomplete.entry(leaf).or_default();
    members.insert(info.pod.uid().clone(), info);
}

/// A group was added, changed or deleted, and the cluster contains the change: members with another root move there.
pub fn group_changed(queue: &mut SchedulingQueue, cx: &Context<'_>, key: &GroupKey) {
    if queue.places.groups.is_empty() {
        return;
    }
    for leaf in cx.cluster.groups().leaves(key) {
        if cx.cluster.groups().root_of(&leaf).is_ok()
            && let Some(members) = queue.places.groups.incomplete.remove(&leaf)
        {
            for (_, info) in members {
                queue.places.groups.forget(&info.pod);
                seat(queue, cx, info, label::GROUP_COMPLETE, None);
            }
        }
    }
    let is_affected = |root: &GroupKey| {
        root.namespace == key.namespace && (root == key || root.kind != key.kind || !is_leaf(key))
    };
    let roots = queue.places.groups.roots.keys();
    let affected: Vec<GroupKey> = roots.filter(|root| is_affected(root)).cloned().collect();
    for root in affected {
        reseat_strangers(queue, cx, &root);
    }
    explain_incomplete(queue, cx, key);
}

/// The members of a group with another root move there.
fn reseat_strangers(queue: &mut SchedulingQueue, cx: &Context<'_>, root: &GroupKey) {
    let groups = cx.cluster.groups();
    let is_stranger = |info: &QueuedPodInfo| {
        let leaf = GroupKey::of_pod(&info.pod);
        leaf.is_none_or(|leaf| groups.root_of(&leaf).as_ref() != Ok(root))
    };
    let strangers = match queue.places.groups.roots.get_mut(root) {
        None => return,
        Some(RootPlace::InFlight(pending)) => take_out(pending, is_stranger),
        Some(RootPlace::Queued(id)) => {
            let id = *id;
            let group = queue.places.get(id).and_then(|e| e.info.own.group.as_ref());
            if !group.is_some_and(|group| group.members().any(is_stranger)) {
                return;
            }
            change_group(queue, cx, id, |group| {
                take_out(&mut group.members, is_stranger)
            })
        }
    };
    for info in strangers {
        queue.gated_members.remove(info.pod.uid());
        queue.places.groups.forget(&info.pod);
        seat(queue, cx, info, label::GROUP_COMPLETE, None);
    }
}

/// The reason of the incomplete members of a group has changed.
fn explain_incomplete(queue: &mut SchedulingQueue, cx: &Context<'_>, key: &GroupKey) {
    let leaves = queue.places.groups.incomplete.keys();
    let leaves = leaves.filter(|leaf| leaf.namespace == key.namespace);
    for leaf in leaves.cloned().collect::<Vec<_>>() {
        let Err(why) = cx.cluster.groups().root_of(&leaf) else {
            continue;
        };
        let members = queue.places.groups.incomplete.remove(&leaf);
        for (_, info) in members.unwrap_or_default() {
            hold_incomplete(queue, cx, leaf.clone(), info, &why);
        }
    }
}

/// Changes the members of a queued group. An empty group leaves the queue; for a group whose blocking member was
/// removed, PreEnqueue runs again.
fn change_group<R>(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    id: EntryId,
    change: impl FnOnce(&mut QueuedGroup) -> R,
) -> R
where
    R: Default,
{
    let place = queue.places.detach(id);
    let Some((group, place)) = queue
        .places
        .get_mut(id)
        .and_then(|entry| entry.info.own.group.as_mut())
        .zip(place)
    else {
        return R::default();
    };
    let result = change(group);
    let is_freed = group
        .blocker
        .as_ref()
        .is_some_and(|b| !group.members.contains_key(b));
    if is_freed {
        group.blocker = None;
    }
    group.unasked.retain(|uid| group.members.contains_key(uid));
    if place == QueuedIn::Unschedulable {
        group.choose_representatives();
    }
    let (key, is_empty) = (group.key().clone(), group.is_empty());
    if is_empty {
        queue.places.leave(id);
        queue.places.groups.roots.remove(&key);
        return result;
    }
    queue.places.attach(id, place);
    if is_freed && place == QueuedIn::Gated {
        queue.move_to_active(cx, id, label::GROUP_COMPLETE, false);
    }
    result
}

/// A member as it is queued, pending or incomplete.
pub(super) fn member<'q>(queue: &'q SchedulingQueue, uid: &str) -> Option<&'q QueuedPodInfo> {
    let groups = &queue.places.groups;
    match groups.place_of(uid)? {
        MemberPlace::Incomplete(leaf) => groups.incomplete.get(leaf)?.get(uid),
        MemberPlace::Root(root) => match groups.roots.get(root)? {
            RootPlace::InFlight(pending) => pending.get(uid),
            RootPlace::Queued(id) => {
                let group = queue.places.get(*id)?.info.own.group.as_ref()?;
                group.members.get(uid)
            }
        },
    }
}

/// A member has changed.
pub(super) fn update_member(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    old: &Arc<Pod>,
    new: &Arc<Pod>,
) -> PodEvents {
    let events = pod_update_events(old, new, &queue.config.features);
    queue.nominator.update(cx.cluster, old, new);
    let replace = |out: &mut QueueOutputs, info: &mut QueuedPodInfo| {
        if out.reports_wanted {
            out.reports.shown(info, new, cx.now);
        }
        info.pod = new.clone();
    };
    let groups = &mut queue.places.groups;
    let id = match groups.place_of(new.uid()).cloned() {
        None => return events,
        Some(MemberPlace::Incomplete(leaf)) => {
            let members = groups.incomplete.get_mut(&leaf);
            if let Some(info) = members.and_then(|members| members.get_mut(new.uid())) {
                replace(&mut queue.out, info);
            }
            return events;
        }
        Some(MemberPlace::Root(root)) => match groups.roots.get_mut(&root) {
            None => return events,
            Some(RootPlace::InFlight(pending)) => {
                if let Some(info) = pending.get_mut(new.uid()) {
                    replace(&mut queue.out, info);
                }
                return events;
            }
            Some(RootPlace::Queued(id)) => *id,
        },
    };
    let place = queue.places.detach(id);
    let entry = queue.places.get_mut(id);
    if let Some((group, place)) = entry.and_then(|e| e.info.own.group.as_mut()).zip(place) {
        if let Some(info) = group.members.get_mut(new.uid()) {
            replace(&mut queue.out, info);
        }
        if place == QueuedIn::Unschedulable {
            group.choose_representatives();
        }
        queue.places.attach(id, place);
        file_members(queue, id, std::slice::from_ref(new.uid()));
        if place.is_unschedulable_pool() {
            queue.reconsider_updated(cx, id, (old, new), &events);
        }
        reconsider_member(queue, cx, (old, new), &events);
    }
    events
}

/// An update of a member of a gated group can end its own reason.
fn reconsider_member(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    (old, new): (&Arc<Pod>, &Arc<Pod>),
    events: &[ClusterEvent],
) {
    if !queue.gated_members.contains(new.uid()) {
        return;
    }
    let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
    let change = Change {
        old: Some(&before),
        new: Some(&after),
    };
    let Some(info) = member(queue, new.uid()).cloned() else {
        return;
    };
    let helps =
        |event: &ClusterEvent| strategy_of(queue, cx, &info, event, change) != MoveStrategy::Skip;
    if events.iter().any(helps) {
        ask_about_member(queue, cx, new.uid());
    }
}

/// The pod was deleted, or has a node. As [`SchedulingQueue::delete`], for members of groups, too.
pub fn remove_pod(queue: &mut SchedulingQueue, cx: &Context<'_>, pod: &Pod) {
    queue.delete(pod);
    let uid = pod.uid();
    let Some(place) = queue.places.groups.place_of(uid).cloned() else {
        return;
    };
    let groups = &mut queue.places.groups;
    let mut id = None;
    let removed = match &place {
        MemberPlace::Incomplete(leaf) => {
            let members = groups.incomplete.get_mut(leaf);
            let removed = members.and_then(|members| members.shift_remove(uid));
            groups.incomplete.retain(|_, members| !members.is_empty());
            removed
        }
        MemberPlace::Root(root) => match groups.roots.get_mut(root) {
            Some(RootPlace::InFlight(pending)) => pending.shift_remove(uid),
            Some(RootPlace::Queued(queued)) => {
                id = Some(*queued);
                None
            }
            None => None,
        },
    };
    queue.gated_members.remove(uid);
    let removed = match id {
        None => removed,
        Some(id) => change_group(queue, cx, id, |group| group.members.shift_remove(uid)),
    };
    if let Some(info) = removed {
        queue.places.groups.forget(&info.pod);
        queue.out.metrics.count_rejectors(&info, -1.0);
    }
}

/// The members of a popped group are in flight from now on.
pub(super) fn take_off_members(queue: &mut SchedulingQueue, info: &mut QueuedPodInfo, now: Time) {
    let Some(group) = info.own.group.as_mut() else {
        return;
    };
    let place = RootPlace::InFlight(Members::default());
    let groups = &mut queue.places.groups;
    groups.roots.insert(group.key().clone(), place);
    groups.attempts += 1;
    info.own.group_attempt = groups.attempts;
    for member in group.members.values_mut() {
        member.attempts = member.attempts.saturating_add(1);
        member.own.group_attempt = info.own.group_attempt;
        member.own.group_rejectors = PluginSet::default();
        member.initial_attempt_timestamp.get_or_insert(now);
        queue.out.metrics.count_rejectors(member, -1.0);
        queue.places.groups.forget(&member.pod);
        if !queue.in_flight.contains(member.pod.uid()) {
            queue.in_flight.start(&member.pod, &mut queue.out.metrics);
        }
    }
}

/// A member of a group has returned from an attempt; its flight has ended. It waits for the end of the attempt of its
/// group, if that continues.
pub(super) fn return_member(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    mut info: QueuedPodInfo,
) -> QueuedIn {
    info.was_flushed_from_unschedulable = false;
    if !std::mem::take(&mut info.own.is_rejected_as_before) {
        info.count_failure(cx.now);
    }
    info.own.template = None;
    queue.out.metrics.count_rejectors(&info, 1.0);
    let uid = info.pod.uid().clone();
    // Every event that can help its group can help it.
    let judged = with_group_rejectors(info.clone(), &info);
    let strategy = strategy_after_flight(queue, cx, &judged);
    queue.in_flight.done(&uid, &mut queue.out.metrics);
    seat(
        queue,
        cx,
        info,
        label::SCHEDULE_ATTEMPT_FAILURE,
        Some(strategy),
    );
    place_of_member(queue, &uid).unwrap_or(QueuedIn::Active)
}

/// The place of a member in the queue: incomplete members count as gated, pending members as active.
pub(super) fn place_of_member(queue: &SchedulingQueue, uid: &str) -> Option<QueuedIn> {
    let groups = &queue.places.groups;
    match groups.place_of(uid)? {
        MemberPlace::Incomplete(_) => Some(QueuedIn::Gated),
        MemberPlace::Root(root) => match groups.roots.get(root)? {
            RootPlace::InFlight(_) => Some(QueuedIn::Active),
            RootPlace::Queued(id) => queue.places.get(*id)?.place,
        },
    }
}

/// The attempt of a group has ended, and its unplaced members have returned. `info` is the popped entry, without its
/// members. Returns the place of the group, if members wait.
pub fn group_ended(
    queue: &mut SchedulingQueue,
    cx: &Context<'_>,
    mut info: QueuedPodInfo,
    key: &GroupKey,
    end: &GroupEnd,
) -> Option<QueuedIn> {
    let place = queue.places.groups.roots.remove(key);
    let members = match place {
        Some(RootPlace::InFlight(members)) => members,
        _ => Members::default(),
    };
    let uid = info.pod.uid().clone();
    let groups = cx.cluster.groups();
    let (members, strangers): (Vec<_>, Vec<_>) = members.into_iter().partition(|(_, info)| {
        let leaf = GroupKey::of_pod(&info.pod);
        leaf.is_some_and(|leaf| groups.root_of(&leaf).as_ref() == Ok(key))
    });
    let is_new = |(_, info): &(Str, QueuedPodInfo)| info.attempts == 0;
    let all_new = members.iter().all(is_new);
    let attempt = info.own.group_attempt;
    let has_untried = members
        .iter()
        .any(|(_, info)| info.own.group_attempt != attempt);
    let mut group = QueuedGroup::new(key.clone());
    group.unasked = members
        .iter()
        .filter(|m| is_new(m))
        .map(|(uid, _)| uid.clone())
        .collect();
    group.members = members.into_iter().collect();
    group.choose_representatives();
    info.clear_rejectors();
    info.own.gate = None;
    info.was_flushed_from_unschedulable = false;
    let place = (!group.is_empty()).then(|| {
        let strategy = match end {
            GroupEnd::Success => {
                info.unschedulable_count = 0;
                info.in_a_row = Default::default();
                if all_new {
                    info.timestamp = cx.now;
                }
                info.own.group = Some(Box::new(group));
                MoveStrategy::Immediately
            }
            GroupEnd::Error => {
                info.count_failure(cx.now);
                info.own.group = Some(Box::new(group));
                MoveStrategy::AfterBackoff
            }
            GroupEnd::Rejected(plugins) => {
                for plugin in plugins {
                    info.unschedulable_plugins.insert(plugin);
                }
                for member in group.members.values() {
                    for plugin in member.unschedulable_plugins.iter() {
                        info.unschedulable_plugins.insert(plugin);
                    }
                    for plugin in member.pending_plugins.iter() {
                        info.pending_plugins.insert(plugin);
                    }
                }
                info.count_failure(cx.now);
                info.own.group = Some(Box::new(group));
                match strategy_after_flight(queue, cx, &info) {
                    MoveStrategy::Skip if has_untried => MoveStrategy::AfterBackoff,
                    strategy => strategy,
                }
            }
        };
        let id = queue.places.enter(info);
        let queued = RootPlace::Queued(id);
        queue.places.groups.roots.insert(key.clone(), queued);
        queue.requeue(cx, id, strategy, label::SCHEDULE_ATTEMPT_FAILURE)
    });
    queue.in_flight.done(&uid, &mut queue.out.metrics);
    for (_, info) in strangers {
        queue.places.groups.forget(&info.pod);
        seat(queue, cx, info, label::GROUP_COMPLETE, None);
    }
    place
}

/// A popped group is returned without an attempt, because PreEnqueue plugins reject it.
pub fn group_untried(queue: &mut SchedulingQueue, cx: &Context<'_>, mut info: QueuedPodInfo) {
    let Some(group) = info.own.group.take() else {
        debug_assert!(false, "the entry is that of a group");
        return;
    };
    let key = group.key().clone();
    queue.places.groups.roots.remove(&key);
    queue.in_flight.done(info.pod.uid(), &mut queue.out.metrics);
    for (uid, mut member) in group.members {
        member.attempts = member.attempts.saturating_sub(1);
        queue.in_flight.done(&uid, &mut queue.out.metrics);
        queue.out.metrics.count_rejectors(&member, 1.0);
        seat(queue, cx, member, label::SCHEDULE_ATTEMPT_FAILURE, None);
    }
}

fn is_leaf(key: &GroupKey) -> bool {
    key.kind == berth_framework::cluster::GroupKind::PodGroup
}

/// Removes the members that satisfy `which`.
fn take_out(members: &mut Members, which: impl Fn(&QueuedPodInfo) -> bool) -> Vec<QueuedPodInfo> {
    let taken = members.extract_if(.., |_, info| which(info));
    taken.map(|(_, info)| info).collect()
}
