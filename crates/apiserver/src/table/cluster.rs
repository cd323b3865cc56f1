//! The rows of nodes, namespaces, events, services and the other kinds that are not workloads or storage.

use super::pods::PODS;
use super::text::{
    NONE, UNKNOWN, age, flag, items, number, selector, since, size, text, text_or_none,
};
use super::{AGE, Columns, NAME, column, typed, wide};
use crate::registry::meta;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

pub(super) fn columns(group: &str, resource: &str) -> Option<&'static Columns> {
    Some(match (group, resource) {
        ("", "pods") => &PODS,
        ("", "nodes") => &NODES,
        ("", "namespaces") => &NAMESPACES,
        ("" | "events.k8s.io", "events") => &EVENTS,
        ("", "services") => &SERVICES,
        ("", "configmaps") => &CONFIG_MAPS,
        ("", "secrets") => &SECRETS,
        ("", "serviceaccounts") => &SERVICE_ACCOUNTS,
        ("", "endpoints") => &ENDPOINTS,
        ("coordination.k8s.io", "leases") => &LEASES,
        ("scheduling.k8s.io", "priorityclasses") => &PRIORITY_CLASSES,
        ("policy", "poddisruptionbudgets") => &DISRUPTION_BUDGETS,
        _ => return None,
    })
}

static NODES: Columns = Columns {
    columns: &[
        NAME,
        column(
            "Status",
            "Whether the node is ready, and whether it takes pods.",
        ),
        column("Roles", "The roles that its labels name."),
        AGE,
        column("Version", "The version of its kubelet."),
        wide("Internal-IP", "Its address within the cluster."),
        wide("External-IP", "Its address from outside."),
        wide("OS-Image", "Its operating system."),
        wide("Kernel-Version", "Its kernel and architecture."),
        wide("Container-Runtime", "Its container runtime."),
    ],
    cells: |node, now| {
        let address = |kind| {
            items(node, "/status/addresses")
                .iter()
                .find(|a| text(a, "/type") == kind)
                .map_or(NONE, |a| text(a, "/address"))
        };
        let known = |pointer| match text(node, pointer) {
            "" => UNKNOWN,
            text => text,
        };
        let kernel = known("/status/nodeInfo/kernelVersion");
        let kernel = match text(node, "/status/nodeInfo/architecture") {
            "" => kernel.to_owned(),
            architecture => format!("{kernel} ({architecture})"),
        };
        vec![
            text(node, "/metadata/name").into(),
            node_status(node).into(),
            node_roles(node).into(),
            age(node, now).into(),
            text(node, "/status/nodeInfo/kubeletVersion").into(),
            address("InternalIP").into(),
            address("ExternalIP").into(),
            known("/status/nodeInfo/osImage").into(),
            kernel.into(),
            known("/status/nodeInfo/containerRuntimeVersion").into(),
        ]
    },
    conditions: None,
};

