//! The settings of a connection (fields of a kubeconfig or a configuration, variables, files): secrets, certificates and
//! faults.

use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// A text that is not printed by accident.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Secret(pub(crate) String);

impl Secret {
    /// A text from bytes; invalid UTF-8 is replaced, and the text fails when it is used.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

/// A setting of a connection cannot be used. The text begins with the name of the field or the variable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingError {
    #[error("{field}: Required value{because}")]
    Required {
        field: &'static str,
        /// The reason, if it is not always required.
        because: &'static str,
    },
    #[error("{field}: {problem}")]
    Invalid {
        field: &'static str,
        problem: &'static str,
    },
    #[error("{field}: {value:?} is not supported; {instead}")]
    Unsupported {
        field: &'static str,
        value: String,
        /// The way out.
        instead: String,
    },
    #[error("{field}: {url:?} is not a URL: {error}")]
    Url {
        field: &'static str,
        url: String,
        error: http::uri::InvalidUri,
    },
    #[error("{field}: {url:?} is not a URL with http:// or https://")]
    Scheme { field: &'static str, url: String },
    #[error("{field}: failed to read {}: {error}", path.display())]
    Read {
        field: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{field}-data: {error}")]
    Base64 {
        field: &'static str,
        error: base64::DecodeError,
    },
    #[error("{field}: {error}")]
    Certificate {
        field: &'static str,
        error: CertificateError,
    },
    #[error("{field}: failed to write it as JSON: {error}")]
    Json {
        field: &'static str,
        error: serde_json::Error,
    },
}

/// A PEM text has no certificates that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("malformed certificate in PEM: {0}")]
    Malformed(tokio_rustls::rustls::pki_types::pem::Error),
    #[error("no certificate in PEM")]
    None,
}

/// The certificates in a PEM text.
///
/// # Errors
/// When there is none, or one is malformed.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(CertificateError::Malformed)?;
    if found.is_empty() {
        return Err(CertificateError::None);
    }
    Ok(found)
}

/// A URL without its user and password, for messages.
pub(crate) fn redacted(url: &str) -> String {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(begin);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}{host}{path}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_in_a_message_has_no_password() {
        for (url, shown) in [
            ("https://u:p@a:6443/x@y?z", "https://a:6443/x@y?z"),
            ("https://u:p@q@a b", "https://a b"),
            ("u:p@a:6443", "a:6443"),
            ("https://a:6443/x@y", "https://a:6443/x@y"),
            ("https://[::1]:6443", "https://[::1]:6443"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
