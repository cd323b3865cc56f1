//! Traces as CSV (RFC 4180): pods if there is a column `arrival`, nodes otherwise.

use super::fields::{Dates, GateText, GroupsOfPods, SharedPods, gate, labels, parts, taint};
use super::{LoadPod, TextError};
use crate::distribution::Distribution;
use crate::span::{Moment, parse_span};
use crate::trace::{NodeShape, Outage, PodShape, Trace, TraceNode, TracePod};
use berth_api::{Duration, Pod, Quantity, Str};
use std::str::FromStr;
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
/// The columns of resources without a domain.
const RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage", "pods"];

/// A record with the place of each field.
#[derive(Debug)]
struct Record {
    line: u64,
    /// The text of each field with its column.
    fields: Vec<(String, u64)>,
}

/// Splits a text into records. Empty lines and lines that begin with `#` are left out.
struct Records<'t> {
    rest: &'t str,
    line: u64,
}

impl Records<'_> {
    fn next(&mut self) -> Result<Option<Record>, TextError> {
        loop {
            self.line += 1;
            if self.rest.is_empty() {
                return Ok(None);
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let line = self.rest[..end].trim();
            if !line.is_empty() && !line.starts_with('#') {
                return self.record().map(Some);
            }
            self.rest = self.rest.get(end + 1..).unwrap_or("");
        }
    }

    fn record(&mut self) -> Result<Record, TextError> {
        let (first, mut column) = (self.line, 1);
        let mut fields = Vec::new();
        loop {
            let (text, is_last) = if self.rest.starts_with('"') {
                self.quoted(column)?
            } else {
                let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                let text = self.rest[..end].trim_end_matches('\r').trim().to_owned();
                let is_last = !self.rest[end..].starts_with(',');
                let width = self.rest[..end].chars().count() as u64 + 1;
                self.rest = self.rest.get(end + 1..).unwrap_or("");
                fields.push((text, column));
                column += width;
                if is_last {
                    break;
                }
                continue;
            };
            let width = text.chars().count() as u64 + 3;
            fields.push((text, column));
            column += width;
            if is_last {
                break;
            }
        }
        Ok(Record {
            line: first,
            fields,
        })
    }

    /// A field in quotes, and whether it is the last one of its record.
    fn quoted(&mut self, column: u64) -> Result<(String, bool), TextError> {
        let error = |line: u64, message: &str| TextError {
            line,
            column,
            field: String::new(),
            message: message.to_owned(),
        };
        let first = self.line;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        let end = loop {
            match chars.next() {
                Some((_, '"')) if chars.peek().is_some_and(|(_, c)| *c == '"') => {
                    text.push('"');
                    chars.next();
                }
                Some((at, '"')) => break at + 1,
                Some((_, c)) => {
                    self.line += u64::from(c == '\n');
                    text.push(c);
                }
                None => {
                    return Err(error(
                        first,
                        "the quotes are not closed; add a \" at the end of the field",
                    ));
                }
            }
        };
        let rest = self.rest[end..].trim_start_matches([' ', '\r']);
        let is_last = match rest.chars().next() {
            Some(',') => false,
            None | Some('\n') => true,
            Some(_) => {
                let message =
                    "text follows the closing quotes; write \"\" for a quote within a field";
                return Err(error(self.line, message));
            }
        };
        self.rest = rest.get(1..).unwrap_or("");
        Ok((text, is_last))
    }
}

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

    /// The text of a column, if it is there and not empty.
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

    fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, TextError> {
        self.read(name, |text| {
            let wrong = |_| format!("{text:?} is no whole number that this column can have");
            text.parse().map_err(wrong)
        })
    }

    fn name(&self, name: &str) -> Option<Str> {
        self.text(name).map(|(_, text)| text.into())
    }

    /// The amounts of the columns that are resources.
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
            let amount: Quantity = text.parse().map_err(|_| {
                let message =
                    format!("{text:?} is no amount; write a quantity such as 500m, 2 or 4Gi");
                self.error(at, message)
            })?;
            if amount.sign() < 0 {
                return Err(self.error(at, "an amount is not negative".to_owned()));
            }
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

