//! Limit ranges, resource quotas and runtime classes: the answers of kube-apiserver 1.36 to the same requests.

use super::*;

const LIMITS: &str = "/api/v1/namespaces/default/limitranges";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn limit_range(name: &str, limits: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": limits}})
}

fn sized(name: &str, resources: Value) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = resources;
    pod
}

fn claim(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
}

fn service(name: &str, kind: &str, ports: u16) -> Value {
    let ports: Vec<Value> = (0..ports)
        .map(|i| json!({"name": format!("p{i}"), "port": 80 + i}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}

impl Cluster {
    /// The fault of an object, without the start that all messages share.
    async fn fault(&self, path: &str, object: &Value) -> (u16, String) {
        let reply = self.post(path, object).await;
        let answer = reply.json();
        let message = text(&answer, "/message").to_owned();
        for begin in [" is invalid: ", " is forbidden: "] {
            if let Some((_, rest)) = message.split_once(begin) {
                return (reply.status, rest.to_owned());
            }
        }
        (reply.status, message)
    }
}

#[tokio::test]
async fn limit_ranges_are_validated() {
    let cluster = Cluster::start().await;
    let cases = [
        (
            json!([{"type": "Bogus"}]),
            "spec.limits[0].type: Invalid value: \"Bogus\": must be a standard limit type or fully qualified",
        ),
        (
            json!([{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}]),
            "[spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1, spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1, spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1]",
        ),
        (
            json!([{"type": "PersistentVolumeClaim"}]),
            "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
        ),
        (
            json!([{"type": "Pod", "default": {"cpu": "1"}}]),
            "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
        ),
        (
            json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}]),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
        ),
        (
            json!([{"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}}]),
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
        ),
        (
            json!([{"type": "Container"}, {"type": "Container"}]),
            "spec.limits[1].type: Duplicate value: \"Container\"",
        ),
    ];
    for (limits, message) in cases {
        let fault = cluster.fault(LIMITS, &limit_range("bad", limits)).await;
        assert_eq!(fault, (422, message.to_owned()));
    }
}

#[tokio::test]
async fn containers_get_defaults_and_stay_within_bounds() {
    let cluster = Cluster::start().await;
    let limits = json!([
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1", "memory": "1Gi"},
            "default": {"cpu": "500m"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "1200m"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]);
    let range = cluster.create(LIMITS, &limit_range("lr", limits)).await;
    // The maximum becomes the default limit, and that the default request.
    assert_eq!(
        at(&range, "/spec/limits/0/defaultRequest"),
        &json!({"cpu": "500m", "memory": "1Gi"})
    );
    let created = cluster.create(PODS, &pod("plain")).await;
    let amounts = json!({"cpu": "500m", "memory": "1Gi"});
    assert_eq!(
        at(&created, "/spec/containers/0/resources"),
        &json!({"limits": amounts, "requests": amounts})
    );
    assert_eq!(
        at(&created, "/metadata/annotations")["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    );
    let mut three = pod("three");
    for name in ["d", "e"] {
        let more = json!({"name": name, "image": "registry.example/a:1"});
        if let Some(list) = three["spec"]["containers"].as_array_mut() {
            list.push(more);
        }
    }
    let cases = [
        (
            PODS,
            sized(
                "both",
                json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2", "memory": "2Gi"}}),
            ),
            "[minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi, cpu max limit to request ratio per Container is 4, but provided ratio is 40.000000, maximum cpu usage per Pod is 1200m, but limit is 2]",
        ),
        (
            PODS,
            sized(
                "ratio",
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "900m"}}),
            ),
            "cpu max limit to request ratio per Container is 4, but provided ratio is 9.000000",
        ),
        (
            PODS,
            three,
            "maximum cpu usage per Pod is 1200m, but limit is 1500m",
        ),
        (
            CLAIMS,
            claim("small", "500Mi"),
            "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi",
        ),
        (
            CLAIMS,
            claim("large", "3Gi"),
            "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
        ),
    ];
    for (path, object, message) in cases {
        assert_eq!(
            cluster.fault(path, &object).await,
            (403, message.to_owned())
        );
    }
    cluster.create(CLAIMS, &claim("fits", "1Gi")).await;
}

fn quota(hard: Value, rest: Value) -> Value {
    let mut quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": rest});
    quota["spec"]["hard"] = hard;
    quota
}

#[tokio::test]
async fn quotas_are_validated() {
    let cluster = Cluster::start().await;
    let selector = |scope: &str, operator: &str, values: Value| {
        let term = json!({"scopeName": scope, "operator": operator, "values": values});
        json!({"scopeSelector": {"matchExpressions": [term]}})
    };
    let cases = [
        (
            json!({"bogus": "1"}),
            json!({}),
            "[spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource type or fully qualified, spec.hard[bogus]: Invalid value: \"bogus\": must be a standard resource for quota]",
        ),
        (
            json!({"cpu": "-1"}),
            json!({}),
            "spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"pods": "1500m"}),
            json!({}),
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
        ),
        (
            json!({"pods": "1", "memory": "1"}),
            json!({"scopes": ["BestEffort"]}),
            "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
        ),
        (
            json!({"pods": "1"}),
            json!({"scopes": ["BestEffort", "NotBestEffort"]}),
            "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
        ),
        (
            json!({"pods": "1"}),
            selector("PriorityClass", "In", json!([])),
            "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        (
            json!({"services": "1"}),
            selector("PriorityClass", "Exists", Value::Null),
            "spec.scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"PriorityClass\",\"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource",
        ),
    ];
    for (hard, rest, message) in cases {
        let fault = cluster.fault(QUOTAS, &quota(hard, rest)).await;
        assert_eq!(fault, (422, message.to_owned()));
    }
    cluster
        .create(QUOTAS, &quota(json!({"pods": "1"}), json!({})))
        .await;
    let reply = cluster
        .merge(
            &format!("{QUOTAS}/q"),
            &json!({"spec": {"scopes": ["Terminating"]}}),
        )
        .await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "ResourceQuota \"q\" is invalid: spec.scopes: Invalid value: [\"Terminating\"]: field is immutable"
    );
}

#[tokio::test]
async fn objects_are_created_within_the_quota_of_their_namespace() {
    let cluster = Cluster::start().await;
    let hard = json!({"pods": "2", "requests.cpu": "1", "count/configmaps": "1", "services": "1",
        "services.nodeports": "1", "requests.example.com/gpu": "1"});
    cluster
        .create(QUOTAS, &quota(hard.clone(), json!({})))
        .await;
    let status = format!("{QUOTAS}/q/status");
    let small = |name| sized(name, json!({"requests": {"cpu": "100m"}}));
    // Until the controller has counted, usage is unknown; afterwards every pod is counted.
    cluster.create(PODS, &small("early")).await;
    cluster
        .merge(&status, &json!({"status": {"hard": hard}}))
        .await;
    let fault = cluster.fault(PODS, &small("unknown")).await;
    assert_eq!(
        fault.1,
        "status unknown for quota: q, resources: pods,requests.cpu,requests.example.com/gpu"
    );
    let used = json!({"pods": "1", "requests.cpu": "200m", "count/configmaps": "1", "services": "0",
        "services.nodeports": "0", "requests.example.com/gpu": "0"});
    cluster
        .merge(&status, &json!({"status": {"used": used}}))
        .await;
    let config = config_map("m", json!({}));
    let gpus = json!({"requests": {"cpu": "100m", "example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}});
    let cases = [
        (
            PODS,
            pod("unset"),
            "failed quota: q: must specify requests.cpu for: c",
        ),
        (
            PODS,
            sized("much", json!({"requests": {"cpu": "900m"}})),
            "exceeded quota: q, requested: requests.cpu=900m, used: requests.cpu=200m, limited: requests.cpu=1",
        ),
        (
            PODS,
            sized("gpus", gpus),
            "exceeded quota: q, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=0, limited: requests.example.com/gpu=1",
        ),
        (
            CONFIG_MAPS,
            config,
            "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1",
        ),
        (
            SERVICES,
            service("ports", "NodePort", 2),
            "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1",
        ),
    ];
    for (path, object, message) in cases {
        assert_eq!(
            cluster.fault(path, &object).await,
            (403, message.to_owned())
        );
    }
    let dry = cluster
        .post(&format!("{PODS}?dryRun=All"), &small("dry"))
        .await;
    assert_eq!(dry.status, 201, "{}", dry.text());
    cluster.create(PODS, &small("fits")).await;
    let counted = cluster.get(&format!("{QUOTAS}/q")).await.json();
    assert_eq!(at(&counted, "/status/used")["pods"], "2");
    assert_eq!(at(&counted, "/status/used")["requests.cpu"], "300m");
    let fault = cluster.fault(PODS, &small("third")).await;
    assert_eq!(
        fault.1,
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
    // A change is charged for its additional usage.
    cluster
        .create(SERVICES, &service("s", "ClusterIP", 2))
        .await;
    let reply = cluster
        .merge(
            &format!("{SERVICES}/s"),
            &json!({"spec": {"type": "NodePort"}}),
        )
        .await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let bigger = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "900m"}}}]}});
    let resize = format!("{PODS}/fits/resize");
    let strategic = "application/strategic-merge-patch+json";
    let reply = cluster.send_as("PATCH", &resize, strategic, &bigger).await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "pods \"fits\" is forbidden: exceeded quota: q, requested: requests.cpu=800m, used: requests.cpu=300m, limited: requests.cpu=1"
    );
}

