//! Errors of the input: each names the object, the place and the remedy.

use thiserror::Error;

/// An error in the objects, the configuration or the question. Nothing was scheduled.
///
/// A *place* is the name that the caller gave a text or an object, with the number of the document in it, such as
/// `cluster.yaml, document 3`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InputError {
    /// A text is neither JSON nor YAML.
    #[error("failed to parse {place}: {reason}")]
    Text {
        /// The document.
        place: String,
        /// The fault.
        reason: String,
    },
    /// An object is malformed, or a change does not apply to the cluster.
    #[error("{place}: {reason}")]
    Object {
        /// The document.
        place: String,
        /// The fault, with the remedy.
        reason: String,
    },
    /// A field of an object has a value of the wrong type.
    #[error("failed to decode {object}: {reason}")]
    Field {
        /// Kind, namespace and name of the object.
        object: String,
        /// The fault.
        reason: String,
    },
    /// An object was added twice.
    #[error(
        "{place}: {object} was added before ({first}); replace it with ClusterObjects::set, or leave one of the two out"
    )]
    Duplicate {
        /// The second place.
        place: String,
        /// Kind, namespace and name of the object.
        object: String,
        /// The first place.
        first: String,
    },
    /// A pod that the question names does not exist.
    #[error(
        "there is no pod {pod}{hint}; add the pod to the cluster, or name it as NAMESPACE/NAME"
    )]
    Pod {
        /// The pod as it was named.
        pod: String,
        /// A similar name, or nothing.
        hint: String,
    },
    /// A node to drain does not exist.
    #[error("failed to drain {node}: there is no such node{hint}")]
    Drain {
        /// The node.
        node: String,
        /// A similar name, or nothing.
        hint: String,
    },
    /// The shape of new nodes is neither an existing node nor a list of resources.
    #[error("node shape {shape}: {reason}")]
    Shape {
        /// The shape as it was given.
        shape: String,
        /// The fault, with the remedy.
        reason: String,
    },
    /// The configuration or its plugins' arguments are invalid; all faults with their fields.
    #[error("{0}")]
    Configuration(String),
    /// Feature gates cannot be set as requested.
    #[error("feature gates: {0}")]
    FeatureGates(String),
    /// The configuration has extenders, which are servers and cannot be called.
    #[error(
        "the configuration has extenders, which are not called, so the result would differ from the scheduler's; give \
         a configuration without extenders"
    )]
    Extenders,
    /// Two parts of a question exclude each other.
    #[error("{0}")]
    Question(&'static str),
}

impl InputError {
    pub(crate) fn object(place: &str, reason: impl Into<String>) -> Self {
        Self::Object {
            place: place.to_owned(),
            reason: reason.into(),
        }
    }
}
