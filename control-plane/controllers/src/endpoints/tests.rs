//! The endpoint controllers against an API: the slices and Endpoints that users see.

use super::*;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually};
use berth_objects::access::{Access, DeleteOptions};
use std::sync::Arc;

fn service(spec: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": "web", "namespace": "n", "labels": {"team": "a"}},
        "spec": {"selector": {"app": "web"}, "ipFamilies": ["IPv4"], "ports": [
            {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
        ]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn pod(name: &str, ip: &str, port: u32, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "n", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "ports": [
            {"name": "http", "containerPort": port, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIPs": [{"ip": ip}],
                   "conditions": [{"type": "Ready", "status": status}]},
    })
}

fn start(api: &Arc<Fake>) -> Handle {
    let mut handle = Handle::new();
    handle.start(Slices, api.clone(), api.clock());
    handle.start(Legacy, api.clone(), api.clock());
    handle
}

fn slices(api: &Fake) -> Vec<StoredObject> {
    api.list(ENDPOINT_SLICE.resource, None)
}

/// The addresses of all slices that are ready, in order.
fn ready(api: &Fake) -> Vec<String> {
    let mut ready: Vec<String> = slices(api)
        .iter()
        .flat_map(|slice| items(&slice["endpoints"]).to_vec())
        .filter(|e| e["conditions"]["ready"] == true)
        .map(|e| e["addresses"][0].as_str().unwrap_or_default().to_owned())
        .collect();
    ready.sort();
    ready
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_service_are_its_endpoints() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(SERVICE.resource, service(json!({}))).unwrap();
    eventually("a slice without endpoints", || slices(&api).len() == 1).await;
    api.create(POD.resource, pod("a", "10.0.0.1", 8080, true))
        .unwrap();
    api.create(POD.resource, pod("b", "10.0.0.2", 8080, false))
        .unwrap();
    eventually("one is ready", || ready(&api) == ["10.0.0.1"]).await;
    let endpoints = || api.get(ENDPOINTS.resource, "n", "web");
    eventually("both are in Endpoints", || {
        endpoints().is_ok_and(|e| {
            let subset = &e["subsets"][0];
            subset["addresses"][0]["ip"] == "10.0.0.1"
                && subset["notReadyAddresses"][0]["ip"] == "10.0.0.2"
                && subset["ports"][0]["port"] == 8080
        })
    })
    .await;
    let all = slices(&api);
    let slice = all.iter().find(|s| !items(&s["endpoints"]).is_empty());
    let slice = slice.unwrap();
    assert_eq!(slice["metadata"]["labels"][SERVICE_NAME], "web");
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    assert_eq!(slice["ports"][0]["port"], 8080);
    assert_eq!(slice["endpoints"][0]["targetRef"]["name"], "a");
    api.edit_status(POD.resource, ("n", "b"), |pod| {
        pod["status"]["conditions"][0]["status"] = "True".into();
    });
    eventually("both are ready", || ready(&api).len() == 2).await;
    api.edit(POD.resource, ("n", "a"), |pod| {
        pod["metadata"]["labels"] = json!({});
    });
    eventually("one is left", || ready(&api) == ["10.0.0.2"]).await;
    // Pods with other ports are in a separate slice.
    api.create(POD.resource, pod("c", "10.0.0.3", 9090, true))
        .unwrap();
    eventually("two slices", || {
        ready(&api).len() == 2
            && slices(&api)
                .iter()
                .any(|s| s["ports"][0]["port"] == 9090 && items(&s["endpoints"]).len() == 1)
    })
    .await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_are_bounded_and_endpoints_stay_where_they_are() {
    let api = Fake::new();
    let handle = start(&api);
    let numbers = service(json!({"ports": [{"port": 80, "protocol": "TCP"}]}));
    api.create(SERVICE.resource, numbers).unwrap();
    for i in 0..250 {
        let name = format!("p{i:03}");
        api.create(POD.resource, pod(&name, &format!("10.0.1.{i}"), 1, true))
            .unwrap();
    }
    eventually("all are endpoints", || ready(&api).len() == 250).await;
    let sizes = |api: &Fake| -> Vec<usize> {
        let all = slices(api);
        all.iter().map(|s| items(&s["endpoints"]).len()).collect()
    };
    assert!(sizes(&api).iter().all(|n| *n <= ENDPOINTS_MAX));
    let before = slices(&api);
    api.delete(POD.resource, "n", "p000", &DeleteOptions::default())
        .unwrap();
    eventually("one is gone", || ready(&api).len() == 249).await;
    let after = slices(&api);
    let same = after.iter().filter(|s| before.contains(s)).count();
    assert_eq!(same, after.len() - 1, "one slice changes");
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_has_slices_of_its_address_families_only() {
    let api = Fake::new();
    let handle = start(&api);
    let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
    api.create(SERVICE.resource, service(both)).unwrap();
    let families = || -> Vec<String> {
        let all = slices(&api);
        let mut families: Vec<String> = all.iter().map(|s| s["addressType"].to_string()).collect();
        families.sort();
        families
    };
    eventually("both families", || families().len() == 2).await;
    api.edit(SERVICE.resource, ("n", "web"), |s| {
        s["spec"]["ipFamilies"] = json!(["IPv6"])
    });
    eventually("one family", || families() == ["\"IPv6\""]).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_has_the_zone_that_its_node_has_now() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(SERVICE.resource, service(json!({}))).unwrap();
    api.create(POD.resource, pod("a", "10.0.0.1", 8080, true))
        .unwrap();
    eventually("it is an endpoint", || ready(&api) == ["10.0.0.1"]).await;
    let zone = || {
        let all = slices(&api);
        let mut endpoints = all.iter().flat_map(|s| items(&s["endpoints"]));
        endpoints.next().map(|e| e["zone"].clone())
    };
    let node = json!({"metadata": {"name": "node-1", "labels": {ZONE: "a"}}});
    api.create(NODE.resource, node).unwrap();
    eventually("the zone of the new node", || zone() == Some(json!("a"))).await;
    api.edit(NODE.resource, ("", "node-1"), |node| {
        node["metadata"]["labels"][ZONE] = "b".into()
    });
    eventually("the other zone", || zone() == Some(json!("b"))).await;
    handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn services_without_a_selector_are_left_alone() {
    let api = Fake::new();
    let handle = start(&api);
    api.create(SERVICE.resource, service(json!({"selector": null})))
        .unwrap();
    crate::testing::pass(5.0).await;
    assert!(slices(&api).is_empty());
    assert!(api.get(ENDPOINTS.resource, "n", "web").is_err());
    handle.stop().await;
}
