//! The registration of plugins: by name, with a factory that reads their arguments.

use crate::assignment::Assignment;
use crate::assignment::devices::{DeviceChoice, DeviceEvents};
use crate::cluster::RejectionPolicy;
use crate::features::{Feature, FeatureGates};
use crate::keep::{Domains, FragmentVersion, Keep};
use crate::plugin::{
    Bind, EnqueueExtensions, Filter, Permit, PlacementFeasible, PlacementGenerate, PlacementScore,
    PodGroupPostFilter, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort,
    Reserve, Score,
};
use crate::requirement::{KeepBoth, KeepFilter, KeepScore, NodeFilter, NodeScore};
use crate::write::CallType;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// A plugin with its extension points.
///
/// ```ignore
/// Extensions::of(NodePorts::new()).pre_filter().filter().events().build()
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    /// The plugin's name in configuration, metrics and events: the name of its [`Registration`], which sets it.
    pub name: String,
    /// Its PreEnqueue.
    pub pre_enqueue: Option<Arc<dyn PreEnqueue>>,
    /// Its QueueSort.
    pub queue_sort: Option<Arc<dyn QueueSort>>,
    /// Its PreFilter.
    pub pre_filter: Option<Arc<dyn PreFilter>>,
    /// Its Filter.
    pub filter: Option<Arc<dyn Filter>>,
    /// Its PostFilter.
    pub post_filter: Option<Arc<dyn PostFilter>>,
    /// Its PlacementGenerate.
    pub placement_generate: Option<Arc<dyn PlacementGenerate>>,
    /// Its PlacementScore.
    pub placement_score: Option<Arc<dyn PlacementScore>>,
    /// Its PlacementFeasible.
    pub placement_feasible: Option<Arc<dyn PlacementFeasible>>,
    /// Its PodGroupPostFilter.
    pub pod_group_post_filter: Option<Arc<dyn PodGroupPostFilter>>,
    /// Its PreScore.
    pub pre_score: Option<Arc<dyn PreScore>>,
    /// Its Score.
    pub score: Option<Arc<dyn Score>>,
    /// Its Reserve.
    pub reserve: Option<Arc<dyn Reserve>>,
    /// Its Permit.
    pub permit: Option<Arc<dyn Permit>>,
    /// Its PreBind.
    pub pre_bind: Option<Arc<dyn PreBind>>,
    /// Its Bind.
    pub bind: Option<Arc<dyn Bind>>,
    /// Its PostBind.
    pub post_bind: Option<Arc<dyn PostBind>>,
    /// The events that may help the pods it rejected.
    pub events: Option<Arc<dyn EnqueueExtensions>>,
    /// The answers about nodes that may be kept.
    pub keep: Option<Arc<dyn Keep>>,
    /// Its ledgers, if its answers depend on topology domains.
    pub domains: Option<Arc<dyn Domains>>,
    /// The version of its fragments, which are cached while it is unchanged. Without one they are written for each pod.
    pub fragment_version: Option<FragmentVersion>,
    /// The types of API calls that it makes, in addition to the calls about pods that every plugin may make.
    pub calls: Vec<&'static CallType>,
    /// Whether it runs in attempts of pods that have a node and wait for a resize. Most plugins have decided about such
    /// a pod when it was assigned to its node.
    pub judges_resizes: bool,
    /// The policy for remembering rejections by kubelets; see [`Rejections`](crate::cluster::Rejections).
    pub rejections: Option<RejectionPolicy>,
}

