//! What a served resource is: names, scope, verbs, subresources, selectable fields. The table of them is
//! [`super::served`].

use super::served;
use crate::access::{GroupResource, KindInfo, gr};
use crate::openapi::{ServedKind, ServedSubresource};
use crate::selectors::field::Selectable;
use std::sync::LazyLock;

/// A verb of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of many.
    DeleteCollection,
    /// GET of one object.
    Get,
    /// GET of many.
    List,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET of a stream of changes.
    Watch,
}

impl Verb {
    /// The name of the verb in discovery.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

const CREATE: &[Verb] = &[Verb::Create];
const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];
const UPDATE: &[Verb] = &[Verb::Update];

/// A subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sub {
    /// `…/status`.
    Status,
    /// `…/scale`.
    Scale,
    /// `pods/…/binding`.
    Binding,
    /// `namespaces/…/finalize`.
    Finalize,
}

impl Sub {
    /// The last segment of the path.
    pub fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Finalize => "finalize",
        }
    }

    /// What it offers.
    pub fn verbs(self) -> &'static [Verb] {
        match self {
            Self::Status | Self::Scale => GET_PATCH_UPDATE,
            Self::Binding => CREATE,
            Self::Finalize => UPDATE,
        }
    }

    /// The names of these verbs in discovery.
    pub fn verb_names(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Scale => &["get", "patch", "update"],
            Self::Binding => &["create"],
            Self::Finalize => &["update"],
        }
    }

    /// Group, version and kind of its body; `None` is that of the resource.
    pub fn kind(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Status | Self::Finalize => None,
            Self::Scale => Some(("autoscaling", "v1", "Scale")),
            Self::Binding => Some(("", "v1", "Binding")),
        }
    }
}

/// How `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Unset,
    /// It stays at 1.
    One,
    /// It counts the changes of `spec`.
    Spec,
    /// It counts the changes of `spec` and of the annotations.
    SpecAndAnnotations,
}

/// A served resource.
#[derive(Debug)]
pub struct Resource {
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
    pub short_names: &'static [&'static str],
    /// Groups of resources for the command line, such as `all`.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done.
    pub verbs: &'static [Verb],
    /// Parts that can be written on their own.
    pub subresources: &'static [Sub],
    /// How `metadata.generation` moves.
    pub generation: Generation,
    /// Whether a deletion answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Whether an update must name the version that it replaces.
    pub needs_version: bool,
    /// Fields to select by, besides name and namespace.
    pub fields: &'static [Selectable],
    /// What upstream says of any other field, up to the field; `None` is the words for kinds without own fields.
    pub unknown_field: Option<&'static str>,
    /// What follows `metadata` in the JSON of an object of which nothing is set (bookmarks are such objects).
    pub blank: &'static str,
    /// The number under which objects of this resource are stored; `None` when none are.
    pub store: Option<usize>,
}

/// A field that counts as empty when it is absent.
pub(super) const fn text(label: &'static str, pointer: &'static str) -> Selectable {
    Selectable {
        label,
        pointer,
        absent: "",
    }
}

const NAME: Selectable = text("metadata.name", "/metadata/name");
const NAMESPACE: Selectable = text("metadata.namespace", "/metadata/namespace");

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let mut resources = served::all();
    let mut next = 0;
    for i in 0..resources.len() {
        if !resources[i].verbs.contains(&Verb::Get) {
            continue;
        }
        // Events of both groups are the same objects.
        resources[i].store = if resources[i].resource == gr("events.k8s.io", "events") {
            let events = gr("", "events");
            resources
                .iter()
                .find(|r| r.resource == events)
                .and_then(|r| r.store)
        } else {
            next += 1;
            Some(next - 1)
        };
    }
    resources
});

/// All served resources.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// The resource of this group and plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|r| r.resource.group == group && r.resource.resource == plural)
}

/// A resource by its group and name.
pub fn indexed(resource: GroupResource) -> Option<&'static Resource> {
    find(resource.group, resource.resource)
}

/// The served groups and their versions, core first.
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for resource in resources() {
        let gv = (resource.resource.group, resource.version);
        if !found.contains(&gv) {
            found.push(gv);
        }
    }
    found
}

// === impl Resource ===

impl Resource {
    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }

    /// What the controllers need to know of it.
    pub fn info(&self) -> KindInfo {
        KindInfo {
            resource: self.resource,
            version: self.version,
            kind: self.kind,
            namespaced: self.namespaced,
        }
    }

    /// What OpenAPI needs to know of it.
    pub fn served(&self) -> ServedKind {
        ServedKind {
            info: self.info(),
            verbs: self.verbs.iter().map(|v| v.name()).collect(),
            subresources: self
                .subresources
                .iter()
                .map(|sub| {
                    let (group, version, kind) =
                        sub.kind()
                            .unwrap_or((self.resource.group, self.version, self.kind));
                    ServedSubresource {
                        name: sub.name(),
                        group,
                        version,
                        kind,
                        verbs: sub.verb_names(),
                    }
                })
                .collect(),
        }
    }

    /// The key under which an object is stored.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Whether the verb is offered on whole objects.
    pub fn offers(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<Sub> {
        self.subresources.iter().copied().find(|s| s.name() == name)
    }

    /// The field that a selector names.
    ///
    /// # Errors
    /// Upstream's words when the kind cannot be selected by it.
    pub fn selectable(&self, label: &str) -> Result<Selectable, String> {
        [NAME, NAMESPACE]
            .iter()
            .chain(self.fields)
            .find(|f| f.label == label)
            .copied()
            .ok_or_else(|| match self.unknown_field {
                Some(words) => format!("{words}{label}"),
                None => format!(
                    "{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_stored_kind_has_a_place_and_only_events_share_one() {
        let stored: Vec<_> = resources().iter().filter_map(|r| r.store).collect();
        let distinct: BTreeSet<_> = stored.iter().copied().collect();
        assert_eq!(distinct.len() + 1, stored.len());
        let core = indexed(gr("", "events")).and_then(|r| r.store);
        assert!(core.is_some());
        assert_eq!(
            core,
            indexed(gr("events.k8s.io", "events")).and_then(|r| r.store)
        );
    }

    #[test]
    fn blank_objects_are_json() {
        for resource in resources() {
            let text = format!(r#"{{"metadata":{{}}{}}}"#, resource.blank);
            assert!(
                serde_json::from_str::<serde_json::Value>(&text).is_ok(),
                "{text}"
            );
        }
    }

    #[test]
    fn subresources_name_the_verbs_that_they_offer() {
        for sub in [Sub::Status, Sub::Scale, Sub::Binding, Sub::Finalize] {
            let names: Vec<_> = sub.verbs().iter().map(|v| v.name()).collect();
            assert_eq!(sub.verb_names(), names, "{}", sub.name());
        }
    }

    #[test]
    fn names_are_unique_within_a_group() {
        let mut seen = BTreeSet::new();
        for resource in resources() {
            assert!(
                seen.insert((resource.resource.group, resource.resource.resource)),
                "{:?}",
                resource.resource
            );
        }
    }
}
