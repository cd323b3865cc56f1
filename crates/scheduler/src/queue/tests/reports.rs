//! What is reported of pods that PreEnqueue keeps out (KEP-5501; the queue's part of edge cases 167 to
//! 173).

use super::script::MESSAGE_OF_GATES;
use super::{Bench, Setup, fields, setup};
use crate::queue::PreEnqueueReport;
use berth_framework::Feature;
use berth_framework::call::PodRef;
use berth_framework::testing::PodBuilder;

fn reporting() -> Setup {
    setup().feature(Feature::SchedulerPreEnqueuePodStatus, true)
}

/// The reports since the last time: `reason: message`, or `clear`.
fn reports(bench: &mut Bench) -> String {
    let texts: Vec<String> = bench
        .queue
        .take_pre_enqueue_reports()
        .iter()
        .map(|report| match report {
            PreEnqueueReport::Rejected { message, .. } => {
                format!("{}: {message}", report.reason().unwrap_or_default())
            }
            PreEnqueueReport::Passed { .. } => "clear".to_owned(),
        })
        .collect();
    texts.join(" | ")
}

/// Adds `a` as the API has it, with a PodScheduled condition.
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

/// The informer brings `a` with another PodScheduled condition.
fn update_condition(bench: &mut Bench, reason: &str, message: &str) {
    let old = bench.pods["a"].clone();
    let new = PodBuilder::of(&old)
        .with(|pod| pod.status.conditions.clear())
        .condition("PodScheduled", "False", reason, message)
        .arc();
    bench.know(new.clone());
    let (queue, cx) = fields!(*bench);
    queue.update(&cx, &old, &new);
}

/// cases 168 and 170: the same message is told once, another one anew; what was told is cleared.
#[test]
fn a_new_message_is_reported_once() {
    let mut bench = reporting().run("add a G1=shut");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G1 is shut");
    bench.run("activate a => gated: a");
    assert_eq!(reports(&mut bench), "", "the same message");
    bench.run("update a G1=other\nactivate a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: other");
    bench.run("update a G2=shut\nactivate a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G2 is shut");
    bench.run("update a\nactivate a => active: a");
    assert_eq!(reports(&mut bench), "clear");
    bench.run("pop -> a\nerror a\nactivate a");
    assert_eq!(reports(&mut bench), "", "nothing left to clear");
    bench.run("pop -> a\nupdate a G2=shut\nerror a => gated: a");
    assert_eq!(
        reports(&mut bench),
        "NotReadyForScheduling: G2 is shut",
        "again, after it was cleared"
    );
}

/// reporting is mandatory, whatever the status with which a plugin keeps the pod out and whether it has words.
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
        let expected = format!("NotReadyForScheduling: {message}");
        assert_eq!(reports(&mut bench), expected, "{status:?}");
        bench.run("activate a => gated: a");
        assert_eq!(reports(&mut bench), "", "{status:?}: once");
    }
}

/// Q-108, case 172: the latest report of a pod replaces those that nobody has taken; a deleted pod has none.
#[test]
fn one_report_a_pod_waits_to_be_taken() {
    let mut bench = reporting().run("add a G1=shut\nupdate a G1=other\nactivate a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: other");
    let mut bench = reporting().run("add a G1=shut\nupdate a\nactivate a");
    assert_eq!(reports(&mut bench), "clear");
    let mut bench = reporting().run("add a G1=shut\nadd b G1=shut\ndelete a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G1 is shut");
}

/// case 171: and a pod that another plugin kept out before its gates did.
#[test]
fn scheduling_gates_repeat_what_the_api_server_said() {
    let mut bench = reporting().build();
    add_with_condition(&mut bench, "gates=x", "SchedulingGated", MESSAGE_OF_GATES);
    assert_eq!(bench.places(), "gated: a");
    assert_eq!(reports(&mut bench), "", "the pod says so already");
    bench.run("activate a => gated: a");
    assert_eq!(reports(&mut bench), "");
    // Without its gates the pod still carries the API server's word, which is not ours to clear.
    let old = bench.pods["a"].clone();
    let new = PodBuilder::of(&old).ungated().arc();
    bench.know(new.clone());
    let (queue, cx) = fields!(bench);
    queue.update(&cx, &old, &new);
    assert_eq!(bench.places(), "active: a");
    assert_eq!(reports(&mut bench), "");

    // Gated by another plugin first: a later rejection by SchedulingGates has the API server's reason.
    let mut bench = reporting().run("add a G1=shut");
    reports(&mut bench);
    bench.run("update a gates=x\nactivate a");
    assert_eq!(
        reports(&mut bench),
        format!("SchedulingGated: {MESSAGE_OF_GATES}")
    );
    // That may still be on its way when the gates are gone, whatever the pod shows by then.
    update_condition(&mut bench, "SchedulingGated", MESSAGE_OF_GATES);
    let old = bench.pods["a"].clone();
    let new = PodBuilder::of(&old).ungated().arc();
    bench.know(new.clone());
    let (queue, cx) = fields!(bench);
    queue.update(&cx, &old, &new);
    assert_eq!(bench.places(), "active: a");
    assert_eq!(reports(&mut bench), "clear");
}

