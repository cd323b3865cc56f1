//! The JSON of objects as Kubernetes' internal types have it, which errors of kube-apiserver contain: the fields have the
//! names of Go, and none is left out.

use super::errors::json_text;
use crate::schema::Schemas;
use crate::schema::model::{Model, ModelField, ObjectType, ValueShape};
use crate::view::FieldView;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::sync::LazyLock;

const FACTS: &str = include_str!("../../facts/internal.txt");
/// The fields of the security context of a pod that v1 has in the spec itself.
const HOST_FIELDS: [&str; 5] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
];

static ABSENT: Value = Value::Null;

/// A field of an internal type: its name in Go and in v1.
type InternalField = (&'static str, String);

static TYPES: LazyLock<FxHashMap<&'static str, Vec<InternalField>>> = LazyLock::new(|| {
    let lines = FACTS.lines().filter(|line| !line.starts_with('#'));
    let types = lines.filter_map(|line| line.split_once(": "));
    types
        .map(|(name, fields)| (name, fields.split(' ').map(read_field).collect()))
        .collect()
});

fn read_field(field: &'static str) -> InternalField {
    if let Some((shown, name)) = field.split_once('=') {
        return (shown, name.to_owned());
    }
    let mut name = field.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    (field, name)
}

/// A part of an object whose differences errors show.
#[derive(Debug, Clone, Copy)]
pub(super) enum InternalPart {
    PodSpec,
    PersistentVolumeClaimSpec,
    PersistentVolumeSource,
}

impl InternalPart {
    /// The internal type, and the v1 type that has its fields.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::PodSpec => ("PodSpec", "core.v1.PodSpec"),
            Self::PersistentVolumeClaimSpec => (
                "PersistentVolumeClaimSpec",
                "core.v1.PersistentVolumeClaimSpec",
            ),
            Self::PersistentVolumeSource => {
                ("PersistentVolumeSource", "core.v1.PersistentVolumeSpec")
            }
        }
    }

    /// The lines of the JSON of a value, indented by one blank for each level.
    pub(super) fn lines(self, value: &Value) -> Vec<String> {
        let model = Schemas::get().model();
        let (internal, published) = self.names();
        let Some(id) = model.find(published) else {
            return Vec::new();
        };
        let printed = Printed::of_internal(model, internal, model.object_type(id), value, value);
        let mut lines = vec![String::new()];
        printed.print(0, &mut lines);
        lines
    }
}

/// JSON whose fields have an order.
enum Printed {
    Text(String),
    List(Vec<Printed>),
    Fields(Vec<(String, Printed)>),
}

impl Printed {
    /// `spec` is the spec of the pod, whose fields its security context has.
    fn of_internal(
        model: &Model,
        internal: &str,
        published: &ObjectType,
        value: &Value,
        spec: &Value,
    ) -> Self {
        let mut fields = Vec::new();
        for (shown, name) in TYPES.get(internal).into_iter().flatten() {
            if *shown == "^" {
                let metadata = published.field("metadata");
                if let Some(ValueShape::Object(id)) = metadata.map(|field| &field.shape) {
                    let set =
                        Self::set_fields(model, model.object_type(*id), value.part("metadata"));
                    fields.extend(set);
                }
                continue;
            }
            let is_of_host = internal == "PodSecurityContext" && HOST_FIELDS.contains(&&**name);
            let (holder, of_type) = if is_of_host {
                let of_spec = model
                    .find("core.v1.PodSpec")
                    .map(|id| model.object_type(id));
                (spec, of_spec.unwrap_or(published))
            } else {
                (value, published)
            };
            let Some(field) = of_type.field(name) else {
                continue;
            };
            let below = holder.get(name).unwrap_or(&ABSENT);
            // Each pod has a security context.
            let is_context = internal == "PodSpec" && *shown == "SecurityContext";
            let printed = Self::of_field(model, field, is_context, below, spec);
            fields.push(((*shown).to_owned(), printed));
        }
        Self::Fields(fields)
    }

    fn of_field(
        model: &Model,
        field: &ModelField,
        is_always_set: bool,
        value: &Value,
        spec: &Value,
    ) -> Self {
        if value.is_null() && field.pointer && !is_always_set {
            return Self::Text("null".to_owned());
        }
        Self::of_shape(model, &field.shape, value, spec)
    }

