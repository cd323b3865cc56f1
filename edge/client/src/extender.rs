//! Calls extenders: webhooks that take part in scheduling.
//!
//! ```text
//! POST <urlPrefix>/<verb>   {"Pod": …, "Nodes": …, "NodeNames": …}   →   {"NodeNames": […], "FailedNodes": {…}, …}
//! ```
//!
//! [`ExtenderClient`] sends one request and reads one response. Every request has a timeout, and every response has a
//! size limit. [`wire`] defines the format of both. The client does not retry: the caller decides what a failure means.

mod decode;
pub mod raw;
#[cfg(test)]
mod tests;
mod verbs;
pub mod wire;

pub use verbs::{FilterAnswer, MetaVictimsOf, Nodes, VictimsOf};

use crate::config::Config;
use crate::error::chain;
use crate::http_client::{self, HttpService};
use crate::setting::{Secret, SettingError, certificates};
use crate::transport::collect;
use bytes::Bytes;
use http_body_util::Full;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt};

/// The largest answer that is read: every node of a large cluster, whole.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The connection and the properties of an extender.
#[derive(Clone, Default)]
pub struct ExtenderOptions {
    /// The base URL of the verbs.
    pub url_prefix: String,
    /// Whether TLS is enabled; without certificate authorities, the server's certificate is then not verified.
    pub enable_https: bool,
    /// The allowance of an object for events with new notes.
    pub tls: ExtenderTlsOptions,
    /// The time that a question may take.
    pub timeout: Duration,
    /// The name of the client in its logs.
    pub user_agent: String,
}

/// The TLS options of an extender. Data takes precedence over the file for the same item; all items are PEM.
#[derive(Clone, Default)]
pub struct ExtenderTlsOptions {
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
    /// The name in the server's certificate; empty for the name of the address.
    pub server_name: String,
    /// The file of our certificate.
    pub cert_file: String,
    /// The file of our key.
    pub key_file: String,
    /// The file of the certificate authorities.
    pub ca_file: String,
    /// Our certificate.
    pub cert_data: Vec<u8>,
    /// Our key.
    pub key_data: Vec<u8>,
    /// The certificate authorities.
    pub ca_data: Vec<u8>,
}

/// An extender cannot be set up as it is configured.
#[derive(Debug, Clone, thiserror::Error)]
#[error("failed to set up extender {url}: {reason}")]
pub struct ExtenderSetupError {
    /// Its address.
    pub url: String,
    /// The reason, and its place.
    pub reason: String,
}

/// A question has not been answered.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExtenderError {
    /// The extender answered with something else than 200. The words are kube-scheduler's.
    #[error("failed {verb} with extender at URL {url}, code {code}")]
    Code {
        /// The verb.
        verb: String,
        /// The address of the request.
        url: String,
        /// The HTTP code.
        code: u16,
    },
    /// There was no answer in time.
    #[error("no answer from extender at URL {url} within {millis} ms")]
    Timeout {
        /// The address of the request.
        url: String,
        /// The wait.
        millis: u128,
    },
    /// It could not be reached, the connection broke, or the answer is too large.
    #[error("failed to ask extender at URL {url}: {reason}")]
    Transport {
        /// The address of the request.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The question could not be written down or the answer not be understood.
    #[error("failed to understand extender at URL {url}: {reason}")]
    Decode {
        /// The address of the request.
        url: String,
        /// The fault.
        reason: String,
    },
    /// The object of the request no longer exists.
    #[error("{0} is gone")]
    Gone(String),
    /// The extender reports an error, in these words.
    #[error("{0}")]
    Stated(String),
}

/// Asks one extender. Connections are kept open.
#[derive(Clone)]
pub struct ExtenderClient {
    client: HttpService,
    /// Without slashes at the end.
    url: String,
    timeout: Duration,
    user_agent: String,
    answer_bytes_max: usize,
}

impl ExtenderClient {
    /// Creates the connection. Files are read, but no request is sent.
    ///
    /// # Errors
    /// When the address is none, or certificates cannot be used.
    pub async fn new(options: ExtenderOptions) -> Result<Self, ExtenderSetupError> {
        let url = options.url_prefix.trim_end_matches('/').to_owned();
        let failed = |reason: String| ExtenderSetupError {
            url: options.url_prefix.clone(),
            reason,
        };
        let config = webhook_config(&url, &options.tls, options.enable_https);
        let config = config.map_err(|error| failed(error.to_string()))?;
        let client = http_client::service(&config).map_err(|e| failed(chain(&*e)))?;
        Ok(Self {
            client,
            url,
            timeout: options.timeout,
            user_agent: options.user_agent,
            answer_bytes_max: ANSWER_BYTES_MAX,
        })
    }

