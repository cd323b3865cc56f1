//! Profiles: the plugins of each extension point, with their order and weights.
//!
//! [`ProfileSpec`] is the content of a configuration; [`Profiles::build`] merges it with the defaults, creates the
//! plugins and checks the result. All profiles share one queue, so they must have the same queue sort.
//!
//! **Architecture invariant:** plugins are known only by their names and are created by a [`Registry`].

mod defaults;
mod error;
mod expand;
mod set;
mod spec;
mod suggest;

pub use defaults::default_plugins;
pub use error::{ProfileError, ProfileErrors};
pub use expand::{expand, merge};
pub use set::{Member, PLUGINS_MAX, PluginId, PluginIds, ScoreMember};
pub use spec::{EnabledPlugin, PluginConfig, PluginSet, PluginSets, Point, ProfileSpec};
pub use suggest::closest;

use berth_api::Str;
use berth_framework::FeatureGates;
use berth_framework::plugin::{
    Bind, Filter, MAX_NODE_SCORE, Permit, PlacementFeasible, PlacementGenerate, PlacementScore,
    PodGroupPostFilter, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort,
    Reserve,
};
use berth_framework::registry::{Extensions, FactoryContext, Registry};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The plugins for the pods of one scheduler name, ready to run.
pub struct Profile {
    /// The scheduler name.
    pub name: Str,
    /// See [`ProfileSpec::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<i32>,
    /// PreEnqueue, in order.
    pub pre_enqueue: Vec<Member<dyn PreEnqueue>>,
    /// The order of the queue; the same plugin in every profile.
    pub queue_sort: Member<dyn QueueSort>,
    /// PreFilter, in order.
    pub pre_filter: Vec<Member<dyn PreFilter>>,
    /// Filter, in order.
    pub filter: Vec<Member<dyn Filter>>,
    /// PostFilter, in order.
    pub post_filter: Vec<Member<dyn PostFilter>>,
    /// PlacementGenerate, in order.
    pub placement_generate: Vec<Member<dyn PlacementGenerate>>,
    /// PlacementScore, in order, with weights.
    pub placement_score: Vec<(Member<dyn PlacementScore>, i64)>,
    /// PlacementFeasible, in order.
    pub placement_feasible: Vec<Member<dyn PlacementFeasible>>,
    /// PodGroupPostFilter, in order.
    pub pod_group_post_filter: Vec<Member<dyn PodGroupPostFilter>>,
    /// PreScore, in order.
    pub pre_score: Vec<Member<dyn PreScore>>,
    /// Score, in order, with weights.
    pub score: Vec<ScoreMember>,
    /// Reserve, in order.
    pub reserve: Vec<Member<dyn Reserve>>,
    /// Permit, in order.
    pub permit: Vec<Member<dyn Permit>>,
    /// PreBind, in order.
    pub pre_bind: Vec<Member<dyn PreBind>>,
    /// Bind, in order; never empty.
    pub bind: Vec<Member<dyn Bind>>,
    /// PostBind, in order.
    pub post_bind: Vec<Member<dyn PostBind>>,
    /// The plugins of the profile, each once.
    pub plugins: Vec<Extensions>,
}

