//! The log lines by level, in the words of kube-scheduler.

use super::*;
use crate::LogLevel;
use berth_api::Duration;
use berth_framework::testing::{node, pod};

/// A pod is bound, another one fits no node, and the node and the second pod are changed and deleted.
fn story(verbosity: u8) -> Vec<String> {
    let mut w = driver([fits()]);
    w.scheduler.set_log_verbosity(verbosity);
    w.applied(node("n1").capacity("1", "1Gi", "9").object());
    w.pod(pod("p").request("cpu", "1"));
    w.attempt();
    w.answer_all();
    w.pod(pod("big").request("cpu", "2"));
    w.attempt();
    w.answer_all();
    w.advance(Duration::from_secs(1));
    w.applied(node("n1").capacity("1", "2Gi", "9").version(9).object());
    w.deleted("big");
    let lines = w.log.iter();
    let lines = lines.map(|line| match line.level {
        LogLevel::Info(v) => format!("{v} {line}"),
        other => format!("{other:?} {line}"),
    });
    lines.collect()
}

#[test]
fn lines_have_the_levels_of_klog() {
    let all = [
        "3 Add event for node node=n1",
        "3 Add event for unscheduled pod pod=default/p",
        "5 Pod moved to an internal scheduling queue pod=default/p event=UnschedulablePodAdd queue=Active",
        "3 Attempting to schedule pod pod=default/p",
        "3 Attempting to bind pod to node pod=default/p node=n1",
        "2 Successfully bound pod to node pod=default/p node=n1 evaluatedNodes=1 feasibleNodes=1",
        "3 Delete event for unscheduled pod pod=default/p",
        "3 Add event for scheduled pod pod=default/p",
        "3 Add event for unscheduled pod pod=default/big",
        "5 Pod moved to an internal scheduling queue pod=default/big event=UnschedulablePodAdd queue=Active",
        "3 Attempting to schedule pod pod=default/big",
        "2 Unable to schedule pod; no fit; waiting pod=default/big err=0/1 nodes are available: 1 Insufficient cpu.",
        "3 Pod moved to an internal scheduling queue pod=default/big event=ScheduleAttemptFailure queue=Unschedulable",
        "3 Updating pod condition pod=default/big conditionType=PodScheduled conditionStatus=False conditionReason=Unschedulable",
        "4 Update event for unscheduled pod pod=default/big",
        "4 Update event for node node=n1",
        "3 Delete event for unscheduled pod pod=default/big",
    ];
    for verbosity in [0, 1, 2, 3, 4, 5] {
        let expected: Vec<&str> = all
            .into_iter()
            .filter(|line| line.as_bytes()[0] - b'0' <= verbosity)
            .collect();
        assert_eq!(story(verbosity), expected, "-v={verbosity}");
    }
}
