//! Workloads, PodGroups, CompositePodGroups, and the references of pods and Jobs to them.

use super::*;

const NOT_SET: &str = "field cannot be set once created";
const NOT_CLEARED: &str = "field cannot be cleared once set";
const IMMUTABLE: &str = r#"Invalid value: null: field is immutable"#;

fn of(plural: &'static str) -> &'static dyn KindStrategy {
    strategy(gr("scheduling.k8s.io", plural))
}

/// A spec with some fields replaced; `null` removes one.
fn with(mut spec: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    spec
}

fn object(plural: &'static str, spec: Value) -> Value {
    let mut object = json!({"metadata": {"name": "x", "namespace": "n"}, "spec": spec});
    of(plural).default(&mut object);
    object
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn errors_of(plural: &'static str, spec: Value) -> Vec<String> {
    texts(&of(plural).validate(&object(plural, spec)))
}

fn errors_of_change(plural: &'static str, old: Value, new: Value) -> Vec<String> {
    let (old, new) = (object(plural, old), object(plural, new));
    texts(&of(plural).validate_update(&new, &old, Subresource::Main))
}

fn gang() -> Value {
    json!({"schedulingPolicy": {"gang": {"minCount": 2}}})
}

fn composite() -> Value {
    json!({
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
    })
}

#[test]
fn a_group_has_one_policy_and_a_positive_count() {
    let policy = |policy: Value| json!({"schedulingPolicy": policy});
    let cases = [
        (gang(), vec![]),
        (policy(json!({"basic": {}})), vec![]),
        (
            json!({}),
            vec![
                r#"spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`"#,
            ],
        ),
        (
            policy(json!({"basic": {}, "gang": {"minCount": 1}})),
            vec![
                r#"spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`"#,
            ],
        ),
        (
            policy(json!({"gang": {}})),
            vec!["spec.schedulingPolicy.gang.minCount: Required value"],
        ),
        (
            policy(json!({"gang": {"minCount": 0}})),
            vec!["spec.schedulingPolicy.gang.minCount: Required value"],
        ),
        (
            policy(json!({"gang": {"minCount": -1}})),
            vec![
                "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
            ],
        ),
        // More than any cluster has: no upper bound.
        (policy(json!({"gang": {"minCount": 2_000_000_000}})), vec![]),
    ];
    for (spec, expected) in cases {
        assert_eq!(errors_of("podgroups", spec.clone()), expected, "{spec}");
    }
    let zero = with(composite(), json!({"schedulingPolicy": {"gang": {}}}));
    let expected = ["spec.schedulingPolicy.gang.minGroupCount: Required value"];
    assert_eq!(errors_of("compositepodgroups", zero), expected);
}

#[test]
fn fields_of_groups_are_checked_by_their_formats_and_limits() {
    let claim = |name: &str| json!({"name": name, "resourceClaimName": "c"});
    let claims = |n: usize| -> Value { (0..n).map(|i| claim(&format!("c{i}"))).collect() };
    let cases = [
        (
            json!({"priority": 1_000_000_001}),
            vec![
                "spec.priority: Invalid value: 1000000001: must be less than or equal to 1000000000",
            ],
        ),
        (json!({"priority": -2_147_483_648_i64}), vec![]),
        (
            json!({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}),
            vec!["spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"schedulingConstraints": {"topology": [{}]}}),
            vec!["spec.schedulingConstraints.topology[0].key: Required value"],
        ),
        (
            json!({"resourceClaims": claims(5)}),
            vec!["spec.resourceClaims: Too many: 5: must have at most 4 items"],
        ),
        (
            json!({"resourceClaims": [claim("a"), claim("a")]}),
            vec![
                r#"spec.resourceClaims[1]: Duplicate value: {"name":"a","resourceClaimName":"c"}"#,
            ],
        ),
        (
            json!({"resourceClaims": [{"name": "a"}]}),
            vec![
                r#"spec.resourceClaims[0]: Invalid value: "": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"#,
            ],
        ),
        (
            json!({"disruptionMode": {"single": {}, "all": {}}}),
            vec![
                r#"spec.disruptionMode: Invalid value: "{single, all}": must specify exactly one of: `single`, `all`"#,
            ],
        ),
        (
            json!({"preemptionPolicy": "Sometimes"}),
            vec![
                r#"spec.preemptionPolicy: Unsupported value: "Sometimes": supported values: "Never", "PreemptLowerPriority""#,
            ],
        ),
        (
            json!({"parentCompositePodGroupName": "p"}),
            vec![
                "spec.workloadRef: Required value: must be specified when `parentCompositePodGroupName` is set",
            ],
        ),
        (
            json!({"workloadRef": {}}),
            vec![
                "spec.workloadRef.workloadName: Required value",
                "spec.workloadRef.templateName: Required value",
            ],
        ),
    ];
    for (fields, expected) in cases {
        let spec = with(gang(), fields.clone());
        assert_eq!(errors_of("podgroups", spec), expected, "{fields}");
    }
    let without = with(composite(), json!({"workloadRef": null}));
    let expected = ["spec.workloadRef: Required value"];
    assert_eq!(errors_of("compositepodgroups", without), expected);
    let topology = json!({"schedulingConstraints": {"topology": [{"key": "a b"}]}});
    let errors = errors_of("podgroups", with(gang(), topology));
    assert!(errors[0].starts_with("spec.schedulingConstraints.topology[0].key: Invalid value"));
}

#[test]
fn a_group_without_a_disruption_mode_gets_single() {
    let mode = |plural, spec| object(plural, spec)["spec"]["disruptionMode"].clone();
    assert_eq!(mode("podgroups", gang()), json!({"single": {}}));
    assert_eq!(
        mode("compositepodgroups", composite()),
        json!({"single": {}})
    );
    let all = with(gang(), json!({"disruptionMode": {"all": {}}}));
    assert_eq!(mode("podgroups", all), json!({"all": {}}));
    // A template is defaulted when a group is created from it.
    let template = with(gang(), json!({"name": "t"}));
    let workload = object("workloads", json!({"podGroupTemplates": [template]}));
    assert_eq!(
        workload["spec"]["podGroupTemplates"][0].get("disruptionMode"),
        None
    );
}

#[test]
fn only_the_counts_of_gangs_may_change() {
    let count = |n: i64| json!({"schedulingPolicy": {"gang": {"minCount": n}}});
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    let policy = |field: &str, text: &str| {
        format!(r#"spec.schedulingPolicy.{field}: Invalid value: null: {text}"#)
    };
    let immutable = |field: &str| format!("spec.{field}: {IMMUTABLE}");
    let plain = |text: &str| format!("spec.{text}");
    let cases = [
        ("a larger count", gang(), count(9), vec![]),
        ("a smaller count", gang(), count(1), vec![]),
        (
            "no count",
            gang(),
            count(0),
            vec![plain("schedulingPolicy.gang.minCount: Required value")],
        ),
        (
            "basic to gang",
            basic.clone(),
            gang(),
            vec![
                policy("basic", "field is immutable"),
                policy("gang", NOT_SET),
            ],
        ),
        (
            "gang to basic",
            gang(),
            basic,
            vec![
                policy("basic", "field is immutable"),
                policy("gang", NOT_CLEARED),
            ],
        ),
        (
            "a constraint is added",
            gang(),
            with(
                gang(),
                json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}}),
            ),
            vec![immutable("schedulingConstraints")],
        ),
        (
            "a priority is removed",
            with(gang(), json!({"priority": 1})),
            gang(),
            vec![immutable("priority")],
        ),
        (
            "another mode",
            gang(),
            with(gang(), json!({"disruptionMode": {"all": {}}})),
            vec![immutable("disruptionMode")],
        ),
        (
            "a reference is added",
            gang(),
            with(
                gang(),
                json!({"workloadRef": {"workloadName": "w", "templateName": "t"}}),
            ),
            vec![immutable("workloadRef")],
        ),
        (
            "what is wrong and unchanged is not reported",
            with(gang(), json!({"priority": 2_000_000_000})),
            with(count(3), json!({"priority": 2_000_000_000})),
            vec![],
        ),
    ];
    for (name, old, new, expected) in cases {
        assert_eq!(errors_of_change("podgroups", old, new), expected, "{name}");
    }
    let more = with(
        composite(),
        json!({"schedulingPolicy": {"gang": {"minGroupCount": 3}}}),
    );
    let changed = errors_of_change("compositepodgroups", composite(), more);
    assert_eq!(changed, [""; 0]);
    let other = with(
        composite(),
        json!({"workloadRef": {"workloadName": "v", "templateName": "t"}}),
    );
    let changed = errors_of_change("compositepodgroups", composite(), other);
    assert_eq!(changed, [immutable("workloadRef")]);
}

fn leaf(name: &str) -> Value {
    with(gang(), json!({"name": name}))
}

fn node(name: &str, below: Value) -> Value {
    with(
        json!({"name": name, "schedulingPolicy": {"basic": {}}}),
        below,
    )
}

#[test]
fn the_templates_of_a_workload_are_a_tree_of_limited_depth_with_one_priority() {
    let deep = node("d", json!({"podGroupTemplates": [leaf("l")]}));
    let deep = node("c", json!({"compositePodGroupTemplates": [deep]}));
    let right = node(
        "b",
        json!({"podGroupTemplates": [leaf("m")], "compositePodGroupTemplates": [node("c", json!({"podGroupTemplates": [leaf("l")]}))]}),
    );
    let right = node("a", json!({"compositePodGroupTemplates": [right]}));
    let too_deep = node("b", json!({"compositePodGroupTemplates": [deep]}));
    let too_deep = node("a", json!({"compositePodGroupTemplates": [too_deep]}));
    let composites = |list: Value| json!({"compositePodGroupTemplates": list});
    let many: Value = (0..9).map(|i| leaf(&format!("t{i}"))).collect();
    let urgent = with(leaf("b"), json!({"priorityClassName": "high"}));
    let cases = [
        (
            "two leaves",
            json!({"podGroupTemplates": [leaf("a"), leaf("b")]}),
            "",
        ),
        ("a tree of four levels", composites(json!([right])), ""),
        (
            "no template",
            json!({}),
            r#"spec: Invalid value: "": must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`"#,
        ),
        (
            "both lists",
            json!({"podGroupTemplates": [leaf("a")], "compositePodGroupTemplates": [node("b", json!({"podGroupTemplates": [leaf("c")]}))]}),
            r#"spec: Invalid value: "{podGroupTemplates, compositePodGroupTemplates}": must specify exactly one of"#,
        ),
        (
            "nine templates",
            json!({"podGroupTemplates": many}),
            "spec.podGroupTemplates: Too many: 9: must have at most 8 items",
        ),
        (
            "a name twice in one list",
            json!({"podGroupTemplates": [leaf("a"), leaf("a")]}),
            "spec.podGroupTemplates[1]: Duplicate value",
        ),
        (
            "a name twice in the tree",
            composites(json!([node(
                "a",
                json!({"podGroupTemplates": [leaf("a")]})
            )])),
            r#"spec.compositePodGroupTemplates[0].podGroupTemplates[0].name: Duplicate value: "a""#,
        ),
        (
            "too deep",
            composites(json!([too_deep])),
            "maximum template hierarchy depth is 4",
        ),
        (
            "two priorities",
            json!({"podGroupTemplates": [leaf("a"), urgent]}),
            r#"spec: Invalid value: null: all priority and priorityClassName values must be identical, detected multiple values"#,
        ),
        (
            "no children",
            composites(json!([node("a", json!({}))])),
            r#"spec.compositePodGroupTemplates[0]: Invalid value: "a": must have at least one child PodGroupTemplate or CompositePodGroupTemplate"#,
        ),
    ];
    for (name, spec, expected) in cases {
        let errors = errors_of("workloads", spec);
        match expected {
            "" => assert_eq!(errors, [""; 0], "{name}"),
            expected => assert!(
                errors.len() == 1 && errors[0].contains(expected),
                "{name}: {errors:?}"
            ),
        }
    }
}

#[test]
fn the_templates_of_a_workload_stay_the_same_but_for_counts() {
    let templates = |list: Value| json!({"podGroupTemplates": list});
    let (a, b) = (leaf("a"), leaf("b"));
    let larger = with(
        leaf("a"),
        json!({"schedulingPolicy": {"gang": {"minCount": 5}}}),
    );
    let path = |rest: &str| format!(r#"spec.podGroupTemplates{rest}"#);
    let cases = [
        ("another count", json!([larger, b]), vec![]),
        ("another order", json!([b, a]), vec![]),
        (
            "one more",
            json!([a, b, leaf("c")]),
            vec![path(r#"[2]: Invalid value: null: item may not be added"#)],
        ),
        (
            "one less",
            json!([a]),
            vec![path(r#": Invalid value: null: item may not be removed"#)],
        ),
    ];
    for (name, new, expected) in cases {
        let old = templates(json!([a, b]));
        let errors = errors_of_change("workloads", old, templates(new));
        assert_eq!(errors, expected, "{name}");
    }
    let reference = |name: &str| {
        with(
            templates(json!([a])),
            json!({"controllerRef": {"kind": "Job", "name": name}}),
        )
    };
    let errors = errors_of_change("workloads", reference("a"), reference("b"));
    assert_eq!(errors, [format!("spec.controllerRef: {IMMUTABLE}")]);
}

#[test]
fn the_status_of_a_group_has_sound_conditions_and_known_claims() {
    let mut group = object(
        "podgroups",
        with(
            gang(),
            json!({"resourceClaims": [{"name": "a", "resourceClaimName": "c"}]}),
        ),
    );
    let mut errors = |status: Value| {
        let old = group.clone();
        group["status"] = status;
        let errors = of("podgroups").validate_update(&group, &old, Subresource::Status);
        group = old;
        texts(&errors)
    };
    let condition = json!({
        "type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    assert_eq!(errors(json!({"conditions": [condition]})), [""; 0]);
    let bad = with(condition, json!({"reason": null}));
    assert_eq!(
        errors(json!({"conditions": [bad]})),
        ["status.conditions[0].reason: Required value"]
    );
    let statuses =
        |name: &str| json!({"resourceClaimStatuses": [{"name": name, "resourceClaimName": "g"}]});
    assert_eq!(errors(statuses("a")), [""; 0]);
    assert_eq!(
        errors(statuses("b")),
        [
            r#"status.resourceClaimStatuses[0].name: Invalid value: "b": must match the name of an entry in `spec.resourceClaims`"#
        ]
    );
}

#[test]
fn a_pod_names_its_group_from_the_beginning() {
    let pods = strategy(gr("", "pods"));
    let pod = |group: Value| {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "c", "image": "a:1", "terminationMessagePolicy": "File"}], "schedulingGates": [{"name": "g"}]},
        });
        if !group.is_null() {
            pod["spec"]["schedulingGroup"] = group;
        }
        pods.default(&mut pod);
        pod
    };
    let named = |name: &str| json!({"podGroupName": name});
    let errors = |group| texts(&pods.validate(&pod(group)));
    assert_eq!(errors(named("g")), [""; 0]);
    assert_eq!(
        errors(json!({})),
        [
            r#"spec.schedulingGroup.podGroupName: Invalid value: "": must specify one of: `podGroupName`"#
        ]
    );
    let bad = errors(named("A"));
    assert!(bad[0].starts_with(r#"spec.schedulingGroup.podGroupName: Invalid value: "A""#));
    let cases = [
        (json!(null), named("g")),
        (named("g"), json!(null)),
        (named("g"), named("h")),
    ];
    for (old, new) in cases {
        let errors = pods.validate_update(&pod(new), &pod(old), Subresource::Main);
        assert!(
            texts(&errors)[0].starts_with("spec: Forbidden"),
            "{errors:?}"
        );
    }
}

#[test]
fn the_scheduling_of_a_job_stays_but_for_the_count() {
    let jobs = strategy(gr("batch", "jobs"));
    let job = |scheduling: Value| {
        let mut job = json!({
            "metadata": {"name": "j", "namespace": "n", "uid": "u"},
            "spec": {"parallelism": 4, "completions": 4, "template": {
                "metadata": {},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1"}]},
            }},
        });
        if !scheduling.is_null() {
            job["spec"]["scheduling"] = scheduling;
        }
        jobs.default(&mut job);
        jobs.prepare_for_create(&mut job, "2026-01-01T00:00:00Z");
        job
    };
    let count = |n: i64| json!({"schedulingPolicy": {"gang": {"minCount": n}}});
    let errors = |scheduling| texts(&jobs.validate(&job(scheduling)));
    let at = "spec.scheduling.schedulingPolicy";
    assert_eq!(errors(count(4)), [""; 0]);
    assert_eq!(errors(json!({"schedulingPolicy": {"gang": {}}})), [""; 0]);
    assert_eq!(
        errors(count(0)),
        [format!(
            "{at}.gang.minCount: Invalid value: 0: must be greater than or equal to 1"
        )]
    );
    assert_eq!(
        errors(count(5)),
        [format!(
            "{at}.gang.minCount: Invalid value: 5: must be less than or equal to `spec.parallelism`"
        )]
    );
    assert_eq!(
        errors(json!({"schedulingPolicy": {}})),
        [format!(
            r#"{at}: Invalid value: "": must specify one of: `basic`, `gang`"#
        )]
    );
    let change = |old, new| {
        let (mut old, mut new) = (job(old), job(new));
        for job in [&mut old, &mut new] {
            job["status"] = json!({});
        }
        texts(&jobs.validate_update(&new, &old, Subresource::Main))
    };
    let null = |field: &str, text: &str| {
        vec![format!(
            r#"spec.scheduling{field}: Invalid value: null: {text}"#
        )]
    };
    let all = with(count(2), json!({"disruptionMode": {"all": {}}}));
    assert_eq!(change(count(2), count(3)), [""; 0]);
    assert_eq!(change(json!(null), count(2)), null("", NOT_SET));
    assert_eq!(change(count(2), json!(null)), null("", NOT_CLEARED));
    assert_eq!(
        change(count(2), all),
        null(".disruptionMode", "field is immutable")
    );
    // The template of a CronJob applies to future Jobs.
    let cron_jobs = strategy(gr("batch", "cronjobs"));
    let cron_job = |scheduling: Value| {
        let mut cron_job = json!({
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job(scheduling)["spec"]}},
        });
        if let Some(spec) = cron_job["spec"]["jobTemplate"]["spec"].as_object_mut() {
            spec.remove("selector");
        }
        cron_jobs.default(&mut cron_job);
        cron_job
    };
    let (old, new) = (
        cron_job(count(2)),
        cron_job(with(count(2), json!({"disruptionMode": {"all": {}}}))),
    );
    let errors = cron_jobs.validate_update(&new, &old, Subresource::Main);
    assert_eq!(texts(&errors), [""; 0]);
}
