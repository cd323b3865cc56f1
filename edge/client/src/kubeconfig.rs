//! Kubeconfig files, as client-go reads them: the fields that a connection needs.
//!
//! The format: <https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>.

use crate::config::{ClientUser, Config, Impersonation};
use crate::exec::Exec;
use crate::setting::{Secret, SettingError, certificates, redacted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The extension of a cluster that an exec plugin receives.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The reason why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error("failed to read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("failed to parse {}: {source}", path.display())]
    Parse {
        path: PathBuf,
        source: Box<serde_saphyr::Error>,
    },
    #[error("no file at KUBECONFIG or ~/.kube/config")]
    NotFound,
    #[error("current-context is not set")]
    NoCurrentContext,
    #[error("context {0:?} is not in the file; its contexts are {1:?}")]
    UnknownContext(String, Vec<String>),
    #[error("cluster {0:?} of the context is not in the file")]
    UnknownCluster(String),
    #[error("clusters[{0:?}].cluster.{1}")]
    Cluster(String, SettingError),
    #[error("users[{0:?}].user.{1}")]
    User(String, SettingError),
}

/// A kubeconfig, or several that are merged.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct Kubeconfig {
    #[serde(deserialize_with = "null_is_empty")]
    clusters: Vec<NamedCluster>,
    #[serde(deserialize_with = "null_is_empty")]
    contexts: Vec<NamedContext>,
    #[serde(deserialize_with = "null_is_empty")]
    users: Vec<NamedUser>,
    current_context: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Option<ClusterEntry>,
}

#[derive(Debug, Clone, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Option<ContextEntry>,
}

#[derive(Debug, Clone, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<UserEntry>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ContextEntry {
    cluster: String,
    user: Option<String>,
    namespace: Option<String>,
}

/// The server, and how its certificate is checked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(crate) struct ClusterEntry {
    pub(crate) server: String,
    pub(crate) insecure_skip_tls_verify: bool,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) certificate_authority_data: Option<String>,
    pub(crate) proxy_url: Option<String>,
    pub(crate) disable_compression: bool,
    pub(crate) tls_server_name: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    pub(crate) extensions: Vec<NamedExtension>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NamedExtension {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) extension: Value,
}

/// The cluster as a plugin receives it.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ExecCluster<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_tls_verify: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy_url: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_compression: bool,
    config: Option<&'a Value>,
}

/// A user: its certificate or other credentials, and the impersonated user. The parts are read from one entry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Value")]
struct UserEntry {
    credentials: CredentialsEntry,
    certificate: CertificateEntry,
    impersonation: ImpersonationEntry,
}

impl TryFrom<Value> for UserEntry {
    type Error = serde_json::Error;

    fn try_from(entry: Value) -> Result<Self, serde_json::Error> {
        if entry.is_null() {
            return Ok(Self::default());
        }
        Ok(Self {
            credentials: CredentialsEntry::deserialize(&entry)?,
            certificate: CertificateEntry::deserialize(&entry)?,
            impersonation: ImpersonationEntry::deserialize(&entry)?,
        })
    }
}

