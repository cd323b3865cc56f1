//! Writes that leave every byte of an object as it is that they do not change.
//!
//! The object is read in protobuf, changed, and replaced: an API server that computes a patch itself decodes the object
//! and encodes it again, and then refuses the patch because the parameters of drivers are other bytes. kube-scheduler
//! replaces claims in protobuf, too. A server that has no protobuf gets the patch.

use super::{OTHER_UID, lane_of, resource_of, version_of, write_request};
use berth_client::content::{ApiAnswer, PatchKind};
use berth_client::{ApiError, Transport, request};
use berth_framework::write::{Action, RawField, Write};
use serde_json::Value;

/// The maximum number of reads of an object after concurrent writes.
const ATTEMPTS_MAX: u32 = 5;

/// Makes the write. `raw` are the values in its body that are written byte for byte.
pub(super) async fn write(
    transport: &Transport,
    write: &Write,
    raw: &[RawField],
) -> Result<ApiAnswer, ApiError> {
    let object = write.object();
    let (resource, lane) = (resource_of(write), lane_of(write));
    let Some((patch, strategy)) = patch_of(write, raw) else {
        return transport.answer(&write_request(write).for_json()).await;
    };
    // The object is read in the encoding of the write, so that unknown fields are preserved.
    let read = request::get(resource, &object.namespace, &object.name)
        .for_protobuf()
        .in_lane(lane);
    let mut attempt = 1;
    loop {
        let stored = transport.answer(&read).await?;
        let version = version_of(&stored, write.uid());
        let version = version.ok_or_else(|| conflict(404, OTHER_UID))?;
        // The write was decided from another version, so it is not repeated here.
        if write.resource_version().is_some_and(|v| *v != version) {
            let reason =
                "the object has been modified; the write is decided again with its latest version";
            return Err(conflict(409, reason));
        }
        let patched = match stored.patched(&patch, strategy) {
            None => return transport.answer(&write_request(write).for_json()).await,
            Some(patched) => patched.map_err(|error| ApiError::Decode {
                request: read.describe(),
                reason: error.to_string(),
            })?,
        };
        let (namespace, name) = (&object.namespace, &object.name);
        let update =
            request::update_in_protobuf(resource, namespace, name, write.subresource(), patched);
        let answer = transport.answer(&update.in_lane(lane).for_json()).await;
        let is_conflict = answer
            .as_ref()
            .is_err_and(|error| error.code() == Some(409));
        // Another client has written between the read and the write.
        if !is_conflict || write.resource_version().is_some() || attempt == ATTEMPTS_MAX {
            return answer;
        }
        attempt += 1;
    }
}

/// The patch of a write, with texts for values that are written byte for byte.
fn patch_of(write: &Write, raw: &[RawField]) -> Option<(Value, PatchKind)> {
    let (body, strategy) = match write.action() {
        Action::Patch(body) => (body, PatchKind::Merge),
        Action::StrategicPatch(body) => (body, PatchKind::Strategic),
        Action::Create(_) | Action::Update(_) | Action::Delete => return None,
    };
    let mut body = body.clone();
    for (pointer, json) in raw {
        *body.pointer_mut(pointer)? = json.as_str().into();
    }
    Some((body, strategy))
}

