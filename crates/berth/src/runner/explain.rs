//! Answers `/explain/…`: copies what is asked about in the core's thread, computes the answer on another one.
//!
//! | path | answer |
//! |---|---|
//! | `/explain/pod/NAMESPACE/NAME` | [`PodAnswer`](berth_explain::answer::PodAnswer) |
//! | `/explain/node/NAME` | [`NodeAnswer`](berth_explain::answer::NodeAnswer) |
//! | `/explain/queue` | [`QueueAnswer`](berth_explain::answer::QueueAnswer) |

use super::CoreProbe;
use berth_explain::{PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue};
use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How many answers are computed at the same time. Each has a copy of the cluster.
const ANSWERS_AT_ONCE: usize = 1;
/// How long a question waits for its turn, and how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first part of the paths.
pub(crate) const PREFIX: &str = "/explain";

/// Answers questions about the scheduler.
#[derive(Clone)]
pub(crate) struct Explainer {
    probe: CoreProbe,
    turns: Arc<Semaphore>,
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
            turns: Arc::new(Semaphore::new(ANSWERS_AT_ONCE)),
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

    async fn pod(&self, namespace: &str, name: &str) -> Option<Explained> {
        let _turn = self.turns.acquire().await.ok()?;
        let (in_namespace, named) = (namespace.to_owned(), name.to_owned());
        let taken = self.probe.look(move |scheduler, now| {
            let facts = PodFacts::take(scheduler, &in_namespace, &named)?;
            Some((Snapshot::take(scheduler, now), facts))
        });
        let Some((mut snapshot, facts)) = taken.await? else {
            let text = format!("there is no pod {name} in namespace {namespace}");
            return Some(refused(StatusCode::NOT_FOUND, &text));
        };
        let computed = tokio::task::spawn_blocking(move || explain_pod(&mut snapshot, &facts));
        Some(answered(&computed.await.ok()?))
    }

    async fn node(&self, name: &str) -> Option<Explained> {
        let _turn = self.turns.acquire().await.ok()?;
        let taken = self.probe.look(|scheduler, now| {
            (
                Snapshot::take(scheduler, now),
                QueueFacts::take(scheduler, now),
            )
        });
        let (mut snapshot, queue) = taken.await?;
        let named = name.to_owned();
        let computed =
            tokio::task::spawn_blocking(move || explain_node(&mut snapshot, &queue, &named));
        Some(match computed.await.ok()? {
            Some(answer) => answered(&answer),
            None => refused(StatusCode::NOT_FOUND, &format!("there is no node {name}")),
        })
    }

    async fn queue(&self) -> Option<Explained> {
        let _turn = self.turns.acquire().await.ok()?;
        let facts = self.probe.look(QueueFacts::take).await?;
        Some(answered(&explain_queue(&facts)))
    }
}
