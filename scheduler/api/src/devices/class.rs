//! DeviceClasses: categories of devices for requests of claims.

use super::claim::{DeviceConfiguration, DeviceSelector};
use crate::string::null_default;
use crate::{ObjectMeta, Str};
use serde::{Deserialize, Serialize};

/// A class of devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClass {
    /// The name.
    pub metadata: ObjectMeta,
    /// The devices of the class.
    #[serde(deserialize_with = "null_default")]
    pub spec: DeviceClassSpec,
}

/// The devices of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// Conditions on a device. All must hold.
    #[serde(deserialize_with = "null_default")]
    pub selectors: Vec<DeviceSelector>,
    /// Configuration that is copied into allocations of the class.
    #[serde(deserialize_with = "null_default")]
    pub config: Vec<DeviceConfiguration>,
    /// The extended resource that devices of the class serve.
    pub extended_resource_name: Option<Str>,
}
