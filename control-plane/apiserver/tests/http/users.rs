//! Users other than the administrator: impersonation, roles, tokens of service accounts. The texts equal kube-apiserver
//! 1.36's.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SignatureScheme};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

impl Cluster {
    /// A request with these headers.
    async fn ask_as(
        &self,
        headers: &[(&str, &str)],
        method: &str,
        path: &str,
        body: &Value,
    ) -> Reply {
        let token = headers.iter().find(|(name, _)| *name == "authorization");
        let token = token.and_then(|(_, value)| value.strip_prefix("Bearer "));
        let rest = headers.iter().filter(|(name, _)| *name != "authorization");
        self.ask(Ask {
            method: method.to_owned(),
            token: token.map(str::to_owned),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            headers: rest
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            body: match body {
                Value::Null => Vec::new(),
                body => body.to_string().into_bytes(),
            },
            ..Ask::default()
        })
        .await
    }

    /// Binds a role of the cluster to a subject, in the namespace `default`.
    async fn bind(&self, name: &str, role: &str, subject: Value) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        });
        self.create(&format!("{RBAC}/namespaces/default/rolebindings"), &binding)
            .await;
    }

    /// Binds a role of the cluster to a subject, in the whole cluster.
    async fn bind_everywhere(&self, name: &str, subject: Value) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        });
        self.create(&format!("{RBAC}/clusterrolebindings"), &binding)
            .await;
    }

    /// A token for a service account.
    async fn token(&self, account: &str, spec: Value) -> Reply {
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        self.post(&format!("{ACCOUNTS}/{account}/token"), &request)
            .await
    }
}

fn bob() -> Value {
    json!({"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"})
}

#[tokio::test]
async fn a_user_without_a_role_may_do_nothing_but_ask() {
    let cluster = Cluster::start().await;
    let cases = [
        (
            "GET",
            PODS,
            "pods is forbidden: User \"bob\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "GET",
            "/api/v1/nodes",
            "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/x",
            "pods \"x\" is forbidden: User \"bob\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/pods/x/log",
            "pods \"x\" is forbidden: User \"bob\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\"",
        ),
        (
            "DELETE",
            DEPLOYMENTS,
            "deployments.apps is forbidden: User \"bob\" cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"default\"",
        ),
        (
            "GET",
            "/metrics",
            "forbidden: User \"bob\" cannot get path \"/metrics\"",
        ),
    ];
    let as_bob = [("impersonate-user", "bob")];
    for (method, path, message) in cases {
        let reply = cluster.ask_as(&as_bob, method, path, &Value::Null).await;
        assert_eq!(
            (reply.status, text(&reply.json(), "/message")),
            (403, message)
        );
    }
    for path in ["/api", "/version", "/openapi/v3"] {
        let reply = cluster.ask_as(&as_bob, "GET", path, &Value::Null).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (headers, allowed) in [(&as_bob[..], false), (&[][..], true)] {
        let answer = cluster.ask_as(headers, "POST", path, &review).await.json();
        assert_eq!(at(&answer, "/status/allowed"), allowed, "{answer}");
    }
    // A user that may impersonate a service account may not add groups to it.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "actor"},
        "rules": [{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"]}]});
    cluster.create(&format!("{RBAC}/clusterroles"), &role).await;
    cluster
        .bind(
            "actors",
            "actor",
            json!({"kind": "ServiceAccount", "name": "actor", "namespace": "default"}),
        )
        .await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "actor"}});
    cluster.create(ACCOUNTS, &account).await;
    let issued = cluster.token("actor", json!({})).await.json();
    let bearer = format!("Bearer {}", text(&issued, "/status/token"));
    let actor = ("authorization", bearer.as_str());
    let robot = ("impersonate-user", "system:serviceaccount:default:robot");
    for (headers, message) in [
        (
            vec![actor, robot],
            "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            vec![actor, robot, ("impersonate-group", "system:masters")],
            "groups \"system:masters\" is forbidden: User \"system:serviceaccount:default:actor\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope",
        ),
        (
            vec![actor, ("impersonate-user", "bob")],
            "users \"bob\" is forbidden: User \"system:serviceaccount:default:actor\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        ),
    ] {
        let reply = cluster.ask_as(&headers, "GET", PODS, &Value::Null).await;
        assert_eq!(
            (reply.status, text(&reply.json(), "/message")),
            (403, message)
        );
    }
    // Groups need a user.
    let reply = cluster
        .ask_as(&[("impersonate-group", "x")], "GET", PODS, &Value::Null)
        .await;
    assert_eq!(reply.status, 400, "{}", reply.text());
}

#[tokio::test]
async fn a_role_has_the_rules_of_the_roles_that_it_selects() {
    let cluster = Cluster::start().await;
    // `a` selects `b`, which selects `a` and `c`.
    for (name, selects, resource) in [
        ("a", "of-a", "pods"),
        ("b", "of-b", "nodes"),
        ("c", "none", "configmaps"),
    ] {
        let labels = match name {
            "a" => json!({"of-b": "true"}),
            "b" => json!({"of-a": "true"}),
            _ => json!({"of-b": "true"}),
        };
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {selects: "true"}}]},
            "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": [resource]}],
        });
        cluster.create(&format!("{RBAC}/clusterroles"), &role).await;
    }
    cluster.bind("all", "a", bob()).await;
    for (path, status) in [
        (PODS, 200),
        ("/api/v1/namespaces/default/configmaps", 200),
        ("/api/v1/namespaces/default/secrets", 403),
    ] {
        let reply = cluster
            .ask_as(&[("impersonate-user", "bob")], "GET", path, &Value::Null)
            .await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
}

