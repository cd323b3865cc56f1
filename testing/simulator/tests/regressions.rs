//! Scripts that once showed a violation, as shortened by the simulator. None may show one again.

use berth_api::{Duration, Kind, Release, TaintEffect};
use berth_framework::{Feature, FeatureGates};
use berth_scheduler::evaluator::EvaluatorKind;
use berth_simulator::shapes::{
    Access, ClaimShape, DeviceUse, DeviceWant, DriverShape, GroupShape, Near, NodeChange,
    NodeShape, PodShape, Reach, SHUT_OUT, Slow,
};
use berth_simulator::{CallAnswer, Script, Step, Subject, notify, run};

fn node(cpu_milli: i64) -> NodeShape {
    NodeShape {
        cpu_milli,
        memory_mebibytes: 4096,
        pods: 110,
        ..NodeShape::default()
    }
}

fn pod(cpu_milli: i64) -> PodShape {
    PodShape {
        cpu_milli,
        ..PodShape::default()
    }
}

fn slow(slow: Slow) -> PodShape {
    PodShape {
        slow: Some(slow),
        ..pod(100)
    }
}

fn app(app: &'static str) -> PodShape {
    PodShape {
        app: Some(app),
        ..pod(100)
    }
}

/// A pod of the second scheduler, which evaluates the namespace before the gates.
fn shut_out(gates: usize) -> PodShape {
    PodShape {
        scheduler: 1,
        gates,
        ..app(SHUT_OUT)
    }
}

fn apart_from(app: &'static str) -> PodShape {
    PodShape {
        apart_from: Some(Near::on_node(app)),
        priority: 100,
        ..pod(100)
    }
}

#[test]
fn a_seed_that_failed_once_passes() {
    check(&one_scheduler(), false);
    check(&two_schedulers(), true);
}

/// a claim is created and shown before the status of its pod names it. The pod is bound after its own update has
/// arrived, and not before. The periodic flush is off in the simulator, so it cannot requeue the pod.
#[test]
fn the_status_of_a_pod_wakes_it_after_an_early_claim() {
    let devices = DriverShape::Plain(2, false);
    let wants = PodShape {
        devices: Some(DeviceUse::Template(DeviceWant(0))),
        ..pod(100)
    };
    let steps = vec![
        Step::CreateNode(0, node(1000)),
        Step::PublishDevices(Some(0), devices),
        Step::Deliver(Kind::DeviceClass, 9),
        Step::Deliver(Kind::Node, 9),
        Step::Deliver(Kind::ResourceSlice, 9),
        Step::CreatePod(1, wants),
        Step::Deliver(Kind::Pod, 9),
        Step::Schedule(1),
        Step::ManageClaims,
        Step::Deliver(Kind::ResourceClaim, 9),
        Step::Schedule(1),
        Step::Deliver(Kind::Pod, 9),
        Step::Schedule(1),
    ];
    let link_seen = format!("--- {}", Step::Deliver(Kind::Pod, 9));
    let subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    for evaluator in [EvaluatorKind::Incremental, EvaluatorKind::Plain] {
        let script = Script {
            seed: 1,
            features: FeatureGates::default(),
            evaluator,
            standby: false,
            steps: steps.clone(),
        };
        let mut lines = Vec::new();
        let mut listen = |line: &str| lines.push(line.to_owned());
        let tally = notify(&subject, &script, &mut listen).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(tally.bindings, 1, "{lines:#?}");
        let link = lines.iter().rposition(|line| *line == link_seen);
        let binding = lines.iter().position(|line| line.contains("bind p1 to n0"));
        assert!(
            link.is_some() && link < binding,
            "the status of the pod wakes it: {lines:#?}"
        );
    }
}

