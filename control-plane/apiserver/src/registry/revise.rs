//! Optimistic writes: an object is read, and written if no other write was stored in the meantime.

use super::api::Api;
use crate::storage::{ObjectVersion, StoreError};
use berth_objects::catalog::ServedResource;
use berth_objects::status::ApiError;
use std::sync::Arc;

/// The maximum number of attempts of a write after concurrent writes. With many writers of one object, each attempt
/// fails because another one succeeded.
pub(super) const WRITE_ATTEMPTS_MAX: usize = 1_000;

impl Api {
    /// Writes the result of `attempt`. After a concurrent write, `attempt` is called again with the newer version.
    ///
    /// # Errors
    /// The errors of `attempt`; 404; 409 after too many concurrent writes.
    pub(super) fn revise<T>(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        mut attempt: impl FnMut(Arc<ObjectVersion>) -> Result<Result<T, StoreError>, ApiError>,
    ) -> Result<T, ApiError> {
        for _ in 0..WRITE_ATTEMPTS_MAX {
            match attempt(self.get(resource, namespace, name)?)? {
                Ok(written) => return Ok(written),
                Err(StoreError::NotFound) => {
                    return Err(ApiError::not_found(resource.subject(name)));
                }
                Err(_) => {}
            }
        }
        Err(ApiError::modified(resource.subject(name)))
    }
}
