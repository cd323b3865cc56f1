//! The servers that the client of webhooks trusts.

use berth_objects::authorities;
use berth_tls::AnyServer;
use std::sync::Arc;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

/// The client configuration with these authorities in PEM, or with the system's authorities if there are none.
///
/// # Errors
/// The fault of the authorities.
pub(super) fn tls_config(bundle: &[u8]) -> Result<ClientConfig, String> {
    let (roots, given) = if bundle.is_empty() {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        (roots, Vec::new())
    } else {
        authorities::read(bundle)?
    };
    // One crypto provider serves the whole process.
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    // Without any root, every certificate is rejected, which the handshake reports.
    if roots.is_empty() {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    let verifier = Verifier {
        inner: inner.map_err(|e| e.to_string())?,
        given,
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// The configuration of a client that does not verify certificates.
///
/// # Errors
/// The versions of TLS are not available.
pub(super) fn trusting_config() -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = AnyServer::new(Arc::clone(&provider));
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Verifies servers by their authority. As in Go, a certificate of the bundle itself is accepted for a server, too,
/// which is how self-signed certificates are used.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self
            .inner
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        if verified.is_err() && self.given.contains(certificate) && is_current(certificate, now) {
            let parsed = ParsedCertificate::try_from(certificate)?;
            verify_server_name(&parsed, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Returns whether a certificate is valid at this time.
fn is_current(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return false;
    };
    let (validity, now) = (
        parsed.validity(),
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
    );
    (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now)
}
