//! Devices and claims of Dynamic Resource Allocation, as JSON: pools of one and of several nodes, every kind of
//! request, and the changes to claims by the controller and the API server.

use super::draw::{namespaces, often, pick, zone};
use super::storage::object_of;
use berth_api::Release;
use fastrand::Rng;
use serde_json::{Value, json};

const DRIVER: &str = "d.example.com";
const CLASSES: [&str; 3] = ["gpu", "part", "shared"];
/// The extended resource that devices of the class `gpu` back.
const EXTENDED: &str = "example.com/device";
const CLAIMS: [&str; 4] = ["rc0", "rc1", "rc2", "rc3"];
/// Pools that do not belong to a single node.
const POOLS: [&str; 3] = ["network", "zone", "mixed"];
/// The number of requests to choose from.
const WANTS: usize = 13;
/// The request that fails on some devices.
const FAILING: usize = 11;

fn object(kind: &str, namespace: &str, name: &str, fields: Value) -> Value {
    let version = match kind {
        "DeviceTaintRule" => "v1beta2",
        _ => "v1",
    };
    let version = format!("resource.k8s.io/{version}");
    object_of(&version, kind, namespace, name, fields)
}

/// Every class.
pub(crate) fn classes() -> Vec<Value> {
    let class = |name: &&str| {
        let expression = format!("device.attributes[{DRIVER:?}].class == {name:?}");
        let mut spec = json!({"selectors": [{"cel": {"expression": expression}}]});
        if *name == "gpu" {
            spec["extendedResourceName"] = json!(EXTENDED);
        }
        object("DeviceClass", "", name, json!({"spec": spec}))
    };
    CLASSES.iter().map(class).collect()
}

/// A rule that taints the devices of a pool.
pub(crate) fn taint_rule(nodes: usize, release: Release, rng: &mut Rng) -> Value {
    let pool = pool(nodes, rng);
    let mut spec = json!({
        "deviceSelector": {"driver": DRIVER, "pool": pool},
        "taint": {"key": "broken", "effect": "NoSchedule"},
    });
    if release > Release::OLDEST && often(rng, 4) {
        // Such a rule applies to all devices or to none, depending on the release.
        spec["deviceSelector"] = Value::Null;
    }
    let name = format!("rule-{}", rng.u8(..2));
    object("DeviceTaintRule", "", &name, json!({"spec": spec}))
}

/// The name of a pool. Most pools belong to a single node.
pub(crate) fn pool(nodes: usize, rng: &mut Rng) -> String {
    if often(rng, 6) {
        pick(rng, &POOLS).to_owned()
    } else {
        format!("node-{}", rng.usize(..nodes))
    }
}

/// The maximum number of slices of a pool.
pub(crate) const SLICES_MAX: usize = 2;

/// Random slices of a pool.
pub(crate) fn slices(pool: &str, generation: u64, rng: &mut Rng) -> Vec<Value> {
    let class = |name: &str| json!({"class": {"string": name}});
    let mut contents = match rng.u8(..6) {
        0..=2 => {
            let devices = (0..rng.usize(1..4)).map(|n| {
                let mut device = json!({"name": format!("gpu-{n}"), "attributes": class("gpu")});
                let attributes = &mut device["attributes"];
                attributes["model"] = json!({"string": pick(rng, &["a", "b"])});
                attributes["numa"] = json!({"int": n / 2});
                if often(rng, 4) {
                    attributes["extra"] = json!({"int": 1});
                }
                if often(rng, 8) {
                    device["taints"] = json!([{"key": "broken", "effect": "NoSchedule"}]);
                }
                if often(rng, 12) {
                    device["bindingConditions"] = json!(["ready"]);
                    device["bindingFailureConditions"] = json!(["failed"]);
                }
                device
            });
            vec![json!({"devices": devices.collect::<Vec<_>>()})]
        }
        3 | 4 => {
            let part = |name: &str, amount: u8| {
                let counters = json!({"memory": {"value": amount.to_string()}});
                let consumes = json!([{"counterSet": "card", "counters": counters}]);
                json!({"name": name, "attributes": class("part"), "consumesCounters": consumes})
            };
            let set = json!({"name": "card", "counters": {"memory": {"value": "4"}}});
            vec![
                json!({"devices": [part("whole", 4), part("half-0", 2), part("half-1", 2)]}),
                json!({"sharedCounters": [set]}),
            ]
        }
        _ => {
            let capacity = json!({"memory": {"value": "40"}});
            vec![json!({"devices": [{
                "name": "pot", "attributes": class("shared"), "capacity": capacity,
                "allowMultipleAllocations": true,
            }]})]
        }
    };
    // Sometimes a slice is missing, or a name is used twice.
    let count = contents.len() + usize::from(often(rng, 12));
    if often(rng, 20)
        && let Some(devices) = contents[0]["devices"].as_array_mut()
    {
        devices.push(devices[0].clone());
    }
    let in_zone = |rng: &mut Rng| {
        let values = json!([zone(rng)]);
        let expressions =
            json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": values}]);
        json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]})
    };
    let slices = contents.into_iter().enumerate().map(|(at, mut spec)| {
        spec["driver"] = json!(DRIVER);
        spec["pool"] = json!({"name": pool, "generation": generation, "resourceSliceCount": count});
        match pool {
            "network" => spec["allNodes"] = json!(true),
            "zone" => spec["nodeSelector"] = in_zone(rng),
            "mixed" => {
                spec["perDeviceNodeSelection"] = json!(true);
                for device in spec["devices"].as_array_mut().into_iter().flatten() {
                    match rng.u8(..3) {
                        0 => device["allNodes"] = json!(true),
                        1 => device["nodeSelector"] = in_zone(rng),
                        _ => device["nodeName"] = json!(format!("node-{}", rng.u8(..6))),
                    }
                }
            }
            node => spec["nodeName"] = json!(node),
        }
        object(
            "ResourceSlice",
            "",
            &format!("{pool}-{at}"),
            json!({"spec": spec}),
        )
    });
    slices.collect()
}

