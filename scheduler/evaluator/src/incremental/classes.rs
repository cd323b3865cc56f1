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

/// The numbers of each class, and the number of its nodes.
#[derive(Debug, Default)]
pub(super) struct Classes {
    ids: FxHashMap<Class, ClassId>,
    all: Vec<(Class, usize)>,
    /// The classes without nodes.
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
    pub(super) fn add(&mut self, numbers: &[i64]) -> Result<ClassId, Unkeepable> {
        let add = |bits: i64, number: &i64| bits.wrapping_add(*number);
        let recent = numbers.iter().fold(0, add) as usize % RECENT;
        let id = match self.all.get(self.recent[recent] as usize) {
            Some((known, nodes)) if *nodes > 0 && **known == *numbers => self.recent[recent],
            _ => match self.ids.get(numbers) {
                Some(id) => *id,
                None => self.open(numbers)?,
            },
        };
        self.recent[recent] = id;
        self.all[id as usize].1 += 1;
        Ok(id)
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
