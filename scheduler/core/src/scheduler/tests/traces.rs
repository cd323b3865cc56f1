//! Traces of attempts, with a stopwatch that the test advances.

use super::measures::thorough;
use super::*;
use crate::AttemptTrace;
use berth_framework::Code;
use berth_framework::testing::{node, pod};

/// The traces of one attempt to schedule a pod of this name on two nodes.
fn traces_of(name: &str, is_on: bool) -> Vec<AttemptTrace> {
    let watch = HandWatch::default();
    let mut w = driver_with([thorough(&watch)], |options| {
        options.stopwatch = Box::new(watch.clone());
    });
    for name in ["n1", "n2"] {
        w.applied(node(name).object());
    }
    if is_on {
        w.scheduler.trace_attempts();
    }
    w.pod(pod(name));
    w.attempt();
    w.answer_all();
    w.take();
    w.traces
}

/// Each point with its code and milliseconds.
fn points(trace: &AttemptTrace) -> Vec<(&'static str, Code, u128)> {
    let points = trace.points.iter();
    points
        .map(|p| (p.point, p.code, p.ended.since(p.began).as_millis()))
        .collect()
}

#[test]
fn an_attempt_is_traced_from_prefilter_to_postbind() {
    let traces = traces_of("p", true);
    let [trace] = &traces[..] else {
        panic!("{traces:?}");
    };
    assert_eq!((trace.result, trace.attempt), ("scheduled", 1));
    assert_eq!((&*trace.pod.name, &*trace.message), ("p", ""));
    assert!(trace.node.is_some());
    let expected = [
        ("PreFilter", 1),
        ("Filter", 10),
        ("PreScore", 7),
        ("Score", 35),
        ("Reserve", 17),
        ("Permit", 23),
        ("PreBindPreFlight", 29),
        ("PreBind", 31),
        ("Bind", 37),
        ("PostBind", 41),
    ];
    let expected = expected.map(|(point, millis)| (point, Code::Success, millis));
    assert_eq!(points(trace), expected);
    // One after the other.
    let mut at = trace.began;
    for point in &trace.points {
        assert_eq!(point.began, at, "{}", point.point);
        at = point.ended;
    }
    assert_eq!(trace.ended, at);
}

#[test]
fn a_failed_attempt_is_traced_with_its_message() {
    let traces = traces_of("refused", true);
    let [trace] = &traces[..] else {
        panic!("{traces:?}");
    };
    assert_eq!((trace.result, &trace.node), ("unschedulable", &None));
    assert!(!trace.message.is_empty());
    let points = points(trace);
    assert!(
        points.contains(&("Permit", Code::Unschedulable, 23)),
        "{points:?}"
    );
    assert_eq!(points.last(), Some(&("Unreserve", Code::Success, 19)));
}

#[test]
fn nothing_is_traced_unless_it_is_wanted() {
    assert_eq!(traces_of("p", false), []);
}