#[tokio::test]
async fn roles_give_rights_in_their_namespace() {
    let cluster = Cluster::start().await;
    cluster.bind("viewers", "view", bob()).await;
    let as_bob = [("impersonate-user", "bob")];
    let elsewhere = "/api/v1/namespaces/kube-system/pods";
    let pod = pod("p");
    let cases = [
        ("GET", PODS, &Value::Null, 200),
        (
            "GET",
            "/api/v1/namespaces/default/pods/p",
            &Value::Null,
            404,
        ),
        ("GET", DEPLOYMENTS, &Value::Null, 200),
        (
            "GET",
            "/api/v1/namespaces/default/secrets",
            &Value::Null,
            403,
        ),
        ("POST", PODS, &pod, 403),
        ("GET", elsewhere, &Value::Null, 403),
        ("GET", "/api/v1/pods", &Value::Null, 403),
    ];
    for (method, path, body, status) in cases {
        let reply = cluster.ask_as(&as_bob, method, path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
    }
    // `edit` contains `view` and may write; it may not grant rights.
    cluster.bind("editors", "edit", bob()).await;
    let reply = cluster.ask_as(&as_bob, "POST", PODS, &pod).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    cluster.bind("admins", "admin", bob()).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "all"},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    let roles = format!("{RBAC}/namespaces/default/roles");
    let reply = cluster.ask_as(&as_bob, "GET", &roles, &Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = cluster.ask_as(&as_bob, "POST", &roles, &role).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "kube-system"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = cluster.ask_as(&as_bob, "POST", path, &rules).await.json();
    let resources = at(&answer, "/status/resourceRules")
        .as_array()
        .map(Vec::len);
    assert_eq!(resources, Some(2), "those of system:basic-user: {answer}");
}

#[tokio::test]
async fn a_service_account_acts_with_its_token() {
    let cluster = Cluster::start().await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let missing = cluster.token("robot", json!({})).await;
    assert_eq!(
        text(&missing.json(), "/message"),
        "serviceaccounts \"robot\" not found"
    );
    cluster.create(ACCOUNTS, &account).await;
    let issued = cluster.token("robot", json!({})).await;
    assert_eq!(issued.status, 201, "{}", issued.text());
    let issued = issued.json();
    assert_eq!(at(&issued, "/spec/expirationSeconds"), 3600);
    let bearer = format!("Bearer {}", text(&issued, "/status/token"));
    let robot = [("authorization", bearer.as_str())];
    let reply = cluster.ask_as(&robot, "GET", PODS, &Value::Null).await;
    assert_eq!(
        text(&reply.json(), "/message"),
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    cluster
        .bind(
            "robots",
            "view",
            json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"}),
        )
        .await;
    let reply = cluster.ask_as(&robot, "GET", PODS, &Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": text(&issued, "/status/token")}});
    let answer = cluster
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await
        .json();
    assert_eq!(
        text(&answer, "/status/user/username"),
        "system:serviceaccount:default:robot"
    );
    // Tokens that are changed, expired, for other audiences, or of deleted objects are not valid.
    let other = cluster
        .token("robot", json!({"audiences": ["vault"]}))
        .await
        .json();
    let mut forged = bearer.clone();
    forged.pop();
    for token in [format!("Bearer {}", text(&other, "/status/token")), forged] {
        let headers = [("authorization", token.as_str())];
        let reply = cluster.ask_as(&headers, "GET", PODS, &Value::Null).await;
        assert_eq!(reply.status, 401, "{}", reply.text());
    }
    cluster
        .delete(&format!("{ACCOUNTS}/robot"), &Value::Null)
        .await;
    cluster.create(ACCOUNTS, &account).await;
    let reply = cluster.ask_as(&robot, "GET", PODS, &Value::Null).await;
    assert_eq!(
        reply.status,
        401,
        "the account has another UID: {}",
        reply.text()
    );
}

#[tokio::test]
async fn token_requests_are_validated() {
    let cluster = Cluster::start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    cluster.create(ACCOUNTS, &account).await;
    cluster.create(PODS, &pod("p")).await;
    let reference = |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let cases = [
        (
            json!({"expirationSeconds": 60}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
        ),
        (
            json!({"expirationSeconds": 8_589_934_592_i64}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds",
        ),
        (
            reference("Pod", "p"),
            400,
            "cannot bind token for serviceaccount \"sa\" to pod running with different serviceaccount name.",
        ),
        (reference("Pod", "nope"), 404, "pods \"nope\" not found"),
        (
            reference("ConfigMap", "nope"),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
    ];
    for (spec, status, message) in cases {
        let reply = cluster.token("sa", spec).await;
        assert_eq!(
            (reply.status, text(&reply.json(), "/message")),
            (status, message)
        );
    }
}

/// The fields of a user that are neither its name nor its groups.
#[tokio::test]
async fn extra_fields_are_impersonated_with_a_right_for_each_value() {
    let cluster = Cluster::start().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "impersonator"},
    "rules": [
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/example.com/scopes"], "resourceNames": ["view"]},
    ]});
    cluster.create(&format!("{RBAC}/clusterroles"), &role).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "actor"}});
    cluster.create(ACCOUNTS, &account).await;
    let subject = json!({"kind": "ServiceAccount", "name": "actor", "namespace": "default"});
    cluster.bind_everywhere("impersonator", subject).await;
    let issued = cluster.token("actor", json!({})).await.json();
    let bearer = format!("Bearer {}", text(&issued, "/status/token"));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let headers = |value: &'static str| {
        vec![
            ("authorization", bearer.as_str()),
            ("impersonate-user", "bob"),
            ("impersonate-extra-Example.com%2fscopes", value),
        ]
    };
    let answer = cluster
        .ask_as(&headers("view"), "POST", path, &review)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let user = answer.json();
    assert_eq!(
        at(&user, "/status/userInfo/extra"),
        &json!({"example.com/scopes": ["view"]})
    );
    let refused = cluster
        .ask_as(&headers("edit"), "POST", path, &review)
        .await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/message")),
        (
            403,
            "userextras.authentication.k8s.io \"edit\" is forbidden: User \"system:serviceaccount:default:actor\" cannot impersonate resource \"userextras/example.com/scopes\" in API group \"authentication.k8s.io\" at the cluster scope"
        )
    );
    let alone = [("impersonate-extra-scopes", "view")];
    let refused = cluster.ask_as(&alone, "GET", PODS, &Value::Null).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
}