/// The name of a column, without differences in case and separators; those of resources and labels as they are.
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
        let is_known = known.contains(&name.as_str())
            || RESOURCES.contains(&name.as_str())
            || name.starts_with("label:")
            || name.starts_with("hugepages-")
            || name.contains('/');
        if !is_known {
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
        if let Some(name) = text.pod.pod.pod_group_name() {
            let minimum = row.number("group-minimum")?;
            let at = row.text("group").map_or(0, |(at, _)| at);
            let (namespace, priority) = (text.pod.pod.namespace(), text.pod.pod.spec.priority);
            groups
                .add(
                    (namespace, name),
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
            gate(name, cause)
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
            count: row.number("count")?.unwrap_or(1),
            recreated: row.read("recreated", boolean)?.unwrap_or(false),
            ..TracePod::new(name, pod)
        },
    })
}

/// The fields that make a pod what it is, so that equal ones are one.
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
        requests: row.resources(POD_COLUMNS)?,
        group: row.name("group"),
        scheduler_name: row.name("scheduler").unwrap_or_default(),
        node_selector: row.read("node-selector", labels)?.unwrap_or_default(),
    };
    let mut pod = shape.over(template.unwrap_or_default());
    if let Some(node) = row.name("node") {
        pod.spec.node_name = node;
    }
    Ok(pod)
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
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
    let mut dates = Dates::default();
    let mut texts = Vec::new();
    while let Some(record) = records.next()? {
        let row = Row {
            names,
            record: &record,
        };
        check_width(&row)?;
        let text = node_text(&row, texts.len())?;
        let outages = text.outages.iter().map(|(at, ..)| *at);
        for moment in text.joins.into_iter().chain(text.leaves).chain(outages) {
            dates.note(moment);
        }
        texts.push(text);
    }
    trace.start = dates.start();
    let nodes = texts.into_iter().map(|text| TraceNode {
        joins: text
            .joins
            .map_or(Duration::ZERO, |moment| dates.offset(moment)),
        leaves: text.leaves.map(|moment| dates.offset(moment)),
        outages: text
            .outages
            .into_iter()
            .map(|(at, length, drain)| Outage {
                at: dates.offset(at),
                length,
                drain,
            })
            .collect(),
        ..text.node
    });
    trace.nodes = nodes.collect();
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
    let price = row.read("price-per-hour", |text| {
        let price = text
            .parse::<f64>()
            .ok()
            .filter(|price| price.is_finite() && *price >= 0.0);
        price.ok_or_else(|| format!("{text:?} is no price; write a number such as 1.25"))
    })?;
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
            count: row.number("count")?.unwrap_or(1),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::GateRemoval;
    use berth_api::resources::CPU;

    fn read(text: &str) -> Result<Trace, TextError> {
        read_csv(text, &mut |path| match path {
            "web.yaml" => {
                let mut pod = Pod::default();
                pod.metadata.labels = berth_api::Labels::from_pairs([("app", "web")]);
                Ok(pod)
            }
            other => Err(format!("there is no file {other}")),
        })
    }

    #[test]
    fn pods_are_read_with_all_columns() {
        let text = "\
# the pods of a day
name,namespace,arrival,every,duration,cpu,memory,example.com/gpu,labels,priority,count,group,group_minimum,template,gates,recreated
web,shop,10m,5s,lognormal(1h;1),500m,1Gi,,tier=front;a=b,7,3,,,web.yaml,,yes
ring,,0,,90,2,,1,,,4,ring,3,,\"x@10m;y@end:shop/web-0;z@quota\",
ring-b,,0,,90,2,,1,,,1,ring,,,,
";
        let text = text.replace("lognormal(1h;1)", "\"lognormal(1h, 1)\"");
        let trace = read(&text).unwrap_or_else(|e| panic!("{e}"));
        let web = &trace.pods[0];
        assert_eq!(
            (web.count, web.every.as_secs(), web.recreated),
            (3, 5, true)
        );
        assert_eq!(web.arrival, Duration::from_secs(600));
        assert_eq!(
            web.duration,
            Some(Distribution::Lognormal(Duration::from_secs(3600), 1.0))
        );
        let labels = web.pod.labels();
        assert_eq!(
            (labels.get("app"), labels.get("tier"), labels.get("a")),
            (Some("web"), Some("front"), Some("b"))
        );
        assert_eq!(
            (web.pod.namespace().as_str(), web.pod.priority()),
            ("shop", 7)
        );
        let ring = &trace.pods[1];
        let requests = &ring.pod.spec.containers[0].resources.requests;
        assert_eq!(
            requests.get("example.com/gpu").map(|gpu| gpu.value()),
            Some(1)
        );
        let removals: Vec<&GateRemoval> = ring.gates.iter().map(|gate| &gate.removal).collect();
        let wanted = [
            &GateRemoval::After(Duration::from_secs(600)),
            &GateRemoval::Ended("shop/web-0".into()),
            &GateRemoval::Quota,
        ];
        assert_eq!(removals, wanted);
        assert_eq!((trace.groups.len(), trace.groups[0].minimum), (1, 3));
        // Pods alike are one.
        assert!(Arc::ptr_eq(&ring.pod, &trace.pods[2].pod));
    }

    #[test]
    fn nodes_are_read_with_all_columns() {
        let text = "name,count,cpu,memory,pods,labels,taints,joins,leaves,fails,drains,price_per_hour\n\
                    big,2,64,256Gi,50,zone=a,gpu=true:NoSchedule,1h,2d,3h for 10m;1d,,2.5\n";
        let trace = read(text).unwrap_or_else(|e| panic!("{e}"));
        let big = &trace.nodes[0];
        assert_eq!(
            (big.count, big.price_per_hour, big.joins.as_secs()),
            (2, 2.5, 3_600)
        );
        assert_eq!(big.leaves, Some(Duration::from_secs(172_800)));
        assert_eq!(
            (big.outages.len(), big.outages[0].length),
            (2, Some(Duration::from_secs(600)))
        );
        assert_eq!(big.node.spec.taints[0].to_string(), "gpu=true:NoSchedule");
        assert_eq!(
            big.node.status.allocatable.get(CPU).map(|cpu| cpu.value()),
            Some(64)
        );
    }

    #[test]
    fn dates_are_offsets_from_the_first_one() {
        let text = "name,arrival\nb,2026-02-01T00:01:00Z\na,2026-02-01T00:00:00Z\n";
        let trace = read(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(trace.start, "2026-02-01T00:00:00Z".parse().ok());
        assert_eq!(trace.pods[0].arrival, Duration::from_secs(60));
    }

    #[test]
    fn mistakes_have_a_place_and_a_way_out() {
        for (text, wanted) in [
            ("", "line 1: the file is empty"),
            (
                "name,arrival,cpus\n",
                "line 1, column 14, cpus: unknown column \"cpus\" of pods",
            ),
            (
                "name,size\n",
                "line 1, column 6, size: unknown column \"size\" of nodes (a file of pods has",
            ),
            (
                "name,arrival,cpu\na,0,1\n\nb,0,x\n",
                "line 4, column 5, cpu: \"x\" is no amount",
            ),
            (
                "name,arrival\na,soon\n",
                "line 2, column 3, arrival: \"soon\" is no duration",
            ),
            (
                "name,arrival,duration\n\"a\",5,1x\n",
                "line 2, column 7, duration: \"1x\" is no distribution",
            ),
            (
                "name,arrival\na,1,2\n",
                "line 2, column 5: the line has 3 fields",
            ),
            (
                "name,arrival,template\na,1,x.yaml\n",
                "line 2, column 5, template: there is no file x.yaml",
            ),
            (
                "name,arrival,gates\na,1,x@later\n",
                "\"later\" does not state when the gate is removed",
            ),
            (
                "name,arrival\n\"a,1\n",
                "line 2, column 1: the quotes are not closed",
            ),
            (
                "name,arrival,name\n",
                "line 1, column 14, name: the column \"name\" is given twice",
            ),
            (
                "name,arrival,cpu\na,0,-1\n",
                "line 2, column 5, cpu: an amount is not negative",
            ),
            (
                "name,arrival,group,group-minimum\na,0,g,2\nb,0,g,3\n",
                "line 3, column 5, group: group default/g has a minimum of 2 before and of 3 here",
            ),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text:?}\n{error}");
        }
    }
}
