//! Files of a run: readable only by this user, and removed at the end of the run.

use crate::workload::RunError;
use crate::workload::decode::read_text;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The requests per second of a scheduler without a limit.
pub(crate) const NO_LIMIT: f32 = -1.0;

/// A directory of files.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// A fresh directory.
    pub(crate) fn new() -> Result<Self, RunError> {
        Self::within(&std::env::temp_dir())
    }

    /// A fresh directory in another one.
    pub(crate) fn within(folder: &Path) -> Result<Self, RunError> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let made = builder.prefix("berth-perf-").tempdir_in(folder);
        made.map(Self).map_err(|e| {
            let folder = folder.display();
            RunError::Start(format!("failed to create a directory in {folder}: {e}"))
        })
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the configuration of a scheduler: the workload's, with the connection of this run.
    pub(crate) fn scheduler_config(
        &self,
        base: Option<&Path>,
        kubeconfig: &Path,
    ) -> Result<PathBuf, RunError> {
        let start = |reason: String| RunError::Start(reason);
        let mut config = match base {
            None => json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
            }),
            Some(path) => {
                let shown = path.display();
                let text =
                    read_text(path).map_err(|e| start(format!("failed to read {shown}: {e}")))?;
                serde_saphyr::from_str::<Value>(&text)
                    .map_err(|e| start(format!("malformed YAML in {shown}: {e}")))?
            }
        };
        if !config.is_object() {
            return Err(start(
                "the scheduler configuration is no mapping".to_owned(),
            ));
        }
        // With the default limit on requests, the workload would measure the limit.
        config["clientConnection"] = json!({
            "kubeconfig": kubeconfig.display().to_string(),
            "qps": NO_LIMIT,
            "burst": 5000,
        });
        config["leaderElection"] = json!({"leaderElect": false});
        let path = self.path("scheduler.yaml");
        // JSON is YAML.
        fs::write(&path, config.to_string())
            .map_err(|e| start(format!("failed to write {}: {e}", path.display())))?;
        Ok(path)
    }
}
