//! Typical mistakes in each kind, and the answers of Kubernetes 1.36.

use super::kinds::{created, printed, with};
use super::*;

/// A kind, a valid object of it, and changes with the one resulting error.
type Mistakes = (
    GroupResource,
    Value,
    &'static [(&'static str, &'static str, &'static str)],
);

fn networking() -> Vec<Mistakes> {
    vec![
        (
            gr("networking.k8s.io", "ingresses"),
            json!({"metadata": {"name": "i"}, "spec": {"rules": [{"host": "a.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}),
            &[
                (
                    "/spec/rules/0/http/paths/0/pathType",
                    "null",
                    "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
                ),
                (
                    "/spec/rules/0/http/paths/0/pathType",
                    r#""Glob""#,
                    r#"spec.rules[0].http.paths[0].pathType: Unsupported value: "Glob": supported values: "Exact", "ImplementationSpecific", "Prefix""#,
                ),
                (
                    "/spec/rules/0/http/paths/0/path",
                    r#""foo""#,
                    r#"spec.rules[0].http.paths[0].path: Invalid value: "foo": must be an absolute path"#,
                ),
                (
                    "/spec/rules/0/http/paths/0/path",
                    r#""/a//b""#,
                    r#"spec.rules[0].http.paths[0].path: Invalid value: "/a//b": must not contain '//'"#,
                ),
                (
                    "/spec/rules/0/http/paths/0/backend",
                    "{}",
                    r#"spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required"#,
                ),
                (
                    "/spec/rules/0/http/paths/0/backend/service/port",
                    "{}",
                    "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
                ),
                (
                    "/spec/rules/0/http/paths/0/backend/service/port/name",
                    r#""http""#,
                    r#"spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both port name & port number"#,
                ),
                (
                    "/spec/rules/0/http/paths/0/backend/service/name",
                    r#""""#,
                    "spec.rules[0].http.paths[0].backend.service.name: Required value",
                ),
                (
                    "/spec/rules/0/http/paths",
                    "[]",
                    "spec.rules[0].http.paths: Required value",
                ),
                (
                    "/spec/rules/0/host",
                    r#""1.2.3.4""#,
                    r#"spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address"#,
                ),
                ("/spec/rules/0/host", r#""*.example.com""#, ""),
                (
                    "/spec/rules",
                    "[]",
                    "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified",
                ),
            ],
        ),
        (
            gr("networking.k8s.io", "ingressclasses"),
            json!({"metadata": {"name": "i"}, "spec": {"controller": "example.com/a"}}),
            &[
                (
                    "/spec/controller",
                    r#""a""#,
                    r#"spec.controller: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")"#,
                ),
                (
                    "/spec/controller",
                    "null",
                    "spec.controller: Required value",
                ),
                (
                    "/spec/parameters",
                    r#"{"kind": "K", "name": "n", "scope": "Namespace"}"#,
                    "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
                ),
                (
                    "/spec/parameters",
                    r#"{"kind": "K", "name": "n", "scope": "World"}"#,
                    r#"spec.parameters.scope: Unsupported value: "World": supported values: "Cluster", "Namespace""#,
                ),
            ],
        ),
        (
            gr("networking.k8s.io", "networkpolicies"),
            json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}, "ingress": [
                {"ports": [{"port": 80}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}}),
            &[
                (
                    "/spec/ingress/0/ports/0/port",
                    "0",
                    "spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                ),
                (
                    "/spec/ingress/0/ports/0/endPort",
                    "79",
                    "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
                ),
                (
                    "/spec/ingress/0/ports/0",
                    r#"{"endPort": 81}"#,
                    "spec.ingress[0].ports[0].endPort: Invalid value: 81: may not be specified when `port` is not specified",
                ),
                (
                    "/spec/ingress/0/ports/0/protocol",
                    r#""ICMP""#,
                    r#"spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP""#,
                ),
                (
                    "/spec/ingress/0/from/0",
                    "{}",
                    "spec.ingress[0].from[0]: Required value: must specify a peer",
                ),
                (
                    "/spec/ingress/0/from/0/ipBlock/cidr",
                    r#""10.0.0.1""#,
                    r#"spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                ),
                (
                    "/spec/ingress/0/from/0/ipBlock/cidr",
                    r#""10.0.0.1/8""#,
                    r#"spec.ingress[0].from[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length"#,
                ),
                (
                    "/spec/ingress/0/from/0/ipBlock/except",
                    r#"["11.0.0.0/8"]"#,
                    r#"spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "11.0.0.0/8": must be a strict subset of `cidr`"#,
                ),
                (
                    "/spec/policyTypes",
                    r#"["Both"]"#,
                    r#"spec.policyTypes[0]: Unsupported value: "Both": supported values: "Ingress", "Egress""#,
                ),
            ],
        ),
        (
            gr("", "endpoints"),
            json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
            &[
                (
                    "/subsets/0/addresses",
                    "[]",
                    "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                ),
                (
                    "/subsets/0/addresses/0/ip",
                    r#""127.0.0.1""#,
                    r#"subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                ),
                (
                    "/subsets/0/addresses/0/hostname",
                    r#""A""#,
                    r#"subsets[0].addresses[0].hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
                ),
                (
                    "/subsets/0/ports/0/port",
                    "70000",
                    "subsets[0].ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                ),
                (
                    "/subsets/0/ports/0/protocol",
                    r#""ICMP""#,
                    r#"subsets[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
                ),
            ],
        ),
        (
            gr("discovery.k8s.io", "endpointslices"),
            json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"name": "a", "port": 80}]}),
            &[
                (
                    "/endpoints/0/addresses",
                    "[]",
                    "endpoints[0].addresses: Required value: must contain at least 1 address",
                ),
                (
                    "/endpoints/0/addresses/0",
                    r#""::1:2""#,
                    r#"endpoints[0].addresses: Invalid value: "::1:2": must be an IPv4 address"#,
                ),
                (
                    "/ports",
                    r#"[{"name": "a"}, {"name": "a"}]"#,
                    r#"ports[1].name: Duplicate value: "a""#,
                ),
                (
                    "/ports/0/protocol",
                    r#""ICMP""#,
                    r#"ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
                ),
                (
                    "/endpoints/0/hints",
                    r#"{"forZones": [{"name": "a"}, {"name": "a"}]}"#,
                    r#"endpoints[0].hints.forZones[1].name: Duplicate value: "a""#,
                ),
            ],
        ),
        (
            gr("", "services"),
            json!({"metadata": {"name": "s", "uid": "u"}, "spec": {"type": "LoadBalancer", "ports": [{"name": "a", "port": 80}]}}),
            &[
                (
                    "/spec/clusterIP",
                    r#""x""#,
                    r#"spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                ),
                (
                    "/spec/clusterIP",
                    r#""None""#,
                    r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for LoadBalancer services"#,
                ),
                (
                    "/spec/ipFamilies",
                    r#"["IPv5"]"#,
                    r#"spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6""#,
                ),
                (
                    "/spec/ipFamilyPolicy",
                    r#""RequireDualStack""#,
                    r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
                ),
                (
                    "/spec/ipFamilyPolicy",
                    r#""Both""#,
                    r#"spec.ipFamilyPolicy: Unsupported value: "Both": supported values: "PreferDualStack", "RequireDualStack", "SingleStack""#,
                ),
                (
                    "/spec/loadBalancerSourceRanges",
                    r#"["10.0.0.0"]"#,
                    r#"spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                ),
                (
                    "/spec/loadBalancerClass",
                    r#""a b""#,
                    r#"spec.loadBalancerClass: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
                ),
                (
                    "/spec/externalIPs",
                    r#"["127.0.0.1"]"#,
                    r#"spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                ),
                (
                    "/spec/externalTrafficPolicy",
                    r#""Far""#,
                    r#"spec.externalTrafficPolicy: Unsupported value: "Far": supported values: "Cluster", "Local""#,
                ),
                (
                    "/spec/internalTrafficPolicy",
                    r#""Far""#,
                    r#"spec.internalTrafficPolicy: Unsupported value: "Far": supported values: "Cluster", "Local""#,
                ),
                (
                    "/spec/trafficDistribution",
                    r#""Far""#,
                    r#"spec.trafficDistribution: Unsupported value: "Far": supported values: "PreferClose", "PreferSameZone", "PreferSameNode""#,
                ),
                (
                    "/spec/healthCheckNodePort",
                    "31000",
                    "spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
                ),
                (
                    "/spec/ports/0/nodePort",
                    "80",
                    "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
                ),
                (
                    "/spec/ports",
                    r#"[{"name": "a", "port": 80}, {"name": "a", "port": 81}]"#,
                    r#"spec.ports[1].name: Duplicate value: "a""#,
                ),
                (
                    "/spec/sessionAffinity",
                    r#""Cookie""#,
                    r#"spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None""#,
                ),
            ],
        ),
    ]
}

fn storage() -> Vec<Mistakes> {
    vec![
        (
            gr("storage.k8s.io", "storageclasses"),
            json!({"metadata": {"name": "s"}, "provisioner": "a.example.com"}),
            &[
                ("/provisioner", r#""""#, "provisioner: Required value"),
                (
                    "/reclaimPolicy",
                    r#""Recycle""#,
                    r#"reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain""#,
                ),
                (
                    "/volumeBindingMode",
                    r#""Later""#,
                    r#"volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer""#,
                ),
                (
                    "/parameters",
                    r#"{"": "a"}"#,
                    r#"parameters: Invalid value: "": field can not be empty."#,
                ),
                (
                    "/allowedTopologies",
                    r#"[{"matchLabelExpressions": [{"key": "zone", "values": []}]}]"#,
                    "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                ),
                (
                    "/allowedTopologies",
                    r#"[{"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}]}]"#,
                    r#"allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a""#,
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "volumeattributesclasses"),
            json!({"metadata": {"name": "s"}, "driverName": "a.example.com", "parameters": {"a": "b"}}),
            &[
                (
                    "/parameters",
                    "null",
                    "parameters: Required value: must contain at least one key/value pair",
                ),
                (
                    "/driverName",
                    r#""a b""#,
                    r#"driverName: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "csidrivers"),
            json!({"metadata": {"name": "a.example.com"}, "spec": {}}),
            &[
                (
                    "/spec/fsGroupPolicy",
                    r#""Always""#,
                    r#"spec.fsGroupPolicy: Unsupported value: "Always": supported values: "File", "None", "ReadWriteOnceWithFSType""#,
                ),
                (
                    "/spec/volumeLifecycleModes",
                    r#"["Forever"]"#,
                    r#"spec.volumeLifecycleModes: Unsupported value: "Forever": supported values: "Persistent", "Ephemeral""#,
                ),
                (
                    "/spec/tokenRequests",
                    r#"[{"audience": "a"}, {"audience": "a"}]"#,
                    r#"spec.tokenRequests[1].audience: Duplicate value: "a""#,
                ),
                (
                    "/spec/tokenRequests",
                    r#"[{"audience": "a", "expirationSeconds": 5}]"#,
                    "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
                ),
                (
                    "/spec/nodeAllocatableUpdatePeriodSeconds",
                    "5",
                    "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds",
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "csinodes"),
            json!({"metadata": {"name": "n"}, "spec": {"drivers": [{"name": "a.example.com", "nodeID": "n"}]}}),
            &[
                (
                    "/spec/drivers/0/nodeID",
                    r#""""#,
                    "spec.drivers[0].nodeID: Required value",
                ),
                (
                    "/spec/drivers/0/name",
                    r#""""#,
                    "spec.drivers[0].name: Required value",
                ),
                (
                    "/spec/drivers/0/allocatable",
                    r#"{"count": -1}"#,
                    "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
                ),
                (
                    "/spec/drivers/0/topologyKeys",
                    r#"["a", "a"]"#,
                    r#"spec.drivers[0]: Duplicate value: "a""#,
                ),
                (
                    "/spec/drivers",
                    r#"[{"name": "a", "nodeID": "n"}, {"name": "a", "nodeID": "n"}]"#,
                    r#"spec.drivers[1].name: Duplicate value: "a""#,
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "volumeattachments"),
            json!({"metadata": {"name": "a"}, "spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
            &[
                ("/spec/attacher", r#""""#, "spec.attacher: Required value"),
                (
                    "/spec/source",
                    "{}",
                    "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                ),
                (
                    "/spec/source/persistentVolumeName",
                    r#""A""#,
                    r#"spec.source.persistentVolumeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
                ),
                (
                    "/spec/source",
                    r#"{"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "a", "volumeHandle": "h"}, "capacity": {"storage": "1"}}}"#,
                    "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                ),
            ],
        ),
        (
            gr("storage.k8s.io", "csistoragecapacities"),
            json!({"metadata": {"name": "a"}, "storageClassName": "a"}),
            &[(
                "/capacity",
                r#""-1""#,
                r#"capacity: Invalid value: "-1": must be greater than or equal to 0"#,
            )],
        ),
        (
            gr("", "persistentvolumes"),
            json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "a.example.com", "volumeHandle": "h"}}}),
            &[
                (
                    "/spec/csi",
                    r#"null"#,
                    "spec: Required value: must specify a volume type",
                ),
                (
                    "/spec/csi/volumeHandle",
                    r#""""#,
                    "spec.csi.volumeHandle: Required value",
                ),
                (
                    "/spec/csi/driver",
                    r#""""#,
                    "spec.csi.driver: Required value",
                ),
                (
                    "/spec/csi/nodePublishSecretRef",
                    r#"{"name": "s"}"#,
                    "spec.csi.nodePublishSecretRef.namespace: Required value",
                ),
                (
                    "/spec/local",
                    r#"{"path": "/a"}"#,
                    "spec.nodeAffinity: Required value: Local volume requires node affinity|spec.csi: Forbidden: may not specify more than 1 volume type",
                ),
                (
                    "/spec/accessModes",
                    r#"["Always"]"#,
                    r#"spec.accessModes: Unsupported value: "Always": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
                ),
                (
                    "/spec/persistentVolumeReclaimPolicy",
                    r#""Keep""#,
                    r#"spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain""#,
                ),
                (
                    "/spec/volumeAttributesClassName",
                    r#""""#,
                    "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
                ),
                (
                    "/spec/nodeAffinity",
                    "{}",
                    "spec.nodeAffinity.required: Required value: must specify required node constraints",
                ),
            ],
        ),
        (
            gr("", "persistentvolumes"),
            json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/a"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}}),
            &[
                (
                    "/spec/nodeAffinity",
                    "null",
                    "spec.nodeAffinity: Required value: Local volume requires node affinity",
                ),
                (
                    "/spec/local/path",
                    r#""""#,
                    "spec.local.path: Required value",
                ),
                (
                    "/spec/local/path",
                    r#""/a/../b""#,
                    r#"spec.local.path: Invalid value: "/a/../b": must not contain '..'"#,
                ),
            ],
        ),
        (
            gr("", "persistentvolumeclaims"),
            json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            &[
                (
                    "/spec/accessModes",
                    "[]",
                    "spec.accessModes: Required value: at least 1 access mode is required",
                ),
                (
                    "/spec/resources",
                    "{}",
                    "spec.resources[storage]: Required value",
                ),
                (
                    "/spec/dataSourceRef",
                    r#"{"kind": "VolumeSnapshot", "name": "s"}"#,
                    r#"spec.dataSource: Invalid value: "VolumeSnapshot": must be 'PersistentVolumeClaim' when referencing the default apiGroup|spec.dataSourceRef: Invalid value: "VolumeSnapshot": must be 'PersistentVolumeClaim' when referencing the default apiGroup"#,
                ),
                (
                    "/spec/dataSourceRef",
                    r#"{"apiGroup": "a.example.com", "kind": "K", "name": ""}"#,
                    "spec.dataSource.name: Required value|spec.dataSourceRef.name: Required value",
                ),
            ],
        ),
    ]
}

fn others() -> Vec<Mistakes> {
    vec![
        (
            gr("autoscaling", "horizontalpodautoscalers"),
            json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}}),
            &[
                (
                    "/spec/maxReplicas",
                    "0",
                    "spec.maxReplicas: Required value: must be set and greater than 0|spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                ),
                (
                    "/spec/minReplicas",
                    "4",
                    "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
                ),
                (
                    "/spec/minReplicas",
                    "0",
                    "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                ),
                (
                    "/spec/scaleTargetRef/kind",
                    r#""""#,
                    "spec.scaleTargetRef.kind: Required value",
                ),
                (
                    "/spec/scaleTargetRef/apiVersion",
                    r#""v1""#,
                    r#"spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group"#,
                ),
                (
                    "/spec/metrics/0/resource/name",
                    r#""""#,
                    "spec.metrics[0].resource.name: Required value: must specify a resource name",
                ),
                (
                    "/spec/metrics/0/resource/target/averageUtilization",
                    "0",
                    "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0",
                ),
                (
                    "/spec/metrics/0/resource/target/type",
                    r#""Share""#,
                    r#"spec.metrics[0].resource.target.type: Invalid value: "Share": must be either Utilization, Value, or AverageValue"#,
                ),
                (
                    "/spec/metrics/0/resource",
                    "null",
                    "spec.metrics[0].resource: Required value: must populate information for the given metric source",
                ),
                (
                    "/spec/metrics/0/pods",
                    r#"{"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}"#,
                    "spec.metrics[0].pods: Forbidden: must populate the given metric source only",
                ),
                (
                    "/spec/behavior/scaleDown/stabilizationWindowSeconds",
                    "3601",
                    "spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                ),
                (
                    "/spec/behavior/scaleDown/selectPolicy",
                    r#""Most""#,
                    r#"spec.behavior.scaleDown.selectPolicy: Unsupported value: "Most": supported values: "Disabled", "Max", "Min""#,
                ),
                (
                    "/spec/behavior/scaleDown/policies",
                    r#"[{"type": "Pods", "value": 0, "periodSeconds": 15}]"#,
                    "spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero",
                ),
                (
                    "/spec/behavior/scaleDown/policies",
                    r#"[{"type": "Pods", "value": 1, "periodSeconds": 1801}]"#,
                    "spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                ),
            ],
        ),
        (
            gr("resource.k8s.io", "resourceclaims"),
            json!({"metadata": {"name": "c"}, "spec": {"devices": {
                "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}],
                "constraints": [{"requests": ["r"], "matchAttribute": "a.example.com/model"}]}}}),
            &[
                (
                    "/spec/devices/constraints/0/matchAttribute",
                    "null",
                    r#"spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#,
                ),
                (
                    "/spec/devices/constraints/0/matchAttribute",
                    r#""model""#,
                    r#"spec.devices.constraints[0].matchAttribute: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash"#,
                ),
                (
                    "/spec/devices/constraints/0/requests/0",
                    r#""x""#,
                    r#"spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                ),
            ],
        ),
        (
            gr("", "pods"),
            json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never",
                "initContainers": [{"name": "i", "image": "a:1", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}],
                "containers": [{"name": "c", "image": "a:1", "restartPolicy": "Never",
                    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]}]}}),
            &[
                (
                    "/spec/containers/0/restartPolicyRules/0/action",
                    r#""Wait""#,
                    r#"spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Wait": supported values: "Restart", "RestartAllContainers""#,
                ),
                (
                    "/spec/containers/0/restartPolicyRules/0/exitCodes",
                    "null",
                    "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
                ),
                (
                    "/spec/initContainers/0/resizePolicy/0/restartPolicy",
                    r#""RestartContainer""#,
                    r#"spec.initContainers[0].resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when pod `restartPolicy` is 'Never'|spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers"#,
                ),
            ],
        ),
        (
            gr("", "pods"),
            json!({"metadata": {"name": "p"}, "spec": {
                "resources": {"requests": {"memory": "1Gi"}, "limits": {"hugepages-2Mi": "4Mi", "memory": "2Gi"}},
                "containers": [{"name": "c", "image": "a:1", "resources": {
                    "requests": {"cpu": "1500m", "memory": "64Mi"}, "limits": {"hugepages-2Mi": "4Mi", "cpu": "2"}}}]}}),
            &[
                // The pod names no CPU.
                ("/spec/containers/0/resources/requests/cpu", r#""2""#, ""),
                (
                    "/spec/resources/requests/memory",
                    r#""1Mi""#,
                    r#"spec.resources.requests[memory]: Invalid value: "1Mi": must be greater than or equal to aggregate container requests of 64Mi"#,
                ),
                (
                    "/spec/resources/claims",
                    r#"[{"name": "x"}]"#,
                    r#"spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level|spec.resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty"#,
                ),
                (
                    "/spec/resources/limits/hugepages-2Mi",
                    r#""2Mi""#,
                    r#"spec.resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container requests of 4Mi|spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container limits of 4Mi|spec.resources.containers[0][hugepages-2Mi].limits: Invalid value: "4Mi": must be less than or equal to pod limits of 2Mi"#,
                ),
            ],
        ),
    ]
}

#[test]
fn mistakes_are_reported_as_by_kubernetes() {
    let kinds = networking().into_iter().chain(storage()).chain(others());
    for (kind, object, mistakes) in kinds {
        assert_eq!(
            printed(&strategy(kind).validate(&created(kind, object.clone()))),
            [""; 0],
            "{kind:?}"
        );
        for (pointer, value, expect) in mistakes {
            let value: Value = serde_json::from_str(value).expect("JSON");
            let changed = created(kind, with(&object, pointer, value.clone()));
            let errors = printed(&strategy(kind).validate(&changed));
            let expect: Vec<&str> = expect.split('|').filter(|e| !e.is_empty()).collect();
            assert_eq!(errors, expect, "{kind:?} {pointer} {value}");
        }
    }
}
