//! Refusals, as the `Status` objects that Kubernetes servers answer with.

use super::pages::{JSON, PageAnswer, typed};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

fn answer(code: StatusCode, reason: &str, message: &str, has_details: bool) -> PageAnswer {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    if has_details {
        status["details"] = Value::Object(Default::default());
    }
    typed(code, HeaderValue::from_static(JSON), format!("{status:#}"))
}

/// The credentials of the sender are invalid.
pub(super) fn unauthorized() -> PageAnswer {
    answer(
        StatusCode::UNAUTHORIZED,
        "Unauthorized",
        "Unauthorized",
        false,
    )
}

/// The sender may not do this.
pub(super) fn forbidden(user: &str, verb: &str, path: &str, reason: &str) -> PageAnswer {
    let mut message = format!("forbidden: User {user:?} cannot {verb} path {path:?}");
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    answer(StatusCode::FORBIDDEN, "Forbidden", &message, true)
}

/// The requested media type is not available.
pub(super) fn not_acceptable(message: &str) -> PageAnswer {
    answer(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, false)
}

/// The server failed to check the permission of the sender.
pub(super) fn internal_error(path: &str, reason: &str) -> PageAnswer {
    let message = format!("Internal Server Error: {path:?}: {reason}");
    answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        "InternalError",
        &message,
        false,
    )
}
