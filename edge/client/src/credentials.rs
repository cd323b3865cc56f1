//! Credentials of a connection: the headers of each request, and exec plugins.
//!
//! An exec plugin is a program that prints credentials:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>. A token with
//! an expiry is renewed a minute before it, by the next request.

use crate::config::{ClientUser, Config};
use crate::kubeconfig::ClusterEntry;
use crate::setting::SettingError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::Mutex;
use tower::BoxError;

/// The time before its expiry at which a token is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_secs(60);
/// The time limit of an exec plugin, which includes an interactive login.
const EXEC_LIMIT: Duration = Duration::from_secs(300);
/// The versions of the protocol of exec plugins.
const EXEC_VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];
/// The extension of a cluster that an exec plugin receives.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// A text that is not printed by accident.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Secret(pub(crate) String);

impl Secret {
    /// A text from bytes; invalid UTF-8 is replaced, and the text fails when it is used.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

/// The user that requests impersonate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Impersonation {
    pub(crate) user: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    fn headers(&self) -> Result<HeaderMap, BoxError> {
        let mut headers = HeaderMap::new();
        let mut add = |name: &str, value: &str| -> Result<(), BoxError> {
            headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
            Ok(())
        };
        if let Some(user) = &self.user {
            add("impersonate-user", user)?;
        }
        if let Some(uid) = &self.uid {
            add("impersonate-uid", uid)?;
        }
        for group in &self.groups {
            add("impersonate-group", group)?;
        }
        for (key, values) in &self.extra {
            let key = utf8_percent_encode(&key.to_lowercase(), HEADER_NAME).to_string();
            for value in values {
                add(&format!("impersonate-extra-{key}"), value)?;
            }
        }
        Ok(headers)
    }
}

/// The characters that a header's name cannot have.
const HEADER_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// An exec plugin has not returned credentials.
#[derive(Debug, thiserror::Error)]
#[error("exec plugin {command}: {fault}")]
struct ExecError {
    command: String,
    fault: ExecFault,
}

#[derive(Debug, thiserror::Error)]
enum ExecFault {
    #[error("interactiveMode is Always, and standard input is not a terminal")]
    NoTerminal,
    #[error("failed to start: {0}")]
    Start(std::io::Error),
    /// With the hint of the kubeconfig.
    #[error("failed to start: {0}\n{1}")]
    NotInstalled(std::io::Error, String),
    #[error("has no standard output")]
    NoOutput,
    #[error("failed to read its output: {0}")]
    Read(std::io::Error),
    #[error("took longer than {0} s")]
    TooLong(u64),
    #[error("failed to wait for its end: {0}")]
    Wait(std::io::Error),
    #[error("failed with {0}")]
    Failed(ExitStatus),
    #[error("failed to parse its output as ExecCredential: {0}")]
    Malformed(serde_json::Error),
    #[error("its output is {kind} {version}, not ExecCredential {expected}")]
    OtherKind {
        kind: String,
        version: String,
        expected: String,
    },
    #[error("its output has no status")]
    NoStatus,
    #[error("its output has only one of clientCertificateData and clientKeyData")]
    HalfPair,
    #[error("its output has neither a token nor a client certificate")]
    NoCredentials,
}

/// An exec plugin, as in a kubeconfig.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exec {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    command: PathBuf,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<ExecVariable>>,
    #[serde(default)]
    install_hint: String,
    #[serde(default)]
    interactive_mode: InteractiveMode,
    #[serde(default)]
    provide_cluster_info: bool,
    /// The cluster that the plugin receives.
    #[serde(skip)]
    cluster: Option<Value>,
}

impl Eq for Exec {}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ExecVariable {
    name: String,
    #[serde(default)]
    value: String,
}

/// Whether a plugin may prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum InteractiveMode {
    Never,
    #[default]
    IfAvailable,
    Always,
}

/// The answer of a plugin.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    expiration_timestamp: Option<Timestamp>,
    #[serde(default)]
    token: Secret,
    #[serde(default)]
    client_certificate_data: String,
    #[serde(default)]
    client_key_data: Secret,
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

impl Exec {
    /// A relative path with a separator is relative to the directory of the kubeconfig, as in client-go.
    pub(crate) fn resolve(&mut self, directory: &Path) {
        if self.command.components().count() > 1 {
            self.command = directory.join(&self.command);
        }
    }

