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

use crate::config::Config;
use crate::connect::{ConnectOptions, over, over_component};
use crate::error::chain;
use crate::kubeconfig::{Kubeconfig, KubeconfigError, usual_files};
use crate::{ConnectError, Transport};
use std::path::{Path, PathBuf};

/// The kubeconfig that a command uses, and its context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeconfigChoice {
    /// The file; without one the files of `KUBECONFIG`, else `~/.kube/config`.
    pub path: Option<PathBuf>,
    /// The context; without one the current context.
    pub context: Option<String>,
}

impl KubeconfigChoice {
    /// The named file; else the files of `KUBECONFIG`; else `fallback` if it exists and has the named context; else
    /// `~/.kube/config`.
    pub fn new(path: Option<&Path>, context: Option<&str>, fallback: &Path) -> Self {
        let is_named = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
        let has_context = || {
            let has_it = |file: Kubeconfig| file.in_context(context).config().is_ok();
            let is_other_one = usual_files().iter().any(|file| file.is_file());
            context.is_none() || !is_other_one || Kubeconfig::read_from(fallback).is_ok_and(has_it)
        };
        let fallback = || {
            let is_used = !is_named && fallback.is_file() && has_context();
            is_used.then(|| fallback.to_owned())
        };
        Self {
            path: path.map(Path::to_owned).or_else(fallback),
            context: context.map(str::to_owned),
        }
    }

    /// The connection options of the context's API server.
    pub fn connect_options(&self, user_agent: String) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.path.clone(),
            context: self.context.clone(),
            server: None,
            user_agent,
        }
    }

    /// The file that is used, for messages.
    pub fn described(&self) -> String {
        let usual = || "KUBECONFIG or ~/.kube/config".to_owned();
        let path = self.path.as_ref();
        path.map_or_else(usual, |path| path.display().to_string())
    }

    /// Reads the files; `None` when no file is named and there is none.
    fn read(&self) -> Result<Option<Kubeconfig>, ConnectError> {
        let read = match &self.path {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read_usual(),
        };
        match read {
            Ok(file) => Ok(Some(file.in_context(self.context.as_deref()))),
            Err(KubeconfigError::NotFound) if self.context.is_none() => Ok(None),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    fn unusable(&self, error: &KubeconfigError) -> ConnectError {
        ConnectError::Kubeconfig {
            path: self.described(),
            reason: chain(error),
        }
    }
}

/// The files and the context to use.
#[derive(Debug, Clone)]
pub struct Find<'a> {
    /// The URL, if it is known.
    pub url: Option<&'a str>,
    /// The kubeconfig and its context.
    pub kubeconfig: KubeconfigChoice,
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
    pub kubeconfig: Option<KubeconfigChoice>,
    /// The namespace of the context; `default` when it names none.
    pub namespace: String,
}

/// Finds a component, without sending a request.
///
/// # Errors
/// When the kubeconfig cannot be read, or does not have the context that is named.
pub fn find(wanted: &Find<'_>) -> Result<Component, ConnectError> {
    let mut found = Component {
        url: wanted.url.unwrap_or(wanted.default_url).to_owned(),
        namespace: "default".to_owned(),
        kubeconfig: None,
    };
    if let Some(file) = wanted.kubeconfig.read()? {
        if wanted.kubeconfig.context.is_some() {
            file.config()
                .map_err(|error| wanted.kubeconfig.unusable(&error))?;
        }
        let extension = file.cluster_extension(wanted.extension);
        let url = extension.and_then(|extension| extension.get("url")?.as_str());
        if wanted.url.is_none()
            && let Some(url) = url
        {
            found.url = url.to_owned();
        }
        if let Some(namespace) = file.namespace() {
            found.namespace = namespace.to_owned();
        }
        found.kubeconfig = Some(wanted.kubeconfig.clone());
    }
    Ok(found)
}

/// Connects to a component. Credentials are sent over TLS only.
///
/// # Errors
/// When the kubeconfig or the address cannot be used.
pub async fn connect(component: &Component, user_agent: &str) -> Result<Transport, ConnectError> {
    let url = &component.url;
    match &component.kubeconfig {
        Some(kubeconfig) if url.starts_with("https:") => {
            let file = kubeconfig.read()?.ok_or(KubeconfigError::NotFound);
            let config = file.and_then(|file| file.config());
            let config = config.map_err(|error| kubeconfig.unusable(&error))?;
            over_component(config, url, user_agent)
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
            kubeconfig: KubeconfigChoice {
                path: Some(path.clone()),
                context: None,
            },
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
        let mut wanted = wanted(None, "berth.dev/scheduler");
        wanted.kubeconfig.context = Some("d".to_owned());
        let error = find(&wanted).expect_err("another context").to_string();
        assert!(
            error.contains("\"d\"") && error.contains("[\"c\"]"),
            "{error}"
        );
    }
}
