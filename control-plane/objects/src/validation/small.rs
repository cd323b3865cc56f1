//! The checks that tables cannot express for namespaces, leases, budgets, events, priority classes and RBAC.

use super::errors::{ErrorPath, Errors};
use super::metadata::validate_plain_finalizer;
use super::names;
use super::owner::Owner;
use crate::view::{FieldView, is_zero, set, set_if_zero};
use serde_json::{Value, json};

/// The label that carries a namespace's name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The classes of the system and their values.
pub const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
/// The maximum length of the reporting instance, action and reason of an event, in bytes.
const EVENT_NAME_BYTES_MAX: usize = 128;
/// The maximum length of the note of an event, in bytes.
const EVENT_NOTE_BYTES_MAX: usize = 1024;
const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) fn api_service_port(e: &mut Errors, _: &Owner, port: &Value, path: &ErrorPath) {
    let port = port.as_i64().unwrap_or(0);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        e.invalid(path, port, detail);
    }
}

pub(crate) fn finalizers(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    for finalizer in list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        e.each_invalid(path, finalizer, names::qualified_name(finalizer));
        validate_plain_finalizer(e, finalizer, path);
    }
}

pub(crate) fn namespaced_rule(e: &mut Errors, owner: &Owner, urls: &Value, path: &ErrorPath) {
    if !is_zero(Some(urls)) && owner.enclosing("rbac.v1.Role").is_some() {
        e.invalid(
            path,
            urls,
            "namespaced rules cannot apply to non-resource URLs",
        );
    }
}

/// `domain/path`.
pub(super) fn domain_prefixed_path(errors: &mut Errors, text: &str, path: &ErrorPath) {
    if text.is_empty() {
        errors.required(path, "");
        return;
    }
    let parts = text.split_once('/');
    let Some((domain, rest)) = parts.filter(|(d, r)| !d.is_empty() && !r.is_empty()) else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.invalid(path, text, detail);
        return;
    };
    errors.each_invalid(path, domain, names::dns_subdomain(domain));
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(fits) {
        let detail =
            r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path, rest, detail);
    }
}

/// A namespace has its name as a label.
pub fn default_namespace(namespace: &mut Value) {
    let name = namespace.part("metadata").text("name").to_owned();
    let metadata = crate::view::meta_mut(namespace);
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut().filter(|_| !name.is_empty()) {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

pub(crate) fn priority_class(errors: &mut Errors, owner: &Owner, class: &Value, _: &ErrorPath) {
    let (name, value) = (class.part("metadata").text("name"), class.int("value"));
    if owner.old.is_some() || !name.starts_with("system-") {
        return;
    }
    let problem = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
        None => format!("{name} is not a known system priority class"),
        Some((_, known)) if value != *known => {
            format!("value of {name} PriorityClass must be {known}")
        }
        Some(_) if class.flag("globalDefault") => {
            format!("globalDefault of {name} PriorityClass must be false")
        }
        Some(_) => return,
    };
    errors.forbidden(
        &ErrorPath::new("metadata.name"),
        format!("priority class names with 'system-' prefix are reserved for system use only. error: {problem}"),
    );
}

/// Events are stored in the shape of core/v1. An event with `eventTime` is of the new kind and names its reporter; the
/// old kind only has to agree with its namespace.
pub(crate) fn event(errors: &mut Errors, _: &Owner, event: &Value, _: &ErrorPath) {
    let namespace = event.part("metadata").text("namespace");
    // Events about objects without a namespace are in `default` or, from older clients, in `kube-system`.
    let about = event.part("involvedObject").text("namespace");
    let agrees = match about {
        "" => matches!(namespace, "" | "default" | "kube-system"),
        about => about == namespace,
    };
    if !agrees {
        let at = ErrorPath::new("involvedObject.namespace");
        errors.invalid(&at, about, "does not match event.namespace");
    }
    if event.field("eventTime").is_none() {
        return;
    }
    let controller = event.text("reportingComponent");
    let at = ErrorPath::new("reportingController");
    if controller.is_empty() {
        errors.required(&at, "");
    }
    errors.each_invalid(&at, controller, names::qualified_name(controller));
    for (field, bytes_max, required) in [
        ("reportingInstance", EVENT_NAME_BYTES_MAX, true),
        ("action", EVENT_NAME_BYTES_MAX, true),
        ("reason", EVENT_NAME_BYTES_MAX, true),
        ("message", EVENT_NOTE_BYTES_MAX, false),
    ] {
        let at = ErrorPath::new(field);
        let text = event.text(field);
        if required && text.is_empty() {
            errors.required(&at, "");
        }
        if text.len() > bytes_max {
            errors.invalid(&at, "", format!("can have at most {bytes_max} characters"));
        }
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(
            &ErrorPath::new("type"),
            "",
            format!("has invalid value: {kind}"),
        );
    }
}

/// The API group of a role reference is RBAC's.
pub(super) fn default_role_ref(role: &mut Value) {
    set_if_zero(role, "apiGroup", RBAC);
}

/// The group of a subject follows from its kind.
pub(super) fn default_subject(subject: &mut Value) {
    if matches!(subject.text("kind"), "User" | "Group") {
        set_if_zero(subject, "apiGroup", RBAC);
    }
}

/// A network policy applies to ingress, and to egress if it has egress rules.
pub(super) fn default_policy_types(spec: &mut Value) {
    if spec.items("policyTypes").is_empty() {
        let mut types = vec!["Ingress"];
        if !spec.items("egress").is_empty() {
            types.push("Egress");
        }
        set(spec, "policyTypes", json!(types));
    }
}

pub(crate) fn api_service(errors: &mut Errors, _: &Owner, service: &Value, path: &ErrorPath) {
    let (spec, at) = (service.part("spec"), path.child("spec"));
    let (group, version) = (spec.text("group"), spec.text("version"));
    let (name, wanted) = (
        service.part("metadata").text("name"),
        format!("{version}.{group}"),
    );
    if name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.invalid(&path.child("metadata").child("name"), name, detail);
    }
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.required(&at.child("group"), detail);
    } else if !group.is_empty() {
        errors.each_invalid(&at.child("group"), group, names::dns_subdomain(group));
    }
    let problems = berth_api::names::dns1035_label(version);
    errors.each_invalid(&at.child("version"), version, problems);
}
