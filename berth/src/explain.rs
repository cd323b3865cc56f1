//! `berth explain`: asks a running scheduler why a pod or a group of pods is pending, why a pod is on its node, which
//! resources of a node are free, and why pods wait in the queue.

mod leases;

use crate::cli::{ExplainArgs, ExplainOutput, Explained, SchedulerPortArgs};
use berth_client::component::{self, Component, Find};
use berth_client::request::{self, PODS, Resource};
use berth_client::{ApiError, Transport, connect};
use berth_edge::discovery::user_agent;
use berth_edge::exit::CommandFailure;
use berth_edge::loopback::is_loopback;
use berth_edge::print::{self, program};
use berth_explain::answer::when::WhenAnswer;
use berth_explain::answer::{Gate, GateEvent, GroupAnswer, NodeAnswer, PodAnswer, QueueAnswer};
use berth_explain::spread::SpreadAnswer;
use berth_explain::text;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_transcode::Transcoder;
use std::collections::BTreeMap;
use std::time::Duration;

/// The address of a scheduler's HTTPS port on this machine, or of a forwarded port.
const DEFAULT_URL: &str = "https://127.0.0.1:10259";

const WEBHOOKS: Resource = Resource {
    group: "admissionregistration.k8s.io",
    version: "v1",
    plural: "mutatingwebhookconfigurations",
};

/// The time that the look-up of a pod's managed fields and events may take.
const MANAGERS_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of events that about a pod are read.
const EVENTS_READ_MAX: u32 = 500;
/// The maximum number of listed events for a gate; the latest are listed.
const EVENTS_LISTED_MAX: usize = 5;

/// Asks and prints.
///
/// # Errors
/// When the scheduler cannot be reached, or does not know the object.
pub(crate) async fn run(args: ExplainArgs) -> Result<(), CommandFailure> {
    let asking = AskedScheduler::connect(&args.port, "explain").await?;
    match &args.what {
        Explained::Pod { name, when: true } => {
            let (namespace, name) = in_namespace(asking.namespace(&args), name);
            let path = format!("/explain/pod/{namespace}/{name}/when");
            let answer = asking.ask::<WhenAnswer>(&path).await?;
            show(&args, &answer, text::when)
        }
        Explained::Pod { name, when: false } => {
            let (namespace, name) = in_namespace(asking.namespace(&args), name);
            let path = format!("/explain/pod/{namespace}/{name}");
            let mut answer = asking.ask::<PodAnswer>(&path).await?;
            asking.add_managers(&mut answer).await;
            show(&args, &answer, text::pod)
        }
        Explained::Podgroup { name } => asking.explain_group(&args, "podgroup", name).await,
        Explained::Compositepodgroup { name } => {
            let kind = "compositepodgroup";
            asking.explain_group(&args, kind, name).await
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
        Explained::Spread => {
            let answer = asking.ask::<SpreadAnswer>("/explain/spread").await?;
            show(&args, &answer, text::spread)
        }
    }
}

/// Namespace and name: `NAMESPACE/NAME` takes precedence over the option.
fn in_namespace<'a>(namespace: &'a str, name: &'a str) -> (&'a str, &'a str) {
    let kinds = ["pod/", "podgroup/", "compositepodgroup/"];
    let stripped = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    let name = stripped.unwrap_or(name);
    name.split_once('/').unwrap_or((namespace, name))
}

fn show<T: Serialize>(
    args: &ExplainArgs,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), CommandFailure> {
    // The types of answers are compiled for one format; the other formats are derived from it.
    let json = || serde_json::to_vec(answer).map_err(|e| e.to_string());
    let written = match args.output {
        ExplainOutput::Table => Ok(table(answer)),
        ExplainOutput::Json => json().and_then(|json| indented(&json)),
        ExplainOutput::Yaml => json().and_then(|json| yaml(&json)),
    };
    let written = written
        .map_err(|e| CommandFailure::Environment(format!("failed to write the answer: {e}")))?;
    print::text(written)
}

/// JSON with line breaks.
fn indented(json: &[u8]) -> Result<String, String> {
    let mut json = serde_json::Deserializer::from_slice(json);
    let indented = serde_json::to_string_pretty(&Transcoder::new(&mut json));
    indented.map(|json| json + "\n").map_err(|e| e.to_string())
}

