//! The kept entries, by fragment, within bounds: the entry that was not used for longest goes first.

use lru::LruCache;
use rustc_hash::FxBuildHasher;

/// Something that is kept.
pub(super) trait Kept {
    /// About how much memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

struct StoreEntry<T> {
    /// Absent when nothing can be kept.
    value: Option<Box<T>>,
    bytes: usize,
}

/// See the [module](self).
pub(super) struct Store<T> {
    entries: LruCache<Box<[u8]>, StoreEntry<T>, FxBuildHasher>,
    bytes: usize,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded_with_hasher(FxBuildHasher),
            bytes: 0,
        }
    }
}

/// The entry under a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Something.
    Kept,
    /// Nothing yet.
    Missing,
    /// It is known that nothing can be kept.
    Unkeepable,
}

impl<T: Kept> Store<T> {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// About how much memory the entries take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Looks something up for use, and brings it up to date; what cannot be is dropped.
    pub(super) fn refresh<E>(
        &mut self,
        key: &[u8],
        catch_up: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Found {
        let Some(entry) = self.entries.get_mut(key) else {
            return Found::Missing;
        };
        let Some(value) = &mut entry.value else {
            return Found::Unkeepable;
        };
        if catch_up(value).is_err() {
            self.remove(key);
            return Found::Missing;
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        entry.bytes = value.bytes();
        self.bytes += entry.bytes;
        Found::Kept
    }

    /// Keeps something, or that nothing can be kept. While there is more than `entries` or `bytes`, others go.
    pub(super) fn insert(
        &mut self,
        key: &[u8],
        value: Option<Box<T>>,
        (entries, bytes): (usize, usize),
    ) {
        let size = value.as_ref().map_or(0, |value| value.bytes());
        self.remove(key);
        while self.entries.len() >= entries || self.bytes + size > bytes {
            let Some((_, oldest)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes);
        }
        self.bytes += size;
        let entry = StoreEntry { value, bytes: size };
        self.entries.put(key.into(), entry);
    }

    /// Forgets something.
    pub(super) fn remove(&mut self, key: &[u8]) {
        self.take(key);
    }

    /// Takes something out.
    pub(super) fn take(&mut self, key: &[u8]) -> Option<Box<T>> {
        let entry = self.entries.pop(key)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        entry.value
    }

    /// The kept entry; this is no use of it.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut T> {
        self.entries.peek_mut(key)?.value.as_deref_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sized(usize);

    impl Kept for Sized {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut store = Store::default();
        let fresh = |_: &mut Sized| Ok::<(), ()>(());
        for key in [b"a", b"b", b"c"] {
            store.insert(key, Some(Box::new(Sized(10))), (9, 30));
        }
        assert_eq!(store.refresh(b"a", fresh), Found::Kept);
        store.insert(b"d", Some(Box::new(Sized(10))), (9, 30));
        assert_eq!(store.refresh(b"b", fresh), Found::Missing);
        assert_eq!((store.len(), store.bytes()), (3, 30));
        store.insert(b"e", None, (3, 99));
        assert_eq!(store.refresh(b"e", fresh), Found::Unkeepable);
        assert_eq!(store.refresh(b"c", fresh), Found::Missing);
        assert_eq!(store.refresh(b"a", |_| Err(())), Found::Missing);
        assert_eq!((store.len(), store.bytes()), (2, 10));
    }

    #[test]
    fn what_grows_is_counted() {
        let mut store = Store::default();
        store.insert(b"a", Some(Box::new(Sized(1))), (9, 99));
        store.refresh(b"a", |sized| {
            sized.0 = 50;
            Ok::<(), ()>(())
        });
        assert_eq!(store.bytes(), 50);
        assert_eq!(store.get_mut(b"a").map(|sized| sized.0), Some(50));
        store.remove(b"a");
        assert_eq!((store.len(), store.bytes()), (0, 0));
    }
}
