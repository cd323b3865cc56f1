//! The kinds that the scheduler follows, and an object of any of them.

use crate::{Namespace, Node, ObjectMeta, Pod};
use std::sync::Arc;

/// A kind that the scheduler watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `v1/pods`.
    Pod,
    /// `v1/nodes`.
    Node,
    /// `v1/namespaces`.
    Namespace,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Pod, Self::Node, Self::Namespace];

    /// API group (empty for core), version and plural.
    pub fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("", "v1", "pods"),
            Self::Node => ("", "v1", "nodes"),
            Self::Namespace => ("", "v1", "namespaces"),
        }
    }

    /// Decodes an object of this kind from the API's JSON.
    ///
    /// # Errors
    /// When the JSON is malformed or a field has the wrong type.
    pub fn decode(self, json: &[u8]) -> Result<Object, serde_json::Error> {
        Ok(match self {
            Self::Pod => Object::Pod(Arc::new(serde_json::from_slice(json)?)),
            Self::Node => Object::Node(Arc::new(serde_json::from_slice(json)?)),
            Self::Namespace => Object::Namespace(Arc::new(serde_json::from_slice(json)?)),
        })
    }
}

/// An object of a kind that the scheduler follows. Cloning shares.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A pod.
    Pod(Arc<Pod>),
    /// A node.
    Node(Arc<Node>),
    /// A namespace.
    Namespace(Arc<Namespace>),
}

impl Object {
    /// The kind of the object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::Namespace(_) => Kind::Namespace,
        }
    }

    /// The metadata of the object.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Pod(pod) => &pod.metadata,
            Self::Node(node) => &node.metadata,
            Self::Namespace(namespace) => &namespace.metadata,
        }
    }

    /// The pod, if it is one.
    pub fn as_pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Self::Pod(pod) => Some(pod),
            _ => None,
        }
    }

    /// The node, if it is one.
    pub fn as_node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Node(node) => Some(node),
            _ => None,
        }
    }
}