    fn of_shape(model: &Model, shape: &ValueShape, value: &Value, spec: &Value) -> Self {
        match (shape, value) {
            (ValueShape::Object(id), _) => {
                let published = model.object_type(*id);
                let name = published.name.rsplit('.').next().unwrap_or_default();
                if published.name.starts_with("core.") && TYPES.contains_key(name) {
                    Self::of_internal(model, name, published, value, spec)
                } else {
                    Self::Fields(Self::set_fields(model, published, value))
                }
            }
            (ValueShape::List(items), Value::Array(list)) => {
                let items = list
                    .iter()
                    .map(|item| Self::of_shape(model, items, item, spec));
                Self::List(items.collect())
            }
            (ValueShape::Map(values), Value::Object(map)) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let entries = entries
                    .into_iter()
                    .map(|(key, value)| (key.clone(), Self::of_shape(model, values, value, spec)));
                Self::Fields(entries.collect())
            }
            (shape, Value::Null) => {
                let zero = shape.zero().unwrap_or_default();
                Self::Text(json_text(zero))
            }
            (_, value) => Self::Text(json_text(value.clone())),
        }
    }

    /// The fields that are set, of a type that has the same JSON in both APIs, such as a label selector.
    fn set_fields(model: &Model, published: &ObjectType, value: &Value) -> Vec<(String, Self)> {
        let mut fields: Vec<&ModelField> = published.fields.iter().collect();
        fields.sort_by_key(|field| field.number);
        let set = fields.into_iter().filter_map(|field| {
            let below = value.field(&field.name)?;
            Some((
                field.name.to_string(),
                Self::of_shape(model, &field.shape, below, &ABSENT),
            ))
        });
        set.collect()
    }

    /// Appends the text to the last line, and further lines.
    fn print(&self, depth: usize, lines: &mut Vec<String>) {
        let entries: Vec<(Option<&str>, &Self)> = match self {
            Self::Text(text) => return append(lines, text),
            Self::List(items) => items.iter().map(|item| (None, item)).collect(),
            Self::Fields(fields) => {
                let fields = fields.iter();
                fields.map(|(name, below)| (Some(&**name), below)).collect()
            }
        };
        let (open, close) = match self {
            Self::List(_) => ("[", "]"),
            _ => ("{", "}"),
        };
        append(lines, open);
        let last = entries.len();
        for (i, (name, below)) in entries.into_iter().enumerate() {
            lines.push(" ".repeat(depth + 1));
            if let Some(name) = name {
                append(lines, &format!("{}: ", json_text(name)));
            }
            below.print(depth + 1, lines);
            if i + 1 < last {
                append(lines, ",");
            }
        }
        if last > 0 {
            lines.push(" ".repeat(depth));
        }
        append(lines, close);
    }
}

fn append(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A misspelt field would be left out.
    #[test]
    fn every_field_of_the_facts_is_in_the_published_api() {
        let model = Schemas::get().model();
        let fields_of = |name: &str| {
            let id = model.find(&format!("core.v1.{name}"));
            let id = id.unwrap_or_else(|| panic!("{name} is a type"));
            model.object_type(id)
        };
        for (name, fields) in TYPES.iter() {
            let published = match *name {
                "PersistentVolumeSource" => fields_of("PersistentVolumeSpec"),
                name => fields_of(name),
            };
            for (shown, field) in fields.iter().filter(|(shown, _)| *shown != "^") {
                let is_of_host = *name == "PodSecurityContext" && HOST_FIELDS.contains(&&**field);
                assert!(
                    is_of_host || published.field(field).is_some(),
                    "{name}.{shown}"
                );
            }
        }
        assert_eq!(TYPES.len(), 118);
    }

    #[test]
    fn all_fields_are_shown() {
        let spec = json!({
            "hostNetwork": true,
            "overhead": {"cpu": "1"},
            "schedulingGates": [{"name": "a<b"}],
        });
        let lines = InternalPart::PodSpec.lines(&spec);
        for (first, expected) in [
            (0, "{"),
            (1, " \"Volumes\": null,"),
            (5, " \"RestartPolicy\": \"\","),
            (6, " \"TerminationGracePeriodSeconds\": null,"),
        ] {
            assert_eq!(lines[first], expected);
        }
        let text = lines.join("\n");
        for expected in [
            "\n \"SecurityContext\": {\n  \"HostNetwork\": true,\n  \"HostPID\": false,",
            "\n  \"ShareProcessNamespace\": null,\n",
            "\n \"Overhead\": {\n  \"cpu\": \"1\"\n },\n",
            "\n \"SchedulingGates\": [\n  {\n   \"Name\": \"a\\u003cb\"\n  }\n ],\n",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        assert_eq!(lines.last().map(String::as_str), Some("}"));
    }
}
