//! GET: objects, lists and watches.

use super::ObjectRequest;
use crate::encode::MediaFormat;
use crate::encode::{self, AnswerShape, ObjectView};
use crate::registry::{self, ListPage, ListRequest, VersionMatch, WriteResult, parse_revision};
use crate::server::handle::{AnswerBody, JSON, formatted};
use crate::storage::StoreError;
use crate::watch::{self, Start, WatchRequest};
use berth_objects::field::ErrorType;
use berth_objects::selectors::Selectors;
use berth_objects::status::{ApiError, bad_option};
use berth_objects::table::Include;
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The duration of a watch without a stated timeout.
const WATCH_SECONDS_DEFAULT: u64 = 45 * 60;
/// No watch runs longer.
const WATCH_SECONDS_MAX: u64 = 24 * 3_600;
const PROTOBUF_STREAM: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");

impl ObjectRequest<'_> {
    pub(super) fn get(&self, name: &str) -> Result<Response<AnswerBody>, ApiError> {
        let version = self
            .state
            .api
            .get(self.resource(), self.namespace(), name)?;
        let written = WriteResult {
            version,
            warnings: Vec::new(),
        };
        self.object(200, written)
    }
    pub(super) fn selectors(&self) -> Result<Selectors, ApiError> {
        Selectors::parse(
            self.resource(),
            self.query.get("labelSelector"),
            self.query.get("fieldSelector"),
        )
    }

    pub(super) fn list_request(&self) -> Result<ListRequest<'_>, ApiError> {
        if self.query.find("sendInitialEvents").is_some() {
            return Err(bad_option(
                "ListOptions",
                "sendInitialEvents",
                ErrorType::Forbidden,
                None,
                "sendInitialEvents is forbidden for list",
            ));
        }
        let limit = self.query.number("limit")?.unwrap_or(0);
        self.query.number("timeoutSeconds")?;
        Ok(ListRequest {
            namespace: self.target.namespace.as_deref(),
            selectors: self.selectors()?,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            continue_token: self.query.get("continue"),
            resource_version: self.query.get("resourceVersion"),
            version_match: VersionMatch::parse(self.query.get("resourceVersionMatch"))?,
        })
    }

    pub(super) async fn list(&self) -> Result<Response<AnswerBody>, ApiError> {
        let request = self.list_request()?;
        if let Some(revision) = request.awaits()? {
            self.state.api.reached(revision).await?;
        }
        let listed = self.state.api.list(self.resource(), &request)?;
        self.listed(listed)
    }

    /// # Errors
    /// 500 when the conversion webhook of a custom resource fails.
    pub(super) fn listed(&self, mut listed: ListPage) -> Result<Response<AnswerBody>, ApiError> {
        let items = std::mem::take(&mut listed.items);
        listed.items = registry::in_version(&self.state.api, self.resource(), items)?;
        Ok(self.encoded(listed))
    }

    pub(super) fn encoded(&self, listed: ListPage) -> Response<AnswerBody> {
        let now = self.state.api.now();
        let mut pieces = encode::list(&self.target.resource, &self.answer.shape(), listed, now);
        let first = pieces.next().unwrap_or_default();
        let Some(second) = pieces.next() else {
            return formatted(200, self.answer, first, &[]);
        };
        let pieces = [first, second].into_iter().chain(pieces);
        if self.answer.format == MediaFormat::Yaml {
            return formatted(
                200,
                self.answer,
                Bytes::from(pieces.collect::<Vec<_>>().concat()),
                &[],
            );
        }
        let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let mut response = formatted(200, self.answer, Bytes::new(), &[]);
        *response.body_mut() = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        response
    }

    pub(super) async fn watch(&self) -> Result<Response<AnswerBody>, ApiError> {
        let permit = self.state.limits.watch()?;
        let seconds = self
            .query
            .number("timeoutSeconds")?
            .filter(|s| *s > 0)
            .unwrap_or(WATCH_SECONDS_DEFAULT);
        let request = WatchRequest {
            resource: Arc::clone(&self.target.resource),
            namespace: self.target.namespace.clone(),
            selectors: self.selectors()?,
            shape: AnswerShape {
                drops_managed_fields: self.answer.drops_managed_fields,
                // An empty view is not useful in a stream: rows always contain the metadata of their object.
                view: match self.answer.view {
                    ObjectView::Table(Include::None) => ObjectView::Table(Include::Metadata),
                    view => view,
                },
                ..self.answer.shape()
            },
            bookmarks: self.query.flag("allowWatchBookmarks"),
            bookmark_interval: self.state.bookmark_interval,
            timeout: Duration::from_secs(seconds.min(WATCH_SECONDS_MAX)),
        };
        let start = self.start(&request).await?;
        let api = Arc::clone(&self.state.api);
        let stopping = self.state.stopping.clone();
        let stream = match start {
            Ok(start) => watch::chunks(request, start, api, stopping).boxed(),
            Err(error) => {
                let event = watch::error_event(self.answer.format, &error);
                futures_util::stream::once(async move { event }).boxed()
            }
        };
        let frames = stream.map(move |chunk| {
            // The permit is held until the end of the stream.
            let _held = &permit;
            Ok::<_, Infallible>(Frame::data(chunk))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let headers = response.headers_mut();
        let content_type = match self.answer.format {
            MediaFormat::Protobuf => PROTOBUF_STREAM,
            _ => JSON,
        };
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        Ok(response)
    }

    /// The place where the watch begins; the inner error is sent within the stream.
    pub(super) async fn start(
        &self,
        request: &WatchRequest,
    ) -> Result<Result<Start, ApiError>, ApiError> {
        let (api, resource) = (&self.state.api, self.resource());
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let version_match = VersionMatch::parse(self.query.get("resourceVersionMatch"))?;
        let initial = self
            .query
            .find("sendInitialEvents")
            .map(|_| self.query.flag("sendInitialEvents"));
        let forbid = |detail: &str| {
            Err(bad_option(
                "ListOptions",
                "resourceVersionMatch",
                ErrorType::Forbidden,
                None,
                detail,
            ))
        };
        match (initial, version_match) {
            (Some(_), Some(VersionMatch::NotOlderThan)) | (None, None) => {}
            (Some(_), _) => {
                return forbid(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            (None, Some(_)) => {
                return forbid(
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        }
        let revision = parse_revision(self.query.get("resourceVersion"))?;
        if let Some(revision) = revision {
            api.reached(revision).await?;
        }
        let prefix = resource.key_prefix(request.namespace.as_deref());
        let from_now = initial == Some(true) || (initial.is_none() && revision.is_none());
        let started = if from_now {
            api.store()
                .watch_now(store, &prefix)
                .map(|(items, revision, cursor)| Start {
                    initial: items,
                    initial_end: (initial == Some(true) && request.bookmarks).then_some(revision),
                    cursor,
                })
        } else {
            let after = revision.unwrap_or_else(|| api.revision());
            api.store().watch_after(store, after).map(|cursor| Start {
                initial: Vec::new(),
                initial_end: None,
                cursor,
            })
        };
        let started = started.map_err(|e| match e {
            StoreError::Expired { requested, oldest } => {
                ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
            }
            other => ApiError::internal(other.to_string()),
        });
        Ok(started.and_then(|mut start| {
            start.initial = registry::in_version(api, resource, start.initial)?;
            Ok(start)
        }))
    }
}
