//! Every field of every kind that the scheduler reads, with the extremes of its shape, in JSON and in protobuf. The
//! fields are taken from the facts about Kubernetes' types.

use crate::content::Payload;
use berth_api::requests::{SumOptions, pod_resources};
use berth_api::{Kind, PartialObject};
use berth_protobuf::facts::{Facts, FieldFacts, TypeId, ValueShape};
use berth_protobuf::{Object, Types, encode};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The number of entries of a long list.
const LONG: usize = 100_000;
/// A text that is replaced by bytes that are not UTF-8 in protobuf.
const MARK: &str = "not-utf-8";
const NOT_UTF_8: &[u8] = b"\xff\xc3t-ut\xed\xa0\x80";
/// The fields that identify an object and, of a pod, its node. API servers store valid ones only.
const IDENTITY: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
    "spec.nodeName",
];

/// The extremes of a value. API servers store all of them in some field.
fn extremes(shape: &ValueShape) -> Vec<Value> {
    match shape {
        ValueShape::Bool => vec![json!(false), json!(true)],
        ValueShape::Int32 => vec![json!(i32::MIN), json!(0), json!(i32::MAX)],
        ValueShape::Int64 => vec![json!(i64::MIN), json!(0), json!(i64::MAX)],
        ValueShape::Float => vec![json!(f64::MAX), json!(f64::MIN_POSITIVE), json!(-1)],
        ValueShape::String => vec![
            json!(""),
            json!("UnknownToThisVersion"),
            json!("\u{0}\u{feff}\u{10ffff}\"\\"),
            json!(MARK),
            json!("long".repeat(LONG / 4)),
        ],
        ValueShape::Bytes => vec![json!(""), json!("AP8=")],
        ValueShape::Time => vec![
            json!("9999-12-31T23:59:59Z"),
            json!("10000-01-01T23:59:59Z"),
            json!("292277026596-12-04T15:30:07Z"),
            json!("0001-01-01T00:00:01Z"),
            json!("-0001-12-31T00:00:00Z"),
            json!("-292277022657-01-27T08:29:52Z"),
        ],
        ValueShape::MicroTime => vec![
            json!("9999-12-31T23:59:59.999999Z"),
            json!("10000-01-01T23:59:59.000000Z"),
            json!("-0001-12-31T00:00:00.000001Z"),
        ],
        ValueShape::Quantity => vec![
            json!("0"),
            json!("9".repeat(5_000)),
            json!(format!("0.{}1", "0".repeat(5_000))),
            json!("9223372036854775807Ei"),
            json!("1e2147483647"),
            json!("1n"),
        ],
        ValueShape::IntOrString => vec![json!(i32::MAX), json!(""), json!(MARK)],
        ValueShape::Strings => vec![json!([]), json!([""])],
        ValueShape::Any | ValueShape::Raw | ValueShape::Fields => {
            vec![json!({}), json!({"a": [null, 1.5e300, u64::MAX, {"": {}}]})]
        }
        ValueShape::Object(_) => vec![json!({})],
        ValueShape::List(items) => {
            let item = items.zero().unwrap_or_else(|| json!({}));
            vec![json!([]), json!([item]), Value::Array(vec![item; LONG])]
        }
        ValueShape::Map(values) => {
            let value = values.zero().unwrap_or_else(|| json!({}));
            let many: Map<String, Value> = (0..LONG / 10)
                .map(|at| (at.to_string(), value.clone()))
                .collect();
            vec![
                json!({}),
                json!({"": value, MARK: value}),
                Value::Object(many),
            ]
        }
        // No field of these kinds has such a value.
        ValueShape::Duration | ValueShape::SchemaOr(_) => Vec::new(),
    }
}

