//! Judges the world after everything is at rest.

use super::Violation;
use super::groups::{check_groups, is_held_by_group};
use crate::rules::DecidedDevices;
use crate::rules::{
    GATE_TEXT, GATED, NOT_READY, Scene, awaited_member, blocked, claim_names, conflict, forbids,
    group_of, is_blocked, is_ours, is_reason_of_pod, lacks_claim,
};
use crate::world::World;
use berth_api::{Pod, Str};
use std::collections::{BTreeMap, BTreeSet};

/// The pods, by UID, whose status was last written by a scheduler that was not the leader: no running scheduler knows
/// its message.
#[derive(Debug, Clone, Default)]
pub struct Foreign {
    conditions: BTreeSet<Str>,
    nominations: BTreeSet<Str>,
}

impl Foreign {
    /// Records a write of a pod's condition, by a former leader if `foreign`.
    pub fn condition_written(&mut self, uid: &Str, foreign: bool) {
        note(&mut self.conditions, uid, foreign);
    }

    /// Returns whether the condition of a pod was last written by a former leader.
    pub fn has_condition_of(&self, uid: &str) -> bool {
        self.conditions.contains(uid)
    }

    /// Records a write of a pod's nominated node, by a former leader if `foreign`.
    pub fn nomination_written(&mut self, uid: &Str, foreign: bool) {
        note(&mut self.nominations, uid, foreign);
    }
}

fn note(uids: &mut BTreeSet<Str>, uid: &Str, foreign: bool) {
    if foreign {
        uids.insert(uid.clone());
    } else {
        uids.remove(uid);
    }
}

/// The statuses that can be expected.
#[derive(Debug, Default)]
pub struct Statuses {
    /// Whether a pod's status must state that a PreEnqueue plugin rejects it.
    pub holds: bool,
    /// The statuses without an expected value.
    pub foreign: Foreign,
    /// Whether only one scheduler has written claims, and no call has failed.
    pub are_devices_certain: bool,
    /// The last written nominations, by the UID of the pod.
    pub nominations: BTreeMap<Str, Str>,
    /// The nodes that the scheduler keeps free, by the UID of the pod.
    pub kept_free: BTreeMap<Str, Str>,
    /// The nodes that are kept free because the binding to them failed, by the UID of the pod.
    pub after_failure: BTreeMap<Str, Str>,
}

/// Judges the world after everything is at rest.
///
/// # Errors
/// The first lost pod or wrong status.
pub fn check_at_rest(world: &World, statuses: &Statuses) -> Result<(), Violation> {
    let living = || world.pods().values().filter(|pod| !pod.is_terminal());
    let scene = Scene {
        nodes: world.nodes().values().map(|node| &**node).collect(),
        placed: living()
            .filter(|pod| pod.is_assigned())
            .map(|pod| (&**pod, pod.spec.node_name.as_str()))
            .collect(),
        others: world.others(),
        decided_devices: &DecidedDevices::new(),
    };
    if statuses.are_devices_certain {
        if let Some(what) = conflict(world.others()) {
            return Err(Violation::SharedDevice { what });
        }
        for pod in living().filter(|pod| pod.is_assigned()) {
            check_reservations(world, pod)?;
        }
    }
    for pod in living() {
        check_kept_room(world, pod, statuses)?;
    }
    for pod in living() {
        check_status(world, pod, statuses)?;
        if pod.is_assigned() || !is_ours(pod) {
            continue;
        }
        let kept = statuses.kept_free.get(pod.uid()).cloned();
        let (statement, kept) = (&pod.status.nominated_node_name, kept.unwrap_or_default());
        // No node is kept free for a pod that PreEnqueue or its group has always blocked, whatever its status is.
        let is_out = is_blocked(pod, world.others()) || is_held_by_group(world, pod);
        let is_held = is_out && kept.is_empty();
        if *statement != kept && !is_held {
            return Err(Violation::NominationWrong {
                pod: pod.name().clone(),
                statement: statement.clone(),
                kept,
            });
        }
        let written = statuses.nominations.get(pod.uid());
        if let Some(written) = written.filter(|written| *written != statement) {
            return Err(Violation::NominationStays {
                pod: pod.name().clone(),
                statement: statement.clone(),
                written: written.clone(),
            });
        }
    }
    // Wrong nominations take nodes from other pods, so all nominations are judged before.
    for pod in living() {
        if pod.is_assigned() || !is_ours(pod) || group_of(pod).is_some() {
            continue;
        }
        if !is_blocked(pod, world.others()) && !is_held_by_group(world, pod) {
            check_place(world, &scene, pod, statuses)?;
        }
    }
    check_groups(world, &scene)
}

