//! The fields of CustomResourceDefinitions: names, conversion, versions, subresources and columns.

use super::conversion::REVIEW_VERSIONS;
use super::field_path::FieldPath;
use super::objects::patterns;
use super::schema;
use crate::certificates;
use crate::field::FieldError;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::validation::errors::{ErrorPath, Errors, IS_IMMUTABLE};
use crate::validation::owner::Owner;
use crate::validation::{names, webhooks};
use crate::view::{FieldView, child, set_if_absent, set_if_zero};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_api::names::dns1035_label;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The largest number of selectable fields of a version.
const SELECTABLE_MAX: usize = 8;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const NOT_A_PATH: &str = "must be a simple json path starting with .";

pub(crate) fn custom_kind(e: &mut Errors, _: &Owner, kind: &Value, path: &ErrorPath) {
    let kind = kind.as_str().unwrap_or("");
    let problems = dns1035_label(&kind.to_lowercase()).join(",");
    if !kind.is_empty() && !problems.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {problems}");
        e.invalid(path, kind, detail);
    }
}

/// Definitions: the storage version becomes a stored version.
pub(crate) struct Definitions;

impl KindStrategy for Definitions {
    fn prepare_for_create(&self, definition: &mut Value, _now: &str) {
        definition["status"] = json!({});
        add_stored_version(definition);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
        if part != Subresource::Status {
            add_stored_version(new);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, _part: Subresource) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let mut conditions = old.part("status").items("conditions").iter();
        // The scope and the kind may change until the first object can exist.
        let is_established =
            conditions.any(|c| c.text("type") == "Established" && c.text("status") == "True");
        for (checked, path) in [
            (is_established, "spec.scope"),
            (is_established, "spec.names.kind"),
            (true, "spec.group"),
            (true, "spec.names.plural"),
        ] {
            let pointer = format!("/{}", path.replace('.', "/"));
            let text = |object: &Value| {
                object
                    .pointer(&pointer)
                    .and_then(Value::as_str)
                    .unwrap_or("")
                    .to_owned()
            };
            if checked && text(new) != text(old) {
                errors.invalid(&ErrorPath::new(path), &text(new), IS_IMMUTABLE);
            }
        }
        let spec = new.part("spec").items("versions").iter();
        let versions: HashSet<&str> = spec.map(|version| version.text("name")).collect();
        let stored = new.part("status").strings("storedVersions");
        // Objects may be stored in this version, so it must stay known.
        for (i, stored) in stored.iter().enumerate() {
            if !versions.contains(stored) {
                let path = ErrorPath::new("status").child("storedVersions").index(i);
                errors.invalid(&path, *stored, "missing from spec.versions");
            }
        }
        errors.into_vec()
    }
}

/// The status of a new or changed definition: the storage version is a stored version.
fn add_stored_version(definition: &mut Value) {
    let versions = definition.part("spec").items("versions").iter();
    let storage = versions
        .filter(|v| v.flag("storage"))
        .map(|v| v.text("name"))
        .next();
    let Some(storage) = storage.map(str::to_owned) else {
        return;
    };
    let mut stored = definition.part("status").strings("storedVersions");
    if stored.contains(&storage.as_str()) {
        return;
    }
    stored.push(&storage);
    let stored = json!(stored);
    definition["status"]["storedVersions"] = stored;
}

/// The defaults of the spec of a definition.
pub(crate) fn default_spec(spec: &mut Value) {
    if let Some(names) = child(spec, "names") {
        let kind = names.text("kind").to_owned();
        set_if_zero(names, "singular", kind.to_lowercase());
        if !kind.is_empty() {
            set_if_zero(names, "listKind", format!("{kind}List"));
        }
    }
    set_if_absent(spec, "conversion", json!({"strategy": "None"}));
}

pub(crate) fn definition_name(errors: &mut Errors, _: &Owner, definition: &Value, _: &ErrorPath) {
    let spec = definition.part("spec");
    let (group, plural) = (spec.text("group"), spec.part("names").text("plural"));
    let name = definition.part("metadata").text("name");
    if name != format!("{plural}.{group}") {
        let path = ErrorPath::new("metadata").child("name");
        errors.invalid(&path, name, "must be spec.names.plural+\".\"+spec.group");
    }
}

