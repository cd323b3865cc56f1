//! The controllers of the embedded control plane: what makes manifests come true.

mod deployment;
pub(crate) mod object;
pub(crate) mod pod;
mod replicaset;
pub(crate) mod runtime;
mod selector;
#[cfg(test)]
pub(crate) mod testing;

pub use self::runtime::{Clock, Handle};
