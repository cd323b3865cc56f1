//! The requests of pods.

use super::*;
use crate::resources::EPHEMERAL_STORAGE;

/// CPU in milli, memory in bytes, and pod-level resources if a case has them.
fn sums(pod: &str, options: SumOptions) -> (i64, i64) {
    let pod: Pod = serde_json::from_str(pod).unwrap_or_else(|e| panic!("{pod}: {e}"));
    let resources = pod_resources(&pod, options);
    (resources.milli_cpu, resources.memory)
}

const MIB: i64 = 1024 * 1024;

/// PL-11: containers add up; init containers and sidecars in their order; overhead
/// on top. CPU only.
#[test]
fn containers_add_up_and_init_containers_take_turns() {
    let container = |cpu: &str| format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#);
    let sidecar = |cpu: &str| {
        format!(r#"{{"restartPolicy":"Always","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
    };
    let pod = |init: &[String], containers: &[String], rest: &str| {
        format!(
            r#"{{"spec":{{"initContainers":[{}],"containers":[{}]{rest}}}}}"#,
            init.join(","),
            containers.join(",")
        )
    };
    for (name, pod, expected) in [
        (
            "two containers",
            pod(&[], &[container("1"), container("500m")], ""),
            1500,
        ),
        (
            "a fraction is rounded up",
            pod(&[], &[container("100u")], ""),
            1,
        ),
        (
            "the greatest init container",
            pod(&[container("3"), container("2")], &[container("1")], ""),
            3000,
        ),
        (
            "init containers below the sum",
            pod(&[container("1")], &[container("1"), container("1")], ""),
            2000,
        ),
        // max(1 + 2, 1 + 4)
        (
            "a sidecar before an init container",
            pod(&[sidecar("1"), container("4")], &[container("2")], ""),
            5000,
        ),
        // max(1 + 2, 4)
        (
            "a sidecar after it",
            pod(&[container("4"), sidecar("1")], &[container("2")], ""),
            4000,
        ),
        // Sidecars start one after another, in parallel with the running ones: 1, 1 + 2, then 3 + 5.
        (
            "two sidecars before it",
            pod(
                &[sidecar("1"), sidecar("2"), container("5")],
                &[container("1")],
                "",
            ),
            8000,
        ),
        (
            "overhead",
            pod(
                &[container("4")],
                &[container("1")],
                r#","overhead":{"cpu":"250m"}"#,
            ),
            4250,
        ),
        ("nothing", pod(&[], &["{}".to_owned()], ""), 0),
    ] {
        assert_eq!(sums(&pod, SumOptions::PENDING).0, expected, "{name}");
    }
}

/// PL-12: for scores, an absent request has a default, an explicit zero has not.
#[test]
fn absent_requests_have_defaults_where_scores_are_made() {
    let scored = SumOptions {
        use_status: false,
        pod_level: true,
        non_zero: true,
        footprint: Footprint::Containers,
    };
    for (name, spec, expected) in [
        ("one container", r#""containers":[{}]"#, (100, 200 * MIB)),
        (
            "two containers",
            r#""containers":[{},{}]"#,
            (200, 400 * MIB),
        ),
        (
            "explicit zeros",
            r#""containers":[{"resources":{"requests":{"cpu":"0","memory":"0"}}}]"#,
            (0, 0),
        ),
        (
            "only memory is given",
            r#""containers":[{"resources":{"requests":{"memory":"1Mi"}}}]"#,
            (100, MIB),
        ),
        // The default of the first is the greatest.
        (
            "init containers",
            r#""initContainers":[{},{"resources":{"requests":{"cpu":"1m","memory":"1"}}}],
               "containers":[{"resources":{"requests":{"cpu":"3m","memory":"3"}}}]"#,
            (100, 200 * MIB),
        ),
        (
            "pod-level CPU: the default is for memory alone",
            r#""resources":{"requests":{"cpu":"1"}},"containers":[{},{}]"#,
            (1000, 400 * MIB),
        ),
    ] {
        let pod = format!(r#"{{"spec":{{{spec}}}}}"#);
        assert_eq!(sums(&pod, scored), expected, "{name}");
    }
}

/// PL-13: on a node a container counts the maximum of its requested, allocated and actual amounts; an infeasible resize
/// is not counted.
#[test]
fn resized_containers_count_with_what_they_have() {
    let pod = |status: &str, conditions: &str| {
        format!(
            r#"{{"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"2"}}}}}}],
                "initContainers":[{{"name":"s","restartPolicy":"Always","resources":{{"requests":{{"cpu":"1"}}}}}}]}},
                "status":{{{status}"conditions":[{conditions}]}}}}"#
        )
    };
    let infeasible = r#"{"type":"PodResizePending","status":"True","reason":"Infeasible"}"#;
    let deferred = r#"{"type":"PodResizePending","status":"True","reason":"Deferred"}"#;
    let has = |list: &str, name: &str, allocated: &str, actuated: &str| {
        format!(
            r#""{list}":[{{"name":"{name}","allocatedResources":{{"cpu":"{allocated}"}},
                "resources":{{"requests":{{"cpu":"{actuated}"}}}}}}],"#
        )
    };
    let of_c = |allocated: &str, actuated: &str| has("containerStatuses", "c", allocated, actuated);
    for (name, pod, expected) in [
        ("no status", pod("", ""), 3000),
        ("it was given more", pod(&of_c("4", "2"), ""), 5000),
        ("it has more", pod(&of_c("2", "5"), ""), 6000),
        ("it asks for more", pod(&of_c("1", "1"), ""), 3000),
        (
            "it asks for more, perhaps later",
            pod(&of_c("1", "1"), deferred),
            3000,
        ),
        (
            "it asks for what cannot be",
            pod(&of_c("1", "1"), infeasible),
            2000,
        ),
        (
            "a sidecar",
            pod(&has("initContainerStatuses", "s", "3", "1"), ""),
            5000,
        ),
        (
            "another container's status",
            pod(&has("containerStatuses", "other", "9", "9"), ""),
            3000,
        ),
        (
            "a status that does not state what it has",
            pod(
                r#""containerStatuses":[{"name":"c","allocatedResources":{"cpu":"9"}}],"#,
                "",
            ),
            3000,
        ),
    ] {
        assert_eq!(sums(&pod, SumOptions::PLACED).0, expected, "{name}");
        // The pod that is to be placed requests the amounts of its spec.
        assert_eq!(sums(&pod, SumOptions::PENDING).0, 3000, "{name}, pending");
    }
}

