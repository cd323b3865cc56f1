//! Expressions that are too long, too deep or too expensive are rejected or stopped with an error that names the limit.

use berth_api::devices::Device;
use berth_cel::{
    COST_MAX, CelSelector, CompileError, DEPTH_MAX, DeviceValue, EXPRESSION_LENGTH_MAX,
    Environment, EvaluationError,
};

fn device() -> DeviceValue {
    DeviceValue::new("d.example.com", &Device::default(), Environment::default())
}

fn compile(expression: &str) -> Result<CelSelector, CompileError> {
    CelSelector::compile(expression, Environment::default())
}

fn result(expression: &str) -> Result<bool, EvaluationError> {
    let selector = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    selector.matches(&device())
}

/// Expressions that bind names to larger and larger values.
fn doubled(start: &str, double: impl Fn(&str) -> String, times: usize, last: &str) -> String {
    let mut expression = format!("cel.bind(v0, {start}, ");
    for time in 0..times {
        let value = double(&format!("v{time}"));
        expression.push_str(&format!("cel.bind(v{}, {value}, ", time + 1));
    }
    expression.push_str(&last.replace('v', &format!("v{times}")));
    expression.push_str(&")".repeat(times + 1));
    expression
}

#[test]
fn a_long_expression_is_refused() {
    let long = |length: usize| {
        let start = "device.driver == \"";
        format!("{start}{}\"", "a".repeat(length - start.len() - 1))
    };
    assert!(compile(&long(EXPRESSION_LENGTH_MAX)).is_ok());
    let error = compile(&long(EXPRESSION_LENGTH_MAX + 1)).map(|_| ());
    assert_eq!(error, Err(CompileError::TooLong(EXPRESSION_LENGTH_MAX + 1)));
}

#[test]
fn a_deep_expression_is_refused() {
    let depth = usize::from(DEPTH_MAX);
    for (open, middle, close) in [
        ("(", "true", ")"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("[", "1", "]"),
        ("{1: ", "1", "}"),
        ("true ? true : ", "true", ""),
        ("size(", "\"\"", ")"),
        ("cel.bind(a, 1, ", "a", ")"),
        ("[1].map(x, ", "1", ")"),
        ("optional.of(", "1", ")"),
        ("a.", "b", ""),
        ("1 + ", "1", ""),
        ("true && ", "true", ""),
        ("true || !", "true", ""),
    ] {
        // However deep, nothing overflows; beyond the limit it is refused.
        for times in [depth / 2, depth, 1_000, 5_000] {
            let expression = format!("{}{middle}{}", open.repeat(times), close.repeat(times));
            if expression.len() <= EXPRESSION_LENGTH_MAX {
                let _ = compile(&expression);
            }
        }
    }
    for open in ["(", "[", "size("] {
        let close = if open == "[" { "]" } else { ")" };
        let expression = format!("{}1{}", open.repeat(1_000), close.repeat(1_000));
        let error = compile(&expression).map(|_| ()).expect_err("too deep");
        let text = error.to_string();
        assert!(
            text.contains("expression recursion limit exceeded: 250"),
            "{text}"
        );
    }
}

#[test]
fn an_expensive_evaluation_is_stopped() {
    let stopped = [
        "lists.range(100000).all(x, lists.range(100000).all(y, y >= 0))".to_owned(),
        "lists.range(1000000).distinct().size() == 0".to_owned(),
        "lists.range(100000).sort().isSorted()".to_owned(),
        "sets.equivalent(lists.range(10000), lists.range(10000))".to_owned(),
        doubled("\"abcdefgh\"", |v| format!("{v} + {v}"), 40, "v.size() > 1"),
        doubled(
            "\"abcdefgh\"",
            |v| format!("{v} + {v}"),
            20,
            "v.matches(\"(a|b)*c(x+x+)+y\")",
        ),
        doubled("[1]", |v| format!("{v} + {v}"), 40, "v.size() > 1"),
        doubled("[1]", |v| format!("[{v}, {v}]"), 40, "v == v"),
        doubled(
            "[1]",
            |v| format!("[{v}, {v}]"),
            40,
            "v.flatten(100).size() > 1",
        ),
        doubled(
            "[1]",
            |v| format!("[{v}, {v}]"),
            40,
            "\"%s\".format([v]).size() > 1",
        ),
        doubled("{1: 1}", |v| format!("{{1: {v}, 2: {v}}}"), 40, "v == v"),
        doubled(
            "\"a\"",
            |v| format!("{v}.replace(\"a\", \"aa\")"),
            40,
            "v.size() > 1",
        ),
    ];
    for expression in stopped {
        let got = result(&expression);
        assert_eq!(got, Err(EvaluationError::TooExpensive), "{expression}");
    }
}

#[test]
fn the_estimate_of_an_expensive_expression_is_above_the_limit() {
    let estimate = |expression: &str| compile(expression).map(|selector| selector.estimated_cost());
    let cheap = r#"device.attributes["d.example.com"].model.startsWith("a")"#;
    assert!(estimate(cheap).is_ok_and(|cost| cost < COST_MAX / 1_000));
    for expensive in [
        "lists.range(1000000).all(x, x >= 0)",
        r#"device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a == b && c == d))))"#,
    ] {
        assert!(
            estimate(expensive).is_ok_and(|cost| cost > COST_MAX),
            "{expensive}"
        );
    }
}

/// The types of such an expression double in size with each name.
#[test]
fn an_expression_of_an_exponential_type_is_refused_or_cheap() {
    for times in [5, 20, 40] {
        let expression = doubled(
            "1",
            |v| format!("[{{1: {v}}}, {{1: {v}}}]"),
            times,
            "v == v",
        );
        let _ = compile(&expression).map(|selector| selector.matches(&device()));
        let expression = doubled(
            "[]",
            |v| format!("{{\"a\": {v}, \"b\": {v}}}"),
            times,
            "v == v",
        );
        let _ = compile(&expression).map(|selector| selector.matches(&device()));
    }
}

#[test]
fn regular_expressions_take_linear_time_and_bounded_space() {
    let text = "a".repeat(4_000);
    for pattern in [
        "(a*)*b",
        "(a|aa)+b",
        "(.*)(.*)(.*)(.*)b",
        "(x+x+)+y",
        "a?{1000}",
    ] {
        let expression = format!("\"{text}\".matches(\"{pattern}\")");
        let _ = compile(&expression).map(|selector| selector.matches(&device()));
    }
    for too_large in [
        "((a{30}){30}){30}",
        "(\\\\pL{1000}){1000}",
        "a{1001}",
        "\\\\pL{900}",
    ] {
        let error = compile(&format!("\"a\".matches(\"{too_large}\")")).map(|_| ());
        let text = error.expect_err(too_large).to_string();
        assert!(text.contains("1:13: invalid matches argument"), "{text}");
    }
    // A pattern that only the evaluation knows.
    let expression = "\"a\".matches(\"(\" + device.driver)";
    assert!(matches!(
        result(expression),
        Err(EvaluationError::Failed(_))
    ));
}
