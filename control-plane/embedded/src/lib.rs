//! The control plane in one process: the API server with its controllers and simulated nodes, started by commands,
//! within a test ([`EmbeddedCluster`]), and as a replacement for envtest's programs. A scheduler in the same process
//! uses only its API.

// It asks the clock, opens files and sockets, and starts threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod apiserver;
pub mod apply;
pub mod args;
pub mod availability;
pub mod control_plane;
mod embedded;
pub mod envtest;
pub mod gates;
pub mod manifest;
pub mod nodes;

pub use embedded::{ClusterError, ClusterOptions, EmbeddedCluster};
