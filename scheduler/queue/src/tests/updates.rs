//! Updates in every place, nominations and Activate (Q-61 to Q-64, Q-71, Q-74 to Q-78; edge cases 127 to 139).

use super::{fields, setup};
use crate::pod_update_events;
use berth_api::pod::{ContainerStatus, ExtendedResourceClaimStatus, PodResourceClaimStatus};
use berth_api::{Pod, Str, Toleration};
use berth_framework::plugin::Nominating;
use berth_framework::testing::{PodBuilder, pod};
use berth_framework::{Feature, FeatureGates};
use berth_telemetry::metrics::Metric;

fn labels(old: &Pod, new: &Pod) -> String {
    let events = pod_update_events(old, new, &FeatureGates::default());
    let labels: Vec<String> = events.iter().map(ToString::to_string).collect();
    labels.join(" ")
}

fn claim(entry: &str, claim: Option<&str>) -> PodResourceClaimStatus {
    PodResourceClaimStatus {
        name: entry.into(),
        resource_claim_name: claim.map(Str::new),
    }
}

/// Q-61, cases 192 to 194: each property, the order, the generic update, assigned pods.
#[test]
fn an_update_amounts_to_events() {
    let a = || pod("a");
    let claims = |claims: Vec<PodResourceClaimStatus>| {
        a().with(|p| p.status.resource_claim_statuses = claims)
            .build()
    };
    let unschedulable = "UnschedulablePod";
    for (old, new, expected) in [
        (a().build(), a().version(2).build(), "Update"),
        (a().build(), a().label("k", "v").build(), "UpdatePodLabel"),
        (
            a().request("cpu", "2").build(),
            a().request("cpu", "1999m").build(),
            "UpdatePodScaleDown",
        ),
        (
            a().request("cpu", "2").build(),
            a().build(),
            "UpdatePodScaleDown",
        ),
        (
            a().request("cpu", "1").build(),
            a().request("cpu", "2").build(),
            "Update",
        ),
        (a().build(), a().request("cpu", "2").build(), "Update"),
        (
            a().gate("x").gate("y").build(),
            a().gate("y").build(),
            "Update",
        ),
        (
            a().gate("x").build(),
            a().build(),
            "UpdatePodSchedulingGatesEliminated",
        ),
        (a().build(), a().gate("x").build(), "Update"),
        (
            a().build(),
            a().toleration(Toleration::default()).build(),
            "UpdatePodToleration",
        ),
        (
            a().toleration(Toleration::default()).build(),
            a().toleration(Toleration {
                key: "k".into(),
                ..Toleration::default()
            })
            .build(),
            "Update",
        ),
        (
            claims(vec![]),
            claims(vec![claim("c", Some("c-1"))]),
            "UpdatePodGeneratedResourceClaim",
        ),
        (
            claims(vec![claim("c", None)]),
            claims(vec![claim("c", Some("c-1"))]),
            "UpdatePodGeneratedResourceClaim",
        ),
        (
            claims(vec![claim("c", None), claim("d", None)]),
            claims(vec![claim("d", None), claim("c", None)]),
            "Update",
        ),
        (
            a().build(),
            a().with(|p| {
                p.status.extended_resource_claim_status = Some(ExtendedResourceClaimStatus {
                    resource_claim_name: "e".into(),
                });
            })
            .build(),
            "UpdatePodGeneratedResourceClaim",
        ),
        (
            a().gate("x").request("cpu", "2").build(),
            a().label("k", "v")
                .toleration(Toleration::default())
                .request("cpu", "1")
                .build(),
            "UpdatePodLabel UnschedulablePodUpdatePodScaleDown UnschedulablePodUpdatePodSchedulingGatesEliminated UnschedulablePodUpdatePodToleration",
        ),
    ] {
        assert_eq!(labels(&old, &new), format!("{unschedulable}{expected}"));
    }
    let shrunk = a().request("cpu", "1").label("k", "v").build();
    assert_eq!(
        labels(&a().request("cpu", "2").build(), &shrunk),
        "UnschedulablePodUpdatePodLabel UnschedulablePodUpdatePodScaleDown"
    );
    assert_eq!(
        labels(&a().on("n").build(), &a().on("n").label("k", "v").build()),
        "AssignedPodUpdatePodLabel"
    );
    assert_eq!(
        labels(&a().build(), &a().on("n").build()),
        "AssignedPodUpdate",
        "the new version decides"
    );
}

