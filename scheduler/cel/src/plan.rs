//! The conversion of a checked tree to an evaluation plan: names become slots, constant parts become values.

use crate::ast::{Comprehension, Element, Expr, FunctionCall, Literal, MapEntry, NodeKind};
use crate::check::{Checked, Overloads, Reference};
use crate::declarations::Function;
use crate::error::CompileError;
use crate::eval::{EvalBudget, Evaluator};
use crate::functions::is_conversion;
use crate::functions::regex::Pattern;
use crate::plan_node::{Attribute, Fold, Invocation, PlanNode, Qualifier, Root, Slot};
use crate::value::CelValue;
use std::sync::Arc;

/// The nodes of a plan, and the number of slots.
pub(crate) struct Plan {
    pub(crate) node: PlanNode,
    pub(crate) slots: usize,
    /// The variables of the environment that the expression contains; of a program.
    pub(crate) variables: Vec<String>,
}

/// Plans the evaluation of a tree.
///
/// # Errors
/// A constant part cannot be evaluated.
pub(crate) fn plan(checked: &Checked) -> Result<Plan, CompileError> {
    let mut planner = Planner {
        checked,
        scope: Vec::new(),
        slots: 0,
        variables: Vec::new(),
        taken: None,
    };
    let node = planner.plan(&checked.ast.root)?;
    Ok(Plan {
        node,
        slots: planner.slots,
        variables: planner.variables,
    })
}

struct Planner<'c> {
    checked: &'c Checked,
    scope: Vec<(&'c str, Slot)>,
    slots: usize,
    variables: Vec<String>,
    /// The accumulator of the step that is planned.
    taken: Option<Slot>,
}

type Planned = Result<PlanNode, CompileError>;

fn constant(value: crate::value::EvalResult) -> Planned {
    value
        .map(PlanNode::Const)
        .map_err(|error| CompileError::Constant(error.to_string()))
}

/// Evaluates the parts that do not depend on the device.
fn evaluate(node: &PlanNode) -> Planned {
    let mut budget = EvalBudget::for_constants();
    constant(Evaluator::new(&CelValue::Null, 0, &mut budget).value(node))
}

impl<'c> Planner<'c> {
    fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    fn plan(&mut self, expr: &'c Expr) -> Planned {
        match &expr.kind {
            NodeKind::Literal(literal) => Ok(PlanNode::Const(match literal {
                Literal::Null => CelValue::Null,
                Literal::Bool(value) => CelValue::Bool(*value),
                Literal::Int(value) => CelValue::Int(*value),
                Literal::Uint(value) => CelValue::Uint(*value),
                Literal::Double(value) => CelValue::Double(*value),
                Literal::String(text) => CelValue::text(text),
                Literal::Bytes(bytes) => CelValue::Bytes(bytes.as_slice().into()),
            })),
            NodeKind::Ident(_) => self.named(expr),
            NodeKind::Select {
                operand,
                field,
                test_only,
            } => {
                if self.checked.reference(expr.id).is_some() {
                    return self.named(expr);
                }
                let operand = self.plan(operand)?;
                let qualifier = Qualifier {
                    key: PlanNode::Const(CelValue::text(field)),
                    optional: false,
                };
                Ok(qualified(operand, qualifier, *test_only))
            }
            NodeKind::Call(call) => self.call(expr, call),
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(entries),
            NodeKind::Struct { type_name, fields } => {
                let name = type_name.strip_prefix('.').unwrap_or(type_name);
                let mut nodes = Vec::with_capacity(fields.len());
                for field in fields {
                    let value = self.plan(&field.value)?;
                    nodes.push((field.name.as_str().into(), value, field.optional));
                }
                Ok(PlanNode::Message(name.into(), nodes))
            }
            NodeKind::Comprehension(fold) if fold.is_binding() => {
                let slot = self.slot();
                let init = self.plan(&fold.init)?;
                self.scope.push((&fold.accumulator, slot));
                let result = self.plan(&fold.result);
                self.scope.pop();
                Ok(PlanNode::Bind {
                    slot,
                    parts: Arc::new([init, result?]),
                })
            }
            NodeKind::Comprehension(fold) => self.fold(fold),
        }
    }

