//! Kubernetes objects as JSON values: the facts about their types, and functions over facts and values.
//!
//! [`schema`] reads the facts into one model. Decoding, defaulting, patches, server-side apply, tables, OpenAPI,
//! protobuf and [`validation`] read it. [`catalog`] describes the resources of an API. [`access`] is the interface
//! between an API server and the components in the same process.
//!
//! This crate does no I/O, reads no clock and stores no objects.

pub mod access;
pub mod apply;
#[cfg(feature = "certificates")]
pub mod authorities;
pub mod body;
pub mod catalog;
mod certificates;
pub mod columns;
pub mod conversion;
pub mod cron;
pub mod custom;
pub mod daemon_set;
pub mod decode;
pub mod disruption;
mod enumerations;
pub mod field;
pub mod flow_control;
pub mod groups;
mod json_path;
pub mod kinds;
pub mod object;
pub mod offline;
pub mod openapi;
pub mod patch;
pub mod pod;
pub mod quota;
pub mod raw_json;
pub mod releases;
pub mod schema;
pub mod selectors;
pub mod status;
pub mod strategy;
pub mod table;
mod unified_diff;
pub mod validation;
pub mod view;
pub mod well_known;
