//! CertificateSigningRequests: their requester, and the permissions to approve and sign them.

use super::Api;
use super::kinds::ServerStrategy;
use super::rbac::{self, RequestAttributes};
use super::request::UpdateInputs;
use crate::auth::RequestUser;
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, child, remove, set};
use serde_json::{Value, json};

/// CertificateSigningRequests.
pub(super) struct CertificateRequests;

impl ServerStrategy for CertificateRequests {
    /// Sets the sender of a new request, and overwrites the stated one.
    fn prepare_for_create(&self, object: &mut Value, user: &RequestUser) {
        let Some(spec) = child(object, "spec") else {
            return;
        };
        for field in ["username", "uid", "groups", "extra"] {
            remove(spec, field);
        }
        set(spec, "username", user.name.as_str());
        if !user.uid.is_empty() {
            set(spec, "uid", user.uid.as_str());
        }
        if !user.groups.is_empty() {
            set(spec, "groups", user.groups.clone());
        }
        if !user.extra.is_empty() {
            set(spec, "extra", json!(user.extra));
        }
    }

    /// Approving and signing require permissions for the signer of the request.
    fn authorize(
        &self,
        api: &Api,
        change: &UpdateInputs<'_>,
        new: &Value,
        old: &Value,
    ) -> Result<(), ApiError> {
        let certificate = |request: &Value| request.part("status").text("certificate").to_owned();
        let verb = match change.sub {
            "approval" => "approve",
            "status" if certificate(new) != certificate(old) => "sign",
            _ => return Ok(()),
        };
        let signer = old.part("spec").text("signerName");
        let domain = signer.split('/').next().unwrap_or("");
        let user = &change.options.requester.user;
        let may = |name: &str| {
            let asked = RequestAttributes {
                verb,
                group: "certificates.k8s.io",
                resource: "signers",
                sub: "",
                namespace: "",
                name,
                path: "",
            };
            rbac::is_allowed(api, user, &asked)
        };
        // The right for a domain covers all signers of it.
        if may(signer) || may(&format!("{domain}/*")) {
            return Ok(());
        }
        let name = old.part("metadata").text("name");
        let message = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(ApiError::forbidden(change.resource.subject(name), &message))
    }
}
