//! The file of `--config`, followed while the scheduler runs.
//!
//! The file is read every two seconds, because a mounted ConfigMap is changed by the replacement of a symbolic link,
//! and at once on SIGHUP. A changed text is applied after two equal reads, so that a partly written file is not
//! applied. Of a valid configuration, a running scheduler applies the replaceable parts; an invalid one is refused as a
//! whole, and the last valid one stays in effect.

use crate::exit::CommandFailure;
use crate::metrics::EdgeMetrics;
use crate::runner::Reconfigurer;
use crate::settings;
use crate::signal::ReloadSignals;
use berth_client::clock::now;
use berth_config::Config;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval of reads of the file.
const READ_EVERY: Duration = Duration::from_secs(2);

/// Reads a configuration, with the flags of the process, and checks all of it.
pub(crate) type LoadConfig =
    Box<dyn Fn(&str) -> Result<(Config, Vec<String>), CommandFailure> + Send + Sync>;

/// The file, and how to read it.
pub(crate) struct ConfigFile {
    /// The path.
    pub(crate) path: PathBuf,
    /// The text at the start of the scheduler.
    pub(crate) text: String,
    /// As at the start.
    pub(crate) load: LoadConfig,
}

/// The configuration in effect, and the last attempt to replace it, for `/configz` and the metrics.
pub(crate) struct ConfigStatus {
    state: Mutex<State>,
    metrics: Option<Arc<EdgeMetrics>>,
}

struct State {
    config: Value,
    /// None without a file.
    conditions: Vec<Condition>,
}

/// A condition as of Kubernetes' objects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
    since: String,
}

/// The file is in effect.
const APPLIED: &str = "Applied";
/// Some fields of the file need a restart.
const RESTART_REQUIRED: &str = "RestartRequired";

impl ConfigStatus {
    /// The configuration at the start of a scheduler, from a file or not.
    pub(crate) fn new(config: &Config, has_file: bool, metrics: Arc<EdgeMetrics>) -> Self {
        let config = config.to_value();
        metrics.config_in_effect(hash_of(&config), true);
        let status = Self {
            state: Mutex::new(State {
                config,
                conditions: Vec::new(),
            }),
            metrics: Some(metrics),
        };
        if has_file {
            status.set(APPLIED, true, "Started", "the file is in effect".to_owned());
            status.set_restart_required(&[]);
        }
        status
    }

    /// The status of a scheduler without `/configz`: `berth up` logs the results of reloads.
    pub(crate) fn unserved(config: &Config) -> Arc<Self> {
        Self::of(config.to_value())
    }

