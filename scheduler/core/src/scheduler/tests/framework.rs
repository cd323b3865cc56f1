//! The guarantees to plugins: the order of the calls, their inputs, and their own state.

use super::fakes::everywhere;
use super::*;
use berth_api::Duration;
use berth_framework::call::{EventKind, PodEvent, PodRef};
use berth_framework::plugin::{
    Nominating, PermitStep, PostFilterResult, PostFilterStep, PreFilterResult,
};
use berth_framework::stage::Step;
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{FeatureGates, Status};
use berth_profile::ProfileSpec;
use berth_queue::QueuedIn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Records the calls of plugins.
struct Diary {
    send: SyncSender<String>,
    receive: Receiver<String>,
}

impl Diary {
    fn new() -> Self {
        let (send, receive) = sync_channel(1000);
        Self { send, receive }
    }

    fn read(&self) -> String {
        self.receive.try_iter().collect::<Vec<_>>().join(" ")
    }

    /// A plugin that writes down each time that it is asked, but for the passes over nodes of pods that it dislikes.
    fn plugin(&self, name: &'static str) -> FakePlugin {
        let send = self.send.clone();
        let asked = move |point: &'static str| {
            let _ = send.try_send(format!("{point}:{name}"));
        };
        let note = |point| {
            let asked = asked.clone();
            move || asked(point)
        };
        let (enqueue, filter, post_filter) = (note("enqueue"), note("filter"), note("postfilter"));
        let (permit, bind) = (note("permit"), note("bind"));
        everywhere(name, asked.clone())
            .pre_enqueue(move |_| {
                enqueue();
                Status::success()
            })
            .filter(move |_, pod, _| {
                filter();
                match pod.pod.name().as_str() {
                    "unfit" if name == "A" => Status::unschedulable("no"),
                    _ => Status::success(),
                }
            })
            .post_filter(move |_, _, _, _| {
                post_filter();
                PostFilterStep::Done(PostFilterResult {
                    status: Status::unschedulable("no"),
                    nominating: Nominating::Keep,
                })
            })
            .permit(move |_, pod, _, _| {
                permit();
                PermitStep::Done(match pod.pod.name().as_str() {
                    "refused" if name == "A" => Status::unschedulable("no"),
                    _ => Status::success(),
                })
            })
            .bind(move |_, _, _, _, _| {
                bind();
                Step::Done(match name {
                    "C" => Status::success(),
                    _ => Status::skip(),
                })
            })
    }
}

/// F-1, C-14: at every extension point plugins run in the configured order, also at PreEnqueue. Unreserve runs in the
/// opposite order. The extension points run one after another.
#[test]
fn plugins_are_asked_in_the_configured_order() {
    let diary = Diary::new();
    let plugins = ["B", "A", "C"].map(|name| diary.plugin(name));
    let mut w = driver_of(plugins, FeatureGates::default());
    w.applied(node("n1").object()).applied(node("n2").object());
    let filters = "filter:B filter:A filter:C ";
    let searched = format!(
        "prefilter:B prefilter:A prefilter:C {filters}{filters}prescore:B prescore:A prescore:C \
         score:B score:B normalize:B score:A score:A normalize:A score:C score:C normalize:C \
         reserve:B reserve:A reserve:C"
    );
    for (name, expected) in [
        (
            "p",
            format!(
                "{searched} permit:B permit:A permit:C preflight:B preflight:A preflight:C prebind:B prebind:A \
                 prebind:C bind:B bind:A bind:C postbind:B postbind:A postbind:C"
            ),
        ),
        (
            "refused",
            format!("{searched} permit:B permit:A unreserve:C unreserve:A unreserve:B"),
        ),
        (
            "unfit",
            "prefilter:B prefilter:A prefilter:C filter:B filter:A filter:B filter:A postfilter:B postfilter:A \
             postfilter:C"
                .to_owned(),
        ),
    ] {
        w.pod(pod(name));
        assert_eq!(diary.read(), "enqueue:B enqueue:A enqueue:C", "{name}");
        w.attempt();
        assert_eq!(diary.read(), expected, "{name}");
    }
}

/// C-14: the nominated node is tried after PreFilter and before any other node; the only feasible node is not scored.
#[test]
fn the_nominated_node_is_evaluated_before_the_others() {
    let diary = Diary::new();
    let mut w = driver_of([diary.plugin("C")], FeatureGates::default());
    w.applied(node("n1").object()).applied(node("n2").object());
    w.pod(pod("p").nominated("n2"));
    diary.read();
    assert_eq!(w.attempt(), "on n2");
    let asked = diary.read();
    assert!(
        asked.starts_with("prefilter:C filter:C reserve:C permit:C"),
        "{asked}"
    );
}

