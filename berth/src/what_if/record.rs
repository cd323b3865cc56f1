//! The cluster at a moment of a recording.

use crate::cli::Moment;
use crate::replay::{chosen, specs};
use berth_api::{Release, Time};
use berth_core::ClusterObjects;
use berth_edge::exit::CommandFailure;
use berth_edge::record::{options_with, recorded_gates, versions_of};
use berth_framework::FeatureGates;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::{ClusterState, Entry, RunEntries, Start, runs};
use berth_scheduler::SchedulerOptions;
use std::path::Path;

/// Reads the cluster at a moment. Returns the options of the recorded scheduler and the time of the last input.
///
/// # Errors
/// There is no recording, or it is damaged before the moment.
pub(super) fn read(
    dir: &Path,
    run: Option<u64>,
    at: Option<Moment>,
    cluster: &mut ClusterObjects,
) -> Result<(Box<Start>, Time), CommandFailure> {
    let all = runs(dir).map_err(CommandFailure::usage)?;
    let run = chosen(&all, run)?;
    let start = match RunEntries::of(run).next() {
        Some(Ok(first)) => match first.entry {
            Entry::Start(start) => start,
            _ => {
                return Err(CommandFailure::usage(
                    "the recording does not begin with the options of a scheduler",
                ));
            }
        },
        Some(Err(damage)) => return Err(CommandFailure::usage(damage)),
        None => return Err(CommandFailure::usage("the recording is empty")),
    };
    let beginning = Time::from_nanos(start.at_nanos);
    let until = at.map(|at| at.time(beginning));
    let state = ClusterState::read(RunEntries::of(run), until);
    if let Some(until) = until.filter(|until| *until < beginning) {
        return Err(CommandFailure::Usage(format!(
            "--at {}: the recording begins at {}",
            until.rfc3339_micros(),
            beginning.rfc3339_micros()
        )));
    }
    if let Some(damage) = state.damage {
        return Err(CommandFailure::Usage(format!(
            "{damage}; give a moment before it with --at"
        )));
    }
    for (key, object) in state.objects {
        let object = serde_json::to_value(&object).map_err(CommandFailure::environment)?;
        cluster.set_stored(key, object);
    }
    let moment = state.at.unwrap_or(beginning);
    cluster.note(format!(
        "the cluster is that of the recording at {}; its ResourceQuotas, DaemonSets, PriorityClasses and ResourceClaimTemplates are not recorded",
        moment.rfc3339_micros()
    ));
    Ok((start, moment))
}

/// The recorded gates, in another release if one is given.
///
/// # Errors
/// When the release does not accept them.
pub(super) fn gates(start: &Start, other: Option<Release>) -> Result<FeatureGates, CommandFailure> {
    let versions = match other {
        Some(release) => Versions::of(release),
        None => versions_of(start)?,
    };
    recorded_gates(start, versions)
}

/// The recorded options with these gates, and with another configuration if one is given.
///
/// # Errors
/// When the configuration is not valid, or has extenders.
pub(super) fn options(
    start: &Start,
    gates: FeatureGates,
    file: Option<&Path>,
    registry: &Registry,
) -> Result<SchedulerOptions, CommandFailure> {
    let options = options_with(start, gates, file, registry)?;
    if specs(&options.extenders).is_empty() {
        Ok(options)
    } else {
        Err(CommandFailure::usage(
            "the recorded configuration has extenders, which what-if does not call; give one without extenders with \
             --config",
        ))
    }
}
