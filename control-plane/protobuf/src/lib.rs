//! Kubernetes' protobuf as a serde format.
//!
//! [`facts`] reads the tables of Kubernetes' types. [`Types`] has their fields by number. [`decode`] reads a message of
//! such a type into any type that implements `Deserialize` for the API's JSON: keys are JSON field names, and fields
//! that Kubernetes omits in JSON are omitted. [`encode`] writes the message of a JSON value. [`envelope`] has the
//! framing of messages in requests, answers and watches.
//!
//! A field that a type of [`Types`] does not have is skipped. Input that is truncated or malformed is an error that
//! names the kind and the field.
//!
//! **Architecture invariant:** no I/O. This crate does not panic on input, and the work for one object is limited.

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
