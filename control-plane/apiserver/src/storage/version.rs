//! One version of an object: its JSON, which is shared by the disk, answers, lists and watches, and further encodings,
//! each made on first use.
//!
//! The parsed object takes several times the memory of its JSON. It is kept while it is in use, and while it is among
//! the most recently used objects ([`Recent`]); later it is parsed again.

use super::parts::Parts;
use berth_objects::access::StoredObject;
use berth_objects::raw_json::managed_fields_to_text;
use berth_objects::raw_json::{self, FieldTexts, WrittenText};
use berth_protobuf::MessageType;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeSeed;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The limits of kept parsed objects, in bytes of JSON and in objects: enough for readers in this process and a
/// following write. Further objects would be evicted from the caches of the processor before their use.
const RECENT_BYTES_MAX: usize = 1024 * 1024;
const RECENT_MAX: usize = 512;
/// The age from which an object is no longer kept parsed.
const RECENT_AGE_MAX: Duration = Duration::from_secs(10);
/// The usual maximum size of a body.
const BODY_BYTES: usize = 4 * 1024;

/// One version of an object.
#[derive(Debug)]
pub struct ObjectVersion {
    tree: Mutex<Weak<Value>>,
    type_meta: TypeMeta,
    revision: u64,
    written: Instant,
    /// `{"metadata":…}`: the object without `apiVersion` and `kind`, which a list leaves out.
    body: Bytes,
    /// The same for the other group-version that serves the object, where there is one.
    other_body: OnceLock<Bytes>,
    /// The object as a message of protobuf.
    message: OnceLock<Bytes>,
}

/// The fields of an object that its body leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeMeta {
    pub(super) api_version: Box<str>,
    pub(super) kind: Box<str>,
}

impl TypeMeta {
    fn group(&self) -> &str {
        let group = self.api_version.split_once('/');
        group.map_or("", |(group, _)| group)
    }

    /// The fields that are kept as the text of their JSON.
    fn texts(&self) -> FieldTexts {
        FieldTexts::of(self.group(), &self.kind)
    }

    fn has_raw_json(&self) -> bool {
        raw_json::has(self.group(), &self.kind)
    }
}

/// The objects that were parsed last.
#[derive(Debug, Default)]
struct Recent {
    objects: VecDeque<KeptObject>,
    bytes: usize,
}

/// A parsed object, the length of its body, and when it was parsed.
#[derive(Debug)]
struct KeptObject {
    object: StoredObject,
    bytes: usize,
    since: Instant,
}

static RECENT: Mutex<Recent> = Mutex::new(Recent {
    objects: VecDeque::new(),
    bytes: 0,
});

// === impl Recent ===

impl Recent {
    /// Keeps an object. Others leave, to be dropped outside of the lock.
    fn keep(&mut self, kept: KeptObject, left: &mut Vec<StoredObject>) {
        self.bytes += kept.bytes;
        self.objects.push_back(kept);
        while self.bytes > RECENT_BYTES_MAX || self.objects.len() > RECENT_MAX {
            left.extend(self.remove_oldest());
        }
    }

    fn remove_oldest(&mut self) -> Option<StoredObject> {
        let KeptObject { object, bytes, .. } = self.objects.pop_front()?;
        self.bytes -= bytes;
        Some(object)
    }

    /// The objects that have been kept for long leave.
    fn remove_old(&mut self, now: Instant) -> Vec<StoredObject> {
        let mut left = Vec::new();
        let is_old = |kept: &KeptObject| now.saturating_duration_since(kept.since) > RECENT_AGE_MAX;
        while self.objects.front().is_some_and(is_old) {
            left.extend(self.remove_oldest());
        }
        if left.len() > self.objects.len() {
            self.objects.shrink_to_fit();
        }
        left
    }
}

fn recent() -> MutexGuard<'static, Recent> {
    RECENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps objects for a while, each with the length of its body.
pub(super) fn keep(objects: Vec<(StoredObject, usize)>) {
    let mut left = Vec::new();
    let since = Instant::now();
    let mut recent = recent();
    for (object, bytes) in objects {
        let kept = KeptObject {
            object,
            bytes,
            since,
        };
        recent.keep(kept, &mut left);
    }
    drop(recent);
}

/// Releases parsed objects that were kept for long.
pub(super) fn remove_old(now: Instant) {
    let left = recent().remove_old(now);
    drop(left);
}

// === impl Draft ===

/// An object that is serialised but for its revision, so that little is left to do when the revision is known.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    object: Value,
    type_meta: TypeMeta,
    body: Vec<u8>,
    /// The position of the revision in the body.
    gap: Option<Gap>,
}

/// The end of the metadata in a body.
#[derive(Debug, Clone, Copy)]
struct Gap {
    at: usize,
    is_first: bool,
}

