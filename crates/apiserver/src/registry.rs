//! The served kinds and what can be done with them.
//!
//! `resource` reads the tables of resources; [`Api`] holds the verbs, generic over kinds. Everything that enters,
//! over HTTP or from within the process, passes through it: decoding, defaulting, admission, preparation,
//! validation, preconditions, storage.

mod api;
pub(crate) mod api_services;
mod apply;
mod autoscalers;
mod binding;
mod certificates;
mod claims;
mod component_statuses;
mod conversion;
mod decode;
mod delete;
mod devices;
mod devices_beta;
mod events;
mod evict;
mod flow_control;
mod groups_alpha;
mod in_process;
mod kubernetes;
mod list;
mod namespaces;
mod options;
mod patch;
pub(crate) mod rbac;
mod requester;
mod resource;
mod reviews;
mod scale;
mod service_addresses;
pub(crate) mod service_cidrs;
mod token_request;
mod write;

pub use api::{Api, ApiClock, ApiOptions, OpenError};
pub use conversion::Conversion;
pub(crate) use conversion::{in_version, show};
pub use decode::{Encoding, FieldValidation, WriteBody};
pub use delete::{DeleteRequest, Deletion, Preconditions};
pub use list::{ListPage, ListRequest, VersionMatch};
pub use requester::Requester;
pub(crate) use resource::custom_store;
pub use resource::{Catalog, Generation, ServedResource, Sub, built_in, find};
pub use reviews::review;
pub use service_addresses::check_range as check_service_range;
pub use service_cidrs::DEFAULT_CIDR as DEFAULT_SERVICE_RANGE;
pub(crate) use write::{MANAGER_BYTES_MAX, Method, UpdateInputs};
pub use write::{WriteOptions, WriteResult};

pub(crate) use api::{child_mut, meta, meta_mut};
pub(crate) use apply::manager_of_agent;
pub(crate) use autoscalers::default_autoscaler;
pub(crate) use flow_control::mandatory_flow_spec;
pub(crate) use in_process::InProcess;
pub(crate) use kubernetes::Published;
pub(crate) use list::parse_revision;
pub(crate) use options::bad_option;
pub(crate) use rbac::RequestAttributes;
pub(crate) use scale::{
    of as scale_of, put as scale_put, resource as scale_resource, selector_text, update_scale,
};
pub(crate) use token_request::issue as issue_token;
