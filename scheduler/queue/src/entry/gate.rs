//! The rejection of a pod by a PreEnqueue plugin.

use berth_api::Str;
use berth_framework::plugin::PreEnqueue;
use berth_framework::{ReasonCode, Status};

/// A PreEnqueue plugin that rejects a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    pub(crate) plugin: Str,
    /// The reason of the condition.
    pub(crate) reason: &'static str,
    /// The message of the plugin; empty without reports.
    pub(crate) message: Str,
    /// The code of the rejection.
    pub(crate) code: ReasonCode,
    pub(crate) follows_attempt: bool,
    /// Whether the plugin rejects another member of the pod's group instead of the pod.
    pub(crate) is_of_sibling: bool,
}

impl Gate {
    /// The rejection by a plugin. A stated message is mandatory: a plugin without one gets a default that names
    /// the plugin.
    pub(crate) fn of(
        name: &Str,
        plugin: &dyn PreEnqueue,
        status: &Status,
        is_stated: bool,
    ) -> Self {
        let message = match status.message() {
            _ if !is_stated => Str::default(),
            none if none.is_empty() => {
                Str::from(format!("the PreEnqueue plugin {name} does not say why"))
            }
            message => Str::from(message),
        };
        Self {
            plugin: name.clone(),
            reason: plugin.condition_reason(),
            message,
            code: status.reason_code(),
            follows_attempt: plugin.follows_attempt(),
            is_of_sibling: false,
        }
    }

    /// Returns whether the reason is one of the whole group, which applies to all members.
    pub(crate) fn is_of_group(&self) -> bool {
        self.code == ReasonCode::PodGroup
    }

    /// The gate of a pod that another pod with its name has replaced, without a report.
    pub(crate) fn of_another_pod(self) -> Self {
        Self {
            message: Str::default(),
            ..self
        }
    }
}
