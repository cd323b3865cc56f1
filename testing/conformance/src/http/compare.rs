//! Compares a recorded answer with a live one, and records the live value of each recorded value.

use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The maximum number of printed differences of one answer.
const DIFFERENCES_MAX: usize = 10;

/// Fields whose value may be any valid time.
const TIMES: [&str; 4] = [
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "time",
];

/// Fields that are not compared, because their text depends on the server.
const LEFT_OUT: [&str; 2] = ["storageVersionHash", "description"];

/// Entries of `managedFields` are ordered by their times; these fields identify an entry.
const MANAGER: [&str; 4] = ["operation", "manager", "apiVersion", "subresource"];

/// Lists of discovery, with the field that names an entry. Only served entries are compared.
const SERVED: [(&str, &str); 2] = [("resources", "name"), ("subresources", "subresource")];

/// The live values for the recorded ones.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
}

impl Mapping {
    /// A recorded request body with live values.
    pub(super) fn live(&self, recorded: &Value) -> Value {
        match recorded {
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, value)| {
                        let value = match (key.as_str(), value) {
                            ("resourceVersion", Value::String(version)) => {
                                self.versions.get(version).unwrap_or(version).clone().into()
                            }
                            _ => self.live(value),
                        };
                        (key.clone(), value)
                    })
                    .collect(),
            ),
            Value::Array(items) => items.iter().map(|item| self.live(item)).collect(),
            Value::String(text) => self.live_text(text).into(),
            other => other.clone(),
        }
    }

    /// A recorded text with live UIDs and names.
    pub(super) fn live_text(&self, recorded: &str) -> String {
        let mut text = recorded.to_owned();
        for (from, to) in self.uids.iter().chain(&self.names) {
            text = text.replace(from, to);
        }
        if let Some((before, rest)) = text.split_once("resourceVersion=") {
            let end = rest.find('&').unwrap_or(rest.len());
            let (version, after) = rest.split_at(end);
            if let Some(live) = self.versions.get(version) {
                text = format!("{before}resourceVersion={live}{after}");
            }
        }
        text
    }

    /// Compares, and records the live values of recorded UIDs, versions and names.
    pub(super) fn compare(
        &mut self,
        recorded: &Value,
        live: &Value,
        differences: &mut Vec<String>,
    ) {
        self.walk("", "", recorded, live, differences);
    }

    fn walk(
        &mut self,
        path: &str,
        field: &str,
        recorded: &Value,
        live: &Value,
        differences: &mut Vec<String>,
    ) {
        if differences.len() >= DIFFERENCES_MAX {
            return;
        }
        match (recorded, live) {
            (Value::Object(recorded), Value::Object(live)) => {
                self.walk_object(path, recorded, live, differences);
            }
            (Value::Array(recorded), Value::Array(live)) => {
                if let Some((_, key)) = SERVED.iter().find(|(list, _)| *list == field) {
                    return self.walk_served(path, key, recorded, live, differences);
                }
                if field == "items" && recorded.iter().all(|i| i.get("versions").is_some()) {
                    return self.walk_groups(path, recorded, live, differences);
                }
                if recorded.len() != live.len() {
                    differences.push(format!(
                        "{path}: recorded {} entries, got {}",
                        recorded.len(),
                        live.len()
                    ));
                    return;
                }
                for (i, (recorded, live)) in recorded.iter().zip(live).enumerate() {
                    self.walk(&format!("{path}[{i}]"), field, recorded, live, differences);
                }
            }
            (Value::String(recorded), Value::String(live)) => {
                if !self.is_same_text(field, recorded, live) {
                    differences.push(format!("{path}: recorded {recorded:?}, got {live:?}"));
                }
            }
            _ if recorded == live => {}
            _ => differences.push(format!("{path}: recorded {recorded}, got {live}")),
        }
    }

    fn walk_object(
        &mut self,
        path: &str,
        recorded: &Map<String, Value>,
        live: &Map<String, Value>,
        differences: &mut Vec<String>,
    ) {
        // Map a generated name before other fields, which may embed it.
        if let (Some(_), Some(Value::String(from)), Some(Value::String(to))) = (
            recorded.get("generateName"),
            recorded.get("name"),
            live.get("name"),
        ) && recorded.get("generateName") == live.get("generateName")
        {
            self.names.entry(from.clone()).or_insert_with(|| to.clone());
        }
        for (key, recorded) in recorded {
            if LEFT_OUT.contains(&key.as_str()) {
                continue;
            }
            let path = format!("{path}.{key}");
            match live.get(key) {
                Some(live) if key == "managedFields" => {
                    let (recorded, live) = (by_manager(recorded), by_manager(live));
                    self.walk(&path, key, &recorded, &live, differences);
                }
                Some(live) => self.walk(&path, key, recorded, live, differences),
                // Subresources that the live server does not serve are not compared, nor is the existence of the list.
                None if key == "subresources" => {}
                None => differences.push(format!("{path}: recorded {recorded}, got nothing")),
            }
        }
        for (key, live) in live {
            if !recorded.contains_key(key) && !LEFT_OUT.contains(&key.as_str()) {
                differences.push(format!("{path}.{key}: recorded nothing, got {live}"));
            }
        }
    }

    /// Compares the entries that the live server has with the recorded ones of the same name.
    fn walk_served(
        &mut self,
        path: &str,
        key: &str,
        recorded: &[Value],
        live: &[Value],
        differences: &mut Vec<String>,
    ) {
        let name_of = |entry: &Value| {
            [key, "resource"]
                .iter()
                .find_map(|k| entry.get(*k).and_then(Value::as_str))
                .unwrap_or("")
                .to_owned()
        };
        if live.is_empty() {
            differences.push(format!("{path}: nothing is served"));
        }
        for live in live {
            let name = name_of(live);
            let path = format!("{path}[{name}]");
            match recorded.iter().find(|r| name_of(r) == name) {
                Some(recorded) => self.walk(&path, "", recorded, live, differences),
                None => differences.push(format!("{path}: recorded nothing, got {live}")),
            }
        }
    }

    /// Compares the groups of aggregated discovery that the live server has, and their order.
    fn walk_groups(
        &mut self,
        path: &str,
        recorded: &[Value],
        live: &[Value],
        differences: &mut Vec<String>,
    ) {
        let name_of = |group: &Value| {
            group
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        let mut next = recorded.iter();
        for live in live {
            let name = name_of(live);
            let path = format!("{path}[{name}]");
            // Recorded groups that Berth does not serve are skipped; a live group out of order is not found.
            match next.find(|r| name_of(r) == name) {
                Some(recorded) => {
                    let version_of = |v: &Value| v.get("version").cloned();
                    let versions = |group: &Value| -> Vec<Value> {
                        let versions = group.get("versions").and_then(Value::as_array);
                        versions.cloned().unwrap_or_default()
                    };
                    for live in versions(live) {
                        match versions(recorded)
                            .iter()
                            .find(|r| version_of(r) == version_of(&live))
                        {
                            Some(recorded) => self.walk(&path, "", recorded, &live, differences),
                            // kube-apiserver serves alpha and beta versions only if they are enabled.
                            None if is_prerelease(&live) => {}
                            None => differences
                                .push(format!("{path}: got a version that was not recorded")),
                        }
                    }
                }
                None => differences.push(format!("{path}: not recorded, or not in this order")),
            }
        }
    }

    fn is_same_text(&mut self, field: &str, recorded: &str, live: &str) -> bool {
        match field {
            "uid" => is_mapped(&mut self.uids, recorded, live),
            "resourceVersion" => is_mapped(&mut self.versions, recorded, live),
            "continue" => recorded.is_empty() == live.is_empty(),
            _ if TIMES.contains(&field) => is_time(recorded) && is_time(live),
            "cells" => {
                recorded == live || (is_age(recorded) && is_age(live)) || {
                    self.live_text(recorded) == live
                }
            }
            "message" => {
                let expected = self.live_text(recorded);
                // Upstream appends a diff of its own structs to this sentence; the recording does not contain it.
                let is_cut = expected.contains("pod updates may not change fields other than");
                expected == live || (is_cut && live.lines().next() == Some(expected.as_str()))
            }
            _ => recorded == live || self.live_text(recorded) == live,
        }
    }
}

