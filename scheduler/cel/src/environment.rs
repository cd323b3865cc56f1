//! Environments: for device selectors, with the typed variable `device`, and for programs, whose variables have any
//! type.

use crate::types::Type;

/// The only variable of device selectors.
pub(crate) const DEVICE: &str = "device";
/// The type of the variable.
pub(crate) const DEVICE_TYPE: &str = "kubernetes.DRADevice";
pub(crate) const DRIVER: &str = "driver";
pub(crate) const ATTRIBUTES: &str = "attributes";
pub(crate) const CAPACITY: &str = "capacity";
pub(crate) const MULTIPLE: &str = "allowMultipleAllocations";

/// The longest texts and the largest maps that a device has, for estimates of costs.
const DRIVER_LENGTH_MAX: u64 = 63;
const DOMAIN_LENGTH_MAX: u64 = 63;
const IDENTIFIER_LENGTH_MAX: u64 = 32;
const ATTRIBUTES_MAX: u64 = 32;
const ATTRIBUTE_LENGTH_MAX: u64 = 64;

/// The environment in which an expression is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Environment {
    /// Whether attributes can be lists (gate DRAListTypeAttributes).
    pub list_attributes: bool,
    /// Whether the expression is new. A new expression cannot use functions that are allowed only in stored
    /// expressions: `includes`, unless attributes can be lists.
    pub is_new: bool,
    /// The variables of a program; empty for device selectors.
    pub(crate) variables: &'static [&'static str],
    /// The variable of a program that is an optional value; empty if all have values.
    pub(crate) optional: &'static str,
    /// Whether the expression can form the messages of mutations: `JSONPatch`, and `Object` with the types below it.
    pub(crate) forms_messages: bool,
}

/// The types of the messages of mutations.
pub(crate) const JSON_PATCH: &str = "JSONPatch";
pub(crate) const OBJECT: &str = "Object";
/// The fields of a `JSONPatch`.
const PATCH_FIELDS: [(&str, Type); 4] = [
    ("op", Type::String),
    ("path", Type::String),
    ("from", Type::String),
    ("value", Type::Dyn),
];

impl Environment {
    /// The environment of device selectors.
    pub const fn of_devices(list_attributes: bool, is_new: bool) -> Self {
        Self {
            list_attributes,
            is_new,
            variables: &[],
            optional: "",
            forms_messages: false,
        }
    }

    /// The environment of programs with these variables.
    pub(crate) const fn of_variables(variables: &'static [&'static str]) -> Self {
        Self {
            list_attributes: true,
            is_new: true,
            variables,
            optional: "",
            forms_messages: false,
        }
    }

    /// Returns whether expressions can form a message of this name.
    pub(crate) fn has_message(self, name: &str) -> bool {
        let is_below = |name: &str| name.starts_with('.') || name.is_empty();
        self.forms_messages
            && (name == JSON_PATCH || name.strip_prefix(OBJECT).is_some_and(is_below))
    }

    /// The type of a field of a message; `None` when it does not have the field.
    pub(crate) fn message_field(self, message: &str, name: &str) -> Option<Type> {
        match message {
            JSON_PATCH => {
                let mut known = PATCH_FIELDS.into_iter();
                known.find(|(known, _)| *known == name).map(|(_, of)| of)
            }
            _ => Some(Type::Dyn),
        }
    }

    /// The type of a variable.
    pub(crate) fn variable(self, name: &str) -> Option<Type> {
        match self.variables {
            [] => (name == DEVICE).then_some(Type::Object(DEVICE_TYPE)),
            _ if !self.optional.is_empty() && name == self.optional => {
                Some(Type::optional(Type::Dyn))
            }
            known => known.contains(&name).then_some(Type::Dyn),
        }
    }

    /// Returns whether a function is available.
    pub(crate) fn has_function(self, name: &str) -> bool {
        match name {
            "includes" => self.list_attributes || !self.is_new,
            "jsonpatch.escapeKey" => self.forms_messages,
            _ => true,
        }
    }

    /// The type of an attribute.
    pub(crate) fn attribute_type(self) -> Type {
        if self.list_attributes {
            Type::Dyn
        } else {
            Type::Any
        }
    }

    /// The type of a field of the device.
    pub(crate) fn field(self, name: &str) -> Option<Type> {
        let by_name = |value| Type::map(Type::String, Type::map(Type::String, value));
        Some(match name {
            DRIVER => Type::String,
            ATTRIBUTES => by_name(self.attribute_type()),
            CAPACITY => by_name(Type::Object("kubernetes.Quantity")),
            MULTIPLE => Type::Bool,
            _ => return None,
        })
    }

    /// The largest size of the value at a path below the device.
    pub(crate) fn size_max(self, path: &[String]) -> Option<u64> {
        let [root, field, rest @ ..] = path else {
            return (path == [DEVICE]).then_some(0);
        };
        if root != DEVICE {
            return None;
        }
        let depth = rest.len();
        let is_keys = rest.last().is_some_and(|part| part == "@keys");
        // Only attributes may be followed by the name of a field.
        let is_named = |part: &String| !part.starts_with('@');
        let named = rest.iter().any(is_named);
        match field.as_str() {
            DRIVER if depth == 0 => Some(DRIVER_LENGTH_MAX),
            MULTIPLE if depth == 0 => Some(1),
            ATTRIBUTES | CAPACITY => match depth {
                0 => Some(ATTRIBUTES_MAX),
                1 if is_keys => Some(DOMAIN_LENGTH_MAX),
                1 if named => None,
                1 => Some(ATTRIBUTES_MAX),
                2 if is_named(&rest[0]) || rest[0] == "@keys" => None,
                2 if is_keys => Some(IDENTIFIER_LENGTH_MAX),
                2 if field == ATTRIBUTES => Some(ATTRIBUTE_LENGTH_MAX),
                // Quantities have no size.
                2 if named => None,
                2 => Some(0),
                _ => None,
            },
            _ => None,
        }
    }
}
