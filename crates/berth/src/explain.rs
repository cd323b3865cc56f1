//! `berth explain`: asks a running scheduler why a pod is pending, why it is on its node, what a node has left, and
//! what the queue waits for.

use crate::cli::{ExplainArgs, ExplainOutput, Explained};
use crate::exit::Failure;
use crate::print::{self, program};
use crate::serve::is_loopback;
use berth_client::component::{self, Component, Find};
use berth_client::request::{self, PODS};
use berth_client::{ApiError, ConnectOptions, Transport, connect};
use berth_explain::answer::{Gate, NodeAnswer, PodAnswer, QueueAnswer};
use berth_explain::text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The address of a scheduler's HTTPS port on this machine, or of a forwarded one.
const DEFAULT_URL: &str = "https://127.0.0.1:10259";
/// The kubeconfig that `berth up` writes into its directory.
const KUBECONFIG_OF_UP: &str = "berth.kubeconfig";

/// How long the look-up of a pod's managed fields may take.
const MANAGED_FIELDS_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks and prints.
///
/// # Errors
/// When the scheduler cannot be reached, or does not know the object.
pub(crate) async fn run(args: ExplainArgs) -> Result<(), Failure> {
    let asking = Asking::connect(&args).await?;
    match &args.what {
        Explained::Pod { name } => {
            let namespace = match &args.namespace {
                Some(namespace) => namespace,
                None => &asking.component.namespace,
            };
            let (namespace, name) = in_namespace(namespace, name);
            let path = format!("/explain/pod/{namespace}/{name}");
            let mut answer = asking.ask::<PodAnswer>(&path).await?;
            asking.add_managers(&mut answer).await;
            show(&args, &answer, text::pod)
        }
        Explained::Node { name } => {
            let answer = asking
                .ask::<NodeAnswer>(&format!("/explain/node/{name}"))
                .await?;
            show(&args, &answer, text::node)
        }
        Explained::Queue => {
            let answer = asking.ask::<QueueAnswer>("/explain/queue").await?;
            show(&args, &answer, text::queue)
        }
    }
}

/// Namespace and name: `NAMESPACE/NAME` takes precedence over the option.
fn in_namespace<'a>(namespace: &'a str, name: &'a str) -> (&'a str, &'a str) {
    let name = name.strip_prefix("pod/").unwrap_or(name);
    name.split_once('/').unwrap_or((namespace, name))
}

fn show<T: Serialize>(
    args: &ExplainArgs,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let written = match args.output {
        ExplainOutput::Table => Ok(table(answer)),
        ExplainOutput::Json => serde_json::to_string_pretty(answer)
            .map(|json| json + "\n")
            .map_err(|e| e.to_string()),
        ExplainOutput::Yaml => serde_saphyr::to_string(answer).map_err(|e| e.to_string()),
    };
    let written =
        written.map_err(|e| Failure::Environment(format!("failed to write the answer: {e}")))?;
    print::text(written)
}

/// A scheduler that is asked.
struct Asking {
    transport: Transport,
    component: Component,
    agent: String,
}

impl Asking {
    async fn connect(args: &ExplainArgs) -> Result<Self, Failure> {
        let of_up = Path::new(KUBECONFIG_OF_UP);
        let component = component::find(&Find {
            url: args.server.as_deref(),
            kubeconfig: args.kubeconfig.as_deref(),
            fallback_kubeconfig: of_up.is_file().then_some(of_up),
            extension: crate::control_plane::SCHEDULER_EXTENSION,
            default_url: DEFAULT_URL,
        })
        .map_err(Failure::environment)?;
        let host = host_of(&component.url);
        if component.url.starts_with("https:")
            && !is_loopback(host)
            && !args.insecure_skip_tls_verify
        {
            return Err(Failure::Usage(format!(
                "--server {}: the certificate of a scheduler is its own and cannot be verified, so credentials are \
                 sent only to addresses on loopback; forward the port (kubectl -n kube-system port-forward \
                 deployment/berth-scheduler 10259), or give --insecure-skip-tls-verify",
                component.url
            )));
        }
        let agent = format!("berth-explain/{}", env!("CARGO_PKG_VERSION"));
        let transport = component::connect(&component, &agent)
            .await
            .map_err(Failure::environment)?;
        Ok(Self {
            transport,
            component,
            agent,
        })
    }

