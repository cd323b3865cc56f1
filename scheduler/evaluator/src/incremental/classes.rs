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

/// The numbers of each class, and the number of its nodes.
#[derive(Debug, Default)]
pub(super) struct Classes {
    ids: FxHashMap<Class, ClassId>,
    all: Vec<(Class, usize)>,
    /// The classes without nodes.
    free: Vec<ClassId>,
}

impl Classes {
    /// The class with these numbers, a new one if there is none.
    ///
    /// # Errors
    /// When there are too many classes.
    pub(super) fn id(&mut self, numbers: &[i64]) -> Result<ClassId, Unkeepable> {
        match self.ids.get(numbers) {
            Some(id) => Ok(*id),
            None => self.open(numbers),
        }
    }

    /// Adds nodes to a class.
    pub(super) fn add(&mut self, id: ClassId, nodes: usize) {
        self.all[id as usize].1 += nodes;
    }

    fn open(&mut self, numbers: &[i64]) -> Result<ClassId, Unkeepable> {
        if self.ids.len() >= CLASSES_MAX {
            return Err(Unkeepable);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push((Class::new(), 0));
            self.all.len() as ClassId - 1
        });
        self.all[id as usize].0 = numbers.into();
        self.ids.insert(numbers.into(), id);
        Ok(id)
    }

    /// Takes a node out of a class.
    pub(super) fn remove(&mut self, id: ClassId) {
        let (numbers, nodes) = &mut self.all[id as usize];
        *nodes -= 1;
        if *nodes == 0 {
            self.ids.remove(numbers);
            self.free.push(id);
        }
    }

    /// The numbers of a class.
    #[inline]
    pub(super) fn numbers(&self, id: ClassId) -> &[i64] {
        &self.all[id as usize].0
    }

    /// One more than the greatest number of a class.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// About how much memory they take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<(Class, usize)>()
            + self.ids.capacity() * (size_of::<Class>() + size_of::<ClassId>())
    }
}
