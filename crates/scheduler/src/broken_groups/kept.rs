//! The groups of which bindings failed, with the nodes that are kept for their members.

use crate::core::WaitId;
use berth_api::{Str, Time};
use berth_framework::cluster::GroupKey;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A group of which a binding failed.
#[derive(Debug)]
pub(super) struct BrokenGroup {
    /// The time of the first failure.
    pub(super) since: Time,
    /// The timer; `None` if the nodes were given back.
    pub(super) timer: Option<WaitId>,
    /// The node of each member whose binding failed, by UID.
    pub(super) members: BTreeMap<Str, Str>,
}

/// The groups of which bindings failed, until these members are bound.
#[derive(Debug, Default)]
pub(crate) struct BrokenGroups {
    pub(super) groups: FxHashMap<GroupKey, BrokenGroup>,
}
