//! Whether a pod may run on a node: the rules as the simulated world means them, worked out anew for every question.
//!
//! **Architecture invariant:** nothing here is shared with what is judged, except the types of `berth-api`.

use crate::shapes::{APP, HOSTNAME};
use berth_api::taint::{TaintEffect, TolerationOperator};
use berth_api::{Node, Pod, Str, Taint};
use std::collections::{BTreeMap, BTreeSet};

/// Why a pod may not run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forbids {
    /// There is not enough of this resource or port.
    Lacks(String),
    /// A rule about where the pod may run.
    Rule(&'static str),
}

/// Whether `pod` may run on `node` beside `neighbours`, which are other pods that are there and have not ended.
pub(crate) fn forbids(pod: &Pod, node: &Node, neighbours: &[&Pod]) -> Option<Forbids> {
    broken_rule(pod, node, neighbours)
        .map(Forbids::Rule)
        .or_else(|| lacking(pod, node, neighbours).map(Forbids::Lacks))
}

fn broken_rule(pod: &Pod, node: &Node, neighbours: &[&Pod]) -> Option<&'static str> {
    if node.spec.taints.iter().any(|taint| keeps_off(taint, pod)) {
        return Some("a taint is not tolerated");
    }
    let cordon = Taint::new(
        "node.kubernetes.io/unschedulable",
        "",
        TaintEffect::NoSchedule,
    );
    if node.spec.unschedulable && keeps_off(&cordon, pod) {
        return Some("the node is cordoned");
    }
    if let Some(selector) = &pod.spec.node_selector
        && selector
            .iter()
            .any(|(key, value)| node.labels().get(key) != Some(value.as_str()))
    {
        return Some("the node selector does not match");
    }
    if !matches_affinity(pod, node) {
        return Some("the node affinity does not match");
    }
    // Every node has a host name of its own, so a domain is a node.
    if node.labels().contains_key(HOSTNAME)
        && neighbours
            .iter()
            .any(|other| keeps_apart(pod, other) || keeps_apart(other, pod))
    {
        return Some("a pod that it must be apart from is there");
    }
    None
}

fn keeps_off(taint: &Taint, pod: &Pod) -> bool {
    let acts = matches!(
        taint.effect,
        TaintEffect::NoSchedule | TaintEffect::NoExecute
    );
    acts && !pod.spec.tolerations.iter().any(|toleration| {
        (toleration.key.is_empty() || toleration.key == taint.key)
            && (toleration.effect == TaintEffect::Unset || toleration.effect == taint.effect)
            && match toleration.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => toleration.value == taint.value,
                _ => false,
            }
    })
}

/// Required terms are alternatives; the requirements of a term must all be met. The world uses `In` and `NotIn` on
/// labels.
fn matches_affinity(pod: &Pod, node: &Node) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    let required = affinity
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required.as_ref());
    required.is_none_or(|required| {
        required.node_selector_terms.iter().any(|term| {
            term.match_expressions.iter().all(|requirement| {
                let value = node.labels().get(&requirement.key);
                let listed = value.is_some_and(|v| requirement.values.iter().any(|w| *w == v));
                listed == (requirement.operator == "In")
            })
        })
    })
}

/// Whether `pod` shares no node with pods like `other`.
fn keeps_apart(pod: &Pod, other: &Pod) -> bool {
    let affinity = pod.spec.affinity.as_ref();
    let apart = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    apart.into_iter().flat_map(|a| &a.required).any(|term| {
        let wanted = term
            .label_selector
            .as_ref()
            .and_then(|s| s.match_labels.get(APP));
        wanted.is_some() && other.labels().get(APP) == wanted
    })
}

fn lacking(pod: &Pod, node: &Node, neighbours: &[&Pod]) -> Option<String> {
    let offers = |resource: &str| {
        node.status
            .allocatable
            .get(resource)
            .map_or(0, |quantity| quantity.milli_value())
    };
    if (neighbours.len() as i64 + 1) * 1000 > offers("pods") {
        return Some("pods".to_owned());
    }
    let mut used: BTreeMap<Str, i64> = BTreeMap::new();
    for other in neighbours {
        for (resource, amount) in requested(other) {
            *used.entry(resource).or_default() += amount;
        }
    }
    for (resource, amount) in requested(pod) {
        let taken = used.get(&resource).copied().unwrap_or(0);
        if amount > 0 && taken + amount > offers(&resource) {
            return Some(resource.to_string());
        }
    }
    let taken: BTreeSet<Port> = neighbours.iter().flat_map(|other| ports(other)).collect();
    let clash = |port: &Port| {
        taken.iter().any(|other| {
            let (same_port, any) = (port.1 == other.1 && port.2 == other.2, "0.0.0.0");
            same_port && (port.0 == other.0 || port.0 == any || other.0 == any)
        })
    };
    let clash = ports(pod).into_iter().find(clash);
    clash.map(|(_, _, port)| format!("host port {port}"))
}

