//! Authentication: client certificates, the administrator's token, tokens of service accounts, and impersonation.
//! Authorization is in `registry::rbac`.

mod keys;
mod token_file;
pub(crate) mod tokens;
pub(crate) mod user;
pub(crate) mod x509;

pub use keys::KeyError;
pub use token_file::StaticToken;
pub use tokens::{BoundObjects, TokenOptions};
pub use user::{Authorization, RequestUser};

use crate::percent::decode;
use berth_objects::status::ApiError;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokens::ServerTokens;
use user::groups_of;
use x509::Presented;

/// Paths that can be read without authentication.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// The prefix of the headers of extra fields.
const EXTRA_HEADER: &str = "impersonate-extra-";
/// Knows the tokens.
#[derive(Clone)]
pub struct Authenticator {
    admin_token: String,
    others: Arc<[StaticToken]>,
    tokens: Arc<ServerTokens>,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Accepts the token of the administrator, the tokens of `others`, and tokens signed by `tokens`.
    pub(crate) fn new(admin_token: String, others: Vec<StaticToken>, tokens: ServerTokens) -> Self {
        Self {
            admin_token,
            others: others.into(),
            tokens: Arc::new(tokens),
        }
    }

    /// The administrator's token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// The tokens of service accounts.
    pub(crate) fn tokens(&self) -> &ServerTokens {
        &self.tokens
    }

    /// The user that a token belongs to.
    pub fn user_of_token(&self, objects: &dyn BoundObjects, token: &str) -> Option<RequestUser> {
        if is_same_secret(token, &self.admin_token) {
            return Some(RequestUser::admin());
        }
        let mut others = self.others.iter();
        if let Some(other) = others.find(|other| is_same_secret(token, &other.token)) {
            return Some(other.user.clone());
        }
        self.tokens.user(objects, token)
    }

    /// The sender of a request for `path`, whose connection has this client certificate. As in kube-apiserver, a
    /// certificate takes precedence over a token.
    ///
    /// # Errors
    /// 401 for credentials that are not valid, and for none where some are needed.
    pub(crate) fn authenticate(
        &self,
        objects: &dyn BoundObjects,
        certificate: Option<&Presented>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<RequestUser, ApiError> {
        if let Some(user) = certificate.and_then(|c| c.user(objects.now().as_second())) {
            return Ok(user);
        }
        let Some(given) = headers.get(AUTHORIZATION) else {
            return if certificate.is_none() && is_open(path) {
                Ok(RequestUser::anonymous())
            } else {
                Err(ApiError::unauthorized())
            };
        };
        given
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| self.user_of_token(objects, token.trim()))
            .ok_or_else(ApiError::unauthorized)
    }
}

/// The impersonated user, if the headers of the request name one.
///
/// # Errors
/// 400 for groups, a UID or extra fields without a user.
pub(crate) fn impersonated(headers: &HeaderMap) -> Result<Option<RequestUser>, ApiError> {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect()
    };
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_HEADER) {
            // Keys are case-insensitive in headers, and escaped as in URLs.
            let key = decode(key, false).unwrap_or_else(|| key.to_owned());
            let values = extra.entry(key.to_lowercase()).or_default();
            values.append(&mut all(header.as_str()));
        }
    }
    let (name, groups, uid) = (
        all("impersonate-user")
            .into_iter()
            .next()
            .unwrap_or_default(),
        all("impersonate-group"),
        all("impersonate-uid")
            .into_iter()
            .next()
            .unwrap_or_default(),
    );
    if name.is_empty() {
        return if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            Ok(None)
        } else {
            Err(ApiError::bad_request(
                "requested impersonation of groups, a UID or extra fields without impersonating a user",
            ))
        };
    }
    let mut all_groups = if groups.is_empty() {
        groups_of(&name)
    } else {
        groups
    };
    let anonymous = RequestUser::anonymous();
    if name == anonymous.name {
        all_groups = anonymous.groups;
    } else if !all_groups.iter().any(|g| g == "system:authenticated") {
        all_groups.push("system:authenticated".to_owned());
    }
    Ok(Some(RequestUser {
        name,
        uid,
        groups: all_groups,
        extra,
    }))
}