/// The devices that a claim requests.
fn want(number: usize) -> Value {
    let exactly = |class: &str, count: u8| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    let selecting = |mut request: Value, expression: &str| {
        let expression = format!("device.attributes[{DRIVER:?}].{expression}");
        request["selectors"] = json!([{"cel": {"expression": expression}}]);
        request
    };
    let named = |mut request: Value, name: &str| {
        request["name"] = json!(name);
        request
    };
    let mut constraints = json!([]);
    let request = match number {
        0 => exactly("gpu", 1),
        1 => selecting(exactly("gpu", 1), "model == 'a'"),
        2 => {
            constraints = json!([{"matchAttribute": format!("{DRIVER}/numa")}]);
            exactly("gpu", 2)
        }
        3 => {
            constraints = json!([{"distinctAttribute": format!("{DRIVER}/model")}]);
            exactly("gpu", 2)
        }
        4 | 5 => {
            let alternatives = json!([
                named(selecting(exactly("gpu", 2), "model == 'a'"), "two"),
                named(selecting(exactly("gpu", 1), "model == 'b'"), "one"),
                named(exactly(if number == 4 { "part" } else { "gpu" }, 1), "any"),
            ]);
            let requests = json!([{"name": "r", "firstAvailable": alternatives}]);
            return json!({"devices": {"requests": requests}});
        }
        6 | 7 => exactly("part", 1),
        8 => {
            let mut request = exactly("shared", 1);
            request["capacity"] = json!({"requests": {"memory": "15"}});
            request
        }
        9 => json!({"deviceClassName": "gpu", "allocationMode": "All"}),
        10 => {
            let mut request = exactly("gpu", 1);
            request["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
            request
        }
        // Not every device has the attribute.
        FAILING => selecting(exactly("gpu", 1), "extra == 1"),
        _ => {
            let mut request = exactly("gpu", 1);
            request["adminAccess"] = json!(true);
            request
        }
    };
    json!({"devices": {"requests": [{"name": "r", "exactly": request}], "constraints": constraints}})
}

/// The entries for claims in the spec of the pods of a template.
pub(crate) fn entries(rng: &mut Rng) -> Value {
    let entries = (0..rng.usize(1..3)).map(|at| {
        let name = format!("d{at}");
        if often(rng, 3) {
            json!({"name": name, "resourceClaimName": pick(rng, &CLAIMS)})
        } else {
            let mut want = rng.usize(..WANTS);
            if want == FAILING && !often(rng, 4) {
                want = 0;
            }
            let template = format!("want-{want}");
            json!({"name": name, "resourceClaimTemplateName": template})
        }
    });
    entries.collect()
}

/// The requests of containers for devices as an extended resource.
pub(crate) fn extended(requests: &mut Value, rng: &mut Rng) {
    requests[EXTENDED] = json!(format!("{}", rng.u8(1..3)));
}

/// A claim that pods name.
pub(crate) fn claim(rng: &mut Rng) -> Value {
    let (namespace, name) = (pick(rng, &namespaces()), pick(rng, &CLAIMS));
    let spec = json!({"spec": want(rng.usize(..WANTS))});
    object("ResourceClaim", namespace, name, spec)
}

/// Creates the claims of a pod from their templates, and names them in the pod's status. Sometimes a claim is missing
/// or belongs to another pod.
pub(crate) fn claims_of(pod: &mut Value, rng: &mut Rng) -> Vec<Value> {
    let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().map(str::to_owned);
    let (namespace, name) = (text(pod, "namespace"), text(pod, "name"));
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let entries = pod["spec"]["resourceClaims"].as_array().cloned();
    let (mut claims, mut statuses) = (Vec::new(), Vec::new());
    for entry in entries.unwrap_or_default() {
        let template = entry["resourceClaimTemplateName"].as_str();
        let number = template.and_then(|template| template.strip_prefix("want-")?.parse().ok());
        let Some(number) = number else {
            continue;
        };
        let claim = format!("{name}-{}", entry["name"].as_str().unwrap_or_default());
        statuses.push(json!({"name": entry["name"], "resourceClaimName": claim}));
        if often(rng, 20) {
            continue;
        }
        let uid = if often(rng, 20) {
            json!("other")
        } else {
            pod["metadata"]["uid"].clone()
        };
        let owners = json!([
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true}]);
        let fields = json!({"metadata": {"ownerReferences": owners}, "spec": want(number)});
        claims.push(object("ResourceClaim", &namespace, &claim, fields));
    }
    pod["status"]["resourceClaimStatuses"] = json!(statuses);
    claims
}

