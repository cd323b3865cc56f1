//! The permitted changes of a suspended Job, and of the status of a Job.

use super::kinds::{created, printed, with};
use super::*;

fn jobs() -> GroupResource {
    gr("batch", "jobs")
}

fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "j", "uid": "u-1"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "i", "image": "a:1"}],
            "containers": [{"name": "c", "image": "a:1", "command": ["a"]}],
        }}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    created(jobs(), job)
}

fn update(new: &Value, old: &Value) -> Vec<String> {
    let errors = strategy(jobs()).validate_update(new, old, Subresource::Main);
    errors
        .into_iter()
        .map(|e| format!("{} {}", e.field, e.detail))
        .collect()
}

/// API-72.
#[test]
fn a_suspended_job_changes_where_its_pods_run_and_what_they_request() {
    const POD: &str = "/spec/template/spec";
    let fixed = "spec.template.spec field is immutable";
    let node = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}});
    let pods = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "a"}}]}});
    let cases = [
        // (the place below the pod's spec, the new value, the error)
        ("nodeSelector", json!({"a": "b"}), ""),
        (
            "tolerations",
            json!([{"key": "a", "operator": "Exists"}]),
            "",
        ),
        ("schedulingGates", json!([{"name": "example.com/a"}]), ""),
        ("affinity", node, ""),
        (
            "containers/0/resources",
            json!({"requests": {"cpu": "1"}}),
            "",
        ),
        (
            "initContainers/0/resources",
            json!({"requests": {"cpu": "1"}}),
            "",
        ),
        ("affinity", pods, fixed),
        ("containers/0/image", json!("a:2"), fixed),
        ("containers/0/command", json!(["b"]), fixed),
        ("containers/0/args", json!(["b"]), fixed),
        (
            "containers/0/env",
            json!([{"name": "A", "value": "b"}]),
            fixed,
        ),
        ("containers/0/name", json!("d"), fixed),
        ("initContainers/0/image", json!("a:2"), fixed),
        ("schedulerName", json!("other"), fixed),
        ("priorityClassName", json!("high"), fixed),
        ("serviceAccountName", json!("other"), fixed),
        ("volumes", json!([{"name": "v", "emptyDir": {}}]), fixed),
        ("restartPolicy", json!("OnFailure"), fixed),
        ("terminationGracePeriodSeconds", json!(5), fixed),
        ("runtimeClassName", json!("other"), fixed),
        ("hostNetwork", json!(true), fixed),
    ];
    let old = job(json!({"suspend": true}));
    for (place, value, error) in &cases {
        let new = with(&old, &format!("{POD}/{place}"), value.clone());
        let expect: Vec<&str> = [*error].into_iter().filter(|e| !e.is_empty()).collect();
        assert_eq!(update(&new, &old), expect, "{place}");
    }
    for place in ["labels", "annotations"] {
        let metadata = &old["spec"]["template"]["metadata"][place];
        let mut changed = if metadata.is_object() {
            metadata.clone()
        } else {
            json!({})
        };
        changed["example.com/new"] = json!("x");
        let new = with(&old, &format!("/spec/template/metadata/{place}"), changed);
        assert_eq!(update(&new, &old), [""; 0], "{place}");
    }
    // A running Job, or a Job with running pods, is immutable.
    let running = job(json!({}));
    let mut stopping = with(
        &old,
        "/status",
        json!({"startTime": "2026-01-01T00:00:00Z", "active": 1}),
    );
    stopping["status"]["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
    let stopped = with(&stopping, "/status/active", json!(0));
    let started = with(
        &old,
        "/status",
        json!({"startTime": "2026-01-01T00:00:00Z"}),
    );
    for (name, old, fixed) in [
        ("running", running, true),
        ("its pods still run", stopping, true),
        ("no longer runs", stopped, false),
        ("has run, and is not suspended yet", started, true),
    ] {
        let new = with(&old, &format!("{POD}/nodeSelector"), json!({"a": "b"}));
        let expect = if fixed {
            vec!["spec.template field is immutable"]
        } else {
            vec![]
        };
        assert_eq!(update(&new, &old), expect, "{name}");
    }
}

#[test]
fn other_fields_of_a_job_stay() {
    let old = job(json!({"suspend": true}));
    for (field, value) in [
        ("completions", json!(5)),
        ("managedBy", json!("example.com/mine")),
        ("selector", json!({"matchLabels": {"a": "b"}})),
    ] {
        let new = with(&old, &format!("/spec/{field}"), value);
        let errors = update(&new, &old);
        let expect = format!("spec.{field} field is immutable");
        assert!(errors.contains(&expect), "{field}: {errors:?}");
    }
    let new = with(&old, "/spec/parallelism", json!(3));
    assert_eq!(update(&new, &old), [""; 0]);
    let indexed = job(json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}));
    let new = with(&indexed, "/spec/completions", json!(3));
    assert_eq!(
        update(&new, &indexed),
        ["spec.completions can only be modified in tandem with spec.parallelism"]
    );
    let new = with(&new, "/spec/parallelism", json!(3));
    assert_eq!(update(&new, &indexed), [""; 0]);
}

