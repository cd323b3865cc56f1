//! The resources and the conditions that CustomResourceDefinitions have.

use super::{Generation, Selectable, ServedResource, Sub, built_in, custom_store};
use crate::access::{gr, intern};
use crate::columns::TableColumn;
use crate::custom::CustomType;
use crate::custom::conversion::ConversionWebhook;
use crate::json_path::JsonPath;
use crate::view::{FieldView, meta, path_of_names};
use rustc_hash::FxHashSet;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::sync::Arc;

/// The finalizer of a definition that is deleted while its objects are.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The verbs of a custom resource, in the order of kube-apiserver.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// The API group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";

/// Returns whether a resource is customresourcedefinitions.
pub fn is_definitions(resource: &ServedResource) -> bool {
    resource.resource == gr(GROUP, "customresourcedefinitions")
}

fn condition<'d>(definition: &'d Value, name: &str) -> Option<&'d Value> {
    let conditions = definition.part("status").items("conditions").iter();
    conditions.into_iter().find(|c| c.text("type") == name)
}

fn is_true(definition: &Value, name: &str) -> bool {
    condition(definition, name).is_some_and(|c| c.text("status") == "True")
}

/// Returns whether the resources of a definition are served.
pub fn is_established(definition: &Value) -> bool {
    is_true(definition, "Established")
}

/// Returns whether a definition is being deleted together with its objects.
pub fn is_terminating(definition: &Value) -> bool {
    let metadata = definition.part("metadata");
    metadata.field("deletionTimestamp").is_some()
        && metadata.strings("finalizers").contains(&CLEANUP)
}

/// The status that a definition has among all of them.
pub fn status(definition: &Value, names: &Names<'_>, now: &str) -> Value {
    let mut status = definition.part("status").clone();
    let wanted = definition.part("spec").part("names");
    let conflict = conflict(wanted, names, status.part("acceptedNames"));
    // Accepted names stay when a later change conflicts: objects may exist under them.
    if conflict.is_none() {
        status["acceptedNames"] = wanted.clone();
    }
    let (accepted, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, name)) => ("False", *reason, format!("{name:?} is already in use")),
    };
    put(&mut status, "NamesAccepted", accepted, reason, message, now);
    if conflict.is_none() {
        let message = "the initial names have been accepted".to_owned();
        put(
            &mut status,
            "Established",
            "True",
            "InitialNamesAccepted",
            message,
            now,
        );
    // An established definition stays established: clients may use it.
    } else if !is_established(definition) {
        let message = "not all names are accepted".to_owned();
        put(
            &mut status,
            "Established",
            "False",
            "NotAccepted",
            message,
            now,
        );
    }
    if is_terminating(definition) {
        let message = "CustomResource deletion is in progress".to_owned();
        put(
            &mut status,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            message,
            now,
        );
    }
    status
}

fn put(status: &mut Value, name: &str, value: &str, reason: &str, message: String, now: &str) {
    let mut condition = json!({
        "type": name, "status": value, "lastTransitionTime": now, "reason": reason, "message": message,
    });
    let conditions = status["conditions"].as_array_mut();
    match conditions {
        Some(list) => match list.iter_mut().find(|c| c["type"] == name) {
            Some(old) => {
                if old["status"] == value {
                    condition["lastTransitionTime"] = old["lastTransitionTime"].take();
                }
                if let Some(generation) = old.field("observedGeneration") {
                    condition["observedGeneration"] = generation.clone();
                }
                *old = condition;
            }
            None => list.push(condition),
        },
        None => status["conditions"] = json!([condition]),
    }
}

/// The names of other definitions in the group of a definition, and of Kubernetes' own resources in it.
pub struct Names<'a> {
    resources: FxHashSet<&'a str>,
    kinds: FxHashSet<&'a str>,
}

impl<'a> Names<'a> {
    /// The names that `definition` must not use, from all definitions.
    pub fn new(all: &'a [Arc<Value>], definition: &Value) -> Self {
        let group = definition.part("spec").text("group");
        let mut names = Self {
            resources: FxHashSet::default(),
            kinds: FxHashSet::default(),
        };
        for other in all {
            let spec = other.part("spec");
            // A definition does not conflict with itself.
            if spec.text("group") != group || meta(other, "uid") == meta(definition, "uid") {
                continue;
            }
            let accepted = other.part("status").part("acceptedNames");
            names
                .resources
                .extend([accepted.text("plural"), accepted.text("singular")]);
            names.resources.extend(accepted.strings("shortNames"));
            names
                .kinds
                .extend([accepted.text("kind"), accepted.text("listKind")]);
        }
        for resource in built_in()
            .resources()
            .iter()
            .filter(|r| r.resource.group == group)
        {
            names
                .resources
                .extend([resource.resource.resource, resource.singular]);
            names.kinds.extend([resource.kind, resource.list_kind]);
        }
        names
    }
}

/// The reported name conflict of a definition; names that it already has do not conflict.
fn conflict(wanted: &Value, names: &Names<'_>, accepted: &Value) -> Option<(&'static str, String)> {
    let own_resources = [accepted.text("plural"), accepted.text("singular")];
    let own_short = accepted.strings("shortNames");
    let own_kinds = [accepted.text("kind"), accepted.text("listKind")];
    let is_resource = |name: &str| {
        let is_own = own_resources.contains(&name) || own_short.contains(&name);
        !is_own && names.resources.contains(name)
    };
    let is_kind = |name: &str| !own_kinds.contains(&name) && names.kinds.contains(name);
    let mut last = None;
    let mut check = |reason, name: &str, is_taken: bool| {
        if !name.is_empty() && is_taken {
            last = Some((reason, name.to_owned()));
        }
    };
    // In kube-apiserver's order, the last conflict is reported.
    for (reason, name) in [
        ("PluralConflict", wanted.text("plural")),
        ("SingularConflict", wanted.text("singular")),
    ] {
        check(reason, name, is_resource(name));
    }
    for name in wanted.strings("shortNames") {
        check("ShortNamesConflict", name, is_resource(name));
    }
    for (reason, name) in [
        ("KindConflict", wanted.text("kind")),
        ("ListKindConflict", wanted.text("listKind")),
    ] {
        check(reason, name, is_kind(name));
    }
    last
}

