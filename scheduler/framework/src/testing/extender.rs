//! An extender made of closures, and the outcome of a job without anything to wait for.

use crate::call::PodRef;
use crate::extender::{Answer, ChosenVictims, Extender, ExtenderSpec, Filtered, NodeVictims};
use crate::job::{Job, JobError, JobResult};
use berth_api::{Duration, Pod, Str};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

type Stated<T> = Result<T, JobError>;
type FilterFn = dyn Fn(&Pod, &[Str]) -> Stated<Filtered> + Send + Sync;
type PrioritizeFn = dyn Fn(&Pod, &[Str]) -> Stated<Vec<(Str, i64)>> + Send + Sync;
type BindFn = dyn Fn(&PodRef, &Str) -> Stated<()> + Send + Sync;
type PreemptFn = dyn Fn(&Pod, &[NodeVictims]) -> Stated<Vec<ChosenVictims>> + Send + Sync;

/// An extender made of closures: it supports each verb that has a closure. Its answers are ready at the first poll.
pub struct FakeExtender {
    spec: ExtenderSpec,
    filter: Arc<FilterFn>,
    prioritize: Arc<PrioritizeFn>,
    bind: Arc<BindFn>,
    preempt: Arc<PreemptFn>,
}

/// An extender that does nothing yet.
pub fn extender(name: &str) -> FakeExtender {
    FakeExtender {
        spec: ExtenderSpec {
            name: name.into(),
            timeout: Duration::from_secs(5),
            ..ExtenderSpec::default()
        },
        filter: Arc::new(|_, _| Err("not asked to filter".into())),
        prioritize: Arc::new(|_, _| Err("not asked to prioritize".into())),
        bind: Arc::new(|_, _| Err("not asked to bind".into())),
        preempt: Arc::new(|_, _| Err("not asked to preempt".into())),
    }
}

impl FakeExtender {
    /// It filters.
    #[must_use]
    pub fn filter(
        mut self,
        filter: impl Fn(&Pod, &[Str]) -> Stated<Filtered> + Send + Sync + 'static,
    ) -> Self {
        self.spec.filters = true;
        self.filter = Arc::new(filter);
        self
    }

    /// It filters: these nodes stay.
    #[must_use]
    pub fn keeps(self, nodes: &'static [&'static str]) -> Self {
        self.filter(|_, _| {
            Ok(Filtered {
                nodes: nodes.iter().map(|name| Str::from(*name)).collect(),
                ..Filtered::default()
            })
        })
    }

    /// It scores.
    #[must_use]
    pub fn prioritize(
        mut self,
        weight: i64,
        prioritize: impl Fn(&Pod, &[Str]) -> Stated<Vec<(Str, i64)>> + Send + Sync + 'static,
    ) -> Self {
        self.spec.prioritizes = true;
        self.spec.weight = weight;
        self.prioritize = Arc::new(prioritize);
        self
    }

    /// It binds.
    #[must_use]
    pub fn bind(
        mut self,
        bind: impl Fn(&PodRef, &Str) -> Stated<()> + Send + Sync + 'static,
    ) -> Self {
        self.spec.binds = true;
        self.bind = Arc::new(bind);
        self
    }

    /// Adds preemption.
    #[must_use]
    pub fn preempt(
        mut self,
        preempt: impl Fn(&Pod, &[NodeVictims]) -> Stated<Vec<ChosenVictims>> + Send + Sync + 'static,
    ) -> Self {
        self.spec.preempts = true;
        self.preempt = Arc::new(preempt);
        self
    }

    /// Makes it ignorable: scheduling continues without it when it fails.
    #[must_use]
    pub fn ignorable(mut self) -> Self {
        self.spec.ignorable = true;
        self
    }

    /// It looks after a resource.
    #[must_use]
    pub fn managing(mut self, resource: &str) -> Self {
        self.spec.managed_resources.push(resource.into());
        self
    }

    /// Sets the timeout of its answers; the default is five seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = timeout;
        self
    }

    /// As the scheduler takes it.
    pub fn build(self) -> Arc<dyn Extender> {
        Arc::new(self)
    }
}

impl Extender for FakeExtender {
    fn spec(&self) -> &ExtenderSpec {
        &self.spec
    }

    fn filter(&self, pod: &Arc<Pod>, nodes: &Arc<[Str]>) -> Answer<Filtered> {
        let (answer, pod, nodes) = (self.filter.clone(), pod.clone(), nodes.clone());
        Box::pin(async move { answer(&pod, &nodes) })
    }

    fn prioritize(&self, pod: &Arc<Pod>, nodes: &Arc<[Str]>) -> Answer<Vec<(Str, i64)>> {
        let (answer, pod, nodes) = (self.prioritize.clone(), pod.clone(), nodes.clone());
        Box::pin(async move { answer(&pod, &nodes) })
    }

    fn bind(&self, pod: &PodRef, node: &Str) -> Answer<()> {
        let (answer, pod, node) = (self.bind.clone(), pod.clone(), node.clone());
        Box::pin(async move { answer(&pod, &node) })
    }

    fn preempt(&self, pod: &Arc<Pod>, victims: Vec<NodeVictims>) -> Answer<Vec<ChosenVictims>> {
        let (answer, pod) = (self.preempt.clone(), pod.clone());
        Box::pin(async move { answer(&pod, &victims) })
    }
}

/// The result of a job without a wait.
///
/// # Panics
/// When it does wait.
pub fn finished(mut job: Job) -> JobResult {
    match job.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the job waits for something"),
    }
}
