//! The description of a served resource: names, scope, verbs, subresources, selectable fields, columns.
//!
//! Kubernetes' own resources are read from `facts/kubernetes.txt` (published facts) and `facts/resources.txt` (other
//! facts). A [`Catalog`] adds the resources of CustomResourceDefinitions.

pub mod definition;
mod documents;
mod resource;
mod selectable;

pub use documents::OpenApiDocument;
pub use resource::{Conversion, Generation, ServedResource, Sub};
pub use selectable::Selectable;

use crate::access::GroupResource;
use crate::releases::{ApiRelease, Availability};
use crate::schema::Schemas;
use berth_api::Release;
use documents::Documents;
use rustc_hash::FxHashMap;
use std::sync::{Arc, LazyLock};

/// Every resource that a server serves.
#[derive(Debug, Clone)]
pub struct Catalog {
    api: ApiRelease,
    resources: Vec<Arc<ServedResource>>,
    index: FxHashMap<(&'static str, &'static str), Vec<usize>>,
    group_versions: Vec<(&'static str, &'static str)>,
    documents: Documents,
}

static BUILT_IN: LazyLock<Arc<Catalog>> =
    LazyLock::new(|| Arc::new(Catalog::new(resource::read().0)));

/// Kubernetes' own resources of every release.
pub fn built_in() -> &'static Arc<Catalog> {
    &BUILT_IN
}

/// One of Kubernetes' own resources, by group and plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Arc<ServedResource>> {
    BUILT_IN.find(group, plural)
}

/// The names of the kinds of objects that a store holds, in the order of their numbers. A data directory knows kinds
/// by these names. The last is for all custom resources.
pub fn store_names() -> Vec<String> {
    let mut names = vec!["custom resources".to_owned(); custom_store() + 1];
    // If two resources share a store, the store has the name of the first.
    for resource in BUILT_IN.resources.iter().rev() {
        if let Some(name) = resource.store.and_then(|store| names.get_mut(store)) {
            let GroupResource { group, resource } = resource.resource;
            *name = match group {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            };
        }
    }
    names
}

/// The number under which all custom resources are stored.
pub(crate) fn custom_store() -> usize {
    let stores = BUILT_IN.resources.iter().filter_map(|r| r.store);
    stores.max().map_or(0, |last| last + 1)
}

