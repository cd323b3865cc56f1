//! Authorization of requests to the HTTPS port, delegated to the cluster as in kube-scheduler.

use super::authn::AuthenticatedUser;
use super::cache::TtlCache;
use crate::flags::AuthorizationFlags;
use berth_client::request::{self, Resource};
use berth_client::{ApiError, Transport};
use serde::Deserialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// `authorization.k8s.io/v1/subjectaccessreviews`.
const SUBJECT_ACCESS_REVIEWS: Resource = Resource {
    group: "authorization.k8s.io",
    version: "v1",
    plural: "subjectaccessreviews",
};
/// The group with all permissions.
const PRIVILEGED_GROUP: &str = "system:masters";

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AccessDecision {
    /// It is answered.
    Allowed,
    /// It is not, for this reason if there is one.
    Denied(String),
}

/// Decides which requests are answered.
pub(super) struct Authorizer {
    always_allowed: Vec<String>,
    reviews: Option<Transport>,
    allowed_ttl: Duration,
    denied_ttl: Duration,
    reviewed: TtlCache<(AuthenticatedUser, String, String), AccessDecision>,
}

impl Authorizer {
    /// Creates the authorizer. `client` reviews requests; without it only requests that need no review are allowed.
    pub(super) fn new(flags: &AuthorizationFlags, client: Option<Transport>) -> Self {
        let ttl = |given: berth_api::GoDuration| given.as_duration();
        Self {
            always_allowed: flags.authorization_always_allow_paths.value.clone(),
            reviews: client,
            allowed_ttl: ttl(flags.authorization_webhook_cache_authorized_ttl.value),
            denied_ttl: ttl(flags.authorization_webhook_cache_unauthorized_ttl.value),
            reviewed: TtlCache::default(),
        }
    }

    /// Returns whether a user has the permission for a path. `verb` is in lower case.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub(super) async fn authorize(
        &self,
        user: &AuthenticatedUser,
        verb: &str,
        path: &str,
    ) -> Result<AccessDecision, ApiError> {
        if user.groups.iter().any(|group| group == PRIVILEGED_GROUP) || self.is_always_allowed(path)
        {
            return Ok(AccessDecision::Allowed);
        }
        let Some(client) = &self.reviews else {
            return Ok(AccessDecision::Denied(String::new()));
        };
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        let now = Instant::now();
        if let Some(known) = self.reviewed.get(&key, now) {
            return Ok(known);
        }
        let decision = review(client, user, verb, path).await?;
        let ttl = match decision {
            AccessDecision::Allowed => self.allowed_ttl,
            AccessDecision::Denied(_) => self.denied_ttl,
        };
        self.reviewed.put(key, decision.clone(), ttl, now);
        Ok(decision)
    }

    fn is_always_allowed(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        self.always_allowed.iter().any(|allowed| {
            let allowed = allowed.trim_start_matches('/');
            match allowed.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path == allowed,
            }
        })
    }
}

async fn review(
    client: &Transport,
    user: &AuthenticatedUser,
    verb: &str,
    path: &str,
) -> Result<AccessDecision, ApiError> {
    #[derive(Deserialize)]
    struct Review {
        #[serde(default)]
        status: Status,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        allowed: bool,
        reason: String,
    }
    // The API server decides by its own rules, as for every other client.
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        },
    });
    let request = request::create(SUBJECT_ACCESS_REVIEWS, "", &body);
    let Status { allowed, reason } = client.request::<Review>(&request).await?.status;
    Ok(if allowed {
        AccessDecision::Allowed
    } else {
        AccessDecision::Denied(reason)
    })
}