    /// Checks the plugin, and adds the cluster if `provideClusterInfo` is set.
    ///
    /// # Errors
    /// When a field cannot be used; the error begins with its name.
    pub(crate) fn of_cluster(mut self, cluster: &ClusterEntry) -> Result<Self, SettingError> {
        if self.command.as_os_str().is_empty() {
            return Err(SettingError::Required {
                field: "exec.command",
                because: "",
            });
        }
        if !EXEC_VERSIONS.contains(&self.api_version.as_str()) {
            return Err(SettingError::Unsupported {
                field: "exec.apiVersion",
                value: self.api_version,
                instead: format!("supported: {}", EXEC_VERSIONS.join(", ")),
            });
        }
        if self.provide_cluster_info {
            let mut extensions = cluster.extensions.iter();
            let extension = extensions.find(|named| named.name == EXEC_EXTENSION);
            let authority = cluster.authority_pem()?;
            let described = ExecCluster {
                server: &cluster.server,
                tls_server_name: cluster.tls_server_name.as_deref(),
                insecure_skip_tls_verify: cluster.insecure_skip_tls_verify,
                certificate_authority_data: authority.map(|pem| STANDARD.encode(pem)),
                proxy_url: cluster.proxy_url.as_deref(),
                disable_compression: cluster.disable_compression,
                config: extension.map(|named| &named.extension),
            };
            let described = serde_json::to_value(described);
            let described = described.map_err(|error| SettingError::Json {
                field: "exec.provideClusterInfo",
                error,
            });
            self.cluster = Some(described?);
        }
        Ok(self)
    }

    /// Calls the plugin.
    ///
    /// # Errors
    /// When it cannot be started, fails, takes too long or prints no credentials.
    fn run(&self) -> Result<ExecStatus, ExecError> {
        self.credentials().map_err(|fault| ExecError {
            command: self.command.display().to_string(),
            fault,
        })
    }

    fn credentials(&self) -> Result<ExecStatus, ExecFault> {
        // The plugin may ask a person only at a terminal.
        let has_terminal = std::io::stdin().is_terminal();
        let is_interactive = match self.interactive_mode {
            InteractiveMode::Never => false,
            InteractiveMode::IfAvailable => has_terminal,
            InteractiveMode::Always if has_terminal => true,
            InteractiveMode::Always => return Err(ExecFault::NoTerminal),
        };
        let mut info = json!({
            "kind": "ExecCredential",
            "apiVersion": self.api_version,
            "spec": {"interactive": is_interactive},
        });
        if let Some(cluster) = &self.cluster {
            info["spec"]["cluster"] = cluster.clone();
        }
        let variables = self.env.iter().flatten();
        let child = Command::new(&self.command)
            .args(self.args.iter().flatten())
            .envs(variables.map(|variable| (&variable.name, &variable.value)))
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if is_interactive {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        let child = child.map_err(|error| match self.install_hint.as_str() {
            // The hint of the kubeconfig states how to install the plugin.
            hint if error.kind() == std::io::ErrorKind::NotFound && !hint.is_empty() => {
                ExecFault::NotInstalled(error, hint.to_owned())
            }
            _ => ExecFault::Start(error),
        })?;
        self.status(&output(child)?)
    }

    fn status(&self, printed: &[u8]) -> Result<ExecStatus, ExecFault> {
        let answer: ExecCredential =
            serde_json::from_slice(printed).map_err(ExecFault::Malformed)?;
        if answer.kind != "ExecCredential" || answer.api_version != self.api_version {
            return Err(ExecFault::OtherKind {
                kind: answer.kind,
                version: answer.api_version,
                expected: self.api_version.clone(),
            });
        }
        let status = answer.status.ok_or(ExecFault::NoStatus)?;
        let has_certificate = !status.client_certificate_data.is_empty();
        let has_key = !status.client_key_data.0.is_empty();
        if has_certificate != has_key {
            return Err(ExecFault::HalfPair);
        }
        if !has_certificate && status.token.0.is_empty() {
            return Err(ExecFault::NoCredentials);
        }
        Ok(status)
    }
}

/// The output of a program, within the limit.
fn output(mut child: Child) -> Result<Vec<u8>, ExecFault> {
    let Some(mut stdout) = child.stdout.take() else {
        return Err(ExecFault::NoOutput);
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut printed = Vec::new();
        let read = stdout.read_to_end(&mut printed);
        // The receiver was dropped if the limit has passed.
        let _ = sender.send(read.map(|_| printed));
    });
    let printed = match receiver.recv_timeout(EXEC_LIMIT) {
        Ok(Ok(printed)) => printed,
        Ok(Err(error)) => return Err(ExecFault::Read(error)),
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(ExecFault::TooLong(EXEC_LIMIT.as_secs()));
        }
    };
    let status = child.wait().map_err(ExecFault::Wait)?;
    if status.success() {
        Ok(printed)
    } else {
        Err(ExecFault::Failed(status))
    }
}

