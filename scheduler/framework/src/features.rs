//! Feature gates and behaviours by release, with upstream's names, stages and defaults.
//!
//! One table lists for each gate what it does, its state in each release and how far Berth supports it
//! (`features/table.rs`). Another table lists what changed between releases without a gate (`features/behaviour.rs`).
//! [`FeatureGates`] is the one value that plugins and the core read for both. `berth/tests/suite/pretense.rs`
//! fails when a gate that can be switched, or a behaviour, has no reader.

mod behaviour;
mod change;
mod parse;
mod table;
mod versions;

pub use behaviour::Behaviour;
pub use change::ReleaseChange;
pub use parse::{GateError, GateWarning};
pub use table::Feature;
pub use versions::{VersionError, Versions};

use berth_api::Release;

/// The maturity of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeatureStage {
    /// Off by default.
    Alpha,
    /// Usually on by default.
    Beta,
    /// Generally available.
    Stable,
}

impl FeatureStage {
    /// The name as metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
        }
    }
}

/// A gate that a release has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The maturity of the feature.
    pub stage: FeatureStage,
    /// Whether the gate is on by default.
    pub on: bool,
    /// Whether the gate cannot be changed.
    pub locked: bool,
}

/// The state of a gate in a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// The gate does not exist yet.
    PreAlpha,
    /// The gate exists.
    Known(Spec),
    /// The gate does not exist any more: the feature is always on, or was merged into another one.
    Removed,
}

impl GateState {
    /// The gate, if the release has it.
    pub fn spec(self) -> Option<Spec> {
        match self {
            Self::Known(spec) => Some(spec),
            Self::PreAlpha | Self::Removed => None,
        }
    }
}

/// The support of Berth for a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Both settings have their documented effect, in releases that do not lock the gate.
    Switchable,
    /// As [`Support::Switchable`]; the gate is beta and, unlike upstream, on by default in every release.
    OnInBerth,
    /// Berth always behaves as with the gate on. `false` is ignored with a warning where the gate is not locked.
    AlwaysOn,
    /// The gate changes how kube-scheduler computes something, not what it computes; or another gate includes it.
    NoEffect,
    /// Berth does not have the feature. `true` is refused.
    Missing,
}

impl Feature {
    /// The state of the gate in Berth. It differs from kube-scheduler only for gates that Berth enables in every
    /// release.
    pub fn state(self, versions: Versions) -> GateState {
        if self.support() == Support::OnInBerth {
            return GateState::Known(Spec {
                stage: FeatureStage::Beta,
                on: true,
                locked: false,
            });
        }
        let state = self.upstream(versions.emulated);
        let required = self.on_from_compatibility_minor();
        match (state, required) {
            (GateState::Known(spec), Some(minor)) if versions.min_compatibility_minor < minor => {
                GateState::Known(Spec { on: false, ..spec })
            }
            _ => state,
        }
    }

    /// Returns whether the feature is on when its gate is not set. Never for a feature that Berth does not have.
    pub fn default_on(self, versions: Versions) -> bool {
        match self.support() {
            Support::Missing => false,
            Support::AlwaysOn | Support::OnInBerth => true,
            Support::Switchable | Support::NoEffect => match self.state(versions) {
                GateState::PreAlpha => false,
                GateState::Known(spec) => spec.on,
                // A removed gate is on if the gates that it needs are on.
                GateState::Removed => self
                    .needs()
                    .iter()
                    .all(|needed| needed.default_on(versions)),
            },
        }
    }
}

/// The enabled features, and the behaviours of Kubernetes that Berth has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    versions: Versions,
    on: u128,
    behaviours: u128,
}

const _: () = assert!(Feature::ALL.len() <= 128);
const _: () = assert!(Behaviour::ALL.len() <= 128);

/// The gates of the oldest release.
impl Default for FeatureGates {
    fn default() -> Self {
        Self::of(Release::OLDEST)
    }
}

impl FeatureGates {
    /// The defaults of a release.
    pub fn of(release: Release) -> Self {
        Self::of_versions(Versions::of(release))
    }

    /// The defaults of a release that works with older components.
    pub fn of_versions(versions: Versions) -> Self {
        let mut gates = Self {
            versions,
            on: 0,
            behaviours: 0,
        };
        for feature in Feature::ALL {
            gates.put(*feature, feature.default_on(versions));
        }
        for behaviour in Behaviour::ALL {
            gates = gates.with_behaviour(*behaviour, behaviour.since() <= versions.emulated);
        }
        gates
    }

