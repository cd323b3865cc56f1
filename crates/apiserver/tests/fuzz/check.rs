//! What is tried with bytes, by the fuzz targets and by the test that replays their corpora. The first byte selects the
//! decoder.

use berth_api::Quantity;
use berth_apiserver::admission::Admission;
use berth_apiserver::patch::PatchType;
use berth_apiserver::registry::{
    Api, ApiOptions, Body, Encoding, FieldValidation, ListRequest, Resource, WriteOptions, find,
};
use berth_apiserver::selectors::Selectors;
use berth_apiserver::status::ApiError;
use berth_apiserver::storage::HistoryLimits;
use jiff::Timestamp;
use std::sync::{Arc, LazyLock};

const NAMESPACE: &str = "default";
/// Kinds with many sorts of fields.
const KINDS: [(&str, &str); 6] = [
    ("", "pods"),
    ("", "services"),
    ("", "configmaps"),
    ("apps", "deployments"),
    ("resource.k8s.io", "resourceclaims"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
];
/// The object that is patched.
const POD: &[u8] = br#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "x"},
    "finalizers": ["example.com/a"]}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "value": "1"}]}], "tolerations": [{"key": "k", "operator": "Exists"}]}}"#;

static API: LazyLock<Api> = LazyLock::new(|| {
    let options = ApiOptions {
        admission: Admission::default(),
        history: HistoryLimits::default(),
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        seed: 1,
    };
    let api = Api::open(options, None).expect("an API in memory");
    let body = Body {
        bytes: POD,
        encoding: Encoding::Json,
    };
    let created = api.create_from(
        resource(0),
        NAMESPACE,
        body,
        &options_of(FieldValidation::Strict, false),
    );
    created.expect("the pod is valid");
    api
});

fn resource(index: u8) -> &'static Resource {
    let (group, plural) = KINDS[usize::from(index) % KINDS.len()];
    find(group, plural).expect("a served resource")
}

fn options_of(validation: FieldValidation, dry_run: bool) -> WriteOptions {
    WriteOptions {
        dry_run,
        validation,
        manager: "fuzz".to_owned(),
        ..WriteOptions::default()
    }
}

/// The client is to blame.
fn refused(error: &ApiError) {
    let code = error.code;
    assert!((400..500).contains(&code), "{code}: {}", error.message);
}

/// Decodes a body and creates the object without storing it. Whether it is accepted does not matter; what is accepted
/// must be accepted again as it was answered.
pub(crate) fn body(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let encoding = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf][usize::from(first % 3)];
    let resource = resource(first / 3);
    let namespace = if resource.namespaced { NAMESPACE } else { "" };
    let options = options_of(FieldValidation::Warn, true);
    let body = Body { bytes, encoding };
    match API.create_from(resource, namespace, body, &options) {
        Ok(written) => {
            let answer = serde_json::to_vec(&*written.version.object()).expect("JSON");
            let body = Body {
                bytes: &answer,
                encoding: Encoding::Json,
            };
            let again = API.create_from(resource, namespace, body, &options);
            assert!(again.is_ok(), "{:?}", again.err());
        }
        Err(error) => refused(&error),
    }
}

/// Patches a pod, in each language, without storing the result.
pub(crate) fn patch(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let options = options_of(FieldValidation::Warn, true);
    let types = [PatchType::Json, PatchType::Merge, PatchType::Strategic];
    let sub = (first & 0x80 != 0).then_some("status");
    match types.get(usize::from(first % 4)) {
        Some(patch_type) => {
            let patch = (*patch_type, bytes);
            if let Err(error) = API.patch(resource(0), NAMESPACE, "a", sub, patch, &options) {
                refused(&error);
            }
        }
        // A configuration that does not fit its type is answered with 500, as by kube-apiserver.
        None => drop(API.apply(resource(0), NAMESPACE, "a", sub, bytes, &options)),
    }
}

/// Parses a selector, a quantity or a continue token.
pub(crate) fn query(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let pods = resource(0);
    match first % 4 {
        0 | 1 => {
            let (labels, fields) = if first % 4 == 0 {
                (text, "")
            } else {
                ("", text)
            };
            match Selectors::parse(pods, labels, fields) {
                Ok(selectors) => drop(API.list(
                    pods,
                    &ListRequest {
                        selectors,
                        ..ListRequest::default()
                    },
                )),
                Err(error) => refused(&error),
            }
        }
        2 => {
            if let Ok(canonical) = Quantity::wire_text(text) {
                let values = (text.trim().parse::<Quantity>(), canonical.parse());
                assert_eq!(values.0, values.1, "{text:?} is {canonical:?}");
            }
        }
        _ => {
            let request = ListRequest {
                continue_token: text,
                limit: 1,
                ..ListRequest::default()
            };
            if let Err(error) = API.list(pods, &request) {
                assert!(error.code == 504 || (400..500).contains(&error.code));
            }
        }
    }
}
