//! The bodies of requests.

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub struct WriteBody<'a> {
    /// The received bytes.
    pub bytes: &'a [u8],
    /// The encoding of the bytes.
    pub encoding: Encoding,
}

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' protobuf.
    Protobuf,
}
