//! The addresses behind services.

use super::api::Api;
use super::list::ListRequest;
use berth_objects::catalog::find;
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::view::FieldView;
use berth_objects::well_known;
use serde_json::Value;

/// The addresses behind a port of a service: its external name, or the ready endpoints of its EndpointSlices.
pub(crate) fn endpoints(
    api: &Api,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<Vec<(String, u16)>, String> {
    let missing = || format!("service {name:?} not found");
    let services = find("", "services").ok_or_else(missing)?;
    let service = api.get(services, namespace, name).map_err(|_| missing())?;
    let service = service.object();
    let spec = service.part("spec");
    if spec.text("type") == "ExternalName" {
        let port = u16::try_from(port).map_err(|e| e.to_string())?;
        return Ok(vec![(spec.text("externalName").to_owned(), port)]);
    }
    let mut ports = spec.items("ports").iter();
    let Some(port) = ports.find(|p| p.int("port") == port) else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let slices = find("discovery.k8s.io", "endpointslices").ok_or_else(missing)?;
    let of_service = serde_json::json!({"kubernetes.io/service-name": name});
    let of_service = ControllerSelector::of_labels(&of_service);
    let request = ListRequest {
        namespace: Some(namespace),
        ..ListRequest::default()
    };
    let listed = api.list(slices, &request).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    let mut is_simulated = false;
    for slice in &listed.items {
        let slice = slice.object();
        if !of_service.matches(slice.part("metadata").map("labels")) {
            continue;
        }
        let named = slice
            .items("ports")
            .iter()
            .find(|p| p.text("name") == port.text("name"));
        let number = named.and_then(|p| u16::try_from(p.int("port")).ok());
        for endpoint in slice.items("endpoints") {
            let is_ready = endpoint
                .part("conditions")
                .maybe_flag("ready")
                .unwrap_or(true);
            let address = endpoint.strings("addresses").first().copied();
            if let (true, Some(address), Some(number)) = (is_ready, address, number) {
                if is_on_simulated_node(api, endpoint) {
                    is_simulated = true
                } else {
                    found.push((address.to_owned(), number))
                }
            }
        }
    }
    if found.is_empty() {
        let why = if is_simulated {
            ": its pods are on simulated nodes, where no process listens"
        } else {
            ""
        };
        return Err(format!("no endpoints available for service {name:?}{why}"));
    }
    Ok(found)
}

/// Returns whether the pod of an endpoint is simulated. Its address does not exist, or another machine of the network
/// has it.
fn is_on_simulated_node(api: &Api, endpoint: &Value) -> bool {
    let node = endpoint.maybe_text("nodeName").unwrap_or("");
    let node = find("", "nodes").and_then(|nodes| api.get(nodes, "", node).ok());
    node.is_some_and(|node| well_known::is_simulated(&node.object()))
}