    /// Adds which field managers set the gates. The scheduler does not keep managed fields, so they are read from the
    /// API server, with the rights of the caller.
    async fn add_managers(&self, answer: &mut PodAnswer) {
        let has_gates = answer.gates.iter().any(|gate| gate.is_scheduling_gate);
        let Some(kubeconfig) = self.component.kubeconfig.clone().filter(|_| has_gates) else {
            return;
        };
        let options = ConnectOptions {
            kubeconfig: Some(kubeconfig),
            server: None,
            user_agent: self.agent.clone(),
        };
        let pod = async {
            let transport = connect(&options).await.map_err(|e| e.to_string())?;
            let request = request::get(PODS, &answer.namespace, &answer.name);
            let pod = transport.request::<Value>(&request).await;
            pod.map_err(|e| e.to_string())
        };
        match tokio::time::timeout(MANAGED_FIELDS_TIMEOUT, pod).await {
            Ok(Ok(pod)) => managers(&mut answer.gates, &pod),
            Ok(Err(error)) => {
                let text = format!("failed to read the managed fields of the pod: {error}");
                answer.notes.push(text);
            }
            Err(_) => {
                let text = "the API server did not return the pod's managed fields in time";
                answer.notes.push(text.to_owned());
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let url = &self.component.url;
        let answer = self.transport.request::<T>(&request::get_path(path)).await;
        answer.map_err(|error| match &error {
            ApiError::Status {
                code: 404, message, ..
            } => Failure::Usage(message.clone()),
            ApiError::Status {
                code: 401 | 403, ..
            } => Failure::Environment(format!(
                "the scheduler at {url} refused the request: {error}; it takes the right to get the \
                 nonResourceURL /explain/* (ClusterRole berth-explain-reader)"
            )),
            ApiError::Status { .. } | ApiError::Decode { .. } => {
                Failure::Environment(format!("the scheduler at {url} failed to answer: {error}"))
            }
            _ => Failure::Environment(format!(
                "failed to reach a scheduler at {url}: {error}; start one with {} up, forward the port of one \
                 (kubectl -n kube-system port-forward deployment/berth-scheduler 10259), or give its address with \
                 --server URL",
                program()
            )),
        })
    }
}

/// Finds the field managers of gates in the managed fields of a pod.
fn managers(gates: &mut [Gate], pod: &Value) {
    let entries = pod["metadata"]["managedFields"].as_array();
    let entries = entries.map_or(&[][..], Vec::as_slice);
    let manager = |entry: &Value| entry["manager"].as_str().unwrap_or_default().to_owned();
    for gate in gates.iter_mut().filter(|gate| gate.is_scheduling_gate) {
        let key = format!("k:{}", json!({ "name": gate.name }));
        let owns = |entry: &&Value| {
            let gates = &entry["fieldsV1"]["f:spec"]["f:schedulingGates"];
            gates.get(&key).is_some() || gates.as_object().is_some_and(serde_json::Map::is_empty)
        };
        gate.set_by = entries.iter().find(owns).map(manager);
        let mut others: Vec<String> = entries
            .iter()
            .filter(|entry| {
                let fields = &entry["fieldsV1"];
                fields.get("f:spec").is_some() || fields.get("f:metadata").is_some()
            })
            .map(manager)
            .filter(|name| Some(name) != gate.set_by.as_ref() && !name.is_empty())
            .collect();
        others.sort_unstable();
        others.dedup();
        gate.other_managers = others;
    }
}

/// The host and port of a URL.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_in_the_name_or_given_beside_it() {
        for (namespace, name, expected) in [
            ("default", "web-1", ("default", "web-1")),
            ("default", "shop/web-1", ("shop", "web-1")),
            ("shop", "pod/web-1", ("shop", "web-1")),
        ] {
            assert_eq!(in_namespace(namespace, name), expected, "{name}");
        }
    }

    fn gate(name: &str) -> Gate {
        Gate {
            name: name.to_owned(),
            is_scheduling_gate: true,
            ..Gate::default()
        }
    }

    #[test]
    fn the_manager_of_a_gate_is_the_one_whose_fields_have_it() {
        let pod = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}},
            {"manager": "quota-controller", "fieldsV1": {"f:spec": {
                "f:schedulingGates": {"k:{\"name\":\"example.com/quota\"}": {}}}}},
            {"manager": "berth", "subresource": "status", "fieldsV1": {"f:status": {}}},
        ]}});
        let mut gates = [gate("example.com/quota"), gate("example.com/other")];
        managers(&mut gates, &pod);
        assert_eq!(gates[0].set_by.as_deref(), Some("quota-controller"));
        assert_eq!(gates[0].other_managers, ["kubectl"]);
        assert_eq!(gates[1].set_by, None);
        assert_eq!(gates[1].other_managers, ["kubectl", "quota-controller"]);
    }

    #[test]
    fn the_host_of_a_url_has_its_port() {
        for (url, host) in [
            ("https://127.0.0.1:10259", "127.0.0.1:10259"),
            ("http://[::1]:1/x", "[::1]:1"),
            ("localhost:1", "localhost:1"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }
}
