//! Pod templates of deployments: their equality, and the hash in the name of a replica set.

use serde_json::{Map, Value};

/// The label that distinguishes the pods of a deployment's replica sets.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Returns whether two templates describe the same pods. The hash label is ignored, and empty values equal absent ones.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    comparable(a) == comparable(b)
}

fn comparable(template: &Value) -> Value {
    let mut template = pruned(template);
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH_LABEL);
            if labels.is_empty() {
                metadata.remove("labels");
            }
        }
    }
    template
}

/// Without nulls, empty lists and empty maps. An empty object elsewhere (`emptyDir: {}`) is kept.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter_map(|(key, value)| {
                let empty = match value {
                    Value::Null => true,
                    Value::Array(items) => items.is_empty(),
                    Value::Object(entries) => {
                        entries.is_empty()
                            && matches!(key.as_str(), "labels" | "annotations" | "nodeSelector")
                    }
                    _ => false,
                };
                (!empty).then(|| (key.clone(), pruned(value)))
            });
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        other => other.clone(),
    }
}

/// The hash of a template, in the alphabet of upstream's hashes. `collisions` changes the hash if a name is taken.
pub(crate) fn hash(template: &Value, collisions: Option<i64>) -> String {
    let mut hasher = Fnv(0x811c_9dc5);
    hasher.value(&comparable(template));
    if let Some(collisions) = collisions {
        hasher.bytes(&collisions.to_le_bytes());
    }
    hasher.letters()
}

/// The hash of texts, in the same letters.
pub(crate) fn hash_of(texts: &[&str]) -> String {
    let mut hasher = Fnv(0x811c_9dc5);
    for text in texts {
        hasher.bytes(&text.len().to_le_bytes());
        hasher.bytes(text.as_bytes());
    }
    hasher.letters()
}

/// FNV-1a of 32 bits, over JSON whose keys are taken in order.
struct Fnv(u32);

impl Fnv {
    fn letters(&self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let digits = self.0.to_string();
        let letter = |digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
        digits.bytes().map(letter).collect()
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                self.bytes(b"{");
                for (key, value) in entries {
                    self.bytes(key.as_bytes());
                    self.bytes(b":");
                    self.value(value);
                }
                self.bytes(b"}");
            }
            Value::Array(items) => {
                self.bytes(b"[");
                for item in items {
                    self.value(item);
                    self.bytes(b",");
                }
                self.bytes(b"]");
            }
            other => self.bytes(other.to_string().as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"image": image}]}})
    }

    #[test]
    fn templates_are_the_same_when_they_ask_for_the_same_pods() {
        let a = template("web:1");
        let mut labelled = a.clone();
        labelled["metadata"]["labels"][HASH_LABEL] = "x".into();
        let mut empty = a.clone();
        empty["metadata"]["creationTimestamp"] = Value::Null;
        empty["metadata"]["annotations"] = json!({});
        empty["spec"]["volumes"] = json!([]);
        let mut annotated = a.clone();
        annotated["metadata"]["annotations"] = json!({"restartedAt": "now"});
        let mut volume = a.clone();
        volume["spec"]["volumes"] = json!([{"name": "v"}]);
        let mut empty_dir = a.clone();
        empty_dir["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        for (situation, x, y, expected) in [
            ("itself", &a, &a, true),
            ("the hash label", &a, &labelled, true),
            ("what is empty", &a, &empty, true),
            ("another image", &a, &template("web:2"), false),
            ("another annotation", &a, &annotated, false),
            (
                "an empty object that means something",
                &volume,
                &empty_dir,
                false,
            ),
        ] {
            assert_eq!(same(x, y), expected, "{situation}");
            assert_eq!(hash(x, None) == hash(y, None), expected, "{situation}");
        }
    }

    #[test]
    fn a_collision_makes_another_hash_that_fits_a_name() {
        let a = template("web:1");
        let first = hash(&a, None);
        assert_ne!(first, hash(&a, Some(1)));
        assert_ne!(hash(&a, Some(1)), hash(&a, Some(2)));
        assert!(
            first
                .bytes()
                .all(|c| b"bcdfghjklmnpqrstvwxz2456789".contains(&c))
        );
        assert!((1..=10).contains(&first.len()));
    }
}
