//! Taints of nodes and the tolerations of pods.
//!
//! Follows [Taints and Tolerations] and, for `Lt` and `Gt`, KEP-5471.
//!
//! [Taints and Tolerations]: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/

use crate::names::is_decimal_integer;
use crate::string::null_default;
use crate::{Str, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// The effect of a taint on pods that do not tolerate it; on a toleration, which taints it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum TaintEffect {
    /// Not set. A toleration without an effect is about all of them.
    #[default]
    Unset,
    /// Pods are not scheduled onto the node.
    NoSchedule,
    /// Pods are scheduled onto other nodes if possible.
    PreferNoSchedule,
    /// Pods are not scheduled onto the node, and pods on it are evicted.
    NoExecute,
    /// An effect that this version does not know; nothing acts on it.
    Unknown,
}

impl TaintEffect {
    /// The effect as the API writes it. Unknown ones are not remembered.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset | Self::Unknown => "",
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Returns whether it keeps pods off the node: `NoSchedule` or `NoExecute`.
    pub const fn forbids_scheduling(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

impl From<&str> for TaintEffect {
    fn from(text: &str) -> Self {
        match text {
            "" => Self::Unset,
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Unknown,
        }
    }
}

/// A taint: pods that do not tolerate it are kept from the node, or avoid it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint {
    /// The key of the taint.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// The value of the key; may be empty.
    #[serde(deserialize_with = "null_default")]
    pub value: Str,
    /// The effect of the taint.
    #[serde(deserialize_with = "null_default")]
    pub effect: TaintEffect,
    /// The time at which it was added.
    pub time_added: Option<Time>,
}

impl Taint {
    /// A taint without a time.
    pub fn new(key: &str, value: &str, effect: TaintEffect) -> Self {
        Self {
            key: Str::new(key),
            value: Str::new(value),
            effect,
            time_added: None,
        }
    }
}

/// `key=value:effect`, without the parts that are empty.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if !self.value.is_empty() {
            write!(f, "={}", self.value)?;
        }
        match self.effect.as_str() {
            "" => Ok(()),
            effect => write!(f, ":{effect}"),
        }
    }
}

/// The way in which a toleration compares its value with a taint's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum TolerationOperator {
    /// The values are equal; also when no operator is set.
    #[default]
    Equal,
    /// Any value will do.
    Exists,
    /// The taint's value is a smaller integer.
    Lt,
    /// The taint's value is a larger integer.
    Gt,
    /// An operator that this version does not know; it tolerates nothing.
    Unknown,
}

impl From<&str> for TolerationOperator {
    fn from(text: &str) -> Self {
        match text {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            "Lt" => Self::Lt,
            "Gt" => Self::Gt,
            _ => Self::Unknown,
        }
    }
}

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The key of the taints that it is about; empty for every key.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// The way in which the values are compared.
    #[serde(deserialize_with = "null_default")]
    pub operator: TolerationOperator,
    /// The value that the taint's is compared with.
    #[serde(deserialize_with = "null_default")]
    pub value: Str,
    /// The effect of the taints that it is about.
    #[serde(deserialize_with = "null_default")]
    pub effect: TaintEffect,
    /// For how many seconds a `NoExecute` taint is tolerated; for ever when absent.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Returns whether this tolerates `taint`. `Lt` and `Gt` compare only with `comparison_operators`, the feature gate
    /// `TaintTolerationComparisonOperators`; without it they tolerate nothing.
    pub fn tolerates(&self, taint: &Taint, comparison_operators: bool) -> bool {
        if self.effect != TaintEffect::Unset && self.effect != taint.effect {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator {
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Exists => true,
            TolerationOperator::Lt | TolerationOperator::Gt if comparison_operators => {
                let values = canonical_integer(&taint.value).zip(canonical_integer(&self.value));
                values.is_some_and(|(taint, own)| match self.operator {
                    TolerationOperator::Lt => taint < own,
                    _ => taint > own,
                })
            }
            _ => false,
        }
    }

    /// Returns whether scoring reads this toleration: its effect is `PreferNoSchedule` or empty.
    pub fn is_about_prefer_no_schedule(&self) -> bool {
        matches!(
            self.effect,
            TaintEffect::Unset | TaintEffect::PreferNoSchedule
        )
    }
}

