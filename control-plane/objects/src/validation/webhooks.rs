//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use super::errors::{ErrorPath, Errors, Shown};
use super::owner::Owner;
use super::{names, policies};
use crate::view::FieldView;
use berth_cel::{CompileError, Program};
use http::Uri;
use serde_json::Value;
use std::collections::HashSet;

/// The versions of AdmissionReview that the API server sends.
pub const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The variables of match conditions.
pub const CONDITION_VARIABLES: &[&str] = &["object", "oldObject", "request"];
/// A webhook has no more match conditions.
const CONDITIONS_MAX: usize = 64;
/// The minimum number of parts of the name of a webhook.
const NAME_PARTS_MIN: usize = 3;
const URL_FORM: &str = "; desired format: https://host[/path]";

pub(crate) fn match_conditions(e: &mut Errors, _: &Owner, conditions: &Value, path: &ErrorPath) {
    check_conditions(e, conditions, path, |text| {
        Program::condition(text, CONDITION_VARIABLES)
    });
}

pub(crate) fn webhook_client(e: &mut Errors, _: &Owner, config: &Value, path: &ErrorPath) {
    check_client(e, config, path)
}

/// Checks where a webhook is called.
pub(crate) fn check_client(errors: &mut Errors, config: &Value, path: &ErrorPath) {
    match (config.maybe_text("url"), config.field("service")) {
        (Some(url), None) => check_url(errors, url, &path.child("url")),
        (None, Some(service)) => check_service(errors, service, &path.child("service")),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

pub(crate) fn unique_names(errors: &mut Errors, _: &Owner, configuration: &Value, _: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, hook) in configuration.items("webhooks").iter().enumerate() {
        let name = hook.text("name");
        if !name.is_empty() && !seen.insert(name) {
            let path = ErrorPath::new("webhooks").index(i).child("name");
            errors.duplicate(&path, name);
        }
    }
}

pub(crate) fn webhook_name(errors: &mut Errors, _: &Owner, name: &Value, path: &ErrorPath) {
    let name = name.as_str().unwrap_or("");
    let problems = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    } else if name.split('.').count() < NAME_PARTS_MIN {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(path, name, detail);
    }
}

/// Checks match conditions, which `compile` reads.
pub(super) fn check_conditions(
    errors: &mut Errors,
    conditions: &Value,
    path: &ErrorPath,
    compile: impl Fn(&str) -> Result<Program, CompileError>,
) {
    let conditions = conditions.as_array().map_or(&[][..], Vec::as_slice);
    errors.check_at_most(path, conditions.len(), CONDITIONS_MAX);
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let (at, name) = (path.index(i), condition.text("name"));
        let expression = condition.text("expression").trim();
        if expression.is_empty() {
            errors.required(&at.child("expression"), "");
        } else if let Err(error) = compile(expression) {
            let detail = policies::detail(&error);
            errors.invalid(&at.child("expression"), expression, detail);
        }
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.each_invalid(&at.child("name"), name, names::qualified_name(name));
        }
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
    }
}

/// A list with `*` as its only entry.
pub(crate) fn wildcard(errors: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    let entries = list.as_array().map_or(&[][..], Vec::as_slice);
    if entries.is_empty() {
        errors.required(path, "");
    } else if entries.len() > 1 && entries.iter().any(|entry| entry == "*") {
        let what = match path.last_name() {
            "apiGroups" => "API groups",
            "apiVersions" => "API versions",
            field => field,
        };
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(path, list, detail);
    }
}

pub(crate) fn rule_resources(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let entries = owner.value.strings("resources");
    if entries.is_empty() {
        errors.required(path, "");
    }
    let (mut of_resource, mut of_sub) = (HashSet::new(), HashSet::new());
    for (i, entry) in entries.iter().enumerate() {
        let at = path.index(i);
        let Some((resource, sub)) = entry.split_once('/') else {
            if entry.is_empty() {
                errors.required(&at, "");
            }
            continue;
        };
        if of_resource.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {entry}");
            errors.invalid(&at, *entry, detail);
        }
        if of_sub.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {entry}");
            errors.invalid(&at, *entry, detail);
        }
        if sub == "*" {
            of_resource.insert(resource);
        }
        if resource == "*" {
            of_sub.insert(sub);
        }
    }
    // An entry that matches everything makes the others redundant, which is usually a mistake.
    let shown = || Shown::from(list);
    if entries.len() > 1 && entries.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.invalid(path, shown(), detail);
    }
    let plain = |entry: &&str| !entry.is_empty() && *entry != "*" && !entry.contains('/');
    if entries.contains(&"*") && entries.iter().any(plain) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, shown(), detail);
    }
}

fn check_url(errors: &mut Errors, url: &str, path: &ErrorPath) {
    let (whole, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (scheme, rest) = whole.split_once("://").unwrap_or(("", whole));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.invalid(path, scheme, detail);
    }
    let (authority, query) = (
        rest.split(['/', '?']).next().unwrap_or(""),
        rest.split_once('?').map_or("", |(_, query)| query),
    );
    if scheme.is_empty() || authority.is_empty() {
        errors.invalid(path, "", format!("host must be specified{URL_FORM}"));
    } else if whole.parse::<Uri>().is_err() {
        errors.required(path, format!("url must be a valid URL: {url:?}{URL_FORM}"));
    }
    if let Some((user, _)) = authority.rsplit_once('@') {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

fn check_service(errors: &mut Errors, service: &Value, path: &ErrorPath) {
    for field in ["name", "namespace"] {
        if service.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    let port = service.int("port");
    let problems = names::port_number(port);
    if !problems.is_empty() {
        let detail = format!("port is not valid: {}", problems.join(", "));
        errors.invalid(&path.child("port"), port, detail);
    }
    let (given, at) = (service.text("path"), path.child("path"));
    if matches!(given, "" | "/") {
        return;
    }
    // The path has a single empty segment.
    if given == "//" {
        errors.invalid(&at, given, "segment[0] may not be empty");
        return;
    }
    let steps = given.strip_prefix('/').unwrap_or_else(|| {
        errors.invalid(&at, given, "must start with a '/'");
        given.get(1..).unwrap_or("")
    });
    for (i, step) in steps
        .strip_suffix('/')
        .unwrap_or(steps)
        .split('/')
        .enumerate()
    {
        if step.is_empty() {
            errors.invalid(&at, given, format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(step) {
            errors.invalid(&at, given, format!("segment[{i}]: {problem}"));
        }
    }
}

pub(crate) fn review_versions(errors: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    let versions = owner.value.items("admissionReviewVersions");
    if versions.is_empty() {
        let known = REVIEW_VERSIONS.join(", ");
        errors.required(path, format!("must specify one of {known}"));
        return;
    }
    check_review_versions(errors, versions, &REVIEW_VERSIONS, path);
}

/// Checks the review versions of a webhook; the API server must support at least one of them.
pub(crate) fn check_review_versions(
    errors: &mut Errors,
    versions: &[Value],
    known: &[&str],
    path: &ErrorPath,
) {
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let (at, version) = (path.index(i), version.as_str().unwrap_or(""));
        if seen.insert(version) {
            errors.each_invalid(&at, version, berth_api::names::dns1035_label(version));
        } else {
            errors.invalid(&at, version, "duplicate version");
        }
    }
    if !known.iter().any(|known| seen.contains(known)) {
        let detail = format!("must include at least one of {}", known.join(", "));
        errors.invalid(path, &Value::from(versions), detail);
    }
}