impl Extensions {
    /// Starts with a plugin without extension points.
    pub fn of<P>(plugin: P) -> ExtensionsBuilder<P> {
        ExtensionsBuilder {
            plugin: Arc::new(plugin),
            extensions: Self::default(),
        }
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// States, for each extension point, whether a plugin implements it.
pub struct ExtensionsBuilder<P> {
    plugin: Arc<P>,
    extensions: Extensions,
}

macro_rules! points {
    ($($field:ident: $point:ident),* $(,)?) => {
        impl<P> ExtensionsBuilder<P> {
            $(
                #[doc = concat!("Takes part in `", stringify!($point), "`.")]
                #[must_use]
                pub fn $field(mut self) -> Self
                where
                    P: $point,
                {
                    self.extensions.$field = Some(self.plugin.clone());
                    self
                }
            )*

            /// Adds `Filter`, implemented as a [`NodeFilter`]. Its answers are kept.
            #[must_use]
            pub fn node_filter(self) -> Self
            where
                P: NodeFilter,
            {
                let keep = KeepFilter(self.plugin.clone());
                self.filter().keep_also(Arc::new(keep))
            }

            /// Adds `Score`, implemented as a [`NodeScore`]. Its answers are kept.
            #[must_use]
            pub fn node_score(self) -> Self
            where
                P: NodeScore,
            {
                let keep = KeepScore(self.plugin.clone());
                self.score().keep_also(Arc::new(keep))
            }

            /// Adds `Reserve` and `PreBind`, implemented as an [`Assignment`], with its type of calls.
            #[must_use]
            pub fn assignment(self) -> Self
            where
                P: Assignment,
            {
                self.reserve().pre_bind().calls(&[P::CALL])
            }

            /// Takes part in `Filter`, `Reserve` and `PreBind` as a [`DeviceChoice`], and registers its events.
            #[must_use]
            pub fn devices(mut self) -> Self
            where
                P: DeviceChoice,
            {
                self.extensions.events = Some(Arc::new(DeviceEvents));
                self.node_filter().assignment()
            }

            fn keep_also(mut self, keep: Arc<dyn Keep>) -> Self {
                self.extensions.keep = Some(match self.extensions.keep.take() {
                    None => keep,
                    Some(first) => Arc::new(KeepBoth([first, keep])),
                });
                self
            }

            /// Lets fragments be cached while this version is unchanged. The version must cover everything that the
            /// plugin reads from the cluster; otherwise a pod gets the answers of another one.
            #[must_use]
            pub fn fragment_version(mut self, version: FragmentVersion) -> Self {
                self.extensions.fragment_version = Some(version);
                self
            }

            /// Registers the types of API calls that the plugin makes. The dispatcher refuses calls of other types.
            #[must_use]
            pub fn calls(mut self, types: &[&'static CallType]) -> Self {
                self.extensions.calls.extend(types);
                self
            }

            /// Also runs the plugin in attempts of pods that have a node and wait for a resize.
            #[must_use]
            pub fn judges_resizes(mut self) -> Self {
                self.extensions.judges_resizes = true;
                self
            }

            /// Remembers the rejections by kubelets for the profile, with this policy.
            #[must_use]
            pub fn remembers_rejections(mut self, policy: RejectionPolicy) -> Self {
                self.extensions.rejections = Some(policy);
                self
            }

            /// The plugin, ready to be put into a profile.
            pub fn build(self) -> Extensions {
                self.extensions
            }
        }
    };
}

points! {
    pre_enqueue: PreEnqueue,
    queue_sort: QueueSort,
    pre_filter: PreFilter,
    filter: Filter,
    post_filter: PostFilter,
    placement_generate: PlacementGenerate,
    placement_score: PlacementScore,
    placement_feasible: PlacementFeasible,
    pod_group_post_filter: PodGroupPostFilter,
    pre_score: PreScore,
    score: Score,
    reserve: Reserve,
    permit: Permit,
    pre_bind: PreBind,
    bind: Bind,
    post_bind: PostBind,
    events: EnqueueExtensions,
    keep: Keep,
    domains: Domains,
}

/// The state that a factory gets.
#[derive(Debug)]
pub struct FactoryContext<'a> {
    /// The plugin's arguments as JSON; `null` when there are none.
    pub args: &'a Value,
    /// The feature gates.
    pub features: &'a FeatureGates,
}

impl FactoryContext<'_> {
    /// Reads the arguments into a type of the plugin's own; see [`decode_args`].
    ///
    /// # Errors
    /// When they do not fit the type.
    pub fn decode_args<T: DeserializeOwned>(&self, kind: &str) -> Result<T, ArgsError> {
        decode_args(self.args, kind)
    }
}

/// Reads the arguments of a plugin; `null` and `{}` are the defaults. `apiVersion` and `kind` may be there, as in a
/// configuration file. A type with `deny_unknown_fields` makes any other field that it does not know an error.
///
/// # Errors
/// When the arguments are of another kind or do not fit the type.
pub fn decode_args<T: DeserializeOwned>(args: &Value, kind: &str) -> Result<T, ArgsError> {
    let mut fields = match args {
        Value::Null => Map::new(),
        Value::Object(fields) => fields.clone(),
        other => {
            return Err(ArgsError::at(
                "",
                format!("{kind} must be an object, not {other}"),
            ));
        }
    };
    fields.remove("apiVersion");
    if let Some(given) = fields.remove("kind")
        && given != kind
    {
        return Err(ArgsError::at(
            "kind",
            format!("is {given}, expected \"{kind}\""),
        ));
    }
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| ArgsError::at("", format!("cannot read {kind}: {error}")))
}

