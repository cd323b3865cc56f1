//! Reads the objects of a watch for the core, also with invalid fields.
//!
//! An unreadable value counts as absent. A pod on a node with an unreadable identity is replaced by a pod that keeps
//! its node from other pods, because its resources are unknown.

use berth_api::{Kind, Object, ObjectMeta, PartialObject, Pod};
use berth_client::content::{DecodeError, Payload};
use berth_client::reflector::Availability;
use berth_client::request::Resource;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of fields whose loss is remembered. After these, all are forgotten, and may be logged again.
const LOGGED_MAX: usize = 4_096;

/// Reads the objects of one kind.
pub(super) struct ObjectReader {
    kind: Kind,
    resource: Resource,
    availability: Arc<Availability>,
    /// The fields whose loss was logged: namespace, name and path.
    logged: Mutex<BTreeSet<(String, String, String)>>,
    hasher: RandomState,
}

impl ObjectReader {
    pub(super) fn new(kind: Kind, resource: Resource, availability: Arc<Availability>) -> Self {
        Self {
            kind,
            resource,
            availability,
            logged: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// Reads an object. Fields that cannot be read are logged once.
    ///
    /// # Errors
    /// The object cannot be identified, and is not a pod on a node.
    pub(super) fn read(&self, object: Payload<'_>) -> Result<Object, DecodeError> {
        let partial = object.partly_of_kind(self.kind)?;
        if partial.is_identified() {
            let metadata = partial.object.metadata();
            self.availability
                .readable(self.resource, &metadata.namespace, &metadata.name);
            self.log_unread(&partial);
            return Ok(partial.object);
        }
        let pod = partial.object.as_pod().filter(|pod| pod.is_assigned());
        match pod {
            Some(pod) => Ok(Object::Pod(Arc::new(self.substitute(pod, object)))),
            None => Err(unidentified(&partial)),
        }
    }

    fn log_unread(&self, partial: &PartialObject) {
        let metadata = partial.object.metadata();
        for field in &partial.unread {
            let (namespace, name) = (&metadata.namespace, &metadata.name);
            let key = (namespace.to_string(), name.to_string(), field.path.clone());
            let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
            if logged.len() >= LOGGED_MAX {
                logged.clear();
            }
            if logged.insert(key) {
                tracing::warn!(
                    kind = self.resource.plural,
                    namespace = namespace.as_str(),
                    name = name.as_str(),
                    field = field.path,
                    reason = field.reason,
                    "failed to read a field of an object; it counts as absent"
                );
            }
        }
    }

    /// The substitute of an unreadable pod. Unreadable parts of its identity are derived from its bytes: equal bytes
    /// give the same pod.
    fn substitute(&self, pod: &Pod, object: Payload<'_>) -> Pod {
        let made = format!("unreadable-{:016x}", self.hasher.hash_one(object.bytes()));
        let read = &pod.metadata;
        let or_made = |text: &berth_api::Str| match text.as_str() {
            "" => made.as_str().into(),
            _ => text.clone(),
        };
        let metadata = ObjectMeta {
            name: or_made(&read.name),
            namespace: read.namespace.clone(),
            uid: or_made(&read.uid),
            resource_version: or_made(&read.resource_version),
            ..ObjectMeta::default()
        };
        let node = pod.spec.node_name.clone();
        let (namespace, name) = (&metadata.namespace, &metadata.name);
        if self.availability.unreadable(self.resource, namespace, name) {
            tracing::error!(
                namespace = namespace.as_str(),
                name = name.as_str(),
                node = node.as_str(),
                "failed to read the identity of a pod; its node gets no more pods until it can be read"
            );
        }
        Pod::in_place_of_unreadable(metadata, node)
    }
}

fn unidentified(partial: &PartialObject) -> DecodeError {
    let unread = partial.unread.iter();
    let unread: Vec<String> = unread
        .map(|field| match field.path.as_str() {
            "" => field.reason.clone(),
            path => format!("{path}: {}", field.reason),
        })
        .collect();
    DecodeError::Unidentified(match unread.as_slice() {
        [] => "it has no name".to_owned(),
        unread => unread.join("; "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_client::request::PODS;

    fn reader(kind: Kind) -> (ObjectReader, Arc<Availability>) {
        let availability = Arc::<Availability>::default();
        let reader = ObjectReader::new(kind, PODS, Arc::clone(&availability));
        (reader, availability)
    }

    fn read(reader: &ObjectReader, json: &str) -> Result<Object, DecodeError> {
        reader.read(Payload::Json(json.as_bytes()))
    }

    /// Q-87b: a pod with only a readable node keeps its node from other pods, and is counted until it can be read.
    #[test]
    fn a_pod_without_identity_keeps_its_node() {
        let (reader, availability) = reader(Kind::Pod);
        let count = || availability.unreadable_objects();
        let unnamed = r#"{"metadata":{"name":7,"namespace":"ns"},"spec":{"nodeName":"n"}}"#;
        let object = read(&reader, unnamed).expect("a pod in its place");
        let pod = object.as_pod().expect("a pod");
        assert!(pod.status.is_unreadable);
        assert_eq!(pod.spec.node_name, "n");
        assert_eq!(pod.namespace(), "ns");
        assert!(pod.name().starts_with("unreadable-"), "{}", pod.name());
        assert_eq!(count(), [("pods", 1)]);
        let again = read(&reader, unnamed).expect("a pod in its place");
        assert_eq!(again, object, "the same bytes are the same pod");
        assert_eq!(count(), [("pods", 1)]);

        let (reader, availability) = self::reader(Kind::Pod);
        let no_uid = r#"{"metadata":{"name":"p","uid":[]},"spec":{"nodeName":"n"}}"#;
        let object = read(&reader, no_uid).expect("a pod in its place");
        assert_eq!(object.metadata().name, "p");
        assert_eq!(availability.unreadable_objects(), [("pods", 1)]);
        let whole = r#"{"metadata":{"name":"p","uid":"u"},"spec":{"nodeName":"n"}}"#;
        let object = read(&reader, whole).expect("a pod");
        assert!(!object.as_pod().expect("a pod").status.is_unreadable);
        assert_eq!(availability.unreadable_objects(), [("pods", 0)]);
    }

    /// Q-87b: other objects without identity are passed over, with the reason.
    #[test]
    fn an_object_without_identity_or_node_is_passed_over() {
        for (kind, json, reason) in [
            (
                Kind::Pod,
                r#"{"metadata":{"name":7}}"#,
                "metadata.name: invalid type: integer `7`",
            ),
            (
                Kind::Pod,
                r#"{"metadata":{"name":"p"},"spec":{"nodeName":7}}"#,
                "spec.nodeName: invalid type",
            ),
            (Kind::Pod, r#"{"metadata":{}}"#, "it has no name"),
            (Kind::Node, r#"{"metadata":"n"}"#, "metadata: invalid type"),
        ] {
            let (reader, _) = reader(kind);
            let error = read(&reader, json).expect_err(json).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    /// Q-87a: a field that cannot be read is logged once.
    #[test]
    fn a_field_is_logged_once() {
        let (reader, availability) = reader(Kind::Pod);
        for version in 1..=3 {
            let json = format!(
                r#"{{"metadata":{{"name":"p","resourceVersion":"{version}"}},"spec":{{"nodeName":"n","priority":"x"}},"status":{{"startTime":"x"}}}}"#
            );
            let object = read(&reader, &json).expect("a pod");
            assert_eq!(object.as_pod().expect("a pod").spec.node_name, "n");
        }
        let logged = reader.logged.lock().expect("the fields");
        let fields: Vec<&str> = logged.iter().map(|(_, _, path)| path.as_str()).collect();
        assert_eq!(fields, ["spec.priority", "status.startTime"]);
        assert_eq!(availability.unreadable_objects(), []);
    }
}
