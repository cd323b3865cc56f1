//! `berth what-if`: the decisions of the scheduler in a changed copy of a cluster. Writes nothing to a cluster.
//!
//! `berth_core` answers. This module reads the cluster and the changes, and prints the report.

mod read;
mod record;
mod text;

use crate::cli::{ExplainOutput, WhatIfArgs};
use crate::upgrade;
use berth_api::{Kind, Release, Time};
use berth_client::clock::now;
use berth_core::{
    ChangedCluster, ClusterObjects, Configuration, Document, InputError, NodeShape, WhatIf,
    WhatIfReport,
};
use berth_edge::exit::CommandFailure;
use berth_edge::print;
use berth_edge::record::versions_of;
use berth_edge::settings;
use berth_framework::features::Versions;
use berth_framework::registry::Registry;
use berth_recording::Start;
use read::{documents, list_all};
use std::path::Path;

/// Reads, changes, runs and prints.
///
/// # Errors
/// When a file or the cluster cannot be read, or a change does not apply.
pub(crate) async fn run(args: WhatIfArgs, registry: Registry) -> Result<(), CommandFailure> {
    let mut cluster = ClusterObjects::new();
    let source = read_cluster(&args, &mut cluster).await?;
    let mut file = args.config.as_deref();
    let mut question = WhatIf::default();
    for changes in &args.file {
        for document in documents(changes)? {
            if document.object["kind"] == "KubeSchedulerConfiguration" {
                file = Some(configuration_file(changes)?);
            } else {
                question.changes.push(document);
            }
        }
    }
    question.drain.clone_from(&args.drain);
    question.consolidate = args.consolidate;
    question.rebalance = args.rebalance;
    question.fit = args.fit.as_deref().map(template).transpose()?;
    if let Some(shape) = &args.add_nodes {
        question.add_nodes = Some(node_shape(shape, &cluster)?);
    }
    let present = source.configuration(&args, args.config.as_deref(), None, &registry)?;
    let other = match &args.emulated_version {
        None => None,
        Some(version) => {
            let versions = Versions::read(std::slice::from_ref(version), &[], source.release);
            Some(versions.map_err(CommandFailure::usage)?.emulated)
        }
    };
    let refused = |failure: CommandFailure| match other {
        Some(other) => upgrade::refused(other, failure),
        None => failure,
    };
    let after = source.configuration(&args, file, other, &registry);
    let after = after.map_err(refused)?;
    // The gates are checked first, because the release of the command line may not accept them.
    let (present_gates, _) = present.gates_for(&cluster).map_err(refusal)?;
    after
        .gates_for(&cluster)
        .map_err(|error| refused(refusal(error)))?;
    question.configuration = Some(after.clone());
    let changed =
        ChangedCluster::new(&cluster, &present, &question, source.moment).map_err(refusal)?;
    for warning in changed.warnings() {
        tracing::warn!("{warning}");
    }
    let preview = match other {
        None => None,
        Some(_) => {
            let present_gates = changed.features(&present).unwrap_or(present_gates);
            let other_gates = changed.features(&after).map_err(refusal)?;
            Some(upgrade::compare(present_gates, other_gates, |gates| {
                let decided = changed
                    .schedule_with(&after.clone().features(gates))
                    .map_err(refusal)?;
                Ok(outcomes(&decided))
            })?)
        }
    };
    let mut report = changed.answer().map_err(refusal)?;
    if let (Some(added), Some(shape)) = (&mut report.add_nodes, &args.add_nodes) {
        added.shape.clone_from(shape);
    }
    print_report(&args, &report, preview)
}

/// The source of a cluster.
struct ClusterSource {
    release: Release,
    moment: Time,
    /// The options that were recorded.
    recorded: Option<Box<Start>>,
}

