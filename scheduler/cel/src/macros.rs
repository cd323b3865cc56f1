//! Macros: calls that represent loops, bindings and tests, and are replaced when an expression is parsed.
//!
//! The expansions are equal to the CEL standard library and its extensions for bindings, two-variable comprehensions,
//! optional values and lists, because the cost of an expression is the cost of its expansion.

use crate::ast::{
    ACCUMULATOR, Comprehension, Element, Expr, FunctionCall, Literal, NodeKind, TextPosition,
};
use crate::tree::TreeBuilder;

/// Another name that variables of loops cannot have.
const OLD_ACCUMULATOR: &str = "__result__";
/// The variable of a loop that does not loop.
const UNUSED: &str = "#unused";
/// The list that `sortBy` sorts.
const SORTED: &str = "@__sortBy_input__";

/// The node for a call: its expansion if it is a macro.
pub(crate) fn expand(
    builder: &mut TreeBuilder,
    position: TextPosition,
    mut call: FunctionCall,
) -> Expr {
    let mut expansion = Expansion { builder, position };
    let result = match (call.target.take(), call.function.as_str(), call.args.len()) {
        (None, "has", 1) => expansion.has(call.args.pop()),
        (Some(target), "all" | "exists" | "exists_one", 2 | 3) | (Some(target), "existsOne", 3) => {
            let kind = call.function.as_str();
            expansion.quantifier(kind, *target, call.args)
        }
        (Some(target), "map", 2 | 3) => expansion.map(*target, call.args),
        (Some(target), "filter", 2) => expansion.filter(*target, call.args),
        (Some(target), "transformList" | "transformMap" | "transformMapEntry", 3 | 4) => {
            let kind = call.function.as_str();
            expansion.transform(kind, *target, call.args)
        }
        (Some(target), "optMap" | "optFlatMap", 2) => {
            let flat = call.function == "optFlatMap";
            expansion.optional_map(flat, *target, call.args)
        }
        // `bind` belongs to the namespace `cel`.
        (Some(target), "bind", 3) if matches!(&target.kind, NodeKind::Ident(name) if name == "cel") => {
            expansion.bind(call.args)
        }
        (Some(target), "sortBy", 2) => expansion.sort_by(*target, call.args),
        (target, _, _) => {
            call.target = target;
            return builder.node(position, NodeKind::Call(call));
        }
    };
    match result {
        Ok(expr) => expr,
        // The error is reported; a literal lets the check of the rest continue.
        Err((id, message)) => {
            builder.report(id, message);
            builder.node(position, NodeKind::Literal(Literal::Null))
        }
    }
}

type Problem = (crate::ast::ExprId, String);

struct Expansion<'b> {
    builder: &'b mut TreeBuilder,
    position: TextPosition,
}

