//! `--record DIR`: the recording of a core that starts.

use super::RunOptions;
use crate::exit::CommandFailure;
use berth_config::Config;
use berth_recording::{Limits, Pseudonyms, Recorder, RecorderOptions, RecordingStatus, Start};
use berth_scheduler::Scheduler;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The default limit of the recordings in a directory: 1 GiB.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// The options of recordings.
#[derive(Debug, Clone)]
pub(crate) struct RecordOptions {
    /// The directory.
    pub(crate) dir: PathBuf,
    /// The most bytes of the recordings in it.
    pub(crate) bytes_max: u64,
    /// Whether names and labels are replaced by pseudonyms.
    pub(crate) pseudonyms: bool,
    /// The names that are kept then.
    pub(crate) kept: Vec<String>,
}

/// A recording under way: its figures, and the thread that writes it.
pub(crate) type Recording = (Arc<RecordingStatus>, JoinHandle<()>);

/// Records a core that was just made at this time.
///
/// # Errors
/// When the files cannot be created.
pub(crate) fn start(
    record: &RecordOptions,
    options: &RunOptions,
    scheduler: &mut Scheduler,
    now: berth_api::Time,
) -> Result<Recording, CommandFailure> {
    let unable = |error: std::io::Error| {
        CommandFailure::Environment(format!(
            "failed to record to {}: {error}; give another directory with --record DIR",
            record.dir.display()
        ))
    };
    let pseudonyms = record.pseudonyms.then(Pseudonyms::new).transpose();
    let mut pseudonyms = pseudonyms.map_err(unable)?.map(|p| p.keeping(&record.kept));
    let config = without_secrets(&options.config);
    let configuration = match &mut pseudonyms {
        None => config.to_yaml(),
        Some(pseudonyms) => {
            let mut value = config.to_value();
            pseudonyms.configuration(&mut value);
            // JSON is YAML.
            value.to_string()
        }
    };
    let recorder = RecorderOptions {
        dir: record.dir.clone(),
        limits: Limits::of_bytes(record.bytes_max),
        run: u64::try_from(now.as_nanos() / 1_000_000).unwrap_or(0),
        pseudonyms,
    };
    let flush = options.pod_max_in_unschedulable_pods_duration.as_nanos();
    let start = Start {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at_nanos: now.as_nanos(),
        seed: options.seed,
        evaluator: options.evaluator.to_string(),
        pod_max_in_unschedulable_pods_nanos: u64::try_from(flush).unwrap_or(u64::MAX),
        release: options.config.features().release().to_string(),
        min_compatibility_minor: options.config.features().versions().min_compatibility_minor,
        feature_gates: options.config.features().changed(),
        configuration,
        pseudonyms: record.pseudonyms,
    };
    let (recorder, status, thread) = Recorder::start(recorder, start).map_err(unable)?;
    scheduler.observe(Box::new(recorder));
    tracing::info!(dir = %record.dir.display(), "recording the inputs of the scheduler");
    Ok((status, thread))
}

/// Certificates and keys of extenders are not needed for a replay.
fn without_secrets(config: &Config) -> Config {
    let mut config = config.clone();
    for extender in &mut config.extenders {
        extender.tls = None;
    }
    config
}

/// A configuration that was taken over, as a recording contains it.
pub(crate) fn source(config: &Config) -> Arc<str> {
    without_secrets(config).to_value().to_string().into()
}
