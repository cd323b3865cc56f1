//! Planted bugs: the checker must detect each of them, and the shortest script must still show it. The bugs are added
//! from outside, as plugins and as an API, never in the product.

mod configurations;
mod devices;
mod groups;
mod quotas;
mod reports;
mod watches;

use berth_api::{Str, Time};
use berth_framework::call::{ApiCall, ConditionPatch, PodRef};
use berth_framework::event::{EventRegistration, Hint};
use berth_framework::plugin::{
    Bind, Context, EnqueueExtensions, Filter, PostFilter, PostFilterContext, PostFilterStep,
    PreEnqueue, PreFilter, PreFilterResult,
};
use berth_framework::plugin::{NodeStatuses, Nominating};
use berth_framework::registry::{Extensions, Registry};
use berth_framework::stage::{StageContext, Step, Wake};
use berth_framework::{CycleState, FeatureGates, NodeView, PodInfo, Status};
use berth_simulator::world::{Refusal, World};
use berth_simulator::{
    Api, FaithfulApi, Faults, REJECTION_SEEDS, Script, Shrunk, Subject, run, shrink,
};
use std::sync::Arc;

/// The number of seeds in which a bug must be found, and their steps.
const SEEDS: u64 = 2_000;
const STEPS: usize = 400;

/// Finds a seed that shows the bug, checks the kind of the violation, and returns the shortest script.
fn found(subject: &Subject, faults: Faults, kinds: &[&str]) -> Shrunk {
    found_from(0, subject, faults, kinds)
}

/// Like [`found`], with seeds from this one on.
fn found_from(first: u64, subject: &Subject, faults: Faults, kinds: &[&str]) -> Shrunk {
    found_behind(&[], first, subject, faults, kinds)
}

/// Like [`found_from`], without the seeds whose first violation is a consequence of the bug, of one of these kinds.
fn found_behind(
    consequences: &[&str],
    first: u64,
    subject: &Subject,
    faults: Faults,
    kinds: &[&str],
) -> Shrunk {
    for seed in first..first + SEEDS {
        let script = Script::draw(seed, STEPS, faults);
        if let Err(failure) = run(subject, &script) {
            let kind = failure.violation.kind();
            if consequences.contains(&kind) {
                continue;
            }
            assert!(
                kinds.contains(&kind),
                "expected {kinds:?}, seed {seed}: {failure}"
            );
            let shrunk = shrink(subject, &script, &failure, 1_000);
            let again = run(subject, &shrunk.script);
            assert_eq!(
                again,
                Err(shrunk.failure.clone()),
                "the short script shows it, too"
            );
            assert_eq!(shrunk.failure.violation.kind(), kind);
            assert!(
                shrunk.script.steps.len() <= 60,
                "the script is still long:\n{shrunk}"
            );
            return shrunk;
        }
    }
    panic!("no seed has shown the planted bug in {SEEDS} seeds: expected {kinds:?}");
}

/// The in-tree plugins with one of them changed.
fn with(
    name: &'static str,
    change: impl Fn(Extensions) -> Extensions + Send + Sync + 'static,
) -> Subject {
    let mut subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    let original = subject.registry.clone();
    let change = Arc::new(change);
    subject.registry = Registry::default();
    for plugin in original.iter() {
        let (is_it, change) = (plugin.name() == name, change.clone());
        let changed = plugin
            .clone()
            .changed_by(move |made| if is_it { change(made) } else { made });
        subject
            .registry
            .add(changed)
            .unwrap_or_else(|e| panic!("{e}"));
    }
    subject
}

/// Replaces an in-tree plugin.
struct Impostor {
    inner: Extensions,
}

// --- a lost wake-up ------------------------------------------------------------------------------------------

impl EnqueueExtensions for Impostor {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let events = self.inner.events.clone();
        let mut registrations = events.map(|e| e.events(features)).unwrap_or_default();
        for registration in &mut registrations {
            registration.hint = Some(Arc::new(|_, _, _| Ok(Hint::Skip)));
        }
        registrations
    }
}