fn yaml(json: &[u8]) -> Result<String, String> {
    let mut json = serde_json::Deserializer::from_slice(json);
    serde_saphyr::to_string(&Transcoder::new(&mut json)).map_err(|e| e.to_string())
}

/// The explained scheduler.
pub(crate) struct AskedScheduler {
    transport: Transport,
    component: Component,
    agent: String,
}

impl AskedScheduler {
    /// A scheduler that is found as the options ask for. `command` is the command that asks.
    pub(crate) async fn connect(
        args: &SchedulerPortArgs,
        command: &str,
    ) -> Result<Self, CommandFailure> {
        let component = component::find(&Find {
            url: args.server.as_deref(),
            kubeconfig: args.kubeconfig.choice(),
            extension: berth_embedded::control_plane::SCHEDULER_EXTENSION,
            default_url: DEFAULT_URL,
        })
        .map_err(CommandFailure::environment)?;
        let host = host_of(&component.url);
        // Without a verified certificate, the credentials could reach another server.
        if component.url.starts_with("https:")
            && !is_loopback(host)
            && !args.insecure_skip_tls_verify
        {
            return Err(CommandFailure::Usage(format!(
                "--server {}: the certificate of a scheduler is its own and cannot be verified, so credentials are \
                 sent only to addresses on loopback; forward the port (kubectl -n kube-system port-forward \
                 deployment/berth-scheduler 10259), or give --insecure-skip-tls-verify",
                component.url
            )));
        }
        let agent = user_agent(command);
        let transport = component::connect(&component, &agent)
            .await
            .map_err(CommandFailure::environment)?;
        Ok(Self {
            transport: transport.asking_once(),
            component,
            agent,
        })
    }

    /// The namespace of the explained object, unless its name contains one.
    fn namespace<'a>(&'a self, args: &'a ExplainArgs) -> &'a str {
        let given = args.namespace.as_deref();
        given.unwrap_or(&self.component.namespace)
    }

    async fn explain_group(
        &self,
        args: &ExplainArgs,
        kind: &str,
        name: &str,
    ) -> Result<(), CommandFailure> {
        let (namespace, name) = in_namespace(self.namespace(args), name);
        let path = format!("/explain/{kind}/{namespace}/{name}");
        let answer = self.ask::<GroupAnswer>(&path).await?;
        show(args, &answer, text::group)
    }

