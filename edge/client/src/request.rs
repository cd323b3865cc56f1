//! Requests as values, without I/O.

use crate::ApiError;
use crate::content::{DecodeError, Format, JSON};
use crate::limit::Lane;
use berth_api::Str;
use berth_protobuf::envelope::MEDIA_TYPE;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::fmt::{self, Write as _};

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// As it is sent.
    Bytes(Bytes),
    /// An object or a patch, which is encoded when it is sent.
    Value(Value),
}

impl Body {
    /// No body.
    pub const NONE: Self = Self::Bytes(Bytes::new());

    /// The body as JSON.
    pub fn json(&self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Value(value) => value.to_string().into(),
        }
    }

    /// The body in protobuf, if it is an object whose kind has that form.
    fn protobuf(&self) -> Option<Vec<u8>> {
        match self {
            Self::Bytes(bytes) if bytes.is_empty() => None,
            Self::Bytes(bytes) => berth_protobuf::encode_body(&serde_json::from_slice(bytes).ok()?),
            Self::Value(value) => berth_protobuf::encode_body(value),
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Body,
    /// The urgency of the request when the client limits itself.
    pub lane: Lane,
    /// The format of the answer, where the preference of the client does not count.
    pub answer_in: Option<Format>,
    /// Whether to omit `metadata.managedFields`. Servers without this option send them.
    pub without_managed_fields: bool,
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

impl ApiRequest {
    fn new(method: Method, path: String, content_type: &'static str, body: Option<Value>) -> Self {
        let lane = match method {
            Method::GET => Lane::Read,
            _ => Lane::Status,
        };
        Self {
            method,
            path,
            content_type,
            body: body.map_or(Body::NONE, Body::Value),
            lane,
            answer_in: None,
            without_managed_fields: false,
        }
    }

    /// The request whose answer must be JSON.
    #[must_use]
    pub fn for_json(self) -> Self {
        let answer_in = Some(Format::Json);
        Self { answer_in, ..self }
    }

    /// The request whose answer must be protobuf, if the server has that form.
    #[must_use]
    pub fn for_protobuf(self) -> Self {
        let answer_in = Some(Format::Protobuf);
        Self { answer_in, ..self }
    }

    /// The request whose answer contains objects without `metadata.managedFields`, if the server offers that.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        Self {
            without_managed_fields: true,
            ..self
        }
    }

    /// The body in protobuf, if the request is one of an object whose kind has that form. Patches are JSON.
    pub(crate) fn protobuf(&self) -> Option<Vec<u8>> {
        (self.content_type == JSON).then(|| self.body.protobuf())?
    }

    /// The request in another lane.
    #[must_use]
    pub fn in_lane(self, lane: Lane) -> Self {
        Self { lane, ..self }
    }

    /// Method and path, for messages.
    pub fn describe(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} {path}", self.method)
    }
}

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The group; empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural.
    pub plural: &'static str,
}

impl fmt::Display for Resource {
    /// As in `resourceclaims.resource.k8s.io`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => f.write_str(self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

impl Resource {
    /// The path of the whole collection, over all namespaces.
    pub fn path(&self) -> String {
        format!("{}/{}", self.root(), self.plural)
    }

    /// The path of one object; `namespace` is empty for cluster-scoped kinds.
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        let mut path = self.root();
        if !namespace.is_empty() {
            let _ = write!(path, "/namespaces/{}", escape(namespace));
        }
        let _ = write!(path, "/{}", self.plural);
        if !name.is_empty() {
            let _ = write!(path, "/{}", escape(name));
        }
        path
    }

    fn root(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

/// `v1/pods`.
pub const PODS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "pods",
};

/// `v1/namespaces`.
pub(crate) const NAMESPACES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "namespaces",
};

/// `events.k8s.io/v1/events`.
pub const EVENTS: Resource = Resource {
    group: "events.k8s.io",
    version: "v1",
    plural: "events",
};

/// `v1/events`: the version with field selectors for the object of events.
const CORE_EVENTS: Resource = Resource {
    group: "",
    version: "v1",
    plural: "events",
};

/// Lists one page of a collection.
pub fn list(
    resource: Resource,
    field_selector: &str,
    limit: u32,
    continue_token: &str,
) -> ApiRequest {
    let mut path = resource.path();
    let mut query = Query::new(&mut path);
    query.add("fieldSelector", field_selector);
    query.add("limit", &limit.to_string());
    query.add("continue", continue_token);
    ApiRequest::new(Method::GET, path, JSON, None)
}

/// Lists the events about an object, `limit` at most.
pub fn events_about(namespace: &str, uid: &str, limit: u32) -> ApiRequest {
    let mut path = CORE_EVENTS.object_path(namespace, "");
    let mut query = Query::new(&mut path);
    query.add("fieldSelector", &format!("involvedObject.uid={uid}"));
    query.add("limit", &limit.to_string());
    ApiRequest::new(Method::GET, path, JSON, None)
}

/// Watches a collection from a version on.
pub fn watch(
    resource: Resource,
    field_selector: &str,
    resource_version: &str,
    timeout_seconds: u32,
) -> ApiRequest {
    let mut path = resource.path();
    let mut query = Query::new(&mut path);
    query.add("watch", "true");
    query.add("allowWatchBookmarks", "true");
    query.add("fieldSelector", field_selector);
    query.add("resourceVersion", resource_version);
    query.add("timeoutSeconds", &timeout_seconds.to_string());
    ApiRequest::new(Method::GET, path, JSON, None)
}

/// Watches a collection that begins with all of its objects (a streaming list).
pub fn watch_list(resource: Resource, field_selector: &str, timeout_seconds: u32) -> ApiRequest {
    let mut request = watch(resource, field_selector, "", timeout_seconds);
    request
        .path
        .push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    request
}

