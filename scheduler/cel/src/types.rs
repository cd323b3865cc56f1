//! Types of expressions.

use crate::limits::TYPE_PARTS_MAX;
use std::fmt;
use std::sync::Arc;

/// The name of the values of all messages.
pub(crate) const MESSAGE: &str = "Object";

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)]
pub(crate) enum Type {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// Any type: nothing is checked.
    Dyn,
    /// The type of attributes: nothing is checked.
    Any,
    /// The type of an invalid expression.
    Error,
    /// The type of types.
    Type(Option<Arc<Type>>),
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// An object, by name.
    Object(&'static str),
    /// A message that expressions form, by name.
    Message(Arc<str>),
    /// A value without fields, by name.
    Opaque(&'static str),
    /// A parameter of a declaration, such as the element type of lists.
    Parameter(&'static str),
    /// A type that is inferred.
    Variable(u32),
}

impl Type {
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Returns whether nothing is checked.
    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || *self == Self::Error
    }

    /// The name of the type without its parameters.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Dyn => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Error => "!error!",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Object(name) | Self::Opaque(name) | Self::Parameter(name) => name,
            Self::Variable(_) => "dyn",
            Self::Message(_) => MESSAGE,
        }
    }

    /// The type with the names by which it is declared.
    pub(crate) fn declared_name(&self) -> String {
        match self {
            Self::Type(Some(of)) => format!("type({})", of.declared_name()),
            Self::List(of) => format!("list({})", of.declared_name()),
            Self::Map(of) => format!("map({}, {})", of.0.declared_name(), of.1.declared_name()),
            Self::Optional(of) => format!("optional_type({})", of.declared_name()),
            Self::Message(name) => name.to_string(),
            other => other.name().to_owned(),
        }
    }

    /// Returns whether the type has more parts than an expression can need. Types of nested values can double at each
    /// level.
    pub(crate) fn is_too_large(&self) -> bool {
        fn count(of: &Type, left: &mut usize) -> bool {
            let Some(rest) = left.checked_sub(1) else {
                return false;
            };
            *left = rest;
            match of {
                Type::List(element) | Type::Optional(element) | Type::Type(Some(element)) => {
                    count(element, left)
                }
                Type::Map(entry) => count(&entry.0, left) && count(&entry.1, left),
                _ => true,
            }
        }
        !count(self, &mut TYPE_PARTS_MAX.clone())
    }

    /// Returns whether values of the type all have the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool
            | Self::Int
            | Self::Uint
            | Self::Double
            | Self::Duration
            | Self::Timestamp => true,
            Self::Optional(value) => value.is_scalar(),
            _ => false,
        }
    }
}

/// The type as messages show it.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Type(Some(of)) => write!(f, "type({of})"),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Variable(number) => write!(f, "_var{number}"),
            Self::Message(name) => f.write_str(name),
            other => f.write_str(other.name()),
        }
    }
}
