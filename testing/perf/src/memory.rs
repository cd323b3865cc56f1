//! The memory of the core, per node and per bound pod.
//!
//! Objects are decoded from JSON with all fields that a kubelet and the controllers of a real cluster write, and are
//! passed to the core like the first list of a watch. The figure is the resident memory of the process as reported by
//! the operating system, including unused capacity of tables and the overhead of the allocator.

use crate::error::PerfError;
use crate::generate;
use crate::workload::Process;
use berth_api::{Kind, Object, Time};
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// The number of Deployments of the pods; each is a template of its own.
const DEPLOYMENTS: usize = 2_000;
/// Pods that are scheduled onto the full cluster, each of another Deployment.
const SCHEDULED: usize = 200;
/// Namespaces that the deployments are in.
const NAMESPACES: usize = 200;
/// Images that each node reports, of [`IMAGES_IN_ALL`].
const IMAGES_PER_NODE: usize = 25;
/// Images in the cluster.
const IMAGES_IN_ALL: usize = 400;

/// The measurement options.
#[derive(Debug, Clone, Args)]
pub struct MemoryPerfOptions {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub nodes: usize,
    /// Number of bound pods
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub pods: usize,
}

/// The resident memory, in bytes.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// Nodes.
    pub nodes: usize,
    /// Pods that are bound to them.
    pub pods: usize,
    /// Before the cluster is created.
    pub base: u64,
    /// With all nodes.
    pub with_nodes: u64,
    /// With all nodes and pods.
    pub with_pods: u64,
    /// The number of additional scheduled pods, each of another Deployment.
    pub scheduled: usize,
    /// With everything that the evaluator keeps after that.
    pub with_answers: u64,
    /// With all answers that the evaluator keeps after that.
    pub per_node: f64,
    /// Per bound pod, over the base and the nodes.
    pub per_pod: f64,
    /// Per bound pod, with the answers that the evaluator keeps.
    pub per_pod_with_answers: f64,
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebi = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "{:>10.1} MiB resident without a cluster",
            mebi(self.base)
        )?;
        writeln!(
            f,
            "{:>10.1} MiB with {} nodes: {:.0} bytes each",
            mebi(self.with_nodes),
            self.nodes,
            self.per_node
        )?;
        writeln!(
            f,
            "{:>10.1} MiB with {} bound pods: {:.0} bytes each",
            mebi(self.with_pods),
            self.pods,
            self.per_pod
        )?;
        writeln!(
            f,
            "{:>10.1} MiB after {} more pods were scheduled, each of another Deployment, with all kept answers: {:.0} \
             bytes for each bound pod",
            mebi(self.with_answers),
            self.scheduled,
            self.per_pod_with_answers
        )
    }
}

