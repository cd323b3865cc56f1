//! Samples of types that need more than their required fields to be valid, and completions that make objects valid.

use super::lists::Place;
use berth_protobuf::facts::{FieldFacts, TypeFacts, ValueShape, words};
use serde_json::{Map, Value, json};

/// Objects of types. In strings, `$i` is the index of the entry and `$ip` an address; the string `$n` is the index as a
/// number.
const SAMPLES: &[(&str, &str)] = &[
    ("meta.v1.ObjectMeta", "{}"),
    (
        "meta.v1.OwnerReference",
        r#"{"apiVersion": "v1", "kind": "A", "name": "a$i", "uid": "u$i"}"#,
    ),
    ("meta.v1.LabelSelector", r#"{"matchLabels": {"a": "b"}}"#),
    (
        "meta.v1.LabelSelectorRequirement",
        r#"{"key": "k$i", "operator": "In", "values": ["v"]}"#,
    ),
    (
        "meta.v1.Condition",
        r#"{"type": "T$i", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}"#,
    ),
    (
        "meta.v1.ManagedFieldsEntry",
        r#"{"manager": "m$i", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}"#,
    ),
    // Pods.
    (
        "core.v1.Pod",
        r#"{"metadata": {}, "spec": {"containers": [{"name": "c0", "image": "i"}], "terminationGracePeriodSeconds": 0}}"#,
    ),
    (
        "core.v1.PodTemplateSpec",
        r#"{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}"#,
    ),
    (
        "core.v1.PodSpec",
        r#"{"containers": [{"name": "c0", "image": "i"}]}"#,
    ),
    ("core.v1.Container", r#"{"name": "c$i", "image": "i"}"#),
    (
        "core.v1.EphemeralContainer",
        r#"{"name": "e$i", "image": "i"}"#,
    ),
    (
        "core.v1.ContainerPort",
        r#"{"name": "p$i", "containerPort": "$n"}"#,
    ),
    ("core.v1.EnvVar", r#"{"name": "E$i", "value": "v"}"#),
    (
        "core.v1.EnvFromSource",
        r#"{"prefix": "P$i", "secretRef": {"name": "s"}}"#,
    ),
    (
        "core.v1.VolumeMount",
        r#"{"name": "v$i", "mountPath": "/m/$i"}"#,
    ),
    (
        "core.v1.VolumeDevice",
        r#"{"name": "v$i", "devicePath": "/d/$i"}"#,
    ),
    (
        "core.v1.ContainerResizePolicy",
        r#"{"resourceName": "cpu", "restartPolicy": "NotRequired"}"#,
    ),
    ("core.v1.ResourceRequirements", "{}"),
    ("core.v1.ResourceClaim", r#"{"name": "k$i"}"#),
    (
        "core.v1.PodResourceClaim",
        r#"{"name": "k$i", "resourceClaimName": "c"}"#,
    ),
    ("core.v1.Probe", r#"{"tcpSocket": {"port": 1}}"#),
    ("core.v1.LifecycleHandler", r#"{"tcpSocket": {"port": 1}}"#),
    ("core.v1.ExecAction", r#"{"command": ["a"]}"#),
    ("core.v1.HTTPGetAction", r#"{"path": "/", "port": 1}"#),
    ("core.v1.HTTPHeader", r#"{"name": "H$i", "value": "v"}"#),
    ("core.v1.Volume", r#"{"name": "v$i", "emptyDir": {}}"#),
    ("core.v1.KeyToPath", r#"{"key": "k$i", "path": "p$i"}"#),
    (
        "core.v1.DownwardAPIVolumeFile",
        r#"{"path": "p$i", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}"#,
    ),
    ("core.v1.VolumeProjection", r#"{"secret": {"name": "s$i"}}"#),
    ("core.v1.SecretProjection", r#"{"name": "s"}"#),
    ("core.v1.ConfigMapProjection", r#"{"name": "s"}"#),
    ("core.v1.SecretVolumeSource", r#"{"secretName": "s"}"#),
    ("core.v1.ConfigMapVolumeSource", r#"{"name": "s"}"#),
    (
        "core.v1.ClusterTrustBundleProjection",
        r#"{"signerName": "a.b/c", "path": "p"}"#,
    ),
    (
        "core.v1.PodCertificateProjection",
        r#"{"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "p"}"#,
    ),
    (
        "core.v1.ISCSIVolumeSource",
        r#"{"targetPortal": "t", "iqn": "iqn.2015-02.example.com:a", "lun": 0}"#,
    ),
    (
        "core.v1.ISCSIPersistentVolumeSource",
        r#"{"targetPortal": "t", "iqn": "iqn.2015-02.example.com:a", "lun": 0}"#,
    ),
    (
        "core.v1.RBDVolumeSource",
        r#"{"monitors": ["m"], "image": "i"}"#,
    ),
    ("core.v1.CephFSVolumeSource", r#"{"monitors": ["m"]}"#),
    ("core.v1.FlexVolumeSource", r#"{"driver": "a/b"}"#),
    (
        "core.v1.FCVolumeSource",
        r#"{"targetWWNs": ["w"], "lun": 1}"#,
    ),
    ("core.v1.CSIVolumeSource", r#"{"driver": "a.example.com"}"#),
    (
        "core.v1.EphemeralVolumeSource",
        r#"{"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}"#,
    ),
    (
        "core.v1.PersistentVolumeClaimTemplate",
        r#"{"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}"#,
    ),
    (
        "core.v1.PersistentVolumeClaim",
        r#"{"metadata": {"name": "t$i"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}"#,
    ),
    (
        "core.v1.Toleration",
        r#"{"key": "t$i", "operator": "Exists"}"#,
    ),
    ("core.v1.HostAlias", r#"{"ip": "$ip", "hostnames": ["h"]}"#),
    ("core.v1.PodReadinessGate", r#"{"conditionType": "t$i"}"#),
    ("core.v1.PodSchedulingGate", r#"{"name": "g$i"}"#),
    (
        "core.v1.TopologySpreadConstraint",
        r#"{"topologyKey": "k$i", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}"#,
    ),
    (
        "core.v1.PodAffinityTerm",
        r#"{"topologyKey": "k$i", "labelSelector": {}}"#,
    ),
    (
        "core.v1.WeightedPodAffinityTerm",
        r#"{"weight": 1, "podAffinityTerm": {"topologyKey": "k$i", "labelSelector": {}}}"#,
    ),
    (
        "core.v1.NodeSelector",
        r#"{"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}"#,
    ),
    (
        "core.v1.NodeSelectorTerm",
        r#"{"matchExpressions": [{"key": "k$i", "operator": "In", "values": ["v"]}]}"#,
    ),
    (
        "core.v1.NodeSelectorRequirement",
        r#"{"key": "k$i", "operator": "In", "values": ["v"]}"#,
    ),
    (
        "core.v1.PreferredSchedulingTerm",
        r#"{"weight": 1, "preference": {"matchExpressions": [{"key": "k$i", "operator": "In", "values": ["v"]}]}}"#,
    ),
    ("core.v1.PodDNSConfigOption", r#"{"name": "o$i"}"#),
    ("core.v1.Sysctl", r#"{"name": "a.s$i", "value": "v"}"#),
    (
        "core.v1.PodCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
    ("core.v1.PodIP", r#"{"ip": "$ip"}"#),
    ("core.v1.HostIP", r#"{"ip": "$ip"}"#),
    (
        "core.v1.ContainerStatus",
        r#"{"name": "c$i", "image": "i", "imageID": "", "ready": true, "restartCount": 0}"#,
    ),
    (
        "core.v1.PodResourceClaimStatus",
        r#"{"name": "k$i", "resourceClaimName": "c"}"#,
    ),
    (
        "core.v1.ContainerExtendedResourceRequest",
        r#"{"containerName": "c0", "resourceName": "example.com/k$i", "requestName": "r$i"}"#,
    ),
    // Other core kinds.
    ("core.v1.Endpoints", r#"{"metadata": {}, "subsets": []}"#),
    (
        "core.v1.EndpointSubset",
        r#"{"addresses": [{"ip": "$ip"}], "ports": [{"port": 1}]}"#,
    ),
    ("core.v1.EndpointAddress", r#"{"ip": "$ip"}"#),
    (
        "core.v1.EndpointPort",
        r#"{"name": "p$i", "port": 1, "protocol": "TCP"}"#,
    ),
    (
        "core.v1.LimitRangeItem",
        r#"{"type": "example.com/t$i", "max": {"cpu": "9000"}}"#,
    ),
    ("core.v1.Node", r#"{"metadata": {}, "spec": {}}"#),
    ("core.v1.Taint", r#"{"key": "t$i", "effect": "NoSchedule"}"#),
    (
        "core.v1.NodeCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
    (
        "core.v1.NodeAddress",
        r#"{"type": "Hostname", "address": "h$i"}"#,
    ),
    (
        "core.v1.AttachedVolume",
        r#"{"name": "v$i", "devicePath": "d"}"#,
    ),
    ("core.v1.ContainerImage", r#"{"names": ["i$i"]}"#),
    (
        "core.v1.PersistentVolume",
        r#"{"metadata": {}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/p"}}}"#,
    ),
    (
        "core.v1.ReplicationController",
        r#"{"metadata": {}, "spec": {"selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "core.v1.Service",
        r#"{"metadata": {}, "spec": {"ports": [{"name": "p0", "port": 1}]}}"#,
    ),
    ("core.v1.ServicePort", r#"{"name": "p$i", "port": "$n"}"#),
    ("core.v1.LoadBalancerIngress", r#"{"ip": "$ip"}"#),
    (
        "core.v1.PersistentVolumeClaimCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
    (
        "core.v1.ScopedResourceSelectorRequirement",
        r#"{"scopeName": "PriorityClass", "operator": "In", "values": ["a$i"]}"#,
    ),
    (
        "core.v1.Event",
        r#"{"metadata": {}, "involvedObject": {"namespace": "default"}}"#,
    ),
    // Workloads.
    (
        "apps.v1.DaemonSet",
        r#"{"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "apps.v1.Deployment",
        r#"{"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "apps.v1.ReplicaSet",
        r#"{"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "apps.v1.StatefulSet",
        r#"{"metadata": {}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "batch.v1.Job",
        r#"{"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c0", "image": "i"}]}}}}"#,
    ),
    (
        "batch.v1.CronJob",
        r#"{"metadata": {}, "spec": {"schedule": "* * * * *", "jobTemplate": {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c0", "image": "i"}]}}}}}}"#,
    ),
    (
        "batch.v1.JobCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
    (
        "batch.v1.PodFailurePolicyRule",
        r#"{"action": "Ignore", "onPodConditions": [{"type": "T$i", "status": "True"}]}"#,
    ),
    (
        "autoscaling.v2.HorizontalPodAutoscaler",
        r#"{"metadata": {}, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "minReplicas": 1, "maxReplicas": 2}}"#,
    ),
    (
        "autoscaling.v1.HorizontalPodAutoscaler",
        r#"{"metadata": {}, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "minReplicas": 1, "maxReplicas": 2}}"#,
    ),
    (
        "autoscaling.v2.MetricSpec",
        r#"{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}}}"#,
    ),
    (
        "autoscaling.v2.HPAScalingPolicy",
        r#"{"type": "Pods", "value": 1, "periodSeconds": 1}"#,
    ),
    // Networks, roles, storage.
    (
        "networking.v1.Ingress",
        r#"{"metadata": {}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}}"#,
    ),
    (
        "networking.v1.IngressTLS",
        r#"{"hosts": ["h$i.example.com"], "secretName": "s"}"#,
    ),
    (
        "networking.v1.IngressRule",
        r#"{"host": "h$i.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 1}}}}]}}"#,
    ),
    (
        "networking.v1.HTTPIngressPath",
        r#"{"path": "/p$i", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 1}}}}"#,
    ),
    (
        "networking.v1.IngressLoadBalancerIngress",
        r#"{"ip": "$ip"}"#,
    ),
    (
        "networking.v1.NetworkPolicyPeer",
        r#"{"podSelector": {"matchLabels": {"a": "b$i"}}}"#,
    ),
    ("networking.v1.NetworkPolicyPort", r#"{"port": 1}"#),
    ("networking.v1.IPBlock", r#"{"cidr": "10.0.0.0/8"}"#),
    (
        "networking.v1.ServiceCIDR",
        r#"{"metadata": {}, "spec": {"cidrs": ["10.200.0.0/16"]}}"#,
    ),
    (
        "rbac.v1.PolicyRule",
        r#"{"apiGroups": [""], "resources": ["r$i"], "verbs": ["get"]}"#,
    ),
    (
        "rbac.v1.Subject",
        r#"{"kind": "User", "name": "u$i", "apiGroup": "rbac.authorization.k8s.io"}"#,
    ),
    (
        "rbac.v1.ClusterRoleBinding",
        r#"{"metadata": {}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}}"#,
    ),
    (
        "rbac.v1.RoleBinding",
        r#"{"metadata": {}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}}"#,
    ),
    (
        "storage.v1.CSINodeDriver",
        r#"{"name": "d$i.example.com", "nodeID": "n", "topologyKeys": ["k"]}"#,
    ),
    (
        "storage.v1.StorageClass",
        r#"{"metadata": {}, "provisioner": "a.example.com"}"#,
    ),
    (
        "storage.v1.VolumeAttributesClass",
        r#"{"metadata": {}, "driverName": "a.example.com", "parameters": {"a": "b"}}"#,
    ),
    (
        "storage.v1.CSIStorageCapacity",
        r#"{"metadata": {}, "storageClassName": "a"}"#,
    ),
    (
        "core.v1.TopologySelectorTerm",
        r#"{"matchLabelExpressions": [{"key": "k$i", "values": ["v"]}]}"#,
    ),
    (
        "core.v1.TopologySelectorLabelRequirement",
        r#"{"key": "k$i", "values": ["v"]}"#,
    ),
    ("storage.v1.TokenRequest", r#"{"audience": "a$i"}"#),
    (
        "storage.v1.VolumeAttachment",
        r#"{"metadata": {}, "spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}"#,
    ),
    // Admission.
    (
        "admissionregistration.v1.RuleWithOperations",
        r#"{"operations": ["CREATE"], "apiGroups": ["a$i.example.com"], "apiVersions": ["v1"], "resources": ["r"]}"#,
    ),
    (
        "admissionregistration.v1.NamedRuleWithOperations",
        r#"{"operations": ["CREATE"], "apiGroups": ["a$i.example.com"], "apiVersions": ["v1"], "resources": ["r"]}"#,
    ),
    (
        "admissionregistration.v1.MutatingWebhook",
        r#"{"name": "w$i.example.com", "clientConfig": {"url": "https://a.example.com"}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"], "apiGroups": ["a.example.com"], "apiVersions": ["v1"], "resources": ["r"]}]}"#,
    ),
    (
        "admissionregistration.v1.ValidatingWebhook",
        r#"{"name": "w$i.example.com", "clientConfig": {"url": "https://a.example.com"}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"], "apiGroups": ["a.example.com"], "apiVersions": ["v1"], "resources": ["r"]}]}"#,
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicy",
        r#"{"metadata": {}, "spec": {"matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["a.example.com"], "apiVersions": ["v1"], "resources": ["r"]}]}, "validations": [{"expression": "true"}]}}"#,
    ),
    (
        "admissionregistration.v1.Validation",
        r#"{"expression": "1 < $i + 2"}"#,
    ),
    (
        "admissionregistration.v1.Variable",
        r#"{"name": "v$i", "expression": "1"}"#,
    ),
    (
        "admissionregistration.v1.MatchCondition",
        r#"{"name": "m$i", "expression": "true"}"#,
    ),
    (
        "admissionregistration.v1.AuditAnnotation",
        r#"{"key": "k$i", "valueExpression": "'a'"}"#,
    ),
    (
        "admissionregistration.v1.ValidatingAdmissionPolicyBinding",
        r#"{"metadata": {}, "spec": {"policyName": "a", "validationActions": ["Deny"]}}"#,
    ),
    (
        "admissionregistration.v1.MutatingAdmissionPolicy",
        r#"{"metadata": {}, "spec": {"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["a.example.com"], "apiVersions": ["v1"], "resources": ["r"]}]}, "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}}"#,
    ),
    (
        "admissionregistration.v1.Mutation",
        r#"{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}"#,
    ),
    (
        "admissionregistration.v1.MutatingAdmissionPolicyBinding",
        r#"{"metadata": {}, "spec": {"policyName": "a"}}"#,
    ),
    // Other groups.
    (
        "apiextensions.v1.CustomResourceDefinition",
        r#"{"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "names": {"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"p": {"type": "string"}}}}}]}}"#,
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionVersion",
        r#"{"name": "v$i", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}"#,
    ),
    (
        "apiextensions.v1.CustomResourceColumnDefinition",
        r#"{"name": "c$i", "type": "string", "jsonPath": ".p"}"#,
    ),
    ("apiextensions.v1.JSONSchemaProps", r#"{"type": "string"}"#),
    (
        "apiextensions.v1.ValidationRule",
        r#"{"rule": "1 < $i + 2"}"#,
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
    (
        "node.v1.RuntimeClass",
        r#"{"metadata": {}, "handler": "h"}"#,
    ),
    (
        "discovery.v1.EndpointSlice",
        r#"{"metadata": {}, "addressType": "IPv4", "endpoints": []}"#,
    ),
    ("discovery.v1.Endpoint", r#"{"addresses": ["$ip"]}"#),
    (
        "discovery.v1.EndpointPort",
        r#"{"name": "p$i", "port": 1, "protocol": "TCP"}"#,
    ),
    (
        "resource.v1.DeviceSelector",
        r#"{"cel": {"expression": "1 < $i + 2"}}"#,
    ),
    (
        "resource.v1.DeviceClassConfiguration",
        r#"{"opaque": {"driver": "a.example.com", "parameters": {}}}"#,
    ),
    (
        "resource.v1.DeviceRequest",
        r#"{"name": "r$i", "exactly": {"deviceClassName": "c"}}"#,
    ),
    (
        "resource.v1.DeviceSubRequest",
        r#"{"name": "s$i", "deviceClassName": "c"}"#,
    ),
    (
        "resource.v1.ResourceClaim",
        r#"{"metadata": {}, "spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "c"}}]}}}"#,
    ),
    (
        "resource.v1.ResourceClaimTemplate",
        r#"{"metadata": {}, "spec": {"spec": {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "c"}}]}}}}"#,
    ),
    (
        "resource.v1.DeviceClaimConfiguration",
        r#"{"requests": ["r0"], "opaque": {"driver": "a.example.com", "parameters": {}}}"#,
    ),
    (
        "resource.v1.DeviceConstraint",
        r#"{"requests": ["r0"], "matchAttribute": "a.example.com/m"}"#,
    ),
    (
        "resource.v1.DeviceToleration",
        r#"{"key": "k$i", "operator": "Exists"}"#,
    ),
    (
        "resource.v1.ResourceSlice",
        r#"{"metadata": {}, "spec": {"driver": "a.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}"#,
    ),
    ("resource.v1.Device", r#"{"name": "d$i"}"#),
    (
        "scheduling.v1beta1.PodGroup",
        r#"{"metadata": {}, "spec": {"schedulingPolicy": {"basic": {}}}}"#,
    ),
    (
        "scheduling.v1.PriorityClass",
        r#"{"metadata": {}, "value": 1}"#,
    ),
    (
        "flowcontrol.v1.FlowSchema",
        r#"{"metadata": {}, "spec": {"priorityLevelConfiguration": {"name": "a"}, "matchingPrecedence": 5}}"#,
    ),
    (
        "flowcontrol.v1.PolicyRulesWithSubjects",
        r#"{"subjects": [{"kind": "User", "user": {"name": "u$i"}}], "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["r"], "namespaces": ["*"]}]}"#,
    ),
    (
        "flowcontrol.v1.Subject",
        r#"{"kind": "User", "user": {"name": "u$i"}}"#,
    ),
    (
        "flowcontrol.v1.ResourcePolicyRule",
        r#"{"verbs": ["get"], "apiGroups": [""], "resources": ["r$i"], "namespaces": ["*"]}"#,
    ),
    (
        "flowcontrol.v1.NonResourcePolicyRule",
        r#"{"verbs": ["get"], "nonResourceURLs": ["/a$i"]}"#,
    ),
    (
        "apiregistration.v1.APIService",
        r#"{"metadata": {"name": "v9.a.example.com"}, "spec": {"group": "a.example.com", "version": "v9", "groupPriorityMinimum": 5, "versionPriority": 5, "insecureSkipTLSVerify": true, "service": {"name": "s", "namespace": "default"}}}"#,
    ),
    (
        "apiregistration.v1.APIServiceCondition",
        r#"{"type": "T$i", "status": "True"}"#,
    ),
];

/// Mutually exclusive fields of an object. `*` is every field but `name`.
const UNIONS: &[(&str, &[&str])] = &[
    ("core.v1.Volume", &["*"]),
    ("core.v1.EnvVar", &["value", "valueFrom"]),
    ("core.v1.EnvFromSource", &["configMapRef", "secretRef"]),
    ("core.v1.Probe", &["exec", "httpGet", "tcpSocket", "grpc"]),
    (
        "core.v1.LifecycleHandler",
        &["exec", "httpGet", "tcpSocket", "sleep"],
    ),
    ("core.v1.VolumeProjection", &["*"]),
    ("core.v1.FCVolumeSource", &["targetWWNs", "wwids"]),
    (
        "core.v1.PersistentVolumeSpec",
        &[
            "hostPath",
            "rbd",
            "iscsi",
            "cephfs",
            "fc",
            "csi",
            "flexVolume",
        ],
    ),
    (
        "core.v1.NodeSelectorTerm",
        &["matchExpressions", "matchFields"],
    ),
    (
        "networking.v1.NetworkPolicyPeer",
        &["podSelector", "ipBlock"],
    ),
    ("resource.v1.DeviceRequest", &["exactly", "firstAvailable"]),
    ("rbac.v1.PolicyRule", &["resources", "nonResourceURLs"]),
];

/// Sample texts of fields with a special format.
const TEXTS: &[(&str, &str)] = &[
    ("finalizers", "example.com/f$i"),
    ("externalIPs", "$ip"),
    ("loadBalancerSourceRanges", "$ip/32"),
    ("nameservers", "$ip"),
    ("searches", "s$i.example.com"),
    ("hosts", "h$i.example.com"),
    ("addresses", "$ip"),
    ("ips", "$ip/32"),
    ("except", "$ip/32"),
    ("podCIDRs", "$ip/32"),
    ("operations", "*"),
    ("verbs", "v$i"),
    ("nonResourceURLs", "/a$i"),
    ("requests", "r0"),
    ("monitors", "m$i"),
];

/// A text with the index of an entry.
fn indexed(text: &str, i: usize) -> String {
    let text = text.replace("$ip", &format!("10.{}.{}.1", i / 200, i % 200 + 1));
    text.replace("$i", &i.to_string())
}

/// A sample of a type. Versions before the first stable one have the samples of that where they have the same names.
pub(super) fn of_type(name: &str, i: usize) -> Option<Value> {
    let find = |name: &str| SAMPLES.iter().find(|(known, _)| *known == name);
    let stable = name
        .replace("resource.v1beta1", "resource.v1")
        .replace("resource.v1beta2", "resource.v1")
        .replace("scheduling.v1alpha3", "scheduling.v1beta1");
    let (_, text) = find(name).or_else(|| find(&stable))?;
    let text = indexed(&text.replace("\"$n\"", &(i + 1).to_string()), i);
    Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// The text of a field, or of an entry of it.
pub(super) fn text(_: &TypeFacts, field: &FieldFacts, i: usize) -> String {
    let values = words(field.attributes).find_map(|word| word.strip_prefix("enum="));
    if let Some(values) = values {
        let values: Vec<&str> = values.trim_matches('"').split(',').collect();
        return values[i % values.len()].to_owned();
    }
    let known = TEXTS.iter().find(|(name, _)| *name == field.name);
    indexed(known.map_or("a$i", |(_, text)| text), i)
}

/// A key of a map.
pub(super) fn key(of: &TypeFacts, field: &FieldFacts, i: usize) -> String {
    let is_plain = matches!(of.name, "core.v1.ConfigMap" | "core.v1.Secret")
        || matches!(field.name, "extra" | "counters");
    if is_plain {
        return format!("k{i}");
    }
    format!("example.com/k{i}")
}

/// Removes the fields of an object that exclude this one.
pub(super) fn choose(of: &TypeFacts, field: &str, object: &mut Value) {
    let union = UNIONS.iter().find(|(name, _)| *name == of.name);
    let (Some((_, members)), Some(object)) = (union, object.as_object_mut()) else {
        return;
    };
    if members.contains(&field) || (members == &["*"] && field != "name") {
        object.retain(|name, _| {
            name == field
                || !(members.contains(&name.as_str()) || (members == &["*"] && name != "name"))
        });
    }
}

/// Completes the other lists of the object that refer to the list.
pub(super) fn fit(place: &Place, object: &mut Value) {
    if let Some(spec) = pod_spec(object) {
        fit_pod(spec);
    }
    let fields: Vec<&str> = place.fields.iter().map(|field| field.name).collect();
    match (place.kind.plural, fields.as_slice()) {
        ("replicationcontrollers", ["spec", "selector"]) => {
            object["spec"]["template"]["metadata"]["labels"] = object["spec"]["selector"].clone();
        }
        (_, ["spec", "selector", "matchLabels"]) if !object["spec"]["template"].is_null() => {
            let labels = object["spec"]["selector"]["matchLabels"].clone();
            object["spec"]["template"]["metadata"]["labels"] = labels;
        }
        (_, ["spec", "selector", "matchExpressions", ..])
            if !object["spec"]["template"].is_null() =>
        {
            let mut labels = json!({"a": "b"});
            for term in object["spec"]["selector"]["matchExpressions"]
                .as_array()
                .into_iter()
                .flatten()
            {
                labels[term["key"].as_str().unwrap_or_default()] = term["values"][0].clone();
            }
            object["spec"]["template"]["metadata"]["labels"] = labels;
        }
        _ => {}
    }
}

/// The spec of a pod, or of the pods of a template.
fn pod_spec(object: &mut Value) -> Option<&mut Value> {
    for place in [
        "/spec",
        "/spec/template/spec",
        "/template/spec",
        "/spec/jobTemplate/spec/template/spec",
    ] {
        if object
            .pointer(place)
            .is_some_and(|spec| spec.get("containers").is_some())
        {
            return object.pointer_mut(place);
        }
    }
    None
}

/// Adds the volumes and claims of the containers to the pod, and completes the limits of their requests.
fn fit_pod(spec: &mut Value) {
    let (mut volumes, mut claims) = (Vec::new(), Vec::new());
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for (i, container) in spec[list].as_array_mut().into_iter().flatten().enumerate() {
            if list == "initContainers" {
                container["name"] = format!("i{i}").into();
                // As a sidecar it may have probes.
                container["restartPolicy"] = "Always".into();
            }
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                volumes.push(json!({"name": mount["name"], "emptyDir": {}}));
            }
            for device in container["volumeDevices"].as_array().into_iter().flatten() {
                volumes.push(
                    json!({"name": device["name"], "persistentVolumeClaim": {"claimName": "c"}}),
                );
            }
            let resources = &mut container["resources"];
            for claim in resources["claims"].as_array().into_iter().flatten() {
                claims.push(json!({"name": claim["name"], "resourceClaimName": "c"}));
            }
            if !resources["requests"].is_null() {
                resources["limits"] = resources["requests"].clone();
            }
        }
    }
    if !volumes.is_empty() && spec["volumes"].is_null() {
        spec["volumes"] = volumes.into();
    }
    if !claims.is_empty() && spec["resourceClaims"].is_null() {
        spec["resourceClaims"] = claims.into();
    }
    prune(spec);
}

/// Removes the nulls that indexing has made.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
            map.retain(|name, value| name != "resources" || value != &Value::Object(Map::new()));
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Returns whether a field is a list or a map.
pub(super) fn is_list(shape: &ValueShape) -> bool {
    matches!(
        shape,
        ValueShape::List(_) | ValueShape::Map(_) | ValueShape::Strings
    )
}
