//! Requests about objects: from method, path and query to a verb of the registry, and back to an answer.

mod reads;
mod writes;

use super::ServerState;
use super::handle::{self, AnswerBody, Received, formatted};
use super::negotiate::{self, AnswerFormat};
use super::route::{Connect, Query, RouteTarget};
use crate::admission::webhooks;
use crate::encode;
use crate::registry::attributes::{Attributes, WebhookOperation, WebhookOptions};
use crate::registry::{
    self, MANAGER_BYTES_MAX, RequestAttributes, Requester, WriteOptions, WriteResult,
    manager_of_agent, scale_of, scale_resource,
};
use crate::storage::ObjectVersion;
use berth_api::GoDuration;
use berth_objects::access::GroupResource;
use berth_objects::body::WriteBody;
use berth_objects::catalog;
use berth_objects::catalog::ServedResource;
use berth_objects::decode::FieldValidation;
use berth_objects::field::ErrorType;
use berth_objects::status::{ApiError, bad_option};
use berth_objects::table::Include;
use berth_objects::validation::errors::quote;
use bytes::Bytes;
use http::{Method, Response};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// kube-apiserver's `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

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
    warnings.extend(target.resource.deprecation());
    let mut response = match answer {
        // Failures carry warnings, too.
        Err(error) if !warnings.is_empty() => handle::failure(&error),
        answer => answer?,
    };
    handle::warn(&mut response, &warnings);
    Ok(response)
}

/// The deadline of a request that is not a watch: its parameter `timeout`, at most 60 s.
///
/// # Errors
/// 400 if the parameter is not a duration.
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
            // A zero timeout means the maximum.
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
        ("POST", Some(name), Some(sub)) => request.act(name, sub, received.body).await,
        ("PUT", Some(name), sub) => {
            allow_sub(target, sub, "update")?;
            let body = handle::read(received.body).await?;
            request.update(name, sub, &body)
        }
        ("PATCH", Some(name), sub) => {
            allow_sub(target, sub, "patch")?;
            request.change(name, sub, received.body).await
        }
        ("DELETE", Some(name), None) => {
            allow(target, "delete")?;
            let body = handle::read(received.body).await?;
            request.delete(name, &body).await
        }
        ("DELETE", None, None) => {
            allow(target, "deletecollection")?;
            let body = handle::read(received.body).await?;
            request.delete_collection(&body).await
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

/// The error for requests to the containers of a pod, of a service, or of a kubelet, which do not exist.
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
            empties: None,
        };
        let admission = &state.api.admission;
        if let Err(refusal) = admission.admit_action(&state.api, &attributes, options) {
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

    /// The options of a write; `kind` is the kind of options that messages name.
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
            is_manager_stated: !manager.is_empty(),
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
}
