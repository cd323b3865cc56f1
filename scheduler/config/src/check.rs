//! The checks of a configuration by the plugins: existence of the plugins, and their arguments.

use super::error::Problems;
use super::profile::ProfileConfig;
use berth_framework::FeatureGates;
use berth_framework::registry::{ArgsError, FactoryContext, Registry};
use berth_profile::{Point, ProfileError, ProfileSpec, Profiles};

/// Makes every plugin once, to find errors. Errors that are known already are not reported again.
pub(super) fn check(
    profiles: &[ProfileConfig],
    registry: &Registry,
    features: &FeatureGates,
    problems: &Problems,
) {
    for (i, profile) in profiles.iter().enumerate() {
        check_args(
            profile,
            &format!("profiles[{i}]"),
            registry,
            features,
            problems,
        );
    }
    let specs: Vec<ProfileSpec> = profiles.iter().map(ProfileConfig::spec).collect();
    let Err(errors) = Profiles::build(&specs, registry, features) else {
        return;
    };
    for (i, error) in errors.0 {
        if let Some(profile) = profiles.get(i) {
            add(&error, profile, &format!("profiles[{i}]"), problems);
        }
    }
}

/// All given arguments are checked, including arguments of disabled plugins, as upstream does (F-35).
fn check_args(
    profile: &ProfileConfig,
    path: &str,
    registry: &Registry,
    features: &FeatureGates,
    problems: &Problems,
) {
    for (i, config) in profile.plugin_config.iter().enumerate() {
        let path = format!("{path}.pluginConfig[{i}].args");
        // Arguments of another kind would otherwise be reported twice.
        let known = i >= profile.given_args || problems.has(&path, true);
        let Some(plugin) = registry.get(&config.name).filter(|_| !known) else {
            continue;
        };
        let args = &config.args;
        if let Err(error) = plugin.make(&FactoryContext { args, features }) {
            add_args(&error, &path, problems);
        }
    }
}

fn add_args(error: &ArgsError, path: &str, problems: &Problems) {
    for (field, message) in &error.problems {
        let path = match field.as_str() {
            "" => path.to_owned(),
            field => format!("{path}.{field}"),
        };
        if !problems.knows(&path, message) {
            problems.add(path, message);
        }
    }
}

/// Adds the problems of the profile at `path`.
fn add(error: &ProfileError, profile: &ProfileConfig, path: &str, problems: &Problems) {
    let place = |below: &str| format!("{path}.{below}");
    match error {
        // These are found without plugins.
        ProfileError::NoName | ProfileError::DuplicateName(_) => {}
        ProfileError::Args { path, source, .. } => {
            if !problems.has(&place(path), true) {
                add_args(source, &place(path), problems);
            }
        }
        ProfileError::UnknownPlugin {
            path,
            name,
            suggestion,
        } => {
            let path = place(path);
            if problems.has(&path, false) {
                return;
            }
            let message = format!("unknown plugin {name:?}");
            match suggestion {
                Some(known) => {
                    problems.add_with_hint(path, message, format!("did you mean {known:?}?"));
                }
                None => problems.add(path, message),
            }
        }
        ProfileError::Twice { path, name, point } => {
            let message = format!("plugin {name:?} already registered as \"{point}\"");
            let path = place(&where_written(profile, path, name));
            if !problems.knows(&path, &message) {
                problems.add_with_hint(path, message, "name it once");
            }
        }
        ProfileError::QueueSort { .. }
        | ProfileError::QueueSortDiffers { .. }
        | ProfileError::QueueSortArgsDiffer(_) => {
            let (path, message) = split(error);
            if !problems.has(&place(&path), true) {
                problems.add(place(&path), message);
            }
        }
        _ => {
            let (path, message) = split(error);
            if !problems.has(&place(&path), false) {
                problems.add(place(&path), message);
            }
        }
    }
}

/// The path and the message of an error that starts with its path.
fn split(error: &ProfileError) -> (String, String) {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((path, message)) => (path.to_owned(), message.to_owned()),
        None => ("plugins".to_owned(), text),
    }
}

/// The place of the second mention of a plugin: the core counts with the default plugins merged in.
fn where_written(profile: &ProfileConfig, path: &str, name: &str) -> String {
    let sets = &profile.plugins;
    let written = [("multiPoint", &sets.multi_point)]
        .into_iter()
        .chain(Point::ALL.into_iter().filter_map(|point| {
            let set = sets.point(point)?;
            Some((point.field(), set))
        }))
        .find(|(field, _)| path.starts_with(&format!("plugins.{field}.")))
        .and_then(|(field, set)| {
            let at = set.enabled.iter().rposition(|plugin| plugin.name == name)?;
            Some(format!("plugins.{field}.enabled[{at}]"))
        });
    written.unwrap_or_else(|| path.to_owned())
}
