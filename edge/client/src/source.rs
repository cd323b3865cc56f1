//! The source of a configuration: a kubeconfig, or the service account of the pod this runs in.

use crate::ConnectError;
use crate::config::{Config, InClusterError};
use crate::error::chain;
use crate::kubeconfig::{Kubeconfig, KubeconfigError};
use http::Uri;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of a configuration, which is read again when it may have changed.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    place: ConfigPlace,
    /// The address of the server, which does not change.
    pub(crate) server: Option<Uri>,
}

/// The place of a configuration.
#[derive(Debug, Clone)]
pub(crate) enum ConfigPlace {
    /// This file, and the context if it is not the current one.
    Kubeconfig(PathBuf, Option<String>),
    /// `KUBECONFIG`, `~/.kube/config`, or, without a context, the service account of the pod.
    Inferred(Option<String>),
    /// The service account of the pod.
    ServiceAccount,
}

/// The reason why no cluster was found.
#[derive(Debug, thiserror::Error)]
enum InferError {
    /// A context is named, and the kubeconfig does not have it or cannot be used.
    #[error(transparent)]
    Kubeconfig(Box<KubeconfigError>),
    #[error("{kubeconfig}; {pod}")]
    Neither {
        kubeconfig: Box<KubeconfigError>,
        pod: InClusterError,
    },
}

impl ConfigSource {
    /// A source whose address is the configured one.
    pub(crate) fn new(place: ConfigPlace) -> Self {
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
            ConfigPlace::Inferred(context) => {
                infer(context.as_deref()).map_err(|e| ConnectError::NoCluster(e.to_string()))?
            }
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
}

/// The connection of the usual kubeconfigs; else, if no context is named, of the pod that this runs in.
///
/// # Errors
/// When there is neither; both reasons.
fn infer(context: Option<&str>) -> Result<Config, InferError> {
    let read = Kubeconfig::read_usual().and_then(|file| file.in_context(context).config());
    let kubeconfig = match read {
        Ok(config) => return Ok(config),
        Err(error) => Box::new(error),
    };
    if context.is_some() {
        return Err(InferError::Kubeconfig(kubeconfig));
    }
    Config::in_cluster().map_err(|pod| InferError::Neither { kubeconfig, pod })
}

/// The connection of this kubeconfig, in its current context if none is named.
///
/// # Errors
/// When the file cannot be used; the error names it.
pub(crate) fn read_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config, ConnectError> {
    Config::from_kubeconfig(path, context).map_err(|e| ConnectError::Kubeconfig {
        path: path.display().to_string(),
        reason: chain(&e),
    })
}

/// Sets the limits of a connection. Returns the path of the token file, which the transport reads.
pub(crate) fn settle(config: &mut Config) -> Option<PathBuf> {
    // Watches are long: their own limit is the timeoutSeconds of the request. Every other request has a deadline
    // in the transport. The sender of a request decides whether, when and how often to send it again.
    config.connect_timeout = Some(Duration::from_secs(10));
    let token = config.user.token_file.take()?;
    // It takes precedence over a token in the kubeconfig, as in client-go.
    config.user.token = None;
    Some(token)
}