/// No other event wakes a pod at the end of an exclusion.
#[test]
fn exclusions_that_end_without_an_event_lose_pods() {
    let subject = with("KubeletRejections", |inner| {
        let events = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .events()
        .build()
        .events;
        Extensions { events, ..inner }
    });
    let first = REJECTION_SEEDS.start;
    let shrunk = found_from(first, &subject, Faults::NONE, &["lost pod"]);
    let text = shrunk.to_string();
    assert!(text.contains("the kubelet rejects pod"), "{text}");
}

#[test]
fn an_incorrect_skip_loses_pods() {
    let subject = with("NodeResourcesFit", |inner| {
        let events = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .events()
        .build()
        .events;
        Extensions { events, ..inner }
    });
    let shrunk = found(&subject, Faults::NONE, &["lost pod"]);
    let text = shrunk.failure.violation.to_string();
    assert!(
        text.contains("NodeResourcesFit"),
        "it states where the pod is: {text}"
    );
}

// --- an overcommit -------------------------------------------------------------------------------------------

impl PreFilter for Impostor {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, _: &PodInfo) -> PreFilterResult {
        PreFilterResult::Skip
    }
}

impl Filter for Impostor {
    fn filter(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: NodeView<'_>) -> Status {
        Status::success()
    }
}

#[test]
fn a_filter_that_ignores_requests_overcommits() {
    let subject = with("NodeResourcesFit", |inner| {
        let blind = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .pre_filter()
        .filter()
        .build();
        Extensions {
            pre_filter: blind.pre_filter,
            filter: blind.filter,
            ..inner
        }
    });
    let shrunk = found(&subject, Faults::NONE, &["overcommit"]);
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("one too many on node"), "{text}");
}

/// The in-tree filter of resources, without the check of one resource.
struct Lenient {
    inner: Extensions,
    minds_not: &'static str,
}

impl Filter for Lenient {
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let Some(inner) = &self.inner.filter else {
            panic!("there is no filter");
        };
        let status = inner.filter(cx, state, pod, node);
        if status.message() == self.minds_not {
            Status::success()
        } else {
            status
        }
    }
}

#[test]
fn each_resource_is_counted() {
    for (minds_not, resource) in [
        ("Insufficient cpu", "cpu"),
        ("Insufficient memory", "memory"),
        ("Insufficient example.com/gpu", "example.com/gpu"),
        ("Too many pods", "pods"),
    ] {
        let subject = with("NodeResourcesFit", move |inner| {
            let lenient = Extensions::of(Lenient {
                inner: inner.clone(),
                minds_not,
            })
            .filter()
            .build();
            Extensions {
                filter: lenient.filter,
                keep: None,
                domains: None,
                ..inner
            }
        });
        let shrunk = found(&subject, Faults::NONE, &["overcommit"]);
        let text = shrunk.failure.violation.to_string();
        assert!(text.contains(resource), "{resource}: {text}");
    }
}

#[test]
fn a_filter_that_ignores_taints_misplaces_pods() {
    let subject = with("TaintToleration", |inner| {
        let blind = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .filter()
        .build();
        Extensions {
            filter: blind.filter,
            ..inner
        }
    });
    let shrunk = found(&subject, Faults::NONE, &["misplaced"]);
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("a taint is not tolerated"), "{text}");
}

/// The in-tree plugin of that name, with a filter that accepts every node.
fn blind(name: &'static str) -> Subject {
    with(name, move |inner| {
        let blind = Extensions::of(Impostor {
            inner: inner.clone(),
        })
        .pre_filter()
        .filter()
        .build();
        Extensions {
            pre_filter: blind.pre_filter,
            filter: blind.filter,
            keep: None,
            domains: None,
            ..inner
        }
    })
}

#[test]
fn filters_that_ignore_ports_and_volumes_overcommit() {
    for (name, resource) in [
        ("NodePorts", "host port"),
        ("VolumeRestrictions", "ReadWriteOncePod"),
        ("NodeVolumeLimits", "attachable volumes"),
    ] {
        let shrunk = found(&blind(name), Faults::NONE, &["overcommit"]);
        let text = shrunk.failure.violation.to_string();
        assert!(text.contains(resource), "{name}: {text}");
    }
}