/// The claim after a write. Reservations are merged by UID.
pub(crate) fn patch(claim: &mut Value, body: &Value, is_strategic: bool) {
    let metadata = &body["metadata"];
    if metadata["finalizers"].is_array() {
        claim["metadata"]["finalizers"] = metadata["finalizers"].clone();
    }
    if metadata["$deleteFromPrimitiveList/finalizers"].is_array() {
        claim["metadata"]["finalizers"] = json!([]);
    }
    for (field, value) in body["status"].as_object().into_iter().flatten() {
        if field != "reservedFor" || !is_strategic {
            claim["status"][field] = value.clone();
            continue;
        }
        let holders = claim["status"]["reservedFor"].as_array().cloned();
        let mut holders = holders.unwrap_or_default();
        for change in value.as_array().into_iter().flatten() {
            holders.retain(|holder| holder["uid"] != change["uid"]);
            if change["$patch"] != "delete" {
                holders.push(change.clone());
            }
        }
        claim["status"]["reservedFor"] = json!(holders);
    }
}

/// The claim after an action of the controller: deleted pods are removed from its users, and without users it is
/// released. `None` if nothing changes.
pub(crate) fn released(claim: &Value, exists: impl Fn(&str) -> bool) -> Option<Value> {
    let holders = claim["status"]["reservedFor"].as_array()?;
    let is_live = |holder: &&Value| holder["uid"].as_str().is_some_and(&exists);
    let left: Vec<Value> = holders.iter().filter(is_live).cloned().collect();
    if left.len() == holders.len() {
        return None;
    }
    let mut claim = claim.clone();
    claim["status"] = if left.is_empty() {
        json!({})
    } else {
        let mut status = claim["status"].clone();
        status["reservedFor"] = json!(left);
        status
    };
    Some(claim)
}

/// Returns whether the claim was created for a pod that was deleted.
pub(crate) fn is_orphan(claim: &Value, exists: impl Fn(&str) -> bool) -> bool {
    let owner = claim["metadata"]["ownerReferences"][0]["uid"].as_str();
    owner.is_some_and(|owner| !exists(owner))
}

/// The claim with devices that report readiness.
pub(crate) fn ready(claim: &Value) -> Option<Value> {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array()?;
    let reporting = results.iter().filter(|r| r["bindingConditions"].is_array());
    let reports: Vec<Value> = reporting
        .map(|result| {
            let conditions = json!([{"type": "ready", "status": "True"}]);
            json!({"driver": result["driver"], "pool": result["pool"], "device": result["device"],
                   "conditions": conditions})
        })
        .collect();
    if reports.is_empty() || claim["status"]["devices"].is_array() {
        return None;
    }
    let mut claim = claim.clone();
    claim["status"]["devices"] = json!(reports);
    Some(claim)
}
