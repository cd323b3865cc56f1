//! The contributions of the profiles to the queue: PreEnqueue plugins, and the events that can help pods that a plugin
//! rejected.

use berth_api::{CustomKind, Kind, NotAResource, Str};
use berth_framework::event::{EventRegistration, WaitsFn};
use berth_framework::plugin::{PreEnqueue, QueueSort};
use berth_framework::registry::Extensions;
use berth_framework::{ActionType, ClusterEvent, EventResource, FeatureGates};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The name of rejections by extenders.
pub const EXTENDER: &str = "Extender";

/// The maximum number of different events whose matching registrations are stored.
const MATCHED_MAX: usize = 1024;

/// The registrations of one plugin.
#[derive(Debug, Clone)]
pub struct PluginEvents {
    /// The plugin.
    pub plugin: Str,
    /// The registrations. Without registrations, the pods of the plugin wait for the flush.
    pub registrations: Vec<EventRegistration>,
}

/// The contribution of one profile to the queue.
#[derive(Clone)]
pub struct ProfileHooks {
    /// The `schedulerName` of its pods.
    pub scheduler_name: Str,
    /// The order of the active queue. It is equal in all profiles; the order of the first profile is used.
    pub queue_sort: Arc<dyn QueueSort>,
    /// The PreEnqueue plugins with their names, in the order in which they run.
    pub pre_enqueue: Vec<(Str, Arc<dyn PreEnqueue>)>,
    /// The registrations, in plugin order.
    pub events: Vec<PluginEvents>,
}

impl ProfileHooks {
    /// A profile without PreEnqueue plugins and registrations.
    pub fn new(scheduler_name: impl Into<Str>, queue_sort: Arc<dyn QueueSort>) -> Self {
        Self {
            scheduler_name: scheduler_name.into(),
            queue_sort,
            pre_enqueue: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Appends a PreEnqueue plugin.
    #[must_use]
    pub fn with_pre_enqueue(mut self, name: impl Into<Str>, plugin: Arc<dyn PreEnqueue>) -> Self {
        self.pre_enqueue.push((name.into(), plugin));
        self
    }

    /// Adds the registrations of a plugin: its own, or [`default_registrations`] if it can reject pods but registers no
    /// events. A plugin that never rejects a pod has none.
    #[must_use]
    pub fn with_plugin(mut self, plugin: &Extensions, features: &FeatureGates) -> Self {
        let rejects = plugin.pre_enqueue.is_some()
            || plugin.pre_filter.is_some()
            || plugin.filter.is_some()
            || plugin.reserve.is_some()
            || plugin.permit.is_some()
            || plugin.placement_generate.is_some()
            || plugin.placement_feasible.is_some();
        if rejects {
            let registrations = match &plugin.events {
                Some(events) => events.clone().events(features),
                None => default_registrations(),
            };
            self.events.push(PluginEvents {
                plugin: Str::new(&plugin.name),
                registrations,
            });
        }
        self
    }

    /// Adds the registrations of the extenders: any event can help their pods.
    #[must_use]
    pub fn with_extenders(mut self) -> Self {
        self.events.push(PluginEvents {
            plugin: Str::new(EXTENDER),
            registrations: default_registrations(),
        });
        self
    }
}

impl fmt::Debug for ProfileHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&Str> = self.pre_enqueue.iter().map(|(name, _)| name).collect();
        f.debug_struct("ProfileHooks")
            .field("scheduler_name", &self.scheduler_name)
            .field("pre_enqueue", &names)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// The registrations of a plugin without its own: all actions on the kinds below.
pub fn default_registrations() -> Vec<EventRegistration> {
    [
        EventResource::Pod,
        EventResource::Node,
        EventResource::PersistentVolume,
        EventResource::PersistentVolumeClaim,
        EventResource::CsiNode,
        EventResource::CsiDriver,
        EventResource::CsiStorageCapacity,
        EventResource::StorageClass,
        EventResource::ResourceClaim,
        EventResource::DeviceClass,
    ]
    .into_iter()
    .map(|resource| EventRegistration::always(resource, ActionType::ALL))
    .collect()
}

/// The custom kind of a registration; `None` for a kind that is watched in any case.
fn custom_kind(registration: &EventRegistration) -> Option<Result<Kind, NotAResource>> {
    let resource = &registration.event.resource;
    let EventResource::Other(name) = resource else {
        return None;
    };
    let is_known = |kind: &Kind| EventResource::of_kind(*kind) == *resource;
    if Kind::ALL.iter().any(is_known) {
        None
    } else {
        Some(CustomKind::of(name).map(Kind::Custom))
    }
}

/// Names a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ProfileId(u32);

/// One registration of one plugin.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) plugin: Str,
    pub(super) on: EventRegistration,
}

/// A profile in the queue.
pub(super) struct QueueProfile {
    pub(super) scheduler_name: Str,
    pub(super) pre_enqueue: Vec<(Str, Arc<dyn PreEnqueue>)>,
    pub(super) registrations: Vec<Registration>,
    /// The registrations of each plugin that index pods by keys.
    indexed: FxHashMap<Str, Vec<(usize, WaitsFn)>>,
}

impl QueueProfile {
    /// The registrations of a plugin that index pods, each with its function.
    pub(super) fn indexed(&self, plugin: &str) -> &[(usize, WaitsFn)] {
        self.indexed.get(plugin).map_or(&[], Vec::as_slice)
    }
}

/// An event with the registrations that match it.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) label: Str,
    pub(super) is_wildcard: bool,
    /// Per profile, the indexes of its registrations.
    by_profile: Vec<Vec<usize>>,
    /// The plugins that registered for the event in any profile, each once: they can admit a pod that they reject
    ///
    pub(super) plugins: Vec<Str>,
}

