//! Updates in every place, nominations and Activate (Q-61 to; edge cases 127 to 139).

use super::{fields, setup};
use crate::queue::pod_update_events;
use berth_api::pod::{ExtendedResourceClaimStatus, PodResourceClaimStatus};
use berth_api::{Pod, Str, Toleration};
use berth_framework::plugin::Nominating;
use berth_framework::testing::{PodBuilder, pod};
use berth_framework::{Feature, FeatureGates};

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

/// each property, the order, the generic update, assigned pods; pod_scale_up (192), gate_partially_removed (193),
/// claim_statuses_swapped_order (194).
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

/// pod-level requests count only with their gate.
#[test]
fn pod_level_requests_count_with_their_gate() {
    let with = |amount: &str| {
        let mut sized = pod("a").build();
        let requests = pod("x").request("cpu", amount).build();
        sized.spec.resources = Some(requests.spec.containers[0].resources.clone());
        sized
    };
    let (old, new) = (with("2"), with("1"));
    for (on, label) in [
        (true, "UnschedulablePodUpdatePodScaleDown"),
        (false, "UnschedulablePodUpdate"),
    ] {
        let features = FeatureGates::default().with(Feature::PodLevelResources, on);
        let events = pod_update_events(&old, &new, &features);
        assert_eq!(events[0].label(), label, "gate {on}");
    }
}

/// update_unknown_pod, update_in_backoff_still_backing_off, update_unschedulable_skip_hint / queue hint and
/// backoff over / not over, update_changes_only_annotations_of_pending_pod; the new object is there everywhere.
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

/// Q-62, step 2: an update re-sorts.
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

/// Q-62, step 4: the events of one update are tried in turn until one moves the pod where it can be popped.
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

/// the same name with another identity in one update.
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
    queue.add_nominated_pod(&cx, &pod, nominating);
}

/// update_adds_nnn_in_active, nominated_kept_when_unrelated_update_races, nominated_removed / changed by
/// update, nominated_moves_between_nodes, nominated_pod_deleted_from_api, already bound, Noop with an empty status,
/// an empty override (fixed: ends the nomination). Q-77: records are whole, also of pods in flight.
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
    bench.queue.delete_nominated_pod("uid-b");
    assert_eq!(nominated(&bench), "");

    let bound = PodBuilder::of(&bench.pods["a"]).on("n9").arc();
    bench.cluster.pods.insert(bound.uid().clone(), bound);
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "", "it has a node");
    bench.cluster.pods.remove("uid-b");
    nominate(&mut bench, "b", &Nominating::Set("n1".into()));
    assert_eq!(nominated(&bench), "", "it is gone");
}

/// A nomination in memory survives the pod's way back to the active queue.
#[test]
fn a_nomination_in_memory_survives_a_requeue() {
    let mut bench = setup()
        .plugins(&[("U", "Pod/Update")])
        .run("add a\npop\nfail a U\n+3000");
    nominate(&mut bench, "a", &Nominating::Set("n1".into()));
    bench.run("update a helps=U => active: a");
    assert_eq!(nominated(&bench), "n1: a");
}

/// Q-62, step 1: an update in flight touches neither heap nor nominator.
#[test]
fn an_update_in_flight_leaves_the_nomination() {
    let mut bench = setup().run("add a nominated=n1\npop -> a\nupdate a nominated=n2");
    assert_eq!(nominated(&bench), "n1: a");
    bench.run("done a");
}

/// activate_in_active / unknown, in backoff before expiry, several at once.
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
}
