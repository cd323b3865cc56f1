//! Faults of the options of a request, which are reported as those of an object of group `meta.k8s.io`.

use crate::field::{ErrorType, FieldError};
use crate::status::{ApiError, StatusSubject};

/// 422 for one field of `ListOptions`, `DeleteOptions`, ….
pub(crate) fn bad_option(
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
