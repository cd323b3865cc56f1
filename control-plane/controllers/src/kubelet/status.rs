//! The statuses that a kubelet writes during the life of a pod. Pure: derived from the pod, the node and the time.

use super::{container, resize};
use berth_objects::object::{condition, generation, items, next_count, seconds};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The node and the address of a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodAddress<'a> {
    pub(super) host_ip: &'a str,
    pub(super) pod_ip: &'a str,
}

/// The state of the containers of a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Containers {
    /// Not started yet.
    Creating,
    /// Not started, because an image cannot be pulled; `waits` is the back-off before the next attempt.
    NoImage { waits: bool },
    /// Running, ready or not.
    Running { ready: bool },
    /// Between two runs; the next run begins after this time, in seconds.
    BackOff { delay: u64 },
    /// At their end, all with this exit code.
    Ended { exit_code: i32 },
    /// Terminated, each with its own exit code.
    Exited,
}

/// Returns whether an init container is a sidecar.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// The number of times that the containers have been restarted.
pub(super) fn restarts(pod: &Value) -> i64 {
    berth_objects::pod::max_restarts(pod)
}

/// The conditions that keep the readiness gates closed; empty when all are open.
fn closed_gates(pod: &Value) -> String {
    let closed: Vec<String> = items(&pod["spec"]["readinessGates"])
        .iter()
        .filter_map(|gate| gate["conditionType"].as_str())
        .filter_map(|gate| match condition(&pod["status"], gate) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
            Some(c) if c["status"] == "True" => None,
            Some(c) => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                c["status"].as_str().unwrap_or_default()
            )),
        })
        .collect();
    closed.join(", ")
}

/// Seconds as Go prints a duration: `10s`, `1m20s`, `5m0s`.
fn go_seconds(seconds: u64) -> String {
    match seconds / 60 {
        0 => format!("{seconds}s"),
        minutes => format!("{minutes}m{}s", seconds % 60),
    }
}

/// The status of `pod` with containers like that. `restarted` begins another run.
pub(super) fn status_of(
    pod: &Value,
    place: PodAddress<'_>,
    phase: &str,
    containers: Containers,
    restarted: bool,
    now: Timestamp,
) -> Value {
    let mut status = match &pod["status"] {
        status @ Value::Object(_) => status.clone(),
        _ => json!({}),
    };
    status["phase"] = phase.into();
    if !status["startTime"].is_string() {
        status["startTime"] = seconds(now);
    }
    if generation(pod) > 0 {
        status["observedGeneration"] = generation(pod).into();
    }
    if !place.host_ip.is_empty() {
        status["hostIP"] = place.host_ip.into();
        status["hostIPs"] = json!([{"ip": place.host_ip}]);
    }
    if containers != Containers::Creating && !place.pod_ip.is_empty() {
        status["podIP"] = place.pod_ip.into();
        status["podIPs"] = json!([{"ip": place.pod_ip}]);
    }
    for (from, to) in [
        ("initContainers", "initContainerStatuses"),
        ("containers", "containerStatuses"),
        ("ephemeralContainers", "ephemeralContainerStatuses"),
    ] {
        let specs = items(&pod["spec"][from]);
        let is_ephemeral = from == "ephemeralContainers";
        if specs.is_empty() || (is_ephemeral && containers == Containers::Creating) {
            continue;
        }
        let waits_for_init =
            from == "initContainers" || !items(&pod["spec"]["initContainers"]).is_empty();
        let statuses: Vec<Value> = specs
            .iter()
            .map(|spec| {
                let runs_once = from == "initContainers" && !is_sidecar(spec);
                let old = items(&pod["status"][to])
                    .iter()
                    .find(|s| s["name"] == spec["name"]);
                let old = old.unwrap_or(&Value::Null);
                let own_code = match from {
                    "containers" => container::exit_code(pod, spec),
                    _ => 0,
                };
                // Such a container is not started again.
                let is_done = pod["spec"]["restartPolicy"] == "OnFailure"
                    && from == "containers"
                    && own_code == 0;
                let mut restarted = restarted;
                let containers = match containers {
                    Containers::Creating => Containers::Creating,
                    Containers::NoImage { .. } if container::is_image_missing(pod, spec) => {
                        containers
                    }
                    Containers::NoImage { .. } => Containers::Creating,
                    _ if runs_once => Containers::Ended { exit_code: 0 },
                    Containers::Ended { .. } => containers,
                    Containers::Exited => Containers::Ended {
                        exit_code: own_code,
                    },
                    Containers::BackOff { .. } if is_done => Containers::Ended { exit_code: 0 },
                    Containers::Running { .. }
                        if is_done && old["state"]["terminated"].is_object() =>
                    {
                        restarted = false;
                        Containers::Ended { exit_code: 0 }
                    }
                    _ if is_ephemeral => Containers::Running { ready: false },
                    other => other,
                };
                // A container whose image was changed is started again.
                let is_outdated =
                    old["state"]["running"].is_object() && old["image"] != spec["image"];
                let run = StatusRun {
                    old,
                    restarted: (restarted || is_outdated) && !runs_once,
                    waits_for_init,
                };
                container_status(pod, spec, containers, &run, now)
            })
            .collect();
        status[to] = statuses.into();
    }
    status["conditions"] = conditions(pod, phase, containers, now).into();
    status
}

