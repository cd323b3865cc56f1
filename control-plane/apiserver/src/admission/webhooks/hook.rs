//! Webhooks as the configurations state them, and the requests that they match.

use crate::admission::RequestObjects;
use crate::admission::matching::Matching;
use crate::registry::Api;
use crate::registry::attributes::Attributes;
use crate::webhook_client::WebhookTarget;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_cel::{COST_MAX, Datum, Program, Variables};
use berth_objects::catalog::ServedResource;
use berth_objects::schema::DecodeError;
use berth_objects::status::ApiError;
use berth_objects::validation::webhooks::{CONDITION_VARIABLES, REVIEW_VERSIONS};
use berth_objects::view::FieldView;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The timeout of a webhook without a configured one.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// A webhook of a configuration.
#[derive(Debug)]
pub(super) struct Hook {
    /// The name, such as `gates.example.com`.
    pub(super) name: String,
    /// The version of AdmissionReview that it receives.
    pub(super) review_version: &'static str,
    /// Whether a failed call is ignored.
    pub(super) fails_open: bool,
    /// Whether it is called again after a later webhook changes the object.
    pub(super) is_reinvoked: bool,
    /// Whether it has no side effects on a dry run.
    pub(super) allows_dry_run: bool,
    /// The time that a call may take.
    pub(super) timeout: Duration,
    /// The place where it is called.
    pub(super) target: WebhookTarget,
    matching: Matching,
    conditions: Vec<Program>,
}

impl Hook {
    /// The webhooks of a configuration.
    pub(super) fn read(configuration: &Value) -> Vec<Self> {
        let hooks = configuration.items("webhooks").iter();
        hooks.map(Self::of).collect()
    }

    fn of(hook: &Value) -> Self {
        let config = hook.part("clientConfig");
        let bundle = STANDARD.decode(config.text("caBundle")).unwrap_or_default();
        let versions = hook.strings("admissionReviewVersions");
        let known = |version: &&str| REVIEW_VERSIONS.into_iter().find(|known| known == version);
        let timeout = hook.maybe_int("timeoutSeconds");
        Self {
            name: hook.text("name").to_owned(),
            review_version: versions.iter().find_map(known).unwrap_or("v1"),
            fails_open: hook.text("failurePolicy") == "Ignore",
            is_reinvoked: hook.text("reinvocationPolicy") == "IfNeeded",
            allows_dry_run: matches!(hook.text("sideEffects"), "None" | "NoneOnDryRun"),
            timeout: timeout
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(TIMEOUT_DEFAULT, Duration::from_secs),
            target: WebhookTarget::new(config, bundle),
            matching: Matching::new(hook, hook.items("rules")),
            conditions: hook
                .items("matchConditions")
                .iter()
                .filter_map(|c| Program::condition(c.text("expression"), CONDITION_VARIABLES).ok())
                .collect(),
        }
    }

    /// The resource and version that the webhook receives for the request; `None` if it does not match.
    ///
    /// # Errors
    /// 404 when the labels of the namespace decide and it does not exist; 403 when a match condition has no value.
    pub(super) fn receives(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
    ) -> Result<Option<Arc<ServedResource>>, ApiError> {
        let Some(resource) = self.matching.resource(api, attributes, objects)? else {
            return Ok(None);
        };
        let is_received = self.meets_conditions(api, attributes, &resource, objects)?;
        Ok(is_received.then_some(resource))
    }

    /// Returns whether all match conditions are true. One that is false decides before one without a value.
    fn meets_conditions(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        resource: &ServedResource,
        objects: RequestObjects<'_>,
    ) -> Result<bool, ApiError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let request = &request(api, attributes, resource, "", objects)?;
        let variables = Variables::new([
            ("object", Datum::json(request.part("object"))),
            ("oldObject", Datum::json(request.part("oldObject"))),
            ("request", Datum::json(request)),
        ]);
        let mut failed = None;
        for condition in &self.conditions {
            match condition.is_true(&variables, COST_MAX).0 {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                // A later condition may still be false, which decides; the error is kept until then.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None => Ok(true),
            Some(_) if self.fails_open => Ok(false),
            Some(error) => {
                let subject = attributes.resource.subject(attributes.name);
                Err(ApiError::forbidden(subject, &error.to_string()))
            }
        }
    }
}

/// The AdmissionReview of a request, as a webhook reads it.
pub(super) fn review(hook: &Hook, request: Value) -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{}", hook.review_version),
        "request": request,
    })
}