impl Matched {
    /// Returns whether any plugin registered for the event.
    pub(super) fn is_interesting(&self) -> bool {
        self.is_wildcard || !self.plugins.is_empty()
    }

    /// The registrations of a profile that match it, as indexes.
    pub(super) fn of(&self, profile: ProfileId) -> &[usize] {
        self.by_profile
            .get(profile.0 as usize)
            .map_or(&[], Vec::as_slice)
    }
}

/// All profiles.
pub(super) struct Profiles {
    profiles: Vec<QueueProfile>,
    by_name: FxHashMap<Str, ProfileId>,
    matched: FxHashMap<ClusterEvent, Arc<Matched>>,
}

impl Profiles {
    /// Creates the profiles. With `implicit_node_taint`, a plugin that registers for new nodes but not for their taints
    /// is also registered for taints, and always queues. Without `with_index`, events examine all pods that a
    /// plugin rejected.
    pub(super) fn new(
        hooks: Vec<ProfileHooks>,
        implicit_node_taint: bool,
        with_index: bool,
    ) -> Self {
        let mut profiles = Vec::with_capacity(hooks.len());
        let mut by_name = FxHashMap::default();
        for hooks in hooks {
            let mut registrations = Vec::new();
            for PluginEvents {
                plugin,
                registrations: own,
            } in hooks.events
            {
                let node = |action: ActionType| {
                    own.iter().any(|r| {
                        r.event.resource == EventResource::Node && r.event.action.intersects(action)
                    })
                };
                // until 1.36, a pre-check ignores new nodes with taints. Such a node can help without its taints.
                let implicit = (implicit_node_taint
                    && node(ActionType::ADD)
                    && !node(ActionType::UPDATE_NODE_TAINT))
                .then(|| {
                    EventRegistration::always(EventResource::Node, ActionType::UPDATE_NODE_TAINT)
                });
                registrations.extend(own.into_iter().chain(implicit).map(|mut on| {
                    on.index = on.index.filter(|_| with_index);
                    Registration {
                        plugin: plugin.clone(),
                        on,
                    }
                }));
            }
            let id = ProfileId(u32::try_from(profiles.len()).unwrap_or(u32::MAX));
            by_name.entry(hooks.scheduler_name.clone()).or_insert(id);
            profiles.push(QueueProfile {
                scheduler_name: hooks.scheduler_name,
                pre_enqueue: hooks.pre_enqueue,
                indexed: indexed(&registrations),
                registrations,
            });
        }
        Self {
            profiles,
            by_name,
            matched: FxHashMap::default(),
        }
    }