#[test]
fn malformed_jobs_are_reported_as_by_kubernetes() {
    let indexed = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 1});
    let and = |more: Value| {
        let mut spec = indexed.clone();
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let rules = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
    let cases = [
        (
            json!({"parallelism": -1}),
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"managedBy": "mine"}),
            r#"spec.managedBy: Invalid value: "mine": must be a domain-prefixed path (such as "acme.io/foo")"#,
        ),
        (
            json!({"completionMode": "Sorted"}),
            r#"spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed""#,
        ),
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            and(json!({"maxFailedIndexes": 1})),
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
        ),
        (
            and(json!({"maxFailedIndexes": 4, "backoffLimitPerIndex": 1})),
            "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
        ),
        (
            and(json!({"parallelism": 100_001})),
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
        ),
        (
            and(json!({"successPolicy": {"rules": []}})),
            "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified",
        ),
        (
            and(json!({"successPolicy": {"rules": [{}]}})),
            "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
        ),
        (
            and(json!({"successPolicy": {"rules": [{"succeededIndexes": "0-9"}]}})),
            r#"spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0-9": error parsing succeededIndexes: too large index: "9""#,
        ),
        (
            and(json!({"successPolicy": {"rules": [{"succeededIndexes": "1,0"}]}})),
            r#"spec.successPolicy.rules[0].succeededIndexes: Invalid value: "1,0": error parsing succeededIndexes: non-increasing order, previous: 1, current: 0"#,
        ),
        (
            and(
                json!({"successPolicy": {"rules": [{"succeededIndexes": "0,1", "succeededCount": 3}]}}),
            ),
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
        ),
        (
            json!({"podReplacementPolicy": "Never"}),
            r#"spec.podReplacementPolicy: Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed""#,
        ),
        (
            rules(json!({"onExitCodes": {"operator": "In", "values": [1]}})),
            r#"spec.podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#,
        ),
        (
            rules(json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}})),
            r#"spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set"#,
        ),
        (
            rules(json!({"action": "FailJob"})),
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            rules(
                json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 1]}}),
            ),
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
        ),
        (
            rules(json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}})),
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            rules(
                json!({"action": "FailJob", "onExitCodes": {"containerName": "x", "operator": "In", "values": [1]}}),
            ),
            r#"spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template"#,
        ),
        (
            rules(
                json!({"action": "FailJob", "onPodConditions": [{"type": "Ready", "status": "Maybe"}]}),
            ),
            r#"spec.podFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown""#,
        ),
        (
            json!({"manualSelector": true}),
            "spec.selector: Required value|spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
        ),
    ];
    for (spec, error) in cases {
        let errors = printed(&strategy(jobs()).validate(&job(spec.clone())));
        let expect: Vec<&str> = error.split('|').collect();
        assert_eq!(errors, expect, "{spec}");
    }
}

#[test]
fn labels_and_selectors_of_the_user_must_be_the_generated_ones() {
    let template = |labels: Value| {
        json!({"template": {"metadata": {"labels": labels}, "spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1"}]}}})
    };
    let errors = printed(&strategy(jobs()).validate(&job(template(json!({"job-name": "other"})))));
    assert_eq!(
        errors,
        [
            r#"spec.template.metadata.labels[job-name]: Invalid value: {"batch.kubernetes.io/controller-uid":"u-1","batch.kubernetes.io/job-name":"j","controller-uid":"u-1","job-name":"other"}: must be 'j'"#
        ]
    );
    let own = json!({"selector": {"matchLabels": {"a": "b"}}});
    let errors: Vec<String> = strategy(jobs())
        .validate(&job(own))
        .into_iter()
        .map(|e| e.detail)
        .collect();
    assert_eq!(
        errors,
        [
            "`selector` not auto-generated",
            "`selector` does not match template `labels`"
        ]
    );
}

