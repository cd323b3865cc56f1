//! Lanes: the order of calls when more are waiting than may be in flight.
//!
//! Each lane has a reserved share that no other lane can use, and a maximum. The unreserved share is given to the
//! highest lane that can use it. So a burst in a low lane cannot delay a higher lane, and a burst in a high lane cannot
//! starve a lower lane.

use berth_framework::write::Lane;
use std::collections::BTreeSet;

/// The share of a lane in the calls that may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneShare {
    /// The number of calls that can always be in flight, whatever the other lanes do.
    pub reserved: usize,
    /// The greatest number of calls in flight.
    pub max: usize,
}

/// The shares of the lanes in the calls that may be in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneShares {
    /// Of [`Lane::Binding`].
    pub binding: LaneShare,
    /// Of [`Lane::Deletion`].
    pub deletion: LaneShare,
    /// Of [`Lane::Write`].
    pub write: LaneShare,
    /// Of [`Lane::Status`].
    pub status: LaneShare,
}

impl LaneShares {
    /// The share of a lane.
    pub fn of(&self, lane: Lane) -> LaneShare {
        match lane {
            Lane::Binding => self.binding,
            Lane::Deletion => self.deletion,
            Lane::Write => self.write,
            Lane::Status => self.status,
        }
    }
}

/// A position in a lane: lower positions are sent first. The object keeps its position when its call is replaced.
pub(super) type LanePosition = u64;

/// The lanes: the objects that are ready, and how many calls are in flight.
#[derive(Debug)]
pub(super) struct Lanes {
    shares: LaneShares,
    /// The capacity that is not reserved for any lane.
    shared: usize,
    ready: [BTreeSet<(LanePosition, u32)>; 4],
    in_flight: [usize; 4],
    next_position: LanePosition,
}

impl Lanes {
    pub(super) fn new(shares: LaneShares, in_flight_max: usize) -> Self {
        let reserved: usize = Lane::ALL.map(|l| shares.of(l).reserved).iter().sum();
        Self {
            shares,
            shared: in_flight_max.saturating_sub(reserved),
            ready: Default::default(),
            in_flight: [0; 4],
            next_position: 0,
        }
    }

    /// A position after all existing ones.
    pub(super) fn last_position(&mut self) -> LanePosition {
        self.next_position += 1;
        self.next_position
    }

    /// Adds an object whose call may be sent.
    pub(super) fn add(&mut self, lane: Lane, position: LanePosition, object: u32) {
        self.ready[lane as usize].insert((position, object));
    }

    /// Removes an object whose call may not be sent any more.
    pub(super) fn remove(&mut self, lane: Lane, position: LanePosition, object: u32) {
        self.ready[lane as usize].remove(&(position, object));
    }

    /// Returns whether one more call of the lane may be in flight.
    fn has_room(&self, lane: Lane) -> bool {
        let share = self.shares.of(lane);
        let mine = self.in_flight[lane as usize];
        if mine >= share.max.max(share.reserved) {
            return false;
        }
        mine < share.reserved || self.shared_in_use() < self.shared
    }

    fn shared_in_use(&self) -> usize {
        let beyond = |lane: Lane| {
            self.in_flight[lane as usize].saturating_sub(self.shares.of(lane).reserved)
        };
        Lane::ALL.map(beyond).iter().sum()
    }

    /// Removes the next object to send from the ready objects; `None` when no lane with room has one.
    pub(super) fn pick(&mut self) -> Option<(Lane, u32)> {
        let lane = Lane::ALL
            .into_iter()
            .find(|lane| !self.ready[*lane as usize].is_empty() && self.has_room(*lane))?;
        let (_, object) = self.ready[lane as usize].pop_first()?;
        Some((lane, object))
    }

    /// Returns whether [`Lanes::pick`] would find an object.
    #[cfg(test)]
    pub(super) fn has_next(&self) -> bool {
        Lane::ALL
            .into_iter()
            .any(|lane| !self.ready[lane as usize].is_empty() && self.has_room(lane))
    }

