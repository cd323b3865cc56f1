//! Requests about objects: from method, path and query to a verb of the registry, and back to an answer.

use super::ServerState;
use super::encode::{self, AnswerShape, ObjectView};
use super::handle::{self, AnswerBody, JSON, Received, formatted};
use super::negotiate::{self, AnswerFormat, MediaFormat};
use super::route::{Connect, Query, RouteTarget};
use crate::admission::attributes::{Attributes, WebhookOperation, WebhookOptions};
use crate::admission::webhooks;
use crate::registry::{
    self, DeleteRequest, Deletion, ListPage, ListRequest, MANAGER_BYTES_MAX, RequestAttributes,
    RequestPatch, Requester, VersionMatch, WriteOptions, WriteResult, manager_of_agent,
    parse_revision, scale_of, scale_resource, update_scale,
};
use crate::storage::{ObjectVersion, StoreError};
use crate::watch::{self, Start, WatchRequest};
use berth_api::{GoDuration, Release};
use berth_objects::access::{GroupResource, gr};
use berth_objects::body::WriteBody;
use berth_objects::catalog::ServedResource;
use berth_objects::decode::FieldValidation;
use berth_objects::field::ErrorType;
use berth_objects::patch::PatchType;
use berth_objects::selectors::Selectors;
use berth_objects::status::{ApiError, bad_option};
use berth_objects::table::Include;
use berth_objects::validation::errors::quote;
use berth_objects::{catalog, status};
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a watch runs when the client does not state one.
const WATCH_SECONDS_DEFAULT: u64 = 45 * 60;
const PROTOBUF_STREAM: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
/// The media type of a configuration for server-side apply.
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Resources of the core group, and the warning about each request for them.
const DEPRECATED: [(&str, &str); 2] = [
    (
        "endpoints",
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ),
    (
        "componentstatuses",
        "v1 ComponentStatus is deprecated in v1.19+",
    ),
];
/// The time that kube-apiserver gives a request (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between the two writes of a deletion without grace, which clients and controllers of kube-apiserver see: it
/// stores the mark, then removes the object. Controllers that act on `deletionTimestamp` read the object in between.
const REMOVAL_DELAY: Duration = Duration::from_millis(2);
/// No watch runs longer.
const WATCH_SECONDS_MAX: u64 = 24 * 3_600;

/// A request about objects, parsed.
struct ObjectRequest<'a> {
    state: &'a Arc<ServerState>,
    target: &'a RouteTarget,
    query: Query,
    answer: AnswerFormat,
    content_type: String,
    agent: String,
    requester: Arc<Requester>,
}

pub(super) async fn serve(
    state: &Arc<ServerState>,
    target: &RouteTarget,
    received: Received<'_>,
) -> Result<Response<AnswerBody>, ApiError> {
    let deadline = deadline(state, &received)?;
    let requester = Requester::until(received.user.clone(), deadline);
    let answer = answer(state, target, received, &requester).await;
    let mut warnings = requester.take_warnings();
    let custom = target.resource.custom.as_ref();
    warnings.extend(custom.and_then(|custom| custom.deprecated.clone()));
    let deprecated = DEPRECATED.iter();
    let deprecated = deprecated.filter(|(plural, _)| target.resource.resource == gr("", plural));
    warnings.extend(deprecated.map(|(_, warning)| (*warning).to_owned()));
    let mut response = match answer {
        // Failures carry warnings, too.
        Err(error) if !warnings.is_empty() => handle::failure(&error),
        answer => answer?,
    };
    handle::warn(&mut response, &warnings);
    Ok(response)
}

/// The time at which a request ends, unless it is a watch: that of its parameter `timeout`, and 60 s at most.
///
/// # Errors
/// 400 when the parameter is no duration.
fn deadline(state: &ServerState, received: &Received<'_>) -> Result<Option<Timestamp>, ApiError> {
    let query = Query::parse(received.parts.uri.query())?;
    if query.flag("watch") {
        return Ok(None);
    }
    let stated = match query.get("timeout") {
        "" => REQUEST_TIMEOUT,
        text => {
            let stated = text.parse::<GoDuration>().map_err(|e| {
                ApiError::bad_request(format!(
                    "invalid timeout specified in the request URL - {e}"
                ))
            })?;
            // No time at all stands for the longest.
            match stated.as_duration() {
                Duration::ZERO => REQUEST_TIMEOUT,
                stated => stated.min(REQUEST_TIMEOUT),
            }
        }
    };
    Ok(state.api.now().checked_add(stated).ok())
}

