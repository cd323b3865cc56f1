//! The table of fields: complete, and warned from.

use super::super::fields::FIELDS;
use super::*;
use std::collections::BTreeSet;

/// Adds the paths of a value as the table writes them, down to `leaves`.
fn paths(prefix: &str, value: &Value, leaves: &[&str], into: &mut BTreeSet<String>) {
    if leaves.contains(&prefix) {
        into.insert(prefix.to_owned());
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match prefix {
                    "" => name.clone(),
                    prefix => format!("{prefix}.{name}"),
                };
                paths(&path, value, leaves, into);
            }
        }
        Value::Array(entries) => {
            for entry in entries {
                paths(&format!("{prefix}[]"), entry, leaves, into);
            }
        }
        _ => drop(into.insert(prefix.to_owned())),
    }
}

#[test]
fn the_table_has_every_field_that_is_read_and_no_other() {
    let everything = config(&json!({
        "delayCacheUntilActive": true,
        "profiles": [{"percentageOfNodesToScore": 5}],
        "extenders": [{
            "urlPrefix": "http://e", "filterVerb": "f", "preemptVerb": "p", "prioritizeVerb": "s", "weight": 1,
            "bindVerb": "b", "enableHTTPS": true, "tlsConfig": {"insecure": true}, "httpTimeout": "1s",
            "nodeCacheCapable": true, "managedResources": [{"name": "example.com/a"}], "ignorable": true,
        }],
    }));
    let listed: BTreeSet<String> = FIELDS.iter().map(|f| f.path.to_owned()).collect();
    let leaves: Vec<&str> = FIELDS.iter().map(|f| f.path).collect();
    let mut read = BTreeSet::new();
    paths("", &everything.to_value(), &leaves, &mut read);
    for envelope in ["apiVersion", "kind"] {
        assert!(read.remove(envelope));
    }
    assert_eq!(read, listed);
}

#[test]
fn a_field_without_effect_gives_a_warning() {
    for (fields, expected) in [
        (json!({}), &[][..]),
        (json!({"enableContentionProfiling": false}), &[]),
        (
            json!({"enableContentionProfiling": true, "clientConnection": {"contentType": "application/json"}}),
            &[
                "enableContentionProfiling has no effect: the scheduling core has no locks to profile",
            ],
        ),
    ] {
        let known = KnownPlugins::new(FeatureGates::default(), &in_tree());
        let read = read(&text(&fields), "F", known, false, |_| {});
        let (_, warnings) = read.expect("a configuration");
        assert_eq!(warnings, expected, "{fields}");
    }
}
