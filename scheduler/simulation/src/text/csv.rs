//! Traces as CSV (RFC 4180): pods if there is a column `arrival`, nodes otherwise.

mod records;
#[cfg(test)]
mod tests;

use super::fields::{
    Dates, GateText, GroupsOfPods, RESOURCES, SharedPods, Whole, amount, boolean, count,
    grace_period, is_resource, labels, number, parts, price, removal, taint,
};
use super::{LoadPod, TextError};
use crate::distribution::Distribution;
use crate::names::Names;
use crate::span::{Moment, parse_span};
use crate::trace::{NodeShape, Outage, PodShape, Trace, TraceNode, TracePod};
use berth_api::{Duration, Pod, Str};
use berth_scheduler::profile::closest;
use records::{Record, Records};
use std::sync::Arc;

/// The columns of pods. Requests have the name of their resource.
const POD_COLUMNS: &[&str] = &[
    "name",
    "namespace",
    "arrival",
    "every",
    "duration",
    "labels",
    "priority",
    "priority-class-name",
    "count",
    "group",
    "group-minimum",
    "group-topology",
    "template",
    "gates",
    "recreated",
    "scheduler",
    "node-selector",
    "node",
    "grace-period",
];
/// The columns of nodes. Allocatable amounts have the name of their resource.
const NODE_COLUMNS: &[&str] = &[
    "name",
    "count",
    "labels",
    "taints",
    "joins",
    "leaves",
    "fails",
    "drains",
    "price-per-hour",
];

/// A record with the names of its fields.
struct Row<'r> {
    names: &'r [String],
    record: &'r Record,
}

impl Row<'_> {
    fn error(&self, at: usize, message: String) -> TextError {
        TextError {
            line: self.record.line,
            column: self.record.fields.get(at).map_or(0, |(_, column)| *column),
            field: self.names.get(at).cloned().unwrap_or_default(),
            message,
        }
    }

    /// The text of a column; `None` if the column is missing or empty.
    fn text(&self, name: &str) -> Option<(usize, &str)> {
        let at = self.names.iter().position(|known| known == name)?;
        let (text, _) = self.record.fields.get(at)?;
        (!text.is_empty()).then_some((at, text.as_str()))
    }

    /// The value of a column.
    fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, TextError> {
        let value = self
            .text(name)
            .map(|(at, text)| read(text).map_err(|e| self.error(at, e)));
        value.transpose()
    }

    fn number<T: Whole>(&self, name: &str) -> Result<Option<T>, TextError> {
        self.read(name, number)
    }

    fn name(&self, name: &str) -> Option<Str> {
        self.text(name).map(|(_, text)| text.into())
    }

    /// The amounts of the resource columns.
    fn resources(&self, columns: &[&str]) -> Result<berth_api::ResourceList, TextError> {
        let mut list = berth_api::ResourceList::default();
        for (at, name) in self.names.iter().enumerate() {
            if columns.contains(&name.as_str()) || name.starts_with("label:") {
                continue;
            }
            let Some((text, _)) = self
                .record
                .fields
                .get(at)
                .filter(|(text, _)| !text.is_empty())
            else {
                continue;
            };
            let amount = amount(text).map_err(|e| self.error(at, e))?;
            list.set(name.as_str().into(), amount);
        }
        Ok(list)
    }

    /// The labels of the column `labels`, and of columns such as `label:app`.
    fn labels(&self) -> Result<berth_api::Labels, TextError> {
        let mut all = self.read("labels", labels)?.unwrap_or_default();
        for (name, (text, _)) in self.names.iter().zip(&self.record.fields) {
            if let Some(key) = name.strip_prefix("label:")
                && !text.is_empty()
            {
                all = all.with(key, text);
            }
        }
        Ok(all)
    }
}

/// Reads pods, if there is a column `arrival`, or nodes.
///
/// # Errors
/// The first mistake.
pub fn read_csv(text: &str, load: &mut LoadPod<'_>) -> Result<Trace, TextError> {
    let mut records = Records {
        rest: text.trim_start_matches('\u{feff}'),
        line: 0,
    };
    let Some(header) = records.next()? else {
        return Err(TextError {
            line: 1,
            column: 0,
            field: String::new(),
            message: "the file is empty; its first line has the names of the columns, such as \
                      name,arrival,duration,cpu,memory"
                .to_owned(),
        });
    };
    let names: Vec<String> = header
        .fields
        .iter()
        .map(|(text, _)| column_name(text))
        .collect();
    let are_pods = names.iter().any(|name| name == "arrival");
    let known = if are_pods { POD_COLUMNS } else { NODE_COLUMNS };
    check_columns(&names, &header, known, are_pods)?;
    let mut trace = Trace::default();
    if are_pods {
        read_pods(&mut records, &names, load, &mut trace)?;
    } else {
        read_nodes(&mut records, &names, &mut trace)?;
    }
    Ok(trace)
}

