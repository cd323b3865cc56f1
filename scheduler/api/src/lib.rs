//! The Kubernetes objects with the fields that scheduling reads.
//!
//! These types contain only the fields that a scheduler needs. They decode from the API's JSON and are never written
//! back completely (writes are bindings, patches and minimal bodies), so no field that Berth does not know is lost.
//!
//! **Architecture invariant:** no I/O, no clock, no randomness. No function panics on input.

pub mod custom;
pub mod devices;
mod field_error;
pub mod go_duration;
pub mod go_time;
pub mod groups;
pub mod labels;
pub mod meta;
pub mod names;
pub mod namespace;
pub mod node;
pub mod node_selector;
pub mod object;
pub mod partial;
pub mod pod;
pub mod quantity;
pub mod raw_json;
pub mod release;
pub mod requests;
pub mod resources;
pub mod selector;
pub mod shared;
pub mod storage;
pub mod string;
pub mod taint;
pub mod time;
pub mod volumes;
pub mod workload;

pub use custom::{CustomKind, CustomObject, NotAResource};
pub use devices::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
pub use field_error::aggregate;
pub use go_duration::{GoDuration, GoDurationError};
pub use go_time::{GoTime, TimeLayout};
pub use groups::{CompositePodGroup, PodGroup, PodSchedulingGroup};
pub use labels::Labels;
pub use meta::{ObjectMeta, OwnerReference};
pub use namespace::Namespace;
pub use node::Node;
pub use object::{Kind, Object};
pub use partial::{PartialObject, UnreadField};
pub use pod::Pod;
pub use quantity::Quantity;
pub use raw_json::RawJson;
pub use release::Release;
pub use resources::{ResourceList, Resources};
pub use selector::{LabelSelector, Selector};
pub use shared::Shared;
pub use storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};
pub use string::Str;
pub use taint::{Taint, TaintEffect, Toleration};
pub use time::{Duration, Time};
pub use workload::{PodDisruptionBudget, ReplicaSet, ReplicationController, Service, StatefulSet};
