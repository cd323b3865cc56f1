//! Traces as YAML: everything that a trace has.

#[cfg(test)]
mod tests;

use super::fields::{Dates, GateText, GroupsOfPods, gate, taint};
use super::{LoadPod, TextError};
use crate::distribution::Distribution;
use crate::generate::{AmountDistribution, Arrivals, GENERATED_MAX, Generator};
use crate::span::{Moment, parse_span};
use crate::trace::{
    CHUNKS_MAX, CapacityBuffer, NodeGroup, NodeShape, Outage, PodShape, Quota, Trace, TraceGroup,
    TraceNode, TracePod,
};
use berth_api::{Duration, Labels, Pod, ResourceList, Str, Time};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A value that is read from its text; numbers are their text.
struct Text<T>(T);

/// A type that is read from a text.
trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

impl FromText for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        parse_span(text)
    }
}

impl FromText for Moment {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl FromText for Distribution {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl FromText for AmountDistribution {
    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl FromText for berth_api::Taint {
    fn from_text(text: &str) -> Result<Self, String> {
        taint(text)
    }
}

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl Visitor<'_> for AsText {
            type Value = String;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }
            fn visit_str<E>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }
            fn visit_i64<E>(self, number: i64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_u64<E>(self, number: u64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_f64<E>(self, number: f64) -> Result<String, E> {
                Ok(number.to_string())
            }
        }
        let text = deserializer.deserialize_any(AsText)?;
        T::from_text(&text).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TraceText {
    start: Option<Time>,
    world: WorldText,
    pods: Vec<PodText>,
    generate: Vec<GeneratorText>,
    groups: Vec<GroupText>,
    nodes: Vec<NodeText>,
    node_groups: Vec<NodeGroupText>,
    capacity_buffers: Vec<BufferText>,
    quotas: Vec<QuotaText>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WorldText {
    api_latency: Option<Text<Distribution>>,
    start_latency: Option<Text<Distribution>>,
    recreate_latency: Option<Text<Distribution>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodText {
    name: Str,
    #[serde(default)]
    namespace: Str,
    #[serde(default)]
    arrival: Option<Text<Moment>>,
    #[serde(default)]
    every: Option<Text<Duration>>,
    #[serde(default)]
    duration: Option<Text<Distribution>>,
    #[serde(default)]
    requests: ResourceList,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    group: Option<Str>,
    #[serde(default)]
    gates: BTreeMap<String, String>,
    #[serde(default)]
    recreated: bool,
    #[serde(default)]
    scheduler: Str,
    #[serde(default)]
    node_selector: Labels,
    #[serde(default)]
    node: Str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GeneratorText {
    name: Str,
    #[serde(default)]
    namespace: Str,
    arrivals: ArrivalsText,
    #[serde(default)]
    from: Option<Text<Duration>>,
    until: Text<Duration>,
    #[serde(default)]
    maximum: Option<u64>,
    #[serde(default)]
    duration: Option<Text<Distribution>>,
    #[serde(default)]
    requests: BTreeMap<Str, Text<AmountDistribution>>,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    recreated: bool,
    #[serde(default)]
    scheduler: Str,
    #[serde(default)]
    node_selector: Labels,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ArrivalsText {
    per_hour: f64,
    /// The hour of the highest rate makes it a daily pattern.
    #[serde(default)]
    peak_hour: Option<f64>,
    #[serde(default)]
    swing: Option<f64>,
    /// The mean size makes it bursts.
    #[serde(default)]
    burst_size: Option<f64>,
}

impl ArrivalsText {
    fn arrivals(&self) -> Result<Arrivals, String> {
        let per_hour = self.per_hour;
        if !(per_hour.is_finite() && per_hour > 0.0) {
            return Err("arrivals.perHour must be above 0".to_owned());
        }
        Ok(match (self.peak_hour, self.burst_size) {
            (Some(_), Some(_)) => {
                return Err("arrivals has peakHour and burstSize; give one of them".to_owned());
            }
            (Some(peak_hour), None) => {
                let swing = self.swing.unwrap_or(0.5);
                if !(0.0..=1.0).contains(&swing) {
                    return Err("arrivals.swing must be from 0 to 1".to_owned());
                }
                Arrivals::Daily {
                    per_hour,
                    peak_hour,
                    swing,
                }
            }
            (None, Some(size)) if size >= 1.0 && size.is_finite() => {
                Arrivals::Bursts { per_hour, size }
            }
            (None, Some(_)) => return Err("arrivals.burstSize must be at least 1".to_owned()),
            (None, None) if self.swing.is_some() => {
                return Err(
                    "arrivals.swing needs peakHour, the hour of the highest rate".to_owned(),
                );
            }
            (None, None) => Arrivals::Poisson { per_hour },
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupText {
    name: Str,
    #[serde(default)]
    namespace: Str,
    minimum: u32,
    #[serde(default)]
    topology: Option<Str>,
    #[serde(default)]
    priority: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeText {
    name: Str,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    resources: ResourceList,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    taints: Vec<Text<berth_api::Taint>>,
    #[serde(default)]
    joins: Option<Text<Moment>>,
    #[serde(default)]
    leaves: Option<Text<Moment>>,
    #[serde(default)]
    outages: Vec<OutageText>,
    #[serde(default)]
    price_per_hour: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OutageText {
    at: Text<Moment>,
    #[serde(default, rename = "for")]
    length: Option<Text<Duration>>,
    #[serde(default)]
    drain: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeGroupText {
    name: Str,
    resources: ResourceList,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    taints: Vec<Text<berth_api::Taint>>,
    #[serde(default)]
    minimum: u32,
    maximum: u32,
    #[serde(default)]
    boot: Option<Text<Distribution>>,
    #[serde(default)]
    idle: Option<Text<Duration>>,
    #[serde(default)]
    price_per_hour: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BufferText {
    name: Str,
    #[serde(default)]
    namespace: Str,
    #[serde(default)]
    requests: ResourceList,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    template: Option<String>,
    #[serde(default)]
    node_selector: Labels,
    replicas: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuotaText {
    namespace: Str,
    hard: ResourceList,
}

/// The time for which a new node boots, and for which it is idle before it is removed, unless stated.
const BOOT: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Reads a trace.
///
/// # Errors
/// The first mistake.
pub fn read_yaml(text: &str, load: &mut LoadPod<'_>) -> Result<Trace, TextError> {
    let read: TraceText = serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location();
        TextError {
            line: place.map_or(1, |place| place.line()),
            column: place.map_or(0, |place| place.column()),
            field: String::new(),
            message: message_of(&error),
        }
    })?;
    let mut trace = Trace::default();
    if let Some(latency) = read.world.api_latency {
        trace.world.api_latency = latency.0;
    }
    if let Some(latency) = read.world.start_latency {
        trace.world.start_latency = latency.0;
    }
    if let Some(latency) = read.world.recreate_latency {
        trace.world.recreate_latency = latency.0;
    }
    let mut dates = Dates::with_start(read.start);
    trace.groups = read.groups.into_iter().map(group).collect();
    let (pods, groups) = pods(read.pods, &mut dates, load)?;
    for node in &read.nodes {
        let outages = node.outages.iter().map(|outage| &outage.at);
        for moment in node.joins.iter().chain(&node.leaves).chain(outages) {
            dates.note(moment.0);
        }
    }
    trace.start = dates.start();
    let pods = pods.into_iter().map(|(pod, arrival, gates)| TracePod {
        arrival: dates.offset(arrival),
        gates: dates.gates(gates),
        ..pod
    });
    trace.pods = pods.collect();
    groups.finish(&mut trace);
    for (at, text) in read.generate.into_iter().enumerate() {
        let generator = generator(text, load).map_err(|e| of_item("generate", at, e))?;
        trace.generators.push(generator);
    }
    trace.nodes = read
        .nodes
        .into_iter()
        .map(|text| node(text, &dates))
        .collect();
    for (at, text) in read.node_groups.into_iter().enumerate() {
        let group = node_group(text).map_err(|e| of_item("nodeGroups", at, e))?;
        trace.node_groups.push(group);
    }
    for (at, text) in read.capacity_buffers.into_iter().enumerate() {
        let buffer = buffer(text, load).map_err(|e| of_item("capacityBuffers", at, e))?;
        trace.buffers.push(buffer);
    }
    trace.quotas = read.quotas.into_iter().map(quota).collect();
    Ok(trace)
}

/// Pods before the start of the trace is known, with their arrivals and gates.
type UndatedPods = Vec<(TracePod, Moment, Vec<GateText>)>;

fn pods(
    texts: Vec<PodText>,
    dates: &mut Dates,
    load: &mut LoadPod<'_>,
) -> Result<(UndatedPods, GroupsOfPods), TextError> {
    let mut groups = GroupsOfPods::default();
    let mut pods = Vec::with_capacity(texts.len());
    for (at, pod) in texts.into_iter().enumerate() {
        let in_list = |message: String| of_item("pods", at, message);
        let gates = pod.gates.iter().map(|(name, cause)| gate(name, cause));
        let gates: Result<Vec<GateText>, String> = gates.collect();
        let gates = gates.map_err(in_list)?;
        let arrival = pod.arrival.as_ref();
        let arrival = arrival.map_or(Moment::Offset(Duration::ZERO), |at| at.0);
        dates.note(arrival);
        dates.note_gates(&gates);
        let made = trace_pod(pod, load).map_err(in_list)?;
        if let Some(name) = made.pod.pod_group_name() {
            let group = (made.pod.namespace(), name);
            let added = groups.add(group, None, None, made.pod.spec.priority, made.count);
            added.map_err(in_list)?;
        }
        pods.push((made, arrival, gates));
    }
    Ok((pods, groups))
}

/// The first line of an error: the place is stated beside it, and the others show the text.
fn message_of(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    // "line 3 column 5: …" and "… at line 3, column 5" repeat the place.
    let first = match first.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest,
        _ => first,
    };
    let end = first.rfind(" at line ").unwrap_or(first.len());
    first[..end].to_owned()
}

fn of_item(list: &str, at: usize, message: String) -> TextError {
    TextError {
        line: 1,
        column: 0,
        field: format!("{list}[{at}]"),
        message,
    }
}

fn or_default(namespace: Str) -> Str {
    if namespace.is_empty() {
        "default".into()
    } else {
        namespace
    }
}

fn group(text: GroupText) -> TraceGroup {
    TraceGroup {
        namespace: or_default(text.namespace),
        name: text.name,
        minimum: text.minimum,
        topology: text.topology,
        priority: text.priority,
    }
}

fn quota(text: QuotaText) -> Quota {
    let hard = text.hard.iter().map(|(name, amount)| {
        let name = name.strip_prefix("requests.").unwrap_or(name);
        (Str::from(name), *amount)
    });
    Quota {
        namespace: text.namespace,
        hard: ResourceList::from_pairs(hard),
    }
}

fn template(path: Option<&str>, load: &mut LoadPod<'_>) -> Result<Pod, String> {
    path.map_or_else(|| Ok(Pod::default()), load)
}

fn trace_pod(text: PodText, load: &mut LoadPod<'_>) -> Result<TracePod, String> {
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        priority: text.priority,
        requests: text.requests,
        group: text.group,
        scheduler_name: text.scheduler,
        node_selector: text.node_selector,
    };
    let mut pod = shape.over(template(text.template.as_deref(), load)?);
    if !text.node.is_empty() {
        pod.spec.node_name = text.node;
    }
    Ok(TracePod {
        every: text.every.map(|every| every.0).unwrap_or_default(),
        duration: text.duration.map(|duration| duration.0),
        count: text.count.unwrap_or(1),
        recreated: text.recreated,
        ..TracePod::new(text.name, pod)
    })
}

fn buffer(text: BufferText, load: &mut LoadPod<'_>) -> Result<CapacityBuffer, String> {
    if text.replicas > CHUNKS_MAX {
        return Err(format!(
            "replicas is {}; at most {CHUNKS_MAX} chunks are supported",
            text.replicas
        ));
    }
    if text.requests.iter().next().is_none() && text.template.is_none() {
        return Err("the chunks have no shape; give requests or a template".to_owned());
    }
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        requests: text.requests,
        node_selector: text.node_selector,
        ..PodShape::default()
    };
    let pod = shape.over(template(text.template.as_deref(), load)?);
    Ok(CapacityBuffer {
        namespace: pod.namespace().clone(),
        name: text.name,
        pod: Arc::new(pod),
        chunks: text.replicas,
    })
}

fn generator(text: GeneratorText, load: &mut LoadPod<'_>) -> Result<Generator, String> {
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        priority: text.priority,
        scheduler_name: text.scheduler,
        node_selector: text.node_selector,
        ..PodShape::default()
    };
    let pod = shape.over(template(text.template.as_deref(), load)?);
    let requests = text
        .requests
        .into_iter()
        .map(|(name, amount)| (name, amount.0));
    Ok(Generator {
        name: text.name,
        pod: Arc::new(pod),
        requests: requests.collect(),
        arrivals: text.arrivals.arrivals()?,
        from: text.from.map(|from| from.0).unwrap_or_default(),
        until: text.until.0,
        maximum: text.maximum.unwrap_or(GENERATED_MAX),
        duration: text.duration.map(|duration| duration.0),
        recreated: text.recreated,
    })
}

fn shape_of_node(
    resources: ResourceList,
    labels: Labels,
    taints: Vec<Text<berth_api::Taint>>,
) -> NodeShape {
    NodeShape {
        resources,
        labels,
        taints: taints.into_iter().map(|taint| taint.0).collect(),
    }
}

fn node(text: NodeText, dates: &Dates) -> TraceNode {
    let outages = text.outages.into_iter().map(|outage| Outage {
        at: dates.offset(outage.at.0),
        length: outage.length.map(|length| length.0),
        drain: outage.drain,
    });
    let shape = shape_of_node(text.resources, text.labels, text.taints);
    TraceNode {
        count: text.count.unwrap_or(1),
        joins: text
            .joins
            .map_or(Duration::ZERO, |moment| dates.offset(moment.0)),
        leaves: text.leaves.map(|moment| dates.offset(moment.0)),
        outages: outages.collect(),
        price_per_hour: text.price_per_hour,
        ..TraceNode::new(text.name, shape.node())
    }
}

fn node_group(text: NodeGroupText) -> Result<NodeGroup, String> {
    if text.minimum > text.maximum {
        return Err(format!(
            "the minimum {} is above the maximum {}",
            text.minimum, text.maximum
        ));
    }
    let shape = shape_of_node(text.resources, text.labels, text.taints);
    Ok(NodeGroup {
        name: text.name,
        node: Arc::new(shape.node()),
        minimum: text.minimum,
        maximum: text.maximum,
        boot: text
            .boot
            .map_or(Distribution::Constant(BOOT), |boot| boot.0),
        idle: text.idle.map_or(IDLE, |idle| idle.0),
        price_per_hour: text.price_per_hour,
    })
}
