//! Keeps a consumer up to date with all objects of a kind: a list, then every change, and a new list when the server
//! no longer has the changes since a version.
//!
//! The list is streamed by the watch itself (KEP-3157, WatchList) where the server offers that, which costs it less
//! memory than a list does. Otherwise it is read page by page.

mod availability;
mod backoff;
mod list;

pub use availability::Availability;

use crate::content::{DecodeError, Event, Payload};
use crate::error::StatusBody;
use crate::frames::Frames;
use crate::http_client::ConnectionId;
use crate::request::{self, ApiRequest, Resource};
use crate::transport::store::SeenStore;
use crate::{ApiError, Transport};
use backoff::Backoff;
use list::{ListVersion, ListedObjects, VersionMeta, list};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// The requested duration of a watch, after which it is renewed.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for longer than its lifetime counts as closed.
const WATCH_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// A watch that ends sooner and without an event counts as a failure, as in client-go. Any other watch resets the
/// pause.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// The longest pause, without jitter, after watches that end within their first event. The server and the connection work,
/// and a longer pause, 30 s in client-go, would delay the pods that are created during the pause.
const PARTIAL_EVENT_PAUSE: Duration = Duration::from_secs(2);

/// The updates that the consumer receives.
#[derive(Debug, Clone, PartialEq)]
pub enum Update<T> {
    /// The complete list; other objects that the consumer knows were deleted.
    Replaced(Vec<T>),
    /// An object is new or has changed.
    Applied(T),
    /// An object was deleted; its last state.
    Deleted(T),
}

/// The objects to follow.
#[derive(Debug, Clone, Copy)]
pub struct Followed {
    /// The kind, in its preferred version.
    pub resource: Resource,
    /// Other versions of the kind, in the order of preference, for servers without the first.
    pub other_versions: &'static [&'static str],
    /// The field selector of its objects; empty for all.
    pub field_selector: &'static str,
    /// The effect of missing objects.
    pub need: Need,
    /// Whether the objects must be sent as JSON.
    pub json_only: bool,
}

impl Followed {
    fn request(&self, request: ApiRequest) -> ApiRequest {
        // No consumer reads them, and they are a large part of most objects.
        let request = request.without_managed_fields();
        if self.json_only {
            request.for_json()
        } else {
            request
        }
    }
}

/// The importance of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The consumer waits until it can be listed.
    Essential,
    /// The consumer starts without objects while the server does not serve the kind. While the server only forbids
    /// reading it, the consumer waits.
    Known,
    /// There are none of it while the server does not have the kind or does not let us read it. Servers look at
    /// permissions first, so without them the two cannot be distinguished.
    Readable,
    /// As `Readable`. Most servers do not have the kind, and that is not reported.
    Optional,
}

impl Need {
    /// Returns whether the kind counts as empty when listing it fails with this error.
    fn is_met_by_none(self, error: &ApiError) -> bool {
        match self {
            Self::Essential => false,
            Self::Known => error.is_not_found(),
            Self::Readable | Self::Optional => error.is_not_found() || error.is_forbidden(),
        }
    }
}

