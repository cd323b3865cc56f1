//! Client certificates: their users, and the accepted authorities.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};

const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for a user with these groups, and its key.
    fn issue(&self, name: &str, groups: &[&str], has_expired: bool) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        // A name has one entry of each type; the second of the organization is given by its number.
        let kinds = [
            DnType::OrganizationName,
            DnType::CustomDnType(vec![2, 5, 4, 10]),
        ];
        for (kind, group) in kinds.into_iter().zip(groups) {
            params.distinguished_name.push(kind, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if has_expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

/// A cluster that accepts the clients of `authority`.
async fn cluster(authority: &Authority) -> Cluster {
    Cluster::with(ServerOptions {
        client_ca: Some(authority.pem.clone()),
        ..ServerOptions::default()
    })
    .await
}

impl Cluster {
    /// The same cluster for the owner of a certificate.
    fn owner(&self, (certificate, key): &(String, String)) -> Loopback {
        Loopback::with_certificate(&self.server, certificate, key).expect("a client")
    }
}

async fn get(client: &Loopback, path: &str, token: Option<&str>) -> Reply {
    let ask = Ask {
        path: path.to_owned(),
        token: token.map(str::to_owned),
        ..Ask::default()
    };
    client.ask(&ask).await.expect("an answer")
}

#[tokio::test]
async fn a_certificate_names_a_user_and_groups() {
    let authority = Authority::new("our-ca");
    let cluster = cluster(&authority).await;
    let jane = cluster.owner(&authority.issue("jane", &["dev", "ops"], false));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reply = jane
        .ask(&Ask {
            method: "POST".to_owned(),
            path: REVIEWS.to_owned(),
            content_type: "application/json".to_owned(),
            body: review.to_string().into_bytes(),
            ..Ask::default()
        })
        .await
        .expect("an answer");
    let user = &reply.json()["status"]["userInfo"];
    assert_eq!(user["username"], "jane", "{}", reply.text());
    let groups = json!(["dev", "ops", "system:authenticated"]);
    let mut got: Vec<&str> = user["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    got.sort_unstable();
    assert_eq!(json!(got), groups);
    let refused = get(&jane, "/api/v1/nodes", None).await;
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.json()["message"],
        "nodes is forbidden: User \"jane\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    // Members of system:masters have all permissions, over HTTP/2 too.
    let admin = cluster.owner(&authority.issue("admin", &["system:masters"], false));
    let nodes = get(&admin.over_http2(), "/api/v1/nodes", None).await;
    assert_eq!(nodes.status, 200, "{}", nodes.text());
}

#[tokio::test]
async fn a_certificate_that_is_not_accepted_is_401() {
    let authority = Authority::new("our-ca");
    let cluster = cluster(&authority).await;
    let stranger = Authority::new("other-ca");
    let token = cluster.server.admin_token().to_owned();
    for (what, certificate) in [
        (
            "of another authority",
            stranger.issue("jane", &["system:masters"], false),
        ),
        (
            "of the past",
            authority.issue("jane", &["system:masters"], true),
        ),
    ] {
        let client = cluster.owner(&certificate);
        for path in ["/api/v1/nodes", "/healthz"] {
            let reply = get(&client, path, None).await;
            assert_eq!(reply.status, 401, "{what}: {path}");
            assert_eq!(reply.json()["message"], "Unauthorized", "{what}");
        }
        let with_token = get(&client, "/api/v1/nodes", Some(&token)).await;
        assert_eq!(with_token.status, 200, "{what}");
    }
}

#[tokio::test]
async fn a_certificate_takes_precedence_over_a_token() {
    let authority = Authority::new("our-ca");
    let cluster = cluster(&authority).await;
    let jane = cluster.owner(&authority.issue("jane", &[], false));
    let token = cluster.server.admin_token().to_owned();
    let reply = get(&jane, "/api/v1/nodes", Some(&token)).await;
    assert_eq!(reply.status, 403, "{}", reply.text());
}

#[tokio::test]
async fn schedulers_read_which_authorities_are_accepted() {
    let authority = Authority::new("our-ca");
    let cluster = cluster(&authority).await;
    let scheduler = cluster.owner(&authority.issue("system:kube-scheduler", &[], false));
    let map = get(&scheduler, CONFIG_MAP, None).await;
    assert_eq!(map.status, 200, "{}", map.text());
    let json = map.json();
    let pem = text(&json, "/data/client-ca-file");
    assert!(pem.contains(&authority.pem), "{pem}");
    assert!(pem.contains(cluster.server.ca_pem()), "{pem}");
    let other = CONFIG_MAP.replace("extension-apiserver-authentication", "other");
    assert_eq!(get(&scheduler, &other, None).await.status, 403);
}

#[tokio::test]
async fn authorities_that_are_none_are_an_error() {
    let options = ServerOptions {
        client_ca: Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()),
        ..ServerOptions::default()
    };
    let error = Server::start(options).await.err().map(|e| e.to_string());
    let error = error.unwrap_or_default();
    assert!(
        error.starts_with("cannot use the certificate authorities of clients: "),
        "{error}"
    );
}