/// PL-14: pod-level requests of CPU, memory and pages replace the sums, unless they are ignored.
#[test]
fn pod_level_requests_replace_the_sums() {
    let pod = |requests: &str, rest: &str| {
        format!(
            r#"{{"spec":{{"resources":{requests},"overhead":{{"cpu":"1"}},
                "containers":[{{"resources":{{"requests":{{"cpu":"2","memory":"2Mi","ephemeral-storage":"5"}}}}}}]}}
                {rest}}}"#
        )
    };
    let status = |allocated: &str, actuated: &str| {
        format!(
            r#","status":{{"allocatedResources":{{"cpu":"{allocated}"}},
                "resources":{{"requests":{{"cpu":"{actuated}"}}}}}}"#
        )
    };
    let plain = SumOptions {
        pod_level: false,
        ..SumOptions::PENDING
    };
    for (name, pod, options, expected) in [
        (
            "both",
            pod(r#"{"requests":{"cpu":"1","memory":"9Mi"}}"#, ""),
            SumOptions::PENDING,
            (2000, 9 * MIB),
        ),
        (
            "CPU alone",
            pod(r#"{"requests":{"cpu":"4"}}"#, ""),
            SumOptions::PENDING,
            (5000, 2 * MIB),
        ),
        (
            "limits alone",
            pod(r#"{"limits":{"cpu":"4"}}"#, ""),
            SumOptions::PENDING,
            (3000, 2 * MIB),
        ),
        (
            "of what pods cannot ask for",
            pod(r#"{"requests":{"ephemeral-storage":"9"}}"#, ""),
            SumOptions::PENDING,
            (3000, 2 * MIB),
        ),
        (
            "not looked at",
            pod(r#"{"requests":{"cpu":"4"}}"#, ""),
            plain,
            (3000, 2 * MIB),
        ),
        (
            "it was given more",
            pod(r#"{"requests":{"cpu":"4"}}"#, &status("6", "4")),
            SumOptions::PLACED,
            (7000, 2 * MIB),
        ),
        (
            "it has more, and is to be placed",
            pod(r#"{"requests":{"cpu":"4"}}"#, &status("4", "6")),
            SumOptions::PENDING,
            (5000, 2 * MIB),
        ),
    ] {
        assert_eq!(sums(&pod, options), expected, "{name}");
    }
}

/// PL-10: which resources are tracked; memory and storage in bytes, rounded up, everything else whole.
#[test]
fn what_is_tracked() {
    let pod = r#"{"spec":{"containers":[{"resources":{"requests":{
        "ephemeral-storage":"1500m","memory":"1500m","hugepages-2Mi":"4Mi","example.com/gpu":"2",
        "attachable-volumes-csi":"1","kubernetes.io/batch-cpu":"3","bandwidth":"7","pods":"9"}}}]}}"#;
    let pod: Pod = serde_json::from_str(pod).unwrap_or_else(|e| panic!("{e}"));
    let resources = pod_resources(&pod, SumOptions::PENDING);
    assert_eq!(resources.memory, 2);
    assert_eq!(resources.ephemeral_storage, 2, "{EPHEMERAL_STORAGE}");
    assert_eq!(resources.pods, 0, "a capacity of nodes, never a request");
    for (name, amount) in [
        ("hugepages-2Mi", 4 * MIB),
        ("example.com/gpu", 2),
        ("attachable-volumes-csi", 1),
        ("kubernetes.io/batch-cpu", 3),
        ("bandwidth", 0),
    ] {
        assert_eq!(resources.scalar(name), amount, "{name}");
    }
}

