//! EndpointSlices and Endpoints: the addresses of the pods that a Service selects.
//!
//! Both controllers compute the same backends of a Service and write them in the form of their kind. An endpoint stays
//! in its slice as long as it exists, so that a change of one pod changes one slice.

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE, controller_reference,
    is_deleting, items, labels, name, namespace, uid,
};
use berth_objects::pod;
use berth_objects::selectors::workload::ControllerSelector;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const ENDPOINTS_MANAGER: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";
/// A slice has no more endpoints.
const ENDPOINTS_MAX: usize = 100;
/// Endpoints have no more addresses; an annotation states that there are more.
const ADDRESSES_MAX: usize = 1_000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// Writes EndpointSlices. Its keys are services.
#[derive(Debug)]
pub(super) struct Slices;

/// Writes Endpoints. Its keys are services.
#[derive(Debug)]
pub(super) struct Legacy;

/// A pod behind a service.
#[derive(Debug)]
struct Backend {
    endpoint: Value,
    is_ready: bool,
    is_terminating: bool,
    /// The ports as slices have them.
    ports: Value,
}

/// The pods behind a service with addresses of this family, by name.
fn backends<K: Clone + Eq + std::hash::Hash>(
    cx: &ControllerContext<K>,
    service: &Value,
    is_v6: bool,
) -> Vec<Backend> {
    let selector = ControllerSelector::of_labels(&service["spec"]["selector"]);
    let announces_all = service["spec"]["publishNotReadyAddresses"] == true;
    let mut pods: Vec<&StoredObject> = cx
        .cache(POD)
        .by(Index::Namespace, namespace(service))
        .filter(|p| selector.matches(labels(p)) && !pod::is_terminal(p))
        .collect();
    pods.sort_unstable_by(|a, b| name(a).cmp(name(b)));
    let backends = pods.into_iter().filter_map(|pod| {
        let addresses = items(&pod["status"]["podIPs"]).iter();
        let mut addresses = addresses.filter_map(|ip| ip["ip"].as_str());
        let address = addresses.find(|ip| ip.contains(':') == is_v6)?;
        let (serves, is_terminating) = (pod::is_ready(pod), is_deleting(pod));
        let is_ready = announces_all || (serves && !is_terminating);
        let mut endpoint = json!({
            "addresses": [address],
            "conditions": {"ready": is_ready, "serving": serves, "terminating": is_terminating},
            "targetRef": {
                "kind": POD.kind,
                "namespace": namespace(pod),
                "name": name(pod),
                "uid": uid(pod),
            },
        });
        if let Some(node) = pod::node_name(pod) {
            endpoint["nodeName"] = node.into();
            let node = cx.cache(NODE).get(&ControllerKey::new("", node));
            if let Some(zone) = node.and_then(|n| labels(n)?.get(ZONE)) {
                endpoint["zone"] = zone.clone();
            }
        }
        let spec = &pod["spec"];
        if spec["hostname"].is_string() && spec["subdomain"] == service["metadata"]["name"] {
            endpoint["hostname"] = spec["hostname"].clone();
        }
        Some(Backend {
            endpoint,
            is_ready,
            is_terminating,
            ports: ports(service, pod),
        })
    });
    backends.collect()
}

/// The ports of a service at a pod. One whose name no container has is left out.
fn ports(service: &Value, pod: &Value) -> Value {
    let found = items(&service["spec"]["ports"]).iter().filter_map(|port| {
        let target = &port["targetPort"];
        let number = match target {
            Value::String(wanted) => named_port(pod, wanted, &port["protocol"])?,
            Value::Number(_) => target.clone(),
            _ => port["port"].clone(),
        };
        let mut found = json!({
            "name": port["name"].as_str().unwrap_or_default(),
            "port": number,
            "protocol": port["protocol"],
        });
        if port["appProtocol"].is_string() {
            found["appProtocol"] = port["appProtocol"].clone();
        }
        Some(found)
    });
    as_stored(found.collect())
}

/// A list as an API server stores it: an empty one is null.
pub(super) fn as_stored(list: Vec<Value>) -> Value {
    if list.is_empty() {
        Value::Null
    } else {
        list.into()
    }
}

