//! The rules of `metadata`, which are the same for every kind but for the format of names.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown, json_text, list_text, struct_text};
use super::names;
use super::selectors;
use crate::field::FieldError;
use crate::view::{FieldView, copy_field};
use serde_json::Value;
use std::collections::HashSet;

/// The greatest size of all annotations of an object together, in bytes.
pub(crate) const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Finalizers that need no domain.
pub(super) const PLAIN_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// The format of a kind's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A domain name (RFC 1123): most kinds.
    Subdomain,
    /// One label of a domain name (RFC 1123): namespaces.
    Label,
    /// One label of a domain name (RFC 1035): services.
    Label1035,
    /// Any valid segment of a URL path: roles and bindings of RBAC.
    PathSegment,
    /// An IP address in its canonical form.
    IpAddress,
}

impl NameRule {
    /// The faults of `name`; a `prefix` of a generated name may end in dashes.
    fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = match name.strip_suffix('-') {
            Some(_) if prefix && name.len() > 1 && self != Self::PathSegment => {
                masked = format!("{}a", name.get(..name.len() - 2).unwrap_or(name));
                masked.as_str()
            }
            _ => name,
        };
        match self {
            Self::Subdomain => names::dns_subdomain(name),
            Self::Label => names::dns_label(name),
            Self::Label1035 => names::dns_1035_label(name),
            Self::PathSegment => names::path_segment(name, prefix),
            Self::IpAddress => match names::parse_ip(name) {
                None => vec![names::NOT_AN_IP.to_owned()],
                Some(ip) if ip.to_string() != name => {
                    vec![format!("must be in canonical form (\"{ip}\")")]
                }
                Some(_) => Vec::new(),
            },
        }
    }
}

/// Errors of the metadata of a new object, after its name was generated, in upstream's order.
pub fn validate_create(object: &Value, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = ErrorPath::new("metadata");
    validate_new(
        &mut errors,
        object.part("metadata"),
        &path,
        namespaced,
        rule,
    );
    errors.into_vec()
}

/// Adds the errors of the metadata of an embedded object.
pub(crate) fn validate_embedded(errors: &mut Errors, meta: &Value, path: &ErrorPath) {
    let namespaced = !meta.text("namespace").is_empty();
    validate_new(errors, meta, path, namespaced, NameRule::PathSegment);
}

fn validate_new(
    errors: &mut Errors,
    meta: &Value,
    path: &ErrorPath,
    namespaced: bool,
    rule: NameRule,
) {
    let (name, generate_name) = (meta.text("name"), meta.text("generateName"));
    // The prefix is checked as a prefix: it may end in a dash.
    if !generate_name.is_empty() {
        errors.each_invalid(
            &path.child("generateName"),
            generate_name,
            rule.check(generate_name, true),
        );
    }
    if name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        errors.each_invalid(&path.child("name"), name, rule.check(name, false));
    }
    let namespace = meta.text("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&path.child("namespace"), ""),
        (true, false) => errors.each_invalid(
            &path.child("namespace"),
            namespace,
            names::dns_label(namespace),
        ),
        (false, false) => errors.forbidden(&path.child("namespace"), "not allowed on this type"),
        (false, true) => {}
    }
    errors.nonnegative(&path.child("generation"), meta.int("generation"));
    validate_common(errors, meta, path);
}

