//! TLS of a connection: the authorities of its configuration, else the system's; a client certificate, if there is one.

use crate::config::Config;
use crate::setting::{Secret, certificates};
use berth_tls::AnyServer;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use tower::BoxError;

/// TLS as this configuration describes it.
///
/// # Errors
/// When an authority or the client certificate cannot be used.
pub(crate) fn client_config(
    config: &Config,
    identity: Option<&(Vec<u8>, Secret)>,
) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = if config.accept_invalid_certs {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider)))
    } else {
        builder.with_root_certificates(roots(config)?)
    };
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificates = certificates(certificate)
                .map_err(|reason| format!("client certificate: {reason}"))?;
            let key = PrivateKeyDer::from_pem_slice(key.0.as_bytes())
                .map_err(|error| format!("client key: malformed PEM: {error}"))?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| format!("client certificate and key: {error}"))?
        }
    })
}

fn roots(config: &Config) -> Result<RootCertStore, BoxError> {
    let mut roots = RootCertStore::empty();
    match &config.root_cert {
        Some(authorities) => {
            for authority in authorities {
                let added = roots.add(authority.clone());
                added.map_err(|error| format!("certificate authority: {error}"))?;
            }
        }
        None if config.cluster_url.scheme_str() == Some("http") => {}
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                return Err(
                    "no certificate-authority is configured, and the system has no certificate authorities"
                        .into(),
                );
            }
        }
    }
    Ok(roots)
}
