//! The schema of Kubernetes' types: their fields with types, list semantics, defaults and checks.
//!
//! Objects are JSON values everywhere in this crate. The knowledge that a typed server has in its structs is read from
//! tables: `control-plane/protobuf/facts/kubernetes.txt`, generated from published files of Kubernetes, `later.txt` and
//! `groups.txt` in the same folder, `facts/releases.txt` (the fields of each release), and `facts/rules/*.txt`, written
//! by hand. One `Model` holds them; decoding, defaulting, patches, server-side apply, OpenAPI, protobuf and validation
//! read it.

pub mod availability;
mod document;
mod empties;
pub(crate) mod model;
mod normal;
pub(crate) mod path;
pub(crate) mod rules;
mod table;

#[cfg(test)]
mod tests;

pub use document::{
    DEPTH_MAX, DecodeError, Parsed, TEXT_BYTES_MAX, VALUES_MAX, parse_json, parse_yaml,
};
pub use document::{FieldFault, faults_in_order, first_duplicate_line};
pub use empties::Empties;
pub(crate) use rules::{CodeId, RuleCode, ValueCheck};

use crate::releases::{self, ApiRelease};
use berth_protobuf::facts::{Facts, MACHINERY};
use model::{Model, TypeId};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::OnceLock;

/// The faults that a decoder reports about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The fields that the type does not have, such as `spec.containers[0].foo`. In strict validation each is an
    /// error `unknown field "…"`, otherwise a warning, and the field is dropped.
    pub unknown_fields: Vec<String>,
    /// Values of the wrong type, as complete messages. Any is a 400.
    pub type_errors: Vec<String>,
    /// Empty lists and maps that the normal form does not have.
    pub empties: Empties,
}

/// A kind of objects, in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupVersionKind<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    /// The version, such as `v1`.
    pub version: &'a str,
    /// The kind, such as `Pod`.
    pub kind: &'a str,
}

impl<'a> GroupVersionKind<'a> {
    /// The kind of this name in this version of this group.
    pub const fn new(group: &'a str, version: &'a str, kind: &'a str) -> Self {
        Self {
            group,
            version,
            kind,
        }
    }
}

/// All types of Kubernetes' own API.
#[derive(Debug)]
pub struct Schemas {
    model: Model,
    /// The types of kinds, by API group, version and kind.
    kinds: FxHashMap<(&'static str, &'static str), Vec<(&'static str, TypeId)>>,
    /// Lines of the tables that could not be read; none, as a test ensures.
    #[cfg_attr(not(test), allow(dead_code))] // A test requires that there is none.
    faults: Vec<String>,
}

impl Schemas {
    /// The types of this process.
    pub fn get() -> &'static Self {
        static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
        SCHEMAS.get_or_init(Self::read)
    }

    fn read() -> Self {
        let facts = Facts::get();
        let (mut model, mut faults) = table::read(facts);
        // Releases are applied before the rules: a rule may name a field that only one release has.
        faults.extend(releases::apply(|type_name, field, change| {
            if let Some(field) = model.field_mut(type_name, field) {
                change(&mut field.availability);
            }
        }));
        for file in rules::FILES {
            faults.extend(rules::apply(&mut model, file));
        }
        rules::close(&mut model);
        let mut kinds: FxHashMap<_, Vec<_>> = FxHashMap::default();
        let mut add = |group, version, type_name: &'static str| {
            let kind = type_name.rsplit('.').next().unwrap_or(type_name);
            if let Some(id) = model.find(type_name) {
                kinds.entry((group, version)).or_default().push((kind, id));
            }
        };
        for resource in &facts.resources {
            add(resource.group, resource.version, resource.type_name);
            for sub in &resource.subresources {
                add(sub.group, sub.version, sub.type_name);
            }
        }
        for type_name in MACHINERY {
            add("", "v1", type_name);
        }
        Self {
            model,
            kinds,
            faults,
        }
    }

    /// Every type.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Returns whether the types of a kind are known.
    pub fn knows(&self, kind: GroupVersionKind<'_>) -> bool {
        self.find(kind).is_some()
    }

    /// Fields an object has and its type has not, and values of the wrong type.
    pub fn check(&self, kind: GroupVersionKind<'_>, object: &Value) -> Decoded {
        self.normalize(kind, &mut object.clone())
    }

    /// Normalizes an object to its stored form: unknown fields, nulls, empty lists and maps and zero values without a
    /// meaning are dropped, fields that are always written are added, quantities and times become canonical.
    pub fn normalize(&self, kind: GroupVersionKind<'_>, object: &mut Value) -> Decoded {
        self.normalize_in(ApiRelease::EVERY, kind, object)
    }

    /// As [`Schemas::normalize`], with the fields of a release: others are unknown.
    pub fn normalize_in(
        &self,
        api: ApiRelease,
        kind: GroupVersionKind<'_>,
        object: &mut Value,
    ) -> Decoded {
        self.find(kind)
            .map(|id| normal::normalize(&self.model, api, id, object))
            .unwrap_or_default()
    }

    /// The type of a kind.
    pub(crate) fn find(&self, kind: GroupVersionKind<'_>) -> Option<TypeId> {
        let kinds = self.kinds.get(&(kind.group, kind.version))?;
        let found = kinds.iter().find(|(known, _)| *known == kind.kind);
        found.map(|(_, id)| *id)
    }
}
