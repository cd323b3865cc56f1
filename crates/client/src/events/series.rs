//! Folds events into series: the same thing happening again is told on the event that told it first.

use super::{Event, Regarding};
use berth_api::{Str, Time};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// How many series are remembered; the longest silent ones are forgotten first.
pub(super) const SERIES_MAX: usize = 65_536;
/// A series that has been silent this long is over.
const SERIES_IDLE: Duration = Duration::from_secs(6 * 60);
/// The longest name of an object, in bytes.
const NAME_BYTES_MAX: usize = 253;

/// What makes two events the same thing again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    regarding: Regarding,
    kind: &'static str,
    reason: Str,
    action: Str,
    reporting_controller: Str,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u64,
    last: Time,
    /// A hash of the note that was told last.
    note: u64,
}

/// What has to be sent for an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A new event of this name.
    Create(String),
    /// The series of the event of this name has grown.
    Grow {
        name: String,
        count: u64,
        /// Whether the note is another one than before.
        note: bool,
    },
}

/// Folds events into series.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    series: HashMap<SeriesKey, Series>,
    notes: RandomState,
    /// The number in the name that was given last.
    last_named: i64,
}

impl Correlator {
    /// What to send for an event; `None` when its series has grown, but not enough to say so.
    pub(super) fn take(&mut self, event: &Event, now: Time) -> Option<Write> {
        let key = SeriesKey {
            regarding: event.regarding.clone(),
            kind: event.kind,
            reason: event.reason.clone(),
            action: event.action.clone(),
            reporting_controller: event.reporting_controller.clone(),
        };
        let told = self.notes.hash_one(&event.note);
        if let Some(series) = self.series.get_mut(&key)
            && now.since(series.last) <= SERIES_IDLE
        {
            series.count += 1;
            series.last = now;
            let note = series.note != told;
            series.note = told;
            // The first repetitions are told one by one, later ones ever more seldom.
            return (note || series.count.is_power_of_two()).then(|| Write::Grow {
                name: series.name.clone(),
                count: series.count,
                note,
            });
        }
        if self.series.len() >= SERIES_MAX {
            self.forget(now);
        }
        let name = self.name(&event.regarding, now);
        let fresh = Series {
            name: name.clone(),
            count: 1,
            last: now,
            note: told,
        };
        self.series.insert(key, fresh);
        Some(Write::Create(name))
    }

    /// A name that no event had before: more than one thing may happen to an object at a time.
    fn name(&mut self, regarding: &Regarding, now: Time) -> String {
        self.last_named = now.as_nanos().max(self.last_named.saturating_add(1));
        let name = format!("{}.{:x}", regarding.name, self.last_named);
        if name.len() <= NAME_BYTES_MAX {
            name
        } else {
            format!("{}.{:x}", regarding.uid, self.last_named)
        }
    }

    /// Makes room for many more: what is over goes, and if that is too little, the longer silent half.
    fn forget(&mut self, now: Time) {
        self.series
            .retain(|_, series| now.since(series.last) <= SERIES_IDLE);
        if self.series.len() > SERIES_MAX / 2 {
            let mut times: Vec<Time> = self.series.values().map(|s| s.last).collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.series.retain(|_, series| series.last > median);
        }
    }

    /// How many series are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.series.len()
    }
}
