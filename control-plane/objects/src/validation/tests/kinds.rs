//! The answers to a create and an update of each kind.

use super::*;

/// An object after its creation.
pub(super) fn created(kind: GroupResource, mut object: Value) -> Value {
    let rules = strategy(kind);
    rules.default(&mut object);
    rules.prepare_for_create(&mut object, "");
    object
}

pub(super) fn printed(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The fields with errors when the object is created.
fn fields_of_create(kind: GroupResource, object: Value) -> Vec<String> {
    let errors = strategy(kind).validate(&created(kind, object));
    errors.into_iter().map(|e| e.field).collect()
}

/// The fields with errors when `old` becomes `new`.
fn fields_of_update(kind: GroupResource, new: &Value, old: &Value) -> Vec<String> {
    let errors = strategy(kind).validate_update(new, old, Subresource::Main);
    errors.into_iter().map(|e| e.field).collect()
}

/// A value with one place changed; `null` removes it.
pub(super) fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = object.clone();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer starts with /");
    let parent = changed
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("{pointer} has a parent"));
    match (parent, value) {
        (Value::Object(fields), Value::Null) => {
            fields.remove(key);
        }
        (Value::Object(fields), value) => {
            fields.insert(key.to_owned(), value);
        }
        (Value::Array(items), value) => {
            items[key.parse::<usize>().expect("an index")] = value;
        }
        (other, _) => panic!("{other} has no fields"),
    }
    changed
}

/// An object with a selector and a template that fit.
pub(super) fn workload() -> Value {
    json!({"metadata": {"name": "w"}, "spec": {
        "selector": {"matchLabels": {"a": "w"}},
        "template": {"metadata": {"labels": {"a": "w"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example/a:1"}]}}}})
}

#[test]
fn a_deployment_gets_its_defaults() {
    let deployments = gr("apps", "deployments");
    let object = created(deployments, workload());
    assert_eq!(strategy(deployments).validate(&object), []);
    assert_eq!(
        object["spec"],
        json!({
            "replicas": 1,
            "selector": {"matchLabels": {"a": "w"}},
            "template": {"metadata": {"labels": {"a": "w"}}, "spec": {
                "containers": [{"name": "c", "image": "registry.example/a:1", "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst", "securityContext": {},
                "schedulerName": "default-scheduler"}},
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        })
    );
    assert_eq!(object["status"], json!({}));
}

#[test]
fn faults_of_a_deployment_are_named() {
    let cases = [
        (
            "/spec/selector",
            json!({}),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            "/spec/selector/matchLabels/a",
            json!("x"),
            "spec.template.metadata.labels: Invalid value: {\"a\":\"w\"}: `selector` does not match template `labels`",
        ),
        (
            "/spec/template/spec/restartPolicy",
            json!("Never"),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            "/spec/replicas",
            json!(-1),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/spec/strategy",
            json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
        ),
        (
            "/spec/strategy",
            json!({"type": "Sudden"}),
            "spec.strategy.type: Unsupported value: \"Sudden\": supported values: \"Recreate\", \"RollingUpdate\"",
        ),
        (
            "/spec/progressDeadlineSeconds",
            json!(0),
            "spec.progressDeadlineSeconds: Invalid value: 0: must be greater than minReadySeconds",
        ),
        (
            "/spec/template/spec/containers",
            json!([]),
            "spec.template.spec.containers: Required value",
        ),
    ];
    let deployments = gr("apps", "deployments");
    for (pointer, value, expected) in cases {
        let object = created(deployments, with(&workload(), pointer, value));
        assert_eq!(
            printed(&strategy(deployments).validate(&object)),
            [expected]
        );
    }
    // Without a selector no labels match.
    let object = created(
        deployments,
        with(&workload(), "/spec/selector", Value::Null),
    );
    let errors = printed(&strategy(deployments).validate(&object));
    assert_eq!(errors[0], "spec.selector: Required value");
    assert!(
        errors[1].starts_with("spec.template.metadata.labels: "),
        "{errors:?}"
    );
}

#[test]
fn selectors_of_workloads_do_not_change() {
    for kind in [
        gr("apps", "deployments"),
        gr("apps", "replicasets"),
        gr("apps", "daemonsets"),
    ] {
        let old = created(kind, workload());
        let new = with(&old, "/spec/selector/matchLabels", json!({"b": "w"}));
        let new = with(&new, "/spec/template/metadata/labels", json!({"b": "w"}));
        assert_eq!(
            printed(&strategy(kind).validate_update(&new, &old, Subresource::Main)),
            ["spec.selector: Invalid value: {\"matchLabels\":{\"b\":\"w\"}}: field is immutable"],
            "{kind:?}"
        );
    }
}

#[test]
fn a_replication_controller_selects_its_own_labels() {
    let controllers = gr("", "replicationcontrollers");
    let mut object = workload();
    object["spec"]["selector"] = Value::Null;
    let object = created(controllers, object);
    assert_eq!(strategy(controllers).validate(&object), []);
    assert_eq!(object["spec"]["selector"], json!({"a": "w"}));
    assert_eq!(object["metadata"]["labels"], json!({"a": "w"}));
}

#[test]
fn sets_get_their_defaults_and_are_valid() {
    let cases = [
        (
            gr("apps", "statefulsets"),
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ),
        (
            gr("apps", "daemonsets"),
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}),
        ),
    ];
    for (kind, rollout) in cases {
        let set = created(kind, workload());
        assert_eq!(strategy(kind).validate(&set), []);
        assert_eq!(set["spec"]["updateStrategy"], rollout);
    }
    let set = created(gr("apps", "statefulsets"), workload());
    assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
}

#[test]
fn a_stateful_set_keeps_its_service_but_scales() {
    let sets = gr("apps", "statefulsets");
    let old = created(sets, workload());
    let more = with(&old, "/spec/replicas", json!(5));
    assert_eq!(fields_of_update(sets, &more, &old), [""; 0]);
    let other = with(&old, "/spec/serviceName", json!("other"));
    assert_eq!(fields_of_update(sets, &other, &old), ["spec"]);
}

#[test]
fn a_job_ties_pods_to_its_uid() {
    let jobs = gr("batch", "jobs");
    let job = created(
        jobs,
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "a:1"}]}}}}),
    );
    assert_eq!(strategy(jobs).validate(&job), []);
    assert_eq!(job["spec"]["completions"], 1);
    assert_eq!(job["spec"]["backoffLimit"], 6);
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
    );
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["job-name"], "j");

    let endless = with(&job, "/spec/template/spec/restartPolicy", json!("Always"));
    assert_eq!(
        printed(&strategy(jobs).validate(&endless))
            .first()
            .map(String::as_str),
        Some(
            r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#
        )
    );
    let errors = strategy(jobs).validate_update(&endless, &job, Subresource::Main);
    assert!(
        errors
            .iter()
            .any(|e| e.field == "spec.template" && e.detail == "field is immutable"),
        "{errors:?}"
    );
}

