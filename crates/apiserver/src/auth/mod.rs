//! Who sends a request: the administrator, who has the token, or an anonymous user.

use crate::status::{ApiError, Subject};
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Paths that anybody may read: they say whether the server is there, and which it is.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Somebody with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups, which carry the rights.
    pub groups: Vec<String>,
}

/// Knows the tokens.
#[derive(Clone)]
pub struct Authenticator {
    admin_token: String,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret.
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl User {
    fn admin() -> Self {
        Self {
            name: "berth-admin".to_owned(),
            groups: vec![
                "system:masters".to_owned(),
                "system:authenticated".to_owned(),
            ],
        }
    }

    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }
}

impl Authenticator {
    /// Knows this one token.
    pub fn new(admin_token: String) -> Self {
        Self { admin_token }
    }

    /// The administrator's token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Whose token this is.
    pub fn user_of_token(&self, token: &str) -> Option<User> {
        is_same_secret(token, &self.admin_token).then(User::admin)
    }

    /// Who sends a request for `path`.
    ///
    /// # Errors
    /// 401 for a token that is not known, and for none where one is needed; 403 for a request in the name of
    /// somebody else, which would otherwise be done with the rights of its sender.
    pub fn authenticate(&self, headers: &HeaderMap, path: &str) -> Result<User, ApiError> {
        let user = self.sender(headers, path)?;
        match impersonated(headers) {
            None => Ok(user),
            Some(name) => Err(ApiError::forbidden(
                Subject {
                    group: "",
                    resource: "users",
                    name: &name,
                },
                "impersonation is not supported by this control plane",
            )),
        }
    }

    fn sender(&self, headers: &HeaderMap, path: &str) -> Result<User, ApiError> {
        let Some(given) = headers.get(AUTHORIZATION) else {
            return if is_open(path) {
                Ok(User::anonymous())
            } else {
                Err(ApiError::unauthorized())
            };
        };
        given
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| self.user_of_token(token.trim()))
            .ok_or_else(ApiError::unauthorized)
    }
}

/// In whose name a request is to be done, where that is not its sender's.
fn impersonated(headers: &HeaderMap) -> Option<String> {
    let (_, value) = headers
        .iter()
        .find(|(name, _)| name.as_str().starts_with("impersonate-"))?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn is_open(path: &str) -> bool {
    OPEN_PATHS.iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || (rest.starts_with('/') && *open != "/version"))
    })
}

/// Compares in a time that tells nothing about where two texts differ.
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
    use http::HeaderValue;

    #[test]
    fn nobody_acts_in_the_name_of_somebody_else() {
        let authenticator = Authenticator::new("secret".to_owned());
        let cases = [
            ("impersonate-user", "Bearer secret", 403),
            ("impersonate-group", "Bearer secret", 403),
            ("impersonate-user", "Bearer wrong", 401),
        ];
        for (header, given, code) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(given));
            headers.insert(header, HeaderValue::from_static("bob"));
            let refused = authenticator.authenticate(&headers, "/api/v1/pods").err();
            assert_eq!(refused.map(|e| e.code), Some(code), "{header} {given}");
        }
    }

    #[test]
    fn only_the_token_opens_what_is_not_open_to_all() {
        let authenticator = Authenticator::new("secret".to_owned());
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
            (Some("Bearer "), "/api/v1/pods", None),
            (Some("Basic secret"), "/api/v1/pods", None),
            (Some("Bearer wrong"), "/healthz", None),
        ];
        for (given, path, expect) in cases {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, HeaderValue::from_static(given));
            }
            let user = authenticator.authenticate(&headers, path).ok();
            assert_eq!(
                user.as_ref().map(|u| u.name.as_str()),
                expect,
                "{given:?} {path}"
            );
        }
    }
}
