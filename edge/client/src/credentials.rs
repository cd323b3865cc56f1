//! Credentials of a connection: the headers of each request.
//!
//! A token with an expiry is renewed a minute before it, by the next request.

use crate::config::{ClientUser, Config, Impersonation};
use crate::exec::Exec;
use crate::setting::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use tokio::sync::Mutex;
use tower::BoxError;

/// The time before its expiry at which a token is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_secs(60);
impl Impersonation {
    fn headers(&self) -> Result<HeaderMap, BoxError> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| -> Result<(), BoxError> {
            headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
            Ok(())
        };
        if let Some(user) = &self.user {
            add("impersonate-user", user)?;
        }
        if let Some(uid) = &self.uid {
            add("impersonate-uid", uid)?;
        }
        for group in &self.groups {
            add("impersonate-group", group)?;
        }
        for (key, values) in &self.extra {
            let key = utf8_percent_encode(&key.to_lowercase(), HEADER_NAME).to_string();
            for value in values {
                add(&format!("impersonate-extra-{key}"), value)?;
            }
        }
        Ok(headers)
    }
}

/// The characters that a header's name cannot have.
const HEADER_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The headers of requests, and the client certificate of the connection.
pub(crate) struct Credentials {
    pub(crate) headers: Headers,
    /// The certificate and its key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
}

/// The headers of each request. Clones share a token that is renewed.
#[derive(Clone)]
pub(crate) struct Headers {
    fixed: HeaderMap,
    renewed: Option<Arc<Renewed>>,
}

/// A token of an exec plugin with an end.
struct Renewed {
    exec: Exec,
    current: Mutex<(HeaderValue, Timestamp)>,
}

impl Credentials {
    /// The credentials of a configuration. An exec plugin is called.
    ///
    /// # Errors
    /// When the plugin fails, or a value cannot be in a header.
    pub(crate) fn of(config: &Config) -> Result<Self, BoxError> {
        let user: &ClientUser = &config.user;
        let mut credentials = Self {
            headers: Headers {
                fixed: user.impersonation.headers()?,
                renewed: None,
            },
            identity: user.identity.clone(),
        };
        let fixed = &mut credentials.headers.fixed;
        // The order of precedence is client-go's.
        if let Some((name, password)) = &user.basic {
            let encoded = STANDARD.encode(format!("{name}:{}", password.0));
            fixed.insert(AUTHORIZATION, sensitive(&format!("Basic {encoded}"))?);
        } else if let Some(token) = &user.token {
            fixed.insert(AUTHORIZATION, bearer(token)?);
        } else if let Some(exec) = &user.exec {
            let status = exec.run()?;
            if !status.client_certificate_data.is_empty() {
                let certificate = status.client_certificate_data.into_bytes();
                credentials.identity = Some((certificate, status.client_key_data));
            }
            match (status.token, status.expiration_timestamp) {
                (token, _) if token.0.is_empty() => {}
                (token, None) => {
                    // A token without an end is never renewed.
                    fixed.insert(AUTHORIZATION, bearer(&token)?);
                }
                (token, Some(end)) => {
                    credentials.headers.renewed = Some(Arc::new(Renewed {
                        exec: exec.clone(),
                        current: Mutex::new((bearer(&token)?, end)),
                    }));
                }
            }
        }
        Ok(credentials)
    }
}

impl Headers {
    /// Adds the headers to a request. A token that expires soon is renewed first.
    ///
    /// # Errors
    /// When it cannot be renewed.
    pub(crate) async fn add_to(&self, headers: &mut HeaderMap) -> Result<(), BoxError> {
        for (name, value) in &self.fixed {
            headers.append(name.clone(), value.clone());
        }
        if let Some(renewed) = &self.renewed {
            headers.insert(AUTHORIZATION, renewed.header().await?);
        }
        Ok(())
    }
}

impl Renewed {
    async fn header(&self) -> Result<HeaderValue, BoxError> {
        let mut current = self.current.lock().await;
        if Timestamp::now() + RENEW_BEFORE >= current.1 {
            // The plugin is a program, which takes its time.
            let exec = self.exec.clone();
            let status = tokio::task::spawn_blocking(move || exec.run()).await??;
            // A token without an expiry is used for as long as the connection.
            let end = status.expiration_timestamp.unwrap_or(Timestamp::MAX);
            *current = (bearer(&status.token)?, end);
        }
        Ok(current.0.clone())
    }
}

fn bearer(token: &Secret) -> Result<HeaderValue, BoxError> {
    sensitive(&format!("Bearer {}", token.0))
}

fn sensitive(text: &str) -> Result<HeaderValue, BoxError> {
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