#[test]
fn a_cron_job_has_a_schedule_and_a_template() {
    let jobs = gr("batch", "cronjobs");
    let job = json!({"metadata": {"name": "j"}, "spec": {"schedule": "*/5 * * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "a:1"}]}}}}}});
    let object = created(jobs, job.clone());
    assert_eq!(strategy(jobs).validate(&object), []);
    assert_eq!(object["spec"]["concurrencyPolicy"], "Allow");
    assert_eq!(object["spec"]["successfulJobsHistoryLimit"], 3);
    assert_eq!(object["spec"]["failedJobsHistoryLimit"], 1);
    for (pointer, value, field) in [
        ("/spec/schedule", json!(""), "spec.schedule"),
        ("/spec/schedule", json!("61 * * * *"), "spec.schedule"),
        ("/spec/schedule", json!("TZ=UTC * * * * *"), "spec.schedule"),
        ("/spec/timeZone", json!("Mars/Base"), "spec.timeZone"),
        (
            "/spec/concurrencyPolicy",
            json!("Maybe"),
            "spec.concurrencyPolicy",
        ),
        ("/metadata/name", json!("j".repeat(53)), "metadata.name"),
    ] {
        let fields = fields_of_create(jobs, with(&job, pointer, value.clone()));
        assert_eq!(fields, [field], "{pointer} {value}");
    }
}

#[test]
fn a_claim_asks_for_one_device_by_default() {
    let claims = gr("resource.k8s.io", "resourceclaims");
    let claim = created(
        claims,
        json!({"spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}),
    );
    assert_eq!(strategy(claims).validate(&claim), []);
    assert_eq!(
        claim["spec"],
        json!({"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}})
    );
    let changed = with(&claim, "/spec/devices/requests/0/name", json!("x"));
    assert_eq!(fields_of_update(claims, &changed, &claim), ["spec"]);
}

#[test]
fn malformed_requests_are_named() {
    let cases = [
        (json!({"name": "r"}), "spec.devices.requests[0]"),
        (
            json!({"name": "R!", "exactly": {"deviceClassName": "gpu"}}),
            "spec.devices.requests[0].name",
        ),
        (
            json!({"name": "r", "exactly": {}}),
            "spec.devices.requests[0].exactly.deviceClassName",
        ),
        (
            json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}),
            "spec.devices.requests[0].exactly.allocationMode",
        ),
        (
            json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": -1}}),
            "spec.devices.requests[0].exactly.count",
        ),
    ];
    let claims = gr("resource.k8s.io", "resourceclaims");
    for (request, field) in cases {
        let claim = json!({"spec": {"devices": {"requests": [request]}}});
        assert_eq!(fields_of_create(claims, claim), [field]);
    }
}

fn slice() -> Value {
    json!({"spec": {
        "driver": "gpu.example.com", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "dev-0", "attributes": {"model": {"string": "a"}}}],
    }})
}

#[test]
fn malformed_slices_are_named() {
    let slices = gr("resource.k8s.io", "resourceslices");
    assert_eq!(fields_of_create(slices, slice()), [""; 0]);
    let too_many = (0..129).map(|n| json!({"name": format!("d{n}")}));
    for (pointer, value, expected) in [
        ("/spec/driver", json!(""), "spec.driver"),
        ("/spec/driver", json!("g u"), "spec.driver"),
        ("/spec/driver", json!("d".repeat(64)), "spec.driver"),
        ("/spec/pool/name", json!(""), "spec.pool.name"),
        ("/spec/pool/name", json!("a/B"), "spec.pool.name"),
        (
            "/spec/pool/resourceSliceCount",
            json!(0),
            "spec.pool.resourceSliceCount",
        ),
        ("/spec/pool/generation", json!(-1), "spec.pool.generation"),
        ("/spec/nodeName", Value::Null, "spec"),
        ("/spec/allNodes", json!(true), "spec"),
        ("/spec/devices/0/name", json!("a.b"), "spec.devices[0].name"),
        (
            "/spec/devices",
            json!([{"name": "a"}, {"name": "a"}]),
            "spec.devices[1]",
        ),
        ("/spec/devices", too_many.collect(), "spec.devices"),
    ] {
        let changed = with(&slice(), pointer, value.clone());
        assert_eq!(
            fields_of_create(slices, changed),
            [expected],
            "{pointer} {value}"
        );
    }
}

/// The texts equal kube-apiserver 1.36's, whose errors show values as Go's JSON encoder prints them. Until 1.33 an
/// absent value was shown as `"null"`.
#[test]
fn errors_show_absent_and_empty_values_as_go_does() {
    let changed = |kind, old: Value, new: Value| {
        let errors = strategy(kind).validate_update(&new, &old, Subresource::Main);
        printed(&errors)
    };
    let classes = gr("storage.k8s.io", "storageclasses");
    let class = json!({"provisioner": "p", "parameters": {"a": "b"}, "reclaimPolicy": "Delete"});
    let errors = changed(classes, class, json!({"reclaimPolicy": "Delete"}));
    for expected in [
        "parameters: Invalid value: null: field is immutable",
        "provisioner: Invalid value: \"\": field is immutable",
    ] {
        assert!(errors.iter().any(|e| e == expected), "{errors:?}");
    }
    let ingresses = gr("networking.k8s.io", "ingresses");
    let errors = strategy(ingresses).validate(&json!({"metadata": {"name": "i"}, "spec": {}}));
    let expected =
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified";
    assert_eq!(printed(&errors), [expected]);

    let slices = gr("resource.k8s.io", "resourceslices");
    let at = |terms: Value| {
        let mut slice = with(&slice(), "/spec/nodeName", Value::Null);
        slice["spec"]["nodeSelector"] = json!({"nodeSelectorTerms": terms});
        printed(&strategy(slices).validate(&slice))
    };
    let term =
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let shown = r#"{"MatchExpressions":null,"MatchFields":[{"Key":"metadata.name","Operator":"In","Values":["n"]}]}"#;
    let two = format!("[{shown},{shown}]");
    for (terms, shown) in [
        (Value::Null, "null"),
        (json!([]), "[]"),
        (json!([term, term]), &two),
    ] {
        let expected = format!(
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: {shown}: must have exactly one node selector term"
        );
        let errors = at(terms);
        assert!(errors.contains(&expected), "{errors:?}");
    }
}

#[test]
fn a_slice_keeps_its_node_and_driver() {
    let slices = gr("resource.k8s.io", "resourceslices");
    let old = created(slices, slice());
    for (pointer, field) in [
        ("/spec/driver", "spec.driver"),
        ("/spec/pool/name", "spec.pool.name"),
        ("/spec/nodeName", "spec.nodeName"),
    ] {
        let changed = with(&old, pointer, json!("other"));
        assert_eq!(fields_of_update(slices, &changed, &old), [field]);
    }
    let more = with(
        &old,
        "/spec/devices",
        json!([{"name": "dev-0"}, {"name": "dev-1"}]),
    );
    assert_eq!(fields_of_update(slices, &more, &old), [""; 0]);
}

#[test]
fn malformed_device_classes_are_named() {
    let classes = gr("resource.k8s.io", "deviceclasses");
    let selector = json!({"cel": {"expression": "device.driver == 'd'"}});
    let config = json!({"opaque": {"driver": "d", "parameters": {"any": "thing"}}});
    for (spec, expected) in [
        (json!({}), vec![]),
        (
            json!({"selectors": [selector], "config": [config], "extendedResourceName": "example.com/gpu"}),
            vec![],
        ),
        (json!({"selectors": [{}]}), vec!["spec.selectors[0].cel"]),
        (
            json!({"selectors": [{"cel": {"expression": ""}}]}),
            vec!["spec.selectors[0].cel.expression"],
        ),
        (
            json!({"selectors": [{"cel": {"expression": "device.unknown == 'd'"}}]}),
            vec!["spec.selectors[0].cel.expression"],
        ),
        (
            json!({"selectors": [{"cel": {"expression": "device.driver"}}]}),
            vec!["spec.selectors[0].cel.expression"],
        ),
        (
            json!({"selectors": [{"cel": {"expression": "lists.range(1000000).all(x, x >= 0)"}}]}),
            vec!["spec.selectors[0].cel.expression"],
        ),
        (
            json!({"selectors": vec![selector; 33]}),
            vec!["spec.selectors"],
        ),
        (json!({"config": [{}]}), vec!["spec.config[0].opaque"]),
        (
            json!({"config": [{"opaque": {"driver": "", "parameters": {}}}]}),
            vec!["spec.config[0].opaque.driver"],
        ),
        (
            json!({"config": [{"opaque": {"driver": "d"}}]}),
            vec!["spec.config[0].opaque.parameters"],
        ),
    ] {
        let class = json!({"spec": spec});
        assert_eq!(
            fields_of_create(classes, class.clone()),
            expected,
            "{class}"
        );
        let class = created(classes, class);
        assert_eq!(
            fields_of_update(classes, &class, &class),
            expected,
            "{class}"
        );
    }
}

#[test]
fn priority_classes_keep_their_value_and_system_names() {
    let classes = gr("scheduling.k8s.io", "priorityclasses");
    let class = created(
        classes,
        json!({"metadata": {"name": "high"}, "value": 1000, "globalDefault": false}),
    );
    assert_eq!(
        class,
        json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "PreemptLowerPriority"})
    );
    let cases = [
        (
            json!({"metadata": {"name": "a"}, "value": 1_000_000_000}),
            vec![],
        ),
        (
            json!({"metadata": {"name": "a"}, "value": 1_000_000_001}),
            vec!["value"],
        ),
        (
            json!({"metadata": {"name": "system-mine"}, "value": 1}),
            vec!["metadata.name"],
        ),
        (
            json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
            vec![],
        ),
        (
            json!({"metadata": {"name": "a"}, "preemptionPolicy": "Maybe"}),
            vec!["preemptionPolicy"],
        ),
    ];
    for (class, expected) in cases {
        assert_eq!(
            fields_of_create(classes, class.clone()),
            expected,
            "{class}"
        );
    }
    let changed = with(&class, "/value", json!(1));
    assert_eq!(fields_of_update(classes, &changed, &class), ["value"]);
}

#[test]
fn disruption_budgets_limit_one_side() {
    let budgets = gr("policy", "poddisruptionbudgets");
    let cases = [
        (json!({"minAvailable": 1}), vec![]),
        (json!({"minAvailable": "150%"}), vec!["spec.minAvailable"]),
        (json!({"maxUnavailable": -1}), vec!["spec.maxUnavailable"]),
        (
            json!({"minAvailable": 1, "maxUnavailable": 1}),
            vec!["spec"],
        ),
        (json!({"minAvailable": "half"}), vec!["spec.minAvailable"]),
    ];
    for (spec, expected) in cases {
        assert_eq!(fields_of_create(budgets, json!({"spec": spec})), expected);
    }
}

#[test]
fn events_name_their_namespace_and_reporter() {
    let cases = [
        (
            json!({"metadata": {"namespace": "default"}, "involvedObject": {"kind": "Node"}}),
            vec![],
        ),
        (
            json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
            vec!["involvedObject.namespace"],
        ),
        (
            json!({"metadata": {"namespace": "default"}, "eventTime": "t", "type": "Warning",
                "reportingComponent": "default-scheduler", "reportingInstance": "x",
                "action": "Scheduling", "reason": "FailedScheduling", "message": "n"}),
            vec![],
        ),
        (
            json!({"metadata": {"namespace": "default"}, "eventTime": "t",
                "reportingComponent": "c", "reason": "r", "message": "x".repeat(1025)}),
            vec!["reportingInstance", "action", "message", "type"],
        ),
    ];
    for (event, expected) in cases {
        assert_eq!(
            strategy(gr("", "events"))
                .validate(&event)
                .iter()
                .map(|e| e.field.clone())
                .collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn leases_have_a_duration() {
    let cases = [
        (
            json!({"leaseDurationSeconds": 15, "leaseTransitions": 0}),
            vec![],
        ),
        (
            json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
            vec!["spec.leaseDurationSeconds", "spec.leaseTransitions"],
        ),
    ];
    for (spec, expected) in cases {
        let leases = gr("coordination.k8s.io", "leases");
        assert_eq!(fields_of_create(leases, json!({"spec": spec})), expected);
    }
}

#[test]
fn volumes_and_claims_keep_what_they_were_created_with() {
    let volumes = gr("", "persistentvolumes");
    let volume = created(
        volumes,
        json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}}),
    );
    assert_eq!(strategy(volumes).validate(&volume), []);
    let moved = with(&volume, "/spec/csi/volumeHandle", json!("other"));
    assert_eq!(
        fields_of_update(volumes, &moved, &volume),
        ["spec.persistentvolumesource"]
    );

    let claims = gr("", "persistentvolumeclaims");
    let claim = created(
        claims,
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}),
    );
    assert_eq!(strategy(claims).validate(&claim), []);
    let moved = with(&claim, "/spec/accessModes", json!(["ReadOnlyMany"]));
    assert_eq!(fields_of_update(claims, &moved, &claim), ["spec"]);
    let empty = json!({"metadata": {"name": "c"}, "spec": {}});
    assert_eq!(
        fields_of_create(claims, empty),
        ["spec.accessModes", "spec.resources[storage]"]
    );
}