/// F-5: the effect of a code on the pod: whether preemption is tried, and whether a backoff follows an event that may
/// help.
#[test]
fn codes_state_what_can_be_done_for_a_pod() {
    for (status, may_be_freed, woken_into) in [
        (Status::unschedulable("no"), true, QueuedIn::Backoff),
        (Status::unresolvable("never"), false, QueuedIn::Backoff),
        (Status::pending("soon"), false, QueuedIn::Active),
    ] {
        let code = status.code();
        let seen = Arc::new(AtomicUsize::new(usize::MAX));
        let candidates = seen.clone();
        let no = fake("No").filter(move |_, _, _| status.clone()).events(|| {
            let node = berth_framework::EventResource::Node;
            let add = berth_framework::ActionType::ADD;
            vec![berth_framework::event::EventRegistration::always(node, add)]
        });
        let preempt = fake("Preempt").post_filter(move |_, _, statuses, _| {
            let mut count = 0;
            statuses.each(|_, status| {
                count += usize::from(status.code() == berth_framework::Code::Unschedulable);
                std::ops::ControlFlow::Continue(())
            });
            candidates.store(count, Ordering::Relaxed);
            PostFilterStep::Done(PostFilterResult {
                status: Status::unschedulable("no help"),
                nominating: Nominating::Keep,
            })
        });
        let mut w = driver([no, preempt]);
        w.applied(node("n1").object());
        w.pod(pod("p"));
        w.attempt();
        let expected = usize::from(may_be_freed);
        assert_eq!(seen.load(Ordering::Relaxed), expected, "{code}");
        let notified = w.scheduler.explanation("uid-p").unwrap();
        assert_eq!(
            notified.reasons[0].preemption_may_help, may_be_freed,
            "{code}"
        );
        let rejectors = match code {
            berth_framework::Code::Pending => (vec![], vec!["No".to_owned()]),
            _ => (vec!["No".to_owned()], vec![]),
        };
        assert_eq!(w.rejectors_of("p"), rejectors, "F-4: {code}");
        w.applied(node("n2").object());
        assert_eq!(w.place_of("p"), Some(woken_into), "{code}");
    }
}

/// F-21, F-22: the cycle state of a pod, and the plugins that return Skip for it, are valid from PreFilter to PostBind
/// of one attempt, and for no other attempt.
#[test]
fn what_is_kept_about_a_pod_belongs_to_one_attempt() {
    #[derive(Debug, PartialEq)]
    struct Notes(String);
    let seen = Arc::new(AtomicUsize::new(0));
    let at_end = seen.clone();
    let keeps = fake("Keeps")
        .pre_filter(|_, state, pod| {
            assert_eq!(state.read::<Notes>(), None, "left over by another pod");
            state.write(Notes(pod.pod.name().to_string()));
            match pod.pod.name().as_str() {
                "free" => PreFilterResult::Skip,
                _ => PreFilterResult::AllNodes,
            }
        })
        .filter(|state, pod, _| {
            let notes = state.read::<Notes>().map(|n| n.0.as_str());
            assert_eq!(notes, Some(pod.pod.name().as_str()));
            match pod.pod.name().as_str() {
                "picky" => Status::unschedulable("no"),
                "free" => Status::error("asked though it skipped"),
                _ => Status::success(),
            }
        })
        .reserve(|_, state, _, _, _| {
            state.write(1_u32);
            Step::success()
        })
        .pre_bind(move |_, state, pod, _, _| {
            let notes = state.read::<Notes>().map(|n| n.0.as_str());
            assert_eq!(notes, Some(pod.pod.name().as_str()));
            let reserved = state.read::<u32>().copied();
            at_end.fetch_add(reserved.unwrap_or(100) as usize, Ordering::Relaxed);
            Step::success()
        });
    let mut w = driver([keeps]);
    w.applied(node("n1").object());
    for (name, outcome) in [
        ("free", "on n1"),
        ("picky", "0/1 nodes are available: 1 no."),
        ("plain", "on n1"),
    ] {
        w.pod(pod(name));
        assert_eq!(w.attempt(), outcome);
        w.answer_all();
    }
    assert_eq!(seen.load(Ordering::Relaxed), 2, "two were bound");
}

