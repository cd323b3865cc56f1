//! Situations that the recorded allocations do not contain, and the inventory's own bookkeeping.

mod releases;

use berth_api::devices::AllocationResult;
use berth_api::{DeviceClass, Labels, ResourceClaim, ResourceSlice};
use berth_devices::{
    AllocateError, Allocator, AllocatorFeatures, ClaimRequests, Inventory, SearchBudget, TargetNode,
};
use serde_json::{Value, json};
use std::sync::Arc;

const FEATURES: AllocatorFeatures = AllocatorFeatures::V1_36;

fn slice(name: &str, spec: Value) -> Arc<ResourceSlice> {
    let json = json!({"metadata": {"name": name}, "spec": spec});
    Arc::new(serde_json::from_value(json).expect("a slice"))
}

/// A slice of the driver `d` with these devices for a node.
fn local(node: &str, devices: Value) -> Arc<ResourceSlice> {
    slice(
        node,
        json!({"driver": "d", "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
               "nodeName": node, "devices": devices}),
    )
}

fn claim(name: &str, devices: Value) -> Arc<ResourceClaim> {
    let json = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"devices": devices}});
    Arc::new(serde_json::from_value(json).expect("a claim"))
}

/// A claim for a number of devices, with more fields of the request.
fn count(name: &str, count: u32, more: Value) -> Arc<ResourceClaim> {
    let mut exactly =
        json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count});
    if let (Some(exactly), Value::Object(more)) = (exactly.as_object_mut(), more) {
        exactly.extend(more);
    }
    claim(
        name,
        json!({"requests": [{"name": "r", "exactly": exactly}]}),
    )
}

fn inventory(slices: &[Arc<ResourceSlice>]) -> Inventory {
    let mut inventory = Inventory::default();
    for slice in slices {
        inventory.set_slice(slice);
    }
    inventory
}

fn prepared(claims: &[Arc<ResourceClaim>], features: AllocatorFeatures) -> Vec<ClaimRequests> {
    let class = |name: &str| {
        let json = json!({"metadata": {"name": name}});
        let class: DeviceClass = serde_json::from_value(json).expect("a class");
        (name == "any").then(|| Arc::new(class))
    };
    let claims = claims.iter();
    claims
        .map(|claim| ClaimRequests::new(claim, features, class))
        .collect()
}

/// A node, whose name is also its zone.
fn node<'n>(name: &'n str, labels: &'n Labels) -> TargetNode<'n> {
    TargetNode {
        name,
        labels,
        skips_operations: true,
    }
}

fn search(
    inventory: &Inventory,
    name: &str,
    claims: &[Arc<ResourceClaim>],
    features: AllocatorFeatures,
    budget: &mut SearchBudget,
) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
    let claims = prepared(claims, features);
    let claims: Vec<&ClaimRequests> = claims.iter().collect();
    let labels = Labels::default().with("zone", name);
    Allocator::new(inventory, features).allocate(node(name, &labels), &claims, budget)
}

/// The result of a search in the devices that a node shares with others, or the error; `None` if the node's own devices
/// may match.
fn in_view(inventory: &Inventory, name: &str, claims: &[Arc<ResourceClaim>]) -> Option<String> {
    let labels = Labels::default().with("zone", name);
    let claims = prepared(claims, FEATURES);
    let claims: Vec<&ClaimRequests> = claims.iter().collect();
    let budget = &mut SearchBudget::unlimited();
    let allocator = Allocator::new(inventory, FEATURES);
    let view = allocator.view(node(name, &labels), &claims, budget)?;
    let found = allocator.preference_in(&view, &claims, budget);
    Some(match found {
        Ok(found) => found.is_some().to_string(),
        Err(error) => error.to_string(),
    })
}

/// The devices of each claim, or the error.
fn allocate(inventory: &Inventory, node: &str, claims: &[Arc<ResourceClaim>]) -> String {
    describe(search(
        inventory,
        node,
        claims,
        FEATURES,
        &mut SearchBudget::unlimited(),
    ))
}

fn describe(result: Result<Option<Vec<AllocationResult>>, AllocateError>) -> String {
    match result {
        Err(error) => error.to_string(),
        Ok(None) => "none".to_owned(),
        Ok(Some(allocations)) => {
            let claims = allocations.iter().map(|allocation| {
                let results = allocation.devices.results.iter();
                let devices: Vec<&str> = results.map(|result| result.device.as_str()).collect();
                devices.join(" ")
            });
            claims.collect::<Vec<_>>().join(", ")
        }
    }
}