    /// The release whose behaviour this is.
    pub fn release(&self) -> Release {
        self.versions.emulated
    }

    /// The release, and the oldest release of other components.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// Returns whether a feature is on.
    pub fn enabled(&self, feature: Feature) -> bool {
        self.on & (1 << feature as u8) != 0
    }

    /// Returns whether a behaviour applies.
    pub fn has(&self, behaviour: Behaviour) -> bool {
        self.behaviours & (1 << behaviour as u8) != 0
    }

    /// These gates with one more gate set, without checks: for tests and for upstream's defaults.
    #[must_use]
    pub fn with(mut self, feature: Feature, on: bool) -> Self {
        self.put(feature, on);
        self
    }

    /// These gates with one behaviour of another release, for comparisons between releases.
    #[must_use]
    pub fn with_behaviour(mut self, behaviour: Behaviour, on: bool) -> Self {
        let bit = 1 << behaviour as u8;
        if on {
            self.behaviours |= bit;
        } else {
            self.behaviours &= !bit;
        }
        self
    }

    /// The gates that differ from the defaults of their release, as `A=true,B=false`.
    pub fn changed(&self) -> String {
        let changed = Feature::ALL.iter().copied().filter_map(|feature| {
            let on = self.enabled(feature);
            (on != feature.default_on(self.versions)).then(|| format!("{feature}={on}"))
        });
        changed.collect::<Vec<_>>().join(",")
    }

    fn put(&mut self, feature: Feature, on: bool) {
        let bit = 1 << feature as u8;
        if on {
            self.on |= bit;
        } else {
            self.on &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No gate is on by default that Berth does not have, or that needs a gate that is off.
    #[test]
    fn the_defaults_of_every_release_are_consistent() {
        for release in Release::ALL {
            let gates = FeatureGates::of(release);
            for feature in Feature::ALL {
                let on = gates.enabled(*feature);
                match feature.support() {
                    Support::Missing => assert!(!on, "{feature} in {release}"),
                    Support::AlwaysOn | Support::OnInBerth => {
                        assert!(on, "{feature} in {release}");
                    }
                    Support::Switchable | Support::NoEffect => {}
                }
                for needed in feature.needs() {
                    assert!(
                        !on || gates.enabled(*needed),
                        "{feature} needs {needed} in {release}"
                    );
                }
            }
            assert_eq!(gates.changed(), "", "{release}");
        }
    }

    /// A gate does not return after its removal, and a locked gate stays locked.
    #[test]
    fn gates_advance_from_release_to_release() {
        let rank = |state: GateState| match state {
            GateState::PreAlpha => 0,
            GateState::Known(spec) => 1 + 2 * spec.stage as u8 + u8::from(spec.locked),
            GateState::Removed => 9,
        };
        for feature in Feature::ALL {
            let ranks = Release::ALL.map(|release| rank(feature.upstream(release)));
            assert!(ranks.is_sorted(), "{feature}: {ranks:?}");
        }
    }

    #[test]
    fn behaviours_begin_with_their_release() {
        for behaviour in Behaviour::ALL {
            for release in Release::ALL {
                let has = FeatureGates::of(release).has(*behaviour);
                assert_eq!(
                    has,
                    release >= behaviour.since(),
                    "{behaviour} in {release}"
                );
            }
            let toggled = FeatureGates::default().with_behaviour(*behaviour, true);
            assert!(toggled.has(*behaviour));
        }
    }

    /// The gate is off by default in 1.37, whose other components may be older, and on in 1.38.
    #[test]
    fn a_gate_may_depend_on_the_minimum_compatibility_version() {
        let on = |emulated, min_compatibility_minor| {
            let versions = Versions {
                emulated,
                min_compatibility_minor,
            };
            let spec = Feature::DRAFractionalCapacityRange.state(versions).spec();
            spec.map(|spec| spec.on)
        };
        for (emulated, minor, expected) in [
            (Release::V1_36, 35, None),
            (Release::V1_37, 36, Some(false)),
            (Release::V1_37, 37, Some(true)),
            (Release::V1_38, 36, Some(false)),
            (Release::V1_38, 37, Some(true)),
        ] {
            assert_eq!(on(emulated, minor), expected, "{emulated} 1.{minor}");
        }
    }
}
