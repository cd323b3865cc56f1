//! The rules of the kinds: the strategy of each resource, and the warnings about its objects.
//!
//! [`strategy`] returns the rules of a kind: the rules that `facts/rules` lists, then rules in code. The code is in
//! [`crate::validation`], [`crate::custom`] and [`crate::conversion`], which do not know the resources.

use crate::access::GroupResource;
use crate::catalog::definition::is_definitions;
use crate::catalog::{ServedResource, built_in};
use crate::conversion;
use crate::custom;
use crate::field::FieldError;
use crate::schema::{GroupVersionKind, Schemas};
use crate::strategy::{KindStrategy, Plain, Subresource};
use crate::validation::errors::quote;
use crate::validation::owner::{CheckFn, Code, DefaultFn};
use crate::validation::{self, defaults, engine, warnings};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::LazyLock;

// The functions outside of `validation` that `facts/rules` name, by their paths from the root of the crate; `build.rs`
// generates them.
include!(concat!(env!("OUT_DIR"), "/kind_functions.rs"));

/// The code of the rules of Kubernetes' types.
pub(crate) static CODE: LazyLock<Code> = LazyLock::new(|| validation::code(check_fn, default_fn));

/// The rules of a kind: rules in the tables first, then rules in code.
pub fn strategy(kind: GroupResource) -> &'static dyn KindStrategy {
    static RULES: LazyLock<FxHashMap<GroupResource, Rules>> = LazyLock::new(|| {
        let resources = built_in().resources().iter();
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
    if is_definitions(resource) {
        return &custom::definition::Definitions;
    }
    let has_status = resource.subresource("status").is_some();
    validation::strategy_in_code(resource.resource, has_status)
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

/// The warnings about a valid object of a resource; `old` is the object before a change.
pub fn warnings(resource: &ServedResource, object: &Value, old: Option<&Value>) -> Vec<String> {
    match resource.custom {
        Some(_) => warnings::of_finalizers(object, old),
        None if is_definitions(resource) => of_formats(object, old),
        None => warnings::of(resource.kind, object, old),
    }
}

/// The warnings about the formats that a definition gets and that are ignored.
fn of_formats(new: &Value, old: Option<&Value>) -> Vec<String> {
    let had = old.map_or_else(Vec::new, custom::ignored_formats);
    let mut formats = custom::ignored_formats(new);
    formats.retain(|format| !had.contains(format));
    let formats = formats.iter().map(|format| quote(format));
    formats
        .map(|format| format!("unrecognized format {format}"))
        .collect()
}
