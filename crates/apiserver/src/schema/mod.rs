//! What Kubernetes' types look like: which fields they have, what values go there, how their lists merge.
//!
//! Objects are JSON values everywhere in this crate; here is the knowledge that a typed server has in its
//! structs. The types come from `k8s-openapi`'s generated schemas and are compiled for a group version when the
//! first request needs it; what those schemas do not say stands in [`extensions`]. Kinds that are not known
//! there are not checked.
//!
//! Unknown fields and values of the wrong type are decoding errors: they are found before validation, with the
//! words of kube-apiserver's decoder.

mod check;
mod complete;
pub mod extensions;
pub(crate) mod kinds;
pub(crate) mod model;
mod parse;
mod path;
mod presence;
mod prune;

#[cfg(test)]
mod tests;

pub use parse::{
    DEPTH_MAX, DecodeError, Parsed, TEXT_BYTES_MAX, VALUES_MAX, parse_json, parse_yaml,
};

use kinds::GROUP_VERSIONS;
use model::{Model, TypeId};
use serde_json::Value;
use std::sync::OnceLock;

/// What a decoder would say of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The fields that the type does not have, such as `spec.containers[0].foo`. In strict validation each is an
    /// error `unknown field "…"`, otherwise a warning, and the field is dropped.
    pub unknown_fields: Vec<String>,
    /// Values of the wrong type, as complete messages. Any is a 400.
    pub type_errors: Vec<String>,
}

/// All known types.
#[derive(Debug)]
pub struct Schemas {
    /// One entry for each of [`GROUP_VERSIONS`], compiled at first use.
    models: Vec<OnceLock<Model>>,
}

impl Schemas {
    /// The types of this process.
    pub fn get() -> &'static Self {
        static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
        SCHEMAS.get_or_init(|| Self {
            models: GROUP_VERSIONS.iter().map(|_| OnceLock::new()).collect(),
        })
    }

    /// Whether the types of a kind are known.
    pub fn knows(&self, group: &str, version: &str, kind: &str) -> bool {
        self.find(group, version, kind).is_some()
    }

    /// Fields an object has and its type has not, and values of the wrong type.
    pub fn check(&self, group: &str, version: &str, kind: &str, object: &Value) -> Decoded {
        self.find(group, version, kind)
            .map(|(model, id)| check::check(model, id, object))
            .unwrap_or_default()
    }

    /// The paths of required fields that an object does not have.
    pub fn missing_fields(
        &self,
        group: &str,
        version: &str,
        kind: &str,
        object: &Value,
    ) -> Vec<String> {
        self.find(group, version, kind)
            .map(|(model, id)| check::missing(model, id, object))
            .unwrap_or_default()
    }

    /// Brings an object into the form in which it is stored: unknown fields, nulls, empty lists and maps and zero
    /// values without a meaning dropped, quantities and times canonical.
    pub fn prune(&self, group: &str, version: &str, kind: &str, object: &mut Value) {
        if let Some((model, id)) = self.find(group, version, kind) {
            prune::prune(model, id, object);
        }
    }

    /// Adds to an object what a typed server always writes, such as `status: {}`. The last step before an object
    /// is stored: for admission and validation a missing field is as good.
    pub fn complete(&self, group: &str, version: &str, kind: &str, object: &mut Value) {
        if let Some((model, id)) = self.find(group, version, kind) {
            complete::complete(model, id, object);
        }
    }

    /// The type of a kind and the model that holds it.
    pub(crate) fn find(&self, group: &str, version: &str, kind: &str) -> Option<(&Model, TypeId)> {
        let position = kinds::position(group, version)?;
        let group_version = GROUP_VERSIONS.get(position)?;
        let model = self
            .models
            .get(position)?
            .get_or_init(|| Model::of(group_version));
        model.kind(kind).map(|id| (model, id))
    }
}

/// [`Schemas::prune`] of this process's types.
pub fn prune(group: &str, version: &str, kind: &str, object: &mut Value) {
    Schemas::get().prune(group, version, kind, object);
}
