//! Resource lists as the API writes them, and sums of resources as the scheduler computes with them.

use crate::{Quantity, Str};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt;

/// The name of the CPU resource; sums of it are in milli-CPU.
pub const CPU: &str = "cpu";
/// The name of the memory resource, in bytes.
pub const MEMORY: &str = "memory";
/// The name of the ephemeral-storage resource, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// The name of the resource that limits how many pods a node takes.
pub const PODS: &str = "pods";

/// The number of resources that are inserted one by one.
const FEW: usize = 16;

/// Quantities by resource name, sorted by name.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceList(Vec<(Str, Quantity)>);

impl ResourceList {
    /// A list from pairs; the last of several equal names wins.
    pub fn from_pairs<N: Into<Str>>(pairs: impl IntoIterator<Item = (N, Quantity)>) -> Self {
        let pairs = pairs.into_iter();
        Self(sorted_by_name(
            pairs.map(|(name, quantity)| (name.into(), quantity)),
        ))
    }

    /// The quantity of `name`.
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        Some(&self.0[self.position(name)?].1)
    }

    /// The place of `name` among all names.
    pub fn position(&self, name: &str) -> Option<usize> {
        let found = self.0.binary_search_by(|(n, _)| n.as_str().cmp(name));
        found.ok()
    }

    /// Sets the quantity of `name`.
    pub fn set(&mut self, name: Str, quantity: Quantity) {
        match self.0.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(at) => self.0[at].1 = quantity,
            Err(at) => self.0.insert(at, (name, quantity)),
        }
    }

    /// The pairs, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Str, &Quantity)> {
        self.0.iter().map(|(n, q)| (n, q))
    }

    /// Returns whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds every quantity of `other`.
    pub fn add_all(&mut self, other: &Self) {
        self.merge(other, |mine, other| mine + other);
    }

    /// Raises every quantity to the quantity in `other` if it is lower or absent.
    pub fn max_all(&mut self, other: &Self) {
        self.merge(other, |mine, other| if mine < other { other } else { mine });
    }

    fn merge(&mut self, other: &Self, both: fn(Quantity, Quantity) -> Quantity) {
        // Insertions into a long list would move it each time.
        if other.0.len() > FEW {
            let mut merged: BTreeMap<Str, Quantity> = std::mem::take(self).0.into_iter().collect();
            for (name, quantity) in other.iter() {
                let mine = merged.get(name).copied();
                let quantity = mine.map_or(*quantity, |mine| both(mine, *quantity));
                merged.insert(name.clone(), quantity);
            }
            self.0 = merged.into_iter().collect();
            return;
        }
        for (name, quantity) in other.iter() {
            let mine = self.get(name).copied();
            let quantity = mine.map_or(*quantity, |mine| both(mine, *quantity));
            self.set(name.clone(), quantity);
        }
    }
}

/// Quantities by resource name while they are summed up. A pod can have thousands of containers, each with a resource
/// of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResourceSum(BTreeMap<Str, Quantity>);

impl ResourceSum {
    /// The quantity of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    /// Adds every quantity of `other`.
    pub(crate) fn add_all(&mut self, other: &ResourceList) {
        for (name, quantity) in other.iter() {
            self.add(name, *quantity);
        }
    }

    /// Adds a quantity.
    pub(crate) fn add(&mut self, name: &Str, quantity: Quantity) {
        match self.0.get_mut(name) {
            Some(mine) => *mine += quantity,
            None => drop(self.0.insert(name.clone(), quantity)),
        }
    }

    /// Raises a quantity where it is lower or absent.
    pub(crate) fn max(&mut self, name: &Str, quantity: Quantity) {
        match self.0.get_mut(name) {
            Some(mine) if *mine >= quantity => {}
            Some(mine) => *mine = quantity,
            None => drop(self.0.insert(name.clone(), quantity)),
        }
    }
}

impl From<ResourceSum> for ResourceList {
    fn from(sum: ResourceSum) -> Self {
        Self(sum.0.into_iter().collect())
    }
}

