//! Watches: every change of a kind in order, with delays and possibly repeated; or a new list of all objects.

use super::World;
use crate::shapes::DEFERRED_QUOTA;
use berth_api::{Kind, Object};
use std::fmt;

/// The kinds that change in the world.
pub const WATCHED: [Kind; 13] = [
    Kind::Pod,
    Kind::Node,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::StorageClass,
    Kind::CsiNode,
    Kind::Namespace,
    Kind::PodDisruptionBudget,
    Kind::DeviceClass,
    Kind::ResourceSlice,
    Kind::ResourceClaim,
    Kind::PodGroup,
    Kind::Custom(DEFERRED_QUOTA),
];

/// A change of one object, as a watch delivers it.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent {
    /// An object is new or has changed.
    Applied(Object),
    /// An object was deleted; its last state.
    Deleted(Object),
}

impl WatchEvent {
    /// The object.
    pub fn object(&self) -> &Object {
        match self {
            Self::Applied(object) | Self::Deleted(object) => object,
        }
    }

    /// The object's kind.
    pub fn kind(&self) -> Kind {
        self.object().kind()
    }
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object();
        write!(f, "{} {}", object.kind().name(), object.metadata().name)?;
        if let Self::Deleted(_) = self {
            return write!(f, " ({}) was deleted", object.metadata().uid);
        }
        match object {
            Object::Pod(pod) => {
                write!(f, " ({})", pod.uid())?;
                if pod.is_assigned() {
                    write!(f, " on {}", pod.spec.node_name)?;
                }
                if pod.is_terminating() {
                    f.write_str(" going")?;
                }
                if !pod.status.nominated_node_name.is_empty() {
                    write!(f, " nominated to {}", pod.status.nominated_node_name)?;
                }
                if let Some(c) = pod.condition("PodScheduled") {
                    write!(f, " scheduled={} {}", c.status, c.reason)?;
                }
                Ok(())
            }
            Object::PersistentVolume(volume) => match &volume.spec.claim_ref {
                Some(claim) => write!(f, " for claim {}", claim.name),
                None => f.write_str(" free"),
            },
            Object::PersistentVolumeClaim(claim) if claim.is_fully_bound() => {
                write!(f, " with volume {}", claim.spec.volume_name)
            }
            Object::ResourceClaim(claim) => {
                let results = claim
                    .status
                    .allocation
                    .iter()
                    .flat_map(|a| &a.devices.results);
                for result in results {
                    write!(f, " with {}/{}", result.pool, result.device)?;
                }
                for consumer in &claim.status.reserved_for {
                    write!(f, " for {}", consumer.name)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The progress of the watches of one scheduler.
#[derive(Debug, Clone, Default)]
pub struct Watches {
    /// By index in [`WATCHED`]: the number of delivered or skipped changes.
    at: [usize; WATCHED.len()],
    /// The last delivered change, if no list followed.
    last: [Option<WatchEvent>; WATCHED.len()],
}

fn place(kind: Kind) -> Option<usize> {
    WATCHED.iter().position(|watched| *watched == kind)
}

impl Watches {
    /// The next change of a kind, which counts as delivered.
    pub fn next(&mut self, world: &World, kind: Kind) -> Option<WatchEvent> {
        let place = place(kind)?;
        let event = world.log(kind).get(self.at[place])?.clone();
        self.at[place] += 1;
        self.last[place] = Some(event.clone());
        Some(event)
    }

    /// The last delivered change, if no list followed.
    pub fn last(&self, kind: Kind) -> Option<&WatchEvent> {
        self.last[place(kind)?].as_ref()
    }

    /// The number of changes of a kind that have not been delivered.
    pub fn undelivered(&self, world: &World, kind: Kind) -> usize {
        let at = place(kind).map_or(0, |place| self.at[place]);
        world.log(kind).len() - at
    }

    /// The number of changes that have not been delivered.
    pub fn undelivered_in_all(&self, world: &World) -> usize {
        let each = WATCHED.map(|kind| self.undelivered(world, kind));
        each.iter().sum()
    }

    /// A watch breaks: its undelivered events are lost, and the current objects are listed.
    pub fn relist(&mut self, world: &World, kind: Kind) -> Vec<Object> {
        if let Some(place) = place(kind) {
            self.at[place] = world.log(kind).len();
            self.last[place] = None;
        }
        world.list(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Pod;

    #[test]
    fn watches_deliver_in_order_and_a_relist_delivers_the_current_state() {
        let mut world = World::default();
        world.create_pod("a", Pod::default());
        world.delete_pod("a");
        let (mut one, mut other) = (Watches::default(), Watches::default());
        let first = one.next(&world, Kind::Pod);
        assert!(matches!(first, Some(WatchEvent::Applied(_))));
        assert_eq!(one.last(Kind::Pod), first.as_ref());
        assert_eq!(one.undelivered_in_all(&world), 1);
        assert_eq!(one.relist(&world, Kind::Pod), []);
        assert_eq!(one.undelivered(&world, Kind::Pod), 0);
        assert_eq!(one.last(Kind::Pod), None);
        assert_eq!(other.undelivered(&world, Kind::Pod), 2);
        assert_eq!(other.next(&world, Kind::Pod), first);
    }
}
