//! Decodes single operations.

use super::Params;
use crate::workload::error::FileError;
use crate::workload::fields::{MappingFields, as_count, parse_duration, wrong};
use crate::workload::objects::{FileTemplates, ObjectTemplate};
use crate::workload::ops::{
    Barrier, BarrierStage, Churn, CreateAny, CreateNamespaces, CreateNodes, CreatePods,
    CreateResourceDriver, DeletePods, NodeStrategy, Op, StartCollectingMetrics, UpdateAny,
    VolumeTemplates, WaitForPodGroups,
};
use crate::workload::template::{TemplateValue, Values};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Every opcode.
const OPCODES: [&str; 18] = [
    "allocResourceClaims",
    "barrier",
    "churn",
    "createAny",
    "createCompositePodGroups",
    "createNamespaces",
    "createNodes",
    "createPodGroups",
    "createPodSets",
    "createPods",
    "createResourceClaims",
    "createResourceDriver",
    "deletePods",
    "sleep",
    "startCollectingMetrics",
    "stopCollectingMetrics",
    "updateAny",
    "waitForPodGroups",
];

/// The pause of a churn that does not set one.
const CHURN_INTERVAL: Duration = Duration::from_millis(500);

/// The state of the decoder of operations.
pub(super) struct Decoder<'a> {
    pub(super) params: &'a Params<'a>,
    pub(super) templates: &'a FileTemplates,
    pub(super) default_pod: Option<&'a str>,
}

