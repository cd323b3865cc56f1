//! The differences of two sets of gates, one by one: to find which change of a release makes a difference.

use super::{Behaviour, Feature, FeatureGates};

/// A change of a release that can change decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseChange {
    /// The default of a gate.
    Gate(Feature, bool),
    /// A behaviour that only one of the two releases has.
    Behaviour(Behaviour, bool),
}

impl ReleaseChange {
    /// The changes from one set of gates to another.
    pub fn between(from: &FeatureGates, to: &FeatureGates) -> Vec<Self> {
        let gates = Feature::ALL.iter().copied().filter_map(|feature| {
            let on = to.enabled(feature);
            (on != from.enabled(feature)).then_some(Self::Gate(feature, on))
        });
        let behaviours = Behaviour::ALL.iter().copied().filter_map(|behaviour| {
            let on = to.has(behaviour);
            (on != from.has(behaviour)).then_some(Self::Behaviour(behaviour, on))
        });
        gates.chain(behaviours).collect()
    }

    /// These gates with the change.
    #[must_use]
    pub fn applied_to(self, gates: FeatureGates) -> FeatureGates {
        match self {
            Self::Gate(feature, on) => gates.with(feature, on),
            Self::Behaviour(behaviour, on) => gates.with_behaviour(behaviour, on),
        }
    }

    /// These gates without the change.
    #[must_use]
    pub fn taken_from(self, gates: FeatureGates) -> FeatureGates {
        match self {
            Self::Gate(feature, on) => gates.with(feature, !on),
            Self::Behaviour(behaviour, on) => gates.with_behaviour(behaviour, !on),
        }
    }

    /// The name of the gate or the behaviour.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gate(feature, _) => feature.name(),
            Self::Behaviour(behaviour, _) => behaviour.name(),
        }
    }

    /// The change in one sentence.
    pub fn title(self) -> String {
        match self {
            Self::Gate(feature, true) => format!("{feature} is on. {}", feature.description()),
            Self::Gate(feature, false) => format!("{feature} is off. {}", feature.description()),
            Self::Behaviour(behaviour, true) => behaviour.title().to_owned(),
            Self::Behaviour(behaviour, false) => format!("No longer: {}", behaviour.title()),
        }
    }

    /// The rule of `docs/contribute/rules` that states a behaviour.
    pub fn rule(self) -> Option<&'static str> {
        match self {
            Self::Gate(..) => None,
            Self::Behaviour(behaviour, _) => Some(behaviour.rule()),
        }
    }
}
