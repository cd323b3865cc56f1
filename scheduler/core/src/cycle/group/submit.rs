//! The end of the cycle of a group: its placed members are bound, or none of them is.

use super::post_filter::GroupNominations;
use super::{GroupCycle, GroupRun, Member, MemberFound, feasible, settled};
use crate::attempt::{AssumedPod, Attempt, CycleResult};
use crate::call_results::note_trial;
use crate::core::{Core, Framework, activate_wanted};
use crate::cycle::place::{Permission, permit};
use crate::failure::{AttemptFailure, fail};
use crate::group_status;
use crate::nominations;
use crate::placement::{Permitted, failure_of_stage, undo_placement};
use berth_api::Str;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::plugin::{Context, Nominating};
use berth_framework::{Code, Status};
use berth_profile::Profile;
use berth_queue::SchedulingQueue;

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
    settled(feasible(cx, profile, key, scheduled, 0))
}

/// Applies the decision about the group to its members. Returns the final status of the group: without a member that a
/// Permit plugin rejects, the group may not be able to start.
pub(super) fn submit(
    core: &mut Core,
    mut run: GroupRun,
    mut status: Status,
    nominations: &GroupNominations,
    ended: &mut GroupCycle,
) -> Status {
    if !status.is_success() {
        run.revert(&mut core.framework, core.queue.nominator_mut(), 0);
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
        let Member {
            mut attempt,
            found,
            nominated,
            ..
        } = member;
        let pod = attempt.pod_ref();
        let result = match found {
            MemberFound::Placed(placed) => {
                let (framework, queue) = (&mut core.framework, &mut core.queue);
                match permit_member(framework, queue, &mut attempt, &placed, nominated) {
                    Ok(Permission { holds, waits }) => {
                        permitted.push(Permitted {
                            attempt,
                            placed: *placed,
                            holds,
                            waits,
                        });
                        continue;
                    }
                    Err(failure) => fail(core, attempt, failure),
                }
            }
            _ => CycleResult::Skipped,
        };
        is_short = true;
        ended.results.push((pod, result));
    }
    if is_short {
        let quorum = is_quorate(&core.framework.context(), &profile, &root);
        if permitted.is_empty() || !quorum.is_success() {
            status = if quorum.is_success() {
                Status::unschedulable("no pods were schedulable")
            } else {
                quorum
            };
            statuses.insert(root.clone(), status.clone());
            // In reverse order: a member may have been reserved with the remains of an earlier member's reservation.
            for mut member in std::mem::take(&mut permitted).into_iter().rev() {
                undo_placement(&mut core.framework, &mut member.attempt, &member.placed);
                note_trial(&mut core.framework);
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
    core.make_requested_calls();
    let Core {
        framework, calls, ..
    } = &mut *core;
    group_status::write_all(framework, calls, &root, &profile.name, &statuses);
    for member in members.into_iter().flatten() {
        let groups = core.framework.cache.cluster().groups();
        let of_group = group_status::deciding(groups, &statuses, &member.leaf);
        let nominating = nominations.of(member.attempt.pod.pod.uid());
        let failure = failure_of(member.found, of_group, &status, nominating);
        let pod = member.attempt.pod_ref();
        let result = fail(core, member.attempt, failure);
        ended.results.push((pod, result));
    }
    status
}

/// Calls the Permit plugins for a placed member, which was nominated to a node before.
///
/// # Errors
/// The failure of the attempt, if a plugin rejects the member or fails.
fn permit_member(
    framework: &mut Framework,
    queue: &mut SchedulingQueue,
    attempt: &mut Attempt,
    placed: &AssumedPod,
    nominated: Option<Str>,
) -> Result<Permission, AttemptFailure> {
    queue.end_turn(attempt.pod.pod.uid());
    if nominated.is_some_and(|node| node != placed.node) {
        // The resources on the nominated node are free for other pods.
        let pod = &attempt.pod.pod;
        nominations::end(framework, queue, pod, &nominations::End::Written);
    }
    match permit(framework, attempt, placed) {
        Ok(permission) => {
            activate_wanted(framework, queue, attempt.pod.pod.uid());
            Ok(permission)
        }
        Err(status) => {
            undo_placement(framework, attempt, placed);
            Err(failure_of_stage(framework.cache.cluster(), placed, &status))
        }
    }
}

/// The failure of a member that is not placed: its own reason if it has one, otherwise the reason of its group.
fn failure_of(
    found: MemberFound,
    of_group: Option<&Status>,
    of_root: &Status,
    nominating: Nominating,
) -> AttemptFailure {
    let is_error = of_root.code() == Code::Error;
    match found {
        MemberFound::Unfit(error) if !is_error => AttemptFailure::unfit(error, nominating),
        MemberFound::Rejected(own) if !is_error => AttemptFailure::of_status(&own, nominating),
        MemberFound::Failed(own) => AttemptFailure::of_status(&own, nominating),
        _ => AttemptFailure::of_group(of_group.unwrap_or(of_root), nominating),
    }
}
