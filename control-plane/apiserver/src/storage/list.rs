//! Lists of the current revision, or of an earlier one within the history.

use super::history::KindHistory;
use super::live::{Live, LiveRow};
use super::{ObjectVersion, StoreError};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The query of a list.
#[derive(Default)]
pub struct ListQuery<'a> {
    /// The prefix of the keys: `namespace/`, or empty.
    pub prefix: &'a str,
    /// Lists keys after this one (a complete key, with the prefix).
    pub after: Option<&'a str>,
    /// At most this many objects.
    pub limit: Option<usize>,
    /// The state of this revision; `None` is now.
    pub at: Option<u64>,
    /// The objects that count.
    pub filter: Option<&'a dyn Fn(&ObjectVersion) -> bool>,
}

/// The objects of a page.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects in order of their keys.
    pub items: Vec<Arc<ObjectVersion>>,
    /// The revision of the state that was listed.
    pub revision: u64,
    /// The last key of this page, when there is more.
    pub more_after: Option<Arc<str>>,
    /// The number of objects that follow; only without a filter.
    pub remaining: Option<usize>,
}

impl fmt::Debug for ListQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListQuery")
            .field("prefix", &self.prefix)
            .field("after", &self.after)
            .field("limit", &self.limit)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// The oldest revision of lists.
#[derive(Debug, Default)]
pub(super) struct ListedRevisions {
    /// The newest revision at each recorded time, oldest first.
    noted: VecDeque<(Instant, u64)>,
    /// Older revisions are not listed any more.
    oldest: u64,
}

impl ListedRevisions {
    /// Records the newest revision. Of the records older than `age`, the newest becomes the oldest listed revision.
    pub(super) fn note(&mut self, now: Instant, newest: u64, age: Duration) {
        if self.noted.back().is_none_or(|(_, noted)| *noted < newest) {
            self.noted.push_back((now, newest));
        }
        while let Some((at, revision)) = self.noted.front()
            && now.saturating_duration_since(*at) >= age
        {
            self.oldest = self.oldest.max(*revision);
            self.noted.pop_front();
        }
    }

    /// Returns whether the state of a revision may be listed.
    pub(super) fn check(&self, requested: u64) -> Result<(), StoreError> {
        if requested < self.oldest {
            Err(StoreError::Expired {
                requested,
                oldest: self.oldest,
            })
        } else {
            Ok(())
        }
    }
}

/// Returns the result of `read` for the listed revision and its entries in order, without the limit and the filter.
pub(super) fn rows<T>(
    live: &Live,
    history: &KindHistory,
    current: u64,
    query: &ListQuery<'_>,
    read: impl FnOnce(u64, &mut dyn Iterator<Item = LiveRow<'_>>) -> T,
) -> Result<T, StoreError> {
    let revision = query.at.unwrap_or(current);
    if revision > current {
        return Err(StoreError::Future {
            requested: revision,
            current,
        });
    }
    if revision < history.oldest() {
        return Err(StoreError::Expired {
            requested: revision,
            oldest: history.oldest(),
        });
    }
    // The former version at a key at that revision, for the keys that have changed since.
    let mut past: BTreeMap<&Arc<str>, Option<&Arc<ObjectVersion>>> = BTreeMap::new();
    if revision < current {
        for event in history.newer_than(revision) {
            if event.key.starts_with(query.prefix) {
                past.insert(&event.key, event.previous.as_ref());
            }
        }
    }
    let start = match query.after {
        Some(after) if after >= query.prefix => Bound::Excluded(after),
        _ => Bound::Included(query.prefix),
    };
    let mut present = live.from(start, query.prefix);
    if past.is_empty() {
        return Ok(read(revision, &mut present));
    }
    let mut merged: BTreeMap<&Arc<str>, &Arc<ObjectVersion>> = present.collect();
    for (key, version) in past {
        let wanted = match start {
            Bound::Excluded(after) => key.as_ref() > after,
            _ => true,
        };
        match version {
            Some(version) if wanted => merged.insert(key, version),
            _ => merged.remove(key),
        };
    }
    Ok(read(revision, &mut merged.into_iter()))
}

/// The entries that the filter takes, up to the limit.
pub(super) fn page<'a>(
    mut entries: impl Iterator<Item = LiveRow<'a>>,
    revision: u64,
    query: &ListQuery<'_>,
) -> Page {
    let limit = query.limit.unwrap_or(usize::MAX);
    let mut page = Page {
        revision,
        ..Page::default()
    };
    let mut last = None;
    while let Some((key, version)) = entries.next() {
        if let Some(filter) = query.filter
            && !filter(version)
        {
            continue;
        }
        if page.items.len() == limit {
            page.more_after = last;
            page.remaining = query.filter.is_none().then(|| 1 + entries.count());
            break;
        }
        last = Some(Arc::clone(key));
        page.items.push(Arc::clone(version));
    }
    page
}