#[test]
fn filters_that_ignore_rules_misplace_pods() {
    for (name, rule) in [
        ("PodTopologySpread", "too many pods in one place"),
        ("InterPodAffinity", "a pod that it must be"),
    ] {
        let subject = blind(name);
        let shrunk = found(&subject, Faults::NONE, &["misplaced"]);
        let text = shrunk.failure.violation.to_string();
        assert!(text.contains(rule), "{name}: {text}");
    }
}

// --- a bypassed gate -----------------------------------------------------------------------------------------

impl PreEnqueue for Impostor {
    fn pre_enqueue(&self, _: &Context<'_>, _: &berth_api::Pod) -> Status {
        Status::success()
    }
}

#[test]
fn without_scheduling_gates_gated_pods_are_bound() {
    let subject = with("SchedulingGates", |inner| {
        Extensions::of(Impostor { inner }).pre_enqueue().build()
    });
    found(&subject, Faults::NONE, &["bypassed gate"]);
}

// --- bindings ------------------------------------------------------------------------------------------------

/// The fault of a Bind plugin.
#[derive(Clone, Copy)]
enum BindBug {
    /// It reports the pod as bound without a call.
    Nothing,
    /// It binds to another node than the chosen one.
    Elsewhere,
    /// It does not wait for the answer.
    Hasty,
}

struct FaultyBinder(BindBug);

impl Bind for FaultyBinder {
    fn bind(
        &self,
        cx: &mut StageContext<'_>,
        _: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        _: Option<Wake<'_>>,
    ) -> Step {
        let node = match self.0 {
            BindBug::Nothing => return Step::success(),
            BindBug::Hasty => node.clone(),
            BindBug::Elsewhere => {
                let other = cx
                    .cluster
                    .nodes
                    .iter()
                    .map(|n| n.name())
                    .find(|n| *n != node);
                other.unwrap_or(node).clone()
            }
        };
        let pod = PodRef::of(&pod.pod);
        cx.outbox.call(ApiCall::BindPod { pod, node });
        match self.0 {
            BindBug::Hasty => Step::Done(Status::error("I have no patience")),
            _ => Step::success(),
        }
    }
}

fn with_binder(bug: BindBug) -> Subject {
    with("DefaultBinder", move |_| {
        Extensions::of(FaultyBinder(bug)).bind().build()
    })
}

/// While the first binding is in progress, the scheduler has reverted its choice. Another pod can be bound first, so
/// that the node is overcommitted, or a rule of one of the pods is broken.
#[test]
fn a_second_binding_during_the_first_is_a_double_bind() {
    let subject = with_binder(BindBug::Hasty);
    let consequences = ["overcommit", "misplaced"];
    found_behind(&consequences, 0, &subject, Faults::NONE, &["double bind"]);
}

#[test]
fn a_binding_to_another_node_is_a_double_bind() {
    found(
        &with_binder(BindBug::Elsewhere),
        Faults::NONE,
        &["double bind"],
    );
}

#[test]
fn a_binding_that_is_never_sent_loses_the_pod() {
    found(
        &with_binder(BindBug::Nothing),
        Faults::NONE,
        &["unresolved", "lost pod"],
    );
}

// --- preemption ----------------------------------------------------------------------------------------------

/// Evicts the first matching pod that is not being deleted yet.
fn evict_the_first(cx: &mut PostFilterContext<'_>, which: impl Fn(&PodInfo) -> bool) {
    let cluster = cx.dry_run.cluster();
    let stays = |pod: &PodInfo| {
        let known = cluster.pods.get(pod.pod.uid());
        known.is_some_and(|known| !known.is_terminating())
    };
    let mut pods = cluster.nodes.iter().flat_map(|node| node.pods());
    let victim = pods.find(|pod| stays(pod) && which(pod));
    if let Some(victim) = victim.map(|victim| victim.pod.clone()) {
        let reason = "PreemptionByScheduler";
        let condition = ConditionPatch::of(&victim, "DisruptionTarget", "True", reason, "");
        cx.outbox.call(ApiCall::DeletePod {
            pod: PodRef::of(&victim),
            condition,
        });
    }
}