#[tokio::test]
async fn scopes_select_the_pods_that_a_quota_counts() {
    let cluster = Cluster::start().await;
    let deadline = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
        pod
    };
    let affine = |name: &str| {
        let term = json!({"topologyKey": "zone", "namespaces": ["other"]});
        let mut pod = pod(name);
        pod["spec"]["affinity"]["podAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        pod
    };
    let burstable = |name: &str| sized(name, json!({"requests": {"cpu": "1"}}));
    type Make<'a> = &'a dyn Fn(&str) -> Value;
    let cases: [(&str, Make<'_>, Make<'_>); 5] = [
        ("Terminating", &deadline, &pod),
        ("NotTerminating", &pod, &deadline),
        ("BestEffort", &pod, &burstable),
        ("NotBestEffort", &burstable, &pod),
        ("CrossNamespacePodAffinity", &affine, &pod),
    ];
    for (scope, counted, other) in cases {
        let hard = json!({"pods": "0"});
        cluster
            .create(QUOTAS, &quota(hard.clone(), json!({"scopes": [scope]})))
            .await;
        let status = json!({"status": {"hard": hard, "used": hard}});
        cluster.merge(&format!("{QUOTAS}/q/status"), &status).await;
        let name = scope.to_lowercase();
        let (code, message) = cluster.fault(PODS, &counted(&name)).await;
        assert_eq!(code, 403, "{scope}: {message}");
        cluster.create(PODS, &other(&name)).await;
        cluster.delete(&format!("{QUOTAS}/q"), &Value::Null).await;
    }
}

