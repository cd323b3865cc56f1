//! The rules that depend on a node alone, and the free resources and ports of a node.

use super::LogWorld;
use berth_api::{Node, Pod};
use berth_oracle::{SCHEDULING_EFFECTS, Shortage};
use std::sync::Arc;

/// The rule that is broken for every version of the node, with the details of the last version.
fn always(versions: &[Arc<Node>], broken_rule: impl Fn(&Node) -> Option<String>) -> Option<String> {
    let mut rule = None;
    for node in versions.iter().rev() {
        let broken = broken_rule(node)?;
        rule.get_or_insert(broken);
    }
    rule
}

/// The rule about labels and taints that is broken for every version of the node.
pub(super) fn broken_rule(pod: &Pod, versions: &[Arc<Node>]) -> Option<String> {
    let tolerations = &pod.spec.tolerations;
    always(versions, |node| {
        if !berth_oracle::has_selected_labels(pod, node) {
            return Some("the node selector does not match".to_owned());
        }
        if !berth_oracle::matches_affinity(pod, node) {
            return Some("the node affinity does not match".to_owned());
        }
        let mut taints = berth_oracle::untolerated(tolerations, node, SCHEDULING_EFFECTS);
        if let Some(taint) = taints.next() {
            return Some(format!("the taint {} is not tolerated", taint.key));
        }
        let is_barred = berth_oracle::is_barred_by_cordon(tolerations, node);
        is_barred.then(|| "the node is cordoned".to_owned())
    })
}

/// The resource or port that lacks capacity on the node in all of its versions.
pub(super) fn lacking(
    world: &LogWorld<'_>,
    pod: &Pod,
    name: &Arc<str>,
    versions: &[Arc<Node>],
) -> Option<String> {
    let used = world.requested_on(name);
    let requests = berth_oracle::requests(pod);
    let short = always(versions, |node| {
        // Resources that the node does not list are provided by devices.
        let is_of_node = |shortage: &Shortage| {
            let resource = &shortage.resource;
            node.status.allocatable.get(resource).is_some()
                || !world.surroundings.is_backed_by_devices(resource)
        };
        let mut short = berth_oracle::shortages(&requests, &used, node);
        short.find(is_of_node).map(|shortage| {
            let (resource, used) = (&shortage.resource, shortage.used.milli_value());
            let (wanted, most) = (
                shortage.requested.milli_value(),
                shortage.allocatable.milli_value(),
            );
            match resource.as_str() {
                "pods" => format!(
                    "the node has room for {} pods, and this is pod {}",
                    shortage.allocatable.value(),
                    (shortage.used + shortage.requested).value()
                ),
                _ => format!(
                    "{resource} is exceeded: {used}m are used and {wanted}m requested of {most}m"
                ),
            }
        })
    });
    short.or_else(|| {
        let wanted: Vec<_> = berth_oracle::host_ports(pod).collect();
        if wanted.is_empty() {
            return None;
        }
        let mut taken = world
            .pods_on(name)
            .flat_map(|other| berth_oracle::host_ports(&other.pod));
        let in_use = taken.find(|taken| wanted.iter().any(|port| port.conflicts_with(taken)))?;
        Some(format!("host port {} is in use", in_use.number))
    })
}