#[test]
fn addresses_of_policies_and_slices_are_checked() {
    let peer = "spec.ingress[0].from[0]";
    let except = |i: usize| format!("{peer}.ipBlock.except[{i}]");
    for (from, expected) in [
        (json!({"podSelector": {}}), vec![]),
        (json!({}), vec![peer.to_owned()]),
        (
            json!({"podSelector": {}, "ipBlock": {"cidr": "fd00::/8"}}),
            vec![peer.to_owned()],
        ),
        (
            json!({"ipBlock": {"cidr": "x"}}),
            vec![format!("{peer}.ipBlock.cidr")],
        ),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}),
            vec![],
        ),
        (
            json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8", "fd00::/16", "11.0.0.0/9", "y"]}}),
            (0..4).map(except).collect(),
        ),
    ] {
        let policy = json!({
            "metadata": {"name": "a"},
            "spec": {"podSelector": {}, "ingress": [{"from": [from]}]},
        });
        let kind = gr("networking.k8s.io", "networkpolicies");
        assert_eq!(fields_of_create(kind, policy.clone()), expected, "{policy}");
    }
    for (family, address, expected) in [
        ("IPv4", "10.0.0.1", None),
        ("IPv6", "fd00::1", None),
        ("FQDN", "a.example", None),
        ("IPv4", "x", Some("endpoints[0].addresses[0]")),
        ("IPv4", "fd00::1", Some("endpoints[0].addresses")),
        ("IPv6", "10.0.0.1", Some("endpoints[0].addresses")),
    ] {
        let slice = json!({
            "metadata": {"name": "a"}, "addressType": family, "endpoints": [{"addresses": [address]}],
        });
        let fields = fields_of_create(gr("discovery.k8s.io", "endpointslices"), slice);
        assert_eq!(fields, Vec::from_iter(expected), "{family} {address}");
    }
}

