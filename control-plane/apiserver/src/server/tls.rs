//! The server's own certificate authority, its serving certificate, and secrets.

use super::{ServingCertificate, StartError};
use crate::auth::tokens::ServerTokens;
use berth_tls::{AnyClient, Authorities};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The number of random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The certificate and key of the server.
pub(super) struct ServerIdentity {
    pub(super) ca_pem: String,
    pub(super) acceptor: TlsAcceptor,
}

/// The secrets that stay the same over restarts: clients know the authority and the token.
#[derive(Serialize, Deserialize)]
pub(super) struct Secrets {
    pub(super) ca_pem: String,
    ca_key_pem: String,
    pub(super) admin_token: String,
    /// The key of the tokens of service accounts, in PKCS #8; absent in data directories of earlier versions.
    #[serde(default)]
    pub(super) tokens_key: Vec<u8>,
}

impl Secrets {
    /// A new authority and a new token.
    pub(super) fn new() -> Result<Self, StartError> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = authority().self_signed(&key).map_err(failed)?;
        Ok(Self {
            ca_pem: certificate.pem(),
            ca_key_pem: key.serialize_pem(),
            admin_token: random_token()?,
            tokens_key: ServerTokens::new_key().ok_or_else(no_random)?,
        })
    }
}

fn failed(error: rcgen::Error) -> StartError {
    StartError::Certificate(error.to_string())
}

fn authority() -> CertificateParams {
    let mut ca = CertificateParams::default();
    ca.distinguished_name = common_name("berth-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    ca
}

/// Makes a certificate for loopback, `ip` and `names`, signed by the authority.
pub(super) fn make_identity(
    secrets: &Secrets,
    ip: IpAddr,
    names: &[String],
    clients: &Authorities,
) -> Result<ServerIdentity, StartError> {
    let ca_key = KeyPair::from_pem(&secrets.ca_key_pem).map_err(failed)?;
    let issuer = Issuer::new(authority(), ca_key);

    // The names of the server inside and outside of the cluster.
    let mut all: Vec<String> = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "::1",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push(ip.to_string());
    all.extend_from_slice(names);
    all.sort();
    all.dedup();
    let key = KeyPair::generate().map_err(failed)?;
    let mut serving = CertificateParams::new(all).map_err(failed)?;
    serving.distinguished_name = common_name("berth");
    serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = serving.signed_by(&key, &issuer).map_err(failed)?;

    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    identity(secrets, chain, key, clients)
}

/// The certificate that the caller of [`super::Server::start`] gave.
pub(super) fn given_identity(
    secrets: &Secrets,
    given: &ServingCertificate,
    clients: &Authorities,
) -> Result<ServerIdentity, StartError> {
    let unreadable =
        |what: &str, e: pem::Error| StartError::Certificate(format!("{what} cannot be read: {e}"));
    let chain = CertificateDer::pem_slice_iter(given.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| unreadable("the given certificate", e))?;
    let key = PrivateKeyDer::from_pem_slice(given.key.as_bytes())
        .map_err(|e| unreadable("the key of the given certificate", e))?;
    identity(secrets, chain, key, clients)
}

fn identity(
    secrets: &Secrets,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: &Authorities,
) -> Result<ServerIdentity, StartError> {
    let fail = |e: tokio_rustls::rustls::Error| StartError::Certificate(e.to_string());
    let provider = Arc::new(provider());
    let verifier = AnyClient::new(Arc::clone(&provider), clients.names().to_vec());
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(fail)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .map_err(fail)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(ServerIdentity {
        ca_pem: secrets.ca_pem.clone(),
        acceptor: TlsAcceptor::from(Arc::new(config)),
    })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

pub(super) fn no_random() -> StartError {
    StartError::Certificate("the system gives no random numbers".to_owned())
}

fn fill(bytes: &mut [u8]) -> Result<(), StartError> {
    provider()
        .secure_random
        .fill(bytes)
        .map_err(|_| no_random())
}

/// A random token that cannot be guessed.
fn random_token() -> Result<String, StartError> {
    let mut bytes = [0; TOKEN_BYTES];
    fill(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// A seed for UIDs and generated names.
pub(super) fn random_seed() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
