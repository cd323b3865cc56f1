//! The policies as plugins: the accepted nodes, the chosen GPUs, and the record of the choice.

use berth_api::{Object, PodGroup, Time};
use berth_framework::ApiCall;
use berth_framework::call::Response;
use berth_framework::plugin::{PreBind, PreFilter, Reserve};
use berth_framework::stage::{Step, WakeReason};
use berth_framework::testing::{NodeBuilder, PodBuilder, Recorder, World, node, pod};
use berth_framework::write::Action;
use berth_framework::{Code, CycleState, Feature, FeatureGates, PodInfo};
use berth_scheduler::{ClusterChange, ScheduleOutcome, Scheduler, SchedulerOptions};
use gpu_fragmentation::best_fit::BestFit;
use gpu_fragmentation::devices::{GPU_MILLI, GPU_MODEL, GPUS, Room};
use gpu_fragmentation::fgd::{Fgd, FgdArgs, TypicalPod};
use gpu_fragmentation::policy::{GpuPlugin, Policy, TOO_FEW};
use serde_json::json;
use std::sync::Arc;

const PLUGIN: GpuPlugin<BestFit> = GpuPlugin(BestFit);

fn gpu_node(name: &str, milli: &str) -> NodeBuilder {
    node(name)
        .capacity("16", "64Gi", "110")
        .allocatable(GPU_MILLI, milli)
}

fn gpu_pod(name: &str, milli: &str) -> PodBuilder {
    pod(name).request("cpu", "1").request(GPU_MILLI, milli)
}

/// Two GPUs: the first has 300 milli free, the second 600.
fn world() -> World {
    World::default()
        .node(gpu_node("n1", "2000"))
        .node(gpu_node("n2", "0"))
        .pod(gpu_pod("a", "700").label(GPUS, "0").on("n1"))
        .pod(gpu_pod("b", "400").label(GPUS, "1").on("n1"))
}

#[test]
fn a_node_needs_the_milli_on_one_gpu() {
    for (milli, codes) in [
        ("300", [Code::Success, Code::Unschedulable]),
        ("600", [Code::Success, Code::Unschedulable]),
        // 900 milli are free, but not on one GPU.
        ("700", [Code::Unschedulable, Code::Unschedulable]),
        ("1000", [Code::Unschedulable, Code::Unschedulable]),
    ] {
        let world = world();
        let asking = gpu_pod("p", milli).info();
        let mut state = CycleState::default();
        PLUGIN.pre_filter(&world.context(), &mut state, &asking);
        let answers = world.filter(&PLUGIN, &state, &asking);
        let got: Vec<Code> = answers.iter().map(|status| status.code()).collect();
        assert_eq!(got, codes, "{milli}");
    }
}

#[test]
fn a_pod_requests_a_part_of_one_gpu_or_whole_gpus() {
    let world = world();
    let asking = gpu_pod("p", "1500").info();
    let answer = PLUGIN.pre_filter(&world.context(), &mut CycleState::default(), &asking);
    let answer = format!("{answer:?}");
    assert!(
        answer.contains("must be below 1000 or a multiple of it"),
        "{answer}"
    );
}

/// The GPUs of node n1 that the plugin writes into the label of the pod before it is bound.
fn chosen<P: Policy>(plugin: &GpuPlugin<P>, world: &World, asking: &Arc<PodInfo>) -> String {
    let (mut state, mut outbox) = (CycleState::default(), Recorder::default());
    let node = "n1".into();
    let mut stage = world.stage(&mut outbox);
    let step = plugin.reserve(&mut stage, &mut state, asking, &node, None);
    assert!(
        matches!(&step, Step::Done(status) if status.is_success()),
        "{step:?}"
    );
    let step = plugin.pre_bind(&mut stage, &mut state, asking, &node, None);
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
    // The binding continues with the answer.
    let answer = Some(WakeReason::Call(Ok(Response::default())).into());
    let step = plugin.pre_bind(&mut stage, &mut state, asking, &node, answer);
    assert!(
        matches!(&step, Step::Done(status) if status.is_success()),
        "{step:?}"
    );
    let [ApiCall::Write(write)] = &outbox.calls[..] else {
        panic!("one write, got {:?}", outbox.calls);
    };
    let Object::Pod(written) = write.applied_to(&Object::Pod(asking.pod.clone())) else {
        panic!("a pod");
    };
    let Action::Patch(body) = write.action() else {
        panic!("a patch, got {write:?}");
    };
    let label = written.labels().get(GPUS).unwrap_or_default();
    assert_eq!(body["metadata"]["labels"][GPUS], label);
    label.to_owned()
}

