//! The errors of requests to the API.

use serde::Deserialize;

/// A connection to a cluster could not be set up. The text states the places that were searched and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error(
        "failed to use kubeconfig {path}: {reason}; give another one with --kubeconfig FILE or KUBECONFIG"
    )]
    Kubeconfig {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "failed to find a cluster: no kubeconfig was given, none is at KUBECONFIG or ~/.kube/config, and this is \
         not a pod of a cluster ({0}); give one with --kubeconfig FILE"
    )]
    NoCluster(String),
    /// The client could not be built from a configuration that was found.
    #[error("failed to set up the connection to {server}: {reason}")]
    Client {
        /// The server's address.
        server: String,
        /// The reason.
        reason: String,
    },
}

/// A request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The server answered with an error.
    #[error("{message}")]
    Status {
        /// The HTTP code.
        code: u16,
        /// The machine-readable reason, such as `Conflict`; may be empty.
        reason: String,
        /// For people.
        message: String,
        /// The `Retry-After` of the server, in seconds.
        retry_after_seconds: Option<u64>,
    },
    /// There was no answer in time. The request may have been carried out.
    #[error("no answer within {seconds} s")]
    Timeout {
        /// The wait.
        seconds: u64,
    },
    /// The server could not be reached, or the connection broke.
    #[error("connection failed: {0}")]
    Transport(String),
    /// It was not sent: this process no longer leads, or has not renewed its lease in time.
    #[error("not sent: the leader lease of this process is not renewed")]
    NotLeading,
    /// It was not sent: the connection only reads.
    #[error("not sent: {request} writes, and this connection only reads")]
    ReadOnly {
        /// Method and path.
        request: String,
    },
    /// The answer could not be understood.
    #[error("failed to decode the answer to {request}: {reason}")]
    Decode {
        /// Method and path.
        request: String,
        /// The fault.
        reason: String,
    },
}

impl ApiError {
    /// The HTTP code, where the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns whether it is not for us to do.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the namespace of the object is being deleted, and the object with it.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        match self {
            Self::Status { code, message, .. } => {
                *code == 403 && message.contains("because it is being terminated")
            }
            _ => false,
        }
    }

    /// Returns whether the requested version is too old for a watch.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Returns whether the requested version is newer than all versions of the server: the server or its data are not
    /// the source of the version.
    pub fn is_version_too_large(&self) -> bool {
        match self {
            Self::Status { code, message, .. } => {
                *code == 504 && message.contains("Too large resource version")
            }
            _ => false,
        }
    }

    /// Returns whether the server cannot be reached, or not with our credentials.
    pub fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Status { code, .. } => *code == 401,
            Self::Timeout { .. } | Self::Transport(_) => true,
            Self::NotLeading | Self::ReadOnly { .. } | Self::Decode { .. } => false,
        }
    }

    /// Returns whether the same request may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 429 | 500 | 502 | 503 | 504),
            Self::Timeout { .. } | Self::Transport(_) | Self::NotLeading => true,
            Self::ReadOnly { .. } | Self::Decode { .. } => false,
        }
    }
}

/// An error with its causes: the outermost alone is often not specific.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The part of a `Status` that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusBody {
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) code: u16,
    pub(crate) details: Option<StatusDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusDetails {
    pub(crate) retry_after_seconds: Option<u64>,
}

impl StatusBody {
    pub(crate) fn into_error(self, http_code: u16) -> ApiError {
        ApiError::Status {
            code: if self.code == 0 { http_code } else { self.code },
            reason: self.reason,
            message: if self.message.is_empty() {
                format!("the server answered with HTTP {http_code}")
            } else {
                self.message
            },
            retry_after_seconds: self.details.and_then(|d| d.retry_after_seconds),
        }
    }
}
