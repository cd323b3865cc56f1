//! PreQueueingHint (KEP-6132; edge cases 174 to 180).

use super::script::event_of;
use super::{Setup, setup};
use crate::PluginEvents;
use berth_api::Str;
use berth_framework::event::{EventRegistration, Narrowed};
use berth_framework::{Feature, Hint};
use berth_telemetry::metrics::Metric;
use std::sync::Arc;

/// A plugin `name` whose hint always returns Queue, and whose PreQueueingHint reads the `ask` label of the changed
/// object:
/// `all`, `error`, or names joined by `+`.
fn narrowing(name: &str, event: &str) -> PluginEvents {
    let event = event_of(event);
    let mut registration =
        EventRegistration::with_hint(event.resource, event.action, |_, _, _| Ok(Hint::Queue));
    registration.pre_queueing_hint = Some(Arc::new(|_, change| {
        let object = change.new.or(change.old);
        match object.and_then(|object| object.metadata().labels.get("helps")) {
            Some("all") => Ok(Narrowed::AllPods),
            Some("error") => Err("index lost".into()),
            Some(names) => Ok(Narrowed::Pods(
                names
                    .split('+')
                    .filter(|name| *name != "nobody")
                    .map(|name| (Str::new("default"), Str::new(name)))
                    .collect(),
            )),
            None => Ok(Narrowed::AllPods),
        }
    }));
    PluginEvents {
        plugin: name.into(),
        registrations: vec![registration],
    }
}

/// `N` narrows node additions, `W` does not.
fn narrowed_setup() -> Setup {
    let mut setup = setup().plugins(&[("W", "Node/Add!"), ("G1", "Node/Add!")]);
    let events = &mut setup.profiles[0].events;
    events.insert(0, narrowing("N", "Node/Add"));
    setup
}

fn waiting(count: usize, rejected_by: &str) -> String {
    let mut script = String::new();
    for n in 0..count {
        script += &format!("add p{n}\npop\nfail p{n} {rejected_by}\n");
    }
    script + "+3000\n"
}

/// The number of times that the PreQueueingHint of N gave this result.
fn evaluations(bench: &super::Bench, result: &str) -> f64 {
    let metric = Metric::PreQueueingHintEvaluations;
    bench.queue.metrics().number(metric, &["N", result])
}

/// case 174.
#[test]
fn only_the_named_pods_are_asked() {
    let mut bench = narrowed_setup().run(&waiting(1000, "N"));
    let moved = bench.event("Node/Add", "p3+p500");
    assert_eq!((moved.examined, moved.hints, moved.active), (2, 2, 2));
    assert_eq!(bench.queue.places().counts().unschedulable, 998);
    assert_eq!(evaluations(&bench, "narrowed"), 1.0, "once an event");
}

/// with detailed logging, each narrowing is logged; without it, none is.
#[test]
fn details_log_how_far_pods_were_narrowed() {
    for (verbosity, helps, notified) in [(5, "p0+p1", 1), (5, "all", 0), (4, "p0+p1", 0)] {
        let mut bench = narrowed_setup().run(&waiting(3, "N"));
        bench.queue.log_mut().set_verbosity(verbosity);
        bench.event("Node/Add", helps);
        let is_about_narrowing = |line: &String| line.starts_with("PreQueueingHint");
        let lines: Vec<String> = bench
            .logged()
            .into_iter()
            .filter(is_about_narrowing)
            .collect();
        let expected = "PreQueueingHint narrowed pod set plugin=N event=NodeAdd pods=2";
        assert_eq!(lines, vec![expected; notified], "{verbosity} {helps}");
    }
}

/// cases 175 to 178: a pod is evaluated if at least one of its plugins selects it, and only
/// with the hints of these plugins. Unknown names and pods that do not wait are skipped. An error selects all pods and
/// is logged.
#[test]
fn narrowing_is_per_plugin() {
    for (helps, moved, hints, evaluated) in [
        ("n", "n", "N:Queue=1 W:Queue=2", "narrowed"),
        ("both", "both", "N:Queue=1 W:Queue=1", "narrowed"),
        ("nobody", "", "W:Queue=2", "narrowed"),
        ("missing+active", "", "W:Queue=2", "narrowed"),
        ("w", "", "W:Queue=2", "narrowed"),
        ("all", "n", "N:Queue=2 W:Queue=1", "all_pods"),
        ("error", "n", "N:Queue=2 W:Queue=1", "all_pods"),
    ] {
        let mut bench = narrowed_setup().run(
            "
            add n
            pop
            fail n N
            add w
            pop
            fail w W
            add both
            pop
            fail both N,W
            add active
            +3000
            ",
        );
        bench.event("Node/Add", helps);
        let n_moved = bench.queue.get("default", "n").map(|(place, _)| place)
            == Some(crate::QueuedIn::Active);
        assert_eq!(n_moved, moved == "n", "{helps}");
        assert!(
            !bench.places().contains("unschedulable: both"),
            "W wants every pod that it rejected: {}",
            bench.places()
        );
        assert_eq!(bench.hints(), hints, "{helps}");
        assert_eq!(evaluations(&bench, evaluated), 1.0, "{helps}");
        let errors = bench.logged();
        assert_eq!(errors.len(), usize::from(helps == "error"), "{errors:?}");
    }
}

