//! The served kinds and their verbs.
//!
//! [`Api`] has the verbs, generic over kinds. All requests, over HTTP or from this process, pass through it: decoding,
//! defaulting, admission, preparation, validation, preconditions, storage.

mod api;
pub(crate) mod api_services;
mod apply;
pub(crate) mod attributes;
mod binding;
mod certificates;
mod claims;
mod component_statuses;
mod conversion;
pub(crate) mod definitions;
mod delete;
mod devices;
pub(crate) mod endpoints;
mod evict;
mod flow_control;
mod in_process;
mod kinds;
mod kubernetes;
mod list;
mod migrate;
mod namespaces;
mod open;
mod patch;
pub(crate) mod rbac;
pub(crate) mod request;
pub(crate) mod requester;
mod reviews;
mod revise;
mod scale;
mod served;
mod service_addresses;
pub(crate) mod service_cidrs;
mod token_request;
mod write;

pub use api::{Api, ApiClock, ApiOptions};
pub use attributes::{AdmissionPlugins, Attributes};
pub(crate) use conversion::{in_version, show};
pub use list::{ListPage, ListRequest, VersionMatch};
pub use open::OpenError;
pub use patch::RequestPatch;
pub(crate) use request::{BODY_BYTES_MAX, MANAGER_BYTES_MAX, Method, REMOVAL_DELAY, UpdateInputs};
pub use request::{DeleteRequest, Deletion, Preconditions, WriteOptions, WriteResult};
pub use requester::Requester;
pub use reviews::review;
pub use service_addresses::check_range as check_service_range;
pub use service_cidrs::DEFAULT_CIDR as DEFAULT_SERVICE_RANGE;

pub(crate) use apply::manager_of_agent;
pub(crate) use in_process::InProcess;
pub(crate) use kubernetes::Published;
pub(crate) use list::parse_revision;
pub(crate) use rbac::RequestAttributes;
pub(crate) use scale::{
    check as check_scale, of as scale_of, put as scale_put, resource as scale_resource,
    update_scale,
};
pub(crate) use token_request::issue as issue_token;
