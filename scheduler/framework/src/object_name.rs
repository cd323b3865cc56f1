//! The names and keys of API objects in calls and waits.

use berth_api::{Kind, Object, Str};
use std::fmt;

/// The name of an object: there is at most one object of that name at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
}

impl ObjectName {
    /// The object of that name.
    pub fn new(kind: Kind, namespace: &Str, name: &Str) -> Self {
        Self {
            kind,
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }

    /// The name of `object`.
    pub fn of(object: &Object) -> Self {
        let meta = object.metadata();
        Self::new(object.kind(), &meta.namespace, &meta.name)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, _, plural) = self.kind.resource();
        if self.namespace.is_empty() {
            write!(f, "{plural}/{}", self.name)
        } else {
            write!(f, "{plural}/{}/{}", self.namespace, self.name)
        }
    }
}

/// The key of a call. Calls with equal keys are about one object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// The object's kind.
    pub kind: Kind,
    /// The object's identity.
    pub uid: Str,
}
