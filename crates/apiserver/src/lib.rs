//! The embedded control plane: a Kubernetes API in one process.
//!
//! Objects are stored as JSON values. What a kind means (its scope, columns, defaults and rules) stands in
//! [`registry`] and in the [`strategy::Strategy`] of the kind; everything else is generic over kinds.
//!
//! This crate knows nothing of the scheduler: a scheduler talks to it as to any cluster.

pub mod access;
pub mod controllers;
pub mod field;
pub mod kubelet;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod strategy;
pub mod validation;
