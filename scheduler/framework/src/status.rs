//! The status that a plugin returns.

use crate::reason::{Reason, ReasonCode};
use berth_api::Str;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;

/// The code of a status. The names are those of kube-scheduler's metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Code {
    /// Accepted.
    #[default]
    Success,
    /// A failure; the pod is retried after a backoff.
    Error,
    /// Rejected; preemption might help.
    Unschedulable,
    /// Rejected; the removal of pods cannot help.
    UnschedulableAndUnresolvable,
    /// Permit asks to wait.
    Wait,
    /// The plugin has no part in the decision about this pod.
    Skip,
    /// Rejected until an expected event occurs; the next attempt needs no backoff.
    Pending,
}

impl Code {
    /// The name, as in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Error => "Error",
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Pending => "Pending",
        }
    }

    /// Returns whether the pod was rejected. An error is no rejection.
    pub fn is_rejected(self) -> bool {
        matches!(
            self,
            Self::Unschedulable | Self::UnschedulableAndUnresolvable | Self::Pending
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An answer with its reasons and the plugin that gave it. The default is Success.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Status {
    code: Code,
    reasons: SmallVec<[Reason; 1]>,
    error: Option<Box<str>>,
    plugin: Option<Str>,
}

impl Status {
    /// Accepted.
    pub fn success() -> Self {
        Self::default()
    }

    /// The plugin has no part in the decision.
    pub fn skip() -> Self {
        Self::new(Code::Skip, [])
    }

    /// Rejected; preemption might help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unschedulable, [reason.into()])
    }

    /// Rejected; the removal of pods cannot help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, [reason.into()])
    }

    /// Rejected until an expected event occurs.
    pub fn pending(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Pending, [reason.into()])
    }

    /// Something broke.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            code: Code::Error,
            error: Some(text.into().into_boxed_str()),
            ..Self::default()
        }
    }

    /// Any answer.
    pub fn new(code: Code, reasons: impl IntoIterator<Item = Reason>) -> Self {
        Self {
            code,
            reasons: reasons.into_iter().collect(),
            error: None,
            plugin: None,
        }
    }

    /// This answer as given by `plugin`.
    #[must_use]
    pub fn by(mut self, plugin: &str) -> Self {
        self.plugin = Some(Str::new(plugin));
        self
    }

    /// This answer as given by a plugin whose name is shared already.
    #[must_use]
    pub fn from_plugin(mut self, plugin: &Str) -> Self {
        self.plugin = Some(plugin.clone());
        self
    }

    /// This answer with the text of an error put before its reasons.
    #[must_use]
    pub fn with_error(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into().into_boxed_str());
        self
    }

    /// Adds a reason.
    pub fn append_reason(&mut self, reason: impl Into<Reason>) {
        self.reasons.push(reason.into());
    }

    /// The kind of the answer.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The reasons, without the error.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// The code of its first reason.
    pub fn reason_code(&self) -> ReasonCode {
        self.reasons.first().map(Reason::code).unwrap_or_default()
    }

    /// The plugin that answered, if known.
    pub fn plugin(&self) -> Option<&Str> {
        self.plugin.as_ref()
    }

    /// Returns whether the answer is yes.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// Returns whether the code is Skip.
    pub fn is_skip(&self) -> bool {
        self.code == Code::Skip
    }

    /// Returns whether the pod was rejected.
    pub fn is_rejected(&self) -> bool {
        self.code.is_rejected()
    }

    /// The cause of an error: its error text if it has one, otherwise its reasons. `None` for a success.
    pub fn as_error(&self) -> Option<Cow<'_, str>> {
        match &self.error {
            _ if self.is_success() => None,
            Some(error) => Some(Cow::Borrowed(error)),
            None => Some(Cow::Owned(self.message())),
        }
    }

    /// The error and the reasons, joined by `, `.
    pub fn message(&self) -> String {
        let mut text = String::new();
        for part in self
            .error
            .as_deref()
            .into_iter()
            .chain(self.reasons.iter().map(AsRef::as_ref))
        {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(part);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-3: the message of a status, and its message as the cause of another error.
    #[test]
    fn a_message_puts_the_error_first() {
        let mut full = Status::unresolvable("first").with_error("broken");
        full.append_reason("second");
        let mut reasons = Status::unschedulable("first");
        reasons.append_reason("second");
        for (status, message, as_error) in [
            (full, "broken, first, second", Some("broken")),
            (reasons, "first, second", Some("first, second")),
            (Status::error("broken"), "broken", Some("broken")),
            (Status::skip(), "", Some("")),
            (Status::success(), "", None),
            (Status::new(Code::Success, ["fine".into()]), "fine", None),
        ] {
            assert_eq!(status.message(), message, "{status:?}");
            assert_eq!(status.as_error().as_deref(), as_error, "{status:?}");
        }
    }

    /// F-2: the names of the codes, and which of them reject a pod.
    #[test]
    fn codes_have_names_and_three_of_them_reject() {
        for (code, name, rejected) in [
            (Code::Success, "Success", false),
            (Code::Error, "Error", false),
            (Code::Unschedulable, "Unschedulable", true),
            (
                Code::UnschedulableAndUnresolvable,
                "UnschedulableAndUnresolvable",
                true,
            ),
            (Code::Wait, "Wait", false),
            (Code::Skip, "Skip", false),
            (Code::Pending, "Pending", true),
        ] {
            assert_eq!((code.as_str(), code.to_string()), (name, name.to_owned()));
            assert_eq!(code.is_rejected(), rejected, "{code}");
            let status = Status::new(code, []);
            assert_eq!(status.is_rejected(), rejected, "{code}");
            assert_eq!(status.is_success(), code == Code::Success, "{code}");
            assert_eq!(status.is_skip(), code == Code::Skip, "{code}");
        }
        assert!(Status::default().is_success(), "no status is a success");
    }

    /// F-4: a status has the name of the plugin that returned it; the framework adds the name.
    #[test]
    fn a_status_remembers_its_plugin() {
        let status = Status::unschedulable("no");
        assert_eq!(status.plugin(), None);
        let status = status.by("A");
        assert_eq!(status.plugin().map(Str::as_str), Some("A"));
        let status = status.from_plugin(&"B".into());
        assert_eq!(status.plugin().map(Str::as_str), Some("B"));
        assert_eq!(status.message(), "no");
    }
}
