//! The reports of the queue about pods that PreEnqueue plugins reject or admit (KEP-5501; ). The tests of
//! the core check which reports are written, and when.

use super::script::MESSAGE_OF_GATES;
use super::{Bench, Setup, fields, setup};
use crate::PreEnqueueReport;
use berth_api::Duration;
use berth_framework::Feature;
use berth_framework::testing::PodBuilder;

fn reporting() -> Setup {
    setup().feature(Feature::SchedulerPreEnqueuePodStatus, true)
}

/// The reports since the previous call: `pod reason: message`, or `pod passes`.
fn reports(bench: &mut Bench) -> String {
    let mut texts = Vec::new();
    while let Some((report, _)) = bench.queue.take_pre_enqueue_report() {
        let pod = report.pod().name().clone();
        texts.push(match &report {
            PreEnqueueReport::Rejected { message, .. } => {
                format!("{pod} {}: {message}", report.reason().unwrap_or_default())
            }
            PreEnqueueReport::Passed { .. } => format!("{pod} passes"),
        });
    }
    texts.join(" | ")
}

/// Adds `a` with a PodScheduled condition, as from the API.
fn add_with_condition(bench: &mut Bench, attributes: &str, reason: &str, message: &str) {
    let mut scratch = setup().build();
    scratch.run(&format!("add a {attributes}"));
    let pod = PodBuilder::of(&scratch.pods["a"])
        .condition("PodScheduled", "False", reason, message)
        .arc();
    bench.know(pod.clone());
    let (queue, cx) = fields!(*bench);
    queue.add(&cx, pod);
}

/// The informer brings `a` with other conditions.
fn update_condition(bench: &mut Bench, condition: Option<(&str, &str)>) {
    let old = bench.pods["a"].clone();
    let mut new = PodBuilder::of(&old).with(|pod| pod.status.conditions.clear());
    if let Some((reason, message)) = condition {
        new = new.condition("PodScheduled", "False", reason, message);
    }
    let new = new.arc();
    bench.know(new.clone());
    let (queue, cx) = fields!(*bench);
    queue.update(&cx, &old, &new);
}

/// a report is mandatory, for any status with which a plugin rejects the pod, with or without a message.
#[test]
fn every_rejection_is_reported_in_the_plugins_words() {
    for (status, message) in [
        ("shut", "G1 is shut"),
        ("pending", "G1 waits"),
        ("broken", "G1 is broken"),
        ("wörtlich-genau", "wörtlich-genau"),
        ("", "the PreEnqueue plugin G1 does not say why"),
    ] {
        let mut bench = reporting().run(&format!("add a G1={status} => gated: a"));
        let expected = format!("a NotReadyForScheduling: {message}");
        assert_eq!(reports(&mut bench), expected, "{status:?}");
    }
    let mut bench = reporting().run("add a gates=x => gated: a");
    let expected = format!("a SchedulingGated: {MESSAGE_OF_GATES}");
    assert_eq!(reports(&mut bench), expected);
}

/// a pod whose condition has the message of its plugin causes no reports, even if the plugin is called
/// often.
#[test]
fn a_pod_that_states_so_is_not_reported_again() {
    let mut bench = reporting().build();
    add_with_condition(&mut bench, "G1=shut", "NotReadyForScheduling", "G1 is shut");
    assert_eq!(
        reports(&mut bench),
        "a NotReadyForScheduling: G1 is shut",
        "first seen"
    );
    bench.run("activate a => gated: a\nactivate a => gated: a");
    assert_eq!(reports(&mut bench), "");
    bench.run("update a G1=other\nactivate a => gated: a");
    assert_eq!(reports(&mut bench), "a NotReadyForScheduling: other");
    bench.run("update a\nactivate a => active: a");
    assert_eq!(reports(&mut bench), "a passes");
}

/// Q-108, case 172: the latest report of a pod replaces an earlier one, and keeps its position and time. An admission
/// between two rejections is reported, too. A deleted pod has no report.
#[test]
fn one_report_a_pod_waits_to_be_taken() {
    for (script, expected, since) in [
        (
            "add a G1=shut\nadd b G1=shut\n+2000\nupdate a G1=other\nactivate a",
            "a NotReadyForScheduling: other | b NotReadyForScheduling: G1 is shut",
            0,
        ),
        ("add a G1=shut\n+2000\nupdate a\nactivate a", "a passes", 0),
        (
            "add a G1=shut\nupdate a\nactivate a\n+2000\npop\nupdate a G1=shut\nerror a => gated: a",
            "a passes | a NotReadyForScheduling: G1 is shut",
            2_000,
        ),
        (
            "add a G1=shut\nadd b G1=shut\ndelete a",
            "b NotReadyForScheduling: G1 is shut",
            0,
        ),
    ] {
        let began = reporting().build().now;
        let mut bench = reporting().run(script);
        let mut first = reporting().run(script);
        let (_, reported) = first.queue.take_pre_enqueue_report().expect("a report");
        let expected_since = began + Duration::from_millis(since);
        assert_eq!(reported, expected_since, "{script}");
        assert_eq!(reports(&mut bench), expected, "{script}");
    }
}

/// if the status of a rejected pod is overwritten by another scheduler or removed, the current state is reported
/// again, also after the result of another scheduler's attempt.
#[test]
fn a_status_that_others_write_is_reported_again() {
    let ours = "a NotReadyForScheduling: G1 is shut";
    let mut bench = reporting().run("add a G1=shut");
    assert_eq!(reports(&mut bench), ours);
    for (condition, expected) in [
        (Some(("NotReadyForScheduling", "G1 is shut")), ""),
        (Some(("NotReadyForScheduling", "G0 is shut")), ours),
        (Some(("NotReadyForScheduling", "G1 is shut")), ""),
        (None, ours),
        (None, ""),
        (Some(("SchedulerError", "the binding failed")), ours),
        (Some(("Unschedulable", "no room")), ours),
    ] {
        update_condition(&mut bench, condition);
        assert_eq!(reports(&mut bench), expected, "{condition:?}");
    }
}

/// without the gate nothing is reported.
#[test]
fn with_the_gate_off_nothing_is_reported() {
    let mut bench = setup().run("add a G1=shut\nupdate a\nactivate a => active: a");
    assert_eq!(reports(&mut bench), "");
}

/// A pod that was never rejected is never reported, unless its condition states it.
#[test]
fn an_ordinary_pod_is_not_reported() {
    let mut bench =
        reporting().run("add a\npop\nfail a A\n+3000\nevent Node/Add helps=A => active: a");
    assert_eq!(reports(&mut bench), "");
    let mut bench = reporting().build();
    add_with_condition(&mut bench, "v=1", "NotReadyForScheduling", "older");
    assert_eq!(reports(&mut bench), "a passes");
}
