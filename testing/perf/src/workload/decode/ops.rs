//! Decodes single operations: substitutes parameters, decodes the fields, and reads templates.

use super::{OPS_MAX, Params};
use crate::workload::error::FileError;
use crate::workload::objects::{FileTemplates, ObjectTemplate};
use crate::workload::ops::{CreatePodSets, CreatePods, Op, VolumeTemplates};
use crate::workload::template::{TemplateValue, Values};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The state of the decoder of operations.
pub(super) struct Decoder<'a> {
    pub(super) params: &'a Params<'a>,
    pub(super) templates: &'a FileTemplates,
    pub(super) default_pod: Option<&'a str>,
}

impl Decoder<'_> {
    /// Decodes an operation; a set of pods is expanded into several.
    ///
    /// # Errors
    /// Each error names the place and the problem.
    pub(super) fn decode(
        &self,
        place: &str,
        value: &Value,
        into: &mut Vec<Op>,
    ) -> Result<(), FileError> {
        let Value::Object(fields) = value else {
            let message = format!("expected a mapping, found {value}");
            return Err(FileError::new(place, message));
        };
        let mut fields = fields.clone();
        let Some(Value::String(opcode)) = fields.remove("opcode") else {
            return Err(FileError::new(format!("{place}.opcode"), "must be set"));
        };
        let mut op = self.op(place, &opcode, fields)?;
        if let Op::CreatePodSets(sets) = op {
            let place = format!("{place}.{opcode}.createPodsOp");
            return self.pod_sets(&place, sets, into);
        }
        if let Op::CreatePods(pods) = &mut op {
            pods.count = pods.count.saturating_mul(pods.count_multiplier);
        }
        into.push(op);
        Ok(())
    }

    fn op(
        &self,
        place: &str,
        opcode: &str,
        mut fields: Map<String, Value>,
    ) -> Result<Op, FileError> {
        let at = format!("{place}.{opcode}");
        // A null counts as absent.
        fields.retain(|_, value| !value.is_null());
        let values = match fields.remove("templateParams") {
            None => Values::new(),
            Some(values) => self.template_values(&at, values)?,
        };
        let mut files = OpFiles {
            place: &at,
            templates: self.templates,
            paths: take_paths(&at, &mut fields)?,
            values,
        };
        self.put_params(&at, &mut fields)?;
        let mut op: Op = decoded(place, json!({opcode: fields}))?;
        op.check().map_err(|message| FileError::new(&at, message))?;
        match &mut op {
            Op::CreateNodes(op) => op.template = files.template("nodeTemplatePath", "Node")?,
            Op::CreateNamespaces(op) => {
                op.template = files.plain("namespaceTemplatePath", "Namespace")?;
            }
            Op::CreatePods(op) => self.pod_templates(&mut files, op)?,
            Op::Churn(op) => {
                let files = op.template_paths.iter();
                let files = files.map(|path| self.templates.plain(&at, path, ""));
                op.templates = files.collect::<Result<_, _>>()?;
            }
            Op::CreateAny(op) => op.template = files.required("")?,
            Op::UpdateAny(op) => op.template = files.required("")?,
            Op::CreatePodGroups(op) => op.template = files.required("PodGroup")?,
            Op::CreateCompositePodGroups(op) => {
                op.template = files.required("CompositePodGroup")?
            }
            Op::CreateResourceClaims(op) => {
                op.template = files
                    .plain("templatePath", "ResourceClaim")?
                    .ok_or_else(|| FileError::new(format!("{at}.templatePath"), "must be set"))?;
            }
            _ => {}
        }
        files.finish()?;
        Ok(op)
    }

    fn pod_templates(&self, files: &mut OpFiles<'_>, op: &mut CreatePods) -> Result<(), FileError> {
        op.template = files.template("podTemplatePath", "Pod")?;
        if let (None, Some(path)) = (&op.template, self.default_pod) {
            let default = self
                .templates
                .template(files.place, path, "Pod", &Values::new())?;
            op.template = Some(default);
        }
        let volume = files.plain("persistentVolumeTemplatePath", "PersistentVolume")?;
        let claim = files.plain("persistentVolumeClaimTemplatePath", "PersistentVolumeClaim")?;
        op.volume = match (volume, claim) {
            (None, None) => None,
            (Some(volume), Some(claim)) => Some(VolumeTemplates { volume, claim }),
            _ => {
                return Err(FileError::new(
                    files.place,
                    "persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath must be set together",
                ));
            }
        };
        Ok(())
    }

    /// One operation for each namespace.
    fn pod_sets(
        &self,
        place: &str,
        sets: CreatePodSets,
        into: &mut Vec<Op>,
    ) -> Result<(), FileError> {
        let mut fields = sets.create_pods_op;
        if let Some(opcode) = fields.remove("opcode")
            && opcode != "createPods"
        {
            let message = format!("expected \"createPods\", found {opcode}");
            return Err(FileError::new(format!("{place}.opcode"), message));
        }
        let mut pods = Vec::new();
        fields.insert("opcode".to_owned(), json!("createPods"));
        self.decode(place, &Value::Object(fields), &mut pods)?;
        for index in 0..sets.count.min(OPS_MAX + 1) {
            for op in &pods {
                let mut op = op.clone();
                if let Op::CreatePods(pods) = &mut op {
                    pods.namespace = Some(format!("{}-{index}", sets.namespace_prefix));
                }
                into.push(op);
            }
        }
        Ok(())
    }

    /// Replaces fields such as `countParam` with the field without the suffix and the value of the parameter.
    fn put_params(&self, place: &str, fields: &mut Map<String, Value>) -> Result<(), FileError> {
        let names = fields.keys().filter(|name| name.ends_with("Param"));
        for name in names.cloned().collect::<Vec<_>>() {
            let reference = fields.remove(&name).unwrap_or_default();
            let reference = reference.as_str().unwrap_or_default();
            let value = self.params.get(&format!("{place}.{name}"), reference)?;
            let field = name.trim_end_matches("Param").to_owned();
            fields.insert(field, value.clone());
        }
        Ok(())
    }

    /// The values that a template refers to by name: parameters of the workload, or constants.
    fn template_values(&self, place: &str, values: Value) -> Result<Values, FileError> {
        let place = format!("{place}.templateParams");
        let values: BTreeMap<String, Value> = decoded(&place, values)?;
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
                other => {
                    let message = format!("expected a string, a number or a flag, found {other}");
                    return Err(FileError::new(at, message));
                }
            };
            read.insert(name, value);
        }
        Ok(read)
    }
}

