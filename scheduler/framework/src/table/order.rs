//! The order in which kube-scheduler visits nodes: one of each zone in turn.

use super::Slot;
use berth_api::{Labels, Str};
use indexmap::IndexMap;
use std::sync::Arc;

/// The zone of a node: region and zone label, the older names first; empty when it has neither.
pub fn zone_key(labels: &Labels) -> Str {
    let region = labels
        .get("failure-domain.beta.kubernetes.io/region")
        .or_else(|| labels.get("topology.kubernetes.io/region"))
        .unwrap_or("");
    let zone = labels
        .get("failure-domain.beta.kubernetes.io/zone")
        .or_else(|| labels.get("topology.kubernetes.io/zone"))
        .unwrap_or("");
    if region.is_empty() && zone.is_empty() {
        return Str::default();
    }
    Str::new(&format!("{region}:\0:{zone}"))
}

/// Nodes by zone. Zones and nodes are in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(super) struct ZoneOrder {
    zones: IndexMap<Str, Vec<Slot>>,
    len: usize,
    list: Option<Arc<[Slot]>>,
}

impl ZoneOrder {
    pub(super) fn insert(&mut self, zone: Str, slot: Slot) {
        self.zones.entry(zone).or_default().push(slot);
        self.len += 1;
        self.list = None;
    }

    pub(super) fn remove(&mut self, zone: &Str, slot: Slot) {
        let Some(slots) = self.zones.get_mut(zone) else {
            return;
        };
        let Some(at) = slots.iter().position(|s| *s == slot) else {
            return;
        };
        slots.remove(at);
        if slots.is_empty() {
            self.zones.shift_remove(zone);
        }
        self.len -= 1;
        self.list = None;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The whole order; computed again only after nodes were added, removed or moved to another zone.
    pub(super) fn list(&mut self) -> Arc<[Slot]> {
        if let Some(list) = &self.list {
            return list.clone();
        }
        let mut order = Vec::with_capacity(self.len);
        let longest = self.zones.values().map(Vec::len).max().unwrap_or(0);
        for round in 0..longest {
            order.extend(self.zones.values().filter_map(|slots| slots.get(round)));
        }
        let list: Arc<[Slot]> = order.into();
        self.list = Some(list.clone());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-9: one node of each zone in turn; within a zone in the order in which the nodes were added.
    #[test]
    fn zones_take_turns_and_exhausted_ones_are_passed_over() {
        let mut order = ZoneOrder::default();
        for (zone, index) in [("a", 0), ("a", 1), ("b", 2), ("c", 3), ("a", 4), ("c", 5)] {
            order.insert(zone.into(), Slot::from_index(index));
        }
        let indexes = |order: &mut ZoneOrder| -> Vec<usize> {
            order.list().iter().map(|s| s.index()).collect()
        };
        assert_eq!(indexes(&mut order), [0, 2, 3, 1, 5, 4]);
        order.remove(&"a".into(), Slot::from_index(1));
        assert_eq!(indexes(&mut order), [0, 2, 3, 4, 5]);
        assert_eq!(order.len(), 5);
    }

    /// C-9: a zone belongs to a region, and either of two pairs of labels names both.
    #[test]
    fn the_older_labels_name_the_zone_first() {
        const OLD: &str = "failure-domain.beta.kubernetes.io";
        const NEW: &str = "topology.kubernetes.io";
        type Label<'a> = (&'a str, &'a str, &'a str);
        let cases: [(&[Label<'_>], &str); 6] = [
            (&[(NEW, "region", "r"), (NEW, "zone", "z")], "r:\0:z"),
            (&[(NEW, "zone", "z")], ":\0:z"),
            (&[(NEW, "region", "r")], "r:\0:"),
            (&[(NEW, "zone", "new"), (OLD, "zone", "old")], ":\0:old"),
            (&[(NEW, "zone", "z"), (OLD, "region", "r")], "r:\0:z"),
            (&[], ""),
        ];
        for (labels, key) in cases {
            let pairs: Vec<(String, &str)> = labels
                .iter()
                .map(|(domain, name, value)| (format!("{domain}/{name}"), *value))
                .collect();
            let pairs = pairs.iter().map(|(name, value)| (name.as_str(), *value));
            assert_eq!(zone_key(&Labels::from_pairs(pairs)), key, "{labels:?}");
        }
    }
}