impl Profile {
    /// Makes the profile that `spec` asks for.
    ///
    /// # Errors
    /// All problems of the profile.
    pub fn build(
        spec: &ProfileSpec,
        registry: &Registry,
        features: &FeatureGates,
    ) -> Result<Self, Vec<ProfileError>> {
        let mut errors = Vec::new();
        if spec.scheduler_name.is_empty() {
            errors.push(ProfileError::NoName);
        }
        check_names(spec, registry, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }

        let sets = merge(&default_plugins(registry, features), &spec.plugins);
        let plugins = make_plugins(&sets, spec, registry, features)?;
        let by_name: BTreeMap<&str, usize> = plugins
            .iter()
            .enumerate()
            .map(|(at, p)| (p.name.as_str(), at))
            .collect();
        let takes_part = |name: &str, point: Point| {
            let at = by_name.get(name);
            at.is_some_and(|at| point.has(&plugins[*at]))
        };
        let mut order = |point: Point| -> Vec<(PluginId, &Extensions, i64)> {
            let members = expand(&sets, point, |name| takes_part(name, point));
            let members = members.unwrap_or_else(|error| {
                errors.push(error);
                Vec::new()
            });
            let place = |member: EnabledPlugin| {
                let at = *by_name.get(member.name.as_str())?;
                Some((PluginId::new(at), &plugins[at], weight_of(&sets, &member)))
            };
            members.into_iter().filter_map(place).collect()
        };
        macro_rules! members {
            ($point:ident, $field:ident) => {
                order(Point::$point)
                    .into_iter()
                    .filter_map(|(id, extensions, _)| {
                        Member::new(id, extensions, extensions.$field.as_ref())
                    })
                    .collect()
            };
        }
        let pre_enqueue = members!(PreEnqueue, pre_enqueue);
        let mut queue_sort: Vec<Member<dyn QueueSort>> = members!(QueueSort, queue_sort);
        let pre_filter = members!(PreFilter, pre_filter);
        let filter = members!(Filter, filter);
        let post_filter = members!(PostFilter, post_filter);
        let placement_generate = members!(PlacementGenerate, placement_generate);
        let placement_score = order(Point::PlacementScore)
            .into_iter()
            .filter_map(|(id, extensions, weight)| {
                let member = Member::new(id, extensions, extensions.placement_score.as_ref())?;
                Some((member, weight))
            })
            .collect();
        let placement_feasible = members!(PlacementFeasible, placement_feasible);
        let pod_group_post_filter = members!(PodGroupPostFilter, pod_group_post_filter);
        let pre_score = members!(PreScore, pre_score);
        let reserve = members!(Reserve, reserve);
        let permit = members!(Permit, permit);
        let pre_bind = members!(PreBind, pre_bind);
        let bind: Vec<Member<dyn Bind>> = members!(Bind, bind);
        let post_bind = members!(PostBind, post_bind);
        let score: Vec<ScoreMember> = order(Point::Score)
            .into_iter()
            .filter_map(|(id, extensions, weight)| {
                let member = Member::new(id, extensions, extensions.score.as_ref())?;
                Some(ScoreMember { member, weight })
            })
            .collect();
        let total = score.iter().try_fold(0_i64, |sum, s| {
            sum.checked_add(s.weight.checked_mul(MAX_NODE_SCORE)?)
        });
        if total.is_none() {
            errors.push(ProfileError::ScoreOverflow);
        }
        if bind.is_empty() && errors.is_empty() {
            errors.push(ProfileError::NoBind {
                scheduler_name: spec.scheduler_name.clone(),
            });
        }
        let sorts = queue_sort.len();
        match queue_sort.pop() {
            Some(queue_sort) if sorts == 1 && errors.is_empty() => Ok(Self {
                name: Str::new(&spec.scheduler_name),
                percentage_of_nodes_to_score: spec.percentage_of_nodes_to_score,
                pre_enqueue,
                queue_sort,
                pre_filter,
                filter,
                post_filter,
                placement_generate,
                placement_score,
                placement_feasible,
                pod_group_post_filter,
                pre_score,
                score,
                reserve,
                permit,
                pre_bind,
                bind,
                post_bind,
                plugins,
            }),
            _ => {
                if sorts != 1 && errors.is_empty() {
                    errors.push(ProfileError::QueueSort {
                        scheduler_name: spec.scheduler_name.clone(),
                        got: sorts,
                    });
                }
                Err(errors)
            }
        }
    }
}