/// An integer written as a person would write it, within the bounds of an `i64`.
fn canonical_integer(text: &str) -> Option<i64> {
    is_decimal_integer(text).then(|| text.parse().ok())?
}

/// Returns whether any of `tolerations` tolerates `taint`.
pub fn tolerates_taint(
    tolerations: &[Toleration],
    taint: &Taint,
    comparison_operators: bool,
) -> bool {
    tolerations
        .iter()
        .any(|toleration| toleration.tolerates(taint, comparison_operators))
}

/// The number of comparisons of taints with tolerations from which on the tolerations are found by key. Both lists can have
/// thousands of entries.
const INDEXED_FROM: usize = 256;

/// Tolerations for a list of taints.
enum Tolerating<'a> {
    /// Few comparisons: one by one.
    Few(&'a [Toleration]),
    /// By key, without repetitions; the empty key has the tolerations for every key.
    ByKey(FxHashMap<&'a str, Vec<&'a Toleration>>),
}

impl<'a> Tolerating<'a> {
    fn of(tolerations: &'a [Toleration], taints: usize) -> Self {
        if tolerations.len().saturating_mul(taints) < INDEXED_FROM {
            return Self::Few(tolerations);
        }
        let mut known = FxHashSet::default();
        let mut by_key: FxHashMap<&str, Vec<&Toleration>> = FxHashMap::default();
        for toleration in tolerations {
            let Toleration {
                key,
                operator,
                value,
                effect,
                ..
            } = toleration;
            if known.insert((key, operator, value, effect)) {
                by_key.entry(key).or_default().push(toleration);
            }
        }
        Self::ByKey(by_key)
    }

    fn tolerate(&self, taint: &Taint, comparison_operators: bool) -> bool {
        match self {
            Self::Few(all) => tolerates_taint(all, taint, comparison_operators),
            Self::ByKey(by_key) => {
                let found = [taint.key.as_str(), ""].map(|key| by_key.get(key));
                let mut found = found.into_iter().flatten().flatten();
                found.any(|toleration| toleration.tolerates(taint, comparison_operators))
            }
        }
    }
}

/// The taints of `taints` whose effect `acts` selects and that none of `tolerations` tolerates. The work grows with the sum
/// of both lists.
pub fn untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &'a [Toleration],
    acts: impl Fn(TaintEffect) -> bool + 'a,
    comparison_operators: bool,
) -> impl Iterator<Item = &'a Taint> {
    let tolerating = Tolerating::of(tolerations, taints.len());
    let acting = taints.iter().filter(move |taint| acts(taint.effect));
    acting.filter(move |taint| !tolerating.tolerate(taint, comparison_operators))
}

/// The first of `taints` whose effect `acts` selects and that none of `tolerations` tolerates.
pub fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &'a [Toleration],
    acts: impl Fn(TaintEffect) -> bool + 'a,
    comparison_operators: bool,
) -> Option<&'a Taint> {
    untolerated(taints, tolerations, acts, comparison_operators).next()
}

/// The number of taints of `taints` that are `PreferNoSchedule` and not tolerated.
pub fn count_intolerable_prefer_no_schedule(
    taints: &[Taint],
    tolerations: &[Toleration],
    comparison_operators: bool,
) -> usize {
    let is_preference = |effect: TaintEffect| effect == TaintEffect::PreferNoSchedule;
    untolerated(taints, tolerations, is_preference, comparison_operators).count()
}

/// As the API writes it; an effect that this version does not know stays one.
impl Serialize for TaintEffect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Unknown => "Unknown",
            known => known.as_str(),
        })
    }
}

/// As the API writes it; an operator that this version does not know stays one.
impl Serialize for TolerationOperator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Equal => "Equal",
            Self::Exists => "Exists",
            Self::Lt => "Lt",
            Self::Gt => "Gt",
            Self::Unknown => "Unknown",
        })
    }
}