/// Reads one object.
pub fn get(resource: Resource, namespace: &str, name: &str) -> ApiRequest {
    ApiRequest::new(
        Method::GET,
        resource.object_path(namespace, name),
        JSON,
        None,
    )
}

/// Reads a path that is not an object, such as a path of a component's own port.
pub fn get_path(path: &str) -> ApiRequest {
    ApiRequest::new(Method::GET, path.to_owned(), JSON, None)
}

/// Creates an object.
pub fn create(resource: Resource, namespace: &str, object: &Value) -> ApiRequest {
    ApiRequest::new(
        Method::POST,
        resource.object_path(namespace, ""),
        JSON,
        Some(object.clone()),
    )
}

/// Replaces an object.
pub fn update(resource: Resource, namespace: &str, name: &str, object: &Value) -> ApiRequest {
    ApiRequest::new(
        Method::PUT,
        resource.object_path(namespace, name),
        JSON,
        Some(object.clone()),
    )
}

/// Replaces an object, or its subresource, by one in protobuf.
pub fn update_in_protobuf(
    resource: Resource,
    namespace: &str,
    name: &str,
    subresource: &str,
    object: Bytes,
) -> ApiRequest {
    let mut path = resource.object_path(namespace, name);
    if !subresource.is_empty() {
        let _ = write!(path, "/{subresource}");
    }
    ApiRequest {
        body: Body::Bytes(object),
        ..ApiRequest::new(Method::PUT, path, MEDIA_TYPE, None)
    }
}

/// Changes some fields of an object by a JSON merge patch.
pub fn merge_patch(resource: Resource, namespace: &str, name: &str, patch: &Value) -> ApiRequest {
    ApiRequest::new(
        Method::PATCH,
        resource.object_path(namespace, name),
        MERGE,
        Some(patch.clone()),
    )
}

/// Changes some fields of an object by a strategic merge patch: lists are merged by their keys.
pub fn strategic_patch(
    resource: Resource,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> ApiRequest {
    ApiRequest::new(
        Method::PATCH,
        resource.object_path(namespace, name),
        STRATEGIC,
        Some(patch.clone()),
    )
}

/// Deletes an object, if it meets the preconditions: `uid` and `resourceVersion`, each if it is given.
pub fn delete(
    resource: Resource,
    namespace: &str,
    name: &str,
    preconditions: &Value,
) -> ApiRequest {
    let body = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
    });
    ApiRequest::new(
        Method::DELETE,
        resource.object_path(namespace, name),
        JSON,
        Some(body),
    )
}

/// Binds a pod to a node. The UID prevents the binding of a newer pod of the same name.
pub fn bind_pod(namespace: &Str, name: &Str, uid: &Str, node: &Str) -> ApiRequest {
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("{}/binding", PODS.object_path(namespace, name));
    ApiRequest::new(Method::POST, path, JSON, Some(body)).in_lane(Lane::Binding)
}

/// Changes a pod's status by a strategic merge patch (conditions are merged by type).
pub fn patch_pod_status(namespace: &Str, name: &Str, patch: &Value) -> ApiRequest {
    let mut request = strategic_patch(PODS, namespace, name, patch);
    request.path += "/status";
    request
}

/// Deletes a pod, if it still has this UID.
pub fn delete_pod(namespace: &Str, name: &Str, uid: &Str) -> ApiRequest {
    delete(PODS, namespace, name, &json!({"uid": uid})).in_lane(Lane::Deletion)
}

/// Appends parameters to a path; empty values are left out.
struct Query<'a> {
    path: &'a mut String,
    first: bool,
}

impl<'a> Query<'a> {
    fn new(path: &'a mut String) -> Self {
        Self { path, first: true }
    }

    fn add(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.path.push(if self.first { '?' } else { '&' });
        self.first = false;
        self.path.push_str(key);
        self.path.push('=');
        self.path.push_str(&escape(value));
    }
}

/// Percent-encodes all characters except unreserved ones.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

impl From<(&ApiRequest, DecodeError)> for ApiError {
    fn from((request, error): (&ApiRequest, DecodeError)) -> Self {
        Self::Decode {
            request: request.describe(),
            reason: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_group_namespace_and_object() {
        for (request, method, path) in [
            (
                list(PODS, "status.phase!=Failed", 500, ""),
                "GET",
                "/api/v1/pods?fieldSelector=status.phase%21%3DFailed&limit=500",
            ),
            (
                watch(PODS, "", "17", 300),
                "GET",
                "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=17&timeoutSeconds=300",
            ),
            (
                bind_pod(&"ns".into(), &"p".into(), &"u".into(), &"n".into()),
                "POST",
                "/api/v1/namespaces/ns/pods/p/binding",
            ),
            (
                create(EVENTS, "ns", &json!({})),
                "POST",
                "/apis/events.k8s.io/v1/namespaces/ns/events",
            ),
            (
                get(PODS, "ns", "../x"),
                "GET",
                "/api/v1/namespaces/ns/pods/..%2Fx",
            ),
        ] {
            assert_eq!(
                (request.method.as_str(), request.path.as_str()),
                (method, path)
            );
        }
    }

    #[test]
    fn a_binding_carries_the_identity_of_the_pod() {
        let request = bind_pod(&"ns".into(), &"p".into(), &"u-1".into(), &"n".into());
        let body: Value = serde_json::from_slice(&request.body.json()).unwrap();
        assert_eq!(body["metadata"]["uid"], "u-1");
        assert_eq!(body["target"]["name"], "n");
    }
}
