//! The public GPU trace of a production cluster: `openb_node_list_*.csv` and `openb_pod_list_*.csv` of
//! `cluster-trace-gpu-v2023` in the repository alibaba/clusterdata.
//!
//! | column | becomes |
//! |---|---|
//! | `sn`, `name` | the name |
//! | `cpu_milli`, `memory_mib` | CPU and memory |
//! | `gpu`, `model` of a node | allocatable [`GPU_MILLI`], 1,000 for each GPU; the label [`GPU_MODEL`] |
//! | `num_gpu`, `gpu_milli` of a pod | a request of [`GPU_MILLI`]: a part of one GPU, or 1,000 for each whole GPU |
//! | `gpu_spec` | a required node affinity to the models, which are separated by bars |
//! | `qos` | the label `qos` |
//! | `creation_time` | the arrival, in seconds since the start; pods without it arrive at the start |
//! | `deletion_time`, `scheduled_time` | the duration: from the scheduling, or the creation if there was none, to the deletion |

use crate::distribution::Distribution;
use crate::text::TextError;
use crate::trace::{NodeShape, PodShape, Trace, TraceNode, TracePod};
use berth_api::node_selector::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use berth_api::pod::{Affinity, NodeAffinity};
use berth_api::quantity::QuantityFormat;
use berth_api::resources::{CPU, MEMORY, PODS};
use berth_api::{Duration, Labels, Pod, Quantity, ResourceList, Str};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The resource of thousandths of a GPU. The scheduler compares only sums of it; a plugin has to decide on which GPU a
/// pod fits.
pub const GPU_MILLI: &str = "alibabacloud.com/gpu-milli";
/// The label of a node with the model of its GPUs.
pub const GPU_MODEL: &str = "alibabacloud.com/gpu-card-model";

/// The thousandths of a GPU.
const WHOLE: i64 = 1_000;
/// The number of pods that a node may have. The trace has no such limit.
const PODS_OF_NODE: i64 = 1_000;
const MIB: i64 = 1 << 20;

const NODE_COLUMNS: &[&str] = &["sn", "cpu_milli", "memory_mib", "gpu", "model"];
const POD_COLUMNS: &[&str] = &["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
/// The columns that some files of pods do not have.
const POD_COLUMNS_MORE: &[&str] = &[
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];

/// Returns whether a text begins like a file of the trace.
pub fn is_openb(text: &str) -> bool {
    let header = text.trim_start_matches('\u{feff}').lines().next();
    header.is_some_and(|header| {
        let starts = |columns: &[&str]| header.starts_with(&columns.join(","));
        starts(NODE_COLUMNS) || starts(POD_COLUMNS)
    })
}

/// Reads nodes or pods.
///
/// # Errors
/// The first mistake.
pub fn read_openb(text: &str) -> Result<Trace, TextError> {
    let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    let header: Vec<&str> = lines
        .next()
        .map_or_else(Vec::new, |(line, _)| line.trim().split(',').collect());
    let are_pods = header.first() == Some(&"name");
    check_header(&header, are_pods)?;
    let mut trace = Trace::default();
    let mut shapes = FxHashMap::default();
    for (line, number) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        let row = Row {
            header: &header,
            line: number,
            fields: line.trim().split(',').collect(),
        };
        if row.fields.len() != header.len() {
            let message = format!(
                "the line has {} fields, the first line names {} columns",
                row.fields.len(),
                header.len()
            );
            return Err(row.error(row.fields.len().min(header.len()), message));
        }
        if are_pods {
            trace.pods.push(pod(&row, &mut shapes)?);
        } else {
            trace.nodes.push(node(&row)?);
        }
    }
    Ok(trace)
}