#[test]
fn the_chosen_gpus_are_written_before_the_binding() {
    // The sufficient GPU with the least free milli.
    for (milli, gpu) in [("250", "0"), ("400", "1")] {
        assert_eq!(chosen(&PLUGIN, &world(), &gpu_pod("p", milli).info()), gpu);
    }
    let world = World::default()
        .node(gpu_node("n1", "4000"))
        .pod(gpu_pod("a", "100").label(GPUS, "1").on("n1"));
    assert_eq!(chosen(&PLUGIN, &world, &gpu_pod("p", "2000").info()), "0-2");
}

#[test]
fn a_node_that_filled_up_meanwhile_is_refused() {
    let (mut state, mut outbox) = (CycleState::default(), Recorder::default());
    let asking = gpu_pod("p", "700").info();
    let step = PLUGIN.reserve(
        &mut world().stage(&mut outbox),
        &mut state,
        &asking,
        &"n1".into(),
        None,
    );
    assert!(
        matches!(&step, Step::Done(status) if status.message() == TOO_FEW),
        "{step:?}"
    );
}

/// The example of the module, worked by hand: 0.6 · 1,200 + 0.4 · 200.
#[test]
fn fragmentation_is_the_mean_over_the_target_workload() {
    let typical = |milli_cpu, gpu_milli, share, models: &[&str]| TypicalPod {
        milli_cpu,
        gpu_milli,
        models: models.iter().map(ToString::to_string).collect(),
        share,
    };
    let fgd = |target_workload| Fgd::new(FgdArgs { target_workload }).expect("a workload");
    let two = || {
        vec![
            typical(4_000, 1_000, 6.0, &[]),
            typical(2_000, 300, 4.0, &[]),
        ]
    };
    for (case, fgd, room, expected) in [
        (
            "too little CPU for the first",
            fgd(two()),
            Room::new(3_000, &[1_000, 200], ""),
            800.0,
        ),
        // 0.6 · 200 + 0.4 · 200
        (
            "enough CPU",
            fgd(two()),
            Room::new(8_000, &[1_000, 200], ""),
            200.0,
        ),
        (
            "no GPU is free",
            fgd(two()),
            Room::new(8_000, &[0, 0], ""),
            0.0,
        ),
        (
            "a pod without GPUs can use none",
            fgd(vec![typical(1_000, 0, 1.0, &[])]),
            Room::new(8_000, &[1_000], ""),
            1_000.0,
        ),
        (
            "another model",
            fgd(vec![typical(1_000, 1_000, 1.0, &["A100"])]),
            Room::new(8_000, &[1_000], "T4"),
            1_000.0,
        ),
        (
            "two whole GPUs where one is free",
            fgd(vec![typical(1_000, 2_000, 1.0, &[])]),
            Room::new(8_000, &[1_000, 500], ""),
            1_500.0,
        ),
    ] {
        assert!((fgd.fragmentation(&room) - expected).abs() < 1e-9, "{case}");
    }
}

/// A pod of 300 milli fits on the GPU with 400 free milli and on the GPU with 1,000. Only the second choice takes the
/// last whole GPU from the typical pod.
#[test]
fn fgd_keeps_whole_gpus_for_pods_that_need_them() {
    let target_workload = vec![TypicalPod {
        milli_cpu: 1_000,
        gpu_milli: 1_000,
        models: Vec::new(),
        share: 1.0,
    }];
    let fgd = Fgd::new(FgdArgs { target_workload }).expect("a workload");
    let plugin = GpuPlugin(fgd);
    let world = World::default()
        .node(gpu_node("n1", "2000").label(GPU_MODEL, "T4"))
        .pod(gpu_pod("a", "600").label(GPUS, "1").on("n1"));
    assert_eq!(chosen(&plugin, &world, &gpu_pod("p", "300").info()), "1");
}

