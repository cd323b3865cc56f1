//! The expansion of configured plugin sets to one list of plugins per extension point.
//!
//! Two steps, as in kube-scheduler: the user's sets are merged into the defaults, then `multiPoint` is expanded to the
//! points.

use super::error::ProfileError;
use super::spec::{EnabledPlugin, PluginSet, PluginSets, Point};
use std::collections::BTreeMap;

/// The user's sets on top of the default ones.
///
/// A default plugin that the user enables too keeps its position and gets the user's weight; other plugins of the user
/// are appended. Plugins that the user disables are dropped, and stay listed so that [`expand`] honours it.
pub fn merge(defaults: &PluginSets, user: &PluginSets) -> PluginSets {
    let mut merged = PluginSets {
        multi_point: merge_set(&defaults.multi_point, &user.multi_point),
        points: BTreeMap::new(),
    };
    let nothing = PluginSet::default();
    for point in Point::ALL {
        let (theirs, ours) = (user.point(point), defaults.point(point));
        if theirs.is_some() || ours.is_some() {
            let set = merge_set(ours.unwrap_or(&nothing), theirs.unwrap_or(&nothing));
            merged.points.insert(point, set);
        }
    }
    merged
}

fn merge_set(defaults: &PluginSet, user: &PluginSet) -> PluginSet {
    let mut disabled = user.disabled.clone();
    disabled.extend(defaults.disabled.iter().cloned());
    let mut replaced = vec![false; user.enabled.len()];
    let mut enabled = Vec::new();
    if !user.disables_all() {
        for default in &defaults.enabled {
            if user.disables(&default.name) {
                continue;
            }
            match user.enabled.iter().position(|e| e.name == default.name) {
                Some(at) => {
                    replaced[at] = true;
                    enabled.push(user.enabled[at].clone());
                }
                None => enabled.push(default.clone()),
            }
        }
    }
    // A second mention of a name stays in the list, so that it is reported later.
    enabled.extend(
        user.enabled
            .iter()
            .zip(replaced)
            .filter(|(_, replaced)| !replaced)
            .map(|(plugin, _)| plugin.clone()),
    );
    PluginSet { enabled, disabled }
}

