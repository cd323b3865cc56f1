//! Programs: expressions over variables of any type, as in the validation rules of custom resources. Type errors of
//! values are found when the program is evaluated.

use crate::ast::{Expr, NodeKind};
use crate::check::{Checked, Reference};
use crate::datum::Datum;
use crate::environment::{Environment, JSON_PATCH, OBJECT};
use crate::error::{CompileError, EvaluationError, Issue, Issues};
use crate::eval::{EvalBudget, Evaluator};
use crate::limits::STACK_BYTES;
use crate::plan::Plan;
use crate::selector::{EVALUATION_STACK_BYTES, compile};
use crate::types::Type;
use crate::value::{CelValue, EvalResult, Map, MapKey};
use std::fmt;
use std::sync::Arc;

/// The variable whose fields are expressions of their own.
const COMPOSED: &str = "variables";

/// A compiled expression.
pub struct Program {
    plan: Plan,
    /// The fields of `variables` that the expression contains.
    composed: Vec<String>,
}

/// The type of the value of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// A truth value.
    Bool,
    /// A text.
    Text,
    /// A text or null.
    TextOrNull,
    /// A value of any type.
    Any,
    /// A list of `JSONPatch`. The expression can form messages.
    Patches,
    /// An `Object`. The expression can form messages.
    Object,
}

impl Output {
    fn types(self) -> Vec<Type> {
        let message = |name: &str| Type::Message(name.into());
        match self {
            Self::Bool => vec![Type::Bool],
            Self::Text => vec![Type::String],
            Self::TextOrNull => vec![Type::String, Type::Null],
            Self::Any => Vec::new(),
            Self::Patches => vec![Type::list(message(JSON_PATCH))],
            Self::Object => vec![message(OBJECT)],
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

impl Program {
    /// Compiles an expression whose value is a truth value.
    ///
    /// # Errors
    /// The expression is invalid, or its value is of another type.
    pub fn condition(
        expression: &str,
        variables: &'static [&'static str],
    ) -> Result<Self, CompileError> {
        Self::compile(expression, variables, "", None, Output::Bool)
    }

    /// Compiles an expression whose value is a text.
    ///
    /// # Errors
    /// The expression is invalid, or its value is of another type.
    pub fn text(
        expression: &str,
        variables: &'static [&'static str],
    ) -> Result<Self, CompileError> {
        Self::compile(expression, variables, "", None, Output::Text)
    }

    /// Compiles an expression over these variables and one variable with an optional value.
    ///
    /// # Errors
    /// The expression is invalid, or its value is of another type.
    pub fn with_optional(
        expression: &str,
        variables: &'static [&'static str],
        optional: &'static str,
        output: Output,
    ) -> Result<Self, CompileError> {
        Self::compile(expression, variables, optional, None, output)
    }