impl<'de> Deserialize<'de> for TaintEffect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
    }
}

impl<'de> Deserialize<'de> for TolerationOperator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Cow::<str>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(json: &str) -> Toleration {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    /// PL-23: many taints and tolerations give the same result as few, in work that grows with their sum.
    #[test]
    fn many_tolerations_are_found_by_key() {
        let taints: Vec<Taint> = (0..400)
            .map(|n| Taint::new(&format!("k{n}"), "v", TaintEffect::NoSchedule))
            .collect();
        let own = |n: usize| Toleration {
            key: format!("k{n}").into(),
            value: if n == 7 { "other" } else { "v" }.into(),
            ..Toleration::default()
        };
        // Every key is tolerated, the preference many times.
        let every = Toleration {
            operator: TolerationOperator::Exists,
            effect: TaintEffect::PreferNoSchedule,
            ..Toleration::default()
        };
        let tolerations: Vec<Toleration> = (0..400)
            .filter(|n| *n != 9)
            .flat_map(|n| [every.clone(), own(n)])
            .collect();
        let forbids = TaintEffect::forbids_scheduling;
        #[cfg(debug_assertions)]
        let before = Str::reads();
        let found = untolerated(&taints, &tolerations, forbids, false);
        let keys: Vec<&str> = found.map(|taint| taint.key.as_str()).collect();
        assert_eq!(keys, ["k7", "k9"]);
        #[cfg(debug_assertions)]
        assert!(Str::reads() - before < 20_000, "the lists are multiplied");
        let preference = Taint::new("a", "", TaintEffect::PreferNoSchedule);
        let mixed: Vec<Taint> = taints.iter().cloned().chain([preference]).collect();
        let left = count_intolerable_prefer_no_schedule(&mixed, &tolerations, false);
        assert_eq!(left, 0);
    }

