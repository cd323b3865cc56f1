//! A bearer token in a file, such as the token of a service account, which the kubelet replaces before it expires.

use crate::{ApiError, ConnectError};
use http::HeaderValue;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which the file of a token is read again.
const READ_EVERY: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    state: Mutex<TokenState>,
}

#[derive(Debug, Clone)]
struct TokenState {
    header: HeaderValue,
    read: Instant,
}

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, or does not contain a token.
    pub(crate) fn open(path: &Path) -> Result<Self, ConnectError> {
        let header = read(path).map_err(|error| ConnectError::Kubeconfig {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        let read = Instant::now();
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(TokenState { header, read }),
        })
    }

    /// The value of the Authorization header. An unreadable file is logged, and the last token is used.
    pub(crate) fn header(&self, now: Instant) -> HeaderValue {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.read) >= READ_EVERY {
            state.read = now;
            match read(&self.path) {
                Ok(header) => state.header = header,
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(file = %self.path.display(), error, "failed to read the token file again; using the previous token");
                }
            }
        }
        state.header.clone()
    }

    /// The token in the file, if it differs from the rejected token.
    pub(crate) fn renewed(&self, error: &ApiError, now: Instant) -> Option<HeaderValue> {
        if error.code() != Some(401) {
            return None;
        }
        let header = read(&self.path).ok()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = state.header != header;
        *state = TokenState { header, read: now };
        is_other.then(|| state.header.clone())
    }
}

/// A file has no token.
#[derive(Debug, thiserror::Error)]
enum TokenFileError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error("the file holds no token")]
    Empty,
    #[error("the file does not hold a token")]
    Malformed,
}

fn read(path: &Path) -> Result<HeaderValue, TokenFileError> {
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenFileError::Empty);
    }
    let mut header =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| TokenFileError::Malformed)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_again_after_a_minute_or_when_it_is_rejected() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).expect("a temporary file");
        let rejected = ApiError::Status {
            code: 401,
            reason: String::new(),
            message: String::new(),
            retry_after_seconds: None,
        };
        write("first\n");
        let file = TokenFile::open(&path).expect("a token");
        let begin = Instant::now();
        write("second\n");
        assert_eq!(file.header(begin), "Bearer first");
        assert_eq!(file.header(begin + READ_EVERY), "Bearer second");
        assert_eq!(file.renewed(&rejected, begin), None, "it is the same one");
        write("third");
        let renewed = file.renewed(&rejected, begin);
        assert_eq!(renewed, Some(HeaderValue::from_static("Bearer third")));
        let other = ApiError::Timeout { seconds: 1 };
        write("fourth");
        assert_eq!(file.renewed(&other, begin), None);
        // The previous token is used after the file is deleted.
        std::fs::remove_file(&path).expect("the file is there");
        let later = begin + 2 * READ_EVERY;
        assert_eq!(file.header(later), "Bearer third");
        let error = TokenFile::open(&path).expect_err("there is no file");
        assert!(error.to_string().contains("/token"), "{error}");
    }
}