fn allocated(device: &str) -> AllocationResult {
    let json = json!({"devices": {"results": [{"driver": "d", "pool": "n", "device": device}]}});
    serde_json::from_value(json).expect("an allocation")
}

/// PL-165: admin access shares devices with other claims, not within a claim.
#[test]
fn admin_access_takes_devices_that_are_in_use() {
    let mut inventory = inventory(&[local("n", json!([{"name": "a"}, {"name": "b"}]))]);
    inventory.set_allocation(None, Some(&allocated("a")));
    let admin = |name, number| count(name, number, json!({"adminAccess": true}));
    let plain = |name, number| count(name, number, json!({}));
    for (claims, expected) in [
        (vec![plain("one", 1)], "b"),
        (vec![plain("one", 2)], "none"),
        (vec![admin("one", 2)], "a b"),
        (vec![admin("one", 3)], "none"),
        (vec![admin("one", 1), admin("two", 1)], "a, a"),
        (vec![admin("one", 2), plain("two", 1)], "none"),
        (vec![plain("one", 1), admin("two", 2)], "b, a b"),
    ] {
        assert_eq!(allocate(&inventory, "n", &claims), expected);
    }
    let without = AllocatorFeatures {
        admin_access: false,
        ..FEATURES
    };
    let budget = &mut SearchBudget::unlimited();
    let result = search(&inventory, "n", &[admin("one", 1)], without, budget);
    let why = "claim ns/one, request r: admin access is requested, but the feature is disabled";
    assert_eq!(describe(result), why);
}

/// PL-166: which slices form a pool, as a node sees it.
#[test]
fn a_pool_is_formed_by_the_slices_of_its_highest_generation() {
    let part = |name: &str, generation: u32, slices: u32, node: &str, device: &str| {
        slice(
            name,
            json!({"driver": "d", "pool": {"name": "p", "generation": generation, "resourceSliceCount": slices},
                   "nodeName": node, "devices": [{"name": device}]}),
        )
    };
    let one = || vec![count("c", 1, json!({}))];
    let all = || {
        let all = json!({"deviceClassName": "any", "allocationMode": "All"});
        vec![claim(
            "c",
            json!({"requests": [{"name": "r", "exactly": all}]}),
        )]
    };
    let updating = "claim ns/c, request r: asks for all devices, but resource pool d/p is currently being updated";
    for (situation, slices, claims, expected) in [
        ("one slice", vec![part("a", 1, 1, "n", "x")], one(), "x"),
        (
            "a newer generation",
            vec![part("a", 1, 1, "n", "x"), part("b", 2, 1, "n", "y")],
            one(),
            "y",
        ),
        (
            "one of two slices",
            vec![part("a", 1, 2, "n", "x")],
            one(),
            "none",
        ),
        (
            "all of one of two slices",
            vec![part("a", 1, 2, "n", "x")],
            all(),
            updating,
        ),
        (
            "the other slice is for another node",
            vec![part("a", 1, 2, "n", "x"), part("b", 1, 2, "m", "y")],
            all(),
            "x",
        ),
        (
            "incomplete, and newer elsewhere",
            vec![part("a", 1, 2, "n", "x"), part("b", 2, 1, "m", "y")],
            all(),
            "none",
        ),
        (
            "complete, and newer elsewhere",
            vec![part("a", 1, 1, "n", "x"), part("b", 2, 1, "m", "y")],
            all(),
            "x",
        ),
        (
            "two devices of a name",
            vec![part("a", 1, 2, "n", "x"), part("b", 1, 2, "n", "x")],
            one(),
            "invalid resource pools were encountered",
        ),
    ] {
        let inventory = inventory(&slices);
        assert_eq!(allocate(&inventory, "n", &claims), expected, "{situation}");
    }
}

