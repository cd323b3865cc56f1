//! Traces as YAML, with all parts of a trace.

mod document;
#[cfg(test)]
mod tests;
mod values;

use super::fields::{Dates, GateText, GroupsOfPods};
use super::{LoadPod, PlacedObject, TextError, YamlTrace};
use crate::distribution::Distribution;
use crate::names::{DRAWN, Names};
use crate::span::Moment;
use crate::trace::generate::{GENERATED_MAX, Generator};
use crate::trace::{
    CHUNKS_MAX, CapacityBuffer, NodeGroup, NodeShape, Outage, PodShape, Quota, Trace, TraceGroup,
    TraceNode, TracePod,
};
use berth_api::{Duration, Labels, Pod, ResourceSlice, Str, Taint};
use document::{
    BufferText, GeneratorText, GroupText, NodeGroupText, NodeText, PodText, SliceText, TraceText,
    WorldText,
};
use serde_saphyr::{Location, Spanned};
use std::sync::Arc;
use values::{Amounts, Text, mistake, unreadable};

/// The default boot time of a new node, and its default idle time before it is removed.
const BOOT: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Reads a trace.
///
/// # Errors
/// The first mistake.
pub fn read_yaml(text: &str, load: &mut LoadPod<'_>) -> Result<YamlTrace, TextError> {
    let read: TraceText = serde_saphyr::from_str(text).map_err(|error| unreadable(&error))?;
    let mut trace = Trace::default();
    set_world(&mut trace, read.world);
    let mut dates = Dates::with_start(read.start.map(|start| start.0));
    let mut names = Names::default();
    for text in read.groups {
        let place = text.name.referenced;
        let group = group(text);
        let added = names.add(&group.namespace, &group.name, 1, place.line());
        added.map_err(|e| mistake(place, e.to_string()))?;
        trace.groups.push(group);
    }
    let mut names = Names::default();
    let (pods, groups) = pods(read.pods, &mut dates, &mut names, load)?;
    for node in &read.nodes {
        let outages = node.outages.iter().map(|outage| &outage.at);
        let leaves = node.leaves.iter().map(|leaves| &leaves.value);
        for moment in node.joins.iter().chain(leaves).chain(outages) {
            dates.note(moment.0);
        }
    }
    trace.start = dates.start();
    for (pod, arrival, gates) in pods {
        let at = dates.arrival(arrival.value);
        trace.pods.push(TracePod {
            arrival: at.map_err(|e| mistake(arrival.referenced, e))?,
            gates: dates.gates(gates),
            ..pod
        });
    }
    groups.finish(&mut trace);
    for text in read.generate {
        let place = text.name.referenced;
        let generator = generator(text, load)?;
        let namespace = generator.pod.namespace();
        let added = names.add(namespace, &generator.name, DRAWN, place.line());
        added.map_err(|e| mistake(place, e.to_string()))?;
        trace.generators.push(generator);
    }
    let mut names = Names::default();
    for text in read.nodes {
        let place = text.name.referenced;
        let node = node(text, &dates)?;
        let added = names.add(&Str::default(), &node.name, node.count, place.line());
        added.map_err(|e| mistake(place, e.to_string()))?;
        trace.nodes.push(node);
    }
    for text in read.node_groups {
        let place = text.name.referenced;
        let group = node_group(text)?;
        let added = names.add(&Str::default(), &group.name, DRAWN, place.line());
        added.map_err(|e| mistake(place, e.to_string()))?;
        trace.node_groups.push(group);
    }
    for text in read.capacity_buffers {
        trace.buffers.push(buffer(text, load)?);
    }
    let quotas = read.quotas.into_iter().map(|text| Quota {
        namespace: text.namespace.0.clone(),
        hard: text.amounts(),
    });
    trace.quotas = quotas.collect();
    let objects = read.objects.into_iter().map(|object| PlacedObject {
        line: object.referenced.line(),
        column: object.referenced.column(),
        object: object.value,
    });
    Ok(YamlTrace {
        trace,
        objects: objects.collect(),
    })
}

