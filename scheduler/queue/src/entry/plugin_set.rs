//! Sets of plugin names.

use berth_api::Str;
use std::fmt;
use std::sync::Arc;

/// A small set of plugin names, sorted. Cloning shares.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PluginSet(Option<Arc<[Str]>>);

impl PluginSet {
    /// The names, sorted.
    pub fn as_slice(&self) -> &[Str] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// The names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Str> {
        self.as_slice().iter()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the set contains `plugin`.
    pub fn contains(&self, plugin: &str) -> bool {
        self.as_slice().iter().any(|name| name.as_str() == plugin)
    }

    /// Adds a plugin; returns false if the set contained it.
    pub fn insert(&mut self, plugin: &Str) -> bool {
        let names = self.as_slice();
        let Err(at) = names.binary_search(plugin) else {
            return false;
        };
        self.0 = Some(
            names[..at]
                .iter()
                .chain([plugin])
                .chain(&names[at..])
                .cloned()
                .collect(),
        );
        true
    }

    /// Adds plugins.
    pub(crate) fn extend<'a>(&mut self, plugins: impl IntoIterator<Item = &'a Str>) {
        for plugin in plugins {
            self.insert(plugin);
        }
    }
}

impl<S: Into<Str>> FromIterator<S> for PluginSet {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut names: Vec<Str> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        Self((!names.is_empty()).then(|| names.into()))
    }
}

impl fmt::Debug for PluginSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_set_holds_each_name_once_sorted() {
        let mut set: PluginSet = ["b", "a", "b"].into_iter().collect();
        assert!(set.insert(&"aa".into()));
        assert!(!set.insert(&"b".into()));
        let names: Vec<&str> = set.iter().map(Str::as_str).collect();
        assert_eq!(names, ["a", "aa", "b"]);
        assert!(set.contains("aa") && !set.contains("c"));
        assert!(PluginSet::from_iter(Vec::<Str>::new()).is_empty());
    }
}
