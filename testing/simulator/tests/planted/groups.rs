//! Groups: schedulers that receive wrong groups, so that their actions are wrong for the actual groups, and schedulers
//! whose group plugins are wrong.

use super::{found_from, with, with_api};
use berth_api::groups::PodGroup;
use berth_api::{Kind, Object, Pod, Time};
use berth_framework::call::{ApiCall, ConditionPatch, PodRef};
use berth_framework::cluster::GroupKey;
use berth_framework::plugin::{
    Context, GroupPostFilterResult, GroupProgress, PlacementFeasible, PodGroupPostFilter,
    PodGroupPostFilterContext,
};
use berth_framework::registry::Extensions;
use berth_framework::{Code, Status};
use berth_scheduler::ClusterChange;
use berth_simulator::world::{Refusal, World};
use berth_simulator::{Api, FaithfulApi, Faults, Subject};
use std::sync::Arc;

/// The first seed with groups.
const WITH_GROUPS: u64 = 1 << 20;

/// An API whose watch shows each group as changed by this function, or not at all.
struct Groups<F>(F);

impl<F: Fn(&mut PodGroup) -> bool + Send + Sync> Groups<F> {
    fn shown(&self, object: Object) -> Option<Object> {
        let Object::PodGroup(group) = &object else {
            return Some(object);
        };
        let mut group = PodGroup::clone(group);
        (self.0)(&mut group).then(|| Object::PodGroup(Arc::new(group)))
    }
}

impl<F: Fn(&mut PodGroup) -> bool + Send + Sync> Api for Groups<F> {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        FaithfulApi.carry_out(world, call, now)
    }

    fn notify(&self, change: ClusterChange) -> Vec<ClusterChange> {
        let notified = match change {
            ClusterChange::Applied(object) => self.shown(object).map(ClusterChange::Applied),
            ClusterChange::Deleted(object) => self.shown(object).map(ClusterChange::Deleted),
            ClusterChange::Replaced(Kind::PodGroup, objects) => {
                let objects = objects.into_iter().filter_map(|object| self.shown(object));
                Some(ClusterChange::Replaced(Kind::PodGroup, objects.collect()))
            }
            other => Some(other),
        };
        notified.into_iter().collect()
    }
}

fn with_groups(change: impl Fn(&mut PodGroup) -> bool + Send + Sync + 'static) -> Subject {
    with_api(Groups(change))
}

