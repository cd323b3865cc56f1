//! Groups of pods with the default plugins: the quorum, the queue, and the placement that is all or nothing.

use crate::drivers::{driver_of, driver_with};
use berth_api::{Kind, Release};
use berth_framework::cluster::GroupKey;
use berth_framework::extender::Extenders;
use berth_framework::plugin::PermitStep;
use berth_framework::registry::Extensions;
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{PodBuilder, extender, fake, node, pod};
use berth_framework::{ApiCall, Feature, FeatureGates, Status};
use berth_scheduler::profile::EnabledPlugin;
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// The gates with groups on.
pub(crate) fn gates() -> FeatureGates {
    FeatureGates::of(Release::V1_38).with(Feature::GenericWorkload, true)
}

pub(crate) fn driver() -> Driver {
    driver_of(gates())
}

/// A pod group as the API has it.
pub(crate) fn group(name: &str, spec: Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-group-{name}"), "generation": 1,
        },
        "spec": spec,
    })
}

pub(crate) fn gang(min: i32) -> Value {
    json!({"schedulingPolicy": {"gang": {"minCount": min}}})
}

fn basic() -> Value {
    json!({"schedulingPolicy": {"basic": {}}})
}

pub(crate) fn member(name: &str, group: &str, cpu: &str) -> PodBuilder {
    pod(name).member_of(group).request("cpu", cpu)
}

pub(crate) fn cpus(name: &str, cpu: &str) -> berth_framework::testing::NodeBuilder {
    node(name).capacity(cpu, "64Gi", "110")
}

/// The condition of a group as the core sees it.
pub(crate) fn condition(w: &Driver, name: &str) -> String {
    let key = GroupKey::pod_group(&"default".into(), &name.into());
    let groups = w.scheduler.cache().cluster().groups();
    let group = groups.get(&key).expect("the group exists");
    match group.status.condition("PodGroupInitiallyScheduled") {
        None => String::new(),
        Some(c) => format!("{} {}: {}", c.status, c.reason, c.message),
    }
}

/// The text of the condition PodScheduled of a pod as the core sees it.
pub(crate) fn stated(w: &Driver, name: &str) -> String {
    let pod = w.scheduler.cache().effective(&format!("uid-{name}"));
    let condition = pod.and_then(|pod| pod.condition("PodScheduled"));
    condition.map_or(String::new(), |c| format!("{}: {}", c.reason, c.message))
}

/// The nodes to which pods are being bound, or are bound.
pub(crate) fn node_of(w: &Driver, name: &str) -> String {
    let pod = w.scheduler.cache().effective(&format!("uid-{name}"));
    pod.map_or(String::new(), |pod| pod.spec.node_name.to_string())
}

pub(crate) fn is_bind_of(name: &'static str) -> impl Fn(&ApiCall) -> bool {
    move |call| matches!(call, ApiCall::BindPod { pod, .. } if pod.name == *name)
}

/// G-12, G-15, G-16: a gang starts when there is room for its minimum, and further members on their own.
#[test]
fn a_gang_starts_when_its_minimum_fits() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "2")).pod(member("p2", "g", "2"));
    assert_eq!(w.attempts(), ["g: p1 unschedulable, p2 unschedulable"]);
    w.pod(member("p3", "g", "2"));
    w.wait(10);
    assert_eq!(
        w.attempts(),
        ["g: p1 unschedulable, p2 unschedulable, p3 unschedulable"]
    );
    assert_eq!(w.place_of("p1"), Some(QueuedIn::Unschedulable));
    w.node(cpus("n2", "6"));
    w.wait(30);
    w.attempts();
    w.answer_all();
    for name in ["p1", "p2", "p3"] {
        assert_ne!(node_of(&w, name), "", "{name}");
    }
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
    w.pod(member("p4", "g", "2"));
    assert_eq!(w.attempts().len(), 1);
    w.answer_all();
    assert_ne!(node_of(&w, "p4"), "");
}

