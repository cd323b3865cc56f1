//! Texts with objects: the documents of YAML and JSON, lists flattened.

use crate::InputError;
use berth_objects::schema;
use serde_json::Value;

/// An object with its place in the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The name of the text and the number of the document, for messages.
    pub place: String,
    /// The object.
    pub object: Value,
}

/// The objects of a text in YAML or JSON. Lists are flattened, and empty documents are left out. `name` is the name of the
/// text in messages, such as the path of a file.
///
/// # Errors
/// When a document is neither YAML nor JSON, or has a field twice.
pub fn documents(name: &str, text: &str) -> Result<Vec<Document>, InputError> {
    let mut found = Vec::new();
    for (index, document) in split(text).into_iter().enumerate() {
        let place = format!("{name}, document {}", index + 1);
        let value = match serde_json::from_str(&document) {
            Ok(value) => value,
            Err(_) => {
                let failed = |reason: String| InputError::Text {
                    place: place.clone(),
                    reason,
                };
                let parsed = schema::parse_yaml(document.as_bytes());
                let parsed = parsed.map_err(|e| failed(e.to_string()))?;
                if let Some(field) = parsed.duplicate_fields.first() {
                    return Err(failed(format!("{field} is given twice")));
                }
                parsed.value
            }
        };
        flatten(place, value, &mut found);
    }
    Ok(found)
}

fn flatten(place: String, mut value: Value, found: &mut Vec<Document>) {
    if value.is_null() {
        return;
    }
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    // Indexing would add the field if it is missing.
    let items = value.get_mut("items").filter(|_| is_list);
    match items.map(Value::take) {
        Some(Value::Array(items)) => {
            for (index, item) in items.into_iter().enumerate() {
                flatten(format!("{place}, item {}", index + 1), item, found);
            }
        }
        _ => found.push(Document {
            place,
            object: value,
        }),
    }
}

/// The documents of a text, as kubectl splits them: at lines that begin with `---`. Empty documents are left out.
pub fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match (line.starts_with("---"), documents.last_mut()) {
            (false, Some(last)) => {
                last.push_str(line);
                last.push('\n');
            }
            _ => documents.push(String::new()),
        }
    }
    let has_content = |document: &String| {
        document
            .lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    documents.retain(has_content);
    documents
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_flattened() {
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name}});
        let list =
            json!({"kind": "List", "items": [pod("a"), {"kind": "PodList", "items": [pod("b")]}]});
        let found = documents("f", &list.to_string()).expect("JSON");
        let places: Vec<&str> = found.iter().map(|found| found.place.as_str()).collect();
        assert_eq!(
            places,
            ["f, document 1, item 1", "f, document 1, item 2, item 1"]
        );
    }

    #[test]
    fn faults_are_reported_with_the_document() {
        for (text, expected) in [
            (
                "kind: Pod\n---\nkind: [Pod\n",
                "failed to parse f, document 2: ",
            ),
            (
                "kind: Pod\nkind: Pod\n",
                "failed to parse f, document 1: kind is given twice",
            ),
        ] {
            let error = documents("f", text).expect_err("a fault").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
