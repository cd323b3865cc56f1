//! The objects of a cluster.

use crate::changes::BufferRequest;
use crate::changes::others::Others;
use crate::documents::{Document, documents};
use crate::error::InputError;
use crate::json::{
    ClusterJson, ObjectKey, decode, has_groups, known, set_defaults, shown_with_kind,
};
use berth_api::{Kind, Object, Release};
use berth_explain::what_if::{CopiedObjects, key_of};
use serde_json::Value;
use std::collections::BTreeMap;

/// The objects of a cluster.
///
/// Two groups of kinds are used: the kinds that the scheduler reads (Pod, Node, PersistentVolume, ResourceSlice and
/// others), and the kinds that decide about the pods of a change (ResourceQuota, PriorityClass, ResourceClaimTemplate,
/// DaemonSet, CapacityBuffer and its templates). Objects of other kinds are accepted and have no effect, so the output
/// of `kubectl get` can be used unchanged.
#[derive(Debug, Clone, Default)]
pub struct ClusterObjects {
    pub(crate) raw: ClusterJson,
    pub(crate) others: Others,
    /// The locations of the objects of the scheduler's kinds, for messages.
    places: BTreeMap<ObjectKey, String>,
}

impl ClusterObjects {
    /// A cluster without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// The objects of a text in YAML or JSON, such as the output of `kubectl get -A -o yaml`. `name` is the name of the text
    /// in messages, such as the path of a file.
    ///
    /// # Errors
    /// When the text does not parse, an object is malformed, or an object is given twice.
    pub fn from_yaml(name: &str, text: &str) -> Result<Self, InputError> {
        let mut cluster = Self::new();
        cluster.add_yaml(name, text)?;
        Ok(cluster)
    }

    /// Adds the objects of a text in YAML or JSON. The defaults of the API server are set in fields that an object does not
    /// state.
    ///
    /// # Errors
    /// As [`Self::from_yaml`].
    pub fn add_yaml(&mut self, name: &str, text: &str) -> Result<(), InputError> {
        documents(name, text)?
            .into_iter()
            .try_for_each(|document| self.add(document))
    }

    /// Adds an object as JSON. The type of an object of another crate, such as `k8s-openapi`, becomes a value with
    /// `serde_json::to_value`.
    ///
    /// # Errors
    /// When the object is malformed or was added before.
    pub fn add(&mut self, document: Document) -> Result<(), InputError> {
        self.put(document, false)
    }

    /// Adds an object, or replaces the object of the same kind, namespace and name.
    ///
    /// # Errors
    /// When the object is malformed.
    pub fn set(&mut self, document: Document) -> Result<(), InputError> {
        self.put(document, true)
    }

    /// Adds or replaces an object of one of the types of [`api`](crate::api).
    ///
    /// # Errors
    /// When the object is a number that JSON cannot express.
    pub fn set_typed(&mut self, object: &Object) -> Result<(), InputError> {
        let key = key_of(object);
        let value = serde_json::to_value(object);
        let value = value.map_err(|e| InputError::object(&shown_with_kind(&key), e.to_string()))?;
        self.set_stored(key, value);
        Ok(())
    }

    /// Adds or replaces an object of the scheduler's kinds as an API server stores it: defaults are not set, and the
    /// object may lack `apiVersion` and `kind`, as items of lists do.
    pub fn set_stored(&mut self, key: (Kind, String, String), object: Value) {
        self.raw.insert(key, object);
    }

