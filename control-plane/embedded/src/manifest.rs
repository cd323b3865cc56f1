//! Manifests of the command line, read and checked before any component starts.

use berth_edge::exit::CommandFailure;
use berth_objects::schema;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest manifest file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// One document of a manifest.
#[derive(Debug, Clone)]
pub struct ManifestDocument {
    /// The document and its file, for messages.
    pub(crate) place: String,
    /// The object.
    pub(crate) object: Value,
}

impl ManifestDocument {
    /// `apiVersion` of the object.
    pub(crate) fn api_version(&self) -> &str {
        self.object["apiVersion"].as_str().unwrap_or_default()
    }

    /// `kind` of the object.
    pub(crate) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// The name of the object.
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Reads all documents of all files, lists flattened. `-` is standard input. Of a directory, the files in it that end
/// in .yaml, .yml or .json are read in the order of their names, as kubectl does.
///
/// # Errors
/// Names the file, the document and the fault.
pub fn read_all(files: &[PathBuf]) -> Result<Vec<ManifestDocument>, CommandFailure> {
    let mut documents = Vec::new();
    for file in files {
        if file.as_os_str() == "-" {
            let text = take("standard input", std::io::stdin().lock())?;
            parse("standard input", &text, &mut documents)?;
        } else if file.is_dir() {
            for file in in_directory(file)? {
                read(&file, &mut documents)?;
            }
        } else {
            read(file, &mut documents)?;
        }
    }
    Ok(documents)
}

/// The documents of a text; `shown` is its name in messages.
///
/// # Errors
/// Names the document and the fault.
pub(crate) fn read_text(shown: &str, text: &str) -> Result<Vec<ManifestDocument>, CommandFailure> {
    let mut documents = Vec::new();
    parse(shown, text, &mut documents)?;
    Ok(documents)
}

fn unreadable(shown: impl std::fmt::Display, e: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(format!(
        "failed to read manifest {shown}: {e}; nothing was started"
    ))
}

/// The manifests in a directory.
///
/// # Errors
/// When it cannot be read or has none.
pub fn in_directory(dir: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let failed = |e| unreadable(dir.display(), e);
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("yaml" | "yml" | "json")) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(unreadable(
            dir.display(),
            "the directory has no file that ends in .yaml, .yml or .json",
        ));
    }
    files.sort();
    Ok(files)
}

/// The objects of a manifest that is part of the program.
///
/// # Errors
/// It is not a manifest: a bug.
pub fn of_text(shown: &str, text: &str) -> Result<Vec<ManifestDocument>, CommandFailure> {
    let mut documents = Vec::new();
    parse(shown, text, &mut documents)?;
    Ok(documents)
}

fn read(file: &Path, documents: &mut Vec<ManifestDocument>) -> Result<(), CommandFailure> {
    let shown = file.display().to_string();
    let opened = std::fs::File::open(file).map_err(|e| unreadable(&shown, e))?;
    let text = take(&shown, opened)?;
    parse(&shown, &text, documents)
}

/// Reading stops at the limit, independently of the reported size: a pipe has none.
fn take(shown: &str, file: impl Read) -> Result<String, CommandFailure> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| unreadable(shown, e))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandFailure::Usage(format!(
            "failed to read manifest {shown}: more than the {FILE_BYTES_MAX} bytes that are read at once; split the \
             file"
        )));
    }
    Ok(text)
}

fn parse(
    shown: &str,
    text: &str,
    documents: &mut Vec<ManifestDocument>,
) -> Result<(), CommandFailure> {
    for (index, text) in berth_core::split(text).into_iter().enumerate() {
        let place = format!("{shown}, document {}", index + 1);
        let malformed = |reason: String| {
            CommandFailure::Usage(format!(
                "failed to parse manifest {place}: {reason}; correct the file; nothing was started"
            ))
        };
        let parsed = schema::parse_yaml(text.as_bytes()).map_err(|e| malformed(e.to_string()))?;
        // A duplicate field is usually a mistake; the last one would be used silently.
        if let Some(twice) = parsed.duplicate_fields.first() {
            return Err(malformed(format!("{twice} occurs twice")));
        }
        let value = parsed.value;
        // An empty document, as after a trailing separator, is skipped.
        if value.is_null() {
            continue;
        }
        let items = match value {
            Value::Object(mut object)
                if object.get("kind").and_then(Value::as_str) == Some("List") =>
            {
                match object.remove("items") {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                }
            }
            value => vec![value],
        };
        for object in items {
            documents.push(checked(ManifestDocument {
                place: place.clone(),
                object,
            })?);
        }
    }
    Ok(())
}

fn checked(document: ManifestDocument) -> Result<ManifestDocument, CommandFailure> {
    let missing = [
        ("apiVersion", document.api_version()),
        ("kind", document.kind()),
        ("metadata.name", document.name()),
    ]
    .into_iter()
    .find(|(_, value)| value.is_empty());
    match missing {
        Some((field, _)) if !(field == "metadata.name" && has_generate_name(&document)) => {
            Err(CommandFailure::Usage(format!(
                "failed to use manifest {}: {field} is not set; correct the file; nothing was started",
                document.place
            )))
        }
        _ => known_fields(document),
    }
}

/// Refuses unknown fields: most often a typing error, which would be dropped silently.
fn known_fields(document: ManifestDocument) -> Result<ManifestDocument, CommandFailure> {
    let (group, version) = document
        .api_version()
        .rsplit_once('/')
        .unwrap_or(("", document.api_version()));
    let found = schema::Schemas::get().check(
        schema::GroupVersionKind::new(group, version, document.kind()),
        &document.object,
    );
    let wrong: Vec<String> = found
        .unknown_fields
        .iter()
        .map(|field| format!("unknown field {field:?}"))
        .chain(found.type_errors)
        .collect();
    if wrong.is_empty() {
        return Ok(document);
    }
    Err(CommandFailure::Usage(format!(
        "failed to use manifest {}: {}; correct the file; nothing was started",
        document.place,
        wrong.join(", ")
    )))
}

fn has_generate_name(document: &ManifestDocument) -> bool {
    document.object["metadata"]["generateName"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<ManifestDocument>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("manifest.yaml");
        std::fs::write(&file, text).unwrap();
        read_all(&[file]).map_err(|f| match f {
            CommandFailure::Usage(text) => text,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn documents_and_lists_are_flattened() {
        let documents = read_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n",
        )
        .unwrap();
        let names: Vec<&str> = documents.iter().map(ManifestDocument::name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_malformed_manifest_is_refused_with_its_place() {
        for (text, notified) in [
            ("apiVersion: v1\nkind: [Pod\n", "failed to parse manifest"),
            (
                "apiVersion: v1\nmetadata: {name: a}\n",
                "document 1: kind is not set",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n",
                "document 2: metadata.name is not set",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {contianers: []}\n",
                "unknown field \"spec.contianers\"",
            ),
            ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "occurs twice"),
        ] {
            let error = read_text(text).expect_err(text);
            assert!(error.contains(notified), "{error}");
        }
    }
}
