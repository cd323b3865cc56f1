//! The status of ValidatingAdmissionPolicies: the type-checked generation and the warnings. The expressions are checked
//! when a policy is written, without the types of the fields, so there are no warnings.

use super::runtime::{CacheDifference, Controller, ControllerContext, Watch, watching};
use berth_objects::access::{AccessError, GroupResource};
use berth_objects::object::{ADMISSION_POLICY, ControllerKey, generation};
use berth_objects::view::FieldView;
use serde_json::json;

/// See the module.
#[derive(Debug)]
pub(super) struct PolicyStatus;

impl Controller for PolicyStatus {
    type Key = ControllerKey;
    const NAME: &'static str = "validatingadmissionpolicy-status-controller";
    const WATCHES: &'static [Watch] = &[watching(ADMISSION_POLICY, &[])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        _kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if let Some(policy) = &diff.new {
            cx.enqueue(ControllerKey::of(policy));
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        let Some(policy) = cx.cache(ADMISSION_POLICY).get(key).cloned() else {
            return Ok(());
        };
        let mut status = policy.part("status").clone();
        if status.int("observedGeneration") == generation(&policy) {
            return Ok(());
        }
        status["observedGeneration"] = generation(&policy).into();
        status["typeChecking"] = json!({});
        cx.write_status(ADMISSION_POLICY, &policy, status)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Handle;
    use crate::testing::{Fake, pass};
    use berth_objects::access::Access;

    #[tokio::test(start_paused = true)]
    async fn each_generation_is_reported_as_checked() {
        let api = Fake::new();
        let mut handle = Handle::new();
        handle.start(PolicyStatus, api.clone(), api.clock());
        let policy = json!({"metadata": {"name": "p", "generation": 1}, "status": {}});
        api.create(ADMISSION_POLICY.resource, policy).unwrap();
        for generation in [1, 2] {
            api.edit(ADMISSION_POLICY.resource, ("", "p"), |policy| {
                policy["metadata"]["generation"] = generation.into();
            });
            pass(1.0).await;
            let policy = api.get(ADMISSION_POLICY.resource, "", "p").unwrap();
            let expect = json!({"observedGeneration": generation, "typeChecking": {}});
            assert_eq!(policy["status"], expect);
        }
        handle.stop().await;
    }
}