/// Pairs sorted by name; the last of several equal names wins, as in JSON.
pub(crate) fn sorted_by_name<T>(pairs: impl IntoIterator<Item = (Str, T)>) -> Vec<(Str, T)> {
    let mut pairs: Vec<(Str, T)> = pairs.into_iter().collect();
    // The API server writes maps in order.
    if !pairs.is_sorted_by(|(a, _), (b, _)| a < b) {
        pairs.reverse();
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        pairs.dedup_by(|(a, _), (b, _)| a == b);
    }
    pairs
}

impl fmt::Debug for ResourceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(n, q)| (n, q.to_string())))
            .finish()
    }
}

impl Serialize for ResourceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for ResourceList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = ResourceList;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from resource names to quantities")
            }
            fn visit_unit<E>(self) -> Result<ResourceList, E> {
                Ok(ResourceList::default())
            }
            fn visit_none<E>(self) -> Result<ResourceList, E> {
                Ok(ResourceList::default())
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<ResourceList, D::Error> {
                d.deserialize_map(self)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceList, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<Str, Quantity>()? {
                    pairs.push(pair);
                }
                Ok(ResourceList(sorted_by_name(pairs)))
            }
        }
        deserializer.deserialize_option(Pairs)
    }
}

/// A sum of resources in whole units: CPU in milli-CPU, memory and storage in bytes, everything else unchanged.
///
/// It contains only the resources that scheduling tracks (see [`crate::names::is_scalar_resource_name`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    /// CPU in thousandths of a core.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// The number of pods that a node takes (`pods` of its allocatable); zero in requests.
    pub pods: i64,
    /// Extended and prefixed resources, huge pages and attachable volumes, sorted by name. An entry may be zero.
    pub scalars: SmallVec<[(Str, i64); 2]>,
}

impl Resources {
    /// The sums of a list, each rounded up; untracked names are left out.
    pub fn from_list(list: &ResourceList) -> Self {
        let mut sum = Self::default();
        for (name, quantity) in list.iter() {
            match name.as_str() {
                CPU => sum.milli_cpu = quantity.milli_value(),
                MEMORY => sum.memory = quantity.value(),
                EPHEMERAL_STORAGE => sum.ephemeral_storage = quantity.value(),
                PODS => sum.pods = quantity.value(),
                name if crate::names::is_scalar_resource_name(name) => {
                    sum.set_scalar(Str::new(name), quantity.value());
                }
                _ => {}
            }
        }
        sum
    }

    /// The amount of a scalar resource; zero when there is no entry.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars
            .binary_search_by(|(n, _)| n.as_str().cmp(name))
            .map_or(0, |at| self.scalars[at].1)
    }

    /// The amount of any resource, in the unit of its field.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            CPU => self.milli_cpu,
            MEMORY => self.memory,
            EPHEMERAL_STORAGE => self.ephemeral_storage,
            PODS => self.pods,
            name => self.scalar(name),
        }
    }

    /// Sets the amount of a scalar resource.
    pub fn set_scalar(&mut self, name: Str, amount: i64) {
        match self.scalars.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(at) => self.scalars[at].1 = amount,
            Err(at) => self.scalars.insert(at, (name, amount)),
        }
    }

    /// Adds `other`, saturating. The pod count is left alone: it is a capacity, not a request.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add);
    }

    /// Subtracts `other`, saturating. The pod count is left alone.
    pub fn sub(&mut self, other: &Self) {
        self.combine(other, i64::saturating_sub);
    }

    fn combine(&mut self, other: &Self, op: fn(i64, i64) -> i64) {
        self.milli_cpu = op(self.milli_cpu, other.milli_cpu);
        self.memory = op(self.memory, other.memory);
        self.ephemeral_storage = op(self.ephemeral_storage, other.ephemeral_storage);
        // Insertions into a long list would move it each time.
        if other.scalars.len() > FEW {
            let mut sums: BTreeMap<Str, i64> = self.scalars.drain(..).collect();
            for (name, amount) in &other.scalars {
                let sum = sums.entry(name.clone()).or_default();
                *sum = op(*sum, *amount);
            }
            self.scalars.extend(sums);
            return;
        }
        for (name, amount) in &other.scalars {
            self.set_scalar(name.clone(), op(self.scalar(name), *amount));
        }
    }
}
