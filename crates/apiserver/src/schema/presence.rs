//! Which fields are written though they say nothing, and which are not.
//!
//! A typed server forgets whether a client wrote `hostNetwork: false`: an optional field with its type's zero
//! value is left out. Where the zero value means something (`replicas: 0`) the field is a pointer upstream and
//! stays. Other fields are always written, `status: {}` for one. These are facts about the Go types of Kubernetes
//! 1.36 (pointers and `omitempty` tags) that no schema carries. Types and fields are in byte order.

/// What a missing or zero value of a field becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// As the client wrote it.
    AsWritten,
    /// A zero value is left out.
    OmittedWhenZero,
    /// A missing value is written as the zero value.
    AlwaysWritten,
}

/// The presence of a scalar.
pub(super) fn of_scalar(type_name: &str, field: &str, required: bool) -> Presence {
    if contains(POINTERS, type_name, field) || contains(OPTIONAL, type_name, field) {
        Presence::AsWritten
    } else if required || contains(WRITTEN, type_name, field) {
        Presence::AlwaysWritten
    } else {
        Presence::OmittedWhenZero
    }
}

/// The presence of an object, a time or a quantity.
pub(super) fn of_struct(type_name: &str, field: &str) -> Presence {
    if contains(WRITTEN, type_name, field) {
        Presence::AlwaysWritten
    } else {
        Presence::AsWritten
    }
}

/// The presence of a list or a map.
pub(super) fn of_collection(required: bool) -> Presence {
    if required {
        Presence::AsWritten
    } else {
        Presence::OmittedWhenZero
    }
}

type Table = &'static [(&'static str, &'static [&'static str])];

fn contains(table: Table, type_name: &str, field: &str) -> bool {
    table
        .binary_search_by(|(name, _)| (*name).cmp(type_name))
        .ok()
        .and_then(|i| table.get(i))
        .is_some_and(|(_, fields)| fields.contains(&field))
}

/// Every table, for tests.
#[cfg(test)]
pub(super) fn tables() -> [Table; 3] {
    [POINTERS, WRITTEN, OPTIONAL]
}