    /// Sets the maximum size of answers, in bytes.
    #[cfg(test)]
    fn with_answer_bytes_max(mut self, bytes: usize) -> Self {
        self.answer_bytes_max = bytes;
        self
    }

    /// A question as it is sent.
    fn written(question: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(question)
    }

    /// Posts a question and reads the answer.
    async fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        question: Result<Vec<u8>, serde_json::Error>,
    ) -> Result<T, ExtenderError> {
        let url = format!("{}/{verb}", self.url);
        let misunderstood = |error: serde_json::Error| ExtenderError::Decode {
            url: url.clone(),
            reason: error.to_string(),
        };
        let question = question.map_err(misunderstood)?;
        let answer = timeout(self.timeout, self.exchange(verb, &url, question)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(ExtenderError::Timeout {
                url: url.clone(),
                millis: self.timeout.as_millis(),
            })
        })?;
        serde_json::from_slice(&answer).map_err(misunderstood)
    }

    async fn exchange(
        &self,
        verb: &str,
        url: &str,
        question: Vec<u8>,
    ) -> Result<Bytes, ExtenderError> {
        let failed = |reason: String| ExtenderError::Transport {
            url: url.to_owned(),
            reason,
        };
        // The client prepends the address, including its path.
        let request = http::Request::post(format!("/{verb}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, &self.user_agent)
            .body(Full::from(question))
            .map_err(|e| failed(e.to_string()))?;
        let failed_to_send = |e: BoxError| failed(chain(&*e));
        let mut client = self.client.clone();
        let client = client.ready().await.map_err(failed_to_send)?;
        let response = client.call(request).await.map_err(failed_to_send)?;
        let code = response.status();
        if code != http::StatusCode::OK {
            return Err(ExtenderError::Code {
                verb: verb.to_owned(),
                url: url.to_owned(),
                code: code.as_u16(),
            });
        }
        let answer = collect(response.into_body(), self.answer_bytes_max).await;
        answer.map_err(|e| failed(e.to_string()))
    }
}

/// The fields of a webhook whose values are used together.
const ADDRESS_AND_TLS: &str = "urlPrefix, tlsConfig";

/// The connection of an extender: no proxy, and one time limit for a whole request, which the caller sets.
///
/// # Errors
/// When the address or the certificates cannot be used.
pub(crate) fn webhook_config(
    url: &str,
    tls: &ExtenderTlsOptions,
    enable_https: bool,
) -> Result<Config, SettingError> {
    let has_ca = !tls.ca_file.is_empty() || !tls.ca_data.is_empty();
    // With both, it would be undefined whether the server is verified.
    if tls.insecure && has_ca {
        return Err(SettingError::Invalid {
            field: "tlsConfig",
            problem: "certificate authorities are of no use with insecure; leave out one of them",
        });
    }
    // kube-scheduler does not verify an extender over HTTPS without an authority.
    let is_unchecked = tls.insecure || (enable_https && !has_ca);
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(SettingError::Invalid {
            field: "urlPrefix",
            problem: "must begin with http:// or https://",
        });
    }
    let server = url.parse().map_err(|error| SettingError::Url {
        field: ADDRESS_AND_TLS,
        url: url.to_owned(),
        error,
    })?;
    let mut config = Config::new(server);
    config.accept_invalid_certs = is_unchecked;
    config.tls_server_name = Some(tls.server_name.clone()).filter(|name| !name.is_empty());
    if let Some(pem) = item(&tls.ca_data, &tls.ca_file)? {
        let authorities = certificates(&pem);
        let authorities = authorities.map_err(|error| SettingError::Certificate {
            field: ADDRESS_AND_TLS,
            error,
        })?;
        config.root_cert = Some(authorities);
    }
    let certificate = item(&tls.cert_data, &tls.cert_file)?;
    let key = item(&tls.key_data, &tls.key_file)?;
    config.user.identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, Secret::of(key))),
        _ => {
            return Err(SettingError::Invalid {
                field: ADDRESS_AND_TLS,
                problem: "a client certificate needs a key, and a key a certificate",
            });
        }
    };
    Ok(config)
}

/// Data, or the content of a file; `None` when neither is given.
fn item(data: &[u8], file: &str) -> Result<Option<Vec<u8>>, SettingError> {
    if !data.is_empty() {
        return Ok(Some(data.to_vec()));
    }
    if file.is_empty() {
        return Ok(None);
    }
    let read = std::fs::read(file);
    read.map(Some).map_err(|error| SettingError::Read {
        field: ADDRESS_AND_TLS,
        path: file.into(),
        error,
    })
}