/// PL-167: counters are known to all nodes; devices that other nodes use consume them, too.
#[test]
fn counters_are_shared_between_nodes() {
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
    let half = json!([{"counterSet": "board", "counters": {"slices": {"value": "1"}}}]);
    let counters = slice(
        "counters",
        json!({"driver": "d", "pool": pool, "allNodes": true,
               "sharedCounters": [{"name": "board", "counters": {"slices": {"value": "2"}}}]}),
    );
    let device =
        |name: &str, node: &str| json!({"name": name, "nodeName": node, "consumesCounters": half});
    let devices = slice(
        "devices",
        json!({"driver": "d", "pool": pool, "perDeviceNodeSelection": true,
               "devices": [device("a", "n"), device("b", "n"), device("c", "m")]}),
    );
    let mut inventory = inventory(&[counters.clone(), devices]);
    let two = [count("c", 2, json!({}))];
    assert_eq!(allocate(&inventory, "n", &two), "a b");
    let elsewhere = json!({"devices": {"results": [{"driver": "d", "pool": "p", "device": "c"}]}});
    let elsewhere: AllocationResult = serde_json::from_value(elsewhere).expect("an allocation");
    inventory.set_allocation(None, Some(&elsewhere));
    assert_eq!(allocate(&inventory, "n", &two), "none");
    assert_eq!(allocate(&inventory, "n", &[count("c", 1, json!({}))]), "a");
    inventory.set_allocation(Some(&elsewhere), None);
    assert_eq!(allocate(&inventory, "n", &two), "a b");
    inventory.remove_slice("devices");
    let all = json!({"deviceClassName": "any", "allocationMode": "All"});
    let all = [claim(
        "c",
        json!({"requests": [{"name": "r", "exactly": all}]}),
    )];
    let updating = "claim ns/c, request r: asks for all devices, but resource pool d/p is currently being updated";
    assert_eq!(allocate(&inventory, "elsewhere", &all), updating);
}

/// PL-168: a device whose shares are allocated is shared only, and only as far as its capacity reaches.
#[test]
fn shares_of_a_device_add_up() {
    let shared = json!([{"name": "nic", "allowMultipleAllocations": true, "capacity": {"bandwidth": {
        "value": "10G", "requestPolicy": {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}}}}]);
    let mut inventory = inventory(&[local("n", shared)]);
    let share = |name: &str, amount: &str| {
        count(
            name,
            1,
            json!({"capacity": {"requests": {"bandwidth": amount}}}),
        )
    };
    let claims = |amounts: &[&str]| -> Vec<Arc<ResourceClaim>> {
        amounts
            .iter()
            .enumerate()
            .map(|(i, a)| share(&format!("c{i}"), a))
            .collect()
    };
    assert_eq!(
        allocate(&inventory, "n", &claims(&["6G", "4G"])),
        "nic, nic"
    );
    assert_eq!(
        allocate(&inventory, "n", &claims(&["6G", "3500M"])),
        "nic, nic"
    );
    assert_eq!(allocate(&inventory, "n", &claims(&["6G", "4500M"])), "none");
    let budget = &mut SearchBudget::unlimited();
    let result = search(&inventory, "n", &claims(&["6G"]), FEATURES, budget);
    let allocation = result.expect("no error").expect("an allocation").remove(0);
    inventory.set_allocation(None, Some(&allocation));
    assert_eq!(allocate(&inventory, "n", &claims(&["4G"])), "nic");
    assert_eq!(allocate(&inventory, "n", &claims(&["5G"])), "none");
    let exclusive = AllocatorFeatures {
        consumable_capacity: false,
        ..FEATURES
    };
    let result = search(
        &inventory,
        "n",
        &[count("c", 1, json!({}))],
        exclusive,
        budget,
    );
    assert_eq!(
        describe(result),
        "none",
        "without the gate a share takes the device"
    );
}

