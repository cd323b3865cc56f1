//! The documents that were built.

// They are kept behind a lock that is held for one lookup.
#![allow(clippy::disallowed_types)]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, PoisonError};

/// A document as it is sent.
#[derive(Debug, Clone)]
pub struct OpenApiDocument {
    /// The text, or the bytes of protobuf.
    pub body: Bytes,
    /// The hash of the body, for `ETag` and the index.
    pub hash: String,
}

/// The documents of a catalog that were built.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<BTreeMap<String, OpenApiDocument>>);

impl Clone for Documents {
    /// A changed catalog has other documents.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Documents {
    pub(crate) fn get(&self, name: &str, build: impl FnOnce() -> Vec<u8>) -> OpenApiDocument {
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned();
        known.unwrap_or_else(|| {
            let body = build();
            let mut hasher = DefaultHasher::new();
            hasher.write(&body);
            let document = OpenApiDocument {
                hash: format!("{:016X}", hasher.finish()),
                body: Bytes::from(body),
            };
            let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            documents.insert(name.to_owned(), document.clone());
            document
        })
    }
}