    /// Removes an object of the scheduler's kinds. Returns whether it existed.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.places.remove(&key);
        self.raw.remove(&key).is_some()
    }

    /// The number of objects that the scheduler reads.
    pub fn len(&self) -> usize {
        self.raw.len()
    }

    /// Returns whether the cluster has no object that the scheduler reads.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Returns whether the cluster has an object of the scheduler's kinds.
    pub fn contains(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.raw.contains_key(&key)
    }

    /// Returns whether the cluster has a CapacityBuffer.
    pub fn has_buffers(&self) -> bool {
        !self.others.buffers.is_empty()
    }

    /// The room that each CapacityBuffer requests, by namespace and name, and a note for each buffer without chunks.
    pub fn buffers(&self) -> (Vec<BufferRequest>, Vec<String>) {
        self.others.buffers.requests(&self.raw)
    }

    /// Adds a note about missing objects, which each report repeats.
    pub fn note(&mut self, note: String) {
        self.others.notes.push(note);
    }

    fn put(&mut self, document: Document, may_replace: bool) -> Result<(), InputError> {
        let Document { place, object } = document;
        let Some(object) = self.others.take(&place, object, None)? else {
            return Ok(());
        };
        let Some((key, mut object)) = known(&place, object)? else {
            return Ok(());
        };
        if let Some(first) = self.places.get(&key).filter(|_| !may_replace) {
            return Err(InputError::Duplicate {
                place,
                object: shown_with_kind(&key),
                first: first.clone(),
            });
        }
        // Users write objects without the defaults.
        set_defaults(&mut object);
        // The scheduler distinguishes objects by their UIDs, which manifests do not state.
        let uid = &mut object["metadata"]["uid"];
        if uid.as_str().is_none_or(str::is_empty) {
            *uid = format!("{}-{}-{}", key.0.name(), key.1, key.2).into();
        }
        self.places.insert(key.clone(), place);
        self.raw.insert(key, object);
        Ok(())
    }

    /// The release of the cluster: a control plane is not older than its kubelets.
    pub fn release(&self) -> Release {
        let nodes = self.raw.iter().filter(|(key, _)| key.0 == Kind::Node);
        let minors = nodes.filter_map(|(_, node)| {
            let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str()?;
            version.strip_prefix("v1.")?.split('.').next()?.parse().ok()
        });
        minors
            .max()
            .map_or(Release::OLDEST, Release::closest_to_minor)
    }

    pub(crate) fn has_groups(&self) -> bool {
        has_groups(&self.raw)
    }

    pub(crate) fn decoded(&self) -> Result<CopiedObjects, InputError> {
        decode(&self.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let added = ClusterObjects::from_yaml("c.yaml", text);
        added.expect_err("a fault").to_string()
    }

    #[test]
    fn faults_name_the_object_the_place_and_the_remedy() {
        let node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}";
        assert_eq!(
            error(&format!("{node}\n---\n{node}\n")),
            "c.yaml, document 2: Node n1 was added before (c.yaml, document 1); replace it with ClusterObjects::set, or \
             leave one of the two out"
        );
        assert_eq!(
            error("{apiVersion: v1, kind: Pod}"),
            "c.yaml, document 1: metadata.name is missing"
        );
        assert_eq!(
            error("{kind: Pod}"),
            "c.yaml, document 1: apiVersion or kind is missing; give objects as kubectl get -o yaml prints them"
        );
        let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {priority: high}}";
        let cluster = ClusterObjects::from_yaml("c.yaml", pod).expect("parsed");
        let error = cluster.decoded().expect_err("a fault").to_string();
        assert!(
            error.starts_with("failed to decode Pod default/p: "),
            "{error}"
        );
    }

    #[test]
    fn an_object_can_be_replaced_and_other_kinds_are_ignored() {
        let mut cluster = ClusterObjects::new();
        for object in [
            "{apiVersion: v1, kind: Node, metadata: {name: n1}}",
            "{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {unschedulable: true}}",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}",
        ] {
            for document in documents("c.yaml", object).expect("YAML") {
                cluster.set(document).expect("set");
            }
        }
        assert_eq!(cluster.len(), 1);
        let key = (Kind::Node, String::new(), "n1".to_owned());
        assert_eq!(cluster.raw[&key]["spec"]["unschedulable"], true);
        let decoded = cluster.decoded().expect("decoded");
        let mut typed = ClusterObjects::new();
        for object in decoded.values() {
            typed.set_typed(object).expect("JSON");
        }
        assert_eq!(typed.decoded().expect("decoded"), decoded);
        assert!(typed.remove(Kind::Node, "", "n1"));
        assert!(typed.is_empty());
    }
}