struct Bully;

impl PostFilter for Bully {
    /// Evicts the first pod, whether or not that helps.
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        _: &NodeStatuses,
        _: Option<Wake<'_>>,
    ) -> PostFilterStep {
        evict_the_first(cx, |_| true);
        let status = Status::unschedulable(format!("no room for {}", pod.pod.name()));
        PostFilterStep::done(status, Nominating::Keep)
    }
}

#[test]
fn evicting_pods_of_equal_priority_is_needless() {
    let subject = with("DefaultPreemption", |_| {
        Extensions::of(Bully).post_filter().build()
    });
    let shrunk = found(&subject, Faults::NONE, &["needless preemption"]);
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("no less important"), "{text}");
}

/// The in-tree preemption, without waiting for its terminating victims.
struct Impatient(Extensions);

impl PostFilter for Impatient {
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep {
        let Some(inner) = &self.0.post_filter else {
            panic!("there is no preemption");
        };
        let step = inner.post_filter(cx, pod, statuses, wake);
        if let PostFilterStep::Done(result) = &step
            && result.status.message().contains("a terminating pod")
        {
            evict_the_first(cx, |other| other.pod.priority() < pod.pod.priority());
        }
        step
    }
}

#[test]
fn a_second_preemption_for_a_pod_is_a_repeated_preemption() {
    let subject = with("DefaultPreemption", |inner| {
        let impatient = Extensions::of(Impatient(inner.clone()))
            .post_filter()
            .build();
        Extensions {
            post_filter: impatient.post_filter,
            ..inner
        }
    });
    let shrunk = found(&subject, Faults::NONE, &["repeated preemption"]);
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("is still being deleted for it"), "{text}");
}

/// Evicts pods of lower priority, node by node, until the pod would fit, and one more.
struct Greedy;

impl PostFilter for Greedy {
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        _: &NodeStatuses,
        _: Option<Wake<'_>>,
    ) -> PostFilterStep {
        let cluster = cx.dry_run.cluster();
        let lesser = |other: &PodInfo| other.pod.priority() < pod.pod.priority();
        let victims: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| node.pods().iter().filter(|other| lesser(other)))
            .find(|lesser| lesser.clone().count() > 1)
            .into_iter()
            .flatten()
            .map(|victim| victim.pod.clone())
            .collect();
        for victim in victims {
            let reason = "PreemptionByScheduler";
            let condition = ConditionPatch::of(&victim, "DisruptionTarget", "True", reason, "");
            cx.outbox.call(ApiCall::DeletePod {
                pod: PodRef::of(&victim),
                condition,
            });
        }
        PostFilterStep::done(Status::unschedulable("no room"), Nominating::Keep)
    }
}

#[test]
fn evicting_more_pods_than_needed_is_needless() {
    let subject = with("DefaultPreemption", |_| {
        Extensions::of(Greedy).post_filter().build()
    });
    let shrunk = found(&subject, Faults::NONE, &["needless preemption"]);
    let text = shrunk.failure.violation.to_string();
    assert!(text.contains("without its eviction"), "{text}");
}

#[test]
fn preempting_for_a_pod_that_fits_is_needless() {
    // A filter that rejects every other node as full.
    struct Fussy;
    impl Filter for Fussy {
        fn filter(
            &self,
            _: &Context<'_>,
            _: &CycleState,
            _: &PodInfo,
            node: NodeView<'_>,
        ) -> Status {
            if node.pods().is_empty() {
                Status::success()
            } else {
                Status::unschedulable("I like to be alone")
            }
        }
    }
    let subject = with("NodeName", |_| Extensions::of(Fussy).filter().build());
    let shrunk = found(&subject, Faults::NONE, &["needless preemption", "lost pod"]);
    assert_eq!(shrunk.failure.violation.kind(), "needless preemption");
}

// --- statuses ------------------------------------------------------------------------------------------------

/// An API that reports that statuses are written and writes none.
struct ForgetfulApi;

