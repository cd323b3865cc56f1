//! `berth what-if`: what the scheduler would do if the cluster were another one. Nothing is written to a cluster.

mod buffers;
mod changes;
mod claims;
mod daemons;
mod fit;
mod nodes;
mod priorities;
mod quotas;
mod read;
mod record;
mod shape;
mod strict;
mod text;
mod workloads;

use crate::cli::{ExplainOutput, WhatIfArgs};
use crate::exit::CommandFailure;
use crate::print;
use crate::record::versions_of;
use crate::scheduler::with_groups;
use crate::settings;
use crate::upgrade;
use berth_api::{Kind, Release, Time};
use berth_client::events::now;
use berth_explain::what_if::{
    Balance, CopiedObjects, DisplacedPod, Fate, PendingPod, PlacedPod, PodPlaces, Usage,
    WhatIfReport, WhatIfWorld, consolidate,
};
use berth_framework::FeatureGates;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::Start;
use berth_scheduler::SchedulerOptions;
use berth_scheduler::config::Config;
use changes::{Changed, ClusterJson, Others, change_all, decode, known, set_defaults};
use read::{documents, list_all};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The cluster before the changes.
struct Before {
    usage: Usage,
    places: PodPlaces,
}

/// Makes worlds of objects.
struct Worlds<'a> {
    registry: &'a Registry,
    seed: u64,
    moment: Time,
}

impl Worlds<'_> {
    fn of(&self, setup: &RunSetup, objects: CopiedObjects) -> Result<WhatIfWorld, CommandFailure> {
        let mut options = setup.options(self.registry)?;
        options.seed = self.seed;
        WhatIfWorld::new(options, self.registry, objects, self.moment)
            .map_err(CommandFailure::usage)
    }
}

/// Reads, changes, runs and prints.
///
/// # Errors
/// When a file or the cluster cannot be read, or a change does not apply.
pub(crate) async fn run(args: WhatIfArgs, registry: Registry) -> Result<(), CommandFailure> {
    let (mut raw, mut others) = (ClusterJson::new(), Others::default());
    let mut source = read_cluster(&args, &mut raw, &mut others).await?;
    let before = decode(&raw)?;
    let changed = change_all(&args.file, &mut raw, &mut others)?;
    check_drained(&args, &raw)?;
    source.has_groups = raw.keys().any(|(kind, ..)| *kind == Kind::PodGroup);
    let present_gates = source.gates(&args, None)?;
    let present = source.setup(args.config.as_deref(), present_gates, &registry)?;
    let other_gates = match &args.emulated_version {
        None => present_gates,
        Some(version) => {
            let versions = Versions::read(std::slice::from_ref(version), &[], source.release);
            let other = versions.map_err(CommandFailure::usage)?.emulated;
            let gates = source.gates(&args, Some(other));
            gates.map_err(|failure| upgrade::refused(other, failure))?
        }
    };
    let file = changed.config.as_deref().or(args.config.as_deref());
    let worlds = Worlds {
        registry: &registry,
        seed: args.seed,
        moment: source.moment,
    };
    let before = worlds.of(&present, before)?;
    let before = Before {
        usage: before.usage(),
        places: before.places(),
    };
    let decided = |setup: &RunSetup, objects: CopiedObjects| {
        let fit = args.fit.as_deref();
        let fit = fit.map(|file| fit::template(file, &others)).transpose()?;
        let run = worlds.of(setup, objects)?;
        Ok(drained(&args, run, &before, &changed, fit))
    };
    let preview = if args.emulated_version.is_some() {
        let after = decode(&raw)?;
        Some(upgrade::compare(present_gates, other_gates, |gates| {
            let setup = source.setup(file, gates, &registry)?;
            Ok(outcomes(&decided(&setup, after.clone())?))
        })?)
    } else {
        None
    };
    let setup = source.setup(file, other_gates, &registry)?;
    let mut report = if args.consolidate {
        consolidated(&worlds, &setup, decode(&raw)?, &before, &changed)?
    } else if let Some(shape) = &args.add_nodes {
        let shape = shape::SpareNode::new(shape, &raw)?;
        shape::smallest(&shape, |nodes| {
            let mut raw = raw.clone();
            shape.add(&mut raw, &others, nodes)?;
            decided(&setup, decode(&raw)?)
        })?
    } else {
        decided(&setup, decode(&raw)?)?
    };
    report.not_admitted = changed.not_admitted;
    report.changes = changed.done;
    report.notes.extend(others.notes);
    print_report(&args, &report, preview)
}

/// The source of a cluster.
struct ClusterSource {
    release: Release,
    moment: Time,
    /// The options that were recorded.
    recorded: Option<Box<Start>>,
    /// Whether there are groups of pods: they are scheduled as such then, unless the command line names the gates.
    has_groups: bool,
}

/// The configuration of a run.
enum RunSetup {
    Given(Box<Config>),
    /// Of a recording, with these gates, and with another configuration if there is one.
    Recorded(Box<Start>, FeatureGates, Option<PathBuf>),
}

