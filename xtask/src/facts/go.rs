//! The facts that only the Go types contain: the pointer fields, the fields omitted when empty, the values of
//! enumerations, and the markers of declarative validation.

use super::FactsError;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// The supported markers of declarative validation.
const MARKERS: [&str; 8] = [
    "format",
    "immutable",
    "maxItems",
    "maxLength",
    "maximum",
    "minimum",
    "required",
    "unionMember",
];

/// A field of a struct.
#[derive(Debug, Clone)]
pub(super) struct StructField {
    /// The name in JSON; empty for an embedded struct.
    pub(super) json: String,
    /// The name in the `.proto` file; `None` if the field is not in the file.
    pub(super) proto: Option<String>,
    /// The Go type, without the pointer.
    pub(super) go_type: String,
    pub(super) pointer: bool,
    pub(super) omitempty: bool,
    /// An empty struct is left out.
    pub(super) omitzero: bool,
    /// Markers such as `maxItems=8`, without markers that apply only with a feature gate.
    pub(super) markers: Vec<String>,
}

/// The declarations of one Go package.
#[derive(Debug, Default)]
pub(super) struct Package {
    structs: HashMap<String, Vec<StructField>>,
    /// The underlying type of a named type, such as `[]string`.
    named: HashMap<String, String>,
    /// The values of types marked `+enum`.
    enums: HashMap<String, Vec<String>>,
}

impl Package {
    /// Reads every Go file of a directory except tests and generated code.
    pub(super) fn read(directory: &Path) -> Result<Self, FactsError> {
        let mut package = Self::default();
        let mut files: Vec<_> = std::fs::read_dir(directory)
            .map_err(|e| FactsError::read(directory, e))?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
                name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated")
            })
            .collect();
        files.sort();
        let mut constants: HashMap<String, Vec<Option<String>>> = HashMap::new();
        let mut marked: Vec<String> = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|e| FactsError::read(&file, e))?;
            package.add_file(&text, &mut constants, &mut marked);
        }
        for name in marked {
            // A type with a value of another package is omitted, because its enumeration would be incomplete.
            let values = constants.remove(&name).unwrap_or_default();
            let values: Option<BTreeSet<String>> = values.into_iter().collect();
            if let Some(values) = values.filter(|v| !v.is_empty()) {
                package.enums.insert(name, values.into_iter().collect());
            }
        }
        Ok(package)
    }

    fn add_file(
        &mut self,
        text: &str,
        constants: &mut HashMap<String, Vec<Option<String>>>,
        marked: &mut Vec<String>,
    ) {
        let mut comments: Vec<&str> = Vec::new();
        let mut current: Option<(String, Vec<StructField>)> = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix("//") {
                comments.push(comment.trim());
                continue;
            }
            match &mut current {
                Some((name, fields)) if line == "}" => {
                    let (name, fields) = (std::mem::take(name), std::mem::take(fields));
                    self.structs.insert(name, fields);
                    current = None;
                }
                Some((_, fields)) => fields.extend(field(line, &comments)),
                None => {
                    if let Some(declaration) = line.strip_prefix("type ") {
                        let (name, rest) = declaration.split_once(' ').unwrap_or((declaration, ""));
                        if rest.starts_with("struct {") {
                            if rest != "struct {}" {
                                current = Some((name.to_owned(), Vec::new()));
                            }
                        } else {
                            self.named.insert(name.to_owned(), rest.to_owned());
                        }
                        if comments.iter().any(|c| matches!(*c, "+enum" | "+k8s:enum")) {
                            marked.push(name.to_owned());
                        }
                    } else if let Some((name, value)) = constant(line) {
                        constants.entry(name).or_default().push(value);
                    }
                }
            }
            comments.clear();
        }
    }

    /// The fields of a struct.
    pub(super) fn fields(&self, name: &str) -> Option<&[StructField]> {
        self.structs.get(name).map(Vec::as_slice)
    }

    /// The values of an enumeration type.
    pub(super) fn values(&self, name: &str) -> Option<&[String]> {
        self.enums.get(name).map(Vec::as_slice)
    }

    /// The underlying type of a named type.
    pub(super) fn underlying(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }
}

/// The type and the value of `Name Type = "value"` or `Name = Type("value")`, also after the keyword `const`. No value
/// if it is the value of another constant.
fn constant(line: &str) -> Option<(String, Option<String>)> {
    let line = line.strip_prefix("const ").unwrap_or(line);
    let (declared, value) = line.split_once('=')?;
    let mut words = declared.split_whitespace();
    let (_, declared_type, None) = (words.next()?, words.next(), words.next()) else {
        return None;
    };
    let (converted_to, value) = match value.trim().split_once('(') {
        Some((type_name, value)) if !type_name.contains('"') => (Some(type_name), value),
        _ => (None, value.trim()),
    };
    let value = value.strip_prefix('"').and_then(|v| v.split_once('"'));
    let type_name = match (declared_type, converted_to) {
        (Some(type_name), _) if value.is_some() => type_name,
        (None, Some(type_name)) => type_name,
        _ => return None,
    };
    Some((
        type_name.to_owned(),
        value.map(|(value, _)| value.to_owned()),
    ))
}

fn field(line: &str, comments: &[&str]) -> Option<StructField> {
    let (declared, rest) = line.split_once('`')?;
    let (tags, _) = rest.split_once('`')?;
    let json = tag(tags, "json")?;
    let mut options = json.split(',');
    let name = options.next().unwrap_or("");
    let options: Vec<&str> = options.collect();
    let mut words = declared.split_whitespace();
    let first = words.next()?;
    let go_type = words.next().unwrap_or(first);
    if name == "-" {
        return None;
    }
    let proto = tag(tags, "protobuf").filter(|p| *p != "-").map(|p| {
        p.split(',')
            .find_map(|part| part.strip_prefix("name="))
            .map_or_else(|| lower_first(first), str::to_owned)
    });
    Some(StructField {
        json: name.to_owned(),
        proto,
        go_type: go_type.trim_start_matches('*').to_owned(),
        pointer: go_type.starts_with('*'),
        omitempty: options.contains(&"omitempty"),
        omitzero: options.contains(&"omitzero"),
        markers: comments
            .iter()
            .filter_map(|c| c.strip_prefix("+k8s:"))
            .filter(|m| {
                MARKERS
                    .iter()
                    .any(|known| m.split('=').next() == Some(known))
            })
            .map(str::to_owned)
            .collect(),
    })
}

fn lower_first(name: &str) -> String {
    let mut chars = name.rsplit('.').next().unwrap_or(name).chars();
    chars
        .next()
        .map(|c| c.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{name}:\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_type_on_either_side() {
        let cases = [
            (
                "ServiceTypeNodePort ServiceType = \"NodePort\"",
                Some(("ServiceType", Some("NodePort"))),
            ),
            ("const A Kind = \"a\" // why", Some(("Kind", Some("a")))),
            (
                "AddressTypeIPv4 = AddressType(v1.IPv4Protocol)",
                Some(("AddressType", None)),
            ),
            (
                "AddressTypeFQDN = AddressType(\"FQDN\")",
                Some(("AddressType", Some("FQDN"))),
            ),
            (
                "PathTypeExact PathType = PathType(\"Exact\")",
                Some(("PathType", Some("Exact"))),
            ),
            ("Untyped = \"x\"", None),
        ];
        for (line, expect) in cases {
            let got = constant(line);
            let got = got.as_ref().map(|(t, v)| (t.as_str(), v.as_deref()));
            assert_eq!(got, expect, "{line}");
        }
    }
}
