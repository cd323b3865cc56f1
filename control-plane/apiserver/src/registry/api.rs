//! The API of one control plane: the store, the rules of the kinds, admission, the clock and randomness.

use super::attributes::AdmissionPlugins;
use super::component_statuses;
use super::served::Served;
use crate::auth::user::Authorization;
use crate::storage::{HistoryLimits, ObjectStore, ObjectVersion, StoreError};
use crate::webhook_client::Caller;
use berth_objects::catalog::{Catalog, ServedResource};
use berth_objects::groups::GroupGates;
use berth_objects::releases::ApiRelease;
use berth_objects::status::ApiError;
use jiff::Timestamp;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The source of the time.
pub type ApiClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The wait of a request for a revision that has not been written yet.
const REVISION_PATIENCE: Duration = Duration::from_secs(3);

/// The characters of generated names: without vowels, so that no words are formed.
const NAME_CHARS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The number of random characters that a generated name ends with.
const NAME_SUFFIX_LEN: usize = 5;
/// The length of the given part of a generated name.
const NAME_BASE_MAX: usize = 63 - NAME_SUFFIX_LEN;

/// The parts of an [`Api`].
#[derive(Clone)]
pub struct ApiOptions {
    /// The admission plugins.
    pub admission: Arc<dyn AdmissionPlugins>,
    /// The component that decides about requests.
    pub authorization: Authorization,
    /// The parts of group scheduling that are served.
    pub groups: GroupGates,
    /// The amount of history that is kept for watches.
    pub history: HistoryLimits,
    /// The release whose API is served.
    pub api: ApiRelease,
    /// The first range of the addresses of Services, as an IPv4 prefix such as `10.96.0.0/12`.
    pub service_cidr: String,
    /// The source of the time.
    pub clock: ApiClock,
    /// The seed of UIDs and generated names.
    pub seed: u64,
}

impl fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiOptions")
            .field("admission", &self.admission)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

/// The API of one control plane.
pub struct Api {
    pub(super) store: ObjectStore,
    pub(crate) admission: Arc<dyn AdmissionPlugins>,
    pub(super) authorization: Authorization,
    pub(crate) groups: GroupGates,
    pub(super) service_cidr: String,
    pub(super) clock: ApiClock,
    pub(super) random: Mutex<fastrand::Rng>,
    pub(crate) served: Served,
    pub(crate) webhook_calls: Caller,
    /// Whether controllers run in this process.
    pub(crate) has_controllers: AtomicBool,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("revision", &self.store.revision())
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// The resources that are served now.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.served.catalog()
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The time as it is written into objects: RFC 3339 with whole seconds.
    pub(crate) fn now_text(&self) -> String {
        seconds_text(self.now())
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// The store, to watch it.
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }

    /// A new UID: a random UUID of version 4.
    pub(crate) fn new_uid(&self) -> String {
        let bits = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.u128(..)
        };
        let bits = (bits & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// A name that begins with `base`.
    pub(crate) fn new_name(&self, base: &str) -> String {
        let mut name: String = base
            .char_indices()
            .take_while(|(i, c)| i + c.len_utf8() <= NAME_BASE_MAX)
            .map(|(_, c)| c)
            .collect();
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..NAME_SUFFIX_LEN {
            name.push(char::from(NAME_CHARS[random.usize(..NAME_CHARS.len())]));
        }
        name
    }

    /// One object.
    ///
    /// # Errors
    /// 404.
    pub fn get(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        if let Some(component) = component_statuses::one(self, resource, name) {
            return component;
        }
        resource
            .store
            .and_then(|store| self.store.get(store, &resource.key(namespace, name)))
            .ok_or_else(|| ApiError::not_found(resource.subject(name)))
    }

    /// Waits until a revision has been written.
    ///
    /// # Errors
    /// 504 after three seconds.
    pub async fn reached(&self, revision: u64) -> Result<(), ApiError> {
        if revision <= self.store.revision() {
            return Ok(());
        }
        self.store
            .reached(revision, REVISION_PATIENCE)
            .await
            .map_err(|e| store_error(&e))
    }
}

/// A time as it is written into objects: RFC 3339 with whole seconds, in UTC.
pub(crate) fn seconds_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The error for a client when the store has no answer for a revision.
pub(super) fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Expired { requested, oldest } => {
            ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        StoreError::Future { requested, current } => {
            ApiError::resource_version_too_large(*requested, *current)
        }
        StoreError::NotFound | StoreError::Exists | StoreError::Modified => {
            ApiError::internal(error.to_string())
        }
    }
}
