//! The document of OpenAPI version 2, derived from version 3, and its protobuf encoding (the messages of gnostic's
//! `OpenAPIv2.proto`), which kubectl requests.

use super::components::COMPONENTS;
use crate::view::FieldView;
use berth_protobuf::wire::Writer;
use serde_json::{Map, Value, json};

const DEFINITIONS: &str = "#/definitions/";
const KIND: &str = "x-kubernetes-group-version-kind";
/// Marks an object that may have fields other than the fields of its schema.
const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
const METHODS: [(&str, u32); 5] = [
    ("get", 2),
    ("put", 3),
    ("post", 4),
    ("delete", 5),
    ("patch", 8),
];

/// Converts a document of version 3.
pub(super) fn convert(mut document: Value) -> Value {
    let mut paths = document["paths"].take();
    for path in paths
        .as_object_mut()
        .into_iter()
        .flat_map(|p| p.values_mut())
    {
        for (name, operation) in path.as_object_mut().into_iter().flatten() {
            if name == "parameters" {
                parameters(operation);
            } else {
                convert_operation(operation);
            }
        }
    }
    let mut definitions = document["components"]["schemas"].take();
    for definition in definitions
        .as_object_mut()
        .into_iter()
        .flat_map(|d| d.values_mut())
    {
        // Clients of version 2 would reject every field that is not listed.
        if definition[OPEN] == true {
            let kind = definition[KIND].take();
            *definition = json!({"type": "object", KIND: kind});
        }
        convert_schema(definition);
    }
    json!({
        "swagger": "2.0",
        "info": document["info"].take(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {
            "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"},
        },
        "security": [{"BearerToken": []}],
    })
}

/// A parameter states its type itself.
fn parameters(list: &mut Value) {
    for parameter in list.as_array_mut().into_iter().flatten() {
        let Some(parameter) = parameter.as_object_mut() else {
            continue;
        };
        if let Some(Value::Object(schema)) = parameter.remove("schema") {
            parameter.extend(schema);
        }
    }
}

fn convert_operation(operation: &mut Value) {
    let Some(map) = operation.as_object_mut() else {
        return;
    };
    let list = map.entry("parameters").or_insert(json!([]));
    parameters(list);
    // Version 2 has the body among the parameters.
    let body = map.remove("requestBody");
    if let Some(content) = body.as_ref().and_then(|b| b.get("content")?.as_object()) {
        let consumes: Vec<&String> = content.keys().collect();
        map.insert("consumes".to_owned(), json!(consumes));
        let mut schema = content
            .values()
            .next()
            .map_or(json!({}), |c| c["schema"].clone());
        convert_schema(&mut schema);
        let parameter = json!({"name": "body", "in": "body", "required": true, "schema": schema});
        if let Some(list) = map.get_mut("parameters").and_then(Value::as_array_mut) {
            list.push(parameter);
        }
    }
    map.insert("produces".to_owned(), json!(["application/json"]));
    // Version 2 has one schema for each response, for all media types.
    for response in map
        .get_mut("responses")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(|r| r.values_mut())
    {
        if let Some(content) = response.as_object_mut().and_then(|r| r.remove("content")) {
            let mut schema = content["application/json"]["schema"].clone();
            convert_schema(&mut schema);
            response["schema"] = schema;
        }
    }
}

fn convert_schema(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(list)) = map.remove("allOf") {
        map.extend(
            list.into_iter()
                .filter_map(|v| v.as_object().cloned())
                .flatten(),
        );
    }
    if map.remove("oneOf").is_some() {
        map.insert("type".to_owned(), json!("string"));
    }
    for key in ["anyOf", "not"] {
        map.remove(key);
    }
    // Version 2 cannot express nullable values or additional fields: they become values of any type.
    let is_nullable = map
        .remove("nullable")
        .is_some_and(|nullable| nullable == true);
    let is_open = map.get(OPEN).is_some_and(|open| open == true);
    if is_nullable || is_open {
        for key in ["type", "items", "properties"] {
            map.remove(key);
        }
    }
    if let Some(Value::String(target)) = map.get_mut("$ref") {
        *target = target.replace(COMPONENTS, DEFINITIONS);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(key) {
            convert_schema(below);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(convert_schema);
    }
}