async fn answer(
    state: &Arc<ServerState>,
    target: &RouteTarget,
    received: Received<'_>,
    requester: &Arc<Requester>,
) -> Result<Response<AnswerBody>, ApiError> {
    let query = Query::parse(received.parts.uri.query())?;
    let include = Include::parse(query.get("includeObject"))?;
    let request = ObjectRequest {
        state,
        target,
        answer: negotiate::accepted(
            &received.parts.headers,
            include,
            encode::has_message(&target.resource),
        )?,
        content_type: negotiate::content_type(&received.parts.headers),
        agent: negotiate::agent(&received.parts.headers),
        query,
        requester: Arc::clone(requester),
    };
    let method = &received.parts.method;
    if *method == Method::GET && target.name.is_none() && request.query.flag("watch") {
        allow(target, "watch")?;
        return request.watch().await;
    }
    let _permit = state.limits.request(received.user.is_system())?;
    check_grant(state, target, &received)?;
    match (method.as_str(), &target.name, target.sub) {
        ("GET", None, _) => {
            allow(target, "list")?;
            request.list().await
        }
        ("GET", Some(name), sub) => {
            allow_sub(target, sub, "get")?;
            request.get(name)
        }
        ("POST", None, _) => {
            allow(target, "create")?;
            if target.resource.namespaced && target.namespace.is_none() {
                return Err(ApiError::method_not_allowed());
            }
            request.create(received).await
        }
        ("POST", Some(name), Some("binding")) => {
            let options = request.write_options("CreateOptions")?;
            let body = handle::read(received.body).await?;
            let body = request.body(&body)?;
            request.bind(name, body, &options)
        }
        ("POST", Some(name), Some("eviction")) => {
            let options = request.write_options("CreateOptions")?;
            let body = handle::read(received.body).await?;
            let body = request.body(&body)?;
            let api = &state.api;
            let warnings = api.evict(
                request.resource(),
                request.namespace(),
                name,
                body,
                &options,
            )?;
            Ok(request.plain(201, &status::success(201), &warnings))
        }
        ("POST", Some(name), Some("token")) => {
            let options = request.write_options("CreateOptions")?;
            let body = handle::read(received.body).await?;
            let body = request.body(&body)?;
            let (tokens, api) = (state.authenticator.tokens(), &state.api);
            let account = (request.namespace(), name.as_str());
            let (issued, warnings) = registry::issue_token(api, tokens, account, body, &options)?;
            Ok(request.plain(201, &issued, &warnings))
        }
        ("PUT", Some(name), sub) => {
            allow_sub(target, sub, "update")?;
            let body = handle::read(received.body).await?;
            request.update(name, sub, &body)
        }
        ("PATCH", Some(name), sub) => {
            allow_sub(target, sub, "patch")?;
            if request.content_type == APPLY_PATCH {
                let options = request.apply_options()?;
                let body = handle::read(received.body).await?;
                return request.apply(name, sub, &body, &options);
            }
            let patch_type = PatchType::from_media_type(&request.content_type)
                .filter(|t| target.resource.custom.is_none() || *t != PatchType::Strategic)
                .ok_or_else(ApiError::unsupported_media_type)?;
            let body = handle::read(received.body).await?;
            request.patch(name, sub, patch_type, &body)
        }
        ("DELETE", name, None) => {
            let verb = if name.is_some() {
                "delete"
            } else {
                "deletecollection"
            };
            allow(target, verb)?;
            let body = handle::read(received.body).await?;
            match name {
                Some(name) => request.delete(name, &body).await,
                None => request.delete_collection(&body).await,
            }
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Only users with the verbs `escalate` and `bind` write roles and bindings: others could grant rights that they do not
/// have.
///
/// # Errors
/// 403.
fn check_grant(
    state: &ServerState,
    target: &RouteTarget,
    received: &Received<'_>,
) -> Result<(), ApiError> {
    let GroupResource { group, resource } = target.resource.resource;
    let writes = matches!(received.parts.method.as_str(), "POST" | "PUT" | "PATCH");
    if group != "rbac.authorization.k8s.io" || !writes {
        return Ok(());
    }
    let verb = if resource.ends_with("bindings") {
        "bind"
    } else {
        "escalate"
    };
    let asked = RequestAttributes {
        verb,
        group,
        resource,
        namespace: target.namespace.as_deref().unwrap_or(""),
        name: target.name.as_deref().unwrap_or(""),
        ..RequestAttributes::default()
    };
    registry::rbac::authorize(&state.api, &received.user, &asked)
}

fn allow(target: &RouteTarget, verb: &str) -> Result<(), ApiError> {
    if target.resource.offers(verb) {
        Ok(())
    } else {
        Err(ApiError::method_not_allowed())
    }
}

fn allow_sub(target: &RouteTarget, sub: Option<&str>, verb: &str) -> Result<(), ApiError> {
    match sub {
        Some(sub)
            if target
                .resource
                .subresource(sub)
                .is_some_and(|s| s.verbs.contains(&verb)) =>
        {
            Ok(())
        }
        Some(_) => Err(ApiError::method_not_allowed()),
        None => allow(target, verb),
    }
}

/// The error for requests to the containers of a pod, of a service, or of a kubelet: there are none.
pub(super) fn no_containers(
    state: &ServerState,
    connect: &Connect,
    received: Received<'_>,
) -> ApiError {
    let Some(resource) = catalog::find("", connect.resource) else {
        return ApiError::no_such_resource();
    };
    let query = Query::parse(received.parts.uri.query()).unwrap_or_default();
    let options = webhooks::connect_options(connect.sub, query.pairs());
    // The webhooks decide before the object is looked up.
    if let Some(options) = options.filter(|_| connect.resource == "pods") {
        let attributes = Attributes {
            resource,
            sub: connect.sub,
            namespace: &connect.namespace,
            name: &connect.name,
            operation: WebhookOperation::Connect,
            options: WebhookOptions::Connect(&Requester::new(received.user)),
        };
        if let Err(refusal) = attributes.admit_action(&state.api, options) {
            return refusal;
        }
    }
    match state
        .api
        .get(resource, &connect.namespace, connect.object_name())
    {
        Ok(_) => ApiError::not_implemented(format!(
            "{}/{} is not served: pods of this cluster are simulated, no container runs",
            connect.resource, connect.sub
        )),
        Err(missing) => missing,
    }
}

impl ObjectRequest<'_> {
    fn resource(&self) -> &ServedResource {
        &self.target.resource
    }

    /// The namespace of the path; empty for objects of the cluster.
    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or("")
    }

    fn body<'b>(&self, bytes: &'b Bytes) -> Result<WriteBody<'b>, ApiError> {
        Ok(WriteBody {
            bytes,
            encoding: negotiate::encoding(&self.content_type)?,
        })
    }

    /// The options of a write; `kind` is the one that messages name.
    fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let dry_run = match self.query.get("dryRun") {
            "" => false,
            "All" => true,
            other => {
                return Err(bad_option(
                    kind,
                    "dryRun",
                    ErrorType::NotSupported,
                    Some(format!("{other:?}")),
                    "supported values: \"All\"",
                ));
            }
        };
        let manager = self.query.get("fieldManager");
        let fault = if manager.len() > MANAGER_BYTES_MAX {
            let detail = format!("may not be more than {MANAGER_BYTES_MAX} bytes");
            Some((ErrorType::TooLong, None, detail))
        } else if let Some((i, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
            Some((ErrorType::Invalid, Some(quote(manager)), detail))
        } else {
            None
        };
        if let Some((error, value, detail)) = fault {
            return Err(bad_option(kind, "fieldManager", error, value, &detail));
        }
        Ok(WriteOptions {
            dry_run,
            validation: FieldValidation::parse(self.query.get("fieldValidation"))?,
            // Without a manager, managed fields name the program of the client.
            manager: match manager {
                "" => manager_of_agent(&self.agent),
                manager => manager.to_owned(),
            },
            force: false,
            requester: Arc::clone(&self.requester),
        })
    }

    fn apply_options(&self) -> Result<WriteOptions, ApiError> {
        if self.query.get("fieldManager").is_empty() {
            return Err(bad_option(
                "PatchOptions",
                "fieldManager",
                ErrorType::Required,
                None,
                "is required for apply patch",
            ));
        }
        Ok(WriteOptions {
            force: self.query.flag("force"),
            ..self.write_options("PatchOptions")?
        })
    }

    /// The object that was read or written, or its scale.
    ///
    /// # Errors
    /// 500 when the conversion webhook of a custom resource fails.
    fn object(&self, code: u16, written: WriteResult) -> Result<Response<AnswerBody>, ApiError> {
        let (api, mut resource) = (&self.state.api, self.resource());
        let versions = registry::in_version(api, resource, vec![Arc::clone(&written.version)])?;
        let mut version = versions.into_iter().next().unwrap_or(written.version);
        if self.target.sub == Some("scale") {
            registry::check_scale(resource, &version.object())?;
            version = ObjectVersion::unstored(scale_of(resource, &version.object()));
            resource = scale_resource();
        }
        let bytes = encode::object(resource, &self.answer.shape(), &version, api.now());
        Ok(formatted(code, self.answer, bytes, &written.warnings))
    }

    /// An answer of another kind than the resource, such as a `Scale`.
    fn plain(&self, code: u16, value: &Value, warnings: &[String]) -> Response<AnswerBody> {
        formatted(
            code,
            self.answer,
            encode::plain(self.answer.format, value),
            warnings,
        )
    }

    fn get(&self, name: &str) -> Result<Response<AnswerBody>, ApiError> {
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

    fn selectors(&self) -> Result<Selectors, ApiError> {
        Selectors::parse(
            self.resource(),
            self.query.get("labelSelector"),
            self.query.get("fieldSelector"),
        )
    }

    fn list_request(&self) -> Result<ListRequest<'_>, ApiError> {
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

    async fn list(&self) -> Result<Response<AnswerBody>, ApiError> {
        let request = self.list_request()?;
        if let Some(revision) = request.awaits()? {
            self.state.api.reached(revision).await?;
        }
        let listed = self.state.api.list(self.resource(), &request)?;
        self.listed(listed)
    }

    /// # Errors
    /// 500 when the conversion webhook of a custom resource fails.
    fn listed(&self, mut listed: ListPage) -> Result<Response<AnswerBody>, ApiError> {
        let items = std::mem::take(&mut listed.items);
        listed.items = registry::in_version(&self.state.api, self.resource(), items)?;
        Ok(self.encoded(listed))
    }

    fn encoded(&self, listed: ListPage) -> Response<AnswerBody> {
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

    async fn create(&self, received: Received<'_>) -> Result<Response<AnswerBody>, ApiError> {
        let options = self.write_options("CreateOptions")?;
        let body = handle::read(received.body).await?;
        let body = self.body(&body)?;
        let resource = self.resource();
        if resource.store.is_some() {
            let api = &self.state.api;
            let written = api.create_from(resource, self.namespace(), body, &options)?;
            return self.object(201, written);
        }
        if resource.kind == "Binding" {
            return self.bind("", body, &options);
        }
        if self.answer.shape().view != ObjectView::Object {
            return Err(ApiError::not_acceptable());
        }
        let (review, warnings) = registry::review(
            &self.state.api,
            resource,
            &received.user,
            &self.state.authenticator,
            body,
            &options,
        )?;
        Ok(self.plain(201, &review, &warnings))
    }

    fn bind(
        &self,
        name: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let pods = catalog::find("", "pods").ok_or_else(ApiError::no_such_resource)?;
        let api = &self.state.api;
        let written = api.bind(pods, self.namespace(), name, body, options)?;
        let mut status = status::success(201);
        let revision = written.version.revision();
        if self.state.release >= Release::V1_38 && revision > 0 {
            // Clients that follow pods know by it when they see the pod on its node.
            status["metadata"]["resourceVersion"] = revision.to_string().into();
        }
        Ok(self.plain(201, &status, &written.warnings))
    }

    fn update(
        &self,
        name: &str,
        sub: Option<&str>,
        body: &Bytes,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let options = self.write_options("UpdateOptions")?;
        let body = self.body(body)?;
        let (api, resource, namespace) = (&self.state.api, self.resource(), self.namespace());
        if sub == Some("scale") {
            let written = update_scale(api, resource, namespace, name, body, &options)?;
            return self.object(200, written);
        }
        let (written, created) = api.update_from(resource, namespace, name, sub, body, &options)?;
        self.object(if created { 201 } else { 200 }, written)
    }

    fn patch(
        &self,
        name: &str,
        sub: Option<&str>,
        patch_type: PatchType,
        body: &Bytes,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let options = self.write_options("PatchOptions")?;
        if self.query.find("force").is_some() {
            return Err(bad_option(
                "PatchOptions",
                "force",
                ErrorType::Forbidden,
                None,
                "may not be specified for non-apply patch",
            ));
        }
        let (api, resource, namespace) = (&self.state.api, self.resource(), self.namespace());
        let patch = RequestPatch {
            patch_type,
            bytes: body,
        };
        let written = api.patch(resource, namespace, name, sub, patch, &options)?;
        self.object(200, written)
    }

    fn apply(
        &self,
        name: &str,
        sub: Option<&str>,
        body: &Bytes,
        options: &WriteOptions,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let (api, resource, namespace) = (&self.state.api, self.resource(), self.namespace());
        let (written, created) = api.apply(resource, namespace, name, sub, body, options)?;
        self.object(if created { 201 } else { 200 }, written)
    }

    fn delete_request(&self, body: &Bytes) -> Result<DeleteRequest, ApiError> {
        let body = if body.is_empty() {
            None
        } else {
            Some(self.body(body)?)
        };
        let request = DeleteRequest::parse(body, |name| {
            self.query
                .find(name)
                .filter(|v| !v.is_empty())
                .map(str::to_owned)
        })?;
        Ok(DeleteRequest {
            requester: Arc::clone(&self.requester),
            ..request
        })
    }

    async fn delete(&self, name: &str, body: &Bytes) -> Result<Response<AnswerBody>, ApiError> {
        let request = self.delete_request(body)?;
        let (api, resource) = (&self.state.api, self.resource());
        // The answer shows the object: one that cannot be converted is not deleted.
        if resource
            .custom
            .as_ref()
            .is_some_and(|c| c.converter.is_some())
        {
            let found = api.get(resource, self.namespace(), name)?;
            registry::in_version(api, resource, vec![found])?;
        }
        let begun = api.begin_deletion(resource, self.namespace(), name, &request)?;
        let mut ended = self.end_deletions(vec![begun], request).await?;
        let deletion = ended.pop().ok_or_else(ApiError::no_such_resource)?;
        if deletion.gone && !resource.returns_deleted {
            let object = deletion.version.object();
            let uid = berth_objects::view::meta(&object, "uid");
            return Ok(self.plain(200, &status::deleted(resource.subject(name), uid), &[]));
        }
        let written = WriteResult {
            version: deletion.version,
            warnings: Vec::new(),
        };
        self.object(200, written)
    }

    /// Removes the objects that were only marked so far. The rest happens even if the client does not wait for it.
    async fn end_deletions(
        &self,
        begun: Vec<Deletion>,
        request: DeleteRequest,
    ) -> Result<Vec<Deletion>, ApiError> {
        if !begun.iter().any(|deletion| deletion.is_removed_next) {
            return Ok(begun);
        }
        let (api, resource) = (
            Arc::clone(&self.state.api),
            Arc::clone(&self.target.resource),
        );
        let end = async move {
            tokio::time::sleep(REMOVAL_DELAY).await;
            let end = |deletion| api.end_deletion(&resource, deletion, &request);
            begun.into_iter().map(end).collect()
        };
        let ended = tokio::spawn(end).await;
        ended.unwrap_or_else(|e| Err(ApiError::internal(e.to_string())))
    }

    async fn delete_collection(&self, body: &Bytes) -> Result<Response<AnswerBody>, ApiError> {
        let request = self.delete_request(body)?;
        let begun = {
            let list = self.list_request()?;
            self.state
                .api
                .begin_deletions(self.resource(), &list, &request)?
        };
        let api = &self.state.api;
        let ended = self.end_deletions(begun, request).await?;
        self.listed(ListPage {
            items: ended.into_iter().map(|deletion| deletion.version).collect(),
            revision: api.revision(),
            ..ListPage::default()
        })
    }

    async fn watch(&self) -> Result<Response<AnswerBody>, ApiError> {
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
                // A stream of nothing makes no sense: rows always name their object.
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
            // The permit lives as long as the stream.
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
    async fn start(&self, request: &WatchRequest) -> Result<Result<Start, ApiError>, ApiError> {
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