fn set_world(trace: &mut Trace, text: WorldText) {
    let world = &mut trace.world;
    for (latency, stated) in [
        (&mut world.api_latency, text.api_latency),
        (&mut world.start_latency, text.start_latency),
        (&mut world.recreate_latency, text.recreate_latency),
    ] {
        if let Some(stated) = stated {
            *latency = stated.0;
        }
    }
}

/// Pods before the start of the trace is known, with their arrivals and gates.
type UndatedPods = Vec<(TracePod, Spanned<Moment>, Vec<GateText>)>;

fn pods(
    texts: Vec<PodText>,
    dates: &mut Dates,
    names: &mut Names,
    load: &mut LoadPod<'_>,
) -> Result<(UndatedPods, GroupsOfPods), TextError> {
    let mut groups = GroupsOfPods::default();
    let mut pods = Vec::with_capacity(texts.len());
    for mut text in texts {
        let place = text.name.referenced;
        let gates = std::mem::take(&mut text.gates).into_iter();
        let gates: Vec<GateText> = gates
            .map(|(name, removal)| GateText::new(&name, removal.0))
            .collect();
        let arrival = text.arrival.take().map_or_else(
            || Spanned::new(Moment::Offset(Duration::ZERO), place, place),
            |at| Spanned::new(at.value.0, at.referenced, at.defined),
        );
        dates.note(arrival.value);
        dates.note_gates(&gates);
        let made = trace_pod(text, load)?;
        let namespace = made.pod.namespace();
        let added = names.add(namespace, &made.name, made.count, place.line());
        added.map_err(|e| mistake(place, e.to_string()))?;
        if let Some(name) = made.pod.pod_group_name() {
            let priority = made.pod.spec.priority;
            let added = groups.add(namespace, name, None, None, priority, made.count);
            added.map_err(|e| mistake(place, e))?;
        }
        pods.push((made, arrival, gates));
    }
    Ok((pods, groups))
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
        name: text.name.value.0,
        minimum: text.minimum.0,
        topology: text.topology,
        priority: text.priority.map(|priority| priority.0),
        priority_class: text.priority_class_name,
    }
}

fn template(path: Option<Spanned<String>>, load: &mut LoadPod<'_>) -> Result<Pod, TextError> {
    path.map_or_else(
        || Ok(Pod::default()),
        |path| load(&path.value).map_err(|e| mistake(path.referenced, e)),
    )
}

fn trace_pod(text: PodText, load: &mut LoadPod<'_>) -> Result<TracePod, TextError> {
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        priority: text.priority.map(|priority| priority.0),
        priority_class: text.priority_class_name,
        requests: text.requests.list(),
        group: text.group,
        scheduler_name: text.scheduler,
        node_selector: text.node_selector,
        grace_period: text.grace_period.map(|grace| grace.0.0),
    };
    let mut pod = shape.over(template(text.template, load)?);
    if !text.node.is_empty() {
        pod.spec.node_name = text.node;
    }
    Ok(TracePod {
        every: text.every.map(|every| every.0).unwrap_or_default(),
        duration: text.duration.map(|duration| duration.0),
        count: text.count.map_or(1, |count| count.0.0),
        recreated: text.recreated.is_some_and(|recreated| recreated.0),
        ..TracePod::new(text.name.value.0, pod)
    })
}

fn buffer(text: BufferText, load: &mut LoadPod<'_>) -> Result<CapacityBuffer, TextError> {
    let chunks = text.replicas.value.0;
    if chunks > CHUNKS_MAX {
        let message = format!("replicas is {chunks}; at most {CHUNKS_MAX} chunks are supported");
        return Err(mistake(text.replicas.referenced, message));
    }
    if text.requests.is_empty() && text.template.is_none() {
        let message = "the chunks have no shape; give requests or a template";
        return Err(mistake(text.name.referenced, message));
    }
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        requests: text.requests.list(),
        node_selector: text.node_selector,
        ..PodShape::default()
    };
    let pod = shape.over(template(text.template, load)?);
    Ok(CapacityBuffer {
        namespace: pod.namespace().clone(),
        name: text.name.value.0,
        pod: Arc::new(pod),
        chunks,
    })
}

