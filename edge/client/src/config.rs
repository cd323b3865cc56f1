//! A connection to an API server, described: its address, how its certificate is checked, and the identity of Berth.

use crate::exec::Exec;
use crate::setting::{self, CertificateError, Secret};
use http::Uri;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The files of a service account in a pod.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The address of the server; its path is the prefix of all request paths.
    pub(crate) cluster_url: Uri,
    /// The certificate authorities; the default is the system's authorities.
    pub(crate) root_cert: Option<Vec<CertificateDer<'static>>>,
    /// The certificate of the server is not checked.
    pub(crate) accept_invalid_certs: bool,
    /// The name in the certificate of the server, if it differs from the URL.
    pub(crate) tls_server_name: Option<String>,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) proxy_url: Option<Uri>,
    pub(crate) user: ClientUser,
}

/// The identity of Berth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientUser {
    /// A client certificate and its key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
    pub(crate) basic: Option<(String, Secret)>,
    pub(crate) token: Option<Secret>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) exec: Option<Exec>,
    pub(crate) impersonation: Impersonation,
}

/// The user that requests impersonate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    pub(crate) user: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The reason why the service account of a pod cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InClusterError {
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")]
    NoPod,
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address: {0}")]
    Address(http::uri::InvalidUri),
    #[error("failed to read {path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("failed to read {path}: {error}")]
    Authority {
        path: String,
        error: CertificateError,
    },
}

impl Config {
    /// A connection to this address without credentials.
    pub(crate) fn new(cluster_url: Uri) -> Self {
        Self {
            cluster_url,
            root_cert: None,
            accept_invalid_certs: false,
            tls_server_name: None,
            connect_timeout: None,
            proxy_url: None,
            user: ClientUser::default(),
        }
    }

    /// Uses the user and the password of the URL as credentials, unless there are others, as client-go does. The URL
    /// itself is shown in messages.
    pub(crate) fn take_url_user(&mut self) {
        let Some((user, host)) = self
            .cluster_url
            .authority()
            .and_then(|authority| authority.as_str().rsplit_once('@'))
        else {
            return;
        };
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let text = |encoded| percent_decode_str(encoded).decode_utf8_lossy().into_owned();
        let basic = (text(name), Secret(text(password)));
        let mut parts = self.cluster_url.clone().into_parts();
        parts.authority = host.parse().ok();
        if let Ok(url) = Uri::from_parts(parts) {
            self.cluster_url = url;
        }
        let ClientUser {
            basic: given,
            token,
            token_file,
            exec,
            ..
        } = &self.user;
        if given.is_none() && token.is_none() && token_file.is_none() && exec.is_none() {
            self.user.basic = Some(basic);
        }
    }

    /// The connection of the pod that this runs in, with its service account.
    ///
    /// # Errors
    /// This is not a pod, or its service account has no certificate authority.
    pub(crate) fn in_cluster() -> Result<Self, InClusterError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(InClusterError::NoPod)?;
        let port = variable("KUBERNETES_SERVICE_PORT").ok_or(InClusterError::NoPod)?;
        let mut config = Self::new(service_url(&host, &port).map_err(InClusterError::Address)?);
        let path = format!("{SERVICE_ACCOUNT}/ca.crt");
        let pem = match std::fs::read(&path) {
            Ok(pem) => pem,
            Err(error) => return Err(InClusterError::Read { path, error }),
        };
        let authorities = setting::certificates(&pem);
        let authorities = authorities.map_err(|error| InClusterError::Authority { path, error })?;
        config.root_cert = Some(authorities);
        config.user.token_file = Some(format!("{SERVICE_ACCOUNT}/token").into());
        Ok(config)
    }
}

/// The address of the API server in a pod. An IPv6 address needs brackets.
fn service_url(host: &str, port: &str) -> Result<Uri, http::uri::InvalidUri> {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}").parse(),
        _ => format!("https://{host}:{port}").parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_in_a_pod_has_brackets_for_ipv6() {
        for (host, port, url) in [
            ("10.96.0.1", "443", "https://10.96.0.1:443/"),
            ("fd00::1", "6443", "https://[fd00::1]:6443/"),
            (
                "kubernetes.default",
                "443",
                "https://kubernetes.default:443/",
            ),
        ] {
            let found = service_url(host, port).expect("an address");
            assert_eq!(found.to_string(), url, "{host} {port}");
        }
        assert!(service_url("10.96.0.1", "a port").is_err());
    }
}