/// The order of versions in discovery: `v2`, `v1`, `v2beta1`, `v1alpha1`, then all others by name.
pub(crate) fn stability(name: &str) -> (u8, Reverse<u64>, Reverse<u64>, String) {
    let other = || (3, Reverse(0), Reverse(0), name.to_owned());
    let Some(rest) = name.strip_prefix('v') else {
        return other();
    };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (major, rest) = rest.split_at(digits);
    let Ok(major) = major.parse::<u64>() else {
        return other();
    };
    let stage = |rank, minor: &str| match minor.parse::<u64>() {
        Ok(minor) => (rank, Reverse(major), Reverse(minor), String::new()),
        Err(_) => other(),
    };
    match rest {
        "" => (0, Reverse(major), Reverse(0), String::new()),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => stage(1, minor),
            (_, Some(minor)) => stage(2, minor),
            _ => other(),
        },
    }
}

/// The resources of the served versions.
pub fn resources(definition: &Value) -> Vec<ServedResource> {
    let versions = definition.part("spec").items("versions").iter();
    let mut served: Vec<&Value> = versions.filter(|v| v.flag("served")).collect();
    served.sort_by_key(|v| stability(v.text("name")));
    let converter = ConversionWebhook::of(definition).map(Arc::new);
    served
        .into_iter()
        .map(|version| resource(definition, version, converter.clone()))
        .collect()
}

/// The resource of the storage version, served or not. Its objects are not converted.
pub fn stored_resource(definition: &Value) -> Option<ServedResource> {
    let mut versions = definition.part("spec").items("versions").iter();
    let version = versions.find(|v| v.flag("storage"))?;
    Some(resource(definition, version, None))
}

fn resource(
    definition: &Value,
    version: &Value,
    converter: Option<Arc<ConversionWebhook>>,
) -> ServedResource {
    let spec = definition.part("spec");
    let names = definition.part("status").part("acceptedNames");
    let (group, name) = (intern(spec.text("group")), intern(version.text("name")));
    let (plural, kind) = (intern(names.text("plural")), intern(names.text("kind")));
    let mut versions = spec.items("versions").iter();
    let stored = versions.find(|v| v.flag("storage")).unwrap_or(version);
    let mut custom = CustomType::new(version, format!("{group}/{}", stored.text("name")));
    let schema = |version: &Value| version.part("schema").part("openAPIV3Schema").clone();
    custom.stored_schema = Some(schema(stored)).filter(|stored| *stored != schema(version));
    custom.converter = converter;
    if version.flag("deprecated") {
        let default = || format!("{group}/{name} {kind} is deprecated");
        let warning = version.maybe_text("deprecationWarning");
        custom.deprecated = Some(warning.map_or_else(default, str::to_owned));
    }
    let mut resource = ServedResource::new(gr(group, plural), name, kind);
    resource.list_kind = intern(names.text("listKind"));
    resource.singular = intern(names.text("singular"));
    resource.short_names = names
        .strings("shortNames")
        .into_iter()
        .map(intern)
        .collect();
    resource.categories = names
        .strings("categories")
        .into_iter()
        .map(intern)
        .collect();
    resource.namespaced = spec.text("scope") == "Namespaced";
    resource.verbs = VERBS.to_vec();
    let selectable = version.items("selectableFields").iter().map(|field| {
        let label = field.text("jsonPath").trim_start_matches('.');
        Selectable::text(intern(label), intern(&path_of_names(label)))
    });
    resource.fields = selectable.collect();
    if is_terminating(definition) {
        resource.verbs.retain(|verb| *verb != "create");
    }
    let verbs = || vec!["get", "patch", "update"];
    if custom.has_status {
        resource.subresources.push(Sub {
            name: "status",
            group,
            version: name,
            kind,
            verbs: verbs(),
        });
    }
    if custom.scale.is_some() {
        let scale = Sub {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind: "Scale",
            verbs: verbs(),
        };
        resource.subresources.push(scale);
    }
    resource.generation = if custom.has_status {
        Generation::Content
    } else {
        Generation::ContentAndStatus
    };
    resource.needs_version = true;
    resource.store = Some(custom_store());
    resource.prefix = format!("{group}/{plural}/");
    resource.columns = columns(version);
    resource.custom = Some(Arc::new(custom));
    resource
}

fn columns(version: &Value) -> Vec<TableColumn> {
    let mut columns = vec![TableColumn::name()];
    let own = version.items("additionalPrinterColumns");
    for column in own {
        // As in kube-apiserver, a column that cannot be read ends the table.
        let Some(path) = JsonPath::parse(column.text("jsonPath")) else {
            break;
        };
        columns.push(TableColumn::custom(column, path));
    }
    if own.is_empty() {
        columns.push(TableColumn::age("date"));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_listed_by_stability() {
        let mut versions = [
            "foo", "v1alpha1", "v10", "v2beta1", "v2", "v11beta2", "v1", "v2beta10", "foo2",
        ];
        versions.sort_by_key(|v| stability(v));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v11beta2", "v2beta10", "v2beta1", "v1alpha1", "foo", "foo2"
            ]
        );
    }
}
