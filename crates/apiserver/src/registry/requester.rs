//! The sender of a request, as admission sees it, and the warnings that admission returns to it.

use crate::auth::user::{RequestUser, groups_of};
use std::sync::{Arc, Mutex, PoisonError};

/// A request returns at most so many warnings of admission.
const WARNINGS_MAX: usize = 50;

/// The sender of a request.
#[derive(Debug, Default)]
pub struct Requester {
    /// The user.
    pub user: RequestUser,
    /// Whether this is a component of this process.
    is_component: bool,
    warnings: Mutex<Vec<String>>,
}

impl Requester {
    /// A user.
    pub fn new(user: RequestUser) -> Arc<Self> {
        Arc::new(Self {
            user,
            is_component: false,
            warnings: Mutex::default(),
        })
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
            warnings: Mutex::default(),
        })
    }

    /// Returns whether the request comes from this process, and needs no rights.
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

    /// The warnings so far, which are no longer kept.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *warnings)
    }
}