impl Expansion<'_> {
    fn node(&mut self, kind: NodeKind) -> Expr {
        self.builder.node(self.position, kind)
    }

    fn literal(&mut self, value: Literal) -> Expr {
        self.node(NodeKind::Literal(value))
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.node(NodeKind::Ident(name.to_owned()))
    }

    fn accumulator(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(NodeKind::Call(FunctionCall {
            function: function.to_owned(),
            target: None,
            args,
        }))
    }

    fn member(&mut self, function: &str, target: Expr, args: Vec<Expr>) -> Expr {
        self.node(NodeKind::Call(FunctionCall {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            args,
        }))
    }

    fn list(&mut self, elements: Vec<Expr>) -> Expr {
        let elements = elements.into_iter().map(|value| Element {
            value,
            optional: false,
        });
        self.node(NodeKind::List(elements.collect()))
    }

    /// `accumulator + [value]`
    fn append(&mut self, value: Expr) -> Expr {
        let (accumulator, one) = (self.accumulator(), self.list(vec![value]));
        self.call("_+_", vec![accumulator, one])
    }

    /// `filter ? step : accumulator`
    fn unless_filtered(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            None => step,
            Some(filter) => {
                let accumulator = self.accumulator();
                self.call("_?_:_", vec![filter, step, accumulator])
            }
        }
    }

    fn has(&mut self, arg: Option<Expr>) -> Result<Expr, Problem> {
        let Some(arg) = arg else {
            return Ok(self.literal(Literal::Null));
        };
        match arg.kind {
            NodeKind::Select { operand, field, .. } => Ok(self.node(NodeKind::Select {
                operand,
                field,
                test_only: true,
            })),
            _ => Err((arg.id, "invalid argument to has() macro".to_owned())),
        }
    }

    /// The variables of a loop, one or two.
    fn variables(names: &[Expr], message: &str) -> Result<(String, Option<String>), Problem> {
        let mut found: Vec<&String> = Vec::new();
        for name in names {
            match &name.kind {
                NodeKind::Ident(variable) => found.push(variable),
                _ => return Err((name.id, message.to_owned())),
            }
        }
        if let [first, second] = found[..]
            && first == second
        {
            return Err((names[1].id, format!("duplicate variable name: {first}")));
        }
        for (name, variable) in names.iter().zip(&found) {
            if [ACCUMULATOR, OLD_ACCUMULATOR].contains(&variable.as_str()) {
                let message = "iteration variable overwrites accumulator variable";
                return Err((name.id, message.to_owned()));
            }
        }
        let second = found.get(1).map(|second| (*second).clone());
        Ok((found[0].clone(), second))
    }

    fn fold(
        &mut self,
        range: Expr,
        (variable, second_variable): (String, Option<String>),
        [init, condition, step, result]: [Expr; 4],
    ) -> Expr {
        self.node(NodeKind::Comprehension(Box::new(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR.to_owned(),
            init,
            condition,
            step,
            result,
        })))
    }

    fn quantifier(
        &mut self,
        kind: &str,
        target: Expr,
        mut args: Vec<Expr>,
    ) -> Result<Expr, Problem> {
        let predicate = args.pop().unwrap_or_else(|| self.literal(Literal::Null));
        let variables = Self::variables(&args, "argument must be a simple name")?;
        let parts = match kind {
            "all" => {
                let init = self.literal(Literal::Bool(true));
                let accumulator = self.accumulator();
                // The loop ends at the first element that decides, unless an evaluation failed before.
                let condition = self.call("@not_strictly_false", vec![accumulator]);
                let accumulator = self.accumulator();
                let step = self.call("_&&_", vec![accumulator, predicate]);
                [init, condition, step, self.accumulator()]
            }
            "exists" => {
                let init = self.literal(Literal::Bool(false));
                let accumulator = self.accumulator();
                let not = self.call("!_", vec![accumulator]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let accumulator = self.accumulator();
                let step = self.call("_||_", vec![accumulator, predicate]);
                [init, condition, step, self.accumulator()]
            }
            // Exactly one element has to satisfy the predicate, so all of them are counted.
            _ => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let counted = self.call("_+_", vec![accumulator, one]);
                let step = self.unless_filtered(Some(predicate), counted);
                let (accumulator, one) = (self.accumulator(), self.literal(Literal::Int(1)));
                let result = self.call("_==_", vec![accumulator, one]);
                [init, condition, step, result]
            }
        };
        Ok(self.fold(target, variables, parts))
    }

    fn map(&mut self, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let value = args.pop().unwrap_or_else(|| self.literal(Literal::Null));
        let filter = (args.len() == 2).then(|| args.pop()).flatten();
        let variables = Self::variables(&args, "argument is not an identifier")?;
        let step = self.append(value);
        Ok(self.collect(target, variables, filter, step))
    }

    /// A loop whose value is a list.
    fn collect(
        &mut self,
        target: Expr,
        variables: (String, Option<String>),
        filter: Option<Expr>,
        step: Expr,
    ) -> Expr {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let step = self.unless_filtered(filter, step);
        let result = self.accumulator();
        self.fold(target, variables, [init, condition, step, result])
    }

    fn filter(&mut self, target: Expr, mut args: Vec<Expr>) -> Result<Expr, Problem> {
        let filter = args.pop();
        let variables = Self::variables(&args, "argument is not an identifier")?;
        let element = args.pop().unwrap_or_else(|| self.literal(Literal::Null));
        let step = self.append(element);
        Ok(self.collect(target, variables, filter, step))
    }

    fn transform(
        &mut self,
        kind: &str,
        target: Expr,
        mut args: Vec<Expr>,
    ) -> Result<Expr, Problem> {
        let value = args.pop().unwrap_or_else(|| self.literal(Literal::Null));
        let filter = (args.len() == 3).then(|| args.pop()).flatten();
        let variables = Self::variables(&args, "argument must be a simple name")?;
        if kind == "transformList" {
            let step = self.append(value);
            return Ok(self.collect(target, variables, filter, step));
        }
        let init = self.node(NodeKind::Map(Vec::new()));
        let condition = self.literal(Literal::Bool(true));
        let accumulator = self.accumulator();
        let step = if kind == "transformMap" {
            let key = self.ident(&variables.0);
            self.call("cel.@mapInsert", vec![accumulator, key, value])
        } else {
            self.call("cel.@mapInsert", vec![accumulator, value])
        };
        let step = self.unless_filtered(filter, step);
        let result = self.accumulator();
        Ok(self.fold(target, variables, [init, condition, step, result]))
    }

    /// Gives `init` a name in `result`.
    fn binding(&mut self, name: String, init: Expr, result: Expr) -> Expr {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        self.node(NodeKind::Comprehension(Box::new(Comprehension {
            range,
            variable: UNUSED.to_owned(),
            second_variable: None,
            accumulator: name,
            init,
            condition,
            step,
            result,
        })))
    }

    fn bind(&mut self, args: Vec<Expr>) -> Result<Expr, Problem> {
        let mut args = args.into_iter();
        let mut next = || args.next();
        let (Some(name), Some(init), Some(result)) = (next(), next(), next()) else {
            return Ok(self.literal(Literal::Null));
        };
        match name.kind {
            NodeKind::Ident(variable) => Ok(self.binding(variable, init, result)),
            _ => {
                let message = "cel.bind() variable names must be simple identifiers";
                Err((name.id, message.to_owned()))
            }
        }
    }

    fn optional_map(
        &mut self,
        flat: bool,
        target: Expr,
        mut args: Vec<Expr>,
    ) -> Result<Expr, Problem> {
        let value = args.pop().unwrap_or_else(|| self.literal(Literal::Null));
        let Some(name) = args.pop() else {
            return Ok(value);
        };
        let NodeKind::Ident(variable) = name.kind else {
            let function = if flat { "optFlatMap" } else { "optMap" };
            let message = format!("{function}() variable name must be a simple identifier");
            return Err((name.id, message));
        };
        let copy = self.builder.copy(&target);
        let has_value = self.member("hasValue", target, Vec::new());
        let init = self.member("value", copy, Vec::new());
        let mut mapped = self.binding(variable, init, value);
        if !flat {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(self.call("_?_:_", vec![has_value, mapped, none]))
    }

    fn sort_by(&mut self, target: Expr, args: Vec<Expr>) -> Result<Expr, Problem> {
        match target.kind {
            NodeKind::List(_)
            | NodeKind::Select { .. }
            | NodeKind::Ident(_)
            | NodeKind::Comprehension(_)
            | NodeKind::Call(_) => {}
            _ => {
                let message = "sortBy can only be applied to a list, identifier, comprehension, \
                               call or select expression";
                return Err((target.id, message.to_owned()));
            }
        }
        let sorted = self.ident(SORTED);
        let keys = self.map(sorted, args)?;
        let sorted = self.ident(SORTED);
        let result = self.member("@sortByAssociatedKeys", sorted, vec![keys]);
        Ok(self.binding(SORTED.to_owned(), target, result))
    }
}
