//! The selected controllers, by kube-controller-manager's names.

use std::collections::BTreeSet;
use std::str::FromStr;

/// Names the controllers, and lists all of them.
macro_rules! controllers {
    ($($constant:ident = $name:literal,)*) => {
        $(pub(super) const $constant: &str = $name;)*
        const NAMES: &[&str] = &[$($name),*];
    };
}

controllers! {
    CLAIM_PROTECTION = "persistentvolumeclaim-protection-controller",
    CRON_JOB = "cronjob-controller",
    DAEMON_SET = "daemonset-controller",
    DEPLOYMENT = "deployment-controller",
    DISRUPTION = "disruption-controller",
    ENDPOINT_SLICE = "endpointslice-controller",
    ENDPOINT_SLICE_MIRRORING = "endpointslice-mirroring-controller",
    ENDPOINTS = "endpoints-controller",
    EVENT_TTL = "event-ttl-controller",
    GARBAGE_COLLECTOR = "garbage-collector-controller",
    GROUP_PROTECTION = "podgroup-protection-controller",
    JOB = "job-controller",
    NAMESPACE = "namespace-controller",
    NODE_LIFECYCLE = "node-lifecycle-controller",
    PERSISTENT_VOLUME_BINDER = "persistentvolume-binder-controller",
    POD_GARBAGE_COLLECTOR = "pod-garbage-collector-controller",
    POLICY_STATUS = "validatingadmissionpolicy-status-controller",
    REPLICASET = "replicaset-controller",
    REPLICATION_CONTROLLER = "replicationcontroller-controller",
    RESOURCE_CLAIM = "resourceclaim-controller",
    RESOURCE_QUOTA = "resourcequota-controller",
    SERVICE_ACCOUNT = "serviceaccount-controller",
    STATEFUL_SET = "statefulset-controller",
    VOLUME_PROTECTION = "persistentvolume-protection-controller",
}

/// The controllers that run: `on` (all), `off` (none), or names separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Selection {
    /// All of them.
    #[default]
    All,
    /// These only.
    Named(BTreeSet<&'static str>),
}

/// A name that no controller has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown controller {0:?}; use on, off, or some of {names}", names = NAMES.join(","))]
pub struct UnknownController(String);

impl Selection {
    /// Returns whether a controller runs.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }

    /// Returns whether no controller runs.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(names) if names.is_empty())
    }
}

impl FromStr for Selection {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, UnknownController> {
        match text {
            "on" => return Ok(Self::All),
            "off" => return Ok(Self::Named(BTreeSet::new())),
            _ => {}
        }
        let named = text.split(',').map(|name| {
            let known = NAMES.iter().copied().find(|known| *known == name);
            known.ok_or_else(|| UnknownController(name.to_owned()))
        });
        named.collect::<Result<_, _>>().map(Self::Named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_selected_by_name() {
        for (text, namespace, deployment) in [
            ("on", true, true),
            ("off", false, false),
            ("namespace-controller", true, false),
            ("namespace-controller,deployment-controller", true, true),
        ] {
            let selection: Selection = text.parse().expect(text);
            assert_eq!(selection.has(NAMESPACE), namespace, "{text}");
            assert_eq!(selection.has(DEPLOYMENT), deployment, "{text}");
        }
        let error = "namespaces".parse::<Selection>().unwrap_err().to_string();
        assert!(
            error.contains("unknown controller \"namespaces\""),
            "{error}"
        );
        assert!(error.contains("namespace-controller"), "{error}");
    }
}