pub(crate) fn group(errors: &mut Errors, _: &Owner, group: &Value, path: &ErrorPath) {
    let group = group.as_str().unwrap_or("");
    let problems = names::dns_subdomain(group);
    if !problems.is_empty() {
        errors.invalid(path, group, problems.join(","));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.invalid(path, group, detail);
    }
}

/// Checks how objects are converted. Errors name the fields as the internal version has them.
pub(crate) fn check_conversion(
    errors: &mut Errors,
    _: &Owner,
    conversion: &Value,
    path: &ErrorPath,
) {
    let webhook = conversion.part("webhook");
    let (client, at) = (
        webhook.field("clientConfig"),
        path.child("webhookClientConfig"),
    );
    let at_versions = path.child("conversionReviewVersions");
    if conversion.text("strategy") != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.forbidden(&at, detail);
        }
        if !webhook.items("conversionReviewVersions").is_empty() {
            errors.forbidden(&at_versions, detail);
        }
        // Without the strategy, the webhook has no effect.
        return;
    }
    match client {
        Some(client) => {
            webhooks::check_client(errors, client, &at);
            check_bundle(errors, client, &at.child("caBundle"));
        }
        None => errors.required(&at, "required when strategy is set to Webhook"),
    }
    match webhook.part("conversionReviewVersions") {
        Value::Array(list) if !list.is_empty() => {
            webhooks::check_review_versions(errors, list, &REVIEW_VERSIONS, &at_versions);
        }
        _ => errors.required(&at_versions, ""),
    }
}

/// An authority in PEM. Blanks alone are none.
fn check_bundle(errors: &mut Errors, client: &Value, path: &ErrorPath) {
    let bundle = STANDARD.decode(client.text("caBundle")).unwrap_or_default();
    if !bundle.trim_ascii().is_empty()
        && let Some(fault) = certificates::check_bundle(&bundle).err()
    {
        errors.invalid_unshown(path, fault);
    }
}

pub(crate) fn approval(errors: &mut Errors, _: &Owner, definition: &Value, _: &ErrorPath) {
    let group = definition.part("spec").text("group");
    let is_protected = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
    let annotations = definition.part("metadata").part("annotations");
    if is_protected && annotations.text("api-approved.kubernetes.io").is_empty() {
        let path = ErrorPath::new("metadata")
            .child("annotations")
            .key("api-approved.kubernetes.io");
        errors.required(&path, "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111");
    }
}

/// The parts that all versions share are checked and reported once, as of the whole definition.
fn check_parts(errors: &mut Errors, versions: &[Value], path: &ErrorPath) {
    let alike = |field: &str| {
        let first = versions.first().map(|v| v.part(field));
        versions.iter().all(|v| Some(v.part(field)) == first)
    };
    let of_all = ErrorPath::new("spec");
    let count = |field: &str| {
        if alike(field) {
            versions.len().min(1)
        } else {
            versions.len()
        }
    };
    for (i, version) in versions.iter().take(count("schema")).enumerate() {
        let at = if alike("schema") {
            of_all.child("validation")
        } else {
            path.index(i).child("schema")
        };
        let at = at.child("openAPIV3Schema");
        if let Some(schema) = version.part("schema").field("openAPIV3Schema") {
            let has_status = version.part("subresources").field("status").is_some();
            let kind = schema.text("type");
            if has_status && !matches!(kind, "" | "object") {
                let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(&at.child("type"), kind, detail);
            }
            schema::check(errors, schema, &at);
        }
    }
    for (i, version) in versions.iter().take(count("subresources")).enumerate() {
        let at = if alike("subresources") {
            of_all.clone()
        } else {
            path.index(i)
        };
        check_subresources(
            errors,
            version.part("subresources"),
            &at.child("subresources"),
        );
    }
    for (i, version) in versions
        .iter()
        .take(count("additionalPrinterColumns"))
        .enumerate()
    {
        let at = if alike("additionalPrinterColumns") {
            of_all.clone()
        } else {
            path.index(i)
        };
        let at = at.child("additionalPrinterColumns");
        for (i, column) in version.items("additionalPrinterColumns").iter().enumerate() {
            check_column(errors, column, &at.index(i));
        }
    }
    let selectable = "selectableFields";
    for (i, version) in versions.iter().take(count(selectable)).enumerate() {
        let at = if alike(selectable) {
            of_all.clone()
        } else {
            path.index(i)
        };
        check_selectable(errors, version, &at.child(selectable));
    }
}