fn named_port(pod: &Value, wanted: &str, protocol: &Value) -> Option<Value> {
    let spec = &pod["spec"];
    let sidecars = items(&spec["initContainers"]).iter();
    let sidecars = sidecars.filter(|c| c["restartPolicy"] == "Always");
    let mut ports = items(&spec["containers"])
        .iter()
        .chain(sidecars)
        .flat_map(|c| items(&c["ports"]));
    let port = ports.find(|p| p["name"] == wanted && p["protocol"] == *protocol)?;
    Some(port["containerPort"].clone())
}

fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None"
}

/// Returns whether pods determine the endpoints of a service.
fn is_selecting(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName"
        && service["spec"]["selector"]
            .as_object()
            .is_some_and(|selector| !selector.is_empty())
}

/// The labels of a service as its endpoints have them.
fn own_labels(service: &Value, more: &[(&str, &str)]) -> Value {
    let mut own: Map<String, Value> = labels(service).cloned().unwrap_or_default();
    own.remove(HEADLESS);
    if is_headless(service) {
        own.insert(HEADLESS.to_owned(), "".into());
    }
    for (key, value) in more {
        own.insert((*key).to_owned(), (*value).into());
    }
    own.into()
}

/// The services that select a pod.
fn services_of<'a>(
    cx: &'a ControllerContext<ControllerKey>,
    pod: &'a Value,
) -> impl Iterator<Item = ControllerKey> + 'a {
    let services = cx.cache(SERVICE).by(Index::Namespace, namespace(pod));
    let selecting = services.filter(|service| {
        is_selecting(service)
            && ControllerSelector::of_labels(&service["spec"]["selector"]).matches(labels(pod))
    });
    selecting.map(|service| ControllerKey::of(service))
}

/// Enqueues the services that a change of the zone of a node concerns.
fn observe_node(cx: &mut ControllerContext<ControllerKey>, diff: &CacheDifference) {
    let zone = |node: &Option<StoredObject>| labels(node.as_ref()?)?.get(ZONE).cloned();
    let node = diff.new.as_ref().or(diff.old.as_ref());
    let Some(node) = node.filter(|_| zone(&diff.old) != zone(&diff.new)) else {
        return;
    };
    let pods = cx.cache(POD).by(Index::Node, name(node));
    let concerned: Vec<ControllerKey> = pods.flat_map(|pod| services_of(cx, pod)).collect();
    for key in concerned {
        cx.enqueue(key);
    }
}

/// Enqueues the services that a change of a pod concerns.
fn observe(cx: &mut ControllerContext<ControllerKey>, kind: GroupResource, diff: &CacheDifference) {
    if kind == SERVICE.resource {
        if let Some(service) = diff.new.as_ref().or(diff.old.as_ref()) {
            cx.enqueue(ControllerKey::of(service));
        }
    } else if kind == POD.resource {
        let seen = |pod: &StoredObject| {
            let status = &pod["status"];
            let parts = [&status["podIPs"], &pod["metadata"]["labels"]];
            let states = [pod::is_ready(pod), is_deleting(pod), pod::is_terminal(pod)];
            (parts.map(Value::clone), states)
        };
        if diff.old.as_ref().map(seen) == diff.new.as_ref().map(seen) {
            return;
        }
        let pods = [&diff.old, &diff.new].into_iter().flatten();
        let concerned: Vec<ControllerKey> = pods.flat_map(|pod| services_of(cx, pod)).collect();
        for key in concerned {
            cx.enqueue(key);
        }
    } else if let Some(object) = &diff.old {
        // An object of a service was changed or deleted by another client.
        let service = if kind == ENDPOINT_SLICE.resource {
            object["metadata"]["labels"][SERVICE_NAME].as_str()
        } else {
            Some(name(object))
        };
        if let Some(service) = service {
            cx.enqueue(ControllerKey::new(namespace(object), service));
        }
    }
}

/// A service whose endpoints are to be written.
fn wanted(cx: &ControllerContext<ControllerKey>, key: &ControllerKey) -> Option<StoredObject> {
    let service = cx.cache(SERVICE).get(key)?;
    (is_selecting(service) && !is_deleting(service)).then(|| service.clone())
}