    /// Compiles an expression over these variables; the variable `variables` has these fields.
    ///
    /// # Errors
    /// The expression is invalid, its value is of another type, or it contains another field of `variables`.
    pub fn composed(
        expression: &str,
        variables: &'static [&'static str],
        fields: &[&str],
        output: Output,
    ) -> Result<Self, CompileError> {
        Self::compile(expression, variables, "", Some(fields), output)
    }

    fn compile(
        expression: &str,
        variables: &'static [&'static str],
        optional: &'static str,
        fields: Option<&[&str]>,
        output: Output,
    ) -> Result<Self, CompileError> {
        stacker::grow(STACK_BYTES, || {
            let environment = Environment {
                forms_messages: matches!(output, Output::Patches | Output::Object),
                optional,
                ..Environment::of_variables(variables)
            };
            let (checked, plan) = compile(expression, environment)?;
            let composed = composed_fields(expression, &checked, fields)?;
            let found = checked.type_of(checked.ast.root.id);
            let wanted = output.types();
            if !wanted.is_empty() && !wanted.contains(found) && !found.is_dyn() {
                let names: Vec<String> = wanted.iter().map(Type::declared_name).collect();
                let wanted = match &names[..] {
                    [name] => name.clone(),
                    names => format!("one of [{}]", names.join(" ")),
                };
                return Err(CompileError::OtherType(wanted, found.declared_name()));
            }
            Ok(Self {
                plan: plan?,
                composed,
            })
        })
    }

    /// The fields of `variables` that the expression contains.
    pub fn composed_fields(&self) -> &[String] {
        &self.composed
    }

    /// Returns whether the expression contains a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.plan.variables.iter().any(|name| name == variable)
    }

    /// The truth value of a condition, and the cost of the evaluation.
    ///
    /// # Errors
    /// The expression has no value, or the evaluation costs more than `cost_max`.
    pub fn is_true(
        &self,
        variables: &Variables,
        cost_max: u64,
    ) -> (Result<bool, EvaluationError>, u64) {
        let (result, cost) = self.evaluate(variables, cost_max);
        let result = result.and_then(|value| match value {
            CelValue::Bool(value) => Ok(value),
            other => Err(EvaluationError::NotBool(other.type_name().to_owned())),
        });
        (result, cost)
    }

    /// The text that the expression forms, and the cost of the evaluation. `None`: the value is no text.
    ///
    /// # Errors
    /// The expression has no value, or the evaluation costs more than `cost_max`.
    pub fn form(
        &self,
        variables: &Variables,
        cost_max: u64,
    ) -> (Result<Option<String>, EvaluationError>, u64) {
        let (result, cost) = self.evaluate(variables, cost_max);
        let result = result.map(|value| match value {
            CelValue::String(text) => Some(text.to_string()),
            _ => None,
        });
        (result, cost)
    }

    /// The value of the expression, and the cost of the evaluation.
    ///
    /// # Errors
    /// The expression has no value, or the evaluation costs more than `cost_max`.
    pub fn value(
        &self,
        variables: &Variables,
        cost_max: u64,
    ) -> (Result<Datum, EvaluationError>, u64) {
        let (result, cost) = self.evaluate(variables, cost_max);
        (result.map(Datum), cost)
    }

    fn evaluate(&self, variables: &Variables, cost_max: u64) -> (EvalResult, u64) {
        let mut budget = EvalBudget::new(cost_max);
        let mut evaluator = Evaluator::new(&variables.0, self.plan.slots, &mut budget);
        let result = stacker::maybe_grow(EVALUATION_STACK_BYTES, STACK_BYTES, || {
            evaluator.value(&self.plan.node)
        });
        (result, budget.cost())
    }
}

/// The fields of `variables` that a tree contains. With `known`, others are errors.
fn composed_fields(
    expression: &str,
    checked: &Checked,
    known: Option<&[&str]>,
) -> Result<Vec<String>, CompileError> {
    let Some(known) = known else {
        return Ok(Vec::new());
    };
    let (mut fields, mut issues) = (Vec::new(), Vec::new());
    each_expr(&checked.ast.root, &mut |expr| {
        // Both forms select a field.
        let (operand, field) = match &expr.kind {
            NodeKind::Select { operand, field, .. } => (&**operand, field.as_str()),
            NodeKind::Call(call) => match (call.function.as_str(), &call.args[..]) {
                ("_?._", [operand, field]) => (operand, field.as_text().unwrap_or("")),
                _ => return,
            },
            _ => return,
        };
        let is_variable = |reference: &Reference| matches!(reference, Reference::Variable(name) if name == COMPOSED);
        if !checked.reference(operand.id).is_some_and(is_variable) {
            return;
        }
        if known.contains(&field) {
            fields.push(field.to_owned());
        } else {
            issues.push(Issue {
                position: checked.ast.positions.get(expr.id as usize).copied(),
                message: format!("undefined field '{field}'"),
            });
        }
    });
    if issues.is_empty() {
        Ok(fields)
    } else {
        Err(CompileError::Invalid(Issues::new(expression, issues)))
    }
}

fn each_expr(expr: &Expr, see: &mut impl FnMut(&Expr)) {
    see(expr);
    expr.children(&mut |child| each_expr(child, see));
}

/// The values of the variables of a program.
#[derive(Debug, Clone)]
pub struct Variables(CelValue);

