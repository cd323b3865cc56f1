//! The metrics of cycles and plugins, with a stopwatch that the test advances.

use super::fakes::everywhere;
use super::*;
use crate::LogLevel;
use berth_api::Duration;
use berth_evaluator::EvaluatorKind;
use berth_framework::event::EventRegistration;
use berth_framework::plugin::{
    Nominating, PermitStep, PostFilterResult, PostFilterStep, PreFilterResult,
};
use berth_framework::stage::{StageContext, Step, Wait, WaitOn, Wake};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{ActionType, EventResource, Feature, FeatureGates, Status};
use berth_telemetry::metrics::{Metric, SeriesValue, Snapshot};
use std::ops::ControlFlow;

const PROFILE: &str = "default-scheduler";

/// The number of observations of a histogram.
fn observed(metrics: &Snapshot, metric: Metric, labels: &[&str]) -> u64 {
    match metrics.get(metric, labels) {
        Some(SeriesValue::Histogram(histogram)) => histogram.count(),
        _ => 0,
    }
}

/// KEP-6132: a metric shows whether a feature is enabled.
#[test]
fn feature_gates_show_in_the_metrics() {
    let features = FeatureGates::default().with(Feature::SchedulerPreQueueingHints, false);
    let metrics = driver_of([binder()], features).scheduler.metrics();
    for (name, stage, on) in [
        ("SchedulerPreQueueingHints", "BETA", 0.0),
        ("SchedulerPreEnqueuePodStatus", "BETA", 1.0),
        ("SchedulerQueueingHints", "", 1.0),
        ("TaintTolerationComparisonOperators", "ALPHA", 0.0),
    ] {
        let labels = [name, stage];
        assert!(
            metrics.get(Metric::FeatureEnabled, &labels).is_some(),
            "{name}"
        );
        assert_eq!(
            metrics.number(Metric::FeatureEnabled, &labels),
            on,
            "{name}"
        );
    }
}

/// KEP-3521; Q-27: runs of PreEnqueue are observed with their code, gated pods are counted, and the gating plugin is
/// among the timed calls.
#[test]
fn gated_pods_show_in_the_metrics() {
    let gates = fake("SchedulingGates").pre_enqueue(|pod| match pod.spec.scheduling_gates.len() {
        0 => Status::success(),
        _ => Status::unresolvable("gated"),
    });
    let mut w = driver([gates]);
    for name in ["a", "b", "c"] {
        w.pod(pod(name).gate("g"));
    }
    w.pod(pod("d"));
    let metrics = w.scheduler.metrics();
    for (queue, pods) in [("gated", 3.0), ("active", 1.0), ("unschedulable", 0.0)] {
        assert_eq!(
            metrics.number(Metric::PendingPods, &[queue]),
            pods,
            "{queue}"
        );
    }
    for (code, runs) in [("UnschedulableAndUnresolvable", 3), ("Success", 1)] {
        let labels = ["PreEnqueue", code, "default-scheduler"];
        let metric = Metric::FrameworkExtensionPointDuration;
        assert_eq!(observed(&metrics, metric, &labels), runs, "{code}");
    }
    let code = "UnschedulableAndUnresolvable";
    let labels = ["SchedulingGates", "PreEnqueue", code];
    let calls = observed(&metrics, Metric::PluginExecutionDuration, &labels);
    assert!(
        (1..=3).contains(&calls),
        "the first run is always timed: {calls}"
    );
}

/// F-7, Q-55, M-3: the calls of one of ten cycles are timed, each with its code; every call of a hint is timed; and all
/// observations are reset on request.
#[test]
fn calls_of_plugins_and_hints_are_timed() {
    let picky = fake("Picky")
        .filter(|_, _, node| match node.name().as_str() {
            "n1" => Status::unschedulable("no"),
            _ => Status::success(),
        })
        .events(|| {
            vec![EventRegistration::always(
                EventResource::Node,
                ActionType::ADD,
            )]
        });
    let mut w = driver([picky]);
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    w.applied(node("n2").object());
    let metrics = w.scheduler.metrics();
    let filter = ["Picky", "Filter", "Unschedulable"];
    assert_eq!(
        observed(&metrics, Metric::PluginExecutionDuration, &filter),
        1
    );
    let hint = ["Picky", "NodeAdd", "Queue"];
    let hints = Metric::QueueingHintExecutionDuration;
    assert_eq!(observed(&metrics, hints, &hint), 1);
    w.scheduler.reset_metrics();
    let metrics = w.scheduler.metrics();
    assert_eq!(
        observed(&metrics, Metric::PluginExecutionDuration, &filter),
        0
    );
    assert_eq!(observed(&metrics, hints, &hint), 0);
}

