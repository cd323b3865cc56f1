//! `--record DIR`: the options of a recording, and the core that a recording describes.

use crate::exit::Failure;
use crate::runner::{RunOptions, core_options, described_extenders};
use crate::settings;
use berth_framework::registry::Registry;
use berth_framework::{Feature, FeatureGates};
use berth_recording::{Limits, Pseudonyms, Recorder, RecorderOptions, Start, Status};
use berth_scheduler::config::{self, Config};
use berth_scheduler::evaluator::{EvaluatorKind, NoStopwatch};
use berth_scheduler::{Scheduler, SchedulerOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The most bytes of the recordings in a directory, if nothing else is requested: 1 GiB.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// Where the inputs of the core are recorded.
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
pub(crate) type Recording = (Arc<Status>, JoinHandle<()>);

/// Records a core that was just made at this time.
///
/// # Errors
/// When the files cannot be created.
pub(crate) fn start(
    record: &RecordOptions,
    options: &RunOptions,
    scheduler: &mut Scheduler,
    now: berth_api::Time,
) -> Result<Recording, Failure> {
    let unable = |error: std::io::Error| {
        Failure::Environment(format!(
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
        feature_gates: changed_gates(&options.config.features()),
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

/// The gates that differ from their defaults, as `A=true,B=false`.
fn changed_gates(gates: &FeatureGates) -> String {
    let changed = Feature::ALL.iter().copied().filter_map(|feature| {
        let on = gates.enabled(feature);
        (on != feature.default_on()).then(|| format!("{}={on}", feature.name()))
    });
    changed.collect::<Vec<_>>().join(",")
}

/// The options of the core that a recording describes, or of one with another configuration.
///
/// # Errors
/// When the recording is not of a `berth scheduler`, or its configuration is not valid for this Berth.
pub(crate) fn recorded_options(
    start: &Start,
    other: Option<&std::path::Path>,
    registry: &Registry,
) -> Result<SchedulerOptions, Failure> {
    let mut warnings = Vec::new();
    let features = settings::parse_gates(&start.feature_gates, &mut warnings)?;
    let config = match other {
        Some(path) => {
            let (config, more) = settings::read_config(path, features, registry, |_| {})?;
            warnings.extend(more);
            config
        }
        None => {
            let name = "the configuration of the recording";
            let text = &start.configuration;
            let loaded = config::load(text, name, features, registry, |_| {});
            loaded.map_err(Failure::usage)?.0
        }
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let evaluator = match start.evaluator.as_str() {
        "plain" => EvaluatorKind::Plain,
        _ => EvaluatorKind::Incremental,
    };
    let extenders = described_extenders(&config.extenders);
    let flush = Duration::from_nanos(start.pod_max_in_unschedulable_pods_nanos);
    let mut options = core_options(&config, start.seed, evaluator, flush, extenders);
    options.stopwatch = Box::new(NoStopwatch);
    Ok(options)
}