    /// A variable or a type.
    fn named(&mut self, expr: &Expr) -> Planned {
        let mut qualifiers = Vec::new();
        let checked = self.checked;
        let root = match checked.reference(expr.id) {
            // Upstream knows these names as types only while it checks an expression.
            Some(Reference::Type(name @ ("duration" | "timestamp"))) => {
                let message = format!("reference to undefined type: {name}");
                return Err(CompileError::Constant(message));
            }
            Some(Reference::Type(name)) => return Ok(PlanNode::Const(CelValue::Type(name))),
            Some(Reference::Variable(name)) => {
                let local = self.scope.iter().rev().find(|(known, _)| known == name);
                match local {
                    Some((_, slot)) if self.taken == Some(*slot) => Root::Take(*slot),
                    Some((_, slot)) => Root::Slot(*slot),
                    None if checked.environment.variables.is_empty() => Root::Device,
                    // The variables of a program are the entries of one map.
                    None => {
                        self.variables.push(name.clone());
                        qualifiers.push(Qualifier {
                            key: PlanNode::Const(CelValue::text(name)),
                            optional: false,
                        });
                        Root::Device
                    }
                }
            }
            _ => Root::Value(PlanNode::Const(CelValue::Null)),
        };
        Ok(PlanNode::Attribute(Box::new(Attribute {
            root,
            qualifiers,
            test_only: false,
        })))
    }

    fn list(&mut self, elements: &'c [Element]) -> Planned {
        let mut nodes = Vec::with_capacity(elements.len());
        for element in elements {
            nodes.push((self.plan(&element.value)?, element.optional));
        }
        let is_constant = nodes
            .iter()
            .all(|(node, _)| matches!(node, PlanNode::Const(_)));
        let list = PlanNode::List(nodes);
        if is_constant {
            evaluate(&list)
        } else {
            Ok(list)
        }
    }

    fn map(&mut self, entries: &'c [MapEntry]) -> Planned {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.plan(&entry.key)?;
            nodes.push((key, self.plan(&entry.value)?, entry.optional));
        }
        let is_constant = nodes.iter().all(|(key, value, _)| {
            matches!((key, value), (PlanNode::Const(_), PlanNode::Const(_)))
        });
        let map = PlanNode::Map(nodes);
        if is_constant { evaluate(&map) } else { Ok(map) }
    }

    fn call(&mut self, expr: &'c Expr, call: &'c FunctionCall) -> Planned {
        let Some(Reference::Call {
            function,
            overloads,
            is_namespaced,
        }) = self.checked.reference(expr.id)
        else {
            return Ok(PlanNode::Const(CelValue::Null));
        };
        let target = call.target.as_deref().filter(|_| !is_namespaced);
        let mut args = Vec::with_capacity(call.args.len() + 1);
        for arg in target.into_iter().chain(&call.args) {
            args.push(self.plan(arg)?);
        }
        let name = function.name;
        let args = match <[PlanNode; 2]>::try_from(args) {
            Err(args) => args,
            Ok([a, b]) => match name {
                "_&&_" => return Ok(PlanNode::And(Box::new([a, b]))),
                "_||_" => return Ok(PlanNode::Or(Box::new([a, b]))),
                "_==_" | "_!=_" => {
                    return Ok(PlanNode::Equal {
                        operands: Box::new([a, b]),
                        negated: name == "_!=_",
                    });
                }
                "or" | "orValue" => {
                    return Ok(PlanNode::Or2 {
                        operands: Box::new([a, b]),
                        unwrap: name == "orValue",
                    });
                }
                "_[_]" | "_[?_]" | "_?._" => {
                    let qualifier = Qualifier {
                        key: b,
                        optional: name != "_[_]",
                    };
                    return Ok(qualified(a, qualifier, false));
                }
                "@in" => match membership(overloads, a, b) {
                    Ok(node) => return Ok(node),
                    Err([a, b]) => vec![a, b],
                },
                "_+_" => match appended(a, b) {
                    Ok(node) => return Ok(node),
                    Err([a, b]) => vec![a, b],
                },
                _ => vec![a, b],
            },
        };
        let args = match <[PlanNode; 3]>::try_from(args) {
            Ok(args) if name == "_?_:_" => {
                return Ok(PlanNode::Attribute(Box::new(Attribute {
                    root: Root::Conditional(Box::new(args)),
                    qualifiers: Vec::new(),
                    test_only: false,
                })));
            }
            Ok(args) => args.into(),
            Err(args) => args,
        };
        self.invocation(function, overloads, args)
    }

    fn invocation(
        &mut self,
        function: &'static Function,
        overloads: &Overloads,
        mut args: Vec<PlanNode>,
    ) -> Planned {
        let name = function.name;
        if name == "@not_strictly_false"
            && let Some(arg) = args.pop()
        {
            return Ok(PlanNode::NotStrictlyFalse(Box::new(arg)));
        }
        let mut pattern = None;
        if let ("matches" | "find" | "findAll", Some(PlanNode::Const(CelValue::String(text)))) =
            (name, args.get(1))
        // A constant pattern is compiled once, and its faults are reported before evaluation.
        {
            let compiled = Pattern::new(text);
            let compiled = compiled.map_err(|error| CompileError::Constant(error.to_string()));
            pattern = Some(compiled?);
        }
        let is_constant = is_conversion(name) && matches!(&args[..], [PlanNode::Const(_)]);
        let taken = match args.first() {
            Some(PlanNode::Attribute(attribute)) if name == "cel.@mapInsert" => {
                taken_slot(attribute)
            }
            _ => None,
        };
        // The map is extended in place instead of copied for each entry.
        if taken.is_some() {
            args.remove(0);
        }
        let call = Box::new(Invocation {
            function,
            overloads: overloads.clone(),
            args,
            pattern,
        });
        if let Some(slot) = taken {
            return Ok(PlanNode::Insert(slot, call));
        }
        let call = PlanNode::Call(call);
        if is_constant {
            evaluate(&call)
        } else {
            Ok(call)
        }
    }

    fn fold(&mut self, fold: &'c Comprehension) -> Planned {
        let init = self.plan(&fold.init)?;
        let range = self.plan(&fold.range)?;
        let accumulator = self.slot();
        let variable = self.slot();
        let second_variable = fold.second_variable.as_ref().map(|_| self.slot());
        let outer = self.scope.len();
        self.scope.push((&fold.accumulator, accumulator));
        let inner = self.scope.len();
        self.scope.push((&fold.variable, variable));
        if let (Some(name), Some(slot)) = (&fold.second_variable, second_variable) {
            self.scope.push((name, slot));
        }
        let taken = self.taken.take();
        let condition = self.plan(&fold.condition)?;
        // A step refers to its accumulator once.
        self.taken = Some(accumulator);
        let step = self.plan(&fold.step)?;
        self.taken = None;
        self.scope.truncate(inner);
        let result = self.plan(&fold.result)?;
        self.taken = taken;
        self.scope.truncate(outer);
        Ok(PlanNode::Fold(Box::new(Fold {
            range,
            variable,
            second_variable,
            accumulator,
            init,
            condition,
            step,
            result,
        })))
    }
}