/// Errors of the metadata of a changed object, in upstream's order.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = ErrorPath::new("metadata");
    let empty = Value::Null;
    let new = new.field("metadata").unwrap_or(&empty);
    let old = old.field("metadata").unwrap_or(&empty);
    if old.field("deletionTimestamp").is_some() {
        let had: HashSet<&str> = old.strings("finalizers").into_iter().collect();
        let mut added: Vec<&str> = new.strings("finalizers");
        added.retain(|f| !had.contains(f));
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let added: Vec<String> = added.into_iter().map(super::errors::quote).collect();
            errors.forbidden(
                &path.child("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            );
        }
    }
    if new.text("resourceVersion").is_empty() {
        errors.invalid(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        );
    }
    if new.int("generation") < old.int("generation") {
        errors.invalid(
            &path.child("generation"),
            new.int("generation"),
            "must not be decremented",
        );
    }
    for name in ["name", "namespace", "uid"] {
        if new.text(name) != old.text(name) {
            errors.invalid(&path.child(name), new.text(name), IS_IMMUTABLE);
        }
    }
    for name in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if new.field(name) != old.field(name) {
            let shown = new.field(name).map_or_else(Shown::null, Shown::from);
            errors.invalid(&path.child(name), shown, IS_IMMUTABLE);
        }
    }
    validate_common(&mut errors, new, &path);
    errors.into_vec()
}

/// Sets metadata that a client may omit in an update, and keeps the irreversible part: the deletion.
pub fn prepare_for_update(new: &mut Value, old: &Value) {
    let empty = Value::Null;
    let old = old.field("metadata").unwrap_or(&empty);
    let Some(meta) = crate::view::child(new, "metadata") else {
        return;
    };
    for name in ["uid", "creationTimestamp"] {
        if crate::view::is_zero(meta.field(name)) {
            copy_field(meta, old, name);
        }
    }
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if old.field(name).is_some() {
            copy_field(meta, old, name);
        }
    }
}