impl Decoder<'_> {
    /// Decodes an operation; a set of pods becomes several.
    ///
    /// # Errors
    /// Names the place and what is wrong there.
    pub(super) fn decode(
        &self,
        place: &str,
        value: Value,
        into: &mut Vec<Op>,
    ) -> Result<(), FileError> {
        let mut fields = MappingFields::of(place, value)?;
        let opcode = fields.required_text("opcode")?;
        let place = format!("{place} ({opcode})");
        let mut fields = MappingFields::of(place, Value::Object(fields.rest().1))?;
        let op = match opcode.as_str() {
            "createPodSets" => {
                self.pod_sets(&mut fields, into)?;
                return fields.finish();
            }
            "createNodes" => Op::CreateNodes(self.nodes(&mut fields)?),
            "createNamespaces" => Op::CreateNamespaces(CreateNamespaces {
                prefix: fields.required_text("prefix")?,
                count: self.required_count(&mut fields)?,
                template: self.plain(&mut fields, "namespaceTemplatePath", "Namespace")?,
            }),
            "createPods" => Op::CreatePods(self.pods(&mut fields)?),
            "deletePods" => Op::DeletePods(DeletePods {
                namespace: fields.required_text("namespace")?,
                labels: fields.text_map("labelSelector")?,
                skip_wait: fields.flag("skipWaitToCompletion")?,
                per_second: fields.count("deletePodsPerSecond")?.unwrap_or(0),
            }),
            "churn" => Op::Churn(self.churn(&mut fields)?),
            "barrier" => Op::Barrier(barrier(&mut fields)?),
            "sleep" => Op::Sleep(self.duration(&mut fields)?.ok_or_else(|| {
                FileError::new(fields.place(), "duration or durationParam must be set")
            })?),
            "startCollectingMetrics" => {
                let op = StartCollectingMetrics {
                    name: fields.text("name")?.unwrap_or_default(),
                    namespaces: fields.texts("namespaces")?,
                    labels: fields.text_map("labelSelector")?,
                };
                if op.namespaces.is_empty() {
                    return Err(FileError::new(fields.at("namespaces"), "must not be empty"));
                }
                Op::StartCollectingMetrics(op)
            }
            "stopCollectingMetrics" => Op::StopCollectingMetrics,
            "createAny" => Op::CreateAny(self.any(&mut fields, "")?),
            "createPodGroups" => Op::CreatePodGroups(self.any(&mut fields, "PodGroup")?),
            "createCompositePodGroups" => {
                Op::CreateCompositePodGroups(self.any(&mut fields, "CompositePodGroup")?)
            }
            "waitForPodGroups" => Op::WaitForPodGroups(WaitForPodGroups {
                namespace: fields.required_text("namespace")?,
                count: self.required_count(&mut fields)?,
            }),
            "updateAny" => Op::UpdateAny(UpdateAny {
                objects: self.any(&mut fields, "")?,
                per_second: fields.count("updatePerSecond")?.unwrap_or(0),
                subresources: fields.texts("subresources")?,
            }),
            "createResourceClaims" => Op::CreateResourceClaims(CreateAny {
                namespace: fields.required_text("namespace")?,
                count: self.required_count(&mut fields)?,
                template: self
                    .plain(&mut fields, "templatePath", "ResourceClaim")?
                    .ok_or_else(|| FileError::new(fields.at("templatePath"), "must be set"))?,
            }),
            "createResourceDriver" => Op::CreateResourceDriver(CreateResourceDriver {
                driver: fields.required_text("driverName")?,
                devices_per_node: self
                    .count(&mut fields, "maxClaimsPerNode", "maxClaimsPerNodeParam")?
                    .unwrap_or(0),
                nodes: fields.required_text("nodes")?,
            }),
            "allocResourceClaims" => {
                Op::AllocResourceClaims(fields.text("namespace")?.unwrap_or_default())
            }
            other => {
                return Err(FileError::new(
                    fields.place(),
                    format!(
                        "unknown opcode {other:?}; the opcodes are {}",
                        OPCODES.join(", ")
                    ),
                ));
            }
        };
        fields.finish()?;
        into.push(op);
        Ok(())
    }

    fn nodes(&self, fields: &mut MappingFields) -> Result<CreateNodes, FileError> {
        let template = self.template(fields, "nodeTemplatePath", "Node")?;
        let mut strategies = Vec::new();
        if let Some(mut inner) = fields.mapping("nodeAllocatableStrategy")? {
            let csi = match inner.mapping("csiNodeAllocatable")? {
                None => Vec::new(),
                Some(drivers) => csi_limits(drivers)?,
            };
            strategies.push(NodeStrategy::Allocatable {
                node: inner.text_map("nodeAllocatable")?,
                csi,
                migrated: inner.texts("migratedPlugins")?,
            });
            inner.finish()?;
        }
        if let Some(mut inner) = fields.mapping("labelNodePrepareStrategy")? {
            let values = inner.texts("labelValues")?;
            if values.is_empty() {
                return Err(FileError::new(inner.at("labelValues"), "must not be empty"));
            }
            strategies.push(NodeStrategy::Label {
                key: inner.required_text("labelKey")?,
                values,
            });
            inner.finish()?;
        }
        if let Some(mut inner) = fields.mapping("uniqueNodeLabelStrategy")? {
            strategies.push(NodeStrategy::UniqueLabel {
                key: inner.required_text("labelKey")?,
            });
            inner.finish()?;
        }
        if strategies.len() > 1 {
            return Err(FileError::new(
                fields.place(),
                "at most one of nodeAllocatableStrategy, labelNodePrepareStrategy and uniqueNodeLabelStrategy may be \
                 set",
            ));
        }
        Ok(CreateNodes {
            count: self.required_count(fields)?,
            template,
            strategy: strategies.pop().unwrap_or_default(),
        })
    }

    fn pods(&self, fields: &mut MappingFields) -> Result<CreatePods, FileError> {
        let place = fields.place().to_owned();
        let multiplier = self.count(fields, "countMultiplier", "countMultiplierParam")?;
        let count = self
            .required_count(fields)?
            .checked_mul(multiplier.unwrap_or(1))
            .ok_or_else(|| FileError::new(&place, "the number of pods is too large"))?;
        let mut steady = fields.flag("steadyState")?;
        let reference = fields.text("steadyStateParam")?;
        if let Some(reference) = reference {
            let at = fields.at("steadyStateParam");
            let value = self.params.get(&at, &reference)?;
            steady = value
                .as_bool()
                .ok_or_else(|| wrong(&at, "true or false", value))?;
        }
        let duration = self.duration(fields)?;
        let steady_state = match (steady, duration) {
            (false, _) => None,
            (true, Some(duration)) if !duration.is_zero() => Some(duration),
            (true, _) => {
                return Err(FileError::new(
                    place,
                    "steadyState needs a duration that is greater than 0",
                ));
            }
        };
        let default_pod = match self.default_pod {
            None => None,
            Some(path) => Some(
                self.templates
                    .template(&place, path, "Pod", &Values::new())?,
            ),
        };
        let pv = self.plain(fields, "persistentVolumeTemplatePath", "PersistentVolume")?;
        let pvc = self.plain(
            fields,
            "persistentVolumeClaimTemplatePath",
            "PersistentVolumeClaim",
        )?;
        let volume = match (pv, pvc) {
            (None, None) => None,
            (Some(volume), Some(claim)) => Some(VolumeTemplates { volume, claim }),
            _ => {
                return Err(FileError::new(
                    place,
                    "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath must be set together",
                ));
            }
        };
        let pods = CreatePods {
            count,
            steady_state,
            collect_metrics: fields.flag("collectMetrics")?,
            namespace: fields.text("namespace")?,
            template: self
                .template(fields, "podTemplatePath", "Pod")?
                .or(default_pod),
            skip_wait: fields.flag("skipWaitToCompletion")?,
            volume,
        };
        for (set, name) in [
            (pods.collect_metrics, "collectMetrics"),
            (pods.steady_state.is_some(), "steadyState"),
        ] {
            if set && pods.skip_wait {
                return Err(FileError::new(
                    place,
                    format!("{name} and skipWaitToCompletion must not both be true"),
                ));
            }
        }
        Ok(pods)
    }

    fn pod_sets(&self, fields: &mut MappingFields, into: &mut Vec<Op>) -> Result<(), FileError> {
        let count = self.required_count(fields)?;
        let prefix = fields.required_text("namespacePrefix")?;
        let Some(mut inner) = fields.mapping("createPodsOp")? else {
            return Err(FileError::new(fields.at("createPodsOp"), "must be set"));
        };
        if let Some(opcode) = inner.text("opcode")?
            && opcode != "createPods"
        {
            return Err(FileError::new(
                inner.at("opcode"),
                format!("expected \"createPods\", found {opcode:?}"),
            ));
        }
        let pods = self.pods(&mut inner)?;
        inner.finish()?;
        into.extend((0..count.min(super::OPS_MAX + 1)).map(|index| {
            Op::CreatePods(CreatePods {
                namespace: Some(format!("{prefix}-{index}")),
                ..pods.clone()
            })
        }));
        Ok(())
    }

    fn churn(&self, fields: &mut MappingFields) -> Result<Churn, FileError> {
        let mode = fields.required_text("mode")?;
        let recreate = match mode.as_str() {
            "create" => false,
            "recreate" => true,
            _ => {
                return Err(FileError::new(
                    fields.at("mode"),
                    format!("unknown mode {mode:?}; use create or recreate"),
                ));
            }
        };
        let number = fields.count("number")?.unwrap_or(0);
        if recreate && number == 0 {
            return Err(FileError::new(
                fields.at("number"),
                "must be at least 1 with mode recreate",
            ));
        }
        let paths = fields.texts("templatePaths")?;
        if paths.is_empty() {
            return Err(FileError::new(
                fields.at("templatePaths"),
                "must not be empty",
            ));
        }
        let at = fields.at("templatePaths");
        let templates = paths
            .iter()
            .map(|path| self.templates.plain(&at, path, ""))
            .collect::<Result<_, _>>()?;
        let interval = fields.count("intervalMilliseconds")?.unwrap_or(0);
        Ok(Churn {
            recreate,
            number,
            interval: match interval {
                0 => CHURN_INTERVAL,
                millis => Duration::from_millis(millis as u64),
            },
            namespace: fields.text("namespace")?,
            templates,
        })
    }

    /// Objects of a kind; of any with an empty one.
    fn any(&self, fields: &mut MappingFields, kind: &str) -> Result<CreateAny, FileError> {
        let count = self.count(fields, "count", "countParam")?.unwrap_or(1);
        Ok(CreateAny {
            namespace: fields.text("namespace")?.unwrap_or_default(),
            template: self
                .template(fields, "templatePath", kind)?
                .ok_or_else(|| FileError::new(fields.at("templatePath"), "must be set"))?,
            count,
        })
    }

    fn required_count(&self, fields: &mut MappingFields) -> Result<usize, FileError> {
        let count = self.count(fields, "count", "countParam")?;
        count.ok_or_else(|| FileError::new(fields.place(), "count or countParam must be set"))
    }

    /// A number that a parameter may replace.
    fn count(
        &self,
        fields: &mut MappingFields,
        name: &'static str,
        param: &'static str,
    ) -> Result<Option<usize>, FileError> {
        let count = fields.count(name)?;
        let Some(reference) = fields.text(param)? else {
            return Ok(count);
        };
        let at = fields.at(param);
        let value = self.params.get(&at, &reference)?;
        match as_count(value) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(&at, "a number that is not negative", value)),
        }
    }

    fn duration(&self, fields: &mut MappingFields) -> Result<Option<Duration>, FileError> {
        let duration = fields.duration("duration")?;
        let Some(reference) = fields.text("durationParam")? else {
            return Ok(duration);
        };
        let at = fields.at("durationParam");
        let value = self.params.get(&at, &reference)?;
        let text = value
            .as_str()
            .ok_or_else(|| wrong(&at, "a duration such as 10s", value))?;
        parse_duration(&at, text).map(Some)
    }

    /// A template with actions.
    fn template(
        &self,
        fields: &mut MappingFields,
        name: &'static str,
        kind: &str,
    ) -> Result<Option<Arc<ObjectTemplate>>, FileError> {
        let values = self.template_values(fields)?;
        match fields.text(name)? {
            None => Ok(None),
            Some(path) => self
                .templates
                .template(&fields.at(name), &path, kind, &values)
                .map(Some),
        }
    }

    /// The values that a template refers to by name: parameters of the workload, or constants.
    fn template_values(&self, fields: &mut MappingFields) -> Result<Values, FileError> {
        let Some(values) = fields.mapping("templateParams")? else {
            return Ok(Values::new());
        };
        let (place, values) = values.rest();
        let mut read = Values::new();
        for (name, value) in values {
            let at = format!("{place}.{name}");
            let value = match value.as_str().filter(|text| text.starts_with('$')) {
                Some(reference) => self.params.get(&at, reference)?,
                None => &value,
            };
            let value = match value {
                Value::Number(number) => match number.as_i64() {
                    Some(number) => TemplateValue::Number(number),
                    None => TemplateValue::Text(number.to_string()),
                },
                Value::String(text) => TemplateValue::Text(text.clone()),
                Value::Bool(flag) => TemplateValue::Text(flag.to_string()),
                other => return Err(wrong(&at, "a string, a number or a flag", other)),
            };
            read.insert(name, value);
        }
        Ok(read)
    }

    /// A file without actions, as upstream reads volumes, claims and namespaces.
    fn plain(
        &self,
        fields: &mut MappingFields,
        name: &'static str,
        kind: &str,
    ) -> Result<Option<Arc<ObjectTemplate>>, FileError> {
        match fields.text(name)? {
            None => Ok(None),
            Some(path) => self
                .templates
                .plain(&fields.at(name), &path, kind)
                .map(Some),
        }
    }
}

fn barrier(fields: &mut MappingFields) -> Result<Barrier, FileError> {
    let stage = match fields.text("stageRequirement")?.as_deref() {
        None | Some("" | "Scheduled") => BarrierStage::Scheduled,
        Some("Attempted") => BarrierStage::Attempted,
        Some(other) => {
            return Err(FileError::new(
                fields.at("stageRequirement"),
                format!("unknown stage {other:?}; use Scheduled or Attempted"),
            ));
        }
    };
    Ok(Barrier {
        namespaces: fields.texts("namespaces")?,
        labels: fields.text_map("labelSelector")?,
        stage,
    })
}

fn csi_limits(drivers: MappingFields) -> Result<Vec<(String, Option<i64>)>, FileError> {
    let (place, drivers) = drivers.rest();
    let mut limits = Vec::new();
    for (driver, value) in drivers {
        let mut fields = MappingFields::of(format!("{place}.{driver}"), value)?;
        let count = fields.count("count")?;
        fields.finish()?;
        limits.push((driver, count.and_then(|count| i64::try_from(count).ok())));
    }
    Ok(limits)
}
