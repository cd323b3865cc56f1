//! ServiceCIDRs and the addresses of Services. The texts equal kube-apiserver 1.36's.

use super::*;

const GROUP: &str = "/apis/networking.k8s.io/v1";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

fn cidr(name: &str, cidrs: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": name}, "spec": {"cidrs": cidrs},
    })
}

impl Cluster {
    async fn ready(&self, name: &str, status: &str) -> Value {
        let path = format!("{GROUP}/servicecidrs/{name}");
        let reached = async {
            loop {
                let cidr = self.get(&path).await.json();
                let condition = at(&cidr, "/status/conditions/0");
                if text(condition, "/status") == status {
                    return cidr;
                }
                tokio::task::yield_now().await;
            }
        };
        match timeout(PATIENCE, reached).await {
            Ok(cidr) => cidr,
            Err(_) => panic!("{name}: never {status}"),
        }
    }
}

#[tokio::test]
async fn each_service_has_an_address_object() {
    let cluster = Cluster::start().await;
    let default = cluster.ready("kubernetes", "True").await;
    assert_eq!(at(&default, "/spec/cidrs"), &json!(["10.96.0.0/12"]));
    assert_eq!(
        at(&default, "/metadata/finalizers"),
        &json!(["networking.k8s.io/service-cidr-finalizer"])
    );
    assert_eq!(
        text(&default, "/status/conditions/0/message"),
        "Kubernetes default Service CIDR is ready"
    );
    let own = cluster.get(&format!("{GROUP}/ipaddresses/10.96.0.1")).await;
    assert_eq!(
        at(&own.json(), "/spec/parentRef"),
        &json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );
    let created = cluster.create(SERVICES, &service("a", json!({}))).await;
    let address = text(&created, "/spec/clusterIP");
    let path = format!("{GROUP}/ipaddresses/{address}");
    let object = cluster.get(&path).await.json();
    assert_eq!(
        at(&object, "/metadata/labels"),
        &json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"})
    );
    // A headless service, an external name and a dry run have none.
    let before = names(&cluster.get(&format!("{GROUP}/ipaddresses")).await.json());
    cluster
        .create(SERVICES, &service("b", json!({"clusterIP": "None"})))
        .await;
    let external = json!({"type": "ExternalName", "externalName": "example.com"});
    cluster.create(SERVICES, &service("c", external)).await;
    let dry = format!("{SERVICES}?dryRun=All");
    cluster.create(&dry, &service("d", json!({}))).await;
    let list = format!("{GROUP}/ipaddresses");
    assert_eq!(names(&cluster.get(&list).await.json()), before);
    // The address is free again when the service changes its type or is deleted.
    let change = json!({"spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null}});
    let changed = cluster.merge(&format!("{SERVICES}/a"), &change).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(cluster.get(&path).await.status, 404);
    let stated = json!({"clusterIP": address});
    cluster.create(SERVICES, &service("e", stated)).await;
    assert_eq!(cluster.get(&path).await.status, 200);
    cluster.delete(&format!("{SERVICES}/e"), &Value::Null).await;
    assert_eq!(cluster.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_stated_address_is_free_and_in_a_range() {
    let cluster = Cluster::start().await;
    for (address, why) in [
        ("10.96.0.1", "provided IP is already allocated"),
        (
            "172.20.0.9",
            "the provided network does not match the current range",
        ),
    ] {
        let stated = service("a", json!({"clusterIP": address}));
        let reply = cluster.post(SERVICES, &stated).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        assert_eq!(
            text(&reply.json(), "/message"),
            format!(
                "Service \"a\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: {why}"
            )
        );
    }
    // Another range makes its addresses available.
    let path = format!("{GROUP}/servicecidrs");
    cluster
        .create(&path, &cidr("more", json!(["172.20.0.0/28"])))
        .await;
    cluster.ready("more", "True").await;
    let stated = service("a", json!({"clusterIP": "172.20.0.9"}));
    cluster.create(SERVICES, &stated).await;
    // It stays until its last address is free.
    let more = format!("{path}/more");
    cluster.delete(&more, &Value::Null).await;
    let blocked = cluster.ready("more", "False").await;
    assert_eq!(text(&blocked, "/status/conditions/0/reason"), "Terminating");
    let refused = service("b", json!({"clusterIP": "172.20.0.10"}));
    assert_eq!(cluster.post(SERVICES, &refused).await.status, 422);
    cluster.delete(&format!("{SERVICES}/a"), &Value::Null).await;
    cluster.answers(&more, 404).await;
}

#[tokio::test]
async fn ranges_and_addresses_are_validated() {
    let cluster = Cluster::start().await;
    let path = format!("{GROUP}/servicecidrs");
    for (cidrs, expect) in [
        (
            json!([]),
            "spec.cidrs: Required value: at least one CIDR required",
        ),
        (
            json!(["10.0.0.1/24", "x"]),
            "[spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length, spec.cidrs[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.7/24 or 2001:db8::/64)]",
        ),
        (
            json!(["10.0.0.0/24", "10.1.0.0/24"]),
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ),
    ] {
        let reply = cluster.post(&path, &cidr("x", cidrs)).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        let message = text(&reply.json(), "/message").to_owned();
        assert!(message.ends_with(expect), "{message}");
    }
    cluster
        .create(&path, &cidr("x", json!(["10.0.0.0/24"])))
        .await;
    let change = json!({"spec": {"cidrs": ["10.0.0.0/25"]}});
    let reply = cluster.merge(&format!("{path}/x"), &change).await;
    let message = text(&reply.json(), "/message").to_owned();
    assert!(
        message.ends_with("spec.cidrs[0]: Invalid value: \"10.0.0.0/25\": field is immutable"),
        "{message}"
    );
    let dual = json!({"spec": {"cidrs": ["10.0.0.0/24", "2001:db8::/64"]}});
    assert_eq!(cluster.merge(&format!("{path}/x"), &dual).await.status, 200);
    let address = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "010.0.0.1"},
        "spec": {"parentRef": {"resource": "gateways", "name": "a"}},
    });
    let reply = cluster
        .post(&format!("{GROUP}/ipaddresses"), &address)
        .await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    let ask = Ask {
        path: format!("{GROUP}/ipaddresses"),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
        ..Ask::default()
    };
    let table = cluster.ask(ask).await.json();
    assert_eq!(
        at(&table, "/rows/0/cells"),
        &json!(["10.96.0.1", "services/default/kubernetes"])
    );
}

#[tokio::test]
async fn services_have_addresses_of_the_range_of_the_server() {
    let cluster = Cluster::with(ServerOptions {
        service_cidr: "10.0.0.0/28".to_owned(),
        ..ServerOptions::default()
    })
    .await;
    let default = cluster.ready("kubernetes", "True").await;
    assert_eq!(at(&default, "/spec/cidrs"), &json!(["10.0.0.0/28"]));
    let own = cluster.get(&format!("{SERVICES}/kubernetes")).await.json();
    assert_eq!(text(&own, "/spec/clusterIP"), "10.0.0.1");
    // Thirteen more of the fourteen addresses, each once.
    let mut addresses = std::collections::BTreeSet::new();
    for number in 0..13 {
        let object = service(&format!("s-{number}"), json!({}));
        let created = cluster.create(SERVICES, &object).await;
        addresses.insert(text(&created, "/spec/clusterIP").to_owned());
    }
    let expected = (2..=14).map(|last| format!("10.0.0.{last}")).collect();
    assert_eq!(addresses, expected);
    let outside = service("outside", json!({"clusterIP": "10.96.0.20"}));
    let refused = cluster.post(SERVICES, &outside).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}