/// A step from an object to a value in it.
#[derive(Debug, Clone)]
enum Step {
    Field(&'static str),
    /// A further item of a list.
    Item,
    /// An entry of a map.
    Entry,
}

/// Sets a value at its place, and keeps existing values.
fn put(object: &mut Value, path: &[Step], value: Value) {
    let Some((step, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    let at = match step {
        Step::Field(name) => &mut object[*name],
        Step::Entry => &mut object["example.com/key"],
        Step::Item => {
            if !object.is_array() {
                *object = json!([]);
            }
            let list = object.as_array_mut().expect("a list");
            list.push(Value::Null);
            list.last_mut().expect("the item")
        }
    };
    put(at, rest, value);
}

fn text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Item => text.push_str("[]"),
            Step::Entry => text.push_str("{}"),
        }
    }
    text
}

/// Calls `each` with every field of a type and of the types in it. A field of a type is visited where it is found first.
fn visit(
    at: TypeId,
    path: &mut Vec<Step>,
    seen: &mut BTreeSet<(usize, &'static str)>,
    each: &mut impl FnMut(&[Step], &ValueShape),
) {
    for field in &Facts::get().types[at.0].fields {
        if field.name == FieldFacts::EMBEDDED {
            if let ValueShape::Object(inner) = field.shape {
                visit(inner, path, seen, each);
            }
            continue;
        }
        if !seen.insert((at.0, field.name)) {
            continue;
        }
        path.push(Step::Field(field.name));
        let depth = path.len();
        let mut shape = &field.shape;
        loop {
            each(path, shape);
            match shape {
                ValueShape::List(items) => {
                    path.push(Step::Item);
                    shape = &**items;
                }
                ValueShape::Map(values) => {
                    path.push(Step::Entry);
                    shape = &**values;
                }
                ValueShape::Object(inner) => {
                    visit(*inner, path, seen, each);
                    break;
                }
                _ => break,
            }
        }
        path.truncate(depth - 1);
    }
}

/// The object without the extreme. A pod is on a node, and requests 3 CPUs.
fn plain(kind: Kind) -> Value {
    let mut object = json!({
        "metadata": {"name": "o", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
    });
    if kind == Kind::Pod {
        let requests = json!({"cpu": "3"});
        object["spec"] = json!({
            "nodeName": "n",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        });
        object["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    }
    object
}

/// The object in protobuf, with text that is not UTF-8.
fn protobuf(kind: Kind, object: &Value) -> Option<Vec<u8>> {
    let message = Types::get().of_kind(&kind.api_version(), kind.name())?;
    let mut bytes = encode(message, object);
    let mark = MARK.as_bytes();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(mark.len()).position(|w| w == mark) {
        from += at;
        bytes[from..from + mark.len()].copy_from_slice(NOT_UTF_8);
    }
    Some(bytes)
}

/// The fault of the object as it is read.
fn fault(kind: Kind, read: &PartialObject) -> Option<String> {
    if let Some(field) = read.unread.first() {
        return Some(format!("{} is unread: {}", field.path, field.reason));
    }
    let metadata = read.object.metadata();
    if (&*metadata.name, &*metadata.namespace, &*metadata.uid) != ("o", "ns", "u") {
        return Some(format!("it is another object: {metadata:?}"));
    }
    let pod = read.object.as_pod().filter(|_| kind == Kind::Pod)?;
    let held = pod_resources(pod, SumOptions::PLACED).milli_cpu;
    let counts = pod.spec.node_name == "n" && held >= 3_000 && !pod.is_terminal();
    (!counts).then(|| format!("it holds {held} milli-CPU on {:?}", pod.spec.node_name))
}

/// Q-87a: any content of a field leaves the object readable, and a pod counts on its node.
#[test]
fn an_object_counts_whatever_a_field_contains() {
    let facts = Facts::get();
    let mut faults = Vec::new();
    let (mut fields, mut in_protobuf) = (0, 0);
    for kind in Kind::ALL.iter().copied() {
        let (group, version, plural) = kind.resource();
        let mut resources = facts.resources.iter();
        let resource =
            resources.find(|r| (r.group, r.version, r.plural) == (group, version, plural));
        let resource = resource.unwrap_or_else(|| panic!("{kind:?} has no facts"));
        let root = facts.find(resource.type_name).expect("a type");
        let mut each = |path: &[Step], shape: &ValueShape| {
            let place = text(path);
            if IDENTITY.contains(&&*place) {
                return;
            }
            fields += 1;
            // Go writes null for these where they are absent and not left out.
            let null = matches!(
                shape,
                ValueShape::List(_) | ValueShape::Map(_) | ValueShape::Time | ValueShape::MicroTime
            );
            let is_whole = |value: &Value| {
                // An empty list of containers, or an empty spec, is another pod.
                let is_base = ["metadata", "spec", "spec.containers"].contains(&&*place);
                !is_base || value.as_array().is_some_and(|list| list.len() > 1)
            };
            let values = extremes(shape).into_iter();
            let values = values.chain(null.then_some(Value::Null)).filter(is_whole);
            for value in values {
                let mut object = plain(kind);
                let mut value = value;
                if place == "spec.containers" {
                    let list = value.as_array_mut().expect("a list");
                    list[0] = object["spec"]["containers"][0].clone();
                }
                put(&mut object, path, value);
                let json = object.to_string();
                let message = Types::get().of_kind(&kind.api_version(), kind.name());
                let bytes = protobuf(kind, &object);
                let message = message.zip(bytes.as_deref());
                in_protobuf += usize::from(message.is_some());
                let wires = [
                    Some(Payload::Json(json.as_bytes())),
                    message.map(|(of, bytes)| Payload::Protobuf(Object::new(of, bytes))),
                ];
                for payload in wires.into_iter().flatten() {
                    let wire = if payload.json().is_some() {
                        "JSON"
                    } else {
                        "protobuf"
                    };
                    let found = match payload.partly_of_kind(kind) {
                        Ok(read) => fault(kind, &read),
                        Err(error) => Some(error.to_string()),
                    };
                    if let Some(fault) = found {
                        let shown: String = object.to_string().chars().take(300).collect();
                        faults.push(format!("{kind:?} {place} in {wire}: {fault}\n  {shown}"));
                    }
                }
            }
        };
        visit(root, &mut Vec::new(), &mut BTreeSet::new(), &mut each);
    }
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    assert!(
        fields > 1_000 && in_protobuf > 5_000,
        "{fields} fields, {in_protobuf} messages"
    );
}

/// Q-87b: the identity and the node of a malformed object are read if possible.
#[test]
fn what_identifies_a_malformed_object_is_read() {
    let message = Types::get().of_kind("v1", "Pod").expect("pods");
    let pod = plain(Kind::Pod);
    let bytes = encode(message, &pod);
    let (mut whole, mut lost) = (0, 0);
    for length in 0..bytes.len() {
        let payload = Payload::Protobuf(Object::new(message, &bytes[..length]));
        // A message that ends between two fields is another object.
        if payload.of_kind(Kind::Pod).is_ok() {
            continue;
        }
        let read = payload.partly_of_kind(Kind::Pod).expect("a part");
        assert!(!read.unread.is_empty(), "{length} bytes");
        whole += usize::from(read.is_identified());
        lost += usize::from(!read.is_identified());
        let pod = read.object.as_pod().expect("a pod");
        assert!(["", "n"].contains(&&*pod.spec.node_name));
    }
    assert!(whole > 0 && lost > 0, "{whole} identified, {lost} not");
    for (json, is_identified) in [
        (
            r#"{"metadata":{"name":"o"},"spec":{"nodeName":"n","priority":"x"}}"#,
            true,
        ),
        (
            r#"{"metadata":{"name":"o"},"spec":{"nodeName":["n"]}}"#,
            false,
        ),
        (
            r#"{"metadata":{"name":["o"]},"spec":{"nodeName":"n"}}"#,
            false,
        ),
    ] {
        let read = Payload::Json(json.as_bytes()).partly_of_kind(Kind::Pod);
        assert_eq!(
            read.expect("a part").is_identified(),
            is_identified,
            "{json}"
        );
    }
    assert!(Payload::Json(b"{").partly_of_kind(Kind::Pod).is_err());
}
