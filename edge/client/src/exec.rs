//! Exec plugins.
//!
//! An exec plugin is a program that prints credentials:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>.

use crate::setting::{Secret, SettingError};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The time limit of an exec plugin, which includes an interactive login.
const EXEC_LIMIT: Duration = Duration::from_secs(300);
/// The versions of the protocol of exec plugins.
const EXEC_VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// An exec plugin has not returned credentials.
#[derive(Debug, thiserror::Error)]
#[error("exec plugin {command}: {fault}")]
pub(crate) struct ExecError {
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
pub(crate) struct ExecStatus {
    pub(crate) expiration_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub(crate) token: Secret,
    #[serde(default)]
    pub(crate) client_certificate_data: String,
    #[serde(default)]
    pub(crate) client_key_data: Secret,
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
    pub(crate) fn of_cluster(
        mut self,
        cluster: impl FnOnce() -> Result<Value, SettingError>,
    ) -> Result<Self, SettingError> {
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
            self.cluster = Some(cluster()?);
        }
        Ok(self)
    }

    /// Calls the plugin.
    ///
    /// # Errors
    /// When it cannot be started, fails, takes too long or prints no credentials.
    pub(crate) fn run(&self) -> Result<ExecStatus, ExecError> {
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
