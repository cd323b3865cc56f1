//! Creates connections: to the API server of a cluster, or to another component.

use crate::config::Config;
use crate::connection::Connection;
use crate::error::chain;
use crate::setting::redacted;
use crate::source::{ConfigPlace, ConfigSource, read_kubeconfig, settle};
use crate::token::TokenFile;
use crate::{ConnectError, Transport, http_client};
use futures_util::future::BoxFuture;
use http::Uri;
use std::path::PathBuf;

/// The files and the context to use.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// The kubeconfig; without one `KUBECONFIG`, `~/.kube/config` and the pod's service account are tried.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; without one its current context.
    pub context: Option<String>,
    /// A server address that replaces the kubeconfig's.
    pub server: Option<String>,
    /// The name of the client in the logs of the server.
    pub user_agent: String,
}

/// Sets up the connection. Its credentials are read again when they change.
async fn connect_from(
    mut source: ConfigSource,
    user_agent: String,
) -> Result<Transport, ConnectError> {
    let (config, token) = source.load()?;
    let server = config.cluster_url.clone();
    source.server.get_or_insert_with(|| server.clone());
    let token = token.map(|path| TokenFile::open(&path)).transpose()?;
    let client = http_client::service(&config).map_err(|e| unusable(&server, &*e))?;
    let connection = Connection::renewable(client, source, &config);
    Ok(Transport::new(
        connection,
        server.to_string(),
        user_agent,
        token,
    ))
}

fn unusable(server: &Uri, error: &dyn std::error::Error) -> ConnectError {
    ConnectError::Client {
        server: server.to_string(),
        reason: chain(error),
    }
}

/// Creates the connection, without sending a request.
///
/// # Errors
/// When no usable configuration is found; the error names the places where it was looked for.
pub fn connect(options: &ConnectOptions) -> BoxFuture<'_, Result<Transport, ConnectError>> {
    Box::pin(async {
        let mut source = ConfigSource::new(match &options.kubeconfig {
            Some(path) => ConfigPlace::Kubeconfig(path.clone(), options.context.clone()),
            None => ConfigPlace::Inferred(options.context.clone()),
        });
        if let Some(server) = &options.server {
            let uri = server.parse().map_err(|e| ConnectError::Client {
                server: redacted(server),
                reason: format!("not an address: {e}"),
            })?;
            source.server = Some(uri);
        }
        connect_from(source, options.user_agent.clone()).await
    })
}

/// Creates the connection with the service account of the pod of this process; `None` outside of a pod.
///
/// # Errors
/// When the service account cannot be used.
pub async fn connect_in_cluster(user_agent: &str) -> Result<Option<Transport>, ConnectError> {
    if Config::in_cluster().is_err() {
        return Ok(None);
    }
    let source = ConfigSource::new(ConfigPlace::ServiceAccount);
    connect_from(source, user_agent.to_owned()).await.map(Some)
}

/// Sets up a connection to a component of the cluster other than the API server, such as the scheduler's own port, with
/// the credentials of the kubeconfig. Its certificate is not checked: components make their own.
///
/// # Errors
/// When the kubeconfig or the address cannot be used.
pub async fn connect_to_component(
    kubeconfig: &std::path::Path,
    url: &str,
    user_agent: &str,
) -> Result<Transport, ConnectError> {
    over_component(read_kubeconfig(kubeconfig, None)?, url, user_agent)
}

/// A connection to a component at this URL, with the credentials of a configuration.
pub(crate) fn over_component(
    mut config: Config,
    url: &str,
    user_agent: &str,
) -> Result<Transport, ConnectError> {
    config.cluster_url = url.parse().map_err(|e| ConnectError::Client {
        server: url.to_owned(),
        reason: format!("not an address: {e}"),
    })?;
    config.accept_invalid_certs = true;
    over(config, user_agent.to_owned())
}