/// Passwords and tokens, and their sources. The spelling of the names is client-go's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct CredentialsEntry {
    username: Option<String>,
    password: Option<Secret>,
    token: Option<Secret>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    auth_provider: Option<AuthProvider>,
    exec: Option<Exec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct CertificateEntry {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<Secret>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct ImpersonationEntry {
    r#as: Option<String>,
    as_uid: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    as_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty")]
    as_user_extra: BTreeMap<String, Vec<String>>,
}

/// The provider of credentials in client-go before exec plugins.
#[derive(Debug, Clone, Deserialize)]
struct AuthProvider {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    config: BTreeMap<String, String>,
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The kubeconfigs if none is named: the files of `KUBECONFIG`, else `~/.kube/config`.
pub(crate) fn usual_files() -> Vec<PathBuf> {
    if let Some(value) = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()) {
        let paths = std::env::split_paths(&value);
        return paths.filter(|path| !path.as_os_str().is_empty()).collect();
    }
    let home = ["HOME", "USERPROFILE"]
        .into_iter()
        .find_map(std::env::var_os);
    let file = home.map(|home| Path::new(&home).join(".kube").join("config"));
    file.into_iter().collect()
}

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or is not a kubeconfig.
    pub(crate) fn read_from(path: &Path) -> Result<Self, KubeconfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| KubeconfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        // An empty file is a kubeconfig without entries.
        let parsed: Result<Option<Self>, _> = serde_saphyr::from_str(&text);
        let parsed = parsed.map_err(|source| KubeconfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        let mut file = parsed.unwrap_or_default();
        file.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(file)
    }

    /// Reads and merges the usual files. Files that do not exist are skipped.
    ///
    /// # Errors
    /// When there is none, or one cannot be used.
    pub(crate) fn read_usual() -> Result<Self, KubeconfigError> {
        let mut merged: Option<Self> = None;
        for path in usual_files() {
            match Self::read_from(&path) {
                Ok(file) => match &mut merged {
                    Some(merged) => merged.merge(file),
                    None => merged = Some(file),
                },
                Err(KubeconfigError::Read { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        merged.ok_or(KubeconfigError::NotFound)
    }

    /// Adds the entries of another file. The first file with an entry of a name takes precedence.
    fn merge(&mut self, other: Self) {
        fn add<T>(to: &mut Vec<T>, from: Vec<T>, name: fn(&T) -> &str) {
            for entry in from {
                if !to.iter().any(|known| name(known) == name(&entry)) {
                    to.push(entry);
                }
            }
        }
        add(&mut self.clusters, other.clusters, |entry| &entry.name);
        add(&mut self.contexts, other.contexts, |entry| &entry.name);
        add(&mut self.users, other.users, |entry| &entry.name);
        let current = self.current_context.take().filter(|name| !name.is_empty());
        self.current_context = current.or(other.current_context);
    }

    /// Paths of a file are relative to its directory.
    fn resolve(&mut self, directory: &Path) {
        let resolve = |path: &mut Option<PathBuf>| {
            *path = path.take().filter(|path| !path.as_os_str().is_empty());
            if let Some(path) = path {
                *path = directory.join(&*path);
            }
        };
        let clusters = self.clusters.iter_mut();
        for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
            resolve(&mut cluster.certificate_authority);
        }
        let users = self.users.iter_mut();
        for user in users.filter_map(|named| named.user.as_mut()) {
            resolve(&mut user.certificate.client_certificate);
            resolve(&mut user.certificate.client_key);
            resolve(&mut user.credentials.token_file);
            if let Some(exec) = &mut user.credentials.exec {
                exec.resolve(directory);
            }
        }
    }

    /// The file with this context as the current one, if given.
    pub(crate) fn in_context(mut self, context: Option<&str>) -> Self {
        if let Some(context) = context {
            self.current_context = Some(context.to_owned());
        }
        self
    }

    fn context(&self) -> Option<&ContextEntry> {
        let current = self.current_context.as_deref()?;
        let context = self.contexts.iter().find(|named| named.name == current)?;
        context.context.as_ref()
    }

    fn cluster(&self, name: &str) -> Option<&ClusterEntry> {
        let cluster = self.clusters.iter().find(|named| named.name == name)?;
        cluster.cluster.as_ref()
    }

    /// The namespace of the current context.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.context()?.namespace.as_deref()
    }

    /// An extension of the cluster of the current context.
    pub(crate) fn cluster_extension(&self, name: &str) -> Option<&Value> {
        let cluster = self.cluster(&self.context()?.cluster)?;
        let named = cluster.extensions.iter().find(|named| named.name == name)?;
        Some(&named.extension)
    }

    /// The connection of the current context. Exec plugins are not called.
    ///
    /// # Errors
    /// When an entry is missing or cannot be used; the error names it.
    pub(crate) fn config(&self) -> Result<Config, KubeconfigError> {
        let current = self.current_context.as_deref().unwrap_or_default();
        if current.is_empty() {
            return Err(KubeconfigError::NoCurrentContext);
        }
        let context = self.context();
        let context = context.ok_or_else(|| {
            let known = self.contexts.iter().map(|named| named.name.clone());
            KubeconfigError::UnknownContext(current.to_owned(), known.collect())
        })?;
        let cluster = self.cluster(&context.cluster);
        let cluster =
            cluster.ok_or_else(|| KubeconfigError::UnknownCluster(context.cluster.clone()))?;
        // As in client-go, a context without a user, or with a missing user, is anonymous.
        let name = context.user.as_deref().unwrap_or_default();
        let user = self.users.iter().find(|named| named.name == name);
        let user = user.and_then(|named| named.user.clone());
        let mut config = cluster
            .config()
            .map_err(|reason| KubeconfigError::Cluster(context.cluster.clone(), reason))?;
        config.user = user
            .unwrap_or_default()
            .user(cluster)
            .map_err(|reason| KubeconfigError::User(name.to_owned(), reason))?;
        Ok(config)
    }
}

impl Config {
    /// The connection of a kubeconfig, in its current context if none is named.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub(crate) fn from_kubeconfig(
        path: &Path,
        context: Option<&str>,
    ) -> Result<Self, KubeconfigError> {
        Kubeconfig::read_from(path)?.in_context(context).config()
    }
}

impl ClusterEntry {
    /// The connection, without credentials.
    ///
    /// # Errors
    /// When a field cannot be used; the error begins with its name.
    pub(crate) fn config(&self) -> Result<Config, SettingError> {
        if self.server.is_empty() {
            return Err(SettingError::Required {
                field: "server",
                because: "",
            });
        }
        let server = self.server.parse::<Uri>();
        let server = server.map_err(|error| SettingError::Url {
            field: "server",
            url: redacted(&self.server),
            error,
        })?;
        if server.scheme().is_none() || server.authority().is_none() {
            return Err(SettingError::Scheme {
                field: "server",
                url: redacted(&self.server),
            });
        }
        let mut config = Config::new(server);
        config.accept_invalid_certs = self.insecure_skip_tls_verify;
        config.tls_server_name = self.tls_server_name.clone();
        config.root_cert = self.authorities()?;
        config.proxy_url = crate::proxy::of(self.proxy_url.as_deref(), &config.cluster_url)?;
        Ok(config)
    }

    /// The certificate authority, as PEM; the data take precedence over the file.
    pub(crate) fn authority_pem(&self) -> Result<Option<Vec<u8>>, SettingError> {
        data_or_file(
            "certificate-authority",
            self.certificate_authority_data.as_deref(),
            self.certificate_authority.as_deref(),
        )
    }

    /// The cluster as an exec plugin receives it.
    ///
    /// # Errors
    /// When the certificate authority cannot be read; the error begins with the name of the field.
    pub(crate) fn exec_cluster(&self) -> Result<Value, SettingError> {
        let mut extensions = self.extensions.iter();
        let extension = extensions.find(|named| named.name == EXEC_EXTENSION);
        let authority = self.authority_pem()?;
        let described = ExecCluster {
            server: &self.server,
            tls_server_name: self.tls_server_name.as_deref(),
            insecure_skip_tls_verify: self.insecure_skip_tls_verify,
            certificate_authority_data: authority.map(|pem| STANDARD.encode(pem)),
            proxy_url: self.proxy_url.as_deref(),
            disable_compression: self.disable_compression,
            config: extension.map(|named| &named.extension),
        };
        serde_json::to_value(described).map_err(|error| SettingError::Json {
            field: "exec.provideClusterInfo",
            error,
        })
    }

    fn authorities(&self) -> Result<Option<Vec<CertificateDer<'static>>>, SettingError> {
        let Some(pem) = self.authority_pem()? else {
            return Ok(None);
        };
        let found = certificates(&pem).map(Some);
        found.map_err(|error| SettingError::Certificate {
            field: "certificate-authority",
            error,
        })
    }
}

