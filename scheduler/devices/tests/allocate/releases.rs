//! The changes of Kubernetes 1.37 and 1.38.

use super::*;
use berth_devices::AllocatorFixes;

const V1_37: AllocatorFeatures = AllocatorFeatures {
    fixes: AllocatorFixes {
        qualified_capacity: false,
        pools_by_node: false,
        ..AllocatorFixes::ALL
    },
    ..FEATURES
};
const V1_38: AllocatorFeatures = AllocatorFeatures {
    fractional_ranges: true,
    fixes: AllocatorFixes::ALL,
    ..FEATURES
};

/// The devices on the node `n` with these features.
fn allocate_with(
    inventory: &Inventory,
    claims: &[Arc<ResourceClaim>],
    features: AllocatorFeatures,
) -> String {
    let budget = &mut SearchBudget::unlimited();
    describe(search(inventory, "n", claims, features, budget))
}

/// A pool of the node `n` whose devices consume counters of the set `set`, which has 80 of `memory`.
fn with_counters(devices: Value) -> Inventory {
    let part = |name: &str, mut spec: Value| {
        spec["driver"] = json!("d");
        spec["pool"] = json!({"name": "n", "generation": 1, "resourceSliceCount": 2});
        spec["nodeName"] = json!("n");
        slice(name, spec)
    };
    let set = json!([{"name": "set", "counters": {"memory": {"value": "80"}}}]);
    inventory(&[
        part("counters", json!({"sharedCounters": set})),
        part("devices", json!({"devices": devices})),
    ])
}

/// A device that consumes this amount of the counter, with more fields.
fn consuming(name: &str, memory: u32, groups: &[&str], more: Value) -> Value {
    let memory = json!({"memory": {"value": memory.to_string()}});
    let consumed = json!({"counterSet": "set", "counters": memory, "compatibilityGroups": groups});
    let mut device = json!({"name": name, "consumesCounters": [consumed],
        "attributes": {"name": {"string": name}}});
    if let (Some(device), Value::Object(more)) = (device.as_object_mut(), more) {
        device.extend(more);
    }
    device
}

/// A claim for one device of this name.
fn named(name: &str) -> Arc<ResourceClaim> {
    let expression = format!("device.attributes[\"d\"].name == {name:?}");
    let selectors = json!([{"cel": {"expression": expression}}]);
    count(name, 1, json!({"selectors": selectors}))
}

fn allocated_share(device: &str, id: &str) -> AllocationResult {
    let result = json!({"driver": "d", "pool": "n", "device": device, "shareID": id});
    serde_json::from_value(json!({"devices": {"results": [result]}})).expect("an allocation")
}

/// PL-315, worked by hand: the set has 80; `full` takes 80, the halves 40 each. Two claims share `h0`, which takes its
/// counters once: 40 are left, for `h1` and not for `full`.
#[test]
fn a_shared_device_takes_its_counters_once() {
    let shared = || json!({"allowMultipleAllocations": true});
    let mut inventory = with_counters(json!([
        consuming("full", 80, &[], json!({})),
        consuming("h0", 40, &[], shared()),
        consuming("h1", 40, &[], json!({})),
    ]));
    for id in ["a", "b"] {
        inventory.set_allocation(None, Some(&allocated_share("h0", id)));
    }
    for features in [V1_37, V1_38] {
        let allocate = |claims: &[&str]| {
            let claims: Vec<_> = claims.iter().map(|name| named(name)).collect();
            allocate_with(&inventory, &claims, features)
        };
        assert_eq!(allocate(&["h1"]), "h1");
        assert_eq!(allocate(&["full"]), "none");
        assert_eq!(allocate(&["h0", "h1"]), "h0, h1");
    }
    // 1.36 takes the counters of a share again if the allocated shares consume no capacity.
    let claims = [named("h0"), named("h1")];
    assert_eq!(allocate_with(&inventory, &claims, FEATURES), "none");
}

/// PL-315: counters of a device that a constraint or a taint rejects, and of a shared device that is given back, are
/// available again. 1.36 misses these solutions.
#[test]
fn counters_of_rejected_devices_are_available_again() {
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let inventory = with_counters(json!([
        consuming("a", 80, &[], taint),
        consuming("b", 80, &[], json!({})),
    ]));
    let one = [count("c", 1, json!({}))];
    assert_eq!(allocate_with(&inventory, &one, V1_37), "b");
    assert_eq!(allocate_with(&inventory, &one, FEATURES), "none");

    let shared = json!({"allowMultipleAllocations": true});
    let inventory = with_counters(json!([
        consuming("a", 80, &[], shared),
        consuming(
            "b",
            80,
            &[],
            json!({"attributes": {"name": {"string": "b"}, "x": {"int": 1}}})
        ),
        json!({"name": "c", "attributes": {"x": {"int": 1}}}),
    ]));
    // The first choice, `a`, has no attribute `x`, which the second request needs to match.
    let exactly = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1});
    let requests =
        json!([{"name": "one", "exactly": exactly}, {"name": "two", "exactly": exactly}]);
    let constraints = json!([{"matchAttribute": "d/x"}]);
    let pair = [claim(
        "p",
        json!({"requests": requests, "constraints": constraints}),
    )];
    assert_eq!(allocate_with(&inventory, &pair, V1_37), "b c");
    assert_eq!(allocate_with(&inventory, &pair, FEATURES), "none");
}

