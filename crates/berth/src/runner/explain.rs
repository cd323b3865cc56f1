//! Answers `/explain/…`: copies what is asked about in the core's thread, computes the answer on another one.
//!
//! | path | answer |
//! |---|---|
//! | `/explain/pod/NAMESPACE/NAME` | [`PodAnswer`](berth_explain::answer::PodAnswer) |
//! | `/explain/node/NAME` | [`NodeAnswer`](berth_explain::answer::NodeAnswer) |
//! | `/explain/queue` | [`QueueAnswer`](berth_explain::answer::QueueAnswer) |

use super::CoreProbe;
use berth_api::Time;
use berth_explain::{
    COPY_AGE_MAX, Copied, PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue,
};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};

/// How long a question waits for its turn, and how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first part of the paths.
pub(crate) const PREFIX: &str = "/explain";

/// Answers questions about the scheduler, one at a time.
#[derive(Clone)]
pub(crate) struct Explainer {
    probe: CoreProbe,
    copies: Arc<Mutex<Copies>>,
}

/// The last copies of the scheduler's state. They are used for further questions for a moment, so that many questions do
/// not cost the scheduler more time than [`COPY_SHARE`](berth_explain::COPY_SHARE) allows. At most one of each is held.
struct Copies {
    /// When the clock of the copies began.
    began: Instant,
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
        }
    }

    /// Of a core that has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        Self::new(CoreProbe::ended())
    }

    /// The scheduler that is asked.
    pub(crate) fn probe(&self) -> &CoreProbe {
        &self.probe
    }

    /// Answers a path that begins with [`PREFIX`].
    pub(crate) async fn answer(&self, path: &str) -> Explained {
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(1).collect();
        if !self.probe.is_ready() {
            let text = "the scheduler has not seen the whole cluster yet";
            return refused(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        let answer = async {
            match parts[..] {
                ["pod", namespace, name] => self.pod(namespace, name).await,
                ["node", name] => self.node(name).await,
                ["queue"] => self.queue().await,
                _ => Some(refused(
                    StatusCode::NOT_FOUND,
                    "there are /explain/pod/NAMESPACE/NAME, /explain/node/NAME and /explain/queue",
                )),
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.ok().flatten().unwrap_or_else(|| {
            let text = "the scheduler does not answer, or too many questions are asked at once";
            refused(StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }

    /// Waits for the turn of a question. What was copied for it is dropped some time later.
    async fn turn(&self) -> MutexGuard<'_, Copies> {
        let copies = self.copies.clone();
        tokio::spawn(async move {
            tokio::time::sleep(2 * COPY_AGE_MAX).await;
            copies.lock().await.drop_old();
        });
        self.copies.lock().await
    }

    async fn pod(&self, namespace: &str, name: &str) -> Option<Explained> {
        let mut copies = self.turn().await;
        let (in_namespace, named) = (namespace.to_owned(), name.to_owned());
        let (began, is_kept) = (copies.began, copies.is_kept(&copies.snapshot));
        let taken = self.probe.look(move |scheduler, now| {
            let facts = PodFacts::take(scheduler, &in_namespace, &named)?;
            // A decision is explained by its inputs, which an older copy does not have.
            let is_enough = is_kept && !facts.pod().is_assigned();
            let copied = (!is_enough).then(|| copied(began, || Snapshot::take(scheduler, now)));
            Some((facts, copied))
        });
        let Some((facts, copied)) = taken.await? else {
            let text = format!("there is no pod {name} in namespace {namespace}");
            return Some(refused(StatusCode::NOT_FOUND, &text));
        };
        let mut snapshot = copied.or(copies.snapshot.take())?;
        let computed = tokio::task::spawn_blocking(move || {
            let answer = explain_pod(&mut snapshot.value, &facts);
            // The explanation of a decision takes the copy back to its time.
            (answer, (!facts.pod().is_assigned()).then_some(snapshot))
        });
        let (answer, snapshot) = computed.await.ok()?;
        copies.snapshot = snapshot;
        Some(answered(&answer))
    }

    async fn node(&self, name: &str) -> Option<Explained> {
        let mut copies = self.turn().await;
        let is_kept = copies.is_kept(&copies.snapshot) && copies.is_kept(&copies.queue);
        if !is_kept {
            let began = copies.began;
            let taken = self.probe.look(move |scheduler, now| {
                (
                    copied(began, || Snapshot::take(scheduler, now)),
                    copied(began, || QueueFacts::take(scheduler, now)),
                )
            });
            let (snapshot, queue) = taken.await?;
            (copies.snapshot, copies.queue) = (Some(snapshot), Some(queue));
        }
        let (mut snapshot, queue) = (copies.snapshot.take()?, copies.queue.take()?);
        let named = name.to_owned();
        let computed = tokio::task::spawn_blocking(move || {
            let answer = explain_node(&mut snapshot.value, &queue.value, &named);
            (answer, snapshot, queue)
        });
        let (answer, snapshot, queue) = computed.await.ok()?;
        (copies.snapshot, copies.queue) = (Some(snapshot), Some(queue));
        Some(match answer {
            Some(answer) => answered(&answer),
            None => refused(StatusCode::NOT_FOUND, &format!("there is no node {name}")),
        })
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
            snapshot: None,
            queue: None,
        }
    }
}

impl Copies {
    fn is_kept<T>(&self, copied: &Option<Copied<T>>) -> bool {
        let now = since(self.began);
        copied
            .as_ref()
            .is_some_and(|copied| !copied.pause(now).is_zero())
    }

    fn drop_old(&mut self) {
        if !self.is_kept(&self.snapshot) {
            self.snapshot = None;
        }
        if !self.is_kept(&self.queue) {
            self.queue = None;
        }
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
