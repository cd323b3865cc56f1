//! Follows pods and nodes from the beginning of a run, without a gap, into the [`View`].

use super::api::{Api, Resource};
use super::view::View;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A watch that follows a collection; it ends when this is dropped.
pub(super) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    /// Pods.
    Pods,
    /// Nodes.
    Nodes,
}

impl Followed {
    fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Nodes => "nodes",
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Begins to follow a collection: what is there now, then every change.
///
/// # Errors
/// When it cannot be listed or watched.
pub(super) async fn follow(
    api: Arc<Api>,
    followed: Followed,
    view: Arc<View>,
) -> Result<Following, String> {
    let collection = Resource::of("/api/v1", followed.plural(), true).collection("");
    let fail = |e: &dyn std::fmt::Display| format!("failed to watch {}: {e}", followed.plural());
    let (items, mut version) = api.list(&collection).await.map_err(|e| fail(&e))?;
    for item in items {
        let text = item.to_string();
        view.apply(followed, "ADDED", text.as_bytes())
            .map_err(|e| fail(&e))?;
    }
    let mut lines = api
        .watch(&collection, &version)
        .await
        .map_err(|e| fail(&e))?;
    let task = tokio::spawn(async move {
        loop {
            match lines.next().await {
                Ok(Some(line)) => match take(&view, followed, &line) {
                    Ok(Some(newer)) => version = newer,
                    Ok(None) => {}
                    Err(reason) => {
                        view.lost(format!("{}: {reason}", followed.plural()));
                        return;
                    }
                },
                // Servers end watches now and then; the next one goes on where this one ended.
                Ok(None) | Err(_) => match api.watch(&collection, &version).await {
                    Ok(again) => lines = again,
                    Err(error) => {
                        view.lost(format!("{}: {error}", followed.plural()));
                        return;
                    }
                },
            }
        }
    });
    Ok(Following(task))
}

/// Takes one event in. Returns the version that it ends at.
fn take(view: &View, followed: Followed, line: &Bytes) -> Result<Option<String>, String> {
    let event: Event<'_> = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    let object = event.object.get().as_bytes();
    match event.kind {
        "ERROR" => Err(event.object.get().to_owned()),
        "BOOKMARK" => {
            let read: Versioned = serde_json::from_slice(object).map_err(|e| e.to_string())?;
            Ok(Some(read.metadata.resource_version))
        }
        kind => view
            .apply(followed, kind, object)
            .map(Some)
            .map_err(|e| e.to_string()),
    }
}
