//! Finds components of a cluster other than the API server: a port of the scheduler.
//!
//! A kubeconfig can name the URL of a component in an extension of its cluster:
//!
//! ```yaml
//! clusters:
//! - name: berth
//!   cluster:
//!     server: https://127.0.0.1:7443
//!     extensions:
//!     - name: berth.dev/scheduler
//!       extension: {url: "http://127.0.0.1:10251"}
//! ```

use crate::connect::over;
use crate::error::chain;
use crate::{ConnectError, Transport, connect_to_component};
use kube::config::{Config, Kubeconfig};
use std::path::{Path, PathBuf};

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub struct Find<'a> {
    /// The URL, if it is known.
    pub url: Option<&'a str>,
    /// The kubeconfig; without one that of `KUBECONFIG`, then the fallback, then `~/.kube/config`.
    pub kubeconfig: Option<&'a Path>,
    /// A kubeconfig that takes precedence over `~/.kube/config`.
    pub fallback_kubeconfig: Option<&'a Path>,
    /// The extension of a cluster that names the URL.
    pub extension: &'a str,
    /// The URL if the kubeconfig does not name one.
    pub default_url: &'a str,
}

/// A component that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its URL.
    pub url: String,
    /// The kubeconfig with the credentials, if there is one.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the present context; `default` when it names none.
    pub namespace: String,
}

/// Finds a component. Nothing is sent.
///
/// # Errors
/// When the kubeconfig cannot be read.
pub fn find(wanted: &Find<'_>) -> Result<Component, ConnectError> {
    let home = || {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        Some(home.join(".kube").join("config")).filter(|path| path.is_file())
    };
    let variable = || {
        let value = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty())?;
        std::env::split_paths(&value).next()
    };
    let kubeconfig = wanted.kubeconfig.map(Path::to_owned);
    let kubeconfig = kubeconfig
        .or_else(variable)
        .or_else(|| wanted.fallback_kubeconfig.map(Path::to_owned))
        .or_else(home);
    let mut found = Component {
        url: wanted.url.unwrap_or(wanted.default_url).to_owned(),
        namespace: "default".to_owned(),
        kubeconfig,
    };
    if let Some(path) = &found.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|e| ConnectError::Kubeconfig {
            path: path.display().to_string(),
            reason: chain(&e),
        })?;
        let (url, namespace) = read(&file, wanted.extension);
        if wanted.url.is_none()
            && let Some(url) = url
        {
            found.url = url;
        }
        found.namespace = namespace.unwrap_or(found.namespace);
    }
    Ok(found)
}

/// The URL of an extension of the present context's cluster, and the namespace of the context.
fn read(file: &Kubeconfig, extension: &str) -> (Option<String>, Option<String>) {
    let current = file.current_context.as_deref().unwrap_or_default();
    let context = file.contexts.iter().find(|context| context.name == current);
    let Some(context) = context.and_then(|context| context.context.as_ref()) else {
        return (None, None);
    };
    let cluster = file.clusters.iter().find(|c| c.name == context.cluster);
    let extensions = cluster
        .and_then(|cluster| cluster.cluster.as_ref())
        .and_then(|cluster| cluster.extensions.as_ref());
    let mut extensions = extensions.into_iter().flatten();
    let url = extensions
        .find(|named| named.name == extension)
        .and_then(|named| named.extension.get("url")?.as_str().map(str::to_owned));
    (url, context.namespace.clone())
}

/// Connects to a component. Credentials are sent over TLS only.
///
/// # Errors
/// When the kubeconfig or the address cannot be used.
pub async fn connect(component: &Component, user_agent: &str) -> Result<Transport, ConnectError> {
    let url = &component.url;
    match &component.kubeconfig {
        Some(kubeconfig) if url.starts_with("https:") => {
            connect_to_component(kubeconfig, url, user_agent).await
        }
        _ => {
            let address = url.parse().map_err(|e| ConnectError::Client {
                server: url.clone(),
                reason: format!("not an address: {e}"),
            })?;
            let mut config = Config::new(address);
            config.accept_invalid_certs = true;
            over(config, user_agent.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_names_the_scheduler_of_its_cluster() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("kubeconfig");
        std::fs::write(
            &path,
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    server: \
             https://127.0.0.1:1\n    extensions:\n    - name: berth.dev/scheduler\n      extension:\n        url: \
             http://127.0.0.1:2\ncontexts:\n- name: c\n  context: {cluster: c, user: u, namespace: shop}\nusers:\n- name: u\n  user: {token: t}\n",
        )
        .expect("a temporary file");
        let wanted = |url, extension| Find {
            url,
            kubeconfig: Some(&path),
            fallback_kubeconfig: None,
            extension,
            default_url: "https://127.0.0.1:10259",
        };
        for (url, extension, expected) in [
            (None, "berth.dev/scheduler", "http://127.0.0.1:2"),
            (None, "berth.dev/other", "https://127.0.0.1:10259"),
            (
                Some("https://127.0.0.1:3"),
                "berth.dev/scheduler",
                "https://127.0.0.1:3",
            ),
        ] {
            let found = find(&wanted(url, extension)).expect("the file can be read");
            assert_eq!(found.url, expected, "{url:?} {extension}");
            assert_eq!(found.namespace, "shop");
        }
    }
}
