//! POST, PUT, PATCH and DELETE of objects.

use super::ObjectRequest;
use crate::encode::ObjectView;
use crate::registry::{
    self, DeleteRequest, Deletion, ListPage, REMOVAL_DELAY, RequestPatch, WriteOptions,
    WriteResult, update_scale,
};
use crate::server::handle::{self, AnswerBody, Received, RequestBody};
use berth_api::Release;
use berth_objects::body::WriteBody;
use berth_objects::field::ErrorType;
use berth_objects::patch::PatchType;
use berth_objects::status::{ApiError, bad_option};
use berth_objects::{catalog, status};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Response;
use std::sync::Arc;

/// The media type of a configuration for server-side apply.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Carries out an action on the object of a name.
type Act = for<'r> fn(
    &'r ObjectRequest<'r>,
    &'r str,
    WriteBody<'r>,
    &'r WriteOptions,
) -> BoxFuture<'r, Result<Response<AnswerBody>, ApiError>>;

/// The subresources that are actions.
const ACTIONS: [(&str, Act); 3] = [
    ("binding", |request, name, body, options| {
        std::future::ready(request.bind(name, body, options)).boxed()
    }),
    ("eviction", |request, name, body, options| {
        request.evict(name, body, options).boxed()
    }),
    ("token", |request, name, body, options| {
        std::future::ready(request.issue_token(name, body, options)).boxed()
    }),
];

impl ObjectRequest<'_> {
    pub(super) async fn create(
        &self,
        received: Received<'_>,
    ) -> Result<Response<AnswerBody>, ApiError> {
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

    /// Carries out an action on an object: a POST to one of its subresources.
    pub(super) async fn act(
        &self,
        name: &str,
        sub: &str,
        body: &mut RequestBody,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let action = ACTIONS.iter().find(|(known, _)| *known == sub);
        let (_, act) = action.ok_or_else(ApiError::method_not_allowed)?;
        let options = self.write_options("CreateOptions")?;
        let body = handle::read(body).await?;
        act(self, name, self.body(&body)?, &options).await
    }

    async fn evict(
        &self,
        name: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let (api, resource) = (&self.state.api, self.resource());
        let eviction = api.evict(resource, self.namespace(), name, body, options)?;
        self.end_deletions(vec![eviction.begun], eviction.request)
            .await?;
        Ok(self.plain(201, &status::success(201), &eviction.warnings))
    }

    fn issue_token(
        &self,
        name: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<Response<AnswerBody>, ApiError> {
        let tokens = self.state.authenticator.tokens();
        let (api, namespace) = (&self.state.api, self.namespace());
        let (issued, warnings) =
            registry::issue_token(api, tokens, namespace, name, body, options)?;
        Ok(self.plain(201, &issued, &warnings))
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

    pub(super) fn update(
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

    /// PATCH: server-side apply, or a patch.
    pub(super) async fn change(
        &self,
        name: &str,
        sub: Option<&str>,
        body: &mut RequestBody,
    ) -> Result<Response<AnswerBody>, ApiError> {
        if self.content_type == APPLY_PATCH {
            let options = self.apply_options()?;
            let body = handle::read(body).await?;
            return self.apply(name, sub, &body, &options);
        }
        let patch_type = PatchType::from_media_type(&self.content_type)
            .filter(|t| self.resource().custom.is_none() || *t != PatchType::Strategic)
            .ok_or_else(ApiError::unsupported_media_type)?;
        let body = handle::read(body).await?;
        self.patch(name, sub, patch_type, &body)
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

    pub(super) async fn delete(
        &self,
        name: &str,
        body: &Bytes,
    ) -> Result<Response<AnswerBody>, ApiError> {
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

    /// Removes the marked objects. This continues if the client disconnects.
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

    pub(super) async fn delete_collection(
        &self,
        body: &Bytes,
    ) -> Result<Response<AnswerBody>, ApiError> {
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
}
