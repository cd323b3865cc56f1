//! Random small worlds: no node is ever overcommitted and no pod is lost.

use super::*;
use berth_api::Duration;
use berth_framework::ApiCall;
use berth_framework::Status;
use berth_framework::plugin::PermitStep;
use berth_framework::stage::{Step, Wait, WaitOn};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    AddNode(u8, u8),
    RemoveNode(u8),
    AddPod(u8, u8, i8),
    DeletePod(u8),
    BindElsewhere(u8, u8),
    Schedule,
    Answer(bool),
    Advance(u16),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        2 => (0..4_u8, 1..5_u8).prop_map(|(n, cpu)| Op::AddNode(n, cpu)),
        1 => (0..4_u8).prop_map(Op::RemoveNode),
        6 => (0..12_u8, 1..4_u8, -2..3_i8).prop_map(|(p, cpu, priority)| Op::AddPod(p, cpu, priority)),
        2 => (0..12_u8).prop_map(Op::DeletePod),
        1 => (0..12_u8, 0..4_u8).prop_map(|(p, n)| Op::BindElsewhere(p, n)),
        8 => Just(Op::Schedule),
        6 => prop::bool::weighted(0.8).prop_map(Op::Answer),
        3 => (0..3000_u16).prop_map(Op::Advance),
    ];
    prop::collection::vec(op, 1..120)
}

/// Waits in PreBind for every third pod, and in Permit for every fifth.
fn sometimes_slow() -> FakePlugin {
    let number = |name: &str| name[1..].parse::<u32>().unwrap_or(0);
    fake("Slow")
        .permit(move |cx, pod, _, _| {
            let mood = cx.now.as_millis() / 1000 % 4;
            if number(pod.pod.name()) % 5 == 4 && mood == 0 {
                PermitStep::Hold(Duration::from_secs(2))
            } else {
                PermitStep::Done(Status::success())
            }
        })
        .reserve(move |cx, _, pod, _, wake| match wake {
            None if number(pod.pod.name()) % 7 == 6 => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(1),
            }),
            _ => Step::success(),
        })
        .pre_bind(move |cx, _, pod, _, wake| match wake {
            None if number(pod.pod.name()) % 3 == 2 => Step::Wait(Wait {
                on: WaitOn::Timer,
                deadline: cx.now + Duration::from_secs(1),
            }),
            _ => Step::success(),
        })
}

/// The pods that the scheduler places on a node never request more than the node offers. The API may cause more (a
/// binding of another client, a node created again with less), so the test checks only worlds without such changes.
fn overcommitted(w: &Driver) -> Option<String> {
    let nodes = &w.scheduler.cache().cluster().nodes;
    let over = nodes
        .iter()
        .find(|n| n.requested_of("cpu") > n.allocatable_of("cpu"))?;
    Some(format!(
        "{} has {} mCPU too many",
        over.name(),
        over.requested_of("cpu") - over.allocatable_of("cpu")
    ))
}

fn run(ops: &[Op], fits: FakePlugin) -> Result<(), String> {
    let mut w = driver([fits, sometimes_slow()]);
    let mut judged = true;
    let mut known = std::collections::BTreeSet::new();
    for (step, op) in ops.iter().enumerate() {
        match op {
            Op::AddNode(n, cpu) => {
                let name = format!("n{n}");
                // Setting the same node again is an update, which may reduce its resources.
                judged &= known.insert(name.clone());
                let node = node(&name).capacity(&cpu.to_string(), "1Gi", "20");
                w.applied(node.version(u64::from(*cpu)).object());
            }
            Op::RemoveNode(n) => {
                let object = node(&format!("n{n}")).object();
                w.gone(object);
            }
            Op::AddPod(p, cpu, priority) => {
                let name = format!("p{p}");
                if !w.pods.contains_key(&name) {
                    let uid = format!("uid-{step}-{name}");
                    w.pod(
                        pod(&name)
                            .uid(&uid)
                            .request("cpu", &cpu.to_string())
                            .priority(i32::from(*priority)),
                    );
                }
            }
            Op::DeletePod(p) => w.deleted(&format!("p{p}")),
            Op::BindElsewhere(p, n) => {
                let name = format!("p{p}");
                if w.pods.get(&name).is_some_and(|p| !p.is_assigned()) {
                    judged = false;
                    w.change(&name, |p| p.on(&format!("n{n}")));
                }
            }
            Op::Schedule => {
                w.schedule();
            }
            Op::Answer(ok) => answer(&mut w, *ok),
            Op::Advance(millis) => {
                w.advance(Duration::from_millis(u64::from(*millis)));
            }
        }
        if judged && let Some(text) = overcommitted(&w) {
            return Err(text);
        }
    }
    settle(&mut w)
}

/// Answers the oldest call like the API: a bound or deleted pod cannot be bound.
fn answer(w: &mut Driver, ok: bool) {
    let Some((_, call)) = w.calls.first() else {
        return;
    };
    let stored = w.pods.get(call.object().name.as_str());
    let same = stored.filter(|p| *p.uid() == call.key().uid);
    let refusal = match (same, call) {
        (None, _) => Some("not found"),
        (Some(p), ApiCall::BindPod { .. }) if p.is_assigned() => Some("already assigned"),
        _ if !ok => Some("the server is busy"),
        _ => None,
    };
    w.answer(refusal);
}

/// With a working API and enough resources, every pod gets a node in the end.
fn settle(w: &mut Driver) -> Result<(), String> {
    w.applied(node("big").capacity("100", "1Gi", "100").object());
    for _ in 0..2000 {
        let idle =
            w.scheduler.bindings_in_flight() == 0 && w.scheduler.queue().in_flight().is_empty();
        if idle && w.pods.values().all(|p| p.is_assigned()) {
            break;
        }
        w.schedule();
        while !w.calls.is_empty() {
            answer(w, true);
        }
        w.advance(Duration::from_millis(500));
    }
    let left: Vec<&String> = w
        .pods
        .iter()
        .filter(|(_, p)| !p.is_assigned())
        .map(|(name, _)| name)
        .collect();
    if !left.is_empty() {
        return Err(format!("{left:?} were lost: {:?}", w.scheduler));
    }
    if w.scheduler.cache().assumed_pods() > 0 || !w.scheduler.queue().in_flight().is_empty() {
        return Err(format!("something is left over: {:?}", w.scheduler));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn no_overcommit_and_no_lost_pod(ops in ops()) {
        run(&ops, fits()).map_err(TestCaseError::fail)?;
        run(&ops, fits_alike()).map_err(TestCaseError::fail)?;
    }
}
