//! The row of a pod; its STATUS is rule API-20.

use super::text::{NONE, condition, flag, human_seconds, items, number, or, text};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The condition of a row whose pod has ended.
pub(crate) fn row_condition(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// The sums over the statuses of the containers.
struct ContainerSums {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

pub(super) fn ready(pod: &Value) -> Value {
    let sum = summarize(pod);
    format!("{}/{}", sum.ready, sum.total).into()
}

pub(super) fn status(pod: &Value) -> Value {
    summarize(pod).reason.into()
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let sum = summarize(pod);
    match sum.last_restart {
        Some(last) if sum.restarts != 0 => {
            let ago = human_seconds(now.duration_since(last).as_secs());
            format!("{} ({ago} ago)", sum.restarts).into()
        }
        _ => sum.restarts.to_string().into(),
    }
}

pub(super) fn ip(pod: &Value) -> Value {
    let ip = match items(pod, "/status/podIPs").first() {
        Some(first) => text(first, "/ip"),
        None => text(pod, "/status/podIP"),
    };
    or(ip.to_owned(), NONE).into()
}

pub(super) fn readiness_gates(pod: &Value) -> Value {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.into();
    }
    let passed = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    format!("{passed}/{}", gates.len()).into()
}

/// Returns whether the pod has this condition and it is true.
fn has_condition(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|c| text(c, "/status") == "True")
}

fn summarize(pod: &Value) -> ContainerSums {
    let mut sum = ContainerSums {
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
    // In kubectl's order: later states are more specific and replace earlier ones.
    let initializing = init_containers(pod, &mut sum);
    if !initializing || has_condition(pod, "Initialized") {
        containers(pod, &mut sum);
    }
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        // A lost node cannot confirm the deletion.
        if text(pod, "/status/reason") == "NodeLost" {
            sum.reason = "Unknown".to_owned();
        } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            sum.reason = "Terminating".to_owned();
        }
    }
    sum
}

/// Counts the init containers. Returns whether one of them is still to finish.
fn init_containers(pod: &Value, sum: &mut ContainerSums) -> bool {
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

fn containers(pod: &Value, sum: &mut ContainerSums) {
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

/// The end of a container: the reason, the signal or the exit code.
fn end_of(terminated: &Value) -> String {
    match text(terminated, "/reason") {
        "" => match number(terminated, "/signal") {
            0 => format!("ExitCode:{}", number(terminated, "/exitCode")),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_owned(),
    }
}

/// The later of a time and the last end of the container.
fn later(known: Option<Timestamp>, status: &Value) -> Option<Timestamp> {
    let ended = text(status, "/lastState/terminated/finishedAt")
        .parse()
        .ok();
    known.max(ended)
}