/// A precondition of the write does not hold. No request was sent.
fn conflict(code: u16, message: &str) -> ApiError {
    ApiError::Status {
        code,
        reason: String::new(),
        message: message.to_owned(),
        retry_after_seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::send;
    use super::*;
    use berth_api::{Kind, ObjectMeta, Time};
    use berth_client::content::Format;
    use berth_client::testing::{Scripted, status};
    use berth_framework::{ApiCall, CallType};
    use serde_json::json;

    const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    const GET: &str = "GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    static TYPE: CallType = CallType::new("resource_claim_update", Kind::ResourceClaim);

    fn stored(uid: &str, version: &str) -> (u16, Value) {
        let meta = json!({"name": "c", "namespace": "ns", "uid": uid, "resourceVersion": version});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": meta,
            "spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": "{ \"b\":1.0}"}}]}},
        });
        (200, claim)
    }

    fn finalizer(version: Option<&str>) -> Write {
        let body = json!({"metadata": {"finalizers": ["f"]}});
        let write = Write::new(&TYPE, "ns", "c", Action::StrategicPatch(body));
        let meta = ObjectMeta {
            uid: "u".into(),
            resource_version: version.unwrap_or_default().into(),
            ..ObjectMeta::default()
        };
        let write = match version {
            Some(_) => write.of_version(&meta),
            None => write.of(&meta),
        };
        write.keeping_bytes([])
    }

    /// PL-179: the object is replaced with the change applied to its protobuf; the bytes of its configuration are
    /// unchanged.
    #[tokio::test]
    async fn an_object_is_replaced_with_its_own_bytes() {
        let put = format!("PUT {CLAIM}");
        let other = || status(409, "the object has been modified");
        for (situation, version, answers, asked, code) in [
            (
                "written at once",
                None,
                vec![stored("u", "7"), stored("u", "8")],
                vec![GET, &put],
                None,
            ),
            (
                "another client was faster",
                None,
                vec![
                    stored("u", "7"),
                    other(),
                    stored("u", "8"),
                    stored("u", "9"),
                ],
                vec![GET, &put, GET, &put],
                None,
            ),
            (
                "the version that was decided on",
                Some("7"),
                vec![stored("u", "7"), stored("u", "8")],
                vec![GET, &put],
                None,
            ),
            (
                "another version than the one that was decided on",
                Some("6"),
                vec![stored("u", "7")],
                vec![GET],
                Some(409),
            ),
            (
                "changed between the read and the write",
                Some("7"),
                vec![stored("u", "7"), other()],
                vec![GET, &put],
                Some(409),
            ),
            (
                "another object of the name",
                None,
                vec![stored("v", "7")],
                vec![GET],
                Some(404),
            ),
        ] {
            let mut server = Scripted::speaking(Format::Protobuf, answers).await;
            let call = ApiCall::from(finalizer(version));
            let answer = send(&server.client(), &call, Time::EPOCH).await;
            assert_eq!(answer.err().and_then(|e| e.code()), code, "{situation}");
            for line in asked {
                let request = server.asked.recv().await.expect(situation);
                assert_eq!(request.line(), line, "{situation}");
                if line == put {
                    let kept = br#"{ "b":1.0}"#;
                    let mut windows = request.body.windows(kept.len());
                    assert!(windows.any(|w| w == kept), "{situation}");
                    assert_eq!(
                        request.header("content-type"),
                        "application/vnd.kubernetes.protobuf"
                    );
                } else {
                    let accepted = request.header("accept");
                    assert!(accepted.starts_with("application/vnd.kubernetes.protobuf"));
                }
            }
            assert!(server.asked.try_recv().is_err(), "{situation}");
        }
    }

    /// A server that has no protobuf gets the patch.
    #[tokio::test]
    async fn a_server_without_protobuf_gets_the_patch() {
        let mut server = Scripted::start(vec![stored("u", "7"), stored("u", "8")]).await;
        let call = ApiCall::from(finalizer(None));
        let answer = send(&server.client(), &call, Time::EPOCH).await;
        assert_eq!(
            answer.expect("an answer").resource_version.as_deref(),
            Some("8")
        );
        let _ = server.asked.recv().await;
        let patch = server.asked.recv().await.expect("a patch");
        assert_eq!(patch.line(), format!("PATCH {CLAIM}"));
    }

    #[test]
    fn texts_take_the_place_of_raw_values() {
        let raw: RawField = (
            "/status/a/0".to_owned(),
            serde_json::from_str("{ }").expect("JSON"),
        );
        let body = json!({"status": {"a": [{}], "b": {}}});
        let write = Write::patch(&TYPE, "ns", "c", body).keeping_bytes([raw]);
        let fields = write.raw_fields().expect("it keeps bytes");
        let expected = json!({"status": {"a": ["{ }"], "b": {}}});
        assert_eq!(patch_of(&write, fields), Some((expected, PatchKind::Merge)));
    }
}
