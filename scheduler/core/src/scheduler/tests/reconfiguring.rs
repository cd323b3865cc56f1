//! A new configuration is applied while pods wait, are tried and are bound.

use super::fakes::profile_with;
use super::*;
use crate::{NotReconfigured, Reconfiguration, Reconfigured};
use berth_api::Duration;
use berth_framework::extender::{Extender, Extenders};
use berth_framework::plugin::SortKey;
use berth_framework::registry::Registry;
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{FakePlugin, extender, fake, node, pod};
use berth_framework::{Status, call::CallErrorKind};
use berth_profile::{EnabledPlugin, ProfileSpec};
use berth_queue::QueuedIn;
use berth_telemetry::metrics::Metric;
use std::sync::Arc;

/// The usual backoffs, no extenders.
fn of(profiles: Vec<ProfileSpec>) -> Reconfiguration {
    Reconfiguration {
        profiles,
        percentage_of_nodes_to_score: None,
        pod_initial_backoff: Duration::from_secs(1),
        pod_max_backoff: Duration::from_secs(10),
        extenders: Extenders::default(),
        source: "{}".into(),
    }
}

/// A configuration with one profile of these plugins, a QueueSort plugin and a binder.
fn configuration(plugins: impl IntoIterator<Item = FakePlugin>) -> (Registry, Reconfiguration) {
    let (registry, profile) = profile_with(plugins.into_iter().chain([binder()]));
    (registry, of(vec![profile]))
}

fn take_over(w: &mut Driver, (registry, new): &(Registry, Reconfiguration)) -> Reconfigured {
    let taken_over = w.scheduler.reconfigure(new, registry, w.now);
    w.take();
    taken_over.expect("a valid configuration, and no parked cycle")
}

/// A Filter plugin that accepts one node. Its answers are cached for all equal pods, and it registers for no event.
fn only(node: &'static str) -> FakePlugin {
    fake("Only")
        .filter(move |_, _, view| {
            if *view.name() == *node {
                Status::success()
            } else {
                Status::unschedulable("another node is wanted")
            }
        })
        .events(Vec::new)
        .keep(|_, _| {})
}

/// A PreEnqueue plugin that rejects every pod.
fn shut() -> FakePlugin {
    fake("Shut")
        .pre_enqueue(|_| Status::unresolvable("shut"))
        .events(Vec::new)
}

/// A PreBind plugin that waits for a timer; the time is in seconds.
fn waits(seconds: u64) -> FakePlugin {
    fake("Waits").pre_bind(move |cx, _, _, _, wake| match wake {
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(seconds),
        }),
        Some(_) => Step::success(),
    })
}

/// The bindings that wait for an answer.
fn bindings(w: &Driver) -> Vec<String> {
    let mut calls = w.calls_text();
    calls.retain(|call| call.starts_with("bind"));
    calls
}

fn nodes(w: &mut Driver, names: &[&str]) {
    for name in names {
        w.applied(node(name).capacity("4", "1Gi", "9").object());
    }
}

/// No event announces that a new configuration may accept a pod, so it is retried after its backoff, and keeps its
/// history.
#[test]
fn a_pod_that_the_old_configuration_rejected_is_tried_again() {
    let mut w = driver([only("n2")]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert_eq!(
        w.attempt(),
        "0/1 nodes are available: 1 another node is wanted."
    );
    w.wait(60);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable));
    take_over(&mut w, &configuration([only("n1")]));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    let (_, info) = w.scheduler.queue().get("default", "p").expect("queued");
    assert_eq!((info.attempts, info.unschedulable_count), (1, 1));
    assert_eq!(w.attempt(), "on n1");
    let labels = ["active", "ConfigurationChange"];
    assert_eq!(w.metric(Metric::QueueIncomingPods, &labels), 1.0);
}

/// The backoff of the last failure continues, with the durations of the new configuration.
#[test]
fn backoffs_go_on_by_the_new_configuration() {
    let (registry, profile) = profile_with([only("n2"), binder()]);
    let mut w = Driver::new(&registry, |options| {
        options.profiles = vec![profile];
        options.pod_initial_backoff = Duration::from_secs(100);
        options.pod_max_backoff = Duration::from_secs(100);
        options.features = options
            .features
            .with(berth_framework::Feature::SchedulerPopFromBackoffQ, false);
    });
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert!(w.attempt().starts_with("0/1"));
    let (registry, mut new) = configuration([only("n1")]);
    new.pod_initial_backoff = Duration::from_secs(4);
    take_over(&mut w, &(registry, new));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Backoff));
    w.wait(3);
    assert_eq!(w.attempt(), "idle");
    w.wait(2);
    assert_eq!(w.attempt(), "on n1");
}

