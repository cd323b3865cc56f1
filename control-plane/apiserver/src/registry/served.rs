//! The served resources: Kubernetes' own resources, and the resources of definitions.

use crate::webhook_client::targets::ConversionTargets;
use berth_objects::catalog::definition::{is_established, is_terminating, resources};
use berth_objects::catalog::{Catalog, ServedResource};
use berth_objects::view::{FieldView, meta};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The state of a definition that determines its resources: UID, generation, and whether it is established and
/// terminating.
type Basis = (String, i64, bool, bool);

/// The resources of a definition.
type DefinitionResources = (Basis, Vec<Arc<ServedResource>>);

/// The served resources.
#[derive(Debug)]
pub(crate) struct Served {
    /// Kubernetes' own resources.
    built_in: Arc<Catalog>,
    catalog: RwLock<Arc<Catalog>>,
    /// The definitions in the catalog.
    made: Mutex<Vec<DefinitionResources>>,
    /// The targets of their conversion webhooks.
    pub(crate) targets: ConversionTargets,
    /// The revisions of the definitions when all of them had the right conditions.
    settled: Mutex<Vec<u64>>,
}

impl Served {
    /// Kubernetes' own resources, without resources of definitions.
    pub(crate) fn new(built_in: Arc<Catalog>) -> Self {
        Self {
            catalog: RwLock::new(Arc::clone(&built_in)),
            built_in,
            made: Mutex::default(),
            targets: ConversionTargets::default(),
            settled: Mutex::default(),
        }
    }

    /// The resources that are served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&catalog)
    }

    /// Creates the resources of changed definitions, and keeps the resources of unchanged ones.
    pub(super) fn replace(&self, definitions: &[Arc<Value>]) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let bases: Vec<Basis> = definitions.iter().map(|d| basis(d)).collect();
        if made.iter().map(|(basis, _)| basis).eq(&bases) {
            return;
        }
        let mut known: FxHashMap<Basis, Vec<Arc<ServedResource>>> =
            std::mem::take(&mut *made).into_iter().collect();
        *made = definitions
            .iter()
            .zip(bases)
            .map(|(definition, basis)| {
                let resources = known.remove(&basis).unwrap_or_else(|| {
                    let is_served = is_established(definition);
                    let resources = is_served.then(|| resources(definition));
                    resources.into_iter().flatten().map(Arc::new).collect()
                });
                (basis, resources)
            })
            .collect();
        let mut catalog = Catalog::clone(&self.built_in);
        let mut served: Vec<&Arc<ServedResource>> = made.iter().flat_map(|(_, r)| r).collect();
        served.sort_by_key(|r| r.resource.group);
        for resource in served {
            catalog.add(Arc::clone(resource));
        }
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    pub(super) fn is_settled(&self, revisions: &[u64]) -> bool {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) == revisions
    }

    pub(super) fn settle(&self, revisions: Vec<u64>) {
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = revisions;
    }
}

fn basis(definition: &Value) -> Basis {
    let generation = definition.part("metadata").int("generation");
    let uid = meta(definition, "uid").to_owned();
    (
        uid,
        generation,
        is_established(definition),
        is_terminating(definition),
    )
}
