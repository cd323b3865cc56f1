//! The rules of schemas: the rules that a definition may state, and the faults that rules find.

use super::*;
use serde_json::json;

/// The faults of an update of `spec` from `old`.
fn faults(spec: Value, object: Value, old: Option<Value>) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let whole = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
    let (object, old) = (whole(object), old.map(whole));
    let checked = Rules::of(&schema).validate(&schema, &object, old.as_ref(), &[]);
    checked.errors.iter().map(ToString::to_string).collect()
}

fn integer(rules: Value) -> Value {
    json!({"type": "integer", "x-kubernetes-validations": rules})
}

#[test]
fn rules_find_faults_with_the_texts_of_kube_apiserver() {
    let bounded = json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "end": {"type": "string", "format": "date-time"},
            "a-b": {"type": "string"},
        },
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "message": "min is more than max"},
            {"rule": "!has(self.end) || self.end < timestamp('2030-01-01T00:00:00Z')", "fieldPath": ".end"},
            {"rule": "!has(self.a__dash__b) || self.a__dash__b != 'no'",
             "messageExpression": "'a-b is ' + self.a__dash__b"},
        ],
    });
    for (spec, expect) in [
        (json!({"min": 1, "max": 2}), vec![]),
        (
            json!({"min": 3, "max": 2}),
            vec!["spec: Invalid value: min is more than max"],
        ),
        (
            json!({"min": 1, "max": 2, "end": "2031-01-01T00:00:00Z"}),
            vec![
                "spec.end: Invalid value: failed rule: !has(self.end) || self.end < timestamp('2030-01-01T00:00:00Z')",
            ],
        ),
        (
            json!({"min": 1, "max": 2, "a-b": "no"}),
            vec!["spec: Invalid value: a-b is no"],
        ),
        (
            json!({"min": 1}),
            vec![
                "spec: Invalid value: \"object\": no such key: max evaluating rule: min is more than max",
            ],
        ),
    ] {
        assert_eq!(
            faults(bounded.clone(), spec.clone(), None),
            expect,
            "{spec}"
        );
    }
    let forbidden =
        integer(json!([{"rule": "self < 3", "reason": "FieldValueForbidden", "message": "no"}]));
    assert_eq!(faults(forbidden, json!(3), None), ["spec: Forbidden: no"]);
}

#[test]
fn transition_rules_compare_with_the_object_before() {
    let grows = integer(json!([{"rule": "self >= oldSelf", "message": "may not shrink"}]));
    assert_eq!(faults(grows.clone(), json!(1), None), Vec::<String>::new());
    assert_eq!(
        faults(grows, json!(1), Some(json!(2))),
        ["spec: Invalid value: 1: may not shrink"]
    );
    let optional = integer(json!([
        {"rule": "oldSelf.hasValue() || self == 0", "optionalOldSelf": true, "message": "begins at 0"},
    ]));
    assert_eq!(
        faults(optional.clone(), json!(1), None),
        ["spec: Invalid value: 1: begins at 0"]
    );
    assert_eq!(
        faults(optional, json!(1), Some(json!(0))),
        Vec::<String>::new()
    );
    let compared = integer(json!([
        {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "may not shrink"},
    ]));
    for (value, old, expect) in [
        (1, None, vec![]),
        (2, Some(1), vec![]),
        (1, Some(2), vec!["spec: Invalid value: 1: may not shrink"]),
    ] {
        let found = faults(compared.clone(), json!(value), old.map(Value::from));
        assert_eq!(found, expect, "{value} after {old:?}");
    }
    // The fields of an optional value are optional.
    let fields = json!({
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}},
        "x-kubernetes-validations": [{
            "rule": "!oldSelf.hasValue() || oldSelf.a.b.orValue(0) <= self.a.b", "optionalOldSelf": true,
            "message": "may not shrink",
        }],
    });
    let part = |b: i32| json!({"a": {"b": b}});
    for (old, expect) in [
        (None, vec![]),
        (Some(json!({})), vec![]),
        (Some(part(1)), vec![]),
        (Some(part(2)), vec!["spec: Invalid value: may not shrink"]),
    ] {
        assert_eq!(
            faults(fields.clone(), part(1), old.clone()),
            expect,
            "{old:?}"
        );
    }
    // Entries of a list are compared by their keys.
    let list = json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "is immutable"}],
        },
    });
    let before = json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
    let after = json!([{"k": "b", "v": 3}, {"k": "a", "v": 1}, {"k": "c", "v": 9}]);
    assert_eq!(
        faults(list, after, Some(before)),
        ["spec[0]: Invalid value: is immutable"]
    );
}