/// Cached answers are looked up by the name of the profile and the shape of the pod, and both are unchanged.
#[test]
fn answers_of_the_old_configuration_are_forgotten() {
    let mut w = driver([only("n1"), fits_alike()]);
    nodes(&mut w, &["n1", "n2"]);
    w.pod(pod("a").request("cpu", "1"));
    w.pod(pod("b").request("cpu", "1"));
    w.pod(pod("c").request("cpu", "1"));
    assert_eq!(w.attempts(), ["a on n1", "b on n1", "c on n1"]);
    assert!(!w.scheduler.answer_cache().is_empty());
    let kept = w.scheduler.answer_cache().counts();
    take_over(&mut w, &configuration([only("n2"), fits_alike()]));
    assert!(w.scheduler.answer_cache().is_empty());
    assert_eq!(w.scheduler.answer_cache().counts(), kept);
    w.pod(pod("d").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n2");
}

/// A placed pod is bound by the profile that placed it; the next pod by the new profile.
#[test]
fn an_attempt_ends_with_the_profile_with_which_it_began() {
    let mut w = driver([waits(5)]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("a"));
    assert_eq!(w.attempt(), "on n1");
    let another = fake("AnotherBinder").bind(|_, _, _, _, _| Step::success());
    let (registry, profile) = profile_with([another]);
    take_over(&mut w, &(registry, of(vec![profile])));
    w.pod(pod("b"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(bindings(&w), [""; 0], "the other binder makes no call");
    assert!(w.place_of("b").is_none() && w.scheduler.bindings_in_flight() == 1);
    // The expected node is written to the pod's status first.
    w.answer_all();
    w.wait(5);
    assert_eq!(bindings(&w), ["bind a n1"]);
    w.answer_all();
    assert!(w.pods["a"].is_assigned());
}

/// The extender of the attempt is called to bind, though the new configuration has none.
#[test]
fn an_extender_that_binds_is_answered_to_after_it_was_removed() {
    let (registry, profile) = profile_with([binder()]);
    let binds: Arc<dyn Extender> = extender("http://binds").bind(|_, _| Ok(())).build();
    let mut w = Driver::new(&registry, |options| {
        options.profiles = vec![profile.clone()];
        options.extenders = Extenders::new([binds]);
    });
    nodes(&mut w, &["n1"]);
    w.pod(pod("a"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!((w.jobs.len(), w.scheduler.bindings_in_flight()), (1, 1));
    take_over(&mut w, &(registry, of(vec![profile])));
    w.reply();
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
    assert_eq!(w.calls_text(), [""; 0]);
    w.pod(pod("b"));
    assert_eq!(w.attempt(), "on n1");
    assert_eq!(w.calls_text(), ["bind b n1"]);
}

/// A pod in flight fails after the replacement: the new profile may accept it.
#[test]
fn a_pod_in_flight_that_fails_is_tried_again_by_the_new_profile() {
    let rejects = fake("Rejects").pre_bind(|cx, _, _, _, wake| match wake {
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(5),
        }),
        Some(_) => Step::Done(Status::unschedulable("not here")),
    });
    let mut w =
        driver([rejects
            .permit(|_, _, _, _| berth_framework::plugin::PermitStep::Done(Status::success()))]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("a"));
    assert_eq!(w.attempt(), "on n1");
    take_over(&mut w, &configuration([]));
    w.wait(5);
    w.wait(20);
    assert_eq!(w.place_of("a"), Some(QueuedIn::Active));
    assert_eq!(w.attempt(), "on n1");
}

/// PreEnqueue plugins of the new configuration decide about every pod, in both directions.
#[test]
fn pre_enqueue_plugins_are_asked_again() {
    let mut w = driver([shut()]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    take_over(&mut w, &configuration([]));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Active));
    take_over(&mut w, &configuration([shut()]));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    assert_eq!(w.attempt(), "idle");
    take_over(&mut w, &configuration([only("n2")]));
    assert!(w.attempt().starts_with("0/1"));
    w.wait(30);
    take_over(&mut w, &configuration([shut()]));
    assert_eq!(w.place_of("p"), Some(QueuedIn::Gated));
    take_over(&mut w, &configuration([]));
    assert_eq!(w.attempt(), "on n1");
}

/// Pods of a removed profile leave the queue, with their nominations; a pod with a failed binding does not return. When
/// the profile is added again, all of them return.
#[test]
fn pods_leave_and_come_back_with_their_profile() {
    let (registry, usual) = profile_with([only("n1"), binder()]);
    let named = |name: &str| ProfileSpec {
        scheduler_name: name.to_owned(),
        ..usual.clone()
    };
    let both = of(vec![usual.clone(), named("second")]);
    let mut w = Driver::new(&registry, |options| {
        options.profiles.clone_from(&both.profiles);
    });
    nodes(&mut w, &["n1"]);
    w.pod(pod("bound").scheduler("second"));
    assert_eq!(w.attempt(), "on n1");
    w.pod(pod("waits").scheduler("second"));
    w.pod(pod("nominated").scheduler("second").nominated("n1"));
    w.pod(pod("other"));
    assert_eq!(w.nominated("nominated"), "n1");

    let left = take_over(&mut w, &(registry.clone(), of(vec![usual])));
    assert_eq!(left, Reconfigured { left: 2, joined: 0 });
    assert_eq!((w.place_of("waits"), w.place_of("nominated")), (None, None));
    assert_eq!(w.nominated("nominated"), "");
    w.fail(CallErrorKind::Refused);
    assert_eq!(w.on("n1"), [""; 0]);
    assert_eq!(w.place_of("bound"), None);
    assert_eq!(
        w.calls_text(),
        [""; 0],
        "no status of a pod of others is written"
    );
    w.pod(pod("late").scheduler("second"));
    assert_eq!(w.attempts(), ["other on n1"]);

    let joined = take_over(&mut w, &(registry, both));
    assert_eq!(joined, Reconfigured { left: 0, joined: 4 });
    assert_eq!(w.nominated("nominated"), "n1");
    let mut attempts = w.attempts();
    attempts.sort();
    let placed = ["bound", "late", "nominated", "waits"].map(|name| format!("{name} on n1"));
    assert_eq!(attempts, placed);
}

/// D-31: another scheduler may write the status of the pod, so a write without an answer is not repeated.
#[test]
fn a_status_of_a_removed_profile_is_not_written_again() {
    let (registry, usual) = profile_with([only("n2"), binder()]);
    let second = ProfileSpec {
        scheduler_name: "second".to_owned(),
        ..usual.clone()
    };
    for is_sent in [true, false] {
        let mut w = Driver::new(&registry, |options| {
            options.profiles = vec![usual.clone(), second.clone()];
            options.pod_initial_backoff = Duration::from_secs(1);
        });
        nodes(&mut w, &["n1"]);
        w.pod(pod("p").scheduler("second"));
        assert!(w.attempt().starts_with("0/1"));
        assert_eq!(w.calls_text().len(), 1, "the condition");
        if is_sent {
            take_over(&mut w, &(registry.clone(), of(vec![usual.clone()])));
            w.fail(CallErrorKind::Timeout);
        } else {
            w.fail(CallErrorKind::Timeout);
            take_over(&mut w, &(registry.clone(), of(vec![usual.clone()])));
        }
        for _ in 0..90 {
            w.wait(1);
        }
        assert_eq!(w.calls_text(), [""; 0]);
        assert!(w.scheduler.dispatcher().is_empty());
    }
}

/// The pod was bound by another scheduler while no profile had its scheduler name, and its condition still states that
/// it waits.
#[test]
fn the_status_of_a_pod_that_was_bound_without_a_profile_is_corrected() {
    let mut w = driver([]);
    nodes(&mut w, &["n1"]);
    let waits = |pod: berth_framework::testing::PodBuilder| {
        pod.scheduler("new")
            .condition("PodScheduled", "False", "Unschedulable", "no room")
    };
    w.pod(waits(pod("p")).on("n1"));
    assert_eq!(w.calls_text(), [""; 0]);
    let (registry, mut new) = configuration([]);
    new.profiles[0].scheduler_name = "new".to_owned();
    assert_eq!(take_over(&mut w, &(registry, new)).joined, 0);
    w.answer_all();
    let condition = w.pods["p"].condition("PodScheduled");
    assert_eq!(condition.map(|c| c.status.as_str()), Some("True"));
}

/// A pod was bound, the watch has not shown it, and its profile is removed. Its end wakes the pods that wait for
/// resources.
#[test]
fn the_end_of_a_bound_pod_of_a_removed_profile_wakes_others() {
    let (registry, usual) = profile_with([super::fakes::fits(), binder()]);
    let second = ProfileSpec {
        scheduler_name: "second".to_owned(),
        ..usual.clone()
    };
    let mut w = Driver::new(&registry, |options| {
        options.profiles = vec![usual.clone(), second];
    });
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("bound").scheduler("second").request("cpu", "1"));
    assert_eq!(w.attempt(), "on n1");
    take_over(&mut w, &(registry, of(vec![usual])));
    // The binding succeeds, and the watch has not shown it.
    let (id, _) = w.calls.remove(0);
    w.complete(id, Ok(()));
    w.pod(pod("waits").request("cpu", "1"));
    assert!(w.attempt().starts_with("0/1"));
    w.wait(60);
    w.deleted("bound");
    assert_eq!(w.attempt(), "on n1");
}

/// A pod of a removed profile that is deleted while a plugin holds it releases its node at once.
#[test]
fn a_held_pod_of_a_removed_profile_gives_its_node_back_when_it_is_deleted() {
    let holds = fake("Holds")
        .permit(|_, _, _, _| berth_framework::plugin::PermitStep::Hold(Duration::from_secs(600)));
    let (registry, usual) = profile_with([holds, binder()]);
    let second = ProfileSpec {
        scheduler_name: "second".to_owned(),
        ..usual.clone()
    };
    let mut w = Driver::new(&registry, |options| {
        options.profiles = vec![usual.clone(), second];
    });
    nodes(&mut w, &["n1"]);
    w.pod(pod("p").scheduler("second"));
    w.attempt();
    assert_eq!(w.on("n1"), ["p"]);
    take_over(&mut w, &(registry, of(vec![usual])));
    w.deleted("p");
    assert_eq!(w.on("n1"), [""; 0]);
    assert_eq!(w.scheduler.bindings_in_flight(), 0);
}

/// A pod whose scheduler name gets a profile enters the queue, though no watch reports it again.
#[test]
fn pods_of_a_new_profile_enter_the_queue() {
    let mut w = driver([]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p").scheduler("new"));
    assert_eq!(w.attempt(), "idle");
    let (registry, mut new) = configuration([]);
    new.profiles[0].scheduler_name = "new".to_owned();
    assert_eq!(take_over(&mut w, &(registry, new)).joined, 1);
    assert_eq!(w.attempt(), "on n1");
}

/// The queue has the order of the new configuration.
#[test]
fn the_order_of_the_queue_is_replaced() {
    let mut w = driver([]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("low").priority(1));
    w.pod(pod("high").priority(2));
    let last_first = fake("Sort").sorted_by(|queued| SortKey(queued.pod.priority().into(), 0));
    let plugins = [last_first, binder()].map(FakePlugin::build);
    let (registry, profile) = crate::testing::registered(plugins);
    take_over(&mut w, &(registry, of(vec![profile])));
    assert_eq!(w.attempts(), ["low on n1", "high on n1"]);
}

/// An invalid configuration changes nothing, also if other profiles in it are valid.
#[test]
fn an_invalid_configuration_is_refused_as_a_whole() {
    let mut w = driver([only("n2")]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert!(w.attempt().starts_with("0/1"));
    w.wait(60);
    let (registry, mut new) = configuration([only("n1")]);
    let mut wrong = new.profiles[0].clone();
    wrong.scheduler_name = "second".to_owned();
    let unknown = EnabledPlugin::new("Unknown");
    wrong.plugins.multi_point.enabled.push(unknown);
    new.profiles.push(wrong);
    new.pod_max_backoff = Duration::from_secs(600);
    let refused = w.scheduler.reconfigure(&new, &registry, w.now);
    w.take();
    let error = refused.expect_err("a plugin is unknown").to_string();
    assert!(error.contains("Unknown"), "{error}");
    assert_eq!(w.scheduler.profiles().names(), ["default-scheduler"]);
    assert_eq!(w.place_of("p"), Some(QueuedIn::Unschedulable));
    assert_eq!(w.attempt(), "idle");
}

/// A parked cycle ends with the configuration with which it began; then the new configuration is applied.
#[test]
fn a_parked_cycle_ends_first() {
    let slow = fake("Slow").reserve(|cx, _, _, _, wake| match wake {
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(5),
        }),
        Some(_) => Step::success(),
    });
    let mut w = driver([slow]);
    nodes(&mut w, &["n1"]);
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "parked");
    let (registry, new) = configuration([shut()]);
    let busy = w.scheduler.reconfigure(&new, &registry, w.now);
    assert_eq!(busy, Err(NotReconfigured::Busy));
    w.wait(5);
    assert_eq!(w.calls_text(), ["bind p n1"]);
    take_over(&mut w, &(registry, new));
    w.pod(pod("q"));
    assert_eq!(w.place_of("q"), Some(QueuedIn::Gated));
}