pub(crate) fn is_open(path: &str) -> bool {
    OPEN_PATHS.iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && *open != "/version"))
    })
}

/// Compares in a time that does not depend on where two texts differ.
fn is_same_secret(given: &str, secret: &str) -> bool {
    if secret.is_empty() || given.len() != secret.len() {
        return false;
    }
    let difference = given
        .bytes()
        .zip(secret.bytes())
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_objects::catalog::ServedResource;
    use http::HeaderValue;
    use jiff::Timestamp;

    /// An API server without objects.
    struct NoObjects;

    impl BoundObjects for NoObjects {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn uid_of(&self, _: &ServedResource, _: &str, _: &str) -> Option<String> {
            None
        }
    }

    fn authenticator() -> Authenticator {
        let key = ServerTokens::new_key().expect("random numbers");
        let tokens = ServerTokens::new(&key, TokenOptions::default()).expect("a key");
        let others = StaticToken::read("open sesame,ali,1").expect("valid");
        Authenticator::new("secret".to_owned(), others, tokens)
    }

    #[test]
    fn headers_name_the_user_of_an_impersonation() {
        type Headers<'a> = &'a [(&'a str, &'a str)];
        type Identity<'a> = (&'a str, &'a [&'a str]);
        type Case<'a> = (Headers<'a>, Option<Identity<'a>>);
        let cases: [Case<'_>; 4] = [
            (&[], None),
            (
                &[("impersonate-user", "bob")],
                Some(("bob", &["system:authenticated"])),
            ),
            (
                &[
                    ("impersonate-user", "bob"),
                    ("impersonate-group", "dev"),
                    ("impersonate-group", "ops"),
                ],
                Some(("bob", &["dev", "ops", "system:authenticated"])),
            ),
            (
                &[("impersonate-user", "system:serviceaccount:team:robot")],
                Some((
                    "system:serviceaccount:team:robot",
                    &[
                        "system:serviceaccounts",
                        "system:serviceaccounts:team",
                        "system:authenticated",
                    ],
                )),
            ),
        ];
        for (given, expect) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, HeaderValue::from_static(value));
            }
            let user = impersonated(&headers).expect("valid");
            let got = user.as_ref().map(|u| (u.name.as_str(), u.groups.clone()));
            let expect = expect
                .map(|(name, groups)| (name, groups.iter().map(|g| (*g).to_owned()).collect()));
            assert_eq!(got, expect, "{given:?}");
        }
        for lone in [
            "impersonate-group",
            "impersonate-uid",
            "impersonate-extra-a",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(lone, HeaderValue::from_static("x"));
            assert_eq!(
                impersonated(&headers).err().map(|e| e.code),
                Some(400),
                "{lone}"
            );
        }
    }

    #[test]
    fn only_the_token_opens_what_is_not_open_to_all() {
        let authenticator = authenticator();
        let cases = [
            (None, "/healthz", Some("system:anonymous")),
            (None, "/readyz/ping", Some("system:anonymous")),
            (None, "/version", Some("system:anonymous")),
            (None, "/healthzz", None),
            (None, "/api/v1/pods", None),
            (None, "/metrics", None),
            (Some("Bearer secret"), "/api/v1/pods", Some("berth-admin")),
            (Some("bearer secret"), "/api/v1/pods", Some("berth-admin")),
            (Some("Bearer secreT"), "/api/v1/pods", None),
            (Some("Bearer open sesame"), "/api/v1/pods", Some("ali")),
            (Some("Bearer "), "/api/v1/pods", None),
            (Some("Basic secret"), "/api/v1/pods", None),
            (Some("Bearer wrong"), "/healthz", None),
        ];
        for (given, path, expect) in cases {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, HeaderValue::from_static(given));
            }
            let user = authenticator
                .authenticate(&NoObjects, None, &headers, path)
                .ok();
            assert_eq!(
                user.as_ref().map(|u| u.name.as_str()),
                expect,
                "{given:?} {path}"
            );
        }
    }
}
