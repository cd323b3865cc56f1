//! The lists and maps of the served kinds, from the facts.

use super::samples::is_list;
use berth_protobuf::facts::{Facts, FieldFacts, ResourceFacts, TypeFacts, ValueShape};
use std::collections::{BTreeMap, BTreeSet};

/// A field of one type is measured at no more places of other kinds than Pods.
const PLACES_MAX: usize = 3;

/// A list or a map of a kind.
pub(super) struct Place {
    pub(super) kind: &'static ResourceFacts,
    /// The path of fields. Fields before the last lead through the first entries of lists and maps.
    pub(super) fields: Vec<&'static FieldFacts>,
}

impl Place {
    /// Such as `pods spec.containers.env`.
    pub(super) fn name(&self) -> String {
        let fields: Vec<&str> = self.fields.iter().map(|field| field.name).collect();
        let kind = self.kind;
        format!("{} {} {}", kind.api_version, kind.plural, fields.join("."))
    }

    /// Whether it is written with the status of an object.
    pub(super) fn is_status(&self) -> bool {
        let first = self
            .fields
            .first()
            .is_some_and(|field| field.name == "status");
        first
            && self
                .kind
                .subresources
                .iter()
                .any(|sub| sub.name == "status")
    }
}

/// The fields of a type, including embedded types.
pub(super) fn fields(of: &'static TypeFacts) -> Vec<&'static FieldFacts> {
    let all = &Facts::get().types;
    let below = |field: &'static FieldFacts| match field.shape {
        ValueShape::Object(id) if field.name == FieldFacts::EMBEDDED => fields(&all[id.0]),
        _ => vec![field],
    };
    of.fields.iter().flat_map(below).collect()
}

/// The lists and maps of all kinds that can be created, each field of a type at a few places.
pub(super) fn all() -> Vec<Place> {
    let mut search = Search::default();
    let facts = Facts::get();
    // Pods first, and all of their lists: their checks depend on the place.
    let (pods, others): (Vec<_>, Vec<_>) = facts.resources.iter().partition(|r| r.plural == "pods");
    for kind in pods.into_iter().chain(others) {
        // The server writes the status of definitions itself, at any time.
        search.skips_status = kind.plural == "customresourcedefinitions";
        let creates = kind
            .verbs
            .as_ref()
            .is_none_or(|verbs| verbs.contains(&"get"));
        if let Some(id) = facts.find(kind.type_name).filter(|_| creates) {
            search.kind = Some(kind);
            search.below(&facts.types[id.0], &mut Vec::new());
        }
    }
    search.found
}

#[derive(Default)]
struct Search {
    kind: Option<&'static ResourceFacts>,
    found: Vec<Place>,
    /// The number of places of each field.
    places: BTreeMap<(&'static str, &'static str), usize>,
    skips_status: bool,
    /// The enclosing types.
    around: BTreeSet<&'static str>,
}

impl Search {
    fn below(&mut self, of: &'static TypeFacts, path: &mut Vec<&'static FieldFacts>) {
        let Some(kind) = self.kind else { return };
        // A schema contains schemas.
        if !self.around.insert(of.name) {
            return;
        }
        for field in fields(of) {
            if path.is_empty() && self.skips_status && field.name == "status" {
                continue;
            }
            path.push(field);
            if is_list(&field.shape) {
                let count = self.places.entry((of.name, field.name)).or_default();
                *count += 1;
                if *count <= PLACES_MAX || kind.plural == "pods" {
                    self.found.push(Place {
                        kind,
                        fields: path.clone(),
                    });
                }
            }
            if let Some(id) = field.shape.object() {
                self.below(&Facts::get().types[id.0], path);
            }
            path.pop();
        }
        self.around.remove(of.name);
    }
}
