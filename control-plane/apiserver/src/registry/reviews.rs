//! Reviews, which are answered and not stored: the user of a request or a token, and the permissions of a user.

use super::api::Api;
use super::rbac::{self, RequestAttributes};
use crate::auth::{Authenticator, RequestUser};
use crate::registry::request::WriteOptions;
use berth_objects::body::WriteBody;
use berth_objects::catalog::ServedResource;
use berth_objects::decode;
use berth_objects::status::ApiError;
use berth_objects::view::FieldView;
use serde_json::{Value, json};

/// Answers a review.
///
/// # Errors
/// 400 for a body that is not the review.
pub fn review(
    api: &Api,
    resource: &ServedResource,
    user: &RequestUser,
    authenticator: &Authenticator,
    body: WriteBody<'_>,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), ApiError> {
    let kind = resource.group_version_kind();
    let (mut review, warnings) = decode::of_kind(kind, body, options.validation)?;
    let status = match resource.kind {
        "SelfSubjectReview" => {
            review["metadata"]["creationTimestamp"] = super::api::seconds_text(api.now()).into();
            json!({"userInfo": user.info()})
        }
        "TokenReview" => token_review(api, &review, authenticator),
        "SelfSubjectRulesReview" => rules(api, user, review["spec"].text("namespace")),
        "SelfSubjectAccessReview" => verdict(api, user, &review["spec"]),
        // SubjectAccessReview and LocalSubjectAccessReview name the user in the spec.
        _ => {
            let spec = &review["spec"];
            let groups = spec.strings("groups").into_iter().map(str::to_owned);
            let user = RequestUser {
                name: spec.text("user").to_owned(),
                uid: spec.text("uid").to_owned(),
                groups: groups.collect(),
                ..RequestUser::default()
            };
            verdict(api, &user, spec)
        }
    };
    if let Some(map) = review.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    Ok((review, warnings))
}

/// Returns whether a user has the permission in the spec of a review.
fn verdict(api: &Api, user: &RequestUser, spec: &Value) -> Value {
    let (resource, path) = (
        spec.part("resourceAttributes"),
        spec.part("nonResourceAttributes"),
    );
    let asked = if path.is_null() {
        RequestAttributes {
            verb: resource.text("verb"),
            group: resource.text("group"),
            resource: resource.text("resource"),
            sub: resource.text("subresource"),
            namespace: resource.text("namespace"),
            name: resource.text("name"),
            path: "",
        }
    } else {
        RequestAttributes {
            verb: path.text("verb"),
            path: path.text("path"),
            ..RequestAttributes::default()
        }
    };
    json!({"allowed": rbac::is_allowed(api, user, &asked)})
}

/// The rules of a user in a namespace.
fn rules(api: &Api, user: &RequestUser, namespace: &str) -> Value {
    let rules = rbac::rules(api, user, namespace);
    let (of_paths, of_resources): (Vec<Value>, Vec<Value>) = rules
        .into_iter()
        .partition(|rule| !rule.items("nonResourceURLs").is_empty());
    json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": false})
}

fn token_review(api: &Api, review: &Value, authenticator: &Authenticator) -> Value {
    match authenticator.user_of_token(api, review["spec"].text("token")) {
        Some(user) => json!({"authenticated": true, "user": user.info()}),
        None => json!({"user": {}, "error": "the token is not valid for this API server"}),
    }
}
