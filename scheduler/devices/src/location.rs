//! The places of devices in a search, and of the requests that they are for.

/// The place of a device in the node's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Location {
    pub(crate) pool: usize,
    pub(crate) slice: usize,
    pub(crate) device: usize,
}

/// A device that the search has to find.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct At {
    pub(crate) claim: usize,
    pub(crate) request: usize,
    pub(crate) alternative: usize,
    pub(crate) device: usize,
}
