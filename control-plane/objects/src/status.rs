//! Errors as the API reports them: `Status` objects with upstream's codes, reasons and messages.

use crate::access::AccessError;
use crate::field::{ErrorType, FieldError};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The machine-readable reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The path of the field; empty when the cause is about none.
    pub field: String,
}

/// The `details` of a `Status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// Its group, empty for core.
    pub group: String,
    /// Its kind, or its resource where upstream writes that.
    pub kind: String,
    /// The UID of the object, on success.
    pub uid: String,
    /// The single faults.
    pub causes: Vec<Cause>,
    /// The time until a retry; zero if it is not specified.
    pub retry_after_seconds: u32,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP code.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The object and the faults; `None` leaves the field out.
    pub details: Option<Box<Details>>,
    /// A fresh `continue` token as a replacement of an expired one.
    pub continue_token: Option<String>,
    /// The whole `Status`, where a webhook gave it.
    pub status: Option<Box<Value>>,
}

/// The name of an object in messages: `pods "x"`, `deployments.apps "x"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusSubject<'a> {
    /// The group, empty for core.
    pub group: &'a str,
    /// The resource or the kind.
    pub resource: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

impl StatusSubject<'_> {
    /// `resource.group`, or only the resource in the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.resource.to_owned(),
            ..Details::default()
        }
    }
}

// === impl ApiError ===

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            status: None,
        }
    }

    fn about(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403, with the subject before the message.
    pub fn forbidden(subject: StatusSubject<'_>, message: &str) -> Self {
        let qualified = subject.qualified();
        let message = if subject.name.is_empty() {
            format!("{qualified} is forbidden: {message}")
        } else {
            format!("{qualified} {:?} is forbidden: {message}", subject.name)
        };
        Self::new(403, "Forbidden", message).about(subject.details())
    }

    /// 403 for a path that is not of a resource.
    pub fn forbidden_path(message: impl std::fmt::Display) -> Self {
        Self::new(403, "Forbidden", format!("forbidden: {message}")).about(Details::default())
    }

    /// 403 with a cause, as admission returns it for a namespace that is being deleted.
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// 404 for an object.
    pub fn not_found(subject: StatusSubject<'_>) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(404, "NotFound", message).about(subject.details())
    }

    /// 404 for a resource that is not served.
    pub fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .about(Details::default())
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .about(Details::default())
    }

    /// 406: none of the media types of `Accept` can be produced.
    pub fn not_acceptable() -> Self {
        Self::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    /// 409 because the name is taken.
    pub fn already_exists(subject: StatusSubject<'_>) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(409, "AlreadyExists", message).about(subject.details())
    }

    /// 409 because a generated name was taken.
    pub fn generated_name_taken(subject: StatusSubject<'_>) -> Self {
        let message = format!(
            "{} {:?} already exists, the server was not able to generate a unique name for the object",
            subject.qualified(),
            subject.name
        );
        Self::new(409, "AlreadyExists", message).about(Details {
            retry_after_seconds: 1,
            ..subject.details()
        })
    }

    /// 409 with the words after the subject.
    pub fn conflict(subject: StatusSubject<'_>, message: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {message}",
            subject.qualified(),
            subject.name
        );
        Self::new(409, "Conflict", message).about(subject.details())
    }

    /// 409 because another client wrote the object first.
    pub fn modified(subject: StatusSubject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 because other managers own fields that an applied configuration would change.
    pub fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(409, "Conflict", message).about(Details {
            causes,
            ..Details::default()
        })
    }

    /// 410 because the revision is older than the history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413 for a request body.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415.
    pub fn unsupported_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .about(Details::default())
    }

    /// 422 for an object with field errors.
    pub fn invalid(kind: StatusSubject<'_>, errors: &[FieldError]) -> Self {
        let mut seen = HashSet::with_capacity(errors.len());
        let texts = errors.iter().map(ToString::to_string);
        let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
        let text = match texts.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {text}", kind.qualified(), kind.name);
        let causes = errors
            .iter()
            .map(|e| Cause {
                reason: e.kind.reason(),
                message: e.message(),
                field: e.field.clone(),
            })
            .collect();
        Self::new(422, "Invalid", message).about(Details {
            causes,
            ..kind.details()
        })
    }

    /// 422 for a patch that does not fit the object.
    pub fn unprocessable() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .about(Details::default())
    }

    /// 429: the client should retry after `retry_after_seconds`.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).about(Details {
            retry_after_seconds,
            ..Details::default()
        })
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .about(Details {
            causes: vec![Cause {
                reason: "",
                message,
                field: String::new(),
            }],
            ..Details::default()
        })
    }

    /// 500 with a message only.
    pub fn internal_plain(message: String) -> Self {
        Self::new(500, "", message)
    }

    /// 501: the server does not implement the request.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::new(501, "NotImplemented", message).about(Details::default())
    }

    /// 504.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message).about(Details::default())
    }

    /// 504: the time of the request is over.
    pub fn deadline_exceeded() -> Self {
        Self::timeout("Timeout: request did not complete within the allotted timeout")
    }

    /// 504: the client asked for a revision that has not been written yet.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        )
        .about(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// The error that an admission webhook answers to a request that it rejects: its `Status`, completed.
    pub fn denied_by_webhook(webhook: &str, status: Value) -> Self {
        const CODE: u64 = 400;
        let mut status = match status {
            status @ Value::Object(_) => status,
            _ => json!({}),
        };
        let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or("");
        let why = match (text("message"), text("reason")) {
            ("", "") => " without explanation".to_owned(),
            ("", reason) => format!(": {reason}"),
            (message, _) => format!(": {message}"),
        };
        let message = format!("admission webhook {webhook:?} denied the request{why}");
        let code = status.get("code").and_then(Value::as_u64).unwrap_or(0);
        // An answer that denies must not look like a success.
        let code = u16::try_from(code.max(CODE)).unwrap_or(400);
        if matches!(text("status"), "" | "Success") {
            status["status"] = "Failure".into();
        }
        if !status["metadata"].is_object() {
            status["metadata"] = json!({});
        }
        status["kind"] = "Status".into();
        status["apiVersion"] = "v1".into();
        status["message"] = message.as_str().into();
        status["code"] = code.into();
        Self {
            status: Some(Box::new(status)),
            ..Self::new(code, "", message)
        }
    }

    /// Returns whether the write failed because of a concurrent write.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.reason == "Conflict"
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        if let Some(status) = &self.status {
            return Value::clone(status);
        }
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.reason.is_empty()
            && let Some(status) = status.as_object_mut()
        {
            status.remove("reason");
        }
        if let (Some(details), Some(status)) = (&self.details, status.as_object_mut()) {
            status.insert("details".to_owned(), details.to_value());
        }
        status
    }
}

