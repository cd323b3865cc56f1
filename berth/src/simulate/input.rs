//! The inputs of the command line: traces, nodes, additions and removals.

use super::{Input, cluster, priorities, recording};
use crate::cli::SimulateArgs;
use berth_api::{Duration, Kind, Node, Object, Pod, Quantity, ResourceList};
use berth_core::{Document, PriorityClasses};
use berth_edge::exit::CommandFailure;
use berth_simulation::Trace;
use berth_simulation::import::{is_openb, read_openb, read_simkube};
use berth_simulation::span::Moment;
use berth_simulation::text::{TextError, read_csv, read_yaml};
use berth_simulation::trace::{NodeShape, TraceNode};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 30;
/// The maximum number of nodes for a number on the command line.
const NODES_MAX: u32 = 1_000_000;
/// The zones of nodes of a number, as `berth up` has them.
const ZONES: [&str; 3] = ["berth-a", "berth-b", "berth-c"];

/// Reads all inputs of the command line.
///
/// # Errors
/// When a file cannot be read or is wrong.
pub(super) fn read(args: &SimulateArgs) -> Result<Input, CommandFailure> {
    let mut input = Input {
        trace: Trace::default(),
        recorded: None,
        notes: Vec::new(),
        priority_classes: PriorityClasses::default(),
        until: None,
    };
    for file in &args.trace {
        if file.is_dir() {
            if input.recorded.is_some() {
                return Err(CommandFailure::usage(
                    "several recordings are given; give one",
                ));
            }
            recording::read(file, &mut input)?;
        } else {
            let trace = trace_of(file, &mut input)?;
            input.trace.merge(trace);
        }
    }
    for nodes in &args.nodes {
        let trace = nodes_of(nodes, &mut input)?;
        input.trace.merge(trace);
    }
    let trace = &input.trace;
    if trace.pods.is_empty() && trace.generators.is_empty() && trace.buffers.is_empty() {
        let files = args.trace.iter().map(|file| file.display().to_string());
        return Err(CommandFailure::Usage(format!(
            "{}: the trace has no pods; a CSV file of pods has the column arrival, a YAML file the list pods or generate",
            files.collect::<Vec<_>>().join(", ")
        )));
    }
    priorities::resolve(&mut input.trace, &input.priority_classes)?;
    if let Some(removed) = &args.remove_nodes {
        remove_nodes(&mut input.trace, removed)?;
    }
    input.until = until(args, &input.trace)?;
    let world = &mut input.trace.world;
    if let Some(latency) = &args.api_latency {
        world.api_latency = latency.clone();
    }
    if let Some(latency) = &args.start_latency {
        world.start_latency = latency.clone();
    }
    if let Some(durations) = &args.durations {
        for pod in input
            .trace
            .pods
            .iter_mut()
            .filter(|pod| pod.duration.is_none())
        {
            pod.duration = Some(durations.clone());
        }
    }
    Ok(input)
}

/// The end of the simulations as an offset from the start of the trace.
fn until(args: &SimulateArgs, trace: &Trace) -> Result<Option<Duration>, CommandFailure> {
    let start = trace.start();
    match args.until {
        Some(Moment::Absolute(date)) if date < start => Err(CommandFailure::Usage(format!(
            "--until {}: the trace begins later, at {}",
            date.rfc3339(),
            start.rfc3339()
        ))),
        Some(Moment::Absolute(date)) => Ok(Some(date.since(start))),
        Some(Moment::Offset(offset)) => Ok(Some(offset)),
        None => Ok(None),
    }
}

/// The text of a file; see [`bytes_of`].
fn text_of(file: &Path) -> Result<String, CommandFailure> {
    String::from_utf8(bytes_of(file)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        CommandFailure::Usage(format!(
            "failed to read {}: byte {at} is no UTF-8; a trace of SimKube needs the ending .sktrace",
            file.display()
        ))
    })
}