/// The sum of the observations of a histogram in milliseconds, and their number.
fn millis(metrics: &Snapshot, metric: Metric, labels: &[&str]) -> (u64, u64) {
    match metrics.get(metric, labels) {
        Some(SeriesValue::Histogram(histogram)) => {
            ((histogram.sum * 1000.0).round() as u64, histogram.count())
        }
        _ => (0, 0),
    }
}

/// A plugin with a different duration at each point.
pub(super) fn thorough(watch: &HandWatch) -> FakePlugin {
    let (watch, at_permit) = (watch.clone(), watch.clone());
    let takes = move |point| {
        watch.go(match point {
            "prefilter" => 1,
            "addpod" => 2,
            "removepod" => 3,
            "filter" => 5,
            "prescore" => 7,
            "score" => 11,
            "normalize" => 13,
            "reserve" => 17,
            "unreserve" => 19,
            "preflight" => 29,
            "prebind" => 31,
            "bind" => 37,
            "postbind" => 41,
            other => panic!("no metric has the duration of {other}"),
        });
    };
    everywhere("All", takes).permit(move |_, pod, _, _| {
        at_permit.go(23);
        match pod.pod.name().as_str() {
            "refused" => PermitStep::Done(Status::unschedulable("no")),
            "held" => PermitStep::Hold(Duration::from_secs(9)),
            _ => PermitStep::Done(Status::success()),
        }
    })
}

/// F-7, M-1: the metrics contain every extension point and every plugin call with its status and duration: added and
/// removed nominated pods, both passes of Filter, and Unreserve.
#[test]
fn every_point_and_every_call_is_timed() {
    type Row = (&'static str, &'static str, (u64, u64), (u64, u64));
    let placed: &[Row] = &[
        // Point, code, the duration of the point, and the share of the plugin; each in milliseconds and number of
        // observations.
        ("PreFilter", "Success", (1, 1), (1, 1)),
        ("PreFilterExtensionAddPod", "Success", (0, 0), (2, 1)),
        ("PreFilterExtensionRemovePod", "Success", (0, 0), (3, 1)),
        ("Filter", "Success", (20, 1), (15, 3)),
        ("PreScore", "Success", (7, 1), (7, 1)),
        ("Score", "Success", (35, 1), (22, 2)),
        ("ScoreExtensionNormalize", "Success", (0, 0), (13, 1)),
        ("Reserve", "Success", (17, 1), (17, 1)),
        ("PreBindPreFlight", "Success", (29, 1), (29, 1)),
        ("PreBind", "Success", (31, 1), (31, 1)),
        ("Bind", "Success", (37, 1), (37, 1)),
        ("PostBind", "Success", (41, 1), (41, 1)),
        ("Permit", "Success", (23, 1), (23, 1)),
        ("Unreserve", "Success", (0, 0), (0, 0)),
    ];
    let refused: &[Row] = &[
        ("Permit", "Unschedulable", (23, 1), (23, 1)),
        ("Unreserve", "Success", (19, 1), (19, 1)),
        ("Bind", "Success", (0, 0), (0, 0)),
    ];
    let held: &[Row] = &[("Permit", "Wait", (23, 1), (23, 1))];
    for (name, rows) in [("p", placed), ("refused", refused), ("held", held)] {
        let watch = HandWatch::default();
        let mut w = driver_with([thorough(&watch)], |options| {
            options.stopwatch = Box::new(watch.clone());
        });
        for name in ["n1", "n2"] {
            w.applied(node(name).object());
        }
        w.pod(pod(name).priority(1));
        w.advance(Duration::from_millis(1));
        w.pod(pod("nominated").priority(1).nominated("n1"));
        w.attempt();
        let metrics = w.scheduler.metrics();
        for (point, code, whole, part) in rows {
            let labels = [*point, *code, PROFILE];
            let metric = Metric::FrameworkExtensionPointDuration;
            let got = millis(&metrics, metric, &labels);
            assert_eq!(got, *whole, "{name}: {point} {code}");
            let labels = ["All", *point, *code];
            let got = millis(&metrics, Metric::PluginExecutionDuration, &labels);
            assert_eq!(got, *part, "{name}: {point} {code} of the plugin");
        }
    }
}

