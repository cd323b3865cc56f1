//! Building a tree: the numbers of its nodes, their positions, and what is wrong with them.

use crate::ast::{
    Element, Expr, ExprId, FunctionCall, MapEntry, MessageField, NodeKind, TextPosition,
};
use crate::error::Issue;

/// Builds a tree: numbers nodes and keeps their positions.
#[derive(Default)]
pub(crate) struct TreeBuilder {
    pub(crate) positions: Vec<TextPosition>,
    pub(crate) issues: Vec<Issue>,
}

impl TreeBuilder {
    /// A node at a position.
    pub(crate) fn node(&mut self, position: TextPosition, kind: NodeKind) -> Expr {
        let id = ExprId::try_from(self.positions.len()).unwrap_or(ExprId::MAX);
        self.positions.push(position);
        Expr { id, kind }
    }

    /// The position of a node.
    pub(crate) fn position(&self, id: ExprId) -> TextPosition {
        self.positions[id as usize]
    }

    /// Reports that something is wrong with a node.
    pub(crate) fn report(&mut self, id: ExprId, message: impl Into<String>) {
        self.issues.push(Issue {
            position: Some(self.position(id)),
            message: message.into(),
        });
    }

    /// The same tree with other numbers.
    pub(crate) fn copy(&mut self, expr: &Expr) -> Expr {
        let position = self.position(expr.id);
        let kind = match &expr.kind {
            NodeKind::Literal(_) | NodeKind::Ident(_) => expr.kind.clone(),
            NodeKind::Select {
                operand,
                field,
                test_only,
            } => NodeKind::Select {
                operand: Box::new(self.copy(operand)),
                field: field.clone(),
                test_only: *test_only,
            },
            NodeKind::Call(call) => NodeKind::Call(FunctionCall {
                function: call.function.clone(),
                target: call
                    .target
                    .as_ref()
                    .map(|target| Box::new(self.copy(target))),
                args: call.args.iter().map(|arg| self.copy(arg)).collect(),
            }),
            NodeKind::List(elements) => NodeKind::List(
                elements
                    .iter()
                    .map(|element| Element {
                        value: self.copy(&element.value),
                        optional: element.optional,
                    })
                    .collect(),
            ),
            NodeKind::Map(entries) => NodeKind::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            NodeKind::Struct { type_name, fields } => NodeKind::Struct {
                type_name: type_name.clone(),
                fields: fields
                    .iter()
                    .map(|field| {
                        let value = self.copy(&field.value);
                        MessageField {
                            id: value.id,
                            name: field.name.clone(),
                            value,
                            optional: field.optional,
                        }
                    })
                    .collect(),
            },
            NodeKind::Comprehension(fold) => {
                let mut fold = fold.clone();
                for part in [
                    &mut fold.range,
                    &mut fold.init,
                    &mut fold.condition,
                    &mut fold.step,
                    &mut fold.result,
                ] {
                    *part = self.copy(part);
                }
                NodeKind::Comprehension(fold)
            }
        };
        self.node(position, kind)
    }
}