/// PL-320, worked by hand: the sum of the largest of each container, or the largest of three sums.
#[test]
fn a_resize_counts_by_container_or_by_pod() {
    let container = |name: &str, cpu: &str| {
        format!(r#"{{"name":"{name}","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
    };
    let status = |name: &str, allocated: &str, actuated: Option<&str>| {
        let actuated = actuated
            .map(|cpu| format!(r#","resources":{{"requests":{{"cpu":"{cpu}"}}}}"#))
            .unwrap_or_default();
        format!(r#"{{"name":"{name}","allocatedResources":{{"cpu":"{allocated}"}}{actuated}}}"#)
    };
    let pod = |containers: &[String], statuses: &[String], pending: &str| {
        format!(
            r#"{{"spec":{{"containers":[{}]}},"status":{{"containerStatuses":[{}],"conditions":[{{"type":"PodResizePending","status":"True","reason":"{pending}"}}]}}}}"#,
            containers.join(","),
            statuses.join(",")
        )
    };
    let two = [container("a", "2"), container("b", "1")];
    for (situation, pod, of_containers, of_pod) in [
        (
            // 1.36: max(2, 1) + max(1, 2). 1.37: max(2 + 1, 1 + 2, 1 + 2).
            "one container grows, the other shrinks",
            pod(
                &two,
                &[status("a", "1", Some("1")), status("b", "2", Some("2"))],
                "",
            ),
            4000,
            3000,
        ),
        (
            // 1.37: allocated 1 + 2 alone.
            "the resize cannot be done",
            pod(
                &two,
                &[status("a", "1", Some("1")), status("b", "2", Some("2"))],
                "Infeasible",
            ),
            3000,
            3000,
        ),
        (
            // No actuated amounts are known: 1.37 uses the allocated ones.
            "the status does not state what is actuated",
            pod(&two, &[status("a", "3", None), status("b", "1", None)], ""),
            3000,
            4000,
        ),
        ("no status", pod(&two, &[], ""), 3000, 3000),
        (
            "no status, and it cannot be done",
            pod(&two, &[], "Infeasible"),
            3000,
            3000,
        ),
    ] {
        let counted = |footprint| sums(&pod, SumOptions::PLACED.counting(footprint)).0;
        assert_eq!(counted(Footprint::Containers), of_containers, "{situation}");
        assert_eq!(counted(Footprint::Pod), of_pod, "{situation}");
        assert_eq!(
            sums(&pod, SumOptions::PENDING.counting(Footprint::Pod)).0,
            3000
        );
    }
}

/// PL-11: sums of thousands of containers follow the same rules as sums of a few. Each container has a resource of its
/// own and a common one, and their statuses are in another order.
#[test]
fn many_containers_add_up_as_few_do() {
    let container = |kind: &str, at: usize| {
        let policy = if kind == "sidecar" { "Always" } else { "" };
        serde_json::json!({
            "name": format!("{kind}-{at}"), "restartPolicy": policy,
            "resources": {"requests": {"cpu": "1", format!("example.com/{kind}-{at}"): "2"}},
        })
    };
    for count in [2, 100] {
        let sidecars = (0..count).map(|at| container("sidecar", at));
        let init = (0..count).map(|at| container("init", at));
        let init: Vec<_> = sidecars.chain(init).collect();
        let statuses = (0..count).rev().map(|at| {
            let requests = serde_json::json!({"cpu": "3"});
            serde_json::json!({"name": format!("main-{at}"), "resources": {"requests": requests}})
        });
        let pod = serde_json::json!({
            "spec": {
                "initContainers": init,
                "containers": (0..count).map(|at| container("main", at)).collect::<Vec<_>>(),
            },
            "status": {"containerStatuses": statuses.collect::<Vec<_>>()},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap_or_else(|e| panic!("{e}"));
        let number = i64::try_from(count).unwrap_or(i64::MAX);
        // The containers and the sidecars; one init container with the sidecars needs less.
        let pending = pod_resources(&pod, SumOptions::PENDING);
        assert_eq!(pending.milli_cpu, 2 * number * 1000);
        let placed = pod_resources(&pod, SumOptions::PLACED);
        assert_eq!(placed.milli_cpu, 4 * number * 1000);
        for kind in ["main", "sidecar", "init"] {
            for at in 0..count {
                let name = format!("example.com/{kind}-{at}");
                assert_eq!(pending.scalar(&name), 2, "{name}");
                assert_eq!(placed.scalar(&name), 2, "{name}");
            }
        }
        assert_eq!(pending.scalars.len(), 3 * count);
    }
}
