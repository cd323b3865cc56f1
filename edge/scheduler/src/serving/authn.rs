//! Authentication of requests to the HTTPS port, delegated to the cluster as in kube-scheduler: client certificates,
//! users that a front proxy names in headers, and bearer tokens that the API server reviews.

use super::authorities::Authorities;
use super::cache::TtlCache;
use crate::exit::CommandFailure;
use crate::flags::AuthenticationFlags;
use berth_client::request::{self, Resource};
use berth_client::{ApiError, Transport};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// `authentication.k8s.io/v1/tokenreviews`.
const TOKEN_REVIEWS: Resource = Resource {
    group: "authentication.k8s.io",
    version: "v1",
    plural: "tokenreviews",
};
/// The time for which a rejection of a token is cached.
const UNAUTHENTICATED_TTL: Duration = Duration::from_secs(10);

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthenticatedUser {
    #[serde(rename = "username")]
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl AuthenticatedUser {
    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// One whose name is proven.
    fn authenticated(name: String, mut groups: Vec<String>) -> Self {
        groups.push("system:authenticated".to_owned());
        Self {
            name,
            groups,
            ..Self::default()
        }
    }
}

/// The credentials of a request are not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unauthorized;

/// Determines the sender of requests.
pub(super) struct Authenticator {
    authorities: Arc<Authorities>,
    headers: ProxyHeaders,
    tokens: Option<Transport>,
    tokens_ttl: Duration,
    reviewed: TtlCache<String, Option<AuthenticatedUser>>,
}

/// The headers of a front proxy with the user.
#[derive(Debug, Clone)]
struct ProxyHeaders {
    username: Vec<String>,
    uid: Vec<String>,
    group: Vec<String>,
    extra_prefix: Vec<String>,
}

impl Authenticator {
    /// Sets up authentication. `client` reviews tokens; without it no token counts.
    ///
    /// # Errors
    /// The files of certificate authorities are unusable, or the required look-up of the cluster's authorities fails.
    pub(super) async fn new(
        flags: &AuthenticationFlags,
        client: Option<Transport>,
    ) -> Result<Self, CommandFailure> {
        let authorities = Arc::new(Authorities::new(flags, client.clone()).await?);
        let lower = |names: &[String]| names.iter().map(|n| n.to_ascii_lowercase()).collect();
        let ttl = flags.authentication_token_webhook_cache_ttl.value;
        Ok(Self {
            authorities,
            headers: ProxyHeaders {
                username: lower(&flags.requestheader_username_headers.value),
                uid: lower(&flags.requestheader_uid_headers.value),
                group: lower(&flags.requestheader_group_headers.value),
                extra_prefix: lower(&flags.requestheader_extra_headers_prefix.value),
            },
            tokens: client,
            tokens_ttl: ttl.as_duration(),
            reviewed: TtlCache::default(),
        })
    }

    /// The certificate authorities, to be kept up to date.
    pub(super) fn authorities(&self) -> &Arc<Authorities> {
        &self.authorities
    }

    /// The sender of a request over a connection with this client certificate chain.
    ///
    /// # Errors
    /// When the certificate or the token does not count.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<AuthenticatedUser, Unauthorized> {
        if let Some(user) = self.user_of_proxy(headers, chain) {
            return Ok(user);
        }
        if !chain.is_empty() {
            let user = self.authorities.client(chain).ok_or(Unauthorized)?;
            return Ok(AuthenticatedUser::authenticated(user.name, user.groups));
        }
        // Without a cluster to ask, tokens are not read, as in kube-scheduler.
        match (bearer(headers), &self.tokens) {
            (Some(token), Some(client)) => {
                let user = self.user_of_token(client, token).await;
                user.ok_or(Unauthorized)
            }
            _ => Ok(AuthenticatedUser::anonymous()),
        }
    }

    /// The user in the headers, if a proxy that may set them has sent them.
    fn user_of_proxy(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Option<AuthenticatedUser> {
        let name = first(headers, &self.headers.username)?;
        if !self.authorities.is_front_proxy(chain) {
            return None;
        }
        let groups = self.headers.group.iter();
        let groups = groups.flat_map(|header| values(headers, header)).collect();
        let mut user = AuthenticatedUser::authenticated(name, groups);
        user.uid = first(headers, &self.headers.uid).unwrap_or_default();
        for (header, value) in headers {
            let header = header.as_str();
            let key = |prefix: &String| header.strip_prefix(prefix.as_str());
            let Some(key) = self.headers.extra_prefix.iter().find_map(key) else {
                continue;
            };
            if let Ok(value) = value.to_str() {
                let values = user.extra.entry(key.to_owned()).or_default();
                values.push(value.to_owned());
            }
        }
        Some(user)
    }

    async fn user_of_token(&self, client: &Transport, token: &str) -> Option<AuthenticatedUser> {
        let now = Instant::now();
        if let Some(known) = self.reviewed.get(&token.to_owned(), now) {
            return known;
        }
        match review(client, token).await {
            Ok(user) => {
                let ttl = match user {
                    Some(_) => self.tokens_ttl,
                    None => UNAUTHENTICATED_TTL.min(self.tokens_ttl),
                };
                self.reviewed.put(token.to_owned(), user.clone(), ttl, now);
                user
            }
            Err(error) => {
                tracing::error!(%error, "failed to review a bearer token of a request to the HTTPS port");
                None
            }
        }
    }
}

/// Asks the API server whose token it is.
async fn review(client: &Transport, token: &str) -> Result<Option<AuthenticatedUser>, ApiError> {
    #[derive(Deserialize)]
    struct Review {
        #[serde(default)]
        status: Status,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status {
        authenticated: bool,
        user: AuthenticatedUser,
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    let review: Review = client
        .request(&request::create(TOKEN_REVIEWS, "", &body))
        .await?;
    Ok(review.status.authenticated.then_some(review.status.user))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = String> + 'a {
    let values = headers.get_all(name).into_iter();
    values.filter_map(|value| value.to_str().ok().map(str::to_owned))
}

fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    let values = names.iter().flat_map(|name| values(headers, name));
    let mut filled = values.filter(|value| !value.is_empty());
    filled.next()
}
