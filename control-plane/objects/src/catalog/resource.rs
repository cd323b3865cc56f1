//! The description of a resource, and the tables of facts that have it.

use super::selectable::Selectable;
use crate::access::{GroupResource, KindInfo, gr};
use crate::columns::TableColumn;
use crate::custom::CustomType;
use crate::raw_json;
use crate::releases::{self, ApiRelease, Availability, deprecated};
use crate::schema::GroupVersionKind;
use crate::schema::Schemas;
use crate::status::StatusSubject;
use crate::validation::metadata::NameRule;
use berth_protobuf::facts::{Facts, ResourceFacts, words};
use serde_json::{Value, json};
use std::sync::Arc;

const RESOURCES: &str = include_str!("../../facts/resources.txt");

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

/// The served subresources. Subresources of containers require real containers.
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

/// The rule for changes of `metadata.generation`.
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
    /// It counts changes other than of metadata and status.
    Content,
    /// It counts changes other than of metadata.
    ContentAndStatus,
}

/// A subresource: a separately accessible part of an object, or an action on it.
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
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// The verbs of the resource.
    pub verbs: Vec<&'static str>,
    /// Parts that can be written on their own, and actions.
    pub subresources: Vec<Sub>,
    /// The rule for changes of `metadata.generation`.
    pub generation: Generation,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an empty list or map in a request counts as a change, as in `reflect.DeepEqual`.
    pub counts_empties: bool,
    /// Whether an update must name the version that it replaces.
    pub needs_version: bool,
    /// Whether an update creates an object that does not exist.
    pub creates_on_update: bool,
    /// The format of names.
    pub names: NameRule,
    /// Fields for field selectors, in addition to name and namespace.
    pub fields: Vec<Selectable>,
    /// The error for any other field, with `{}` for the field; `None` for kinds without own fields, which have a common
    /// error.
    pub unknown_field: Option<&'static str>,
    /// The columns of its table.
    pub columns: Vec<TableColumn>,
    /// The text after `metadata` in the JSON of an empty object (bookmarks are such objects).
    pub blank: String,
    /// The number under which objects of this resource are stored; `None` when none are.
    pub store: Option<usize>,
    /// The text that precedes the namespace and name in the keys of its objects.
    pub prefix: String,
    /// The conversion between its objects and stored objects.
    pub conversion: Option<Conversion>,
    /// The type of a custom resource.
    pub custom: Option<Arc<CustomType>>,
    /// The release whose fields objects have.
    pub api: ApiRelease,
    /// The releases and the gate of the resource.
    pub(crate) availability: Availability,
}

/// The difference between a resource and the resource as which its objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Events of events.k8s.io/v1.
    Events,
    /// HorizontalPodAutoscalers of autoscaling/v1.
    Autoscalers,
    /// The kinds of resource.k8s.io/v1beta1.
    DevicesBeta,
    /// The kinds of scheduling.k8s.io/v1alpha2.
    GroupsAlpha,
    /// The kinds of resource.k8s.io/v1beta2 and scheduling.k8s.io/v1alpha3, which differ only in the version.
    Version,
}

impl Conversion {
    /// The conversion of this group and version, if its objects are stored in another shape.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        match (group, version, plural) {
            ("events.k8s.io", "v1", "events") => Some(Self::Events),
            ("autoscaling", "v1", "horizontalpodautoscalers") => Some(Self::Autoscalers),
            ("resource.k8s.io", "v1beta1", _) => Some(Self::DevicesBeta),
            ("resource.k8s.io", "v1beta2", _) => Some(Self::Version),
            ("scheduling.k8s.io", "v1alpha2", _) => Some(Self::GroupsAlpha),
            ("scheduling.k8s.io", "v1alpha3", "podgroups" | "workloads") => Some(Self::Version),
            _ => None,
        }
    }
}

// === impl ServedResource ===

impl ServedResource {
    /// Group, version and kind of the objects.
    pub fn group_version_kind(&self) -> GroupVersionKind<'static> {
        GroupVersionKind::new(self.resource.group, self.version, self.kind)
    }

    /// A stored, namespaced resource with default properties.
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
            counts_empties: false,
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
        Schemas::get().normalize(
            GroupVersionKind::new(facts.group, facts.version, resource.kind),
            &mut blank,
        );
        for (field, value) in blank.as_object().into_iter().flatten() {
            if field != "metadata" {
                resource.blank += &format!(",{}:{value}", Value::from(field.as_str()));
            }
        }
        resource
    }

    /// The name of an object of this resource in messages.
    pub fn subject<'a>(&self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject {
            group: self.resource.group,
            resource: self.resource.resource,
            name,
        }
    }

    /// The name of an object in messages about its content.
    pub fn kind_subject<'a>(&self, name: &'a str) -> StatusSubject<'a> {
        StatusSubject {
            group: self.resource.group,
            resource: self.kind,
            name,
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

    /// The warning about each request for the resource, if its version is deprecated in the release that is served.
    pub fn deprecation(&self) -> Option<String> {
        if let Some(custom) = &self.custom {
            return custom.deprecated.clone();
        }
        let (version, plural) = (self.api_version(), self.resource.resource);
        deprecated::warning(&version, plural, self.kind, self.api)
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
    pub(crate) fn selectable(&self, label: &str) -> Result<Selectable, String> {
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

/// Reads the resources from both tables and numbers the stored ones. Also returns the unreadable lines; a test ensures
/// that there are none.
pub(super) fn read() -> (Vec<Arc<ServedResource>>, Vec<&'static str>) {
    let mut faults = Vec::new();
    let mut resources: Vec<ServedResource> = Facts::get()
        .resources
        .iter()
        .map(ServedResource::published)
        .collect();
    let mut shared: Vec<(usize, &str)> = Vec::new();
    let mut current = None;
    for line in RESOURCES.lines().filter(|l| !l.starts_with('#')) {
        let mut words = words(line);
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
        let resource = current.and_then(|i| resources.get_mut(i));
        if resource.and_then(|r| r.read_line(first, words)).is_none() {
            faults.push(line);
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
    (resources.into_iter().map(Arc::new).collect(), faults)
}

impl ServedResource {
    /// Reads a line about the resource; `None` when a word of it is unknown.
    fn read_line(
        &mut self,
        first: &'static str,
        words: impl Iterator<Item = &'static str> + Clone,
    ) -> Option<()> {
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
                        "counts-empties" => self.counts_empties = true,
                        "deleted-object" => self.returns_deleted = true,
                        "versioned" => self.needs_version = true,
                        "create-on-update" => self.creates_on_update = true,
                        "names=label" => self.names = NameRule::Label,
                        "names=label1035" => self.names = NameRule::Label1035,
                        "names=ip" => self.names = NameRule::IpAddress,
                        "names=path" => self.names = NameRule::PathSegment,
                        word => _ = word.strip_prefix("stored-as=")?,
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
            "column" | "wide" => {
                let column = TableColumn::parse(words, first == "wide")?;
                self.columns.push(column);
            }
            _ => return None,
        }
        Some(())
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