fn check_header(header: &[&str], are_pods: bool) -> Result<(), TextError> {
    let required = if are_pods { POD_COLUMNS } else { NODE_COLUMNS };
    let more = if are_pods { POD_COLUMNS_MORE } else { &[] };
    let error = |at: usize, message: String| TextError {
        line: 1,
        column: column_of(header, at),
        field: header.get(at).copied().unwrap_or_default().to_owned(),
        message,
    };
    let missing = required.iter().find(|column| !header.contains(column));
    if let Some(missing) = missing {
        return Err(error(
            0,
            format!(
                "there is no column {missing}; a file of nodes has {}, a file of pods {}",
                NODE_COLUMNS.join(", "),
                POD_COLUMNS.join(", ")
            ),
        ));
    }
    let is_unknown = |column: &&str| !required.contains(column) && !more.contains(column);
    match header.iter().position(is_unknown) {
        Some(at) => Err(error(
            at,
            "this column is unknown; remove it, or write the trace in the format of berth simulate"
                .to_owned(),
        )),
        None => Ok(()),
    }
}

/// The column in characters at which a field begins.
fn column_of(fields: &[&str], at: usize) -> u64 {
    let before = fields.iter().take(at);
    before
        .map(|field| field.chars().count() as u64 + 1)
        .sum::<u64>()
        + 1
}

struct Row<'t> {
    header: &'t [&'t str],
    line: u64,
    fields: Vec<&'t str>,
}

impl<'t> Row<'t> {
    fn error(&self, at: usize, message: String) -> TextError {
        TextError {
            line: self.line,
            column: column_of(&self.fields, at),
            field: self.header.get(at).copied().unwrap_or_default().to_owned(),
            message,
        }
    }

    /// The text of a column; empty if the file does not have it.
    fn text(&self, column: &str) -> (usize, &'t str) {
        let at = self.header.iter().position(|known| *known == column);
        at.map_or((0, ""), |at| (at, self.fields[at]))
    }

    /// The whole number of a column, not negative; `None` if it is empty.
    fn number(&self, column: &str) -> Result<Option<i64>, TextError> {
        let (at, text) = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        // Some files have times such as 12537496.0.
        let number = text.strip_suffix(".0").unwrap_or(text).parse::<i64>();
        match number.ok().filter(|number| *number >= 0) {
            Some(number) => Ok(Some(number)),
            None => Err(self.error(at, format!("{text:?} is no whole number from 0"))),
        }
    }

    fn required(&self, column: &str) -> Result<i64, TextError> {
        let number = self.number(column)?;
        number.ok_or_else(|| {
            let (at, _) = self.text(column);
            self.error(at, "the field is empty; write a whole number".to_owned())
        })
    }

    fn name(&self, column: &str) -> Result<&'t str, TextError> {
        match self.text(column) {
            (at, "") => Err(self.error(at, "the name is empty; give each a name".to_owned())),
            (_, name) => Ok(name),
        }
    }

    fn cpu_and_memory(&self) -> Result<ResourceList, TextError> {
        let cpu = Quantity::from_milli(self.required("cpu_milli")?);
        let (at, _) = self.text("memory_mib");
        let bytes = self.required("memory_mib")?.checked_mul(MIB);
        let bytes = bytes.ok_or_else(|| self.error(at, "the amount is too large".to_owned()))?;
        let memory = Quantity::from_value(bytes, QuantityFormat::BinarySI);
        Ok(ResourceList::from_pairs([(CPU, cpu), (MEMORY, memory)]))
    }
}

fn amount(value: i64) -> Quantity {
    Quantity::from_value(value, QuantityFormat::DecimalSI)
}

fn node(row: &Row<'_>) -> Result<TraceNode, TextError> {
    let mut resources = row.cpu_and_memory()?;
    resources.set(PODS.into(), amount(PODS_OF_NODE));
    let mut labels = Labels::default();
    let gpus = row.required("gpu")?;
    if gpus > 0 {
        resources.set(GPU_MILLI.into(), amount(gpus.saturating_mul(WHOLE)));
        labels = labels.with(GPU_MODEL, row.text("model").1);
    }
    let shape = NodeShape {
        resources,
        labels,
        taints: Vec::new(),
    };
    Ok(TraceNode::new(row.name("sn")?, shape.node()))
}

