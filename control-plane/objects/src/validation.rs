//! The rules of the kinds: defaulting, preparation and validation.
//!
//! [`strategy`] returns the rules of a kind; [`metadata`] has the rules that all kinds share. Errors have upstream's
//! order and texts, because clients compare both. Objects are first normalized as by a round trip through Kubernetes'
//! Go types.

mod addresses;
pub mod amounts;
mod autoscaling;
mod certificates;
mod claim_status;
mod classes;
pub(crate) mod conditions;
mod config;
mod defaults;
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
use crate::catalog::ServedResource;
use crate::conversion;
use crate::custom;
use crate::field::FieldError;
use crate::schema::GroupVersionKind;
use crate::schema::{RuleCode, Schemas};
use crate::strategy::{KindStrategy, Plain, Subresource};
use must::{Must, MustCondition};
use owner::{CheckFn, Code, CodePart};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::LazyLock;

// The functions that `facts/rules` name, by their paths from this module; `build.rs` generates them.
include!(concat!(env!("OUT_DIR"), "/rule_functions.rs"));

/// The code of the rules of Kubernetes' types.
static CODE: LazyLock<Code> = LazyLock::new(|| {
    Code::of(Schemas::get().model(), |code| match code {
        RuleCode::Call(name) => check_fn(name).map(CodePart::Call),
        RuleCode::Format(name) => formats::find(name).map(CodePart::Format),
        RuleCode::Must(text) => Must::parse(text).map(CodePart::Must),
        RuleCode::Condition(text) => MustCondition::parse(text).map(CodePart::Condition),
        RuleCode::Default(name) => default_fn(name).map(CodePart::Default),
    })
});

/// The rules of a kind: rules in the tables first, then rules in code.
pub fn strategy(kind: GroupResource) -> &'static dyn KindStrategy {
    static RULES: LazyLock<FxHashMap<GroupResource, Rules>> = LazyLock::new(|| {
        let resources = crate::catalog::built_in().resources().iter();
        // Of several versions, the first has the rules.
        resources
            .rev()
            .map(|r| {
                let kind = r.group_version_kind();
                let code = of_code(r);
                (r.resource, Rules { kind, code })
            })
            .collect()
    });
    match RULES.get(&kind) {
        Some(rules) => rules,
        None => &Plain,
    }
}

impl ServedResource {
    /// The rules of the kind.
    pub fn strategy(&self) -> &dyn KindStrategy {
        match &self.custom {
            Some(custom) => &**custom,
            None => strategy(self.stored_as().resource),
        }
    }
}

/// The checks of a kind that are code.
fn of_code(resource: &ServedResource) -> &'static dyn KindStrategy {
    match (resource.resource.group, resource.resource.resource) {
        ("", "persistentvolumeclaims") => &storage::ClaimStrategy,
        ("", "persistentvolumes") => &storage::VolumeStrategy,
        ("", "pods") => &pod::PodStrategy,
        ("", "services") => &service::ServiceStrategy,
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            &crate::custom::schema::Definitions
        }
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateRequests,
        ("apps", "daemonsets") => &workloads::DaemonSetStrategy,
        ("batch", "jobs") => &workloads::JobStrategy,
        ("resource.k8s.io", "resourceslices") => &slice::SliceStrategy,
        ("resource.k8s.io", "devicetaintrules") => &slice::TaintRuleStrategy,
        // Clients may create these with a status.
        ("", "namespaces" | "nodes") => &Plain,
        _ if resource.subresource("status").is_some() => &workloads::WithStatus,
        _ => &Plain,
    }
}

/// The rules of the tables for a kind, and its code.
struct Rules {
    kind: GroupVersionKind<'static>,
    code: &'static dyn KindStrategy,
}

impl KindStrategy for Rules {
    fn default(&self, object: &mut Value) {
        Schemas::get().normalize(self.kind, object);
        self.default_normal(object);
    }

    fn default_normal(&self, object: &mut Value) {
        let schemas = Schemas::get();
        if let Some(id) = schemas.find(self.kind) {
            defaults::fill(schemas.model(), &CODE, id, object);
        }
        self.code.default(object);
    }

    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        self.code.prepare_for_create(object, now);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = engine::run(&CODE, self.kind, object, None, Subresource::Main).into_vec();
        errors.extend(self.code.validate(object));
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, now: &str) {
        self.code.prepare_for_update(new, old, part, now);
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Subresource) -> Vec<FieldError> {
        let mut errors = engine::run(&CODE, self.kind, new, Some(old), part).into_vec();
        errors.extend(self.code.validate_update(new, old, part));
        errors
    }

    fn grace_period_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        self.code.grace_period_seconds(object, requested)
    }
}
