//! Kubernetes' protobuf as a serde format.
//!
//! [`facts`] reads the tables of Kubernetes' types. [`Types`] has their fields by their numbers. [`decode`] reads
//! a message of such a type into any type that implements `Deserialize`, the one that reads the API's JSON: the keys
//! are the names of the fields in JSON, and what the JSON of Kubernetes leaves out is left out. [`encode`] writes the
//! message of a JSON value. [`envelope`] has what surrounds messages in requests, answers and watches.
//!
//! A field that a type of [`Types`] does not have is skipped. Input that is truncated or malformed is an error that
//! names the kind and the field.
//!
//! **Architecture invariant:** no I/O. Nothing here panics on input, and the work for one object is limited.

mod decode;
mod encode;
pub mod envelope;
mod error;
pub mod facts;
mod order;
mod patch;
mod readable;
mod tree;
mod types;
pub mod wire;

#[cfg(test)]
mod tests;

pub use decode::{Object, VALUES_MAX, decode};
pub use encode::{encode, encode_body, encode_json, encode_message};
pub use error::ProtobufError;
pub use patch::PatchKind;
pub use types::{MessageType, Types};