/// Fills a core with nodes and bound pods.
///
/// # Errors
/// When the operating system does not report the memory of the process.
pub fn run(options: &MemoryPerfOptions) -> Result<MemoryReport, PerfError> {
    let now = Time::from_secs(1_800_000_000);
    let mut scheduler = Scheduler::new(SchedulerOptions::default(), &berth_plugins::in_tree(), now)
        .map_err(|error| PerfError::Setup(error.to_string()))?;
    let templates = templates(options.pods);
    let mut apply = |object: Object| {
        scheduler.apply(ClusterChange::Applied(object), now);
        // No runner takes the outputs, so drop them.
        drop(scheduler.take_outputs(now));
    };
    namespaces().for_each(&mut apply);
    let base = resident()?;
    for index in 0..options.nodes {
        apply(node(index));
    }
    let with_nodes = resident()?;
    for index in 0..options.pods {
        apply(pod(
            &templates[index % templates.len()],
            index,
            options.nodes,
        ));
    }
    let with_pods = resident()?;
    let scheduled = SCHEDULED.min(options.pods);
    for (at, template) in templates.iter().take(scheduled).enumerate() {
        apply(pending(template, options.pods + at));
    }
    for at in 0..scheduled {
        let outcome = scheduler.schedule_one(now);
        drop(scheduler.take_outputs(now));
        let is_placed = matches!(
            outcome,
            ScheduleOutcome::Done {
                result: CycleResult::Placed { .. },
                ..
            }
        );
        if !is_placed {
            return Err(PerfError::Unscheduled(at + 1, scheduled));
        }
    }
    let with_answers = resident()?;
    let each =
        |more: u64, less: u64, count: usize| more.saturating_sub(less) as f64 / count.max(1) as f64;
    Ok(MemoryReport {
        nodes: options.nodes,
        pods: options.pods,
        base,
        with_nodes,
        with_pods,
        scheduled,
        with_answers,
        per_node: each(with_nodes, base, options.nodes),
        per_pod: each(with_pods, with_nodes, options.pods),
        per_pod_with_answers: each(with_answers, with_nodes, options.pods),
    })
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident() -> Result<u64, PerfError> {
    let usage = Process::runner().usage();
    usage
        .map(|usage| usage.resident_bytes)
        .ok_or(PerfError::NoProc)
}

fn namespace(at: usize) -> String {
    format!("department-{at}")
}

/// The namespaces of the pods.
pub(crate) fn namespaces() -> impl Iterator<Item = Object> {
    (0..NAMESPACES).map(|at| {
        let labels = json!({"department": format!("department-{}", at % 20)});
        generate::namespace(&namespace(at), labels)
    })
}

/// The templates of the Deployments of a number of pods, for [`pod`].
pub(crate) fn templates(pods: usize) -> Vec<String> {
    (0..DEPLOYMENTS.min(pods.max(1))).map(template).collect()
}

fn image(at: usize) -> Value {
    let name = format!("registry.example.com/platform/service-{at}");
    json!({
        "names": [format!("{name}@sha256:{at:064x}"), format!("{name}:v1.{at}.0")],
        "sizeBytes": 50_000_000 + at * 1_000,
    })
}

fn node(index: usize) -> Object {
    Object::Node(generate::node(index, |node| {
        node["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        node["metadata"]["annotations"] = json!({"node.alpha.kubernetes.io/ttl": "0"});
        node["spec"]["podCIDR"] = format!("10.{}.{}.0/24", index / 256 % 256, index % 256).into();
        node["spec"]["providerID"] = format!("cloud:///zone/instance-{index:016x}").into();
        let amounts = json!({
            "cpu": "15890m", "memory": "63586596Ki", "pods": "110", "ephemeral-storage": "95551679124",
            "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        });
        node["status"]["capacity"] = amounts.clone();
        node["status"]["allocatable"] = amounts;
        node["status"]["images"] = (0..IMAGES_PER_NODE)
            .map(|at| image((index * 7 + at * 13) % IMAGES_IN_ALL))
            .collect();
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
        node["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.36.0", "architecture": "amd64"});
    }))
}

/// The JSON of a running pod of a deployment; `@` marks the parts that differ between pods.
fn template(deployment: usize) -> String {
    let mut pod = generate::pod_json(0);
    let name = format!("service-{deployment}");
    let hash = format!("{:08x}", deployment.wrapping_mul(2_654_435_761) as u32);
    let amounts = json!({
        "cpu": format!("{}m", 10 + deployment % 90),
        "memory": format!("{}Mi", 32 + deployment % 400),
    });
    let metadata = &mut pod["metadata"];
    metadata["name"] = format!("{name}-{hash}-@name").into();
    metadata["generateName"] = format!("{name}-{hash}-").into();
    metadata["namespace"] = namespace(deployment % NAMESPACES).into();
    metadata["uid"] = "@uid".into();
    metadata["resourceVersion"] = "@version".into();
    metadata["labels"] = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/instance": name, "app.kubernetes.io/version": "1.2.3",
        "pod-template-hash": hash,
    });
    metadata["annotations"] = json!({
        "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
    });
    metadata["ownerReferences"][0]["name"] = format!("{name}-{hash}").into();
    metadata["ownerReferences"][0]["uid"] =
        format!("{deployment:08x}-4b1d-4c5e-9f00-000000000001").into();
    let spec = &mut pod["spec"];
    spec["nodeName"] = "@node".into();
    let container = &mut spec["containers"][0];
    container["image"] = format!("registry.example.com/platform/{name}:v1.{deployment}.0").into();
    container["resources"] = json!({"requests": amounts, "limits": amounts});
    container["env"] = json!([{"name": "SERVICE", "value": name}]);
    container["livenessProbe"] = json!({"httpGet": {"path": "/healthz", "port": 8080}});
    // The API server generates a new name for the token's volume of each pod.
    container["volumeMounts"][0]["name"] = "kube-api-access-@name".into();
    spec["volumes"][0]["name"] = "kube-api-access-@name".into();
    if deployment.is_multiple_of(2) {
        spec["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
                "topologyKey": "kubernetes.io/hostname",
            },
        }]}});
    } else {
        spec["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
        }]);
        spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    }
    let conditions: Value = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    .iter()
    .map(|kind| {
        json!({
            "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "@time",
            "observedGeneration": 1,
        })
    })
    .collect();
    pod["status"] = json!({
        "phase": "Running",
        "qosClass": "Guaranteed",
        "observedGeneration": 1,
        "hostIP": "10.1.2.3",
        "podIP": "10.4.5.6",
        "podIPs": [{"ip": "10.4.5.6"}],
        "startTime": "@time",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "main", "ready": true, "started": true, "restartCount": 0,
            "image": format!("registry.example.com/platform/{name}:v1.{deployment}.0"),
            "imageID": format!("registry.example.com/platform/{name}@sha256:{deployment:064x}"),
            "containerID": "containerd://@uid",
            "state": {"running": {"startedAt": "@time"}},
            "lastState": {},
            "allocatedResources": amounts,
            "resources": {"requests": amounts, "limits": amounts},
        }],
    });
    pod.to_string()
}