/// A search that would take too long ends with an error, and always after the same work.
#[test]
fn a_search_ends_with_its_budget() {
    let devices: Vec<Value> = (0..24)
        .map(|i| json!({"name": format!("d{i}"), "attributes": {"i": {"int": i}}}))
        .collect();
    let inventory = inventory(&[local("n", Value::Array(devices))]);
    // No two devices have the same value, so every combination of devices is refused late.
    let requests: Vec<Value> = (0..12).map(|i| json!({"name": format!("r{i}"), "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}})).collect();
    let last = json!({"name": "last", "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 20}});
    let mut all = requests;
    all.push(last);
    let claims = [claim("c", json!({"requests": all}))];
    for steps in [1, 1_000, 100_000] {
        let result = search(
            &inventory,
            "n",
            &claims,
            FEATURES,
            &mut SearchBudget::of_steps(steps),
        );
        assert_eq!(result, Err(AllocateError::OutOfSteps), "{steps}");
    }
    let one = [count(
        "c",
        1,
        json!({"selectors": [{"cel": {"expression": "device.attributes[\"d\"].i == 23"}}]}),
    )];
    let steps_of = || {
        (1..200).find(|steps| {
            let budget = &mut SearchBudget::of_steps(*steps);
            search(&inventory, "n", &one, FEATURES, budget).is_ok()
        })
    };
    let first = steps_of();
    assert!(first.is_some());
    assert_eq!(first, steps_of(), "caches make no difference");
}

/// After any sequence of changed slices and allocations, the inventory equals a new one built from the current objects.
/// Nodes without slices of their own get the devices of their view.
#[test]
fn an_inventory_depends_on_what_is_in_it_alone() {
    let seed = 0xd0a;
    let random = &mut fastrand::Rng::with_seed(seed);
    let spec = |random: &mut fastrand::Rng| {
        let device = |random: &mut fastrand::Rng| json!({"name": format!("d{}", random.u8(..6))});
        let devices: Vec<Value> = (0..random.u8(1..3)).map(|_| device(random)).collect();
        let driver = if random.u8(..4) == 0 { "e" } else { "d" };
        let mut spec = json!({"driver": driver, "pool": {
            "name": format!("p{}", random.u8(..3)), "generation": random.u8(1..3),
            "resourceSliceCount": random.u8(1..3),
        }});
        match random.u8(..5) {
            0 => spec["allNodes"] = json!(true),
            1 => {
                spec["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["n0"]}]}]})
            }
            2 => {
                spec["allNodes"] = json!(true);
                spec["sharedCounters"] = json!([{"name": "s", "counters": {"c": {"value": "1"}}}]);
                return spec;
            }
            _ => spec["nodeName"] = json!(format!("n{}", random.u8(..2))),
        }
        spec["devices"] = Value::Array(devices);
        spec
    };
    let mut views = 0;
    for round in 0..200 {
        let mut changed = Inventory::default();
        let mut present: Vec<Arc<ResourceSlice>> = Vec::new();
        let mut held: [Option<AllocationResult>; 3] = Default::default();
        for _ in 0..12 {
            let name = format!("s{}", random.u8(..5));
            let known = present.iter().position(|s| *s.metadata.name == *name);
            if random.u8(..4) == 0 {
                changed.remove_slice(&name);
                known.map(|at| present.remove(at));
                continue;
            }
            let new = slice(&name, spec(random));
            changed.set_slice(&new);
            let pool =
                |slice: &ResourceSlice| (slice.spec.driver.clone(), slice.spec.pool.name.clone());
            let same_pool = known.is_some_and(|at| pool(&present[at]) == pool(&new));
            match known {
                Some(at) if same_pool => present[at] = new,
                Some(at) => {
                    present.remove(at);
                    present.push(new);
                }
                None => present.push(new),
            }
            // Claims take devices and give them back, whether slices have them or not.
            let taken = &mut held[random.usize(..3)];
            let before = taken.take();
            *taken = random.bool().then(|| {
                let device = random.u8(..6);
                let result = json!({"driver": "d", "pool": format!("p{}", random.u8(..3)), "device": format!("d{device}")});
                serde_json::from_value(json!({"devices": {"results": [result]}})).expect("an allocation")
            });
            changed.set_allocation(before.as_ref(), taken.as_ref());
        }
        let mut anew = Inventory::default();
        let (early, late) = held.split_at(1);
        early
            .iter()
            .for_each(|held| drop(anew.set_allocation(None, held.as_ref())));
        present.iter().for_each(|slice| drop(anew.set_slice(slice)));
        late.iter()
            .for_each(|held| drop(anew.set_allocation(None, held.as_ref())));
        let all = json!({"deviceClassName": "any", "allocationMode": "All"});
        let all = claim("c", json!({"requests": [{"name": "r", "exactly": all}]}));
        let of_driver = json!({"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]});
        for node in ["n0", "n1", "n2"] {
            for claims in [
                [count("c", 1, json!({}))],
                [count("c", 2, json!({}))],
                [count("c", 1, of_driver.clone())],
                [all.clone()],
            ] {
                let expected = allocate(&anew, node, &claims);
                let got = allocate(&changed, node, &claims);
                assert_eq!(got, expected, "seed {seed}, round {round}, {node}");
                let by_view = in_view(&changed, node, &claims);
                let is_found = match expected.as_str() {
                    "none" => "false".to_owned(),
                    error if error.contains("pool") => error.to_owned(),
                    _ => "true".to_owned(),
                };
                assert!(
                    by_view.as_ref().is_none_or(|found| *found == is_found),
                    "seed {seed}, round {round}, {node}: {by_view:?} instead of {expected}"
                );
                views += usize::from(by_view.is_some());
            }
        }
        for name in 0..5 {
            changed.remove_slice(&format!("s{name}"));
        }
        assert!(changed.is_empty());
        assert_eq!(changed.slices().count(), 0);
    }
    assert!(views > 500, "{views} views were searched");
}