/// Follows a kind until the receiver is dropped. `decode` turns one object into the consumer's type; an object that
/// does not decode is skipped with a warning. While there are such objects, and while the consumer records others in
/// `availability`, the kind is listed again whenever a watch ends, because changes of unreadable objects cannot be
/// followed.
///
/// If a server does not have the version of the kind, the other versions are requested.
///
/// Failures are retried indefinitely, with increasing pauses.
pub async fn follow<T, D>(
    transport: Transport,
    mut followed: Followed,
    decode: D,
    updates: mpsc::Sender<Update<T>>,
    availability: Arc<Availability>,
) where
    D: Fn(Payload<'_>) -> Result<T, DecodeError> + Send,
    T: Send,
{
    let wanted = followed;
    let mut other_versions = wanted.other_versions.iter();
    let mut pause = Backoff::default();
    let mut version: Option<String> = None;
    let mut reported_missing = false;
    let mut reported_error = String::new();
    let mut streams_lists = true;
    // The store of the listed objects, and the time and the connection of the end of the last watch.
    let (mut listed_in, mut ended) = (SeenStore::default(), Instant::now());
    let mut ended_over: Option<ConnectionId> = None;
    let mut was_expired = false;
    while !updates.is_closed() {
        let identified_over = match (ended_over, transport.store()) {
            (Some(_), Some(store)) => store.identified_over(listed_in).await,
            _ => None,
        };
        // The next watch uses the connection of the previous one, or the store is identified first.
        let only_over = ended_over.filter(|ended| identified_over == Some(*ended));
        if let (Some(at), Some(store), None) = (&version, transport.store(), only_over) {
            match store.look(&transport, ended).await {
                Ok(now) if now.replaced != listed_in.replaced || now.is_behind(at) => {
                    version = None;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(kind = followed.resource.plural, %error, "failed to identify the store; trying again");
                    pause.wait().await;
                    continue;
                }
            }
        }
        if let (None, Some(store)) = (&version, transport.store()) {
            listed_in = store.last_seen(&transport).await;
        }
        let reading = Reading {
            followed,
            decode: &decode,
            availability: &availability,
        };
        let (from, frames) = match &version {
            Some(version) => (version.clone(), None),
            None => match list(&transport, reading, &mut streams_lists).await {
                Ok(ListedObjects {
                    objects,
                    at,
                    frames,
                }) => {
                    reported_missing = false;
                    reported_error.clear();
                    availability.found(followed.resource);
                    tracing::debug!(
                        v = 2,
                        resource = %followed.resource,
                        objects = objects.len(),
                        "listed all objects of a kind"
                    );
                    if updates.send(Update::Replaced(objects)).await.is_err() {
                        return;
                    }
                    (at, frames)
                }
                Err(error) if error.code() == Some(404) && other_versions.len() > 0 => {
                    followed.resource.version = other_versions.next().unwrap_or(&"");
                    continue;
                }
                Err(error) if followed.need.is_met_by_none(&error) => {
                    followed = wanted;
                    other_versions = wanted.other_versions.iter();
                    // An upgrade of the server or a new role may add it: it is requested again, at long intervals.
                    if !reported_missing {
                        reported_missing = true;
                        if followed.need == Need::Optional && error.is_not_found() {
                            tracing::debug!(v = 2, resource = %followed.resource, "the API server does not serve this optional kind");
                        } else {
                            availability.missing(followed.resource, &error);
                        }
                        if updates.send(Update::Replaced(Vec::new())).await.is_err() {
                            return;
                        }
                    }
                    pause.wait_longest(&updates).await;
                    continue;
                }
                Err(error) => {
                    let text = error.to_string();
                    // The transport reports an unreachable server for all kinds.
                    if error.is_out_of_reach() || reported_error == text {
                        tracing::debug!(kind = followed.resource.plural, %error, "failed to list; trying again");
                    } else {
                        tracing::warn!(
                            kind = followed.resource.plural,
                            group = followed.resource.group,
                            %error,
                            "failed to list; trying again"
                        );
                        reported_error = text;
                    }
                    pause.wait().await;
                    continue;
                }
            },
        };
        let start = match frames {
            Some(frames) => WatchStart::Open(frames),
            None => WatchStart::Request { only_over },
        };
        let began = Instant::now();
        let mut progress = WatchProgress::new(from);
        let end = watch(&transport, reading, &mut progress, start, &updates).await;
        ended = Instant::now();
        ended_over = None;
        let is_short = ended - began < SHORT_WATCH;
        // A working watch may be ended by a load balancer: the server answers, so earlier failures no longer count.
        let has_worked = progress.has_events || !is_short;
        if has_worked {
            pause.reset();
        }
        let is_expired_again = std::mem::replace(&mut was_expired, false) && !has_worked;
        let (at, is_same) = (progress.at, progress.is_same);
        let has_partial_event = progress.has_partial_event;
        match end {
            WatchEnd::Closed(over) => {
                version = Some(at);
                ended_over = over;
                // A server that sends the same again and again is not asked without a pause either.
                if is_short && is_same {
                    pause.wait().await;
                }
            }
            WatchEnd::Elsewhere => version = Some(at),
            WatchEnd::Expired => {
                version = None;
                was_expired = true;
                if is_expired_again {
                    pause.wait().await;
                }
            }
            WatchEnd::Unreadable(error) => {
                let kind = followed.resource.plural;
                tracing::warn!(kind, %error, "failed to read an event of the watch; listing all objects again");
                version = None;
                pause.wait().await;
            }
            WatchEnd::Broken(error) => {
                tracing::debug!(kind = followed.resource.plural, %error, "the watch broke; trying again");
                version = Some(at);
                if has_partial_event {
                    pause.wait_at_most(PARTIAL_EVENT_PAUSE).await;
                } else {
                    pause.wait().await;
                }
            }
            WatchEnd::HungUp => return,
        }
        if availability.has_unreadable(followed.resource) {
            version = None;
        }
    }
}

/// The start of a watch.
enum WatchStart {
    /// It is open: a list was streamed by it.
    Open(Frames),
    /// It is to be requested, and ends with [`WatchEnd::Elsewhere`] if it uses another connection than this one.
    Request { only_over: Option<ConnectionId> },
}

/// The progress of a watch.
struct WatchProgress {
    /// The start version of the next watch.
    at: String,
    /// Whether that equals the start version of this watch.
    is_same: bool,
    /// Whether it has delivered an event or a bookmark.
    has_events: bool,
    /// Whether it ended within an event.
    has_partial_event: bool,
}

impl WatchProgress {
    fn new(from: String) -> Self {
        Self {
            at: from,
            is_same: true,
            has_events: false,
            has_partial_event: false,
        }
    }
}

/// The end of a watch.
enum WatchEnd {
    /// In good order. The connection; `None` without HTTP/2.
    Closed(Option<ConnectionId>),
    /// It would use another connection than the required one.
    Elsewhere,
    /// The server has forgotten the version, or never had it: list again.
    Expired,
    /// An event cannot be read, and neither its version nor its object is known: list again.
    Unreadable(ApiError),
    /// It broke, for this reason.
    Broken(ApiError),
    /// The consumer was dropped.
    HungUp,
}

/// The decoding of the objects of a kind.
struct Reading<'a, D> {
    followed: Followed,
    decode: &'a D,
    availability: &'a Availability,
}

