//! Jobs: work of plugins and extenders that needs I/O. The edge carries it out while the cycle is parked.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;

/// Identifies a job from its start until its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// The reason why a job has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The job failed.
    #[error("{0}")]
    Failed(String),
    /// The job returned a value of another type than the caller reads.
    #[error("the job returned a value of another type")]
    OtherType,
    /// The job did not end before the deadline of the wait.
    #[error("the job took too long")]
    Deadline,
    /// The plugin waited for something else.
    #[error("{0}, not the job")]
    OtherWait(&'static str),
}

impl From<String> for JobError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<&str> for JobError {
    fn from(text: &str) -> Self {
        Self::Failed(text.to_owned())
    }
}

/// The result of a job: a value for its plugin, or why there is none.
pub type JobResult = Result<Box<dyn Any + Send>, JobError>;

/// Work that needs I/O. The edge polls it, so it may await anything.
pub type Job = Pin<Box<dyn Future<Output = JobResult> + Send>>;

/// The job of a future; its value is the value of the future.
pub fn of<T: Any + Send, E: Into<JobError>>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Job {
    Box::pin(async move {
        let value: Box<dyn Any + Send> = Box::new(work.await.map_err(Into::into)?);
        Ok(value)
    })
}
