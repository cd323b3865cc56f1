//! The EndpointSliceMirroring controller: EndpointSlices for Endpoints that a user wrote for a service without a
//! selector. It never touches slices that it did not create.

use super::endpoints::{MANAGED_BY, SERVICE_NAME, as_stored};
use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, StoredObject};
use berth_objects::object::{
    ControllerKey, ENDPOINT_SLICE, ENDPOINTS, SERVICE, controller_reference, is_deleting, items,
    labels, name, namespace, set,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The label of Endpoints that are not mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The annotation of Endpoints that are the lock of a leader election.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that slices do not have.
const OWN_ANNOTATIONS: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// The largest number of addresses of a subset that are mirrored.
const ADDRESSES_MAX: usize = 1_000;

/// See the module. Its keys are Endpoints.
#[derive(Debug)]
pub(super) struct Mirror;

/// The addresses behind a port, by IP and UID: each with whether it is ready.
type Addresses<'a> = BTreeMap<(&'a str, &'a str), (&'a Value, bool)>;

/// The address family of a slice and its ports, sorted.
type SliceKey = (&'static str, Vec<(String, String)>);

/// The slices that Endpoints ask for.
#[derive(Debug, Default)]
struct WantedSlices {
    /// By family and ports: the ports as slices have them, and the endpoints.
    slices: BTreeMap<SliceKey, (Value, Vec<Value>)>,
    invalid: usize,
    skipped: usize,
}

impl WantedSlices {
    fn new(endpoints: &Value) -> Self {
        let mut wanted = Self::default();
        for (ports, addresses) in repack(items(&endpoints["subsets"])) {
            wanted.add(&ports, &addresses);
        }
        wanted
    }

    fn add(&mut self, ports: &[&Value], addresses: &Addresses<'_>) {
        let mut ports: Vec<Value> = ports.iter().map(|port| slice_port(port)).collect();
        ports.sort_by_key(port_key);
        let mut added = 0;
        // Addresses that are ready take precedence.
        for wants_ready in [true, false] {
            for (address, is_ready) in addresses.values() {
                if *is_ready != wants_ready {
                    continue;
                }
                if added == ADDRESSES_MAX {
                    self.skipped += 1;
                    continue;
                }
                let ip = address["ip"].as_str().and_then(|ip| ip.parse().ok());
                let Some(ip) = ip else {
                    self.invalid += 1;
                    continue;
                };
                added += 1;
                let place = (family(ip), ports.iter().map(port_key).collect());
                let (_, endpoints) = self
                    .slices
                    .entry(place)
                    .or_insert_with(|| (ports.clone().into(), Vec::new()));
                endpoints.push(endpoint(address, ip, *is_ready));
            }
        }
    }
}

/// The subsets of Endpoints in their canonical form: each set of addresses once, with all of its ports.
fn repack(subsets: &[Value]) -> Vec<(Vec<&Value>, Addresses<'_>)> {
    let none = &Value::Null;
    let mut by_port: Vec<(&Value, Addresses<'_>)> = Vec::new();
    for subset in subsets {
        let ports = items(&subset["ports"]);
        let ports: Vec<&Value> = if ports.is_empty() {
            vec![none]
        } else {
            ports.iter().collect()
        };
        for port in ports {
            let at = match by_port.iter().position(|(known, _)| *known == port) {
                Some(at) => at,
                None => {
                    by_port.push((port, Addresses::new()));
                    by_port.len() - 1
                }
            };
            for (list, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
                for address in items(&subset[list]) {
                    let ip = address["ip"].as_str().unwrap_or_default();
                    let uid = address["targetRef"]["uid"].as_str().unwrap_or_default();
                    let slot = by_port[at]
                        .1
                        .entry((ip, uid))
                        .or_insert((address, is_ready));
                    // An address that is not ready in one subset is not ready.
                    slot.1 &= is_ready;
                }
            }
        }
    }
    let mut packed: Vec<(Vec<&Value>, Addresses<'_>)> = Vec::new();
    for (port, addresses) in by_port {
        let ports = match packed.iter_mut().find(|(_, known)| *known == addresses) {
            Some((ports, _)) => ports,
            None => {
                packed.push((Vec::new(), addresses));
                match packed.last_mut() {
                    Some((ports, _)) => ports,
                    None => continue,
                }
            }
        };
        if !port.is_null() {
            ports.push(port);
        }
    }
    packed
}

fn family(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

fn slice_port(port: &Value) -> Value {
    let mut new = json!({
        "name": port["name"].as_str().unwrap_or_default(),
        "port": port["port"],
        "protocol": port["protocol"].as_str().unwrap_or("TCP"),
    });
    if port["appProtocol"].is_string() {
        new["appProtocol"] = port["appProtocol"].clone();
    }
    new
}

/// The sort key of ports; equal ports have equal keys.
fn port_key(port: &Value) -> (String, String) {
    let name = port["name"].as_str().unwrap_or_default();
    let rest = format!(
        "{} {} {}",
        port["port"], port["protocol"], port["appProtocol"]
    );
    (name.to_owned(), rest)
}

fn endpoint(address: &Value, ip: IpAddr, is_ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": is_ready}});
    for field in ["targetRef", "nodeName", "hostname"] {
        let value = &address[field];
        if !value.is_null() && *value != "" {
            endpoint[field] = value.clone();
        }
    }
    endpoint
}

/// A slice without its name.
fn slice(endpoints: &Value, place: &SliceKey, ports: Value, members: Vec<Value>) -> Value {
    let mut own: Map<String, Value> = labels(endpoints).cloned().unwrap_or_default();
    own.insert(SERVICE_NAME.to_owned(), name(endpoints).into());
    own.insert(MANAGED_BY.to_owned(), MANAGER.into());
    let mut slice = ENDPOINT_SLICE.object(json!({
        "metadata": {
            "namespace": namespace(endpoints),
            "labels": own,
            "ownerReferences": [controller_reference(ENDPOINTS, endpoints)],
        },
        "addressType": place.0,
        "ports": as_stored(items(&ports).to_vec()),
        "endpoints": as_stored(members),
    }));
    let annotations = annotations(endpoints);
    if !annotations.is_empty() {
        set(&mut slice, &["metadata", "annotations"], annotations.into());
    }
    slice
}

fn annotations(object: &Value) -> Map<String, Value> {
    let all = object["metadata"]["annotations"].as_object();
    let mut all = all.cloned().unwrap_or_default();
    all.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    all
}

fn place_of(slice: &Value) -> SliceKey {
    let family = match slice["addressType"].as_str() {
        Some("IPv6") => "IPv6",
        _ => "IPv4",
    };
    let mut ports: Vec<(String, String)> = items(&slice["ports"]).iter().map(port_key).collect();
    ports.sort();
    (family, ports)
}

/// Returns whether a slice was created by this controller.
fn is_own(slice: &Value) -> bool {
    slice["metadata"]["labels"][MANAGED_BY] == MANAGER
}

/// The Endpoints of this key, if they are mirrored.
fn mirrored(cx: &ControllerContext<ControllerKey>, key: &ControllerKey) -> Option<StoredObject> {
    let endpoints = cx.cache(ENDPOINTS).get(key)?;
    let service = cx.cache(SERVICE).get(key)?;
    let metadata = &endpoints["metadata"];
    let is_skipped =
        metadata["labels"][SKIP] == "true" || !metadata["annotations"][LEADER].is_null();
    (!is_skipped && service["spec"]["selector"].is_null()).then(|| endpoints.clone())
}

/// Writes an existing slice, if it differs from the desired one.
fn update(
    cx: &mut ControllerContext<ControllerKey>,
    old: &StoredObject,
    wanted: &Value,
) -> Result<(), AccessError> {
    let mut new = Value::clone(old);
    new["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
    let annotations = &wanted["metadata"]["annotations"];
    if annotations.is_null() {
        _ = new["metadata"]
            .as_object_mut()
            .and_then(|m| m.remove("annotations"))
    } else {
        new["metadata"]["annotations"] = annotations.clone()
    }
    for field in ["ports", "endpoints"] {
        new[field] = wanted[field].clone();
    }
    if new != **old {
        cx.update(ENDPOINT_SLICE, new)?;
    }
    Ok(())
}

impl Controller for Mirror {
    type Key = ControllerKey;
    const NAME: &'static str = "endpoint-slice-mirroring-controller";
    const WATCHES: &'static [Watch] = &[
        watching(ENDPOINTS, &[]),
        watching(SERVICE, &[]),
        watching(ENDPOINT_SLICE, &[Index::Namespace]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        let changed: Vec<StoredObject> = [&diff.old, &diff.new]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for object in changed {
            if kind != ENDPOINT_SLICE.resource {
                cx.enqueue(ControllerKey::of(&object));
            } else if let (true, Some(service)) = (
                is_own(&object),
                object["metadata"]["labels"][SERVICE_NAME].as_str(),
            ) {
                cx.enqueue(ControllerKey::new(namespace(&object), service));
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let in_namespace = cx
            .cache(ENDPOINT_SLICE)
            .by(Index::Namespace, &key.namespace);
        let mut own: Vec<StoredObject> = in_namespace
            .filter(|s| is_own(s) && s["metadata"]["labels"][SERVICE_NAME] == *key.name)
            .filter(|s| !is_deleting(s))
            .cloned()
            .collect();
        // Without Endpoints to mirror, the slices have no purpose.
        let Some(endpoints) = mirrored(cx, key) else {
            return own
                .iter()
                .try_for_each(|slice| cx.delete(ENDPOINT_SLICE, slice));
        };
        let wanted = WantedSlices::new(&endpoints);
        if wanted.invalid > 0 {
            let message = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                wanted.invalid
            );
            cx.warn(&endpoints, "InvalidIPAddress", message);
        }
        if wanted.skipped > 0 {
            let message = format!(
                "A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                wanted.skipped + wanted.invalid
            );
            cx.warn(&endpoints, "TooManyAddressesToMirror", message);
        }
        for (place, (ports, members)) in wanted.slices {
            let mut new = slice(&endpoints, &place, ports, members);
            let known = own.iter().position(|slice| place_of(slice) == place);
            match known {
                Some(at) => update(cx, &own.remove(at), &new)?,
                // New slices of Endpoints that are being deleted would be deleted at once.
                None if is_deleting(&endpoints) => {}
                None => {
                    new["metadata"]["generateName"] = format!("{}-", name(&endpoints)).into();
                    match cx.create(ENDPOINT_SLICE, new) {
                        Err(error) if error.is_namespace_terminating() => return Ok(()),
                        other => other.map(|_| ())?,
                    }
                }
            }
        }
        // Slices that the Endpoints no longer need.
        own.iter()
            .try_for_each(|slice| cx.delete(ENDPOINT_SLICE, slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, eventually, pass};
    use berth_objects::access::{Access, DeleteOptions};
    use berth_objects::object::EVENT;
    use std::sync::Arc;

    fn start() -> (Arc<Fake>, Handle) {
        let api = Fake::new();
        let mut handle = Handle::new();
        handle.start(Mirror, api.clone(), api.clock());
        (api, handle)
    }

    fn service(api: &Fake, selector: Value) {
        let service = json!({"metadata": {"name": "web", "namespace": "n"},
            "spec": {"selector": selector, "ports": [{"port": 80}]}});
        api.create(SERVICE.resource, service).expect("created");
    }

    fn endpoints(subsets: Value) -> Value {
        json!({"metadata": {"name": "web", "namespace": "n", "labels": {"team": "a"},
            "annotations": {"note": "b", OWN_ANNOTATIONS[1]: "c"}}, "subsets": subsets})
    }

    fn slices(api: &Fake) -> Vec<StoredObject> {
        api.list(ENDPOINT_SLICE.resource, Some("n"))
    }

    /// Each slice as `family ports: addresses`; addresses that are not ready have a `-`.
    fn shown(api: &Fake) -> Vec<String> {
        let mut shown: Vec<String> = slices(api)
            .iter()
            .map(|slice| {
                let ports: Vec<String> = items(&slice["ports"])
                    .iter()
                    .map(|p| p["port"].to_string())
                    .collect();
                let addresses: Vec<String> = items(&slice["endpoints"])
                    .iter()
                    .map(|e| {
                        let sign = if e["conditions"]["ready"] == true {
                            ""
                        } else {
                            "-"
                        };
                        format!("{sign}{}", e["addresses"][0].as_str().unwrap_or_default())
                    })
                    .collect();
                let family = slice["addressType"].as_str().unwrap_or_default();
                format!("{family} {}: {}", ports.join(","), addresses.join(","))
            })
            .collect();
        shown.sort();
        shown
    }

    fn change(api: &Fake, subsets: Value) {
        api.edit(ENDPOINTS.resource, ("n", "web"), |e| {
            e["subsets"] = subsets.clone()
        });
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_of_a_service_without_selector_are_mirrored() {
        let (api, handle) = start();
        service(&api, Value::Null);
        let subsets = json!([
            {"addresses": [{"ip": "10.0.0.2", "nodeName": "node-1"}, {"ip": "10.0.0.1"}],
             "notReadyAddresses": [{"ip": "10.0.0.3"}, {"ip": "fd00::1"}],
             "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        ]);
        api.create(ENDPOINTS.resource, endpoints(subsets))
            .expect("created");
        eventually("both families", || {
            shown(&api) == ["IPv4 80: 10.0.0.1,10.0.0.2,-10.0.0.3", "IPv6 80: -fd00::1"]
        })
        .await;
        let slice = &slices(&api)[0];
        let metadata = &slice["metadata"];
        assert_eq!(
            metadata["labels"],
            json!({"team": "a", SERVICE_NAME: "web", MANAGED_BY: MANAGER})
        );
        assert_eq!(metadata["annotations"], json!({"note": "b"}));
        assert_eq!(metadata["ownerReferences"][0]["kind"], "Endpoints");
        assert_eq!(slice["endpoints"][1]["nodeName"], "node-1");
        let names: Vec<String> = slices(&api).iter().map(|s| name(s).to_owned()).collect();
        // A change keeps the slice; the same address behind two ports is one endpoint with two ports.
        change(
            &api,
            json!([
                {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
                {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "other", "port": 81, "protocol": "TCP"}]},
                {"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "http", "port": 82, "protocol": "TCP"}]},
            ]),
        );
        eventually("two sets of ports", || {
            shown(&api) == ["IPv4 80,81: 10.0.0.1", "IPv4 82: 10.0.0.9"]
        })
        .await;
        change(
            &api,
            json!([{"addresses": [{"ip": "10.0.0.9"}, {"ip": "10.0.0.8"}],
                "ports": [{"name": "http", "port": 82, "protocol": "TCP"}]}]),
        );
        let kept = slices(&api)
            .iter()
            .find(|s| s["ports"][0]["port"] == 82)
            .map(|s| name(s).to_owned());
        eventually("one is left", || {
            shown(&api) == ["IPv4 82: 10.0.0.8,10.0.0.9"]
        })
        .await;
        assert_eq!(Some(name(&slices(&api)[0]).to_owned()), kept);
        assert!(!names.is_empty());
        // A change of a slice by another client is undone.
        let own = name(&slices(&api)[0]).to_owned();
        api.edit(ENDPOINT_SLICE.resource, ("n", &own), |s| {
            s["endpoints"] = json!([])
        });
        eventually("it is corrected", || {
            shown(&api) == ["IPv4 82: 10.0.0.8,10.0.0.9"]
        })
        .await;
        let runs = handle.activity()[0].runs;
        pass(3600.0).await;
        assert_eq!(handle.activity()[0].runs, runs);
    }

    #[tokio::test(start_paused = true)]
    async fn other_endpoints_are_not_mirrored_and_their_slices_are_deleted() {
        let subsets = json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]);
        type Change = fn(&Fake);
        let cases: [(&str, Change); 5] = [
            ("a selector", |api| {
                api.edit(SERVICE.resource, ("n", "web"), |s| {
                    s["spec"]["selector"] = json!({"app": "web"})
                })
            }),
            ("the label", |api| {
                api.edit(ENDPOINTS.resource, ("n", "web"), |e| {
                    e["metadata"]["labels"] = json!({SKIP: "true"})
                })
            }),
            ("the lock of a leader", |api| {
                api.edit(ENDPOINTS.resource, ("n", "web"), |e| {
                    e["metadata"]["annotations"] = json!({LEADER: "{}"})
                })
            }),
            ("no service", |api| {
                let options = DeleteOptions::default();
                api.delete(SERVICE.resource, "n", "web", &options)
                    .expect("deleted");
            }),
            ("no endpoints", |api| {
                let options = DeleteOptions::default();
                api.delete(ENDPOINTS.resource, "n", "web", &options)
                    .expect("deleted");
            }),
        ];
        for (what, change) in cases {
            let (api, handle) = start();
            service(&api, Value::Null);
            // A slice of another client with the same service.
            let other = json!({"metadata": {"name": "theirs", "namespace": "n",
                "labels": {SERVICE_NAME: "web"}}, "addressType": "IPv4"});
            api.create(ENDPOINT_SLICE.resource, other).expect("created");
            api.create(ENDPOINTS.resource, endpoints(subsets.clone()))
                .expect("created");
            eventually("it is mirrored", || slices(&api).len() == 2).await;
            change(&api);
            eventually(what, || slices(&api).len() == 1).await;
            assert_eq!(name(&slices(&api)[0]), "theirs");
            handle.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_are_not_mirrored_are_reported() {
        let (api, _handle) = start();
        service(&api, Value::Null);
        let mut addresses: Vec<Value> = (0..1001)
            .map(|i| json!({"ip": format!("10.0.{}.{}", i / 256, i % 256)}))
            .collect();
        addresses.push(json!({"ip": "not-an-address"}));
        let subsets = json!([{"addresses": addresses, "ports": [{"port": 80}]}]);
        api.create(ENDPOINTS.resource, endpoints(subsets))
            .expect("created");
        eventually("the slice", || {
            slices(&api)
                .first()
                .is_some_and(|s| items(&s["endpoints"]).len() == 1000)
        })
        .await;
        let events = api.list(EVENT.resource, Some("n"));
        let reasons: Vec<&str> = events.iter().filter_map(|e| e["reason"].as_str()).collect();
        assert!(reasons.contains(&"TooManyAddressesToMirror"), "{reasons:?}");
    }
}
