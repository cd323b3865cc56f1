//! Builds a cluster from the objects of a case, with the decoding of production.

use berth_api::{Kind, Object, Pod};
use berth_framework::{Cluster, FeatureGates, PodInfo};
use serde_json::Value;
use std::sync::Arc;

/// Decodes an object. `None` for a kind that the scheduler does not watch.
///
/// # Errors
/// The object that does not decode.
pub fn decode(raw: &Value) -> Result<Option<Object>, String> {
    let field = |name: &str| raw.get(name).and_then(Value::as_str).unwrap_or_default();
    decode_as(raw, field("apiVersion"), field("kind"))
}

/// Decodes an object of a given kind.
///
/// # Errors
/// The object that does not decode.
pub fn decode_as(raw: &Value, api_version: &str, kind: &str) -> Result<Option<Object>, String> {
    let Some(known) = Kind::by_name(api_version, kind) else {
        return Ok(None);
    };
    known
        .decode(raw.to_string().as_bytes())
        .map(Some)
        .map_err(|e| format!("{kind} does not decode: {e}"))
}

/// Decodes a pod.
///
/// # Errors
/// The object that does not decode.
pub fn decode_pod(raw: &Value) -> Result<Arc<Pod>, String> {
    let object = decode_as(raw, "v1", "Pod")?;
    object
        .as_ref()
        .and_then(Object::as_pod)
        .cloned()
        .ok_or_else(|| "not a pod".to_owned())
}

/// The cluster of these objects in a release, without objects of kinds that the scheduler does not watch.
///
/// # Errors
/// The object that does not decode.
pub fn build(objects: &[Value], features: &FeatureGates) -> Result<Cluster, String> {
    let mut cluster = Cluster::default();
    cluster.follow(features);
    for raw in objects {
        match decode(raw)? {
            None => {}
            Some(Object::Node(node)) => {
                cluster.nodes.set_node(node);
            }
            Some(Object::Pod(pod)) => {
                if pod.is_assigned() && !pod.is_terminal() {
                    let info = Arc::new(PodInfo::counting(pod.clone(), cluster.footprint));
                    cluster.nodes.add_pod(&pod.spec.node_name, info);
                }
                cluster.pods.insert(pod.uid().clone(), pod);
            }
            Some(other) => {
                cluster.set(&other);
            }
        }
    }
    Ok(cluster)
}