    /// The status with this configuration, without metrics.
    pub(crate) fn of(config: Value) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                config,
                conditions: Vec::new(),
            }),
            metrics: None,
        })
    }

    /// The answer of `/configz`.
    pub(crate) fn page(&self) -> Value {
        let state = self.lock();
        let mut page = json!({"componentconfig": state.config});
        if !state.conditions.is_empty() {
            let conditions = state.conditions.iter().map(|condition| {
                json!({
                    "type": condition.kind,
                    "status": if condition.status { "True" } else { "False" },
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastTransitionTime": condition.since,
                })
            });
            page["conditions"] = conditions.collect();
        }
        page
    }

    /// The file was taken over. The fields `restart` are as they were.
    fn applied(&self, in_effect: &Config, restart: &[&'static str]) {
        let config = in_effect.to_value();
        let hash = hash_of(&config);
        self.lock().config = config;
        self.set(
            APPLIED,
            true,
            "Reloaded",
            "the file is in effect".to_owned(),
        );
        self.set_restart_required(restart);
        let result = if restart.is_empty() {
            "applied"
        } else {
            "restart_required"
        };
        self.count(result, hash, true);
    }

    /// The file was refused.
    fn refused(&self, reason: &str) {
        let hash = hash_of(&self.lock().config);
        let message = format!("{reason}; the last valid configuration stays in effect");
        self.set(APPLIED, false, "Invalid", message);
        self.count("refused", hash, false);
    }

    fn set_restart_required(&self, restart: &[&'static str]) {
        let (reason, message) = if restart.is_empty() {
            ("UpToDate", "no changed field needs a restart".to_owned())
        } else {
            let fields = restart.join(", ");
            let message = format!("restart the scheduler to apply changed fields: {fields}");
            ("FieldsChanged", message)
        };
        self.set(RESTART_REQUIRED, !restart.is_empty(), reason, message);
    }

    /// Sets a condition. Its time is the last change of its status.
    fn set(&self, kind: &'static str, status: bool, reason: &'static str, message: String) {
        let mut state = self.lock();
        let mut known = state.conditions.iter_mut();
        let since = now().rfc3339_micros();
        let new = Condition {
            kind,
            status,
            reason,
            message,
            since,
        };
        match known.find(|condition| condition.kind == kind) {
            Some(known) if known.status == status => {
                let since = std::mem::take(&mut known.since);
                *known = Condition { since, ..new };
            }
            Some(known) => *known = new,
            None => state.conditions.push(new),
        }
    }

    fn count(&self, result: &str, hash: u64, is_file_in_effect: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.config_reloaded(result);
            metrics.config_in_effect(hash, is_file_in_effect);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash of a configuration: the lower 48 bits of FNV-1a over its JSON, which a gauge represents exactly.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn hash_of(config: &Value) -> u64 {
    let text = config.to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash & 0xffff_ffff_ffff
}

/// The texts of a file as they are read, and which of them is next.
struct Texts {
    /// The text that was tried last.
    tried: String,
    /// The text of the last read, if it differs from the tried one.
    seen: Option<String>,
}

impl Texts {
    /// The file has this text. Returns whether to try it: if it differs from the last tried text, and was read twice or
    /// is `forced`.
    fn read(&mut self, text: &str, forced: bool) -> bool {
        if text == self.tried {
            self.seen = None;
            return forced;
        }
        let is_stable = self.seen.as_deref() == Some(text);
        if is_stable || forced {
            self.seen = None;
            text.clone_into(&mut self.tried);
            return true;
        }
        self.seen = Some(text.to_owned());
        false
    }
}

/// Follows the file until the scheduler has ended. `signals` ask to read it at once.
pub(crate) async fn follow(
    file: ConfigFile,
    mut signals: Option<ReloadSignals>,
    mut scheduler: Reconfigurer,
    status: Arc<ConfigStatus>,
) {
    let path = file.path.display().to_string();
    let mut texts = Texts {
        tried: file.text,
        seen: None,
    };
    // A file that cannot be read is reported once.
    let mut unread = false;
    loop {
        let requested = async {
            match &mut signals {
                Some(signals) => signals.requested().await,
                None => std::future::pending().await,
            }
        };
        let forced = tokio::select! {
            () = tokio::time::sleep(READ_EVERY) => false,
            () = requested => true,
        };
        let text = match settings::read_text(&file.path) {
            Ok(text) => text,
            Err(failure) => {
                if forced || !std::mem::replace(&mut unread, true) {
                    tracing::error!(
                        error = failure.text(),
                        "failed to read the configuration again; the last valid one stays in effect"
                    );
                    status.refused(failure.text());
                }
                continue;
            }
        };
        // The file has its last tried text again: the previous conditions hold again.
        let is_back = std::mem::replace(&mut unread, false);
        if !texts.read(&text, forced || is_back) {
            continue;
        }
        match take_over(&file.load, &text, &mut scheduler, &status).await {
            Ok(()) => {}
            Err(failure) => {
                tracing::error!(
                    file = path,
                    error = failure.text(),
                    "the changed configuration is refused; the last valid one stays in effect; correct the file"
                );
                status.refused(failure.text());
            }
        }
    }
}

async fn take_over(
    load: &LoadConfig,
    text: &str,
    scheduler: &mut Reconfigurer,
    status: &ConfigStatus,
) -> Result<(), CommandFailure> {
    let (config, warnings) = load(text)?;
    let result = scheduler.take_over(&config).await?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let restart = config.needs_restart(scheduler.config());
    status.applied(scheduler.config(), &restart);
    tracing::info!(
        pods_left = result.left,
        pods_joined = result.joined,
        "the changed configuration is in effect"
    );
    if !restart.is_empty() {
        tracing::warn!(
            fields = restart.join(", "),
            "some changed fields of the configuration need a restart of the scheduler and are not in effect"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is being written is read in different states; a forced text counts at once, also if it is the same.
    #[test]
    fn a_text_counts_when_it_was_read_twice_or_is_forced() {
        let mut texts = Texts {
            tried: "old".to_owned(),
            seen: None,
        };
        for (text, forced, expected) in [
            ("old", false, false),
            ("ne", false, false),
            ("new", false, false),
            ("new", false, true),
            ("new", false, false),
            ("newer", false, false),
            ("new", false, false),
            ("newer", false, false),
            ("newer", false, true),
            ("newest", true, true),
            ("newest", true, true),
        ] {
            assert_eq!(
                texts.read(text, forced),
                expected,
                "{text}, forced {forced}"
            );
        }
    }

    #[test]
    fn a_hash_is_that_of_fnv_1a_and_exact_in_a_gauge() {
        // FNV-1a of the two bytes "{}" is 0x08f44b07b5901a25.
        let hash = hash_of(&json!({}));
        assert_eq!(hash, 0x4b07_b590_1a25);
        assert_eq!((hash as f64) as u64, hash);
        assert_ne!(hash, hash_of(&json!({"a": 1})));
    }
}
