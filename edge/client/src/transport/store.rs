//! Whether the API server still has the store of the listed objects.
//!
//! A server with an empty or restored store has other objects, and restarts the versions. A watch from a version of the
//! old store is silent until the new store reaches that version, and never reports the deletion of the old objects. A
//! store is identified by the UID of the namespace `kube-system`, which every cluster has; the version of that list
//! shows whether the store was restored.
//!
//! A busy server ends watches whose events it cannot send in time, several times a second. The same connection implies
//! the same server, so the store is not identified again for each of these watches.

use super::Transport;
use crate::ApiError;
use crate::http_client::ConnectionId;
use crate::request::{self, NAMESPACES};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const IDENTIFYING: &str = "metadata.name=kube-system";
/// More objects than the selector can find.
const LIMIT: u32 = 10;
/// The time for which the store counts as identified for watches over the same connection. A proxy may keep the
/// connection while the server behind it is replaced, which takes longer.
const IDENTIFIED_FOR: Duration = Duration::from_secs(10);

/// The state of the store of one API server. The clients that follow its objects share it.
#[derive(Debug, Default)]
pub(crate) struct ServerStore(Mutex<KnownStore>);

#[derive(Debug, Default)]
struct KnownStore {
    /// Empty until the server has shown it.
    uid: String,
    seen: SeenStore,
    /// The time of the request that returned `seen`.
    asked: Option<Instant>,
    /// The connection of this answer.
    over: Option<ConnectionId>,
}

/// The store at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SeenStore {
    /// The number of replacements of the store.
    pub(crate) replaced: u64,
    /// Its version; `None` if it is not a number, or cannot be read.
    version: Option<u64>,
}

impl SeenStore {
    /// Returns whether the store has not reached a version that it had before.
    pub(crate) fn is_behind(self, version: &str) -> bool {
        let before: Option<u64> = version.parse().ok();
        self.version
            .zip(before)
            .is_some_and(|(now, before)| now < before)
    }
}

impl ServerStore {
    /// The last seen store, identified now if it was never seen. An error counts as not seen.
    pub(crate) async fn last_seen(&self, transport: &Transport) -> SeenStore {
        let mut known = self.0.lock().await;
        if known.asked.is_none() {
            // A client that follows a watch checks again.
            let _ = known.look(transport).await;
        }
        known.seen
    }

    /// The connection over which the store of the `listed` objects was identified recently: the next watch may use it
    /// at once.
    pub(crate) async fn identified_over(&self, listed: SeenStore) -> Option<ConnectionId> {
        let known = self.0.lock().await;
        let is_recent = known
            .asked
            .is_some_and(|asked| asked.elapsed() < IDENTIFIED_FOR);
        known
            .over
            .filter(|_| is_recent && known.seen.replaced == listed.replaced)
    }

    /// The store as it is after `since`. Several that ask at the same time get one answer.
    ///
    /// # Errors
    /// When the server cannot be asked now.
    pub(crate) async fn look(
        &self,
        transport: &Transport,
        since: Instant,
    ) -> Result<SeenStore, ApiError> {
        let mut known = self.0.lock().await;
        if known.asked.is_none_or(|asked| asked < since) {
            known.look(transport).await?;
        }
        Ok(known.seen)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    uid: String,
}

impl KnownStore {
    async fn look(&mut self, transport: &Transport) -> Result<(), ApiError> {
        let asked = Instant::now();
        let request = request::list(NAMESPACES, IDENTIFYING, LIMIT, "");
        let (answer, over) = match transport.answer_over(&request).await {
            Ok(answer) => answer,
            // Without that permission, the store is unknown. A server that has just started grants it later.
            Err(error) if self.uid.is_empty() && (error.is_forbidden() || error.is_not_found()) => {
                self.asked = Some(asked);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut uid = String::new();
        let metadata = answer.list(|item| {
            uid = item.decode::<Namespace>().unwrap_or_default().metadata.uid;
        });
        let metadata = metadata.map_err(|error| ApiError::from((&request, error)))?;
        self.seen.version = metadata.resource_version.parse().ok();
        self.asked = Some(asked);
        self.over = over;
        if uid == self.uid {
            return Ok(());
        }
        if !self.uid.is_empty() {
            self.seen.replaced += 1;
            tracing::warn!(
                server = transport.server(),
                "the API server has another store than before; listing all objects again"
            );
        }
        self.uid = uid;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scripted, status};
    use serde_json::{Value, json};

    fn namespaces(uid: Option<&str>, version: &str) -> (u16, Value) {
        let items = uid.into_iter();
        let items: Vec<Value> = items
            .map(|uid| json!({"metadata": {"name": "kube-system", "uid": uid}}))
            .collect();
        let list = json!({
            "apiVersion": "v1", "kind": "NamespaceList",
            "metadata": {"resourceVersion": version}, "items": items,
        });
        (200, list)
    }

    #[tokio::test]
    async fn a_store_is_known_by_the_identity_of_kube_system() {
        let forbidden = || status(403, "namespaces is forbidden");
        let busy = || status(500, "not now");
        for (situation, answers, replaced, versions) in [
            (
                "the same store",
                vec![namespaces(Some("a"), "5"), namespaces(Some("a"), "9")],
                vec![Some(0), Some(0)],
                Some(9),
            ),
            (
                "another one",
                vec![namespaces(Some("a"), "90"), namespaces(Some("b"), "7")],
                vec![Some(0), Some(1)],
                Some(7),
            ),
            (
                "another one that is not set up yet",
                vec![
                    namespaces(Some("a"), "90"),
                    namespaces(None, "1"),
                    namespaces(Some("b"), "7"),
                ],
                vec![Some(0), Some(1), Some(1)],
                Some(7),
            ),
            (
                "no permission",
                vec![forbidden(), forbidden()],
                vec![Some(0), Some(0)],
                None,
            ),
            (
                "a server that is loading its roles",
                vec![
                    namespaces(Some("a"), "90"),
                    forbidden(),
                    busy(),
                    namespaces(Some("b"), "7"),
                ],
                vec![Some(0), None, None, Some(1)],
                Some(7),
            ),
        ] {
            let server = Scripted::start(answers).await;
            let transport = server.client();
            let store = ServerStore::default();
            for expected in replaced {
                let seen = store.look(&transport, Instant::now()).await;
                let seen = seen.ok().map(|seen| seen.replaced);
                assert_eq!(seen, expected, "{situation}");
            }
            let last = store.last_seen(&transport).await;
            assert_eq!(last.version, versions, "{situation}");
        }
    }

    #[tokio::test]
    async fn those_who_ask_together_get_one_answer() {
        let mut server = Scripted::start(vec![namespaces(Some("a"), "5")]).await;
        let transport = server.client();
        let store = ServerStore::default();
        let since = Instant::now();
        let (one, other) =
            tokio::join!(store.look(&transport, since), store.look(&transport, since));
        let seen = one.expect("an answer");
        assert_eq!(Some(seen), other.ok());
        assert!(server.asked.recv().await.is_some());
        assert!(server.asked.recv().await.is_none(), "no second request");
        for (version, is_behind) in [("4", false), ("5", false), ("6", true), ("x", false)] {
            assert_eq!(seen.is_behind(version), is_behind, "{version}");
        }
    }
}
