//! Constraints on the devices of a claim: equal or different values of an attribute.
//!
//! An attribute has one value or, with the gate DRAListTypeAttributes (KEP-5491), several. Devices match while all of
//! them have a value in common, and are distinct while no two have one.

use crate::AllocatorFeatures;
use crate::claims::ClaimRequests;
use berth_api::Str;
use berth_api::devices::{Device, DeviceAttribute};
use smallvec::SmallVec;

/// The values of an attribute, each an attribute with one value.
type Values = SmallVec<[DeviceAttribute; 1]>;

/// A constraint during a search.
#[derive(Debug)]
pub(crate) struct Constraint<'c> {
    /// The requests that it applies to; empty for all.
    requests: &'c [Str],
    attribute: &'c str,
    kind: ConstraintKind,
    /// The number of devices that were picked.
    count: usize,
    features: AllocatorFeatures,
}

#[derive(Debug)]
enum ConstraintKind {
    /// The common values of the devices so far, after each device.
    Match(Vec<Values>),
    /// The values of the devices with their requests. Before Kubernetes 1.37, only the last device of each request.
    Distinct(Vec<(Str, Values)>),
}

/// The constraints of a claim.
///
/// # Errors
/// A constraint is of an unknown type.
pub(crate) fn of_claim(
    claim: &ClaimRequests,
    features: AllocatorFeatures,
) -> Result<Vec<Constraint<'_>>, String> {
    let constraints = claim.constraints().iter().enumerate();
    constraints
        .map(|(index, constraint)| {
            let matching = constraint.match_attribute.as_ref();
            let attribute = matching.or(constraint.distinct_attribute.as_ref());
            let attribute = attribute.ok_or_else(|| {
                format!(
                    "claim {}, constraint #{index}: empty constraint (unsupported constraint type?)",
                    claim.claim().key()
                )
            })?;
            Ok(Constraint {
                requests: &constraint.requests,
                attribute,
                kind: if matching.is_some() { ConstraintKind::Match(Vec::new()) } else { ConstraintKind::Distinct(Vec::new()) },
                count: 0,
                features,
            })
        })
        .collect()
}

/// The value of an attribute with a fully qualified name. The driver's own attributes may be published without a
/// domain.
pub(crate) fn attribute_of<'d>(
    device: &'d Device,
    driver: &str,
    name: &str,
) -> Option<&'d DeviceAttribute> {
    if let Some(value) = device.attributes.get(name) {
        return Some(value);
    }
    let (domain, id) = name.split_once('/')?;
    if domain != driver {
        return None;
    }
    device.attributes.get(id)
}

/// The values of an attribute; `None` if they cannot be compared.
fn values_of(attribute: &DeviceAttribute, features: AllocatorFeatures) -> Option<Values> {
    use DeviceAttribute as A;
    let lists = features.list_attributes;
    Some(match attribute {
        A::Int(_) | A::Bool(_) | A::String(_) | A::Version(_) => {
            Values::from_iter([attribute.clone()])
        }
        A::Ints(values) if lists => values.iter().map(|value| A::Int(*value)).collect(),
        A::Bools(values) if lists => values.iter().map(|value| A::Bool(*value)).collect(),
        A::Strings(values) if lists => values.iter().cloned().map(A::String).collect(),
        A::Versions(values) if lists => values.iter().cloned().map(A::Version).collect(),
        A::Ints(_) | A::Bools(_) | A::Strings(_) | A::Versions(_) | A::Unknown => return None,
    })
}

