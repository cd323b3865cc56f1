//! GET over TLS, for the port of a scheduler, whose certificate no test checks.

use berth_tls::AnyServer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// A configuration that accepts every certificate of a server.
pub(crate) fn unchecked() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider)))
        .with_no_client_auth()
}

/// A whole answer, head included; `None` when the connection fails. `header` is one more line of the request.
pub(crate) fn get(address: &str, path: &str, header: &str) -> Option<String> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(unchecked()), name).expect("a client");
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(super::PATIENCE)).ok()?;
    let mut stream = StreamOwned::new(connection, stream);
    let header = match header {
        "" => String::new(),
        header => format!("{header}\r\n"),
    };
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    // The other side may close the connection without a notice.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).ok()
}
