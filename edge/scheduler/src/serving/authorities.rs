//! The certificate authorities whose client certificates count: given in files, or looked up in the cluster.

use crate::exit::CommandFailure;
use crate::flags::AuthenticationFlags;
use berth_client::Transport;
use berth_client::request::{self, Resource};
use berth_tls::CertificateUser;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The ConfigMap of an API server with its authentication of clients.
const CONFIG_MAP: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
const CONFIG_MAPS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "configmaps",
};

/// Authorities as PEM, with their verifier of certificates.
#[derive(Default)]
struct Bundle {
    pem: Vec<u8>,
    authorities: berth_tls::Authorities,
}

#[derive(Default)]
struct AuthoritiesState {
    clients: Bundle,
    proxies: Bundle,
    /// The names that proxies may have; empty: any.
    proxy_names: Vec<String>,
}

/// See the module.
pub(super) struct Authorities {
    state: RwLock<AuthoritiesState>,
    client_file: Option<PathBuf>,
    proxy_file: Option<PathBuf>,
    /// The names from the flag, which replace the cluster's names.
    given_names: Vec<String>,
    /// The connection for the authorities that no file contains.
    lookup: Option<Transport>,
}

impl Authorities {
    /// Reads the files, and looks up the rest.
    ///
    /// # Errors
    /// When a file cannot be used, or a failed look-up is not tolerated.
    pub(super) async fn new(
        flags: &AuthenticationFlags,
        client: Option<Transport>,
    ) -> Result<Self, CommandFailure> {
        let lookup = client.filter(|_| !flags.authentication_skip_lookup.value);
        let authorities = Self {
            state: RwLock::default(),
            client_file: flags.client_ca_file.value.clone(),
            proxy_file: flags.requestheader_client_ca_file.value.clone(),
            given_names: flags.requestheader_allowed_names.value.clone(),
            lookup,
        };
        authorities.read_files().map_err(CommandFailure::Usage)?;
        if let Err(error) = authorities.look_up().await {
            let (namespace, name) = CONFIG_MAP;
            let text = format!(
                "failed to look up the cluster's client CA in ConfigMap {namespace}/{name}: {error}"
            );
            if !flags.authentication_tolerate_lookup_failure.value {
                return Err(CommandFailure::Environment(text));
            }
            tracing::warn!("{text}; client certificates are not accepted until this succeeds");
        }
        Ok(authorities)
    }

    /// Reads files and cluster again. Unavailable parts stay unchanged.
    pub(super) async fn reload(&self) {
        if let Err(error) = self.read_files() {
            tracing::warn!(error, "keeping the previous certificate authorities");
        }
        if let Err(error) = self.look_up().await {
            tracing::debug!(
                error,
                "failed to look up the cluster's client CA; keeping the previous one"
            );
        }
    }

    /// The user of a client certificate; `None` when no authority has signed it.
    pub(super) fn client(&self, chain: &[CertificateDer<'static>]) -> Option<CertificateUser> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.clients.authorities.verified(chain)
    }

    /// Returns whether the certificate belongs to a proxy that may name users.
    pub(super) fn is_front_proxy(&self, chain: &[CertificateDer<'static>]) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let names = &state.proxy_names;
        state
            .proxies
            .authorities
            .verified(chain)
            .is_some_and(|proxy| names.is_empty() || names.contains(&proxy.name))
    }

    fn read_files(&self) -> Result<(), String> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|e| format!("failed to read {}: {e}", path.display()))
        };
        if let Some(path) = &self.client_file {
            let pem = read(path)?;
            self.with(|state| state.clients.set(pem))
                .map_err(|e| format!("failed to use {}: {e}", path.display()))?;
        }
        if let Some(path) = &self.proxy_file {
            let pem = read(path)?;
            self.with(|state| {
                state.proxy_names.clone_from(&self.given_names);
                state.proxies.set(pem)
            })
            .map_err(|e| format!("failed to use {}: {e}", path.display()))?;
        }
        Ok(())
    }

    async fn look_up(&self) -> Result<(), String> {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: BTreeMap<String, String>,
        }
        let is_complete = self.client_file.is_some() && self.proxy_file.is_some();
        let Some(client) = self.lookup.as_ref().filter(|_| !is_complete) else {
            return Ok(());
        };
        let (namespace, name) = CONFIG_MAP;
        let request = request::get(CONFIG_MAPS, namespace, name);
        let map: ConfigMap = client.request(&request).await.map_err(|e| e.to_string())?;
        let pem = |key: &str| map.data.get(key).map(|pem| pem.as_bytes().to_vec());
        if let (None, Some(pem)) = (&self.client_file, pem("client-ca-file")) {
            self.with(|state| state.clients.set(pem))?;
        }
        if let (None, Some(pem)) = (&self.proxy_file, pem("requestheader-client-ca-file")) {
            let names = map.data.get("requestheader-allowed-names");
            let names = names.and_then(|names| serde_json::from_str(names).ok());
            self.with(|state| {
                state.proxy_names = names.unwrap_or_default();
                state.proxies.set(pem)
            })?;
        }
        Ok(())
    }

    fn with<T>(&self, act: impl FnOnce(&mut AuthoritiesState) -> T) -> T {
        act(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Bundle {
    /// Takes over authorities that have changed.
    fn set(&mut self, pem: Vec<u8>) -> Result<(), String> {
        if self.pem != pem {
            self.authorities = berth_tls::Authorities::new([&*pem])?;
            self.pem = pem;
        }
        Ok(())
    }
}