/// A rule over a field whose name is a reserved word has an effect, with the escape and without it.
#[test]
fn fields_named_by_reserved_words_are_selected_by_their_names() {
    let text = json!({"type": "string"});
    let schema = |rule: &str| {
        json!({
            "type": "object",
            "properties": {
                "namespace": text,
                "if": text,
                "labels": {"type": "object", "additionalProperties": text},
                "embedded": {
                    "type": "object", "x-kubernetes-embedded-resource": true,
                    "properties": {
                        "kind": text, "apiVersion": text,
                        "metadata": {"type": "object", "properties": {
                            "name": text, "generateName": text, "namespace": text,
                        }},
                    },
                },
            },
            "x-kubernetes-validations": [{"rule": rule, "message": "no"}],
        })
    };
    let spec = json!({
        "namespace": "a", "if": "b", "labels": {"package": "c", "__return__": "d"},
        "embedded": {"metadata": {"name": "e", "namespace": "f"}},
    });
    for rule in [
        "self.namespace == 'a' && self.__namespace__ == 'a'",
        "has(self.namespace) && has(self.__namespace__)",
        "self.?namespace.orValue('') == 'a'",
        "self.if == 'b' && self.__if__ == 'b'",
        // The keys of a map are not names of fields.
        "self.labels.package == 'c' && !('__package__' in self.labels)",
        "!('return' in self.labels) && !has(self.labels.return)",
        "self.embedded.metadata.namespace == 'f'",
    ] {
        let found = faults(schema(rule), spec.clone(), None);
        assert_eq!(found, Vec::<String>::new(), "{rule}");
        let found = faults(schema(&format!("!({rule})")), spec.clone(), None);
        assert_eq!(found, ["spec: Invalid value: no"], "{rule}");
    }
}

#[test]
fn what_was_invalid_before_may_stay_so() {
    let small = integer(json!([{"rule": "self < 3"}]));
    assert_eq!(
        faults(small.clone(), json!(5), Some(json!(5))),
        Vec::<String>::new()
    );
    assert_eq!(faults(small, json!(6), Some(json!(5))).len(), 1);
}

#[test]
fn definitions_state_rules_that_can_be_evaluated() {
    let check_one = |rule: Value| {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, FIELD: [rule]});
        let mut errors = Errors::new();
        check(&mut errors, &schema, &ErrorPath::new("s"), true);
        let errors = errors.into_vec();
        errors.iter().map(ToString::to_string).collect::<String>()
    };
    for (rule, expect) in [
        (json!({"rule": "self.a > 0"}), ""),
        (
            json!({"rule": " "}),
            "rule: Required value: rule is not specified",
        ),
        (
            json!({"rule": "self.a >"}),
            "compilation failed: ERROR: <input>:1:9",
        ),
        (
            json!({"rule": "1"}),
            "cel expression must evaluate to a bool",
        ),
        (
            json!({"rule": "true", "messageExpression": "1"}),
            "messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": "true", "reason": "Other"}),
            "reason: Unsupported value: \"Other\"",
        ),
        (
            json!({"rule": "true", "fieldPath": ".b"}),
            "fieldPath: Invalid value: \".b\": must be a valid path",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "may not be set if oldSelf is not used in rule",
        ),
    ] {
        let got = check_one(rule.clone());
        assert!(
            got.contains(expect) && got.is_empty() == expect.is_empty(),
            "{rule}: {got}"
        );
    }
}
