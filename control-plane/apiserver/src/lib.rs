//! The embedded API server: a Kubernetes API in one process.
//!
//! Objects are stored as JSON values. [`registry`] has the verbs, generic over kinds; `berth_objects` has the kinds and
//! the operations on their objects.
//!
//! This crate does not know the scheduler, which uses it like any cluster, or the controllers, which use
//! [`berth_objects::access`].

// The control plane is the edge: it asks the clock, opens sockets, writes its kubeconfig, and its store has locks.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod admission;
pub mod auth;
mod discovery;
mod encode;
mod percent;
pub mod registry;
pub mod server;
mod stopping;
pub mod storage;
#[cfg(feature = "test-client")]
pub mod testing;
mod watch;
mod webhook_client;

pub use server::{
    LocalRequests, RunningServer, Server, ServerMetrics, ServerOptions, ServingCertificate,
    StartError, kubeconfig_text, replace_private_file,
};
