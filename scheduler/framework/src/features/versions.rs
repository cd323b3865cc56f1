//! Reads `--emulated-version` and `--min-compatibility-version`.

use berth_api::Release;

/// The only component whose version a scheduler has, as in `kube=1.37`.
const COMPONENT: &str = "kube";
/// The minor version of the oldest control plane components that Berth works with.
const MIN_COMPATIBILITY_MINOR: u32 = 33;

/// The release whose behaviour Berth has, and the oldest release of other components that it must work with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The emulated version.
    pub emulated: Release,
    /// The minor version of the minimum compatibility version: 35 is 1.35.
    pub min_compatibility_minor: u32,
}

/// The reason why versions cannot be as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not a version.
    #[error("could not parse {0:?} as version")]
    Malformed(String),
    /// A version of a patch release.
    #[error("patch version not allowed, got: {0}={1}")]
    Patch(String, String),
    /// Two versions for one component.
    #[error("duplicate version flag, {0}={1} and {0}={2}")]
    Duplicate(String, String, String),
    /// No such component.
    #[error("component not registered: {0}")]
    Component(String),
    /// Not a version that Berth can emulate.
    #[error(
        "emulation version {0} is not between [{oldest}, {newest}.0]",
        oldest = Release::OLDEST,
        newest = Release::NEWEST
    )]
    Emulated(String),
    /// Not a version that can go with the emulated one.
    #[error(
        "minCompatibilityVersion version {0} is not between [1.{MIN_COMPATIBILITY_MINOR}, {1}]"
    )]
    MinCompatibility(String, Release),
}

impl Versions {
    /// The versions of a release: the minimum compatibility version is the release before it.
    pub fn of(emulated: Release) -> Self {
        Self {
            emulated,
            min_compatibility_minor: emulated.minor() - 1,
        }
    }

    /// The release that `--emulated-version` names.
    ///
    /// # Errors
    /// When it cannot be emulated.
    pub fn emulated(given: &[String]) -> Result<Option<Release>, VersionError> {
        let Some(version) = of_kube(given)? else {
            return Ok(None);
        };
        let release = match version {
            (1, minor) => Release::of_minor(minor),
            _ => None,
        };
        match release {
            Some(release) => Ok(Some(release)),
            None => Err(VersionError::Emulated(show(version))),
        }
    }

    /// The versions that the flags name. `usual` is emulated unless `emulated` names a release.
    ///
    /// # Errors
    /// When a version is not one, or is out of range.
    pub fn read(
        emulated: &[String],
        min_compatibility: &[String],
        usual: Release,
    ) -> Result<Self, VersionError> {
        let versions = Self::of(Self::emulated(emulated)?.unwrap_or(usual));
        match of_kube(min_compatibility)? {
            None => Ok(versions),
            Some((1, minor))
                if (MIN_COMPATIBILITY_MINOR..=versions.emulated.minor()).contains(&minor) =>
            {
                Ok(Self {
                    min_compatibility_minor: minor,
                    ..versions
                })
            }
            Some(version) => Err(VersionError::MinCompatibility(
                show(version),
                versions.emulated,
            )),
        }
    }
}

fn show((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// The major and minor version that a flag gives for Kubernetes.
fn of_kube(given: &[String]) -> Result<Option<(u32, u32)>, VersionError> {
    let mut found: Option<(u32, u32)> = None;
    for entry in given {
        let (component, text) = entry.split_once('=').unwrap_or((COMPONENT, entry));
        let (component, text) = (component.trim(), text.trim());
        let version = version(component, text)?;
        if component != COMPONENT {
            return Err(VersionError::Component(component.to_owned()));
        }
        if let Some(other) = found.replace(version) {
            return Err(VersionError::Duplicate(
                component.to_owned(),
                show(other),
                show(version),
            ));
        }
    }
    Ok(found)
}

/// Reads `1.37`, `v1.37` or `1.37.0`.
fn version(component: &str, text: &str) -> Result<(u32, u32), VersionError> {
    let malformed = || VersionError::Malformed(text.to_owned());
    let numbers = text.strip_prefix('v').unwrap_or(text).split('.');
    let numbers = numbers
        .map(|part| part.parse().ok())
        .collect::<Option<Vec<u32>>>()
        .ok_or_else(malformed)?;
    match numbers[..] {
        [major, minor] | [major, minor, 0] => Ok((major, minor)),
        [_, _, _] => Err(VersionError::Patch(component.to_owned(), text.to_owned())),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 261.
    #[test]
    fn versions_are_read_or_refused_as_kube_scheduler_does() {
        let given = |text: &str| -> Vec<String> {
            let parts = text.split(',').filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        for (emulated, min, expected) in [
            ("", "", "1.36 35"),
            ("1.36", "", "1.36 35"),
            ("1.37", "", "1.37 36"),
            ("kube=1.38", "", "1.38 37"),
            ("v1.38.0", "", "1.38 37"),
            ("1.37", "1.37", "1.37 37"),
            ("1.38", "kube=1.35", "1.38 35"),
            ("", "1.33", "1.36 33"),
            (
                "1.35",
                "",
                "emulation version 1.35 is not between [1.36, 1.38.0]",
            ),
            (
                "kube=1.39",
                "",
                "emulation version 1.39 is not between [1.36, 1.38.0]",
            ),
            (
                "2.36",
                "",
                "emulation version 2.36 is not between [1.36, 1.38.0]",
            ),
            (
                "1.36",
                "1.37",
                "minCompatibilityVersion version 1.37 is not between [1.33, 1.36]",
            ),
            (
                "1.38",
                "1.30",
                "minCompatibilityVersion version 1.30 is not between [1.33, 1.38]",
            ),
            ("1.37.2", "", "patch version not allowed, got: kube=1.37.2"),
            (
                "1.37,kube=1.38",
                "",
                "duplicate version flag, kube=1.37 and kube=1.38",
            ),
            ("wardle=1.2", "", "component not registered: wardle"),
            ("new", "", "could not parse \"new\" as version"),
            ("1", "", "could not parse \"1\" as version"),
        ] {
            let read = Versions::read(&given(emulated), &given(min), Release::V1_36);
            let shown = match read {
                Ok(versions) => {
                    format!("{} {}", versions.emulated, versions.min_compatibility_minor)
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{emulated:?} {min:?}");
        }
    }
}
