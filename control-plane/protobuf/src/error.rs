//! The faults of a message.

use std::fmt;

/// A message cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtobufError(Box<DecodeFault>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodeFault {
    /// From the innermost field to the kind.
    path: Vec<&'static str>,
    reason: String,
}

impl ProtobufError {
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        Self(Box::new(DecodeFault {
            path: Vec::new(),
            reason: reason.to_string(),
        }))
    }

    pub(crate) fn truncated() -> Self {
        Self::new("the message is truncated or contains a wrong length")
    }

    pub(crate) fn wire_type() -> Self {
        Self::new("the wire type is not that of the field")
    }

    /// The error of the message or field that contains the place of this one.
    #[must_use]
    pub(crate) fn within(mut self, name: &'static str) -> Self {
        self.0.path.push(name);
        self
    }
}

impl fmt::Display for ProtobufError {
    /// As in `Pod.spec.containers.name: invalid UTF-8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.0.path.iter().rev().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            f.write_str(name)?;
        }
        if !self.0.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for ProtobufError {}

impl serde::de::Error for ProtobufError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message)
    }
}
