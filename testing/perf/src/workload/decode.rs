//! Reads workload files. All errors of a file are found before a process is started: unknown fields and opcodes,
//! missing or malformed templates, undefined or unused parameters.

mod ops;

use super::error::FileError;
use super::objects::FileTemplates;
use super::ops::{Op, set, some};
use super::run::PodCount;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The maximum size of a workload file or template, in bytes.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;
/// A limit that no workload reaches with its pod sets expanded.
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

/// The minimum of a metric, or the maximum if lower is better.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// The limit.
    pub value: f64,
    /// The metric, `SchedulingThroughput` by default.
    pub metric: String,
    /// Labels of the metric.
    pub labels: BTreeMap<String, String>,
    /// The bucket, `Average` by default.
    pub bucket: String,
    /// Whether the metric must be below the limit.
    pub expect_lower: bool,
}

/// The maximum of a count per bound pod, in every measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// The count.
    pub count: PodCount,
    /// The limit.
    pub most: f64,
}

/// The parameters of a workload, and the names of the used ones.
pub(super) struct Params<'a> {
    values: &'a BTreeMap<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl Params<'_> {
    /// The parameter that a field such as `$count` refers to.
    ///
    /// # Errors
    /// When it is not in the form of a parameter, or not defined.
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
/// Each error names the place, the problem and the remedy.
pub fn read_file(path: &Path) -> Result<Vec<Workload>, FileError> {
    let shown = path.display().to_string();
    let text = read_text(path)
        .map_err(|reason| FileError::new(&shown, format!("failed to read the file: {reason}")))?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let topic = std::path::absolute(&directory)
        .ok()
        .and_then(|d| Some(d.file_name()?.to_str()?.to_owned()))
        .unwrap_or_default();
    let templates = FileTemplates::new(directory);
    decode(&shown, &topic, &text, &templates)
}

/// Reads a file within the size limit.
///
/// # Errors
/// When the file cannot be read or is too large.
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
    text: &str,
    templates: &FileTemplates,
) -> Result<Vec<Workload>, FileError> {
    let cases: Vec<TestCase> =
        serde_saphyr::from_str(text).map_err(|e| FileError::new(file, e.to_string()))?;
    if cases.is_empty() {
        return Err(FileError::new(file, "no test cases defined"));
    }
    let mut names = BTreeSet::new();
    let mut workloads = Vec::new();
    for case in &cases {
        if !names.insert(&case.name) {
            let message = format!("two test cases are named {:?}", case.name);
            return Err(FileError::new(file, message));
        }
        let place = format!("{file}: {}", case.name);
        case.workloads(&place, topic, templates, &mut workloads)?;
    }
    Ok(workloads)
}

/// A test case before the expansion of its workloads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TestCase {
    #[serde(deserialize_with = "set")]
    name: String,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    scheduler_config_path: Option<String>,
    default_pod_template_path: Option<String>,
    default_threshold_metric_selector: Option<MetricSelector>,
    #[serde(deserialize_with = "some")]
    workload_template: Vec<Value>,
    #[serde(deserialize_with = "some")]
    workloads: Vec<CaseWorkload>,
    #[serde(
        default,
        rename = "metricsCollectorConfig",
        deserialize_with = "unsupported"
    )]
    _metrics_collector_config: (),
}

/// A workload of a test case.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CaseWorkload {
    #[serde(deserialize_with = "set")]
    name: String,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    /// A number, or numbers by topic.
    threshold: Option<Value>,
    threshold_metric_selector: Option<MetricSelector>,
    #[serde(default)]
    limits: BTreeMap<PodCount, f64>,
    #[serde(default)]
    params: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetricSelector {
    #[serde(deserialize_with = "set")]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "set")]
    data_bucket: String,
    #[serde(default)]
    expect_lower: bool,
}

/// A field of the format that this runner does not support.
fn unsupported<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    match Option::<IgnoredAny>::deserialize(from)? {
        None => Ok(()),
        Some(_) => Err(D::Error::custom(
            "not supported by berth perf; remove the field, or run this file with upstream's harness",
        )),
    }
}

