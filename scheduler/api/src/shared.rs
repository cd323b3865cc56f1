//! Shared values: one allocation for all equal values of many objects.
//!
//! The pods of a template differ in little more than their name, node and times; tolerations, containers, affinity,
//! volumes and most of the status are equal in thousands of pods. Decoding finds an equal value that was decoded before
//! and drops the new one, so that a pod takes a few hundred bytes instead of several thousand, and copying it copies a
//! pointer.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that is shared with its equals. Changing it changes this one alone.
pub struct Shared<T>(Arc<T>);

/// Something that keeps a value alive together with others of its kind.
pub trait Handle: Clone + Eq + Hash {
    /// The number of owners of this value.
    fn owners(&self) -> usize;
}

impl<T: Eq + Hash> Handle for Arc<T> {
    fn owners(&self) -> usize {
        Self::strong_count(self)
    }
}

/// The different values of one type that a thread has decoded lately.
#[derive(Debug)]
pub struct Pool<H> {
    values: HashSet<H, rustc_hash::FxBuildHasher>,
    default: Option<H>,
}

/// The maximum number of different values in a pool. Above it, unused values are dropped; if too few are unused, all
/// are dropped. A dropped value stays valid, but the next equal value is allocated again.
const VALUES_MAX: usize = 8 * 1024;

impl<H> Pool<H> {
    /// A pool without values.
    pub const fn new() -> Self {
        Self {
            values: HashSet::with_hasher(rustc_hash::FxBuildHasher),
            default: None,
        }
    }
}

impl<H> Default for Pool<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Handle> Pool<H> {
    /// The handle of an equal value that was seen before, or else this one.
    pub fn share(&mut self, fresh: H) -> H {
        if let Some(known) = self.values.get(&fresh) {
            return known.clone();
        }
        if self.values.len() >= VALUES_MAX {
            self.values.retain(|value| value.owners() > 1);
            if self.values.len() > VALUES_MAX / 2 {
                self.values.clear();
            }
        }
        self.values.insert(fresh.clone());
        fresh
    }
}

/// A type whose equal values are shared.
pub trait Shareable: Clone + Default + Eq + Hash + 'static {
    /// Lets `use_it` use this thread's pool.
    fn with_pool<R>(use_it: impl FnOnce(&mut Pool<Arc<Self>>) -> R) -> R;
}

/// Gives types a pool, a thread each.
macro_rules! shareable {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::shared::Shareable for $type {
            fn with_pool<R>(
                use_it: impl FnOnce(&mut $crate::shared::Pool<std::sync::Arc<Self>>) -> R,
            ) -> R {
                thread_local! {
                    static POOL: std::cell::RefCell<$crate::shared::Pool<std::sync::Arc<$type>>> =
                        const { std::cell::RefCell::new($crate::shared::Pool::new()) };
                }
                POOL.with_borrow_mut(use_it)
            }
        }
    )*};
}
pub(crate) use shareable;

impl<T: Shareable> Shared<T> {
    /// The value, in the allocation of an equal one that this thread has seen lately.
    pub fn new(value: T) -> Self {
        Self(T::with_pool(|pool| pool.share(Arc::new(value))))
    }
}

impl<T> Shared<T> {
    /// Returns whether both are one allocation. Quick; values that are the same are equal, equal ones need not be the
    /// same.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The address of the value in memory: equal addresses of living values mean the same value.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl<T: Shareable> Default for Shared<T> {
    fn default() -> Self {
        Self(T::with_pool(|pool| {
            if let Some(known) = &pool.default {
                return known.clone();
            }
            let fresh = pool.share(Arc::new(T::default()));
            pool.default = Some(fresh.clone());
            fresh
        }))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Eq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || *self.0 == *other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: Shareable> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Shareable + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
    struct Value {
        number: u64,
    }
    shareable!(Value);

    fn value(number: u64) -> Value {
        Value { number }
    }

    #[test]
    fn equal_values_share_one_allocation_until_one_is_changed() {
        let (first, mut second) = (Shared::new(value(7)), Shared::new(value(7)));
        assert!(first.is_same(&second));
        assert_eq!(first.address(), second.address());
        second.number = 8;
        assert_eq!((first.number, second.number), (7, 8));
        assert_ne!(first, second);
        // A value that was changed is not taken for a later one.
        assert_eq!(*Shared::new(value(7)), value(7));
        assert!(Shared::<Value>::default().is_same(&Shared::new(value(0))));
    }

    #[test]
    fn a_full_pool_forgets_values_without_a_holder() {
        let kept = Shared::new(value(u64::MAX));
        for number in 0..3 * VALUES_MAX as u64 {
            let _ = Shared::new(value(number));
        }
        assert!(kept.is_same(&Shared::new(value(u64::MAX))));
        let sizes = Value::with_pool(|pool| pool.values.len());
        assert!(sizes <= VALUES_MAX, "{sizes}");
    }
}
