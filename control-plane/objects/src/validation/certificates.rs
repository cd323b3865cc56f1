//! CertificateSigningRequests: only their subresources change them after their creation.

use super::errors::{ErrorPath, Errors, Shown};
use super::names;
use super::owner::Owner;
use crate::certificates::{check_certificates, check_request};
use crate::field::FieldError;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::view::{FieldView, copy_field, set, set_if_zero};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The conditions that only the subresource `approval` sets.
const OF_APPROVAL: [&str; 2] = ["Approved", "Denied"];
/// The conditions that are never removed, and whose status is always `True`.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

pub(crate) fn certificate_request(e: &mut Errors, _: &Owner, request: &Value, path: &ErrorPath) {
    if let Err(fault) = check_request(&decoded(request.as_str().unwrap_or(""))) {
        let shown = match request.as_str().unwrap_or("") {
            "" => Shown::null(),
            given => Shown::from(given),
        };
        e.invalid(path, shown, fault);
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    STANDARD.decode(base64).unwrap_or_default()
}

pub(crate) fn unique_usages(e: &mut Errors, _: &Owner, usages: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, usage) in usages.as_array().into_iter().flatten().enumerate() {
        let usage = usage.as_str().unwrap_or("");
        if !seen.insert(usage) {
            e.duplicate(&path.index(i), usage);
        }
    }
}

pub(crate) fn signer_name(
    errors: &mut Errors,
    _: &Owner<'_>,
    signer: &Value,
    path: &ErrorPath<'_>,
) {
    let signer = signer.as_str().unwrap_or("");
    if signer == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(path, signer, detail);
        return;
    }
    // The path has exactly one slash.
    let (Some((domain, name)), 1) = (signer.split_once('/'), signer.matches('/').count()) else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(path, signer, detail);
        return;
    };
    for label in domain.split('.') {
        for problem in names::dns_label(label) {
            errors.invalid(
                path,
                domain,
                format!("validating label {label:?}: {problem}"),
            );
        }
    }
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, detail);
    }
    for label in name.split('.') {
        for problem in names::dns_subdomain(label) {
            errors.invalid(path, name, format!("validating label {label:?}: {problem}"));
        }
    }
}

/// The conditions of a request of one type.
fn conditions<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = request.part("status").items("conditions").iter();
    all.filter(|condition| condition.text("type") == kind)
        .collect()
}

/// The strategy of CertificateSigningRequests.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CertificateRequests;

impl KindStrategy for CertificateRequests {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", Map::new());
    }

    fn prepare_for_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Subresource,
        now: &str,
    ) {
        match subresource {
            Subresource::Status => {
                keep_other_half(new, old, subresource);
                keep_approval(new, old);
                set_times(new, old, now);
            }
            Subresource::Approval => {
                set_times(new, old, now);
                let given = new.part("status").clone();
                copy_field(new, old, "spec");
                copy_field(new, old, "status");
                if let Some(status) = crate::view::child(new, "status") {
                    copy_field(status, &given, "conditions");
                }
            }
            _ => {
                copy_field(new, old, "spec");
                copy_field(new, old, "status");
            }
        }
    }

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let status = ErrorPath::new("status");
        validate_conditions(&mut errors, new, &status.child("conditions"));
        let (certificate, before) = (
            new.part("status").text("certificate"),
            old.part("status").text("certificate"),
        );
        let at = status.child("certificate");
        if !certificate.is_empty()
            && let Err(fault) = check_certificates(&decoded(certificate))
        {
            errors.invalid(&at, "<certificate data>", fault);
        }
        validate_kept(
            &mut errors,
            new,
            old,
            subresource,
            &status.child("conditions"),
        );
        // Only the signer may write the certificate, by the status.
        if certificate != before && subresource != Subresource::Status {
            errors.forbidden(&at, "updates may not set certificate content");
        // A certificate that was issued stays, because clients may use it.
        } else if certificate != before && !before.is_empty() {
            errors.forbidden(&at, "updates may not modify existing certificate content");
        }
        errors.into_vec()
    }
}

/// Takes the conditions of the approval as they were, unless there are more or fewer of them.
fn keep_approval(new: &mut Value, old: &Value) {
    for kind in OF_APPROVAL {
        let before: Vec<Value> = conditions(old, kind).into_iter().cloned().collect();
        if before.len() != conditions(new, kind).len() {
            continue;
        }
        let mut before = before.into_iter();
        for condition in conditions_mut(new) {
            if condition.text("type") == kind
                && let Some(before) = before.next()
            {
                *condition = before;
            }
        }
    }
}

fn conditions_mut(request: &mut Value) -> &mut [Value] {
    match crate::view::existing(request, "status") {
        Some(status) => crate::view::items_mut(status, "conditions"),
        None => &mut [],
    }
}

/// Sets the times of conditions that have none.
fn set_times(new: &mut Value, old: &Value, now: &str) {
    for condition in conditions_mut(new) {
        set_if_zero(condition, "lastUpdateTime", now);
        let same = |before: &&&Value| before.text("status") == condition.text("status");
        let before = conditions(old, condition.text("type"));
        let time = before
            .iter()
            .find(same)
            .map(|c| c.text("lastTransitionTime"));
        let time = time
            .filter(|time| !time.is_empty())
            .unwrap_or(now)
            .to_owned();
        set_if_zero(condition, "lastTransitionTime", time);
    }
}

fn validate_conditions(errors: &mut Errors, request: &Value, path: &ErrorPath<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, condition) in request
        .part("status")
        .items("conditions")
        .iter()
        .enumerate()
    {
        let (kind, status) = (condition.text("type"), condition.text("status"));
        let at = path.index(i);
        if kind.is_empty() {
            errors.required(&at.child("type"), "");
        }
        // These conditions cannot be withdrawn.
        let known = if LASTING.contains(&kind) {
            &["True"][..]
        } else {
            &STATUSES[..]
        };
        if status.is_empty() {
            errors.required(&at.child("status"), "");
        } else if !known.contains(&status) {
            errors.not_supported(&at.child("status"), status, known);
        }
        let other = OF_APPROVAL.iter().find(|other| **other != kind);
        if OF_APPROVAL.contains(&kind) && other.is_some_and(|other| seen.contains(other)) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(path, kind, detail);
        }
        if !seen.insert(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
    }
}

/// Checks that an update keeps the conditions that it may not change.
fn validate_kept(
    errors: &mut Errors,
    new: &Value,
    old: &Value,
    subresource: Subresource,
    path: &ErrorPath<'_>,
) {
    for kind in LASTING {
        if conditions(new, kind).len() < conditions(old, kind).len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            errors.forbidden(path, detail);
        }
    }
    if subresource == Subresource::Approval {
        return;
    }
    for kind in OF_APPROVAL {
        let (now, before) = (conditions(new, kind), conditions(old, kind));
        if now.len() > before.len() {
            let detail = format!("updates may not add a condition of type {kind:?}");
            errors.forbidden(path, detail);
        } else if now.len() == before.len() && now != before {
            let detail = format!("updates may not modify a condition of type {kind:?}");
            errors.forbidden(path, detail);
        }
    }
}
