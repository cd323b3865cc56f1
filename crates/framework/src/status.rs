//! What a plugin answers.

use berth_api::Str;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt;

/// The kind of an answer. The names are those of kube-scheduler's metrics and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Code {
    /// Yes.
    #[default]
    Success,
    /// Something broke; the pod is tried again after a backoff.
    Error,
    /// No, and preemption might help.
    Unschedulable,
    /// No, and removing pods cannot help.
    UnschedulableAndUnresolvable,
    /// Permit asks to wait.
    Wait,
    /// The plugin has nothing to say about this pod.
    Skip,
    /// No, until something comes that is expected to come; the next try needs no backoff.
    Pending,
}

impl Code {
    /// The name, as it stands in metric labels.
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

    /// Whether the pod was turned down (rather than something having gone wrong).
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

/// One reason. Most are constant, so making a status allocates nothing.
pub type Reason = Cow<'static, str>;

/// An answer with its reasons and the plugin that gave it. The default is Success.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    code: Code,
    reasons: SmallVec<[Reason; 1]>,
    error: Option<Box<str>>,
    plugin: Option<Str>,
}

impl Status {
    /// Yes.
    pub fn success() -> Self {
        Self::default()
    }

    /// Nothing to say.
    pub fn skip() -> Self {
        Self::new(Code::Skip, [])
    }

    /// No, but preemption might help.
    pub fn unschedulable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::Unschedulable, [reason.into()])
    }

    /// No, and removing pods cannot help.
    pub fn unresolvable(reason: impl Into<Reason>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, [reason.into()])
    }

    /// No, until something comes that is expected to come.
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

    /// Who answered, where that is known.
    pub fn plugin(&self) -> Option<&Str> {
        self.plugin.as_ref()
    }

    /// Whether the answer is yes.
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }

    /// Whether the plugin has nothing to say.
    pub fn is_skip(&self) -> bool {
        self.code == Code::Skip
    }

    /// Whether the pod was turned down.
    pub fn is_rejected(&self) -> bool {
        self.code.is_rejected()
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

    /// plugins 0.4.
    #[test]
    fn a_message_puts_the_error_first() {
        let mut status = Status::unresolvable("first").with_error("broken");
        status.append_reason("second");
        assert_eq!(status.message(), "broken, first, second");
    }

    /// plugins 0.4: Unschedulable, UnschedulableAndUnresolvable and Pending.
    #[test]
    fn only_turning_down_counts_as_rejection() {
        for (code, rejected) in [
            (Code::Success, false),
            (Code::Error, false),
            (Code::Unschedulable, true),
            (Code::UnschedulableAndUnresolvable, true),
            (Code::Wait, false),
            (Code::Skip, false),
            (Code::Pending, true),
        ] {
            assert_eq!(code.is_rejected(), rejected, "{code}");
        }
    }
}
