//! Objects with unreadable fields.
//!
//! An object in the API server must count, whatever its fields contain. If an object does not decode, the values that
//! do not decode are omitted, and count as absent. An object whose identity or node is unreadable cannot be used
//! ([`PartialObject::is_identified`]).

use crate::{Kind, Object};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Objects are not searched deeper. The types of Kubernetes have fewer levels.
const DEPTH_MAX: usize = 32;
/// The maximum number of decoding attempts for an object. After them, a value that does not decode is omitted
/// completely.
const TRIES_MAX: usize = 20_000;
/// The maximum number of listed fields; further ones are omitted without being listed.
const UNREAD_MAX: usize = 100;

/// A field that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadField {
    /// The path, such as `status.conditions[0].lastTransitionTime`; empty for the object as a whole.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl UnreadField {
    /// Returns whether the field at a path is this one, or a part of it.
    fn covers(&self, path: &str) -> bool {
        let below = path.strip_prefix(&*self.path);
        self.path.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// An object without the fields that cannot be read.
#[derive(Debug, Clone)]
pub struct PartialObject {
    /// The object.
    pub object: Object,
    /// The fields that cannot be read.
    pub unread: Vec<UnreadField>,
}

impl PartialObject {
    /// Returns whether the identity of the object and, for a pod, its node are known: all these fields were read.
    pub fn is_identified(&self) -> bool {
        let metadata = self.object.metadata();
        let node = self.object.as_pod().map(|pod| &pod.spec.node_name);
        let fields = [
            ("metadata.namespace", Some(&metadata.namespace)),
            ("metadata.uid", Some(&metadata.uid)),
            ("metadata.resourceVersion", Some(&metadata.resource_version)),
            ("spec.nodeName", node),
        ];
        let is_lost = |path: &str| self.unread.iter().any(|field| field.covers(path));
        let mut absent = fields
            .iter()
            .filter(|(_, value)| value.is_some_and(|value| value.is_empty()));
        !metadata.name.is_empty() && !absent.any(|(path, _)| is_lost(path))
    }
}

impl Kind {
    /// Decodes the parts of an object's JSON that decode. `unread` are the fields that the JSON lacks already. `None` if
    /// nothing decodes.
    pub fn decode_partly(self, json: &str, unread: Vec<UnreadField>) -> Option<PartialObject> {
        let mut search = Search {
            kind: self,
            tries: 0,
            unread,
        };
        let kept = search.readable(&Place::default(), json)?;
        let object = self.decode(kept.as_bytes()).ok()?;
        let unread = search.unread;
        Some(PartialObject { object, unread })
    }
}

/// The place of a value: the JSON around it, and its path.
#[derive(Debug, Clone, Default)]
struct Place {
    before: String,
    after: String,
    path: String,
    depth: usize,
}

impl Place {
    /// The place of a member of the object or list here.
    fn member(&self, member: &Member<'_>) -> Self {
        let Self { before, after, .. } = self;
        let (open, close) = member.brackets();
        Self {
            before: format!("{before}{open}{}", member.label()),
            after: format!("{close}{after}"),
            path: match member {
                Member::Field(name, _) if self.path.is_empty() => name.clone(),
                Member::Field(name, _) => format!("{}.{name}", self.path),
                Member::Item(at, _) => format!("{}[{at}]", self.path),
            },
            depth: self.depth + 1,
        }
    }
}

/// A member of an object or list, with the text of its value.
enum Member<'a> {
    Field(String, &'a str),
    Item(usize, &'a str),
}

impl<'a> Member<'a> {
    /// The members of a value; `None` if it is neither an object nor a list.
    fn all_of(json: &'a str) -> Option<Vec<Self>> {
        match json.trim_start().as_bytes().first()? {
            b'{' => {
                let fields: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
                let fields = fields.into_iter();
                Some(fields.map(|(k, v)| Self::Field(k, v.get())).collect())
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
                let items = items.into_iter().enumerate();
                Some(items.map(|(at, item)| Self::Item(at, item.get())).collect())
            }
            _ => None,
        }
    }

    fn brackets(&self) -> (char, char) {
        match self {
            Self::Field(..) => ('{', '}'),
            Self::Item(..) => ('[', ']'),
        }
    }

    /// The text before the value.
    fn label(&self) -> String {
        match self {
            Self::Field(name, _) => format!("{}:", serde_json::Value::from(name.as_str())),
            Self::Item(..) => String::new(),
        }
    }

    fn value(&self) -> &'a str {
        match self {
            Self::Field(_, value) | Self::Item(_, value) => value,
        }
    }
}

/// The search for the parts of an object that decode. A part decodes if an object with this part alone does, because no
/// field of the types of this crate is required.
struct Search {
    kind: Kind,
    tries: usize,
    unread: Vec<UnreadField>,
}

impl Search {
    /// The value at a place without the parts that do not decode; `None` if nothing is left of it.
    fn readable(&mut self, place: &Place, json: &str) -> Option<String> {
        let reason = match self.decodes(place, json) {
            Ok(()) => return Some(json.to_owned()),
            Err(reason) => reason,
        };
        let members = Member::all_of(json).filter(|members| {
            !members.is_empty() && place.depth < DEPTH_MAX && self.tries < TRIES_MAX
        });
        if let Some(members) = members {
            let mut kept = Vec::new();
            self.keep_readable(place, &members, &mut kept);
            let rest = joined(&members, &kept);
            match self.decodes(place, &rest) {
                Ok(()) => return Some(rest),
                // The value has another type than a list or an object.
                Err(_) => self
                    .unread
                    .retain(|field| !is_below(&field.path, &place.path)),
            }
        }
        if self.unread.len() < UNREAD_MAX {
            let path = place.path.clone();
            self.unread.push(UnreadField { path, reason });
        }
        None
    }

    /// Collects the members that decode, each with its label. The list is bisected, so that few members are tried
    /// individually.
    fn keep_readable(&mut self, place: &Place, members: &[Member<'_>], kept: &mut Vec<String>) {
        match members {
            [] => {}
            [member] => {
                if let Some(json) = self.readable(&place.member(member), member.value()) {
                    kept.push(format!("{}{json}", member.label()));
                }
            }
            members => {
                let texts: Vec<String> = members
                    .iter()
                    .map(|member| format!("{}{}", member.label(), member.value()))
                    .collect();
                if self.decodes(place, &joined(members, &texts)).is_ok() {
                    kept.extend(texts);
                    return;
                }
                let (first, second) = members.split_at(members.len() / 2);
                self.keep_readable(place, first, kept);
                self.keep_readable(place, second, kept);
            }
        }
    }

    /// Whether an object with this value alone decodes.
    fn decodes(&mut self, place: &Place, json: &str) -> Result<(), String> {
        self.tries += 1;
        let Place { before, after, .. } = place;
        let object = format!("{before}{json}{after}");
        match self.kind.decode(object.as_bytes()) {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = error.to_string();
                // The position refers to the reduced object, so it is removed.
                let reason = text.rsplit_once(" at line ").map_or(&*text, |(r, _)| r);
                Err(reason.to_owned())
            }
        }
    }
}

/// An object or list of these members.
fn joined(members: &[Member<'_>], texts: &[String]) -> String {
    let (open, close) = members.first().map_or(('{', '}'), Member::brackets);
    format!("{open}{}{close}", texts.join(","))
}

/// Returns whether a path leads into the value at another one.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other)
        .is_some_and(|rest| other.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CustomKind;
    use serde_json::{Value, json};

    fn partly(kind: Kind, json: &Value) -> PartialObject {
        let partial = kind.decode_partly(&json.to_string(), Vec::new());
        partial.unwrap_or_else(|| panic!("nothing of {json}"))
    }

    fn unread(partial: &PartialObject) -> Vec<&str> {
        let fields = partial.unread.iter();
        fields.map(|field| field.path.as_str()).collect()
    }

    /// Q-87a: values that do not decode count as absent, and the others count.
    #[test]
    fn only_the_values_that_do_not_decode_are_left_out() {
        let partial = partly(
            Kind::Pod,
            &json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": 7, "b": "c"}},
                "spec": {
                    "nodeName": "n",
                    "priority": "high",
                    "containers": [
                        {"name": "a", "resources": {"requests": {"cpu": "3", "memory": "plenty"}}},
                        {"name": ["b"], "resources": {"requests": {"cpu": "1"}}},
                        "c",
                    ],
                },
                "status": {"startTime": "yesterday", "phase": "Running", "conditions": {"type": "Ready"}},
            }),
        );
        assert!(partial.is_identified());
        let mut fields = unread(&partial);
        fields.sort_unstable();
        assert_eq!(
            fields,
            [
                "metadata.labels.a",
                "spec.containers[0].resources.requests.memory",
                "spec.containers[1].name",
                "spec.containers[2]",
                "spec.priority",
                "status.conditions",
                "status.startTime",
            ]
        );
        let pod = partial.object.as_pod().expect("a pod");
        assert_eq!(pod.spec.node_name, "n");
        assert_eq!(pod.status.phase, "Running");
        assert_eq!(pod.labels().get("b"), Some("c"));
        let cpu = pod.spec.containers.iter().map(|container| {
            let requests = &container.resources.requests;
            requests.get("cpu").map(|cpu| cpu.value())
        });
        assert_eq!(cpu.collect::<Vec<_>>(), [Some(3), Some(1)]);
    }

    /// Q-87a
    #[test]
    fn one_of_many_items_is_found() {
        let names: Vec<Value> = (0..100_000)
            .map(|at| {
                if at == 77_777 {
                    json!(at)
                } else {
                    json!("image")
                }
            })
            .collect();
        let node = json!({
            "metadata": {"name": "n"},
            "status": {"images": [{"names": names}], "allocatable": {"cpu": "4"}},
        });
        let partial = partly(Kind::Node, &node);
        assert_eq!(unread(&partial), ["status.images[0].names[77777]"]);
        let node = partial.object.as_node().expect("a node");
        assert_eq!(node.status.images[0].names.len(), 99_999);
        assert_eq!(node.status.allocatable.iter().len(), 1);
    }

    /// Q-87b: without its identity an object cannot be used; of a pod, the node is a part of it.
    #[test]
    fn an_object_without_a_field_of_its_identity_is_not_identified() {
        for (kind, object, is_identified) in [
            (Kind::Node, json!({"metadata": {"name": "n"}}), true),
            (Kind::Node, json!({"metadata": {"name": 7}}), false),
            (Kind::Node, json!({"metadata": "n"}), false),
            (
                Kind::Node,
                json!({"metadata": {"name": "n", "uid": 7}}),
                false,
            ),
            (
                Kind::Node,
                json!({"metadata": {"name": "n"}, "spec": 7}),
                true,
            ),
            (
                Kind::Pod,
                json!({"metadata": {"name": "p"}, "spec": 7}),
                false,
            ),
            (
                Kind::Pod,
                json!({"metadata": {"name": "p"}, "spec": {"nodeName": 7}}),
                false,
            ),
            (
                Kind::Pod,
                json!({"metadata": {"name": "p"}, "spec": {"nodeNames": 7, "priority": []}}),
                true,
            ),
            (
                Kind::Pod,
                json!({"metadata": {"name": "p"}, "status": 7}),
                true,
            ),
        ] {
            let partial = partly(kind, &object);
            assert_eq!(partial.is_identified(), is_identified, "{object}");
        }
        // A field that the JSON lacks already.
        let lacking = |path: &str| {
            let unread = vec![UnreadField {
                path: path.to_owned(),
                reason: String::new(),
            }];
            let pod = r#"{"metadata":{"name":"p"}}"#;
            Kind::Pod
                .decode_partly(pod, unread)
                .expect("a pod")
                .is_identified()
        };
        assert!(lacking("status") && lacking("spec.nodeNameOfOld"));
        assert!(!lacking("") && !lacking("spec") && !lacking("spec.nodeName"));
        assert!(Kind::Pod.decode_partly("[", Vec::new()).is_none());
    }

    /// Q-87a: custom resources can be nested deeper than is read.
    #[test]
    fn a_deep_value_of_a_custom_resource_is_left_out() {
        let kind = Kind::Custom(CustomKind::of("foos.v1.example.com").expect("a resource"));
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        let json =
            format!(r#"{{"metadata":{{"name":"f"}},"spec":{{"deep":{deep},"ready":true}}}}"#);
        let partial = kind.decode_partly(&json, Vec::new()).expect("an object");
        let custom = partial.object.as_custom().expect("a custom object");
        assert_eq!(custom.value["spec"]["ready"], true);
        assert!(partial.is_identified());
    }
}
