//! `serviceaccounts/token`: tokens for service accounts (TokenRequest).

use super::api::Api;
use super::write::action;
use crate::auth::tokens::{self, BoundObjects, ServerTokens};
use crate::registry::request::WriteOptions;
use berth_objects::body::WriteBody;
use berth_objects::catalog::ServedResource;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::object::is_deleting;
use berth_objects::schema::GroupVersionKind;
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::{FieldView, meta};
use berth_objects::{catalog, decode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const KIND: GroupVersionKind<'_> =
    GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
/// The shortest and the longest life of a token, in seconds.
const LIFE: (i64, i64) = (600, 1 << 32);
/// The life of a token whose request does not state one.
const LIFE_DEFAULT: i64 = 3_600;

impl BoundObjects for Api {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn uid_of(&self, resource: &ServedResource, namespace: &str, name: &str) -> Option<String> {
        let found = self.get(resource, namespace, name).ok()?.object();
        (!is_deleting(&found)).then(|| meta(&found, "uid").to_owned())
    }
}

fn invalid(name: &str, field: &str, value: String, detail: &str) -> ApiError {
    let subject = StatusSubject {
        group: KIND.group,
        resource: KIND.kind,
        name,
    };
    let error = FieldError {
        kind: ErrorType::Invalid,
        field: field.to_owned(),
        value: Some(value),
        detail: detail.to_owned(),
    };
    ApiError::invalid(subject, &[error])
}

/// POST `…/token`: a request with its status. Returns it with warnings for the client.
///
/// # Errors
/// 404 for the service account or the object that the token is to be bound to; 400, 409 and 422 for the request.
pub(crate) fn issue(
    api: &Api,
    signer: &ServerTokens,
    namespace: &str,
    name: &str,
    body: WriteBody<'_>,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), ApiError> {
    let (mut request, warnings) = decode::of_kind(KIND, body, options.validation)?;
    for (field, wanted) in [("name", name), ("namespace", namespace)] {
        let given = meta(&request, field);
        if !given.is_empty() && given != wanted {
            let detail = format!("must match the service account {field} if specified");
            let path = format!("metadata.{field}");
            return Err(invalid(name, &path, format!("{given:?}"), &detail));
        }
    }
    let accounts = catalog::find("", "serviceaccounts").ok_or_else(ApiError::no_such_resource)?;
    let action = action(accounts, "token", namespace, name, options);
    request = (api.admission).admit_action(api, &action, request)?;
    let account = api.get(accounts, namespace, name)?;
    let account = &*account.object();
    let seconds = request
        .part("spec")
        .maybe_int("expirationSeconds")
        .unwrap_or(LIFE_DEFAULT);
    let bound = if seconds < LIFE.0 {
        Some("may not specify a duration less than 10 minutes")
    } else if seconds > LIFE.1 {
        Some("may not specify a duration larger than 2^32 seconds")
    } else {
        None
    };
    if let Some(detail) = bound {
        return Err(invalid(
            "",
            "spec.expirationSeconds",
            seconds.to_string(),
            detail,
        ));
    }
    let object = bound_object(
        api,
        request.part("spec").part("boundObjectRef"),
        namespace,
        name,
    )?;
    let audiences = match request.part("spec").items("audiences") {
        [] => json!(signer.audiences()),
        given => given.into(),
    };
    let now = api.now();
    let node = object
        .as_ref()
        .filter(|(claim, _)| *claim == "pod")
        .and_then(|(_, pod)| node_of(api, pod));
    let node = node.as_ref().map(|node| ("node", node));
    let bound = object.as_ref().map(|(claim, object)| (*claim, object));
    let bound: Vec<(&str, &Value)> = bound.into_iter().chain(node).collect();
    let id = api.new_uid();
    let claims = signer.claims(account, &bound, &audiences, now.as_second(), seconds, &id);
    let token = signer.sign(&claims);
    let token = token.ok_or_else(|| ApiError::internal("failed to generate token"))?;
    let expires = now.checked_add(SignedDuration::from_secs(seconds));
    request["metadata"] = json!({
        "name": name,
        "namespace": namespace,
        "uid": meta(account, "uid"),
        "creationTimestamp": super::api::seconds_text(now),
    });
    request["spec"]["audiences"] = audiences;
    request["spec"]["expirationSeconds"] = seconds.into();
    if request["spec"]["boundObjectRef"].is_null() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": super::api::seconds_text(expires.unwrap_or(Timestamp::MAX)),
    });
    Ok((request, warnings))
}

/// The node of a pod, as far as it is known.
fn node_of(api: &Api, pod: &Value) -> Option<Value> {
    let name = Some(pod.part("spec").text("nodeName")).filter(|name| !name.is_empty())?;
    let found = catalog::find("", "nodes").and_then(|nodes| api.get(nodes, "", name).ok());
    let found = found.map(|node| Value::clone(&node.object()));
    Some(found.unwrap_or_else(|| json!({"metadata": {"name": name}})))
}

/// The claim and the object that a token is to be bound to.
fn bound_object(
    api: &Api,
    reference: &Value,
    namespace: &str,
    account: &str,
) -> Result<Option<(&'static str, Value)>, ApiError> {
    if reference.is_null() {
        return Ok(None);
    }
    let (kind, version) = (reference.text("kind"), reference.text("apiVersion"));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let known = tokens::bindable(kind).filter(|_| group.is_empty());
    let Some((claim, resource)) = known else {
        return Err(ApiError::bad_request(format!(
            "cannot bind token to object of type {group}/{version}, Kind={kind}"
        )));
    };
    let resource = catalog::find("", resource.resource).ok_or_else(ApiError::no_such_resource)?;
    let namespace = if resource.namespaced { namespace } else { "" };
    let name = reference.text("name");
    let found = api.get(resource, namespace, name)?;
    let object = &*found.object();
    // A token for another account would give the pod additional permissions.
    if claim == "pod" && object.part("spec").text("serviceAccountName") != account {
        return Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    let (uid, live) = (reference.text("uid"), meta(object, "uid"));
    if !uid.is_empty() && uid != live {
        let subject = StatusSubject {
            group,
            resource: kind,
            name,
        };
        return Err(ApiError::conflict(
            subject,
            &format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    Ok(Some((claim, Value::clone(object))))
}
