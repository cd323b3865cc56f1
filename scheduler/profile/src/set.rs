//! Plugins at an extension point, and small sets of plugins.

use berth_api::Str;
use berth_framework::plugin::Score;
use berth_framework::registry::Extensions;
use std::fmt;
use std::sync::Arc;

/// The number of plugins that a profile can have.
pub const PLUGINS_MAX: usize = 128;

/// A plugin's place among the plugins of its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginId(u8);

impl PluginId {
    /// `index` is below [`PLUGINS_MAX`].
    pub(super) fn new(index: usize) -> Self {
        debug_assert!(index < PLUGINS_MAX);
        Self(index as u8)
    }

    /// The index among the profile's plugins.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Some of a profile's plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginIds(u128);

impl PluginIds {
    /// Adds one.
    #[inline]
    pub fn insert(&mut self, id: PluginId) {
        self.0 |= 1 << id.0;
    }

    /// Returns whether it is one of them.
    #[inline]
    pub fn contains(self, id: PluginId) -> bool {
        self.0 & (1 << id.0) != 0
    }

    /// Returns whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A plugin at an extension point.
pub struct Member<P: ?Sized> {
    /// Its place in the profile.
    pub id: PluginId,
    /// Its name, shared.
    pub name: Str,
    /// The plugin.
    pub plugin: Arc<P>,
}

impl<P: ?Sized> Member<P> {
    /// The plugin at a point, if it has that point.
    pub(super) fn new(id: PluginId, of: &Extensions, plugin: Option<&Arc<P>>) -> Option<Self> {
        Some(Self {
            id,
            name: Str::new(&of.name),
            plugin: plugin?.clone(),
        })
    }
}

impl<P: ?Sized> Clone for Member<P> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            name: self.name.clone(),
            plugin: self.plugin.clone(),
        }
    }
}

impl<P: ?Sized> fmt::Debug for Member<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A plugin that scores.
#[derive(Debug, Clone)]
pub struct ScoreMember {
    /// The plugin.
    pub member: Member<dyn Score>,
    /// The weight of its score; at least one.
    pub weight: i64,
}