/// G-13, G-16: the members of a basic group start one by one.
#[test]
fn a_basic_group_starts_with_the_members_that_fit() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", basic()));
    for name in ["p1", "p2", "p3"] {
        w.pod(member(name, "g", "2"));
    }
    assert_eq!(
        w.attempts(),
        [
            "g: p1 on n1, p2 unschedulable, p3 unschedulable",
            "g: p2 unschedulable, p3 unschedulable"
        ]
    );
    w.answer_all();
    w.node(cpus("n2", "6"));
    w.wait(10);
    assert_eq!(w.attempts(), ["g: p2 on n2, p3 on n2"]);
}

/// G-4: a gang below its minimum is gated, and each pod states the reason; the last pod starts it.
#[test]
fn a_gang_below_its_minimum_is_gated() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts(), [""; 0]);
    assert_eq!(w.scheduler.queue().places().counts().gated, 2);
    assert_eq!(condition(&w, "g"), "");
    w.wait(6);
    w.answer_all();
    let text = "NotReadyForScheduling: waiting for minCount pods from a gang to appear in scheduling queue";
    assert_eq!([stated(&w, "p1"), stated(&w, "p2")], [text; 2]);
    w.pod(member("p3", "g", "1"));
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1, p3 on n1"]);
    w.answer_all();
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
}

/// G-8: pods that are created before their group are kept until it appears.
#[test]
fn pods_may_come_before_their_group() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts(), [""; 0]);
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 2);
    w.wait(6);
    w.answer_all();
    assert_eq!(
        stated(&w, "p1"),
        "NotReadyForScheduling: waiting for pod's pod group \"g\" to appear in scheduling queue"
    );
    w.object(Kind::PodGroup, group("g", gang(2)));
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
    assert_eq!(w.scheduler.queue().places().counts().total(), 0);
}

/// G-6: a lower minimum wakes a gated gang, a higher one does not.
#[test]
fn a_lower_minimum_starts_a_gang() {
    for (min, expected) in [(1, vec!["g: p1 on n1"]), (3, vec![])] {
        let mut w = driver();
        w.node(cpus("n1", "8"));
        w.object(Kind::PodGroup, group("g", gang(2)));
        w.pod(member("p1", "g", "1"));
        assert_eq!(w.attempts(), [""; 0]);
        w.object(Kind::PodGroup, group("g", gang(min)));
        assert_eq!(w.attempts(), expected, "{min}");
    }
}

/// G-6: a minimum that was raised above the known members gates the group again, without an attempt.
#[test]
fn a_higher_minimum_gates_a_gang_that_was_admitted() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", gang(1)));
    w.pod(member("p1", "g", "1"));
    assert_eq!(w.place_of("p1"), Some(QueuedIn::Active));
    w.object(Kind::PodGroup, group("g", gang(2)));
    assert_eq!(w.attempts(), ["g: "]);
    assert_eq!(w.place_of("p1"), Some(QueuedIn::Gated));
    w.pod(member("p2", "g", "1"));
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
}

/// G-7: groups are ordered by their priority, and the second group gets the message about the missing resources.
#[test]
fn groups_are_tried_by_priority() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    for (name, priority) in [("b", 5), ("a", 10)] {
        let mut spec = gang(2);
        spec["priority"] = json!(priority);
        w.object(Kind::PodGroup, group(name, spec));
        for n in 1..=2 {
            w.pod(member(&format!("{name}{n}"), name, "1").priority(priority));
        }
        w.wait(1);
    }
    assert_eq!(
        w.attempts(),
        [
            "a: a1 on n1, a2 on n1",
            "b: b1 unschedulable, b2 unschedulable"
        ]
    );
    assert!(
        condition(&w, "b").starts_with(
            "False Unschedulable: minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
        ),
        "{}",
        condition(&w, "b")
    );
}

/// G-11: the maximum of the backoff of a group grows with the square root of its pods.
#[test]
fn the_backoff_of_a_group_grows_with_its_members() {
    let expiry = |pods: usize, failures: usize| {
        let mut w = driver_with(|options| {
            options.features = gates().with(Feature::SchedulerPopFromBackoffQ, false);
        });
        w.node(cpus("n1", "1"));
        w.object(Kind::PodGroup, group("g", gang(pods as i32)));
        for n in 0..pods {
            w.pod(member(&format!("p{n}"), "g", "2"));
        }
        let mut waited = Vec::new();
        for version in 0..failures {
            assert_eq!(w.attempts().len(), 1, "attempt {version}");
            // Room for a member, but not for all of them.
            w.node(cpus("n1", "3"));
            w.node(cpus("n1", "1"));
            let places = w.scheduler.queue().places();
            let (place, info) = places.groups().next().expect("it waits");
            assert_eq!(place, QueuedIn::Backoff);
            let over = places.backoff_expiry(info).expect("it backs off");
            waited.push(over.since(info.timestamp).as_secs());
            w.wait(600);
        }
        waited
    };
    assert_eq!(expiry(4, 7)[..], [1, 2, 4, 8, 16, 20, 20]);
    assert_eq!(expiry(1, 6)[..], [1, 2, 4, 8, 10, 10]);
}

