//! The condition `Available` of an APIService with a service.

use super::{ServerState, discovery, proxy};
use crate::registry::endpoints::endpoints;
use crate::registry::{Api, ListRequest, Method, UpdateInputs, WriteOptions};
use berth_objects::catalog::find;
use berth_objects::selectors::workload::ControllerSelector;
use berth_objects::view::FieldView;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// The time limit of a request for the resources of a server.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The condition `Available` of an APIService.
struct Available {
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl Available {
    fn passed() -> Self {
        Self {
            is_true: true,
            reason: "Passed",
            message: "all checks passed".to_owned(),
        }
    }

    fn failed(reason: &'static str, message: String) -> Self {
        Self {
            is_true: false,
            reason,
            message,
        }
    }
}

/// Checks a server and writes the condition if it has changed.
pub(super) async fn check(state: &ServerState, service: &Value) {
    let condition = match obstacle(&state.api, service) {
        Some(obstacle) => {
            state.aggregation.note(service, None);
            obstacle
        }
        None if state.aggregation.is_fresh(service) => return,
        None => ask(state, service).await,
    };
    let name = service.part("metadata").text("name");
    if let Err(error) = write(&state.api, name, &condition) {
        tracing::debug!(name, %error, "failed to write the condition of an APIService, retrying in 5 s");
    }
}

/// The condition that prevents requests to the service, as far as objects show it.
fn obstacle(api: &Api, api_service: &Value) -> Option<Available> {
    let reference = api_service.part("spec").part("service");
    let (namespace, name) = (reference.text("namespace"), reference.text("name"));
    let is_false = |reason, message| Some(Available::failed(reason, message));
    let services = find("", "services")?;
    let Ok(service) = api.get(services, namespace, name) else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return is_false("ServiceNotFound", message);
    };
    let service = service.object();
    let spec = service.part("spec");
    // Services without a cluster IP are reached by another way, which objects do not show.
    if spec.text("type") != "ClusterIP" {
        return None;
    }
    let port = reference.maybe_int("port").unwrap_or(443);
    let mut ports = spec.items("ports").iter();
    let Some(found) = ports.find(|p| p.int("port") == port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return is_false("ServicePortError", message);
    };
    let slices = slices(api, namespace, name);
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return is_false("EndpointsNotFound", message);
    }
    let port_name = found.text("name");
    let is_available = |slice: &Value| {
        let is_ready = |e: &Value| {
            // An endpoint without the condition counts as ready, as in Kubernetes.
            let ready = e.part("conditions").maybe_flag("ready");
            ready.unwrap_or(true)
        };
        let has_port = |p: &Value| p.text("name") == port_name && p.field("port").is_some();
        slice.items("endpoints").iter().any(is_ready) && slice.items("ports").iter().any(has_port)
    };
    if !slices.iter().any(is_available) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return is_false("MissingEndpoints", message);
    }
    None
}

fn slices(api: &Api, namespace: &str, service: &str) -> Vec<Value> {
    let of_service = json!({"kubernetes.io/service-name": service});
    let of_service = ControllerSelector::of_labels(&of_service);
    let request = ListRequest {
        namespace: Some(namespace),
        ..ListRequest::default()
    };
    let slices = find("discovery.k8s.io", "endpointslices");
    let listed = slices.and_then(|r| api.list(r, &request).ok());
    let listed = listed.map(|l| l.items).unwrap_or_default();
    let objects = listed.iter().map(|v| Value::clone(&v.object()));
    objects
        .filter(|slice| of_service.matches(slice.part("metadata").map("labels")))
        .collect()
}

/// Asks a server for the resources of the group version.
async fn ask(state: &ServerState, service: &Value) -> Available {
    let spec = service.part("spec");
    let path = format!("/apis/{}/{}", spec.text("group"), spec.text("version"));
    let endpoint = match state
        .aggregation
        .target(service)
        .endpoint(&|namespace, name, port| endpoints(&state.api, namespace, name, port))
    {
        Ok(endpoint) => endpoint,
        Err(error) => {
            // Without an answer the resources of the server are unknown, so discovery leaves them out.
            state.aggregation.note(service, None);
            return Available::failed("FailedDiscoveryCheck", error);
        }
    };
    let url = format!("https://{}{path}", endpoint.authority());
    // A server that does not answer must not delay the check of the others.
    let answer = timeout(ANSWER_MAX, proxy::get(&endpoint, &path)).await;
    let answer = answer.unwrap_or_else(|_| {
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        Err(late.to_owned())
    });
    let failed = match answer {
        Ok((code, body)) if (200..300).contains(&code) => {
            let list: Value = serde_json::from_slice(&body).unwrap_or_default();
            let resources = discovery::aggregated_resources(&list);
            state.aggregation.note(service, Some(resources));
            return Available::passed();
        }
        Ok((code, _)) => format!("bad status from {url}: {code}"),
        Err(error) => format!("Get {url:?}: {error}"),
    };
    state.aggregation.note(service, None);
    let message = format!("failing or missing response from {url}: {failed}");
    Available::failed("FailedDiscoveryCheck", message)
}

fn write(
    api: &Api,
    name: &str,
    available: &Available,
) -> Result<(), berth_objects::status::ApiError> {
    let Some(resource) = find("apiregistration.k8s.io", "apiservices") else {
        return Ok(());
    };
    let options = WriteOptions {
        manager: "kube-apiserver".to_owned(),
        ..WriteOptions::default()
    };
    let change = UpdateInputs {
        resource,
        namespace: "",
        name,
        sub: "status",
        options: &options,
        by: Method::Put,
        is_decoded: false,
    };
    let now = api.now_text();
    let status = if available.is_true { "True" } else { "False" };
    api.update(&change, |current| {
        let mut new = current.clone();
        let mut condition = json!({
            "type": "Available", "status": status, "lastTransitionTime": now,
            "reason": available.reason, "message": available.message,
        });
        let mut conditions = current.part("status").items("conditions").to_vec();
        match conditions
            .iter_mut()
            .find(|c| c.text("type") == "Available")
        {
            Some(old) => {
                // The time of the last change of the status, not of the last check.
                if old.text("status") == status {
                    condition["lastTransitionTime"] = old["lastTransitionTime"].take();
                }
                *old = condition;
            }
            None => conditions.push(condition),
        }
        new["status"]["conditions"] = conditions.into();
        Ok(new)
    })?;
    Ok(())
}