/// Everything that a pod is made of.
type ShapeKey<'t> = (i64, i64, i64, &'t str, &'t str);

fn pod<'t>(
    row: &Row<'t>,
    shapes: &mut FxHashMap<ShapeKey<'t>, Arc<Pod>>,
) -> Result<TracePod, TextError> {
    let gpus = gpu_milli(row)?;
    let ((_, spec), (_, qos)) = (row.text("gpu_spec"), row.text("qos"));
    let cpu_and_memory = (row.required("cpu_milli")?, row.required("memory_mib")?);
    let key = (cpu_and_memory.0, cpu_and_memory.1, gpus, spec, qos);
    let shape = match shapes.get(&key) {
        Some(shape) => shape.clone(),
        None => {
            let shape = Arc::new(shape(row, gpus, spec, qos)?);
            shapes.insert(key, shape.clone());
            shape
        }
    };
    let created = row.number("creation_time")?;
    let scheduled = row.number("scheduled_time")?;
    let deleted = row.number("deletion_time")?;
    let began = scheduled.or(created);
    let seconds = began.zip(deleted).map(|(began, deleted)| deleted - began);
    let duration = seconds.map(|seconds| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Distribution::Constant(Duration::from_secs(seconds))
    });
    let arrival = u64::try_from(created.unwrap_or(0)).unwrap_or(0);
    Ok(TracePod {
        arrival: Duration::from_secs(arrival),
        duration,
        ..TracePod::new(row.name("name")?, shape)
    })
}

/// The thousandths of a GPU that the pod requests.
fn gpu_milli(row: &Row<'_>) -> Result<i64, TextError> {
    let (count, milli) = (row.required("num_gpu")?, row.required("gpu_milli")?);
    let (at, _) = row.text("gpu_milli");
    match count {
        0 => Ok(0),
        1 if (1..=WHOLE).contains(&milli) => Ok(milli),
        1 => Err(row.error(at, "a pod of one GPU has from 1 to 1000 of it".to_owned())),
        _ if milli == WHOLE => Ok(count.saturating_mul(WHOLE)),
        _ => Err(row.error(at, "a pod of several GPUs has 1000 of each".to_owned())),
    }
}

fn shape(row: &Row<'_>, gpus: i64, spec: &str, qos: &str) -> Result<Pod, TextError> {
    let mut requests = row.cpu_and_memory()?;
    if gpus > 0 {
        requests.set(GPU_MILLI.into(), amount(gpus));
    }
    let mut labels = Labels::default();
    if !qos.is_empty() {
        labels = labels.with("qos", qos);
    }
    let mut pod = PodShape {
        requests,
        labels,
        ..PodShape::default()
    }
    .pod();
    let models: Vec<Str> = spec
        .split('|')
        .filter(|model| !model.is_empty())
        .map(Str::from)
        .collect();
    if !models.is_empty() {
        require_models(&mut pod, models);
    }
    Ok(pod)
}

