//! For tests and benches, behind the feature `test-builders`: builders of pods and nodes, a small cluster in which a
//! plugin is called, and a plugin made of closures.
//!
//! ```
//! use berth_framework::testing::{node, pod};
//! let web = pod("web").request("cpu", "500m").label("app", "web").build();
//! let big = node("n1").capacity("8", "32Gi", "110").label("zone", "a").build();
//! assert_eq!(web.name(), "web");
//! assert_eq!(big.name(), "n1");
//! ```
//!
//! Builders panic on a quantity that does not parse, because the test is wrong.

mod extender;
mod fake;
mod objects;
mod world;
mod write;

pub use extender::{FakeExtender, extender, finished};
pub use fake::{FakePlugin, fake};
pub use objects::{NodeBuilder, PodBuilder, node, pod};
pub use world::{Recorder, World};
pub use write::{CLAIM_UPDATE, VOLUME_UPDATE, annotate};
