//! Client certificates of connections to a server: the authorities that sign them, and the user that a certificate names.
//! As in Kubernetes, the common name is the user and the organizations are its groups. Servers whose certificates are not
//! verified.

// The validity of certificates is compared with the time of the machine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The user in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateUser {
    /// The common name.
    pub name: String,
    /// The organizations.
    pub groups: Vec<String>,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
}

/// The certificate authorities whose client certificates are accepted. The default accepts none.
#[derive(Clone, Default)]
pub struct Authorities {
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    names: Vec<DistinguishedName>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").finish_non_exhaustive()
    }
}

impl Authorities {
    /// The authorities in these PEM files.
    ///
    /// # Errors
    /// When they contain something else, or no certificate.
    pub fn new<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for pem in files {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| format!("not a PEM certificate: {e}"))?;
                roots.add(certificate).map_err(|e| e.to_string())?;
            }
        }
        let names = roots.subjects();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self {
            verifier: Some(verifier),
            names,
        })
    }

    /// The names of the authorities.
    pub fn names(&self) -> &[DistinguishedName] {
        &self.names
    }

    /// The user in the first certificate of a chain; `None` when no authority has signed it, or when it is not valid
    /// now.
    pub fn verified(&self, chain: &[CertificateDer<'static>]) -> Option<CertificateUser> {
        let (first, intermediates) = chain.split_first()?;
        self.verifier
            .as_ref()?
            .verify_client_cert(first, intermediates, UnixTime::now())
            .ok()?;
        identity(first)
    }
}

fn identity(certificate: &CertificateDer<'_>) -> Option<CertificateUser> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = subject.iter_organization();
    let groups = organizations.filter_map(|name| name.as_str().ok().map(str::to_owned));
    (!name.is_empty()).then(|| CertificateUser {
        name,
        groups: groups.collect(),
        not_after: certificate.validity().not_after.timestamp(),
    })
}

/// Checks the signatures of a handshake with the algorithms of `self.provider`.
macro_rules! check_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls12_signature(message, cert, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, cert, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

/// Accepts any client certificate with a proof of its key. Its authority is checked with the request, as in
/// kube-apiserver: the answer is then 401 instead of a failed handshake.
#[derive(Debug)]
pub struct AnyClient {
    provider: Arc<CryptoProvider>,
    /// The authorities that the server names when it asks for a certificate. A client with several certificates
    /// presents one of theirs.
    names: Vec<DistinguishedName>,
}

impl AnyClient {
    /// Asks for a certificate of one of these authorities.
    pub fn new(provider: Arc<CryptoProvider>, names: Vec<DistinguishedName>) -> Self {
        Self { provider, names }
    }
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    check_signatures!();
}

/// Accepts any server certificate whose key the server has (`insecureSkipTLSVerify`).
#[derive(Debug)]
pub struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl AnyServer {
    /// Checks signatures with the algorithms of a provider.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    check_signatures!();
}
