//! Failures of a command, each with its exit code.

use std::fmt;

/// The reason why a command ended without success.
#[derive(Debug)]
pub enum CommandFailure {
    /// A check ran and found something: mismatches, violations. Exit code 1; already reported.
    Check,
    /// The command line or a file given on it is wrong. Exit code 2.
    Usage(String),
    /// Something outside is not as needed: a busy port, a file that cannot be written, a cluster out of reach.
    /// Exit code 3.
    Environment(String),
    /// The leader lease was lost. Exit code 1, as of kube-scheduler.
    LeaseLost,
    /// The reader has closed the output. Exit code 141, as of a program that a broken pipe ends.
    Unread,
}

impl CommandFailure {
    /// Wrong command line or input file.
    pub fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    /// Something outside is not as needed.
    pub fn environment(error: impl fmt::Display) -> Self {
        Self::Environment(error.to_string())
    }

    /// The error in words.
    pub fn text(&self) -> &str {
        match self {
            Self::Check => "a check failed",
            Self::LeaseLost => "leader election lost",
            Self::Unread => "the output is not read any more",
            Self::Usage(text) | Self::Environment(text) => text,
        }
    }
}
