//! Berth under the name `etcd`, for programs that start etcd before kube-apiserver. The API server of Berth stores the
//! objects itself, so this process answers health checks and stores nothing.

use berth_edge::exit::CommandFailure;
use berth_edge::logs::{self, LogOptions};
use berth_edge::print::print_line;
use berth_edge::signal::{self, StopSignals};
use berth_edge::tasks;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The version of etcd in Kubernetes 1.36, for programs that ask.
const VERSION: &str = "3.6.8";
/// The default address of etcd.
const CLIENTS_DEFAULT: &str = "http://localhost:2379";
/// The number of connections that are open at once; more wait.
const CONNECTIONS_MAX: usize = 64;
/// The head of a request takes no longer.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after accepting has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const HELP: &str = "\
Berth in the place of etcd: answers health checks and stores nothing. The kube-apiserver of Berth keeps the objects.

Usage: etcd [flags]

  --listen-client-urls 'http://localhost:2379'
    The URLs on which /health, /livez, /readyz and /version are answered.
  --version
    Print the version and exit.
  --help
    Print this help and exit.

Other flags of etcd are accepted and have no effect.
";

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
enum EtcdCommand {
    Help,
    Version,
    Serve {
        urls: Vec<String>,
        /// The names of flags without effect.
        ignored: Vec<String>,
    },
}

/// Reads a command line as etcd does: `--flag=value`, `--flag value`, with one dash or two.
fn read(arguments: impl IntoIterator<Item = String>) -> EtcdCommand {
    let mut urls = Vec::new();
    let mut ignored = Vec::new();
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        let flag = argument.trim_start_matches('-');
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (
                flag.to_owned(),
                arguments.next_if(|next| !next.starts_with('-')),
            ),
        };
        match (name.as_str(), value) {
            ("h" | "help", _) => return EtcdCommand::Help,
            ("version", _) => return EtcdCommand::Version,
            ("listen-client-urls", Some(value)) => {
                urls.extend(value.split(',').map(|url| url.trim().to_owned()));
            }
            (_, _) => ignored.push(format!("--{name}")),
        }
    }
    if urls.is_empty() {
        urls.push(CLIENTS_DEFAULT.to_owned());
    }
    EtcdCommand::Serve { urls, ignored }
}

/// The host and the port of a URL.
fn host_of(url: &str) -> Result<&str, CommandFailure> {
    let host = url.strip_prefix("http://").ok_or_else(|| {
        CommandFailure::Usage(format!(
            "--listen-client-urls: {url} is not served; Berth in the place of etcd serves http:// URLs only"
        ))
    })?;
    Ok(host.trim_end_matches('/'))
}

/// Runs the command line: serves until it is stopped, or prints a text.
///
/// # Errors
/// When an address cannot be had.
pub(super) async fn run(arguments: Vec<String>) -> Result<(), CommandFailure> {
    let (urls, ignored) = match read(arguments) {
        EtcdCommand::Help => return berth_edge::print::text(HELP),
        EtcdCommand::Version => {
            return print_line!("etcd Version: {VERSION}\nBerth in the place of etcd");
        }
        EtcdCommand::Serve { urls, ignored } => (urls, ignored),
    };
    logs::init(LogOptions::console(Some(berth_edge::flags::Level(0))));
    if !ignored.is_empty() {
        let flags = ignored.join(", ");
        tracing::info!(
            flags,
            "flags without effect: Berth in the place of etcd stores nothing"
        );
    }
    // Signals are caught before the port is open: a stop right after the start is clean.
    let signals = StopSignals::listen()?;
    for url in &urls {
        let host = host_of(url)?;
        let listener = TcpListener::bind(host).await.map_err(|e| {
            CommandFailure::Environment(format!(
                "--listen-client-urls: failed to listen on {url}: {e}; choose another port"
            ))
        })?;
        let address = listener.local_addr().ok();
        tracing::info!(
            address = address.map(|address: SocketAddr| address.to_string()),
            "answering health checks in the place of etcd; the kube-apiserver of Berth keeps the objects"
        );
        tasks::spawn(serve(listener));
    }
    let why = signals.stop_requested(signal::STOP_PATIENCE).await;
    tracing::info!(why, "stopping");
    Ok(())
}

async fn serve(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tasks::spawn(async move {
            let _place = place;
            let service = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(answer(request.uri().path()))
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection ended with an error");
            }
        });
    }
}

fn answer(path: &str) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/health" => (StatusCode::OK, r#"{"health":"true","reason":""}"#.to_owned()),
        "/livez" | "/readyz" => (StatusCode::OK, "ok\n".to_owned()),
        "/version" => (
            StatusCode::OK,
            format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION}","storage":"none"}}"#),
        ),
        _ => (
            StatusCode::NOT_FOUND,
            "not found: Berth in the place of etcd stores nothing; there are /health, /livez, /readyz and /version\n"
                .to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> EtcdCommand {
        read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_flags_of_etcd_are_read_as_go_reads_them() {
        let serve = |urls: &[&str], ignored: &[&str]| EtcdCommand::Serve {
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            ignored: ignored.iter().map(|flag| (*flag).to_owned()).collect(),
        };
        for (line, expect) in [
            ("", serve(&[CLIENTS_DEFAULT], &[])),
            (
                "--listen-client-urls=http://127.0.0.1:1,http://[::1]:1 --unsafe-no-fsync=true",
                serve(
                    &["http://127.0.0.1:1", "http://[::1]:1"],
                    &["--unsafe-no-fsync"],
                ),
            ),
            (
                "-data-dir /tmp/x --force-new-cluster -listen-client-urls http://127.0.0.1:1",
                serve(
                    &["http://127.0.0.1:1"],
                    &["--data-dir", "--force-new-cluster"],
                ),
            ),
            ("--data-dir /tmp/x --version", EtcdCommand::Version),
            ("-h", EtcdCommand::Help),
        ] {
            assert_eq!(asked(line), expect, "{line}");
        }
    }

    #[test]
    fn only_plain_http_is_served() {
        assert_eq!(
            host_of("http://127.0.0.1:2379/").ok(),
            Some("127.0.0.1:2379")
        );
        for url in ["https://127.0.0.1:2379", "unix:///tmp/etcd.sock", ""] {
            assert!(
                matches!(host_of(url), Err(CommandFailure::Usage(_))),
                "{url}"
            );
        }
    }

    #[test]
    fn health_checks_are_answered() {
        for (path, status) in [
            ("/health", 200),
            ("/readyz", 200),
            ("/version", 200),
            ("/v3/kv/put", 404),
        ] {
            assert_eq!(answer(path).status().as_u16(), status, "{path}");
        }
    }
}
