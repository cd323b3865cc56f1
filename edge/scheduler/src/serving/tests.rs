//! The HTTPS port as its clients see it: permitted requests, and serving certificates.

use super::*;
use crate::config_file::ConfigStatus;
use crate::flags;
use crate::runner::Explainer;
use berth_api::Release;
use berth_client::testing::Scripted;
use berth_framework::features::Versions;
use clap::Command;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime,
};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// A directory that is deleted with the test.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("a temporary file");
        path.display().to_string()
    }
}

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate and its key as PEM, and both as they are sent.
    fn issue(&self, name: &str, group: &str) -> (String, String, ClientIdentity) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let identity = (certificate.der().clone(), der);
        (certificate.pem(), key.serialize_pem(), identity)
    }
}

type ClientIdentity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// Takes any certificate of the server, and remembers it.
#[derive(Debug, Default)]
struct Seen(std::sync::Mutex<Vec<u8>>);

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.0.lock().expect("no panic") = certificate.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = ring::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// An answer: its code, its body, and the certificate of the server.
struct Got {
    code: u16,
    head: String,
    body: String,
    certificate: Vec<u8>,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A port that is served with these flags.
struct Port {
    address: SocketAddr,
    certificates: Arc<certificate::Certificates>,
    serving: Serving,
}

fn flags_of(arguments: &[&str]) -> Flags {
    let command = flags::add_to(Command::new("scheduler").no_binary_name(true));
    let matches = command.get_matches_from(arguments);
    Flags::read(&matches).expect("flags")
}

impl Port {
    async fn start(arguments: &[&str]) -> Self {
        // Ports that are free at the moment may be taken at the next.
        for _ in 0..20 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            let number = free.local_addr().expect("an address").port().to_string();
            drop(free);
            let mut all = vec!["--bind-address=127.0.0.1", "--secure-port", &number];
            all.extend(arguments);
            match SecurePort::bind(&flags_of(&all), "test").await {
                Ok(port) => return Self::serve(port.expect("a port")),
                Err(CommandFailure::Environment(text)) if text.contains("in use") => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("no port could be had");
    }

    fn serve(port: SecurePort) -> Self {
        let address = port.address().expect("an address");
        let certificates = Arc::clone(&port.certificates);
        let flag = |is_set: bool| Arc::new(AtomicBool::new(is_set));
        let shown = Shown {
            versions: Versions::of(Release::V1_36),
            version: "v1.36.0+test".to_owned(),
            started: SystemTime::now(),
            config: ConfigStatus::of(json!({"kind": "KubeSchedulerConfiguration"})),
            flags: vec![("v".to_owned(), "2".to_owned())],
            election: None,
            has_profiling: false,
            has_flagz: true,
            has_statusz: true,
            shadow: None,
        };
        let serving = port.serve(
            Health::new(None, flag(false), flag(true)),
            shown,
            Explainer::ended(),
            Arc::new(EdgeMetrics::new("v0", Versions::of(Release::V1_36))),
            MetricFilter::default(),
        );
        Self {
            address,
            certificates,
            serving,
        }
    }

    async fn get(&self, path: &str, headers: &[&str], identity: Option<&ClientIdentity>) -> Got {
        self.ask("GET", path, headers, identity).await
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        identity: Option<&ClientIdentity>,
    ) -> Got {
        let seen = Arc::new(Seen::default());
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&seen) as _);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
                .expect("an identity"),
        };
        let stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.expect("a handshake");
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.expect("a request");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        // Only CBOR is not text.
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        Got {
            code: head
                .split(' ')
                .nth(1)
                .and_then(|code| code.parse().ok())
                .expect("a code"),
            head: head.to_owned(),
            body: body.to_owned(),
            certificate: seen.0.lock().expect("no panic").clone(),
        }
    }
}

fn kubeconfig(scratch: &Scratch, name: &str, server: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    });
    scratch.file(name, &config.to_string())
}

const SKIP: &str = "--authentication-skip-lookup";