    /// Adds the field managers that set the gates, and the reports of other components about the pod. The scheduler
    /// keeps neither, so they are read from the API server, with the permissions of the caller.
    async fn add_managers(&self, answer: &mut PodAnswer) {
        let has_gates = answer.gates.iter().any(|gate| gate.is_scheduling_gate);
        let Some(kubeconfig) = self.component.kubeconfig.clone().filter(|_| has_gates) else {
            return;
        };
        let options = kubeconfig.connect_options(self.agent.clone());
        let read = async {
            let transport = connect(&options).await?.asking_once();
            let pod = request::get(PODS, &answer.namespace, &answer.name);
            let pod = transport.request::<Value>(&pod).await;
            let removed = removed_by(&transport, &answer.gates).await;
            let webhooks = webhooks_of_pods(&transport).await;
            let events = request::events_about(&answer.namespace, &answer.uid, EVENTS_READ_MAX);
            let events = transport.request::<Value>(&events).await;
            let leases = leases::list(&transport).await;
            Ok::<_, berth_client::ConnectError>((pod, events, removed, webhooks, leases))
        };
        let (pod, events, removed, webhooks, leases) = match tokio::time::timeout(
            MANAGERS_TIMEOUT,
            read,
        )
        .await
        {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                let text = format!("the managers of the gates are not known: {error}");
                answer.notes.push(text);
                return;
            }
            Err(_) => {
                let text = "the managers of the gates are not known: the API server did not answer \
                            in time";
                answer.notes.push(text.to_owned());
                return;
            }
        };
        for gate in answer
            .gates
            .iter_mut()
            .filter(|gate| gate.is_scheduling_gate)
        {
            gate.removed_by = removed.get(&gate.name).cloned();
            gate.webhooks.clone_from(&webhooks);
        }
        match pod {
            Ok(pod) => managers(&mut answer.gates, &pod),
            Err(error) => {
                let text = format!("failed to read the managed fields of the pod: {error}");
                answer.notes.push(text);
            }
        }
        match events {
            Ok(events) => add_events(&mut answer.gates, &events, &answer.scheduler_name),
            Err(error) => {
                let text = format!("failed to read the events about the pod: {error}");
                answer.notes.push(text);
            }
        }
        let gates = answer.gates.iter_mut();
        for gate in gates.filter(|gate| gate.is_scheduling_gate) {
            leases::add_expired(gate, &leases, Timestamp::now());
        }
    }

    /// The kubeconfig that names the scheduler, for messages.
    fn source(&self) -> String {
        let kubeconfig = self.component.kubeconfig.as_ref();
        kubeconfig.map_or_else(String::new, |choice| {
            format!(" (kubeconfig {})", choice.described())
        })
    }

    /// The answer at a path of the port.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandFailure> {
        let url = &self.component.url;
        let answer = self.transport.request::<T>(&request::get_path(path)).await;
        answer.map_err(|error| match &error {
            ApiError::Status {
                code: 404, message, ..
            } => CommandFailure::Usage(message.clone()),
            ApiError::Status {
                code: 401 | 403, ..
            } => CommandFailure::Environment(format!(
                "the scheduler at {url} refused the request: {error}; it takes the right to get the \
                 nonResourceURL {path} (ClusterRole berth-explain-reader)"
            )),
            ApiError::Status { .. } | ApiError::Decode { .. } => {
                CommandFailure::Environment(format!("the scheduler at {url} failed to answer: {error}"))
            }
            _ => CommandFailure::Environment(format!(
                "failed to reach a scheduler at {url}{}: {error}; start one with {} up, forward the port of one \
                 (kubectl -n kube-system port-forward deployment/berth-scheduler 10259), or give its address with \
                 --server URL",
                self.source(),
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

/// Adds the events of components other than the scheduler about the pod, the latest first. Events that name a gate are
/// listed for that gate, other events for every gate that no event names.
fn add_events(gates: &mut [Gate], list: &Value, scheduler: &str) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let first = |event: &Value, pointers: &[&str]| {
        let texts = pointers.iter().filter_map(|at| event.pointer(at)?.as_str());
        let mut texts = texts.filter(|text| !text.is_empty());
        texts.next().unwrap_or_default().to_owned()
    };
    let items = list["items"].as_array();
    let mut events: Vec<GateEvent> = items
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(|event| GateEvent {
            component: first(event, &["/reportingComponent", "/source/component"]),
            reason: text(&event["reason"]),
            // Events that Kubernetes wrote in different versions have their times in different fields.
            message: text(&event["message"]),
            at: first(
                event,
                &[
                    "/series/lastObservedTime",
                    "/lastTimestamp",
                    "/eventTime",
                    "/metadata/creationTimestamp",
                ],
            ),
        })
        .filter(|event| event.component != scheduler)
        .collect();
    events.sort_by(|a, b| b.at.cmp(&a.at));
    let names = |event: &GateEvent, gate: &str| {
        event.message.contains(gate) || event.reason.contains(gate) || event.component == gate
    };
    let all: Vec<String> = gates.iter().map(|gate| gate.name.clone()).collect();
    for gate in gates.iter_mut().filter(|gate| gate.is_scheduling_gate) {
        let about = events.iter().filter(|event| names(event, &gate.name));
        gate.events = about.take(EVENTS_LISTED_MAX).cloned().collect();
        // Without an event about the gate, a general event may refer to it.
        if gate.events.is_empty() {
            let others = events
                .iter()
                .filter(|event| !all.iter().any(|gate| names(event, gate)));
            gate.events = others.take(EVENTS_LISTED_MAX).cloned().collect();
        }
    }
}

/// The field manager that removed each gate from another pod, if such a pod exists.
async fn removed_by(transport: &Transport, gates: &[Gate]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for gate in gates {
        let recent = gate.usage.iter().flat_map(|usage| &usage.recent);
        for pod in recent {
            let (namespace, name) = pod.split_once('/').unwrap_or_default();
            let question = request::get(PODS, namespace, name);
            let read = transport.request::<Value>(&question).await;
            let manager = read.ok().as_ref().and_then(last_manager);
            if let Some(manager) = manager {
                found.insert(gate.name.clone(), manager);
                break;
            }
        }
    }
    found
}

/// The field manager that wrote a pod last, its status aside.
fn last_manager(pod: &Value) -> Option<String> {
    let entries = pod["metadata"]["managedFields"].as_array()?;
    let of_pod = entries.iter().filter(|entry| {
        let subresource = entry["subresource"].as_str();
        subresource.is_none_or(str::is_empty)
    });
    let last = of_pod.max_by_key(|entry| entry["time"].as_str().unwrap_or_default())?;
    last["manager"].as_str().map(str::to_owned)
}

/// The names of the mutating webhooks that are called for new pods. Without the right to list them, none.
async fn webhooks_of_pods(transport: &Transport) -> Vec<String> {
    let question = request::list(WEBHOOKS, "", EVENTS_READ_MAX, "");
    let listed = transport.request::<Value>(&question).await;
    listed.map_or_else(|_| Vec::new(), |list| names_for_pods(&list))
}

fn names_for_pods(list: &Value) -> Vec<String> {
    let has = |value: &Value, wanted: &str| {
        let entries = value.as_array().into_iter().flatten();
        entries
            .into_iter()
            .any(|entry| entry == wanted || entry == "*")
    };
    let configurations = list["items"].as_array().into_iter().flatten();
    let webhooks = configurations.flat_map(|c| c["webhooks"].as_array().into_iter().flatten());
    let of_pods = webhooks.filter(|webhook| {
        let mut rules = webhook["rules"].as_array().into_iter().flatten();
        rules.any(|rule| has(&rule["resources"], "pods") && has(&rule["operations"], "CREATE"))
    });
    of_pods
        .filter_map(|webhook| webhook["name"].as_str().map(str::to_owned))
        .collect()
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
            ("shop", "podgroup/train", ("shop", "train")),
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
    fn the_remover_wrote_the_pod_last() {
        let pod = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "time": "2026-01-01T00:00:00Z"},
            {"manager": "quota-controller", "time": "2026-01-01T00:00:07Z"},
            {"manager": "kubelet", "subresource": "status", "time": "2026-01-01T00:00:09Z"},
        ]}});
        assert_eq!(last_manager(&pod).as_deref(), Some("quota-controller"));
        assert_eq!(last_manager(&json!({})), None);
        let webhook = |name: &str, resource: &str| {
            json!({"webhooks": [{"name": name,
            "rules": [{"operations": ["CREATE"], "resources": [resource]}]}]})
        };
        let list =
            json!({"items": [webhook("quota.example.com", "pods"), webhook("other", "jobs")]});
        assert_eq!(names_for_pods(&list), ["quota.example.com"]);
    }

    #[test]
    fn events_are_listed_for_the_gate_that_they_name() {
        let event = |component: &str, message: &str, at: &str| json!({"reportingComponent": component, "reason": "R", "message": message, "eventTime": at});
        let events = json!({"items": [
            event("quota-controller", "example.com/quota: waits for 3 CPU", "2026-01-01T00:00:01Z"),
            event("quota-controller", "example.com/quota: waits for 2 CPU", "2026-01-01T00:00:02Z"),
            event("default-scheduler", "gated by example.com/quota", "2026-01-01T00:00:03Z"),
            {"source": {"component": "autoscaler"}, "reason": "R", "message": "no change",
             "eventTime": null, "lastTimestamp": "2026-01-01T00:00:00Z"},
        ]});
        let mut gates = [gate("example.com/quota"), gate("example.com/other")];
        add_events(&mut gates, &events, "default-scheduler");
        let listed = |gate: &Gate| {
            let events = gate.events.iter();
            let listed = events.map(|event| format!("{} {}", event.component, event.message));
            listed.collect::<Vec<_>>()
        };
        assert_eq!(
            listed(&gates[0]),
            [
                "quota-controller example.com/quota: waits for 2 CPU",
                "quota-controller example.com/quota: waits for 3 CPU"
            ]
        );
        assert_eq!(listed(&gates[1]), ["autoscaler no change"]);
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
