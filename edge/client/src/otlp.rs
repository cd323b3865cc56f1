//! Sends traces to an OpenTelemetry collector: OTLP over HTTP with JSON bodies.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use crate::error::chain;
use crate::extender::{ExtenderTlsOptions, webhook_config};
use crate::http_client::{self, HttpService};
use crate::transport::collect;
use bytes::Bytes;
use http::header::InvalidHeaderName;
use http::{HeaderName, HeaderValue, Uri};
use http_body_util::Full;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt};

/// The largest answer that is read: the reason of a refusal.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The destination of traces.
#[derive(Debug, Clone)]
pub struct CollectorOptions {
    /// The whole address, such as `http://localhost:4318/v1/traces`.
    pub url: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// Certificate authorities of the collector in PEM; the default is the system's authorities.
    pub certificate: Option<PathBuf>,
    /// The client certificate in PEM.
    pub client_certificate: Option<PathBuf>,
    /// The key of the client certificate in PEM.
    pub client_key: Option<PathBuf>,
    /// The time that one request may take.
    pub timeout: Duration,
    /// The header User-Agent.
    pub user_agent: String,
}

/// Traces were not accepted.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub struct ExportError {
    /// The reason.
    pub reason: String,
    /// Whether the same request may succeed later.
    pub is_retryable: bool,
    /// The time that the collector asks to wait before that.
    pub retry_after: Option<Duration>,
}

/// A collector cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollectorSetupError {
    /// The address or the certificates.
    #[error("{url}: {reason}")]
    Connection {
        /// The address.
        url: String,
        /// The fault.
        reason: String,
    },
    /// A header of the requests.
    #[error("header {name}: {reason}")]
    Header {
        /// The name of the header.
        name: String,
        /// The fault.
        reason: String,
    },
}

/// A connection to a collector.
#[derive(Clone)]
pub struct Collector {
    client: HttpService,
    path: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
}

impl Collector {
    /// Creates the connection. Files are read, but no request is sent.
    ///
    /// # Errors
    /// When the address, a header or a certificate cannot be used.
    pub async fn new(options: &CollectorOptions) -> Result<Self, CollectorSetupError> {
        let url = &options.url;
        let failed = |reason: String| CollectorSetupError::Connection {
            url: url.clone(),
            reason,
        };
        let uri = url.parse::<Uri>();
        let uri = uri.map_err(|e| failed(format!("not an address: {e}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            let reason = "an address begins with http:// or https://";
            return Err(failed(reason.to_owned()));
        }
        let path = uri.path();
        // The configuration takes an origin; the path belongs to each request.
        let origin = url.split_once("://").map_or("", |(_, rest)| rest);
        let origin = origin.split('/').next().unwrap_or_default();
        let origin = format!("{}://{origin}", uri.scheme_str().unwrap_or_default());
        let file = |path: &Option<PathBuf>| {
            let path = path.as_ref().map(|path| path.display().to_string());
            path.unwrap_or_default()
        };
        let tls = ExtenderTlsOptions {
            ca_file: file(&options.certificate),
            cert_file: file(&options.client_certificate),
            key_file: file(&options.client_key),
            ..ExtenderTlsOptions::default()
        };
        let config = webhook_config(&origin, &tls, false);
        let config = config.map_err(|e| failed(e.to_string()))?;
        let client = http_client::service(&config).map_err(|e| failed(chain(&*e)))?;
        let mut headers = vec![
            header("content-type", "application/json")?,
            header("user-agent", &options.user_agent)?,
        ];
        for (name, value) in &options.headers {
            let (name, mut value) = header(name, value)?;
            // Headers contain credentials, which must not be logged.
            value.set_sensitive(true);
            headers.push((name, value));
        }
        Ok(Self {
            client,
            path: path.to_owned(),
            headers,
            timeout: options.timeout,
        })
    }

    /// Sends traces, encoded as JSON and, if `is_compressed`, compressed by gzip.
    ///
    /// # Errors
    /// When the collector does not accept them in time.
    pub async fn send(&self, body: Bytes, is_compressed: bool) -> Result<(), ExportError> {
        let failed = |reason: String| ExportError {
            reason,
            is_retryable: true,
            retry_after: None,
        };
        match timeout(self.timeout, self.exchange(body, is_compressed)).await {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => Err(failed(chain(&*error))),
            Err(_) => Err(failed(format!("no answer within {:?}", self.timeout))),
        }
    }

    async fn exchange(
        &self,
        body: Bytes,
        is_compressed: bool,
    ) -> Result<Result<(), ExportError>, BoxError> {
        let mut request = http::Request::post(&*self.path).body(Full::from(body))?;
        request.headers_mut().extend(self.headers.iter().cloned());
        if is_compressed {
            let gzip = HeaderValue::from_static("gzip");
            request
                .headers_mut()
                .insert(http::header::CONTENT_ENCODING, gzip);
        }
        let mut client = self.client.clone();
        let response = client.ready().await?.call(request).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(Ok(()));
        }
        let retry_after = response.headers().get(http::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|v| v.to_str().ok()?.parse().ok());
        let text = collect(response.into_body(), ANSWER_BYTES_MAX).await;
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        Ok(Err(ExportError {
            reason: format!("the collector answered with {code}: {}", text.trim()),
            // As the specification lists them.
            is_retryable: matches!(code.as_u16(), 429 | 502 | 503 | 504),
            retry_after: retry_after.map(Duration::from_secs),
        }))
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), CollectorSetupError> {
    let failed = |reason: String| CollectorSetupError::Header {
        name: name.to_owned(),
        reason,
    };
    let parsed = name
        .parse()
        .map_err(|e: InvalidHeaderName| failed(e.to_string()))?;
    let value = HeaderValue::from_str(value).map_err(|e| failed(e.to_string()))?;
    Ok((parsed, value))
}

#[cfg(test)]
mod tests;