impl TestCase {
    fn workloads(
        &self,
        place: &str,
        topic: &str,
        templates: &FileTemplates,
        into: &mut Vec<Workload>,
    ) -> Result<(), FileError> {
        let scheduler_config = self.scheduler_config_path.as_ref();
        let scheduler_config = scheduler_config.map(|path| templates.path(path));
        if let Some(path) = scheduler_config.as_ref().filter(|path| !path.is_file()) {
            return Err(FileError::new(
                format!("{place}.schedulerConfigPath"),
                format!("no such file: {}", path.display()),
            ));
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            let name = &workload.name;
            if !names.insert(name) {
                let message = format!("two workloads are named {name:?}");
                return Err(FileError::new(place, message));
            }
            let place = format!("{place}/{name}");
            let params = Params {
                values: &workload.params,
                used: RefCell::default(),
            };
            let ops = self.ops(&place, &params, templates)?;
            let used = params.used.into_inner();
            if let Some(unused) = workload.params.keys().find(|name| !used.contains(*name)) {
                return Err(FileError::new(
                    format!("{place}.params"),
                    format!(
                        "parameter {unused:?} is not used by any operation; remove it, or fix the name"
                    ),
                ));
            }
            let mut feature_gates = self.feature_gates.clone();
            feature_gates.extend(workload.feature_gates.clone());
            into.push(Workload {
                case: self.name.clone(),
                name: name.clone(),
                topic: topic.to_owned(),
                labels: [self.labels.as_slice(), &workload.labels].concat(),
                feature_gates,
                scheduler_config: scheduler_config.clone(),
                ops,
                threshold: self.threshold(&place, topic, workload)?,
                limits: limits(&place, workload)?,
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
        let decoder = ops::Decoder {
            params,
            templates,
            default_pod: self.default_pod_template_path.as_deref(),
        };
        let mut ops = Vec::new();
        for (index, value) in self.workload_template.iter().enumerate() {
            let at = format!("{place}.workloadTemplate[{index}]");
            decoder.decode(&at, value, &mut ops)?;
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
        place: &str,
        topic: &str,
        workload: &CaseWorkload,
    ) -> Result<Option<Threshold>, FileError> {
        let value = match &workload.threshold {
            Some(Value::Object(by_topic)) => by_topic.get(topic),
            value => value.as_ref(),
        };
        let Some(value) = value else {
            return Ok(None);
        };
        let Some(value) = value.as_f64().filter(|number| *number >= 0.0) else {
            let message = format!(
                "expected a number that is not negative, or numbers by topic, found {value}"
            );
            return Err(FileError::new(format!("{place}.threshold"), message));
        };
        let selector = workload.threshold_metric_selector.as_ref();
        let selector = selector.or(self.default_threshold_metric_selector.as_ref());
        let threshold = match selector {
            None => Threshold {
                value,
                metric: "SchedulingThroughput".to_owned(),
                labels: BTreeMap::new(),
                bucket: "Average".to_owned(),
                expect_lower: false,
            },
            Some(selector) => Threshold {
                value,
                metric: selector.name.clone(),
                labels: selector.labels.clone(),
                bucket: selector.data_bucket.clone(),
                expect_lower: selector.expect_lower,
            },
        };
        Ok(Some(threshold).filter(|threshold| threshold.value > 0.0))
    }
}

fn limits(place: &str, workload: &CaseWorkload) -> Result<Vec<Limit>, FileError> {
    let limits = workload.limits.iter();
    let limits = limits.map(|(count, most)| Limit {
        count: *count,
        most: *most,
    });
    let limits: Vec<Limit> = limits.collect();
    match limits
        .iter()
        .find(|limit| limit.most.is_nan() || limit.most < 0.0)
    {
        None => Ok(limits),
        Some(limit) => Err(FileError::new(
            format!("{place}.limits.{}", limit.count.name()),
            format!(
                "expected a number that is not negative, found {}",
                limit.most
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