/// Devices with groups and without.
fn groups() -> Inventory {
    with_counters(json!([
        consuming("foo", 1, &["foo", "foobar"], json!({})),
        consuming("bar", 1, &["bar", "foobar"], json!({})),
        consuming("baz", 1, &["baz"], json!({})),
        consuming("foo2", 1, &["foo"], json!({})),
        consuming("none", 1, &[], json!({})),
        consuming("none2", 1, &[], json!({})),
    ]))
}

/// PL-316, worked by hand: the devices of a set must have a group in common, all of them together.
#[test]
fn devices_of_a_counter_set_have_a_group_in_common() {
    let on = AllocatorFeatures {
        compatibility_groups: true,
        ..V1_37
    };
    let off = "devices with compatibilityGroups are not combined with others: feature gate DRADeviceCompatibilityGroups is disabled";
    for (allocated_before, wanted, expected, without_gate) in [
        (&[][..], "foo", "foo", "foo"),
        (&["foo"], "bar", "bar", off),
        (&["foo"], "foo2", "foo2", off),
        (&["foo"], "baz", "none", off),
        (&["foo"], "none", "none", off),
        (&["none"], "none2", "none2", "none2"),
        (&["none"], "foo", "none", off),
        // {foobar} is left in common, though foo2 shares a group with foo.
        (&["foo", "bar"], "foo2", "none", off),
    ] {
        let mut inventory = groups();
        for device in allocated_before {
            inventory.set_allocation(None, Some(&allocated(device)));
        }
        let claims = [named(wanted)];
        let place = format!("{allocated_before:?} {wanted}");
        assert_eq!(allocate_with(&inventory, &claims, on), expected, "{place}");
        assert_eq!(
            allocate_with(&inventory, &claims, V1_37),
            without_gate,
            "{place}"
        );
        // The same within one search.
        let mut together: Vec<_> = allocated_before.iter().map(|name| named(name)).collect();
        together.push(named(wanted));
        let in_one_search = allocate_with(&groups(), &together, on);
        assert_eq!(in_one_search == "none", expected == "none", "{place}");
    }
    // A returned device does not count: `foo` is tried first, and `baz` is compatible only with `baz`.
    let pair = |first: &[&str], second: &str| {
        let any = first
            .iter()
            .map(|name| format!("device.attributes[\"d\"].name == {name:?}"));
        let expression = any.collect::<Vec<_>>().join(" || ");
        let selectors = json!([{"cel": {"expression": expression}}]);
        [
            count("first", 1, json!({"selectors": selectors})),
            named(second),
        ]
    };
    let inventory = groups();
    let claims = pair(&["foo", "none"], "none2");
    assert_eq!(allocate_with(&inventory, &claims, on), "none, none2");
}