/// The headers of requests, and the client certificate of the connection.
pub(crate) struct Credentials {
    pub(crate) headers: Headers,
    /// The certificate and its key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
}

/// The headers of each request. Clones share a token that is renewed.
#[derive(Clone)]
pub(crate) struct Headers {
    fixed: HeaderMap,
    renewed: Option<Arc<Renewed>>,
}

/// A token of an exec plugin with an end.
struct Renewed {
    exec: Exec,
    current: Mutex<(HeaderValue, Timestamp)>,
}

impl Credentials {
    /// The credentials of a configuration. An exec plugin is called.
    ///
    /// # Errors
    /// When the plugin fails, or a value cannot be in a header.
    pub(crate) fn of(config: &Config) -> Result<Self, BoxError> {
        let user: &ClientUser = &config.user;
        let mut credentials = Self {
            headers: Headers {
                fixed: user.impersonation.headers()?,
                renewed: None,
            },
            identity: user.identity.clone(),
        };
        let fixed = &mut credentials.headers.fixed;
        // The order of precedence is client-go's.
        if let Some((name, password)) = &user.basic {
            let encoded = STANDARD.encode(format!("{name}:{}", password.0));
            fixed.insert(AUTHORIZATION, sensitive(&format!("Basic {encoded}"))?);
        } else if let Some(token) = &user.token {
            fixed.insert(AUTHORIZATION, bearer(token)?);
        } else if let Some(exec) = &user.exec {
            let status = exec.run()?;
            if !status.client_certificate_data.is_empty() {
                let certificate = status.client_certificate_data.into_bytes();
                credentials.identity = Some((certificate, status.client_key_data));
            }
            match (status.token, status.expiration_timestamp) {
                (token, _) if token.0.is_empty() => {}
                (token, None) => {
                    // A token without an end is never renewed.
                    fixed.insert(AUTHORIZATION, bearer(&token)?);
                }
                (token, Some(end)) => {
                    credentials.headers.renewed = Some(Arc::new(Renewed {
                        exec: exec.clone(),
                        current: Mutex::new((bearer(&token)?, end)),
                    }));
                }
            }
        }
        Ok(credentials)
    }
}

impl Headers {
    /// Adds the headers to a request. A token that expires soon is renewed first.
    ///
    /// # Errors
    /// When it cannot be renewed.
    pub(crate) async fn add_to(&self, headers: &mut HeaderMap) -> Result<(), BoxError> {
        for (name, value) in &self.fixed {
            headers.append(name.clone(), value.clone());
        }
        if let Some(renewed) = &self.renewed {
            headers.insert(AUTHORIZATION, renewed.header().await?);
        }
        Ok(())
    }
}

impl Renewed {
    async fn header(&self) -> Result<HeaderValue, BoxError> {
        let mut current = self.current.lock().await;
        if Timestamp::now() + RENEW_BEFORE >= current.1 {
            // The plugin is a program, which takes its time.
            let exec = self.exec.clone();
            let status = tokio::task::spawn_blocking(move || exec.run()).await??;
            // A token without an expiry is used for as long as the connection.
            let end = status.expiration_timestamp.unwrap_or(Timestamp::MAX);
            *current = (bearer(&status.token)?, end);
        }
        Ok(current.0.clone())
    }
}

fn bearer(token: &Secret) -> Result<HeaderValue, BoxError> {
    sensitive(&format!("Bearer {}", token.0))
}

fn sensitive(text: &str) -> Result<HeaderValue, BoxError> {
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