#[tokio::test]
async fn a_token_states_the_pod_and_the_node_that_it_belongs_to() {
    let cluster = Cluster::start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    cluster.create(ACCOUNTS, &account).await;
    let mut placed = pod("p");
    placed["spec"]["serviceAccountName"] = "sa".into();
    placed["spec"]["nodeName"] = "n".into();
    let created = cluster.create(PODS, &placed).await;
    let reference = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let issued = cluster.token("sa", reference).await.json();
    let token = text(&issued, "/status/token");
    let bearer = format!("Bearer {token}");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let headers = [("authorization", bearer.as_str())];
    let user = cluster.ask_as(&headers, "POST", path, &review).await.json();
    let extra = at(&user, "/status/userInfo/extra");
    let of = |key: &str| extra[format!("authentication.kubernetes.io/{key}")].clone();
    assert_eq!(of("pod-name"), json!(["p"]));
    assert_eq!(of("pod-uid"), json!([created["metadata"]["uid"]]));
    assert_eq!(of("node-name"), json!(["n"]));
    let credential = of("credential-id").to_string();
    assert!(credential.starts_with("[\"JTI="), "{credential}");
    // The key set has the key of the token.
    let keys = cluster.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), "application/jwk-set+json");
    let keys = keys.json();
    let key = at(&keys, "/keys/0");
    assert_eq!((text(key, "/kty"), text(key, "/crv")), ("EC", "P-256"));
    let head = token.split('.').next().unwrap_or("");
    let head = URL_SAFE_NO_PAD.decode(head).unwrap_or_default();
    let head: Value = serde_json::from_slice(&head).unwrap_or_default();
    assert_eq!(head["kid"], key["kid"]);
    assert_eq!(text(&head, "/kid").len(), 43, "a SHA-256 hash in base64");
    let issuer = cluster
        .get("/.well-known/openid-configuration")
        .await
        .json();
    assert_eq!(
        text(&issuer, "/issuer"),
        "https://kubernetes.default.svc.cluster.local"
    );
    let expect = format!("https://{}/openid/v1/jwks", cluster.server.addr());
    assert_eq!(text(&issuer, "/jwks_uri"), expect);
    // Service accounts may read both, other users may not.
    for (headers, status) in [
        (&headers[..], 200),
        (&[("impersonate-user", "bob")][..], 403),
    ] {
        let path = "/openid/v1/jwks";
        let reply = cluster.ask_as(headers, "GET", path, &Value::Null).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
}

