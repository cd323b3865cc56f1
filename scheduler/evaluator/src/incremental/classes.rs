//! The nodes that get equal answers and equal normalised scores: a number for each such class.

use super::plan::Unkeepable;
use berth_framework::keep::Class;
use rustc_hash::FxHashMap;

/// A class among those of its shape.
pub(super) type ClassId = u16;

/// The class of a slot without a node.
pub(super) const NO_CLASS: ClassId = ClassId::MAX;

/// The number of classes. Each is judged in each decision, so with more of them the plain evaluator costs less.
const CLASSES_MAX: usize = 8192;

/// The number of classes among which one is looked for before it is hashed. The nodes of three zones take turns.
const RECENT: usize = 8;

/// Nodes with equal numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeClass {
    /// The numbers.
    pub(super) key: Class,
    /// How many nodes there are; a class without nodes is given up.
    pub(super) nodes: usize,
}

/// All classes of a shape.
#[derive(Debug, Default)]
pub(super) struct Classes {
    ids: FxHashMap<Class, ClassId>,
    all: Vec<NodeClass>,
    free: Vec<ClassId>,
    /// The classes that were asked for last, by some bits of their numbers.
    recent: [ClassId; RECENT],
}

impl Classes {
    /// Adds a node to the class with these numbers.
    ///
    /// # Errors
    /// When there are too many classes.
    #[inline]
    pub(super) fn add(&mut self, key: &Class) -> Result<ClassId, Unkeepable> {
        let bits = key
            .iter()
            .fold(0, |bits: i64, number| bits.wrapping_add(*number));
        let recent = bits as usize % RECENT;
        if let Some(class) = self.all.get_mut(self.recent[recent] as usize)
            && class.nodes > 0
            && class.key == *key
        {
            class.nodes += 1;
            return Ok(self.recent[recent]);
        }
        let id = match self.ids.get(key) {
            Some(id) => *id,
            None => self.open(key)?,
        };
        self.recent[recent] = id;
        self.all[id as usize].nodes += 1;
        Ok(id)
    }

    /// Adds a node to a class that has nodes.
    #[inline]
    pub(super) fn add_to(&mut self, id: ClassId) {
        self.all[id as usize].nodes += 1;
    }

    fn open(&mut self, key: &Class) -> Result<ClassId, Unkeepable> {
        if self.ids.len() >= CLASSES_MAX {
            return Err(Unkeepable);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(NodeClass::default());
            self.all.len() as ClassId - 1
        });
        self.all[id as usize].key = key.clone();
        self.ids.insert(key.clone(), id);
        Ok(id)
    }

    /// Takes a node out of a class.
    pub(super) fn remove(&mut self, id: ClassId) {
        let class = &mut self.all[id as usize];
        class.nodes -= 1;
        if class.nodes == 0 {
            self.ids.remove(&class.key);
            self.free.push(id);
        }
    }

    /// A class.
    #[inline]
    pub(super) fn get(&self, id: ClassId) -> &NodeClass {
        &self.all[id as usize]
    }

    /// One more than the greatest number of a class.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<NodeClass>()
            + self.ids.capacity() * (size_of::<Class>() + size_of::<ClassId>())
    }
}