/// Removes the paths of templates from the fields and returns them.
fn take_paths(
    place: &str,
    fields: &mut Map<String, Value>,
) -> Result<BTreeMap<String, String>, FileError> {
    let names = fields.keys().filter(|name| name.ends_with("emplatePath"));
    let mut paths = Map::new();
    for name in names.cloned().collect::<Vec<_>>() {
        paths.extend(fields.remove_entry(&name));
    }
    decoded(place, Value::Object(paths))
}

/// The template files of an operation that were not read yet.
struct OpFiles<'a> {
    place: &'a str,
    templates: &'a FileTemplates,
    paths: BTreeMap<String, String>,
    values: Values,
}

impl OpFiles<'_> {
    /// A template with actions.
    fn template(
        &mut self,
        field: &str,
        kind: &str,
    ) -> Result<Option<Arc<ObjectTemplate>>, FileError> {
        let values = std::mem::take(&mut self.values);
        let Some(path) = self.paths.remove(field) else {
            return Ok(None);
        };
        let at = format!("{}.{field}", self.place);
        self.templates.template(&at, &path, kind, &values).map(Some)
    }

    /// A mandatory template with actions.
    fn required(&mut self, kind: &str) -> Result<Arc<ObjectTemplate>, FileError> {
        let at = format!("{}.templatePath", self.place);
        self.template("templatePath", kind)?
            .ok_or_else(|| FileError::new(at, "must be set"))
    }

    /// A file without actions, as upstream reads volumes, claims and namespaces.
    fn plain(&mut self, field: &str, kind: &str) -> Result<Option<Arc<ObjectTemplate>>, FileError> {
        let Some(path) = self.paths.remove(field) else {
            return Ok(None);
        };
        let at = format!("{}.{field}", self.place);
        self.templates.plain(&at, &path, kind).map(Some)
    }

    /// # Errors
    /// When the operation has no use for a field.
    fn finish(&self) -> Result<(), FileError> {
        let unknown = match self.paths.keys().next() {
            Some(field) => field,
            None if self.values.is_empty() => return Ok(()),
            None => "templateParams",
        };
        let message = format!("unknown field {unknown:?}");
        Err(FileError::new(self.place, message))
    }
}

/// Decodes a value.
///
/// # Errors
/// Names the field within the place.
fn decoded<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, FileError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let place = match error.path().to_string().as_str() {
            "." => place.to_owned(),
            path => format!("{place}.{path}"),
        };
        FileError::new(place, error.into_inner().to_string())
    })
}