impl ClusterSource {
    /// The configuration of a file, or of the recording, in another release if one is given.
    fn configuration(
        &self,
        args: &WhatIfArgs,
        file: Option<&Path>,
        other: Option<Release>,
        registry: &Registry,
    ) -> Result<Configuration, CommandFailure> {
        let configuration = Configuration::with_plugins(registry.clone()).seed(args.seed);
        let Some(start) = &self.recorded else {
            let configuration = configuration
                .release(other.unwrap_or(self.release))
                .feature_gates(&args.feature_gates);
            return Ok(match file {
                None => configuration,
                Some(file) => {
                    let text = settings::read_text(file)?;
                    configuration.yaml(&file.display().to_string(), &text)
                }
            });
        };
        let gates = record::gates(start, other)?;
        let (start, registry) = (start.clone(), registry.clone());
        let file = file.map(Path::to_owned);
        let configuration = configuration.features(gates);
        Ok(configuration.options(move |gates| {
            let options = record::options(&start, gates, file.as_deref(), &registry);
            options.map_err(|failure| InputError::Configuration(failure.text().to_owned()))
        }))
    }
}

/// Reads the cluster from files, a recording or its API.
async fn read_cluster(
    args: &WhatIfArgs,
    cluster: &mut ClusterObjects,
) -> Result<ClusterSource, CommandFailure> {
    let inputs = args.from.iter().chain(&args.file).chain(&args.fit);
    // Standard input can be read only once.
    if inputs.filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(CommandFailure::usage(
            "standard input is read once: give - once",
        ));
    }
    if let Some(dir) = &args.record {
        let (start, moment) = record::read(dir, args.run, args.at, cluster)?;
        return Ok(ClusterSource {
            release: versions_of(&start)?.emulated,
            moment,
            recorded: Some(start),
        });
    }
    let release = if args.from.is_empty() {
        list_all(args, cluster).await?
    } else {
        for file in &args.from {
            for document in documents(file)? {
                cluster.set(document).map_err(refusal)?;
            }
        }
        cluster.release()
    };
    Ok(ClusterSource {
        release,
        moment: now(),
        recorded: None,
    })
}

/// The file of a configuration among the changes: it is read again.
fn configuration_file(file: &Path) -> Result<&Path, CommandFailure> {
    if file.as_os_str() == "-" {
        Err(CommandFailure::usage(
            "a KubeSchedulerConfiguration is read from a file: give -f FILE, not -f -",
        ))
    } else {
        Ok(file)
    }
}

/// The only document of a file.
fn only_document(flag: &str, file: &Path, expected: &str) -> Result<Document, CommandFailure> {
    let mut found = documents(file)?;
    found.pop().filter(|_| found.is_empty()).ok_or_else(|| {
        let file = file.display();
        CommandFailure::Usage(format!(
            "{flag} {file}: the file must have one document: {expected}"
        ))
    })
}

fn template(file: &Path) -> Result<Document, CommandFailure> {
    only_document("--fit", file, "a Pod, a PodTemplate or a workload")
}

/// A node, resources or a file with a Node.
fn node_shape(text: &str, cluster: &ClusterObjects) -> Result<NodeShape, CommandFailure> {
    let file = Path::new(text);
    let is_named = cluster.contains(Kind::Node, "", text) || text.contains('=');
    if is_named || !file.is_file() {
        return Ok(text.into());
    }
    let node = only_document("--add-nodes", file, "a Node")?;
    Ok(NodeShape::Manifest(node))
}

/// The error in the words of the command line.
fn refusal(error: InputError) -> CommandFailure {
    CommandFailure::Usage(match error {
            InputError::Drain { node, hint } => {
                format!("--drain {node}: there is no such node{hint}")
            }
            InputError::Shape { shape, reason } => format!("--add-nodes {shape}: {reason}"),
            InputError::FeatureGates(reason) => format!("--feature-gates: {reason}"),
            InputError::Extenders => {
                "the configuration has extenders, which what-if does not call, so its result would differ from the \
                 scheduler's; give a configuration without extenders with --config"
                    .to_owned()
            }
            other => other.to_string(),
        })
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
