//! The row of a pod; its STATUS is rule API-20.

use super::text::{NONE, age, flag, human_seconds, items, number, text, text_or_none};
use super::{AGE, Column, Columns, NAME, column, wide};
use jiff::Timestamp;
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    NAME,
    column("Ready", "How many of the pod's containers are ready."),
    column("Status", "The phase, or the reason that says more."),
    column(
        "Restarts",
        "How often containers were restarted, and when last.",
    ),
    AGE,
    wide("IP", "The address of the pod."),
    wide("Node", "The node that the pod is bound to."),
    wide(
        "Nominated Node",
        "The node where preemption makes room for the pod.",
    ),
    wide(
        "Readiness Gates",
        "How many of the pod's readiness gates have passed.",
    ),
];

pub(super) const PODS: Columns = Columns {
    columns: COLUMNS,
    cells,
    conditions: Some(conditions),
};

fn conditions(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// What the statuses of the containers add up to.
struct Sum {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let sum = summarize(pod);
    let restarts = match sum.last_restart {
        Some(last) if sum.restarts != 0 => format!(
            "{} ({} ago)",
            sum.restarts,
            human_seconds(now.duration_since(last).as_secs())
        ),
        _ => sum.restarts.to_string(),
    };
    let ip = match items(pod, "/status/podIPs").first() {
        Some(first) => text_or_none(first, "/ip"),
        None => text_or_none(pod, "/status/podIP"),
    };
    vec![
        text(pod, "/metadata/name").into(),
        format!("{}/{}", sum.ready, sum.total).into(),
        sum.reason.into(),
        restarts.into(),
        age(pod, now).into(),
        ip.into(),
        text_or_none(pod, "/spec/nodeName").into(),
        text_or_none(pod, "/status/nominatedNodeName").into(),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let passed = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    format!("{passed}/{}", gates.len())
}

/// Whether the pod has this condition and it is true.
fn has_condition(pod: &Value, kind: &str) -> bool {
    items(pod, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
}

fn summarize(pod: &Value) -> Sum {
    let mut sum = Sum {
        reason: match text(pod, "/status/reason") {
            "" => text(pod, "/status/phase").to_owned(),
            reason => reason.to_owned(),
        },
        ready: 0,
        total: items(pod, "/spec/containers").len(),
        restarts: 0,
        last_restart: None,
    };
    if items(pod, "/status/conditions")
        .iter()
        .any(|c| text(c, "/type") == "PodScheduled" && text(c, "/reason") == "SchedulingGated")
    {
        sum.reason = "SchedulingGated".to_owned();
    }
    let initializing = init_containers(pod, &mut sum);
    if !initializing || has_condition(pod, "Initialized") {
        containers(pod, &mut sum);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        if text(pod, "/status/reason") == "NodeLost" {
            sum.reason = "Unknown".to_owned();
        } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            sum.reason = "Terminating".to_owned();
        }
    }
    sum
}

/// Counts the init containers. Returns whether one of them is still to finish.
fn init_containers(pod: &Value, sum: &mut Sum) -> bool {
    let specs = items(pod, "/spec/initContainers");
    let is_sidecar = |name: &str| {
        specs
            .iter()
            .any(|c| text(c, "/name") == name && text(c, "/restartPolicy") == "Always")
    };
    sum.total += specs
        .iter()
        .filter(|c| text(c, "/restartPolicy") == "Always")
        .count();
    let mut sidecars = (0, None);
    for (i, status) in items(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        let restarts = number(status, "/restartCount");
        sum.restarts += restarts;
        sum.last_restart = later(sum.last_restart, status);
        let sidecar = is_sidecar(text(status, "/name"));
        if sidecar {
            sidecars = (sidecars.0 + restarts, later(sidecars.1, status));
        }
        let terminated = status.pointer("/state/terminated");
        if terminated.is_some_and(|t| number(t, "/exitCode") == 0) {
            continue;
        }
        if sidecar && flag(status, "/started") {
            sum.ready += usize::from(flag(status, "/ready"));
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        sum.reason = if let Some(terminated) = terminated {
            format!("Init:{}", end_of(terminated))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", specs.len())
        };
        // Restarts of ordinary init containers count only until the pod is initialized.
        if has_condition(pod, "Initialized") {
            (sum.restarts, sum.last_restart) = sidecars;
        }
        return true;
    }
    (sum.restarts, sum.last_restart) = sidecars;
    false
}

fn containers(pod: &Value, sum: &mut Sum) {
    let mut has_running = false;
    for status in items(pod, "/status/containerStatuses").iter().rev() {
        sum.restarts += number(status, "/restartCount");
        sum.last_restart = later(sum.last_restart, status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            sum.reason = waiting.to_owned();
        } else if let Some(terminated) = status.pointer("/state/terminated") {
            sum.reason = end_of(terminated);
        } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
            has_running = true;
            sum.ready += 1;
        }
    }
    if sum.reason == "Completed" && has_running {
        sum.reason = if has_condition(pod, "Ready") {
            "Running".to_owned()
        } else {
            "NotReady".to_owned()
        };
    }
}

/// How a container ended: the reason, the signal or the exit code.
fn end_of(terminated: &Value) -> String {
    match text(terminated, "/reason") {
        "" => match number(terminated, "/signal") {
            0 => format!("ExitCode:{}", number(terminated, "/exitCode")),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_owned(),
    }
}

/// The later of a time and that of the container's last end.
fn later(known: Option<Timestamp>, status: &Value) -> Option<Timestamp> {
    let ended = text(status, "/lastState/terminated/finishedAt")
        .parse()
        .ok();
    known.max(ended)
}