/// F-7: PostFilter with its dry runs, and a filter that fails.
#[test]
fn dry_runs_and_errors_are_timed() {
    let watch = HandWatch::default();
    let (filter, post_filter) = (watch.clone(), watch.clone());
    let full = fake("Full").filter(move |_, _, node| {
        filter.go(2);
        match node.name().as_str() {
            "broken" => Status::error("oops"),
            _ => Status::unschedulable("full"),
        }
    });
    let tries = fake("Tries").post_filter(move |cx, _, statuses, _| {
        post_filter.go(3);
        statuses.each(|node, _| {
            cx.dry_run.begin();
            let _ = cx.dry_run.filter(node);
            cx.dry_run.rollback();
            ControlFlow::Continue(())
        });
        PostFilterStep::Done(PostFilterResult {
            status: Status::unschedulable("no help"),
            nominating: Nominating::Keep,
        })
    });
    let mut w = driver_with([full, tries, binder()], |options| {
        options.stopwatch = Box::new(watch.clone());
    });
    w.applied(node("n1").object());
    w.pod(pod("p"));
    assert_eq!(w.attempt(), "0/1 nodes are available: 1 full. no help");
    let metrics = w.scheduler.metrics();
    let point = Metric::FrameworkExtensionPointDuration;
    let call = Metric::PluginExecutionDuration;
    for (metric, labels, expected) in [
        (point, ["Filter", "Success", PROFILE], (2, 1)),
        (point, ["PostFilter", "Unschedulable", PROFILE], (5, 1)),
        (call, ["Full", "Filter", "Unschedulable"], (4, 2)),
        (call, ["Tries", "PostFilter", "Unschedulable"], (5, 1)),
    ] {
        assert_eq!(millis(&metrics, metric, &labels), expected, "{labels:?}");
    }
    // Both the cycle and the dry run called Filter; the other points do not count their calls.
    for (plugin, point, calls) in [("Full", "Filter", 2.0), ("Tries", "PostFilter", 0.0)] {
        let labels = [plugin, point, PROFILE];
        let counted = metrics.number(Metric::PluginEvaluation, &labels);
        assert_eq!(counted, calls, "{labels:?}");
    }
    let node = node("broken").object();
    w.scheduler.reset_metrics();
    w.applied(node);
    w.pod(pod("q"));
    assert!(w.attempt().starts_with("error: running \"Full\" filter"));
    let metrics = w.scheduler.metrics();
    assert_eq!(observed(&metrics, point, &["Filter", "Error", PROFILE]), 1);
}

/// Waits in every point that allows it, each time for a different duration.
fn slow() -> FakePlugin {
    let step = |cx: &StageContext<'_>, wake: Option<Wake>, seconds| match wake {
        Some(_) => Step::success(),
        None => Step::Wait(Wait {
            on: WaitOn::Timer,
            deadline: cx.now + Duration::from_secs(seconds),
        }),
    };
    fake("Slow")
        .filter(|_, pod, _| match pod.pod.name().as_str() {
            "unfit" => Status::unschedulable("no"),
            _ => Status::success(),
        })
        .post_filter(|cx, _, _, wake| match wake {
            None => PostFilterStep::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(8),
            }),
            Some(_) => PostFilterStep::Done(PostFilterResult {
                status: Status::unschedulable("no"),
                nominating: Nominating::Keep,
            }),
        })
        .reserve(move |cx, _, _, _, wake| step(cx, wake, 1))
        .pre_bind(move |cx, _, _, _, wake| step(cx, wake, 2))
        .bind(move |cx, _, _, _, wake| step(cx, wake, 4))
}

