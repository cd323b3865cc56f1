//! Defaulting, preparation and validation of objects.
//!
//! [`crate::kinds`] combines them to the rules of a kind; [`metadata`] has the rules that all kinds share. Errors have
//! upstream's order and texts, because clients compare both. Objects are first normalized as by a round trip through
//! Kubernetes' Go types.

mod addresses;
pub mod amounts;
mod autoscaling;
mod certificates;
mod claim_status;
mod classes;
pub(crate) mod conditions;
mod config;
pub(crate) mod defaults;
mod devices;
mod differences;
mod empties;
pub(crate) mod engine;
pub mod errors;
pub mod events;
mod flow_control;
mod formats;
mod groups;
mod internal;
mod job;
mod job_status;
pub mod later;
mod limits;
pub(crate) mod markers;
pub mod metadata;
mod must;
pub mod names;
mod networking;
mod node;
pub(crate) mod owner;
pub mod pod;
pub mod policies;
pub mod selectors;
mod service;
mod service_cidrs;
mod service_spec;
mod slice;
pub mod small;
mod storage;
#[cfg(test)]
mod tests;
pub mod warnings;
pub mod webhooks;
mod workloads;

use crate::access::GroupResource;
use crate::schema::{RuleCode, Schemas};
use crate::strategy::{KindStrategy, Plain};
use must::{Must, MustCondition};
use owner::{CheckFn, Code, CodePart, DefaultFn};

// The functions that `facts/rules` name, by their paths from this module; `build.rs` generates them.
include!(concat!(env!("OUT_DIR"), "/rule_functions.rs"));

/// The code of the rules of Kubernetes' types. `check` and `default` find the functions of other modules.
pub(crate) fn code(
    check: fn(&str) -> Option<CheckFn>,
    default: fn(&str) -> Option<DefaultFn>,
) -> Code {
    Code::of(Schemas::get().model(), |code| match code {
        RuleCode::Call(name) => check_fn(name).or_else(|| check(name)).map(CodePart::Call),
        RuleCode::Format(name) => formats::find(name).map(CodePart::Format),
        RuleCode::Must(text) => Must::parse(text).map(CodePart::Must),
        RuleCode::Condition(text) => MustCondition::parse(text).map(CodePart::Condition),
        RuleCode::Default(name) => default_fn(name)
            .or_else(|| default(name))
            .map(CodePart::Default),
    })
}

/// The checks of a built-in kind that are code. `has_status` is whether its status is a subresource.
pub(crate) fn strategy_in_code(kind: GroupResource, has_status: bool) -> &'static dyn KindStrategy {
    match (kind.group, kind.resource) {
        ("", "persistentvolumeclaims") => &storage::ClaimStrategy,
        ("", "persistentvolumes") => &storage::VolumeStrategy,
        ("", "pods") => &pod::PodStrategy,
        ("", "services") => &service::ServiceStrategy,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateRequests,
        ("apps", "daemonsets") => &workloads::DaemonSetStrategy,
        ("batch", "jobs") => &workloads::JobStrategy,
        ("resource.k8s.io", "resourceslices") => &slice::SliceStrategy,
        ("resource.k8s.io", "devicetaintrules") => &slice::TaintRuleStrategy,
        // Clients may create these with a status.
        ("", "namespaces" | "nodes") => &Plain,
        _ if has_status => &workloads::WithStatus,
        _ => &Plain,
    }
}