/// A former leader withdraws the report about a member and nominates it, in one call that arrives after the new leader
/// has rejected the member. The call is for an earlier version of the pod and is rejected.
#[test]
fn the_end_of_a_report_preserves_the_result_of_another_scheduler() {
    use Step::{Answer as Answered, CreateGroup, CreateNode, CreatePod, Deliver, Schedule};
    let other = |step| Step::Other(Box::new(step));
    let group = GroupShape {
        priority: 0,
        preempts: false,
        all_or_none: false,
        min: Some(1),
        in_one_zone: false,
    };
    let member = PodShape {
        group: Some(0),
        cpu_milli: 500,
        ..slow(Slow::Timer)
    };
    let important = PodShape {
        priority: 10,
        ..pod(500)
    };
    let steps = vec![
        CreateNode(0, node(500)),
        CreateGroup(0, group),
        CreatePod(1, member),
        Deliver(Kind::Node, 9),
        Deliver(Kind::Pod, 9),
        Step::Advance(Duration::from_secs(5)),
        Answered(0, 1, CallAnswer::Honest),
        Deliver(Kind::Pod, 9),
        Deliver(Kind::PodGroup, 9),
        Schedule(1),
        CreatePod(2, important),
        other(Deliver(Kind::Node, 9)),
        other(Deliver(Kind::PodGroup, 9)),
        other(Deliver(Kind::Pod, 9)),
        Step::FailOver,
        Schedule(2),
        Answered(0, 3, CallAnswer::Honest),
    ];
    let subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    let script = Script {
        seed: 1,
        features: FeatureGates::of(Release::V1_38).with(Feature::GenericWorkload, true),
        evaluator: EvaluatorKind::Incremental,
        standby: true,
        steps,
    };
    let mut lines = Vec::new();
    let mut listen = |line: &str| lines.push(line.to_owned());
    let ended = notify(&subject, &script, &mut listen);
    let late =
        "a dead scheduler's call arrives: clear the status of p1 nominated \"n0\": Err(Conflict)";
    assert!(lines.iter().any(|line| line == late), "{lines:#?}");
    if let Err(failure) = ended {
        panic!("{failure}: {lines:#?}");
    }
}