/// Encodes a document of version 2.
pub(super) fn to_protobuf(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    text(&mut out, 1, document, "swagger");
    out.message(2, |info| {
        text(info, 1, &document["info"], "title");
        text(info, 2, &document["info"], "version");
    });
    out.message(8, |paths| named(paths, 2, &document["paths"], path_item));
    out.message(9, |all| named(all, 1, &document["definitions"], schema));
    out.into_bytes()
}

fn text(out: &mut Writer, number: u32, object: &Value, field: &str) {
    if let Some(text) = object.get(field).and_then(Value::as_str) {
        out.bytes(number, text.as_bytes());
    }
}

fn texts(out: &mut Writer, number: u32, list: Option<&Value>) {
    for text in list
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        out.bytes(number, text.as_bytes());
    }
}

/// Entries of a map as messages of a name and a value.
fn named(out: &mut Writer, number: u32, map: &Value, value: fn(&mut Writer, &Value)) {
    for (name, entry) in map.as_object().into_iter().flatten() {
        out.message(number, |out| {
            out.bytes(1, name.as_bytes());
            out.message(2, |out| value(out, entry));
        });
    }
}

/// Any value, as YAML; JSON is YAML.
fn any(out: &mut Writer, value: &Value) {
    out.bytes(2, value.to_string().as_bytes());
}

fn extensions(out: &mut Writer, number: u32, object: &Value) {
    let own: Map<String, Value> = object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("x-"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    named(out, number, &Value::Object(own), any);
}

fn path_item(out: &mut Writer, path: &Value) {
    for (method, number) in METHODS {
        if let Some(found) = path.get(method) {
            out.message(number, |out| operation(out, found));
        }
    }
    all_parameters(out, 9, path);
}

fn operation(out: &mut Writer, operation: &Value) {
    texts(out, 1, operation.get("tags"));
    text(out, 5, operation, "operationId");
    texts(out, 6, operation.get("produces"));
    texts(out, 7, operation.get("consumes"));
    all_parameters(out, 8, operation);
    out.message(9, |out| named(out, 1, &operation["responses"], response));
    extensions(out, 13, operation);
}

fn response(out: &mut Writer, response: &Value) {
    out.message(1, |out| {
        text(out, 1, response, "description");
        if let Some(found) = response.get("schema") {
            out.message(2, |out| out.message(1, |out| schema(out, found)));
        }
    });
}

fn all_parameters(out: &mut Writer, number: u32, holder: &Value) {
    for parameter in holder.items("parameters").iter() {
        out.message(number, |out| {
            out.message(1, |out| one_parameter(out, parameter))
        });
    }
}

fn one_parameter(out: &mut Writer, parameter: &Value) {
    let place = parameter["in"].as_str().unwrap_or("");
    let required = parameter["required"] == true;
    if place == "body" {
        out.message(1, |out| {
            text(out, 2, parameter, "name");
            text(out, 3, parameter, "in");
            out.varint(4, required.into());
            out.message(5, |out| schema(out, &parameter["schema"]));
        });
        return;
    }
    // The numbers of the name, the type and whether items are unique differ.
    let (kind, type_number, unique) = if place == "query" {
        (3, 6, 20)
    } else {
        (4, 5, 19)
    };
    out.message(2, |out| {
        out.message(kind, |out| {
            out.varint(1, required.into());
            text(out, 2, parameter, "in");
            text(out, 4, parameter, "name");
            text(out, type_number, parameter, "type");
            out.varint(unique, (parameter["uniqueItems"] == true).into());
        });
    });
}

fn schema(out: &mut Writer, found: &Value) {
    text(out, 1, found, "$ref");
    text(out, 2, found, "format");
    text(out, 3, found, "title");
    text(out, 4, found, "description");
    if let Some(default) = found.get("default") {
        out.message(5, |out| any(out, default));
    }
    text(out, 13, found, "pattern");
    texts(out, 19, found.get("required"));
    for value in found.items("enum").iter() {
        out.message(20, |out| any(out, value));
    }
    match found.get("additionalProperties") {
        Some(Value::Bool(flag)) => out.message(21, |out| out.varint(2, (*flag).into())),
        Some(values) => out.message(21, |out| out.message(1, |out| schema(out, values))),
        None => {}
    }
    if found.get("type").is_some() {
        out.message(22, |out| text(out, 1, found, "type"));
    }
    if let Some(items) = found.get("items") {
        out.message(23, |out| out.message(1, |out| schema(out, items)));
    }
    if let Some(properties) = found.get("properties") {
        out.message(25, |out| named(out, 1, properties, schema));
    }
    extensions(out, 31, found);
}
