use super::*;
use proptest::prelude::*;

fn selector(text: &str) -> Selector {
    text.parse()
        .unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn compiled(json: &str) -> Result<Selector, SelectorError> {
    let decoded: Option<LabelSelector> =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
    Selector::from_label_selector(decoded.as_ref())
}

#[test]
fn objects_selectors_compile_to_canonical_texts() {
    for (json, text) in [
        ("{}", ""),
        (r#"{"matchLabels":null,"matchExpressions":null}"#, ""),
        (r#"{"matchLabels":{"b":"2","a":"1"}}"#, "a=1,b=2"),
        (
            r#"{"matchLabels":{"m":""},"matchExpressions":[
                {"key":"z","operator":"DoesNotExist"},
                {"key":"c","operator":"In","values":["e","d","d"]},
                {"key":"x","operator":"NotIn","values":["y"]},
                {"key":"a","operator":"Exists","values":[]}]}"#,
            "a,c in (d,e),m=,x notin (y),!z",
        ),
    ] {
        assert_eq!(compiled(json).unwrap().to_string(), text, "{json}");
    }
}

/// PL-22.
#[test]
fn no_selector_matches_nothing_and_an_empty_one_everything() {
    let some = Labels::from_pairs([("a", "1")]);
    let none = Labels::default();
    for (json, empty, nothing, matches) in [("null", false, true, false), ("{}", true, false, true)]
    {
        let selector = compiled(json).unwrap();
        assert_eq!(selector.is_empty(), empty, "{json}");
        assert_eq!(selector.is_nothing(), nothing, "{json}");
        assert_eq!(selector.matches(&some), matches, "{json}");
        assert_eq!(selector.matches(&none), matches, "{json}");
    }
    let required = selector("a").requirements().to_vec();
    assert!(Selector::nothing().and(required.clone()).is_nothing());
    assert_eq!(Selector::everything().and(required), selector("a"));
}

#[test]
fn bad_selectors_of_objects_are_refused_with_upstreams_words() {
    let name_part = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    for (json, message) in [
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Like"}]}"#,
            r#""Like" is not a valid label selector operator"#.to_owned(),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}"#,
            r#""Gt" is not a valid label selector operator"#.to_owned(),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned(),
        ),
        (
            r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#,
            r#"values: Invalid value: ["b"]: values set must be empty for exists and does not exist"#.to_owned(),
        ),
        (
            r#"{"matchLabels":{"-a":"b"}}"#,
            format!(r#"key: Invalid value: "-a": {name_part}"#),
        ),
        (
            r#"{"matchExpressions":[{"key":"-a","operator":"In","values":["b","c d"]}]}"#,
            format!(
                r#"[key: Invalid value: "-a": {name_part}, values[1][-a]: Invalid value: "c d": {value}]"#
            ),
        ),
    ] {
        assert_eq!(compiled(json).unwrap_err().to_string(), message, "{json}");
    }
}

#[test]
fn integers_are_checked_where_they_are_compared() {
    for (values, message) in [
        (
            vec!["a"],
            "p.values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            vec![],
            "p.values: Invalid value: null: for 'Gt', 'Lt' operators, exactly one value is required",
        ),
        (
            vec!["1", "2"],
            "p.values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required",
        ),
    ] {
        let values = values.into_iter().map(Str::new).collect();
        let error =
            Requirement::new(Str::new("a"), Operator::GreaterThan, values, "p").unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    // Negative integers are no label values.
    let negative = Requirement::new(Str::new("a"), Operator::LessThan, vec![Str::new("-5")], "");
    assert!(
        negative
            .unwrap_err()
            .to_string()
            .starts_with("values[0][a]: ")
    );
}

/// The text and how it is printed.
#[test]
fn texts_are_read_and_printed() {
    for (text, printed) in [
        ("", ""),
        ("  \t", ""),
        ("x=a", "x=a"),
        ("x==a", "x=a"),
        ("x = a , y != b", "x=a,y!=b"),
        ("x=", "x="),
        ("x=,y", "x=,y"),
        ("x in (a,b),!y,z", "x in (a,b),!y,z"),
        ("z,x in (b,a,b)", "x in (a,b),z"),
        ("x in ()", "x in ()"),
        ("x in (,)", "x in ()"),
        ("x in (a,,b)", "x in (,a,b)"),
        ("x in (,a)", "x in (,a)"),
        ("x notin (in,notin)", "x notin (in,notin)"),
        ("in in (in)", "in in (in)"),
        ("in", "in"),
        ("x>1,y<2", "x>1,y<2"),
        ("example.com/x=1", "example.com/x=1"),
    ] {
        assert_eq!(selector(text).to_string(), printed, "{text:?}");
        assert_eq!(selector(printed), selector(text), "{text:?}");
    }
}

#[test]
fn bad_texts_are_refused_with_upstreams_words() {
    let requirement = "unable to parse requirement: ";
    for (text, message) in [
        (
            "app inn (x)",
            format!("{requirement}found 'inn', expected: in, notin, =, ==, !=, gt, lt"),
        ),
        (
            "a b",
            format!("{requirement}found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ),
        ("x in a", format!("{requirement}found 'a' expected: '('")),
        (
            "x in (a",
            format!("{requirement}found '', expected: ',' or ')'"),
        ),
        (
            "x in (a b)",
            format!("{requirement}found 'b', expected: ',' or ')'"),
        ),
        (
            "x in (",
            format!("{requirement}found '', expected: ',', ')' or identifier"),
        ),
        (
            "x in (=",
            format!("{requirement}found '=', expected: ',', ')' or identifier"),
        ),
        (
            "x in (a,=",
            format!("{requirement}found '=', expected: ',', or identifier"),
        ),
        (
            "x==a==b",
            "found '==', expected: ',' or 'end of string'".to_owned(),
        ),
        (
            "x=a)",
            "found ')', expected: ',' or 'end of string'".to_owned(),
        ),
        (
            "!x=a",
            "found '=', expected: ',' or 'end of string'".to_owned(),
        ),
        (
            "x=!a",
            format!("{requirement}found '!', expected: identifier"),
        ),
        ("!", format!("{requirement}found '', expected: identifier")),
        (
            "!!x",
            format!("{requirement}found '!', expected: identifier"),
        ),
        (
            "=a",
            "found '=', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        (
            ",a",
            "found ',', expected: !, identifier, or 'end of string'".to_owned(),
        ),
        ("a,", "found '', expected: identifier after ','".to_owned()),
        (
            "a,,b",
            "found ',', expected: identifier after ','".to_owned(),
        ),
        (
            "x>a",
            format!(
                "{requirement}values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        (
            "-x",
            format!(
                "{requirement}<nil>: Invalid value: \"-x\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
        ),
        (
            "x=-a",
            format!(
                "{requirement}values[0][x]: Invalid value: \"-a\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ),
        ),
    ] {
        let error = text.parse::<Selector>().unwrap_err();
        assert_eq!(error.to_string(), message, "{text:?}");
    }
}

#[test]
fn labels_are_matched() {
    let labels = Labels::from_pairs([
        ("app", "web"),
        ("tier", ""),
        ("size", "5"),
        ("word", "five"),
    ]);
    for (text, expected) in [
        ("", true),
        ("app", true),
        ("other", false),
        ("!other", true),
        ("!app", false),
        ("app=web", true),
        ("app=db", false),
        ("app!=db", true),
        ("app!=web", false),
        ("other!=web", true),
        ("app in (db,web)", true),
        ("other in (db,web)", false),
        ("app notin (db,web)", false),
        ("other notin (db,web)", true),
        ("tier=", true),
        ("other=", false),
        ("size>4", true),
        ("size>5", false),
        ("size<6", true),
        ("size<5", false),
        ("word>1", false),
        ("other<1", false),
        ("app=web,size>4,!other", true),
        ("app=web,size>4,other", false),
    ] {
        assert_eq!(selector(text).matches(&labels), expected, "{text:?}");
    }
}

#[test]
fn equal_selectors_key_caches_whatever_their_order() {
    let mut cache = std::collections::HashMap::new();
    cache.insert(selector("a in (x,y),b"), 1);
    assert_eq!(cache.get(&selector("b,a in (y,x,y)")), Some(&1));
    assert_eq!(cache.get(&selector("a in (x),b")), None);
    let from_labels = Selector::from_labels(&Labels::from_pairs([("b", "2"), ("a", "1")]));
    assert_eq!(from_labels, selector("a=1,b=2"));
}

#[test]
fn an_equality_is_found_for_an_index() {
    for (text, exact) in [
        ("a,b=2,c=3", Some(("b", "2"))),
        ("b in (2)", Some(("b", "2"))),
        ("b in (2,3),!a", None),
        ("b!=2", None),
        ("", None),
    ] {
        let selector = selector(text);
        let found = selector
            .first_exact()
            .map(|(k, v)| (k.as_str(), v.as_str()));
        assert_eq!(found, exact, "{text:?}");
    }
    assert_eq!(
        selector("a=1,b=2").exact_value("b").map(Str::as_str),
        Some("2")
    );
    assert_eq!(selector("a=1,b>2").exact_value("b"), None);
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_can_be_printed(
        text in "\\PC*",
        likely in "([ab,=!()<> 1]|in |notin ){0,20}",
    ) {
        for text in [text, likely] {
            if let Ok(read) = text.parse::<Selector>() {
                let printed = read.to_string();
                prop_assert_eq!(printed.parse::<Selector>(), Ok(read), "{} printed as {}", text, printed);
            }
        }
    }

    #[test]
    fn no_object_panics(key in "\\PC*", operator in "In|NotIn|Exists|DoesNotExist|\\PC*", values: Vec<String>) {
        let selector = LabelSelector {
            match_labels: Labels::from_pairs([(key.clone(), operator.clone())]),
            match_expressions: vec![LabelSelectorRequirement {
                key: key.into(),
                operator: operator.into(),
                values: values.into_iter().map(Str::from).collect(),
            }],
        };
        let _ = Selector::from_label_selector(Some(&selector));
    }
}
