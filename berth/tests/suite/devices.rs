//! Devices on a running cluster: GPUs of simulated nodes, claims from templates, and their visible state.

use crate::e2e::{Api, Cluster, eventually, scheduled};
use berth_client::request::{self, Resource};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The example of the documentation.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/gpu-claims.yaml");

const fn devices_resource(plural: &'static str) -> Resource {
    Resource {
        group: "resource.k8s.io",
        version: "v1",
        plural,
    }
}

const CLAIMS: Resource = devices_resource("resourceclaims");
const CLASSES: Resource = devices_resource("deviceclasses");
const SLICES: Resource = devices_resource("resourceslices");
const TEMPLATES: Resource = devices_resource("resourceclaimtemplates");

const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// Two GPUs with enough memory that share a PCIe root.
fn two_gpus() -> Value {
    let selector = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0";
    json!({"devices": {
        "requests": [{"name": "gpus", "exactly": {
            "deviceClassName": "gpu.example.com",
            "count": 2,
            "selectors": [{"cel": {"expression": selector}}],
        }}],
        "constraints": [{"matchAttribute": PCIE_ROOT}],
    }})
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let api = "resource.k8s.io/v1";
    json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn pod(name: &str, claim: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "registry.example/c:1", "resources": {"claims": [{"name": "gpus"}]}}],
            "resourceClaims": [claim],
        },
    })
}

/// The pool and name of each device of the pod's claim.
fn devices_of(api: &Api, pod: &str) -> Vec<(String, String)> {
    let pod = api.pod(pod);
    let claim = &pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
    let claim = claim.as_str().expect("a claim").to_owned();
    let claim = api.send(&request::get(CLAIMS, "default", &claim));
    let holder = &claim["status"]["reservedFor"][0];
    assert_eq!(holder["uid"], pod["metadata"]["uid"], "{claim}");
    let results = &claim["status"]["allocation"]["devices"]["results"];
    let results = results.as_array().expect("results").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    results
        .map(|result| (text(&result["pool"]), text(&result["device"])))
        .collect()
}

fn delete(api: &Api, pod: &str) {
    let stored = api.pod(pod);
    let uid = stored["metadata"]["uid"].as_str().expect("a UID");
    let delete = request::delete_pod(&"default".into(), &pod.into(), &uid.into());
    api.send(&delete);
}

fn bound(api: &Api, pod: &str) -> Value {
    eventually("the pod runs", || {
        let pod = api.pod(pod);
        (pod["status"]["phase"] == "Running").then_some(pod)
    })
}

#[test]
fn pods_get_the_devices_that_they_claim() {
    let cluster = Cluster::up(
        "devices",
        &["--nodes", "2", "--gpus-per-node", "4", EXAMPLE],
    );
    let api = Api::of(&cluster);
    pods_of_a_template_get_devices_of_their_own(&api);
    a_freed_device_wakes_the_pod_that_waits(&api);
    an_invalid_selector_is_rejected(&api);
    a_claim_that_comes_late_is_used(&api);
    classes_back_extended_resources(&api);
    pods_that_share_a_claim_run_when_the_slices_arrive(&api);
    let flushed = cluster.metric("scheduler_pod_scheduled_after_flush_total", "");
    assert_eq!(flushed, 0.0, "all pods were woken by events");
}

/// Two nodes with two pairs of GPUs each: the three pods of the example's Deployment and one more fit, each with two
/// GPUs of one PCIe root on its node.
fn pods_of_a_template_get_devices_of_their_own(api: &Api) {
    let entry = json!({"name": "gpus", "resourceClaimTemplateName": "gpu-pair"});
    api.send(&request::create(
        request::PODS,
        "default",
        &pod("first", &entry),
    ));
    bound(api, "first");
    let names = eventually("the Deployment has its pods", || {
        let pods = api.pods();
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        (names.len() == 4).then_some(names)
    });
    let slices = api.send(&request::list(SLICES, "", 500, ""));
    let root = |pool: &str, device: &str| {
        let slices = slices["items"].as_array().expect("slices");
        let slice = slices.iter().find(|s| s["spec"]["pool"]["name"] == pool);
        let devices = slice.expect("a slice")["spec"]["devices"].as_array();
        let device = devices
            .expect("devices")
            .iter()
            .find(|d| d["name"] == device);
        device.expect("the device")["attributes"][PCIE_ROOT].clone()
    };
    let mut taken = BTreeSet::new();
    for name in names {
        let pod = bound(api, &name);
        let devices = devices_of(api, &name);
        let [(pool, first), (other_pool, second)] = &devices[..] else {
            panic!("{devices:?}");
        };
        assert_eq!(pool, other_pool);
        assert_eq!(pod["spec"]["nodeName"], json!(pool));
        assert_eq!(root(pool, first), root(pool, second), "one PCIe root");
        for device in devices {
            assert!(
                taken.insert(device.clone()),
                "{device:?} is allocated twice"
            );
        }
    }
    assert_eq!(taken.len(), 8);
}

/// A fifth pod waits, and its condition states the reason; it runs when another pod is deleted.
fn a_freed_device_wakes_the_pod_that_waits(api: &Api) {
    let entry = json!({"name": "gpus", "resourceClaimTemplateName": "gpu-pair"});
    api.send(&request::create(
        request::PODS,
        "default",
        &pod("fifth", &entry),
    ));
    let why = eventually("it was tried", || {
        let condition = scheduled(&api.pod("fifth"));
        let message = condition["message"].as_str().unwrap_or_default();
        (condition["reason"] == "Unschedulable").then(|| message.to_owned())
    });
    assert!(
        why.starts_with("0/2 nodes are available: 2 cannot allocate all claims."),
        "{why}"
    );
    delete(api, "first");
    bound(api, "fifth");
    assert_eq!(devices_of(api, "fifth").len(), 2);
}