impl Profile {
    /// The part of the profile for pods that have a node and wait for a resize: it filters, preempts and reserves.
    /// Plugins keep their places.
    #[must_use]
    pub fn of_resizes(&self) -> Self {
        let judges = |id: PluginId| {
            let plugin = self.plugins.get(id.index());
            plugin.is_some_and(|plugin| plugin.judges_resizes)
        };
        // The lists have different types, so a closure cannot filter all of them.
        macro_rules! those {
            ($field:ident) => {
                self.$field
                    .iter()
                    .filter(|member| judges(member.id))
                    .cloned()
                    .collect()
            };
        }
        Self {
            name: self.name.clone(),
            percentage_of_nodes_to_score: self.percentage_of_nodes_to_score,
            pre_enqueue: self.pre_enqueue.clone(),
            queue_sort: self.queue_sort.clone(),
            pre_filter: those!(pre_filter),
            filter: those!(filter),
            post_filter: those!(post_filter),
            pre_score: Vec::new(),
            score: Vec::new(),
            reserve: Vec::new(),
            permit: those!(permit),
            pre_bind: Vec::new(),
            bind: Vec::new(),
            post_bind: Vec::new(),
            placement_feasible: Vec::new(),
            placement_generate: Vec::new(),
            placement_score: Vec::new(),
            pod_group_post_filter: Vec::new(),
            plugins: self.plugins.clone(),
        }
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name)
            .field("plugins", &self.plugins)
            .finish_non_exhaustive()
    }
}

/// Reports every unknown plugin and every negative weight, with its path in the user's configuration.
fn check_names(spec: &ProfileSpec, registry: &Registry, errors: &mut Vec<ProfileError>) {
    let unknown = |path: String, name: &str| ProfileError::UnknownPlugin {
        path,
        name: name.to_owned(),
        suggestion: closest(name, registry.names()).map(str::to_owned),
    };
    let sets = spec
        .plugins
        .points
        .iter()
        .map(|(point, set)| (point.field(), set));
    for (field, set) in [("multiPoint", &spec.plugins.multi_point)]
        .into_iter()
        .chain(sets)
    {
        for (i, plugin) in set.enabled.iter().enumerate() {
            let path = format!("plugins.{field}.enabled[{i}]");
            if let Some(weight) = plugin.weight.filter(|w| *w < 0) {
                errors.push(ProfileError::NegativeWeight {
                    path: path.clone(),
                    name: plugin.name.clone(),
                    weight,
                });
            }
            if registry.get(&plugin.name).is_none() {
                errors.push(unknown(path, &plugin.name));
            }
        }
    }
    for (i, config) in spec.plugin_config.iter().enumerate() {
        let path = format!("pluginConfig[{i}]");
        // With two entries for one plugin, the effective arguments would be ambiguous.
        let earlier = &spec.plugin_config[..i];
        if earlier.iter().any(|c| c.name == config.name) {
            errors.push(ProfileError::RepeatedConfig {
                path,
                name: config.name.clone(),
            });
        } else if registry.get(&config.name).is_none() {
            errors.push(unknown(path, &config.name));
        }
    }
}

/// Makes every plugin that some point enables, once.
fn make_plugins(
    sets: &PluginSets,
    spec: &ProfileSpec,
    registry: &Registry,
    features: &FeatureGates,
) -> Result<Vec<Extensions>, Vec<ProfileError>> {
    let mut names: Vec<&str> = Vec::new();
    let wanted = sets.points.values().flat_map(|set| &set.enabled);
    for plugin in sets.multi_point.enabled.iter().chain(wanted) {
        if !names.contains(&plugin.name.as_str()) {
            names.push(&plugin.name);
        }
    }
    if names.len() > PLUGINS_MAX {
        return Err(vec![ProfileError::TooMany {
            got: names.len(),
            max: PLUGINS_MAX,
        }]);
    }
    let mut plugins = Vec::with_capacity(names.len());
    let mut errors = Vec::new();
    for name in names {
        let configured = spec.plugin_config.iter().position(|c| c.name == name);
        let args = configured.map_or(&serde_json::Value::Null, |at| &spec.plugin_config[at].args);
        let Some(plugin) = registry.get(name) else {
            errors.push(ProfileError::UnknownPlugin {
                path: "plugins".to_owned(),
                name: name.to_owned(),
                suggestion: closest(name, registry.names()).map(str::to_owned),
            });
            continue;
        };
        match plugin.make(&FactoryContext { args, features }) {
            Ok(extensions) => plugins.push(extensions),
            Err(source) => errors.push(ProfileError::Args {
                path: configured.map_or_else(
                    || "plugins".to_owned(),
                    |at| format!("pluginConfig[{at}].args"),
                ),
                name: name.to_owned(),
                source,
            }),
        }
    }
    if errors.is_empty() {
        Ok(plugins)
    } else {
        Err(errors)
    }
}