/// The request of an AdmissionReview.
///
/// # Errors
/// 500 when the conversion webhook of a custom resource fails.
pub(in crate::admission) fn request(
    api: &Api,
    attributes: &Attributes<'_>,
    resource: &ServedResource,
    uid: &str,
    objects: RequestObjects<'_>,
) -> Result<Value, ApiError> {
    let kind_of = |resource: &ServedResource| match resource.subresource(attributes.sub) {
        Some(sub) => json!({"group": sub.group, "version": sub.version, "kind": sub.kind}),
        None if !attributes.sub.is_empty() => attributes.connect_kind(),
        None => json!({
            "group": resource.resource.group, "version": resource.version, "kind": resource.kind,
        }),
    };
    let resource_of = |resource: &ServedResource| {
        json!({
            "group": resource.resource.group,
            "version": resource.version,
            "resource": resource.resource.resource,
        })
    };
    let sent = objects
        .new
        .map(|object| attributes.shown_as_sent(api, resource, object));
    let stored = objects.old.map(|old| attributes.shown(api, resource, old));
    let user = &attributes.options.requester().user;
    let mut request = json!({
        "uid": uid,
        "kind": kind_of(resource),
        "resource": resource_of(resource),
        "requestKind": kind_of(attributes.resource),
        "requestResource": resource_of(attributes.resource),
        "operation": attributes.operation.text(),
        "userInfo": user.info(),
        "object": sent.transpose()?,
        "oldObject": stored.transpose()?,
        "dryRun": attributes.options.dry_run(),
        "options": attributes.options.to_value(),
    });
    for (field, text) in [
        ("subResource", attributes.sub),
        ("requestSubResource", attributes.sub),
        ("name", attributes.name),
        ("namespace", attributes.namespace),
    ] {
        if !text.is_empty() {
            request[field] = text.into();
        }
    }
    Ok(request)
}

/// The answer of a webhook.
#[derive(Debug, Default)]
pub(super) struct WebhookVerdict {
    pub(super) allowed: bool,
    /// The operations of a JSON patch.
    pub(super) patch: Option<Value>,
    /// The status of a refusal.
    pub(super) status: Value,
    pub(super) warnings: Vec<String>,
}

/// Reads the response of a webhook.
///
/// # Errors
/// The fault.
pub(super) fn verdict(
    hook: &Hook,
    uid: &str,
    mutates: bool,
    review: &Value,
) -> Result<WebhookVerdict, String> {
    let invalid = |what: String| Err(format!("received invalid webhook response: {what}"));
    let Some(response) = review.field("response") else {
        return invalid("webhook response was absent".to_owned());
    };
    let (patch, patch_type) = (response.text("patch"), response.maybe_text("patchType"));
    if hook.review_version == "v1" {
        if response.text("uid") != uid {
            let got = response.text("uid");
            return invalid(format!("expected response.uid={uid:?}, got {got:?}"));
        }
        let (group, version) = review
            .text("apiVersion")
            .split_once('/')
            .unwrap_or(("", review.text("apiVersion")));
        if (group, version, review.text("kind")) != ("admission.k8s.io", "v1", "AdmissionReview") {
            return invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
                review.text("kind")
            ));
        }
        let fault = match (mutates, patch.is_empty(), patch_type) {
            (true, false, None) => "webhook returned response.patch but not response.patchType",
            (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
            (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
            (false, false, _) => "validating webhook may not return response.patch",
            (false, _, Some(_)) => "validating webhook may not return response.patchType",
            _ => "",
        };
        if !fault.is_empty() {
            return invalid(fault.to_owned());
        }
    }
    let allowed = response.flag("allowed");
    let operations = if allowed && mutates && !patch.is_empty() {
        operations(patch)?
    } else {
        Value::Null
    };
    let is_empty = operations.as_array().is_none_or(Vec::is_empty);
    if let (false, Some(other)) = (is_empty, patch_type.filter(|t| *t != "JSONPatch")) {
        return Err(format!("unsupported patch type {other:?}"));
    }
    Ok(WebhookVerdict {
        allowed,
        patch: (!is_empty).then_some(operations),
        status: response.part("status").clone(),
        warnings: response
            .strings("warnings")
            .into_iter()
            .map(str::to_owned)
            .collect(),
    })
}

/// The operations of a patch in base64.
fn operations(patch: &str) -> Result<Value, String> {
    let undecodable = |e: &str| format!("received undecodable patch in webhook response: {e}");
    let bytes = STANDARD
        .decode(patch)
        .map_err(|e| undecodable(&e.to_string()))?;
    match berth_objects::schema::parse_json(&bytes) {
        Ok(parsed) => Ok(parsed.value),
        Err(DecodeError::Malformed { message, .. }) => Err(undecodable(&message)),
    }
}