impl Slices {
    /// Writes the slices of one family of addresses.
    fn write(
        cx: &mut ControllerContext<ControllerKey>,
        service: &StoredObject,
        is_v6: bool,
    ) -> Result<(), AccessError> {
        let family = if is_v6 { "IPv6" } else { "IPv4" };
        // One set of slices for each set of ports; pods without an address leave one empty slice.
        let mut sets: Vec<(Value, BTreeMap<String, Value>)> = Vec::new();
        for backend in backends(cx, service, is_v6) {
            let at = match sets.iter().position(|(ports, _)| *ports == backend.ports) {
                Some(at) => at,
                None => {
                    sets.push((backend.ports, BTreeMap::new()));
                    sets.len() - 1
                }
            };
            let pod = backend.endpoint["targetRef"]["uid"].as_str();
            let pod = pod.unwrap_or_default().to_owned();
            if let Some((_, endpoints)) = sets.get_mut(at) {
                endpoints.insert(pod, backend.endpoint);
            }
        }
        let own = cx.cache(ENDPOINT_SLICE).by(Index::Controller, uid(service));
        let mut own: Vec<StoredObject> = own
            .filter(|s| s["addressType"] == family && !is_deleting(s))
            .cloned()
            .collect();
        own.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        let mut slices: Vec<(Option<StoredObject>, Value, Vec<Value>)> = Vec::new();
        for slice in own {
            let ports = slice["ports"].clone();
            let set = sets.iter_mut().find(|(p, _)| *p == ports);
            let Some((_, missing)) = set else {
                slices.push((Some(slice), ports, Vec::new()));
                continue;
            };
            let kept = items(&slice["endpoints"])
                .iter()
                .filter_map(|e| missing.remove(e["targetRef"]["uid"].as_str().unwrap_or_default()));
            let kept = kept.collect();
            slices.push((Some(slice), ports, kept));
        }
        for (ports, missing) in sets {
            let mut missing: Vec<Value> = missing.into_values().collect();
            for (_, _, endpoints) in slices.iter_mut().filter(|(_, own, _)| *own == ports) {
                let room = ENDPOINTS_MAX.saturating_sub(endpoints.len());
                endpoints.extend(missing.drain(..missing.len().min(room)));
            }
            for chunk in missing.chunks(ENDPOINTS_MAX) {
                slices.push((None, ports.clone(), chunk.to_vec()));
            }
        }
        let is_empty = slices.iter().all(|(_, _, endpoints)| endpoints.is_empty());
        if slices.is_empty() {
            slices.push((None, Value::Null, Vec::new()));
        }
        let mut keeps_one = is_empty;
        for (slice, ports, endpoints) in slices {
            let is_kept = !endpoints.is_empty() || std::mem::take(&mut keeps_one);
            match slice {
                Some(slice) if !is_kept => cx.delete(ENDPOINT_SLICE, &slice)?,
                slice => Self::write_slice(cx, service, slice, family, ports, endpoints)?,
            }
        }
        Ok(())
    }

    /// Deletes the slices of a family that the service no longer has.
    fn delete_family(
        cx: &mut ControllerContext<ControllerKey>,
        service: &Value,
        family: &str,
    ) -> Result<(), AccessError> {
        let own = cx.cache(ENDPOINT_SLICE).by(Index::Controller, uid(service));
        let stale = own.filter(|s| s["addressType"] == family && !is_deleting(s));
        let stale: Vec<StoredObject> = stale.cloned().collect();
        stale
            .iter()
            .try_for_each(|slice| cx.delete(ENDPOINT_SLICE, slice))
    }

    fn write_slice(
        cx: &mut ControllerContext<ControllerKey>,
        service: &Value,
        slice: Option<StoredObject>,
        family: &str,
        ports: Value,
        endpoints: Vec<Value>,
    ) -> Result<(), AccessError> {
        let more = [(SERVICE_NAME, name(service)), (MANAGED_BY, MANAGER)];
        let labels = own_labels(service, &more);
        match slice {
            Some(slice) => {
                let mut new = Value::clone(&slice);
                new["metadata"]["labels"] = labels;
                new["endpoints"] = as_stored(endpoints);
                new["ports"] = ports;
                // An update without a change would wake every watcher of slices.
                if new == *slice {
                    Ok(())
                } else {
                    cx.update(ENDPOINT_SLICE, new).map(|_| ())
                }
            }
            None => {
                let new = ENDPOINT_SLICE.object(json!({"metadata": {
                        "generateName": format!("{}-", name(service)),
                        "namespace": namespace(service),
                        "labels": labels,
                        "ownerReferences": [controller_reference(SERVICE, service)],
                    },
                    "addressType": family,
                    "endpoints": as_stored(endpoints),
                    "ports": ports,
                }));
                cx.create(ENDPOINT_SLICE, new).map(|_| ())
            }
        }
    }
}

