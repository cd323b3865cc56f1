//! `berth scheduler`: only the scheduler, on any cluster. Also the half of `berth up` that schedules.

mod scheduling;

pub use scheduling::Scheduling;

use crate::args::CoreArgs;
use crate::config_file::{self, ConfigFile, ConfigStatus};
use crate::discovery::scheduler_user_agent;
use crate::edge;
use crate::exit::CommandFailure;
use crate::flags::{Flags, LogFormat, VersionFlag};
use crate::metrics::{EdgeMetrics, MetricFilter};
use crate::print::{self, print_line};
use crate::release::{self, AskingInterval};
use crate::runner::{BYTES_MAX, RecordOptions, ShadowOptions, Webhooks, hostname};
pub use crate::runner::{CoreProbe, Explainer, RunOptions};
use crate::serving::{Health, SecurePort, Shown};
use crate::settings::{self, Settings};
use crate::shadow::SharedReport;
use crate::signal::{self, ReloadSignals, StopSignals};
use crate::tasks;
use crate::traces::TraceExport;
use berth_api::{GoDuration, Release};
use berth_client::clock::now;
use berth_client::election;
use berth_config::Config;
use berth_core::{GROUP_GATES, is_named, with_groups};
use berth_framework::Feature;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use tokio::sync::watch;

/// The lease duration and the renew deadline of the scheduler of `berth up`.
const ELECTION_OF_UP: (GoDuration, GoDuration) =
    (GoDuration::from_secs(120), GoDuration::from_secs(90));

/// Runs the command line: schedules until it is stopped, or only prints, writes or checks.
///
/// # Errors
/// A resource is unavailable at the start, the leader lease is lost, or the core has ended unexpectedly.
pub fn run(flags: Flags, registry: Registry) -> Result<(), CommandFailure> {
    edge::run(scheduled(flags, registry))
}

async fn scheduled(flags: Flags, registry: Registry) -> Result<(), CommandFailure> {
    if let VersionFlag::Print | VersionFlag::PrintRaw = flags.global.version.value {
        return print_version(&flags.global.version.value);
    }
    let writes_config = flags.misc.write_config_to.value.is_some();
    let asking = if writes_config || flags.berth.check.value {
        AskingInterval::Once
    } else {
        AskingInterval::Patiently
    };
    let chosen = release::choose(&flags, scheduler_user_agent(), asking).await?;
    let settings = Settings::resolve(&flags, &registry, chosen.release)?;
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(path) = &flags.misc.write_config_to.value {
        return write_config(&settings.config, path);
    }
    let file = config_file(&flags, &settings, &registry);
    let options = options(settings, &flags, registry).await?;
    if flags.berth.check.value {
        return print_line!(
            "the flags and the configuration are valid for Kubernetes {}",
            chosen.release
        );
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        kubernetes = %chosen.release,
        reason = chosen.reason,
        "starting the Berth scheduler"
    );
    tracing::debug!(
        v = 1,
        config = options.config.to_yaml(),
        "using component config"
    );
    let version = match &flags.global.version.value {
        VersionFlag::Report(version) => version.clone(),
        _ => release::reported(chosen.release),
    };
    let started = SystemTime::now();
    let filter = MetricFilter::new(&flags.metrics)?;
    let metrics = Arc::new(EdgeMetrics::new(
        &version,
        options.config.features().versions(),
    ));
    let config = ConfigStatus::new(&options.config, file.is_some(), Arc::clone(&metrics));
    let config = Arc::new(config);
    let port = SecurePort::bind(&flags, &scheduler_user_agent()).await?;
    let master = &flags.misc.master.value;
    let mut scheduling = Scheduling::start(&options, master, Arc::clone(&metrics) as _).await?;
    // A user, or a script, that has read the first line may stop the process.
    let signals = StopSignals::listen()?;
    let following = match file {
        None => None,
        Some(file) => {
            let reconfigurer = scheduling.runner.reconfigurer(&options);
            let signals = Some(ReloadSignals::listen()?);
            let following = config_file::follow(file, signals, reconfigurer, Arc::clone(&config));
            Some(tasks::spawn(following))
        }
    };
    // JSON is read by programs, which find all information in the log.
    let is_text = flags.logs.logging_format.value == LogFormat::Text;
    if is_text {
        print_line!("scheduling  {}", scheduling.server)?
    } else {
        tracing::info!(server = scheduling.server, "scheduling for an API server")
    }
    let is_stopping = Arc::new(AtomicBool::new(false));
    let serving = match port {
        None => None,
        Some(port) => {
            let address = port.address()?;
            if is_text {
                print_line!("serving     https://{address}")?
            } else {
                tracing::info!(%address, "serving HTTPS")
            }
            let explainer = scheduling.runner.explainer();
            let election = scheduling.election_status();
            let lease = options.config.leader_election.lease_duration.as_duration();
            let health = Health::new(
                election.clone().map(|status| (status, lease)),
                Arc::clone(&is_stopping),
                explainer.probe().ready(),
            );
            let mut shown = shown(&flags, &options.config, config, version, started, election);
            shown.shadow = options.shadow.as_ref().map(|shadow| shadow.shared.clone());
            Some(port.serve(health, shown, explainer, metrics, filter))
        }
    };
    if is_text {
        print_line!("\nCtrl-C stops it.")?;
    }
    let why = tokio::select! {
        why = signals.stop_requested(signal::SCHEDULER_STOP_PATIENCE) => why,
        failure = scheduling.failed() => return Err(failure),
    };
    if is_text {
        print::complain(format_args!("{why}, stopping"))
    } else {
        tracing::info!(why, "stopping")
    }
    is_stopping.store(true, Ordering::Relaxed);
    if let Some(following) = following {
        following.abort();
    }
    let stopping = async {
        scheduling.stop().await;
        if let Some(serving) = serving {
            serving.stop().await;
        }
    };
    let _ = tokio::time::timeout(signal::SCHEDULER_STOP_PATIENCE, stopping).await;
    Ok(())
}