/// G-13, G-19: the minimum starts at once; a further member is tried alone and waits for room.
#[test]
fn a_further_member_waits_alone() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    for name in ["p1", "p2", "p3"] {
        w.pod(member(name, "g", "1"));
    }
    assert_eq!(
        w.attempts(),
        [
            "g: p1 on n1, p2 on n1, p3 unschedulable",
            "g: p3 unschedulable"
        ]
    );
    w.answer_all();
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
    assert!(
        stated(&w, "p3").starts_with("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")
    );
    w.node(cpus("n2", "1"));
    w.wait(10);
    assert_eq!(w.attempts(), ["g: p3 on n2"]);
}

/// G-12: a group that cannot start in a quiet cluster is tried once, and once per flush of five minutes.
#[test]
fn a_hopeless_group_is_quiet() {
    let mut w = driver();
    w.node(cpus("n1", "1"));
    w.object(Kind::PodGroup, group("g", gang(4)));
    for n in 0..4 {
        w.pod(member(&format!("p{n}"), "g", "1"));
    }
    let mut attempts = 0;
    for _ in 0..600 {
        attempts += w.attempts().len();
        w.answer_all();
        w.wait(1);
    }
    assert_eq!(attempts, 2, "one, and one after five minutes");
}

/// G-17, G-18: placements of a failed attempt are reverted, and each pod reports its own reason or the reason of the
/// group.
#[test]
fn nothing_is_placed_of_a_gang_that_does_not_fit() {
    let mut w = driver();
    w.node(cpus("n1", "4")).node(cpus("n2", "3"));
    w.object(Kind::PodGroup, group("g", gang(4)));
    for name in ["p1", "p2", "p3", "p4"] {
        w.pod(member(name, "g", "2"));
    }
    assert_eq!(w.attempts().len(), 1);
    assert!(
        !w.calls
            .iter()
            .any(|(_, call)| matches!(call, ApiCall::BindPod { .. }))
    );
    assert_eq!(w.scheduler.cache().assumed_pods(), 0);
    w.answer_all();
    let text = "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining";
    for name in ["p1", "p2", "p3"] {
        assert!(
            stated(&w, name).starts_with(&format!("Unschedulable: {text}")),
            "{}",
            stated(&w, name)
        );
    }
    assert!(
        stated(&w, "p4").starts_with("Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.")
    );
    assert!(condition(&w, "g").starts_with(&format!("False Unschedulable: {text}")));
}

