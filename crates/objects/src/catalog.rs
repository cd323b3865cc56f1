//! The description of a served resource: names, scope, verbs, subresources, selectable fields, columns.
//!
//! Kubernetes' own resources are read from `facts/kubernetes.txt` (what it publishes) and `facts/resources.txt` (what
//! it does not). A [`Catalog`] adds those of CustomResourceDefinitions.

use crate::access::{GroupResource, KindInfo, gr};
use crate::conversion::Conversion;
use crate::custom::CustomType;
use crate::openapi::Documents;
use crate::raw_json;
use crate::releases::{self, ApiRelease, Availability};
use crate::schema::{ResourceFacts, Schemas};
use crate::selectors::field::Selectable;
use crate::status::StatusSubject;
use crate::table::TableColumn;
use crate::validation::metadata::NameRule;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const RESOURCES: &str = include_str!("../facts/resources.txt");

/// The verbs of a stored resource.
pub(crate) const ALL_VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The subresources that are served. Those of containers need containers that really run.
const SUBRESOURCES: [&str; 9] = [
    "approval",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "resize",
    "scale",
    "status",
    "token",
];

/// The way in which `metadata.generation` moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    #[default]
    Unset,
    /// It stays at 1.
    One,
    /// It counts the changes of `spec`.
    Spec,
    /// It counts the changes of `spec` and of the annotations.
    SpecAndAnnotations,
    /// It counts the changes of everything but metadata and status.
    Content,
    /// It counts the changes of everything but metadata.
    ContentAndStatus,
}

/// A part of an object that requests read or write on its own, or an action on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sub {
    /// The last segment of its path, such as `status`.
    pub name: &'static str,
    /// The API group of its body.
    pub group: &'static str,
    /// The version of its body.
    pub version: &'static str,
    /// The kind of its body.
    pub kind: &'static str,
    /// The verbs that it offers.
    pub verbs: Vec<&'static str>,
}

/// A served resource.
#[derive(Debug, Clone)]
pub struct ServedResource {
    /// Group and plural name.
    pub resource: GroupResource,
    /// The version.
    pub version: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// The name of one, in lower case.
    pub singular: &'static str,
    /// Abbreviations for the command line.
    pub short_names: Vec<&'static str>,
    /// Groups of resources for the command line, such as `all`.
    pub categories: Vec<&'static str>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// The verbs of the resource.
    pub verbs: Vec<&'static str>,
    /// Parts that can be written on their own, and actions.
    pub subresources: Vec<Sub>,
    /// The way in which `metadata.generation` moves.
    pub generation: Generation,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an update must name the version that it replaces.
    pub needs_version: bool,
    /// Whether an update creates an object that does not exist.
    pub creates_on_update: bool,
    /// The format of names.
    pub names: NameRule,
    /// Fields to select by, besides name and namespace.
    pub fields: Vec<Selectable>,
    /// The error about any other field, in which `{}` is that field; `None` is that of kinds without own fields.
    pub unknown_field: Option<&'static str>,
    /// The columns of its table.
    pub columns: Vec<TableColumn>,
    /// The text that follows `metadata` in the JSON of an object of which nothing is set (bookmarks are such objects).
    pub blank: String,
    /// The number under which objects of this resource are stored; `None` when none are.
    pub store: Option<usize>,
    /// The text that precedes the namespace and name in the keys of its objects.
    pub prefix: String,
    /// The way in which its objects differ from those that are stored.
    pub conversion: Option<Conversion>,
    /// The type of a custom resource.
    pub custom: Option<Arc<CustomType>>,
    /// The release whose fields objects have.
    pub api: ApiRelease,
    /// The releases and the gate with which the resource is served.
    pub(crate) availability: Availability,
}

/// Every resource that a server serves.
#[derive(Debug, Clone)]
pub struct Catalog {
    api: ApiRelease,
    resources: Vec<Arc<ServedResource>>,
    index: FxHashMap<(&'static str, &'static str), Vec<usize>>,
    group_versions: Vec<(&'static str, &'static str)>,
    documents: Documents,
}

static BUILT_IN: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(Catalog::new(read())));

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
    // If two resources share a store, the first gives its name.
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

// === impl Resource ===

impl ServedResource {
    /// A stored, namespaced resource of which nothing else is known.
    pub fn new(resource: GroupResource, version: &'static str, kind: &'static str) -> Self {
        Self {
            resource,
            version,
            kind,
            list_kind: crate::access::intern(&format!("{kind}List")),
            singular: "",
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: ALL_VERBS.to_vec(),
            subresources: Vec::new(),
            generation: Generation::Unset,
            returns_deleted: false,
            needs_version: false,
            creates_on_update: false,
            names: NameRule::Subdomain,
            fields: Vec::new(),
            unknown_field: None,
            columns: Vec::new(),
            blank: String::new(),
            store: None,
            prefix: String::new(),
            conversion: None,
            custom: None,
            api: ApiRelease::EVERY,
            availability: Availability::default(),
        }
    }

