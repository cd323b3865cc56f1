//! The sender of a request, as admission sees it, and the warnings that admission returns to it.

use crate::auth::user::{RequestUser, groups_of};
use berth_objects::status::ApiError;
use jiff::Timestamp;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of warnings of admission in a response.
const WARNINGS_MAX: usize = 50;

/// The sender of a request.
#[derive(Debug, Default)]
pub struct Requester {
    /// The user.
    pub user: RequestUser,
    /// Whether this is a component of this process.
    is_component: bool,
    /// The deadline of the request.
    deadline: Option<Timestamp>,
    warnings: Mutex<Vec<String>>,
}

impl Requester {
    /// A user whose request has no deadline.
    pub fn new(user: RequestUser) -> Arc<Self> {
        Self::until(user, None)
    }

    /// A user whose request ends at a time.
    pub(crate) fn until(user: RequestUser, deadline: Option<Timestamp>) -> Arc<Self> {
        Arc::new(Self {
            user,
            deadline,
            ..Self::default()
        })
    }

    /// The time that is left for the request; `None` when it has no end.
    pub(crate) fn left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.deadline?.duration_since(now);
        Some(left.try_into().unwrap_or_default())
    }

    /// Returns whether the time of the request is over.
    pub(crate) fn is_late(&self, now: Timestamp) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// # Errors
    /// 504 after the deadline of the request. Nothing may be stored then.
    pub(crate) fn in_time(&self, now: Timestamp) -> Result<(), ApiError> {
        if self.is_late(now) {
            return Err(ApiError::deadline_exceeded());
        }
        Ok(())
    }

    /// A component of this process, by its name: a service account of the namespace `kube-system`.
    pub(crate) fn component(name: &str) -> Arc<Self> {
        let name = format!("system:serviceaccount:kube-system:{name}");
        let groups = groups_of(&name);
        Arc::new(Self {
            user: RequestUser {
                name,
                groups,
                ..RequestUser::default()
            },
            is_component: true,
            ..Self::default()
        })
    }

    /// Returns whether the request is made by this process and needs no permissions.
    pub(crate) fn is_internal(&self) -> bool {
        self.is_component || self.user.name.is_empty()
    }

    /// Adds a warning to the response, once.
    pub(crate) fn warn(&self, warning: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if warnings.len() < WARNINGS_MAX && !warnings.iter().any(|known| known == warning) {
            warnings.push(warning.to_owned());
        }
    }

    /// Removes and returns the warnings.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *warnings)
    }
}