    /// PL-23: the toleration, the taint, whether it is tolerated without and with the comparison operators.
    #[test]
    fn a_toleration_tolerates_by_effect_key_and_operator() {
        use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};
        let t = Taint::new;
        let level = |value| Taint::new("level", value, NoSchedule);
        for (json, taint, tolerated, with_comparison) in [
            (
                r#"{"key":"a","value":"1","effect":"NoSchedule"}"#,
                t("a", "1", NoSchedule),
                true,
                true,
            ),
            (
                r#"{"key":"a","operator":"Equal","value":"1"}"#,
                t("a", "1", NoExecute),
                true,
                true,
            ),
            (
                r#"{"key":"a","value":"1"}"#,
                t("a", "2", NoSchedule),
                false,
                false,
            ),
            (
                r#"{"key":"a","value":"1","effect":"NoExecute"}"#,
                t("a", "1", NoSchedule),
                false,
                false,
            ),
            (
                r#"{"key":"b","operator":"Exists"}"#,
                t("a", "1", NoSchedule),
                false,
                false,
            ),
            (
                r#"{"key":"a","operator":"Exists"}"#,
                t("a", "1", PreferNoSchedule),
                true,
                true,
            ),
            (
                r#"{"operator":"Exists"}"#,
                t("a", "1", NoExecute),
                true,
                true,
            ),
            (
                r#"{"operator":"Exists","effect":"NoSchedule"}"#,
                t("a", "", NoExecute),
                false,
                false,
            ),
            // An empty key with Equal compares values only.
            ("{}", t("a", "", NoSchedule), true, true),
            ("{}", t("a", "1", NoSchedule), false, false),
            (
                r#"{"operator":"Like"}"#,
                t("a", "", NoSchedule),
                false,
                false,
            ),
            (
                r#"{"key":null,"operator":null,"value":null,"effect":null}"#,
                t("a", "", NoSchedule),
                true,
                true,
            ),
            // Comparison: the taint's value against the toleration's.
            (
                r#"{"key":"level","operator":"Gt","value":"5"}"#,
                level("6"),
                false,
                true,
            ),
            (
                r#"{"key":"level","operator":"Gt","value":"5"}"#,
                level("5"),
                false,
                false,
            ),
            (
                r#"{"key":"level","operator":"Lt","value":"5"}"#,
                level("4"),
                false,
                true,
            ),
            (
                r#"{"key":"level","operator":"Lt","value":"5"}"#,
                level("-6"),
                false,
                true,
            ),
            (
                r#"{"key":"level","operator":"Lt","value":"5"}"#,
                level("04"),
                false,
                false,
            ),
            (
                r#"{"key":"level","operator":"Lt","value":"+5"}"#,
                level("4"),
                false,
                false,
            ),
            (
                r#"{"key":"level","operator":"Lt","value":"5"}"#,
                level("four"),
                false,
                false,
            ),
            (
                r#"{"key":"level","operator":"Gt","value":"5"}"#,
                level("99999999999999999999"),
                false,
                false,
            ),
            (
                r#"{"key":"other","operator":"Gt","value":"5"}"#,
                level("6"),
                false,
                false,
            ),
        ] {
            let toleration = toleration(json);
            assert_eq!(
                toleration.tolerates(&taint, false),
                tolerated,
                "{json} {taint}"
            );
            assert_eq!(
                toleration.tolerates(&taint, true),
                with_comparison,
                "{json} {taint} with comparison"
            );
        }
    }

    #[test]
    fn the_first_untolerated_taint_that_acts_is_found() {
        let taints = [
            Taint::new("soft", "", TaintEffect::PreferNoSchedule),
            Taint::new("tolerated", "", TaintEffect::NoSchedule),
            Taint::new("hard", "1", TaintEffect::NoExecute),
            Taint::new("later", "", TaintEffect::NoSchedule),
        ];
        let tolerations = [toleration(r#"{"key":"tolerated","operator":"Exists"}"#)];
        let found = first_untolerated(
            &taints,
            &tolerations,
            TaintEffect::forbids_scheduling,
            false,
        );
        assert_eq!(
            found.map(Taint::to_string).as_deref(),
            Some("hard=1:NoExecute")
        );
        let all = [toleration(r#"{"operator":"Exists"}"#)];
        assert_eq!(first_untolerated(&taints, &all, |_| true, false), None);
        assert_eq!(first_untolerated(&[], &[], |_| true, false), None);
    }

    #[test]
    fn untolerated_soft_taints_are_counted() {
        let taints = [
            Taint::new("a", "", TaintEffect::PreferNoSchedule),
            Taint::new("b", "", TaintEffect::PreferNoSchedule),
            Taint::new("c", "", TaintEffect::NoSchedule),
        ];
        let about = |json| [toleration(json)];
        for (tolerations, count) in [
            (about(r#"{"key":"x","operator":"Exists"}"#), 2),
            (about(r#"{"key":"a","operator":"Exists"}"#), 1),
            (
                about(r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#),
                2,
            ),
            (about(r#"{"operator":"Exists"}"#), 0),
        ] {
            assert_eq!(
                count_intolerable_prefer_no_schedule(&taints, &tolerations, false),
                count,
                "{tolerations:?}"
            );
        }
    }

    #[test]
    fn effects_decode_with_what_this_version_does_not_know() {
        let taint: Taint = serde_json::from_str(
            r#"{"key":"a","effect":"NoSnacks","timeAdded":"2026-01-02T03:04:05Z"}"#,
        )
        .unwrap();
        assert_eq!(taint.effect, TaintEffect::Unknown);
        assert!(taint.time_added.is_some());
        assert!(!taint.effect.forbids_scheduling());
    }

    #[test]
    fn scoring_looks_at_soft_and_general_tolerations() {
        for (json, expected) in [
            (r#"{"effect":"PreferNoSchedule"}"#, true),
            ("{}", true),
            (r#"{"effect":"NoSchedule"}"#, false),
            (r#"{"effect":"NoExecute"}"#, false),
        ] {
            assert_eq!(
                toleration(json).is_about_prefer_no_schedule(),
                expected,
                "{json}"
            );
        }
    }
}