/// F-7: the duration of a call includes the waits of the plugin, and so does the duration of its point.
#[test]
fn waits_count_as_part_of_the_call() {
    let bound: &[(&str, &str, u64)] = &[
        ("Reserve", "Success", 1),
        ("PreBind", "Success", 2),
        ("Bind", "Success", 4),
    ];
    for (name, rows) in [
        ("p", bound),
        ("unfit", &[("PostFilter", "Unschedulable", 8)]),
    ] {
        let mut w = driver_of([slow()], FeatureGates::default());
        w.applied(node("n1").object());
        w.pod(pod(name));
        assert_eq!(w.attempt(), "parked");
        for seconds in [1, 2, 4, 8] {
            w.advance(Duration::from_secs(seconds));
        }
        assert_eq!(w.scheduler.bindings_in_flight(), 0, "{name}");
        let metrics = w.scheduler.metrics();
        for (point, code, seconds) in rows {
            // Each point continued as soon as possible; PostFilter was not woken before the last timer.
            let took = (*seconds).max(if *point == "PostFilter" { 15 } else { 0 });
            let metric = Metric::FrameworkExtensionPointDuration;
            let whole = millis(&metrics, metric, &[point, code, PROFILE]);
            assert_eq!(whole, (took * 1000, 1), "{point}");
            let metric = Metric::PluginExecutionDuration;
            let part = millis(&metrics, metric, &["Slow", point, code]);
            assert_eq!(part, (took * 1000, 1), "{point} of the plugin");
        }
    }
}

/// F-7, F-22: the decision to time calls is made once for a whole attempt, including its binding, and for one of ten;
/// points are always timed.
#[test]
fn one_of_ten_attempts_is_timed_from_beginning_to_end() {
    let mut w = driver([fake("A")
        .filter(|_, _, _| Status::success())
        .permit(|_, _, _, _| PermitStep::Done(Status::success()))]);
    w.applied(node("n1").object());
    for i in 0..1000 {
        w.pod(pod(&format!("p{i}")));
        w.attempt();
        w.answer_all();
    }
    let metrics = w.scheduler.metrics();
    let calls = |plugin, point| {
        let labels = [plugin, point, "Success"];
        observed(&metrics, Metric::PluginExecutionDuration, &labels)
    };
    let timed = calls("A", "Filter");
    assert!((70..=130).contains(&timed), "{timed} of 1000");
    assert_eq!(calls("A", "Permit"), timed);
    assert_eq!(calls("Binder", "Bind"), timed);
    for point in [
        "PreFilter",
        "Filter",
        "Reserve",
        "Permit",
        "PreBindPreFlight",
        "PreBind",
        "Bind",
        "PostBind",
    ] {
        let code = if point == "PreBindPreFlight" {
            "Skip"
        } else {
            "Success"
        };
        let labels = [point, code, PROFILE];
        let metric = Metric::FrameworkExtensionPointDuration;
        assert_eq!(observed(&metrics, metric, &labels), 1000, "{point}");
    }
}

/// C-34: the durations of the search and of PostFilter are observed for every result.
#[test]
fn every_search_is_observed() {
    let picky = fake("Picky").filter(|_, pod, _| match pod.pod.name().as_str() {
        "unfit" => Status::unschedulable("no"),
        "broken" => Status::error("oops"),
        _ => Status::success(),
    });
    let watch = HandWatch::default();
    let slow = watch.clone();
    let tries = fake("Tries").post_filter(move |_, _, _, _| {
        slow.go(70);
        PostFilterStep::Done(PostFilterResult {
            status: Status::unschedulable("no help"),
            nominating: Nominating::Keep,
        })
    });
    let mut w = driver_with([picky, tries, binder()], |options| {
        options.stopwatch = Box::new(watch.clone());
    });
    let metric = Metric::SchedulingAlgorithmDuration;
    w.pod(pod("no-nodes"));
    w.attempt();
    assert_eq!(millis(&w.scheduler.metrics(), metric, &[]), (0, 1));
    w.applied(node("n1").object());
    for (name, so_far) in [("fits", (0, 2)), ("broken", (0, 3)), ("unfit", (70, 4))] {
        w.pod(pod(name));
        w.attempt();
        assert_eq!(
            millis(&w.scheduler.metrics(), metric, &[]),
            so_far,
            "{name}"
        );
    }
}

