//! The place of a value in an object, as a chain on the stack: it is free until an error prints it.

use std::fmt;

/// One step from the root of an object to a value in it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SchemaPath<'a> {
    /// The object itself.
    Root,
    /// A field of a known type.
    Field(&'a SchemaPath<'a>, &'a str),
    /// An entry of a map.
    Key(&'a SchemaPath<'a>, &'a str),
    /// An entry of a list.
    Index(&'a SchemaPath<'a>, usize),
}

impl SchemaPath<'_> {
    /// The place as a JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(parent, name) | Self::Key(parent, name) => {
                let name = name.replace('~', "~0").replace('/', "~1");
                format!("{}/{name}", parent.pointer())
            }
            Self::Index(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }

    /// The names of the fields alone, as decoding errors print a place: `spec.containers.name`.
    pub(crate) fn field_names(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, _) | Self::Index(parent, _) => parent.field_names(),
            Self::Field(parent, name) => {
                let mut path = parent.field_names();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                path
            }
        }
    }
}

impl fmt::Display for SchemaPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) | Self::Key(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) | Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