/// Q-61: pod-level requests count; with InPlacePodVerticalScaling, so do the allocated resources of a running pod.
#[test]
fn pod_level_requests_count() {
    let with = |amount: &str| {
        let mut sized = pod("a").build();
        let requests = pod("x").request("cpu", amount).build();
        sized.spec.resources = Some(requests.spec.containers[0].resources.clone());
        sized
    };
    let (old, new) = (with("2"), with("1"));
    let events = pod_update_events(&old, &new, &FeatureGates::default());
    assert_eq!(events[0].label(), "UnschedulablePodUpdatePodScaleDown");
    // The kubelet has reduced the allocated resources to the lower request.
    let given = |amount: &str| {
        let mut pod = pod("a").request("cpu", "1").on("n").build();
        let requests = berth_framework::testing::pod("x").request("cpu", amount);
        pod.status.container_statuses = vec![ContainerStatus {
            name: pod.spec.containers[0].name.clone(),
            resources: Some(requests.build().spec.containers[0].resources.clone()),
            ..ContainerStatus::default()
        }];
        pod
    };
    for (on, label) in [
        (true, "AssignedPodUpdatePodScaleDown"),
        (false, "AssignedPodUpdate"),
    ] {
        let features = FeatureGates::default().with(Feature::InPlacePodVerticalScaling, on);
        let events = pod_update_events(&given("2"), &given("1"), &features);
        assert_eq!(events[0].label(), label, "gate {on}");
    }
}

/// Q-62, cases 127, 129 and 130: an update replaces the pod in every place.
#[test]
fn an_update_reaches_the_pod_wherever_it_is() {
    for (prepare, update, places) in [
        ("add x\ndelete x", "v=2", "active: a"),
        ("add a", "v=2 priority=5", "active: a"),
        ("add a\npop\nerror a\n+100", "v=2", "error: a"),
        (
            "add a\npop\nevent Node/Add helps=A\nfail a A",
            "v=2",
            "backoff: a",
        ),
        ("add a\npop\nfail a A", "v=2 helps=A", "unschedulable: a"),
        ("add a\npop\nfail a C", "v=2 helps=none", "unschedulable: a"),
        ("add a\npop\nfail a C", "v=2 helps=C", "backoff: a"),
        ("add a\npop\nfail a C\n+3000", "v=2 helps=C", "active: a"),
        (
            "add a v=2 helps=C\npop\nfail a C\n+3000",
            "v=2 helps=C",
            "unschedulable: a",
        ),
        ("add a gates=x", "v=2 gates=x", "gated: a"),
        ("add a gates=x", "v=2", "active: a"),
    ] {
        let mut bench = setup().run(prepare);
        bench.run(&format!("update a {update}"));
        assert_eq!(bench.places(), places, "{prepare} · {update}");
        assert_eq!(
            bench.info("a").pod.labels().get("v"),
            Some("2"),
            "{prepare} · {update}"
        );
    }
}

/// Q-62: an update re-sorts.
#[test]
fn an_update_changes_the_order() {
    for setup in [setup(), setup().unkeyed()] {
        setup.run(
            "
            add a priority=1
            add b priority=2
            add c priority=3        => active: c b a
            update a priority=9     => active: a c b
            update c                => active: a b c
            ",
        );
    }
}

/// Q-62: the events of one update are evaluated in order until one makes the pod poppable.
#[test]
fn the_first_helpful_part_of_an_update_moves_the_pod() {
    let plugins = &[
        ("Label", "Pod/UpdatePodLabel"),
        ("Gates", "Pod/UpdatePodSchedulingGatesEliminated"),
    ];
    for (helps, event) in [
        ("Label", "UnschedulablePodUpdatePodLabel"),
        (
            "Gates",
            "UnschedulablePodUpdatePodSchedulingGatesEliminated",
        ),
        ("all", "UnschedulablePodUpdatePodLabel"),
    ] {
        let mut bench = setup()
            .plugins(plugins)
            .run("add a\npop\nupdate a gates=x\nfail a Label,Gates\n+3000 => unschedulable: a");
        bench.run(&format!("update a helps={helps} => active: a"));
        let mut expected = [
            "active/UnschedulablePodAdd=1".to_owned(),
            format!("active/{event}=1"),
            "unschedulable/ScheduleAttemptFailure=1".to_owned(),
        ];
        expected.sort_unstable();
        assert_eq!(bench.incoming(), expected.join(" "), "{helps}");
    }
}

