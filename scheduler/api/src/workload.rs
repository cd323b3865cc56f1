//! Owners and selectors of pods: services, controllers, disruption budgets. Their selectors determine which pods belong
//! together.

use crate::string::null_default;
use crate::{LabelSelector, Labels, ObjectMeta, Str, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The pods that serve.
    #[serde(deserialize_with = "null_default")]
    pub spec: MapSelected,
}

/// A replication controller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicationController {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The pods that are its own.
    #[serde(deserialize_with = "null_default")]
    pub spec: MapSelected,
}

/// Pods by their labels: all of them must be equal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MapSelected {
    /// The labels; absent and empty differ.
    pub selector: Option<Labels>,
}

/// A replica set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The pods that are its own.
    #[serde(deserialize_with = "null_default")]
    pub spec: Selected,
}

/// A stateful set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The pods that are its own.
    #[serde(deserialize_with = "null_default")]
    pub spec: Selected,
}

/// Pods by a label selector.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selected {
    /// The selector; absent matches none.
    pub selector: Option<LabelSelector>,
}

/// The number of pods of an application that may be down at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudget {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// The selector.
    #[serde(deserialize_with = "null_default")]
    pub spec: Selected,
    /// The number of further disruptions that are allowed.
    #[serde(deserialize_with = "null_default")]
    pub status: PodDisruptionBudgetStatus,
}

/// The status of a disruption budget.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// The number of pods that may be evicted.
    pub disruptions_allowed: i32,
    /// Pods whose eviction is counted already, with the time.
    #[serde(deserialize_with = "null_default")]
    pub disrupted_pods: BTreeMap<Str, Option<Time>>,
}
