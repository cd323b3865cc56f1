//! The objects of a kind: streamed by a watch where the server offers that (KEP-3157, WatchList), else page by page.

use super::{Reading, WATCH_SECONDS};
use crate::content::{DecodeError, Event, Payload};
use crate::error::StatusBody;
use crate::frames::Frames;
use crate::{ApiError, Transport, request};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// The number of objects in a page.
const PAGE: u32 = 500;
/// The number of times that a list that expires half-way is started again before it counts as a failure.
const RELISTS_MAX: usize = 5;
/// The silence after which a streaming list is aborted.
const STREAMED_LIST_SILENCE: Duration = Duration::from_secs(30);
/// The annotation of the bookmark that ends a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// All objects of a kind.
pub(super) struct ListedObjects<T> {
    pub(super) objects: Vec<T>,
    /// The version that they were listed at.
    pub(super) at: String,
    /// The open watch that streamed them, if they were streamed.
    pub(super) frames: Option<Frames>,
}

/// Lists, streaming where the server offers it. `streams` is switched off for good when it does not.
pub(super) async fn list<T, D>(
    transport: &Transport,
    reading: Reading<'_, D>,
    streams: &mut bool,
) -> Result<ListedObjects<T>, ApiError>
where
    D: Fn(Payload<'_>) -> Result<T, DecodeError>,
{
    let followed = reading.followed;
    reading.availability.list_begins(followed.resource);
    let listed = listed(transport, reading, streams).await?;
    reading.availability.list_ends(followed.resource);
    Ok(listed)
}

async fn listed<T, D>(
    transport: &Transport,
    reading: Reading<'_, D>,
    streams: &mut bool,
) -> Result<ListedObjects<T>, ApiError>
where
    D: Fn(Payload<'_>) -> Result<T, DecodeError>,
{
    let followed = reading.followed;
    if *streams {
        match stream_list(transport, reading).await {
            Err(error) if matches!(error.code(), Some(400 | 422)) => *streams = false,
            // A server that does not know the parameter, or is too slow for it.
            Err(ApiError::Decode { .. }) => *streams = false,
            answer => return answer,
        }
        tracing::debug!(
            kind = followed.resource.plural,
            "the API server does not stream lists; listing by pages"
        );
    }
    let (objects, at) = list_all(transport, reading).await?;
    let frames = None;
    Ok(ListedObjects {
        objects,
        at,
        frames,
    })
}

/// Reads the events of a watch until the bookmark that marks that all objects have been sent.
async fn stream_list<T, D>(
    transport: &Transport,
    reading: Reading<'_, D>,
) -> Result<ListedObjects<T>, ApiError>
where
    D: Fn(Payload<'_>) -> Result<T, DecodeError>,
{
    let followed = reading.followed;
    let request = followed.request(request::watch_list(
        followed.resource,
        followed.field_selector,
        WATCH_SECONDS,
    ));
    let unfinished = |reason: &str| ApiError::Decode {
        request: request.describe(),
        reason: reason.to_owned(),
    };
    let mut frames = transport.stream(&request).await?;
    // By namespace and name: an object may be changed or deleted while the list is sent.
    let mut objects = BTreeMap::new();
    loop {
        let bytes = match timeout(STREAMED_LIST_SILENCE, frames.next()).await {
            Ok(bytes) => bytes?,
            Err(_) => return Err(unfinished("the list did not go on")),
        };
        let bytes = bytes.ok_or_else(|| unfinished("the list ended early"))?;
        let event = Event::read(frames.format(), &bytes).map_err(|e| unfinished(&e.to_string()))?;
        let metadata = ListVersion::of(event.object).metadata;
        match event.kind {
            "ADDED" | "MODIFIED" => {
                if let Some(object) = reading.decoded(event.object) {
                    objects.insert((metadata.namespace, metadata.name), object);
                }
            }
            "DELETED" => {
                objects.remove(&(metadata.namespace, metadata.name));
            }
            "BOOKMARK" if ends_list(event.object) => {
                return Ok(ListedObjects {
                    objects: objects.into_values().collect(),
                    at: metadata.resource_version,
                    frames: Some(frames),
                });
            }
            "ERROR" => {
                let status: StatusBody = event.object.decode().unwrap_or_default();
                return Err(status.into_error(500));
            }
            _ => {}
        }
    }
}

async fn list_all<T, D>(
    transport: &Transport,
    reading: Reading<'_, D>,
) -> Result<(Vec<T>, String), ApiError>
where
    D: Fn(Payload<'_>) -> Result<T, DecodeError>,
{
    let followed = reading.followed;
    let mut relists = 0;
    'list: loop {
        let mut objects = Vec::new();
        let mut token = String::new();
        loop {
            let request = request::list(followed.resource, followed.field_selector, PAGE, &token);
            let request = followed.request(request);
            let page = match transport.answer(&request).await {
                Err(error) if error.is_expired() && relists < RELISTS_MAX => {
                    relists += 1;
                    continue 'list;
                }
                answer => answer?,
            };
            let metadata = page.list(|item| objects.extend(reading.decoded(item)));
            let metadata = metadata.map_err(|e| ApiError::from((&request, e)))?;
            match metadata.continue_token.filter(|t| !t.is_empty()) {
                Some(next) => token = next,
                None => return Ok((objects, metadata.resource_version)),
            }
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ListVersion {
    pub(super) metadata: VersionMeta,
}

impl ListVersion {
    pub(super) fn of(object: Payload<'_>) -> Self {
        object.decode().unwrap_or_default()
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VersionMeta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) resource_version: String,
}

/// Returns whether a bookmark marks that all objects have been sent.
fn ends_list(bookmark: Payload<'_>) -> bool {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        annotations: BTreeMap<String, serde::de::IgnoredAny>,
    }
    bookmark.decode::<Bookmark>().is_ok_and(|bookmark| {
        bookmark
            .metadata
            .annotations
            .contains_key(INITIAL_EVENTS_END)
    })
}
