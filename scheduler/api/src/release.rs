//! The releases of Kubernetes whose behaviour Berth implements.

use std::fmt;

/// A minor release of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Release {
    /// Kubernetes 1.36.
    #[default]
    V1_36,
    /// Kubernetes 1.37.
    V1_37,
    /// Kubernetes 1.38.
    V1_38,
}

impl Release {
    /// Every release, oldest first.
    pub const ALL: [Self; 3] = [Self::V1_36, Self::V1_37, Self::V1_38];
    /// The oldest release.
    pub const OLDEST: Self = Self::V1_36;
    /// The newest release.
    pub const NEWEST: Self = Self::V1_38;

    /// The minor version, such as 36.
    pub fn minor(self) -> u32 {
        match self {
            Self::V1_36 => 36,
            Self::V1_37 => 37,
            Self::V1_38 => 38,
        }
    }

    /// The name, such as `1.36`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
            Self::V1_38 => "1.38",
        }
    }

    /// The release with this minor version of Kubernetes 1.
    pub fn of_minor(minor: u32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|release| release.minor() == minor)
    }

    /// The release that is closest to this minor version of Kubernetes 1: the oldest one for older versions, the newest
    /// one for newer versions.
    pub fn closest_to_minor(minor: u32) -> Self {
        Self::of_minor(minor).unwrap_or(if minor < Self::OLDEST.minor() {
            Self::OLDEST
        } else {
            Self::NEWEST
        })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_release_is_never_above_the_newest_nor_below_the_oldest() {
        for (minor, expected) in [
            (29, Release::V1_36),
            (36, Release::V1_36),
            (37, Release::V1_37),
            (38, Release::V1_38),
            (41, Release::V1_38),
        ] {
            assert_eq!(Release::closest_to_minor(minor), expected, "1.{minor}");
        }
    }
}