/// The normalised name of a column, without differences in case and separators; names of resources and labels are
/// unchanged.
fn column_name(text: &str) -> String {
    let text = text.trim();
    if text.contains('/') || text.starts_with("label:") {
        text.to_owned()
    } else {
        text.to_ascii_lowercase().replace(['_', ' '], "-")
    }
}

fn check_columns(
    names: &[String],
    header: &Record,
    known: &[&str],
    are_pods: bool,
) -> Result<(), TextError> {
    for (at, name) in names.iter().enumerate() {
        let row = Row {
            names,
            record: header,
        };
        let is_known =
            known.contains(&name.as_str()) || is_resource(name) || name.starts_with("label:");
        if !is_known {
            let columns = known.iter().chain(&RESOURCES).chain(&["arrival"]).copied();
            if let Some(near) = closest(name, columns) {
                let message = format!("unknown column {name:?}; did you mean {near:?}?");
                return Err(row.error(at, message));
            }
            let kind = if are_pods { "pods" } else { "nodes" };
            let hint = if are_pods {
                ""
            } else {
                " (a file of pods has the column arrival)"
            };
            return Err(row.error(
                at,
                format!(
                    "unknown column {name:?} of {kind}{hint}; the columns are {}, label:KEY, and resources such as \
                     cpu, memory, example.com/gpu",
                    known.join(", ")
                ),
            ));
        }
        if names[..at].contains(name) {
            return Err(row.error(at, format!("the column {name:?} is given twice")));
        }
    }
    Ok(())
}

/// A row of pods before the start of the trace is known.
struct PodText {
    pod: TracePod,
    arrival: Moment,
    gates: Vec<GateText>,
}

fn read_pods(
    records: &mut Records<'_>,
    names: &[String],
    load: &mut LoadPod<'_>,
    trace: &mut Trace,
) -> Result<(), TextError> {
    let (mut dates, mut groups) = (Dates::default(), GroupsOfPods::default());
    let mut names_of_pods = Names::default();
    let mut shared = SharedPods::default();
    let mut texts: Vec<PodText> = Vec::new();
    while let Some(record) = records.next()? {
        let row = Row {
            names,
            record: &record,
        };
        check_width(&row)?;
        let text = pod_text(&row, &mut shared, load, texts.len())?;
        dates.note(text.arrival);
        dates.note_gates(&text.gates);
        let at = row.text("name").map_or(0, |(at, _)| at);
        names_of_pods
            .add(
                text.pod.pod.namespace(),
                &text.pod.name,
                text.pod.count,
                record.line,
            )
            .map_err(|e| row.error(at, e.to_string()))?;
        if let Some(name) = text.pod.pod.pod_group_name() {
            let minimum = row.number("group-minimum")?;
            let at = row.text("group").map_or(0, |(at, _)| at);
            let (namespace, priority) = (text.pod.pod.namespace(), text.pod.pod.spec.priority);
            groups
                .add(
                    namespace,
                    name,
                    minimum,
                    row.name("group-topology"),
                    priority,
                    text.pod.count,
                )
                .map_err(|e| row.error(at, e))?;
        }
        texts.push(text);
    }
    trace.start = dates.start();
    let pods = texts.into_iter().map(|text| TracePod {
        arrival: dates.offset(text.arrival),
        gates: dates.gates(text.gates),
        ..text.pod
    });
    trace.pods = pods.collect();
    groups.finish(trace);
    Ok(())
}

fn check_width(row: &Row<'_>) -> Result<(), TextError> {
    let (has, wanted) = (row.record.fields.len(), row.names.len());
    if has > wanted {
        return Err(row.error(
            wanted,
            format!("the line has {has} fields, the first line names {wanted} columns; write fields with commas in quotes"),
        ));
    }
    Ok(())
}

fn pod_text(
    row: &Row<'_>,
    shared: &mut SharedPods,
    load: &mut LoadPod<'_>,
    number: usize,
) -> Result<PodText, TextError> {
    let arrival = row.read("arrival", Moment::parse)?;
    let gates = row.read("gates", |text| {
        let gates = parts(text).map(|part| {
            let (name, cause) = part.split_once('@').ok_or_else(|| {
                format!("{part:?} is no gate; write NAME@10m, NAME@end:NAMESPACE/POD or NAME@quota")
            })?;
            removal(cause).map(|removal| GateText::new(name, removal))
        });
        gates.collect::<Result<Vec<_>, String>>()
    })?;
    let pod = match shared.get(&shape_key(row)) {
        Some(pod) => pod,
        None => {
            let pod = shape_of(row, load)?;
            shared.put(shape_key(row), pod)
        }
    };
    let name = row
        .name("name")
        .unwrap_or_else(|| format!("pod-{number}").into());
    Ok(PodText {
        arrival: arrival.unwrap_or(Moment::Offset(Duration::ZERO)),
        gates: gates.unwrap_or_default(),
        pod: TracePod {
            every: row.read("every", parse_span)?.unwrap_or_default(),
            duration: row.read("duration", Distribution::parse)?,
            count: row.read("count", count)?.unwrap_or(1),
            recreated: row.read("recreated", boolean)?.unwrap_or(false),
            ..TracePod::new(name, pod)
        },
    })
}

