//! The places of values in objects, as messages about schemas name them.

use std::fmt;

/// A place below another one. It becomes text only for a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    above: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Entry(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    /// The object, or its separately checked part.
    pub(super) const ROOT: Place<'static> = Place {
        above: None,
        step: Step::Root,
    };

    /// A field that the schema has.
    pub(super) fn field(&'a self, name: &'a str) -> Self {
        self.below(Step::Field(name))
    }

    /// A field that the schema does not have: an entry of a map, or a field that is missing.
    pub(super) fn entry(&'a self, name: &'a str) -> Self {
        self.below(Step::Entry(name))
    }

    /// An entry of a list.
    pub(super) fn index(&'a self, index: usize) -> Self {
        self.below(Step::Index(index))
    }

    pub(super) fn is_root(&self) -> bool {
        self.above.is_none()
    }

    fn below(&'a self, step: Step<'a>) -> Self {
        Self {
            above: Some(self),
            step,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if self.above.is_some_and(Place::is_root) => f.write_str(name),
            // An entry of the root begins with a dot, as in the library that kube-apiserver uses.
            Step::Field(name) | Step::Entry(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}