struct StatusRun<'a> {
    old: &'a Value,
    restarted: bool,
    waits_for_init: bool,
}

fn container_status(
    pod: &Value,
    spec: &Value,
    containers: Containers,
    run: &StatusRun<'_>,
    now: Timestamp,
) -> Value {
    let old = run.old;
    let before = old["restartCount"].as_i64().unwrap_or_default();
    let count = if run.restarted {
        next_count(before)
    } else {
        before
    };
    let name = spec["name"].as_str().unwrap_or_default();
    let id = format!(
        "berth://{}/{name}/{count}",
        pod["metadata"]["uid"].as_str().unwrap_or_default()
    );
    let started_at = match &old["state"]["running"]["startedAt"] {
        Value::String(at) if !run.restarted => Value::String(at.clone()),
        _ => seconds(now),
    };
    let ended = |exit_code: i32| -> Value {
        // A container that has ended stays so, with the same times.
        if old["state"]["terminated"].is_object() && !run.restarted {
            return old["state"]["terminated"].clone();
        }
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        json!({
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": started_at,
            "finishedAt": seconds(now),
            "containerID": id,
        })
    };
    let mut last_state = match &old["lastState"] {
        Value::Object(last) => Value::Object(last.clone()),
        _ => json!({}),
    };
    if run.restarted
        && let Some(terminated) = old["state"]["terminated"].as_object()
    {
        last_state = json!({"terminated": terminated});
    } else if run.restarted && old["state"]["running"].is_object() {
        last_state = json!({"terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": old["state"]["running"]["startedAt"],
            "finishedAt": seconds(now),
            "containerID": old["containerID"],
        }});
    }
    let (state, ready, started) = match containers {
        Containers::Creating => {
            let reason = if run.waits_for_init {
                "PodInitializing"
            } else {
                "ContainerCreating"
            };
            (json!({"waiting": {"reason": reason}}), false, false)
        }
        Containers::NoImage { waits } => {
            let image = spec["image"].as_str().unwrap_or_default();
            let error = format!("failed to pull image {image:?}: {}", container::PULL_ERROR);
            let (reason, message) = if waits {
                (
                    "ImagePullBackOff",
                    format!("Back-off pulling image {image:?}: ErrImagePull: {error}"),
                )
            } else {
                ("ErrImagePull", error)
            };
            let state = json!({"waiting": {"reason": reason, "message": message}});
            (state, false, false)
        }
        Containers::Running { ready } => {
            (json!({"running": {"startedAt": started_at}}), ready, true)
        }
        Containers::BackOff { delay } => {
            let exit_code = container::exit_code(pod, spec);
            last_state = json!({"terminated": ended(exit_code)});
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
            let message = format!(
                "back-off {} restarting failed container={name} pod={}_{}({})",
                go_seconds(delay),
                text("name"),
                text("namespace"),
                text("uid"),
            );
            let state = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
            (state, false, false)
        }
        Containers::Exited | Containers::Ended { .. } => {
            let exit_code = match containers {
                Containers::Ended { exit_code } => exit_code,
                _ => 0,
            };
            // An init container that has done its work counts as ready.
            let is_init = items(&pod["spec"]["initContainers"])
                .iter()
                .any(|c| c["name"] == spec["name"]);
            (json!({"terminated": ended(exit_code)}), is_init, false)
        }
    };
    let mut status = json!({
        "name": name,
        "image": spec["image"],
        "imageID": "",
        "ready": ready,
        "started": started,
        "restartCount": count,
        "state": state,
        "lastState": last_state,
    });
    if !matches!(
        containers,
        Containers::Creating | Containers::NoImage { .. }
    ) {
        status["imageID"] = spec["image"].clone();
        status["containerID"] = id.into();
        let reported = [
            ("resources", resize::shown(spec)),
            ("allocatedResources", spec["resources"]["requests"].clone()),
        ];
        for (field, first) in reported {
            let is_known = old["resources"].is_object();
            let value = if is_known { old[field].clone() } else { first };
            if value.is_object() {
                status[field] = value;
            }
        }
    }
    status
}

