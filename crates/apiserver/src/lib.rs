//! The embedded control plane: a Kubernetes API in one process.
//!
//! Objects are stored as JSON values. [`registry`] and the [`strategy::KindStrategy`] of a kind define its scope, columns,
//! defaults and rules; everything else is generic over kinds.
//!
//! This crate knows nothing of the scheduler: a scheduler talks to it as to any cluster.

// The control plane is the edge: it asks the clock, opens sockets, writes its kubeconfig, and its store has locks.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod access;
pub mod admission;
mod apply;
pub mod auth;
mod authorities;
pub mod body;
pub mod catalog;
pub mod controllers;
mod conversion;
mod cron;
mod custom;
pub mod decode;
mod definitions;
mod discovery;
mod disruption;
pub mod field;
mod flow_control;
pub mod groups;
pub mod kubelet;
mod object;
pub mod offline;
pub mod openapi;
pub mod patch;
pub(crate) mod pod;
mod quota;
mod raw_json;
pub mod registry;
pub mod releases;
pub mod schema;
pub mod selectors;
pub mod server;
pub mod status;
pub mod storage;
pub mod strategy;
pub mod table;
#[cfg(feature = "test-client")]
pub mod testing;
pub mod validation;
mod view;
mod watch;
mod webhook_client;
pub mod well_known;

pub use server::{
    LocalRequests, RunningServer, Server, ServerMetrics, ServerOptions, ServingCertificate,
    StartError, kubeconfig_text, replace_private_file,
};