/// PL-318, PL-319: devices that skip operations of the kubelet need the gate and a node that declares the feature. The
/// allocation repeats the skipped operations.
#[test]
fn devices_that_skip_node_operations_need_the_gate_and_the_node() {
    let spec = json!({"driver": "d", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": [{"name": "a"}], "skipNodeOperations": ["*"]});
    let plain = json!({"driver": "e", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n", "devices": [{"name": "b"}]});
    let virtual_only = inventory(&[slice("virtual", spec.clone())]);
    let both = inventory(&[slice("virtual", spec), slice("plain", plain)]);
    let on = AllocatorFeatures {
        optional_node_operations: true,
        ..V1_37
    };
    let one = [count("c", 1, json!({}))];
    let off = "devices with skipNodeOperations are not allocated: feature gate DRAOptionalNodeOperations is disabled";
    for features in [FEATURES, V1_37, V1_38] {
        assert_eq!(allocate_with(&virtual_only, &one, features), off);
        assert_eq!(allocate_with(&both, &one, features), "b");
    }
    let budget = &mut SearchBudget::unlimited();
    let found = search(&virtual_only, "n", &one, on, budget).expect("no error");
    let result = &found.expect("devices")[0].devices.results[0];
    assert_eq!(result.skip_node_operations, ["*"]);
    let labels = Labels::default();
    let node = TargetNode {
        name: "n",
        labels: &labels,
        skips_operations: false,
    };
    let class = |_: &str| {
        let class: DeviceClass =
            serde_json::from_value(json!({"metadata": {"name": "any"}})).expect("a class");
        Some(Arc::new(class))
    };
    let requests = ClaimRequests::new(&one[0], on, class);
    let result = Allocator::new(&virtual_only, on).allocate(node, &[&requests], budget);
    assert_eq!(
        describe(result),
        "devices with skipNodeOperations are not allocated: the node does not declare the feature DRAOptionalNodeOperations"
    );
    let result = Allocator::new(&both, on).allocate(node, &[&requests], budget);
    assert_eq!(describe(result), "b", "another device");
}

/// PL-319: devices that use resources of their node are not allocated without the gate.
#[test]
fn devices_that_use_node_resources_are_not_allocated() {
    let cpu = json!({"cpu": {"mapping": {"deviceMultiplier": "8"}}});
    let inventory = inventory(&[local(
        "n",
        json!([{"name": "a", "nodeAllocatableResources": cpu}]),
    )]);
    let one = [count("c", 1, json!({}))];
    let why = "devices with nodeAllocatableResources are not allocated: feature gate DRANodeAllocatableResources is disabled";
    for features in [FEATURES, V1_37, V1_38] {
        assert_eq!(allocate_with(&inventory, &one, features), why);
    }
    // A claim that does not select the device has nothing to do with it.
    let other = [named("b")];
    assert!(allocate_with(&inventory, &other, V1_37).contains("no such key"));
}

/// PL-314: a request for all devices is all or nothing since Kubernetes 1.37; before, a device without enough capacity
/// left was left out.
#[test]
fn all_devices_need_enough_capacity() {
    let device = |name: &str| json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10"}}});
    let mut inventory = inventory(&[local("n", json!([device("a"), device("b")]))]);
    let all = json!({"deviceClassName": "any", "allocationMode": "All",
        "capacity": {"requests": {"memory": "6"}}});
    let all = [claim(
        "c",
        json!({"requests": [{"name": "r", "exactly": all}]}),
    )];
    for features in [FEATURES, V1_37] {
        assert_eq!(allocate_with(&inventory, &all, features), "a b");
    }
    let mut taken = allocated_share("a", "s");
    let consumed = "5".parse().expect("a quantity");
    taken.devices.results[0].consumed_capacity = [("memory".into(), consumed)].into();
    inventory.set_allocation(None, Some(&taken));
    assert_eq!(allocate_with(&inventory, &all, FEATURES), "b");
    assert_eq!(allocate_with(&inventory, &all, V1_37), "none");
}

/// PL-314: constraints on distinct values compare every share of a request since Kubernetes 1.37.
#[test]
fn distinct_values_are_compared_for_every_share() {
    let device = |name: &str, x: u32| {
        json!({"name": name, "allowMultipleAllocations": true, "attributes": {"x": {"int": x}},
            "capacity": {"memory": {"value": "10"}}})
    };
    let inventory = inventory(&[local("n", json!([device("a", 1), device("b", 2)]))]);
    let exactly = |count: u32| {
        json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count,
        "capacity": {"requests": {"memory": "1"}}})
    };
    let requests =
        json!([{"name": "r", "exactly": exactly(2)}, {"name": "s", "exactly": exactly(1)}]);
    let constraints = json!([{"distinctAttribute": "d/x"}]);
    let claims = [claim(
        "c",
        json!({"requests": requests, "constraints": constraints}),
    )];
    // The first value of `r` is forgotten.
    assert_eq!(allocate_with(&inventory, &claims, FEATURES), "a b a");
    assert_eq!(allocate_with(&inventory, &claims, V1_37), "none");
}

/// PL-312: a device with shares is not allocated as a whole when its slice stops to allow shares, since Kubernetes
/// 1.38.
#[test]
fn a_device_with_shares_is_never_allocated_as_a_whole() {
    let mut inventory = inventory(&[local("n", json!([{"name": "a"}]))]);
    inventory.set_allocation(None, Some(&allocated_share("a", "s")));
    let one = [count("c", 1, json!({}))];
    assert_eq!(allocate_with(&inventory, &one, V1_38), "none");
    assert_eq!(allocate_with(&inventory, &one, V1_37), "a");
}

/// PL-313: lists in constraints, and in selectors since Kubernetes 1.37.
#[test]
fn attributes_can_have_several_values() {
    let device = |name: &str, roots: [u32; 2]| json!({"name": name, "attributes": {"root": {"ints": roots}}});
    let inventory = inventory(&[local(
        "n",
        json!([
            device("a", [0, 1]),
            device("b", [2, 3]),
            device("c", [1, 2])
        ]),
    )]);
    let exactly = json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 2});
    let with = |constraint: Value| {
        let requests = json!([{"name": "r", "exactly": exactly}]);
        [claim(
            "c",
            json!({"requests": requests, "constraints": [constraint]}),
        )]
    };
    let on = AllocatorFeatures {
        list_attributes: true,
        ..V1_37
    };
    let matching = with(json!({"matchAttribute": "d/root"}));
    let distinct = with(json!({"distinctAttribute": "d/root"}));
    assert_eq!(allocate_with(&inventory, &matching, on), "a c");
    assert_eq!(allocate_with(&inventory, &distinct, on), "a b");
    assert_eq!(allocate_with(&inventory, &matching, V1_37), "none");
    let expression = "device.attributes[\"d\"].root.includes(3)";
    let selecting = [count(
        "c",
        1,
        json!({"selectors": [{"cel": {"expression": expression}}]}),
    )];
    assert_eq!(allocate_with(&inventory, &selecting, V1_37), "b");
    assert!(allocate_with(&inventory, &selecting, FEATURES).contains("root"));
}