impl RunSetup {
    fn options(&self, registry: &Registry) -> Result<SchedulerOptions, CommandFailure> {
        match self {
            Self::Given(config) => {
                let mut options = SchedulerOptions::default();
                config.set_options(&mut options);
                Ok(options)
            }
            Self::Recorded(start, gates, file) => {
                record::options(start, *gates, file.as_deref(), registry)
            }
        }
    }
}

impl ClusterSource {
    /// The gates of the command line or of the recording, in another release if one is given.
    fn gates(
        &self,
        args: &WhatIfArgs,
        other: Option<Release>,
    ) -> Result<FeatureGates, CommandFailure> {
        match &self.recorded {
            Some(start) => record::gates(start, other),
            None => {
                let features = gates(args, other.unwrap_or(self.release))?;
                Ok(if self.has_groups {
                    with_groups(features, &args.feature_gates)
                } else {
                    features
                })
            }
        }
    }

    fn setup(
        &self,
        file: Option<&Path>,
        gates: FeatureGates,
        registry: &Registry,
    ) -> Result<RunSetup, CommandFailure> {
        let Some(start) = &self.recorded else {
            let config = configured(file, gates, registry)?;
            return Ok(RunSetup::Given(Box::new(config)));
        };
        let setup = RunSetup::Recorded(start.clone(), gates, file.map(Path::to_owned));
        setup.options(registry)?;
        Ok(setup)
    }
}

/// Reads the cluster from files, a recording or its API.
async fn read_cluster(
    args: &WhatIfArgs,
    raw: &mut ClusterJson,
    others: &mut Others,
) -> Result<ClusterSource, CommandFailure> {
    let inputs = args.from.iter().chain(&args.file).chain(&args.fit);
    // Standard input can be read only once.
    if inputs.filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(CommandFailure::usage(
            "standard input is read once: give - once",
        ));
    }
    if let Some(dir) = &args.record {
        let (start, moment) = record::read(dir, args.run, args.at, raw, others)?;
        return Ok(ClusterSource {
            release: versions_of(&start)?.emulated,
            moment,
            recorded: Some(start),
            has_groups: false,
        });
    }
    let release = if args.from.is_empty() {
        list_all(args, raw, others).await?
    } else {
        for file in &args.from {
            for (place, object) in documents(file)? {
                if let Some(object) = others.take(&place, object, None)?
                    // Defaults are set, because files have objects as users write them.
                    && let Some((key, mut object)) = known(&place, object)?
                {
                    set_defaults(&mut object);
                    raw.insert(key, object);
                }
            }
        }
        newest_kubelet(raw)
    };
    Ok(ClusterSource {
        release,
        moment: now(),
        recorded: None,
        has_groups: false,
    })
}

/// Checks that the nodes to drain exist.
fn check_drained(args: &WhatIfArgs, raw: &ClusterJson) -> Result<(), CommandFailure> {
    for node in &args.drain {
        let key = (Kind::Node, String::new(), node.clone());
        if !raw.contains_key(&key) {
            let similar = strict::similar(raw, &key);
            let text = format!("--drain {node}: there is no such node{similar}");
            return Err(CommandFailure::Usage(text));
        }
    }
    Ok(())
}

/// Schedules the waiting pods, drains the nodes of the command line, and adds pods of the template.
fn drained(
    args: &WhatIfArgs,
    mut run: WhatIfWorld,
    before: &Before,
    changed: &Changed,
    fit: Option<fit::FitTemplate>,
) -> WhatIfReport {
    run.run();
    let (mut displaced, mut drained) = (changed.displaced.clone(), Vec::new());
    let mut spread = Vec::new();
    if args.rebalance {
        let (spreads, deleted) = run.rebalance();
        spread = spreads;
        displaced.extend(deleted);
    }
    let (mut moved, mut blocked) = (Vec::new(), Vec::new());
    for node in &args.drain {
        let of_node = run.drain(node);
        // A node with a blocking pod is not empty.
        if !of_node.iter().any(|pod| pod.blocks) {
            drained.push(node.clone());
        }
        moved.extend(of_node.iter().filter_map(|pod| {
            let (node, pod) = (pod.node.clone()?, pod.pod.clone());
            Some(PlacedPod { pod, node })
        }));
        let blocking = of_node.iter().filter(|pod| pod.blocks);
        blocked.extend(blocking.map(|pod| PendingPod {
            pod: pod.pod.clone(),
            reason: pod.reason.clone(),
        }));
        displaced.extend(of_node);
    }
    let balance = Balance::new(&before.places, &run, &lost(&displaced));
    let mut report = run.report(before.usage.clone(), displaced);
    report.buffers = buffers::rooms(&changed.chunks, &run, &report);
    if let Some(template) = fit {
        report.fit = Some(run.fit(&template.pod, &template.claims, fit::PODS_MAX));
        report.notes.extend(template.notes);
    }
    WhatIfReport {
        moved,
        blocked,
        drained,
        balance,
        spread,
        ..report
    }
}

