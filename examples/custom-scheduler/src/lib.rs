//! Example plugins outside of Berth's own tree, described in `docs/contribute/plugin-reference.md`.
//!
//! - [`rack_aware`]: Filter and Score, with arguments.
//! - [`hold`]: PreEnqueue, which rejects pods until they are released.
//! - [`node_admission`]: PreBind, which waits for an HTTP service.
//! - [`warm_up`]: PreBind, which makes API calls of its own type and waits for a node.

pub mod hold;
pub mod node_admission;
pub mod rack_aware;
pub mod warm_up;

use berth::Berth;
use berth_framework::registry::AlreadyRegistered;

/// Berth's command with these plugins. A configuration must enable them.
///
/// # Errors
/// Berth has a plugin with the same name.
pub fn command() -> Result<Berth, AlreadyRegistered> {
    Berth::new()
        .with_plugin(node_admission::NAME, node_admission::make)?
        .with_plugin(warm_up::NAME, warm_up::make)?
        .with_plugin(rack_aware::NAME, rack_aware::make)?
        .with_plugin(hold::NAME, hold::make)
}
