//! The members of groups: entering the queue, joining their group, waiting for it, and leaving the queue.

use super::entry::{
    EntryId, EntryState, Gate, Members, QueuedGroup, QueuedIn, QueuedPodInfo, placeholder,
};
use super::groups::{MemberPlace, PlacedMembers};
use super::hints::MoveStrategy;
use super::outputs::QueueOutputs;
use super::{SchedulingQueue, label};
use berth_api::{Pod, Str};
use berth_framework::cluster::{GROUP_GATE_PLUGIN, GroupKey, GroupKind, NoRoot};
use berth_framework::condition::NOT_READY_FOR_SCHEDULING;
use berth_framework::event::Change;
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{ClusterEvent, Feature, ReasonCode};
use std::sync::Arc;

impl SchedulingQueue {
    /// The pod group of a queued pod, if it is queued with a group.
    pub(super) fn group_of(&self, pod: &Pod) -> Option<GroupKey> {
        // A pod with a node that waits for a resize is queued without its group.
        let is_on = self.config.features.enabled(Feature::GenericWorkload) && !pod.is_assigned();
        is_on.then(|| GroupKey::of_pod(pod)).flatten()
    }

    /// A new member of a group, or a changed one.
    pub(super) fn add_member(&mut self, cx: &Context<'_>, pod: Arc<Pod>, event: &str) {
        let known = self.places.groups.uid_of(pod.namespace(), pod.name());
        let known = known.and_then(|uid| self.places.member(uid));
        if let Some(old) = known.map(|(_, info)| info.pod.clone()) {
            if old.uid() == pod.uid() {
                self.update(cx, &old, &pod);
                return;
            }
            self.remove(cx, &old);
        }
        self.nominator.add(cx.cluster, &pod, &Nominating::Keep);
        self.place_member(cx, QueuedPodInfo::new(pod, cx.now), event, None);
    }

