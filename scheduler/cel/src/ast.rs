//! The syntax tree of an expression, after its macros were expanded.

/// Identifies a node of one tree; an index into tables of attributes of nodes.
pub(crate) type ExprId = u32;

/// A place in the text of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPosition {
    /// The line, from 1.
    pub line: u32,
    /// The character of the line, from 1.
    pub column: u32,
}

/// A whole tree.
#[derive(Debug)]
pub(crate) struct Ast {
    /// The expression.
    pub(crate) root: Expr,
    /// The position of each node in the text.
    pub(crate) positions: Vec<TextPosition>,
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) id: ExprId,
    pub(crate) kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: String,
        test_only: bool,
    },
    Call(FunctionCall),
    List(Vec<Element>),
    Map(Vec<MapEntry>),
    /// `type_name{field: value}`.
    Struct {
        type_name: String,
        fields: Vec<MessageField>,
    },
    Comprehension(Box<Comprehension>),
}

/// A scalar in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// `function(args)` or `target.function(args)`. Operators are functions: `_+_`, `!_`, `_[_]` …
#[derive(Debug, Clone)]
pub(crate) struct FunctionCall {
    pub(crate) function: String,
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) args: Vec<Expr>,
}

/// An element of a list.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    /// Whether the value is an optional, omitted when it is empty.
    pub(crate) optional: bool,
}

/// An entry of a map.
#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    /// Whether the value is an optional, omitted when it is empty.
    pub(crate) optional: bool,
}

/// A field of a message.
#[derive(Debug, Clone)]
pub(crate) struct MessageField {
    /// The node of the field, for its position.
    pub(crate) id: ExprId,
    pub(crate) name: String,
    pub(crate) value: Expr,
    /// Whether the value is an optional, omitted when it is empty.
    pub(crate) optional: bool,
}

/// A loop over a list or map: the accumulator starts as `init`; while `condition` holds, `step` gives its next value;
/// the value of the loop is `result`.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    /// The element or key; the index or key when there are two variables.
    pub(crate) variable: String,
    /// The element or value.
    pub(crate) second_variable: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

impl Comprehension {
    /// Returns whether this is `cel.bind`: no loop, but a name for the value of `init`.
    pub(crate) fn is_binding(&self) -> bool {
        matches!(&self.range.kind, NodeKind::List(elements) if elements.is_empty())
            && matches!(self.condition.kind, NodeKind::Literal(Literal::Bool(false)))
            && self.accumulator != ACCUMULATOR
    }
}

/// The accumulator of macros. Expressions cannot name it.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Expr {
    /// The name that identifiers and selected fields form: `a.b.c`.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Ident(name) => Some(name.clone()),
            NodeKind::Select {
                operand,
                field,
                test_only: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// The text, if this is a literal text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Literal(Literal::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Calls `visit` with each child.
    pub(crate) fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match &self.kind {
            NodeKind::Literal(_) | NodeKind::Ident(_) => {}
            NodeKind::Select { operand, .. } => visit(operand),
            NodeKind::Call(call) => {
                if let Some(target) = &call.target {
                    visit(target);
                }
                call.args.iter().for_each(visit);
            }
            NodeKind::List(elements) => elements.iter().for_each(|element| visit(&element.value)),
            NodeKind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            NodeKind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            NodeKind::Comprehension(fold) => {
                // In the order of evaluation.
                for part in [
                    &fold.range,
                    &fold.init,
                    &fold.condition,
                    &fold.step,
                    &fold.result,
                ] {
                    visit(part);
                }
            }
        }
    }
}
