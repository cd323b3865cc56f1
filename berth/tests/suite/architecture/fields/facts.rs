//! The fields of Kubernetes' types, as the tables of facts have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The fields of Kubernetes' types.
#[derive(Default)]
pub(super) struct Fields {
    /// By type: the fields and the types of their values.
    of: BTreeMap<String, Vec<(String, String)>>,
    /// By name: the types of the values that fields have.
    values: BTreeMap<String, BTreeSet<String>>,
}

impl Fields {
    pub(super) fn read(facts: &Path) -> Self {
        let mut fields = Self::default();
        for name in ["apiVersion", "kind"] {
            fields.values.entry(name.to_owned()).or_default();
        }
        for table in ["kubernetes.txt", "later.txt", "groups.txt"] {
            let table = fs::read_to_string(facts.join(table)).expect("facts can be read");
            let mut current = String::new();
            for line in table.lines() {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                match words[..] {
                    ["type", name, ..] if !line.starts_with(' ') => current = name.to_owned(),
                    [name, _, value, ..] if line.starts_with("  ") && name != "sub" => {
                        let (name, value) = (name.trim_end_matches('?'), value.to_owned());
                        let value = value.trim_start_matches(['*', '[', ']']).to_owned();
                        let fields_of = fields.of.entry(current.clone()).or_default();
                        fields_of.push((name.to_owned(), value.clone()));
                        fields
                            .values
                            .entry(name.to_owned())
                            .or_default()
                            .insert(value);
                    }
                    _ => {}
                }
            }
        }
        fields
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Returns whether some type has a field whose value can have a member of this name.
    pub(super) fn nests(&self, around: &str, name: &str) -> bool {
        let is_open = |value: &str| {
            value.starts_with("map[")
                || value.starts_with("schema")
                || ["raw", "json", "fields"].contains(&value)
        };
        let mut values = self.values.get(around).into_iter().flatten();
        values.any(|value| is_open(value) || self.has(value, name))
    }

    fn has(&self, of: &str, name: &str) -> bool {
        let mut fields = self.of.get(of).into_iter().flatten();
        fields.any(|(known, value)| known == name || (known == "^" && self.has(value, name)))
    }
}