/// The plugins of one point, in order. `takes_part` returns whether a plugin has that point.
///
/// Order: plugins of `multiPoint` that the point enables itself, in the point's order; then the other plugins of
/// `multiPoint`; then the plugins that only the point enables.
///
/// # Errors
/// When a plugin is named twice, or enabled at a point that it does not have.
pub fn expand(
    sets: &PluginSets,
    point: Point,
    takes_part: impl Fn(&str) -> bool,
) -> Result<Vec<EnabledPlugin>, ProfileError> {
    let nothing = PluginSet::default();
    let own = sets.point(point).unwrap_or(&nothing);
    for (i, plugin) in own.enabled.iter().enumerate() {
        let path = || format!("plugins.{}.enabled[{i}]", point.field());
        if !takes_part(&plugin.name) {
            return Err(ProfileError::WrongPoint {
                path: path(),
                name: plugin.name.clone(),
                point,
            });
        }
        if own.enabled[..i].iter().any(|e| e.name == plugin.name) {
            return Err(ProfileError::Twice {
                path: path(),
                name: plugin.name.clone(),
                point,
            });
        }
    }
    if own.disables_all() {
        return Ok(own.enabled.clone());
    }
    let mut spread: Vec<EnabledPlugin> = Vec::new();
    let mut overridden = Vec::new();
    for (i, plugin) in sets.multi_point.enabled.iter().enumerate() {
        if !takes_part(&plugin.name) || own.disables(&plugin.name) {
            continue;
        }
        if own.enabled.iter().any(|e| e.name == plugin.name) {
            overridden.push(plugin.name.as_str());
        } else if spread.iter().any(|e| e.name == plugin.name) {
            return Err(ProfileError::Twice {
                path: format!("plugins.multiPoint.enabled[{i}]"),
                name: plugin.name.clone(),
                point,
            });
        } else {
            spread.push(plugin.clone());
        }
    }
    let (first, last): (Vec<_>, Vec<_>) = own
        .enabled
        .iter()
        .cloned()
        .partition(|e| overridden.contains(&e.name.as_str()));
    Ok(first.into_iter().chain(spread).chain(last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(enabled: &[(&str, i64)], disabled: &[&str]) -> PluginSet {
        PluginSet {
            enabled: enabled
                .iter()
                .map(|(name, weight)| EnabledPlugin {
                    name: (*name).to_owned(),
                    weight: (*weight != 0).then_some(*weight),
                })
                .collect(),
            disabled: disabled.iter().map(|d| (*d).to_owned()).collect(),
        }
    }

    fn text(plugins: &[EnabledPlugin]) -> String {
        let texts: Vec<String> = plugins
            .iter()
            .map(|p| format!("{}{}", p.name, p.weight.unwrap_or(0)))
            .collect();
        texts.join(" ")
    }

    /// F-32.
    #[test]
    fn the_users_plugins_join_the_defaults() {
        let defaults = set(&[("A", 1), ("B", 2), ("C", 3)], &[]);
        for (situation, user, merged) in [
            ("nothing stated", set(&[], &[]), "A1 B2 C3"),
            ("a weight in place", set(&[("B", 7)], &[]), "A1 B7 C3"),
            ("a newcomer goes last", set(&[("X", 4)], &[]), "A1 B2 C3 X4"),
            ("one disabled", set(&[], &["B"]), "A1 C3"),
            (
                "disabled and enabled again goes last",
                set(&[("A", 5)], &["A"]),
                "B2 C3 A5",
            ),
            ("all replaced", set(&[("C", 1), ("A", 1)], &["*"]), "C1 A1"),
            (
                "a repetition is kept",
                set(&[("X", 1), ("X", 2)], &[]),
                "A1 B2 C3 X1 X2",
            ),
        ] {
            assert_eq!(
                text(&merge_set(&defaults, &user).enabled),
                merged,
                "{situation}"
            );
        }
    }

    /// F-25, F-26, case 250.
    #[test]
    fn multi_point_is_spread_over_the_points() {
        let multi = [("A", 1), ("B", 2), ("C", 3)];
        for (situation, multi_point, own, expanded) in [
            ("as it is", set(&multi, &[]), set(&[], &[]), Ok("A1 B2 C3")),
            (
                "one left out here",
                set(&multi, &[]),
                set(&[], &["B"]),
                Ok("A1 C3"),
            ),
            (
                "nothing but this",
                set(&multi, &[]),
                set(&[("C", 9)], &["*"]),
                Ok("C9"),
            ),
            (
                "named here goes first",
                set(&multi, &[]),
                set(&[("C", 9), ("A", 8)], &[]),
                Ok("C9 A8 B2"),
            ),
            (
                "only here goes last",
                set(&multi, &[]),
                set(&[("X", 5), ("B", 6)], &[]),
                Ok("B6 A1 C3 X5"),
            ),
            (
                "disabled and enabled here counts as only here",
                set(&multi, &[]),
                set(&[("A", 8)], &["A"]),
                Ok("B2 C3 A8"),
            ),
            (
                "without this point",
                set(&[("NoPoint", 1), ("A", 1)], &[]),
                set(&[], &[]),
                Ok("A1"),
            ),
            (
                "twice",
                set(&[("A", 1), ("A", 1)], &[]),
                set(&[], &[]),
                Err(
                    "plugins.multiPoint.enabled[1]: plugin \"A\" already registered as \"ScorePlugin\"; name it once",
                ),
            ),
            (
                "twice here",
                set(&[], &[]),
                set(&[("A", 1), ("A", 1)], &[]),
                Err(
                    "plugins.score.enabled[1]: plugin \"A\" already registered as \"ScorePlugin\"; name it once",
                ),
            ),
            (
                "enabled where it has no part",
                set(&[], &[]),
                set(&[("NoPoint", 1)], &[]),
                Err(
                    "plugins.score.enabled[0]: plugin \"NoPoint\" does not extend ScorePlugin plugin",
                ),
            ),
        ] {
            let mut sets = PluginSets {
                multi_point,
                ..PluginSets::default()
            };
            sets.points.insert(Point::Score, own);
            let got = expand(&sets, Point::Score, |name| name != "NoPoint")
                .map(|plugins| text(&plugins))
                .map_err(|e| e.to_string());
            assert_eq!(
                got.as_deref().map_err(String::as_str),
                expanded,
                "{situation}"
            );
        }
    }
}
