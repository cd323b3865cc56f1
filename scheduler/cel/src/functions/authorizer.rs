//! Authorization checks. They are declared, as upstream, but a device selector has no authorizer, so every call is
//! refused when the selector is compiled.

use super::{Declaration, evaluated};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "path", "authorizer_path", ".kubernetes.authorization.Authorizer, string -> kubernetes.authorization.PathCheck" => evaluated;
    "group", "authorizer_group", ".kubernetes.authorization.Authorizer, string -> kubernetes.authorization.GroupCheck" => evaluated;
    "serviceAccount", "authorizer_serviceaccount", ".kubernetes.authorization.Authorizer, string, string -> kubernetes.authorization.Authorizer" => evaluated;
    "resource", "groupcheck_resource", ".kubernetes.authorization.GroupCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
    "subresource", "resourcecheck_subresource", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
    "namespace", "resourcecheck_namespace", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
    "name", "resourcecheck_name", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
    "check", "pathcheck_check", ".kubernetes.authorization.PathCheck, string -> kubernetes.authorization.Decision" => evaluated;
    "check", "resourcecheck_check", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.Decision" => evaluated;
    "errored", "decision_errored", ".kubernetes.authorization.Decision -> bool" => evaluated;
    "error", "decision_error", ".kubernetes.authorization.Decision -> string" => evaluated;
    "allowed", "decision_allowed", ".kubernetes.authorization.Decision -> bool" => evaluated;
    "reason", "decision_reason", ".kubernetes.authorization.Decision -> string" => evaluated;
    "fieldSelector", "authorizer_fieldselector", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
    "labelSelector", "authorizer_labelselector", ".kubernetes.authorization.ResourceCheck, string -> kubernetes.authorization.ResourceCheck" => evaluated;
};