impl UserEntry {
    /// The user of a connection to this cluster.
    ///
    /// # Errors
    /// When a field cannot be used; the error begins with its name.
    fn user(self, cluster: &ClusterEntry) -> Result<ClientUser, SettingError> {
        let credentials = self.credentials;
        let mut token = credentials.token.filter(|token| !token.0.is_empty());
        if let Some(provider) = &credentials.auth_provider {
            token = token.or(Some(provider.token()?));
        }
        let exec = match credentials.exec {
            Some(exec) => Some(exec.of_cluster(|| cluster.exec_cluster())?),
            None => None,
        };
        let basic = credentials.username.zip(credentials.password);
        Ok(ClientUser {
            identity: self.certificate.identity()?,
            basic: basic.filter(|(name, _)| !name.is_empty()),
            token,
            token_file: credentials.token_file,
            exec,
            impersonation: Impersonation {
                user: self.impersonation.r#as,
                uid: self.impersonation.as_uid,
                groups: self.impersonation.as_groups,
                extra: self.impersonation.as_user_extra,
            },
        })
    }
}

impl CertificateEntry {
    /// The client certificate and its key, in PEM.
    fn identity(&self) -> Result<Option<(Vec<u8>, Secret)>, SettingError> {
        let certificate_pem = data_or_file(
            "client-certificate",
            self.client_certificate_data.as_deref(),
            self.client_certificate.as_deref(),
        )?;
        let key_pem = data_or_file(
            "client-key",
            self.client_key_data.as_ref().map(|key| key.0.as_str()),
            self.client_key.as_deref(),
        )?;
        match (certificate_pem, key_pem) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate, Secret::of(key)))),
            (Some(_), None) => Err(SettingError::Required {
                field: "client-key",
                because: ": there is a client-certificate",
            }),
            (None, Some(_)) => Err(SettingError::Required {
                field: "client-certificate",
                because: ": there is a client-key",
            }),
        }
    }
}

impl AuthProvider {
    /// The token of an OpenID Connect provider. It is not renewed.
    fn token(&self) -> Result<Secret, SettingError> {
        let id_token = self.config.get("id-token").cloned();
        match (self.name.as_str(), id_token) {
            ("oidc", Some(token)) => Ok(Secret(token)),
            (name, _) => Err(SettingError::Unsupported {
                field: "auth-provider",
                value: name.to_owned(),
                instead: "use an exec plugin, such as kubelogin or gke-gcloud-auth-plugin"
                    .to_owned(),
            }),
        }
    }
}

/// Base64 data, or the content of a file; the data take precedence, as in client-go.
fn data_or_file(
    field: &'static str,
    data: Option<&str>,
    path: Option<&Path>,
) -> Result<Option<Vec<u8>>, SettingError> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        // Go's decoder skips line breaks.
        let data: String = data.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let decoded = STANDARD.decode(data);
        let decoded = decoded.map(Some);
        return decoded.map_err(|error| SettingError::Base64 { field, error });
    }
    let Some(path) = path else { return Ok(None) };
    let read = std::fs::read(path);
    read.map(Some).map_err(|error| SettingError::Read {
        field,
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests;
