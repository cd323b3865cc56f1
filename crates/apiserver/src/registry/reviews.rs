//! Questions that are answered and not stored: who am I, may I.
//!
//! There is one user, the administrator, who may do everything; everybody else may do nothing.

use super::api::Api;
use super::decode::{self, Body};
use super::resource::Resource;
use super::write::WriteOptions;
use crate::auth::{Authenticator, User};
use crate::status::ApiError;
use serde_json::{Value, json};

/// Groups whose members may do everything.
const MASTERS: &str = "system:masters";

/// Answers a review.
///
/// # Errors
/// 400 for a body that is not the review.
pub fn review(
    api: &Api,
    resource: &Resource,
    user: &User,
    authenticator: &Authenticator,
    body: Body<'_>,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), ApiError> {
    let kind = (resource.resource.group, resource.version, resource.kind);
    let (mut review, warnings) = decode::of_kind(kind, body, options.validation)?;
    let status = match resource.kind {
        "SelfSubjectReview" => {
            review["metadata"]["creationTimestamp"] = super::api::seconds_text(api.now()).into();
            json!({"userInfo": user_info(user)})
        }
        "TokenReview" => token_review(&review, authenticator),
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "SelfSubjectAccessReview" => verdict(&user.groups),
        _ => {
            let groups: Vec<String> = review
                .pointer("/spec/groups")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|g| g.as_str().map(str::to_owned))
                .collect();
            verdict(&groups)
        }
    };
    if let Some(map) = review.as_object_mut() {
        map.insert("status".to_owned(), status);
    }
    Ok((review, warnings))
}

fn verdict(groups: &[String]) -> Value {
    if groups.iter().any(|g| g == MASTERS) {
        json!({"allowed": true})
    } else {
        json!({"allowed": false, "reason": format!("only members of {MASTERS} have rights here")})
    }
}

fn token_review(review: &Value, authenticator: &Authenticator) -> Value {
    let token = review
        .pointer("/spec/token")
        .and_then(Value::as_str)
        .unwrap_or("");
    match authenticator.user_of_token(token) {
        Some(user) => json!({"authenticated": true, "user": user_info(&user)}),
        None => json!({"user": {}, "error": "the token is not known to this server"}),
    }
}

fn user_info(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}
