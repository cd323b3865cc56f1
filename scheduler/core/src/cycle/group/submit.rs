//! The end of the cycle of a group: its placed members are bound, or none of them is.

use super::post_filter::GroupNominations;
use super::{GroupCycle, GroupRun, Member, MemberFound, feasible, settled};
use crate::attempt::CycleResult;
use crate::call_results::note_trial;
use crate::core::Core;
use crate::cycle::CycleStep;
use crate::cycle::place::permit;
use crate::failure::{AttemptFailure, fail};
use crate::group_status;
use crate::nominations;
use crate::placement::{Permitted, undo_placement};
use berth_api::Str;
use berth_framework::call::PodRef;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{Code, Status};
use berth_profile::Profile;
use rustc_hash::FxHashMap;

/// Returns whether a group has enough scheduled members, not counting future ones.
fn is_quorate(cx: &Context<'_>, profile: &Profile, key: &GroupKey) -> Status {
    let groups = cx.cluster.groups();
    let scheduled = match key.kind {
        GroupKind::PodGroup => {
            let members = cx.cluster.pods.members(key);
            members.map_or(0, |members| members.scheduled().len())
        }
        GroupKind::CompositePodGroup => {
            let children = groups.children(key);
            let quorate = |child: &&GroupKey| is_quorate(cx, profile, child).is_success();
            children.iter().filter(quorate).count()
        }
    };
    settled(feasible(cx, profile, key, (scheduled, 0)))
}

/// Applies the decision about the group to its members. Returns the final status of the group: without a member that a
/// Permit plugin rejects, the group may not be able to start.
pub(super) fn submit(
    core: &mut Core,
    mut run: GroupRun,
    (mut status, nominations): (Status, &GroupNominations),
    ended: &mut GroupCycle,
) -> Status {
    if !status.is_success() {
        run.revert(core, 0);
    }
    let GroupRun {
        root,
        profile,
        members,
        placed,
        mut statuses,
        ..
    } = run;
    statuses.insert(root.clone(), status.clone());
    let mut members: Vec<Option<Member>> = members.into_iter().map(Some).collect();
    let mut permitted = Vec::with_capacity(placed.len());
    let mut is_short = false;
    for at in placed {
        let Some(member) = members[at].take() else {
            continue;
        };
        match permit_member(core, member) {
            Ok(member) => permitted.push(member),
            Err(result) => {
                is_short = true;
                ended.results.push(result);
            }
        }
    }
    if is_short {
        let quorum = is_quorate(&core.context(), &profile, &root);
        if permitted.is_empty() || !quorum.is_success() {
            status = if quorum.is_success() {
                Status::unschedulable("no pods were schedulable")
            } else {
                quorum
            };
            statuses.insert(root.clone(), status.clone());
            // In reverse order: a member may have been reserved with the remains of an earlier member's reservation.
            for mut member in std::mem::take(&mut permitted).into_iter().rev() {
                undo_placement(core, &mut member.attempt, &member.placed);
                note_trial(core);
                let failure = AttemptFailure::of_group(&status, Nominating::Set(Str::default()));
                let pod = member.attempt.pod_ref();
                let result = fail(core, member.attempt, failure);
                ended.results.push((pod, result));
            }
        }
    }
    for member in &permitted {
        let result = CycleResult::Placed {
            node: member.placed.node.clone(),
        };
        ended.results.push((member.attempt.pod_ref(), result));
    }
    ended.permitted = permitted;
    group_status::write_all(core, &root, &profile.name, &statuses);
    for member in members.into_iter().flatten() {
        ended
            .results
            .push(fail_member(core, member, &statuses, (&status, nominations)));
    }
    status
}

/// Calls the Permit plugins for a placed member.
fn permit_member(core: &mut Core, member: Member) -> Result<Permitted, (PodRef, CycleResult)> {
    let Member {
        attempt,
        found,
        nominated,
        ..
    } = member;
    let pod = attempt.pod_ref();
    let MemberFound::Placed(placed) = found else {
        return Err((pod, CycleResult::Skipped));
    };
    core.queue.end_turn(&pod.uid);
    if nominated.is_some_and(|node| node != placed.node) {
        // The resources on the nominated node are free for other pods.
        nominations::end(core, &attempt.pod.pod, &nominations::End::Written);
    }
    match permit(core, attempt, *placed) {
        CycleStep::Placed(permitted) => Ok(*permitted),
        CycleStep::Over(result) => Err((pod, result)),
        CycleStep::Parked(_) => Err((pod, CycleResult::Skipped)),
    }
}

/// A member that is not placed returns to the queue: with its own reason if it has one, otherwise with the reason of
/// its group.
fn fail_member(
    core: &mut Core,
    member: Member,
    statuses: &FxHashMap<GroupKey, Status>,
    (of_root, nominations): (&Status, &GroupNominations),
) -> (PodRef, CycleResult) {
    let nominating = nominations.of(member.attempt.pod.pod.uid());
    let is_error = of_root.code() == Code::Error;
    let failure = match member.found {
        MemberFound::Unfit(error) if !is_error => AttemptFailure::unfit(error, nominating),
        MemberFound::Rejected(own) if !is_error => AttemptFailure::of_status(&own, nominating),
        MemberFound::Failed(own) => AttemptFailure::of_status(&own, nominating),
        _ => {
            let groups = core.cache.cluster().groups();
            let of_group = group_status::deciding(groups, statuses, &member.leaf);
            AttemptFailure::of_group(of_group.unwrap_or(of_root), nominating)
        }
    };
    let pod = member.attempt.pod_ref();
    let result = fail(core, member.attempt, failure);
    (pod, result)
}
