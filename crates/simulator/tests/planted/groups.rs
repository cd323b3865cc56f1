//! Schedulers that receive groups as they are not: what they do is wrong for the groups as they are.

use super::{found_from, with_api};
use berth_api::groups::PodGroup;
use berth_api::{Kind, Object, Time};
use berth_framework::call::ApiCall;
use berth_scheduler::ClusterChange;
use berth_simulator::world::{Refusal, World};
use berth_simulator::{Api, FaithfulApi, Faults, Subject};
use std::sync::Arc;

/// The first seed with groups.
const WITH_GROUPS: u64 = 1 << 20;

/// An API whose watch shows each group as this function changes it, or not at all.
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
fn a_gang_that_starts_with_too_few_members_is_seen() {
    let subject = with_groups(|group| {
        if let Some(gang) = &mut group.spec.scheduling_policy.gang {
            gang.min = 1;
        }
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["short gang"]);
}

#[test]
fn a_group_that_is_spread_over_zones_is_seen() {
    let subject = with_groups(|group| {
        group.spec.scheduling_constraints.topology.clear();
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["misplaced"]);
}

#[test]
fn a_gang_that_could_start_and_waits_is_seen() {
    let subject = with_groups(|group| {
        if let Some(gang) = &mut group.spec.scheduling_policy.gang {
            gang.min += 2;
        }
        true
    });
    found_from(WITH_GROUPS, &subject, Faults::NONE, &["lost pod"]);
}
