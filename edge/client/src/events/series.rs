//! Folds events into series: an event that repeats is counted on the event that was published first.
//!
//! The API server rejects an update of an existing event that changes other fields than its series. A series therefore
//! keeps its first note, and another note is another event. The number of these events per object is limited as in
//! client-go's spam filter: [`NOTES_BURST`] at once, and then one every [`NOTES_REFILL`]. Beyond that, an event counts
//! for the most recent series of its kind.

use super::{Event, Regarding};
use berth_api::{Str, Time};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The number of series that are kept; the longest silent ones are dropped first.
pub(super) const SERIES_MAX: usize = 65_536;
/// A series ends after this time without an event.
pub(super) const FINISH_AFTER: Duration = Duration::from_secs(6 * 60);
/// The interval between writes of a continuing series, which keep it from expiring.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(30 * 60);
/// The number of events with different notes that an object may have at once.
pub(super) const NOTES_BURST: u32 = 25;
/// The interval at which one more is permitted.
pub(super) const NOTES_REFILL: Duration = Duration::from_secs(5 * 60);
/// The longest name of an object, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The fields that all events of a series share, other than the note.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct KindKey {
    regarding: Regarding,
    related: Option<Regarding>,
    kind: &'static str,
    reason: Str,
    action: Str,
    reporting_controller: Str,
}

#[derive(Debug)]
struct Series {
    name: String,
    event: Event,
    /// A hash of its note.
    note: u64,
    count: u64,
    last: Time,
    /// The count and the time when it was written last.
    written: (u64, Time),
}

/// The series of one kind, the latest last.
type OfKind = Vec<Series>;

/// The number of events with new notes that an object may have.
#[derive(Debug)]
struct Allowance {
    tokens: u32,
    refilled: Time,
}

/// The write for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event of this name.
    Create(String),
    /// The series of the event of this name has grown.
    Grow {
        name: String,
        count: u64,
        last: Time,
    },
}

/// Folds events into series.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    series: HashMap<KindKey, OfKind>,
    /// The number of series in all.
    kept: usize,
    allowances: HashMap<Regarding, Allowance>,
    notes: RandomState,
    /// The number in the name that was given last.
    last_named: i64,
}

impl Correlator {
    /// The write for an event; `None` when its series has grown and that is written later.
    pub(super) fn take(&mut self, event: &Event, now: Time) -> Option<Write> {
        let key = KindKey {
            regarding: event.regarding.clone(),
            related: event.related.clone(),
            kind: event.kind,
            reason: event.reason.clone(),
            action: event.action.clone(),
            reporting_controller: event.reporting_controller.clone(),
        };
        let note = self.notes.hash_one(&event.note);
        if let Some(of_kind) = self.series.get_mut(&key) {
            let same =
                |series: &Series| series.note == note && now.since(series.last) <= FINISH_AFTER;
            // The same note within the time continues its series.
            let at = match of_kind.iter().position(same) {
                Some(at) => Some(at),
                None if allows(&mut self.allowances, &event.regarding, now) => None,
                // An object with too many notes continues its last series, so that their number is bounded.
                None => of_kind.len().checked_sub(1),
            };
            if let Some(series) = at.and_then(|at| of_kind.get_mut(at)) {
                return series.grow(now);
            }
        }
        if self.kept >= SERIES_MAX {
            self.forget();
        }
        let name = self.name(&event.regarding, now);
        let fresh = Series {
            name: name.clone(),
            event: event.clone(),
            note,
            count: 1,
            last: now,
            written: (1, now),
        };
        self.series.entry(key).or_default().push(fresh);
        self.kept += 1;
        Some(Write::Create(name))
    }

    /// The due writes: the last count of ended series, and the count of continuing series that were not written for
    /// long.
    pub(super) fn tick(&mut self, now: Time) -> Vec<(Event, Write)> {
        let mut writes = Vec::new();
        let mut kept = 0;
        self.series.retain(|_, of_kind| {
            of_kind.retain_mut(|series| {
                let is_over = now.since(series.last) > FINISH_AFTER;
                let (count, at) = series.written;
                let is_due = is_over || now.since(at) >= REFRESH_EVERY;
                if is_due && series.count > count {
                    writes.push((series.event.clone(), series.write(now)));
                }
                !is_over
            });
            kept += of_kind.len();
            !of_kind.is_empty()
        });
        self.kept = kept;
        self.allowances
            .retain(|_, allowance| now.since(allowance.refilled) < NOTES_REFILL * NOTES_BURST);
        writes
    }

    /// A unique name: an object may have several events at the same time.
    fn name(&mut self, regarding: &Regarding, now: Time) -> String {
        self.last_named = now.as_nanos().max(self.last_named.saturating_add(1));
        let name = format!("{}.{:x}", regarding.name, self.last_named);
        if name.len() <= NAME_BYTES_MAX {
            name
        } else {
            format!("{}.{:x}", regarding.uid, self.last_named)
        }
    }

    /// Drops the longer silent half.
    fn forget(&mut self) {
        let mut times: BTreeMap<Time, usize> = BTreeMap::new();
        for series in self.series.values().flatten() {
            *times.entry(series.last).or_default() += 1;
        }
        let mut older = 0;
        let half = self.kept / 2;
        let median = times.into_iter().find(|(_, count)| {
            older += count;
            older >= half
        });
        let Some((median, _)) = median else { return };
        let mut kept = 0;
        self.series.retain(|_, of_kind| {
            of_kind.retain(|series| series.last > median);
            kept += of_kind.len();
            !of_kind.is_empty()
        });
        self.kept = kept;
        self.allowances
            .retain(|_, allowance| allowance.refilled > median);
    }

    /// The number of series that are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept
    }
}

impl Series {
    /// It has happened again.
    fn grow(&mut self, now: Time) -> Option<Write> {
        self.count += 1;
        self.last = now;
        // The second time makes it a series; later ones are counted and written by the clock.
        (self.count == 2).then(|| self.write(now))
    }

    fn write(&mut self, now: Time) -> Write {
        self.written = (self.count, now);
        Write::Grow {
            name: self.name.clone(),
            count: self.count,
            last: self.last,
        }
    }
}

/// Returns whether an object may have one more event with a new note.
fn allows(
    allowances: &mut HashMap<Regarding, Allowance>,
    regarding: &Regarding,
    now: Time,
) -> bool {
    let fresh = || Allowance {
        // The event itself takes the first token.
        tokens: NOTES_BURST - 1,
        refilled: now,
    };
    let allowance = allowances.entry(regarding.clone()).or_insert_with(fresh);
    let passed = now.since(allowance.refilled).as_nanos() / NOTES_REFILL.as_nanos();
    let passed = u32::try_from(passed)
        .unwrap_or(NOTES_BURST)
        .min(NOTES_BURST);
    if passed > 0 {
        allowance.tokens = (allowance.tokens + passed).min(NOTES_BURST);
        allowance.refilled = now;
    }
    let allowed = allowance.tokens > 0;
    allowance.tokens -= u32::from(allowed);
    allowed
}