/// Finds the nodes that are not needed.
fn consolidated(
    worlds: &Worlds<'_>,
    setup: &RunSetup,
    objects: CopiedObjects,
    before: &Before,
    changed: &Changed,
) -> Result<WhatIfReport, CommandFailure> {
    let (mut report, end) = consolidate(objects, |objects| worlds.of(setup, objects))?;
    report.before = before.usage.clone();
    report.displaced.extend(changed.displaced.iter().cloned());
    report.balance = Balance::new(&before.places, &end, &lost(&report.displaced));
    report.buffers = buffers::rooms(&changed.chunks, &end, &report);
    Ok(report)
}

fn lost(displaced: &[DisplacedPod]) -> BTreeSet<String> {
    let lost = displaced.iter().filter(|pod| pod.fate == Fate::Lost);
    lost.map(|pod| pod.pod.clone()).collect()
}

fn print_report(
    args: &WhatIfArgs,
    report: &WhatIfReport,
    preview: Option<upgrade::Preview>,
) -> Result<(), CommandFailure> {
    if args.output == ExplainOutput::Table {
        print::text(text::report(args, report))?;
        return match preview {
            Some(preview) => print::text(format!("\n{}", preview.text(text::LINES_MAX))),
            None => Ok(()),
        };
    }
    let mut json = serde_json::to_value(report).map_err(CommandFailure::environment)?;
    if let Some(preview) = preview {
        json["upgrade"] = preview.json(usize::MAX);
    }
    print::text(match args.output {
        ExplainOutput::Yaml => {
            serde_saphyr::to_string(&json).map_err(CommandFailure::environment)?
        }
        _ => serde_json::to_string_pretty(&json).map_err(CommandFailure::environment)? + "\n",
    })
}

/// The outcomes of the pods of a report.
fn outcomes(report: &WhatIfReport) -> upgrade::Outcomes {
    let placed = report.placed.iter().chain(&report.moved);
    let placed = placed.map(|pod| (&pod.pod, format!("on {}", pod.node)));
    let evicted = report.evicted.iter();
    let evicted = evicted.map(|pod| (&pod.pod, format!("evicted from {}", pod.node)));
    let waiting = report.pending.iter().chain(&report.blocked);
    let waiting = waiting.map(|pod| (&pod.pod, format!("not placed: {}", pod.reason)));
    let displaced = report.displaced.iter().filter_map(|pod| {
        let node = pod.node.as_ref()?;
        Some((&pod.pod, format!("on {node}")))
    });
    let all = waiting.chain(placed).chain(displaced).chain(evicted);
    all.map(|(pod, end)| (pod.clone(), (pod.clone(), end)))
        .collect()
}

/// The release of a cluster that is read from files: a control plane is not older than its kubelets.
fn newest_kubelet(raw: &ClusterJson) -> Release {
    let nodes = raw.iter().filter(|(key, _)| key.0 == Kind::Node);
    let minors = nodes.filter_map(|(_, node)| {
        let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str()?;
        version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
    });
    minors
        .max()
        .map_or(Release::OLDEST, Release::closest_to_minor)
}

/// The gates of the command line in a release.
///
/// # Errors
/// When the release does not accept them.
fn gates(args: &WhatIfArgs, release: Release) -> Result<FeatureGates, CommandFailure> {
    let mut warnings = Vec::new();
    let versions = Versions::of(release);
    let features = settings::parse_gates(&args.feature_gates, versions, &mut warnings)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(features)
}

fn configured(
    path: Option<&Path>,
    features: FeatureGates,
    registry: &Registry,
) -> Result<Config, CommandFailure> {
    let mut warnings = Vec::new();
    let config = match path {
        Some(path) => {
            let (config, more) = settings::read_config(path, features, registry, |_| {})?;
            warnings.extend(more);
            config
        }
        None => Config::new(features, registry),
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if !config.extenders.is_empty() {
        return Err(CommandFailure::Usage(
            "the configuration has extenders, which what-if does not call, so its result would differ from the \
             scheduler's; give a configuration without extenders with --config"
                .to_owned(),
        ));
    }
    Ok(config)
}

/// The documents of a text with their places; lists are flattened.
///
/// # Errors
/// When it is no YAML or JSON.
pub(crate) fn documents_of(
    shown: &str,
    text: &str,
) -> Result<Vec<(String, serde_json::Value)>, CommandFailure> {
    read::parse(shown, text)
}

/// An object with its defaults; its kind if the scheduler does not read it.
///
/// # Errors
/// When it is malformed.
pub(crate) fn decoded(
    place: &str,
    object: serde_json::Value,
) -> Result<Result<berth_api::Object, String>, CommandFailure> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some((key, mut object)) = known(place, object)? else {
        return Ok(Err(kind));
    };
    set_defaults(&mut object);
    let decoded = key.0.decode(object.to_string().as_bytes());
    decoded.map(Ok).map_err(|e| {
        CommandFailure::Usage(format!("{place}: failed to decode {kind} {}: {e}", key.2))
    })
}
