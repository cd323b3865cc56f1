//! The objects that operations create: from template files, or upstream's defaults.

use super::decode::read_text;
use super::error::FileError;
use super::template::{Values, WorkloadTemplate};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that objects are made from.
#[derive(Debug, Clone, Default)]
pub struct ObjectTemplate {
    path: String,
    template: WorkloadTemplate,
    /// The object, when all are the same.
    constant: Option<Value>,
}

impl ObjectTemplate {
    /// Reads the text of a template; `path` is for messages.
    ///
    /// # Errors
    /// When it is malformed, or the object it makes.
    pub fn parse(path: &str, text: &str, values: &Values) -> Result<Self, String> {
        let template =
            WorkloadTemplate::parse_with(text, values).map_err(|e| format!("{path}: {e}"))?;
        let mut parsed = Self {
            path: path.to_owned(),
            template,
            constant: None,
        };
        if parsed.template.is_constant() && !text.contains("{{") {
            parsed.constant = Some(parsed.object(0, 1)?);
        }
        Ok(parsed)
    }

    /// The file.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether all objects are the same, for any index and count.
    pub fn is_constant(&self) -> bool {
        self.constant.is_some()
    }

    /// Object `index` of `count`.
    ///
    /// # Errors
    /// When the template creates no object for this index.
    pub fn object(&self, index: usize, count: usize) -> Result<Value, String> {
        if let Some(object) = &self.constant {
            return Ok(object.clone());
        }
        let text = self
            .template
            .render(index, count)
            .map_err(|e| format!("{}: {e}", self.path))?;
        let mut value: Value = serde_saphyr::from_str(&text)
            .map_err(|e| format!("{}: malformed YAML: {e}", self.path))?;
        if let Some(spec) = value.get_mut("spec") {
            spell_fields(spec);
        }
        for field in ["apiVersion", "kind"] {
            if value[field].as_str().is_none_or(str::is_empty) {
                return Err(format!("{}: {field} must be set", self.path));
            }
        }
        Ok(value)
    }
}

/// Fields whose keys are data, not names of fields.
const FREE_KEYS: [&str; 9] = [
    "allocatable",
    "annotations",
    "capacity",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "overhead",
    "requests",
];

/// Converts names of fields to the spelling of the API. Upstream's harness reads objects with Go's JSON decoder, which
/// accepts `NodeAffinityPolicy` for `nodeAffinityPolicy`, and one of its templates contains that.
fn spell_fields(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(spell_fields),
        Value::Object(map) => {
            for (key, mut value) in std::mem::take(map) {
                if !FREE_KEYS.contains(&key.as_str()) {
                    spell_fields(&mut value);
                }
                let mut letters = key.chars();
                let key = match letters.next() {
                    Some(first) if first.is_ascii_uppercase() => {
                        format!("{}{}", first.to_ascii_lowercase(), letters.as_str())
                    }
                    _ => key,
                };
                map.insert(key, value);
            }
        }
        _ => {}
    }
}

/// The templates of a workload file, each read once.
pub(super) struct FileTemplates {
    directory: PathBuf,
    read: RefCell<HashMap<(PathBuf, Values), Arc<ObjectTemplate>>>,
}

impl FileTemplates {
    /// Templates whose paths are relative to `directory`.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            read: RefCell::default(),
        }
    }

    /// The path of a file of the workload.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.directory.join(relative)
    }

    /// A template for objects of a kind; of any kind if `kind` is empty.
    ///
    /// # Errors
    /// When the file is missing or malformed, or creates objects of another kind.
    pub(super) fn template(
        &self,
        place: &str,
        relative: &str,
        kind: &str,
        values: &Values,
    ) -> Result<Arc<ObjectTemplate>, FileError> {
        let key = (self.path(relative), values.clone());
        let known = self.read.borrow().get(&key).cloned();
        let template = match known {
            Some(template) => template,
            None => {
                let template = Arc::new(load(place, &key.0, values)?);
                self.read.borrow_mut().insert(key, Arc::clone(&template));
                template
            }
        };
        let object = template
            .object(0, 1)
            .map_err(|message| FileError::new(place, message))?;
        let found = object["kind"].as_str().unwrap_or_default();
        if !kind.is_empty() && found != kind {
            return Err(FileError::new(
                place,
                format!("{} is a {found}, but a {kind} is needed", template.path),
            ));
        }
        Ok(template)
    }

    /// Like [`FileTemplates::template`], for files in which actions are not allowed.
    ///
    /// # Errors
    /// As for [`FileTemplates::template`], and when the file has an action.
    pub(super) fn plain(
        &self,
        place: &str,
        relative: &str,
        kind: &str,
    ) -> Result<Arc<ObjectTemplate>, FileError> {
        let template = self.template(place, relative, kind, &Values::new())?;
        if template.is_constant() {
            return Ok(template);
        }
        Err(FileError::new(
            place,
            format!(
                "{} has template actions, which are not executed in this field",
                template.path
            ),
        ))
    }
}