/// The weight at the point, otherwise the weight in multiPoint; zero and absent mean one (F-27).
fn weight_of(sets: &PluginSets, member: &EnabledPlugin) -> i64 {
    let multi_point = || {
        let enabled = &sets.multi_point.enabled;
        enabled.iter().find(|e| e.name == member.name)?.weight
    };
    let given = member.weight.filter(|w| *w != 0);
    given.or_else(multi_point).filter(|w| *w != 0).unwrap_or(1)
}

/// Every profile of a scheduler, in the order of the configuration.
#[derive(Debug, Clone)]
pub struct Profiles {
    list: Vec<Arc<Profile>>,
}

impl Profiles {
    /// Makes all profiles and checks that they can share a queue (F-28).
    ///
    /// # Errors
    /// All problems of all profiles.
    pub fn build(
        specs: &[ProfileSpec],
        registry: &Registry,
        features: &FeatureGates,
    ) -> Result<Self, ProfileErrors> {
        let mut list: Vec<Arc<Profile>> = Vec::new();
        let mut errors = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            if specs[..i]
                .iter()
                .any(|s| s.scheduler_name == spec.scheduler_name)
            {
                let name = spec.scheduler_name.clone();
                errors.push((i, ProfileError::DuplicateName(name)));
                continue;
            }
            // All profiles are built, so that all errors are reported together.
            match Profile::build(spec, registry, features) {
                Ok(profile) => {
                    if let Some(first) = list.first() {
                        check_same_order(first, &specs[0], &profile, spec)
                            .unwrap_or_else(|error| errors.push((i, error)));
                    }
                    list.push(Arc::new(profile));
                }
                Err(problems) => errors.extend(problems.into_iter().map(|p| (i, p))),
            }
        }
        if errors.is_empty() && !list.is_empty() {
            Ok(Self { list })
        } else {
            Err(ProfileErrors(errors))
        }
    }

    /// The parts of the profiles that judge resizes.
    #[must_use]
    pub fn of_resizes(&self) -> Self {
        let list = self.list.iter().map(|profile| profile.of_resizes().into());
        Self {
            list: list.collect(),
        }
    }

    /// The scheduler names of the profiles with this PreEnqueue plugin.
    pub fn names_with_pre_enqueue(&self, plugin: &str) -> Vec<Str> {
        let with = self.iter().filter(|profile| {
            let mut members = profile.pre_enqueue.iter();
            members.any(|member| member.name == *plugin)
        });
        with.map(|profile| profile.name.clone()).collect()
    }

    /// The scheduler names, in the order of the configuration.
    pub fn names(&self) -> Vec<Str> {
        self.list
            .iter()
            .map(|profile| profile.name.clone())
            .collect()
    }

    /// The profile of a scheduler name.
    pub fn get(&self, scheduler_name: &str) -> Option<&Arc<Profile>> {
        self.list.iter().find(|p| p.name == scheduler_name)
    }

    /// Every profile; at least one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Profile>> {
        self.list.iter()
    }

    /// The plugin that orders the queue.
    pub fn queue_sort(&self) -> &Member<dyn QueueSort> {
        &self.list[0].queue_sort
    }
}

fn check_same_order(
    first: &Profile,
    first_spec: &ProfileSpec,
    this: &Profile,
    spec: &ProfileSpec,
) -> Result<(), ProfileError> {
    let name = &this.queue_sort.name;
    if *name != first.queue_sort.name {
        return Err(ProfileError::QueueSortDiffers {
            scheduler_name: spec.scheduler_name.clone(),
            this: name.to_string(),
            first: first.queue_sort.name.to_string(),
        });
    }
    let args = |spec: &ProfileSpec| {
        let config = spec.plugin_config.iter().find(|c| *name == *c.name)?;
        Some(config.args.clone())
    };
    if args(first_spec) != args(spec) {
        let name = spec.scheduler_name.clone();
        return Err(ProfileError::QueueSortArgsDiffer(name));
    }
    Ok(())
}

#[cfg(any(test, feature = "test-builders"))]
pub mod testing;
#[cfg(test)]
mod tests;
