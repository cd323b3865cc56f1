//! The flags of kube-apiserver, and their effects in Berth.

use berth_edge::flags;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::fmt::Write as _;

/// The flags, with their types and effects.
const TABLE: &str = include_str!("kube-apiserver-1.36-flags.txt");
/// The heading of the flags that have an effect.
const IN_EFFECT: &str = "in effect";

/// A flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    /// The name of its type; empty for booleans.
    pub(super) type_name: &'static str,
    help: &'static str,
    /// The reason why giving it has no effect; `None` if it has one.
    pub(super) ignored: Option<&'static str>,
}

/// Every flag, in the order of the table.
pub(super) fn all() -> Vec<Flag> {
    let mut ignored = None;
    let mut flags = Vec::new();
    for line in TABLE.lines() {
        if let Some(heading) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            ignored = (heading != IN_EFFECT).then_some(heading);
        } else if let Some(flag) = line.strip_prefix("--") {
            let (flag, help) = flag.split_once(" | ").unwrap_or((flag, ""));
            let (name, type_name) = flag.split_once(' ').unwrap_or((flag, ""));
            flags.push(Flag {
                name,
                type_name,
                help,
                ignored,
            });
        }
    }
    flags
}

fn argument(flag: Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name);
    let arg = match flag.name {
        "help" => return arg.short('h').action(ArgAction::Help).help(flag.help),
        "v" => arg.short('v'),
        _ => arg,
    };
    let help = match flag.ignored {
        Some(reason) => format!("No effect: {reason}."),
        None => flag.help.to_owned(),
    };
    let arg = arg.action(ArgAction::Append).help(help);
    // `--flag` alone is true, and its value needs an equals sign.
    if flag.type_name.is_empty() || flag.name == "version" {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("BOOL")
    } else {
        arg.value_name(flag.type_name).allow_hyphen_values(true)
    }
}

/// The command line of kube-apiserver.
fn command() -> Command {
    Command::new("kube-apiserver")
        .about(
            "The API server of Berth in the place of kube-apiserver, with its flags. Objects are kept in memory; \
             controllers, simulated nodes and a scheduler run when the environment variables BERTH_CONTROLLERS=on, \
             BERTH_NODES=N and BERTH_SCHEDULER=on are set.",
        )
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(all().into_iter().map(argument))
}

/// The flags that were given.
#[derive(Debug)]
pub(super) struct Given(ArgMatches);

impl Given {
    /// Reads a command line, the name of the program first. The names of flags may have underscores.
    ///
    /// # Errors
    /// Names the first flag that is unknown, and the known flag that is nearest; or has the help text.
    pub(super) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let arguments = arguments.into_iter().map(|argument| {
            let normalized = argument.to_str().map(flags::normalized);
            normalized.map_or_else(|| argument.clone(), |text| text.into_owned().into())
        });
        command().try_get_matches_from(arguments).map(Self)
    }

    /// All values of a flag, in their order.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let values = self.0.get_many::<String>(name).into_iter().flatten();
        values.map(String::as_str).collect()
    }

    /// The last value of a flag that is not empty.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let value = self.all(name).last().copied();
        value.filter(|value| !value.is_empty())
    }

    /// The values of a flag whose type is a list, separated by commas.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        let values = self.all(name);
        let values = values.into_iter().flat_map(|value| value.split(','));
        let values = values.map(str::trim);
        values.filter(|value| !value.is_empty()).collect()
    }

    /// For each reason, the flags that were given and have no effect for that reason.
    pub(super) fn ignored(&self) -> Vec<String> {
        let mut lines: Vec<(&str, String)> = Vec::new();
        for flag in all() {
            let (Some(reason), true) = (flag.ignored, self.0.contains_id(flag.name)) else {
                continue;
            };
            match lines.iter_mut().find(|(known, _)| *known == reason) {
                // Writing to a string does not fail.
                Some((_, names)) => {
                    let _ = write!(names, ", --{}", flag.name);
                }
                None => lines.push((reason, format!("--{}", flag.name))),
            }
        }
        let shown = lines.into_iter();
        shown
            .map(|(reason, names)| format!("flags without effect: {names}: {reason}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn read(arguments: &[&str]) -> Result<Given, clap::Error> {
        let words = std::iter::once("kube-apiserver").chain(arguments.iter().copied());
        Given::read(words.map(OsString::from))
    }

    #[test]
    fn the_table_has_each_flag_once_with_its_effect() {
        let flags = all();
        let names: BTreeSet<_> = flags.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), flags.len(), "a flag is listed twice");
        assert!(flags.len() > 150, "{} flags", flags.len());
        for flag in flags {
            assert_eq!(flag.help.is_empty(), flag.ignored.is_some(), "{flag:?}");
        }
        command().debug_assert();
    }

    #[test]
    fn values_are_read_as_kubernetes_components_read_them() {
        let given = read(&[
            "--secure_port=6444",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://a.example",
            "--service-account-issuer",
            "https://b.example",
            "--allow-privileged",
            "--etcd-servers=http://127.0.0.1:2379",
            "--enable-garbage-collector=false",
            "-v=2",
        ])
        .expect("valid");
        assert_eq!(given.last("secure-port"), Some("6444"));
        assert_eq!(given.list("authorization-mode"), ["Node", "RBAC"]);
        assert_eq!(
            given.all("service-account-issuer"),
            ["https://a.example", "https://b.example"]
        );
        assert_eq!(given.last("v"), Some("2"));
        assert_eq!(given.last("cert-dir"), None);
        assert_eq!(
            given.ignored(),
            [
                "flags without effect: --enable-garbage-collector, --etcd-servers: Berth keeps the objects in memory, \
                 without etcd",
                "flags without effect: --allow-privileged: simulated nodes run no containers and have no port",
            ]
        );
    }

    #[test]
    fn unknown_flags_are_refused_with_the_nearest_one() {
        for (argument, expect) in [
            ("--secure-prot=1", "--secure-port"),
            ("--insecure-port=0", "--insecure-port"),
            ("--bind-adress=127.0.0.1", "--bind-address"),
            ("serve", "serve"),
        ] {
            let error = read(&[argument]).expect_err(argument).to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    /// envtest looks in the help text for flags that it passes to some versions only.
    #[test]
    fn the_help_text_lists_the_flags_at_the_beginning_of_lines() {
        let help = read(&["--help"]).expect_err("help is no command line");
        assert_eq!(help.exit_code(), 0);
        let help = help.to_string();
        let begins = |flag: &str| help.lines().any(|line| line.trim_start().starts_with(flag));
        assert!(begins("--secure-port"), "{help}");
        assert!(!begins("--insecure-port"), "{help}");
    }
}
