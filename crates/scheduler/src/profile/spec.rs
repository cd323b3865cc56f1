//! What a profile is asked to be: the shape that a configuration file is read into.

use std::collections::BTreeMap;
use std::fmt;

/// An extension point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Before the active queue.
    PreEnqueue,
    /// The order of the active queue.
    QueueSort,
    /// Once per cycle, before any node.
    PreFilter,
    /// Per node.
    Filter,
    /// When no node is feasible.
    PostFilter,
    /// Once per cycle, before scoring.
    PreScore,
    /// Per feasible node.
    Score,
    /// After a node was chosen.
    Reserve,
    /// The last word before binding.
    Permit,
    /// Before binding.
    PreBind,
    /// The binding.
    Bind,
    /// After binding.
    PostBind,
}

impl Point {
    /// Every point, in the order in which a pod meets them.
    pub const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    /// The name in metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreEnqueue => "PreEnqueue",
            Self::QueueSort => "QueueSort",
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::Permit => "Permit",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }

    /// The field of `plugins` in the configuration.
    pub fn field(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Plugin", self.as_str())
    }
}

/// A plugin that is wanted at some point.
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

/// Which plugins are wanted and not wanted at one point, or at all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginSet {
    /// Wanted, in order.
    pub enabled: Vec<EnabledPlugin>,
    /// Not wanted, though a default; `*` is all of them.
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
    /// Wanted at every point that they take part in.
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

/// A profile as it is configured, before the defaults are merged in.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileSpec {
    /// Pods name their scheduler by this.
    pub scheduler_name: String,
    /// How many per cent of the nodes are looked for before scoring starts. Absent: all nodes are filtered and
    /// scored. Zero: as many as kube-scheduler takes by its own choice.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// What is wanted beside, or instead of, the default plugins.
    pub plugins: PluginSets,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

impl ProfileSpec {
    /// The name of the scheduler of pods that name none.
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

    /// A profile of exactly these plugins, at every point that they take part in, without the defaults.
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
