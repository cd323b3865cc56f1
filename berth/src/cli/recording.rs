//! Values of the options of `berth replay`.

use berth_api::{Duration, Time};
use std::str::FromStr;

/// A time of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Moment {
    /// This time.
    At(Time),
    /// This time after the beginning.
    After(Duration),
}

impl Moment {
    /// The time in a recording that begins then.
    pub(crate) fn time(self, beginning: Time) -> Time {
        match self {
            Self::At(time) => time,
            Self::After(span) => beginning + span,
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self::At(time));
        }
        let seconds: Option<f64> = text.parse().ok();
        let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        span.map(Self::After)
            .ok_or_else(|| "must be like 2026-01-31T12:00:00Z, or seconds like 12.5".to_owned())
    }
}

/// The explanation of a moment of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExplainedAt {
    /// A pod: its namespace and name.
    Pod(String, String),
    /// A node.
    Node(String),
    /// The queue.
    Queue,
}

impl FromStr for ExplainedAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            ["pod", name] => Ok(Self::Pod("default".to_owned(), name.to_owned())),
            ["pod", namespace, name] => Ok(Self::Pod(namespace.to_owned(), name.to_owned())),
            ["node", name] => Ok(Self::Node(name.to_owned())),
            ["queue"] => Ok(Self::Queue),
            _ => Err("give pod/NAME, pod/NAMESPACE/NAME, node/NAME or queue".to_owned()),
        }
    }
}