    /// The profile of pods with this scheduler name.
    pub(super) fn by_name(&self, scheduler_name: &str) -> Option<ProfileId> {
        self.by_name.get(scheduler_name).copied()
    }

    /// A profile; `None` for pods of other schedulers.
    pub(super) fn get(&self, id: Option<ProfileId>) -> Option<&QueueProfile> {
        self.profiles.get(id?.0 as usize)
    }

    /// A profile with its ID; `None` for pods of other schedulers.
    pub(super) fn known(&self, id: Option<ProfileId>) -> Option<(ProfileId, &QueueProfile)> {
        id.zip(self.get(id))
    }

    /// The custom kinds with registrations, each once, sorted.
    pub(super) fn custom_kinds(&self) -> BTreeSet<Kind> {
        self.registrations()
            .filter_map(|registration| custom_kind(&registration.on)?.ok())
            .collect()
    }

    /// The plugins with invalid resources in registrations, and these resources.
    pub(super) fn incorrect(&self) -> BTreeSet<(Str, String)> {
        self.registrations()
            .filter_map(|registration| {
                let error = custom_kind(&registration.on)?.err()?;
                Some((registration.plugin.clone(), error.to_string()))
            })
            .collect()
    }

    fn registrations(&self) -> impl Iterator<Item = &Registration> {
        self.profiles.iter().flat_map(|p| &p.registrations)
    }

    /// All profiles.
    pub(super) fn ids(&self) -> impl Iterator<Item = ProfileId> + use<> {
        (0..u32::try_from(self.profiles.len()).unwrap_or(u32::MAX)).map(ProfileId)
    }

    /// The registrations for an event, computed once for each different event.
    pub(super) fn matched(&mut self, event: &ClusterEvent) -> Arc<Matched> {
        if let Some(known) = self.matched.get(event) {
            return known.clone();
        }
        let mut plugins: Vec<Str> = Vec::new();
        let by_profile = self
            .profiles
            .iter()
            .map(|profile| {
                let mut matching = Vec::new();
                for (at, registration) in profile.registrations.iter().enumerate() {
                    if registration.on.event.matches(event) {
                        matching.push(at);
                        if !plugins.contains(&registration.plugin) {
                            plugins.push(registration.plugin.clone());
                        }
                    }
                }
                matching
            })
            .collect();
        let matched = Arc::new(Matched {
            label: Str::from(event.label()),
            is_wildcard: event.is_wildcard(),
            by_profile,
            plugins,
        });
        // Events differ by kind and action only, so the table is small unless many custom kinds are watched.
        if self.matched.len() >= MATCHED_MAX {
            self.matched.clear();
        }
        self.matched.insert(event.clone(), matched.clone());
        matched
    }
}

fn indexed(registrations: &[Registration]) -> FxHashMap<Str, Vec<(usize, WaitsFn)>> {
    let mut by_plugin: FxHashMap<Str, Vec<(usize, WaitsFn)>> = FxHashMap::default();
    for (at, registration) in registrations.iter().enumerate() {
        let index = registration.on.index.as_ref();
        if let Some(waits) = index.and_then(|index| index.waits.clone()) {
            let plugin = registration.plugin.clone();
            by_plugin.entry(plugin).or_default().push((at, waits));
        }
    }
    by_plugin
}

impl fmt::Debug for Profiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.profiles.iter().map(|p| &p.scheduler_name))
            .finish()
    }
}
