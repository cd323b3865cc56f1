//! The core that a recording describes.

use crate::exit::CommandFailure;
use crate::runner::{core_options, described_extenders};
use crate::settings;
use berth_api::Release;
use berth_core::GROUP_GATES;
use berth_framework::FeatureGates;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::Start;
use berth_scheduler::NoStopwatch;
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::{Reconfiguration, SchedulerOptions};
use std::time::Duration;

/// The parts of a configuration that a recorded core applied.
///
/// # Errors
/// This Berth cannot read the configuration.
pub fn recorded_reconfiguration(
    configuration: &str,
    features: FeatureGates,
    registry: &Registry,
) -> Result<Reconfiguration, String> {
    let name = "the configuration of the recording";
    let loaded = berth_config::load(configuration, name, features, registry, |_| {});
    let (config, _) = loaded.map_err(|errors| errors.to_string())?;
    let extenders = described_extenders(&config.extenders);
    Ok(config.reconfiguration(extenders, configuration.into()))
}

/// The release that a recording is of.
///
/// # Errors
/// This Berth does not have the release.
pub fn versions_of(start: &Start) -> Result<Versions, CommandFailure> {
    let given = |text: &str| {
        if text.is_empty() {
            Vec::new()
        } else {
            vec![text.to_owned()]
        }
    };
    let min = match start.min_compatibility_minor {
        0 => String::new(),
        minor => format!("1.{minor}"),
    };
    Versions::read(&given(&start.release), &given(&min), Release::OLDEST)
        .map_err(|error| CommandFailure::Usage(format!("the recording: {error}")))
}

/// The options of the core that a recording describes, or of one with another configuration.
///
/// # Errors
/// The recording is not of a `berth scheduler`, or its configuration is not valid for this Berth.
pub fn recorded_options(
    start: &Start,
    other: Option<&std::path::Path>,
    registry: &Registry,
) -> Result<SchedulerOptions, CommandFailure> {
    let features = recorded_gates(start, versions_of(start)?)?;
    options_with(start, features, other, registry)
}

/// The gates of a recording, in a release. Gates of groups of pods are in every release, because `berth up` has them
/// on.
///
/// # Errors
/// The release does not accept them.
pub fn recorded_gates(start: &Start, versions: Versions) -> Result<FeatureGates, CommandFailure> {
    let (mut others, mut of_groups) = (Vec::new(), Vec::new());
    for entry in start.feature_gates.split(',') {
        let (name, on) = entry.split_once('=').unwrap_or((entry, "true"));
        match GROUP_GATES.into_iter().find(|gate| gate.name() == name) {
            Some(gate) => of_groups.push((gate, on == "true")),
            None => others.push(entry),
        }
    }
    let features = settings::parse_gates(&others.join(","), versions, &mut Vec::new())?;
    let of_groups = of_groups.into_iter();
    Ok(of_groups.fold(features, |features, (gate, on)| features.with(gate, on)))
}

/// The options of the core that a recording describes, with these gates.
///
/// # Errors
/// As [`recorded_options`].
pub fn options_with(
    start: &Start,
    features: FeatureGates,
    other: Option<&std::path::Path>,
    registry: &Registry,
) -> Result<SchedulerOptions, CommandFailure> {
    let mut warnings = Vec::new();
    let config = match other {
        Some(path) => {
            let (config, more) = settings::read_config(path, features, registry, |_| {})?;
            warnings.extend(more);
            config
        }
        None => {
            let name = "the configuration of the recording";
            let text = &start.configuration;
            let loaded = berth_config::load(text, name, features, registry, |_| {});
            loaded.map_err(CommandFailure::usage)?.0
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
    // A replay measures no durations: they would differ each time.
    options.stopwatch = Box::new(NoStopwatch);
    Ok(options)
}
