//! Types of API calls: the lane, the relevance and the merge rule of all writes of a type.

use super::Write;
use berth_api::Kind;
use std::ptr;

/// The lane of a call. Each lane has a share of the calls that may be in flight; higher lanes are sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Bindings.
    Binding,
    /// Evictions of preemption victims.
    Deletion,
    /// Writes of other objects: volumes, claims, and whatever plugins register.
    Write,
    /// Conditions and nominations of pods.
    Status,
}

impl Lane {
    /// All lanes, highest first.
    pub const ALL: [Self; 4] = [Self::Binding, Self::Deletion, Self::Write, Self::Status];
}

/// The reason why two writes cannot be merged into one call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// One of them is no merge patch.
    #[error("only merge patches can be merged")]
    NoPatch,
    /// They patch different subresources.
    #[error("one call cannot patch two subresources, {older:?} and {newer:?}")]
    Subresources {
        /// The subresource of the older write.
        older: &'static str,
        /// The subresource of the newer write.
        newer: &'static str,
    },
    /// Both are to be made, the older one first.
    #[error("both writes are made, one after the other")]
    Separate,
    /// The function of the type refuses them.
    #[error("{0}")]
    Refused(String),
}

impl From<&str> for MergeError {
    fn from(text: &str) -> Self {
        Self::Refused(text.to_owned())
    }
}

/// The handling of a waiting write when a newer one of its type is made for the same object. Two equal writes always
/// become one call with one result.
#[derive(Debug, Clone, Copy)]
pub enum Merge {
    /// The newer write replaces the older one.
    Replace,
    /// Both are merge patches and become one; where they set the same field, the newer one takes precedence.
    Patches,
    /// The function makes one write of the older and the newer one. After [`MergeError::Separate`], the newer write waits
    /// behind the older one; another error fails the newer write.
    With(fn(&Write, &Write) -> Result<Write, MergeError>),
}

/// A type of API calls. A plugin declares each of its types as a `static`.
#[derive(Debug, Clone, Copy)]
pub struct CallType {
    name: &'static str,
    kind: Kind,
    relevance: u8,
    lane: Lane,
    pub(super) merge: Merge,
    pub(super) holds_after: Option<fn(&Write, &Write) -> bool>,
}

/// `pod_status_patch`: conditions and nominated node of a pod.
pub static POD_STATUS_PATCH: CallType = CallType::of_pods("pod_status_patch", 1, Lane::Status);
/// `pod_binding`.
pub static POD_BINDING: CallType = CallType::of_pods("pod_binding", 2, Lane::Binding);
/// `pod_deletion`: evictions.
pub static POD_DELETION: CallType = CallType::of_pods("pod_deletion", 3, Lane::Deletion);

impl CallType {
    /// A type of writes to objects of a kind, with relevance 1 and [`Merge::Replace`]. `name` is the `call_type` label
    /// of the metrics, such as `resource_claim_update`.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            relevance: 1,
            lane: Lane::Write,
            merge: Merge::Replace,
            holds_after: None,
        }
    }

    const fn of_pods(name: &'static str, relevance: u8, lane: Lane) -> Self {
        Self {
            name,
            kind: Kind::Pod,
            relevance,
            lane,
            merge: Merge::Replace,
            holds_after: None,
        }
    }

    /// With another relevance. Of two calls about one object, the more relevant one takes precedence and the other is
    /// dropped. No two types of a kind have the same relevance; status patches, bindings and deletions of pods have 1,
    /// 2 and 3.
    #[must_use]
    pub const fn with_relevance(mut self, relevance: u8) -> Self {
        self.relevance = relevance;
        self
    }

    /// With another merge rule.
    #[must_use]
    pub const fn merging(mut self, merge: Merge) -> Self {
        self.merge = merge;
        self
    }

    /// Lets a write be valid for the version that an earlier write of the type creates, if the function returns true
    /// for the earlier and the later write. A waiting write is then sent for that version. Without it, the first of
    /// several writes for a version succeeds, and the others fail with a conflict.
    #[must_use]
    pub const fn holding_after(mut self, holds_after: fn(&Write, &Write) -> bool) -> Self {
        self.holds_after = Some(holds_after);
        self
    }

    /// The `call_type` label of the metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The kind of the objects that such calls are about.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// See [`Self::with_relevance`].
    pub fn relevance(&self) -> u8 {
        self.relevance
    }

    /// The lane of calls of this type.
    pub fn lane(&self) -> Lane {
        self.lane
    }
}

/// Types are distinguished by name.
impl PartialEq for CallType {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other) || self.name == other.name
    }
}

impl Eq for CallType {}