/// The content of a file; `-` is standard input, `.gz` is decompressed.
fn bytes_of(file: &Path) -> Result<Vec<u8>, CommandFailure> {
    let shown = file.display();
    let failed = |e: std::io::Error| CommandFailure::Usage(format!("failed to read {shown}: {e}"));
    let mut bytes = Vec::new();
    let is_compressed = file.extension().is_some_and(|ending| ending == "gz");
    let reader: Box<dyn std::io::Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let opened = std::fs::File::open(file).map_err(failed)?;
        if is_compressed {
            Box::new(flate2::read::MultiGzDecoder::new(opened))
        } else {
            Box::new(opened)
        }
    };
    let read = reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandFailure::Usage(format!(
            "failed to read {shown}: it has more than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

/// A trace as CSV or YAML, the objects of a cluster, or the trace of another tool.
fn trace_of(file: &Path, input: &mut Input) -> Result<Trace, CommandFailure> {
    let name = file.to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    if name.ends_with(".sktrace") {
        return simkube(file, &mut input.notes);
    }
    let text = text_of(file)?;
    let placed = |error: TextError| CommandFailure::Usage(format!("{}: {error}", file.display()));
    // Templates are read from the folder of the trace.
    let mut load = |path: &str| template(&file.with_file_name(path));
    let is_csv = name.ends_with(".csv") || (name == "-" && begins_as_csv(&text));
    if is_csv && is_openb(&text) {
        return read_openb(&text).map_err(placed);
    }
    if is_csv {
        return read_csv(&text, &mut load).map_err(placed);
    }
    if cluster::is_objects(&text) {
        return cluster::read(file, &text, input);
    }
    let read = read_yaml(&text, &mut load).map_err(placed)?;
    let shown = file.display().to_string();
    let objects = read.objects.into_iter().map(|object| Document {
        place: format!("{shown}: line {}, column {}", object.line, object.column),
        object: object.object,
    });
    let mut trace = read.trace;
    trace.merge(cluster::objects(&shown, objects.collect(), input)?);
    Ok(trace)
}

/// Returns whether the first line of a text has the names of columns, and is not YAML.
fn begins_as_csv(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| {
        line.contains(',') && !line.contains(": ") && !line.starts_with(['{', '[', '-'])
    })
}

/// A trace of SimKube.
fn simkube(file: &Path, notes: &mut Vec<String>) -> Result<Trace, CommandFailure> {
    let imported = read_simkube(&bytes_of(file)?);
    let imported =
        imported.map_err(|e| CommandFailure::Usage(format!("{}: {e}", file.display())))?;
    let left_out = imported.left_out.iter();
    notes.extend(left_out.map(|(kind, count)| {
        format!("{count} objects of the kind {kind} are left out: their pods are not known")
    }));
    Ok(imported.trace)
}

/// The pod of a file: a Pod, a PodTemplate or a workload with a template.
fn template(file: &Path) -> Result<Pod, String> {
    let failed = |e: &dyn std::fmt::Display| format!("failed to read {}: {e}", file.display());
    let text = std::fs::read_to_string(file).map_err(|e| failed(&e))?;
    let read: serde_json::Value = serde_saphyr::from_str(&text).map_err(|e| failed(&e))?;
    let of = if read["spec"]["template"].is_object() {
        &read["spec"]["template"]
    } else if read["template"].is_object() {
        &read["template"]
    } else {
        &read
    };
    let pod = Kind::Pod.decode(of.to_string().as_bytes());
    match pod.map_err(|e| failed(&e))? {
        Object::Pod(mut pod) if !pod.spec.containers.is_empty() => {
            let noted = cluster::note_unread(Arc::make_mut(&mut pod), &of["spec"]);
            noted.map_err(|e| failed(&e))?;
            Ok(Arc::unwrap_or_clone(pod))
        }
        _ => Err(failed(
            &"it has no containers; give a Pod, a PodTemplate or a workload with a template",
        )),
    }
}

/// The nodes of `--nodes`: a file, a number, or a number and a shape.
fn nodes_of(text: &str, input: &mut Input) -> Result<Trace, CommandFailure> {
    let (count, shape) = text.split_once(':').unwrap_or((text, ""));
    let Ok(count) = count.parse::<u32>() else {
        if !Path::new(text).is_file() {
            return Err(CommandFailure::Usage(format!(
                "--nodes {text}: there is no such file; give a file, a number, or NUMBER:RESOURCES such as \
                 10:cpu=16,memory=64Gi"
            )));
        }
        let mut trace = trace_of(Path::new(text), input)?;
        if trace.nodes.is_empty() && trace.node_groups.is_empty() {
            return Err(CommandFailure::Usage(format!(
                "--nodes {text}: the file has no nodes"
            )));
        }
        trace.pods.clear();
        return Ok(trace);
    };
    if count > NODES_MAX {
        return Err(CommandFailure::Usage(format!(
            "--nodes {text}: at most {NODES_MAX} nodes are simulated"
        )));
    }
    let resources = shape_of(text, shape)?;
    let mut trace = Trace::default();
    for (at, zone) in (1..=count).zip(ZONES.iter().cycle()) {
        let shape = NodeShape {
            resources: resources.clone(),
            labels: berth_api::Labels::from_pairs([
                ("topology.kubernetes.io/region", "berth"),
                ("topology.kubernetes.io/zone", zone),
            ]),
            taints: Vec::new(),
        };
        trace
            .nodes
            .push(TraceNode::new(format!("berth-node-{at}"), shape.node()));
    }
    Ok(trace)
}

/// The resources of a shape, in addition to the resources of the nodes of `berth up`.
fn shape_of(text: &str, shape: &str) -> Result<ResourceList, CommandFailure> {
    let usual = [
        ("cpu", "4"),
        ("memory", "32Gi"),
        ("ephemeral-storage", "100Gi"),
        ("pods", "110"),
    ];
    let stated = shape.split(',').filter(|part| !part.is_empty());
    let stated = stated.map(|part| part.split_once('=').unwrap_or((part, "")));
    let mut list = ResourceList::default();
    for (name, amount) in usual.into_iter().chain(stated) {
        let amount = amount.trim().parse::<Quantity>().ok();
        let Some(amount) = amount.filter(|amount| amount.sign() >= 0) else {
            return Err(CommandFailure::Usage(format!(
                "--nodes {text}: {name:?} has no quantity of at least 0; write resources such as cpu=16,memory=64Gi"
            )));
        };
        list.set(name.trim().into(), amount);
    }
    Ok(list)
}

/// Removes nodes by name, or a number of the nodes that exist at the start.
fn remove_nodes(trace: &mut Trace, removed: &str) -> Result<(), CommandFailure> {
    separate(trace);
    let names: Vec<String> = match removed.parse::<usize>() {
        Ok(count) => {
            let present = trace.nodes.iter().filter(|node| node.joins.is_zero());
            let mut names: Vec<String> = present.map(|node| node.name.to_string()).collect();
            if names.len() < count {
                return Err(CommandFailure::Usage(format!(
                    "--remove-nodes {count}: {} nodes exist at the start",
                    names.len()
                )));
            }
            names.sort_by(|a, b| by_number(a, b));
            names.split_off(names.len() - count)
        }
        Err(_) => removed
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
    };
    for name in names {
        let before = trace.nodes.len();
        trace.nodes.retain(|node| *node.name != *name);
        if trace.nodes.len() == before {
            return Err(CommandFailure::Usage(format!(
                "--remove-nodes: there is no node {name}"
            )));
        }
        // Pods that ran there arrive without a node.
        for pod in &mut trace.pods {
            if *pod.pod.spec.node_name == *name {
                let mut waiting = Pod::clone(&pod.pod);
                waiting.spec.node_name = Default::default();
                pod.pod = Arc::new(waiting);
            }
        }
    }
    Ok(())
}

/// Makes separate nodes of equal nodes.
fn separate(trace: &mut Trace) {
    let nodes = std::mem::take(&mut trace.nodes);
    for node in nodes {
        if node.count == 1 {
            trace.nodes.push(node);
            continue;
        }
        for copy in 0..node.count {
            trace.nodes.push(TraceNode {
                name: format!("{}-{copy}", node.name).into(),
                count: 1,
                ..node.clone()
            });
        }
    }
}

/// The order of names whose numbers are compared as numbers: `node-2` before `node-10`.
fn by_number(a: &str, b: &str) -> std::cmp::Ordering {
    let split = |name: &str| {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (text, number) = name.split_at(name.len() - digits);
        (text.to_owned(), number.parse::<u64>().unwrap_or(0))
    };
    split(a).cmp(&split(b))
}

/// A node of a file, as traces have it.
pub(super) fn trace_node(node: &Node) -> TraceNode {
    TraceNode::new(node.name().clone(), node.clone())
}
