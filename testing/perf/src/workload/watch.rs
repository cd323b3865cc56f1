//! Follows pods and nodes from the beginning of a run, without a gap, into the [`WatchView`].

use super::api::{OfferedResource, WorkloadApi};
use super::view::WatchView;
use berth_client::content::{Event, Format, Payload};
use bytes::Bytes;
use serde::Deserialize;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A watch that follows a collection; it ends when this is dropped.
pub(super) struct Following(JoinHandle<()>);

impl Drop for Following {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The followed objects.
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

/// The object of an event that reports an error.
#[derive(Deserialize)]
struct ErrorStatus {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: WatchVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WatchVersion {
    resource_version: String,
}

/// Lists a collection, and then follows every change.
///
/// # Errors
/// When it cannot be listed or watched.
pub(super) async fn follow(
    api: Arc<WorkloadApi>,
    followed: Followed,
    view: Arc<WatchView>,
) -> Result<Following, String> {
    let collection = OfferedResource::of("/api/v1", followed.plural(), true).collection("");
    let fail = |e: &dyn std::fmt::Display| format!("failed to watch {}: {e}", followed.plural());
    let (items, mut version) = api.list(&collection).await.map_err(|e| fail(&e))?;
    for item in items {
        let text = item.to_string();
        view.apply(followed, "ADDED", Payload::Json(text.as_bytes()))
            .map_err(|e| fail(&e))?;
    }
    let mut frames = api
        .watch(&collection, &version)
        .await
        .map_err(|e| fail(&e))?;
    let task = tokio::spawn(async move {
        loop {
            match frames.next().await {
                Ok(Some(event)) => match take(&view, followed, frames.format(), &event) {
                    Ok(Some(newer)) => version = newer,
                    Ok(None) => {}
                    Err(reason) => {
                        view.lost(format!("{}: {reason}", followed.plural()));
                        return;
                    }
                },
                // Servers end watches from time to time; the next watch continues at the last version.
                Ok(None) | Err(_) => match api.watch(&collection, &version).await {
                    Ok(again) => frames = again,
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

/// Applies one event. Returns its version.
fn take(
    view: &WatchView,
    followed: Followed,
    format: Format,
    event: &Bytes,
) -> Result<Option<String>, String> {
    let event = Event::read(format, event).map_err(|e| e.to_string())?;
    match event.kind {
        "ERROR" => {
            let status: ErrorStatus = event.object.decode().map_err(|e| e.to_string())?;
            Err(status.message)
        }
        "BOOKMARK" => {
            let read: Versioned = event.object.decode().map_err(|e| e.to_string())?;
            Ok(Some(read.metadata.resource_version))
        }
        kind => view
            .apply(followed, kind, event.object)
            .map(Some)
            .map_err(|e| e.to_string()),
    }
}