impl Variables {
    /// These variables.
    pub fn new<'n>(values: impl IntoIterator<Item = (&'n str, Datum)>) -> Self {
        let mut map = Map::default();
        for (name, datum) in values {
            map.insert(MapKey::String(name.into()), datum.0);
        }
        Self(CelValue::Map(Arc::new(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const VARIABLES: &[&str] = &["self", "oldSelf"];

    fn run(expression: &str, this: serde_json::Value) -> Result<bool, String> {
        let program = Program::condition(expression, VARIABLES).map_err(|e| e.to_string())?;
        let variables = Variables::new([
            ("self", Datum::json(&this)),
            ("oldSelf", Datum::optional(None)),
        ]);
        let (result, _) = program.is_true(&variables, crate::COST_MAX);
        result.map_err(|e| e.to_string())
    }

    #[test]
    fn conditions_read_values_of_any_type() {
        let this = json!({"replicas": 3, "min": 1, "names": ["a", "b"], "labels": {"x": "y"}});
        for (expression, expect) in [
            ("self.replicas >= self.min", Ok(true)),
            ("self.names.all(n, n.size() == 1)", Ok(true)),
            ("has(self.missing)", Ok(false)),
            ("has(self.labels.x) && self.labels.x == 'y'", Ok(true)),
            ("oldSelf.hasValue()", Ok(false)),
            ("self.missing == 1", Err("no such key: missing")),
            (
                "self.replicas + 'a' == ''",
                Err("no such overload: _+_(int, string)"),
            ),
        ] {
            let got = run(expression, this.clone());
            let expect = expect.map_err(str::to_owned);
            assert_eq!(got, expect, "{expression}");
        }
        let unknown = run("other == 1", this.clone()).unwrap_err();
        assert!(
            unknown.contains("undeclared reference to 'other'"),
            "{unknown}"
        );
        let text = run("'a'", this).unwrap_err();
        assert_eq!(text, "must evaluate to bool, not string");
    }

    #[test]
    fn mutations_form_objects_and_patches() {
        let value = |text: &str, output| {
            let program = Program::composed(text, VARIABLES, &[], output);
            let program = program.map_err(|e| e.to_string())?;
            let this = json!({"replicas": 3, "a/b": "c"});
            let variables = Variables::new([("self", Datum::json(&this))]);
            let (value, _) = program.value(&variables, crate::COST_MAX);
            value.map_err(|e| e.to_string())
        };
        let object = value(
            "Object{spec: Object.spec{replicas: self.replicas + 1, ?paused: optional.none(), items: [Object.spec.items{name: 'a'}]}}",
            Output::Object,
        );
        let object = object.expect("an object");
        assert_eq!(
            object.to_json(),
            Ok(json!({"spec": {"replicas": 4, "items": [{"name": "a"}]}}))
        );
        assert_eq!(object.misplaced(), Vec::<String>::new());
        let misplaced = value("Object{spec: Object.status{}}", Output::Object).expect("an object");
        assert_eq!(
            misplaced.misplaced(),
            [
                "unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type"
            ]
        );
        let patches = value(
            "true ? [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: {'x': 1}}] : []",
            Output::Patches,
        );
        let patches = patches.expect("patches").elements().unwrap_or_default();
        let [patch] = &patches[..] else {
            panic!("one patch: {patches:?}");
        };
        let json = |name: &str| patch.field(name).map(|f| f.to_json().unwrap_or_default());
        assert_eq!(json("path"), Some(json!("/metadata/labels/a~1b~0c")));
        assert_eq!(json("value"), Some(json!({"x": 1})));
        assert_eq!(json("from"), None);
        for (text, output, expect) in [
            (
                "Object.spec{}",
                Output::Object,
                "must evaluate to Object, not Object.spec",
            ),
            (
                "[Object{}]",
                Output::Patches,
                "must evaluate to list(JSONPatch), not list(Object)",
            ),
            (
                "JSONPatch{op: 1}",
                Output::Object,
                "expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            ("JSONPatch{x: 1}", Output::Object, "undefined field 'x'"),
            (
                "Thing{}",
                Output::Object,
                "undeclared reference to 'Thing' (in container '')",
            ),
            (
                "Object{} == null",
                Output::Bool,
                "undeclared reference to 'Object' (in container '')",
            ),
        ] {
            let error = value(text, output).expect_err(text);
            assert!(error.contains(expect), "{text}: {error}");
        }
    }

    #[test]
    fn an_expression_states_which_variables_it_contains() {
        let uses = |text: &str| {
            let program = Program::condition(text, VARIABLES).unwrap();
            program.uses("oldSelf")
        };
        assert!(uses("self == oldSelf"));
        assert!(!uses("self.oldSelf == 1"));
        assert!(!uses("[1].all(oldSelf, oldSelf == 1)"));
    }

    #[test]
    fn texts_are_formed_and_an_evaluation_is_bounded() {
        let program = Program::text("'at most ' + string(self.max)", VARIABLES).unwrap();
        let variables = Variables::new([("self", Datum::json(&json!({"max": 5})))]);
        let (text, cost) = program.form(&variables, 1_000);
        assert_eq!(text, Ok(Some("at most 5".to_owned())));
        let (text, _) = program.form(&variables, cost - 1);
        assert_eq!(text, Err(EvaluationError::TooExpensive));
    }
}
