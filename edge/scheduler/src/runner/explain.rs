//! Answers `/explain/…`: copies the relevant state on the core's thread, and computes the answer on another one.
//!
//! | path | answer |
//! |---|---|
//! | `/explain/pod/NAMESPACE/NAME` | [`PodAnswer`](berth_explain::answer::PodAnswer) |
//! | `/explain/pod/NAMESPACE/NAME/when` | [`WhenAnswer`](berth_explain::answer::when::WhenAnswer) |
//! | `/explain/podgroup/NAMESPACE/NAME`, `/explain/compositepodgroup/NAMESPACE/NAME` | [`GroupAnswer`](berth_explain::answer::GroupAnswer) |
//! | `/explain/node/NAME` | [`NodeAnswer`](berth_explain::answer::NodeAnswer) |
//! | `/explain/queue` | [`QueueAnswer`](berth_explain::answer::QueueAnswer) |
//! | `/explain/spread` | [`SpreadAnswer`](berth_explain::spread::SpreadAnswer) |

use super::CoreProbe;
use crate::tasks;
use berth_api::Time;
use berth_explain::spread::{SpreadAnswer, WorkloadSpread, has_constraints};
use berth_explain::{
    Copied, GroupFacts, PodFacts, QueueFacts, Snapshot, WhenFacts, explain_group, explain_node,
    explain_pod, explain_queue, explain_spread, explain_when,
};
use berth_framework::cluster::GroupKind;
use berth_scheduler::Scheduler;
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};

/// The wait of a question, and the time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for which copies are kept after a question.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// The time between two computations of the spreads for metrics.
const SPREADS_EVERY: Duration = Duration::from_secs(60);
/// The first part of the paths.
pub(crate) const PREFIX: &str = "/explain";

/// Answers questions about the scheduler, one at a time.
#[derive(Clone)]
pub struct Explainer {
    probe: CoreProbe,
    copies: Arc<Mutex<Copies>>,
    spreads: Arc<std::sync::Mutex<KnownSpreads>>,
}

/// The spreads of workloads as they were computed for metrics.
#[derive(Default)]
struct KnownSpreads {
    /// The time of the request for the copies.
    asked: Option<Instant>,
    spreads: Arc<Vec<WorkloadSpread>>,
}

/// The last copies of the scheduler's state. They are used for further questions for a moment, so that many questions
/// do not cost the scheduler more time than [`COPY_SHARE`](berth_explain::COPY_SHARE) allows. At most one of each is
/// held.
struct Copies {
    /// The start of the clock of the copies.
    began: Instant,
    /// The time of the last question.
    asked: Time,
    /// The earliest time of the next answer: computing takes at most half of the time of one processor, because it also
    /// takes caches and memory bandwidth from the scheduler.
    rests_until: Time,
    snapshot: Option<Copied<Snapshot>>,
    queue: Option<Copied<QueueFacts>>,
}

/// An answer: its HTTP status and its JSON.
pub(crate) type Explained = (StatusCode, Vec<u8>);

fn refused(status: StatusCode, message: &str) -> Explained {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": status.as_u16(),
    });
    (status, body.to_string().into_bytes())
}

