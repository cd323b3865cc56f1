//! Reads workload files. Everything that can be wrong with a file is found here, before anything is started: unknown
//! fields and opcodes, templates that are missing or malformed, parameters that are undefined or unused.

mod ops;

use super::error::FileError;
use super::fields::{MappingFields, wrong};
use super::objects::FileTemplates;
use super::ops::Op;
use super::run::PodCount;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The largest workload file or template, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;
/// More operations than any workload has once its pod sets are unrolled.
const OPS_MAX: usize = 100_000;

/// A workload of a file, ready to run.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The test case.
    pub case: String,
    /// The workload.
    pub name: String,
    /// The directory of the file, which upstream calls the topic.
    pub topic: String,
    /// The labels of the test case and the workload.
    pub labels: Vec<String>,
    /// The feature gates to set.
    pub feature_gates: BTreeMap<String, bool>,
    /// The configuration of the scheduler.
    pub scheduler_config: Option<PathBuf>,
    /// The operations, with pod sets unrolled.
    pub ops: Vec<Op>,
    /// The threshold of the result.
    pub threshold: Option<Threshold>,
    /// The limits of the result, which upstream's files do not have.
    pub limits: Vec<Limit>,
}

impl Workload {
    /// `case/workload`, which `--filter` is matched with.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.case, self.name)
    }
}

/// The least that a metric must be (the most, when lower is better).
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The limit.
    pub value: f64,
    /// The metric, `SchedulingThroughput` by default.
    pub metric: String,
    /// Labels of the metric.
    pub labels: Vec<(String, String)>,
    /// The bucket, `Average` by default.
    pub bucket: String,
    /// Whether the metric must be below the limit.
    pub expect_lower: bool,
}

/// The most that a count for each bound pod may be, in every measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The count.
    pub count: PodCount,
    /// The limit.
    pub most: f64,
}

/// The parameters of a workload, and which of them were used.
pub(super) struct Params<'a> {
    values: &'a BTreeMap<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl Params<'_> {
    /// The parameter that a field such as `$count` refers to.
    ///
    /// # Errors
    /// When it is not written as a parameter, or not defined.
    pub(super) fn get(&self, place: &str, reference: &str) -> Result<&Value, FileError> {
        let Some(name) = reference.strip_prefix('$').filter(|name| !name.is_empty()) else {
            return Err(FileError::new(
                place,
                format!("invalid parameter {reference:?}; write $name"),
            ));
        };
        self.used.borrow_mut().insert(name.to_owned());
        self.values.get(name).ok_or_else(|| {
            let defined: Vec<&str> = self.values.keys().map(String::as_str).collect();
            FileError::new(
                place,
                format!(
                    "parameter {name:?} is not defined by the workload; it defines {}",
                    if defined.is_empty() {
                        "none".to_owned()
                    } else {
                        defined.join(", ")
                    }
                ),
            )
        })
    }
}

/// Reads a workload file with its templates.
///
/// # Errors
/// Names the place, what is wrong there, and the way out.
pub fn read_file(path: &Path) -> Result<Vec<Workload>, FileError> {
    let shown = path.display().to_string();
    let text = read_text(path)
        .map_err(|reason| FileError::new(&shown, format!("failed to read the file: {reason}")))?;
    let value: Value = serde_saphyr::from_str(&text)
        .map_err(|e| FileError::new(&shown, format!("malformed YAML: {e}")))?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let topic = std::path::absolute(&directory)
        .ok()
        .and_then(|d| Some(d.file_name()?.to_str()?.to_owned()))
        .unwrap_or_default();
    let templates = FileTemplates::new(directory);
    decode(&shown, &topic, value, &templates)
}