impl Constraint<'_> {
    /// The attribute, with its full name.
    pub(crate) fn attribute(&self) -> &str {
        self.attribute
    }

    /// Returns whether the constraint applies to a request, or to an alternative of it named `request/alternative`.
    pub(crate) fn applies_to(&self, request: &str, full_name: &str) -> bool {
        self.requests.is_empty()
            || self
                .requests
                .iter()
                .any(|name| **name == *request || **name == *full_name)
    }

    /// Adds a device of a request that the constraint applies to, given its value of the attribute. Returns whether
    /// that was possible.
    pub(crate) fn add(&mut self, request: &Str, value: Option<&DeviceAttribute>) -> bool {
        let Some(value) = value else {
            return false;
        };
        let values = values_of(value, self.features);
        let is_first = self.count == 0;
        let features = self.features;
        match &mut self.kind {
            ConstraintKind::Match(common) => {
                let values = match (values, common.last()) {
                    (Some(values), None) => values,
                    // As in kube-scheduler, the first device may have a value that matches no other.
                    (None, None) if !features.list_attributes => Values::new(),
                    (None, _) => return false,
                    (Some(mut values), Some(before)) => {
                        values.retain(|value| before.contains(value));
                        if values.is_empty() {
                            return false;
                        }
                        values
                    }
                };
                common.push(values);
            }
            ConstraintKind::Distinct(known) => {
                let is_comparable = values.is_some();
                if !is_comparable && features.list_attributes && !is_first {
                    return false;
                }
                let values = values.unwrap_or_default();
                let is_repeated = known.iter().any(|(_, known)| {
                    !is_comparable || values.iter().any(|value| known.contains(value))
                });
                if is_repeated {
                    return false;
                }
                if !features.fixes.exact_shares {
                    known.retain(|(of, _)| of != request);
                }
                known.push((request.clone(), values));
            }
        }
        self.count += 1;
        true
    }

    /// Removes the device that was added last, one of this request.
    pub(crate) fn remove(&mut self, request: &Str) {
        self.count -= 1;
        match &mut self.kind {
            ConstraintKind::Match(common) => drop(common.pop()),
            ConstraintKind::Distinct(known) if self.features.fixes.exact_shares => {
                drop(known.pop())
            }
            ConstraintKind::Distinct(known) => known.retain(|(of, _)| of != request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AllocatorFixes;
    use serde_json::{Value, json};

    const LISTS: AllocatorFeatures = AllocatorFeatures {
        list_attributes: true,
        fixes: AllocatorFixes::ALL,
        ..AllocatorFeatures::V1_36
    };

    fn constraint(features: AllocatorFeatures, is_match: bool) -> Constraint<'static> {
        Constraint {
            requests: &[],
            attribute: "d/a",
            kind: if is_match {
                ConstraintKind::Match(Vec::new())
            } else {
                ConstraintKind::Distinct(Vec::new())
            },
            count: 0,
            features,
        }
    }

    /// The devices with these values that are added, one after another.
    fn added(mut constraint: Constraint<'_>, values: &[Value]) -> Vec<bool> {
        let values = values.iter().map(|value| {
            let value: DeviceAttribute =
                serde_json::from_value(value.clone()).expect("an attribute");
            constraint.add(&"r".into(), Some(&value))
        });
        values.collect()
    }

    /// PL-313: worked by hand.
    #[test]
    fn attributes_with_several_values_are_sets() {
        let ints = |values: &[i64]| json!({"ints": values});
        let devices = [ints(&[0, 1]), ints(&[1, 2]), ints(&[2, 3])];
        let is_match = |values: &[Value]| added(constraint(LISTS, true), values);
        let is_distinct = |values: &[Value]| added(constraint(LISTS, false), values);
        assert_eq!(is_match(&devices), [true, true, false]);
        assert_eq!(is_distinct(&devices), [true, false, true]);
        // One value is a set of one.
        let one = json!({"int": 1});
        assert_eq!(is_match(&[one.clone(), ints(&[1, 2])]), [true, true]);
        assert_eq!(is_distinct(&[one.clone(), ints(&[1, 2])]), [true, false]);
        // Values of different types have nothing in common.
        let text = json!({"strings": ["1"]});
        assert_eq!(is_match(&[one.clone(), text.clone()]), [true, false]);
        assert_eq!(is_distinct(&[one, text]), [true, true]);
        assert_eq!(is_match(&[json!({})]), [false]);
    }

    /// PL-313: with the gate off, a list never satisfies a constraint together with another device.
    #[test]
    fn lists_are_not_compared_without_the_gate() {
        let list = json!({"ints": [1]});
        let one = json!({"int": 1});
        for features in [
            AllocatorFeatures::V1_36,
            AllocatorFeatures {
                list_attributes: false,
                ..LISTS
            },
        ] {
            let values = [list.clone(), one.clone()];
            assert_eq!(added(constraint(features, true), &values), [true, false]);
            let values = [one.clone(), list.clone(), one.clone()];
            assert_eq!(
                added(constraint(features, true), &values),
                [true, false, true]
            );
            let values = [one.clone(), list.clone()];
            assert_eq!(added(constraint(features, false), &values), [true, false]);
        }
    }

    /// PL-313: a reverted device leaves the values that the other devices have in common.
    #[test]
    fn values_in_common_are_restored() {
        let request = "r".into();
        let mut constraint = constraint(LISTS, true);
        let ints = |values: &[i64]| DeviceAttribute::Ints(values.to_vec());
        assert!(constraint.add(&request, Some(&ints(&[0, 1, 2]))));
        assert!(constraint.add(&request, Some(&ints(&[1]))));
        assert!(!constraint.add(&request, Some(&ints(&[2]))));
        constraint.remove(&request);
        assert!(constraint.add(&request, Some(&ints(&[2]))));
    }
}
