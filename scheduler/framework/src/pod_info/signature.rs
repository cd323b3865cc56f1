//! The labels of a pod in one word.

use super::AffinityTerm;
use berth_api::{Labels, Selector, Str};
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

/// A set of labels in one word, by superimposed coding: each label, and the namespace, sets one bit. Several labels may share a bit.
///
/// A set with all required labels has all their bits; a few other sets have them, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LabelSignature(u64);

impl LabelSignature {
    /// Required by terms that match no pod. A signature with all bits contains it.
    pub(crate) const IMPOSSIBLE: Self = Self(u64::MAX);
    /// No label and no namespace.
    pub(crate) const NONE: Self = Self(0);

    fn bit(of: (&str, &str)) -> u64 {
        let hash = FxBuildHasher.hash_one(of);
        1 << ((hash ^ (hash >> 32)) & 63)
    }

    fn namespace(name: &str) -> u64 {
        // No label has an empty key.
        Self::bit(("", name))
    }

    /// The signature of a pod in a namespace with these labels.
    pub fn of(namespace: &str, labels: &Labels) -> Self {
        let bits = labels.iter().map(|(key, value)| Self::bit((key, value)));
        Self(bits.fold(Self::namespace(namespace), |signature, bit| signature | bit))
    }

    /// The bits in the signature of every pod that the selector matches, in the namespace if only that one counts.
    pub fn required(namespace: Option<&str>, selector: &Selector) -> Self {
        let exact = selector.requirements().iter().filter_map(|requirement| {
            let value = requirement.exact_value()?;
            Some(Self::bit((requirement.key(), value)))
        });
        Self(
            exact.fold(namespace.map_or(0, Self::namespace), |signature, bit| {
                signature | bit
            }),
        )
    }

    /// Returns whether another signature has all bits of this one.
    pub fn is_in(self, all: Self) -> bool {
        self.0 & !all.0 == 0
    }

    /// The bits in the signature of a pod that the first of some terms matches, and of one that any other term matches.
    pub(super) fn required_by<'a>(terms: impl Iterator<Item = &'a AffinityTerm>) -> [Self; 2] {
        let mut signatures = terms
            .filter(|term| !term.selector.is_nothing())
            .map(|term| {
                let only = term
                    .namespaces
                    .first()
                    .filter(|_| term.namespaces.len() == 1 && term.namespace_selector.is_nothing());
                Self::required(only.map(Str::as_str), &term.selector)
            });
        let first = signatures.next().unwrap_or(Self::IMPOSSIBLE);
        [first, signatures.fold(Self::IMPOSSIBLE, Self::common)]
    }

    fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