impl Api for ForgetfulApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        match call {
            ApiCall::PatchPodStatus { .. } | ApiCall::ClearPreEnqueueStatus { .. } => Ok(()),
            call => FaithfulApi.carry_out(world, call, now),
        }
    }
}

/// An API that reports that pods are bound and binds none.
struct LyingApi;

impl Api for LyingApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        match call {
            ApiCall::BindPod { .. } => Ok(()),
            call => FaithfulApi.carry_out(world, call, now),
        }
    }
}

/// An API that executes every binding, also of a pod that is bound already.
struct CarelessApi;

impl Api for CarelessApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        match call {
            ApiCall::BindPod { pod, node } => {
                world.move_pod(&pod.name, node);
                Ok(())
            }
            call => FaithfulApi.carry_out(world, call, now),
        }
    }
}

fn with_api(api: impl Api + 'static) -> Subject {
    let mut subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    subject.api = Arc::new(api);
    subject
}

#[test]
fn two_leaders_bind_twice_if_the_api_does_not_reject_it() {
    let faults = Faults {
        failovers: true,
        ..Faults::NONE
    };
    let subject = with_api(CarelessApi);
    let shrunk = found(&subject, faults, &["double bind"]);
    assert!(
        shrunk.script.standby,
        "one scheduler alone does not bind twice"
    );
}

#[test]
fn a_missing_status_is_detected() {
    found(&with_api(ForgetfulApi), Faults::NONE, &["wrong status"]);
}

#[test]
fn a_pod_that_stays_unbound_after_a_successful_binding_is_unresolved() {
    found(&with_api(LyingApi), Faults::NONE, &["unresolved"]);
}

/// An API that confirms the clearing of nominations and clears none.
struct LoyalApi;

impl Api for LoyalApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        let mut call = call.clone();
        if let ApiCall::PatchPodStatus { nominated_node, .. } = &mut call
            && nominated_node.as_deref() == Some("")
        {
            *nominated_node = None;
        }
        FaithfulApi.carry_out(world, &call, now)
    }
}

/// The scheduler clears the nomination of a pod that preemption cannot help any more, and the API keeps it. If the
/// answer has no version, the scheduler relies on its call: the status names a node, and none is kept free. If the
/// answer has a version, the watch shows the nomination in that version or a later one, as if another client had
/// nominated the pod again. Then the scheduler keeps the node free for the pod, and a pod of lower priority that needs
/// these resources waits. The waiting pod is not lost: an API that clears the nomination lets the same script bind it.
/// So nominations are judged before lost pods, against the last written value.
#[test]
fn an_outdated_nomination_is_detected() {
    let shrunk = found(&with_api(LoyalApi), Faults::NONE, &["wrong nomination"]);
    let text = shrunk.failure.violation.to_string();
    assert!(
        text.contains("and \"\" is kept free for it") || text.contains("and \"\" was written last"),
        "{text}"
    );
}

/// An API that refuses every binding.
struct StubbornApi;

impl Api for StubbornApi {
    fn carry_out(&self, world: &mut World, call: &ApiCall, now: Time) -> Result<(), Refusal> {
        match call {
            ApiCall::BindPod { .. } => Err(Refusal::Conflict),
            call => FaithfulApi.carry_out(world, call, now),
        }
    }
}

#[test]
fn endless_attempts_are_detected() {
    found(&with_api(StubbornApi), Faults::NONE, &["endless activity"]);
}

// --- panics --------------------------------------------------------------------------------------------------

#[test]
fn a_panic_is_a_violation_with_its_location() {
    struct Nervous;
    impl Filter for Nervous {
        fn filter(
            &self,
            _: &Context<'_>,
            _: &CycleState,
            pod: &PodInfo,
            _: NodeView<'_>,
        ) -> Status {
            assert!(pod.pod.priority() < 100, "so important");
            Status::success()
        }
    }
    let subject = with("NodeUnschedulable", |_| {
        Extensions::of(Nervous).filter().build()
    });
    let shrunk = found(&subject, Faults::NONE, &["panic"]);
    let text = shrunk.failure.violation.to_string();
    assert!(
        text.contains("so important") && text.contains("main.rs:"),
        "{text}"
    );
}