impl<D> Clone for Reading<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Reading<'_, D> {}

impl<D> Reading<'_, D> {
    /// Decodes an object; `None` if it cannot be read.
    fn decoded<T>(&self, object: Payload<'_>) -> Option<T>
    where
        D: Fn(Payload<'_>) -> Result<T, DecodeError>,
    {
        match (self.decode)(object) {
            Ok(object) => Some(object),
            Err(error) => {
                let VersionMeta {
                    namespace, name, ..
                } = ListVersion::of(object).metadata;
                let resource = self.followed.resource;
                if self.availability.unreadable(resource, &namespace, &name) {
                    tracing::warn!(
                        kind = resource.plural,
                        namespace,
                        name,
                        %error,
                        "failed to read an object; it is passed over"
                    );
                }
                None
            }
        }
    }
}

async fn watch<T, D>(
    transport: &Transport,
    reading: Reading<'_, D>,
    progress: &mut WatchProgress,
    start: WatchStart,
    updates: &mpsc::Sender<Update<T>>,
) -> WatchEnd
where
    D: Fn(Payload<'_>) -> Result<T, DecodeError>,
{
    let followed = reading.followed;
    let request = followed.request(request::watch(
        followed.resource,
        followed.field_selector,
        &progress.at,
        WATCH_SECONDS,
    ));
    let mut frames = match start {
        WatchStart::Open(frames) => frames,
        WatchStart::Request { only_over } => match transport.stream(&request).await {
            Ok(frames) if only_over.is_some() && frames.connection() != only_over => {
                return WatchEnd::Elsewhere;
            }
            Ok(frames) => frames,
            Err(error) if is_to_list_anew(&error) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Broken(error),
        },
    };
    let hung_up = updates.closed();
    let silence = sleep(WATCH_SILENCE);
    tokio::pin!(hung_up, silence);
    loop {
        let received = Instant::now();
        let next = loop {
            tokio::select! {
                next = frames.next() => break next,
                () = &mut hung_up => return WatchEnd::HungUp,
                () = &mut silence => {
                    // The timer is set again when it ends, not for each event.
                    let end = received + WATCH_SILENCE;
                    if Instant::now() >= end {
                        let seconds = WATCH_SILENCE.as_secs();
                        return WatchEnd::Broken(ApiError::Timeout { seconds });
                    }
                    silence.as_mut().reset(end);
                }
            }
        };
        let bytes = match next {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return WatchEnd::Closed(frames.connection()),
            Err(error) => {
                progress.has_partial_event = frames.has_partial_event();
                return WatchEnd::Broken(error);
            }
        };
        let event = match Event::read(frames.format(), &bytes) {
            Ok(event) => event,
            // Lines of JSON do not show whether the last line is complete.
            Err(error) if frames.has_ended() => {
                progress.has_partial_event = true;
                return WatchEnd::Broken((&request, error).into());
            }
            Err(error) => return WatchEnd::Unreadable((&request, error).into()),
        };
        if event.kind == "ERROR" {
            let status: StatusBody = event.object.decode().unwrap_or_default();
            let error = status.into_error(500);
            return if is_to_list_anew(&error) {
                WatchEnd::Expired
            } else {
                WatchEnd::Broken(error)
            };
        }
        progress.has_events = true;
        let update = match event.kind {
            "ADDED" | "MODIFIED" => reading.decoded(event.object).map(Update::Applied),
            "DELETED" => reading.decoded(event.object).map(Update::Deleted),
            _ => None,
        };
        let version = ListVersion::of(event.object);
        if let Some(update) = update
            && updates.send(update).await.is_err()
        {
            return WatchEnd::HungUp;
        }
        if !version.metadata.resource_version.is_empty() {
            progress.is_same &= progress.at == version.metadata.resource_version;
            progress.at = version.metadata.resource_version;
        }
    }
}

/// Returns whether a watch can never continue from its version: too old, from another server, from a store that was
/// restored, or absent.
fn is_to_list_anew(error: &ApiError) -> bool {
    error.is_expired() || error.is_version_too_large() || error.code() == Some(400)
}

#[cfg(test)]
mod tests;
