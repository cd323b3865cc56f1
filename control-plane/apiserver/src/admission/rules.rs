//! The switches of the admission plugins.

/// The rules that apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Objects are created only in namespaces that exist and are not terminating.
    pub namespace_lifecycle: bool,
    /// Containers get default resources; limit ranges bound the resources of pods and claims.
    pub limit_ranger: bool,
    /// Pods get the overhead and the scheduling constraints of their runtime class.
    pub runtime_class: bool,
    /// Objects are created only within the quotas of their namespace.
    pub resource_quota: bool,
    /// `priorityClassName` becomes `priority` and `preemptionPolicy`.
    pub priority: bool,
    /// Pods tolerate a node that is not ready or unreachable for five minutes.
    pub default_toleration_seconds: bool,
    /// Pods without a service account get `default`, mount the token of their account, and are rejected if it does not
    /// exist.
    pub service_account: bool,
    /// Volumes and claims that are in use are not deleted.
    pub storage_object_in_use_protection: bool,
    /// Groups in use are not deleted; deleted groups get no new members.
    pub pod_group_protection: bool,
    /// Bound pods get the zone and region labels of their node.
    pub pod_topology_labels: bool,
    /// New nodes are tainted as not ready, until a controller finds them ready.
    pub taint_nodes_by_condition: bool,
    /// Claims without a class get the default class.
    pub default_storage_class: bool,
    /// Mutating webhooks are called.
    pub mutating_admission_webhook: bool,
    /// Validating webhooks are called.
    pub validating_admission_webhook: bool,
    /// MutatingAdmissionPolicies are evaluated.
    pub mutating_admission_policy: bool,
    /// ValidatingAdmissionPolicies are evaluated.
    pub validating_admission_policy: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            namespace_lifecycle: true,
            limit_ranger: true,
            runtime_class: true,
            resource_quota: true,
            priority: true,
            default_toleration_seconds: true,
            service_account: true,
            storage_object_in_use_protection: true,
            pod_group_protection: true,
            pod_topology_labels: true,
            taint_nodes_by_condition: true,
            default_storage_class: true,
            mutating_admission_webhook: true,
            validating_admission_webhook: true,
            mutating_admission_policy: true,
            validating_admission_policy: true,
        }
    }
}
