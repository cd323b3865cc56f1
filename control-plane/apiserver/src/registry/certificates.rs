//! CertificateSigningRequests: who made them, and who may approve and sign them.

use super::Api;
use super::rbac::{self, RequestAttributes};
use crate::auth::RequestUser;
use crate::registry::request::WriteOptions;
use berth_objects::access::gr;
use berth_objects::catalog::ServedResource;
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, child, remove, set};
use serde_json::{Value, json};

fn is_request(resource: &ServedResource) -> bool {
    resource.resource == gr("certificates.k8s.io", "certificatesigningrequests")
}

/// Writes the sender into a new request, whatever it states about it.
pub(super) fn prepare_for_create(
    resource: &ServedResource,
    object: &mut Value,
    user: &RequestUser,
) {
    if !is_request(resource) {
        return;
    }
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

/// Checks that the sender may approve or sign for the signer of a request.
///
/// # Errors
/// 403.
pub(super) fn authorize(
    api: &Api,
    resource: &ServedResource,
    sub: &str,
    (new, old): (&Value, &Value),
    options: &WriteOptions,
) -> Result<(), ApiError> {
    let certificate = |request: &Value| request.part("status").text("certificate").to_owned();
    let verb = match sub {
        _ if !is_request(resource) => return Ok(()),
        "approval" => "approve",
        "status" if certificate(new) != certificate(old) => "sign",
        _ => return Ok(()),
    };
    let signer = old.part("spec").text("signerName");
    let domain = signer.split('/').next().unwrap_or("");
    let user = &options.requester.user;
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
    Err(ApiError::forbidden(resource.subject(name), &message))
}
