//! The reports of a connection about its requests, for metrics.

use std::time::Duration;

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// The HTTP method.
    pub method: &'a str,
    /// Host and port of the server.
    pub host: &'a str,
    /// The HTTP code; `None` when there was no answer.
    pub code: Option<u16>,
    /// From sending the request to the whole answer or, of a watch, to its beginning.
    pub took: Duration,
    /// Whether the answer is the stream of a watch.
    pub is_watch: bool,
    /// The length of the request's body.
    pub request_bytes: usize,
    /// The length of the answer's body; `None` of a watch.
    pub response_bytes: Option<usize>,
}

/// Observes every request of a connection. It is called on the tasks that send requests and must not block.
pub trait Observer: Send + Sync {
    /// The wait of a request for the client's own limit; may be zero.
    fn waited(&self, method: &str, host: &str, waited: Duration);

    /// A request has ended.
    fn ended(&self, exchange: &Exchange<'_>);
}

/// Keeps no metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn waited(&self, _: &str, _: &str, _: Duration) {}

    fn ended(&self, _: &Exchange<'_>) {}
}