/// Reads a file that is no larger than it should be.
///
/// # Errors
/// Why it cannot be read.
pub fn read_text(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|e| e.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// Decodes the content of a file.
///
/// # Errors
/// As [`read_file`].
pub(super) fn decode(
    file: &str,
    topic: &str,
    value: Value,
    templates: &FileTemplates,
) -> Result<Vec<Workload>, FileError> {
    let Value::Array(cases) = value else {
        return Err(wrong(file, "a list of test cases", &value));
    };
    if cases.is_empty() {
        return Err(FileError::new(file, "no test cases defined"));
    }
    let mut names = BTreeSet::new();
    let mut workloads = Vec::new();
    for (index, case) in cases.into_iter().enumerate() {
        let case = TestCase::decode(file, index, case)?;
        if !names.insert(case.name.clone()) {
            let message = format!("two test cases are named {:?}", case.name);
            return Err(FileError::new(file, message));
        }
        case.workloads(topic, templates, &mut workloads)?;
    }
    Ok(workloads)
}

/// A test case before its workloads are made from it.
struct TestCase {
    place: String,
    name: String,
    labels: Vec<String>,
    feature_gates: BTreeMap<String, bool>,
    scheduler_config: Option<String>,
    default_pod: Option<String>,
    threshold_metric: Option<MetricSelector>,
    ops: Vec<Value>,
    workloads: Vec<Value>,
}

struct MetricSelector {
    name: String,
    labels: Vec<(String, String)>,
    bucket: String,
    expect_lower: bool,
}

impl TestCase {
    fn decode(file: &str, index: usize, value: Value) -> Result<Self, FileError> {
        let named = value.get("name").and_then(Value::as_str).unwrap_or("");
        let place = if named.is_empty() {
            format!("{file}: [{index}]")
        } else {
            format!("{file}: {named}")
        };
        let mut fields = MappingFields::of(place, value)?;
        let case = Self {
            place: fields.place().to_owned(),
            name: fields.required_text("name")?,
            labels: fields.texts("labels")?,
            feature_gates: feature_gates(&mut fields)?,
            scheduler_config: fields.text("schedulerConfigPath")?,
            default_pod: fields.text("defaultPodTemplatePath")?,
            threshold_metric: metric_selector(&mut fields, "defaultThresholdMetricSelector")?,
            ops: fields.list("workloadTemplate")?,
            workloads: fields.list("workloads")?,
        };
        fields.unsupported("metricsCollectorConfig")?;
        fields.finish()?;
        for (list, name) in [
            (&case.ops, "workloadTemplate"),
            (&case.workloads, "workloads"),
        ] {
            if list.is_empty() {
                let place = format!("{}.{name}", case.place);
                return Err(FileError::new(place, "must not be empty"));
            }
        }
        Ok(case)
    }

    fn workloads(
        &self,
        topic: &str,
        templates: &FileTemplates,
        into: &mut Vec<Workload>,
    ) -> Result<(), FileError> {
        let scheduler_config = match &self.scheduler_config {
            None => None,
            Some(path) => {
                let path = templates.path(path);
                if !path.is_file() {
                    return Err(FileError::new(
                        format!("{}.schedulerConfigPath", self.place),
                        format!("no such file: {}", path.display()),
                    ));
                }
                Some(path)
            }
        };
        let mut names = BTreeSet::new();
        for (index, value) in self.workloads.iter().enumerate() {
            let named = value.get("name").and_then(Value::as_str);
            let place = match named {
                Some(name) => format!("{}/{name}", self.place),
                None => format!("{}.workloads[{index}]", self.place),
            };
            let mut fields = MappingFields::of(place, value.clone())?;
            let name = fields.required_text("name")?;
            if !names.insert(name.clone()) {
                let message = format!("two workloads are named {name:?}");
                return Err(FileError::new(&self.place, message));
            }
            let mut labels = self.labels.clone();
            labels.extend(fields.texts("labels")?);
            let mut gates = self.feature_gates.clone();
            gates.extend(feature_gates(&mut fields)?);
            let threshold = self.threshold(topic, &mut fields)?;
            let limits = limits(&mut fields)?;
            let values = match fields.mapping("params")? {
                None => BTreeMap::new(),
                Some(params) => params.rest().1.into_iter().collect(),
            };
            let place = fields.place().to_owned();
            fields.finish()?;
            let params = Params {
                values: &values,
                used: RefCell::default(),
            };
            let ops = self.ops(&place, &params, templates)?;
            let used = params.used.into_inner();
            if let Some(unused) = values.keys().find(|name| !used.contains(*name)) {
                return Err(FileError::new(
                    format!("{place}.params"),
                    format!(
                        "parameter {unused:?} is not used by any operation; remove it, or fix the name"
                    ),
                ));
            }
            into.push(Workload {
                case: self.name.clone(),
                name,
                topic: topic.to_owned(),
                labels,
                feature_gates: gates,
                scheduler_config: scheduler_config.clone(),
                ops,
                threshold,
                limits,
            });
        }
        Ok(())
    }

    fn ops(
        &self,
        place: &str,
        params: &Params<'_>,
        templates: &FileTemplates,
    ) -> Result<Vec<Op>, FileError> {
        let mut ops = Vec::new();
        for (index, value) in self.ops.iter().enumerate() {
            let at = format!("{place}.workloadTemplate[{index}]");
            let decoder = ops::Decoder {
                params,
                templates,
                default_pod: self.default_pod.as_deref(),
            };
            decoder.decode(&at, value.clone(), &mut ops)?;
            if ops.len() > OPS_MAX {
                let message = format!("more than {OPS_MAX} operations");
                return Err(FileError::new(at, message));
            }
        }
        if !ops.iter().any(Op::collects_metrics) {
            return Err(FileError::new(
                format!("{place}.workloadTemplate"),
                "no operation collects metrics; set collectMetrics of a createPods, or use startCollectingMetrics and \
                 stopCollectingMetrics",
            ));
        }
        Ok(ops)
    }

    fn threshold(
        &self,
        topic: &str,
        fields: &mut MappingFields,
    ) -> Result<Option<Threshold>, FileError> {
        let selector = metric_selector(fields, "thresholdMetricSelector")?;
        let place = fields.at("threshold");
        let value = match fields.take("threshold") {
            None => None,
            Some(Value::Object(by_topic)) => by_topic.get(topic).cloned(),
            Some(value) => Some(value),
        };
        let Some(value) = value else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .filter(|number| *number >= 0.0)
            .ok_or_else(|| {
                wrong(
                    &place,
                    "a number that is not negative, or a mapping of topics",
                    &value,
                )
            })?;
        if number == 0.0 {
            return Ok(None);
        }
        let selector = selector.as_ref().or(self.threshold_metric.as_ref());
        Ok(Some(match selector {
            None => Threshold {
                value: number,
                metric: "SchedulingThroughput".to_owned(),
                labels: Vec::new(),
                bucket: "Average".to_owned(),
                expect_lower: false,
            },
            Some(selector) => Threshold {
                value: number,
                metric: selector.name.clone(),
                labels: selector.labels.clone(),
                bucket: selector.bucket.clone(),
                expect_lower: selector.expect_lower,
            },
        }))
    }
}

fn feature_gates(fields: &mut MappingFields) -> Result<BTreeMap<String, bool>, FileError> {
    let Some(gates) = fields.mapping("featureGates")? else {
        return Ok(BTreeMap::new());
    };
    let (place, gates) = gates.rest();
    gates
        .into_iter()
        .map(|(name, value)| match value {
            Value::Bool(on) => Ok((name, on)),
            other => Err(wrong(&format!("{place}.{name}"), "true or false", &other)),
        })
        .collect()
}

fn limits(fields: &mut MappingFields) -> Result<Vec<Limit>, FileError> {
    let Some(limits) = fields.mapping("limits")? else {
        return Ok(Vec::new());
    };
    let (place, limits) = limits.rest();
    let limit = |(name, value): (String, Value)| {
        let at = format!("{place}.{name}");
        let count = PodCount::ALL.into_iter().find(|count| count.name() == name);
        let count = count.ok_or_else(|| {
            let names = PodCount::ALL.map(PodCount::name).join(", ");
            FileError::new(&at, format!("unknown count; the counts are {names}"))
        })?;
        let most = value.as_f64().filter(|most| *most >= 0.0);
        let most = most.ok_or_else(|| wrong(&at, "a number that is not negative", &value))?;
        Ok(Limit { count, most })
    };
    limits.into_iter().map(limit).collect()
}

fn metric_selector(
    fields: &mut MappingFields,
    name: &'static str,
) -> Result<Option<MetricSelector>, FileError> {
    let Some(mut fields) = fields.mapping(name)? else {
        return Ok(None);
    };
    let selector = MetricSelector {
        name: fields.required_text("name")?,
        labels: fields.text_map("labels")?,
        bucket: fields.required_text("dataBucket")?,
        expect_lower: fields.flag("expectLower")?,
    };
    fields.finish()?;
    Ok(Some(selector))
}

#[cfg(test)]
mod tests;
