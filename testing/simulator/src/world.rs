//! The API of a cluster from the view of schedulers: objects, versions, delayed watches, failing calls.
//!
//! The world does not know schedulers. [`Store`] has the objects and, for each kind, every change in order. [`Watches`]
//! return the events that the watches of one scheduler deliver.

mod calls;
mod devices;
mod objects;
mod pods;
mod quotas;
mod storage;
mod store;
mod watch;

pub use calls::Refusal;
pub use devices::Devices;
pub use objects::Others;
pub use store::Store;
pub use watch::{WATCHED, WatchEvent, Watches};

use std::ops::Deref;

/// The stored objects, and all operations that change them. Reads use [`Store`].
#[derive(Debug, Default)]
pub struct World {
    store: Store,
}

impl Deref for World {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}