/// The resources and fields that a release has added or no longer has, in words.
pub fn changes_of(release: Release) -> Vec<String> {
    let mut changes = Vec::new();
    let mut note = |name: String, availability: Availability| {
        let gate = availability.gate_name();
        let gate = gate.map_or(String::new(), |gate| format!(" (gate {gate})"));
        if availability.since == release && release > Release::OLDEST {
            changes.push(format!("added: {name}{gate}"));
        }
        let next = Release::of_minor(availability.until.minor() + 1);
        if availability.until < Release::NEWEST && next == Some(release) {
            changes.push(format!("removed: {name}{gate}"));
        }
    };
    for resource in built_in().resources() {
        let name = format!(
            "`{}` of `{}`",
            resource.resource.resource,
            resource.api_version()
        );
        note(name, resource.availability);
    }
    let model = Schemas::get().model();
    for object_type in model.object_types() {
        for field in &object_type.fields {
            let name = format!("`{}` in `{}`", field.name, object_type.name);
            note(name, field.availability);
        }
    }
    changes
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of these resources.
    pub fn new(resources: impl IntoIterator<Item = Arc<ServedResource>>) -> Self {
        Self::of(ApiRelease::EVERY, resources)
    }

    /// Kubernetes' own resources as a release serves them.
    pub fn of_release(api: ApiRelease) -> Self {
        let served = BUILT_IN
            .resources
            .iter()
            .filter(|resource| api.serves(resource.availability));
        let served = served.map(|resource| {
            let resource = ServedResource::clone(resource);
            Arc::new(ServedResource { api, ..resource })
        });
        Self::of(api, served)
    }

    /// The same catalog without the resources that `serves` rejects.
    pub(crate) fn filtered(&self, serves: impl Fn(&ServedResource) -> bool) -> Self {
        let served = self.resources.iter().filter(|resource| serves(resource));
        Self::of(self.api, served.cloned())
    }

    fn of(api: ApiRelease, resources: impl IntoIterator<Item = Arc<ServedResource>>) -> Self {
        let mut catalog = Self {
            api,
            resources: Vec::new(),
            index: FxHashMap::default(),
            group_versions: Vec::new(),
            documents: Documents::default(),
        };
        for resource in resources {
            catalog.add(resource);
        }
        catalog
    }

    /// Adds a resource.
    pub fn add(&mut self, resource: Arc<ServedResource>) {
        let key = (resource.resource.group, resource.resource.resource);
        self.index
            .entry(key)
            .or_default()
            .push(self.resources.len());
        let group_version = (resource.resource.group, resource.version);
        if !self.group_versions.contains(&group_version) {
            self.group_versions.push(group_version);
        }
        self.resources.push(resource);
    }

    /// The release whose API this is.
    pub fn api(&self) -> ApiRelease {
        self.api
    }

    /// The OpenAPI documents of these resources.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    /// All resources, group by group.
    pub fn resources(&self) -> &[Arc<ServedResource>] {
        &self.resources
    }

    /// The resource of this group and plural name, in its first version.
    pub fn find(&self, group: &str, plural: &str) -> Option<&Arc<ServedResource>> {
        let first = self.index.get(&(group, plural))?.first()?;
        self.resources.get(*first)
    }

    /// The resource of this group, version and plural name.
    pub fn find_version(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<ServedResource>> {
        let found = self.index.get(&(group, plural))?;
        found
            .iter()
            .filter_map(|i| self.resources.get(*i))
            .find(|r| r.version == version)
    }

    /// The served groups and their versions, core first.
    pub fn group_versions(&self) -> &[(&'static str, &'static str)] {
        &self.group_versions
    }
}

impl ServedResource {
    /// The resource under whose rules and shape objects of this one are stored.
    pub fn stored_as(&self) -> &Self {
        match self.store {
            Some(store) if self.custom.is_none() => built_in()
                .resources()
                .iter()
                .find(|r| r.store == Some(store))
                .map_or(self, |r| r),
            Some(_) => self,
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn every_stored_kind_has_a_place_and_only_other_versions_share_one() {
        let stored: Vec<_> = built_in()
            .resources()
            .iter()
            .filter_map(|r| r.store)
            .collect();
        let distinct: BTreeSet<_> = stored.iter().copied().collect();
        let converted = built_in().resources().iter().filter(|r| r.is_converted());
        assert_eq!(distinct.len() + converted.count(), stored.len());
        let of = |group| find(group, "events").and_then(|r| r.store);
        assert!(of("").is_some());
        assert_eq!(of(""), of("events.k8s.io"));
    }

    #[test]
    fn blank_objects_are_json() {
        for resource in built_in().resources() {
            let text = format!(r#"{{"metadata":{{}}{}}}"#, resource.blank);
            assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }
        let blank = |group, plural| find(group, plural).map_or("", |r| r.blank.as_str());
        assert_eq!(
            blank("", "pods"),
            r#","spec":{"containers":null},"status":{}"#
        );
        assert_eq!(
            blank("apps", "deployments"),
            r#","spec":{"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#
        );
    }

    #[test]
    fn every_line_of_the_table_is_of_a_published_resource_and_understood() {
        assert_eq!(resource::read().1, [""; 0]);
    }

    #[test]
    fn names_are_unique_within_a_group_version() {
        let mut seen = BTreeSet::new();
        for resource in built_in().resources() {
            let r = resource.resource;
            assert!(
                seen.insert((r.group, resource.version, r.resource)),
                "{r:?}"
            );
        }
    }
}
