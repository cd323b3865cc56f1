//! The state that plugins keep while one pod is being scheduled.

use std::any::{Any, TypeId};

/// Values of one scheduling cycle, one per type: a plugin defines a type of its own and finds it again in its later
/// extension points. When preemption and nominated pods change the cluster temporarily, the plugins' `add_pod` and
/// `remove_pod` update and restore the values; nothing is cloned.
#[derive(Default)]
pub struct CycleState {
    values: Vec<(TypeId, Box<dyn Any + Send>)>,
}

impl CycleState {
    /// The value of type `T`, if one was written.
    pub fn read<T: Any>(&self) -> Option<&T> {
        let key = TypeId::of::<T>();
        let (_, value) = self.values.iter().find(|(k, _)| *k == key)?;
        value.downcast_ref()
    }

    /// The value of type `T`, to change.
    pub fn read_mut<T: Any>(&mut self) -> Option<&mut T> {
        let key = TypeId::of::<T>();
        let (_, value) = self.values.iter_mut().find(|(k, _)| *k == key)?;
        value.downcast_mut()
    }

    /// Sets the value of type `T`.
    pub fn write<T: Any + Send>(&mut self, value: T) {
        let key = TypeId::of::<T>();
        match self.values.iter_mut().find(|(k, _)| *k == key) {
            Some((_, slot)) => *slot = Box::new(value),
            None => self.values.push((key, Box::new(value))),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-21: a value is found by its type, a later value replaces the earlier one, and reading a type that was never
    /// written returns nothing.
    #[test]
    fn each_type_has_one_value() {
        let mut state = CycleState::default();
        assert_eq!(state.read::<u8>(), None);
        assert_eq!(state.read_mut::<u8>(), None);
        state.write(1_u8);
        state.write("text");
        state.write(2_u8);
        assert_eq!(state.read::<u8>(), Some(&2));
        assert_eq!(state.read::<&str>(), Some(&"text"));
        assert_eq!(state.read::<u16>(), None);
        if let Some(value) = state.read_mut::<u8>() {
            *value += 1;
        }
        assert_eq!(state.read::<u8>(), Some(&3));
        state.clear();
        assert_eq!(state.read::<u8>(), None);
    }
}