#[test]
fn daemon_sets_count_changes_of_their_template_and_jobs_have_labels() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let kind = gr("apps", "daemonsets");
    let set = json!({
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let generation = |set: &Value| {
        let annotations = &set["metadata"]["annotations"];
        annotations["deprecated.daemonset.template.generation"].clone()
    };
    let old = created(kind, set);
    assert_eq!(generation(&old), "1");
    for (pointer, value, expected) in [
        ("/spec/minReadySeconds", json!(5), "1"),
        ("/spec/template/metadata/labels/c", json!("d"), "2"),
        ("/metadata/annotations", json!({}), "1"),
    ] {
        let mut new = with(&old, pointer, value);
        strategy(kind).default(&mut new);
        strategy(kind).prepare_for_update(&mut new, &old, Subresource::Main, "");
        assert_eq!(generation(&new), expected, "{pointer}");
    }
    let job = json!({
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
    });
    let job = created(gr("batch", "jobs"), job);
    assert_eq!(
        job["metadata"]["labels"]["batch.kubernetes.io/job-name"],
        "j"
    );
}

#[test]
fn repeated_names_are_found_where_they_are() {
    let claims = gr("resource.k8s.io", "resourceclaims");
    let names = ["a", "b", "a", "c", "b", "a"];
    let requests = names.map(|name| json!({"name": name, "exactly": {"deviceClassName": "gpu"}}));
    let claim = created(claims, json!({"spec": {"devices": {"requests": requests}}}));
    let fields: Vec<String> = strategy(claims)
        .validate(&claim)
        .into_iter()
        .map(|e| e.field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.devices.requests[2]",
            "spec.devices.requests[4]",
            "spec.devices.requests[5]"
        ]
    );
}