/// The reason why a plugin could not be made: one entry per problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgsError {
    /// The problems: a path below the plugin's arguments (such as `scoringStrategy.type`), and a description.
    pub problems: Vec<(String, String)>,
}

impl ArgsError {
    /// A single problem.
    pub fn at(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            problems: vec![(path.into(), problem.into())],
        }
    }
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, problem)) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{path}: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ArgsError {}

/// Makes a plugin from its arguments.
pub type Factory = Arc<dyn Fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError> + Send + Sync>;

/// Fills the defaults into the fields of a plugin's arguments.
pub type CompleteArgs = fn(&mut Map<String, Value>, &FeatureGates);

/// The arguments that a configuration may give a plugin.
#[derive(Debug, Clone, Copy)]
pub enum ArgsKind {
    /// The plugin takes none: any that are given are an error.
    None,
    /// The arguments are passed to the plugin unchanged.
    Unknown,
    /// The kind `<plugin>Args` of `kubescheduler.config.k8s.io`. The configuration fills in the defaults and writes
    /// them out.
    Typed(CompleteArgs),
}

/// A plugin's place in the default profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultPlace {
    /// The weight of its scores; `None` for a plugin that does not score.
    pub weight: Option<i64>,
    /// The gate that has to be on.
    pub gate: Option<Feature>,
}

/// The registration of a plugin.
#[derive(Clone)]
pub struct Registration {
    name: String,
    factory: Factory,
    args: ArgsKind,
    default: Option<DefaultPlace>,
    ignored_resources: Option<&'static str>,
}

impl Registration {
    /// A plugin that reads its arguments itself and is not in the default profile.
    pub fn new(
        name: &str,
        factory: impl Fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            factory: Arc::new(factory),
            args: ArgsKind::Unknown,
            default: None,
            ignored_resources: None,
        }
    }

    /// The same plugin, with `change` applied to the extensions that its factory returns.
    #[must_use]
    pub fn changed_by(
        self,
        change: impl Fn(Extensions) -> Extensions + Send + Sync + 'static,
    ) -> Self {
        let made = self.factory;
        Self {
            factory: Arc::new(move |cx| made(cx).map(&change)),
            ..self
        }
    }

    /// Takes these arguments.
    #[must_use]
    pub fn args(mut self, args: ArgsKind) -> Self {
        self.args = args;
        self
    }

    /// Adds the plugin to the default profile, after the plugins added before.
    #[must_use]
    pub fn by_default(mut self, weight: Option<i64>) -> Self {
        self.default = Some(DefaultPlace { weight, gate: None });
        self
    }

    /// Adds the plugin to the default profile only while a feature gate is on.
    #[must_use]
    pub fn gated_by(mut self, gate: Feature) -> Self {
        let default = self.default.get_or_insert(DefaultPlace {
            weight: None,
            gate: None,
        });
        default.gate = Some(gate);
        self
    }

    /// Declares the field of the plugin's arguments that lists the extended resources which its Filter ignores. The
    /// resources that an extender manages alone (`ignoredByScheduler`) are added to the list.
    #[must_use]
    pub fn ignores_resources_in(mut self, field: &'static str) -> Self {
        self.ignored_resources = Some(field);
        self
    }

    /// The plugin's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the plugin from its arguments.
    ///
    /// # Errors
    /// The faults of the arguments.
    pub fn make(&self, cx: &FactoryContext<'_>) -> Result<Extensions, ArgsError> {
        let mut extensions = (self.factory)(cx)?;
        self.name.clone_into(&mut extensions.name);
        Ok(extensions)
    }

    /// The arguments that it takes.
    pub fn args_kind(&self) -> ArgsKind {
        self.args
    }

    /// Its place in the default profile while these feature gates are on.
    pub fn default_place(&self, features: &FeatureGates) -> Option<DefaultPlace> {
        let on = |place: &DefaultPlace| place.gate.is_none_or(|gate| features.enabled(gate));
        self.default.filter(on)
    }

    /// The field of its arguments that lists the extended resources which its Filter ignores.
    pub fn ignored_resources(&self) -> Option<&'static str> {
        self.ignored_resources
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("name", &self.name)
            .field("args", &self.args)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

