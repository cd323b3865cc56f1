//! The reasons why a profile is invalid.

use super::spec::Point;
use berth_framework::call::CallTypeError;
use berth_framework::registry::ArgsError;

/// The faults of a profile. Paths are relative to the profile; see [`ProfileErrors`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No plugin of that name.
    #[error("{path}: unknown plugin {name:?}{}", did_you_mean(.suggestion.as_deref()))]
    UnknownPlugin {
        /// The place of the name.
        path: String,
        /// The name.
        name: String,
        /// A name that is much like it.
        suggestion: Option<String>,
    },
    /// The plugin has nothing to do at the point.
    #[error("{path}: plugin {name:?} does not extend {point} plugin")]
    WrongPoint {
        /// The place of the name.
        path: String,
        /// The plugin.
        name: String,
        /// The point.
        point: Point,
    },
    /// The plugin is named twice.
    #[error("{path}: plugin {name:?} already registered as \"{point}\"; name it once")]
    Twice {
        /// The place of the name.
        path: String,
        /// The plugin.
        name: String,
        /// The point.
        point: Point,
    },
    /// A plugin has two sets of arguments.
    #[error("{path}: repeated config for plugin {name}; keep one of them")]
    RepeatedConfig {
        /// The place of the second.
        path: String,
        /// The plugin.
        name: String,
    },
    /// The plugin refuses its arguments.
    #[error("{path}: initializing plugin {name:?}: {source}")]
    Args {
        /// The place of the arguments, or `plugins` when there are none.
        path: String,
        /// The plugin.
        name: String,
        /// The error of the plugin.
        source: ArgsError,
    },
    /// Not exactly one queue sort plugin.
    #[error(
        "plugins.queueSort: only one queue sort plugin required for profile with scheduler name {scheduler_name:?}, but got {got}"
    )]
    QueueSort {
        /// The profile.
        scheduler_name: String,
        /// The number of them.
        got: usize,
    },
    /// No plugin binds.
    #[error(
        "plugins.bind: at least one bind plugin is needed for profile with scheduler name {scheduler_name:?}"
    )]
    NoBind {
        /// The profile.
        scheduler_name: String,
    },
    /// The weights are too great.
    #[error("plugins.score: total score of Score plugins could overflow; lower their weights")]
    ScoreOverflow,
    /// A weight is negative.
    #[error("{path}.weight: the weight of plugin {name:?} is {weight}; it must not be negative")]
    NegativeWeight {
        /// The place of the name.
        path: String,
        /// The plugin.
        name: String,
        /// The weight.
        weight: i64,
    },
    /// More plugins than a profile can have.
    #[error("plugins: {got} plugins are enabled; a profile takes at most {max}")]
    TooMany {
        /// The number of them.
        got: usize,
        /// The greatest number of them.
        max: usize,
    },
    /// A plugin registers a type of API calls that cannot be distinguished from another one.
    #[error("plugins: {plugin}: {source}")]
    CallType {
        /// The plugin.
        plugin: String,
        /// The fault.
        source: CallTypeError,
    },
    /// No name.
    #[error("schedulerName: scheduler name is needed")]
    NoName,
    /// The name of another profile.
    #[error("schedulerName: duplicate profile with scheduler name {0:?}")]
    DuplicateName(String),
    /// The profiles have different queue sort plugins.
    #[error(
        "plugins.queueSort: different queue sort plugins for profile {scheduler_name:?}: {this:?}, first: {first:?}"
    )]
    QueueSortDiffers {
        /// The profile.
        scheduler_name: String,
        /// Its plugin.
        this: String,
        /// The plugin of the first profile.
        first: String,
    },
    /// The profiles have one queue sort plugin with different arguments.
    #[error("pluginConfig: different queue sort plugin args for profile {0:?}")]
    QueueSortArgsDiffer(String),
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean {name:?}?"))
}

/// All problems of a list of profiles: the index of the profile, and the problem. An empty list of profiles has no
/// problem in this list; see [`ProfileErrors::is_empty`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileErrors(pub Vec<(usize, ProfileError)>);

impl ProfileErrors {
    /// Returns whether the only problem is that there is no profile.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for ProfileErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("profiles: at least one profile is required");
        }
        for (i, (profile, error)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "profiles[{profile}].{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ProfileErrors {}
