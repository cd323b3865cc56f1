//! Bounds of rows and regions, kept for the next pod with equal requests: many kinds of pods differ in their labels and
//! constraints alone.

use super::search::RegionBounds;
use super::tree::Stamp;
use rustc_hash::FxHasher;
use std::collections::VecDeque;
use std::hash::Hasher;

/// For so many different requests bounds are kept, in clusters that have few rows.
const KEPT_MAX: usize = 64;
/// So many bounds are kept at most, of 32 bytes each, unless one search needs more.
const BOUNDS_MAX: usize = 1 << 20;

/// The bounds of something as of a stamp.
#[derive(Debug, Clone, Copy, Default)]
struct Stamped {
    stamp: Stamp,
    bounds: RegionBounds,
}

/// Bounds by number, each as of its stamp.
#[derive(Debug, Default)]
pub(super) struct StampedBounds(Vec<Stamped>);

/// The bounds for pods with certain requests.
#[derive(Debug, Default)]
pub(super) struct KnownBounds {
    pub(super) rows: StampedBounds,
    pub(super) regions: StampedBounds,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct BoundsByRequests {
    /// With the fragment of the requests. The bounds that were used last come last.
    kept: Vec<(Box<[u8]>, KnownBounds)>,
    /// Hashes of the last requests for which none were kept.
    recent: VecDeque<u64>,
}

impl StampedBounds {
    /// The bounds with this number, if they are known as of `stamp`, or else those that `find` returns, which are kept.
    #[inline]
    pub(super) fn get_or_find(
        &mut self,
        id: u32,
        stamp: Stamp,
        find: impl FnOnce() -> RegionBounds,
    ) -> RegionBounds {
        let at = id as usize;
        if let Some(known) = self.0.get(at)
            && known.stamp == stamp
        {
            return known.bounds;
        }
        if self.0.len() <= at {
            self.0.resize(at + 1, Stamped::default());
        }
        let bounds = find();
        self.0[at] = Stamped { stamp, bounds };
        bounds
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Stamped>()
    }
}

impl BoundsByRequests {
    /// The bounds for pods with these requests; `None` if they have not come lately. `number` is that of all rows and
    /// regions: when it has grown, bounds for fewer requests are kept.
    pub(super) fn of(&mut self, requests: &[u8], number: usize) -> Option<&mut KnownBounds> {
        let most = (BOUNDS_MAX / number.max(1)).clamp(1, KEPT_MAX);
        let surplus = self.kept.len().saturating_sub(most);
        self.kept.drain(..surplus);
        let known = self.kept.iter().position(|(of, _)| **of == *requests);
        let bounds = match known {
            Some(at) => self.kept.remove(at),
            None => {
                if !self.are_recent(requests, most) {
                    return None;
                }
                if self.kept.len() == most {
                    self.kept.remove(0);
                }
                (requests.into(), KnownBounds::default())
            }
        };
        self.kept.push(bounds);
        self.kept.last_mut().map(|(_, bounds)| bounds)
    }

    /// Notes requests. Returns whether they are among the last ones that were noted, of which there are as many as are kept:
    /// of more that come in turns, none would be kept until it comes again.
    fn are_recent(&mut self, requests: &[u8], most: usize) -> bool {
        let mut hasher = FxHasher::default();
        hasher.write(requests);
        let hash = hasher.finish();
        if self.recent.contains(&hash) {
            return true;
        }
        let surplus = (self.recent.len() + 1).saturating_sub(most);
        self.recent.drain(..surplus);
        self.recent.push_back(hash);
        false
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let each = self.kept.iter();
        each.map(|(_, known)| known.rows.bytes() + known.regions.bytes())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests for which bounds are kept, of those that come one after the other.
    fn kept(requests: &[&str], number: usize) -> Vec<bool> {
        let mut by_requests = BoundsByRequests::default();
        let each = requests.iter();
        each.map(|requests| by_requests.of(requests.as_bytes(), number).is_some())
            .collect()
    }

    #[test]
    fn bounds_are_kept_for_requests_that_come_again() {
        assert_eq!(kept(&["a", "a", "a"], 1), [false, true, true]);
        assert_eq!(kept(&["a", "b", "a", "b"], 1), [false, false, true, true]);
        assert_eq!(
            kept(&["a", "b", "b", "a"], BOUNDS_MAX),
            [false, false, true, false]
        );
    }

    #[test]
    fn none_are_kept_for_more_requests_in_turns_than_there_is_room_for() {
        for (number, most) in [(1, KEPT_MAX), (BOUNDS_MAX / 3, 3)] {
            let names: Vec<String> = (0..=most).map(|at| at.to_string()).collect();
            let too_many: Vec<&str> = names.iter().map(String::as_str).cycle().take(200).collect();
            assert_eq!(kept(&too_many, number), [false; 200], "{number}");
            let few: Vec<&str> = names[1..]
                .iter()
                .map(String::as_str)
                .cycle()
                .take(200)
                .collect();
            let kept = kept(&few, number);
            assert_eq!(
                kept.iter().filter(|kept| **kept).count(),
                200 - most,
                "{number}"
            );
        }
    }

    #[test]
    fn there_is_a_limit_of_bounds() {
        for (number, most) in [(1, KEPT_MAX), (BOUNDS_MAX / 3, 3), (2 * BOUNDS_MAX, 1)] {
            let mut by_requests = BoundsByRequests::default();
            for requests in 0..2 * KEPT_MAX as u8 {
                for _ in 0..2 {
                    by_requests.of(&[requests], number);
                }
                assert!(by_requests.kept.len() <= most, "{number}");
            }
            assert_eq!(by_requests.kept.len(), most, "{number}");
            let last = 2 * KEPT_MAX as u8 - 1;
            assert!(
                by_requests.of(&[last], number).is_some(),
                "the last one is kept"
            );
        }
    }

    #[test]
    fn bounds_are_dropped_when_there_are_more_rows() {
        let mut by_requests = BoundsByRequests::default();
        for requests in (0..8).flat_map(|requests| [[requests]; 2]) {
            by_requests.of(&requests, 1);
        }
        assert_eq!(by_requests.kept.len(), 8);
        assert!(by_requests.of(&[7], BOUNDS_MAX / 3).is_some());
        assert_eq!(by_requests.kept.len(), 3);
        by_requests.of(b"new", BOUNDS_MAX);
        assert_eq!(by_requests.kept.len(), 1);
    }

    #[test]
    fn bounds_are_found_once_for_each_stamp() {
        let mut bounds = StampedBounds::default();
        let mut found = Vec::new();
        for (id, stamp) in [(3, 1), (3, 1), (0, 2), (3, 1), (3, 3), (0, 2)] {
            let of = RegionBounds {
                least: stamp as i64,
                ..RegionBounds::default()
            };
            let got = bounds.get_or_find(id, stamp, || {
                found.push((id, stamp));
                of
            });
            assert_eq!(got.least, of.least);
        }
        assert_eq!(found, [(3, 1), (0, 2), (3, 3)]);
    }
}
