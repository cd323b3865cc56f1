//! The controllers of the embedded control plane: what makes manifests come true.

mod deployment;
mod object;
mod pod;
mod replicaset;
mod runtime;
mod selector;
#[cfg(test)]
mod testing;

pub use self::runtime::{Clock, Handle};
