//! The types of calls that the dispatcher accepts: calls about pods that every scheduler makes, and the types that
//! plugins have registered (D-2, D-3, D-29).

use berth_framework::call::CallTypeError;
use berth_framework::write::{CallType, POD_BINDING, POD_DELETION, POD_STATUS_PATCH};
use std::collections::BTreeMap;
use std::ptr;

/// The registered types, with the number of waiting calls of each.
#[derive(Debug)]
pub(super) struct Types {
    types: Vec<(&'static CallType, usize)>,
}

impl Default for Types {
    fn default() -> Self {
        let of_pods = [&POD_STATUS_PATCH, &POD_BINDING, &POD_DELETION];
        Self {
            types: of_pods.map(|of_pods| (of_pods, 0)).into(),
        }
    }
}

impl Types {
    /// Registers a type. Several plugins may register the same type.
    pub(super) fn register(&mut self, new: &'static CallType) -> Result<(), CallTypeError> {
        for (known, _) in &self.types {
            let same_settings = known.kind() == new.kind() && known.relevance() == new.relevance();
            if *known == new {
                return if same_settings {
                    Ok(())
                } else {
                    Err(CallTypeError::Name { name: new.name() })
                };
            }
            if same_settings {
                return Err(CallTypeError::Relevance {
                    name: new.name(),
                    other: known.name(),
                    kind: new.kind().name(),
                    relevance: new.relevance(),
                });
            }
        }
        self.types.push((new, 0));
        Ok(())
    }

    fn find(&self, call_type: &'static CallType) -> Option<usize> {
        let is_it = |(known, _): &(&'static CallType, usize)| ptr::eq(*known, call_type);
        let mut types = self.types.iter();
        types.position(is_it).or_else(|| {
            let mut types = self.types.iter();
            types.position(|(known, _)| *known == call_type)
        })
    }

    pub(super) fn is_registered(&self, call_type: &'static CallType) -> bool {
        self.find(call_type).is_some()
    }

    /// A call of the type waits.
    pub(super) fn begins_to_wait(&mut self, call_type: &'static CallType) {
        if let Some(at) = self.find(call_type) {
            self.types[at].1 += 1;
        }
    }

    /// A call of the type does not wait any more.
    pub(super) fn ends_to_wait(&mut self, call_type: &'static CallType) {
        if let Some(at) = self.find(call_type) {
            debug_assert!(self.types[at].1 > 0, "a call that ends to wait has waited");
            self.types[at].1 = self.types[at].1.saturating_sub(1);
        }
    }

    /// The number of calls of the type that wait.
    pub(super) fn waiting(&self, call_type: &'static CallType) -> usize {
        self.find(call_type).map_or(0, |at| self.types[at].1)
    }

    /// The number of calls of each type that wait, by name.
    pub(super) fn all_waiting(&self) -> BTreeMap<&'static str, usize> {
        let types = self.types.iter();
        types
            .map(|(known, waiting)| (known.name(), *waiting))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;

    static CLAIM: CallType = CallType::new("claim", Kind::ResourceClaim);
    static CLAIM_AGAIN: CallType = CallType::new("claim", Kind::ResourceClaim);
    static OTHER_KIND: CallType = CallType::new("claim", Kind::Node);
    static SAME_RELEVANCE: CallType = CallType::new("claim_status", Kind::ResourceClaim);
    static MORE_RELEVANT: CallType =
        CallType::new("claim_end", Kind::ResourceClaim).with_relevance(2);
    static LIKE_A_BINDING: CallType = CallType::new("pod_label", Kind::Pod).with_relevance(2);
    static OF_PODS: CallType = CallType::new("pod_label", Kind::Pod).with_relevance(9);

    /// D-3, D-29.
    #[test]
    fn types_of_one_kind_differ_in_name_and_relevance() {
        for (case, new, error) in [
            ("the same", &CLAIM, None),
            ("the same, declared elsewhere", &CLAIM_AGAIN, None),
            (
                "the name is taken",
                &OTHER_KIND,
                Some("the API call type \"claim\" is registered twice, with different settings"),
            ),
            (
                "the relevance is taken",
                &SAME_RELEVANCE,
                Some(
                    "the API call types \"claim_status\" and \"claim\" for ResourceClaim have the same relevance 1; of \
                     two calls about one object it would not be clear which takes precedence",
                ),
            ),
            ("another relevance", &MORE_RELEVANT, None),
            (
                "a relevance of the core's own calls",
                &LIKE_A_BINDING,
                Some(
                    "the API call types \"pod_label\" and \"pod_binding\" for Pod have the same relevance 2; of two \
                     calls about one object it would not be clear which takes precedence",
                ),
            ),
            ("another one for pods", &OF_PODS, None),
        ] {
            let mut types = Types::default();
            assert_eq!(types.register(&CLAIM), Ok(()));
            let got = types.register(new).map_err(|error| error.to_string());
            assert_eq!(got.err().as_deref(), error, "{case}");
        }
    }
}