#[test]
fn a_cron_job_gets_no_defaults_of_jobs_and_no_selector() {
    let crons = gr("batch", "cronjobs");
    let cron = |more: Value| {
        let mut spec = json!({"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "a:1"}]}}});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        created(
            crons,
            json!({"metadata": {"name": "c"}, "spec": {
            "schedule": "@every 5m", "jobTemplate": {"spec": spec}}}),
        )
    };
    let plain = cron(json!({}));
    assert_eq!(strategy(crons).validate(&plain), []);
    for field in [
        "completions",
        "parallelism",
        "backoffLimit",
        "completionMode",
        "suspend",
    ] {
        assert_eq!(
            plain["spec"]["jobTemplate"]["spec"].get(field),
            None,
            "{field}"
        );
    }
    let errors = printed(&strategy(crons).validate(&cron(
        json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}}),
    )));
    assert_eq!(
        errors,
        [
            r#"spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: `selector` will be auto-generated"#,
            r#"spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false""#,
        ]
    );
}

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status})
}

#[test]
fn the_status_of_a_job_does_not_contradict_itself() {
    const START: &str = "2026-01-01T00:00:00Z";
    const END: &str = "2026-01-01T01:00:00Z";
    let conditions =
        |kinds: &[&str]| -> Value { kinds.iter().map(|kind| condition(kind, "True")).collect() };
    let complete = json!({"startTime": START, "completionTime": END,
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"])});
    let running = json!({"startTime": START, "active": 1, "ready": 1, "failed": 2});
    let empty = json!({});
    let cases = [
        // (the status before, the status after, the errors)
        (&empty, running.clone(), vec![]),
        (&empty, complete.clone(), vec![]),
        (
            &empty,
            json!({"conditions": conditions(&["Complete", "Failed"])}),
            vec![
                "status.conditions cannot set Complete=True and Failed=true conditions",
                "status.completionTime completionTime is required for Complete jobs",
                "status.conditions cannot set Failed=True condition without the FailureTarget=true condition",
                "status.conditions cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.startTime startTime is required for finished job",
            ],
        ),
        (
            &running,
            with(&running, "/startTime", json!(END)),
            vec!["status.startTime field is immutable for unsuspended job once set"],
        ),
        (
            &running,
            with(&running, "/failed", json!(1)),
            vec!["status.failed cannot decrease the failed counter"],
        ),
        (
            &running,
            with(&running, "/ready", json!(2)),
            vec!["status.ready cannot set more ready pods than active"],
        ),
        (
            &running,
            with(&running, "/completionTime", json!(END)),
            vec![
                "status.completionTime cannot set completionTime when there is no Complete=True condition",
            ],
        ),
        (
            &running,
            with(&running, "/active", json!(-1)),
            vec![
                "status.active must be greater than or equal to 0",
                "status.ready cannot set more ready pods than active",
            ],
        ),
        (
            &running,
            with(&running, "/completedIndexes", json!("0")),
            vec![
                "status.completedIndexes cannot set non-empty completedIndexes when non-indexed completion mode",
            ],
        ),
        (
            &running,
            with(&running, "/failedIndexes", json!("0")),
            vec![
                "status.failedIndexes cannot set non-null failedIndexes when backoffLimitPerIndex is null",
            ],
        ),
        (
            &running,
            with(
                &running,
                "/uncountedTerminatedPods",
                json!({"succeeded": ["a", "a"], "failed": [""]}),
            ),
            vec![
                "status.uncountedTerminatedPods.succeeded[1] ",
                "status.uncountedTerminatedPods.failed[0] must not be empty",
            ],
        ),
        (
            &complete,
            with(&complete, "/conditions", json!([])),
            vec![
                "status.completionTime cannot set completionTime when there is no Complete=True condition",
                "status.conditions cannot disable the terminal Complete=True condition",
                "status.conditions cannot disable the SuccessCriteriaMet=True condition",
            ],
        ),
        (
            &complete,
            with(&complete, "/active", json!(1)),
            vec!["status.active active>0 is invalid for finished job"],
        ),
        (
            &complete,
            with(&complete, "/completionTime", json!("2026-01-02T00:00:00Z")),
            vec!["status.completionTime field is immutable"],
        ),
        (
            &empty,
            with(&complete, "/completionTime", json!("2025-01-01T00:00:00Z")),
            vec!["status.completionTime must be equal to or after `startTime`"],
        ),
        (
            &empty,
            with(&complete, "/terminating", json!(1)),
            vec!["status.terminating terminating>0 is invalid for finished job"],
        ),
    ];
    let base = job(json!({}));
    for (old, new, expect) in cases {
        let (old, new) = (
            with(&base, "/status", old.clone()),
            with(&base, "/status", new),
        );
        let errors = strategy(jobs()).validate_update(&new, &old, Subresource::Status);
        let errors: Vec<String> = errors
            .into_iter()
            .map(|e| format!("{} {}", e.field, e.detail))
            .collect();
        assert_eq!(errors, expect, "{} -> {}", old["status"], new["status"]);
    }
}