/// Scalars whose zero value means something.
#[rustfmt::skip]
static POINTERS: Table = &[
    ("io.k8s.api.apps.v1.DaemonSetSpec", &["revisionHistoryLimit"]),
    ("io.k8s.api.apps.v1.DaemonSetStatus", &["collisionCount"]),
    ("io.k8s.api.apps.v1.DeploymentSpec", &["progressDeadlineSeconds", "replicas", "revisionHistoryLimit"]),
    ("io.k8s.api.apps.v1.DeploymentStatus", &["collisionCount", "terminatingReplicas"]),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", &["replicas"]),
    ("io.k8s.api.apps.v1.ReplicaSetStatus", &["terminatingReplicas"]),
    ("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", &["partition"]),
    ("io.k8s.api.apps.v1.StatefulSetSpec", &["replicas", "revisionHistoryLimit"]),
    ("io.k8s.api.apps.v1.StatefulSetStatus", &["collisionCount"]),
    ("io.k8s.api.authentication.v1.TokenRequestSpec", &["expirationSeconds"]),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec", &["minReplicas", "targetCPUUtilizationPercentage"]),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerStatus", &["currentCPUUtilizationPercentage", "observedGeneration"]),
    ("io.k8s.api.autoscaling.v2.HPAScalingRules", &["selectPolicy", "stabilizationWindowSeconds"]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", &["minReplicas"]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", &["observedGeneration"]),
    ("io.k8s.api.autoscaling.v2.MetricTarget", &["averageUtilization"]),
    ("io.k8s.api.autoscaling.v2.MetricValueStatus", &["averageUtilization"]),
    ("io.k8s.api.batch.v1.CronJobSpec", &["failedJobsHistoryLimit", "startingDeadlineSeconds", "successfulJobsHistoryLimit", "suspend", "timeZone"]),
    ("io.k8s.api.batch.v1.JobSpec", &["activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completionMode", "completions", "managedBy", "manualSelector", "maxFailedIndexes", "parallelism", "podReplacementPolicy", "suspend", "ttlSecondsAfterFinished"]),
    ("io.k8s.api.batch.v1.JobStatus", &["failedIndexes", "ready", "terminating"]),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", &["containerName"]),
    ("io.k8s.api.batch.v1.SuccessPolicyRule", &["succeededCount", "succeededIndexes"]),
    ("io.k8s.api.coordination.v1.LeaseSpec", &["holderIdentity", "leaseDurationSeconds", "leaseTransitions", "preferredHolder", "strategy"]),
    ("io.k8s.api.core.v1.AppArmorProfile", &["localhostProfile"]),
    ("io.k8s.api.core.v1.AzureDiskVolumeSource", &["cachingMode", "fsType", "kind", "readOnly"]),
    ("io.k8s.api.core.v1.AzureFilePersistentVolumeSource", &["secretNamespace"]),
    ("io.k8s.api.core.v1.CSIVolumeSource", &["fsType", "readOnly"]),
    ("io.k8s.api.core.v1.ClientIPConfig", &["timeoutSeconds"]),
    ("io.k8s.api.core.v1.ClusterTrustBundleProjection", &["name", "optional", "signerName"]),
    ("io.k8s.api.core.v1.ConfigMap", &["immutable"]),
    ("io.k8s.api.core.v1.ConfigMapEnvSource", &["optional"]),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", &["optional"]),
    ("io.k8s.api.core.v1.ConfigMapProjection", &["optional"]),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", &["defaultMode", "optional"]),
    ("io.k8s.api.core.v1.Container", &["restartPolicy"]),
    ("io.k8s.api.core.v1.ContainerStatus", &["started", "stopSignal"]),
    ("io.k8s.api.core.v1.DownwardAPIVolumeFile", &["mode"]),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", &["defaultMode"]),
    ("io.k8s.api.core.v1.EndpointAddress", &["nodeName"]),
    ("io.k8s.api.core.v1.EndpointPort", &["appProtocol"]),
    ("io.k8s.api.core.v1.EphemeralContainer", &["restartPolicy"]),
    ("io.k8s.api.core.v1.FCVolumeSource", &["lun"]),
    ("io.k8s.api.core.v1.FileKeySelector", &["optional"]),
    ("io.k8s.api.core.v1.GRPCAction", &["service"]),
    ("io.k8s.api.core.v1.GlusterfsPersistentVolumeSource", &["endpointsNamespace"]),
    ("io.k8s.api.core.v1.HostPathVolumeSource", &["type"]),
    ("io.k8s.api.core.v1.ISCSIPersistentVolumeSource", &["initiatorName"]),
    ("io.k8s.api.core.v1.ISCSIVolumeSource", &["initiatorName"]),
    ("io.k8s.api.core.v1.KeyToPath", &["mode"]),
    ("io.k8s.api.core.v1.Lifecycle", &["stopSignal"]),
    ("io.k8s.api.core.v1.LoadBalancerIngress", &["ipMode"]),
    ("io.k8s.api.core.v1.LocalVolumeSource", &["fsType"]),
    ("io.k8s.api.core.v1.NodeFeatures", &["supplementalGroupsPolicy"]),
    ("io.k8s.api.core.v1.NodeRuntimeHandlerFeatures", &["recursiveReadOnlyMounts", "userNamespaces"]),
    ("io.k8s.api.core.v1.NodeSwapStatus", &["capacity"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &["storageClassName", "volumeAttributesClassName", "volumeMode"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", &["currentVolumeAttributesClassName"]),
    ("io.k8s.api.core.v1.PersistentVolumeSpec", &["volumeAttributesClassName", "volumeMode"]),
    ("io.k8s.api.core.v1.PodCertificateProjection", &["maxExpirationSeconds"]),
    ("io.k8s.api.core.v1.PodDNSConfigOption", &["value"]),
    ("io.k8s.api.core.v1.PodResourceClaim", &["resourceClaimName", "resourceClaimTemplateName"]),
    ("io.k8s.api.core.v1.PodResourceClaimStatus", &["resourceClaimName"]),
    ("io.k8s.api.core.v1.PodSchedulingGroup", &["podGroupName"]),
    ("io.k8s.api.core.v1.PodSecurityContext", &["fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxChangePolicy", "supplementalGroupsPolicy"]),
    ("io.k8s.api.core.v1.PodSpec", &["activeDeadlineSeconds", "automountServiceAccountToken", "enableServiceLinks", "hostUsers", "hostnameOverride", "preemptionPolicy", "priority", "runtimeClassName", "setHostnameAsFQDN", "shareProcessNamespace", "terminationGracePeriodSeconds"]),
    ("io.k8s.api.core.v1.PortStatus", &["error"]),
    ("io.k8s.api.core.v1.Probe", &["terminationGracePeriodSeconds"]),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", &["defaultMode"]),
    ("io.k8s.api.core.v1.ReplicationControllerSpec", &["replicas"]),
    ("io.k8s.api.core.v1.ResourceHealth", &["message"]),
    ("io.k8s.api.core.v1.SeccompProfile", &["localhostProfile"]),
    ("io.k8s.api.core.v1.Secret", &["immutable"]),
    ("io.k8s.api.core.v1.SecretEnvSource", &["optional"]),
    ("io.k8s.api.core.v1.SecretKeySelector", &["optional"]),
    ("io.k8s.api.core.v1.SecretProjection", &["optional"]),
    ("io.k8s.api.core.v1.SecretVolumeSource", &["defaultMode", "optional"]),
    ("io.k8s.api.core.v1.SecurityContext", &["allowPrivilegeEscalation", "privileged", "procMount", "readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser"]),
    ("io.k8s.api.core.v1.ServiceAccount", &["automountServiceAccountToken"]),
    ("io.k8s.api.core.v1.ServiceAccountTokenProjection", &["expirationSeconds"]),
    ("io.k8s.api.core.v1.ServicePort", &["appProtocol"]),
    ("io.k8s.api.core.v1.ServiceSpec", &["allocateLoadBalancerNodePorts", "internalTrafficPolicy", "ipFamilyPolicy", "loadBalancerClass", "trafficDistribution"]),
    ("io.k8s.api.core.v1.Toleration", &["tolerationSeconds"]),
    ("io.k8s.api.core.v1.TopologySpreadConstraint", &["minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy"]),
    ("io.k8s.api.core.v1.TypedLocalObjectReference", &["apiGroup"]),
    ("io.k8s.api.core.v1.TypedObjectReference", &["apiGroup", "namespace"]),
    ("io.k8s.api.core.v1.VolumeMount", &["mountPropagation", "recursiveReadOnly"]),
    ("io.k8s.api.core.v1.VolumeMountStatus", &["recursiveReadOnly"]),
    ("io.k8s.api.core.v1.WindowsSecurityContextOptions", &["gmsaCredentialSpec", "gmsaCredentialSpecName", "hostProcess", "runAsUserName"]),
    ("io.k8s.api.discovery.v1.Endpoint", &["hostname", "nodeName", "zone"]),
    ("io.k8s.api.discovery.v1.EndpointConditions", &["ready", "serving", "terminating"]),
    ("io.k8s.api.discovery.v1.EndpointPort", &["appProtocol", "name", "port", "protocol"]),
    ("io.k8s.api.networking.v1.HTTPIngressPath", &["pathType"]),
    ("io.k8s.api.networking.v1.IngressClassParametersReference", &["apiGroup", "namespace", "scope"]),
    ("io.k8s.api.networking.v1.IngressPortStatus", &["error"]),
    ("io.k8s.api.networking.v1.IngressSpec", &["ingressClassName"]),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", &["endPort", "protocol"]),
    ("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", &["unhealthyPodEvictionPolicy"]),
    ("io.k8s.api.resource.v1.AllocatedDeviceStatus", &["shareID"]),
    ("io.k8s.api.resource.v1.Device", &["allNodes", "allowMultipleAllocations", "bindsToNode", "nodeName"]),
    ("io.k8s.api.resource.v1.DeviceAttribute", &["bool", "int", "string", "version"]),
    ("io.k8s.api.resource.v1.DeviceClassSpec", &["extendedResourceName"]),
    ("io.k8s.api.resource.v1.DeviceConstraint", &["distinctAttribute", "matchAttribute"]),
    ("io.k8s.api.resource.v1.DeviceRequestAllocationResult", &["adminAccess", "shareID"]),
    ("io.k8s.api.resource.v1.DeviceToleration", &["tolerationSeconds"]),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", &["adminAccess"]),
    ("io.k8s.api.resource.v1.NodeAllocatableResourceMapping", &["capacityKey"]),
    ("io.k8s.api.resource.v1.ResourceSliceSpec", &["allNodes", "nodeName", "perDeviceNodeSelection"]),
    ("io.k8s.api.resource.v1beta2.AllocatedDeviceStatus", &["shareID"]),
    ("io.k8s.api.resource.v1beta2.Device", &["allNodes", "allowMultipleAllocations", "bindsToNode", "nodeName"]),
    ("io.k8s.api.resource.v1beta2.DeviceAttribute", &["bool", "int", "string", "version"]),
    ("io.k8s.api.resource.v1beta2.DeviceClassSpec", &["extendedResourceName"]),
    ("io.k8s.api.resource.v1beta2.DeviceConstraint", &["distinctAttribute", "matchAttribute"]),
    ("io.k8s.api.resource.v1beta2.DeviceRequestAllocationResult", &["adminAccess", "shareID"]),
    ("io.k8s.api.resource.v1beta2.DeviceTaintSelector", &["device", "driver", "pool"]),
    ("io.k8s.api.resource.v1beta2.DeviceToleration", &["tolerationSeconds"]),
    ("io.k8s.api.resource.v1beta2.ExactDeviceRequest", &["adminAccess"]),
    ("io.k8s.api.resource.v1beta2.NodeAllocatableResourceMapping", &["capacityKey"]),
    ("io.k8s.api.resource.v1beta2.ResourceSliceSpec", &["allNodes", "nodeName", "perDeviceNodeSelection"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupResourceClaim", &["resourceClaimName", "resourceClaimTemplateName"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupResourceClaimStatus", &["resourceClaimName"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupSpec", &["disruptionMode", "priority"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupTemplate", &["disruptionMode", "priority"]),
    ("io.k8s.api.storage.v1.CSIDriverSpec", &["attachRequired", "fsGroupPolicy", "nodeAllocatableUpdatePeriodSeconds", "podInfoOnMount", "preventPodSchedulingIfMissing", "requiresRepublish", "seLinuxMount", "serviceAccountTokenInSecrets", "storageCapacity"]),
    ("io.k8s.api.storage.v1.StorageClass", &["allowVolumeExpansion", "reclaimPolicy", "volumeBindingMode"]),
    ("io.k8s.api.storage.v1.TokenRequest", &["expirationSeconds"]),
    ("io.k8s.api.storage.v1.VolumeAttachmentSource", &["persistentVolumeName"]),
    ("io.k8s.api.storage.v1.VolumeError", &["errorCode"]),
    ("io.k8s.api.storage.v1.VolumeNodeResources", &["count"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &["gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents", "propagationPolicy"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta", &["remainingItemCount"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &["deletionGracePeriodSeconds"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference", &["blockOwnerDeletion", "controller"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions", &["resourceVersion", "uid"]),
];

/// Fields that are always written: objects as `{}`, times as null, and scalars that are not required.
#[rustfmt::skip]
static WRITTEN: Table = &[
    ("io.k8s.api.apps.v1.DaemonSet", &["spec", "status"]),
    ("io.k8s.api.apps.v1.DaemonSetCondition", &["lastTransitionTime"]),
    ("io.k8s.api.apps.v1.DaemonSetSpec", &["template", "updateStrategy"]),
    ("io.k8s.api.apps.v1.Deployment", &["spec", "status"]),
    ("io.k8s.api.apps.v1.DeploymentCondition", &["lastTransitionTime", "lastUpdateTime"]),
    ("io.k8s.api.apps.v1.DeploymentSpec", &["strategy", "template"]),
    ("io.k8s.api.apps.v1.ReplicaSet", &["spec", "status"]),
    ("io.k8s.api.apps.v1.ReplicaSetCondition", &["lastTransitionTime"]),
    ("io.k8s.api.apps.v1.ReplicaSetSpec", &["template"]),
    ("io.k8s.api.apps.v1.StatefulSet", &["spec", "status"]),
    ("io.k8s.api.apps.v1.StatefulSetCondition", &["lastTransitionTime"]),
    ("io.k8s.api.apps.v1.StatefulSetOrdinals", &["start"]),
    ("io.k8s.api.apps.v1.StatefulSetSpec", &["serviceName", "template", "updateStrategy"]),
    ("io.k8s.api.apps.v1.StatefulSetStatus", &["availableReplicas"]),
    ("io.k8s.api.authentication.v1.SelfSubjectReview", &["status"]),
    ("io.k8s.api.authentication.v1.SelfSubjectReviewStatus", &["userInfo"]),
    ("io.k8s.api.authentication.v1.TokenRequest", &["spec", "status"]),
    ("io.k8s.api.authentication.v1.TokenRequestStatus", &["expirationTimestamp", "token"]),
    ("io.k8s.api.authentication.v1.TokenReview", &["spec", "status"]),
    ("io.k8s.api.authentication.v1.TokenReviewStatus", &["user"]),
    ("io.k8s.api.authorization.v1.LocalSubjectAccessReview", &["spec", "status"]),
    ("io.k8s.api.authorization.v1.SelfSubjectAccessReview", &["spec", "status"]),
    ("io.k8s.api.authorization.v1.SelfSubjectRulesReview", &["spec", "status"]),
    ("io.k8s.api.authorization.v1.SubjectAccessReview", &["spec", "status"]),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler", &["spec", "status"]),
    ("io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec", &["scaleTargetRef"]),
    ("io.k8s.api.autoscaling.v1.Scale", &["spec", "status"]),
    ("io.k8s.api.autoscaling.v2.ContainerResourceMetricSource", &["target"]),
    ("io.k8s.api.autoscaling.v2.ContainerResourceMetricStatus", &["current"]),
    ("io.k8s.api.autoscaling.v2.ExternalMetricSource", &["metric", "target"]),
    ("io.k8s.api.autoscaling.v2.ExternalMetricStatus", &["current", "metric"]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", &["spec", "status"]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerCondition", &["lastTransitionTime"]),
    ("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", &["scaleTargetRef"]),
    ("io.k8s.api.autoscaling.v2.ObjectMetricSource", &["describedObject", "metric", "target"]),
    ("io.k8s.api.autoscaling.v2.ObjectMetricStatus", &["current", "describedObject", "metric"]),
    ("io.k8s.api.autoscaling.v2.PodsMetricSource", &["metric", "target"]),
    ("io.k8s.api.autoscaling.v2.PodsMetricStatus", &["current", "metric"]),
    ("io.k8s.api.autoscaling.v2.ResourceMetricSource", &["target"]),
    ("io.k8s.api.autoscaling.v2.ResourceMetricStatus", &["current"]),
    ("io.k8s.api.batch.v1.CronJob", &["spec", "status"]),
    ("io.k8s.api.batch.v1.CronJobSpec", &["jobTemplate"]),
    ("io.k8s.api.batch.v1.Job", &["spec", "status"]),
    ("io.k8s.api.batch.v1.JobCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("io.k8s.api.batch.v1.JobSpec", &["template"]),
    ("io.k8s.api.batch.v1.JobTemplateSpec", &["metadata", "spec"]),
    ("io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", &["status"]),
    ("io.k8s.api.coordination.v1.Lease", &["spec"]),
    ("io.k8s.api.core.v1.Binding", &["target"]),
    ("io.k8s.api.core.v1.Container", &["resources"]),
    ("io.k8s.api.core.v1.ContainerStateRunning", &["startedAt"]),
    ("io.k8s.api.core.v1.ContainerStateTerminated", &["finishedAt", "startedAt"]),
    ("io.k8s.api.core.v1.ContainerStatus", &["lastState", "state"]),
    ("io.k8s.api.core.v1.EphemeralContainer", &["resources"]),
    ("io.k8s.api.core.v1.Event", &["eventTime", "firstTimestamp", "involvedObject", "lastTimestamp", "reportingComponent", "reportingInstance", "source"]),
    ("io.k8s.api.core.v1.EventSeries", &["lastObservedTime"]),
    ("io.k8s.api.core.v1.LimitRange", &["spec"]),
    ("io.k8s.api.core.v1.Namespace", &["spec", "status"]),
    ("io.k8s.api.core.v1.NamespaceCondition", &["lastTransitionTime"]),
    ("io.k8s.api.core.v1.Node", &["spec", "status"]),
    ("io.k8s.api.core.v1.NodeCondition", &["lastHeartbeatTime", "lastTransitionTime"]),
    ("io.k8s.api.core.v1.NodeDaemonEndpoints", &["kubeletEndpoint"]),
    ("io.k8s.api.core.v1.NodeRuntimeHandler", &["name"]),
    ("io.k8s.api.core.v1.NodeStatus", &["daemonEndpoints", "nodeInfo"]),
    ("io.k8s.api.core.v1.PersistentVolume", &["spec", "status"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaim", &["spec", "status"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", &["resources"]),
    ("io.k8s.api.core.v1.PersistentVolumeClaimTemplate", &["metadata", "spec"]),
    ("io.k8s.api.core.v1.Pod", &["spec", "status"]),
    ("io.k8s.api.core.v1.PodCondition", &["lastProbeTime", "lastTransitionTime"]),
    ("io.k8s.api.core.v1.PodTemplate", &["template"]),
    ("io.k8s.api.core.v1.PodTemplateSpec", &["metadata", "spec"]),
    ("io.k8s.api.core.v1.PreferredSchedulingTerm", &["preference"]),
    ("io.k8s.api.core.v1.ReplicationController", &["spec", "status"]),
    ("io.k8s.api.core.v1.ReplicationControllerCondition", &["lastTransitionTime"]),
    ("io.k8s.api.core.v1.ResourceFieldSelector", &["divisor"]),
    ("io.k8s.api.core.v1.ResourceQuota", &["spec", "status"]),
    ("io.k8s.api.core.v1.Service", &["spec", "status"]),
    ("io.k8s.api.core.v1.ServiceStatus", &["loadBalancer"]),
    ("io.k8s.api.core.v1.WeightedPodAffinityTerm", &["podAffinityTerm"]),
    ("io.k8s.api.discovery.v1.Endpoint", &["conditions"]),
    ("io.k8s.api.events.v1.Event", &["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedSource", "eventTime", "regarding"]),
    ("io.k8s.api.events.v1.EventSeries", &["lastObservedTime"]),
    ("io.k8s.api.networking.v1.HTTPIngressPath", &["backend"]),
    ("io.k8s.api.networking.v1.IPAddress", &["spec"]),
    ("io.k8s.api.networking.v1.Ingress", &["spec", "status"]),
    ("io.k8s.api.networking.v1.IngressClass", &["spec"]),
    ("io.k8s.api.networking.v1.IngressServiceBackend", &["port"]),
    ("io.k8s.api.networking.v1.IngressStatus", &["loadBalancer"]),
    ("io.k8s.api.networking.v1.NetworkPolicy", &["spec"]),
    ("io.k8s.api.networking.v1.NetworkPolicySpec", &["podSelector"]),
    ("io.k8s.api.networking.v1.ServiceCIDR", &["spec", "status"]),
    ("io.k8s.api.policy.v1.PodDisruptionBudget", &["spec", "status"]),
    ("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"]),
    ("io.k8s.api.rbac.v1.ClusterRoleBinding", &["roleRef"]),
    ("io.k8s.api.rbac.v1.RoleBinding", &["roleRef"]),
    ("io.k8s.api.rbac.v1.RoleRef", &["apiGroup"]),
    ("io.k8s.api.resource.v1.AllocationResult", &["devices"]),
    ("io.k8s.api.resource.v1.DeviceClass", &["spec"]),
    ("io.k8s.api.resource.v1.ResourceClaim", &["spec", "status"]),
    ("io.k8s.api.resource.v1.ResourceClaimSpec", &["devices"]),
    ("io.k8s.api.resource.v1.ResourceClaimTemplate", &["spec"]),
    ("io.k8s.api.resource.v1.ResourceClaimTemplateSpec", &["metadata", "spec"]),
    ("io.k8s.api.resource.v1.ResourceSlice", &["spec"]),
    ("io.k8s.api.resource.v1.ResourceSliceSpec", &["pool"]),
    ("io.k8s.api.resource.v1beta2.AllocationResult", &["devices"]),
    ("io.k8s.api.resource.v1beta2.DeviceClass", &["spec"]),
    ("io.k8s.api.resource.v1beta2.DeviceTaintRule", &["spec", "status"]),
    ("io.k8s.api.resource.v1beta2.DeviceTaintRuleSpec", &["taint"]),
    ("io.k8s.api.resource.v1beta2.ResourceClaim", &["spec", "status"]),
    ("io.k8s.api.resource.v1beta2.ResourceClaimSpec", &["devices"]),
    ("io.k8s.api.resource.v1beta2.ResourceClaimTemplate", &["spec"]),
    ("io.k8s.api.resource.v1beta2.ResourceClaimTemplateSpec", &["metadata", "spec"]),
    ("io.k8s.api.resource.v1beta2.ResourceSlice", &["spec"]),
    ("io.k8s.api.resource.v1beta2.ResourceSliceSpec", &["pool"]),
    ("io.k8s.api.scheduling.v1.PriorityClass", &["value"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroup", &["spec", "status"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupSpec", &["schedulingPolicy"]),
    ("io.k8s.api.scheduling.v1alpha2.PodGroupTemplate", &["schedulingPolicy"]),
    ("io.k8s.api.scheduling.v1alpha2.Workload", &["spec"]),
    ("io.k8s.api.storage.v1.CSIDriver", &["spec"]),
    ("io.k8s.api.storage.v1.CSINode", &["spec"]),
    ("io.k8s.api.storage.v1.VolumeAttachment", &["spec", "status"]),
    ("io.k8s.api.storage.v1.VolumeAttachmentSpec", &["source"]),
    ("io.k8s.api.storage.v1.VolumeError", &["time"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Condition", &["lastTransitionTime"]),
];

/// Scalars that the schema calls required and that are left out all the same.
#[rustfmt::skip]
static OPTIONAL: Table = &[
    ("io.k8s.api.authentication.v1.TokenReviewSpec", &["token"]),
    ("io.k8s.api.core.v1.ConfigMapEnvSource", &["name"]),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", &["name"]),
    ("io.k8s.api.core.v1.ConfigMapProjection", &["name"]),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", &["name"]),
    ("io.k8s.api.core.v1.ContainerRestartRule", &["action"]),
    ("io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes", &["operator"]),
    ("io.k8s.api.core.v1.ImageVolumeStatus", &["imageRef"]),
    ("io.k8s.api.core.v1.LocalObjectReference", &["name"]),
    ("io.k8s.api.core.v1.PodCertificateProjection", &["keyType", "signerName"]),
    ("io.k8s.api.core.v1.SecretEnvSource", &["name"]),
    ("io.k8s.api.core.v1.SecretKeySelector", &["name"]),
    ("io.k8s.api.core.v1.SecretProjection", &["name"]),
    ("io.k8s.api.networking.v1.ParentReference", &["name", "resource"]),
];
