mod combinations;
mod gates;
mod narrowing;
mod updates;

use super::*;
use crate::access::gr;
use crate::kinds::strategy;
use serde_json::json;

/// The rules of the tables and of the code, together.
fn rules() -> &'static dyn KindStrategy {
    strategy(gr("", "pods"))
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {
        "containers": [{"name": "c", "image": "registry.example/a:1"}]}});
    for (name, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][name] = value.clone();
    }
    rules().default(&mut pod);
    pod
}

/// A pod whose only container has these fields in addition to its name and image.
fn with_container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "a:1"});
    for (name, value) in fields.as_object().into_iter().flatten() {
        container[name] = value.clone();
    }
    json!({"containers": [container]})
}

fn printed(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The errors of a change of a pod.
fn errors_of_update(new: &Value, old: &Value) -> Vec<String> {
    printed(&rules().validate_update(new, old, Subresource::Main))
}

/// Creates a pod with this spec and compares the errors.
#[track_caller]
fn check(spec: Value, expected: &[&str]) {
    let shown = spec.to_string();
    assert_eq!(printed(&rules().validate(&pod(spec))), expected, "{shown}");
}

#[track_caller]
fn check_update(old: Value, new: Value, expected: &[&str]) {
    let shown = format!("{old} -> {new}");
    let errors = rules().validate_update(&pod(new), &pod(old), Subresource::Main);
    let first_lines: Vec<String> = printed(&errors)
        .iter()
        .map(|e| e.lines().next().unwrap_or("").to_owned())
        .collect();
    assert_eq!(first_lines, expected, "{shown}");
}

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const FIXED: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

#[test]
fn a_plain_pod_is_valid() {
    check(json!({}), &[]);
    let containers = "spec.containers: Required value";
    check(json!({"containers": null}), &[containers]);
    check(json!({"containers": []}), &[containers]);
}

#[test]
fn containers_need_a_name_an_image_and_sound_ports() {
    check(
        json!({"containers": []}),
        &["spec.containers: Required value"],
    );
    check(
        json!({"containers": [{}]}),
        &[
            "spec.containers[0].name: Required value",
            "spec.containers[0].image: Required value",
        ],
    );
    check(
        json!({"containers": [{"name": "C", "image": "a"}, {"name": "b", "image": " a"}, {"name": "b", "image": "a"}]}),
        &[
            &format!("spec.containers[0].name: Invalid value: \"C\": {DNS_LABEL}"),
            "spec.containers[2].name: Duplicate value: \"b\"",
            "spec.containers[1].image: Invalid value: \" a\": must not have leading or trailing whitespace",
        ],
    );
    check(
        with_container(json!({"imagePullPolicy": "Sometimes", "terminationMessagePolicy": "Loud"})),
        &[
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Loud\": supported values: \"File\", \"FallbackToLogsOnError\"",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    check(
        with_container(json!({"ports": [
            {"containerPort": 0}, {"containerPort": 70000, "protocol": "ICMP"},
            {"containerPort": 80, "name": "http", "hostPort": 8080},
            {"containerPort": 81, "name": "http", "hostPort": 8080},
        ]})),
        &[
            "spec.containers[0].ports[0].containerPort: Required value",
            "spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[1].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.containers[0].ports[3].name: Duplicate value: \"http\"",
            "spec.containers[0].ports[3].hostPort: Duplicate value: \"TCP//8080\"",
        ],
    );
    check(
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 81}]}]}),
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
        ],
    );
}

#[test]
fn init_containers_do_not_probe_unless_they_stay() {
    let probe = json!({"exec": {"command": ["x"]}});
    check(
        json!({"initContainers": [{"name": "c", "image": "a", "livenessProbe": probe}]}),
        &[
            "spec.initContainers[0].name: Duplicate value: \"c\"",
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
    check(
        json!({"initContainers": [{"name": "i", "image": "a", "restartPolicy": "Always", "livenessProbe": probe}]}),
        &[],
    );
    check(
        json!({"ephemeralContainers": [{"name": "e", "image": "a"}]}),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
}

#[test]
fn environment_and_probes() {
    check(
        with_container(json!({"env": [
            {"name": ""},
            {"name": "a=b"},
            {"name": "A", "valueFrom": {}},
            {"name": "B", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "spec.color"}}},
            {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}},
            {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}},
        ], "envFrom": [{}]})),
        &[
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].env[1].name: Invalid value: \"a=b\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            "spec.containers[0].env[2].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            "spec.containers[0].env[3].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            "spec.containers[0].env[4].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
            "spec.containers[0].env[5].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.color\": error converting fieldPath: field label not supported: spec.color",
            "spec.containers[0].env[7].valueFrom.resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource",
            "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
        ],
    );
    check(
        with_container(json!({
            "livenessProbe": {"successThreshold": 2, "periodSeconds": -1},
            "readinessProbe": {"httpGet": {"port": "not a port", "scheme": "FTP"}, "tcpSocket": {"port": 1}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 31}}},
        })),
        &[
            "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "spec.containers[0].readinessProbe.httpGet.port: Invalid value: \"not a port\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "spec.containers[0].readinessProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
            "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ],
    );
}

