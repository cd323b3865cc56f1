//! The nodes of a plan: what is evaluated.

use crate::check::Overloads;
use crate::declarations::Function;
use crate::functions::regex::Pattern;
use crate::value::CelValue;
use std::sync::Arc;

/// The slot of a variable while an expression is evaluated.
pub(crate) type Slot = usize;

/// The nodes of a plan.
#[derive(Debug)]
pub(crate) enum PlanNode {
    Const(CelValue),
    Attribute(Box<Attribute>),
    And(Box<[PlanNode; 2]>),
    Or(Box<[PlanNode; 2]>),
    /// `==`, or `!=` if negated.
    Equal {
        operands: Box<[PlanNode; 2]>,
        negated: bool,
    },
    /// True unless its operand is false.
    NotStrictlyFalse(Box<PlanNode>),
    /// Whether a value is one of constants.
    IsOneOf(Box<PlanNode>, Arc<Vec<CelValue>>),
    /// The value of an optional, or else the other operand. `unwrap` distinguishes `orValue` from `or`.
    Or2 {
        operands: Box<[PlanNode; 2]>,
        unwrap: bool,
    },
    Call(Box<Invocation>),
    List(Vec<(PlanNode, bool)>),
    Map(Vec<(PlanNode, PlanNode, bool)>),
    Message(Arc<str>, Vec<(Arc<str>, PlanNode, bool)>),
    Fold(Box<Fold>),
    /// Gives a value a name. The value is evaluated when it is used first.
    Bind {
        slot: Slot,
        parts: Arc<[PlanNode; 2]>,
    },
    /// Adds elements to the list in a slot, which nothing else refers to.
    Append(Slot, Box<PlanNode>),
    /// Adds entries to the map in a slot, which nothing else refers to: a key and a value, or the entries of a map.
    Insert(Slot, Box<Invocation>),
}

/// A value and what is selected from it.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) root: Root,
    pub(crate) qualifiers: Vec<Qualifier>,
    /// Whether only the presence of the last field is tested.
    pub(crate) test_only: bool,
}

/// The start of an attribute.
#[derive(Debug)]
pub(crate) enum Root {
    Device,
    Slot(Slot),
    /// The value of a slot that is not used again before it is replaced.
    Take(Slot),
    Conditional(Box<[PlanNode; 3]>),
    Value(PlanNode),
}

/// A selection.
#[derive(Debug)]
pub(crate) struct Qualifier {
    pub(crate) key: PlanNode,
    /// Whether what is missing makes an empty optional instead of an error.
    pub(crate) optional: bool,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) function: &'static Function,
    pub(crate) overloads: Overloads,
    pub(crate) args: Vec<PlanNode>,
    /// The regular expression, if it is constant.
    pub(crate) pattern: Option<Pattern>,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: PlanNode,
    pub(crate) variable: Slot,
    pub(crate) second_variable: Option<Slot>,
    pub(crate) accumulator: Slot,
    pub(crate) init: PlanNode,
    pub(crate) condition: PlanNode,
    pub(crate) step: PlanNode,
    pub(crate) result: PlanNode,
}