fn node_status(node: &Value) -> String {
    let ready = items(node, "/status/conditions")
        .iter()
        .find(|c| text(c, "/type") == "Ready")
        .map(|c| text(c, "/status"));
    let mut status = match ready {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(node, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() {
        return NONE.to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
}

static NAMESPACES: Columns = Columns {
    columns: &[
        NAME,
        column("Status", "Whether the namespace is in use or going away."),
        AGE,
    ],
    cells: |namespace, now| {
        vec![
            text(namespace, "/metadata/name").into(),
            text(namespace, "/status/phase").into(),
            age(namespace, now).into(),
        ]
    },
    conditions: None,
};

static EVENTS: Columns = Columns {
    columns: &[
        column("Last Seen", "When the event happened last."),
        column("Type", "Normal or Warning."),
        column("Reason", "Why, in one word."),
        column("Object", "What the event is about."),
        wide("Subobject", "Which part of it."),
        wide("Source", "Who reports it."),
        column("Message", "What happened."),
        wide("First Seen", "When the event happened first."),
        wide("Count", "How often."),
        super::Column {
            priority: 1,
            ..NAME
        },
    ],
    cells: event,
    conditions: None,
};

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    // The series says more than the times of old, these say more than the one time of the event.
    let first_known = |pointers: &[&str]| {
        pointers
            .iter()
            .map(|p| text(event, p))
            .find(|t| !t.is_empty())
            .unwrap_or("")
    };
    let first = first_known(&["/firstTimestamp", "/eventTime"]);
    let last = if event.pointer("/series").is_some() {
        first_known(&["/series/lastObservedTime"])
    } else {
        first_known(&["/lastTimestamp", "/firstTimestamp", "/eventTime"])
    };
    let count = match event.pointer("/series") {
        Some(series) => number(series, "/count"),
        None => match number(event, "/count") {
            0 => 1,
            count => count,
        },
    };
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    let target = match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let reporter = match text(event, "/source/component") {
        "" => text(event, "/reportingComponent"),
        component => component,
    };
    let instance = match text(event, "/source/host") {
        "" => text(event, "/reportingInstance"),
        host => host,
    };
    let source = match instance {
        "" => reporter.to_owned(),
        instance => format!("{reporter}, {instance}"),
    };
    vec![
        since(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        target.into(),
        text(event, "/involvedObject/fieldPath").into(),
        source.into(),
        text(event, "/message").trim().into(),
        since(first, now).into(),
        count.into(),
        meta(event, "name").into(),
    ]
}

static SERVICES: Columns = Columns {
    columns: &[
        NAME,
        column("Type", "How the service is exposed."),
        column("Cluster-IP", "Its address within the cluster."),
        column("External-IP", "Its address from outside."),
        column("Port(s)", "Its ports."),
        AGE,
        wide("Selector", "The labels of its pods."),
    ],
    cells: |service, now| {
        vec![
            text(service, "/metadata/name").into(),
            text(service, "/spec/type").into(),
            text_or_none(service, "/spec/clusterIP").into(),
            external_ip(service).into(),
            ports(service).into(),
            age(service, now).into(),
            selector(service, "/spec/selector").into(),
        ]
    },
    conditions: None,
};

fn external_ip(service: &Value) -> String {
    let mut ips: Vec<&str> = items(service, "/spec/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(service, "/spec/type") {
        "ExternalName" => return text_or_none(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = items(service, "/status/loadBalancer/ingress");
            let balancers = ingress.iter().map(|i| match text(i, "/ip") {
                "" => text(i, "/hostname"),
                ip => ip,
            });
            ips.splice(0..0, balancers);
            if ips.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => {}
    }
    if ips.is_empty() {
        NONE.to_owned()
    } else {
        ips.join(",")
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, "/spec/ports")
        .iter()
        .map(|p| {
            let (port, protocol) = (number(p, "/port"), text(p, "/protocol"));
            match number(p, "/nodePort") {
                0 => format!("{port}/{protocol}"),
                node_port => format!("{port}:{node_port}/{protocol}"),
            }
        })
        .collect();
    if ports.is_empty() {
        NONE.to_owned()
    } else {
        ports.join(",")
    }
}

static CONFIG_MAPS: Columns = Columns {
    columns: &[NAME, column("Data", "How many entries it holds."), AGE],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            (size(object, "/data") + size(object, "/binaryData")).into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static SECRETS: Columns = Columns {
    columns: &[
        NAME,
        column("Type", "What kind of secret it is."),
        column("Data", "How many entries it holds."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            text(object, "/type").into(),
            size(object, "/data").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static SERVICE_ACCOUNTS: Columns = Columns {
    columns: &[
        NAME,
        column("Secrets", "How many secrets its pods may use."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            items(object, "/secrets").len().into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static ENDPOINTS: Columns = Columns {
    columns: &[
        NAME,
        column("Endpoints", "The addresses behind the service."),
        AGE,
    ],
    cells: |object, now| {
        let mut shown: Vec<String> = Vec::new();
        for subset in items(object, "/subsets") {
            for address in items(subset, "/addresses") {
                for port in items(subset, "/ports") {
                    shown.push(format!(
                        "{}:{}",
                        text(address, "/ip"),
                        number(port, "/port")
                    ));
                }
            }
        }
        const SHOWN_MAX: usize = 3;
        let cell = match shown.len() {
            0 => NONE.to_owned(),
            n if n <= SHOWN_MAX => shown.join(","),
            n => format!(
                "{} + {} more...",
                shown[..SHOWN_MAX].join(","),
                n - SHOWN_MAX
            ),
        };
        vec![
            text(object, "/metadata/name").into(),
            cell.into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static LEASES: Columns = Columns {
    columns: &[NAME, column("Holder", "Who holds the lease."), AGE],
    cells: |object, now| {
        vec![
            text(object, "/metadata/name").into(),
            text(object, "/spec/holderIdentity").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};

static PRIORITY_CLASSES: Columns = Columns {
    columns: &[
        NAME,
        typed("Value", "integer", "The priority of pods of this class."),
        typed(
            "Global-Default",
            "boolean",
            "Whether pods without a class get this one.",
        ),
        AGE,
        column(
            "PreemptionPolicy",
            "Whether pods of this class may preempt others.",
        ),
    ],
    cells: |object, now| {
        let policy = match text(object, "/preemptionPolicy") {
            "" => "PreemptLowerPriority",
            policy => policy,
        };
        vec![
            text(object, "/metadata/name").into(),
            number(object, "/value").into(),
            flag(object, "/globalDefault").into(),
            age(object, now).into(),
            policy.into(),
        ]
    },
    conditions: None,
};

static DISRUPTION_BUDGETS: Columns = Columns {
    columns: &[
        NAME,
        column("Min Available", "How many pods must stay available."),
        column("Max Unavailable", "How many pods may be unavailable."),
        typed(
            "Allowed Disruptions",
            "integer",
            "How many pods may be evicted now.",
        ),
        AGE,
    ],
    cells: |object, now| {
        let amount = |pointer| match object.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(n)) => n.to_string(),
            _ => "N/A".to_owned(),
        };
        vec![
            text(object, "/metadata/name").into(),
            amount("/spec/minAvailable").into(),
            amount("/spec/maxUnavailable").into(),
            number(object, "/status/disruptionsAllowed").into(),
            age(object, now).into(),
        ]
    },
    conditions: None,
};
