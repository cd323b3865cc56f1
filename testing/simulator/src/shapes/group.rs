//! Groups of pods.

use super::{NAMESPACES, ZONE, chance};
use berth_api::groups::{
    DisruptionMode, Empty, GangPolicy, GroupSchedulingPolicy, GroupSpec, PodGroup,
    SchedulingConstraints, TopologyConstraint,
};
use fastrand::Rng;
use std::fmt;

/// The maximum number of groups.
pub const GROUPS: usize = 4;

/// The name of a group.
pub fn group_name(number: usize) -> String {
    format!("g{number}")
}

/// The priority of a group and of its members.
pub fn group_priority(number: usize) -> i32 {
    [0, 10, 50, 0][number % GROUPS]
}

/// Returns whether pods are evicted for a group. The first group never preempts.
pub fn may_preempt(number: usize) -> bool {
    !number.is_multiple_of(GROUPS)
}

/// A group of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupShape {
    /// The priority.
    pub priority: i32,
    /// Whether pods of lower priority are evicted for it.
    pub preempts: bool,
    /// Whether its members are evicted together.
    pub all_or_none: bool,
    /// The number of members that must be placed together; `None` for a basic group.
    pub min: Option<i32>,
    /// Whether all members must be in one zone.
    pub in_one_zone: bool,
}

impl GroupShape {
    /// Any shape of this group.
    pub fn random(rng: &mut Rng, number: usize) -> Self {
        Self {
            priority: group_priority(number),
            preempts: may_preempt(number),
            all_or_none: chance(rng, 40),
            min: chance(rng, 85).then(|| rng.i32(2..5)),
            in_one_zone: chance(rng, 35),
        }
    }

    /// The group, without identity.
    pub fn build(&self, name: &str) -> PodGroup {
        let mut group = PodGroup::default();
        group.metadata.name = name.into();
        group.metadata.namespace = NAMESPACES[0].into();
        let topology = self
            .in_one_zone
            .then(|| TopologyConstraint { key: ZONE.into() });
        group.spec = GroupSpec {
            scheduling_policy: GroupSchedulingPolicy {
                basic: self.min.is_none().then_some(Empty {}),
                gang: self.min.map(|min| GangPolicy { min }),
            },
            scheduling_constraints: SchedulingConstraints {
                topology: topology.into_iter().collect(),
            },
            priority: Some(self.priority),
            preemption_policy: (!self.preempts).then(|| "Never".into()),
            disruption_mode: DisruptionMode {
                single: (!self.all_or_none).then_some(Empty {}),
                all: self.all_or_none.then_some(Empty {}),
            },
            ..GroupSpec::default()
        };
        group
    }
}

impl fmt::Display for GroupShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min {
            Some(min) => write!(f, "gang of {min}")?,
            None => f.write_str("basic")?,
        }
        write!(f, " of priority {}", self.priority)?;
        for (is_so, text) in [
            (self.in_one_zone, " in one zone"),
            (!self.preempts, ", does not preempt"),
            (self.all_or_none, ", evicted as a whole"),
        ] {
            f.write_str(if is_so { text } else { "" })?;
        }
        Ok(())
    }
}
