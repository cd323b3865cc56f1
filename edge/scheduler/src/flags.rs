//! The command line of `berth scheduler`: kube-scheduler's flags, and Berth's own.

mod table;
#[cfg(test)]
mod tests;
mod value;

pub use table::Flags;
pub(crate) use table::{
    AuthenticationFlags, AuthorizationFlags, DeprecatedFlags, FLAGS, FeatureFlags,
    LeaderElectionFlags, MetricsFlags, ServingFlags,
};
pub use value::{FlagValue, Level, LogFormat};
pub(crate) use value::{LabelValues, NamedCertKey, VModule, VersionFlag};

use clap::error::{Error, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::borrow::Cow;

/// A value with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given<T> {
    /// The value that was given, or the default.
    pub(crate) value: T,
    /// Whether the flag was on the command line.
    pub(crate) is_set: bool,
}

/// The effect of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlagEffect {
    /// The effect that the help text states.
    Works,
    /// The effect that the help text states, with a warning. Names the configuration field to use instead, if there is
    /// one.
    Deprecated(&'static str),
    /// It only causes a warning, for this reason.
    Ignored(&'static str),
}

/// A flag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    field: &'static str,
    pub(crate) section: Section,
    /// The name of its type; empty for booleans.
    pub(crate) type_name: &'static str,
    /// The default, as it would be given.
    pub(crate) default: &'static str,
    /// The effect of the flag.
    pub(crate) effect: FlagEffect,
    /// The purpose of the flag.
    pub(crate) help: &'static str,
}

impl Flag {
    /// The name, without dashes.
    pub(crate) fn name(&self) -> String {
        self.field.replace('_', "-")
    }

    /// The warning for the given flag; `None` if it has its effect.
    pub(crate) fn warning(&self) -> Option<String> {
        let name = self.name();
        match self.effect {
            FlagEffect::Works => None,
            FlagEffect::Deprecated("") => Some(format!("flag --{name} is deprecated")),
            FlagEffect::Deprecated(field) => Some(format!(
                "flag --{name} is deprecated; use {field} in the file of --config"
            )),
            FlagEffect::Ignored(reason) => Some(format!("flag --{name} has no effect: {reason}")),
        }
    }

    fn arg(&self) -> Arg {
        let mut help = self.help.to_owned();
        if let FlagEffect::Deprecated(_) = self.effect {
            help = format!("Deprecated. {help}");
        }
        if let FlagEffect::Ignored(reason) = self.effect {
            help = format!("No effect: {reason}. {help}");
        }
        if !matches!(self.default, "" | "false") {
            help = format!("{help} [default: {}]", self.default);
        }
        let arg = Arg::new(self.field)
            .long(self.name())
            .action(ArgAction::Append)
            .help(help)
            .help_heading(self.section.title());
        let arg = match self.field {
            "v" => arg.short('v'),
            _ => arg,
        };
        // `--flag` alone is true, and its value needs an equals sign.
        if self.type_name.is_empty() || self.field == "version" {
            arg.num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_name("BOOL")
                .hide_possible_values(true)
        } else {
            arg.value_name(self.type_name).allow_hyphen_values(true)
        }
    }
}

/// A group of flags in the help text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Misc,
    Berth,
    SecureServing,
    Authentication,
    Authorization,
    Deprecated,
    LeaderElection,
    FeatureGate,
    Metrics,
    Logs,
    Global,
}

impl Section {
    /// Every section, in the order of the help text.
    #[cfg(test)]
    pub(crate) const ALL: &'static [Self] = &[
        Self::Misc,
        Self::Berth,
        Self::SecureServing,
        Self::Authentication,
        Self::Authorization,
        Self::Deprecated,
        Self::LeaderElection,
        Self::FeatureGate,
        Self::Metrics,
        Self::Logs,
        Self::Global,
    ];

    /// The headline.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Misc => "Misc flags",
            Self::Berth => "Berth flags",
            Self::SecureServing => "Secure serving flags",
            Self::Authentication => "Authentication flags",
            Self::Authorization => "Authorization flags",
            Self::Deprecated => "Deprecated flags",
            Self::LeaderElection => "Leader election flags",
            Self::FeatureGate => "Feature gate flags",
            Self::Metrics => "Metrics flags",
            Self::Logs => "Logs flags",
            Self::Global => "Global flags",
        }
    }
}

/// A flag has a value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid argument {value:?} for --{flag}: {reason}")]
pub(crate) struct FlagError {
    flag: String,
    value: String,
    reason: String,
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::read(matches).map_err(|e| {
            Error::raw(
                ErrorKind::ValueValidation,
                format!(
                    "{e}
"
                ),
            )
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        add_to(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add_to(command)
    }
}

/// Adds the flags to a command.
pub(crate) fn add_to(command: Command) -> Command {
    command
        .disable_version_flag(true)
        .args(FLAGS.iter().map(Flag::arg))
}

/// Reads one flag.
fn read<T: FlagValue>(
    matches: &ArgMatches,
    field: &str,
    default: &str,
) -> Result<Given<T>, FlagError> {
    let given = matches.get_many::<String>(field);
    let is_set = given.is_some();
    let texts: Vec<&str> = match given {
        Some(texts) => texts.map(String::as_str).collect(),
        None => vec![default],
    };
    let value = T::read(&texts).map_err(|reason| FlagError {
        flag: field.replace('_', "-"),
        value: texts.join(","),
        reason,
    })?;
    Ok(Given { value, is_set })
}

/// Underscores in the names of flags count as dashes, as in every Kubernetes component.
pub fn normalized(argument: &str) -> Cow<'_, str> {
    let Some(flag) = argument.strip_prefix("--") else {
        return argument.into();
    };
    let (name, value) = match flag.find('=') {
        Some(at) => flag.split_at(at),
        None => (flag, ""),
    };
    if !name.contains('_') {
        return argument.into();
    }
    format!("--{}{value}", name.replace('_', "-")).into()
}