/// Returns whether a version of aggregated discovery is alpha or beta.
fn is_prerelease(version: &Value) -> bool {
    let name = version.get("version").and_then(Value::as_str);
    name.is_some_and(|name| name.contains("alpha") || name.contains("beta"))
}

/// Returns whether the recorded value maps to this live value and to no other.
fn is_mapped(map: &mut BTreeMap<String, String>, recorded: &str, live: &str) -> bool {
    if let Some(known) = map.get(recorded) {
        return known == live;
    }
    if recorded.is_empty() || live.is_empty() || map.values().any(|known| known == live) {
        return false;
    }
    map.insert(recorded.to_owned(), live.to_owned());
    true
}

fn is_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok()
}

/// `5s`, `3m10s`, `323d`.
fn is_age(text: &str) -> bool {
    let mut digits = 0;
    let mut units = 0;
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits += 1;
        } else if matches!(c, 's' | 'm' | 'h' | 'd' | 'y') && digits > 0 {
            digits = 0;
            units += 1;
        } else {
            return false;
        }
    }
    digits == 0 && units > 0
}

/// The entries of `managedFields`, sorted by their identifying fields.
fn by_manager(entries: &Value) -> Value {
    let mut entries = entries.clone();
    if let Some(list) = entries.as_array_mut() {
        list.sort_by_key(|entry| MANAGER.map(|field| entry[field].to_string()));
    }
    entries
}
