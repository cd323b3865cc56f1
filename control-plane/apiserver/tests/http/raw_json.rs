//! Fields that are kept as bytes: the parameters of device drivers in ResourceClaims.

use super::*;
use berth_protobuf::PatchKind;
use berth_protobuf::envelope::{Envelope, MEDIA_TYPE};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn claim(name: &str, parameters: &str) -> Value {
    let requests = r#"[{"name":"r0","exactly":{"deviceClassName":"gpu"}}]"#;
    let config =
        format!(r#"[{{"opaque":{{"driver":"gpu.example.com","parameters":{parameters}}}}}]"#);
    json!(format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"devices":{{"requests":{requests},"config":{config}}}}}}}"#
    ))
}

async fn in_protobuf(cluster: &Cluster, method: &str, path: &str, body: Vec<u8>) -> Reply {
    let ask = Ask {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: MEDIA_TYPE.to_owned(),
        accept: MEDIA_TYPE.to_owned(),
        body,
        ..Ask::default()
    };
    cluster.ask(ask).await
}

/// As in kube-apiserver, immutable fields are compared as bytes. A strategic merge patch re-encodes them, so it is
/// refused if their form changes; a merge patch and a PUT of the same bytes do not change them.
#[tokio::test]
async fn parameters_of_drivers_are_kept_as_bytes() {
    let cluster = Cluster::start().await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/f"]}});
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    for (number, (parameters, keeps_form)) in [
        (
            r#"{"kind":"ChannelConfig","apiVersion":"example.com/v1"}"#,
            false,
        ),
        (r#"{"a":1.0}"#, false),
        (r#"{"a":"x<y"}"#, false),
        (r#"{"a": 1}"#, false),
        (r#"{"a":1}"#, true),
        (
            r#"{"apiVersion":"example.com/v1","kind":"ChannelConfig"}"#,
            true,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("c{number}");
        let path = format!("{CLAIMS}/{name}");
        let created = cluster.post(CLAIMS, &claim(&name, parameters)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        assert!(created.text().contains(parameters), "{}", created.text());

        let patched = cluster
            .send_as("PATCH", &path, STRATEGIC, &finalizers)
            .await;
        let code = if keeps_form { 200 } else { 422 };
        assert_eq!(patched.status, code, "{parameters}: {}", patched.text());
        if !keeps_form {
            let why = "field is immutable";
            assert!(patched.text().contains(why), "{}", patched.text());
        }
        let merged = cluster.merge(&path, &labels).await;
        assert_eq!(merged.status, 200, "{parameters}: {}", merged.text());

        let read = in_protobuf(&cluster, "GET", &path, Vec::new()).await;
        let has = |reply: &Reply| {
            let mut windows = reply.body.windows(parameters.len());
            windows.any(|window| window == parameters.as_bytes())
        };
        assert!(has(&read), "{parameters}");
        let envelope = Envelope::open(&read.body).expect("an envelope");
        let changed = envelope
            .patched(&finalizers, PatchKind::Strategic)
            .expect("a patch");
        let written = in_protobuf(&cluster, "PUT", &path, changed).await;
        assert_eq!(written.status, 200, "{parameters}: {}", written.text());
        assert!(has(&written), "{parameters}");

        let shown = cluster.get(&path).await.json();
        let object = &shown["spec"]["devices"]["config"][0]["opaque"]["parameters"];
        let expected: Value = serde_json::from_str(parameters).expect("JSON");
        assert_eq!(*object, expected);
        assert_eq!(shown["metadata"]["finalizers"], json!(["example.com/f"]));
        assert_eq!(shown["metadata"]["labels"], json!({"a": "b"}));
    }
}