/// The conditions of kubelets, followed by the other conditions of the pod.
fn conditions(pod: &Value, phase: &str, containers: Containers, now: Timestamp) -> Vec<Value> {
    let names = |list: &str| -> String {
        let containers = items(&pod["spec"][list]).iter();
        let names: Vec<&str> = containers.filter_map(|c| c["name"].as_str()).collect();
        names.join(" ")
    };
    let unready = || {
        let message = format!("containers with unready status: [{}]", names("containers"));
        ("False", "ContainersNotReady", message)
    };
    let is = |status| (status, "", String::new());
    let completed = || ("False", "PodCompleted", String::new());
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let has_succeeded = phase == "Succeeded";
    let has_sandbox = containers != Containers::Creating && !has_ended;
    let has_inits = items(&pod["spec"]["initContainers"])
        .iter()
        .any(|c| !is_sidecar(c));
    let initialized = match containers {
        Containers::Creating if has_inits => {
            let names = names("initContainers");
            let message = format!("containers with incomplete status: [{names}]");
            ("False", "ContainersNotInitialized", message)
        }
        _ if has_succeeded => ("True", "PodCompleted", String::new()),
        _ => is("True"),
    };
    let failed = || ("False", "PodFailed", String::new());
    let (ready, containers_ready) = match containers {
        _ if has_succeeded => (completed(), completed()),
        _ if has_ended => (failed(), failed()),
        Containers::Running { ready: true } => match closed_gates(pod) {
            closed if closed.is_empty() => (is("True"), is("True")),
            closed => (("False", "ReadinessGatesNotReady", closed), is("True")),
        },
        _ => (unready(), unready()),
    };
    let own = [
        (
            "PodReadyToStartContainers",
            is(if has_sandbox { "True" } else { "False" }),
        ),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
    ];
    let mut conditions: Vec<Value> = own
        .iter()
        .map(|(kind, (status, reason, message))| {
            let since = condition(&pod["status"], kind)
                .filter(|c| c["status"] == *status)
                .map_or_else(|| seconds(now), |c| c["lastTransitionTime"].clone());
            let mut new = json!({
                "type": kind,
                "status": status,
                "lastProbeTime": null,
                "lastTransitionTime": since,
            });
            if generation(pod) > 0 {
                new["observedGeneration"] = generation(pod).into();
            }
            if !reason.is_empty() {
                new["reason"] = (*reason).into();
            }
            if !message.is_empty() {
                new["message"] = message.as_str().into();
            }
            new
        })
        .collect();
    // A pod that was made with a node in its spec had no scheduler to report that.
    if condition(&pod["status"], "PodScheduled").is_none() {
        conditions.push(json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": seconds(now),
        }));
    }
    let others = items(&pod["status"]["conditions"]).iter();
    conditions.extend(
        others
            .filter(|c| own.iter().all(|(kind, _)| c["type"] != *kind))
            .cloned(),
    );
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::EXIT_CODE;
    use berth_objects::object::condition_is_true;

    const PLACE: PodAddress<'_> = PodAddress {
        host_ip: "172.16.0.1",
        pod_ip: "10.0.0.1",
    };

    fn at(second: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()
            + jiff::SignedDuration::from_secs(second)
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "generation": 3},
            "spec": {"containers": [{"name": "a", "image": "i:1"}],
                     "initContainers": [{"name": "once", "image": "i:2"},
                                        {"name": "side", "image": "i:3", "restartPolicy": "Always"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort",
                       "conditions": [{"type": "PodScheduled", "status": "True"}]},
        })
    }

    fn step(pod: &mut Value, phase: &str, containers: Containers, restarted: bool, second: i64) {
        pod["status"] = status_of(pod, PLACE, phase, containers, restarted, at(second));
    }

    fn shown(pod: &Value) -> String {
        let conditions = items(&pod["status"]["conditions"]).iter().map(|c| {
            let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
            let at = text("lastTransitionTime");
            let second = at.get(17..19).unwrap_or_default().to_owned();
            format!(
                "{}={} {} {second}",
                text("type"),
                text("status"),
                text("reason")
            )
        });
        conditions
            .map(|c| c.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn a_pod_starts_runs_and_succeeds() {
        let mut pod = pod();
        step(&mut pod, "Pending", Containers::Creating, false, 1);
        assert_eq!(
            shown(&pod),
            "PodReadyToStartContainers=False 01, Initialized=False ContainersNotInitialized 01, \
             Ready=False ContainersNotReady 01, ContainersReady=False ContainersNotReady 01, PodScheduled=True"
        );
        assert!(pod["status"]["podIP"].is_null());
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        assert_eq!(waiting, "PodInitializing");

        step(
            &mut pod,
            "Running",
            Containers::Running { ready: true },
            false,
            5,
        );
        assert_eq!(
            shown(&pod),
            "PodReadyToStartContainers=True 05, Initialized=True 05, Ready=True 05, ContainersReady=True 05, \
             PodScheduled=True"
        );
        let status = &pod["status"];
        assert_eq!(status["startTime"], "2026-01-01T00:00:01Z");
        assert_eq!(
            (&status["podIP"], &status["hostIP"]),
            (&json!("10.0.0.1"), &json!("172.16.0.1"))
        );
        assert_eq!(
            (&status["observedGeneration"], &status["qosClass"]),
            (&json!(3), &json!("BestEffort"))
        );
        assert_eq!(
            status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"],
            0
        );
        assert!(status["initContainerStatuses"][1]["state"]["running"].is_object());
        assert_eq!(
            status["containerStatuses"][0]["containerID"],
            "berth://u/a/0"
        );

        step(
            &mut pod,
            "Succeeded",
            Containers::Ended { exit_code: 0 },
            false,
            9,
        );
        assert_eq!(
            shown(&pod),
            "PodReadyToStartContainers=False 09, Initialized=True PodCompleted 05, \
             Ready=False PodCompleted 09, ContainersReady=False PodCompleted 09, PodScheduled=True"
        );
        assert_eq!(
            pod["status"]["containerStatuses"][0]["state"]["terminated"],
            json!({"exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:05Z",
                   "finishedAt": "2026-01-01T00:00:09Z", "containerID": "berth://u/a/0"})
        );
    }

    #[test]
    fn a_container_that_fails_backs_off_and_runs_again() {
        let mut pod = pod();
        step(
            &mut pod,
            "Running",
            Containers::Running { ready: true },
            false,
            1,
        );
        pod["metadata"]["annotations"] = json!({EXIT_CODE: "3"});
        let back_off = Containers::BackOff { delay: 80 };
        step(&mut pod, "Running", back_off, false, 2);
        let status = &pod["status"]["containerStatuses"][0];
        assert_eq!(
            status["state"]["waiting"],
            json!({"reason": "CrashLoopBackOff",
                   "message": "back-off 1m20s restarting failed container=a pod=web_n(u)"})
        );
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(status["restartCount"], 0);
        step(
            &mut pod,
            "Running",
            Containers::Running { ready: true },
            true,
            12,
        );
        let status = &pod["status"]["containerStatuses"][0];
        assert_eq!(status["restartCount"], 1);
        assert_eq!(
            status["state"]["running"]["startedAt"],
            "2026-01-01T00:00:12Z"
        );
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!(pod["status"]["initContainerStatuses"][0]["restartCount"], 0);
    }

    #[test]
    fn a_closed_readiness_gate_keeps_a_running_pod_unready() {
        let mut pod = pod();
        pod["spec"]["readinessGates"] = json!([{"conditionType": "lb"}]);
        step(
            &mut pod,
            "Running",
            Containers::Running { ready: true },
            false,
            1,
        );
        assert_eq!(
            condition(&pod["status"], "Ready").unwrap()["reason"],
            "ReadinessGatesNotReady"
        );
        assert!(condition_is_true(&pod["status"], "ContainersReady"));
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "lb", "status": "True"}));
        step(
            &mut pod,
            "Running",
            Containers::Running { ready: true },
            false,
            2,
        );
        assert!(condition_is_true(&pod["status"], "Ready"));
    }
}
