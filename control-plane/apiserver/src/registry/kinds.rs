//! The rules of kinds that depend on the server: on other objects, and on the sender of a request.
//!
//! Rules about a single object are in [`berth_objects::strategy`].

use super::api::Api;
use super::request::UpdateInputs;
use super::{certificates, devices, namespaces};
use crate::auth::RequestUser;
use berth_objects::access::GroupResource;
use berth_objects::field::FieldError;
use berth_objects::status::ApiError;
use serde_json::Value;

/// The rules of a kind. `new` and `old` are an object after and before an update.
pub(super) trait ServerStrategy: Sync {
    /// Sets the fields of a new object that the server determines.
    fn prepare_for_create(&self, _object: &mut Value, _sender: &RequestUser) {}

    /// Restores immutable fields after an update.
    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    /// The errors of a new object that depend on other objects; they precede the errors of the object alone.
    fn validate(&self, _api: &Api, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// The errors of an update that depend on other objects; they precede the errors of the object alone.
    fn validate_update(
        &self,
        _api: &Api,
        _change: &UpdateInputs<'_>,
        _new: &Value,
        _old: &Value,
    ) -> Vec<FieldError> {
        Vec::new()
    }

    /// Checks the permission of the sender for a valid update.
    ///
    /// # Errors
    /// 403.
    fn authorize(
        &self,
        _api: &Api,
        _change: &UpdateInputs<'_>,
        _new: &Value,
        _old: &Value,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}

struct Plain;

impl ServerStrategy for Plain {}

/// The rules of a kind.
pub(super) fn strategy(kind: GroupResource) -> &'static dyn ServerStrategy {
    match (kind.group, kind.resource) {
        ("", "namespaces") => &namespaces::Namespaces,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateRequests,
        ("resource.k8s.io", "resourceclaims") => &devices::Claims,
        ("resource.k8s.io", "resourceclaimtemplates") => &devices::ClaimTemplates,
        _ => &Plain,
    }
}
