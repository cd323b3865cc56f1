//! TLS: whose certificate is believed (F-37).

use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// An authority, and the certificates that it issued.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("a root");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
            roots,
        }
    }

    /// A certificate for a name, with its key.
    fn vouch(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        (
            params.signed_by(&key, &self.issuer).expect("a certificate"),
            key,
        )
    }

    /// Serves under a name; clients have to show a certificate of this authority, or not.
    fn acceptor(&self, name: &str, wants_client: bool) -> TlsAcceptor {
        let (certificate, key) = self.vouch(name);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if wants_client {
            let roots = Arc::new(self.roots.clone());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = builder.with_single_cert(vec![certificate.der().clone()], key);
        TlsAcceptor::from(Arc::new(config.expect("a server")))
    }
}

/// F-37.
#[tokio::test]
async fn a_certificate_is_believed_as_configured() {
    let (known, other) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = |what: &str, pem: &str| {
        let path = directory.path().join(what);
        std::fs::write(&path, pem).expect("a temporary file");
        path
    };
    let ca_file = file("ca", &known.pem);
    let ca = |authority: &Authority| ExtenderTlsOptions {
        ca_data: authority.pem.clone().into_bytes(),
        ..ExtenderTlsOptions::default()
    };
    let (shown, shown_key) = known.vouch("client");
    let showing = ExtenderTlsOptions {
        cert_data: shown.pem().into_bytes(),
        key_data: shown_key.serialize_pem().into_bytes(),
        ..ca(&known)
    };
    let cert_file = file("cert", &shown.pem());
    let key_file = file("key", &shown_key.serialize_pem());
    let showing_files = ExtenderTlsOptions {
        cert_file: cert_file.display().to_string(),
        key_file: key_file.display().to_string(),
        ..ca(&known)
    };
    let named = |tls: ExtenderTlsOptions, name: &str| ExtenderTlsOptions {
        server_name: name.to_owned(),
        ..tls
    };
    let from_file = ExtenderTlsOptions {
        ca_file: ca_file.display().to_string(),
        ..ExtenderTlsOptions::default()
    };
    let insecure = ExtenderTlsOptions {
        insecure: true,
        ..ExtenderTlsOptions::default()
    };
    let none = ExtenderTlsOptions::default();
    let ip = "127.0.0.1";
    // Situation, name of the server, whether it requires a client certificate, enableHTTPS, tlsConfig, whether the call
    // succeeds.
    for (situation, name, wants_client, https, tls, works) in [
        ("its authority is known", ip, false, true, ca(&known), true),
        ("from a file", ip, false, true, from_file.clone(), true),
        (
            "data takes precedence over the file",
            ip,
            false,
            true,
            ExtenderTlsOptions {
                ca_file: from_file.ca_file.clone(),
                ..ca(&other)
            },
            false,
        ),
        ("without enableHTTPS", ip, false, false, ca(&known), true),
        ("another authority", ip, false, true, ca(&other), false),
        (
            "no authority is named",
            "elsewhere",
            false,
            true,
            none.clone(),
            true,
        ),
        ("nothing is stated at all", ip, false, false, none, false),
        ("insecure", "elsewhere", false, false, insecure, true),
        ("another name", "elsewhere", false, true, ca(&known), false),
        (
            "the name is given",
            "elsewhere",
            false,
            true,
            named(ca(&known), "elsewhere"),
            true,
        ),
        ("we show who we are", ip, true, true, showing, true),
        ("from files", ip, true, true, showing_files, true),
        ("we do not", ip, true, true, ca(&known), false),
    ] {
        let acceptor = known.acceptor(name, wants_client);
        let server = Server::with(Reply::json(&json!({})), Some(acceptor)).await;
        let client = connected(ExtenderOptions {
            url_prefix: format!("https://127.0.0.1:{}", server.port),
            enable_https: https,
            tls,
            timeout: Duration::from_secs(20),
            user_agent: "berth-test".to_owned(),
        })
        .await;
        let stated = client.bind("b", &BINDING).await;
        assert_eq!(stated.is_ok(), works, "{situation}: {stated:?}");
    }
}