/// Q-7: invalid affinity terms block no pod, neither a new nor an updated one.
#[test]
fn a_pod_with_senseless_terms_is_queued() {
    let json = r#"{"metadata":{"name":"a","namespace":"default","uid":"uid-a"},"spec":{"affinity":{"podAffinity":
        {"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"","labelSelector":
        {"matchExpressions":[{"key":"-","operator":"Sometimes","values":[]}]}}]}}}}"#;
    let senseless: Pod = serde_json::from_str(json).unwrap();
    let senseless = PodBuilder::of(&senseless)
        .scheduler("default-scheduler")
        .arc();
    for (prepare, places) in [("", "active: a"), ("add a\npop\nerror a", "error: a")] {
        let mut bench = setup().run(prepare);
        let old = bench.pods.get("a").cloned();
        bench.know(senseless.clone());
        let (queue, cx) = fields!(bench);
        match old {
            Some(old) => drop(queue.update(&cx, &old, &senseless)),
            None => queue.add(&cx, senseless.clone()),
        }
        queue
            .nominator_mut()
            .add(cx.cluster, &senseless, &Nominating::Set("n1".into()));
        assert_eq!(bench.places(), places);
        assert_eq!(nominated(&bench), "n1: a");
    }
}

/// Q-7, Q-64: the same name with another identity in one update.
#[test]
fn a_recreated_pod_takes_the_place_of_the_old_one() {
    let mut bench = setup().run(
        "
        add a uid=1 nominated=n1
        update a uid=2          => active: a
        ",
    );
    assert_eq!(bench.info("a").pod.uid(), "2");
    assert_eq!(
        bench.queue.nominator().nodes().count(),
        0,
        "the old one's nomination ended"
    );
    bench.run(
        "
        pop -> a
        update a uid=3          => active: a; in flight: a
        ",
    );
    bench.run("done a => active: a\npop -> a");
}

fn nominated(bench: &super::Bench) -> String {
    let nominator = bench.queue.nominator();
    let texts: Vec<String> = nominator
        .nodes()
        .map(|node| {
            let pods: Vec<&str> = nominator
                .pods_on(node)
                .iter()
                .map(|info| info.pod.name().as_str())
                .collect();
            format!("{node}: {}", pods.join(" "))
        })
        .collect();
    texts.join("; ")
}

fn nominate(bench: &mut super::Bench, name: &str, nominating: &Nominating) {
    let pod = bench.pods[name].clone();
    let (queue, cx) = fields!(*bench);
    queue.nominator_mut().add(cx.cluster, &pod, nominating);
}

/// Q-74 to Q-76, cases 128, 133, 136 and 137: nominations are added, moved and removed by updates and in memory. A pod
/// has at most one; a deleted or bound pod has none.
#[test]
fn nominations_follow_the_pod() {
    let mut bench = setup().run("add a\nadd b nominated=n1");
    assert_eq!(nominated(&bench), "n1: b");
    bench.run("update a nominated=n1");
    assert_eq!(nominated(&bench), "n1: b a");
    bench.run("update a nominated=n2");
    assert_eq!(nominated(&bench), "n1: b; n2: a");
    bench.run("update a");
    assert_eq!(nominated(&bench), "n1: b");
    nominate(&mut bench, "a", &Nominating::Set("n3".into()));
    assert_eq!(nominated(&bench), "n1: b; n3: a");
    bench.run("update a v=2");
    assert_eq!(
        nominated(&bench),
        "n1: b; n3: a",
        "our write is still on its way"
    );
    let info = &bench.queue.nominator().pods_on("n3")[0];
    assert_eq!(
        info.pod.labels().get("v"),
        Some("2"),
        "the record is of the new version"
    );
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "n1: b a", "one record a pod");
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "n1: b a");
    nominate(&mut bench, "a", &Nominating::Keep);
    assert_eq!(nominated(&bench), "n1: b", "its status has no node");
    nominate(&mut bench, "b", &Nominating::Set(Str::default()));
    assert_eq!(nominated(&bench), "");
    nominate(&mut bench, "b", &Nominating::Keep);
    assert_eq!(nominated(&bench), "n1: b");
    bench.queue.nominator_mut().remove("uid-b");
    assert_eq!(nominated(&bench), "");

    let bound = PodBuilder::of(&bench.pods["a"]).on("n9").arc();
    bench.cluster.pods.insert(bound.uid().clone(), bound);
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "", "it has a node");
    bench.cluster.pods.remove("uid-b");
    nominate(&mut bench, "b", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "", "it is gone");
}

/// A nomination in memory is kept when the pod returns to the active queue.
#[test]
fn a_nomination_in_memory_survives_a_requeue() {
    let mut bench = setup()
        .plugins(&[("U", "Pod/Update")])
        .run("add a\npop\nfail a U\n+3000");
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    bench.run("update a helps=U => active: a");
    assert_eq!(nominated(&bench), "n1: a");
}

