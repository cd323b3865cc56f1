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
mod conversion;
mod decode;
mod delete;
mod events;
mod evict;
mod flow_control;
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
mod token_request;
mod write;

pub use api::{Api, ApiOptions, Clock, OpenError};
pub use decode::{Body, Encoding, FieldValidation};
pub use delete::{DeleteRequest, Deletion, Preconditions};
pub use list::{ListRequest, Listed, VersionMatch};
pub use requester::Requester;
pub(crate) use resource::custom_store;
pub use resource::{Catalog, Generation, Resource, Sub, built_in, find};
pub use reviews::review;
pub(crate) use write::{Change, MANAGER_BYTES_MAX, Method};
pub use write::{WriteOptions, Written};

pub(crate) use api::{meta, meta_mut};
pub(crate) use apply::manager_of_agent;
pub(crate) use autoscalers::default_autoscaler;
pub(crate) use flow_control::mandatory_flow_spec;
pub(crate) use in_process::InProcess;
pub(crate) use kubernetes::Published;
pub(crate) use list::parse_revision;
pub(crate) use options::bad_option;
pub(crate) use rbac::Asked;
pub(crate) use scale::{
    of as scale_of, put as scale_put, resource as scale_resource, selector_text, update_scale,
};
pub(crate) use token_request::issue as issue_token;