/// A new pod of a Deployment.
fn pending(template: &str, index: usize) -> Object {
    let mut pod: Value = serde_json::from_str(&filled(template, index, ""))
        .unwrap_or_else(|error| panic!("generated pod: {error}: {template}"));
    pod["status"] = json!({"phase": "Pending"});
    decoded(&pod.to_string())
}

/// A running pod of a Deployment.
pub(crate) fn pod(template: &str, index: usize, nodes: usize) -> Object {
    // Consecutive pods of one Deployment are placed on different nodes, as in a real cluster.
    let node = index.wrapping_mul(31) % nodes.max(1);
    decoded(&filled(template, index, &format!("node-{node}")))
}

/// A template, filled with the values of one pod.
fn filled(template: &str, index: usize, node: &str) -> String {
    template
        .replace("@name", &format!("{:05x}", index % 0x10_0000))
        .replace("@uid", &generate::uid(3, index))
        .replace("@version", &(500_000_000 + index).to_string())
        .replace("@node", node)
        .replace(
            "@time",
            &format!(
                "2026-01-{:02}T{:02}:{:02}:{:02}Z",
                index % 28 + 1,
                index % 24,
                index % 60,
                index / 7 % 60
            ),
        )
}

fn decoded(json: &str) -> Object {
    match Kind::Pod.decode(json.as_bytes()) {
        Ok(object) => object,
        Err(error) => panic!("generated pod: {error}: {json}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_the_fields_of_the_api() {
        let Object::Pod(pod) = pod(&template(1), 42, 10) else {
            panic!("a pod");
        };
        assert!(pod.is_assigned() && pod.condition("PodScheduled").is_some());
        assert_eq!(pod.spec.containers.len(), 1);
        assert_eq!(pod.status.container_statuses.len(), 1);
        assert!(pod.status.start_time.is_some());
    }
}