/// The plugins that a profile can name.
#[derive(Clone, Default)]
pub struct Registry {
    /// In the order of registration.
    plugins: Vec<Registration>,
    by_name: BTreeMap<String, usize>,
}

/// A plugin of this name is registered already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a plugin named {0} already exists")]
pub struct AlreadyRegistered(pub String);

impl Registry {
    /// Adds a plugin that reads its arguments itself and is not in the default profile.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError> + Send + Sync + 'static,
    ) -> Result<(), AlreadyRegistered> {
        self.add(Registration::new(name, factory))
    }

    /// Adds a plugin.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn add(&mut self, plugin: Registration) -> Result<(), AlreadyRegistered> {
        let at = self.plugins.len();
        match self.by_name.entry(plugin.name.clone()) {
            Entry::Occupied(taken) => Err(AlreadyRegistered(taken.key().clone())),
            Entry::Vacant(free) => {
                free.insert(at);
                self.plugins.push(plugin);
                Ok(())
            }
        }
    }

    /// The registration of a plugin.
    pub fn get(&self, name: &str) -> Option<&Registration> {
        self.plugins.get(*self.by_name.get(name)?)
    }

    /// All plugins in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Registration> {
        self.plugins.iter()
    }

    /// The names of all plugins, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The plugins of the default profile, in its order.
    pub fn defaults(
        &self,
        features: &FeatureGates,
    ) -> impl Iterator<Item = (&Registration, DefaultPlace)> {
        self.plugins
            .iter()
            .filter_map(|plugin| Some((plugin, plugin.default_place(features)?)))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fake;
    use serde_json::json;

    /// F-26: two plugins cannot have the same name, and an unregistered name returns no plugin.
    #[test]
    fn a_name_belongs_to_one_plugin() {
        let mut registry = Registry::default();
        let mut register = |name: &str| {
            let plugin = fake(name).build();
            registry.register(name, move |_| Ok(plugin.clone()))
        };
        assert_eq!(register("B"), Ok(()));
        assert_eq!(register("A"), Ok(()));
        let taken = register("B").map_err(|e| e.to_string());
        assert_eq!(taken, Err("a plugin named B already exists".to_owned()));
        assert_eq!(registry.names().collect::<Vec<_>>(), ["A", "B"]);
        assert!(registry.get("A").is_some() && registry.get("C").is_none());
    }

    /// The default profile has the plugins in the order of their registration. A plugin behind a gate is in it only
    /// while the gate is on.
    #[test]
    fn plugins_know_their_place_in_the_default_profile() {
        let mut registry = Registry::default();
        let plugin = |name: &str| {
            let made = fake(name).build();
            Registration::new(name, move |_| Ok(made.clone()))
        };
        let gate = Feature::NodeDeclaredFeatures;
        for plugin in [
            plugin("Z").by_default(Some(2)),
            plugin("Own"),
            plugin("Gated").by_default(None).gated_by(gate),
            plugin("A").by_default(None),
        ] {
            registry.add(plugin).expect("a new name");
        }
        for (on, expected) in [
            (true, vec![("Z", Some(2)), ("Gated", None), ("A", None)]),
            (false, vec![("Z", Some(2)), ("A", None)]),
        ] {
            let features = FeatureGates::default().with(gate, on);
            let places = registry.defaults(&features);
            let places: Vec<_> = places.map(|(p, place)| (p.name(), place.weight)).collect();
            assert_eq!(places, expected);
        }
    }

    /// F-26, F-31: arguments are read into the plugin's own type, or the reason is reported.
    #[test]
    fn arguments_fit_their_type_or_are_refused() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Depth {
            #[serde(default)]
            depth: u8,
        }
        for (args, expected) in [
            (json!(null), Ok(0)),
            (json!({"apiVersion": "x/v1", "kind": "DepthArgs"}), Ok(0)),
            (json!({"depth": 7}), Ok(7)),
            (json!([7]), Err(": DepthArgs must be an object, not [7]")),
            (
                json!({"kind": "HeightArgs"}),
                Err("kind: is \"HeightArgs\", expected \"DepthArgs\""),
            ),
            (
                json!({"height": 7}),
                Err(": cannot read DepthArgs: unknown field `height`, expected `depth`"),
            ),
        ] {
            let read = decode_args::<Depth>(&args, "DepthArgs");
            let read = read.map(|d| d.depth).map_err(|e| e.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{args}");
        }
    }
}