    fn published(facts: &ResourceFacts) -> Self {
        let kind = |type_name: &'static str| {
            let kind = type_name.rsplit('.').next().unwrap_or(type_name);
            kind.trim_start_matches('-')
        };
        let mut resource = Self::new(
            gr(facts.group, facts.plural),
            facts.version,
            kind(facts.type_name),
        );
        resource.conversion = Conversion::of(facts.group, facts.version, facts.plural);
        let (group, version, plural) = (facts.group, facts.version, facts.plural);
        if let Some(found) = releases::of_resource(facts.since, group, version, plural) {
            resource.availability = found;
        }
        resource.singular = facts.singular;
        resource.short_names.clone_from(&facts.short_names);
        resource.categories.clone_from(&facts.categories);
        resource.namespaced = facts.namespaced;
        if let Some(verbs) = &facts.verbs {
            resource.verbs.clone_from(verbs);
        }
        resource.subresources = facts
            // Other subresources exist in Kubernetes, but are not implemented.
            .subresources
            .iter()
            .filter(|sub| SUBRESOURCES.contains(&sub.name))
            .map(|sub| Sub {
                name: sub.name,
                group: sub.group,
                version: sub.version,
                kind: kind(sub.type_name),
                verbs: sub.verbs.clone(),
            })
            .collect();
        // The defaults that every object has are computed once, not for each bookmark.
        let mut blank = json!({});
        Schemas::get().normalize(facts.group, facts.version, resource.kind, &mut blank);
        for (field, value) in blank.as_object().into_iter().flatten() {
            if field != "metadata" {
                resource.blank += &format!(",{}:{value}", Value::from(field.as_str()));
            }
        }
        resource
    }

    /// The way in which messages name an object of this resource.
    pub fn subject<'a>(&self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject {
            group: self.resource.group,
            resource: self.resource.resource,
            name,
        }
    }

    /// The way in which messages about the content of an object name it.
    pub fn kind_subject<'a>(&self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject {
            group: self.resource.group,
            resource: self.kind,
            name,
        }
    }

    /// The kind, empty for a custom resource, which may share its name with one of Kubernetes.
    pub fn built_in_kind(&self) -> &str {
        match self.custom {
            Some(_) => "",
            None => self.kind,
        }
    }

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

    /// Returns whether objects have fields that are kept as the text of their JSON.
    pub fn has_raw_json(&self) -> bool {
        self.custom.is_none() && raw_json::has(self.resource.group, self.kind)
    }

    /// Returns whether objects are stored in another shape than this resource shows.
    pub fn is_converted(&self) -> bool {
        self.conversion.is_some()
    }

    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }

    /// The description of the resource for the controllers.
    pub fn info(&self) -> KindInfo {
        KindInfo {
            resource: self.resource,
            version: self.version,
            kind: self.kind,
            namespaced: self.namespaced,
        }
    }

    /// The key under which an object is stored.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        format!("{}{name}", self.key_prefix(Some(namespace)))
    }

    /// The start of the keys of the objects of a namespace, or of all objects.
    pub fn key_prefix(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{}{namespace}/", self.prefix),
            _ => self.prefix.clone(),
        }
    }

    /// Returns whether the verb is offered on whole objects.
    pub fn offers(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Sub> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The field that a selector names.
    ///
    /// # Errors
    /// Upstream's words when the kind cannot be selected by it.
    pub fn selectable(&self, label: &str) -> Result<Selectable, String> {
        const ALWAYS: [Selectable; 2] = [
            Selectable::text("metadata.name", "/metadata/name"),
            Selectable::text("metadata.namespace", "/metadata/namespace"),
        ];
        ALWAYS
            .iter()
            .chain(&self.fields)
            .find(|f| f.label == label)
            .copied()
            .ok_or_else(|| match self.unknown_field {
                Some(words) => words.replace("{}", label),
                None => format!(
                    "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            })
    }
}

/// Reads the resources from both tables and numbers those that are stored.
fn read() -> Vec<Arc<ServedResource>> {
    let mut resources: Vec<ServedResource> = Schemas::get()
        .resources()
        .iter()
        .map(ServedResource::published)
        .collect();
    let mut shared: Vec<(usize, &str)> = Vec::new();
    let mut current = None;
    for line in RESOURCES.lines().filter(|l| !l.starts_with('#')) {
        let mut words = crate::schema::words(line);
        let Some(first) = words.next() else {
            continue;
        };
        if first == "resource" {
            let name = words.next().unwrap_or("");
            let (plural, group) = name.split_once('.').unwrap_or((name, ""));
            current = resources
                .iter()
                .position(|r| r.resource.group == group && r.resource.resource == plural);
            if let Some((i, other)) = current.and_then(|i| {
                let other = words.clone().find_map(|w| w.strip_prefix("stored-as="))?;
                Some((i, other))
            }) {
                shared.push((i, other));
            }
        }
        if let Some(resource) = current.and_then(|i| resources.get_mut(i)) {
            resource.read_line(first, words);
        }
    }
    let mut next = 0;
    for resource in &mut resources {
        let is_shared = shared
            .iter()
            .any(|(_, o)| *o == resource.resource.resource && !resource.resource.group.is_empty());
        if resource.offers("get") && !is_shared && resource.conversion.is_none() {
            resource.store = Some(next);
            next += 1;
        }
    }
    for (i, other) in shared {
        let other = resources
            .iter()
            .find(|r| r.resource == gr("", other))
            .map(|r| (r.store, r.columns.clone()));
        if let (Some((store, columns)), Some(resource)) = (other, resources.get_mut(i)) {
            resource.store = store;
            resource.columns = columns;
        }
    }
    // Another version of a resource is the same but for the shape of its objects.
    let newest = resources.clone();
    for resource in resources.iter_mut().filter(|r| r.store.is_none()) {
        let same =
            |other: &&ServedResource| other.resource == resource.resource && other.store.is_some();
        if let (Some(_), Some(stored)) = (resource.conversion, newest.iter().find(same)) {
            *resource = ServedResource {
                version: resource.version,
                subresources: std::mem::take(&mut resource.subresources),
                blank: std::mem::take(&mut resource.blank),
                conversion: resource.conversion,
                availability: resource.availability,
                ..stored.clone()
            };
        }
    }
    resources.into_iter().map(Arc::new).collect()
}

impl ServedResource {
    fn read_line(
        &mut self,
        first: &'static str,
        words: impl Iterator<Item = &'static str> + Clone,
    ) {
        match first {
            "resource" => {
                for word in words {
                    match word {
                        "generation" => self.generation = Generation::Spec,
                        "generation=one" => self.generation = Generation::One,
                        "generation=annotations" => {
                            self.generation = Generation::SpecAndAnnotations;
                        }
                        "generation=content" => self.generation = Generation::Content,
                        "deleted-object" => self.returns_deleted = true,
                        "versioned" => self.needs_version = true,
                        "create-on-update" => self.creates_on_update = true,
                        "names=label" => self.names = NameRule::Label,
                        "names=label1035" => self.names = NameRule::Label1035,
                        "names=ip" => self.names = NameRule::IpAddress,
                        "names=path" => self.names = NameRule::PathSegment,
                        _ => {}
                    }
                }
            }
            "select" => {
                self.fields = words.map(selectable).collect();
                // A resource with selectable fields rejects all others.
                self.unknown_field = self.unknown_field.or(Some("field label not supported: {}"));
            }
            "select-error" => {
                self.unknown_field = words.clone().next().map(|w| w.trim_matches('"'))
            }
            "column" | "wide" => self
                .columns
                .push(TableColumn::parse(words, first == "wide")),
            _ => {}
        }
    }
}

/// `LABEL[=ABSENT][@/POINTER[|/POINTER]]`.
fn selectable(word: &'static str) -> Selectable {
    let (word, pointer) = match word.split_once('@') {
        Some((word, pointer)) => (word, Some(pointer)),
        None => (word, None),
    };
    let (label, absent) = word.split_once('=').unwrap_or((word, ""));
    let (pointer, fallback) = match pointer.and_then(|pointer| pointer.split_once('|')) {
        Some((first, second)) => (Some(first), Some(second)),
        None => (pointer, None),
    };
    Selectable {
        label,
        fallback,
        absent,
        pointer: pointer
            .unwrap_or_else(|| crate::access::intern(&format!("/{}", label.replace('.', "/")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn every_block_of_the_table_is_of_a_published_resource() {
        for line in RESOURCES.lines() {
            if let Some(rest) = line.strip_prefix("resource ") {
                let name = rest.split(' ').next().unwrap_or("");
                let (plural, group) = name.split_once('.').unwrap_or((name, ""));
                assert!(find(group, plural).is_some(), "{line}");
            }
        }
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
