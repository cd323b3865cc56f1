//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use super::engine::{Owner, run_type};
use super::errors::{Errors, Path, Shown};
use super::view::View;
use super::{checks, names};
use berth_cel::{CompileError, Program};
use http::Uri;
use serde_json::Value;
use std::collections::HashSet;

/// The versions of AdmissionReview that the API server sends.
pub(crate) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// The variables of match conditions.
pub(crate) const CONDITION_VARIABLES: &[&str] = &["object", "oldObject", "request"];
/// A webhook has no more match conditions.
const CONDITIONS_MAX: usize = 64;
/// A name of a webhook has at least so many parts.
const NAME_PARTS_MIN: usize = 3;
/// A webhook is called for at most so long, in seconds.
const TIMEOUT_SECONDS_MAX: i64 = 30;
const URL_FORM: &str = "; desired format: https://host[/path]";

checks! {
    "webhook" => webhook,
    "webhook-names" => unique_names,
}

fn unique_names(errors: &mut Errors, _: &Owner, configuration: &Value, _: &Path) {
    let mut seen = HashSet::new();
    for (i, hook) in configuration.items("webhooks").iter().enumerate() {
        let name = hook.text("name");
        if !name.is_empty() && !seen.insert(name) {
            let path = Path::new("webhooks").index(i).child("name");
            errors.duplicate(&path, name);
        }
    }
}

fn webhook(errors: &mut Errors, owner: &Owner, hook: &Value, path: &Path) {
    let (name, at) = (hook.text("name"), path.child("name"));
    let problems = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(&at, "");
    } else if !problems.is_empty() {
        errors.invalid(&at, name, problems.join(","));
    } else if name.split('.').count() < NAME_PARTS_MIN {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(&at, name, detail);
    }
    for (i, rule) in hook.items("rules").iter().enumerate() {
        check_rule(errors, rule, &path.child("rules").index(i));
    }
    one_of(errors, hook, "failurePolicy", &["Fail", "Ignore"], path);
    one_of(errors, hook, "matchPolicy", &["Equivalent", "Exact"], path);
    let side_effects = ["None", "NoneOnDryRun"];
    if hook.field("sideEffects").is_none() {
        let detail = format!("must specify one of {}", side_effects.join(", "));
        errors.required(&path.child("sideEffects"), detail);
    }
    one_of(errors, hook, "sideEffects", &side_effects, path);
    if let Some(seconds) = hook.maybe_int("timeoutSeconds")
        && !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = hook.field(field) {
            let at = path.child(field);
            run_type(errors, "meta.v1.LabelSelector", selector, Some(owner), &at);
        }
    }
    let policies = ["IfNeeded", "Never"];
    one_of(errors, hook, "reinvocationPolicy", &policies, path);
    check_client(
        errors,
        hook.part("clientConfig"),
        &path.child("clientConfig"),
    );
    check_conditions(errors, hook, &path.child("matchConditions"));
    check_review_versions(errors, hook, &path.child("admissionReviewVersions"));
}

fn check_conditions(errors: &mut Errors, hook: &Value, path: &Path) {
    let conditions = hook.items("matchConditions");
    errors.check_at_most(path, conditions.len(), CONDITIONS_MAX);
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let (at, name) = (path.index(i), condition.text("name"));
        let expression = condition.text("expression");
        if expression.trim().is_empty() {
            errors.required(&at.child("expression"), "");
        } else if let Err(error) = Program::condition(expression, CONDITION_VARIABLES) {
            let detail = match error {
                CompileError::OtherType(..) => "must evaluate to bool".to_owned(),
                other => other.to_string(),
            };
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

/// A field that is absent or one of these values.
fn one_of(errors: &mut Errors, object: &Value, field: &'static str, known: &[&str], path: &Path) {
    if let Some(value) = object.maybe_text(field)
        && !known.contains(&value)
    {
        errors.not_supported(&path.child(field), value, known);
    }
}

fn check_rule(errors: &mut Errors, rule: &Value, path: &Path) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    check_wildcard(errors, rule, "operations", "operations", path);
    for (i, operation) in rule.strings("operations").iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            let at = path.child("operations").index(i);
            errors.not_supported(&at, operation, &OPERATIONS);
        }
    }
    check_wildcard(errors, rule, "apiGroups", "API groups", path);
    check_wildcard(errors, rule, "apiVersions", "API versions", path);
    for (i, version) in rule.strings("apiVersions").iter().enumerate() {
        if version.is_empty() {
            errors.required(&path.child("apiVersions").index(i), "");
        }
    }
    check_resources(errors, rule, &path.child("resources"));
    one_of(errors, rule, "scope", &["*", "Cluster", "Namespaced"], path);
}

/// A list that has entries, of which `*` is the only one.
fn check_wildcard(errors: &mut Errors, rule: &Value, field: &'static str, what: &str, path: &Path) {
    let at = path.child(field);
    let entries = rule.strings(field);
    if entries.is_empty() {
        errors.required(&at, "");
    } else if entries.len() > 1 && entries.contains(&"*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&at, rule.part(field), detail);
    }
}

fn check_resources(errors: &mut Errors, rule: &Value, path: &Path) {
    let entries = rule.strings("resources");
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
    let shown = || Shown::from(rule.part("resources"));
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

fn check_client(errors: &mut Errors, config: &Value, path: &Path) {
    match (config.maybe_text("url"), config.field("service")) {
        (Some(url), None) => check_url(errors, url, &path.child("url")),
        (None, Some(service)) => check_service(errors, service, &path.child("service")),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn check_url(errors: &mut Errors, url: &str, path: &Path) {
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

fn check_service(errors: &mut Errors, service: &Value, path: &Path) {
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

fn check_review_versions(errors: &mut Errors, hook: &Value, path: &Path) {
    let known = REVIEW_VERSIONS.join(", ");
    let versions = hook.strings("admissionReviewVersions");
    if versions.is_empty() {
        errors.required(path, format!("must specify one of {known}"));
        return;
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let at = path.index(i);
        if seen.insert(*version) {
            errors.each_invalid(&at, version, berth_api::names::dns1035_label(version));
        } else {
            errors.invalid(&at, *version, "duplicate version");
        }
    }
    if !versions.iter().any(|v| REVIEW_VERSIONS.contains(v)) {
        let shown = Shown::from(hook.part("admissionReviewVersions"));
        errors.invalid(path, shown, format!("must include at least one of {known}"));
    }
}
