//! CertificateSigningRequests. The texts equal kube-apiserver 1.36's.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn params() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    (params, KeyPair::generate().expect("a key"))
}

/// A certificate request, in base64.
fn pem() -> String {
    let (params, key) = params();
    let request = params.serialize_request(&key).expect("a request");
    STANDARD.encode(request.pem().expect("PEM"))
}

fn certificate() -> String {
    let (params, key) = params();
    STANDARD.encode(params.self_signed(&key).expect("a certificate").pem())
}

fn request(name: &str, spec: Value) -> Value {
    let mut request = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": pem(), "usages": ["client auth"], "signerName": "example.com/s"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        request["spec"][field] = value.clone();
    }
    request
}

#[tokio::test]
async fn a_request_names_its_sender_and_is_changed_by_its_subresources_only() {
    let cluster = Cluster::start().await;
    let forged = json!({"username": "other", "groups": ["g"], "extra": {"a": ["b"]}});
    let created = cluster.create(REQUESTS, &request("r", forged)).await;
    assert_eq!(*at(&created, "/spec/groups/0"), json!("system:masters"));
    assert_ne!(text(&created, "/spec/username"), "other");
    assert_eq!(*at(&created, "/spec/extra"), Value::Null);
    let path = format!("{REQUESTS}/r");
    let change = json!({"spec": {"username": "z"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let patched = cluster.merge(&path, &change).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(*at(&patched.json(), "/spec"), *at(&created, "/spec"));
    assert_eq!(*at(&patched.json(), "/status"), json!({}));

    let approve = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": certificate()}});
    let approved = cluster.merge(&format!("{path}/approval"), &approve).await;
    assert_eq!(approved.status, 200, "{}", approved.text());
    let condition = at(&approved.json(), "/status/conditions/0").clone();
    assert_ne!(text(&condition, "/lastUpdateTime"), "");
    assert_ne!(text(&condition, "/lastTransitionTime"), "");
    assert_eq!(*at(&approved.json(), "/status/certificate"), Value::Null);

    let issued = json!({"status": {"certificate": certificate()}});
    let signed = cluster.merge(&format!("{path}/status"), &issued).await;
    assert_eq!(signed.status, 200, "{}", signed.text());
    assert_eq!(*at(&signed.json(), "/status/conditions/0"), condition);
    let ask = Ask {
        path: format!("{REQUESTS}?fieldSelector=spec.signerName%3Dexample.com/s"),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
        ..Ask::default()
    };
    let table = cluster.ask(ask).await.json();
    let cells = at(&table, "/rows/0/cells").as_array().cloned();
    let cells = cells.unwrap_or_default();
    assert_eq!(cells.first(), Some(&json!("r")), "{table}");
    assert_eq!(cells.last(), Some(&json!("Approved,Issued")), "{table}");
}

#[tokio::test]
async fn each_subresource_changes_its_part_of_the_status() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    let approved = condition("Approved", "True");
    for (sub, before, change, expect) in [
        (
            "status",
            json!([]),
            conditions(json!([approved])),
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
        ),
        (
            "approval",
            json!([]),
            conditions(json!([condition("Approved", "False"), {"type": "X"}])),
            "[status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\", status.conditions[1].status: Required value]",
        ),
        (
            "approval",
            json!([approved]),
            conditions(json!([approved, condition("Denied", "True")])),
            "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
        ),
        (
            "approval",
            json!([approved]),
            conditions(json!([])),
            "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
        ),
        (
            "status",
            json!([]),
            json!({"status": {"certificate": "YWJj"}}),
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
        ),
    ] {
        let cluster = Cluster::start().await;
        cluster.create(REQUESTS, &request("r", json!({}))).await;
        let path = format!("{REQUESTS}/r");
        let prepared = cluster
            .merge(&format!("{path}/approval"), &conditions(before))
            .await;
        assert_eq!(prepared.status, 200, "{}", prepared.text());
        let reply = cluster.merge(&format!("{path}/{sub}"), &change).await;
        assert_eq!(reply.status, 422, "{change}: {}", reply.text());
        let message = reply.json();
        assert_eq!(
            text(&message, "/message"),
            format!("CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: {expect}")
        );
    }
}

#[tokio::test]
async fn a_certificate_is_set_once() {
    let cluster = Cluster::start().await;
    cluster.create(REQUESTS, &request("r", json!({}))).await;
    let path = format!("{REQUESTS}/r/status");
    let issued = || json!({"status": {"certificate": certificate()}});
    assert_eq!(cluster.merge(&path, &issued()).await.status, 200);
    let refused = cluster.merge(&path, &issued()).await.json();
    assert!(
        text(&refused, "/message").ends_with(
            "status.certificate: Forbidden: updates may not modify existing certificate content"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn requests_are_validated() {
    let cluster = Cluster::start().await;
    for (spec, expect) in [
        (
            json!({"request": "YWJj", "usages": ["client auth", "client auth", "x"], "signerName": "x", "expirationSeconds": 5}),
            "[spec.request: Invalid value: \"YWJj\": PEM block type must be CERTIFICATE REQUEST, spec.usages[2]: Unsupported value: \"x\": supported values: \"any\", \"cert sign\", \"client auth\", \"code signing\", \"content commitment\", \"crl sign\", \"data encipherment\", \"decipher only\", \"digital signature\", \"email protection\", \"encipher only\", \"ipsec end system\", \"ipsec tunnel\", \"ipsec user\", \"key agreement\", \"key encipherment\", \"microsoft sgc\", \"netscape sgc\", \"ocsp signing\", \"s/mime\", \"server auth\", \"signing\", \"timestamping\", spec.usages[1]: Duplicate value: \"client auth\", spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name', spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)]",
        ),
        (
            json!({"request": null, "usages": null, "signerName": null}),
            "[spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST, spec.usages: Required value, spec.signerName: Required value]",
        ),
        (
            json!({"signerName": "kubernetes.io/legacy-unknown"}),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
        ),
    ] {
        let reply = cluster.post(REQUESTS, &request("r", spec.clone())).await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
        let status = reply.json();
        assert!(
            text(&status, "/message").ends_with(expect),
            "{spec}: {}",
            text(&status, "/message")
        );
    }
    // A request with the signature of another key.
    let mut der = STANDARD.decode(pem()).expect("base64");
    let place = der.len() - 60;
    der[place] = if der[place] == b'A' { b'B' } else { b'A' };
    let forged = json!({"request": STANDARD.encode(der)});
    let reply = cluster.post(REQUESTS, &request("r", forged)).await;
    assert_eq!(reply.status, 422, "{}", reply.text());
}

#[tokio::test]
async fn only_those_who_may_approve_for_the_signer_approve() {
    let cluster = Cluster::start().await;
    cluster.create(REQUESTS, &request("r", json!({}))).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "approver"},
        "rules": [
            {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"], "verbs": ["*"]},
        ],
    });
    let bound = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "approver"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    cluster.create(&format!("{RBAC}/clusterroles"), &role).await;
    cluster
        .create(&format!("{RBAC}/clusterrolebindings"), &bound)
        .await;
    let approve = || Ask {
        method: "PATCH".to_owned(),
        path: format!("{REQUESTS}/r/approval"),
        content_type: "application/merge-patch+json".to_owned(),
        body: json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}})
            .to_string()
            .into_bytes(),
        headers: vec![("impersonate-user".to_owned(), "bob".to_owned())],
        ..Ask::default()
    };
    let refused = cluster.ask(approve()).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(
        text(&refused.json(), "/message"),
        "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName \"example.com/s\""
    );
    let signers = json!({"rules": [
        at(&role, "/rules/0"),
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]},
    ]});
    cluster
        .merge(&format!("{RBAC}/clusterroles/approver"), &signers)
        .await;
    let allowed = cluster.ask(approve()).await;
    assert_eq!(allowed.status, 200, "{}", allowed.text());
}