#[tokio::test]
async fn without_a_cluster_only_the_open_paths_are_answered() {
    let port = Port::start(&[]).await;
    for (path, headers, code, message) in [
        ("/healthz", &[][..], 200, ""),
        ("/livez/ping", &[], 403, ""),
        (
            "/metrics",
            &[],
            403,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
        ),
        (
            "/metrics",
            &["Authorization: Bearer nonsense"],
            403,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
        ),
    ] {
        let got = port.get(path, headers, None).await;
        assert_eq!(got.code, code, "{path} {headers:?}");
        if !message.is_empty() {
            assert_eq!(got.json()["message"], message, "{path} {headers:?}");
        }
    }
    port.serving.stop().await;
}

/// Tokens and the permissions of their users are reviewed. Both answers are cached.
#[tokio::test]
async fn tokens_and_access_are_reviewed_once() {
    let scratch = Scratch::new();
    let review = json!({"status": {"authenticated": true, "user": {
        "username": "prometheus", "uid": "7", "groups": ["monitoring"], "extra": {"a": ["b"]}}}});
    let mut tokens = Scripted::start(vec![(201, review)]).await;
    let mut access = Scripted::start(vec![
        (201, json!({"status": {"allowed": true}})),
        (
            201,
            json!({"status": {"allowed": false, "reason": "no role"}}),
        ),
    ])
    .await;
    let authn = kubeconfig(&scratch, "authn", tokens.url());
    let authz = kubeconfig(&scratch, "authz", access.url());
    let port = Port::start(&[
        SKIP,
        "--authentication-kubeconfig",
        &authn,
        "--authorization-kubeconfig",
        &authz,
    ])
    .await;
    let bearer = ["Authorization: Bearer secret"];
    for round in 0..2 {
        let got = port.get("/version", &bearer, None).await;
        assert_eq!(
            (got.code, &got.json()["minor"]),
            (200, &json!("36")),
            "{round}"
        );
        let got = port.get("/configz", &bearer, None).await;
        assert_eq!(got.code, 403, "{round}");
        assert_eq!(
            got.json()["message"],
            "forbidden: User \"prometheus\" cannot get path \"/configz\": no role"
        );
    }
    let asked = tokens.asked.recv().await.expect("a review");
    assert_eq!(
        asked.line(),
        "POST /apis/authentication.k8s.io/v1/tokenreviews"
    );
    assert_eq!(asked.json()["spec"], json!({"token": "secret"}));
    let asked = access.asked.recv().await.expect("a review");
    assert_eq!(
        asked.line(),
        "POST /apis/authorization.k8s.io/v1/subjectaccessreviews"
    );
    assert_eq!(
        asked.json()["spec"],
        json!({
            "user": "prometheus", "uid": "7", "groups": ["monitoring"], "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/version", "verb": "get"},
        })
    );
    port.serving.stop().await;
}

#[tokio::test]
async fn client_certificates_name_users_when_their_authority_counts() {
    let scratch = Scratch::new();
    let (ours, proxies, other) = (
        Authority::new("ours"),
        Authority::new("proxies"),
        Authority::new("other"),
    );
    let ca = scratch.file("ca.pem", &ours.pem);
    let proxy_ca = scratch.file("proxy-ca.pem", &proxies.pem);
    let port = Port::start(&[
        "--client-ca-file",
        &ca,
        "--requestheader-client-ca-file",
        &proxy_ca,
        "--requestheader-allowed-names=front",
    ])
    .await;
    let (_, _, admin) = ours.issue("admin", "system:masters");
    let (_, _, user) = ours.issue("user", "nobody");
    let (_, _, stranger) = other.issue("admin", "system:masters");
    let (_, _, front) = proxies.issue("front", "proxies");
    let (_, _, back) = proxies.issue("back", "proxies");
    let as_admin = ["X-Remote-User: somebody", "X-Remote-Group: system:masters"];
    for (situation, identity, headers, code) in [
        ("an administrator", Some(&admin), &[][..], 200),
        ("a user without rights", Some(&user), &[], 403),
        ("of another authority", Some(&stranger), &[], 401),
        ("no certificate", None, &[], 403),
        (
            "a proxy names an administrator",
            Some(&front),
            &as_admin,
            200,
        ),
        ("a proxy that may not", Some(&back), &as_admin, 401),
        ("a user names another", Some(&user), &as_admin, 403),
        ("headers alone", None, &as_admin, 403),
    ] {
        let got = port.get("/configz", headers, identity).await;
        assert_eq!(got.code, code, "{situation}: {}", got.body);
    }
    let got = port.get("/configz", &[], Some(&user)).await;
    assert_eq!(
        got.json()["message"],
        "forbidden: User \"user\" cannot get path \"/configz\""
    );
    port.serving.stop().await;
}

