//! The rows of the kinds that make pods.

use super::text::{NONE, age, containers, human_seconds, items, number, selector, text};
use super::{AGE, Column, Columns, NAME, column, typed, wide};
use jiff::Timestamp;
use serde_json::Value;

const CONTAINERS: Column = wide("Containers", "The names of the containers of the template.");
const IMAGES: Column = wide("Images", "The images of the containers of the template.");
const SELECTOR: Column = wide("Selector", "The labels by which the pods are found.");
const TEMPLATE: &str = "/spec/template/spec/containers";

pub(super) fn columns(group: &str, resource: &str) -> Option<&'static Columns> {
    Some(match (group, resource) {
        ("apps", "deployments") => &DEPLOYMENTS,
        ("apps", "replicasets") | ("", "replicationcontrollers") => &REPLICAS,
        ("apps", "statefulsets") => &STATEFUL_SETS,
        ("apps", "daemonsets") => &DAEMON_SETS,
        ("batch", "jobs") => &JOBS,
        _ => return None,
    })
}

static DEPLOYMENTS: Columns = Columns {
    columns: &[
        NAME,
        column("Ready", "Ready pods of the wanted ones."),
        column("Up-to-date", "Pods of the present template."),
        column("Available", "Pods that have been ready long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE);
        vec![
            text(object, "/metadata/name").into(),
            ready_of(object, "/status/readyReplicas").into(),
            number(object, "/status/updatedReplicas").into(),
            number(object, "/status/availableReplicas").into(),
            age(object, now).into(),
            names.into(),
            images.into(),
            selector(object, "/spec/selector").into(),
        ]
    },
    conditions: None,
};

static REPLICAS: Columns = Columns {
    columns: &[
        NAME,
        typed("Desired", "integer", "How many pods there should be."),
        typed("Current", "integer", "How many pods there are."),
        typed("Ready", "integer", "How many of them are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE);
        vec![
            text(object, "/metadata/name").into(),
            number(object, "/spec/replicas").into(),
            number(object, "/status/replicas").into(),
            number(object, "/status/readyReplicas").into(),
            age(object, now).into(),
            names.into(),
            images.into(),
            selector(object, "/spec/selector").into(),
        ]
    },
    conditions: None,
};

static STATEFUL_SETS: Columns = Columns {
    columns: &[
        NAME,
        column("Ready", "Ready pods of the wanted ones."),
        AGE,
        CONTAINERS,
        IMAGES,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE);
        vec![
            text(object, "/metadata/name").into(),
            ready_of(object, "/status/readyReplicas").into(),
            age(object, now).into(),
            names.into(),
            images.into(),
        ]
    },
    conditions: None,
};

static DAEMON_SETS: Columns = Columns {
    columns: &[
        NAME,
        typed("Desired", "integer", "How many nodes should run the pod."),
        typed("Current", "integer", "How many of them do."),
        typed("Ready", "integer", "On how many of them it is ready."),
        typed(
            "Up-to-date",
            "integer",
            "How many run the present template.",
        ),
        typed(
            "Available",
            "integer",
            "On how many it has been ready long enough.",
        ),
        column("Node Selector", "The labels of the nodes that it is for."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE);
        vec![
            text(object, "/metadata/name").into(),
            number(object, "/status/desiredNumberScheduled").into(),
            number(object, "/status/currentNumberScheduled").into(),
            number(object, "/status/numberReady").into(),
            number(object, "/status/updatedNumberScheduled").into(),
            number(object, "/status/numberAvailable").into(),
            selector(object, "/spec/template/spec/nodeSelector").into(),
            age(object, now).into(),
            names.into(),
            images.into(),
            selector(object, "/spec/selector").into(),
        ]
    },
    conditions: None,
};

static JOBS: Columns = Columns {
    columns: &[
        NAME,
        column("Status", "How far the job has come."),
        column("Completions", "Completed pods of the wanted ones."),
        column("Duration", "How long the job ran or has been running."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (names, images) = containers(object, TEMPLATE);
        vec![
            text(object, "/metadata/name").into(),
            job_status(object).into(),
            completions(object).into(),
            job_duration(object, now).into(),
            age(object, now).into(),
            names.into(),
            images.into(),
            selector(object, "/spec/selector").into(),
        ]
    },
    conditions: None,
};

fn ready_of(object: &Value, ready: &str) -> String {
    format!(
        "{}/{}",
        number(object, ready),
        number(object, "/spec/replicas")
    )
}

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        items(job, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if job.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    if let Some(wanted) = job.pointer("/spec/completions").and_then(Value::as_i64) {
        return format!("{succeeded}/{wanted}");
    }
    match number(job, "/spec/parallelism") {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |pointer| text(job, pointer).parse::<Timestamp>().ok();
    let Some(start) = time("/status/startTime") else {
        return if text(job, "/status/startTime").is_empty() {
            String::new()
        } else {
            NONE.to_owned()
        };
    };
    let end = time("/status/completionTime").unwrap_or(now);
    human_seconds(end.duration_since(start).as_secs())
}
