//! Everything that is kept, by fragment, within a limit of memory: what was not used for longest goes first.

use super::shape::Shape;
use lru::LruCache;
use rustc_hash::FxBuildHasher;
use std::any::Any;

/// The maximum memory of all entries, in bytes per node of the cluster, because entries grow with it. Five hundred shapes fit,
/// with their classes and ledgers: `many-shapes` at 100,000 nodes makes 2,557 decisions/s. With 1,600 bytes it makes 669, because
/// decisions compute shapes that were dropped, which takes 3 ms each.
const BYTES_PER_NODE: usize = 2_400;

/// The memory that they may take in a small cluster. Five hundred shapes with spread constraints fit at 5,000 nodes.
const BYTES_AT_LEAST: usize = 96 << 20;

/// The memory of an entry without its key and its value.
const PER_ENTRY: usize = size_of::<(Box<[u8]>, Option<Entry>, usize)>() + 4 * size_of::<usize>();

/// The most bytes for a number of nodes.
pub(super) fn limit(nodes: usize) -> usize {
    BYTES_PER_NODE.saturating_mul(nodes).max(BYTES_AT_LEAST)
}

/// Something that can be kept.
pub(super) trait Keepable: Any + Send {
    /// About how much memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

/// A kept entry; `None` if no answers can be kept for the key.
pub(super) type Entry = Option<Box<dyn Keepable>>;

/// See the [module](self).
pub(super) struct Store {
    /// Each absent while it is lent, with its memory in bytes.
    entries: LruCache<Box<[u8]>, (Option<Entry>, usize), FxBuildHasher>,
    bytes: usize,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            entries: LruCache::unbounded_with_hasher(FxBuildHasher),
            bytes: 0,
        }
    }
}

impl Store {
    /// About how much memory the entries take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of shapes.
    pub(super) fn shapes(&self) -> usize {
        let entries = self
            .entries
            .iter()
            .filter_map(|(_, of)| of.0.as_ref()?.as_deref());
        let shapes = entries.filter(|entry| (*entry as &dyn Any).is::<Shape>());
        shapes.count()
    }

    /// Lends something out for use, to be brought up to date and [put](Store::put) back.
    pub(super) fn lend(&mut self, key: &[u8]) -> Option<Entry> {
        self.entries.get_mut(key)?.0.take()
    }

    /// Keeps something. While all entries take more than `limit` bytes, others go.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry, limit: usize) {
        let bytes = PER_ENTRY + key.len() + entry.as_ref().map_or(0, |kept| kept.bytes());
        self.bytes += bytes;
        match self.entries.peek_mut(key) {
            Some(known) => {
                self.bytes -= known.1;
                *known = (Some(entry), bytes);
            }
            None => drop(self.entries.put(key.into(), (Some(entry), bytes))),
        }
        while self.bytes > limit && self.entries.len() > 1 {
            let Some((_, oldest)) = self.entries.pop_lru() else {
                break;
            };
            self.bytes -= oldest.1;
        }
    }

    /// A kept shape; this is no use of it.
    pub(super) fn shape(&mut self, key: &[u8]) -> Option<&mut Shape> {
        let kept: &mut dyn Any = self.entries.peek_mut(key)?.0.as_mut()?.as_deref_mut()?;
        kept.downcast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that takes `bytes` with its key of one byte.
    fn put(store: &mut Store, key: &[u8], limit: usize) {
        store.put(key, Some(Box::<Shape>::default()), limit);
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut store = Store::default();
        put(&mut store, b"a", usize::MAX);
        let each = store.bytes();
        put(&mut store, b"b", 2 * each);
        assert_eq!((store.shapes(), store.bytes()), (2, 2 * each));
        let lent = store.lend(b"a").expect("it is kept");
        assert!(store.lend(b"a").is_none(), "it is lent");
        store.put(b"a", lent, 2 * each);
        assert_eq!((store.shapes(), store.bytes()), (2, 2 * each));
        put(&mut store, b"c", 2 * each);
        assert!(store.shape(b"b").is_none());
        assert!(store.shape(b"a").is_some() && store.shape(b"c").is_some());
        // One entry is kept, however large.
        put(&mut store, b"d", 0);
        assert_eq!((store.shapes(), store.bytes()), (1, each));
        store.put(b"d", None, usize::MAX);
        assert!(matches!(store.lend(b"d"), Some(None)));
        assert!(store.bytes() < each);
    }
}
