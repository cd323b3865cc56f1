//! Constraints on the devices of a claim: equal or different values of an attribute.

use crate::claims::ClaimRequests;
use berth_api::Str;
use berth_api::devices::{Device, DeviceAttribute};

/// A constraint during a search.
#[derive(Debug)]
pub(crate) struct Constraint<'c> {
    /// The requests that it applies to; empty for all.
    requests: &'c [Str],
    attribute: &'c str,
    kind: Kind,
    /// How many devices were picked.
    count: usize,
}

#[derive(Debug)]
enum Kind {
    /// All devices have this value, that of the first one.
    Match(Option<DeviceAttribute>),
    /// No two devices have the same value. As in kube-scheduler, only the last device of each request is compared.
    Distinct(Vec<(Str, DeviceAttribute)>),
}

/// The constraints of a claim.
///
/// # Errors
/// A constraint is of an unknown type.
pub(crate) fn of_claim(claim: &ClaimRequests) -> Result<Vec<Constraint<'_>>, String> {
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
                kind: match matching.is_some() {
                    true => Kind::Match(None),
                    false => Kind::Distinct(Vec::new()),
                },
                count: 0,
            })
        })
        .collect()
}

/// The value of an attribute with a fully qualified name. The driver's own attributes may be published without a
/// domain.
fn attribute<'d>(device: &'d Device, driver: &str, name: &str) -> Option<&'d DeviceAttribute> {
    if let Some(value) = device.attributes.get(name) {
        return Some(value);
    }
    let (domain, id) = name.split_once('/')?;
    if domain != driver {
        return None;
    }
    device.attributes.get(id)
}

/// Values of other types are equal to nothing.
fn is_comparable(value: &DeviceAttribute) -> bool {
    matches!(
        value,
        DeviceAttribute::Int(_)
            | DeviceAttribute::Bool(_)
            | DeviceAttribute::String(_)
            | DeviceAttribute::Version(_)
    )
}

impl Constraint<'_> {
    /// Whether the constraint applies to a request, or to an alternative of it named `request/alternative`.
    pub(crate) fn applies_to(&self, request: &str, full_name: &str) -> bool {
        self.requests.is_empty()
            || self
                .requests
                .iter()
                .any(|name| **name == *request || **name == *full_name)
    }

    /// Adds a device of a request that the constraint applies to, and returns whether that was possible.
    pub(crate) fn add(&mut self, request: &Str, device: &Device, driver: &str) -> bool {
        let Some(value) = attribute(device, driver, self.attribute) else {
            return false;
        };
        let is_first = self.count == 0;
        match &mut self.kind {
            Kind::Match(first) if is_first => *first = Some(value.clone()),
            Kind::Match(first) => {
                if !is_comparable(value) || first.as_ref() != Some(value) {
                    return false;
                }
            }
            Kind::Distinct(values) => {
                let mut known = values.iter();
                if known.any(|(_, known)| !is_comparable(value) || known == value) {
                    return false;
                }
                values.retain(|(of, _)| of != request);
                values.push((request.clone(), value.clone()));
            }
        }
        self.count += 1;
        true
    }

    /// Removes the device that was added last, one of this request.
    pub(crate) fn remove(&mut self, request: &Str) {
        self.count -= 1;
        if let Kind::Distinct(values) = &mut self.kind {
            values.retain(|(of, _)| of != request);
        }
    }
}