impl Draft {
    pub(super) fn new(mut object: Value) -> Self {
        managed_fields_to_text(&mut object);
        raw_json::to_text(&mut object);
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
        let type_meta = TypeMeta {
            api_version: text("apiVersion").into(),
            kind: text("kind").into(),
        };
        let (body, gap) = encode_body(&object, type_meta.texts());
        Self {
            object,
            type_meta,
            body,
            gap,
        }
    }

    /// The version of a revision, or one that is not stored, and the object with the length of its body, which is to be
    /// kept.
    pub(super) fn version(
        mut self,
        revision: Option<u64>,
        written: Instant,
    ) -> (ObjectVersion, (StoredObject, usize)) {
        if let Some(metadata) = self
            .object
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
        {
            if let Some(revision) = revision {
                metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
            }
            insert_revision(&mut self.body, self.gap, metadata.get("resourceVersion"));
        }
        let revision = revision.unwrap_or(0);
        let version = ObjectVersion::of_body(self.type_meta, exact(self.body), revision, written);
        let object = Arc::new(self.object);
        *version.tree() = Arc::downgrade(&object);
        let bytes = version.body.len();
        (version, (object, bytes))
    }
}

// === impl Version ===

impl ObjectVersion {
    /// A version that was serialised before.
    pub(super) fn of_body(
        type_meta: TypeMeta,
        body: Bytes,
        revision: u64,
        written: Instant,
    ) -> Self {
        Self {
            tree: Mutex::new(Weak::new()),
            type_meta,
            revision,
            written,
            body,
            other_body: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// An object that is shown but not stored, such as the answer to a dry run.
    pub fn unstored(object: Value) -> Arc<Self> {
        let (version, object) = Draft::new(object).version(None, Instant::now());
        keep(vec![object]);
        Arc::new(version)
    }

    /// The object, with its `resourceVersion`.
    pub fn object(&self) -> StoredObject {
        if let Some(object) = self.tree().upgrade() {
            return object;
        }
        let object = Arc::new(self.parse());
        *self.tree() = Arc::downgrade(&object);
        keep(vec![(Arc::clone(&object), self.body.len())]);
        object
    }

    /// Parts of the object. Unlike [`ObjectVersion::object`] this keeps no parsed object, so that reading a part of
    /// very many objects neither builds their trees nor evicts objects in use.
    pub fn parts(&self, parts: &Parts) -> StoredObject {
        if let Some(object) = self.tree().upgrade() {
            return object;
        }
        match parts.read(&self.body) {
            Ok(object) => Arc::new(object),
            Err(_) => self.object(),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Weak<Value>> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parse(&self) -> Value {
        let mut parser = serde_json::Deserializer::from_slice(&self.body);
        // The body was serialised from an object.
        let mut object = self
            .type_meta
            .texts()
            .deserialize(&mut parser)
            .unwrap_or_default();
        if let Some(map) = object.as_object_mut() {
            let TypeMeta { api_version, kind } = &self.type_meta;
            for (field, text) in [("apiVersion", api_version), ("kind", kind)] {
                if !text.is_empty() {
                    map.insert(field.to_owned(), Value::from(&**text));
                }
            }
        }
        object
    }

    pub(super) fn type_meta(&self) -> &TypeMeta {
        &self.type_meta
    }

    /// The revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The time of the write.
    pub fn written(&self) -> Instant {
        self.written
    }

    /// The JSON of the object without `apiVersion` and `kind`.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The object as a message of protobuf, encoded on first use.
    pub fn message(&self, message: &MessageType) -> &Bytes {
        let encoded = || match self.tree().upgrade() {
            Some(object) => berth_protobuf::encode(message, &object),
            // The body does not distinguish texts from JSON.
            None if self.type_meta.has_raw_json() => {
                berth_protobuf::encode(message, &self.object())
            }
            // The body was serialised from an object.
            None => berth_protobuf::encode_json(message, &self.body).unwrap_or_default(),
        };
        self.message.get_or_init(|| exact(encoded()))
    }

    /// As [`ObjectVersion::body`], for the object as another group-version shows it.
    pub fn other_body(&self, convert: impl FnOnce(&Value) -> Value) -> &Bytes {
        self.other_body
            .get_or_init(|| whole_body(&convert(&self.object())))
    }
}

/// Bytes without room for more.
fn exact(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}

/// The JSON of an object without `apiVersion` and `kind`.
fn whole_body(object: &Value) -> Bytes {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or("");
    let texts = FieldTexts::of_kind(text("apiVersion"), text("kind"));
    let (mut body, gap) = encode_body(object, texts);
    insert_revision(&mut body, gap, object.pointer("/metadata/resourceVersion"));
    exact(body)
}

/// The JSON of an object without `apiVersion`, `kind` and `metadata.resourceVersion`, and where that is to be inserted.
fn encode_body(object: &Value, texts: FieldTexts) -> (Vec<u8>, Option<Gap>) {
    let mut out = Vec::with_capacity(BODY_BYTES);
    let mut gap = None;
    let Some(map) = object.as_object() else {
        put_json(&mut out, object);
        return (out, None);
    };
    out.push(b'{');
    match map.get("metadata") {
        Some(Value::Object(metadata)) => {
            out.extend_from_slice(b"\"metadata\":{");
            let start = out.len();
            let of_metadata = texts.below("metadata");
            for (key, value) in metadata.iter().filter(|(key, _)| *key != "resourceVersion") {
                put_entry(
                    &mut out,
                    start,
                    key,
                    &WrittenText(value, of_metadata.below(key)),
                );
            }
            // The revision is only known when the object is stored.
            gap = Some(Gap {
                at: out.len(),
                is_first: out.len() == start,
            });
            out.push(b'}');
        }
        Some(other) => put_entry(&mut out, 1, "metadata", other),
        None => {}
    }
    for (key, value) in map {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            put_entry(&mut out, 1, key, &WrittenText(value, texts.below(key)));
        }
    }
    out.push(b'}');
    (out, gap)
}

/// Appends an entry to the object that begins at `start`.
fn put_entry(out: &mut Vec<u8>, start: usize, key: &str, value: &impl Serialize) {
    if out.len() > start {
        out.push(b',');
    }
    put_json(out, key);
    out.push(b':');
    put_json(out, value);
}

fn put_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // A JSON value always serialises: its keys are strings and it is not a reader that could fail.
    let _ = serde_json::to_writer(out, value);
}

fn insert_revision(body: &mut Vec<u8>, gap: Option<Gap>, revision: Option<&Value>) {
    let (Some(gap), Some(revision)) = (gap, revision) else {
        return;
    };
    let comma = if gap.is_first { "" } else { "," };
    let text = format!("{comma}\"resourceVersion\":{revision}");
    body.splice(gap.at..gap.at, text.into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_is_parsed_again_as_it_was() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [
                {"manager": "m", "fieldsV1": {"f:spec": {".": {}, "k:{\"name\":\"c\"}": {}}}},
                {"manager": "n", "fieldsV1": null},
                {"manager": "o"},
            ]}, "spec": {"fieldsV1": {"a": 1}, "list": [1, -2, 0.1, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0, true, null, "t"]}}),
            json!({"metadata": {"managedFields": [null, 1, -1, 1.5, true, "t", []]}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": null, "data": {"a": "\u{1}"}}),
            json!({"kind": "X", "metadata": "text"}),
            json!({}),
        ] {
            let (version, kept) = Draft::new(object.clone()).version(Some(7), Instant::now());
            assert_eq!(
                (version.parse(), version.revision()),
                (Value::clone(&kept.0), 7)
            );
            if object.pointer("/metadata").is_some_and(Value::is_object) {
                assert_eq!(kept.0["metadata"]["resourceVersion"], "7");
            }
            let version = ObjectVersion::unstored(object.clone());
            let first = version.object();
            assert_eq!(version.parse(), *first, "{object}");
            let mut shown = Value::clone(&first);
            berth_objects::raw_json::managed_fields_to_json(&mut shown);
            assert_eq!(shown, object);
        }
    }

    #[test]
    fn few_objects_stay_parsed() {
        let mut recent = Recent::default();
        let since = Instant::now();
        let mut keep = |bytes| {
            let mut left = Vec::new();
            let object = StoredObject::default();
            let kept = KeptObject {
                object,
                bytes,
                since,
            };
            recent.keep(kept, &mut left);
            (recent.objects.len(), recent.bytes, left.len())
        };
        for count in 1..=RECENT_MAX {
            assert_eq!(keep(1), (count, count, 0));
        }
        assert_eq!(keep(1), (RECENT_MAX, RECENT_MAX, 1));
        // A large object takes the place of all others, and does not stay itself when it is too large.
        assert_eq!(keep(RECENT_BYTES_MAX), (1, RECENT_BYTES_MAX, RECENT_MAX));
        assert_eq!(keep(RECENT_BYTES_MAX + 1), (0, 0, 2));
        assert_eq!(keep(1), (1, 1, 0));
        assert_eq!(recent.remove_old(since + RECENT_AGE_MAX).len(), 0);
        let later = since + RECENT_AGE_MAX + Duration::from_millis(1);
        assert_eq!(recent.remove_old(later).len(), 1);
        assert_eq!((recent.objects.len(), recent.bytes), (0, 0));
    }
}
