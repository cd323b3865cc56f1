//! Label sets: sorted, shared, cheap to compare.

use crate::Str;
use crate::resources::sorted_by_name;
use crate::shared::{Handle, Pool};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The number of labels that are searched one by one.
const FEW: usize = 16;

/// The labels of an object, sorted by key, each key once. Cloning shares.
#[derive(Clone, Eq, Hash, PartialOrd, Ord, Default)]
// Equal labels have equal hashes, independent of their addresses.
#[allow(clippy::derived_hash_with_manual_eq)]
pub struct Labels(Option<Arc<[(Str, Str)]>>);

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.as_slice(), other.as_slice()) || self.as_slice() == other.as_slice()
    }
}

impl Labels {
    /// Labels from pairs; the last of several equal keys wins, as in JSON.
    pub fn from_pairs<K: Into<Str>, V: Into<Str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let pairs = pairs.into_iter();
        let sorted = sorted_by_name(pairs.map(|(key, value)| (key.into(), value.into())));
        if sorted.is_empty() {
            Self(None)
        } else {
            Self(Some(sorted.into()))
        }
    }

    /// The same labels, in the allocation of equal ones that this thread has decoded lately.
    fn shared(self) -> Self {
        thread_local! {
            static POOL: RefCell<Pool<Labels>> = const { RefCell::new(Pool::new()) };
        }
        if self.is_empty() {
            return self;
        }
        POOL.with_borrow_mut(|pool| pool.share(self))
    }

    /// The pairs, sorted by key.
    pub fn as_slice(&self) -> &[(Str, Str)] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.get_str(key).map(Str::as_str)
    }

    /// The value of `key` as a shared string.
    pub fn get_str(&self, key: &str) -> Option<&Str> {
        let pairs = self.as_slice();
        // Keys are interned: most are found by comparing addresses, without reading them. An object can have thousands
        // of labels, and a selector thousands of requirements.
        if pairs.len() <= FEW
            && let Some((_, value)) = pairs.iter().find(|(k, _)| std::ptr::eq(k.as_str(), key))
        {
            return Some(value);
        }
        let at = pairs.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        Some(&pairs[at].1)
    }

    /// Returns whether `key` is set, to whatever value.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The pairs, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Str)> {
        self.as_slice().iter().map(|(k, v)| (k, v))
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// These labels with one more (or another value for it).
    #[must_use]
    pub fn with(&self, key: &str, value: &str) -> Self {
        Self::from_pairs(
            self.iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .chain([(Str::new(key), Str::new(value))]),
        )
    }

    /// These labels without `key`.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        Self::from_pairs(
            self.iter()
                .filter(|(k, _)| k.as_str() != key)
                .map(|(k, v)| (k.clone(), v.clone())),
        )
    }
}

impl Handle for Labels {
    fn owners(&self) -> usize {
        self.0.as_ref().map_or(0, Arc::strong_count)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_unit<E>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }
            fn visit_none<E>(self) -> Result<Labels, E> {
                Ok(Labels::default())
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Labels, D::Error> {
                d.deserialize_map(self)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut pairs: Vec<(Str, Str)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<Str, Option<Str>>()? {
                    pairs.push((key, value.unwrap_or_default()));
                }
                Ok(Labels::from_pairs(pairs).shared())
            }
        }
        deserializer.deserialize_option(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_the_last_value_wins() {
        let labels: Labels = serde_json::from_str(r#"{"b":"1","a":"2","b":"3"}"#).unwrap();
        assert_eq!(labels.get("b"), Some("3"));
        assert_eq!(labels.as_slice()[0].0, "a");
        assert_eq!(labels.len(), 2);
    }

    #[test]
    fn equal_labels_are_decoded_into_one_allocation() {
        let decoded = |json| serde_json::from_str::<Labels>(json).expect("decodes");
        let (a, b) = (
            decoded(r#"{"b":"1","a":"2"}"#),
            decoded(r#"{"a":"2","b":"1"}"#),
        );
        assert!(std::ptr::eq(a.as_slice(), b.as_slice()));
    }

    #[test]
    fn null_is_no_labels() {
        assert!(serde_json::from_str::<Labels>("null").unwrap().is_empty());
    }

    #[test]
    fn with_and_without_change_one_key() {
        let labels = Labels::from_pairs([("a", "1")]);
        assert_eq!(labels.with("b", "2").get("b"), Some("2"));
        assert!(labels.without("a").is_empty());
    }
}
