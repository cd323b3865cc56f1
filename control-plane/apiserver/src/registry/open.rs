//! The start of an API: its store, and the objects that every cluster has.

use super::api::{Api, ApiOptions};
use super::definitions;
use super::request::WriteOptions;
use super::served::Served;
use crate::storage::{DataDir, DataDirError, ObjectStore};
use crate::webhook_client::Caller;
use berth_objects::status::ApiError;
use berth_objects::view::meta;
use berth_objects::{catalog, groups};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// The reason why an [`Api`] cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory cannot be read.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// An object that every cluster has is refused, which is a fault of this program.
    #[error("cannot create the first objects: {0}")]
    Bootstrap(ApiError),
}

impl Api {
    /// An API with the objects of the data directory, or in memory without one. The objects that every cluster has
    /// are created where they are missing: the four namespaces, the two priority classes of the system, the roles of
    /// `facts/rbac.txt`, and the objects of `facts/flowcontrol.jsonl`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(options: ApiOptions, data: Option<DataDir>) -> Result<Self, OpenError> {
        let store = match data {
            Some(data) => ObjectStore::open(catalog::store_names(), options.history, data)?,
            None => ObjectStore::new(catalog::store_names().len(), options.history),
        };
        let api = Self {
            store,
            served: Served::new(groups::catalog(options.api, options.groups)),
            admission: options.admission,
            groups: options.groups,
            service_cidr: options.service_cidr,
            authorization: options.authorization,
            clock: options.clock,
            random: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            webhook_calls: Caller::default(),
            has_controllers: AtomicBool::new(false),
        };
        api.create_what_every_cluster_has()
            .map_err(OpenError::Bootstrap)?;
        super::migrate::groups_alpha(&api);
        definitions::sync(&api);
        Ok(api)
    }

    fn create_what_every_cluster_has(&self) -> Result<(), ApiError> {
        let create = |group, plural, object: Value| {
            let resource = catalog::find(group, plural).ok_or_else(ApiError::no_such_resource)?;
            let namespace = meta(&object, "namespace").to_owned();
            match self.create(resource, &namespace, object, &WriteOptions::default()) {
                Err(error) if error.reason != "AlreadyExists" => Err(error),
                _ => Ok(()),
            }
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            create("", "namespaces", namespace)?;
        }
        for (name, value, description) in [
            (
                "system-node-critical",
                2_000_001_000_i64,
                "Used for system critical pods that must not be moved from their current node.",
            ),
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
        ] {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": description,
            });
            create("scheduling.k8s.io", "priorityclasses", class)?;
        }
        super::service_cidrs::create_default(self)?;
        super::service_addresses::Allocator(self).repair();
        for (plural, object) in berth_objects::flow_control::bootstrap() {
            create("flowcontrol.apiserver.k8s.io", plural, object)?;
        }
        for (plural, object) in super::rbac::bootstrap() {
            create("rbac.authorization.k8s.io", plural, object)?;
        }
        Ok(())
    }
}