#[test]
fn the_arguments_of_fgd_are_checked() {
    let problems = |target_workload| match Fgd::new(FgdArgs { target_workload }) {
        Err(error) => error.to_string(),
        Ok(_) => "no problem".to_owned(),
    };
    assert_eq!(
        problems(Vec::new()),
        "targetWorkload: Required value: the pods that are expected"
    );
    let wrong = TypicalPod {
        gpu_milli: 1_500,
        ..TypicalPod::default()
    };
    assert_eq!(
        problems(vec![wrong]),
        "targetWorkload[0].share: Invalid value: must be greater than 0, targetWorkload[0].gpuMilli: Invalid value: must \
         be below 1000 or a multiple of it"
    );
    assert_eq!(Fgd::NAME, "GpuFragmentation");
}

/// A scheduler with the policy BestFit.
fn scheduler() -> Scheduler {
    let registry = gpu_fragmentation::registry().expect("new names");
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": BestFit::NAME}]}}}],
    });
    let features = FeatureGates::default().with(Feature::GenericWorkload, true);
    let config = berth_config::parse(&config.to_string(), "test", features, &registry);
    let mut options = SchedulerOptions::default();
    config.expect("valid").set_options(&mut options);
    Scheduler::new(options, &registry, Time::EPOCH).expect("valid")
}

/// The pods have arrived or changed: the scheduler runs until it waits. Returns the label that it writes to each pod.
fn written(scheduler: &mut Scheduler, changed: Vec<Object>) -> Vec<(String, String)> {
    for object in changed {
        scheduler.apply(ClusterChange::Applied(object), Time::EPOCH);
    }
    let mut written = Vec::new();
    loop {
        let outcome = scheduler.schedule_one(Time::EPOCH);
        for (_, call) in scheduler.take_outputs(Time::EPOCH).calls {
            if let ApiCall::Write(write) = call
                && let Action::Patch(body) = write.action()
            {
                let label = body["metadata"]["labels"][GPUS]
                    .as_str()
                    .unwrap_or_default();
                written.push((write.object().name.to_string(), label.to_owned()));
            }
        }
        if let ScheduleOutcome::Idle { .. } | ScheduleOutcome::Parked(_) = outcome {
            scheduler.check().expect("books that agree");
            return written;
        }
    }
}

/// Another client may label a pod before the API shows the label with its GPUs.
#[test]
fn a_gpu_is_given_once_though_the_pod_changes_meanwhile() {
    let mut scheduler = scheduler();
    let part = |name: &str, version: u64| gpu_pod(name, "600").version(version);
    let node = Object::Node(gpu_node("n1", "2000").arc());
    let pod = |pod: PodBuilder| Object::Pod(pod.arc());
    let wrote = |name: &str, gpu: &str| vec![(name.to_owned(), gpu.to_owned())];
    let first = written(&mut scheduler, vec![node, pod(part("a", 1))]);
    assert_eq!(first, wrote("a", "0"));
    let labelled = pod(part("a", 2).label("team", "ml"));
    let second = written(&mut scheduler, vec![labelled, pod(part("b", 3))]);
    assert_eq!(second, wrote("b", "1"));
}

/// The members of a gang are placed one after the other, before any label is written.
#[test]
fn the_members_of_a_gang_have_gpus_of_their_own() {
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"name": "ring", "namespace": "default", "uid": "ring", "resourceVersion": "1"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }))
    .expect("a group");
    let member = |name: &str| Object::Pod(gpu_pod(name, "600").member_of("ring").arc());
    let objects = |milli: &str| {
        vec![
            Object::Node(gpu_node("n1", milli).arc()),
            Object::PodGroup(Arc::new(group.clone())),
            member("a"),
            member("b"),
        ]
    };
    assert!(written(&mut scheduler(), objects("1000")).is_empty());
    let mut gpus = written(&mut scheduler(), objects("2000"));
    gpus.sort();
    let labels = [("a", "0"), ("b", "1")].map(|(pod, gpu)| (pod.to_owned(), gpu.to_owned()));
    assert_eq!(gpus, labels);
}
