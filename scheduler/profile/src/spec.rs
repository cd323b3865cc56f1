//! The description of a profile, decoded from a configuration.

use berth_framework::registry::Extensions;
use std::collections::BTreeMap;
use std::fmt;

macro_rules! points {
    ($($point:ident, $of_plugin:ident, $field:literal: $doc:literal;)*) => {
        /// An extension point.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Point {
            $(#[doc = $doc] $point,)*
        }

        impl Point {
            /// Every point, in the order in which a pod passes them.
            pub const ALL: [Self; 16] = [$(Self::$point,)*];

            /// The name in metric labels.
            #[inline]
    pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$point => stringify!($point),)*
                }
            }

            /// The field of `plugins` in the configuration.
            pub fn field(self) -> &'static str {
                match self {
                    $(Self::$point => $field,)*
                }
            }

            /// Returns whether the plugin has the point.
            pub(super) fn has(self, plugin: &Extensions) -> bool {
                match self {
                    $(Self::$point => plugin.$of_plugin.is_some(),)*
                }
            }
        }
    };
}

points! {
    PreEnqueue, pre_enqueue, "preEnqueue": "Before the active queue.";
    QueueSort, queue_sort, "queueSort": "The order of the active queue.";
    PreFilter, pre_filter, "preFilter": "Once per cycle, before any node.";
    Filter, filter, "filter": "Per node.";
    PostFilter, post_filter, "postFilter": "When no node is feasible.";
    PlacementGenerate, placement_generate, "placementGenerate": "The placements of a group of pods, such as racks.";
    PlacementScore, placement_score, "placementScore": "Per feasible placement of a group of pods.";
    PlacementFeasible, placement_feasible, "placementFeasible": "Whether a group of pods can start, once per group and after each member.";
    PodGroupPostFilter, pod_group_post_filter, "podGroupPostFilter": "When a group of pods cannot start.";
    PreScore, pre_score, "preScore": "Once per cycle, before scoring.";
    Score, score, "score": "Per feasible node.";
    Reserve, reserve, "reserve": "After a node was chosen.";
    Permit, permit, "permit": "The last decision before binding.";
    PreBind, pre_bind, "preBind": "Before binding.";
    Bind, bind, "bind": "The binding.";
    PostBind, post_bind, "postBind": "After binding.";
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Plugin", self.as_str())
    }
}

/// A plugin that is enabled at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnabledPlugin {
    /// Its name.
    pub name: String,
    /// Its weight when it scores; absent or zero is one.
    pub weight: Option<i64>,
}

impl EnabledPlugin {
    /// A plugin without a weight of its own.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            weight: None,
        }
    }

    /// A plugin whose scores count `weight` times.
    pub fn weighted(name: &str, weight: i64) -> Self {
        Self {
            name: name.to_owned(),
            weight: Some(weight),
        }
    }
}

/// The plugins that are enabled and disabled at one point, or at all points.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginSet {
    /// Wanted, in order.
    pub enabled: Vec<EnabledPlugin>,
    /// The disabled default plugins; `*` disables all.
    pub disabled: Vec<String>,
}

impl PluginSet {
    pub(super) fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|d| d == name)
    }

    pub(super) fn disables_all(&self) -> bool {
        self.disables("*")
    }
}

/// The `plugins` of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginSets {
    /// Plugins enabled at all their points.
    pub multi_point: PluginSet,
    /// Wanted at single points.
    pub points: BTreeMap<Point, PluginSet>,
}

impl PluginSets {
    /// The sets of one point.
    pub fn point(&self, point: Point) -> Option<&PluginSet> {
        self.points.get(&point)
    }

    /// The sets of one point, to change.
    pub fn point_mut(&mut self, point: Point) -> &mut PluginSet {
        self.points.entry(point).or_default()
    }
}

/// The arguments of one plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// The plugin.
    pub name: String,
    /// Its arguments as JSON.
    pub args: serde_json::Value,
}

/// A profile as configured, before it is merged with the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileSpec {
    /// The name by which pods select their scheduler.
    pub scheduler_name: String,
    /// The percentage of nodes to find before scoring starts. Absent: all nodes are filtered and scored. Zero:
    /// kube-scheduler's adaptive percentage.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// The plugins that are enabled in addition to, or instead of, the default plugins.
    pub plugins: PluginSets,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

impl ProfileSpec {
    /// The scheduler name of pods without a scheduler name.
    pub const DEFAULT_SCHEDULER_NAME: &'static str = "default-scheduler";

    /// The default plugins with their default arguments, under a name.
    pub fn named(scheduler_name: &str) -> Self {
        Self {
            scheduler_name: scheduler_name.to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: PluginSets::default(),
            plugin_config: Vec::new(),
        }
    }

    /// A profile of exactly these plugins, at all their points, without the defaults.
    pub fn of_plugins<'a>(
        scheduler_name: &str,
        plugins: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut spec = Self::named(scheduler_name);
        spec.plugins.multi_point = PluginSet {
            enabled: plugins.into_iter().map(EnabledPlugin::new).collect(),
            disabled: vec!["*".to_owned()],
        };
        spec
    }
}

impl Default for ProfileSpec {
    fn default() -> Self {
        Self::named(Self::DEFAULT_SCHEDULER_NAME)
    }
}
