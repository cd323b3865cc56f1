//! The work of a check: twice the entries of a list are twice the work.

use super::kinds::created;
use super::*;
use crate::validation::must;

/// The number of values that the conditions of the rules read while an object is checked.
fn values_read(kind: GroupResource, object: Value) -> usize {
    let object = created(kind, object);
    must::take_values_read();
    strategy(kind).validate(&object);
    must::take_values_read()
}

#[test]
fn long_lists_are_checked_in_linear_time() {
    let ports = |n: usize| -> Value {
        (0..n)
            .map(|i| json!({"name": format!("p{i}"), "port": i + 1}))
            .collect()
    };
    let named = |n: usize, value: fn(usize) -> Value| -> Value { (0..n).map(value).collect() };
    type Object = Box<dyn Fn(usize) -> Value>;
    let kinds: Vec<(GroupResource, Object)> = vec![
        (
            gr("", "services"),
            Box::new(move |n| json!({"spec": {"ports": ports(n)}})),
        ),
        (
            gr("", "pods"),
            Box::new(move |n| {
                json!({"spec": {"containers": [{"name": "c", "image": "a:1",
            "env": named(n, |i| json!({"name": format!("E{i}"), "value": "v"})),
            "ports": named(n, |i| json!({"name": format!("p{i}"), "containerPort": i + 1}))}],
            "tolerations": named(n, |i| json!({"key": format!("k{i}"), "operator": "Exists"}))}})
            }),
        ),
        (
            gr("rbac.authorization.k8s.io", "clusterroles"),
            Box::new(move |n| {
                json!({
            "rules": named(n, |i| json!({"apiGroups": [""], "resources": [format!("r{i}")], "verbs": ["get"]}))})
            }),
        ),
        (
            gr("networking.k8s.io", "networkpolicies"),
            Box::new(move |n| {
                json!({"spec": {"podSelector": {},
            "ingress": named(n, |_| json!({"ports": [{"port": 80}], "from": [{"podSelector": {}}]}))}})
            }),
        ),
        (
            gr("networking.k8s.io", "ingresses"),
            Box::new(move |n| {
                json!({"spec": {
            "rules": named(n, |i| json!({"host": format!("h{i}.example.com"), "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}))}})
            }),
        ),
        (
            gr("resource.k8s.io", "resourceslices"),
            Box::new(move |n| {
                json!({"spec": {
            "driver": "a.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": named(n, |i| json!({"name": format!("d{i}")}))}})
            }),
        ),
        (
            gr("discovery.k8s.io", "endpointslices"),
            Box::new(move |n| {
                json!({"addressType": "IPv4",
            "endpoints": named(n, |i| json!({"addresses": [format!("10.1.0.{i}")]}))})
            }),
        ),
    ];
    for (kind, object) in kinds {
        let (small, large) = (
            values_read(kind, object(50)),
            values_read(kind, object(100)),
        );
        assert!(
            large <= 2 * small + 100,
            "{kind:?}: {small} values for 50 entries, {large} for 100"
        );
    }
}

#[test]
fn repeated_names_are_found_where_they_are() {
    let claims = gr("resource.k8s.io", "resourceclaims");
    let names = ["a", "b", "a", "c", "b", "a"];
    let requests = names.map(|name| json!({"name": name, "exactly": {"deviceClassName": "gpu"}}));
    let claim = created(claims, json!({"spec": {"devices": {"requests": requests}}}));
    let fields: Vec<String> = strategy(claims)
        .validate(&claim)
        .into_iter()
        .map(|e| e.field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.devices.requests[2]",
            "spec.devices.requests[4]",
            "spec.devices.requests[5]"
        ]
    );
}