/// The pages that the HTTPS port shows of this process.
fn shown(
    flags: &Flags,
    config: &Config,
    status: Arc<ConfigStatus>,
    version: String,
    started: SystemTime,
    election: Option<watch::Receiver<election::ElectionStatus>>,
) -> Shown {
    let lease = &config.leader_election;
    let lease = format!("{}/{}", lease.resource_namespace, lease.resource_name);
    let features = config.features();
    let flags = flags.shown().into_iter();
    let mut flags: Vec<(String, String)> =
        flags.map(|(flag, value, _)| (flag.name(), value)).collect();
    flags.sort();
    Shown {
        versions: features.versions(),
        version,
        started,
        config: status,
        flags,
        election: election.map(|status| (lease, status)),
        has_profiling: config.enable_profiling,
        has_flagz: features.enabled(Feature::ComponentFlagz),
        has_statusz: features.enabled(Feature::ComponentStatusz),
        shadow: None,
    }
}

/// The file of `--config`, to be followed. In shadow mode it is not: the report is about one configuration.
fn config_file(flags: &Flags, settings: &Settings, registry: &Registry) -> Option<ConfigFile> {
    let (path, text) = (flags.misc.config.value.clone()?, settings.file.clone()?);
    if flags.berth.shadow.value {
        return None;
    }
    let (flags, registry) = (flags.clone(), registry.clone());
    let (features, named) = (settings.config.features(), path.clone());
    let load =
        move |text: &str| settings::config_of_file(&flags, &named, text, features, &registry);
    Some(ConfigFile {
        path,
        text,
        load: Box::new(load),
    })
}

fn print_version(flag: &VersionFlag) -> Result<(), CommandFailure> {
    let version = env!("CARGO_PKG_VERSION");
    let (oldest, newest) = (Release::OLDEST, Release::NEWEST);
    match flag {
        VersionFlag::PrintRaw => print_line!(
            "berth.Info{{Version:\"v{version}\", Kubernetes:\"{oldest} to {newest}\", Platform:\"{}/{}\"}}",
            std::env::consts::OS,
            std::env::consts::ARCH
        ),
        _ => print_line!("Berth v{version} (behaves as Kubernetes v{oldest} to v{newest})"),
    }
}

fn write_config(config: &Config, path: &Path) -> Result<(), CommandFailure> {
    std::fs::write(path, config.to_yaml()).map_err(|e| {
        CommandFailure::Environment(format!(
            "failed to write the configuration to {}: {e}",
            path.display()
        ))
    })?;
    tracing::info!(file = %path.display(), "wrote configuration");
    Ok(())
}

/// The options of the core.
async fn options(
    settings: Settings,
    flags: &Flags,
    registry: Registry,
) -> Result<RunOptions, CommandFailure> {
    let Settings {
        mut config,
        pod_max_in_unschedulable_pods_duration,
        ..
    } = settings;
    if flags.berth.shadow.value {
        // It never writes, so several can run.
        config.leader_election.leader_elect = false;
    } else if flags.berth.shadow_cases.is_set {
        return Err(CommandFailure::usage("--shadow-cases needs --shadow"));
    }
    if flags.berth.record_pseudonyms.value && flags.berth.record.value.is_none() {
        return Err(CommandFailure::usage(
            "--record-pseudonyms needs --record DIR",
        ));
    }
    if flags.berth.record_kept_names.is_set && !flags.berth.record_pseudonyms.value {
        return Err(CommandFailure::usage(
            "--record-kept-names needs --record-pseudonyms",
        ));
    }
    let webhooks = Webhooks::new(&config.extenders, &scheduler_user_agent()).await?;
    Ok(RunOptions {
        config,
        pod_max_in_unschedulable_pods_duration,
        seed: flags.berth.seed.value.unwrap_or_else(drawn_seed),
        evaluator: flags.berth.evaluator.value.into(),
        registry,
        webhooks,
        traces: TraceExport::of_environment().await?,
        record: flags.berth.record.value.clone().map(|dir| RecordOptions {
            dir,
            bytes_max: flags.berth.record_max_bytes.value.0 as u64,
            pseudonyms: flags.berth.record_pseudonyms.value,
            kept: flags.berth.record_kept_names.value.clone(),
        }),
        candidate: None,
        shadow: flags.berth.shadow.value.then(|| ShadowOptions {
            shared: SharedReport::since(now()),
            cases: flags.berth.shadow_cases.value.clone(),
        }),
        file: None,
    })
}