/// Q-62, Q-77: an update in flight changes neither heap nor nominator; the record of the pod in flight is complete.
#[test]
fn an_update_in_flight_leaves_the_nomination() {
    let mut bench = setup().run("add a nominated=n1\npop -> a\nupdate a nominated=n2");
    assert_eq!(nominated(&bench), "n1: a");
    bench.run("done a");
    let mut bench = setup().run("add a priority=7 v=1\npop -> a");
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    let info = &bench.queue.nominator().pods_on("n1")[0];
    assert_eq!(
        (info.pod.priority(), info.pod.labels().get("v")),
        (7, Some("1"))
    );
}

/// Q-71, case 138: several pods are activated together, including a pod that PreEnqueue blocks.
#[test]
fn activating_ignores_backoff() {
    let mut bench = setup().run(
        "
        add rejected priority=9
        add broken priority=8
        add waiting priority=7
        add ready
        pop
        pop
        pop
        event Node/Add helps=A
        fail rejected A
        error broken
        fail waiting C          => active: ready; backoff: rejected; error: broken; unschedulable: waiting
        activate ready          => active: ready; backoff: rejected; error: broken; unschedulable: waiting
        activate rejected broken waiting => active: rejected broken waiting ready
        ",
    );
    let unknown = pod("unknown").arc();
    let (queue, cx) = fields!(bench);
    assert_eq!(queue.activate(&cx, [&unknown]), 0);
    bench.run(
        "
        add gated gates=x
        activate gated          => active: rejected broken waiting ready; gated: gated
        ",
    );
}

/// Q-62, case 132: an update that changes no tracked field calls only the hints of plugins that register for every
/// update.
#[test]
fn a_plain_update_asks_plugins_that_register_for_all_updates() {
    let plugins = &[("All", "Pod/Update"), ("Labels", "Pod/UpdatePodLabel")];
    for (helps, places) in [("All", "backoff: a"), ("Labels", "unschedulable: a")] {
        let mut bench = setup()
            .plugins(plugins)
            .run(&format!("add a helps={helps}\npop\nfail a All,Labels"));
        bench.run(&format!("update a helps={helps}"));
        assert_eq!(bench.places(), places, "{helps}");
        assert!(!bench.hints().contains("Labels"), "{}", bench.hints());
    }
}

/// Q-62: without SchedulerPopFromBackoffQ, a pod that one part of an update moved to backoff stays there if the next
/// part does not help, and becomes active if a pending plugin waited for the next part.
#[test]
fn a_needless_part_of_an_update_does_not_undo_a_helpful_one() {
    let plugins = &[
        ("Label", "Pod/UpdatePodLabel"),
        ("Gates", "Pod/UpdatePodSchedulingGatesEliminated"),
    ];
    for (rejectors, helps, places) in [
        ("Label,Gates", "Label", "backoff: a"),
        ("Label,Gates", "Gates", "backoff: a"),
        ("Label,Gates", "none", "unschedulable: a"),
        ("Label pending=Gates", "Label", "backoff: a"),
        ("Label pending=Gates", "Label+Gates", "active: a"),
        ("Gates pending=Label", "all", "active: a"),
    ] {
        let mut bench = setup()
            .plugins(plugins)
            .feature(Feature::SchedulerPopFromBackoffQ, false)
            .run(&format!("add a\npop\nupdate a gates=x\nfail a {rejectors}"));
        bench.run(&format!("update a helps={helps}"));
        assert_eq!(bench.places(), places, "{rejectors}, {helps}");
    }
}

/// Q-64: a pod that an update recreates under the same name is reported independently of the previous pod, and is
/// counted under its own profile.
#[test]
fn a_recreated_pod_is_reported_anew() {
    let profile = |name| super::profile(name, &[]);
    let mut bench = setup()
        .feature(Feature::SchedulerPreEnqueuePodStatus, true)
        .profiles(vec![profile("default-scheduler"), profile("other")])
        .run("add a uid=1 G1=shut");
    let reported = |bench: &mut super::Bench| {
        let mut uids = Vec::new();
        while let Some((report, _)) = bench.queue.take_pre_enqueue_report() {
            uids.push(report.pod().uid().to_string());
        }
        uids
    };
    assert_eq!(reported(&mut bench), ["1"]);
    bench.run("update a uid=2 G1=shut scheduler=other\nactivate a => gated: a");
    assert_eq!(reported(&mut bench), ["2"]);
    let gauge = |profile| {
        let metrics = bench.queue.metrics();
        metrics.number(Metric::UnschedulablePods, &["G1", profile])
    };
    assert_eq!(gauge("default-scheduler"), 0.0);
    assert_eq!(gauge("other"), 1.0);
}