#[test]
fn resources() {
    let cases: &[(Value, &[&str])] = &[
        (
            json!({"requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}),
            &[],
        ),
        (
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ],
        ),
        (
            json!({"requests": {"cpu": "-1"}}),
            &[
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        ),
        (
            json!({"requests": {"storage": "1"}}),
            &[
                "spec.containers[0].resources.requests[storage]: Invalid value: \"storage\": must be a standard resource for containers",
            ],
        ),
        (
            json!({"requests": {"gpus": "1"}}),
            &[
                "spec.containers[0].resources.requests[gpus]: Invalid value: \"gpus\": must be a standard resource type or fully qualified",
                "spec.containers[0].resources.requests[gpus]: Invalid value: \"gpus\": must be a standard resource for containers",
            ],
        ),
        (
            json!({"requests": {"example.com/gpu": "1"}}),
            &[
                "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
            ],
        ),
        (
            json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
            &[
                "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to example.com/gpu limit of 2",
            ],
        ),
        (
            json!({"limits": {"example.com/gpu": "500m"}}),
            &[
                "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"500m\": must be an integer",
                "spec.containers[0].resources.requests[example.com/gpu]: Invalid value: \"500m\": must be an integer",
            ],
        ),
        (
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
        ),
        (
            json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            &[
                "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ],
        ),
        (
            json!({"claims": [{"name": "x"}]}),
            &[
                "spec.containers[0].resources.claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims which is empty",
            ],
        ),
    ];
    for (resources, expected) in cases {
        check(with_container(json!({"resources": resources})), expected);
    }
    check(
        json!({"overhead": {"cpu": "-1m"}, "resources": {"requests": {"example.com/gpu": "1"}},
            "resourceClaims": [{"name": "a"}, {"name": "a", "resourceClaimName": "x"}]}),
        &[
            "spec.resourceClaims[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            "spec.resourceClaims[1].name: Duplicate value: \"a\"",
            "spec.resources.requests[example.com/gpu]: Unsupported value: \"example.com/gpu\": supported values: \"cpu\", \"hugepages-\", \"memory\"",
            "spec.resources.limits: Required value: Limit must be set for non overcommitable resources",
            "spec.overhead.limits[cpu]: Invalid value: \"-1m\": must be greater than or equal to 0",
        ],
    );
}

#[test]
fn volumes_and_mounts() {
    let mut spec = with_container(json!({"volumeMounts": [
        {"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}, {"name": "x", "mountPath": ""},
        {"name": "a", "mountPath": "/c", "subPath": "../x"},
    ]}));
    spec["volumes"] = json!([
        {"name": "a", "emptyDir": {}},
        {"name": "a", "emptyDir": {"sizeLimit": "-1"}},
        {"name": "b", "configMap": {"name": "m"}, "secret": {"secretName": "s"}},
        {"name": "c", "hostPath": {"path": "/../x", "type": "Odd"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "e", "secret": {"secretName": "s", "defaultMode": 512}},
    ]);
    check(
        spec,
        &[
            "spec.volumes[1].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
            "spec.volumes[1].name: Duplicate value: \"a\"",
            "spec.volumes[2].configMap: Forbidden: may not specify more than 1 volume type",
            "spec.volumes[3].hostPath.path: Invalid value: \"/../x\": must not contain '..'",
            "spec.volumes[3].hostPath.type: Unsupported value: \"Odd\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
            "spec.volumes[5].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "spec.containers[0].volumeMounts[1].name: Not found: \"b\"",
            "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
            "spec.containers[0].volumeMounts[2].name: Not found: \"x\"",
            "spec.containers[0].volumeMounts[2].mountPath: Required value",
            "spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'",
            "spec.volumes[4].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
        ],
    );
}

#[test]
fn scheduling_directives() {
    check(
        json!({
            "nodeSelector": {"bad key": "v"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                    "matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Maybe"},
                        {"key": "a", "operator": "Exists", "values": ["x"]}],
                    "matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}],
                }]}},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"matchLabelKeys": ["a"]}]},
            },
        }),
        &[
            &format!("spec.nodeSelector: Invalid value: \"bad key\": {NAME_PART}"),
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].operator: Invalid value: \"Maybe\": not a valid selector operator",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key: Invalid value: \"metadata.uid\": not a valid field selector key",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": name part must be non-empty",
            &format!(
                "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: \"\": {NAME_PART}"
            ),
        ],
    );
    check(
        json!({"tolerations": [
            {"key": "a", "operator": "Exists", "value": "x"},
            {"key": "a", "value": "x", "effect": "Never"},
            {"key": "a", "value": "x", "effect": "NoSchedule", "tolerationSeconds": 1},
        ]}),
        &[
            "spec.tolerations[0].operator: Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
            "spec.tolerations[1].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            "spec.tolerations[2].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ],
    );
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0,
        "nodeTaintsPolicy": "Perhaps", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]});
    check(
        json!({"topologySpreadConstraints": [constraint, {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
        &[
            "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, ScheduleAnyway}\"",
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: \"Perhaps\": supported values: \"Honor\", \"Ignore\"",
        ],
    );
    check(
        json!({"restartPolicy": "Sometimes", "dnsPolicy": "None", "nodeName": "N", "hostname": "a.b",
            "preemptionPolicy": "Maybe", "activeDeadlineSeconds": 0, "terminationGracePeriodSeconds": 0}),
        &[
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            "spec.nodeName: Invalid value: \"N\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            "spec.hostname: Invalid value: \"a.b\": must not contain dots",
            "spec.preemptionPolicy: Unsupported value: \"Maybe\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ],
    );
}

#[test]
fn security_contexts() {
    let mut spec = with_container(json!({"securityContext": {
        "runAsUser": -1, "allowPrivilegeEscalation": false, "privileged": true,
        "seccompProfile": {"type": "Localhost"}, "procMount": "Unmasked"}}));
    spec["securityContext"] =
        json!({"fsGroup": -1, "sysctls": [{"name": "net.a"}, {"name": "Bad"}]});
    spec["hostNetwork"] = json!(true);
    check(
        spec,
        &[
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            "spec.containers[0].securityContext: Invalid value: {\"allowPrivilegeEscalation\":false,\"privileged\":true,\"procMount\":\"Unmasked\",\"runAsUser\":-1,\"seccompProfile\":{\"type\":\"Localhost\"}}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.a\": may not be specified when 'hostNetwork' is true",
            "spec.securityContext.sysctls[1].name: Invalid value: \"Bad\": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ],
    );
}

#[test]
fn the_status_is_checked_on_its_own() {
    let with_status = |status: Value| json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never"}, "status": status});
    let old = with_status(json!({"qosClass": "Burstable", "containerStatuses": [
        {"name": "c", "state": {"terminated": {"exitCode": 1}}}]}));
    let new = with_status(json!({"qosClass": "Guaranteed", "nominatedNodeName": "N",
        "conditions": [{"type": "bad type"}, {"type": "Ready"}],
        "containerStatuses": [{"name": "c", "state": {"running": {}}}],
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}],
        "hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.8"}],
        "resourceClaimStatuses": [{"name": "x"}]}));
    let errors = rules().validate_update(&new, &old, Subresource::Status);
    let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "status.conditions[0].Type",
            "status.nominatedNodeName",
            "status.qosClass",
            "status.containerStatuses[0].state",
            "status.resourceClaimStatuses[0].name",
            "status.podIPs",
            "status.hostIPs[0].ip",
        ]
    );
    assert_eq!(rules().validate_update(&old, &old, Subresource::Status), []);
}