/// No eviction is in progress, and the last binding failed long ago: no node is kept free for a member of a group that
/// can be attempted, and none because of a failed binding.
fn check_kept_room(world: &World, pod: &Pod, statuses: &Statuses) -> Result<(), Violation> {
    let kept = statuses.kept_free.get(pod.uid());
    let Some(node) = kept.filter(|_| group_of(pod).is_some() && is_ours(pod)) else {
        return Ok(());
    };
    let is_foreign = statuses.foreign.nominations.contains(pod.uid());
    let can_be_tried = !is_blocked(pod, world.others()) && !is_held_by_group(world, pod);
    let is_after_failure = statuses.after_failure.get(pod.uid()) == Some(node);
    if is_foreign || !(can_be_tried || is_after_failure) {
        return Ok(());
    }
    Err(Violation::HeldRoom {
        pod: pod.name().clone(),
        node: node.clone(),
    })
}

/// A pod on a node has the devices of its claims, and they are reserved for it.
fn check_reservations(world: &World, pod: &Pod) -> Result<(), Violation> {
    for name in claim_names(pod).flatten() {
        let claim = world.others().device_claim(pod.namespace(), name);
        let status = claim.map(|claim| &claim.status);
        let is_reserved = status.is_some_and(|status| {
            let mut consumers = status.reserved_for.iter();
            status.allocation.is_some() && consumers.any(|c| c.uid == *pod.uid())
        });
        if !is_reserved {
            return Err(Violation::NotReserved {
                pod: pod.name().clone(),
                claim: name.clone(),
            });
        }
    }
    Ok(())
}

fn check_status(world: &World, pod: &Pod, statuses: &Statuses) -> Result<(), Violation> {
    let condition = pod.condition("PodScheduled");
    let statement = |status: &str, reason: &str| {
        condition.is_some_and(|c| c.status == status && c.reason == reason)
    };
    let explains = condition.is_some_and(|c| !c.message.is_empty());
    let wrong = |expected: &str| {
        Err(Violation::StatusWrong {
            pod: pod.name().clone(),
            condition: condition.map_or_else(
                || "nothing".to_owned(),
                |c| format!("{} {} {:?}", c.status, c.reason, c.message.as_str()),
            ),
            expected: expected.to_owned(),
        })
    };
    if pod.is_assigned() {
        return match condition {
            Some(c) if c.status == "True" => Ok(()),
            _ => wrong("True"),
        };
    }
    if !is_ours(pod) {
        return match condition {
            None => Ok(()),
            _ if statement("False", GATED) => Ok(()),
            _ => wrong("nothing, as its scheduler is not there"),
        };
    }
    if statuses.foreign.conditions.contains(pod.uid()) {
        return match condition {
            Some(c) if c.status == "True" => wrong("False"),
            _ => Ok(()),
        };
    }
    if group_of(pod).is_some() {
        // The message depends on the other members, too. A reason of the pod itself must be true now.
        let is_explained = condition.is_some_and(|c| c.status == "False") && explains;
        let own = blocked(pod, world.others());
        let is_true = condition.is_some_and(|c| {
            if let Some((name, message)) = awaited_member(&c.message) {
                let other = world.pods().get(name);
                return other.is_some_and(|other| {
                    let mut own = blocked(other, world.others()).into_iter();
                    let is_of_pod = is_reason_of_pod(NOT_READY, message) || message == GATE_TEXT;
                    !is_of_pod || own.any(|why| why.message.is(message))
                });
            }
            !is_reason_of_pod(&c.reason, &c.message)
                || own.iter().any(|why| why.is_reported(&c.reason, &c.message))
        });
        return if is_explained && is_true || !statuses.holds {
            Ok(())
        } else {
            wrong("False with a message that is true")
        };
    }
    let why = blocked(pod, world.others());
    let Some(first) = why.first() else {
        return if statement("False", "Unschedulable") && explains {
            Ok(())
        } else {
            wrong("False Unschedulable with a message")
        };
    };
    // A pod that a cycle found unschedulable keeps its condition until an event can help it.
    let notified = condition.is_some_and(|c| {
        let is_true = why.iter().any(|why| why.is_reported(&c.reason, &c.message));
        c.status == "False" && is_true
    });
    let notified = notified || statement("False", "Unschedulable") && explains;
    if notified || !statuses.holds {
        Ok(())
    } else {
        wrong(&format!("False {first}"))
    }
}