#[test]
fn the_entries_of_a_list_that_is_too_long_are_not_checked() {
    let claims = gr("resource.k8s.io", "resourceclaims");
    let request = json!({"name": "a", "exactly": {"deviceClassName": "gpu"}});
    let opaque = json!({"driver": "a.example.com", "parameters": {}});
    let unknown: Vec<String> = (0..33).map(|i| format!("Unknown{i}")).collect();
    let config = json!({"requests": unknown, "opaque": opaque});
    let constraint = json!({"requests": unknown, "matchAttribute": "a.example.com/b"});
    for (devices, expected) in [
        (
            json!({"requests": [request], "config": [config]}),
            vec!["spec.devices.config[0].requests: Too many: 33: must have at most 32 items"],
        ),
        (
            json!({"requests": [request], "constraints": [constraint]}),
            vec!["spec.devices.constraints[0].requests: Too many: 33: must have at most 32 items"],
        ),
        (
            json!({"requests": [request], "config": vec![json!({}); 33]}),
            vec!["spec.devices.config: Too many: 33: must have at most 32 items"],
        ),
        (
            json!({"requests": vec![json!({"name": "A"}); 33]}),
            vec!["spec.devices.requests: Too many: 33: must have at most 32 items"],
        ),
        (
            json!({"requests": [{"name": "a", "firstAvailable": vec![json!({"name": "A"}); 9]}]}),
            vec!["spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items"],
        ),
    ] {
        let claim = created(claims, json!({"spec": {"devices": devices}}));
        assert_eq!(printed(&strategy(claims).validate(&claim)), expected);
    }
}
