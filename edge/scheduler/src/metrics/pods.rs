//! `/metrics/resources`: the requests and limits of each pod.

use berth_api::requests::{self, SumOptions};
use berth_api::{Pod, Quantity};
use std::fmt::Write as _;
use std::sync::Arc;

const REQUEST: &str = "kube_pod_resource_request";
const LIMIT: &str = "kube_pod_resource_limit";

/// Writes the metrics of these pods in Prometheus' text format.
pub(crate) fn render(pods: &[Arc<Pod>]) -> String {
    let mut text = String::new();
    let requested = |pod: &Pod| {
        // The metric shows the requests of the spec, as in kube-scheduler.
        let options = SumOptions {
            use_status: false,
            ..SumOptions::PENDING
        };
        requests::pod_requests(pod, options)
    };
    for (name, what, amounts) in [
        (
            LIMIT,
            "Resources limit for",
            &requests::pod_limits as &dyn Fn(&Pod) -> _,
        ),
        (REQUEST, "Resources requested by", &requested),
    ] {
        let _ = writeln!(
            text,
            "# HELP {name} [STABLE] {what} workloads on the cluster, broken down by pod. This shows the resource usage \
             the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.\n\
             # TYPE {name} gauge"
        );
        for pod in pods {
            for (resource, quantity) in amounts(pod).iter() {
                // kube-scheduler leaves out resources of amount zero.
                if quantity.as_f64() == 0.0 {
                    continue;
                }
                line(&mut text, name, pod, resource, quantity);
            }
        }
    }
    text
}

fn line(text: &mut String, name: &str, pod: &Pod, resource: &str, quantity: &Quantity) {
    let priority = pod.spec.priority.map(|priority| priority.to_string());
    let _ = writeln!(
        text,
        "{name}{{namespace=\"{}\",node=\"{}\",pod=\"{}\",priority=\"{}\",resource=\"{resource}\",scheduler=\"{}\",\
         unit=\"{}\"}} {}",
        pod.namespace(),
        pod.spec.node_name,
        pod.name(),
        priority.as_deref().unwrap_or_default(),
        pod.spec.scheduler_name,
        unit(resource),
        quantity.as_f64(),
    );
}

/// The unit of a resource as kube-scheduler names it; empty when it has none.
fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_framework::testing::pod;

    #[test]
    fn pods_show_what_they_request_by_unit() {
        let pods = [
            pod("a")
                .request("cpu", "1500m")
                .request("memory", "1Gi")
                .request("example.com/gpu", "0")
                .on("n1")
                .priority(7),
            pod("b").request("hugepages-2Mi", "4Mi"),
        ];
        let pods: Vec<Arc<Pod>> = pods.map(|pod| Arc::new(pod.build())).into();
        let text = render(&pods);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "kube_pod_resource_request{namespace=\"default\",node=\"n1\",pod=\"a\",priority=\"7\",resource=\"cpu\",scheduler=\"default-scheduler\",unit=\"cores\"} 1.5",
                "kube_pod_resource_request{namespace=\"default\",node=\"n1\",pod=\"a\",priority=\"7\",resource=\"memory\",scheduler=\"default-scheduler\",unit=\"bytes\"} 1073741824",
                "kube_pod_resource_request{namespace=\"default\",node=\"\",pod=\"b\",priority=\"\",resource=\"hugepages-2Mi\",scheduler=\"default-scheduler\",unit=\"bytes\"} 4194304",
            ]
        );
    }
}
