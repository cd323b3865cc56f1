//! Finds the cluster: a kubeconfig, or the service account of the pod this runs in.

use crate::config::Config;
use crate::connection::Connection;
use crate::error::chain;
use crate::setting::redacted;
use crate::token::TokenFile;
use crate::{ConnectError, Transport, http_client};
use futures_util::future::BoxFuture;
use http::Uri;
use std::path::PathBuf;
use std::time::Duration;

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

/// The source of a configuration, which is read again when it may have changed.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    place: ConfigPlace,
    /// The address of the server, which does not change.
    server: Option<Uri>,
}

#[derive(Debug, Clone)]
enum ConfigPlace {
    /// This file, and the context if it is not the current one.
    Kubeconfig(PathBuf, Option<String>),
    /// `KUBECONFIG`, `~/.kube/config`, or, without a context, the service account of the pod.
    Inferred(Option<String>),
    /// The service account of the pod.
    ServiceAccount,
}

impl ConfigSource {
    fn new(place: ConfigPlace) -> Self {
        let server = None;
        Self { place, server }
    }

    /// Reads the configuration, and the path of its token file.
    ///
    /// # Errors
    /// When none can be used; the error names the places.
    pub(crate) fn load(&self) -> Result<(Config, Option<PathBuf>), ConnectError> {
        let mut config = match &self.place {
            ConfigPlace::Kubeconfig(path, context) => read_kubeconfig(path, context.as_deref())?,
            ConfigPlace::Inferred(context) => Config::infer(context.as_deref())
                .map_err(|e| ConnectError::NoCluster(e.to_string()))?,
            ConfigPlace::ServiceAccount => {
                Config::in_cluster().map_err(|e| ConnectError::NoCluster(e.to_string()))?
            }
        };
        config.take_url_user();
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
            config.take_url_user();
        }
        let token = settle(&mut config);
        Ok((config, token))
    }

    /// Sets up the connection. Its credentials are read again when they change.
    async fn connect(mut self, user_agent: String) -> Result<Transport, ConnectError> {
        let (config, token) = self.load()?;
        let server = config.cluster_url.clone();
        self.server.get_or_insert_with(|| server.clone());
        let token = token.map(|path| TokenFile::open(&path)).transpose()?;
        let client = http_client::service(&config).map_err(|e| unusable(&server, &*e))?;
        let connection = Connection::renewable(client, self, &config);
        Ok(Transport::new(
            connection,
            server.to_string(),
            user_agent,
            token,
        ))
    }
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
        source.connect(options.user_agent.clone()).await
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
    source.connect(user_agent.to_owned()).await.map(Some)
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

fn read_kubeconfig(path: &std::path::Path, context: Option<&str>) -> Result<Config, ConnectError> {
    Config::from_kubeconfig(path, context).map_err(|e| ConnectError::Kubeconfig {
        path: path.display().to_string(),
        reason: chain(&e),
    })
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

/// Sets the limits of a connection. Returns the path of the token file, which the transport reads.
fn settle(config: &mut Config) -> Option<PathBuf> {
    // Watches are long: their own limit is the timeoutSeconds of the request. Every other request has a deadline
    // in the transport. The sender of a request decides whether, when and how often to send it again.
    config.connect_timeout = Some(Duration::from_secs(10));
    let token = config.user.token_file.take()?;
    // It takes precedence over a token in the kubeconfig, as in client-go.
    config.user.token = None;
    Some(token)
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
