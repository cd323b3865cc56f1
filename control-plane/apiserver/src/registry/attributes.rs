//! A request as admission sees it, and the interface to admission.
//!
//! The registry calls admission at fixed points of a request. The plugins read other objects through the registry, so
//! the registry knows only their interface; the server passes them to [`Api::open`].

use super::api::Api;
use super::request::{DeleteRequest, WriteOptions};
use super::requester::Requester;
use berth_objects::access::{Propagation, gr};
use berth_objects::catalog::ServedResource;
use berth_objects::decode::FieldValidation;
use berth_objects::schema::GroupVersionKind;
use berth_objects::schema::{Empties, Schemas};
use berth_objects::status::ApiError;
use serde_json::{Value, json};
use std::fmt;

/// The subresources of pods that are answered by a container, with the kind of their options.
pub(crate) const CONNECTS: [(&str, &str); 4] = [
    ("attach", "PodAttachOptions"),
    ("exec", "PodExecOptions"),
    ("portforward", "PodPortForwardOptions"),
    ("proxy", "PodProxyOptions"),
];

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookOperation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The admission plugins, webhooks and policies of an API server.
pub trait AdmissionPlugins: fmt::Debug + Send + Sync {
    /// A new object with the changes of admission, before it is prepared and validated.
    ///
    /// # Errors
    /// The refusal of a plugin, a policy or a webhook; 500 when a webhook cannot be called.
    fn mutate_create(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: Value,
    ) -> Result<Value, ApiError>;

    /// A changed object with the changes of admission, before it is prepared and validated.
    ///
    /// # Errors
    /// As [`AdmissionPlugins::mutate_create`].
    fn mutate_update(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        new: Value,
        old: &Value,
    ) -> Result<Value, ApiError>;

    /// Checks a valid object. `old` is the object before an update; `charges` is whether quotas count the object.
    ///
    /// # Errors
    /// As [`AdmissionPlugins::mutate_create`].
    fn validate(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: &Value,
        old: Option<&Value>,
        charges: bool,
    ) -> Result<(), ApiError>;

    /// The body of a request for a subresource that is an action, such as `binding`, with the changes of admission.
    ///
    /// # Errors
    /// As [`AdmissionPlugins::mutate_create`].
    fn admit_action(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        body: Value,
    ) -> Result<Value, ApiError>;

    /// Checks the deletion of an object.
    ///
    /// # Errors
    /// As [`AdmissionPlugins::mutate_create`].
    fn admit_delete(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<(), ApiError>;

    /// Returns whether bound pods get the zone and region labels of their node.
    fn labels_bound_pods(&self) -> bool;
}

/// A request, as admission sees it.
#[derive(Debug)]
pub struct Attributes<'a> {
    pub(crate) resource: &'a ServedResource,
    /// The subresource; empty for the object itself.
    pub(crate) sub: &'a str,
    /// The namespace; for a Namespace, its own name.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) operation: WebhookOperation,
    pub(crate) options: WebhookOptions<'a>,
    /// The empty lists and maps that were sent with the object.
    pub(crate) empties: Option<&'a Empties>,
}

/// The options of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WebhookOptions<'a> {
    /// The options of a write, with their kind.
    Write(&'static str, &'a WriteOptions),
    Delete(&'a DeleteRequest),
    /// The options of a CONNECT, which are its object.
    Connect(&'a Requester),
}

impl WebhookOperation {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl WebhookOptions<'_> {
    pub(crate) fn requester(&self) -> &Requester {
        match self {
            Self::Write(_, options) => &options.requester,
            Self::Delete(request) => &request.requester,
            Self::Connect(requester) => requester,
        }
    }

    pub(crate) fn dry_run(&self) -> bool {
        match self {
            Self::Write(_, options) => options.dry_run,
            Self::Delete(request) => request.dry_run,
            Self::Connect(_) => false,
        }
    }

    /// The options as an object.
    pub(crate) fn to_value(self) -> Value {
        let (kind, mut value) = match self {
            Self::Write(kind, options) => (kind, write_options(options)),
            Self::Delete(request) => ("DeleteOptions", delete_options(request)),
            Self::Connect(_) => return Value::Null,
        };
        if self.dry_run() {
            value["dryRun"] = json!(["All"]);
        }
        value["kind"] = kind.into();
        value["apiVersion"] = "meta.k8s.io/v1".into();
        value
    }
}

fn write_options(options: &WriteOptions) -> Value {
    let mut value = json!({});
    // Webhooks do not see the manager that is derived from the name of the client.
    if options.is_manager_stated {
        value["fieldManager"] = options.manager.as_str().into();
    }
    match options.validation {
        FieldValidation::Strict => value["fieldValidation"] = "Strict".into(),
        FieldValidation::Ignore => value["fieldValidation"] = "Ignore".into(),
        FieldValidation::Warn => {}
    }
    if options.force {
        value["force"] = true.into();
    }
    value
}

fn delete_options(request: &DeleteRequest) -> Value {
    let mut value = json!({});
    if let Some(seconds) = request.grace_period_seconds {
        value["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(propagation) = request.propagation {
        value["propagationPolicy"] = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        }
        .into();
    }
    let preconditions = &request.preconditions;
    for (field, text) in [
        ("uid", &preconditions.uid),
        ("resourceVersion", &preconditions.resource_version),
    ] {
        if let Some(text) = text {
            value["preconditions"][field] = text.as_str().into();
        }
    }
    value
}

impl Attributes<'_> {
    pub(crate) fn is_of_namespace(&self) -> bool {
        self.resource.resource == gr("", "namespaces")
    }

    /// # Errors
    /// 504 when the time of the request is over.
    pub(crate) fn in_time(&self, api: &Api) -> Result<(), ApiError> {
        self.options.requester().in_time(api.now())
    }

    /// Returns whether the body of the request is an object of the resource.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(
            self.sub,
            "" | "approval" | "status" | "resize" | "ephemeralcontainers"
        )
    }

    /// Group, version and kind of the options of a CONNECT.
    pub(crate) fn connect_kind(&self) -> Value {
        let kind = CONNECTS.iter().find(|(sub, _)| *sub == self.sub);
        json!({"group": "", "version": "v1", "kind": kind.map_or("", |(_, kind)| kind)})
    }

    /// An object that a webhook has patched, as it is stored: without unknown fields, with defaults.
    pub(crate) fn accepted(
        &self,
        resource: &ServedResource,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let decoded = match resource.subresource(self.sub) {
            Some(sub) if !self.is_whole() => Schemas::get().normalize(
                GroupVersionKind::new(sub.group, sub.version, sub.kind),
                &mut object,
            ),
            _ => resource.decode(&mut object),
        };
        if let Some(error) = decoded.type_errors.first() {
            return Err(ApiError::internal(error));
        }
        Ok(object)
    }
}