/// The authorities of the cluster count when no file is given.
#[tokio::test]
async fn authorities_are_looked_up_in_the_cluster() {
    let scratch = Scratch::new();
    let ours = Authority::new("ours");
    let map = json!({"data": {"client-ca-file": ours.pem}});
    let mut server = Scripted::start(vec![(200, map)]).await;
    let config = kubeconfig(&scratch, "authn", server.url());
    let port = Port::start(&["--authentication-kubeconfig", &config]).await;
    let asked = server.asked.recv().await.expect("a look-up");
    assert_eq!(
        asked.line(),
        "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    );
    let (_, _, admin) = ours.issue("admin", "system:masters");
    assert_eq!(port.get("/configz", &[], Some(&admin)).await.code, 200);
    port.serving.stop().await;
}

/// A look-up that fails is fatal only when it must not.
#[tokio::test]
async fn a_failed_lookup_is_tolerated_unless_it_must_not_be() {
    let scratch = Scratch::new();
    for (tolerates, is_fine) in [(true, true), (false, false)] {
        let answers = vec![berth_client::testing::status(403, "not for you")];
        let server = Scripted::start(answers).await;
        let config = kubeconfig(&scratch, "authn", server.url());
        let tolerate = format!("--authentication-tolerate-lookup-failure={tolerates}");
        let flags = flags_of(&["--authentication-kubeconfig", &config, &tolerate]);
        let client = delegate(Some(config.clone().into()), "test", true)
            .await
            .expect("a client");
        let made = Authenticator::new(&flags.authentication, client).await;
        assert_eq!(made.is_ok(), is_fine, "{tolerate}");
    }
}

/// A new certificate is served without a restart, and a broken certificate is not.
#[tokio::test]
async fn certificates_are_reloaded_when_their_files_change() {
    let scratch = Scratch::new();
    let authority = Authority::new("ca");
    let write =
        |(cert, key): (&str, &str)| (scratch.file("tls.crt", cert), scratch.file("tls.key", key));
    let first = authority.issue("first", "x");
    let (cert, key) = write((&first.0, &first.1));
    let port = Port::start(&["--tls-cert-file", &cert, "--tls-private-key-file", &key]).await;
    assert_eq!(
        port.get("/healthz", &[], None).await.certificate,
        first.2.0.to_vec()
    );
    let second = authority.issue("second", "x");
    // Only half of the pair has been replaced yet.
    write((&second.0, &first.1));
    port.certificates.reload();
    assert_eq!(
        port.get("/healthz", &[], None).await.certificate,
        first.2.0.to_vec()
    );
    write((&second.0, &second.1));
    port.certificates.reload();
    assert_eq!(
        port.get("/healthz", &[], None).await.certificate,
        second.2.0.to_vec()
    );
    port.serving.stop().await;
}

/// A self-signed pair is kept in `--cert-dir` and used again.
#[tokio::test]
async fn a_self_signed_pair_is_kept_in_its_directory() {
    let scratch = Scratch::new();
    let directory = scratch.0.path().join("pki").display().to_string();
    let mut certificates = Vec::new();
    for _ in 0..2 {
        let port = Port::start(&["--cert-dir", &directory]).await;
        certificates.push(port.get("/healthz", &[], None).await.certificate);
        port.serving.stop().await;
    }
    assert_eq!(certificates[0], certificates[1]);
    let key = Path::new(&directory).join("kube-scheduler.key");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(key).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn pages_are_those_of_kube_scheduler() {
    let port = Port::start(&["--authorization-always-allow-paths=/*"]).await;
    for (method, path, code, part) in [
        (
            "GET",
            "/healthz?verbose",
            200,
            "[+]ping ok\nhealthz check passed\n",
        ),
        ("GET", "/readyz/shutdown", 200, "ok"),
        (
            "GET",
            "/configz",
            200,
            "{\"componentconfig\":{\"kind\":\"KubeSchedulerConfiguration\"}}",
        ),
        ("GET", "/flagz", 200, "kube-scheduler flagz\nWarning: "),
        (
            "GET",
            "/statusz",
            200,
            "Leader: yes, without leader election\n",
        ),
        ("GET", "/version", 200, "\"gitVersion\":\"v1.36.0+test\""),
        (
            "GET",
            "/metrics/slis",
            200,
            "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1",
        ),
        // The core of this test has ended.
        ("GET", "/metrics", 503, "does not answer"),
        ("DELETE", "/metrics", 200, "metrics reset\n"),
        ("POST", "/metrics", 405, "method not allowed"),
        ("GET", "/debug/pprof/", 404, "404 page not found"),
        ("GET", "/debug/flags/v", 404, "404 page not found"),
        ("GET", "/", 404, "404 page not found"),
        ("GET", "/readyz/ping", 404, "404 page not found"),
    ] {
        let got = port.ask(method, path, &[], None).await;
        assert_eq!(got.code, code, "{method} {path}");
        assert!(got.body.contains(part), "{method} {path}: {}", got.body);
    }
    let accept = "Accept: application/json;as=Statusz;v=v1beta1;g=config.k8s.io";
    let got = port.get("/statusz", &[accept], None).await.json();
    assert_eq!(
        (&got["kind"], &got["apiVersion"], &got["binaryVersion"]),
        (
            &json!("Statusz"),
            &json!("config.k8s.io/v1beta1"),
            &json!("1.38")
        )
    );
    assert_eq!(
        (&got["metadata"]["name"], &got["paths"]),
        (
            &json!("kube-scheduler"),
            &json!([
                "/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"
            ])
        )
    );
    // The deprecated version has a warning, in each encoding.
    for (version, encoding, deprecated) in [
        ("v1alpha1", "json", true),
        ("v1alpha1", "cbor", true),
        ("v1beta1", "json", false),
        ("v1beta1", "yaml", false),
        ("v1beta1", "cbor", false),
    ] {
        for (path, kind) in [("/statusz", "Statusz"), ("/flagz", "Flagz")] {
            let accept =
                format!("Accept: application/{encoding};g=config.k8s.io;v={version};as={kind}");
            let got = port.get(path, &[&accept], None).await;
            let case = format!("{path} {version} {encoding}");
            assert_eq!(got.code, 200, "{case}");
            let head = got.head.to_ascii_lowercase();
            assert!(
                head.contains(&format!("content-type: application/{encoding}")),
                "{case}"
            );
            let warning = head.contains("\r\nwarning: 299 - \"this version of the");
            assert_eq!(warning, deprecated, "{case}: {head}");
        }
    }
    let got = port.get("/flagz", &["Accept: application/xml"], None).await;
    assert_eq!(
        (got.code, &got.json()["reason"]),
        (406, &json!("NotAcceptable"))
    );
    port.serving.stop().await;
}

#[tokio::test]
async fn flags_of_tls_that_cannot_be_are_refused() {
    for (arguments, part) in [
        (&["--tls-min-version=VersionTLS11"][..], "use VersionTLS12"),
        (
            &["--tls-cipher-suites=TLS_NONSENSE"],
            "TLS_AES_128_GCM_SHA256",
        ),
        (&["--tls-curve-preferences=9999"], "29 (X25519)"),
        (&["--tls-cert-file=/nowhere"], "must be given together"),
        (
            &[
                "--tls-cert-file=/nowhere",
                "--tls-private-key-file=/nowhere",
            ],
            "failed to read /nowhere",
        ),
    ] {
        let mut warnings = Vec::new();
        let made = tls::configure(&flags_of(arguments).serving, &mut warnings);
        match made {
            Err(CommandFailure::Usage(text)) => {
                assert!(text.contains(part), "{arguments:?}: {text}")
            }
            _ => panic!("{arguments:?} is accepted"),
        }
    }
    // A setting that affects only some clients causes a warning.
    let flags = flags_of(&[
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA",
        "--tls-curve-preferences=29,25",
        "--tls-min-version=VersionTLS13",
    ]);
    let mut warnings = Vec::new();
    assert!(tls::configure(&flags.serving, &mut warnings).is_ok());
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}
