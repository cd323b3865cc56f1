//! Pods with claims in a seeded cluster: writes fail, watches lag, drivers are added and removed. After every write
//! that the API accepts, a checker without code in common with the allocator verifies all allocations.

use crate::drivers::driver;
use berth_api::Kind;
use berth_framework::ApiCall;
use berth_framework::call::{CallError, CallErrorKind};
use berth_framework::testing::{node, pod};
use berth_framework::write::Action;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const SEEDS: u64 = 60;
const STEPS: usize = 250;
const NODES: [&str; 3] = ["n0", "n1", "n2"];
const DRIVER: &str = "d.example.com";
const CLASSES: [&str; 3] = ["gpu", "nic", "part"];
/// The share that a claim on the network device takes of its ten units.
const SHARE: i64 = 4;

/// The claims as the API stores them, and the changes that the scheduler has not seen.
#[derive(Default)]
struct Claims {
    stored: BTreeMap<String, Value>,
    version: u64,
    unseen: VecDeque<Value>,
    /// The claims of each pod.
    of_pod: BTreeMap<String, Vec<String>>,
}

impl Claims {
    /// Stores a version of a claim and checks all allocations.
    fn store(&mut self, mut claim: Value, context: &str) {
        self.version += 1;
        claim["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = claim["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        self.unseen.push_back(claim.clone());
        self.stored.insert(name, claim);
        if let Err(why) = check(self.stored.values()) {
            panic!("{context}: {why}");
        }
    }

    /// The object that the API server stores for a write.
    fn write(&mut self, name: &str, call: &ApiCall, context: &str) -> Result<(), CallError> {
        let ApiCall::Write(write) = call else {
            panic!("{call:?}");
        };
        let refused = |kind| Err(CallError::new(kind, "refused"));
        let Some(stored) = self.stored.get(name) else {
            return refused(CallErrorKind::NotFound);
        };
        let mut claim = stored.clone();
        let version = claim["metadata"]["resourceVersion"].as_str();
        if write
            .resource_version()
            .is_some_and(|wanted| Some(wanted.as_str()) != version)
        {
            return refused(CallErrorKind::Conflict);
        }
        match write.action() {
            Action::StrategicPatch(body) if body["metadata"]["finalizers"].is_array() => {
                claim["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone();
            }
            Action::StrategicPatch(body) => {
                let mut holders = claim["status"]["reservedFor"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                for change in body["status"]["reservedFor"]
                    .as_array()
                    .expect("reservations")
                {
                    holders.retain(|holder| holder["uid"] != change["uid"]);
                    if change["$patch"] != "delete" {
                        holders.push(change.clone());
                    }
                }
                claim["status"]["reservedFor"] = holders.into();
            }
            Action::Patch(body) => {
                let status = body["status"].as_object().expect("a status");
                let is_taken = claim["status"]["allocation"].is_object();
                assert!(
                    !(is_taken && status["allocation"].is_object()),
                    "{context}: {name} is allocated twice"
                );
                for (field, value) in status {
                    claim["status"][field] = value.clone();
                }
            }
            other => panic!("{other:?}"),
        }
        self.store(claim, context);
        Ok(())
    }

    /// As the claim controller: a pod that was deleted uses its claims no longer.
    fn release(&mut self, pod: &str, context: &str) {
        let uid = format!("uid-{pod}");
        for name in self.of_pod.remove(pod).unwrap_or_default() {
            let Some(mut claim) = self.stored.get(&name).cloned() else {
                continue;
            };
            let mut holders = claim["status"]["reservedFor"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            holders.retain(|holder| holder["uid"] != uid);
            if holders.is_empty() {
                claim["status"] = json!({});
            } else {
                claim["status"]["reservedFor"] = holders.into();
            }
            self.store(claim, context);
        }
    }

    /// Shows the scheduler the oldest change that it has not seen.
    fn show(&mut self, w: &mut Driver) {
        if let Some(claim) = self.unseen.pop_front() {
            let object = Kind::ResourceClaim.decode(claim.to_string().as_bytes());
            w.applied(object.expect("a claim"));
        }
    }
}

/// The invariants of all allocations together: devices, shares and counters.
fn check<'c>(claims: impl Iterator<Item = &'c Value>) -> Result<(), String> {
    let mut exclusive = BTreeSet::new();
    let mut shares: BTreeMap<String, i64> = BTreeMap::new();
    let mut slices: BTreeMap<String, i64> = BTreeMap::new();
    for claim in claims {
        let results = &claim["status"]["allocation"]["devices"]["results"];
        for result in results.as_array().into_iter().flatten() {
            let (pool, device) = (&result["pool"], &result["device"]);
            let id = format!("{pool}/{device}");
            if device == "nic" {
                let consumed = result["consumedCapacity"]["bandwidth"].as_str();
                let consumed = consumed.and_then(|c| c.parse::<i64>().ok());
                *shares.entry(id).or_default() += consumed.ok_or("no consumed capacity")?;
                continue;
            }
            if !exclusive.insert(id.clone()) {
                return Err(format!("{id} is allocated twice"));
            }
            *slices.entry(pool.to_string()).or_default() += match device.as_str() {
                Some("whole") => 2,
                Some("half-0" | "half-1") => 1,
                _ => 0,
            };
        }
    }
    if let Some((id, consumed)) = shares.iter().find(|(_, consumed)| **consumed > 10) {
        return Err(format!("{consumed} of 10 units of {id} are consumed"));
    }
    match slices.iter().find(|(_, taken)| **taken > 2) {
        Some((pool, taken)) => Err(format!("{taken} of 2 slices of {pool} are taken")),
        None => Ok(()),
    }
}

fn claim(name: &str, class: &str) -> Value {
    let mut exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
    if class == "nic" {
        exactly["capacity"] = json!({"requests": {"bandwidth": SHARE.to_string()}});
    }
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    })
}

/// The two slices of a node: devices and counters.
fn slices(node: &str) -> [Value; 2] {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 2});
    let is = |class: &str| json!({"class": {"string": class}});
    let part = |name: &str, slices: u32| {
        let counters =
            json!([{"counterSet": "board", "counters": {"slices": {"value": slices.to_string()}}}]);
        json!({"name": name, "attributes": is("part"), "consumesCounters": counters})
    };
    let capacity = json!({"bandwidth": {"value": "10"}});
    let devices = json!([
        {"name": "gpu-0", "attributes": is("gpu")},
        {"name": "nic", "attributes": is("nic"), "allowMultipleAllocations": true, "capacity": capacity},
        part("whole", 2), part("half-0", 1), part("half-1", 1),
    ]);
    let counters = json!([{"name": "board", "counters": {"slices": {"value": "2"}}}]);
    [("devices", devices), ("sharedCounters", counters)].map(|(field, value)| {
        json!({"metadata": {"name": format!("{node}-{field}")},
               "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, field: value}})
    })
}

fn publish(w: &mut Driver, node: &str, is_there: bool) {
    for slice in slices(node) {
        if is_there {
            w.object(Kind::ResourceSlice, slice);
        } else {
            w.object_gone(Kind::ResourceSlice, &slice);
        }
    }
}

fn is_claim_write(call: &ApiCall) -> bool {
    matches!(call, ApiCall::Write(write) if write.object().kind == Kind::ResourceClaim)
}

/// Answers the oldest call.
fn answer(w: &mut Driver, claims: &mut Claims, failure: Option<CallErrorKind>, context: &str) {
    let Some((_, call)) = w.calls.first().cloned() else {
        return;
    };
    if !is_claim_write(&call) {
        if failure.is_none()
            && let ApiCall::BindPod { pod, node } = &call
            && w.pods.contains_key(pod.name.as_str())
        {
            check_binding(claims, pod.name.as_str(), node, context);
        }
        w.answer_which(|_| true, failure, false);
        return;
    }
    let (id, call) = w.calls.remove(0);
    let name = match &call {
        ApiCall::Write(write) => write.object().name.to_string(),
        other => panic!("{other:?}"),
    };
    let result = match failure {
        Some(kind) => Err(CallError::new(kind, "refused")),
        None => claims.write(&name, &call, context),
    };
    w.complete(id, result);
}

/// A pod is bound to a node that can use the devices of all its claims, and holds them.
fn check_binding(claims: &Claims, pod: &str, node: &str, context: &str) {
    for name in &claims.of_pod[pod] {
        let status = &claims.stored[name]["status"];
        let holders = status["reservedFor"].as_array().into_iter().flatten();
        let uid = format!("uid-{pod}");
        assert!(
            holders.into_iter().any(|h| h["uid"] == uid),
            "{context}: {pod} does not hold {name}: {status}"
        );
        let results = status["allocation"]["devices"]["results"].as_array();
        for result in results.expect("an allocation") {
            assert_eq!(result["pool"], node, "{context}: {pod} on {node}");
        }
    }
}

fn play(seed: u64) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut w = driver();
    let claims = &mut Claims::default();
    for class in CLASSES {
        let expression = format!("device.attributes[{DRIVER:?}].class == {class:?}");
        let selectors = json!([{"cel": {"expression": expression}}]);
        let class = json!({"metadata": {"name": class}, "spec": {"selectors": selectors}});
        w.object(Kind::DeviceClass, class);
    }
    let mut published = BTreeSet::new();
    for name in NODES {
        w.node(node(name).capacity("64", "64Gi", "110"));
    }
    let mut next = 0;
    for step in 0..STEPS {
        let context = &format!("seed {seed}, step {step}");
        match random.u8(..16) {
            0..=2 if claims.of_pod.len() < 20 => {
                next += 1;
                let mut used = Vec::new();
                for _ in 0..random.u8(1..3) {
                    let known: Vec<&String> = claims.stored.keys().collect();
                    if !known.is_empty() && random.u8(..4) == 0 {
                        used.push(known[random.usize(..known.len())].clone());
                        continue;
                    }
                    let name = format!("c{next}-{}", used.len());
                    claims.store(claim(&name, CLASSES[random.usize(..3)]), context);
                    used.push(name);
                }
                used.dedup();
                let name = format!("p{next}");
                let entries = used
                    .iter()
                    .map(|c| json!({"name": c, "resourceClaimName": c}));
                let entries = Value::Array(entries.collect());
                claims.of_pod.insert(name.clone(), used);
                w.pod(pod(&name).with(|pod| {
                    pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
                }));
            }
            3 => {
                let pods: Vec<String> = claims.of_pod.keys().cloned().collect();
                if !pods.is_empty() {
                    let name = &pods[random.usize(..pods.len())];
                    w.deleted(name);
                    claims.release(name, context);
                }
            }
            4 => {
                let name = NODES[random.usize(..3)];
                let is_there = published.insert(name) || !published.remove(name);
                publish(&mut w, name, is_there);
            }
            5..=7 => drop(w.attempt_named()),
            8..=10 => claims.show(&mut w),
            11 => drop(w.wait(random.u64(..12))),
            12 => {
                let kinds = [CallErrorKind::Refused, CallErrorKind::Conflict];
                answer(&mut w, claims, Some(kinds[random.usize(..2)]), context);
            }
            _ => answer(&mut w, claims, None, context),
        }
    }
    // Nothing fails any more, and all drivers publish: every pod that can run runs, by events alone.
    let context = &format!("seed {seed}, at the end");
    for name in NODES {
        publish(&mut w, name, true);
    }
    for _ in 0..40 {
        while !claims.unseen.is_empty() || !w.calls.is_empty() {
            claims.show(&mut w);
            answer(&mut w, claims, None, context);
        }
        while w.attempt_named() != "idle" {
            while !w.calls.is_empty() || !claims.unseen.is_empty() {
                answer(&mut w, claims, None, context);
                claims.show(&mut w);
            }
        }
        w.wait(6);
    }
    assert_eq!(w.scheduler.cache().assumed_objects(), 0, "{context}");
    let free_gpus = NODES.len()
        - claims
            .stored
            .values()
            .flat_map(|c| c["status"]["allocation"]["devices"]["results"].as_array())
            .flatten()
            .filter(|result| result["device"] == "gpu-0")
            .count();
    for (name, used) in &claims.of_pod {
        let is_bound = w.pods.get(name).is_some_and(|pod| pod.is_assigned());
        let [only] = &used[..] else { continue };
        let class =
            &claims.stored[only]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"];
        if !is_bound && class == "gpu" {
            assert_eq!(
                free_gpus, 0,
                "{context}: {name} waits although a GPU is free"
            );
        }
    }
}

/// No device is allocated twice, no counter and no capacity is exceeded, no pod is bound without its devices, and no
/// pod waits for a device that is free.
#[test]
fn devices_are_allocated_once_whatever_happens() {
    for seed in 0..SEEDS {
        play(seed);
    }
}

/// The checker notices each kind of conflict.
#[test]
fn the_checker_notices_conflicts() {
    let holding = |device: &str, consumed: Value| {
        let result =
            json!({"pool": "n0", "device": device, "consumedCapacity": {"bandwidth": consumed}});
        json!({"status": {"allocation": {"devices": {"results": [result]}}}})
    };
    let none = || holding("gpu-1", Value::Null);
    let five = |device: &str| holding(device, json!("5"));
    for (claims, is_conflict) in [
        (vec![none(), holding("gpu-0", Value::Null)], false),
        (vec![none(), none()], true),
        (vec![five("nic"), five("nic")], false),
        (vec![five("nic"), five("nic"), five("nic")], true),
        (vec![five("half-0"), five("half-1")], false),
        (vec![five("half-0"), five("whole")], true),
    ] {
        assert_eq!(check(claims.iter()).is_err(), is_conflict, "{claims:?}");
    }
}
