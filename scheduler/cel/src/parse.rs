//! Parsing of expressions.
//!
//! The `cel` crate parses the text: its grammar, its recovery from errors and its messages are equal to the CEL
//! implementation of Kubernetes. Its result is converted to our own tree, with expanded macros.

use crate::ast::{
    Ast, Element, Expr, FunctionCall, Literal, MapEntry, MessageField, NodeKind, TextPosition,
};
use crate::error::{CompileError, Issue, Issues};
use crate::limits::{DEPTH_MAX, EXPANDED_DEPTH_MAX, EXPRESSION_LENGTH_MAX, NODES_MAX};
use crate::macros;
use crate::syntax;
use crate::tree::TreeBuilder;
use cel::common::ast as parsed;

/// Reads an expression.
///
/// # Errors
/// The syntax is wrong, or the expression is too long or too deeply nested.
pub(crate) fn parse(text: &str) -> Result<Ast, CompileError> {
    if text.len() > EXPRESSION_LENGTH_MAX {
        return Err(CompileError::TooLong(text.len()));
    }
    let parser = cel::Env::default()
        .parser()
        .enable_optional_syntax(true)
        .max_recursion_depth(DEPTH_MAX - 1);
    let (root, info) = parser
        .parse_with_source_info(text)
        .map_err(|errors| CompileError::Invalid(syntax::issues(text, &errors.errors)))?;
    let mut converter = Converter::new(text, info);
    let converted = converter.convert(root, 0);
    let builder = converter.tree;
    match converted {
        Ok(root) if builder.issues.is_empty() => Ok(Ast {
            root,
            positions: builder.positions,
        }),
        Ok(_) => Err(CompileError::Invalid(Issues::new(text, builder.issues))),
        Err(TooLarge(message)) => {
            let issue = Issue {
                position: None,
                message: message.to_owned(),
            };
            Err(CompileError::Invalid(Issues::new(text, vec![issue])))
        }
    }
}

/// The reason why a tree cannot be used.
struct TooLarge(&'static str);

const TOO_DEEP: TooLarge = TooLarge("max recursion depth exceeded");
const TOO_MANY_NODES: TooLarge =
    TooLarge("the expression is too large after its macros were expanded");

/// Converts the tree of the parser.
struct Converter {
    text: String,
    info: parsed::SourceInfo,
    /// The position of the start of each line, in bytes.
    lines: Vec<u32>,
    tree: TreeBuilder,
}

impl Converter {
    fn new(text: &str, info: parsed::SourceInfo) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts);
        Self {
            text: text.to_owned(),
            info,
            lines: lines.filter_map(|at| u32::try_from(at).ok()).collect(),
            tree: TreeBuilder::default(),
        }
    }

    /// The position of a node of the parser. A negative number starts with its sign.
    fn position_of(&self, id: u64, is_negative: bool) -> TextPosition {
        let offset = self.info.offset_for(id).map_or(0, |(start, _)| start);
        let sign = self
            .text
            .get(..offset as usize)
            .filter(|_| is_negative)
            .and_then(|before| before.trim_end().strip_suffix('-'));
        let offset = sign.map_or(offset, |before| before.len() as u32);
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines[line - 1];
        let before = self.text.get(start as usize..offset as usize);
        let column = before.map_or(0, |before| before.chars().count()) + 1;
        TextPosition {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    fn convert(&mut self, expr: parsed::IdedExpr, depth: usize) -> Result<Expr, TooLarge> {
        if depth > usize::from(DEPTH_MAX) {
            return Err(TOO_DEEP);
        }
        if self.tree.positions.len() > NODES_MAX {
            return Err(TOO_MANY_NODES);
        }
        let is_negative = match &expr.expr {
            parsed::Expr::Literal(parsed::LiteralValue::Int(value)) => *value.inner() < 0,
            parsed::Expr::Literal(parsed::LiteralValue::Double(value)) => {
                value.inner().is_sign_negative()
            }
            _ => false,
        };
        let position = self.position_of(expr.id, is_negative);
        let depth = depth + 1;
        let kind = match expr.expr {
            // The parser yields these only together with errors.
            parsed::Expr::Unspecified | parsed::Expr::Comprehension(_) => {
                NodeKind::Literal(Literal::Null)
            }
            parsed::Expr::Ident(name) => NodeKind::Ident(name),
            parsed::Expr::Literal(value) => NodeKind::Literal(literal(value)),
            parsed::Expr::Select(select) => NodeKind::Select {
                operand: Box::new(self.convert(*select.operand, depth)?),
                field: select.field,
                test_only: select.test,
            },
            parsed::Expr::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.into_iter().enumerate() {
                    elements.push(Element {
                        value: self.convert(element, depth)?,
                        optional: list.optional_indices.contains(&index),
                    });
                }
                NodeKind::List(elements)
            }
            parsed::Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in map.entries {
                    if let parsed::EntryExpr::MapEntry(entry) = entry.expr {
                        entries.push(MapEntry {
                            key: self.convert(entry.key, depth)?,
                            value: self.convert(entry.value, depth)?,
                            optional: entry.optional,
                        });
                    }
                }
                NodeKind::Map(entries)
            }
            parsed::Expr::Struct(message) => {
                let mut fields = Vec::with_capacity(message.entries.len());
                for entry in message.entries {
                    if let parsed::EntryExpr::StructField(field) = entry.expr {
                        let value = self.convert(field.value, depth)?;
                        fields.push(MessageField {
                            id: value.id,
                            name: field.field,
                            value,
                            optional: field.optional,
                        });
                    }
                }
                NodeKind::Struct {
                    type_name: message.type_name,
                    fields,
                }
            }
            parsed::Expr::Call(call) => {
                let target = match call.target {
                    Some(target) => Some(Box::new(self.convert(*target, depth)?)),
                    None => None,
                };
                let mut args = Vec::with_capacity(call.args.len());
                for arg in call.args {
                    args.push(self.convert(arg, depth)?);
                }
                let call = FunctionCall {
                    function: call.func_name,
                    target,
                    args,
                };
                return Ok(macros::expand(&mut self.tree, position, call));
            }
        };
        Ok(self.tree.node(position, kind))
    }
}

fn literal(value: parsed::LiteralValue) -> Literal {
    use parsed::LiteralValue as Value;
    match value {
        Value::Null => Literal::Null,
        Value::Boolean(value) => Literal::Bool(*value.inner()),
        Value::Int(value) => Literal::Int(value.into_inner()),
        Value::UInt(value) => Literal::Uint(value.into_inner()),
        Value::Double(value) => Literal::Double(value.into_inner()),
        Value::String(value) => Literal::String(value.into_inner()),
        Value::Bytes(value) => Literal::Bytes(value.into_inner()),
    }
}

/// Returns whether a tree is small and flat enough to work with.
pub(crate) fn check_size(ast: &Ast) -> Result<(), &'static str> {
    fn depth(expr: &Expr, so_far: usize) -> bool {
        if so_far > EXPANDED_DEPTH_MAX {
            return false;
        }
        let mut fits = true;
        expr.children(&mut |child| fits = fits && depth(child, so_far + 1));
        fits
    }
    if ast.positions.len() > NODES_MAX {
        return Err(TOO_MANY_NODES.0);
    }
    if depth(&ast.root, 0) {
        Ok(())
    } else {
        Err(TOO_DEEP.0)
    }
}
