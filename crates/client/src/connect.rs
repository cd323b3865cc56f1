//! Finds the cluster: a kubeconfig, or the service account of the pod this runs in.

use crate::error::chain;
use crate::{ConnectError, Transport};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::path::PathBuf;
use std::time::Duration;

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// The kubeconfig; without one `KUBECONFIG`, `~/.kube/config` and the pod's service account are tried.
    pub kubeconfig: Option<PathBuf>,
    /// A server address that replaces the kubeconfig's.
    pub server: Option<String>,
    /// What to be called in the server's logs.
    pub user_agent: String,
}

/// Sets up the connection. Nothing is sent yet.
///
/// # Errors
/// When no usable configuration is found; the error says where it was looked for.
pub async fn connect(options: &ConnectOptions) -> Result<Transport, ConnectError> {
    let mut config = match &options.kubeconfig {
        Some(path) => {
            let unusable = |reason: String| ConnectError::Kubeconfig {
                path: path.display().to_string(),
                reason,
            };
            let file = Kubeconfig::read_from(path).map_err(|e| unusable(chain(&e)))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|e| unusable(chain(&e)))?
        }
        None => Config::infer()
            .await
            .map_err(|e| ConnectError::NoCluster(chain(&e)))?,
    };
    if let Some(server) = &options.server {
        config.cluster_url = server.parse().map_err(|e| ConnectError::Client {
            server: server.clone(),
            reason: format!("not an address: {e}"),
        })?;
    }
    over(config, options.user_agent.clone())
}

/// Sets up the connection with the service account of the pod that this runs in; `None` when it is no pod.
///
/// # Errors
/// When the service account cannot be used.
pub async fn connect_in_cluster(user_agent: &str) -> Result<Option<Transport>, ConnectError> {
    match Config::incluster() {
        Ok(config) => over(config, user_agent.to_owned()).map(Some),
        Err(_) => Ok(None),
    }
}

/// Sets up the connection that is configured.
pub(crate) fn over(mut config: Config, user_agent: String) -> Result<Transport, ConnectError> {
    // Watches are long: their own limit is the timeoutSeconds of the request. Every other request has a deadline
    // in the transport.
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(10));
    // Whoever sends a request knows whether, when and how often to send it again.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).map_err(|e| ConnectError::Client {
        server: server.clone(),
        reason: chain(&e),
    })?;
    Ok(Transport::new(client, server, user_agent))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