    /// A call is in flight.
    pub(super) fn start(&mut self, lane: Lane) {
        self.in_flight[lane as usize] += 1;
    }

    /// A call is no longer in flight.
    pub(super) fn end(&mut self, lane: Lane) {
        let mine = &mut self.in_flight[lane as usize];
        debug_assert!(*mine > 0, "a call that ends was on its way");
        *mine = mine.saturating_sub(1);
    }

    /// The number of calls of a lane that are in flight.
    pub(super) fn in_flight(&self, lane: Lane) -> usize {
        self.in_flight[lane as usize]
    }

    /// The number of objects of a lane that are ready.
    pub(super) fn ready(&self, lane: Lane) -> usize {
        self.ready[lane as usize].len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(shares: [(usize, usize); 4], in_flight_max: usize) -> Lanes {
        let [binding, deletion, write, status] =
            shares.map(|(reserved, max)| LaneShare { reserved, max });
        let shares = LaneShares {
            binding,
            deletion,
            write,
            status,
        };
        Lanes::new(shares, in_flight_max)
    }

    fn ready(lanes: &mut Lanes, lane: Lane, objects: std::ops::Range<u32>) {
        for object in objects {
            let position = lanes.last_position();
            lanes.add(lane, position, object);
        }
    }

    fn start_all(lanes: &mut Lanes) -> [usize; 4] {
        while let Some((lane, _)) = lanes.pick() {
            lanes.start(lane);
        }
        lanes.in_flight
    }

    /// D-11, D-12, cases 165, 166: two calls are sent; the third waits until one has ended.
    #[test]
    fn no_more_than_allowed_are_on_their_way() {
        let mut lanes = lanes([(2, 2), (0, 0), (0, 0), (0, 0)], 2);
        ready(&mut lanes, Lane::Binding, 0..3);
        assert_eq!(start_all(&mut lanes), [2, 0, 0, 0]);
        assert!(!lanes.has_next());
        lanes.end(Lane::Binding);
        assert_eq!(lanes.pick(), Some((Lane::Binding, 2)));
    }

    /// D-11, case 166.
    #[test]
    fn shares_are_kept_whichever_lane_pushes() {
        const MANY: std::ops::Range<u32> = 0..100;
        let shares = [(4, 20), (2, 10), (2, 10), (2, 6)];
        for (who, arrived_first, expected) in [
            ("bindings alone", vec![Lane::Binding], [14, 0, 0, 0]),
            ("statuses alone", vec![Lane::Status], [0, 0, 0, 6]),
            (
                "statuses, then bindings",
                vec![Lane::Status, Lane::Binding],
                [10, 0, 0, 6],
            ),
            (
                "all lanes, from below",
                vec![Lane::Status, Lane::Write, Lane::Deletion, Lane::Binding],
                [4, 2, 8, 6],
            ),
        ] {
            let mut lanes = lanes(shares, 20);
            for lane in arrived_first {
                ready(&mut lanes, lane, MANY);
                start_all(&mut lanes);
            }
            assert_eq!(lanes.in_flight, expected, "{who}");
        }
        let mut lanes = lanes(shares, 20);
        for lane in Lane::ALL {
            ready(&mut lanes, lane, MANY);
        }
        assert_eq!(start_all(&mut lanes), [14, 2, 2, 2], "all lanes at once");
    }

    /// D-5: first come, first served within a lane.
    #[test]
    fn earlier_positions_go_first() {
        let mut lanes = lanes([(9, 9); 4], 36);
        let (first, second) = (lanes.last_position(), lanes.last_position());
        lanes.add(Lane::Status, second, 2);
        lanes.add(Lane::Status, first, 1);
        lanes.add(Lane::Binding, lanes.next_position, 3);
        lanes.remove(Lane::Binding, lanes.next_position, 3);
        assert_eq!(
            (lanes.ready(Lane::Binding), lanes.ready(Lane::Status)),
            (0, 2)
        );
        assert_eq!(lanes.pick(), Some((Lane::Status, 1)));
        assert_eq!(lanes.pick(), Some((Lane::Status, 2)));
        assert_eq!(lanes.pick(), None);
    }
}
