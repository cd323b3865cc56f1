//! Schemas of custom resources with their compiled parts.

// The schemas in use are kept behind a lock that is held for one lookup.
#![allow(clippy::disallowed_types)]

use super::model;
use super::objects::patterns;
use super::rules::Rules;
use crate::schema::model::{Model, TypeId};
use berth_cel::{Pattern, RegexError};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHasher};
use serde_json::Value;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A schema, its patterns and its rules. Large patterns take a tenth of a second each, so that a schema is compiled once
/// for all versions that have it, and for all states of its definition.
#[derive(Debug)]
pub(super) struct CompiledSchema {
    /// The schema, as its definition states it.
    pub(super) schema: Value,
    /// The same for server-side apply.
    pub(super) model: Model,
    pub(super) root: TypeId,
    /// The patterns by their texts.
    pub(super) patterns: FxHashMap<String, Arc<Pattern>>,
    pub(super) rules: Rules,
}

/// The schemas in use by the hashes of their texts.
static IN_USE: Mutex<Vec<(u64, Weak<CompiledSchema>)>> = Mutex::new(Vec::new());

/// The patterns in use by their texts. A changed schema has most patterns of the schema before.
static PATTERNS: Mutex<FxHashMap<String, Weak<Pattern>>> =
    Mutex::new(FxHashMap::with_hasher(FxBuildHasher));

/// A pattern compiled, or as it was compiled for a schema in use.
///
/// # Errors
/// The fault of the pattern.
pub(super) fn pattern(text: &str) -> Result<Arc<Pattern>, RegexError> {
    let in_use = || PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = in_use().get(text).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let compiled = Arc::new(Pattern::new(text)?);
    let mut in_use = in_use();
    // Before the map grows, which is seldom.
    if in_use.len() == in_use.capacity() {
        in_use.retain(|_, known| known.strong_count() > 0);
    }
    in_use.insert(text.to_owned(), Arc::downgrade(&compiled));
    Ok(compiled)
}

impl CompiledSchema {
    /// A schema compiled, or as it was compiled for a resource that is in use.
    pub(super) fn of(schema: &Value) -> Arc<Self> {
        let mut hasher = FxHasher::default();
        schema.to_string().hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = Self::find(hash, schema) {
            return known;
        }
        // Another thread may compile the same schema concurrently, which only costs time.
        let (model, root) = model::of(schema);
        let compiled = Arc::new(Self {
            schema: schema.clone(),
            model,
            root,
            patterns: patterns(schema),
            rules: Rules::of(schema),
        });
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, known)| known.strong_count() > 0);
        in_use.push((hash, Arc::downgrade(&compiled)));
        compiled
    }

    fn find(hash: u64, schema: &Value) -> Option<Arc<Self>> {
        let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = in_use.iter().filter(|(known, _)| *known == hash);
        let mut alike = alike.filter_map(|(_, known)| known.upgrade());
        alike.find(|known| known.schema == *schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::definition;
    use serde_json::json;

    fn definition_of(pattern: &str, metadata: Value) -> Value {
        let schema = json!({"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "string", "pattern": pattern}},
        }});
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        json!({
            "metadata": metadata,
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "shops", "kind": "Shop"},
                "versions": [version("v1", true), version("v1beta1", false)],
            },
            "status": {"acceptedNames": {"plural": "shops", "kind": "Shop"}},
        })
    }

    #[test]
    fn a_schema_is_compiled_once_for_all_versions_and_states_of_its_definition() {
        let pattern = "^compiled-once$";
        let before = definition::resources(&definition_of(pattern, json!({"name": "s"})));
        let deleted = json!({
            "name": "s", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": [definition::CLEANUP],
        });
        let deleted = definition_of(pattern, deleted);
        let mut after = definition::resources(&deleted);
        after.extend(definition::stored_resource(&deleted));
        let of = |resource: &crate::catalog::ServedResource| {
            Arc::clone(&resource.custom.as_ref().expect("a custom type").compiled)
        };
        let first = of(&before[0]);
        assert_eq!((before.len(), after.len()), (2, 3));
        for resource in before.iter().chain(&after) {
            assert!(Arc::ptr_eq(&first, &of(resource)), "{}", resource.version);
        }
        let other = definition::resources(&definition_of("^other$", json!({"name": "s"})));
        assert!(!Arc::ptr_eq(&first, &of(&other[0])));
    }

    /// A changed schema takes effect without the time that its unchanged patterns need.
    #[test]
    fn a_pattern_is_compiled_once_for_all_schemas_that_have_it() {
        let schema = |longest: u64| {
            let text = json!({"type": "string", "pattern": "^shared$", "maxLength": longest});
            json!({"type": "object", "properties": {"a": text, "b": text}})
        };
        let before = CompiledSchema::of(&schema(1));
        let after = CompiledSchema::of(&schema(2));
        let of = |schema: &CompiledSchema| Arc::clone(&schema.patterns["^shared$"]);
        assert!(!Arc::ptr_eq(&before, &after));
        assert!(Arc::ptr_eq(&of(&before), &of(&after)));
        let first = pattern("^dropped$").expect("it is compiled");
        let weak = Arc::downgrade(&first);
        drop(first);
        assert_eq!(weak.strong_count(), 0, "it is kept for no schema");
        assert!(pattern("^dropped$").is_ok_and(|again| again.is_match("dropped")));
    }

    #[test]
    fn a_schema_is_forgotten_with_its_last_resource() {
        let schema = json!({"type": "string", "pattern": "^forgotten$"});
        let weak = Arc::downgrade(&CompiledSchema::of(&schema));
        assert_eq!(weak.strong_count(), 0);
        let again = CompiledSchema::of(&schema);
        assert!(again.patterns["^forgotten$"].is_match("forgotten"));
    }
}
