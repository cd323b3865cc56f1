//! The checks of bytes, by the fuzz targets and by the test that replays their corpora. The first byte selects the
//! decoder.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use berth_api::Quantity;
use berth_apiserver::admission::Admission;
use berth_apiserver::auth::Authorization;
use berth_apiserver::registry::{Api, ApiOptions, ListRequest, RequestPatch, WriteOptions};
use berth_apiserver::storage::HistoryLimits;
use berth_objects::body::{Encoding, WriteBody};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::decode::FieldValidation;
use berth_objects::patch::PatchType;
use berth_objects::selectors::Selectors;
use berth_objects::status::ApiError;
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
/// The pods that exist; the first is patched.
const NAMES: [&str; 3] = ["a", "b", "c"];
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "NAME", "labels": {"app": "x"},
    "finalizers": ["example.com/a"]}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
    "env": [{"name": "A", "value": "1"}]}], "tolerations": [{"key": "k", "operator": "Exists"}]}}"#;

static API: LazyLock<Api> = LazyLock::new(|| {
    let options = ApiOptions {
        api: berth_objects::releases::ApiRelease::EVERY,
        authorization: Authorization::default(),
        groups: berth_objects::groups::GroupGates::default(),
        admission: Admission::default().plugins(),
        service_cidr: "10.96.0.0/12".to_owned(),
        history: HistoryLimits::default(),
        clock: Arc::new(|| Timestamp::UNIX_EPOCH),
        seed: 1,
    };
    let api = Api::open(options, None).expect("an API in memory");
    for name in NAMES {
        let pod = POD.replace("NAME", name);
        let body = WriteBody {
            bytes: pod.as_bytes(),
            encoding: Encoding::Json,
        };
        let options = options_of(FieldValidation::Strict, false);
        let created = api.create_from(resource(0), NAMESPACE, body, &options);
        created.expect("the pod is valid");
    }
    api
});

fn resource(index: u8) -> &'static ServedResource {
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

/// Decodes a body and creates the object without storing it. It may be accepted or rejected; the answer of an accepted
/// object must be accepted again.
pub(crate) fn body(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let encoding = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf][usize::from(first % 3)];
    let resource = resource(first / 3);
    let namespace = if resource.namespaced { NAMESPACE } else { "" };
    let options = options_of(FieldValidation::Warn, true);
    let body = WriteBody { bytes, encoding };
    match API.create_from(resource, namespace, body, &options) {
        Ok(written) => {
            let answer = serde_json::to_vec(&*written.version.object()).expect("JSON");
            let body = WriteBody {
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
            let patch = RequestPatch {
                patch_type: *patch_type,
                bytes,
            };
            if let Err(error) = API.patch(resource(0), NAMESPACE, "a", sub, patch, &options) {
                refused(&error);
            }
        }
        // A configuration that does not fit its type is answered with 500, as by kube-apiserver.
        None => drop(API.apply(resource(0), NAMESPACE, "a", sub, bytes, &options)),
    }
}

/// Parses a selector and filters a list. The parts that it reads of an object must suffice for its decision.
pub(crate) fn selector(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (labels, fields) = match first % 2 {
        0 => (text, ""),
        _ => ("", text),
    };
    let selectors = match Selectors::parse(resource(first / 2), labels, fields) {
        Ok(selectors) => selectors,
        Err(error) => return refused(&error),
    };
    let pods = ListRequest::default();
    let parts = berth_apiserver::storage::Parts::at(selectors.pointers());
    for version in API.list(resource(0), &pods).expect("all pods").items {
        let part = parts.read(version.body()).expect("the parts of a pod");
        assert_eq!(
            selectors.matches(&part),
            selectors.matches(&version.object())
        );
    }
    let narrowed = ListRequest {
        selectors,
        ..ListRequest::default()
    };
    if let Err(error) = API.list(resource(first / 2), &narrowed) {
        refused(&error);
    }
}

/// Parses a quantity. Its canonical form is the same amount, and canonical.
pub(crate) fn quantity(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let parsed = text.trim().parse::<Quantity>();
    if let Ok(canonical) = Quantity::wire_text(text) {
        assert_eq!(parsed, canonical.parse(), "{text:?} is {canonical:?}");
        let again = Quantity::wire_text(&canonical).expect("canonical");
        assert_eq!(again, canonical, "{text:?}");
    }
    if let Ok(in_milli) = Quantity::wire_text_in_milli(text) {
        assert!(
            in_milli.parse::<Quantity>().is_ok(),
            "{text:?} is {in_milli:?}"
        );
    }
}

/// Lists pods from a continue token: the bytes are the token, or its decoded text. An accepted token leads to the end
/// of the list.
pub(crate) fn continue_token(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else {
        return;
    };
    let mut token = match first % 2 {
        0 => match std::str::from_utf8(bytes) {
            Ok(token) => token.to_owned(),
            Err(_) => return,
        },
        _ => URL_SAFE_NO_PAD.encode(bytes),
    };
    let mut pages = 0;
    while !token.is_empty() {
        let request = ListRequest {
            namespace: Some(NAMESPACE),
            continue_token: &token,
            limit: 1,
            ..ListRequest::default()
        };
        match API.list(resource(0), &request) {
            Ok(page) => {
                assert!(page.items.len() <= 1);
                token = page.continue_token;
            }
            // The revision has not been written.
            Err(error) if error.code == 504 => return,
            Err(error) => return refused(&error),
        }
        pages += 1;
        assert!(
            pages <= NAMES.len(),
            "{pages} pages of {} pods",
            NAMES.len()
        );
    }
}