/// Scripts with their descriptions.
type Scripts = Vec<(&'static str, Vec<Step>)>;

fn check(scripts: &Scripts, standby: bool) {
    let subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    for (what, steps) in scripts {
        for seed in 0..3 {
            let script = Script {
                seed,
                features: FeatureGates::default(),
                evaluator: EvaluatorKind::Incremental,
                standby,
                steps: steps.clone(),
            };
            if let Err(failure) = run(&subject, &script) {
                panic!("{what}: {failure}");
            }
        }
    }
}

fn two_schedulers() -> Scripts {
    use Step::{Answer as Answered, CreateNode, CreatePod, Deliver, FailOver, Relist, Schedule};
    let other = |step| Step::Other(Box::new(step));
    let everywhere = |kind| [Deliver(kind, 9), other(Deliver(kind, 9))];
    let scripts: [(&str, Vec<Step>); 5] = [
        (
            "the removal of a report that arrives after a binding leaves the condition of the bound pod",
            [
                vec![Step::Close(0, Some("review")), CreateNode(0, node(1000))],
                everywhere(Kind::Namespace).to_vec(),
                everywhere(Kind::Node).to_vec(),
                vec![CreatePod(1, shut_out(0)), Deliver(Kind::Pod, 9)],
                vec![Step::Advance(Duration::from_secs(5))],
                vec![Answered(0, 1, CallAnswer::Honest), Step::Close(0, None)],
                everywhere(Kind::Pod).to_vec(),
                everywhere(Kind::Namespace).to_vec(),
                // The removal arrives after another scheduler has bound the pod.
                vec![Step::Advance(Duration::from_secs(5)), FailOver, Schedule(1)],
                vec![Answered(0, 9, CallAnswer::Honest), Step::StepDown],
                // The next leader has never received the condition of the bound pod.
                vec![Step::Land(0), Step::Restart(0)],
            ]
            .concat(),
        ),
        (
            "a binding that another scheduler has made leaves a true status",
            [
                vec![CreatePod(1, pod(500)), CreateNode(0, node(1000))],
                everywhere(Kind::Pod).to_vec(),
                vec![FailOver, Schedule(1), CreateNode(1, node(1000))],
                vec![other(Deliver(Kind::Node, 9)), other(Schedule(1))],
                vec![Answered(0, 1, CallAnswer::Honest), Deliver(Kind::Node, 9)],
                vec![Step::Advance(Duration::from_secs(11)), Schedule(1)],
                vec![Answered(0, 1, CallAnswer::TooManyRequests)],
            ]
            .concat(),
        ),
        (
            "a status that comes after a binding whose answer was lost is corrected",
            [
                vec![CreatePod(1, pod(250)), CreateNode(0, node(4000))],
                everywhere(Kind::Pod).to_vec(),
                vec![FailOver, other(Schedule(1)), Deliver(Kind::Node, 9)],
                vec![Schedule(1), Answered(0, 1, CallAnswer::TimeoutAfter)],
                vec![other(Answered(0, 1, CallAnswer::Honest))],
                vec![Step::Advance(Duration::from_millis(100)), Relist(Kind::Pod)],
            ]
            .concat(),
        ),
        (
            "what a dead scheduler has sent arrives, and another one has decided otherwise",
            [
                vec![CreateNode(0, node(1000)), CreateNode(1, node(1000))],
                vec![CreatePod(1, pod(800)), CreatePod(2, pod(800))],
                everywhere(Kind::Node).to_vec(),
                everywhere(Kind::Pod).to_vec(),
                vec![Schedule(2), FailOver, Schedule(2), Step::StepDown],
                vec![Step::Land(1), Step::Land(0)],
            ]
            .concat(),
        ),
        (
            "what a scheduler that led before has written about a pod with gates is corrected",
            [
                vec![Step::Close(0, Some("review"))],
                everywhere(Kind::Namespace).to_vec(),
                vec![CreatePod(1, shut_out(1)), Deliver(Kind::Pod, 9)],
                vec![Step::Advance(Duration::from_secs(5))],
                vec![
                    Answered(0, 1, CallAnswer::Honest),
                    Step::Close(0, None),
                    FailOver,
                ],
            ]
            .concat(),
        ),
    ];
    scripts.into()
}

fn one_scheduler() -> Scripts {
    use Step::{
        Advance, Answer as Answered, ChangeNode, CreateNode, CreatePod, DeletePod, Deliver,
        Relabel, Relist, Schedule,
    };
    let pods = |n| Deliver(Kind::Pod, n);
    let nodes = |n| Deliver(Kind::Node, n);
    let millis = Duration::from_millis;
    let honest = |n| Answered(0, n, CallAnswer::Honest);
    let scripts: [(&str, Vec<Step>); 12] = [
        (
            "a pod that was bound and deleted between two lists keeps no place",
            vec![
                CreateNode(0, node(1000)),
                nodes(1),
                CreatePod(1, pod(1000)),
                pods(1),
                Schedule(1),
                honest(1),
                DeletePod(1),
                Relist(Kind::Pod),
                CreatePod(2, pod(1000)),
            ],
        ),
        (
            "others see the new label of a placed pod",
            vec![
                CreateNode(0, node(1000)),
                nodes(1),
                CreatePod(1, app("green")),
                pods(1),
                Schedule(1),
                Relabel(1, "red"),
                CreatePod(2, apart_from("red")),
                pods(2),
                Schedule(1),
            ],
        ),
        (
            "what a pod that Permit holds back was waiting for is noted",
            vec![
                CreateNode(0, node(1000)),
                nodes(1),
                Advance(millis(1000)),
                CreatePod(1, slow(Slow::Permit)),
                pods(1),
                Schedule(1),
                Step::Slow(1, None),
                pods(1),
                Advance(millis(5000)),
            ],
        ),
        (
            "a pod whose node changed under a parked cycle is tried elsewhere",
            vec![
                CreateNode(0, node(1000)),
                CreateNode(1, node(500)),
                nodes(2),
                CreatePod(1, slow(Slow::Reserve)),
                pods(1),
                Schedule(1),
                ChangeNode(0, NodeChange::Taint("maintenance", TaintEffect::NoExecute)),
                ChangeNode(1, NodeChange::Cpu(4000)),
            ],
        ),
        (
            "a new node helps a pod that another one's terms keep away",
            vec![
                CreateNode(0, node(1000)),
                nodes(1),
                CreatePod(1, apart_from("green")),
                CreatePod(2, app("green")),
                pods(2),
                Schedule(2),
                CreateNode(1, node(1000)),
            ],
        ),
        (
            "a nomination that may have been written is reverted in full",
            vec![
                CreateNode(0, node(500)),
                nodes(1),
                CreatePod(
                    1,
                    PodShape {
                        cpu_milli: 500,
                        ..slow(Slow::Job)
                    },
                ),
                pods(1),
                Schedule(1),
                CreatePod(2, pod(100)),
                Answered(0, 1, CallAnswer::TimeoutAfter),
                CreatePod(
                    3,
                    PodShape {
                        priority: 10,
                        ..slow(Slow::Timer)
                    },
                ),
                Advance(millis(5000)),
            ],
        ),
        (
            "room of a nomination is free when its pod is gone, written or not",
            vec![
                CreateNode(0, node(1000)),
                nodes(1),
                CreatePod(
                    1,
                    PodShape {
                        slow: Some(Slow::Timer),
                        ..pod(1000)
                    },
                ),
                pods(1),
                Schedule(1),
                CreatePod(
                    2,
                    PodShape {
                        priority: 100,
                        ..pod(1000)
                    },
                ),
                CreatePod(3, pod(1000)),
                pods(2),
                Schedule(2),
                DeletePod(1),
                DeletePod(2),
                pods(9),
            ],
        ),
        (
            "a report about gates that are removed before it is sent is reverted",
            vec![
                Step::Close(0, Some("review")),
                Deliver(Kind::Namespace, 9),
                CreatePod(1, shut_out(1)),
                pods(1),
                Advance(millis(5000)),
                Step::Close(0, None),
                Deliver(Kind::Namespace, 9),
                Step::RemoveGate(1, 0),
                pods(1),
                Advance(millis(11_000)),
            ],
        ),
        (
            "a verdict is written again over a report that may have been written",
            vec![
                CreateNode(0, node(4000)),
                nodes(1),
                CreatePod(
                    1,
                    PodShape {
                        claim: Some(6),
                        ..shut_out(0)
                    },
                ),
                pods(1),
                Schedule(1),
                honest(1),
                Step::Close(0, Some("review")),
                Deliver(Kind::Namespace, 9),
                Step::DeleteNode(0),
                CreateNode(4, node(4000)),
                nodes(9),
                Step::Close(0, None),
                Advance(millis(5000)),
                pods(1),
                Deliver(Kind::Namespace, 9),
                Answered(0, 1, CallAnswer::TimeoutAfter),
                Schedule(1),
            ],
        ),
        (
            "a pod that has passed and is rejected again is reported after five seconds",
            vec![
                Step::Close(0, Some("review")),
                CreatePod(1, shut_out(0)),
                pods(1),
                Deliver(Kind::Namespace, 9),
                Schedule(1),
                Advance(millis(11_000)),
                Step::Close(0, None),
                CreateNode(
                    0,
                    NodeShape {
                        cordoned: true,
                        ..node(4000)
                    },
                ),
                nodes(1),
                Deliver(Kind::Namespace, 9),
                Step::Close(0, Some("data")),
                Schedule(1),
                Advance(millis(4000)),
            ],
        ),
        (
            "a node without limits helps a pod that volume limits rejected",
            vec![
                CreateNode(
                    0,
                    NodeShape {
                        attachable: Some(0),
                        ..node(4000)
                    },
                ),
                Step::CreateClaim(
                    1,
                    ClaimShape {
                        access: Access::OneNode,
                        reach: Reach::Everywhere,
                        class: None,
                    },
                ),
                Relist(Kind::PersistentVolume),
                Relist(Kind::PersistentVolumeClaim),
                Relist(Kind::CsiNode),
                nodes(1),
                CreatePod(
                    1,
                    PodShape {
                        claim: Some(1),
                        ..pod(100)
                    },
                ),
                pods(1),
                CreateNode(1, node(4000)),
                Schedule(1),
            ],
        ),
        (
            "a status that the API refuses every time is offered again",
            [
                vec![CreateNode(0, node(100)), nodes(1), CreatePod(1, pod(500))],
                vec![pods(1), Schedule(1)],
                vec![
                    [
                        Answered(0, 1, CallAnswer::ServerError),
                        Advance(millis(5000))
                    ];
                    4
                ]
                .concat(),
            ]
            .concat(),
        ),
    ];
    scripts.into()
}