/// The fields of the shape of a pod, so that pods with equal fields share one shape.
fn shape_key(row: &Row<'_>) -> String {
    const OWN: [&str; 8] = [
        "name",
        "arrival",
        "every",
        "duration",
        "count",
        "gates",
        "recreated",
        "group-minimum",
    ];
    let mut key = String::new();
    for (name, (text, _)) in row.names.iter().zip(&row.record.fields) {
        if !OWN.contains(&name.as_str()) {
            key.push_str(text);
            key.push('\u{1f}');
        }
    }
    key
}

fn shape_of(row: &Row<'_>, load: &mut LoadPod<'_>) -> Result<Pod, TextError> {
    let template = row.read("template", |path| load(path))?;
    let shape = PodShape {
        namespace: row.name("namespace").unwrap_or_default(),
        labels: row.labels()?,
        priority: row.number("priority")?,
        priority_class: row.name("priority-class-name").unwrap_or_default(),
        requests: row.resources(POD_COLUMNS)?,
        group: row.name("group"),
        scheduler_name: row.name("scheduler").unwrap_or_default(),
        node_selector: row.read("node-selector", labels)?.unwrap_or_default(),
        grace_period: row.read("grace-period", grace_period)?,
    };
    let mut pod = shape.over(template.unwrap_or_default());
    if let Some(node) = row.name("node") {
        pod.spec.node_name = node;
    }
    Ok(pod)
}

/// A row of nodes before the start of the trace is known.
struct NodeText {
    node: TraceNode,
    joins: Option<Moment>,
    leaves: Option<Moment>,
    outages: Vec<(Moment, Option<Duration>, bool)>,
}

fn read_nodes(
    records: &mut Records<'_>,
    names: &[String],
    trace: &mut Trace,
) -> Result<(), TextError> {
    let (mut dates, mut names_of_nodes) = (Dates::default(), Names::default());
    let mut texts = Vec::new();
    while let Some(record) = records.next()? {
        let row = Row {
            names,
            record: &record,
        };
        check_width(&row)?;
        let text = node_text(&row, texts.len())?;
        let at = row.text("name").map_or(0, |(at, _)| at);
        names_of_nodes
            .add(
                &Str::default(),
                &text.node.name,
                text.node.count,
                record.line,
            )
            .map_err(|e| row.error(at, e.to_string()))?;
        let outages = text.outages.iter().map(|(at, ..)| *at);
        for moment in text.joins.into_iter().chain(text.leaves).chain(outages) {
            dates.note(moment);
        }
        texts.push((text, record));
    }
    trace.start = dates.start();
    for (text, record) in texts {
        let row = Row {
            names,
            record: &record,
        };
        let at = row.text("leaves").map_or(0, |(at, _)| at);
        let (joins, leaves) = dates
            .presence(text.joins, text.leaves)
            .map_err(|e| row.error(at, e))?;
        let outages = text.outages.into_iter().map(|(at, length, drain)| Outage {
            at: dates.offset(at),
            length,
            drain,
        });
        trace.nodes.push(TraceNode {
            joins,
            leaves,
            outages: outages.collect(),
            ..text.node
        });
    }
    Ok(())
}

fn node_text(row: &Row<'_>, number: usize) -> Result<NodeText, TextError> {
    let shape = NodeShape {
        resources: row.resources(NODE_COLUMNS)?,
        labels: row.labels()?,
        taints: row
            .read("taints", |text| parts(text).map(taint).collect())?
            .unwrap_or_default(),
    };
    let price = row.read("price-per-hour", price)?;
    let mut outages = Vec::new();
    for (column, drain) in [("fails", false), ("drains", true)] {
        let found = row.read(column, |text| {
            let outage = |part: &str| outage(part).map(|(at, length)| (at, length, drain));
            parts(text).map(outage).collect::<Result<Vec<_>, String>>()
        })?;
        outages.extend(found.unwrap_or_default());
    }
    let name = row
        .name("name")
        .unwrap_or_else(|| format!("node-{number}").into());
    Ok(NodeText {
        joins: row.read("joins", Moment::parse)?,
        leaves: row.read("leaves", Moment::parse)?,
        outages,
        node: TraceNode {
            count: row.read("count", count)?.unwrap_or(1),
            price_per_hour: price.unwrap_or(0.0),
            ..TraceNode::new(name, Arc::new(shape.node()))
        },
    })
}

/// Reads the time of an outage: `2h`, or `2h for 10m`.
fn outage(text: &str) -> Result<(Moment, Option<Duration>), String> {
    match text.split_once(" for ") {
        Some((at, length)) => Ok((Moment::parse(at)?, Some(parse_span(length)?))),
        None => Ok((Moment::parse(text)?, None)),
    }
}
