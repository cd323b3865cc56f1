//! Type checking: resolves every name, and the possible overloads of every call.

use crate::ast::{
    Ast, Comprehension, Expr, ExprId, FunctionCall, Literal, MessageField as AstField, NodeKind,
};
use crate::declarations::{Function, Overload, function, named_type};
use crate::environment::{DEVICE_TYPE, Environment};
use crate::error::Issue;
use crate::types::Type;
use crate::unify::{Inference, instantiate, most_general};
use smallvec::SmallVec;

/// The possible overloads of a call.
pub(crate) type Overloads = SmallVec<[&'static Overload; 2]>;

/// The meaning of a name in an expression.
#[derive(Debug, Clone)]
pub(crate) enum Reference {
    /// A variable, by its name without a leading dot.
    Variable(String),
    /// A type, by its name.
    Type(&'static str),
    Call {
        function: &'static Function,
        overloads: Overloads,
        /// Whether the apparent target is a part of the function's name.
        is_namespaced: bool,
    },
}

/// A tree whose types are right.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) ast: Ast,
    pub(crate) environment: Environment,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
}

impl Checked {
    /// The type of a node.
    pub(crate) fn type_of(&self, id: ExprId) -> &Type {
        &self.types[id as usize]
    }

    /// The reference of a node.
    pub(crate) fn reference(&self, id: ExprId) -> Option<&Reference> {
        self.references[id as usize].as_ref()
    }
}

/// Checks the types of a tree.
///
/// # Errors
/// All type errors.
pub(crate) fn check(ast: Ast, environment: Environment) -> Result<Checked, Vec<Issue>> {
    let nodes = ast.positions.len();
    let mut checker = Checker {
        ast: &ast,
        environment,
        types: vec![Type::Error; nodes],
        references: vec![None; nodes],
        scope: Vec::new(),
        inference: Inference::default(),
        issues: Vec::new(),
    };
    checker.check(&ast.root);
    // Variables of types are resolved at the end, when all constraints are known.
    let mut types = std::mem::take(&mut checker.types);
    for of in &mut types {
        *of = checker.inference.resolve(of, true);
    }
    if checker.inference.is_too_large() {
        checker.issues.push(Issue {
            position: None,
            message: "the types of the expression are too large".to_owned(),
        });
    }
    let (references, issues) = (checker.references, checker.issues);
    if issues.is_empty() {
        Ok(Checked {
            ast,
            environment,
            types,
            references,
        })
    } else {
        Err(issues)
    }
}

struct Checker<'a> {
    ast: &'a Ast,
    environment: Environment,
    types: Vec<Type>,
    references: Vec<Option<Reference>>,
    /// The variables of loops and bindings, the innermost last.
    scope: Vec<(&'a str, Type)>,
    inference: Inference,
    issues: Vec<Issue>,
}

/// The value of an optional, and whether it was one.
fn unwrapped(of: Type) -> (Type, bool) {
    match of {
        Type::Optional(value) => (Type::clone(&value), true),
        other => (other, false),
    }
}

impl<'a> Checker<'a> {
    fn report(&mut self, id: ExprId, message: impl Into<String>) {
        self.issues.push(Issue {
            position: Some(self.ast.positions[id as usize]),
            message: message.into(),
        });
    }

    fn undeclared(&mut self, id: ExprId, name: &str) {
        self.report(
            id,
            format!("undeclared reference to '{name}' (in container '')"),
        );
        self.set_type(id, Type::Error);
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn set_type(&mut self, id: ExprId, of: Type) {
        self.types[id as usize] = of;
    }

    fn type_of(&self, expr: &Expr) -> Type {
        self.types[expr.id as usize].clone()
    }

    fn resolved(&self, of: &Type) -> Type {
        self.inference.resolve(of, false)
    }

    fn variable(&self, name: &str) -> Option<Type> {
        let local = self.scope.iter().rev().find(|(known, _)| *known == name);
        match local {
            Some((_, of)) => Some(of.clone()),
            None => self.environment.variable(name),
        }
    }

    /// Resolves a name that may be a variable or a type.
    fn name(&mut self, id: ExprId, name: &str) -> bool {
        let name = name.strip_prefix('.').unwrap_or(name);
        let (reference, of) = if let Some(of) = self.variable(name) {
            (Reference::Variable(name.to_owned()), of)
        } else if let Some((name, of)) = named_type(name) {
            (Reference::Type(name), Type::Type(Some(of.into())))
        } else {
            return false;
        };
        self.references[id as usize] = Some(reference);
        self.set_type(id, of);
        true
    }

    fn check(&mut self, expr: &'a Expr) {
        match &expr.kind {
            NodeKind::Literal(literal) => {
                let of = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set_type(expr.id, of);
            }
            NodeKind::Ident(name) => {
                if !self.name(expr.id, name) {
                    self.undeclared(expr.id, name);
                }
            }
            NodeKind::Select {
                operand,
                field,
                test_only,
            } => {
                let qualified = expr.qualified_name();
                if qualified.is_some_and(|name| self.name(expr.id, &name)) {
                    return;
                }
                let mut of = self.select(expr.id, operand, field, false);
                if *test_only {
                    of = Type::Bool;
                }
                let of = self.resolved(&of);
                self.set_type(expr.id, of);
            }
            NodeKind::Call(call) => self.call(expr, call),
            NodeKind::List(elements) => {
                let mut of = None;
                for element in elements {
                    self.check(&element.value);
                    let found = self.element_type(&element.value, element.optional);
                    of = Some(self.joined(of, found));
                }
                let of = of.unwrap_or_else(|| self.inference.variable());
                self.set_type(expr.id, Type::list(of));
            }
            NodeKind::Map(entries) => {
                let mut of: Option<(Type, Type)> = None;
                for entry in entries {
                    self.check(&entry.key);
                    let key = self.type_of(&entry.key);
                    self.check(&entry.value);
                    let value = self.element_type(&entry.value, entry.optional);
                    let (keys, values) = of.unzip();
                    of = Some((self.joined(keys, key), self.joined(values, value)));
                }
                let (key, value) =
                    of.unwrap_or_else(|| (self.inference.variable(), self.inference.variable()));
                self.set_type(expr.id, Type::map(key, value));
            }
            NodeKind::Struct { type_name, fields } => self.message(expr.id, type_name, fields),
            NodeKind::Comprehension(fold) => self.comprehension(expr.id, fold),
        }
        if self.types[expr.id as usize].is_too_large() {
            self.report(expr.id, "the type of the expression is too large");
            self.set_type(expr.id, Type::Error);
        }
    }

    fn message(&mut self, id: ExprId, name: &'a str, fields: &'a [AstField]) {
        let name = name.strip_prefix('.').unwrap_or(name);
        for field in fields {
            self.check(&field.value);
        }
        if !self.environment.has_message(name) {
            return self.undeclared(id, name);
        }
        for field in fields {
            let Some(wanted) = self.environment.message_field(name, &field.name) else {
                self.report(field.id, format!("undefined field '{}'", field.name));
                continue;
            };
            let found = self.element_type(&field.value, field.optional);
            if !self.inference.is_assignable(&wanted, &found) {
                let field_name = &field.name;
                self.report(
                    field.id,
                    format!(
                        "expected type of field '{field_name}' is '{wanted}' but provided type is '{found}'"
                    ),
                );
            }
        }
        self.set_type(id, Type::Message(name.into()));
    }

    /// The type of an element, or of the value of an optional one.
    fn element_type(&mut self, value: &Expr, optional: bool) -> Type {
        let of = self.type_of(value);
        if !optional {
            return of;
        }
        let (of, is_optional) = unwrapped(of);
        if !is_optional && !of.is_dyn() {
            self.mismatch(value.id, &Type::optional(of.clone()), &of);
        }
        of
    }

    /// The type of elements so far and of one more.
    fn joined(&mut self, so_far: Option<Type>, next: Type) -> Type {
        match so_far {
            None => next,
            Some(so_far) if self.inference.is_assignable(&so_far, &next) => {
                most_general(&so_far, &next)
            }
            Some(_) => Type::Dyn,
        }
    }

    /// The type of a selected field.
    fn select(&mut self, id: ExprId, operand: &'a Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let of = self.resolved(&self.type_of(operand));
        let (target, is_optional) = unwrapped(of);
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(DEVICE_TYPE) => match self.environment.field(field) {
                Some(of) => of,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Message(name) => match self.environment.message_field(name, field) {
                Some(of) => of,
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Object(name) => {
                self.report(id, format!("unexpected failed resolution of '{name}'"));
                Type::Error
            }
            // A type that is not known yet may be anything, so it becomes dynamic.
            Type::Variable(_) => {
                self.inference.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                // An error was reported for the operand already.
                if !other.is_dyn_or_error() {
                    self.report(
                        id,
                        format!("type '{other}' does not support field selection"),
                    );
                }
                Type::Dyn
            }
        };
        if is_optional || optional {
            Type::optional(result)
        } else {
            result
        }
    }

    fn call(&mut self, expr: &'a Expr, call: &'a FunctionCall) {
        if call.function == "_?._" {
            if let [operand, field] = &call.args[..]
                && let Some(field) = field.as_text()
            {
                let of = self.select(expr.id, operand, field, true);
                let of = self.resolved(&of);
                self.set_type(expr.id, of);
                self.refer(expr.id, "_?._", &[], false);
            } else {
                self.report(expr.id, "unsupported optional field selection");
            }
            return;
        }
        for arg in &call.args {
            self.check(arg);
        }
        let known = |checker: &Self, name: &str| {
            let name = name.strip_prefix('.').unwrap_or(name);
            function(name).filter(|found| checker.environment.has_function(found.name))
        };
        let Some(target) = &call.target else {
            match known(self, &call.function) {
                Some(function) => self.resolve(expr.id, function, None, &call.args, false),
                None => self.undeclared(expr.id, &call.function),
            }
            return;
        };
        // A qualified name can be a function of a namespace or a call on a value; the function takes precedence.
        if let Some(prefix) = target.qualified_name()
            && let Some(function) = known(self, &format!("{prefix}.{}", call.function))
        {
            self.resolve(expr.id, function, None, &call.args, true);
            return;
        }
        self.check(target);
        match known(self, &call.function) {
            Some(function) => self.resolve(expr.id, function, Some(target), &call.args, false),
            None => self.undeclared(expr.id, &call.function),
        }
    }

    fn refer(&mut self, id: ExprId, name: &str, overloads: &[&'static Overload], namespaced: bool) {
        if let Some(function) = function(name) {
            self.references[id as usize] = Some(Reference::Call {
                function,
                overloads: overloads.into(),
                is_namespaced: namespaced,
            });
        }
    }

    fn resolve(
        &mut self,
        id: ExprId,
        function: &'static Function,
        target: Option<&Expr>,
        args: &[Expr],
        is_namespaced: bool,
    ) {
        let given: Vec<Type> = target
            .into_iter()
            .chain(args)
            .map(|arg| self.type_of(arg))
            .collect();
        let overloads = function
            .overloads
            .iter()
            .filter(|overload| overload.member == target.is_some());
        let mut matching = Overloads::new();
        let mut result: Option<Type> = None;
        if matches!(function.name, "_&&_" | "_||_") {
            for (arg, of) in args.iter().zip(&given) {
                if !self.inference.is_assignable(of, &Type::Bool) {
                    self.mismatch(arg.id, &Type::Bool, of);
                    result = Some(Type::Error);
                }
            }
            matching.extend(overloads);
            let of = result.unwrap_or(Type::Bool);
            self.refer(id, function.name, &matching, is_namespaced);
            self.set_type(id, of);
            return;
        }
        for overload in overloads {
            let (wanted, returned) = self.signature(overload);
            if !self.inference.are_assignable(&given, &wanted) {
                continue;
            }
            matching.push(overload);
            let returned = self.resolved(&returned);
            match &result {
                None => result = Some(returned),
                Some(so_far) if so_far.is_dyn() || *so_far == returned => {}
                Some(_) => result = Some(Type::Dyn),
            }
        }
        match result {
            Some(of) => {
                self.refer(id, function.name, &matching, is_namespaced);
                self.set_type(id, of);
            }
            None => {
                let shown: Vec<String> = given
                    .iter()
                    .map(|of| self.inference.resolve(of, true).to_string())
                    .collect();
                let signature = match (target, &shown[..]) {
                    (Some(_), [target, args @ ..]) => format!("{target}.({})", args.join(", ")),
                    (_, args) => format!("({})", args.join(", ")),
                };
                let name = function.name;
                self.report(
                    id,
                    format!("found no matching overload for '{name}' applied to '{signature}'"),
                );
                self.set_type(id, Type::Error);
            }
        }
    }

    /// The types of an overload, with new variables for its parameters.
    fn signature(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        if !overload.is_generic {
            return (overload.args.clone(), overload.result.clone());
        }
        let mut known: SmallVec<[(&'static str, Type); 2]> = SmallVec::new();
        let inference = &mut self.inference;
        let mut variable = |name: &'static str| {
            if let Some((_, of)) = known.iter().find(|(other, _)| *other == name) {
                return of.clone();
            }
            let fresh = inference.variable();
            known.push((name, fresh.clone()));
            fresh
        };
        let args = overload
            .args
            .iter()
            .map(|of| instantiate(of, &mut variable))
            .collect();
        (args, instantiate(&overload.result, &mut variable))
    }

    fn comprehension(&mut self, id: ExprId, fold: &'a Comprehension) {
        self.check(&fold.range);
        self.check(&fold.init);
        let range = self.resolved(&self.type_of(&fold.range));
        let accumulated = self.type_of(&fold.init);
        let outer = self.scope.len();
        self.scope.push((&fold.accumulator, accumulated.clone()));
        let is_pair = fold.second_variable.is_some();
        let (first, second) = match &range {
            // With two variables, a list gives its indexes and elements.
            Type::List(element) if is_pair => (Type::Int, Type::clone(element)),
            Type::List(element) => (Type::clone(element), Type::Error),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Variable(_) | Type::Dyn | Type::Error => {
                self.inference.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                self.report(
                    fold.range.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, \
                         or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        let inner = self.scope.len();
        self.scope.push((&fold.variable, first));
        if let Some(variable) = &fold.second_variable {
            self.scope.push((variable, second));
        }
        self.check(&fold.condition);
        self.expect(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.expect(&fold.step, &accumulated);
        self.scope.truncate(inner);
        // The result sees the accumulator, but not the variables of the loop.
        self.check(&fold.result);
        self.scope.truncate(outer);
        let of = self.resolved(&self.type_of(&fold.result));
        self.set_type(id, of);
    }

    fn expect(&mut self, expr: &Expr, expected: &Type) {
        let found = self.type_of(expr);
        if !self.inference.is_assignable(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}