/// Q-103, case 173: what the pod carries is not written again, unless its reason is another one.
#[test]
fn after_a_restart_the_pod_itself_remembers() {
    for (reason, message, reported) in [
        ("NotReadyForScheduling", "G1 is shut", ""),
        (
            "NotReadyForScheduling",
            "older",
            "NotReadyForScheduling: G1 is shut",
        ),
        (
            "Unschedulable",
            "G1 is shut",
            "NotReadyForScheduling: G1 is shut",
        ),
        ("SchedulingGated", "G1 is shut", ""),
    ] {
        let mut bench = reporting().build();
        add_with_condition(&mut bench, "G1=shut", reason, message);
        assert_eq!(reports(&mut bench), reported, "{reason}: {message}");
    }
    // A pod that carries our condition and passes at once is cleared.
    let mut bench = reporting().build();
    add_with_condition(&mut bench, "v=1", "NotReadyForScheduling", "older");
    assert_eq!(reports(&mut bench), "clear");
}

/// Q-104, case 169: then rejected again while the clear is under way.
#[test]
fn a_rejection_after_a_clear_is_reported_though_the_pod_still_carries_it() {
    let mut bench = reporting().run("add a G1=shut");
    reports(&mut bench);
    update_condition(&mut bench, "NotReadyForScheduling", "G1 is shut");
    let carrying = bench.pods["a"].clone();
    let open = PodBuilder::of(&carrying).label("G1", "open").arc();
    bench.know(open.clone());
    let (queue, cx) = fields!(bench);
    queue.update(&cx, &carrying, &open);
    queue.activate(&cx, [&open]);
    assert_eq!(bench.places(), "active: a");
    assert_eq!(reports(&mut bench), "clear");
    // Popped, failed, and shut again before the clear was written.
    bench.run("pop -> a");
    bench.know(carrying);
    bench.run("error a => gated: a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G1 is shut");
}

/// another scheduler has told, before it stopped leading, what a plugin says of a pod that waits to be tried
/// here. The attempt fails, and its verdict takes the place of that.
#[test]
fn a_rejection_after_an_attempt_is_reported_though_the_pod_still_carries_it() {
    let mut bench = reporting().run("add a => active: a\nupdate a G1=shut => active: a");
    update_condition(&mut bench, "NotReadyForScheduling", "G1 is shut");
    bench.run("pop -> a\nerror a => gated: a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G1 is shut");
}

/// a scheduler that led before has said something else of a pod that is kept out. What is true is told anew, once.
#[test]
fn what_another_scheduler_said_of_a_pod_that_is_kept_out_is_put_right() {
    let ours = "NotReadyForScheduling: G1 is shut";
    for (carried, told) in [("", ours), ("G1 is shut", "")] {
        let mut bench = reporting().build();
        match carried {
            "" => bench.run("add a G1=shut"),
            carried => add_with_condition(&mut bench, "G1=shut", "NotReadyForScheduling", carried),
        }
        assert_eq!(reports(&mut bench), told);
        for (reason, message, expected) in [
            ("NotReadyForScheduling", "G1 is shut", ""),
            ("NotReadyForScheduling", "G0 is shut", ours),
            ("NotReadyForScheduling", "G0 is shut", ""),
            ("NotReadyForScheduling", "G1 is shut", ""),
            ("Unschedulable", "no room", ""),
        ] {
            update_condition(&mut bench, reason, message);
            let what = format!("{carried:?}: {reason} {message}");
            assert_eq!(reports(&mut bench), expected, "{what}");
        }
    }
}

/// somebody has taken the condition off a pod that is kept out. It is told again, once.
#[test]
fn a_condition_that_was_taken_away_is_written_again() {
    let mut bench = reporting().run("add a G1=shut");
    let ours = "NotReadyForScheduling: G1 is shut";
    assert_eq!(reports(&mut bench), ours);
    update_condition(&mut bench, "NotReadyForScheduling", "G1 is shut");
    for expected in [ours, ""] {
        let old = bench.pods["a"].clone();
        let new = PodBuilder::of(&old)
            .with(|pod| pod.status.conditions.clear())
            .arc();
        bench.know(new.clone());
        let (queue, cx) = fields!(bench);
        queue.update(&cx, &old, &new);
        assert_eq!(reports(&mut bench), expected);
    }
}

/// after a failed write the same message is reported again.
#[test]
fn a_failed_report_is_repeated() {
    let mut bench = reporting().run("add a G1=shut");
    reports(&mut bench);
    let stranger = PodRef {
        uid: "another".into(),
        ..PodRef::of(&bench.pods["a"])
    };
    bench.queue.pre_enqueue_report_failed(&stranger);
    bench.run("activate a");
    assert_eq!(reports(&mut bench), "", "it was another pod's report");
    let pod = PodRef::of(&bench.pods["a"]);
    bench.queue.pre_enqueue_report_failed(&pod);
    bench.run("activate a");
    assert_eq!(reports(&mut bench), "NotReadyForScheduling: G1 is shut");
    // What the pod shows after a write that failed is not taken for what is true.
    update_condition(&mut bench, "NotReadyForScheduling", "older");
    reports(&mut bench);
    bench.queue.pre_enqueue_report_failed(&pod);
    update_condition(&mut bench, "NotReadyForScheduling", "G1 is shut");
    assert_eq!(reports(&mut bench), "");
}

/// without the gate nothing is reported, and nothing cleared.
#[test]
fn with_the_gate_off_nothing_is_reported() {
    let mut bench = setup().run("add a G1=shut\nupdate a\nactivate a => active: a");
    assert_eq!(reports(&mut bench), "");
}

/// A pod that was never kept out is never reported.
#[test]
fn an_ordinary_pod_is_not_reported() {
    let mut bench =
        reporting().run("add a\npop\nfail a A\n+3000\nevent Node/Add helps=A => active: a");
    assert_eq!(reports(&mut bench), "");
}
