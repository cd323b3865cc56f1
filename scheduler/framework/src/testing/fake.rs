//! A plugin made of closures. It implements the extension points that have a closure.

use crate::condition::{NOT_READY_FOR_SCHEDULING, SCHEDULING_GATED};
use crate::event::EventRegistration;
use crate::features::FeatureGates;
use crate::keep::{Fragment, Keep, Kept};
use crate::lack::Lack;
use crate::plugin::{
    Bind, Context, EnqueueExtensions, Filter, NodeStatuses, Nominating, Permit, PermitStep,
    PostBind, PostFilter, PostFilterContext, PostFilterStep, PreBind, PreEnqueue, PreFilter,
    PreFilterResult, PreScore, QueueSort, QueuedPod, Reserve, Score, SortKey,
};
use crate::pod_info::PodInfo;
use crate::registry::Extensions;
use crate::stage::{StageContext, Step, Wake};
use crate::state::CycleState;
use crate::status::Status;
use crate::table::{NodeView, Slot};
use crate::write::CallType;
use berth_api::{Pod, Str};
use std::sync::Arc;

type F<T> = Option<Box<T>>;
type PreEnqueueFn = dyn Fn(&Pod) -> Status + Send + Sync;
type LessFn = dyn Fn(QueuedPod<'_>, QueuedPod<'_>) -> bool + Send + Sync;
type PreFilterFn = dyn Fn(&Context<'_>, &mut CycleState, &PodInfo) -> PreFilterResult + Send + Sync;
type OtherPodFn = dyn Fn(&mut CycleState, &PodInfo, NodeView<'_>) -> Status + Send + Sync;
type FilterFn = dyn Fn(&CycleState, &PodInfo, NodeView<'_>) -> Status + Send + Sync;
type LacksFn = dyn Fn(&PodInfo, NodeView<'_>) -> Vec<Lack> + Send + Sync;
type PostFilterFn = dyn Fn(&mut PostFilterContext<'_>, &PodInfo, &NodeStatuses, Option<Wake<'_>>) -> PostFilterStep
    + Send
    + Sync;
type PreScoreFn = dyn Fn(&mut CycleState, &PodInfo, &[Slot]) -> Status + Send + Sync;
type ScoreFn = dyn Fn(&CycleState, &PodInfo, NodeView<'_>) -> Result<i64, Status> + Send + Sync;
type NormalizeFn = dyn Fn(&mut [(Slot, i64)]) -> Status + Send + Sync;
type StageFn = dyn Fn(&mut StageContext<'_>, &mut CycleState, &PodInfo, &Str, Option<Wake<'_>>) -> Step
    + Send
    + Sync;
type UnreserveFn = dyn Fn(&PodInfo, &Str) + Send + Sync;
type PermitFn =
    dyn Fn(&mut StageContext<'_>, &PodInfo, &Str, Option<Wake<'_>>) -> PermitStep + Send + Sync;
type PreFlightFn = dyn Fn(&PodInfo, &Str) -> Status + Send + Sync;
type PostBindFn = dyn Fn(&mut StageContext<'_>, &PodInfo, &Str) + Send + Sync;
type KeepFn = dyn Fn(&PodInfo, &mut Fragment) + Send + Sync;
type EventsFn = dyn Fn() -> Vec<EventRegistration> + Send + Sync;

/// A plugin that does nothing yet.
pub fn fake(name: &str) -> FakePlugin {
    FakePlugin {
        name: name.to_owned(),
        ..FakePlugin::default()
    }
}

/// A plugin made of closures; see [`fake`].
#[derive(Default)]
pub struct FakePlugin {
    name: String,
    pre_enqueue: F<PreEnqueueFn>,
    follows_attempt: bool,
    less: F<LessFn>,
    sort_key: Option<fn(QueuedPod<'_>) -> SortKey>,
    pre_filter: F<PreFilterFn>,
    add_pod: F<OtherPodFn>,
    remove_pod: F<OtherPodFn>,
    filter: F<FilterFn>,
    lacks: F<LacksFn>,
    post_filter: F<PostFilterFn>,
    pre_score: F<PreScoreFn>,
    score: F<ScoreFn>,
    normalize: F<NormalizeFn>,
    reserve: F<StageFn>,
    unreserve: F<UnreserveFn>,
    permit: F<PermitFn>,
    pre_flight: F<PreFlightFn>,
    pre_bind: F<StageFn>,
    parallel: bool,
    bind: F<StageFn>,
    post_bind: F<PostBindFn>,
    keep: F<KeepFn>,
    events: F<EventsFn>,
    calls: Vec<&'static CallType>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: ($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        impl FakePlugin {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $name(
                    mut self,
                    f: impl Fn($($arg),*) $(-> $ret)? + Send + Sync + 'static,
                ) -> Self {
                    self.$name = Some(Box::new(f));
                    self
                }
            )*
        }
    };
}

setters! {
    /// Implements PreEnqueue.
    pre_enqueue: (&Pod) -> Status;
    /// Implements QueueSort.
    less: (QueuedPod<'_>, QueuedPod<'_>) -> bool;
    /// Implements PreFilter.
    pre_filter: (&Context<'_>, &mut CycleState, &PodInfo) -> PreFilterResult;
    /// Is notified of supposed pods; needs `pre_filter` too.
    add_pod: (&mut CycleState, &PodInfo, NodeView<'_>) -> Status;
    /// Is notified of pods supposed to be removed; needs `pre_filter` too.
    remove_pod: (&mut CycleState, &PodInfo, NodeView<'_>) -> Status;
    /// Implements Filter.
    filter: (&CycleState, &PodInfo, NodeView<'_>) -> Status;
    /// Lists what a node lacks; needs `filter` too.
    lacks: (&PodInfo, NodeView<'_>) -> Vec<Lack>;
    /// Implements PostFilter; called again with the result of its wait.
    post_filter: (&mut PostFilterContext<'_>, &PodInfo, &NodeStatuses, Option<Wake<'_>>) -> PostFilterStep;
    /// Implements PreScore.
    pre_score: (&mut CycleState, &PodInfo, &[Slot]) -> Status;
    /// Implements Score.
    score: (&CycleState, &PodInfo, NodeView<'_>) -> Result<i64, Status>;
    /// Normalises the scores.
    normalize: (&mut [(Slot, i64)]) -> Status;
    /// Implements Reserve; called again with the result of its wait.
    reserve: (&mut StageContext<'_>, &mut CycleState, &PodInfo, &Str, Option<Wake<'_>>) -> Step;
    /// Implements Unreserve.
    unreserve: (&PodInfo, &Str);
    /// Implements Permit; called again with the result of its wait.
    permit: (&mut StageContext<'_>, &PodInfo, &Str, Option<Wake<'_>>) -> PermitStep;
    /// Returns before PreBind whether there is something to do; needs `pre_bind` too.
    pre_flight: (&PodInfo, &Str) -> Status;
    /// Implements PreBind; called again with the result of its wait.
    pre_bind: (&mut StageContext<'_>, &mut CycleState, &PodInfo, &Str, Option<Wake<'_>>) -> Step;
    /// Implements Bind; called again with the result of its wait.
    bind: (&mut StageContext<'_>, &mut CycleState, &PodInfo, &Str, Option<Wake<'_>>) -> Step;
    /// Implements PostBind.
    post_bind: (&mut StageContext<'_>, &PodInfo, &Str);
    /// Lets the answers of Filter and Score be kept for pods with equal fragments.
    keep: (&PodInfo, &mut Fragment);
    /// Registers for events.
    events: () -> Vec<EventRegistration>;
}

impl FakePlugin {
    /// Implements QueueSort by keys.
    #[must_use]
    pub fn sorted_by(mut self, key: fn(QueuedPod<'_>) -> SortKey) -> Self {
        self.sort_key = Some(key);
        self.less(move |a, b| key(a) < key(b))
    }

    /// A rejection by PreEnqueue then is part of an attempt that was made.
    #[must_use]
    pub fn following_attempts(mut self) -> Self {
        self.follows_attempt = true;
        self
    }

    /// Registers types of API calls.
    #[must_use]
    pub fn calls(mut self, types: &[&'static CallType]) -> Self {
        self.calls.extend(types);
        self
    }

    /// Lets the plugin's PreBind run in parallel with its neighbours.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = true;
        self
    }

    /// The plugin, ready to be registered.
    pub fn build(self) -> Extensions {
        let name = self.name.clone();
        let calls = self.calls.clone();
        let plugin = Arc::new(self);
        macro_rules! point {
            ($($field:ident),+) => {
                (false $(|| plugin.$field.is_some())+).then(|| plugin.clone() as _)
            };
        }
        Extensions {
            name,
            pre_enqueue: point!(pre_enqueue),
            queue_sort: point!(less),
            pre_filter: point!(pre_filter),
            filter: point!(filter),
            post_filter: point!(post_filter),
            placement_generate: None,
            placement_score: None,
            placement_feasible: None,
            pod_group_post_filter: None,
            pre_score: point!(pre_score),
            score: point!(score),
            reserve: point!(reserve, unreserve),
            permit: point!(permit),
            pre_bind: point!(pre_bind),
            bind: point!(bind),
            post_bind: point!(post_bind),
            events: point!(events),
            keep: point!(keep),
            domains: None,
            fragment_version: None,
            calls,
            judges_resizes: false,
            rejections: None,
        }
    }
}

impl PreEnqueue for FakePlugin {
    fn pre_enqueue(&self, _cx: &Context<'_>, pod: &Pod) -> Status {
        self.pre_enqueue
            .as_ref()
            .map_or_else(Status::success, |f| f(pod))
    }

    fn follows_attempt(&self) -> bool {
        self.follows_attempt
    }

    /// A fake with the name of the plugin for scheduling gates reports the reason of that plugin.
    fn condition_reason(&self) -> &'static str {
        match self.name.as_str() {
            "SchedulingGates" => SCHEDULING_GATED,
            _ => NOT_READY_FOR_SCHEDULING,
        }
    }
}

impl QueueSort for FakePlugin {
    fn less(&self, a: QueuedPod<'_>, b: QueuedPod<'_>) -> bool {
        self.less.as_ref().is_some_and(|f| f(a, b))
    }

    fn sort_key(&self) -> Option<fn(QueuedPod<'_>) -> SortKey> {
        self.sort_key
    }
}

impl Keep for FakePlugin {
    fn fragment(&self, _cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        if let Some(f) = &self.keep {
            f(pod, fragment);
        }
        Kept::ByFragment
    }
}

impl PreFilter for FakePlugin {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        match &self.pre_filter {
            Some(f) => f(cx, state, pod),
            None => PreFilterResult::AllNodes,
        }
    }

    fn add_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.add_pod
            .as_ref()
            .map_or_else(Status::success, |f| f(state, other, node))
    }

    fn remove_pod(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        _pod: &PodInfo,
        other: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.remove_pod
            .as_ref()
            .map_or_else(Status::success, |f| f(state, other, node))
    }
}

impl Filter for FakePlugin {
    fn filter(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        self.filter
            .as_ref()
            .map_or_else(Status::success, |f| f(state, pod, node))
    }

    fn lacking(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        let lacks = self.lacks.as_ref();
        lacks.map_or_else(Vec::new, |f| f(pod, node))
    }
}

impl PostFilter for FakePlugin {
    fn post_filter(
        &self,
        cx: &mut PostFilterContext<'_>,
        pod: &PodInfo,
        statuses: &NodeStatuses,
        wake: Option<Wake<'_>>,
    ) -> PostFilterStep {
        match &self.post_filter {
            Some(f) => f(cx, pod, statuses, wake),
            None => PostFilterStep::done(Status::success(), Nominating::Keep),
        }
    }
}

impl PreScore for FakePlugin {
    fn pre_score(
        &self,
        _cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
    ) -> Status {
        self.pre_score
            .as_ref()
            .map_or_else(Status::success, |f| f(state, pod, nodes))
    }
}

impl Score for FakePlugin {
    fn score(
        &self,
        _cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        self.score.as_ref().map_or(Ok(0), |f| f(state, pod, node))
    }

    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        self.normalize
            .as_ref()
            .map_or_else(Status::success, |f| f(scores))
    }
}

impl Reserve for FakePlugin {
    fn reserve(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        self.reserve
            .as_ref()
            .map_or_else(Step::success, |f| f(cx, state, pod, node, wake))
    }

    fn unreserve(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    ) {
        if let Some(f) = &self.unreserve {
            f(pod, node);
        }
    }
}

impl Permit for FakePlugin {
    fn permit(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> PermitStep {
        match &self.permit {
            Some(f) => f(cx, pod, node, wake),
            None => PermitStep::Done(Status::success()),
        }
    }
}

impl PreBind for FakePlugin {
    fn pre_flight(
        &self,
        _cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    ) -> Status {
        self.pre_flight
            .as_ref()
            .map_or_else(Status::success, |f| f(pod, node))
    }

    fn runs_in_parallel(&self, _state: &CycleState, _pod: &PodInfo) -> bool {
        self.parallel
    }

    fn pre_bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        self.pre_bind
            .as_ref()
            .map_or_else(Step::success, |f| f(cx, state, pod, node, wake))
    }
}

impl Bind for FakePlugin {
    fn bind(
        &self,
        cx: &mut StageContext<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
        wake: Option<Wake<'_>>,
    ) -> Step {
        self.bind
            .as_ref()
            .map_or_else(Step::success, |f| f(cx, state, pod, node, wake))
    }
}

impl PostBind for FakePlugin {
    fn post_bind(
        &self,
        cx: &mut StageContext<'_>,
        _state: &mut CycleState,
        pod: &PodInfo,
        node: &Str,
    ) {
        if let Some(f) = &self.post_bind {
            f(cx, pod, node);
        }
    }
}

impl EnqueueExtensions for FakePlugin {
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        self.events.as_ref().map_or_else(Vec::new, |f| f())
    }
}
