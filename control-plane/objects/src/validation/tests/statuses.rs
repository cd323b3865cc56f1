//! The checks of the status of each kind but Jobs.

use super::kinds::created;
use super::*;

/// The errors of writing `after` over the status `before`.
fn write(kind: GroupResource, object: &Value, before: &Value, after: &Value) -> Vec<String> {
    let rules = strategy(kind);
    let mut old = created(kind, object.clone());
    old["status"] = before.clone();
    let mut new = old.clone();
    new["status"] = after.clone();
    rules.default(&mut new);
    rules.prepare_for_update(&mut new, &old, Subresource::Status, "");
    let errors = rules.validate_update(&new, &old, Subresource::Status);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_status_is_checked_as_by_kubernetes() {
    let meta = json!({"name": "x", "uid": "u"});
    let service =
        |kind: &str| json!({"metadata": meta, "spec": {"type": kind, "ports": [{"port": 80}]}});
    let budget = json!({"metadata": meta, "spec": {"minAvailable": 1}});
    let claim = json!({"metadata": meta, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let ingress = json!({"metadata": meta, "spec": {"defaultBackend": {
        "service": {"name": "a", "port": {"number": 80}}}}});
    let attachment = json!({"metadata": meta, "spec": {"attacher": "a.example.com", "nodeName": "n",
        "source": {"persistentVolumeName": "v"}}});
    let autoscaler = json!({"metadata": meta, "spec": {"maxReplicas": 2,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let condition = |change: Value| {
        let mut condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        for (field, value) in change.as_object().into_iter().flatten() {
            condition[field] = value.clone();
        }
        json!({"conditions": [condition]})
    };
    let (services, budgets) = (gr("", "services"), gr("policy", "poddisruptionbudgets"));
    let ingresses = gr("networking.k8s.io", "ingresses");
    let attachments = gr("storage.k8s.io", "volumeattachments");
    let balancer = |ingress: Value| json!({"loadBalancer": {"ingress": [ingress]}});
    let cases = [
        (
            services,
            service("LoadBalancer"),
            balancer(json!({"ip": "1.2.3.4"})),
            "",
        ),
        (
            services,
            service("LoadBalancer"),
            balancer(json!({"ip": "1.2.3"})),
            r#"status.loadBalancer.ingress[0].ip: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ),
        (
            services,
            service("LoadBalancer"),
            balancer(json!({"ip": "1.2.3.4", "ipMode": "Other"})),
            r#"status.loadBalancer.ingress[0].ipMode: Unsupported value: "Other": supported values: "Proxy", "VIP""#,
        ),
        (
            services,
            service("LoadBalancer"),
            balancer(json!({"hostname": "a.example.com", "ipMode": "VIP"})),
            "status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set",
        ),
        (
            services,
            service("LoadBalancer"),
            balancer(json!({"hostname": "1.2.3.4"})),
            r#"status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address"#,
        ),
        (
            services,
            service("ClusterIP"),
            balancer(json!({"ip": "1.2.3.4"})),
            "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
        ),
        (
            ingresses,
            ingress.clone(),
            balancer(json!({"ip": "1.2.3"})),
            r#"status.loadBalancer.ingress[0].ip: Invalid value: "1.2.3": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ),
        (
            ingresses,
            ingress,
            balancer(json!({"hostname": "a.example.com"})),
            "",
        ),
        (budgets, budget.clone(), condition(json!({})), ""),
        (
            budgets,
            budget.clone(),
            condition(json!({"status": "Maybe"})),
            r#"status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown""#,
        ),
        (
            budgets,
            budget.clone(),
            condition(json!({"reason": ""})),
            "status.conditions[0].reason: Required value",
        ),
        (
            budgets,
            budget.clone(),
            condition(json!({"observedGeneration": -1})),
            "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
        ),
        (
            budgets,
            budget,
            json!({"disruptionsAllowed": -1}),
            "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            gr("", "persistentvolumeclaims"),
            claim.clone(),
            json!({"capacity": {"storage": "-1Gi"}}),
            "status.capacity[storage]: Invalid value: -1073741824: must be a valid resource quantity",
        ),
        (
            gr("", "persistentvolumeclaims"),
            claim.clone(),
            json!({"allocatedResourceStatuses": {"storage": "Growing"}}),
            r#"status.allocatedResourceStatuses: Unsupported value: "storage": supported values: "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending""#,
        ),
        (
            gr("", "persistentvolumeclaims"),
            claim,
            json!({"allocatedResources": {"cpu": "1"}}),
            r#"status.allocatedResources: Unsupported value: "cpu": supported values: "storage""#,
        ),
        (
            attachments,
            attachment.clone(),
            json!({"attached": true, "attachError": {"message": "m", "errorCode": -1}}),
            "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        (
            attachments,
            attachment,
            json!({"attached": true, "attachError": {"message": "m".repeat(1_025)}}),
            "status.attachError.message: Too long: may not be more than 262144 bytes",
        ),
        (
            gr("autoscaling", "horizontalpodautoscalers"),
            autoscaler,
            json!({"currentReplicas": -1}),
            "status.currentReplicas: Invalid value: -1: must be greater than or equal to 0",
        ),
    ];
    for (kind, object, status, expect) in cases {
        let errors = write(kind, &object, &json!({}), &status);
        let expect: Vec<&str> = [expect].into_iter().filter(|e| !e.is_empty()).collect();
        assert_eq!(errors, expect, "{kind:?} {status}");
    }
}

#[test]
fn the_status_of_a_claim_is_about_its_requests_and_devices() {
    let claims = gr("resource.k8s.io", "resourceclaims");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "gpu"}},
        {"name": "s", "firstAvailable": [{"name": "small", "deviceClassName": "gpu"}]}]}}});
    let result = |change: Value| {
        let mut result =
            json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"});
        for (field, value) in change.as_object().into_iter().flatten() {
            result[field] = value.clone();
        }
        json!({"allocation": {"devices": {"results": [result]}}})
    };
    const AT: &str = "status.allocation.devices.results[0]";
    let no_request = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let mut used = result(json!({}));
    used["reservedFor"] = json!([{"resource": "pods", "name": "p", "uid": "1"}]);
    let mut reported = used.clone();
    reported["devices"] = json!([{"driver": "gpu.example.com", "pool": "p", "device": "other"}]);
    let cases = [
        (used.clone(), vec![]),
        (result(json!({"request": "s/small"})), vec![]),
        (result(json!({"request": "x"})), vec![format!(r#"{AT}.request: Invalid value: "x": {no_request}"#)]),
        (result(json!({"request": "s/large"})), vec![format!(r#"{AT}.request: Invalid value: "s/large": {no_request}"#)]),
        (result(json!({"driver": ""})), vec![format!("{AT}.driver: Required value")]),
        (result(json!({"pool": ""})), vec![format!("{AT}.pool: Required value")]),
        (result(json!({"shareID": "1"})), vec![format!(r#"{AT}.shareID: Invalid value: "1": error validating uid: invalid UUID length: 1"#)]),
        (result(json!({"bindingConditions": ["a"]})), vec![format!("{AT}.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions")]),
        (json!({"reservedFor": used["reservedFor"]}), vec!["status.reservedFor: Forbidden: may not be specified when `allocated` is not set".to_owned()]),
        (reported, vec![r#"status.devices[0]: Invalid value: {"Driver":"gpu.example.com","Pool":"p","Device":"other","ShareID":""}: must be an allocated device in the claim"#.to_owned()]),
    ];
    for (status, expect) in cases {
        assert_eq!(
            write(claims, &claim, &json!({}), &status),
            expect,
            "{status}"
        );
    }
    let errors = write(claims, &claim, &used, &result(json!({"device": "e"})));
    assert!(
        matches!(errors.as_slice(), [one] if one.ends_with("field is immutable")),
        "{errors:?}"
    );
}

#[test]
fn the_status_of_a_pod_is_about_its_containers() {
    let pods = gr("", "pods");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [
        {"name": "c", "image": "a:1", "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}],
        "resourceClaims": [{"name": "r", "resourceClaimName": "x"}]}});
    let cases = [
        (
            json!({"conditions": [{"type": "a b", "status": "True"}]}),
            "status.conditions[0].Type",
        ),
        (
            json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": -1}]}),
            "status.conditions[0].observedGeneration",
        ),
        (
            json!({"nominatedNodeName": "m"}),
            "status.nominatedNodeName",
        ),
        (
            json!({"observedGeneration": -1}),
            "status.observedGeneration",
        ),
        (
            json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "A b"}]}),
            "status.resourceClaimStatuses[0].resourceClaimName",
        ),
        (
            json!({"podIP": "1.2.3", "podIPs": [{"ip": "1.2.3"}]}),
            "status.podIPs[0]",
        ),
        (
            json!({"containerStatuses": [{"name": "c", "user": {"linux": {"uid": -1, "gid": 0}}}]}),
            "status.containerStatuses[0].user.linux.uid",
        ),
        (
            json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": "example.com/fpga"}]}]}),
            "status.containerStatuses[0].allocatedResourcesStatus[0].name",
        ),
        (
            json!({"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": "example.com/gpu", "resources": [{"resourceID": "a", "health": "Fine"}]}]}]}),
            "status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health",
        ),
        (
            json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [{"containerName": "d", "resourceName": "example.com/gpu", "requestName": "q"}]}}),
            "status.extendedResourceClaimStatus.requestMappings[0].containerName",
        ),
    ];
    for (status, field) in cases {
        let mut after = json!({"qosClass": "BestEffort"});
        let before = after.clone();
        for (name, value) in status.as_object().into_iter().flatten() {
            after[name] = value.clone();
        }
        let errors = write(pods, &pod, &before, &after);
        let starts = format!("{field}: ");
        assert!(
            matches!(errors.as_slice(), [one] if one.starts_with(&starts)),
            "{status}: {errors:?}"
        );
    }
}