#[test]
fn annotations_mean_something() {
    let annotated = |annotations: Value| {
        let mut pod = pod(json!({}));
        pod["metadata"]["annotations"] = annotations;
        pod
    };
    let cases = [
        (
            json!({"controller.kubernetes.io/pod-deletion-cost": "-5"}),
            vec![],
        ),
        (
            json!({"controller.kubernetes.io/pod-deletion-cost": "a lot"}),
            vec!["metadata.annotations[controller.kubernetes.io/pod-deletion-cost]"],
        ),
        (
            json!({"kubernetes.io/config.mirror": "x"}),
            vec!["metadata.annotations[kubernetes.io/config.mirror]"],
        ),
        (
            json!({"container.apparmor.security.beta.kubernetes.io/other": "unconfined"}),
            vec!["metadata.annotations[container.apparmor.security.beta.kubernetes.io/other]"],
        ),
    ];
    for (annotations, expected) in cases {
        let errors = rules().validate(&annotated(annotations));
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, expected);
    }
    let mirror = annotated(json!({"kubernetes.io/config.mirror": "x"}));
    let errors = rules().validate_update(&pod(json!({})), &mirror, Subresource::Main);
    assert_eq!(
        printed(&errors),
        [
            "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"
        ]
    );
}

#[test]
fn deletion_waits_for_the_node() {
    let cases = [
        (
            json!({"spec": {"terminationGracePeriodSeconds": 30}}),
            None,
            None,
        ),
        (
            json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}}),
            None,
            Some(30),
        ),
        (
            json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}}),
            Some(5),
            Some(5),
        ),
        (
            json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}}),
            Some(0),
            None,
        ),
        (
            json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": -1}}),
            None,
            Some(1),
        ),
        (
            json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Succeeded"}}),
            None,
            None,
        ),
    ];
    for (pod, requested, expected) in cases {
        assert_eq!(
            rules().grace_period_seconds(&pod, requested),
            expected,
            "{pod}"
        );
    }
}
