//! The faults of the constants of an expression whose types are right.

use crate::ast::{Expr, Literal, NodeKind};
use crate::check::Checked;
use crate::error::Issue;
use crate::functions::{
    FormatCheck, check_format, regex::Pattern, valid_duration, valid_timestamp, valid_timestamp_of,
};
use crate::types::Type;

/// Checks the constants of a tree: no list or map mixes types, durations, times, regular expressions and formats are
/// valid.
///
/// # Errors
/// All problems.
pub(crate) fn validate(checked: &Checked) -> Result<(), Vec<Issue>> {
    let mut validator = Validator {
        checked,
        issues: Vec::new(),
    };
    validator.visit(&checked.ast.root, false);
    if validator.issues.is_empty() {
        Ok(())
    } else {
        Err(validator.issues)
    }
}

struct Validator<'c> {
    checked: &'c Checked,
    issues: Vec<Issue>,
}

impl Validator<'_> {
    fn report(&mut self, expr: &Expr, message: String) {
        self.issues.push(Issue {
            position: Some(self.checked.ast.positions[expr.id as usize]),
            message,
        });
    }

    fn mismatch(&mut self, expr: &Expr, expected: &Type, found: &Type) {
        self.report(
            expr,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    /// The arguments of formats may mix types.
    fn visit(&mut self, expr: &Expr, in_format: bool) {
        match &expr.kind {
            NodeKind::List(elements) if !in_format => {
                let mut first: Option<Type> = None;
                for element in elements {
                    let of = self.value_type(&element.value, element.optional);
                    match &first {
                        None => first = Some(of),
                        Some(first) if *first != of => {
                            self.mismatch(&element.value, first, &of);
                            // One mismatch is reported for each literal.
                            break;
                        }
                        Some(_) => {}
                    }
                }
            }
            NodeKind::Map(entries) if !in_format => {
                let mut first: Option<(Type, Type)> = None;
                for entry in entries {
                    let key = self.value_type(&entry.key, false);
                    let value = self.value_type(&entry.value, entry.optional);
                    let Some((first_key, first_value)) = &first else {
                        first = Some((key, value));
                        continue;
                    };
                    if *first_key != key {
                        self.mismatch(&entry.key, first_key, &key);
                    }
                    if *first_value != value {
                        self.mismatch(&entry.value, first_value, &value);
                    }
                }
            }
            NodeKind::Call(call) => {
                self.check_literal(&call.function, call.args.first());
                self.check_format(expr);
            }
            _ => {}
        }
        // Arguments of `format` may differ in type, at every depth below it.
        let in_format =
            in_format || matches!(&expr.kind, NodeKind::Call(call) if call.function == "format");
        expr.children(&mut |child| self.visit(child, in_format));
    }

    fn value_type(&self, expr: &Expr, optional: bool) -> Type {
        match self.checked.type_of(expr.id) {
            Type::Optional(of) if optional => Type::clone(of),
            of => of.clone(),
        }
    }

    fn check_literal(&mut self, function: &str, arg: Option<&Expr>) {
        let Some(arg) = arg else {
            return;
        };
        let NodeKind::Literal(literal) = &arg.kind else {
            return;
        };
        let valid = match (function, literal) {
            ("duration", Literal::String(text)) => valid_duration(text),
            ("timestamp", Literal::String(text)) => valid_timestamp(text),
            ("timestamp", Literal::Int(seconds)) => valid_timestamp_of(*seconds),
            ("duration" | "timestamp", _) => false,
            ("matches", Literal::String(pattern)) => Pattern::new(pattern).is_ok(),
            _ => true,
        };
        if !valid {
            self.report(arg, format!("invalid {function} argument"));
        }
    }

    fn check_format(&mut self, expr: &Expr) {
        let NodeKind::Call(call) = &expr.kind else {
            return;
        };
        let (Some(target), [args]) = (&call.target, &call.args[..]) else {
            return;
        };
        if call.function != "format" {
            return;
        }
        if let (Some(format), NodeKind::List(args)) = (target.as_text(), &args.kind) {
            let args: Vec<&Expr> = args.iter().map(|arg| &arg.value).collect();
            let type_of = |id| self.checked.type_of(id).clone();
            if let Err(FormatCheck { argument, message }) = check_format(format, &args, &type_of) {
                let id = argument.unwrap_or(expr.id);
                self.issues.push(Issue {
                    position: Some(self.checked.ast.positions[id as usize]),
                    message,
                });
            }
        }
    }
}