/// A selection from a value.
fn qualified(operand: PlanNode, qualifier: Qualifier, test_only: bool) -> PlanNode {
    let mut attribute = match operand {
        PlanNode::Attribute(attribute) if !attribute.test_only => attribute,
        other => Box::new(Attribute {
            root: Root::Value(other),
            qualifiers: Vec::new(),
            test_only: false,
        }),
    };
    attribute.qualifiers.push(qualifier);
    attribute.test_only = test_only;
    PlanNode::Attribute(attribute)
}

/// `value in [constants]`, if the list has only values that are quick to compare.
fn membership(
    overloads: &Overloads,
    value: PlanNode,
    list: PlanNode,
) -> Result<PlanNode, [PlanNode; 2]> {
    let is_list = matches!(&overloads[..], [overload] if overload.id == "in_list");
    match list {
        PlanNode::Const(CelValue::List(elements)) if is_list => {
            let is_simple = |element: &CelValue| {
                matches!(
                    element,
                    CelValue::Bool(_)
                        | CelValue::Int(_)
                        | CelValue::Uint(_)
                        | CelValue::Double(_)
                        | CelValue::String(_)
                )
            };
            if elements.is_empty() {
                Ok(PlanNode::Const(CelValue::Bool(false)))
            } else if elements.iter().all(is_simple) {
                Ok(PlanNode::IsOneOf(Box::new(value), elements))
            } else {
                Err([value, PlanNode::Const(CelValue::List(elements))])
            }
        }
        list => Err([value, list]),
    }
}

/// The slot that an attribute takes the value from, if it selects nothing.
fn taken_slot(attribute: &Attribute) -> Option<Slot> {
    match attribute.root {
        Root::Take(slot) if attribute.qualifiers.is_empty() => Some(slot),
        _ => None,
    }
}

/// `accumulator + list`
fn appended(accumulator: PlanNode, elements: PlanNode) -> Result<PlanNode, [PlanNode; 2]> {
    let slot = match (&accumulator, &elements) {
        (
            PlanNode::Attribute(attribute),
            PlanNode::List(_) | PlanNode::Const(CelValue::List(_)),
        ) => taken_slot(attribute),
        _ => None,
    };
    match slot {
        Some(slot) => Ok(PlanNode::Append(slot, Box::new(elements))),
        None => Err([accumulator, elements]),
    }
}