impl Controller for Slices {
    type Key = ControllerKey;
    const NAME: &'static str = "endpoint-slice-controller";
    const WATCHES: &'static [Watch] = &[
        watching(SERVICE, &[Index::Namespace]),
        watching(POD, &[Index::Namespace, Index::Node]),
        watching(NODE, &[]),
        watching(ENDPOINT_SLICE, &[Index::Controller]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == NODE.resource {
            observe_node(cx, diff);
        } else {
            observe(cx, kind, diff);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        // The garbage collector deletes the slices of a service that was deleted.
        let Some(service) = wanted(cx, key) else {
            return Ok(());
        };
        let families = items(&service["spec"]["ipFamilies"]).to_vec();
        for is_v6 in [false, true] {
            let family = if is_v6 { "IPv6" } else { "IPv4" };
            let is_wanted = if families.is_empty() {
                !is_v6
            } else {
                families.iter().any(|f| f == family)
            };
            if is_wanted {
                Self::write(cx, &service, is_v6)?;
            } else {
                Self::delete_family(cx, &service, family)?;
            }
        }
        Ok(())
    }
}

/// The subsets of Endpoints: addresses with the same ports.
fn subsets(backends: Vec<Backend>) -> (Value, bool) {
    let is_full = backends.len() > ADDRESSES_MAX;
    let mut subsets: Vec<Value> = Vec::new();
    let listed = backends.into_iter().filter(|b| !b.is_terminating);
    for backend in listed.take(ADDRESSES_MAX) {
        let ports: Value = items(&backend.ports)
            .iter()
            .map(|port| {
                // An empty name and no name are the same port.
                let mut port = port.clone();
                if let Some(fields) = port.as_object_mut() {
                    fields.retain(|field, value| field != "name" || value != "");
                }
                port
            })
            .collect();
        let at = match subsets.iter().position(|s| s["ports"] == ports) {
            Some(at) => at,
            None => {
                subsets.push(json!({"ports": ports}));
                subsets.len() - 1
            }
        };
        let endpoint = &backend.endpoint;
        let mut address = json!({
            "ip": endpoint["addresses"][0],
            "targetRef": endpoint["targetRef"],
        });
        for field in ["nodeName", "hostname"] {
            if endpoint[field].is_string() {
                address[field] = endpoint[field].clone();
            }
        }
        let list = if backend.is_ready {
            "addresses"
        } else {
            "notReadyAddresses"
        };
        let list = subsets.get_mut(at).map(|subset| &mut subset[list]);
        match list {
            Some(Value::Array(list)) => list.push(address),
            Some(none) => *none = json!([address]),
            None => {}
        }
    }
    (subsets.into(), is_full)
}

impl Controller for Legacy {
    type Key = ControllerKey;
    const NAME: &'static str = "endpoint-controller";
    const WATCHES: &'static [Watch] = &[
        watching(SERVICE, &[Index::Namespace]),
        watching(POD, &[Index::Namespace]),
        watching(ENDPOINTS, &[]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        observe(cx, kind, diff);
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let known = cx.cache(ENDPOINTS).get(key).cloned();
        let Some(service) = wanted(cx, key) else {
            // Slices of services without a selector are not created by this controller.
            return match known {
                Some(known)
                    if cx.cache(SERVICE).get(key).is_none()
                        && known["metadata"]["labels"][ENDPOINTS_MANAGED_BY]
                            == ENDPOINTS_MANAGER =>
                {
                    cx.delete(ENDPOINTS, &known)
                }
                _ => Ok(()),
            };
        };
        let is_v6 = service["spec"]["ipFamilies"][0] == "IPv6";
        let (subsets, is_full) = subsets(backends(cx, &service, is_v6));
        let mut new = match &known {
            Some(known) => Value::clone(known),
            None => ENDPOINTS.object(
                json!({"metadata": {"name": name(&service), "namespace": namespace(&service)},
                }),
            ),
        };
        let more = [(ENDPOINTS_MANAGED_BY, ENDPOINTS_MANAGER)];
        new["metadata"]["labels"] = own_labels(&service, &more);
        if is_full {
            berth_objects::object::set_annotation(&mut new, OVER_CAPACITY, "truncated");
        }
        if items(&subsets).is_empty() {
            new.as_object_mut().and_then(|new| new.remove("subsets"));
        } else {
            new["subsets"] = subsets;
        }
        match known {
            None => cx.create(ENDPOINTS, new).map(|_| ()),
            Some(known) if new == *known => Ok(()),
            Some(_) => cx.update(ENDPOINTS, new).map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests;
