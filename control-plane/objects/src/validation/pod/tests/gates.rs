//! Scheduling gates at creation, in pods and in templates, and their removal.

use super::*;
use crate::kinds::strategy;
use proptest::prelude::{prop_assert_eq, proptest};

const NOT_A_KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NO_NAME: &str = "name part must be non-empty";
const NO_PREFIX: &str = "prefix part must be non-empty";
const LONG_NAME: &str = "name part must be no more than 63 bytes";
const LONG_PREFIX: &str = "prefix part must be no more than 253 bytes";
const WITH_NODE: &str =
    "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared";

fn gates(names: &[&str]) -> Value {
    let gates: Vec<Value> = names.iter().map(|n| json!({"name": n})).collect();
    json!({"schedulingGates": gates})
}

/// A domain of this many bytes.
fn domain(bytes: usize) -> String {
    let mut text = "a".repeat(bytes);
    for dot in (63..bytes).step_by(64) {
        text.replace_range(dot..=dot, ".");
    }
    text
}

/// API-1, API-3, cases 1 to 3: a gate's name is a qualified name. Faults are reported at its place in the
/// list, one error for each rule that it breaks.
#[test]
fn a_gates_name_is_a_qualified_name() {
    let long = |bytes: usize| "a".repeat(bytes);
    let prefixed = |bytes: usize| format!("{}/x", domain(bytes));
    let cases: Vec<(String, Vec<&str>)> = vec![
        ("plain".into(), vec![]),
        ("A_b.c-9".into(), vec![]),
        ("example.com/foo".into(), vec![]),
        ("a/b".into(), vec![]),
        (long(63), vec![]),
        (long(64), vec![LONG_NAME]),
        (prefixed(253), vec![]),
        (prefixed(254), vec![LONG_PREFIX]),
        (
            format!("{}/{}", domain(254).to_uppercase(), long(64)),
            vec![LONG_PREFIX, PREFIX, LONG_NAME],
        ),
        ("".into(), vec![NO_NAME, NAME_PART]),
        ("example.com/".into(), vec![NO_NAME, NAME_PART]),
        ("/foo".into(), vec![NO_PREFIX]),
        ("/".into(), vec![NO_PREFIX, NO_NAME, NAME_PART]),
        ("a/b/c".into(), vec![NOT_A_KEY]),
        ("//".into(), vec![NOT_A_KEY]),
        ("/a/".into(), vec![NOT_A_KEY]),
        ("UPPER.example/x".into(), vec![PREFIX]),
        ("-a.b/x".into(), vec![PREFIX]),
        ("a..b/.x".into(), vec![PREFIX, NAME_PART]),
        (".foo".into(), vec![NAME_PART]),
        (":bar".into(), vec![NAME_PART]),
        ("bar-".into(), vec![NAME_PART]),
        ("bad name!".into(), vec![NAME_PART]),
        ("foo\n".into(), vec![NAME_PART]),
        ("café".into(), vec![NAME_PART]),
        // Bytes count, not letters.
        ("é".repeat(31), vec![NAME_PART]),
        ("é".repeat(32), vec![LONG_NAME, NAME_PART]),
    ];
    for (name, messages) in cases {
        let quoted = format!("{name:?}");
        let expected: Vec<String> = messages
            .iter()
            .map(|m| format!("spec.schedulingGates[1]: Invalid value: {quoted}: {m}"))
            .collect();
        let spec = gates(&["first", &name]);
        let got = printed(&rules().validate(&pod(spec)));
        assert_eq!(got, expected, "{name:?}");
    }
}

