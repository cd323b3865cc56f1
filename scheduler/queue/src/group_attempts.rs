//! The attempts of groups: all members are popped with their group, and return before the attempt of the group ends.

use super::entry::{FailuresInARow, PluginSet, QueuedGroup, QueuedIn, QueuedPodInfo};
use super::groups::MemberPlace;
use super::hints::MoveStrategy;
use super::{SchedulingQueue, label};
use berth_api::{Str, Time};
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::Context;

/// The result of the attempt of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupEnd {
    /// Some members were placed.
    Success,
    /// The group was rejected by these plugins, in addition to the plugins that rejected its members.
    Rejected(Vec<Str>),
    /// An error occurred.
    Error,
}

impl SchedulingQueue {
    /// The members of a popped group are in flight from now on.
    pub(super) fn take_off_members(&mut self, info: &mut QueuedPodInfo, now: Time) {
        let Some(group) = info.own.group.as_mut() else {
            return;
        };
        let attempt = self.places.groups.begin_attempt(group.key().clone());
        info.own.group_attempt = attempt;
        for member in group.members.values_mut() {
            member.attempts = member.attempts.saturating_add(1);
            member.own.group_attempt = attempt;
            member.own.group_rejectors = PluginSet::default();
            member.initial_attempt_timestamp.get_or_insert(now);
            self.out.metrics.count_rejectors(member, -1.0);
            self.places.groups.forget(&member.pod);
            if !self.in_flight.contains(member.pod.uid()) {
                let metrics = &mut self.out.metrics;
                self.in_flight.start(&member.pod, metrics);
            }
        }
    }

    /// A popped group is returned without an attempt, because PreEnqueue plugins reject it.
    pub fn group_untried(&mut self, cx: &Context<'_>, mut info: QueuedPodInfo) {
        let Some(group) = info.own.group.take() else {
            debug_assert!(false, "the entry is that of a group");
            return;
        };
        let root = MemberPlace::Root(group.key().clone());
        self.places.groups.take(&root);
        self.in_flight.done(info.pod.uid(), &mut self.out.metrics);
        for (uid, mut member) in group.members {
            member.attempts = member.attempts.saturating_sub(1);
            self.in_flight.done(&uid, &mut self.out.metrics);
            self.out.metrics.count_rejectors(&member, 1.0);
            self.place_member(cx, member, label::SCHEDULE_ATTEMPT_FAILURE, None);
        }
    }

    /// A member of a group has returned from an attempt; its flight has ended. It waits for the end of the attempt of its
    /// group, if that continues.
    pub(super) fn return_member(&mut self, cx: &Context<'_>, mut info: QueuedPodInfo) -> QueuedIn {
        info.own.template = None;
        let uid = info.pod.uid().clone();
        // Every event that can help its group can help it.
        let mut judged = info.clone();
        let of_group = info.own.group_rejectors.iter();
        judged.unschedulable_plugins.extend(of_group);
        let strategy = self.strategy_after_flight(cx, &judged);
        self.in_flight.done(&uid, &mut self.out.metrics);
        let event = label::SCHEDULE_ATTEMPT_FAILURE;
        self.place_member(cx, info, event, Some(strategy));
        let place = self.places.member(&uid).map(|(place, _)| place);
        place.unwrap_or(QueuedIn::Active)
    }

    /// The attempt of a group has ended, and its unplaced members have returned. `info` is the popped entry, without its
    /// members. Returns the place of the group, if members wait.
    pub fn group_ended(
        &mut self,
        cx: &Context<'_>,
        info: QueuedPodInfo,
        key: &GroupKey,
        end: &GroupEnd,
    ) -> Option<QueuedIn> {
        let members = self.places.groups.take(&MemberPlace::Root(key.clone()));
        // The hierarchy can have changed during the attempt.
        let groups = cx.cluster.groups();
        let (members, moved): (Vec<_>, Vec<_>) = members.into_iter().partition(|(_, info)| {
            let leaf = GroupKey::of_pod(&info.pod);
            leaf.is_some_and(|leaf| groups.root_of(&leaf).as_ref() == Ok(key))
        });
        let mut group = QueuedGroup::new(key.clone());
        group.members = members.into_iter().collect();
        let new = group.members().filter(|member| member.attempts == 0);
        group.unasked = new.map(|member| member.pod.uid().clone()).collect();
        group.choose_representatives();
        let uid = info.pod.uid().clone();
        let place = (!group.is_empty()).then(|| self.return_group(cx, info, group, end));
        self.in_flight.done(&uid, &mut self.out.metrics);
        for (_, info) in moved {
            self.place_member_again(cx, info);
        }
        place
    }

    /// Queues a group again, with the members that wait.
    fn return_group(
        &mut self,
        cx: &Context<'_>,
        mut info: QueuedPodInfo,
        group: QueuedGroup,
        end: &GroupEnd,
    ) -> QueuedIn {
        info.clear_rejectors();
        info.own.gate = None;
        info.was_flushed_from_unschedulable = false;
        match end {
            GroupEnd::Success => {
                info.unschedulable_count = 0;
                info.in_a_row = FailuresInARow::default();
                // The group waits since the members that were attempted were queued. Without one, it is a new group.
                if group.members().all(|member| member.attempts == 0) {
                    info.timestamp = cx.now;
                }
            }
            GroupEnd::Error => info.count_failure(cx.now),
            GroupEnd::Rejected(plugins) => {
                let unschedulable = group.members().flat_map(|m| m.unschedulable_plugins.iter());
                let unschedulable = unschedulable.chain(plugins);
                info.unschedulable_plugins.extend(unschedulable);
                let pending = group.members().flat_map(|m| m.pending_plugins.iter());
                info.pending_plugins.extend(pending);
                info.count_failure(cx.now);
            }
        }
        let attempt = info.own.group_attempt;
        let has_untried = group.members().any(|m| m.own.group_attempt != attempt);
        let root = group.key().clone();
        info.own.group = Some(Box::new(group));
        let strategy = match end {
            GroupEnd::Success => MoveStrategy::Immediately,
            GroupEnd::Error => MoveStrategy::AfterBackoff,
            GroupEnd::Rejected(_) => match self.strategy_after_flight(cx, &info) {
                // An untried member can be the missing one.
                MoveStrategy::Skip if has_untried => MoveStrategy::AfterBackoff,
                strategy => strategy,
            },
        };
        let id = self.places.enter(info);
        self.places.groups.set_queued(root, id);
        self.requeue(cx, id, strategy, label::SCHEDULE_ATTEMPT_FAILURE)
    }
}
