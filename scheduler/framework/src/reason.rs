//! The reason of a status: a text for people and a code for programs. The texts are identical to kube-scheduler's,
//! because clients compare them; some contain names and numbers. The codes are stable.

use berth_api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// The text of a shortage of a resource is this and its name.
const INSUFFICIENT: &str = "Insufficient ";
/// The text for a node that runs its maximum number of pods.
pub const TOO_MANY_PODS: &str = "Too many pods";

/// Declares the codes: their names are those of the variants.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident),* $(,)?) => {
        /// The code of a reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub enum ReasonCode {
            $($(#[$doc])* $code,)*
            /// Any other reason.
            #[default]
            Other,
        }

        impl ReasonCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$code,)* Self::Other];

            /// The name of the code in the output for programs.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => stringify!($code),)*
                    Self::Other => "Other",
                }
            }
        }
    };
}

codes! {
    /// Too little of a resource is free.
    InsufficientResource,
    /// The node runs its maximum number of pods.
    TooManyPods,
    /// The pod does not tolerate a taint.
    UntoleratedTaint,
    /// The node selector or the required node affinity does not match.
    NodeAffinityMismatch,
    /// The pod names another node.
    NodeNameMismatch,
    /// The node is cordoned.
    NodeCordoned,
    /// A host port is in use.
    HostPortTaken,
    /// The node does not have the label of a topology spread constraint.
    TopologyLabelMissing,
    /// The topology domain would have too many pods.
    TopologySpread,
    /// A pod in the topology domain excludes the pod.
    ExistingPodsAntiAffinity,
    /// The pod excludes a pod in the topology domain.
    PodAntiAffinity,
    /// The pod requires other pods in the topology domain.
    PodAffinity,
    /// A volume is in other zones.
    VolumeZoneMismatch,
    /// A claim of the pod does not exist or cannot be used.
    ClaimMissing,
    /// A claim has no volume and its class binds at once.
    ClaimUnbound,
    /// The node cannot access a volume.
    VolumeNodeAffinity,
    /// No volume can be found or provisioned for a claim.
    VolumeUnavailable,
    /// Too little storage is free.
    StorageFull,
    /// The volume of a claim does not exist.
    VolumeMissing,
    /// Another pod uses a disk that cannot be shared.
    DiskTaken,
    /// Another pod uses a claim that only one pod may use.
    ReadWriteOncePodTaken,
    /// The node can attach too few volumes.
    VolumeLimit,
    /// The node does not declare a feature.
    FeatureMissing,
    /// Devices cannot be allocated.
    DevicesUnavailable,
    /// The pod has scheduling gates.
    SchedulingGate,
    /// The group of the pod is not ready.
    PodGroup,
    /// A deferred quota has no room for the pod.
    DeferredQuota,
    /// The kubelet of the node rejected pods of the template.
    KubeletRejections,
    /// The victims of the pod have not been evicted yet.
    Preempting,
    /// An extender rejects the node.
    Extender,
}

impl ReasonCode {
    /// A reason with this code.
    pub fn reason(self, text: impl Into<Cow<'static, str>>) -> Reason {
        let text = text.into();
        Reason { code: self, text }
    }

    /// The resource that is short, from the code and the text of a reason.
    pub fn resource(self, text: &str) -> Option<&str> {
        match self {
            Self::InsufficientResource => text.strip_prefix(INSUFFICIENT),
            Self::TooManyPods => Some(PODS),
            _ => None,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One reason of a status. Most texts are constant, so that a status allocates nothing. A reason without a code is made
/// from its text alone. Reasons are equal if their texts are.
#[derive(Debug, Clone)]
pub struct Reason {
    code: ReasonCode,
    text: Cow<'static, str>,
}

impl Reason {
    /// The reason of a node with too little of a resource; `pods` for its places.
    pub fn insufficient(resource: &str) -> Self {
        let text = match resource {
            PODS => return ReasonCode::TooManyPods.reason(TOO_MANY_PODS),
            CPU => "Insufficient cpu".into(),
            MEMORY => "Insufficient memory".into(),
            EPHEMERAL_STORAGE => "Insufficient ephemeral-storage".into(),
            other => Cow::from(format!("{INSUFFICIENT}{other}")),
        };
        ReasonCode::InsufficientResource.reason(text)
    }

    /// The code.
    pub fn code(&self) -> ReasonCode {
        self.code
    }
}

impl Deref for Reason {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for Reason {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        ReasonCode::Other.reason(text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        ReasonCode::Other.reason(text)
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Reason {}

impl PartialEq<&str> for Reason {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

impl std::hash::Hash for Reason {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_resource_names_it() {
        for (resource, text, code) in [
            ("cpu", "Insufficient cpu", ReasonCode::InsufficientResource),
            (
                "memory",
                "Insufficient memory",
                ReasonCode::InsufficientResource,
            ),
            (
                "a.b/gpu",
                "Insufficient a.b/gpu",
                ReasonCode::InsufficientResource,
            ),
            ("pods", TOO_MANY_PODS, ReasonCode::TooManyPods),
        ] {
            let reason = Reason::insufficient(resource);
            assert_eq!(reason, text);
            assert_eq!(reason.code(), code);
            assert_eq!(code.resource(&reason), Some(resource));
        }
        assert_eq!(ReasonCode::Other.resource("Insufficient cpu"), None);
        assert_eq!(ReasonCode::VolumeLimit.to_string(), "VolumeLimit");
    }
}
