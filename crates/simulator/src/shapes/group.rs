//! Groups of pods.

use super::{NAMESPACES, ZONE, chance};
use berth_api::groups::{
    Empty, GangPolicy, GroupSchedulingPolicy, GroupSpec, PodGroup, SchedulingConstraints,
    TopologyConstraint,
};
use fastrand::Rng;
use std::fmt;

/// The maximum number of groups.
pub const GROUPS: usize = 4;

/// The name of a group.
pub fn group_name(number: usize) -> String {
    format!("g{number}")
}

/// A group of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupShape {
    /// The number of members that must be placed together; `None` for a basic group.
    pub min: Option<i32>,
    /// Whether all members must be in one zone.
    pub in_one_zone: bool,
}

impl GroupShape {
    /// Any group.
    pub fn random(rng: &mut Rng) -> Self {
        Self {
            min: chance(rng, 85).then(|| rng.i32(2..5)),
            in_one_zone: chance(rng, 35),
        }
    }

    /// The group, without identity. Its members are of priority 0.
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
            priority: Some(0),
            preemption_policy: Some("Never".into()),
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
        f.write_str(if self.in_one_zone { " in one zone" } else { "" })
    }
}