/// Q-92, Q-96a: the names from several registrations of one plugin for an event are merged, and each of its hints is
/// called for all of them. The names of other plugins do not matter.
#[test]
fn the_names_of_one_plugin_are_merged() {
    // The hint of the first registration returns Skip, of the second Queue; plugin M has both, F only the first.
    let two = |second_is_narrow: bool| {
        let mut setup = setup().plugins(&[]);
        let mut first = narrowing("M", "Node/Add").registrations;
        first[0].hint = Some(Arc::new(|_, _, _| Ok(Hint::Skip)));
        let second = event_of("Node/Add|UpdateNodeLabel");
        let second =
            EventRegistration::with_hint(second.resource, second.action, |_, _, _| Ok(Hint::Queue));
        let second = if second_is_narrow {
            second
                .narrowed_by(|_, _| Ok(Narrowed::Pods(vec![(Str::new("default"), Str::new("b"))])))
        } else {
            second
        };
        setup.profiles[0].events.push(PluginEvents {
            plugin: "M".into(),
            registrations: vec![first[0].clone(), second],
        });
        setup.profiles[0].events.push(PluginEvents {
            plugin: "F".into(),
            registrations: first,
        });
        let mut script = String::new();
        for name in ["a", "b", "c"] {
            script += &format!("add {name}\npop\nfail {name} M\n");
        }
        setup.run(&(script + "add f\npop\nfail f F\n+3000"))
    };
    let mut bench = two(true);
    bench.event("Node/Add", "a+f");
    assert_eq!(bench.places(), "active: a b; unschedulable: c f");
    assert_eq!(bench.hints(), "F:QueueSkip=1 M:Queue=2 M:QueueSkip=2");
    let mut bench = two(false);
    bench.event("Node/Add", "nobody");
    assert_eq!(bench.places(), "active: a b c; unschedulable: f");
}

/// Q-95, case 178: pods in flight are evaluated when they return, named or not.
#[test]
fn pods_in_flight_are_not_narrowed() {
    let mut bench = narrowed_setup().run("add a\npop\nadd x\npop\nfail x N");
    bench.event("Node/Add", "nobody");
    bench.run("fail a N => backoff: a; unschedulable: x");
}

/// gates and pre-checks still apply, and a wildcard event is not narrowed.
#[test]
fn narrowing_opens_no_gate() {
    // Gated by G1 and rejected by N before: an event of N that names the pod does not examine it, an event of G1 does.
    let mut setup = setup().plugins(&[("G1", "Node/UpdateNodeAnnotation!")]);
    setup.profiles[0].events.push(narrowing("N", "Node/Add"));
    let mut bench = setup.run("add a\npop\nupdate a G1=shut\nfail a N\nactivate a => gated: a");
    assert_eq!(bench.event("Node/Add", "a").examined, 0);
    bench.run("add b\npop -> b\nfail b N => unschedulable: b; gated: a");
    assert_eq!(bench.event("Node/Add", "a+b").examined, 1, "b alone");
    bench.run("delete b\nupdate a G1=open\n+3000\nevent Node/UpdateNodeAnnotation => active: a");
    // Gated by a narrowing plugin: only its list selects the pod.
    let mut setup = self::setup().plugins(&[]);
    setup.profiles[0].events.push(narrowing("G1", "Node/Add"));
    let mut bench = setup.run("add a G1=shut\nadd b G1=shut\nadd c G1=shut => gated: a b c");
    let moved = bench.event("Node/Add", "b+nobody");
    assert_eq!(
        (moved.examined, moved.gated),
        (1, 1),
        "asked again, still shut"
    );

    let mut bench =
        narrowed_setup().run("add a\npop\nfail a N\n+400000\nflush-leftover => active: a");
    let evaluations = super::numbers(&bench.queue, Metric::PreQueueingHintEvaluations);
    assert!(evaluations.is_empty(), "the flush asks no plugin");
    bench.run("pop -> a");
    assert!(bench.popped["a"].was_flushed_from_unschedulable);
}

/// Q-99, case 180: the results are the same as without the function, and no results are counted.
#[test]
fn with_the_gate_off_all_pods_are_asked() {
    let setup = narrowed_setup().feature(Feature::SchedulerPreQueueingHints, false);
    let mut bench = setup.run(&waiting(10, "N"));
    let moved = bench.event("Node/Add", "nobody");
    assert_eq!((moved.examined, moved.active), (10, 10));
    let evaluations = super::numbers(&bench.queue, Metric::PreQueueingHintEvaluations);
    assert!(evaluations.is_empty(), "{evaluations:?}");
}

/// KEP-6132's safety net: if a wrong PreQueueingHint misses a pod, the flush moves it, and the pod has the flag.
#[test]
fn the_flush_rescues_a_pod_that_narrowing_lost() {
    let mut bench = narrowed_setup().run("add a\npop\nfail a N\n+3000");
    bench.event("Node/Add", "nobody");
    bench.run(
        "
        +200000                 => unschedulable: a
        flush-leftover          => unschedulable: a
        +100000
        flush-leftover          => active: a
        pop -> a
        ",
    );
    assert!(bench.popped["a"].was_flushed_from_unschedulable);
}

/// Q-96a: the registrations of each profile narrow only its own pods.
#[test]
fn each_profile_narrows_for_its_own_pods() {
    let mut setup = narrowed_setup();
    let mut other = super::profile("other", &[]);
    other.events.push(narrowing("N", "Node/Add"));
    setup.profiles.push(other);
    let mut bench = setup.run("add a\npop\nfail a N\nadd b scheduler=other\npop\nfail b N\n+3000");
    assert_eq!(bench.event("Node/Add", "a").examined, 1);
    assert_eq!(bench.event("Node/Add", "b").examined, 1);
    assert_eq!(bench.places(), "active: a b");
}