pub(crate) fn check_versions(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    // Conditions and finalizers change more often than versions, whose patterns and rules take long.
    if owner.old.is_some_and(|old| old.part("versions") == list) {
        return;
    }
    let versions = list.as_array().map_or(&[][..], Vec::as_slice);
    // Each pattern is compiled once for all checks of the definition.
    let _in_use = patterns(list);
    check_parts(errors, versions, path);
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        let problems = dns1035_label(version.text("name"));
        if !problems.is_empty() {
            errors.invalid(&at.child("name"), version.text("name"), problems.join(","));
        }
        if version.part("schema").field("openAPIV3Schema").is_none() {
            errors.required(&at.child("schema").child("openAPIV3Schema"), "");
        }
        if version.field("deprecationWarning").is_some() && !version.flag("deprecated") {
            let at = at.child("deprecationWarning");
            errors.invalid(
                &at,
                version.text("deprecationWarning"),
                "can only be set for deprecated versions",
            );
        }
    }
    let mut seen = HashSet::new();
    if !versions.iter().all(|v| seen.insert(v.text("name"))) {
        errors.invalid(path, list, "must contain unique version names");
    }
    // Objects are stored in exactly one version.
    if versions.iter().filter(|v| v.flag("storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.invalid(path, list, detail);
    }
}

/// Fields to select objects by: texts, truth values and whole numbers.
fn check_selectable(errors: &mut Errors, version: &Value, path: &ErrorPath) {
    let schema = version.part("schema").part("openAPIV3Schema");
    let mut seen = HashSet::new();
    for (i, field) in version.items("selectableFields").iter().enumerate() {
        let (given, at) = (field.text("jsonPath"), path.index(i).child("jsonPath"));
        if given.is_empty() {
            errors.required(&at, "");
            continue;
        }
        // A list has many values; a selector compares one.
        let found = match FieldPath::parse(given, schema, false) {
            Ok(found) => found,
            Err(fault) => {
                errors.invalid(&at, given, format!("is an invalid path: {fault}"));
                continue;
            }
        };
        if found
            .steps
            .first()
            .is_some_and(|step| step.name() == "metadata")
        {
            errors.invalid(&at, given, "must not point to fields in metadata");
        }
        if !matches!(found.schema.text("type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(&at, given, detail);
        }
        if !seen.insert(given) {
            errors.duplicate(&at, given);
        }
    }
    errors.check_at_most(path, seen.len(), SELECTABLE_MAX);
}

fn check_subresources(errors: &mut Errors, subresources: &Value, path: &ErrorPath) {
    let Some(scale) = subresources.field("scale") else {
        return;
    };
    let at = path.child("scale");
    for (field, roots) in [
        ("specReplicasPath", &[".spec"][..]),
        ("statusReplicasPath", &[".status"]),
        ("labelSelectorPath", &[".spec", ".status"]),
    ] {
        let (given, at) = (scale.text(field), at.child(field));
        let is_below = |root: &&str| {
            let below = given.strip_prefix(*root);
            below.is_some_and(|below| below.starts_with('.'))
        };
        if given.is_empty() {
            if field != "labelSelectorPath" {
                errors.required(&at, "");
            }
        } else if !given.starts_with('.') {
            errors.invalid(&at, given, NOT_A_PATH);
        } else if !roots.iter().any(is_below) {
            let either = if roots.len() > 1 { "either " } else { "" };
            let detail = format!("should be a json path under {either}{}", roots.join(" or "));
            errors.invalid(&at, given, detail);
        }
    }
}

fn check_column(errors: &mut Errors, column: &Value, path: &ErrorPath) {
    if column.text("name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    let known = || format!("must be one of {}", COLUMN_TYPES.join(","));
    match column.text("type") {
        "" => errors.required(&path.child("type"), known()),
        kind if COLUMN_TYPES.contains(&kind) => {}
        other => errors.invalid(&path.child("type"), other, known()),
    }
    let format = column.text("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.invalid(&path.child("format"), format, detail);
    }
    // An invalid path is detected when a table is printed.
    match column.text("jsonPath") {
        "" => errors.required(&path.child("JSONPath"), ""),
        text if text.starts_with('.') => {}
        text => errors.invalid(&path.child("JSONPath"), text, NOT_A_PATH),
    }
}
