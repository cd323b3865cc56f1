//! Shared strings: names, labels and images repeat in up to a million objects, so equal texts share one allocation.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The maximum number of different strings that a thread remembers. Above it, all are dropped. A dropped string stays
/// valid, but the next equal one is allocated again.
const INTERNED_MAX: usize = 1 << 16;
/// Longer strings are not remembered: they are messages and annotations, and do not repeat.
const INTERNED_LEN_MAX: usize = 128;

thread_local! {
    static INTERNED: RefCell<HashSet<Arc<str>, rustc_hash::FxBuildHasher>> =
        const { RefCell::new(HashSet::with_hasher(rustc_hash::FxBuildHasher)) };
}

#[cfg(debug_assertions)]
thread_local! {
    /// The number of times that the thread has read or copied a string.
    static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// An immutable, cheaply cloned string. Equality is of the text.
#[derive(Eq)]
pub struct Str(Arc<str>);

impl Clone for Str {
    fn clone(&self) -> Self {
        count_read();
        Self(self.0.clone())
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        let text = self.text();
        Arc::ptr_eq(&self.0, &other.0) || *text == *other.0
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(&other.0)
    }
}

impl Str {
    /// The string, sharing the allocation of an equal one that this thread has seen lately.
    pub fn new(text: &str) -> Self {
        if text.len() > INTERNED_LEN_MAX {
            return Self(Arc::from(text));
        }
        INTERNED.with_borrow_mut(|seen| {
            if let Some(known) = seen.get(text) {
                return Self(known.clone());
            }
            if seen.len() >= INTERNED_MAX {
                seen.clear();
            }
            let fresh: Arc<str> = Arc::from(text);
            seen.insert(fresh.clone());
            Self(fresh)
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.text()
    }

    /// The number of times that this thread has read, compared, hashed or copied a string so far. Only debug builds count:
    /// tests compare the work for objects of several sizes.
    #[cfg(debug_assertions)]
    pub fn reads() -> u64 {
        READS.get()
    }

    fn text(&self) -> &str {
        count_read();
        &self.0
    }
}

fn count_read() {
    #[cfg(debug_assertions)]
    READS.set(READS.get() + 1);
}

impl Default for Str {
    fn default() -> Self {
        thread_local! {
            static EMPTY: Str = Str(Arc::from(""));
        }
        EMPTY.with(Self::clone)
    }
}

impl Deref for Str {
    type Target = str;
    fn deref(&self) -> &str {
        self.text()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.text()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.text()
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.text() == other
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.text() == *other
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Str {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Str {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Str;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Str, E> {
                Ok(Str::new(text))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// Decodes `null` as the default value: the API writes both absent and `null` for "not set".
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_allocation() {
        let a = Str::new("topology.kubernetes.io/zone");
        let b = Str::new("topology.kubernetes.io/zone");
        assert!(Arc::ptr_eq(&a.0, &b.0));
    }

    #[test]
    fn forgetting_keeps_old_strings_equal() {
        let first = Str::new("kept");
        for i in 0..=INTERNED_MAX {
            let _ = Str::new(&format!("s{i}"));
        }
        assert_eq!(first, Str::new("kept"));
    }
}