fn load(place: &str, path: &Path, values: &Values) -> Result<ObjectTemplate, FileError> {
    let shown = path.display().to_string();
    let text = read_text(path).map_err(|reason| {
        FileError::new(place, format!("failed to read template {shown}: {reason}"))
    })?;
    ObjectTemplate::parse(&shown, &text, values).map_err(|message| FileError::new(place, message))
}

/// The node of operations without a template: 4 CPU, 32 GiB, 110 pods.
pub(super) fn default_node(prefix: &str) -> Value {
    let resources = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// The pod of operations without a template: 100m CPU and 500 MiB, as requests and limits.
pub(super) fn default_pod() -> Value {
    let resources = json!({"cpu": "100m", "memory": "500Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-"},
        "spec": {"containers": [{
            "name": "pause",
            "image": "registry.k8s.io/pause:3.10.1",
            "ports": [{"containerPort": 80}],
            "resources": {"requests": resources, "limits": resources},
        }]},
    })
}

/// The mapping at a path, created if it does not exist.
pub(super) fn mapping<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut at = object;
    for name in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*name];
    }
    if !at.is_object() {
        *at = json!({});
    }
    match at {
        Value::Object(map) => map,
        // It was made a mapping just now.
        _ => unreachable!("a mapping"),
    }
}

/// The volume and the claim of pod `index`, bound to each other.
pub(super) fn bound_volume(
    namespace: &str,
    index: usize,
    volume: &Value,
    claim: &Value,
) -> (Value, Value) {
    let (claim_name, volume_name) = (format!("pvc-{index}"), format!("{namespace}-vol-{index}"));
    let mut claim = claim.clone();
    mapping(&mut claim, &["metadata"]).extend([
        ("name".to_owned(), json!(claim_name)),
        ("namespace".to_owned(), json!(namespace)),
    ]);
    mapping(&mut claim, &["spec"]).insert("volumeName".to_owned(), json!(volume_name));
    mapping(&mut claim, &["status"]).insert("phase".to_owned(), json!("Bound"));
    let mut volume = volume.clone();
    mapping(&mut volume, &["metadata"]).insert("name".to_owned(), json!(volume_name));
    let spec = mapping(&mut volume, &["spec"]);
    if let Some(Value::Object(csi)) = spec.get_mut("csi") {
        csi.insert("volumeHandle".to_owned(), json!(volume_name));
    } else if let Some(Value::Object(disk)) = spec.get_mut("awsElasticBlockStore") {
        disk.insert("volumeID".to_owned(), json!(format!("vol-{index}")));
    }
    spec.insert(
        "claimRef".to_owned(),
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": claim_name,
        }),
    );
    mapping(&mut volume, &["status"]).insert("phase".to_owned(), json!("Bound"));
    (volume, claim)
}

/// Sets the volumes of a pod to the claim of its index.
pub(super) fn use_claim(pod: &mut Value, index: usize) {
    mapping(pod, &["spec"]).insert(
        "volumes".to_owned(),
        json!([{"name": "vol", "persistentVolumeClaim": {"claimName": format!("pvc-{index}")}}]),
    );
}

/// The devices of a node: as many as the maximum number of claims on the node.
pub(super) fn resource_slice(driver: &str, node: &str, devices: usize) -> Value {
    let devices: Vec<Value> = (0..devices)
        .map(|index| {
            json!({
                "name": format!("instance-{index}"),
                "attributes": {
                    "model": {"string": "A100"},
                    "family": {"string": "GPU"},
                    "driverVersion": {"version": "1.2.3"},
                    "dra.example.com/numa": {"int": index},
                },
                "capacity": {"memory": {"value": "1Gi"}},
            })
        })
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_follow_the_api_and_data_is_preserved() {
        let text = "apiVersion: v1\nkind: Pod\nspec:\n  Containers:\n  - resources: {requests: {CPU: 1}}\n  \
                    nodeSelector: {Zone: a}\n";
        let template =
            ObjectTemplate::parse("pod.yaml", text, &Values::new()).expect("the template is right");
        let pod = template.object(0, 1).expect("the template is right");
        let expect = json!({
            "containers": [{"resources": {"requests": {"CPU": 1}}}],
            "nodeSelector": {"Zone": "a"},
        });
        assert_eq!(pod["spec"], expect);
    }

    #[test]
    fn a_volume_and_its_claim_are_bound_to_each_other() {
        let volume = json!({"spec": {"csi": {"driver": "d"}}});
        let (volume, claim) = bound_volume("ns", 3, &volume, &json!({}));
        assert_eq!(volume["metadata"]["name"], "ns-vol-3");
        assert_eq!(volume["spec"]["csi"]["volumeHandle"], "ns-vol-3");
        assert_eq!(volume["spec"]["claimRef"]["name"], "pvc-3");
        assert_eq!(claim["metadata"]["name"], "pvc-3");
        assert_eq!(claim["spec"]["volumeName"], "ns-vol-3");
        assert_eq!(volume["status"]["phase"], "Bound");
    }
}
