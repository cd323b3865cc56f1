//! The bodies of requests.

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub struct WriteBody<'a> {
    /// As it came.
    pub bytes: &'a [u8],
    /// The way in which it is written.
    pub encoding: Encoding,
}

/// The way in which a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
}