/// F-19: the state that a plugin can read: the nodes and their pods, the feature gates, the time, waiting pods,
/// nominated pods, and the filters of all plugins. It can also make calls, record events and activate pods.
#[test]
fn plugins_reach_what_they_need() {
    let nosy = fake("Nosy")
        .pre_filter(|cx, _, _| {
            assert_eq!(cx.cluster.nodes.len(), 2);
            assert!(
                cx.features
                    .enabled(berth_framework::Feature::SchedulerAsyncAPICalls)
            );
            assert_eq!(cx.now, berth_api::Time::from_secs(1000));
            PreFilterResult::AllNodes
        })
        .filter(
            |_, pod, node| match (pod.pod.name().as_str(), node.name().as_str()) {
                ("unfit", _) if !node.pods().is_empty() => Status::unschedulable("taken"),
                ("unfit", _) | (_, "n1") => Status::success(),
                _ => Status::unschedulable("no"),
            },
        )
        .post_filter(|_, _, _, _| {
            PostFilterStep::Done(PostFilterResult {
                status: Status::unschedulable("no help"),
                nominating: Nominating::Keep,
            })
        })
        .permit(|cx, pod, node, _| match pod.pod.name().as_str() {
            "held" => PermitStep::Hold(Duration::from_secs(60)),
            "boss" => {
                let waiting = cx.outbox.waiting_pods();
                assert_eq!(waiting.len(), 1);
                assert_eq!(waiting[0].pod.pod.name().as_str(), "held");
                let there = cx.cluster.nodes.node(node).map(|n| n.pods().len());
                assert_eq!(there, Some(2), "both are counted already");
                cx.outbox.publish(PodEvent {
                    regarding: PodRef::of(&pod.pod),
                    related: None,
                    kind: EventKind::Normal,
                    reason: "Bossing",
                    action: "Permit",
                    note: "I allow it".to_owned(),
                });
                cx.outbox.allow("uid-held", "Nosy");
                cx.outbox.activate(&"default".into(), &"sleeper".into());
                PermitStep::Done(Status::success())
            }
            _ => PermitStep::Done(Status::success()),
        });
    let sleepy = fake("Sleepy").filter(|_, pod, _| match pod.pod.name().as_str() {
        "sleeper" => Status::unschedulable("asleep"),
        _ => Status::success(),
    });
    let mut w = driver([nosy, sleepy]);
    w.applied(node("n1").object()).applied(node("n2").object());
    w.pod(pod("sleeper"));
    w.attempt();
    w.pod(pod("held"));
    assert_eq!(w.attempt(), "on n1");
    w.events.clear();
    w.pod(pod("boss"));
    assert_eq!(w.attempt(), "on n1");
    let event = &w.events[0];
    assert_eq!(event.reporting_controller, "default-scheduler");
    assert_eq!(event.event.note, "I allow it");
    assert_eq!(w.place_of("sleeper"), Some(QueuedIn::Active));
    w.answer_all();
    assert_eq!(w.on("n1"), ["boss", "held"]);
}

/// F-29, C-4: profiles share the queue, the cluster and the waiting pods; they have their own plugins, their own
/// percentage of nodes to score, and their own name as reporter.
#[test]
fn profiles_share_one_scheduler() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let one_a_node = fake("OneANode").filter(move |_, _, node| {
        count.fetch_add(1, Ordering::Relaxed);
        if node.pods().is_empty() {
            Status::success()
        } else {
            Status::unschedulable("taken")
        }
    });
    let holds = fake("Holds").permit(|cx, pod, _, _| match pod.pod.name().as_str() {
        "held" => PermitStep::Hold(Duration::from_secs(60)),
        _ => {
            assert_eq!(cx.outbox.waiting_pods().len(), 1, "of the other profile");
            cx.outbox.allow("uid-held", "Holds");
            PermitStep::Done(Status::success())
        }
    });
    let scores = fake("Scores").score(|_, _, _| Ok(0));
    let plugins = [one_a_node, holds, scores, binder()];
    let mut w = driver_with(plugins, |options| {
        let all = ["Sort", "Binder", "Holds", "Scores"];
        let mut second = ProfileSpec::of_plugins("second", all.into_iter().chain(["OneANode"]));
        second.percentage_of_nodes_to_score = Some(50);
        options.profiles = vec![ProfileSpec::of_plugins("first", all), second];
        options.percentage_of_nodes_to_score = Some(100);
    });
    for i in 0..300 {
        w.applied(node(&format!("n{i}")).object());
    }
    w.pod(pod("held").scheduler("first"));
    let first = w.attempt();
    assert!(first.starts_with("on n"), "{first}");
    assert_eq!(asked.load(Ordering::Relaxed), 0, "no plugin of the first");
    w.answer_all();
    w.pod(pod("other").scheduler("second"));
    let second = w.attempt();
    assert!(second.starts_with("on n") && second != first, "{second}");
    let looked_at = asked.load(Ordering::Relaxed);
    assert!((150..=151).contains(&looked_at), "half of 300: {looked_at}");
    w.answer_all();
    let by: Vec<(&str, &str)> = w
        .events
        .iter()
        .map(|e| {
            (
                e.event.regarding.name.as_str(),
                e.reporting_controller.as_str(),
            )
        })
        .collect();
    assert_eq!(by.len(), 2, "{by:?}");
    assert!(by.contains(&("held", "first")) && by.contains(&("other", "second")));
    // A pod without a profile for its scheduler name is not scheduled by Berth.
    w.pod(pod("foreign").scheduler("third"));
    assert_eq!(
        (w.place_of("foreign"), w.attempt()),
        (None, "idle".to_owned())
    );
}

/// F-20: a pass over the nodes filters each of them once.
#[test]
fn every_node_is_asked_once() {
    let asked: Arc<[AtomicUsize]> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
    let count = asked.clone();
    let no = fake("No").filter(move |_, _, node| {
        count[node.slot().index()].fetch_add(1, Ordering::Relaxed);
        Status::unschedulable("no")
    });
    let mut w = driver([no]);
    for i in 0..1000 {
        w.scheduler.apply(
            crate::ClusterChange::Applied(node(&format!("n{i}")).object()),
            w.now,
        );
    }
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "0/1000 nodes are available: 1000 no.");
    let once = asked.iter().filter(|n| n.load(Ordering::Relaxed) == 1);
    assert_eq!(once.count(), 1000);
}