/// A pod that waits must fit nowhere.
fn check_place(
    world: &World,
    scene: &Scene<'_>,
    pod: &Pod,
    statuses: &Statuses,
) -> Result<(), Violation> {
    for node in world.nodes().values() {
        // A nomination stays while PreEnqueue or its group blocks the pod or a claim is missing, if another scheduler
        // wrote it, and if the pod may not preempt: kube-scheduler clears a nomination only when preemption finds no
        // node.
        let kept_free_for = world.pods().values().filter(|other| {
            !other.is_assigned()
                && other.uid() != pod.uid()
                && other.status.nominated_node_name == *node.name()
                && other.priority() >= pod.priority()
                && (is_blocked(other, world.others())
                    || is_held_by_group(world, other)
                    || other.spec.preemption_policy.as_deref() == Some("Never")
                    || lacks_claim(world.others(), other)
                    || statuses.foreign.nominations.contains(other.uid()))
        });
        let announced = scene.with(kept_free_for.map(|other| (&**other, node.name().as_str())));
        if forbids(scene, pod, node).is_none() && forbids(&announced, pod, node).is_none() {
            return Err(Violation::Lost {
                pod: pod.name().clone(),
                node: node.name().clone(),
                whereabouts: String::new(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::PodShape;

    /// The verdict about a pod that fits on no node, with this status and this nominated node.
    fn judged(status: &str, reason: &str, statement: &str, kept: &str, held: bool) -> &'static str {
        let mut world = World::default();
        let shape = PodShape {
            held: held.then_some("review"),
            ..PodShape::default()
        };
        world.create_pod("p", shape.build());
        let uid = world.pods()["p"].uid().clone();
        let message = match reason {
            "NotReadyForScheduling" => crate::shapes::hold_text("review"),
            _ => "why".to_owned(),
        };
        let condition = Some(("PodScheduled", status, reason, message.as_str()));
        let written = world.patch_status("p", &uid, condition.as_slice(), Some(statement));
        assert_eq!(written, Ok(()));
        let kept_free = (!kept.is_empty()).then(|| (uid, kept.into()));
        let statuses = Statuses {
            holds: true,
            kept_free: kept_free.into_iter().collect(),
            ..Statuses::default()
        };
        check_at_rest(&world, &statuses).map_or_else(|violation| violation.kind(), |()| "fine")
    }

    #[test]
    fn incorrect_statuses_are_violations() {
        for (what, status, reason, statement, kept, held, expected) in [
            ("no node", "False", "Unschedulable", "", "", false, "fine"),
            (
                "a nomination",
                "False",
                "Unschedulable",
                "n",
                "n",
                false,
                "fine",
            ),
            (
                "a stale nomination",
                "False",
                "Unschedulable",
                "n",
                "",
                false,
                "wrong nomination",
            ),
            (
                "an unwritten nomination",
                "False",
                "Unschedulable",
                "",
                "n",
                false,
                "wrong nomination",
            ),
            (
                "another nomination",
                "False",
                "Unschedulable",
                "n",
                "m",
                false,
                "wrong nomination",
            ),
            (
                "a nomination means nothing yet",
                "False",
                "NotReadyForScheduling",
                "n",
                "",
                true,
                "fine",
            ),
            ("not bound", "True", "", "", "", false, "wrong status"),
            (
                "a passing error",
                "False",
                "SchedulerError",
                "",
                "",
                false,
                "wrong status",
            ),
            (
                "on hold",
                "False",
                "NotReadyForScheduling",
                "",
                "",
                true,
                "fine",
            ),
            (
                "not on hold",
                "False",
                "NotReadyForScheduling",
                "",
                "",
                false,
                "wrong status",
            ),
        ] {
            assert_eq!(
                judged(status, reason, statement, kept, held),
                expected,
                "{what}"
            );
        }
    }
}
