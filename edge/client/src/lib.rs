//! Talks to any Kubernetes API.
//!
//! [`request`] builds requests without I/O; [`transport`] sends them; [`reflector`] keeps a consumer up to date with a
//! kind; [`events`] publishes events; [`extender`] calls webhooks. The caller decodes the objects, so that the
//! scheduler can use types that contain only the fields it reads.

// This crate is the edge: it may ask the clock and open sockets, which the core crates may not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod clock;
pub mod component;
mod config;
pub mod connect;
mod connection;
pub mod content;
mod credentials;
pub mod election;
pub mod error;
pub mod events;
mod exec;
pub mod extender;
pub mod fence;
pub mod frames;
mod http2;
mod http_client;
mod kubeconfig;
pub mod limit;
pub mod observe;
pub mod otlp;
mod proxy;
mod reach;
pub mod reflector;
pub mod request;
mod setting;
mod source;
#[cfg(any(test, feature = "test-server"))]
pub mod testing;
mod tls;
mod token;
pub mod transport;

pub use connect::{ConnectOptions, connect, connect_in_cluster, connect_to_component};
pub use error::{ApiError, ConnectError};
pub use transport::Transport;