/// The API server compiles selectors and names the place of the error.
fn an_invalid_selector_is_rejected(api: &Api) {
    let mut spec = two_gpus();
    let request = &mut spec["devices"]["requests"][0]["exactly"];
    request["selectors"][0]["cel"]["expression"] = json!("device.model == 'x'");
    let claim = object("ResourceClaim", "invalid", &spec);
    let request = request::create(CLAIMS, "default", &claim);
    let created: Result<Value, _> = api.runtime.block_on(api.transport.request(&request));
    let text = created.expect_err("it is invalid").to_string();
    let place = "spec.devices.requests[0].exactly.selectors[0].cel.expression";
    assert!(
        text.contains(place) && text.contains("undefined field 'model'"),
        "{text}"
    );
}

/// A pod waits for a claim that does not exist; the claim is created, and the pod runs.
fn a_claim_that_comes_late_is_used(api: &Api) {
    let entry = json!({"name": "gpus", "resourceClaimName": "late"});
    api.send(&request::create(
        request::PODS,
        "default",
        &pod("waiting", &entry),
    ));
    eventually("its status states that it is not ready", || {
        let condition = scheduled(&api.pod("waiting"));
        (condition["reason"] == "NotReadyForScheduling").then_some(())
    });
    delete(api, "fifth");
    let claim = object("ResourceClaim", "late", &two_gpus());
    api.send(&request::create(CLAIMS, "default", &claim));
    bound(api, "waiting");
}

/// A class backs an extended resource: two GPUs are allocated to a pod that requests the resource, in a claim that the
/// scheduler creates and the pod's status names.
fn classes_back_extended_resources(api: &Api) {
    delete(api, "waiting");
    let spec = json!({
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
        "extendedResourceName": "example.com/gpu",
    });
    let class = object("DeviceClass", "extended", &spec);
    api.send(&request::create(CLASSES, "", &class));
    let resources = json!({"limits": {"example.com/gpu": "2"}});
    let container = json!({"name": "c", "image": "registry.example/c:1", "resources": resources});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "extended"},
        "spec": {"containers": [container]},
    });
    api.send(&request::create(request::PODS, "default", &pod));
    let pod = bound(api, "extended");
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let mapping = &status["requestMappings"][0];
    assert_eq!(mapping["resourceName"], "example.com/gpu", "{status}");
    assert_eq!(mapping["containerName"], "c", "{status}");
    let claim = status["resourceClaimName"].as_str().expect("a claim");
    let claim = api.send(&request::get(CLAIMS, "default", claim));
    let results = &claim["status"]["allocation"]["devices"]["results"];
    let results = results.as_array().expect("results");
    assert_eq!(results.len(), 2, "{claim}");
    for result in results {
        assert_eq!(result["request"], mapping["requestName"], "{claim}");
        assert_eq!(result["pool"], pod["spec"]["nodeName"], "{claim}");
    }
    delete(api, "extended");
}

/// KEP-6132: several pods use the claim that was generated for one of them, and the driver publishes its devices last.
/// The slices wake all of them.
fn pods_that_share_a_claim_run_when_the_slices_arrive(api: &Api) {
    let driver = "late.example.com";
    let spec =
        json!({"selectors": [{"cel": {"expression": format!("device.driver == {driver:?}")}}]});
    let class = object("DeviceClass", driver, &spec);
    api.send(&request::create(CLASSES, "", &class));
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": driver}}]);
    let spec = json!({"spec": {"devices": {"requests": requests}}});
    let template = object("ResourceClaimTemplate", "one-device", &spec);
    api.send(&request::create(TEMPLATES, "default", &template));
    let create = |name: &str, entry: Value| {
        api.send(&request::create(
            request::PODS,
            "default",
            &pod(name, &entry),
        ))
    };
    create(
        "owner",
        json!({"name": "gpus", "resourceClaimTemplateName": "one-device"}),
    );
    let claim = eventually("the claim is generated", || {
        let owner = api.pod("owner");
        let claim = &owner["status"]["resourceClaimStatuses"][0]["resourceClaimName"];
        claim.as_str().map(str::to_owned)
    });
    let names: Vec<String> = (0..5).map(|n| format!("sharer-{n}")).collect();
    for name in &names {
        create(name, json!({"name": "gpus", "resourceClaimName": claim}));
    }
    let all = || names.iter().map(String::as_str).chain(["owner"]);
    for name in all() {
        eventually("the pod has no node", || {
            let condition = scheduled(&api.pod(name));
            (condition["reason"] == "Unschedulable").then_some(())
        });
    }
    let pool = json!({"name": "late", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({
        "driver": driver, "pool": pool, "nodeName": "berth-node-1",
        "devices": [{"name": "only"}],
    });
    let slice = object("ResourceSlice", "late", &spec);
    api.send(&request::create(SLICES, "", &slice));
    for name in all() {
        assert_eq!(bound(api, name)["spec"]["nodeName"], "berth-node-1");
    }
    let claim = api.send(&request::get(CLAIMS, "default", &claim));
    let holders = claim["status"]["reservedFor"].as_array().map(Vec::len);
    assert_eq!(holders, Some(6), "{claim}");
}