/// C-13: a search that takes 100 ms or more is logged, with the durations of its steps.
#[test]
fn slow_searches_are_logged() {
    for (situation, filter, score, line) in [
        ("fast enough", 40, 9, None),
        (
            "slow filters",
            60,
            0,
            Some(
                "Scheduling took 120ms: \"Computing predicates done\" 120ms, \
                 \"Prioritizing done\" 0ms pod=default/p",
            ),
        ),
        (
            "slow scores",
            10,
            40,
            Some(
                "Scheduling took 100ms: \"Computing predicates done\" 20ms, \
                 \"Prioritizing done\" 80ms pod=default/p",
            ),
        ),
    ] {
        let watch = HandWatch::default();
        let (filtering, scoring) = (watch.clone(), watch.clone());
        let plugin = fake("A")
            .filter(move |_, _, _| {
                filtering.go(filter);
                Status::success()
            })
            .score(move |_, _, _| {
                scoring.go(score);
                Ok(0)
            });
        let mut w = driver_with([plugin, binder()], |options| {
            options.stopwatch = Box::new(watch.clone());
        });
        w.applied(node("n1").object()).applied(node("n2").object());
        w.pod(pod("p"));
        w.attempt();
        let expected: Vec<_> = line
            .into_iter()
            .map(|l| (LogLevel::Info(0), l.to_owned()))
            .collect();
        assert_eq!(w.logged("Scheduling "), expected, "{situation}");
    }
    // With a single feasible node, no node is scored.
    let watch = HandWatch::default();
    let filtering = watch.clone();
    let full = fake("A").filter(move |_, _, _| {
        filtering.go(150);
        Status::unschedulable("full")
    });
    let mut w = driver_with([full, binder()], |options| {
        options.stopwatch = Box::new(watch.clone());
    });
    w.applied(node("n1").object());
    w.pod(pod("p"));
    w.attempt();
    let line = "Scheduling took 150ms: \"Computing predicates done\" 150ms pod=default/p";
    assert_eq!(
        w.logged("Scheduling "),
        [(LogLevel::Info(0), line.to_owned())]
    );
}

/// F-7: out-of-tree PreFilter plugins run for every pod, with both evaluators, and are counted and timed.
#[test]
fn calls_of_strangers_count_with_both_evaluators() {
    for kind in [EvaluatorKind::Plain, EvaluatorKind::Incremental] {
        let stranger = fake("Stranger").pre_filter(|_, _, pod| match pod.pod.name().as_str() {
            "narrow" => PreFilterResult::Nodes(vec!["n1".into()]),
            "skip" => PreFilterResult::Skip,
            _ => PreFilterResult::AllNodes,
        });
        let mut w = driver_with([stranger, binder()], |options| options.evaluator = kind);
        w.applied(node("n1").object());
        for (name, calls, timed) in [("p", 1.0, 1), ("narrow", 2.0, 1), ("skip", 2.0, 1)] {
            w.pod(pod(name));
            assert_eq!(w.attempt(), "on n1");
            let metrics = w.scheduler.metrics();
            let labels = ["Stranger", "PreFilter", PROFILE];
            let counted = metrics.number(Metric::PluginEvaluation, &labels);
            assert_eq!(counted, calls, "{kind}, {name}");
            let labels = ["Stranger", "PreFilter", "Success"];
            let metric = Metric::PluginExecutionDuration;
            assert_eq!(observed(&metrics, metric, &labels), timed, "{kind}, {name}");
        }
    }
}