#[tokio::test]
async fn a_node_writes_its_own_slices_and_a_driver_the_status_of_its_own_devices() {
    const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    let cluster = Cluster::start().await;
    let rules = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let roles = format!("{RBAC}/clusterroles");
    let all = json!([{"verbs": ["*"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"]}]);
    cluster.create(&roles, &rules("slices", all)).await;
    let nodes =
        json!({"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"});
    cluster.bind_everywhere("slices", nodes).await;
    let slice = |name: &str, node: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": []},
        })
    };
    cluster.create(SLICES, &slice("other", "m")).await;
    let as_node = [
        ("impersonate-user", "system:node:n"),
        ("impersonate-group", "system:nodes"),
    ];
    let own = cluster
        .ask_as(&as_node, "POST", SLICES, &slice("own", "n"))
        .await;
    assert_eq!(own.status, 201, "{}", own.text());
    for (method, path, body, verb) in [
        ("POST", SLICES.to_owned(), slice("x", "m"), "create"),
        ("DELETE", format!("{SLICES}/other"), Value::Null, "delete"),
    ] {
        let refused = cluster.ask_as(&as_node, method, &path, &body).await;
        assert_eq!(refused.status, 403);
        let expect =
            format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
        let message = text(&refused.json(), "/message").to_owned();
        assert!(message.ends_with(&expect), "{message}");
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    });
    cluster.create(CLAIMS, &claim).await;
    let status = format!("{CLAIMS}/c/status");
    let allocation = json!({"status": {"allocation": {
        "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "d"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
    }}});
    let devices = json!({"status": {"devices": [{"driver": "gpu.example.com", "pool": "n", "device": "d", "data": {"a": 1}}]}});
    let role = json!([
        {"verbs": ["get", "patch"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaims/status"]},
        {"verbs": ["associated-node:patch"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "resourceNames": ["gpu.example.com"]},
    ]);
    cluster.create(&roles, &rules("driver", role)).await;
    let account = json!({"kind": "ServiceAccount", "name": "driver", "namespace": "default"});
    cluster.bind("driver", "driver", account).await;
    let driver = ("impersonate-user", "system:serviceaccount:default:driver");
    let key = "impersonate-extra-authentication.kubernetes.io%2fnode-name";
    let on = |node: &'static str| [driver, (key, node)];
    let patch = |headers: Vec<(&'static str, &'static str)>, body: Value| {
        let headers: Vec<(String, String)> = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        cluster.ask(Ask {
            method: "PATCH".to_owned(),
            path: status.clone(),
            content_type: "application/merge-patch+json".to_owned(),
            body: body.to_string().into_bytes(),
            headers,
            ..Ask::default()
        })
    };
    let refused = patch(on("n").to_vec(), allocation.clone()).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let message = text(&refused.json(), "/message").to_owned();
    let expect = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"system:serviceaccount:default:driver\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    assert!(message.ends_with(expect), "{message}");
    let allocated = cluster.merge(&status, &allocation).await;
    assert_eq!(allocated.status, 200, "{}", allocated.text());
    let refused = patch(on("m").to_vec(), devices.clone()).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let message = text(&refused.json(), "/message").to_owned();
    let expect = "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"gpu.example.com\" is forbidden: User \"system:serviceaccount:default:driver\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\"";
    assert!(message.ends_with(expect), "{message}");
    let written = patch(on("n").to_vec(), devices).await;
    assert_eq!(written.status, 200, "{}", written.text());
}

#[tokio::test]
async fn what_needs_a_running_container_is_not_implemented() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    cluster.create("/api/v1/nodes", &node).await;
    let default = "/api/v1/namespaces/default";
    for (path, status, message) in [
        (
            format!("{default}/pods/p:8080/proxy/healthz"),
            501,
            "pods/proxy is not served: pods of this cluster are simulated, no container runs",
        ),
        (
            format!("{default}/services/https:kubernetes:443/proxy/"),
            501,
            "services/proxy is not served: pods of this cluster are simulated, no container runs",
        ),
        (
            "/api/v1/nodes/n/proxy/metrics".to_owned(),
            501,
            "nodes/proxy is not served: pods of this cluster are simulated, no container runs",
        ),
        (
            format!("{default}/pods/q:8080/proxy/healthz"),
            404,
            "pods \"q\" not found",
        ),
    ] {
        let reply = cluster.get(&path).await;
        assert_eq!(
            (reply.status, text(&reply.json(), "/message")),
            (status, message),
            "{path}"
        );
    }
}

/// Notes the authorities that a server names when it asks for a certificate.
#[derive(Debug, Default)]
struct NamedAuthorities(std::sync::Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for NamedAuthorities {
    fn resolve(&self, names: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let mut known = self.0.lock().expect("no other thread failed");
        *known = names.iter().map(|name| name.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn the_handshake_names_the_authorities_of_clients() {
    let mut params = rcgen::CertificateParams::default();
    let name = rcgen::DnType::CommonName;
    params.distinguished_name.push(name, "authority-of-clients");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate");
    let cluster = Cluster::with(ServerOptions {
        client_ca: Some(authority.pem()),
        ..ServerOptions::default()
    })
    .await;
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(cluster.server.ca_pem().as_bytes());
    roots.add(ca.expect("PEM")).expect("a root");
    let named = Arc::new(NamedAuthorities::default());
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::clone(&named) as _);
    let stream = tokio::net::TcpStream::connect(cluster.server.addr()).await;
    let server = ServerName::try_from("localhost").expect("a name");
    let connected = TlsConnector::from(Arc::new(config))
        .connect(server, stream.expect("a connection"))
        .await;
    assert!(connected.is_ok(), "{:?}", connected.err());
    let named = named.0.lock().expect("no other thread failed");
    let names: Vec<String> = named
        .iter()
        .map(|n| String::from_utf8_lossy(n).into())
        .collect();
    for expected in ["berth-ca", "authority-of-clients"] {
        assert!(
            names.iter().any(|name| name.contains(expected)),
            "{names:?}"
        );
    }
}