/// Sets up the connection that is configured. It does not change.
pub(crate) fn over(mut config: Config, user_agent: String) -> Result<Transport, ConnectError> {
    config.take_url_user();
    let token = settle(&mut config);
    let server = config.cluster_url.clone();
    let token = token.map(|path| TokenFile::open(&path)).transpose()?;
    let client = http_client::service(&config).map_err(|e| unusable(&server, &*e))?;
    let connection = Connection::fixed(client);
    Ok(Transport::new(
        connection,
        server.to_string(),
        user_agent,
        token,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{self, PODS};
    use crate::testing::{Request, Scripted};
    use serde_json::{Value, json};
    use std::path::Path;
    use tempfile::TempDir;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_with_the_way_out() {
        let error = connect(&ConnectOptions {
            kubeconfig: Some("/nowhere/kubeconfig".into()),
            ..ConnectOptions::default()
        })
        .await
        .err()
        .expect("there is no such file")
        .to_string();
        assert!(error.contains("/nowhere/kubeconfig"), "{error}");
        assert!(error.contains("--kubeconfig FILE"), "{error}");
    }

    /// A kubeconfig in a temporary directory.
    fn kubeconfig(cluster: Value, user: Value) -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "c",
        });
        let path = directory.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).expect("a temporary file");
        (directory, path)
    }

    async fn client(path: &Path) -> Transport {
        let options = ConnectOptions {
            kubeconfig: Some(path.to_owned()),
            ..ConnectOptions::default()
        };
        connect(&options).await.expect("a client")
    }

    fn bearer(request: &Request) -> Option<&str> {
        let lines = request.head.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix("authorization: Bearer "));
        values.next()
    }

    /// User and password of the URL are credentials, and no part of messages.
    #[tokio::test]
    async fn the_user_of_the_url_is_authenticated_and_not_shown() {
        for (user, header) in [
            (json!({}), "Basic dTpwOnE="),
            (json!({"token": "t"}), "Bearer t"),
            (json!({"username": "a", "password": "b"}), "Basic YTpi"),
        ] {
            let mut server = Scripted::start(vec![(200, json!({}))]).await;
            let url = server.url().replace("http://", "http://u:p%3Aq@");
            let (_directory, path) = kubeconfig(json!({"server": url}), user);
            let client = client(&path).await;
            let request = request::get(PODS, "ns", "p");
            client.execute(&request).await.expect("an answer");
            let asked = server.asked.recv().await.expect("a request");
            assert_eq!(asked.header("authorization"), header);
            assert!(!asked.header("host").contains('@'), "{}", asked.head);
            assert!(!client.server().contains('@'), "{}", client.server());
        }
        let (_directory, path) = kubeconfig(json!({"server": "https://u:p@a b"}), json!({}));
        let options = ConnectOptions {
            kubeconfig: Some(path),
            ..ConnectOptions::default()
        };
        let error = connect(&options).await.err().expect("no URL").to_string();
        assert!(error.contains("https://a b"), "{error}");
        assert!(!error.contains("u:p"), "{error}");
    }

    /// Tokens can be in the kubeconfig, in a file, or printed by a program.
    #[cfg(unix)]
    #[tokio::test]
    async fn tokens_are_sent_wherever_they_come_from() {
        let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-a-program"}}"#;
        let exec = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", format!("echo '{credential}'")],
            "interactiveMode": "Never",
        }});
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, "of-a-file\n").expect("a temporary file");
        for (name, user, token) in [
            ("inline", json!({"token": "inline"}), "inline"),
            ("file", json!({"tokenFile": file.path()}), "of-a-file"),
            ("exec", exec, "of-a-program"),
        ] {
            let mut server = Scripted::start(vec![(200, json!({}))]).await;
            let (_directory, path) = kubeconfig(json!({"server": server.url()}), user);
            let client = client(&path).await;
            let answer = client.execute(&request::get(PODS, "default", "p")).await;
            assert!(answer.is_ok(), "{name}: {answer:?}");
            let asked = server.asked.recv().await.expect("a request");
            assert_eq!(bearer(&asked), Some(token), "{name}");
        }
    }

    /// The HTTP proxy opens a tunnel, so that TLS is end-to-end with the API server.
    #[tokio::test]
    async fn a_proxy_of_the_kubeconfig_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let cluster = json!({
            "server": "https://api.example:6443",
            "proxy-url": format!("http://{address}"),
        });
        let (_directory, path) = kubeconfig(cluster, json!({}));
        let client = client(&path).await;
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            Request::read(&mut stream).await.expect("a request")
        });
        let answer = client.execute(&request::get(PODS, "default", "p")).await;
        assert!(answer.is_err(), "the proxy has hung up");
        let asked = asked.await.expect("no panic");
        assert_eq!(asked.line(), "CONNECT api.example:6443");
    }
}