    /// Places a member: in its queued group, among the pending members of a group in an attempt, in a new entry, or among
    /// the incomplete members. `strategy` is the effect of the events during the attempt from which the member returns.
    pub(super) fn place_member(
        &mut self,
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
            Err(why) => return self.hold_incomplete(cx, leaf, info, &why),
        };
        let place = MemberPlace::Root(root.clone());
        let id = match self.places.groups.placed(&place) {
            Some(PlacedMembers::Outside(_)) => {
                return self.places.groups.put_outside(place, info);
            }
            Some(PlacedMembers::Queued(id)) => *id,
            None => self.enter_group(cx, root, &info),
        };
        self.places.groups.locate(&info.pod, place);
        self.join(cx, id, info, event, strategy);
    }

    /// Creates the entry of a group, with the history of its first member and without members.
    fn enter_group(&mut self, cx: &Context<'_>, root: GroupKey, first: &QueuedPodInfo) -> EntryId {
        let spec = cx.cluster.groups().spec(&root);
        let priority = spec.map_or(0, |spec| spec.priority());
        let id = self.places.enter(QueuedPodInfo {
            pod: placeholder(&root, priority, &first.pod.spec.scheduler_name),
            own: EntryState {
                group: Some(Box::new(QueuedGroup::new(root.clone()))),
                group_attempt: first.own.group_attempt,
                ..EntryState::default()
            },
            ..first.clone()
        });
        self.places.groups.set_queued(root, id);
        id
    }

    /// A member joins its queued group, whose place changes only by PreEnqueue. A group that waits for events is retried:
    /// the new member can be the missing one. A new entry moves according to `strategy`.
    fn join(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        mut info: QueuedPodInfo,
        event: &str,
        strategy: Option<MoveStrategy>,
    ) {
        let place = self.places.detach(id);
        let Some(entry) = self.places.get_mut(id) else {
            debug_assert!(false, "a queued group has an entry");
            return;
        };
        // A member that returns from an earlier attempt is new to a group that was attempted without it since then.
        let is_of_last_attempt = entry.info.own.group_attempt == info.own.group_attempt;
        let waits_on = place == Some(QueuedIn::Unschedulable)
            && strategy == Some(MoveStrategy::Skip)
            && is_of_last_attempt;
        // A group waits for the plugins that rejected any member in the attempt after which it started to wait.
        if waits_on || place.is_none() && strategy.is_some() {
            let of_group = info.own.group_rejectors.iter();
            let plugins = info.unschedulable_plugins.iter().chain(of_group);
            entry.info.unschedulable_plugins.extend(plugins);
        }
        if place == Some(QueuedIn::Active) {
            info.initial_attempt_timestamp.get_or_insert(cx.now);
        }
        if let Some(group) = entry.info.own.group.as_mut() {
            let uid = info.pod.uid().clone();
            group.unasked.push(uid.clone());
            group.members.insert(uid, info);
            if place.is_none_or(|place| place == QueuedIn::Unschedulable) {
                group.choose_representatives();
            }
        }
        match place {
            None => {
                let strategy = strategy.unwrap_or(MoveStrategy::Immediately);
                self.requeue(cx, id, strategy, event);
            }
            Some(place) if waits_on => self.places.attach(id, place),
            Some(QueuedIn::Unschedulable) => {
                self.places.attach(id, QueuedIn::Unschedulable);
                self.requeue(cx, id, MoveStrategy::AfterBackoff, event);
            }
            Some(QueuedIn::Gated) => {
                self.places.attach(id, QueuedIn::Gated);
                self.out.metrics.pods_arrived(QueuedIn::Gated, event, 1);
                self.move_to_active(cx, id, event, false);
                self.ask_about_reason_of_group(cx, id);
            }
            Some(place) => {
                self.ask_about_group(cx, id, false);
                let is_gated = self.places.get(id).is_some_and(|e| e.info.is_gated());
                let place = if is_gated { QueuedIn::Gated } else { place };
                self.places.attach(id, place);
                self.out.metrics.pods_arrived(place, event, 1);
            }
        }
    }

    /// A member of an incomplete group waits for the missing groups.
    fn hold_incomplete(
        &mut self,
        cx: &Context<'_>,
        leaf: GroupKey,
        mut info: QueuedPodInfo,
        why: &NoRoot,
    ) {
        // No plugin ran: the member has the reason of the missing group and no rejector, so only the group wakes it.
        let before = info.own.gate.take();
        if self.out.reports_wanted {
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
            let reports = &mut self.out.reports;
            reports.rejected(&info.pod, before.as_ref(), &gate, cx.now);
            info.own.gate = Some(gate);
        }
        let place = MemberPlace::Incomplete(leaf);
        self.places.groups.put_outside(place, info);
    }

    /// A group was added, changed or deleted, and the cluster contains the change: members with another root move there,
    /// and the reason of incomplete members is updated.
    pub fn group_changed(&mut self, cx: &Context<'_>, key: &GroupKey) {
        if self.places.groups.is_empty() {
            return;
        }
        for leaf in cx.cluster.groups().leaves(key) {
            if cx.cluster.groups().root_of(&leaf).is_ok() {
                let place = MemberPlace::Incomplete(leaf);
                for (_, info) in self.places.groups.take(&place) {
                    self.place_member_again(cx, info);
                }
            }
        }
        // A changed leaf that is no root can only have changed the root of a composite group.
        let is_leaf = key.kind == GroupKind::PodGroup;
        let is_affected = |root: &GroupKey| root == key || root.kind != key.kind || !is_leaf;
        let (mut roots, mut incomplete) = (Vec::new(), Vec::new());
        for place in self.places.groups.places() {
            match place {
                MemberPlace::Root(root) | MemberPlace::Incomplete(root)
                    if root.namespace != key.namespace => {}
                MemberPlace::Root(root) if is_affected(root) => roots.push(root.clone()),
                MemberPlace::Root(_) => {}
                MemberPlace::Incomplete(leaf) => incomplete.push(leaf.clone()),
            }
        }
        for root in roots {
            self.place_moved_members(cx, root);
        }
        for leaf in incomplete {
            if let Err(why) = cx.cluster.groups().root_of(&leaf) {
                let place = MemberPlace::Incomplete(leaf.clone());
                for (_, info) in self.places.groups.take(&place) {
                    self.hold_incomplete(cx, leaf.clone(), info, &why);
                }
            }
        }
    }

    /// The members of a group with another root move there.
    fn place_moved_members(&mut self, cx: &Context<'_>, root: GroupKey) {
        let groups = cx.cluster.groups();
        let has_other_root = |info: &QueuedPodInfo| {
            let leaf = GroupKey::of_pod(&info.pod);
            leaf.is_none_or(|leaf| groups.root_of(&leaf).as_ref() != Ok(&root))
        };
        let take_out = |members: &mut Members| -> Vec<QueuedPodInfo> {
            let taken = members.extract_if(.., |_, info| has_other_root(info));
            taken.map(|(_, info)| info).collect()
        };
        let place = MemberPlace::Root(root.clone());
        let moved = match self.places.groups.placed(&place) {
            None => return,
            Some(PlacedMembers::Outside(pending)) => take_out(pending),
            Some(PlacedMembers::Queued(id)) => {
                let id = *id;
                // Most changes of groups move no member; the group then keeps its place.
                let group = self.places.get(id).and_then(|e| e.info.own.group.as_ref());
                if !group.is_some_and(|group| group.members().any(has_other_root)) {
                    return;
                }
                self.change_group(cx, id, |group, _| take_out(&mut group.members))
            }
        };
        for info in moved {
            self.place_member_again(cx, info);
        }
    }

    /// A member is placed again, because its root can be another one.
    pub(super) fn place_member_again(&mut self, cx: &Context<'_>, info: QueuedPodInfo) {
        self.places.remove_member(info.pod.uid());
        self.places.groups.forget(&info.pod);
        self.place_member(cx, info, label::GROUP_COMPLETE, None);
    }

    /// Changes the members of a queued group. An empty group leaves the queue; for a group whose blocking member was
    /// removed, PreEnqueue runs again.
    fn change_group<R: Default>(
        &mut self,
        cx: &Context<'_>,
        id: EntryId,
        change: impl FnOnce(&mut QueuedGroup, &mut QueueOutputs) -> R,
    ) -> R {
        let place = self.places.detach(id);
        let entry = self.places.get_mut(id);
        let group = entry.and_then(|entry| entry.info.own.group.as_mut());
        let Some((group, place)) = group.zip(place) else {
            return R::default();
        };
        let result = change(group, &mut self.out);
        let is_freed = group.forget_removed();
        if place == QueuedIn::Unschedulable {
            group.choose_representatives();
        }
        if group.is_empty() {
            let root = MemberPlace::Root(group.key().clone());
            self.places.leave(id);
            self.places.groups.take(&root);
            return result;
        }
        self.places.attach(id, place);
        if is_freed && place == QueuedIn::Gated {
            self.move_to_active(cx, id, label::GROUP_COMPLETE, false);
        }
        result
    }

    /// A member has changed.
    pub(super) fn update_member(
        &mut self,
        cx: &Context<'_>,
        new: &Arc<Pod>,
        change: Change<'_>,
        events: &[ClusterEvent],
    ) {
        let Some(place) = self.places.groups.place_of(new.uid()).cloned() else {
            return;
        };
        let id = match self.places.groups.placed(&place) {
            Some(PlacedMembers::Queued(id)) => *id,
            Some(PlacedMembers::Outside(members)) => {
                if let Some(info) = members.get_mut(new.uid()) {
                    self.out.replace_pod(info, new, cx.now);
                }
                return;
            }
            None => return,
        };
        self.change_group(cx, id, |group, out| {
            if let Some(info) = group.members.get_mut(new.uid()) {
                out.replace_pod(info, new, cx.now);
            }
        });
        self.index_members(id, std::slice::from_ref(new.uid()));
        self.reconsider_updated(cx, id, change, events);
        // The update can also end the member's own reason, behind the member that gates the group.
        if let Some(id) = self.places.member_entry(new.uid()) {
            let effect = |event| self.strategy_for(cx, id, event, change);
            let mut effects = events.iter().map(effect);
            if effects.any(|effect| effect != Some(MoveStrategy::Skip)) {
                self.ask_about_member(cx, new.uid());
            }
        }
    }

    /// The pod was deleted, or has a node. As [`SchedulingQueue::delete`], for members of groups, too.
    pub fn remove(&mut self, cx: &Context<'_>, pod: &Pod) {
        self.delete(pod);
        let uid = pod.uid();
        let Some(place) = self.places.groups.place_of(uid).cloned() else {
            return;
        };
        self.places.remove_member(uid);
        let removed = match self.places.groups.placed(&place) {
            Some(PlacedMembers::Queued(id)) => {
                let id = *id;
                self.change_group(cx, id, |group, _| group.members.shift_remove(uid))
            }
            Some(PlacedMembers::Outside(members)) => {
                let removed = members.shift_remove(uid);
                if members.is_empty() && matches!(place, MemberPlace::Incomplete(_)) {
                    self.places.groups.take(&place);
                }
                removed
            }
            None => None,
        };
        if let Some(info) = removed {
            self.places.groups.forget(&info.pod);
            self.out.metrics.count_rejectors(&info, -1.0);
        }
    }
}