/// PL-317, worked by hand: the GPU states its root in a text, the NIC in a number. Each request derives `derived/root`,
/// and the constraint compares it.
#[test]
fn constraints_compare_derived_attributes() {
    let gpu = |name: &str, locality: &str| json!({"name": name, "attributes": {"kind": {"string": "gpu"}, "pcie_locality": {"string": locality}}});
    let nic = |name: &str, root: u32| json!({"name": name, "attributes": {"kind": {"string": "nic"}, "pcie_root": {"int": root}, "root": {"int": 9}}});
    let inventory = inventory(&[local(
        "n",
        json!([
            gpu("gpu-0", "numa0-pcie1"),
            gpu("gpu-1", "numa0-pcie2"),
            nic("nic-2", 2),
            nic("nic-3", 3)
        ]),
    )]);
    let request = |name: &str, root: &str| {
        let kind = format!("device.attributes[\"d\"].kind == {name:?}");
        json!({"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": kind}}],
            "derivedAttributes": [{"name": "derived/root", "expression": root}]}})
    };
    let claims = |gpu: &str, nic: &str| {
        let requests = json!([request("gpu", gpu), request("nic", nic)]);
        let constraints = json!([{"matchAttribute": "derived/root"}]);
        [claim(
            "c",
            json!({"requests": requests, "constraints": constraints}),
        )]
    };
    let on = AllocatorFeatures {
        derived_attributes: true,
        ..V1_37
    };
    let of_gpu = "int(device.attributes[\"d\"].pcie_locality.split(\"pcie\")[1])";
    let of_nic = "device.attributes[\"d\"].pcie_root";
    let located = claims(of_gpu, of_nic);
    assert_eq!(allocate_with(&inventory, &located, on), "gpu-1 nic-2");
    assert_eq!(
        allocate_with(&inventory, &located, V1_37),
        "claim ns/c, request gpu: has derived attributes, but the DRADerivedAttributes feature is disabled"
    );
    // An expression that fails for a device fails the claim, and so does one of another type.
    let failing = claims("device.attributes[\"d\"].missing", of_nic);
    let why = allocate_with(&inventory, &failing, on);
    assert!(
        why.starts_with(
            "claim ns/c, request gpu: derived attribute derived/root: CEL runtime error: "
        ),
        "{why}"
    );
    let other_type = claims("{\"a\": 1}", of_nic);
    let why = allocate_with(&inventory, &other_type, on);
    assert!(
        why.contains("CEL compile error: must evaluate to int, bool, string, semver or a list of them, not map"),
        "{why}"
    );
}

/// The sum of counts is beyond 64 bits: an error, as for every claim that is too large. An alternative that is too
/// large is passed over.
#[test]
fn counts_beyond_the_limit_are_an_error_or_the_next_alternative() {
    let inventory = inventory(&[local("n", json!([{"name": "a"}]))]);
    let exactly = |count: i64| json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count});
    let request = |name: &str| json!({"name": name, "exactly": exactly(i64::MAX)});
    let requests: Vec<Value> = ["r", "s", "t"].map(request).to_vec();
    let too_many = [claim("c", json!({"requests": requests}))];
    let alternatives = json!([
        {"name": "many", "deviceClassName": "any", "allocationMode": "ExactCount", "count": i64::MAX},
        {"name": "one", "deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    ]);
    let listed = [claim(
        "c",
        json!({"requests": [{"name": "r", "firstAvailable": alternatives}]}),
    )];
    for features in [FEATURES, V1_37, V1_38] {
        let why = allocate_with(&inventory, &too_many, features);
        assert!(
            why.starts_with("claim ns/c: number of requested devices ")
                && why.ends_with(" exceeds the claim limit of 32"),
            "{why}"
        );
        assert_eq!(allocate_with(&inventory, &listed, features), "a");
    }
}
