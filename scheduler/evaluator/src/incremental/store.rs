//! All columns, classes and shapes, by fragment, within a limit of memory: the least recently used are dropped. Also the state
//! for bringing them up to date.

use super::AnswerCacheCounts;
use super::plan::Unkeepable;
use super::scratch::Scratch;
use super::shape::Shape;
use crate::Evaluator;
use lru::LruCache;
use rustc_hash::FxBuildHasher;
use std::any::Any;

/// The maximum memory of all entries, in bytes per node of the cluster, because entries grow with it. Five hundred shapes fit,
/// with their classes and ledgers: on 29 November, `many-shapes` at 100,000 nodes made 2,557 decisions/s. With 1,600 bytes it made
/// 669, because decisions computed shapes that were dropped.
const BYTES_PER_NODE: usize = 2_400;

/// The memory that they may take in a small cluster. Five hundred shapes with spread constraints fit at 5,000 nodes.
const BYTES_AT_LEAST: usize = 96 << 20;

/// The memory of an entry without its key and its value.
const PER_ENTRY: usize = size_of::<(Box<[u8]>, Entry)>() + 4 * size_of::<usize>();

/// The most bytes for a number of nodes.
fn limit(nodes: usize) -> usize {
    BYTES_PER_NODE.saturating_mul(nodes).max(BYTES_AT_LEAST)
}

/// Something that can be kept.
pub(super) trait Keepable: Any + Send {
    /// About how much memory it takes, in bytes.
    fn bytes(&self) -> usize;
}

/// Something that is kept, absent while it is lent, and its memory in bytes.
type Entry = (Option<Box<dyn Keepable>>, usize);

/// See the [module](self).
pub(super) struct Store {
    /// The number of columns and classes of nodes so far.
    pub(super) made: u64,
    pub(super) counts: AnswerCacheCounts,
    pub(super) scratch: Scratch,
    entries: LruCache<Box<[u8]>, Entry, FxBuildHasher>,
    bytes: usize,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            made: 0,
            counts: AnswerCacheCounts::default(),
            scratch: Scratch::default(),
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

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes what is kept for a key, or something new, brought up to date, to be [put](Store::put) back; `None` if no answers
    /// can be kept.
    pub(super) fn take<'e, T: Keepable>(
        &mut self,
        key: &[u8],
        evaluator: &mut Evaluator<'e>,
        new: impl FnOnce(&mut Self, &Evaluator<'e>) -> T,
        catch_up: impl Fn(&mut T, &mut Evaluator<'e>, &mut Scratch) -> Result<(), Unkeepable>,
    ) -> Option<Box<T>> {
        let known = self.lend(key).map(|kept| kept as Box<dyn Any>);
        if let Some(Ok(mut known)) = known.map(|kept| kept.downcast())
            && catch_up(&mut known, evaluator, &mut self.scratch).is_ok()
        {
            return Some(known);
        }
        // It has missed too much, if there was any.
        self.made += 1;
        let mut new = Box::new(new(self, evaluator));
        catch_up(&mut new, evaluator, &mut self.scratch).ok()?;
        Some(new)
    }

    /// Puts something back. While the limit is exceeded, the least recently used entries are dropped.
    pub(super) fn put(&mut self, key: &[u8], kept: Box<dyn Keepable>, evaluator: &Evaluator<'_>) {
        self.keep(key, kept, limit(evaluator.cluster.nodes.slots()));
    }

    /// Hands over what [`Store::take`] takes, and puts it back.
    pub(super) fn with<'e, T: Keepable, R>(
        &mut self,
        key: &[u8],
        evaluator: &mut Evaluator<'e>,
        new: impl FnOnce(&mut Self, &Evaluator<'e>) -> T,
        catch_up: impl Fn(&mut T, &mut Evaluator<'e>, &mut Scratch) -> Result<(), Unkeepable>,
        then: impl FnOnce(&mut Self, &mut Evaluator<'e>, &mut T) -> Option<R>,
    ) -> Option<R> {
        let mut kept = self.take(key, evaluator, new, catch_up)?;
        let result = then(self, evaluator, &mut kept);
        self.put(key, kept, evaluator);
        result
    }

    fn lend(&mut self, key: &[u8]) -> Option<Box<dyn Keepable>> {
        let (kept, bytes) = self.entries.get_mut(key)?;
        self.bytes -= std::mem::take(bytes);
        kept.take()
    }

    fn keep(&mut self, key: &[u8], kept: Box<dyn Keepable>, limit: usize) {
        let bytes = PER_ENTRY + key.len() + kept.bytes();
        let entry = (Some(kept), bytes);
        self.bytes += bytes;
        match self.entries.peek_mut(key) {
            Some(lent) => *lent = entry,
            None => drop(self.entries.put(key.into(), entry)),
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
        let kept: &mut dyn Any = self.entries.peek_mut(key)?.0.as_deref_mut()?;
        kept.downcast_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry that takes `bytes` with its key of one byte.
    fn put(store: &mut Store, key: &[u8], limit: usize) {
        store.keep(key, Box::<Shape>::default(), limit);
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut store = Store::default();
        put(&mut store, b"a", usize::MAX);
        let each = store.bytes();
        put(&mut store, b"b", 2 * each);
        assert_eq!((store.len(), store.bytes()), (2, 2 * each));
        let lent = store.lend(b"a").expect("it is kept");
        assert!(store.lend(b"a").is_none(), "it is lent");
        store.keep(b"a", lent, 2 * each);
        assert_eq!((store.len(), store.bytes()), (2, 2 * each));
        put(&mut store, b"c", 2 * each);
        assert!(store.shape(b"b").is_none());
        assert!(store.shape(b"a").is_some() && store.shape(b"c").is_some());
        // One entry is kept, however large.
        put(&mut store, b"d", 0);
        assert_eq!((store.len(), store.bytes()), (1, each));
        assert!(store.lend(b"d").is_some());
        assert_eq!(store.bytes(), 0);
    }
}