#[tokio::test]
async fn a_pod_gets_the_overhead_and_the_constraints_of_its_runtime_class() {
    let cluster = Cluster::start().await;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"},
        "handler": "h", "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
    cluster.create(CLASSES, &class).await;
    let with = |name: &str, spec: Value| {
        let mut pod = pod(name);
        for (field, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        pod
    };
    let cases = [
        (
            json!({"runtimeClassName": "nope"}),
            "pod rejected: RuntimeClass \"nope\" not found",
        ),
        (
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            json!({"runtimeClassName": "heavy", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"runtimeClassName": "heavy", "nodeSelector": {"a": "c"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
        ),
    ];
    for (spec, message) in cases {
        let fault = cluster.fault(PODS, &with("refused", spec)).await;
        assert_eq!(fault, (403, message.to_owned()));
    }
    let own = json!([{"key": "k", "operator": "Equal", "value": "v"}]);
    let spec = json!({"runtimeClassName": "heavy", "nodeSelector": {"x": "y"}, "tolerations": own});
    let pod = cluster.create(PODS, &with("heavy", spec)).await;
    assert_eq!(at(&pod, "/spec/overhead"), &json!({"cpu": "250m"}));
    assert_eq!(at(&pod, "/spec/nodeSelector"), &json!({"a": "b", "x": "y"}));
    // The toleration of the class covers the toleration of the pod.
    let tolerations = at(&pod, "/spec/tolerations").as_array().map(Vec::len);
    assert_eq!(tolerations, Some(3), "{pod}");
}