fn validate_common(errors: &mut Errors, meta: &Value, path: &ErrorPath) {
    selectors::validate_labels(errors, meta, "labels", &path.child("labels"));
    validate_annotations(errors, meta, &path.child("annotations"));
    validate_owners(
        errors,
        meta.items("ownerReferences"),
        &path.child("ownerReferences"),
    );
    let finalizers = meta.strings("finalizers");
    let path = path.child("finalizers");
    for finalizer in &finalizers {
        errors.each_invalid(&path, finalizer, names::qualified_name(finalizer));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let shown = meta
            .field("finalizers")
            .map_or_else(Shown::null, Shown::from);
        errors.invalid(
            &path,
            shown,
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

/// Errors of finalizers without a domain that are none of Kubernetes' own. Kinds of extensions, and custom resources,
/// may have such.
pub fn validate_plain_finalizers(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let path = ErrorPath::new("metadata.finalizers");
    let finalizers = object.part("metadata").strings("finalizers");
    for (i, finalizer) in finalizers.into_iter().enumerate() {
        validate_plain_finalizer(&mut errors, finalizer, &path.index(i));
    }
    errors.into_vec()
}

/// Errors of a finalizer without a domain that is none of Kubernetes' own.
pub(crate) fn validate_plain_finalizer(errors: &mut Errors, finalizer: &str, path: &ErrorPath) {
    if !finalizer.contains('/') && !PLAIN_FINALIZERS.contains(&finalizer) {
        errors.invalid(
            path,
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

/// Errors of annotations: keys as for labels but in any case, and their total size.
pub(crate) fn validate_annotations(errors: &mut Errors, meta: &Value, path: &ErrorPath) {
    let mut bytes = 0;
    for (key, value) in meta.labels("annotations") {
        errors.each_invalid(path, key, names::qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(path, ANNOTATIONS_BYTES_MAX);
    }
}

fn validate_owners(errors: &mut Errors, owners: &[Value], path: &ErrorPath) {
    let mut controller: Option<String> = None;
    for owner in owners {
        let api_version = owner.text("apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or("");
        if version.is_empty() {
            errors.invalid(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            );
        }
        for name in ["kind", "name", "uid"] {
            if owner.text(name).is_empty() {
                errors.invalid(&path.child(name), "", "must not be empty");
            }
        }
        // Events expire, so they cannot be owners.
        if api_version == "v1" && owner.text("kind") == "Event" {
            errors.invalid(
                path,
                Shown(owner_text(owner)),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if owner.flag("controller") {
            let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
            match &controller {
                // The error shows all owners: it is not formed when it is not reported.
                Some(_) if errors.is_full() => {}
                Some(first) => errors.invalid(
                    path,
                    Shown(list_text(owners.iter().map(owner_text))),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    ),
                ),
                None => controller = Some(this),
            }
        }
    }
}

/// An owner reference as JSON, with its fields in upstream's order.
fn owner_text(owner: &Value) -> String {
    let names = ["apiVersion", "kind", "name", "uid"].into_iter();
    let mut fields: Vec<_> = names.map(|n| (n, json_text(owner.text(n)))).collect();
    let flags = ["controller", "blockOwnerDeletion"].into_iter();
    fields.extend(flags.filter_map(|n| Some((n, json_text(owner.maybe_flag(n)?)))));
    struct_text(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(errors: &[FieldError]) -> Vec<String> {
        errors
            .iter()
            .map(|e| {
                format!(
                    "{} {}",
                    e.kind.reason().trim_start_matches("FieldValue"),
                    e.field
                )
            })
            .collect()
    }

    #[test]
    fn new_metadata_is_checked() {
        let cases = [
            (json!({"name": "a", "namespace": "d"}), true, vec![]),
            (
                json!({}),
                true,
                vec!["Required metadata.name", "Required metadata.namespace"],
            ),
            (
                json!({"name": "a", "namespace": "d"}),
                false,
                vec!["Forbidden metadata.namespace"],
            ),
            (json!({"name": "A_"}), false, vec!["Invalid metadata.name"]),
            (json!({"name": "a-x", "generateName": "a-"}), false, vec![]),
            (
                json!({"name": "a", "generateName": "Bad-"}),
                false,
                vec!["Invalid metadata.generateName"],
            ),
            (
                json!({"name": "a", "labels": {"bad key": "ok", "k": "bad value"}}),
                false,
                vec!["Invalid metadata.labels", "Invalid metadata.labels"],
            ),
            (
                json!({"name": "a", "annotations": {"UPPER.io/x": "any thing"}}),
                false,
                vec![],
            ),
            (
                json!({"name": "a", "annotations": {"big": "x".repeat(256 * 1024)}}),
                false,
                vec!["TooLong metadata.annotations"],
            ),
            (
                json!({"name": "a", "finalizers": ["orphan", "mine", "not valid", "a.io/b"]}),
                false,
                vec!["Invalid metadata.finalizers"],
            ),
            (
                json!({"name": "a", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "x", "uid": "1", "controller": true},
                    {"apiVersion": "v1", "kind": "B", "name": "", "uid": "2", "controller": true},
                ]}),
                false,
                vec![
                    "Invalid metadata.ownerReferences.name",
                    "Invalid metadata.ownerReferences",
                ],
            ),
        ];
        for (meta, namespaced, expected) in cases {
            let errors =
                validate_create(&json!({"metadata": meta}), namespaced, NameRule::Subdomain);
            assert_eq!(fields(&errors), expected, "{:.100}", meta.to_string());
        }
    }

    #[test]
    fn identity_and_deletion_do_not_change() {
        let old = json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t",
            "deletionTimestamp": "d", "finalizers": ["a.io/b"], "resourceVersion": "1"}});
        let mut new = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
        prepare_for_update(&mut new, &old);
        assert_eq!(validate_update(&new, &old), []);
        assert_eq!(new["metadata"]["deletionTimestamp"], "d");

        let new = json!({"metadata": {"name": "b", "uid": "v", "creationTimestamp": "t",
            "deletionTimestamp": "d", "finalizers": ["a.io/b", "a.io/c"]}});
        let errors = validate_update(&new, &old);
        assert_eq!(
            fields(&errors),
            [
                "Forbidden metadata.finalizers",
                "Invalid metadata.resourceVersion",
                "Invalid metadata.name",
                "Invalid metadata.uid",
            ]
        );
        assert!(
            errors
                .iter()
                .any(|e| e.detail.ends_with("[]string{\"a.io/c\"}"))
        );
    }
}