/// The value of `--feature-gates`, with the prerequisites of the named gates that are gates of groups and on by default
/// in `berth up`.
fn with_needed_groups(given: &str) -> String {
    let named = GROUP_GATES.into_iter().filter(|f| is_named(given, *f));
    let needed: BTreeSet<&str> = named
        .flat_map(|feature| feature.needs())
        .filter(|needed| GROUP_GATES.contains(needed) && !is_named(given, **needed))
        .map(|needed| needed.name())
        .collect();
    let mut text = given.to_owned();
    for name in needed {
        text += &format!(",{name}=true");
    }
    text
}

/// The options of the core of `berth up`, which is alone and needs no leader election. Its control plane is of the
/// release.
///
/// # Errors
/// Lists all invalid parts: gates, the configuration, the certificates of extenders.
pub async fn options_of_up(
    args: &CoreArgs,
    release: Release,
    registry: Registry,
) -> Result<RunOptions, CommandFailure> {
    let mut warnings = Vec::new();
    let gates = with_needed_groups(&args.feature_gates);
    let features = settings::parse_gates(&gates, Versions::of(release), &mut warnings)?;
    let features = with_groups(features, &args.feature_gates);
    let mut file = None;
    let mut config = match &args.config {
        Some(path) => {
            let text = settings::read_text(path)?;
            let (config, more) =
                settings::config_of_text(path, &text, features, &registry, |_| {})?;
            warnings.extend(more);
            file = Some((path.clone(), text));
            config
        }
        None => {
            let config = Config::new(features, &registry);
            config
                .check("the default configuration")
                .map_err(CommandFailure::usage)?;
            config
        }
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    // The scheduler of `berth up` is the only one, so it needs no election.
    config.leader_election.leader_elect = false;
    let webhooks = Webhooks::new(&config.extenders, &scheduler_user_agent()).await?;
    Ok(RunOptions {
        config,
        pod_max_in_unschedulable_pods_duration: berth_scheduler::SchedulerOptions::default()
            .pod_max_in_unschedulable_pods_duration,
        seed: args.seed.unwrap_or_else(drawn_seed),
        evaluator: args.evaluator.into(),
        registry,
        webhooks,
        traces: TraceExport::of_environment().await?,
        record: args.record.clone().map(|dir| RecordOptions {
            dir,
            bytes_max: BYTES_MAX,
            pseudonyms: args.record_pseudonyms,
            kept: args.record_kept_names.clone(),
        }),
        candidate: None,
        shadow: None,
        file,
    })
}

/// Enables leader election for the scheduler of `berth up`, so that a second scheduler on the cluster is a standby. The
/// durations are longer than in a real cluster: the API server is in the same process, and a busy machine must not end
/// the cluster.
pub fn elect(options: &mut RunOptions) {
    let election = &mut options.config.leader_election;
    election.leader_elect = true;
    election.lease_duration = ELECTION_OF_UP.0;
    election.renew_deadline = ELECTION_OF_UP.1;
    // After a restart with the same data directory, the Lease is its own.
    options.candidate = Some(format!("{}_berth-up", hostname()));
}

fn drawn_seed() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::FeatureGates;

    /// A gate of groups can be given without its prerequisites, which are on by default.
    #[test]
    fn the_gates_that_a_named_one_needs_are_on() {
        for (given, expected) in [
            ("", ""),
            ("A=true", "A=true"),
            (
                "DRAWorkloadResourceClaims=true",
                "DRAWorkloadResourceClaims=true,GenericWorkload=true",
            ),
            (
                "CompositePodGroup=true,GenericWorkload=false",
                "CompositePodGroup=true,GenericWorkload=false,TopologyAwareWorkloadScheduling=true",
            ),
        ] {
            assert_eq!(with_needed_groups(given), expected);
        }
    }

    /// G-1: groups are on in `berth up` unless a gate is named.
    #[test]
    fn groups_are_on_unless_a_gate_is_named() {
        for (given, expected) in [
            ("", [true; 5]),
            ("GenericWorkload=false", [false; 5]),
            (
                "kube:CompositePodGroup=false",
                [true, true, false, true, true],
            ),
            (
                "TopologyAwareWorkloadScheduling=false",
                [true, false, false, true, true],
            ),
        ] {
            let named = given.split_once('=').map_or("", |(name, _)| name);
            let feature = Feature::by_name(named.trim_start_matches("kube:"));
            let features = FeatureGates::of(Release::OLDEST);
            let features = feature.map_or(features, |feature| features.with(feature, false));
            let features = with_groups(features, given);
            assert_eq!(
                GROUP_GATES.map(|f| features.enabled(f)),
                expected,
                "{given}"
            );
        }
    }
}
