//! The defaults and objects that the control plane would add for objects that no API server stores: for what-if.
//!
//! The functions are those of its controllers and of its admission.

mod strict;

pub use crate::controllers::daemon_set::placement::{
    DaemonTemplate, NodePlacement, assign, node_of,
};
pub use crate::quota::PodQuota;
pub use strict::{Misfits, UnknownField, check, errors_of_new, kinds, set_defaults};