fn answered(answer: &impl Serialize) -> Explained {
    match serde_json::to_vec(answer) {
        Ok(json) => (StatusCode::OK, json),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

impl Explainer {
    pub(super) fn new(probe: CoreProbe) -> Self {
        Self {
            probe,
            copies: Arc::default(),
            spreads: Arc::default(),
        }
    }

    /// Of a core that has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        Self::new(CoreProbe::ended())
    }

    /// The explained scheduler.
    pub(crate) fn probe(&self) -> &CoreProbe {
        &self.probe
    }

    /// Answers a path that begins with [`PREFIX`].
    pub(crate) async fn answer(&self, path: &str) -> Explained {
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
        // An incomplete cluster would give wrong reasons.
        if !self.probe.is_ready() {
            let text = "the scheduler has not seen the whole cluster yet";
            return refused(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        let answer = async {
            match parts[..] {
                ["pod", namespace, name] => self.pod(namespace, name).await,
                ["pod", namespace, name, "when"] => self.when(namespace, name).await,
                ["podgroup", namespace, name] => {
                    self.group(GroupKind::PodGroup, namespace, name).await
                }
                ["compositepodgroup", namespace, name] => {
                    let kind = GroupKind::CompositePodGroup;
                    self.group(kind, namespace, name).await
                }
                ["node", name] => self.node(name).await,
                ["queue"] => self.queue().await,
                ["spread"] => self.spread().await,
                _ => Some(refused(
                    StatusCode::NOT_FOUND,
                    "there are /explain/pod/NAMESPACE/NAME, /explain/pod/NAMESPACE/NAME/when, /explain/podgroup/NAMESPACE/NAME, \
                     /explain/compositepodgroup/NAMESPACE/NAME, /explain/node/NAME, /explain/queue and /explain/spread",
                )),
            }
        };
        // The client waits for an answer, so the question has a limit.
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.ok().flatten().unwrap_or_else(|| {
            let text = "the scheduler does not answer, or too many questions are asked at once";
            refused(StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }

    /// Waits for the turn of a question. The copies are dropped when no other question has followed for some time.
    async fn turn(&self) -> MutexGuard<'_, Copies> {
        let explainer = self.clone();
        tasks::spawn(async move {
            tokio::time::sleep(KEPT_FOR).await;
            explainer.drop_unused().await;
        });
        let mut copies = self.copies.lock().await;
        let now = copies.now();
        if now < copies.rests_until {
            tokio::time::sleep(copies.rests_until.since(now)).await;
        }
        copies.asked = copies.now();
        copies
    }

    /// Drops the copies if there are no questions. The copy of the cluster is dropped on its own thread.
    async fn drop_unused(&self) {
        let mut copies = self.copies.lock().await;
        if copies.now().since(copies.asked) >= KEPT_FOR {
            copies.queue = None;
            let snapshot = copies.snapshot.take();
            self.probe.look(move |_, _| drop(snapshot)).await;
        }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Option<Explained> {
        let unknown = format!("there is no pod {name} in namespace {namespace}");
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.explained(
            &unknown,
            move |scheduler| PodFacts::take(scheduler, &namespace, &name),
            Snapshot::is_enough_for,
            explain_pod,
        )
        .await
    }

    /// Plays the core forward until a pod starts. The next answer is delayed by the duration of this one.
    async fn when(&self, namespace: &str, name: &str) -> Option<Explained> {
        let unknown = format!("there is no pod {name} in namespace {namespace}");
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let mut copies = self.turn().await;
        let taken = self
            .probe
            .look(move |scheduler, now| WhenFacts::take(scheduler, &namespace, &name, now));
        let Some(facts) = taken.await? else {
            return Some(refused(StatusCode::NOT_FOUND, &unknown));
        };
        let answer = copies.compute(move || explain_when(&facts)).await?;
        Some(answered(&answer))
    }

    async fn group(&self, kind: GroupKind, namespace: &str, name: &str) -> Option<Explained> {
        let word = kind.as_str();
        let unknown = format!("there is no {word} {name} in namespace {namespace}");
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.explained(
            &unknown,
            move |scheduler| GroupFacts::take(scheduler, kind, &namespace, &name),
            Snapshot::is_enough_for_group,
            explain_group,
        )
        .await
    }

    /// Reads the facts of one object, and explains them with a copy of the cluster: the last copy if it is recent and
    /// has the necessary parts, otherwise a new copy, taken together with the facts.
    async fn explained<F, A>(
        &self,
        unknown: &str,
        take: impl Fn(&Scheduler) -> Option<F> + Clone + Send + 'static,
        is_enough: fn(&Snapshot, &F) -> bool,
        explain: fn(&mut Snapshot, &F) -> A,
    ) -> Option<Explained>
    where
        F: Send + 'static,
        A: Serialize + Send + 'static,
    {
        let mut copies = self.turn().await;
        let unknown = || Some(refused(StatusCode::NOT_FOUND, unknown));
        let again = take.clone();
        let Some(mut facts) = self.probe.look(move |scheduler, _| take(scheduler)).await? else {
            return unknown();
        };
        let is_enough = |copy: &&Copied<Snapshot>| {
            // A recent copy that contains all necessary objects is reused.
            !copy.pause(copies.now()).is_zero() && is_enough(&copy.value, &facts)
        };
        // The facts and the copy must be of the same moment, so both are read again.
        if copies.snapshot.as_ref().filter(is_enough).is_none() {
            let taken = self.renew(&mut copies, move |scheduler, _| again(scheduler));
            let Some(taken) = taken.await? else {
                return unknown();
            };
            facts = taken;
        }
        let mut snapshot = copies.snapshot.take()?;
        let computed = copies.compute(move || {
            let answer = explain(&mut snapshot.value, &facts);
            (answer, snapshot)
        });
        let (answer, snapshot) = computed.await?;
        copies.snapshot = Some(snapshot);
        Some(answered(&answer))
    }

    /// Replaces the copy of the cluster, once the scheduler has had its share of the time, and reads facts at the same
    /// moment.
    async fn renew<T: Send + 'static>(
        &self,
        copies: &mut Copies,
        read: impl FnOnce(&Scheduler, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let old = copies.snapshot.take();
        if let Some(old) = &old {
            tokio::time::sleep(old.pause(copies.now())).await;
        }
        let began = copies.began;
        let taken = self.probe.look(move |scheduler, now| {
            let snapshot = copied(began, || match old {
                Some(mut old) => {
                    old.value.renew(scheduler, now);
                    old.value
                }
                None => Snapshot::take(scheduler, now),
            });
            (snapshot, read(scheduler, now))
        });
        let (snapshot, read) = taken.await?;
        copies.snapshot = Some(snapshot);
        Some(read)
    }

    async fn node(&self, name: &str) -> Option<Explained> {
        let mut copies = self.turn().await;
        if !copies.is_kept(&copies.snapshot) || !copies.is_kept(&copies.queue) {
            let began = copies.began;
            let queue = self.renew(&mut copies, move |scheduler, now| {
                copied(began, || QueueFacts::take(scheduler, now))
            });
            copies.queue = Some(queue.await?);
        }
        let (mut snapshot, queue) = (copies.snapshot.take()?, copies.queue.take()?);
        let named = name.to_owned();
        let computed = copies.compute(move || {
            let answer = explain_node(&mut snapshot.value, &queue.value, &named);
            (answer, snapshot, queue)
        });
        let (answer, snapshot, queue) = computed.await?;
        (copies.snapshot, copies.queue) = (Some(snapshot), Some(queue));
        Some(match answer {
            Some(answer) => answered(&answer),
            None => refused(StatusCode::NOT_FOUND, &format!("there is no node {name}")),
        })
    }

    /// The spreads of workloads for metrics. They are computed again in the background, at most once in
    /// [`SPREADS_EVERY`], so that a scrape does not wait for a copy of the cluster.
    pub(crate) fn known_spreads(&self) -> Arc<Vec<WorkloadSpread>> {
        let mut known = self.spreads.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = known
            .asked
            .is_none_or(|asked| asked.elapsed() >= SPREADS_EVERY);
        if is_due && self.probe.is_ready() {
            known.asked = Some(Instant::now());
            let explainer = self.clone();
            tasks::spawn(async move {
                let computed = tokio::time::timeout(PATIENCE, explainer.compute_spreads()).await;
                if let Ok(Some(answer)) = computed {
                    let spreads = &explainer.spreads;
                    let mut known = spreads.lock().unwrap_or_else(PoisonError::into_inner);
                    known.spreads = Arc::new(answer.workloads);
                }
            });
        }
        known.spreads.clone()
    }

    async fn spread(&self) -> Option<Explained> {
        Some(answered(&self.compute_spreads().await?))
    }

    /// The spreads of all workloads. The cluster is copied only if a pod has topology spread constraints.
    async fn compute_spreads(&self) -> Option<SpreadAnswer> {
        let look = |scheduler: &Scheduler, _| has_constraints(scheduler.cache().cluster());
        if !self.probe.look(look).await? {
            return Some(SpreadAnswer::default());
        }
        let mut copies = self.turn().await;
        if !copies.is_kept(&copies.snapshot) {
            self.renew(&mut copies, |_, _| ()).await?;
        }
        let snapshot = copies.snapshot.take()?;
        let computed = copies.compute(move || (explain_spread(&snapshot.value), snapshot));
        let (answer, snapshot) = computed.await?;
        copies.snapshot = Some(snapshot);
        Some(answer)
    }

    async fn queue(&self) -> Option<Explained> {
        let mut copies = self.turn().await;
        if !copies.is_kept(&copies.queue) {
            let began = copies.began;
            let taken = self
                .probe
                .look(move |scheduler, now| copied(began, || QueueFacts::take(scheduler, now)));
            copies.queue = Some(taken.await?);
        }
        let facts = copies.queue.as_ref()?;
        Some(answered(&explain_queue(&facts.value)))
    }
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            asked: Time::EPOCH,
            rests_until: Time::EPOCH,
            snapshot: None,
            queue: None,
        }
    }
}

impl Copies {
    fn now(&self) -> Time {
        since(self.began)
    }

    /// Computes something on another thread.
    async fn compute<T: Send + 'static>(
        &mut self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let began = self.now();
        let computed = tokio::task::spawn_blocking(compute).await.ok();
        let now = self.now();
        self.rests_until = now + now.since(began);
        computed
    }

    fn is_kept<T>(&self, copied: &Option<Copied<T>>) -> bool {
        let copied = copied.as_ref();
        copied.is_some_and(|copied| !copied.pause(self.now()).is_zero())
    }
}

/// The time since the first question.
fn since(began: Instant) -> Time {
    Time::EPOCH + began.elapsed()
}

/// Copies, timed.
fn copied<T>(began: Instant, copy: impl FnOnce() -> T) -> Copied<T> {
    let copying = Instant::now();
    let value = copy();
    Copied::new(value, since(began), copying.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::CoreInput;
    use berth_api::{Kind, Object};
    use berth_scheduler::{ClusterChange, SchedulerOptions};
    use tokio::sync::mpsc;

    fn decode(kind: Kind, value: &serde_json::Value) -> Object {
        let object = kind.decode(value.to_string().as_bytes());
        object.unwrap_or_else(|e| panic!("{value}: {e}"))
    }

    /// A scheduler with a node and a pod on it.
    fn scheduler(constraints: &serde_json::Value) -> Scheduler {
        let registry = berth_plugins::in_tree();
        let scheduler = Scheduler::new(SchedulerOptions::default(), &registry, Time::EPOCH);
        let mut scheduler = scheduler.unwrap_or_else(|e| panic!("{e}"));
        let node = json!({
            "metadata": {"name": "n", "labels": {"zone": "a"}},
            "status": {"allocatable": {"cpu": "8", "pods": "110"}},
        });
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "o", "controller": true});
        let pod = json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u", "labels": {"app": "web"},
                "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}], "topologySpreadConstraints": constraints},
        });
        for object in [decode(Kind::Node, &node), decode(Kind::Pod, &pod)] {
            scheduler.apply(ClusterChange::Applied(object), Time::EPOCH);
        }
        scheduler
    }

    /// The cluster is copied for `berth_workload_excess_skew` only if there is a constraint.
    #[tokio::test]
    async fn a_cluster_without_spread_constraints_is_not_copied_for_the_spreads() {
        let constraint = json!([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}}]);
        for (constraints, copied) in [(json!([]), false), (constraint, true)] {
            let scheduler = scheduler(&constraints);
            let (sender, mut inputs) = mpsc::channel(1);
            let explainer = Explainer::new(CoreProbe::with(sender));
            let serve = async {
                while let Some(input) = inputs.recv().await {
                    if let CoreInput::Look(look) = input {
                        look(&scheduler, Time::EPOCH);
                    }
                }
            };
            let answer = tokio::select! {
                answer = explainer.compute_spreads() => answer.expect("the core answers"),
                () = serve => panic!("the channel is open"),
            };
            assert_eq!(answer.workloads.len(), usize::from(copied), "{constraints}");
            let copies = explainer.copies.lock().await;
            assert_eq!(copies.snapshot.is_some(), copied, "{constraints}");
        }
    }
}