fn generator(text: GeneratorText, load: &mut LoadPod<'_>) -> Result<Generator, TextError> {
    let shape = PodShape {
        namespace: text.namespace,
        labels: text.labels,
        priority: text.priority.map(|priority| priority.0),
        priority_class: text.priority_class_name,
        scheduler_name: text.scheduler,
        node_selector: text.node_selector,
        grace_period: text.grace_period.map(|grace| grace.0.0),
        ..PodShape::default()
    };
    let pod = shape.over(template(text.template, load)?);
    let from = text.from.map(|from| from.0).unwrap_or_default();
    let until = text.until.value.0;
    if until <= from {
        let message = "until is not after from, so that no pod arrives; write a later time";
        return Err(mistake(text.until.referenced, message));
    }
    let requests = text.requests.into_iter();
    Ok(Generator {
        name: text.name.value.0,
        pod: Arc::new(pod),
        requests: requests
            .map(|(name, amount)| (name.0.0, amount.0))
            .collect(),
        arrivals: text.arrivals.arrivals()?,
        from,
        until,
        maximum: text.maximum.map_or(GENERATED_MAX, |maximum| maximum.0),
        duration: text.duration.map(|duration| duration.0),
        recreated: text.recreated.is_some_and(|recreated| recreated.0),
    })
}

fn shape_of_node(resources: Amounts, labels: Labels, taints: Vec<Text<Taint>>) -> NodeShape {
    NodeShape {
        resources: resources.list(),
        labels,
        taints: taints.into_iter().map(|taint| taint.0).collect(),
    }
}

fn node(text: NodeText, dates: &Dates) -> Result<TraceNode, TextError> {
    let leaves = text.leaves.as_ref();
    let place = leaves.map_or(Location::UNKNOWN, |leaves| leaves.referenced);
    let (joins, leaves) = dates
        .presence(
            text.joins.map(|joins| joins.0),
            leaves.map(|leaves| leaves.value.0),
        )
        .map_err(|e| mistake(place, e))?;
    let outages = text.outages.into_iter().map(|outage| Outage {
        at: dates.offset(outage.at.0),
        length: outage.length.map(|length| length.0),
        drain: outage.drain.is_some_and(|drain| drain.0),
    });
    let shape = shape_of_node(text.resources, text.labels, text.taints);
    Ok(TraceNode {
        count: text.count.map_or(1, |count| count.0.0),
        joins,
        leaves,
        outages: outages.collect(),
        price_per_hour: text.price_per_hour.map_or(0.0, |price| price.0.0),
        ..TraceNode::new(text.name.value.0, shape.node())
    })
}

/// The slices of a node. The slices of one driver are a pool.
fn slices(texts: Vec<SliceText>) -> Vec<Arc<ResourceSlice>> {
    let drivers: Vec<Str> = texts.iter().map(|text| text.driver.0.clone()).collect();
    let slices = texts.into_iter().map(|text| {
        let mut slice = ResourceSlice::default();
        let of_pool = drivers.iter().filter(|driver| **driver == text.driver.0);
        slice.spec.pool.generation = 1;
        slice.spec.pool.resource_slice_count = i64::try_from(of_pool.count()).unwrap_or(i64::MAX);
        slice.spec.driver = text.driver.0;
        slice.spec.devices = text.devices;
        slice.spec.shared_counters = text.shared_counters;
        Arc::new(slice)
    });
    slices.collect()
}

fn node_group(text: NodeGroupText) -> Result<NodeGroup, TextError> {
    let maximum = text.maximum.0;
    let minimum = text.minimum.as_ref().map_or(0, |minimum| minimum.value.0);
    if let Some(minimum) = text.minimum.filter(|minimum| minimum.value.0 > maximum) {
        let message = format!(
            "the minimum {} is above the maximum {maximum}",
            minimum.value.0
        );
        return Err(mistake(minimum.referenced, message));
    }
    let shape = shape_of_node(text.resources, text.labels, text.taints);
    Ok(NodeGroup {
        name: text.name.value.0,
        node: Arc::new(shape.node()),
        slices: slices(text.resource_slices),
        minimum,
        maximum,
        boot: text
            .boot
            .map_or(Distribution::Constant(BOOT), |boot| boot.0),
        idle: text.idle.map_or(IDLE, |idle| idle.0),
        price_per_hour: text.price_per_hour.map_or(0.0, |price| price.0.0),
    })
}
