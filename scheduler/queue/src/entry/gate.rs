//! The rejection of a pod by a PreEnqueue plugin.

use berth_api::Str;
use berth_framework::ReasonCode;
use std::borrow::Cow;

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
    /// Returns whether the reason is one of the whole group, which applies to all members at once.
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

/// The message of a plugin. A message is mandatory: a plugin without one gets a default that names the plugin.
pub(crate) fn message_of(plugin: &str, message: &str) -> Str {
    let message: Cow<'_, str> = if message.is_empty() {
        format!("the PreEnqueue plugin {plugin} does not say why").into()
    } else {
        message.into()
    };
    Str::new(&message)
}