impl From<ApiError> for AccessError {
    fn from(error: ApiError) -> Self {
        Self {
            code: error.code,
            reason: error.reason,
            message: error.message,
        }
    }
}

// === impl Details ===

impl Details {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                map.insert(key.to_owned(), text.clone().into());
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(Cause::to_value).collect();
            map.insert("causes".to_owned(), causes.into());
        }
        if self.retry_after_seconds > 0 {
            map.insert(
                "retryAfterSeconds".to_owned(),
                self.retry_after_seconds.into(),
            );
        }
        Value::Object(map)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [
            ("reason", self.reason),
            ("message", self.message.as_str()),
            ("field", self.field.as_str()),
        ] {
            if !text.is_empty() {
                map.insert(key.to_owned(), text.into());
            }
        }
        Value::Object(map)
    }
}

/// The `Status` of a request that succeeded and has no object to answer with.
pub fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}

/// The `Status` of a request that deleted an object immediately.
pub fn deleted(subject: StatusSubject<'_>, uid: &str) -> Value {
    let details = Details {
        uid: uid.to_owned(),
        ..subject.details()
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details.to_value(),
    })
}

/// 422 for one field of `ListOptions`, `DeleteOptions`, ….
pub fn bad_option(
    kind: &str,
    field: &str,
    error: ErrorType,
    value: Option<String>,
    detail: &str,
) -> ApiError {
    let error = FieldError {
        kind: error,
        field: field.to_owned(),
        value,
        detail: detail.to_owned(),
    };
    let subject = StatusSubject {
        group: "meta.k8s.io",
        resource: kind,
        name: "",
    };
    ApiError::invalid(subject, &[error])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::ErrorType;

    #[test]
    fn several_faults_stand_in_brackets_and_repeats_once() {
        let error = |field: &str| FieldError {
            kind: ErrorType::Required,
            field: field.to_owned(),
            value: None,
            detail: String::new(),
        };
        let subject = StatusSubject {
            group: "apps",
            resource: "Deployment",
            name: "d",
        };
        let got = ApiError::invalid(
            subject,
            &[error("spec.a"), error("spec.b"), error("spec.a")],
        );
        assert_eq!(
            got.message,
            "Deployment.apps \"d\" is invalid: [spec.a: Required value, spec.b: Required value]"
        );
        assert_eq!(
            got.to_status()["details"]["causes"]
                .as_array()
                .map(Vec::len),
            Some(3)
        );
    }

    #[test]
    fn details_are_left_out_or_empty_as_upstream_does() {
        assert_eq!(ApiError::bad_request("x").to_status().get("details"), None);
        assert_eq!(
            ApiError::no_such_resource().to_status()["details"],
            json!({})
        );
    }
}
