//! Patches: an object and a description of a change become the changed object.
//!
//! Three formats: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch. This module
//! does not validate the result: it may have unknown fields or values of the wrong type, which `schema` reports
//! afterwards. Patches are untrusted; the limits of [`crate::schema::parse_json`] apply to them, and no patch makes an
//! object deeper or much larger than those limits.

mod json;
mod merge;
mod strategic;

#[cfg(test)]
mod tests;

use crate::schema::GroupVersionKind;
use crate::schema::{self, DecodeError, Schemas};
use serde_json::Value;

/// The maximum number of operations of a JSON patch.
pub(crate) const JSON_PATCH_OPERATIONS_MAX: usize = 10_000;

/// The language of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// `application/json-patch+json`: a list of operations.
    Json,
    /// `application/merge-patch+json`: members replace members, null removes.
    Merge,
    /// `application/strategic-merge-patch+json`: as a merge patch, but lists merge by the rules of their type.
    Strategic,
}

impl PatchType {
    /// The format of a media type (without parameters); `None` for other media types.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        [Self::Json, Self::Merge, Self::Strategic]
            .into_iter()
            .find(|t| t.media_type().eq_ignore_ascii_case(media_type))
    }

    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// The reason why a patch could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed in its format: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well formed and does not fit the object (a test failed, a path is not there): 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch has too many operations: 413.
    #[error(
        "The allowed maximum operations in a JSON patch is {JSON_PATCH_OPERATIONS_MAX}, got {0}"
    )]
    TooManyOperations(usize),
}

impl PatchError {
    /// The HTTP code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Unprocessable(_) => 422,
            Self::TooManyOperations(_) => 413,
        }
    }

    /// Returns whether a test of a JSON patch has failed.
    pub fn is_failed_test(&self) -> bool {
        match self {
            Self::Unprocessable(text) => {
                let why = text.split_once(": ").map_or("", |(_, why)| why);
                why.starts_with(json::TESTING)
            }
            _ => false,
        }
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "BadRequest",
            Self::Unprocessable(_) => "Invalid",
            Self::TooManyOperations(_) => "RequestEntityTooLarge",
        }
    }

    /// The message in the response. For a patch that does not fit the object it is upstream's general sentence; the
    /// error itself names the field.
    pub fn status_message(&self) -> String {
        match self {
            Self::Unprocessable(_) => {
                "the server rejected our request due to an error in our request".to_owned()
            }
            other => other.to_string(),
        }
    }
}

impl From<DecodeError> for PatchError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(format!("error decoding patch: {error}"))
    }
}

/// A patched object.
#[derive(Debug, Clone, PartialEq)]
pub struct Patched {
    /// The object after the patch.
    pub object: Value,
    /// The fields that occurred twice in the patch, for strict field validation.
    pub duplicate_fields: Vec<String>,
}

/// Applies the operations of a JSON patch.
///
/// # Errors
/// See [`PatchError`].
pub fn apply_json(current: Value, operations: Value) -> Result<Value, PatchError> {
    json::apply(current, operations)
}

/// Applies a patch to an object of a kind.
///
/// # Errors
/// See [`PatchError`].
pub fn apply(
    patch_type: PatchType,
    kind: GroupVersionKind<'_>,
    current: &Value,
    patch: &[u8],
) -> Result<Value, PatchError> {
    let current = current.clone();
    apply_reporting(patch_type, kind, current, patch).map(|patched| patched.object)
}

/// As [`apply`], and returns the fields that occurred twice in the patch.
///
/// # Errors
/// See [`PatchError`].
pub fn apply_reporting(
    patch_type: PatchType,
    kind: GroupVersionKind<'_>,
    current: Value,
    patch: &[u8],
) -> Result<Patched, PatchError> {
    let parsed = schema::parse_json(patch)?;
    let object = match patch_type {
        PatchType::Json => json::apply(current, parsed.value)?,
        PatchType::Merge => merge::apply(current, parsed.value)?,
        PatchType::Strategic => {
            let schemas = Schemas::get();
            let kind = schemas.find(kind);
            strategic::apply(kind.map(|id| (schemas.model(), id)), current, parsed.value)?
        }
    };
    Ok(Patched {
        object,
        duplicate_fields: parsed.duplicate_fields,
    })
}