/// In thousandths: containers run together, init containers one after another before them.
fn requested(pod: &Pod) -> BTreeMap<Str, i64> {
    let mut sum: BTreeMap<Str, i64> = BTreeMap::new();
    for container in &pod.spec.containers {
        for (resource, quantity) in container.resources.requests.iter() {
            *sum.entry(resource.clone()).or_default() += quantity.milli_value();
        }
    }
    for container in &pod.spec.init_containers {
        for (resource, quantity) in container.resources.requests.iter() {
            let most = sum.entry(resource.clone()).or_default();
            *most = (*most).max(quantity.milli_value());
        }
    }
    sum
}

/// Address, protocol, number.
type Port = (Str, Str, i32);

fn ports(pod: &Pod) -> Vec<Port> {
    let or = |text: &Str, default: &str| {
        if text.is_empty() {
            default.into()
        } else {
            text.clone()
        }
    };
    let all = pod.spec.containers.iter().flat_map(|c| &c.ports);
    all.filter(|port| port.host_port > 0)
        .map(|port| {
            (
                or(&port.host_ip, "0.0.0.0"),
                or(&port.protocol, "TCP"),
                port.host_port,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{GPU, NodeShape, PodShape, ZoneRule};

    fn node() -> NodeShape {
        NodeShape {
            cpu_milli: 2000,
            memory_mebibytes: 1024,
            pods: 3,
            gpus: 1,
            zone: Some("a"),
            taint: None,
            cordoned: false,
        }
    }

    fn pod(cpu_milli: i64) -> PodShape {
        PodShape {
            cpu_milli,
            ..PodShape::default()
        }
    }

    #[test]
    fn a_pod_runs_where_nothing_forbids_it() {
        let lacks = |what: &str| Some(Forbids::Lacks(what.to_owned()));
        let full = |n: usize| vec![pod(0); n];
        let red = || PodShape {
            app: Some("red"),
            ..pod(0)
        };
        let away = || PodShape {
            apart_from: Some("red"),
            ..pod(0)
        };
        let port = |ip| PodShape {
            host_port: Some((ip, 80)),
            ..pod(0)
        };
        let zone = |rule| PodShape {
            zone: Some(rule),
            ..pod(0)
        };
        let tolerant = PodShape {
            tolerates: Some("t"),
            ..pod(0)
        };
        let tainted = NodeShape {
            taint: Some("t"),
            ..node()
        };
        let cordoned = NodeShape {
            cordoned: true,
            ..node()
        };
        let init = PodShape {
            init_cpu_milli: 2500,
            ..pod(0)
        };
        for (what, pod, node, neighbours, expected) in [
            ("an empty node", pod(2000), node(), vec![], None),
            ("the last bit", pod(500), node(), vec![pod(1500)], None),
            (
                "too little CPU",
                pod(501),
                node(),
                vec![pod(1500)],
                lacks("cpu"),
            ),
            ("an init container", init, node(), vec![], lacks("cpu")),
            (
                "no device left",
                PodShape { gpus: 2, ..pod(0) },
                node(),
                vec![],
                lacks(GPU),
            ),
            ("too many pods", pod(0), node(), full(3), lacks("pods")),
            (
                "one port, two addresses",
                port("10.0.0.1"),
                node(),
                vec![port("10.0.0.2")],
                None,
            ),
            (
                "any address",
                port("10.0.0.1"),
                node(),
                vec![port("")],
                lacks("host port 80"),
            ),
            ("tolerated", tolerant, tainted.clone(), vec![], None),
            (
                "tainted",
                pod(0),
                tainted,
                vec![],
                Some(Forbids::Rule("a taint is not tolerated")),
            ),
            (
                "cordoned",
                pod(0),
                cordoned,
                vec![],
                Some(Forbids::Rule("the node is cordoned")),
            ),
            ("zone", zone(ZoneRule::Selector("a")), node(), vec![], None),
            (
                "another zone",
                zone(ZoneRule::Selector("b")),
                node(),
                vec![],
                Some(Forbids::Rule("the node selector does not match")),
            ),
            (
                "not in another zone",
                zone(ZoneRule::NotIn("b")),
                node(),
                vec![],
                None,
            ),
            (
                "not in this zone",
                zone(ZoneRule::NotIn("a")),
                node(),
                vec![],
                Some(Forbids::Rule("the node affinity does not match")),
            ),
            (
                "apart",
                away(),
                node(),
                vec![red()],
                Some(Forbids::Rule("a pod that it must be apart from is there")),
            ),
            (
                "apart the other way round",
                red(),
                node(),
                vec![away()],
                Some(Forbids::Rule("a pod that it must be apart from is there")),
            ),
        ] {
            let neighbours: Vec<Pod> = neighbours.iter().map(PodShape::build).collect();
            let neighbours: Vec<&Pod> = neighbours.iter().collect();
            let found = forbids(&pod.build(), &node.build("n"), &neighbours);
            assert_eq!(found, expected, "{what}");
        }
    }
}
