//! Plugins that live outside of Berth's own tree, as an example. `docs/adding-a-plugin.md` goes through them step by
//! step.
//!
//! - [`rack_aware`]: Filter and Score, with arguments.
//! - [`hold`]: PreEnqueue, which keeps pods out of the queue until they are released.
//! - [`node_admission`]: PreBind, which waits for an HTTP service.
//! - [`warm_up`]: PreBind, which makes API calls of a type of its own and waits for a node.

pub mod hold;
pub mod node_admission;
pub mod rack_aware;
pub mod warm_up;

use berth::Berth;
use berth_framework::registry::AlreadyRegistered;

/// Berth's command with these plugins. They do nothing until a configuration enables them.
///
/// # Errors
/// When Berth has a plugin of such a name.
pub fn command() -> Result<Berth, AlreadyRegistered> {
    Berth::new()
        .with_plugin(node_admission::NAME, node_admission::make)?
        .with_plugin(warm_up::NAME, warm_up::make)?
        .with_plugin(rack_aware::NAME, rack_aware::make)?
        .with_plugin(hold::NAME, hold::make)
}
