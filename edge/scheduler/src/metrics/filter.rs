//! The part of the metrics that is served: `--disabled-metrics` and `--allow-metric-labels`.

use crate::exit::CommandFailure;
use crate::flags::{LabelValues, MetricsFlags};
use berth_api::Str;
use berth_scheduler::metrics::{FamilySnapshot, LabelValues as Labels, SeriesValue};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Replaces values that are not allowed.
const UNEXPECTED: &str = "unexpected";

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricFilter {
    disabled: BTreeSet<String>,
    allowed: LabelValues,
}

impl MetricFilter {
    /// The settings of the flags.
    ///
    /// # Errors
    /// When the manifest of allowed values cannot be read.
    pub(crate) fn new(flags: &MetricsFlags) -> Result<Self, CommandFailure> {
        let mut allowed = match &flags.allow_metric_labels_manifest.value {
            Some(path) => read_manifest(path)?,
            None => LabelValues::default(),
        };
        let given = flags.allow_metric_labels.value.0.clone();
        allowed.0.extend(given);
        Ok(Self {
            disabled: flags.disabled_metrics.value.iter().cloned().collect(),
            allowed,
        })
    }

    #[cfg(test)]
    pub(super) fn disable(&mut self, metric: &str) {
        self.disabled.insert(metric.to_owned());
    }

    #[cfg(test)]
    pub(super) fn allow(&mut self, key: &str, values: &str) -> Result<(), String> {
        self.allowed.add(key, values)
    }

    /// The rest of these families.
    pub(crate) fn apply(&self, families: &mut Vec<FamilySnapshot>) {
        families.retain(|family| !self.disabled.contains(family.family.name));
        for family in families {
            for (at, label) in family.family.labels.iter().enumerate() {
                let key = (family.family.name.to_owned(), (*label).to_owned());
                if let Some(allowed) = self.allowed.0.get(&key) {
                    restrict(&mut family.series, at, allowed);
                }
            }
        }
    }
}

/// Replaces the values of a label that are not allowed, and adds up the series that are one then.
fn restrict(series: &mut Vec<(Labels, SeriesValue)>, at: usize, allowed: &[String]) {
    let mut merged: BTreeMap<Labels, SeriesValue> = BTreeMap::new();
    for (mut labels, value) in series.drain(..) {
        if let Some(label) = labels.get_mut(at)
            && !allowed.iter().any(|allowed| *allowed == label.as_str())
        {
            *label = Str::new(UNEXPECTED);
        }
        match merged.get_mut(&labels) {
            Some(sum) => sum.absorb(&value),
            None => drop(merged.insert(labels, value)),
        }
    }
    series.extend(merged);
}

fn read_manifest(path: &Path) -> Result<LabelValues, CommandFailure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Manifest {
        allow_list_mapping: BTreeMap<String, String>,
    }
    let failed = |reason: String| {
        let path = path.display();
        CommandFailure::Usage(format!(
            "failed to read --allow-metric-labels-manifest {path}: {reason}"
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let manifest: Manifest = serde_saphyr::from_str(&text).map_err(|e| failed(e.to_string()))?;
    let mut lists = LabelValues::default();
    for (key, values) in &manifest.allow_list_mapping {
        lists.add(key, values).map_err(failed)?;
    }
    Ok(lists)
}
