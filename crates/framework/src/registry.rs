//! How plugins become known: by name, with a factory that reads their arguments.

use crate::features::FeatureGates;
use crate::keep::{Domains, Keep};
use crate::plugin::{
    Bind, EnqueueExtensions, Filter, Permit, Plugin, PostBind, PostFilter, PreBind, PreEnqueue,
    PreFilter, PreScore, QueueSort, Reserve, Score,
};
use crate::write::CallType;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A plugin with the extension points it takes part in.
///
/// ```ignore
/// Extensions::of(NodePorts::new()).pre_filter().filter().events().build()
/// ```
#[derive(Clone)]
pub struct Extensions {
    /// The plugin's name.
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
    /// Which of its answers about nodes may be kept.
    pub keep: Option<Arc<dyn Keep>>,
    /// Its ledgers, if its answers go by topology domains.
    pub domains: Option<Arc<dyn Domains>>,
    /// The types of API calls that it makes, beside those about pods that every plugin may make.
    pub calls: Vec<&'static CallType>,
}

impl Extensions {
    /// Starts with a plugin that takes part in nothing yet.
    pub fn of<P: Plugin>(plugin: P) -> ExtensionsBuilder<P> {
        let name = plugin.name().to_owned();
        ExtensionsBuilder {
            plugin: Arc::new(plugin),
            extensions: Self {
                name,
                pre_enqueue: None,
                queue_sort: None,
                pre_filter: None,
                filter: None,
                post_filter: None,
                pre_score: None,
                score: None,
                reserve: None,
                permit: None,
                pre_bind: None,
                bind: None,
                post_bind: None,
                events: None,
                keep: None,
                domains: None,
                calls: Vec::new(),
            },
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

/// Says extension point by extension point what a plugin takes part in.
pub struct ExtensionsBuilder<P> {
    plugin: Arc<P>,
    extensions: Extensions,
}

macro_rules! points {
    ($($field:ident: $point:ident),* $(,)?) => {
        impl<P: Plugin> ExtensionsBuilder<P> {
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

            /// Registers the types of API calls that the plugin makes. The dispatcher refuses calls of other types.
            #[must_use]
            pub fn calls(mut self, types: &[&'static CallType]) -> Self {
                self.extensions.calls.extend(types);
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

/// What a factory gets.
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
        Value::Null => serde_json::Map::new(),
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

/// Why a plugin could not be made: one entry per problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgsError {
    /// Path below the plugin's arguments (such as `scoringStrategy.type`) and what is wrong there.
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

/// The plugins that a profile can name.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
}

/// A plugin of this name is there already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a plugin named {0} already exists")]
pub struct AlreadyRegistered(pub String);

impl Registry {
    /// Adds a plugin.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(&FactoryContext<'_>) -> Result<Extensions, ArgsError> + Send + Sync + 'static,
    ) -> Result<(), AlreadyRegistered> {
        if self.factories.contains_key(name) {
            return Err(AlreadyRegistered(name.to_owned()));
        }
        self.factories.insert(name.to_owned(), Arc::new(factory));
        Ok(())
    }

    /// The factory of a plugin.
    pub fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.get(name)
    }

    /// The names of all plugins, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
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

    /// F-26: two plugins cannot have one name, and one that nobody registered is not there.
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

    /// F-26, F-31: arguments are read into the plugin's own type, or it is said why they cannot be.
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