/// The pod runs only on nodes with GPUs of these models.
fn require_models(pod: &mut Pod, models: Vec<Str>) {
    let requirement = NodeSelectorRequirement {
        key: GPU_MODEL.into(),
        operator: "In".into(),
        values: models,
    };
    let term = NodeSelectorTerm {
        match_expressions: vec![requirement],
        ..NodeSelectorTerm::default()
    };
    let affinity = NodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![term],
        }),
        ..NodeAffinity::default()
    };
    pod.spec.affinity = Some(Box::new(Affinity {
        node_affinity: Some(affinity),
        ..Affinity::default()
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,,LS,Running,100,700,160
p1,6000,12288,2,1000,P100|T4,BE,Running,200,500,
p2,500,1024,0,0,,BE,Pending,0,,
p3,12000,16384,1,460,,LS,Running,100,700,160
";

    #[test]
    fn pods_have_their_requests_models_and_times() {
        let trace = read_openb(PODS).unwrap_or_else(|e| panic!("{e}"));
        let request = |at: usize, name: &str| {
            let requests = &trace.pods[at].pod.spec.containers[0].resources.requests;
            requests.get(name).map(ToString::to_string)
        };
        let [p0, p1, p2, p3] = &trace.pods[..] else {
            panic!("four pods, got {}", trace.pods.len());
        };
        assert_eq!(request(0, "cpu").as_deref(), Some("12"));
        assert_eq!(request(0, "memory").as_deref(), Some("16Gi"));
        let gpus = [0, 1, 2].map(|at| request(at, GPU_MILLI));
        assert_eq!(gpus, [Some("460".into()), Some("2k".into()), None]);
        let seconds = |n| Some(Distribution::Constant(Duration::from_secs(n)));
        // From the scheduling, or from the creation if there was none.
        assert_eq!(
            [&p0.duration, &p1.duration, &p2.duration],
            [&seconds(540), &seconds(300), &None]
        );
        assert_eq!(
            (p1.arrival, p1.pod.labels().get("qos")),
            (Duration::from_secs(200), Some("BE"))
        );
        let affinity = p1
            .pod
            .spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref());
        let terms = &affinity
            .and_then(|a| a.required.as_ref())
            .expect("models")
            .node_selector_terms;
        assert_eq!(terms[0].match_expressions[0].values, ["P100", "T4"]);
        // Equal pods are one.
        assert!(Arc::ptr_eq(&p0.pod, &p3.pod));
    }

    #[test]
    fn nodes_have_their_resources_and_model() {
        let text =
            "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,393216,0,\n";
        let trace = read_openb(text).unwrap_or_else(|e| panic!("{e}"));
        let of = |at: usize, name: &str| {
            trace.nodes[at]
                .node
                .status
                .allocatable
                .get(name)
                .map(|q| q.value())
        };
        assert_eq!(
            [of(0, "cpu"), of(0, GPU_MILLI), of(1, GPU_MILLI)],
            [Some(64), Some(2_000), None]
        );
        let models = [0, 1].map(|at| trace.nodes[at].node.labels().get(GPU_MODEL));
        assert_eq!(models, [Some("P100"), None]);
        assert!(is_openb(text) && is_openb(PODS) && !is_openb("name,arrival,cpu\n"));
    }

    #[test]
    fn mistakes_have_a_place_and_a_way_out() {
        let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli";
        for (text, wanted) in [
            (
                "",
                "line 1, column 1: there is no column sn; a file of nodes has",
            ),
            (
                "name,cpu_milli\n",
                "line 1, column 1, name: there is no column memory_mib",
            ),
            (
                &format!("{pods},colour\n"),
                "line 1, column 45, colour: this column is unknown",
            ),
            (
                &format!("{pods}\na,1,2,3\n"),
                "line 2, column 9, gpu_milli: the line has 4 fields, the first line names 5",
            ),
            (
                &format!("{pods}\na,x,2,0,0\n"),
                "line 2, column 3, cpu_milli: \"x\" is no whole number",
            ),
            (
                &format!("{pods}\na,1,,0,0\n"),
                "line 2, column 5, memory_mib: the field is empty",
            ),
            (
                &format!("{pods}\n\n,1,2,0,0\n"),
                "line 3, column 1, name: the name is empty",
            ),
            (
                &format!("{pods}\na,1,2,2,500\n"),
                "line 2, column 9, gpu_milli: a pod of several GPUs has 1000 of each",
            ),
            (
                &format!("{pods}\na,1,2,1,0\n"),
                "line 2, column 9, gpu_milli: a pod of one GPU has from 1 to 1000",
            ),
            (
                &format!("{pods}\na,1,9223372036854775807,0,0\n"),
                "memory_mib: the amount is too large",
            ),
        ] {
            let error = read_openb(text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text:?}\n{error}");
        }
    }
}
