//! Field errors: the fault of one field of an object, as Kubernetes reports it.

use std::fmt;

/// The kind of a field error. Its [`ErrorType::reason`] is the value of `details.causes[].reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The value is missing and must be set.
    Required,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is not a supported value.
    NotSupported,
    /// The value occurs twice in a list that must be unique.
    Duplicate,
    /// The value is well formed but may not be given here.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// The list holds more entries than allowed.
    TooMany,
    /// The object that the value refers to does not exist.
    NotFound,
    /// The value has the wrong type.
    TypeInvalid,
    /// An internal error, which the user cannot correct.
    Internal,
}

impl ErrorType {
    /// The machine-readable reason, such as `FieldValueInvalid`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    /// The words after the field in the printed error.
    pub fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

/// One field error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of the error.
    pub kind: ErrorType,
    /// The path of the field, such as `spec.containers[0].image`.
    pub field: String,
    /// The offending value as it is printed (already quoted or rendered); `None` where none is printed.
    pub value: Option<String>,
    /// The fault and the correction; may be empty.
    pub detail: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

impl FieldError {
    /// The error without its path, as in `details.causes[].message`.
    pub fn message(&self) -> String {
        let mut s = self.kind.title().to_owned();
        if let Some(value) = &self.value {
            s.push_str(": ");
            s.push_str(value);
        }
        if !self.detail.is_empty() {
            s.push_str(": ");
            s.push_str(&self.detail);
        }
        s
    }
}
