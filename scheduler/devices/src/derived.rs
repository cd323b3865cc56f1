//! Derived attributes (KEP-6080): values that a request computes for each device, for the constraints of its claim.
//!
//! A derived attribute takes precedence over one of the same name that the device has. It is computed when a constraint
//! needs it, once for each device in a search. An expression that fails for a device fails the claim.

use crate::budget::SearchBudget;
use crate::claims::ClaimRequests;
use crate::error::AllocateError;
use crate::location::{At, Location};
use crate::slice::PreparedSlice;
use berth_api::devices::DeviceAttribute;
use berth_cel::COST_MAX;
use rustc_hash::FxHashMap;

/// The values that a search has computed, by claim, request, alternative, index of the attribute and device.
#[derive(Debug, Default)]
pub(crate) struct DerivedValues {
    known: FxHashMap<(usize, usize, usize, usize, Location), DeviceAttribute>,
}

impl DerivedValues {
    /// The value of an attribute that the request derives; `None` if it does not derive it.
    pub(crate) fn value(
        &mut self,
        at: At,
        location: Location,
        requests: &ClaimRequests,
        slice: &PreparedSlice,
        attribute: &str,
        budget: &mut SearchBudget,
    ) -> Result<Option<DeviceAttribute>, AllocateError> {
        let alternative = &requests.requests[at.request].alternatives[at.alternative];
        let mut derived = alternative.derived.iter();
        let Some(index) = derived.position(|(name, _)| **name == *attribute) else {
            return Ok(None);
        };
        let key = (at.claim, at.request, at.alternative, index, location);
        // The value depends only on the device and the request, so it is computed once for a search.
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(known.clone()));
        }
        let failed = |what: &str, why: String| {
            let claim = requests.claim().key();
            let request = &alternative.name;
            AllocateError::Failed(format!(
                "claim {claim}, request {request}: derived attribute {attribute}: CEL {what} error: {why}"
            ))
        };
        let expression = match &alternative.derived[index].1 {
            Ok(expression) => expression,
            Err(error) => return Err(failed("compile", error.to_string())),
        };
        let environment = alternative.environment;
        let (value, spent) =
            expression.evaluate_within(slice.value(location.device, environment), COST_MAX);
        // The evaluation costs its work also if it fails.
        budget.evaluate(spent.work)?;
        let value = value.map_err(|error| failed("runtime", error.to_string()))?;
        self.known.insert(key, value.clone());
        Ok(Some(value))
    }
}