#[test]
fn a_gang_started_below_min_count_is_detected() {
    let subject = with_groups(|group| {
        if let Some(gang) = &mut group.spec.scheduling_policy.gang {
            gang.min = 1;
        }
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["short gang"]);
}

#[test]
fn a_group_in_two_zones_is_detected() {
    let subject = with_groups(|group| {
        group.spec.scheduling_constraints.topology.clear();
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["misplaced"]);
}

#[test]
fn a_pending_gang_that_fits_is_detected() {
    let subject = with_groups(|group| {
        if let Some(gang) = &mut group.spec.scheduling_policy.gang {
            gang.min += 2;
        }
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["lost pod"]);
}

// --- preemption for groups -----------------------------------------------------------------------------------

/// The flaw of the preemption.
#[derive(Clone, Copy)]
enum Flaw {
    /// It evicts one pod more than is needed.
    OneMore,
    /// It does not wait for terminating victims.
    Impatient,
    /// It keeps a node free for each member, and evicts nothing.
    Clinging,
}

/// The in-tree preemption for groups with a flaw.
struct Flawed {
    inner: Extensions,
    flaw: Flaw,
}

/// A pod of lower priority that is not being deleted.
fn lesser_pod(cx: &PodGroupPostFilterContext<'_>, group: &GroupKey) -> Option<PodRef> {
    let cluster = cx.dry_run.cluster();
    let priority = cluster.groups().spec(group)?.priority();
    let stays = |pod: &Pod| {
        let known = cluster.pods.get(pod.uid());
        known.is_some_and(|known| !known.is_terminating() && known.spec.scheduling_group.is_none())
    };
    let mut pods = cluster.nodes.iter().flat_map(|node| node.pods());
    let found = pods.find(|pod| pod.pod.priority() < priority && stays(&pod.pod));
    found.map(|pod| PodRef::of(&pod.pod))
}

impl PodGroupPostFilter for Flawed {
    fn post_filter_group(
        &self,
        cx: &mut PodGroupPostFilterContext<'_>,
        group: &GroupKey,
    ) -> GroupPostFilterResult {
        if let Flaw::Clinging = self.flaw {
            let node = cx.dry_run.cluster().nodes.iter().next();
            let node = node.map(|node| node.name().clone());
            let members = cx.dry_run.members().into_iter();
            let kept = node.map(|node| {
                members
                    .map(|pod| (pod.pod.uid().clone(), node.clone()))
                    .collect()
            });
            return GroupPostFilterResult {
                nominations: kept,
                ..GroupPostFilterResult::of(Status::new(Code::Success, ["soon".into()]))
            };
        }
        let Some(inner) = &self.inner.pod_group_post_filter else {
            panic!("there is no preemption for groups");
        };
        let more = lesser_pod(cx, group);
        let mut result = inner.post_filter_group(cx, group);
        let is_wanted = match self.flaw {
            Flaw::OneMore => result.preemption.is_some(),
            _ => result.status.message().contains("ongoing preemption"),
        };
        let victims = result.preemption.iter().flat_map(|p| &p.victims);
        let victims: Vec<&PodRef> = victims.map(|victim| &victim.event.regarding).collect();
        let more = more.filter(|pod| is_wanted && !victims.contains(&pod));
        let cluster = cx.dry_run.cluster();
        if let Some((pod, known)) = more.and_then(|pod| Some((cluster.pods.get(&pod.uid)?, pod))) {
            let reason = "PreemptionByScheduler";
            result.calls.push(ApiCall::DeletePod {
                condition: ConditionPatch::of(pod, "DisruptionTarget", "True", reason, ""),
                pod: known,
            });
        }
        result
    }
}

fn with_flaw(flaw: Flaw) -> Subject {
    with("DefaultPreemption", move |inner| {
        let flawed = Flawed {
            inner: inner.clone(),
            flaw,
        };
        let flawed = Extensions::of(flawed).pod_group_post_filter().build();
        Extensions {
            pod_group_post_filter: flawed.pod_group_post_filter,
            ..inner
        }
    })
}

#[test]
fn a_needless_eviction_for_a_group_is_detected() {
    let subject = with_flaw(Flaw::OneMore);
    let shrunk = found_from(
        WITH_GROUPS,
        &subject,
        Faults::NONE,
        &["needless preemption"],
    );
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("can start without its eviction"), "{text}");
}

#[test]
fn a_repeated_preemption_for_a_group_is_detected() {
    let subject = with_flaw(Flaw::Impatient);
    let kinds = ["repeated preemption"];
    found_from(WITH_GROUPS, &subject, Faults::NONE, &kinds);
}

#[test]
fn a_group_that_never_releases_its_nodes_is_detected() {
    let subject = with_flaw(Flaw::Clinging);
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["held room"]);
}

// --- deadlock ------------------------------------------------------------------------------------------------

/// A group does not start while another one waits.
struct AfterYou(Extensions);

impl PlacementFeasible for AfterYou {
    fn placement_feasible(&self, cx: &Context<'_>, progress: &GroupProgress<'_>) -> Status {
        let waits = |group: &PodGroup| {
            let name = &group.metadata.name;
            let key = GroupKey::pod_group(&group.metadata.namespace, name);
            let members = cx.cluster.pods.members(&key);
            key != *progress.group && members.is_some_and(|m| !m.unscheduled().is_empty())
        };
        if cx.cluster.groups().pod_groups().any(|group| waits(group)) {
            return Status::unschedulable("another group waits");
        }
        let Some(inner) = &self.0.placement_feasible else {
            panic!("there is no quorum");
        };
        inner.placement_feasible(cx, progress)
    }
}

#[test]
fn a_deadlock_of_two_groups_is_detected() {
    let subject = with("GangScheduling", |inner| {
        let polite = Extensions::of(AfterYou(inner.clone()))
            .placement_feasible()
            .build();
        Extensions {
            placement_feasible: polite.placement_feasible,
            ..inner
        }
    });
    let shrunk = found_from(WITH_GROUPS, &subject, Faults::NONE, &["lost pod"]);
    assert_eq!(shrunk.failure.violation.kind(), "lost pod");
}
