//! The warnings about versions of resources that are deprecated.

use super::{ApiRelease, FACTS};
use berth_protobuf::facts::words;
use std::sync::LazyLock;

static DEPRECATED: LazyLock<Vec<Deprecation>> =
    LazyLock::new(|| FACTS.lines().filter_map(Deprecation::read).collect());

/// A line `deprecated` of the facts.
struct Deprecation {
    group_version: &'static str,
    resources: Vec<&'static str>,
    since: u32,
    removed: Option<&'static str>,
    replacement: Option<(&'static str, &'static str)>,
}

impl Deprecation {
    fn read(line: &'static str) -> Option<Self> {
        let mut words = words(line.strip_prefix("deprecated ")?);
        let mut deprecation = Self {
            group_version: words.next()?,
            resources: words.next()?.split(',').collect(),
            since: 0,
            removed: None,
            replacement: None,
        };
        for word in words {
            match word.split_once('=')? {
                ("since", release) => deprecation.since = minor(release)?,
                ("removed", release) => deprecation.removed = minor(release).map(|_| release),
                ("use", kind) => deprecation.replacement = Some(kind.split_once(':')?),
                _ => return None,
            }
        }
        Some(deprecation)
    }

    fn warning(&self, kind: &str) -> String {
        let mut text = format!(
            "{} {kind} is deprecated in v1.{}+",
            self.group_version, self.since
        );
        if let Some(removed) = self.removed {
            text += &format!(", unavailable in v{removed}+");
        }
        if let Some((group_version, kind)) = self.replacement {
            text += &format!("; use {group_version} {kind}");
        }
        text
    }
}

/// The minor version of a release of Kubernetes 1, such as 33 of `1.33`.
fn minor(release: &str) -> Option<u32> {
    release.strip_prefix("1.")?.parse().ok()
}

/// The minor version of the first release that does not serve a deprecated resource.
pub(super) fn removal(group: &str, version: &str, plural: &str) -> Option<u32> {
    let found = DEPRECATED.iter().find(|deprecation| {
        let named = deprecation.group_version;
        named.split_once('/').unwrap_or(("", named)) == (group, version)
            && deprecation.resources.contains(&plural)
    });
    minor(found?.removed?)
}

/// The warning about each request for a resource, if its version is deprecated in the release of this API.
pub(crate) fn warning(
    group_version: &str,
    plural: &str,
    kind: &str,
    api: ApiRelease,
) -> Option<String> {
    let found = DEPRECATED.iter().find(|deprecation| {
        deprecation.group_version == group_version
            && deprecation.resources.contains(&plural)
            && deprecation.since <= api.release().minor()
    });
    Some(found?.warning(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use berth_api::Release;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_of_a_served_resource() {
        let lines = FACTS.lines().filter(|line| line.starts_with("deprecated "));
        let catalog = Catalog::of_release(ApiRelease::EVERY);
        let served: BTreeSet<_> = catalog
            .resources()
            .iter()
            .map(|r| (r.api_version(), r.resource.resource))
            .collect();
        for line in lines {
            let read = Deprecation::read(line).unwrap_or_else(|| panic!("{line}"));
            assert!(read.since > 0, "{line}");
            for resource in read.resources {
                let known = served.contains(&(read.group_version.to_owned(), resource));
                assert!(known, "{line}: {resource}");
            }
        }
    }

    /// The values equal the files `zz_generated.prerelease-lifecycle.go` of Kubernetes 1.36.
    #[test]
    fn versions_are_deprecated_from_a_release_on() {
        let warning = |release, group, version, plural| {
            let catalog = Catalog::of_release(ApiRelease::of(release));
            catalog.find_version(group, version, plural)?.deprecation()
        };
        let devices = "resource.k8s.io";
        for release in Release::ALL {
            for (group, version, plural, expected) in [
                ("", "v1", "pods", None),
                (
                    "",
                    "v1",
                    "componentstatuses",
                    Some("v1 ComponentStatus is deprecated in v1.19+"),
                ),
                (
                    "",
                    "v1",
                    "endpoints",
                    Some(
                        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
                    ),
                ),
                (devices, "v1", "deviceclasses", None),
                (
                    devices,
                    "v1beta1",
                    "resourceclaims",
                    (release < Release::V1_38).then_some(
                        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+",
                    ),
                ),
                (
                    devices,
                    "v1beta2",
                    "resourceslices",
                    Some(
                        "resource.k8s.io/v1beta2 ResourceSlice is deprecated in v1.36+, unavailable in v1.39+",
                    ),
                ),
                // From 1.39 on.
                (devices, "v1beta2", "devicetaintrules", None),
            ] {
                let found = warning(release, group, version, plural);
                assert_eq!(found.as_deref(), expected, "{release}: {version} {plural}");
            }
        }
    }
}