/// G-16: a gang places all members that fit, not only its minimum.
#[test]
fn members_above_the_minimum_are_placed_in_the_same_cycle() {
    let mut w = driver();
    w.node(cpus("n1", "4"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    for n in 1..=5 {
        w.pod(member(&format!("p{n}"), "g", "1"));
    }
    let attempts = w.attempts();
    assert_eq!(
        attempts[0],
        "g: p1 on n1, p2 on n1, p3 on n1, p4 on n1, p5 unschedulable"
    );
    w.answer_all();
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
}

/// G-16: a failed member is replaced; running members count.
#[test]
fn a_replacement_counts_the_members_that_run() {
    let mut w = driver();
    w.node(cpus("n1", "4"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    w.pod(member("p1", "g", "1").on("n1"))
        .pod(member("p2", "g", "1").on("n1"));
    w.pod(member("p3", "g", "1"));
    assert_eq!(w.attempts(), ["g: p3 on n1"]);
}

/// G-18, G-19: a basic group without any member that fits.
#[test]
fn a_basic_group_without_room() {
    let mut w = driver();
    w.node(cpus("n1", "1"));
    w.object(Kind::PodGroup, group("g", basic()));
    for n in 1..=3 {
        w.pod(member(&format!("p{n}"), "g", "2"));
    }
    assert_eq!(w.attempts().len(), 1);
    w.answer_all();
    assert!(
        condition(&w, "g").starts_with(
            "False Unschedulable: minCount (1) cannot be satisfied: 0 scheduled, 0 remaining"
        ),
        "{}",
        condition(&w, "g")
    );
    assert!(
        stated(&w, "p1").starts_with("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.")
    );
}

/// G-14, G-18, G-19: pods that do not agree with their group are an error that names them; deleting the pod repairs it.
#[test]
fn a_member_of_another_priority_is_an_error() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    let mut spec = gang(2);
    spec["priority"] = json!(10);
    w.object(Kind::PodGroup, group("g", spec));
    w.pod(member("a", "g", "1").priority(10));
    w.pod(member("b", "g", "1").priority(5));
    assert_eq!(w.attempts(), ["g: a error, b error"]);
    w.answer_all();
    let text = "SchedulerError: all pods in a pod group hierarchy should have the same priority as the root pod group's \
                priority, got 5 (\"default/b\") and 10 (\"default/g\")";
    assert_eq!(condition(&w, "g"), format!("False {text}"));
    assert_eq!([stated(&w, "a"), stated(&w, "b")], [text; 2]);
    w.deleted("b");
    w.pod(member("c", "g", "1").priority(10));
    w.wait(60);
    assert_eq!(w.attempts(), ["g: a on n1, c on n1"]);
    assert_eq!(condition(&w, "g"), "True Scheduled: ");
}

/// G-14: the members of one group have one scheduler.
#[test]
fn members_of_two_schedulers_are_an_error() {
    let mut w = driver_with(|options| {
        options.features = gates();
        let second = berth_scheduler::profile::ProfileSpec::named("second");
        options.profiles.push(second);
    });
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("a", "g", "1"));
    w.pod(member("b", "g", "1").scheduler("second"));
    assert_eq!(w.attempts(), ["g: a error, b error"]);
    assert!(
        condition(&w, "g").contains(".spec.schedulerName set, got: \"second\" (\"default/b\")"),
        "{}",
        condition(&w, "g")
    );
}

/// G-10: a scheduling gate of one member holds the whole group.
#[test]
fn one_gated_member_holds_the_group() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    w.pod(member("p3", "g", "1").gate("quota"));
    assert_eq!(w.attempts(), [""; 0]);
    assert_eq!(w.scheduler.queue().places().counts().gated, 3);
    w.wait(6);
    w.answer_all();
    assert!(
        stated(&w, "p1").contains("waiting for pod \"p3\""),
        "{}",
        stated(&w, "p1")
    );
    w.change("p3", PodBuilder::ungated);
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1, p3 on n1"]);
}

/// G-8: a deleted group takes its queued members out of the queue; a new one of the same name brings them back.
#[test]
fn a_group_may_be_deleted_and_created_again() {
    let mut w = driver();
    w.node(cpus("n1", "1"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts().len(), 1);
    w.object_gone(Kind::PodGroup, &group("g", gang(2)));
    assert_eq!(w.scheduler.queue().places().counts().incomplete, 2);
    w.node(cpus("n1", "8"));
    assert_eq!(w.attempts(), [""; 0]);
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.wait(10);
    assert_eq!(w.attempts(), ["g: p1 on n1, p2 on n1"]);
}

/// G-7: members that are deleted leave their group, and one without members leaves the queue.
#[test]
fn deleted_members_leave_the_group() {
    let mut w = driver();
    w.node(cpus("n1", "8"));
    w.object(Kind::PodGroup, group("g", gang(3)));
    for name in ["p1", "p2"] {
        w.pod(member(name, "g", "1"));
    }
    w.deleted("p1");
    assert_eq!(w.scheduler.queue().places().counts().gated, 1);
    w.deleted("p2");
    assert_eq!(w.scheduler.queue().places().counts().total(), 0);
}

/// G-1: without the gate the field is not read.
#[test]
fn without_the_gate_pods_are_alone() {
    let mut w = driver_of(gates().with(Feature::GenericWorkload, false));
    w.node(cpus("n1", "8"));
    w.pod(member("p1", "g", "1"));
    assert_eq!(w.attempts(), ["p1 on n1"]);
}

/// A scheduler with one more plugin.
pub(crate) fn driver_and(plugin: Extensions) -> Driver {
    let mut registry = berth_plugins::in_tree();
    let registered = registry.register("Extra", move |_| Ok(plugin.clone()));
    registered.expect("no other plugin has the name");
    Driver::new(&registry, |options| {
        options.features = gates();
        let sets = &mut options.profiles[0].plugins;
        sets.multi_point.enabled.push(EnabledPlugin::new("Extra"));
    })
}

/// G-17: the gang cannot start if Permit rejects a member that is needed for the minimum.
#[test]
fn a_permit_plugin_may_not_leave_a_gang_short() {
    let extra = fake("Extra").permit(|_, pod, _, _| {
        PermitStep::Done(match pod.pod.name().as_str() {
            "p2" => Status::unschedulable("not this one"),
            _ => Status::success(),
        })
    });
    let mut w = driver_and(extra.build());
    w.node(cpus("n1", "4"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts(), ["g: p2 unschedulable, p1 unschedulable"]);
    assert!(
        !w.calls
            .iter()
            .any(|(_, call)| matches!(call, ApiCall::BindPod { .. }))
    );
    assert_eq!(w.scheduler.cache().assumed_pods(), 0);
    assert!(
        condition(&w, "g").starts_with(
            "False Unschedulable: minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
        ),
        "{}",
        condition(&w, "g")
    );
}

/// G-17, G-18: a group is placed in one step, so Reserve cannot wait.
#[test]
fn a_reserve_plugin_cannot_wait_for_a_member() {
    let extra = fake("Extra").reserve(|cx, _, _, _, _| {
        Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + berth_api::Duration::from_secs(1),
        })
    });
    let mut w = driver_and(extra.build());
    w.node(cpus("n1", "4"));
    w.object(Kind::PodGroup, group("g", gang(2)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "1"));
    assert_eq!(w.attempts(), ["g: p1 error, p2 error"]);
    assert_eq!(
        condition(&w, "g"),
        "False SchedulerError: failed to schedule other pod from a pod group: running Reserve plugin \"Extra\": Reserve \
         cannot wait for a member of a pod group"
    );
    assert_eq!(w.scheduler.cache().assumed_pods(), 0);
}

/// G-18: an extender would answer later, so groups whose pods it is interested in are not scheduled, and their
/// condition states so.
#[test]
fn an_extender_cannot_take_part_in_a_group() {
    let mut w = driver_with(|options| {
        options.features = gates();
        options.extenders = Extenders::new(vec![extender("e").keeps(&["n1"]).build()]);
    });
    w.node(cpus("n1", "4"));
    w.object(Kind::PodGroup, group("g", gang(1)));
    w.pod(member("p1", "g", "1"));
    assert_eq!(w.attempts(), ["g: p1 error"]);
    assert_eq!(
        condition(&w, "g"),
        "False SchedulerError: failed to schedule other pod from a pod group: extenders cannot take part in the scheduling \
         of pod groups"
    );
}

/// a node that another scheduler has nominated a member to is kept free until the member is tried again. If no
/// event wakes it, that is after five minutes.
#[test]
fn a_nomination_by_another_scheduler_ends_with_the_next_attempt() {
    let mut w = driver();
    w.node(cpus("n1", "2"));
    w.object(Kind::PodGroup, group("g", gang(1)));
    w.pod(member("p1", "g", "1")).pod(member("p2", "g", "2"));
    w.attempts();
    w.answer_all();
    assert_eq!(w.place_of("p2"), Some(QueuedIn::Unschedulable));
    w.change("p2", |pod| pod.nominated("n1"));
    assert_eq!(w.nominated("p2"), "n1");
    w.pod(pod("other").request("cpu", "1"));
    assert!(!w.attempts().contains(&"other on n1".to_owned()));
    w.answer_all();
    for _ in 0..34 {
        w.wait(10);
        w.attempts();
        w.answer_all();
    }
    assert_eq!(w.nominated("p2"), "");
    assert_eq!(w.pods["p2"].status.nominated_node_name.as_str(), "");
    assert_eq!(node_of(&w, "other"), "n1");
}