/// API-3: names are quoted as in Go: invisible characters are escaped.
#[test]
fn names_are_quoted_so_that_everything_is_seen() {
    for (name, quoted) in [
        ("a\tb", r#""a\tb""#),
        ("a\u{0}b", r#""a\x00b""#),
        ("a\u{7f}b", r#""a\x7fb""#),
        ("a\u{85}b", r#""a\u0085b""#),
        ("a\u{a0}b", r#""a\u00a0b""#),
        ("a\u{ad}b", r#""a\u00adb""#),
        ("a\u{200b}b", r#""a\u200bb""#),
        ("a\u{feff}b", r#""a\ufeffb""#),
        ("a\u{e000}b", r#""a\ue000b""#),
        ("a\u{e0001}b", r#""a\U000e0001b""#),
        ("e\u{301}", "\"e\u{301}\""),
        ("日本", r#""日本""#),
        ("a😀", r#""a😀""#),
        (r#"a"\b"#, r#""a\"\\b""#),
    ] {
        let expected = format!("spec.schedulingGates[0]: Invalid value: {quoted}: {NAME_PART}");
        let got = printed(&rules().validate(&pod(gates(&[name]))));
        assert_eq!(got, [expected], "{name:?}");
    }
}

proptest! {
    /// API-3: exactly the qualified names are accepted.
    #[test]
    fn exactly_qualified_names_are_accepted(name in "[aB0./_é-]{0,6}|[a-c.]{0,4}/[aB_-]{0,3}|[a/]{60,70}") {
        let word = |text: &str, inner: &str, outer: &dyn Fn(char) -> bool| {
            let all = text.chars().all(|c| outer(c) || inner.contains(c));
            all && text.starts_with(outer) && text.ends_with(outer)
        };
        let in_name = |c: char| c.is_ascii_alphanumeric();
        let in_domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = |text: &str| text.len() <= 63 && word(text, "-_.", &in_name);
        let is_domain = |text: &str| text.split('.').all(|label| word(label, "-", &in_domain));
        let fits = match name.split('/').collect::<Vec<_>>()[..] {
            [name] => is_name(name),
            [domain, name] => is_domain(domain) && is_name(name),
            _ => false,
        };
        let errors = rules().validate(&pod(gates(&[&name])));
        prop_assert_eq!(errors.is_empty(), fits, "{:?}", printed(&errors));
    }
}

/// API-4, case 4: every further gate of a name is a duplicate, in addition to its other faults.
#[test]
fn a_gate_that_is_listed_again_is_a_duplicate() {
    check(
        gates(&["foo", "foo"]),
        &["spec.schedulingGates[1]: Duplicate value: \"foo\""],
    );
    check(
        gates(&["foo", "bar", "foo", "foo", "Foo", "bar"]),
        &[
            "spec.schedulingGates[2]: Duplicate value: \"foo\"",
            "spec.schedulingGates[3]: Duplicate value: \"foo\"",
            "spec.schedulingGates[5]: Duplicate value: \"bar\"",
        ],
    );
    let invalid =
        |i: usize| format!("spec.schedulingGates[{i}]: Invalid value: \".\": {NAME_PART}");
    check(
        gates(&[".", "."]),
        &[
            &invalid(0),
            &invalid(1),
            "spec.schedulingGates[1]: Duplicate value: \".\"",
        ],
    );
}

/// API-2, API-5, API-6, case 5: a pod with gates has no node, including static pods. Faults of the gates are reported
/// in addition.
#[test]
fn a_gated_pod_has_no_node() {
    let mut spec = gates(&["foo", "foo"]);
    spec["nodeName"] = json!("n");
    check(
        spec.clone(),
        &[
            "spec.schedulingGates[1]: Duplicate value: \"foo\"",
            WITH_NODE,
        ],
    );
    spec["schedulingGates"] = json!([]);
    check(spec.clone(), &[]);
    spec["schedulingGates"] = json!([{"name": "foo"}]);
    let mut mirror = pod(spec);
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    assert_eq!(printed(&rules().validate(&mirror)), [WITH_NODE]);
}

/// API-6: templates may have gates, which have to be sound. That there is a node, too, is reported when pods are made.
#[test]
fn gates_in_templates_have_to_be_sound() {
    for (group, resource) in [
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "jobs"),
        ("", "replicationcontrollers"),
    ] {
        let rules = strategy(gr(group, resource));
        let errors = |names: &[&str], node: &str| {
            let mut spec = gates(names);
            spec["nodeName"] = json!(node);
            spec["containers"] = json!([{"name": "c", "image": "a:1"}]);
            if resource == "jobs" {
                spec["restartPolicy"] = json!("Never");
            }
            let mut object = json!({
                "metadata": {"name": "x", "namespace": "default", "uid": "u"},
                "spec": {
                    "serviceName": "s",
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
                },
            });
            match resource {
                "jobs" => object["spec"]["selector"] = Value::Null,
                "replicationcontrollers" => object["spec"]["selector"] = json!({"a": "b"}),
                _ => {}
            }
            rules.default(&mut object);
            rules.prepare_for_create(&mut object, "2026-01-01T00:00:00Z");
            printed(&rules.validate(&object))
        };
        assert_eq!(errors(&["a", "example.com/b"], ""), [""; 0], "{resource}");
        assert_eq!(errors(&["a"], "n"), [""; 0], "{resource}");
        let at = "spec.template.spec.schedulingGates";
        assert_eq!(
            errors(&["a", "b c", "a"], ""),
            [
                format!("{at}[1]: Invalid value: \"b c\": {NAME_PART}"),
                format!("{at}[2]: Duplicate value: \"a\""),
            ],
            "{resource}"
        );
    }
}

/// API-1, API-7, API-8, cases 6 to 9: gates are only removed, one by one or all at once. A new gate is reported at its
/// name; their order has no meaning.
#[test]
fn gates_only_go() {
    let new = |i: usize, name: &str| {
        format!(
            "spec.schedulingGates[{i}].name: Forbidden: only deletion is allowed, but found new scheduling gate '{name}'"
        )
    };
    for (before, after, expected) in [
        (&["a", "b"][..], &["b", "a"][..], vec![]),
        (&["a", "b", "c"], &["c", "a"], vec![]),
        (&["a", "b"], &["b"], vec![]),
        (&["a", "b"], &[], vec![]),
        (&["a"], &["b"], vec![new(0, "b")]),
        (&["a", "b"], &["a", "c"], vec![new(1, "c")]),
        (&["a"], &["a", "b"], vec![new(1, "b")]),
        (&["a"], &["A"], vec![new(0, "A")]),
        (&[], &["a"], vec![new(0, "a")]),
        (&[], &["a", "b"], vec![new(0, "a"), new(1, "b")]),
        (&["a"], &["b", "a", "c"], vec![new(0, "b"), new(2, "c")]),
        (
            &["a"],
            &["a", "a"],
            vec!["spec.schedulingGates[1]: Duplicate value: \"a\"".to_owned()],
        ),
        // A new gate that is listed twice is one new gate.
        (
            &["a"],
            &["b", "b"],
            vec![
                "spec.schedulingGates[1]: Duplicate value: \"b\"".to_owned(),
                new(1, "b"),
            ],
        ),
        (
            &["a"],
            &["a", "b c"],
            vec![
                format!("spec.schedulingGates[1]: Invalid value: \"b c\": {NAME_PART}"),
                new(1, "b c"),
            ],
        ),
    ] {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_update(gates(before), gates(after), &expected);
    }
}

/// API-14, case 20: the status that the server sets on a new pod. The client's conditions are dropped with the rest of
/// the status.
#[test]
fn a_gated_pod_states_so_from_the_beginning() {
    let now = "2026-01-01T00:00:00Z";
    let gated = json!([{
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": null,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }]);
    let sent = json!({
        "phase": "Running",
        "nominatedNodeName": "n",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    });
    for (names, conditions) in [(&["g"][..], gated), (&[], Value::Null)] {
        let mut pod = pod(gates(names));
        pod["status"] = sent.clone();
        rules().prepare_for_create(&mut pod, now);
        let mut expected = json!({"phase": "Pending", "qosClass": "BestEffort"});
        if !conditions.is_null() {
            expected["conditions"] = conditions;
        }
        assert_eq!(pod["status"], expected, "{names:?}");
    }
}
