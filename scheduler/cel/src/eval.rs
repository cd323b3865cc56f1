//! Evaluation, within a budget.

mod attribute;

use crate::call_cost::{CallCost, LIST, MAP, MESSAGE, SELECT};
use crate::error::EvaluationError;
use crate::functions::{FunctionContext, insert_entry};
use crate::plan_node::{Fold, Invocation, PlanNode, Root, Slot};
use crate::types::Type;
use crate::value::{CelValue, EvalResult, Map, MapKey, Steps, contains, equal};
use smallvec::SmallVec;
use std::sync::Arc;

/// The maximum number of steps of comparisons, conversions and searches that costs do not cover. They take about a
/// twentieth of a second.
const STEPS_MAX: u64 = 5_000_000;

/// The number of steps that take as long as a unit of cost.
const STEPS_PER_COST: u64 = 10;

/// The number of bytes of a formed text that cost one unit.
const BYTES_PER_COST: usize = 16;

/// The effort of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// The cost as Kubernetes counts it.
    pub cost: u64,
    /// The time in units of cost: the cost, and the steps and the sizes of formed values that it does not cover.
    pub work: u64,
}

/// The remaining budget of an evaluation.
#[derive(Debug)]
pub(crate) struct EvalBudget {
    cost: u64,
    cost_max: u64,
    steps: Steps,
    /// The size of the values that functions formed, in units of cost. Costs do not cover it.
    formed: u64,
}

impl EvalBudget {
    pub(crate) const fn new(cost_max: u64) -> Self {
        Self {
            cost: 0,
            cost_max,
            steps: Steps::new(STEPS_MAX),
            formed: 0,
        }
    }

    /// The budget of the constant parts of an expression.
    pub(crate) const fn for_constants() -> Self {
        Self::new(crate::limits::COST_MAX)
    }

    /// The cost so far.
    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// The cost so far, with the steps that costs do not cover.
    pub(crate) const fn spent(&self) -> Spent {
        let steps = STEPS_MAX.saturating_sub(self.steps.left());
        let work = self.cost.saturating_add(steps / STEPS_PER_COST);
        Spent {
            cost: self.cost,
            work: work.saturating_add(self.formed),
        }
    }

    fn note_formed(&mut self, value: &CelValue) {
        let size = match value {
            CelValue::List(values) => values.len(),
            CelValue::String(text) => text.len() / BYTES_PER_COST,
            _ => 0,
        };
        self.formed = self
            .formed
            .saturating_add(u64::try_from(size).unwrap_or(u64::MAX));
    }

    fn charge(&mut self, cost: u64) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.cost_max {
            return Err(EvaluationError::TooExpensive);
        }
        Ok(())
    }
}

/// The value of a variable.
#[derive(Debug, Clone)]
enum Variable {
    /// Not set, or taken.
    Empty,
    /// The value is evaluated at its first use: the first of these nodes.
    Pending(Arc<[PlanNode; 2]>),
    Known(EvalResult),
}

/// Evaluates the nodes of one expression for one device.
pub(crate) struct Evaluator<'e> {
    device: &'e CelValue,
    variables: Vec<Variable>,
    budget: &'e mut EvalBudget,
}

type Result<T> = std::result::Result<T, EvaluationError>;

impl<'e> Evaluator<'e> {
    pub(crate) fn new(device: &'e CelValue, slots: usize, budget: &'e mut EvalBudget) -> Self {
        Self {
            device,
            variables: vec![Variable::Empty; slots],
            budget,
        }
    }

    pub(crate) fn value(&mut self, node: &PlanNode) -> EvalResult {
        match node {
            PlanNode::Const(value) => Ok(value.clone()),
            PlanNode::Attribute(attribute) => {
                let value = self.attribute(attribute);
                if let Err(error) = &value
                    && !error.is_absorbed()
                {
                    return value;
                }
                if !attribute.test_only && !matches!(attribute.root, Root::Conditional(_)) {
                    self.budget.charge(SELECT)?;
                }
                value
            }
            PlanNode::And(operands) => self.logical(operands, false),
            PlanNode::Or(operands) => self.logical(operands, true),
            PlanNode::Equal { operands, negated } => {
                let cost = if *negated {
                    CallCost::Compare
                } else {
                    CallCost::Equal
                };
                let values = match (self.value(&operands[0]), self.value(&operands[1])) {
                    (Ok(a), Ok(b)) => [a, b],
                    (a, b) => return Err(self.failed_call(cost, [a, b])),
                };
                // Values that cannot be compared are unequal to `!=`, and an error to `==`.
                let result = match equal(&values[0], &values[1], &mut self.budget.steps) {
                    Err(error) if *negated && error.is_absorbed() => true,
                    equal => equal? != *negated,
                };
                let result = CelValue::Bool(result);
                self.budget.charge(cost.actual(&values, &result))?;
                Ok(result)
            }
            PlanNode::NotStrictlyFalse(operand) => {
                let value = match self.value(operand) {
                    Ok(CelValue::Bool(value)) => value,
                    Err(error) if !error.is_absorbed() => return Err(error),
                    _ => true,
                };
                self.budget.charge(1)?;
                Ok(CelValue::Bool(value))
            }
            PlanNode::IsOneOf(value, constants) => {
                let value = self.value(value)?;
                contains(constants, &value, &mut self.budget.steps).map(CelValue::Bool)
            }
            PlanNode::Or2 { operands, unwrap } => match self.value(&operands[0])? {
                CelValue::Optional(None) => self.value(&operands[1]),
                CelValue::Optional(Some(value)) if *unwrap => Ok(CelValue::clone(&value)),
                other => Ok(other),
            },
            PlanNode::Call(call) => {
                let mut args = SmallVec::new();
                self.args(call, &mut args)?;
                self.call(call, &args)
            }
            PlanNode::List(elements) => self.list(elements).map(CelValue::list),
            PlanNode::Map(entries) => {
                let map = self.map(entries);
                self.constructed(map, MAP)
            }
            PlanNode::Message(name, fields) => {
                let message = self.message(name, fields);
                self.constructed(message, MESSAGE)
            }
            PlanNode::Fold(fold) => self.fold(fold),
            PlanNode::Bind { slot, parts } => {
                self.variables[*slot] = Variable::Pending(parts.clone());
                let result = self.value(&parts[1]);
                self.variables[*slot] = Variable::Empty;
                result
            }
            PlanNode::Append(slot, elements) => {
                let list = self.taken(*slot)?;
                self.budget.charge(SELECT)?;
                let added = match &**elements {
                    PlanNode::List(elements) => self.list(elements)?,
                    other => match self.value(other)? {
                        CelValue::List(added) => added.to_vec(),
                        _ => return Err(EvaluationError::no_such_overload()),
                    },
                };
                self.budget.charge(1)?;
                let CelValue::List(mut list) = list else {
                    return Err(EvaluationError::no_such_overload());
                };
                Arc::make_mut(&mut list).extend(added);
                Ok(CelValue::List(list))
            }
            PlanNode::Insert(slot, call) => self.insert(*slot, call),
        }
    }

    /// `&&`, or `||` if `decides` is true: an operand that decides makes errors of the other one irrelevant.
    fn logical(&mut self, operands: &[PlanNode; 2], decides: bool) -> EvalResult {
        let mut first_error = None;
        for operand in operands {
            let error = match self.value(operand) {
                Ok(CelValue::Bool(value)) if value == decides => {
                    return Ok(CelValue::Bool(decides));
                }
                Ok(CelValue::Bool(_)) => continue,
                Ok(_) => EvaluationError::no_such_overload(),
                Err(error) if error.is_absorbed() => error,
                Err(error) => return Err(error),
            };
            first_error = first_error.or(Some(error));
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(CelValue::Bool(!decides)),
        }
    }

    /// The value of a variable.
    fn variable(&mut self, slot: Slot) -> EvalResult {
        match &self.variables[slot] {
            Variable::Known(value) => value.clone(),
            Variable::Empty => Err(EvaluationError::failed("no such attribute(s)")),
            Variable::Pending(parts) => {
                let parts = parts.clone();
                self.variables[slot] = Variable::Empty;
                let value = self.value(&parts[0]);
                self.variables[slot] = Variable::Known(value.clone());
                value
            }
        }
    }

    /// The value of a variable that is not used again.
    fn taken(&mut self, slot: Slot) -> EvalResult {
        match std::mem::replace(&mut self.variables[slot], Variable::Empty) {
            Variable::Known(value) => value,
            _ => Err(EvaluationError::failed("no such attribute(s)")),
        }
    }

    /// Pays for a call whose arguments have an error: `&&` and `||` may ignore it. Returns the first error.
    fn failed_call(
        &mut self,
        cost: CallCost,
        args: impl IntoIterator<Item = EvalResult>,
    ) -> EvaluationError {
        let mut first_error = None;
        let mut values: SmallVec<[CelValue; 3]> = SmallVec::new();
        for arg in args {
            match arg {
                Ok(value) => values.push(value),
                Err(error) if !error.is_absorbed() => return error,
                Err(error) => {
                    first_error.get_or_insert(error);
                    values.push(CelValue::Null);
                }
            }
        }
        match self.budget.charge(cost.actual(&values, &CelValue::Null)) {
            Ok(()) => first_error.unwrap_or_else(EvaluationError::no_such_overload),
            Err(error) => error,
        }
    }

    fn args(&mut self, call: &Invocation, args: &mut SmallVec<[CelValue; 3]>) -> Result<()> {
        let count = call.args.len();
        for (index, arg) in call.args.iter().enumerate() {
            match self.value(arg) {
                Ok(value) => args.push(value),
                // If the first of two arguments fails, the second one is evaluated anyway.
                Err(error) if count <= 2 || index + 1 == count => {
                    if !error.is_absorbed() {
                        return Err(error);
                    }
                    let mut all: SmallVec<[EvalResult; 3]> = args.drain(..).map(Ok).collect();
                    all.push(Err(error));
                    if let Some(next) = call.args.get(index + 1) {
                        all.push(self.value(next));
                    }
                    return Err(self.failed_call(cost_of(call), all));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn no_overload(&mut self, call: &Invocation, args: &[CelValue]) -> EvaluationError {
        match (self.budget).charge(cost_of(call).actual(args, &CelValue::Null)) {
            Ok(()) => no_such_overload(call, args),
            Err(error) => error,
        }
    }

    fn call(&mut self, call: &Invocation, args: &[CelValue]) -> EvalResult {
        let is_match = |types: &[Type]| {
            types.len() == args.len() && types.iter().zip(args).all(|(of, arg)| is_of(arg, of))
        };
        let chosen = match &call.overloads[..] {
            // A single overload whose types were checked needs no test at run time.
            [overload] if overload.unguarded => Some(*overload),
            [overload] => is_match(&overload.args).then_some(*overload),
            _ => {
                let mut candidates = call.function.overloads.iter();
                candidates.find(|overload| is_match(&overload.args))
            }
        };
        let Some(overload) = chosen else {
            return Err(self.no_overload(call, args));
        };
        let mut cx = FunctionContext {
            steps: &mut self.budget.steps,
            pattern: call.pattern.as_ref(),
        };
        let result = (overload.implementation)(&mut cx, args);
        let returned = match &result {
            Ok(value) => value,
            Err(error) if error.is_absorbed() => &CelValue::Null,
            Err(error) => return Err(error.clone()),
        };
        // A failed call costs the same as a successful one.
        self.budget.charge(cost_of(call).actual(args, returned))?;
        self.budget.note_formed(returned);
        result
    }

    /// Pays for a list or a map, also for one with an error in it: `&&` and `||` may ignore it.
    fn constructed<T>(&mut self, result: Result<T>, cost: u64) -> Result<T> {
        if result
            .as_ref()
            .err()
            .is_none_or(EvaluationError::is_absorbed)
        {
            self.budget.charge(cost)?;
        }
        result
    }

    fn list(&mut self, elements: &[(PlanNode, bool)]) -> Result<Vec<CelValue>> {
        let list = self.elements(elements);
        self.constructed(list, LIST)
    }

    fn elements(&mut self, elements: &[(PlanNode, bool)]) -> Result<Vec<CelValue>> {
        let mut values = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            values.extend(given(self.value(node)?, *optional, "list element")?);
        }
        Ok(values)
    }

    fn map(&mut self, entries: &[(PlanNode, PlanNode, bool)]) -> EvalResult {
        let mut map = Map::default();
        for (key, value, optional) in entries {
            let key = self.value(key)?;
            let value = self.value(value)?;
            let key = MapKey::new(&key)
                .ok_or_else(|| EvaluationError::failed("unsupported type of a map's key"))?;
            match given(value, *optional, "entry")? {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            }
        }
        Ok(CelValue::Map(Arc::new(map)))
    }

    fn message(&mut self, name: &Arc<str>, fields: &[(Arc<str>, PlanNode, bool)]) -> EvalResult {
        let mut values = Map::default();
        for (field, node, optional) in fields {
            if let Some(value) = given(self.value(node)?, *optional, "entry")? {
                values.insert(MapKey::String(Arc::clone(field)), value);
            }
        }
        Ok(CelValue::Message(Arc::new((Arc::clone(name), values))))
    }

    fn insert(&mut self, slot: Slot, call: &Invocation) -> EvalResult {
        let map = self.taken(slot)?;
        self.budget.charge(SELECT)?;
        let mut args = SmallVec::new();
        self.args(call, &mut args)?;
        let CelValue::Map(mut map) = map else {
            return Err(EvaluationError::no_such_overload());
        };
        let entries = Arc::make_mut(&mut map);
        match &args[..] {
            [key, value] => insert_entry(entries, key, value.clone())?,
            [CelValue::Map(more)] => {
                for (key, value) in more.iter() {
                    insert_entry(entries, &key.value(), value.clone())?;
                }
            }
            _ => return Err(EvaluationError::no_such_overload()),
        }
        self.budget.charge(1)?;
        Ok(CelValue::Map(map))
    }

    fn fold(&mut self, fold: &Fold) -> EvalResult {
        let range = self.value(&fold.range)?;
        let init = self.value(&fold.init);
        self.variables[fold.accumulator] = Variable::Known(init);
        match (&range, fold.second_variable) {
            (CelValue::List(elements), None) => {
                for element in elements.iter() {
                    if !self.step(fold, element.clone(), None)? {
                        break;
                    }
                }
            }
            // With two variables, a list gives its indexes and elements.
            (CelValue::List(elements), Some(_)) => {
                for (index, element) in (0_i64..).zip(elements.iter()) {
                    if !self.step(fold, CelValue::Int(index), Some(element.clone()))? {
                        break;
                    }
                }
            }
            (CelValue::Map(map), second) => {
                for (key, value) in map.iter() {
                    let second = second.map(|_| value.clone());
                    if !self.step(fold, key.value(), second)? {
                        break;
                    }
                }
            }
            _ => {
                return Err(EvaluationError::failed(format!(
                    "got '{}', expected iterable type",
                    range.type_name()
                )));
            }
        }
        // The slots are free for the next loop.
        self.variables[fold.variable] = Variable::Empty;
        let result = self.value(&fold.result);
        self.variables[fold.accumulator] = Variable::Empty;
        result
    }

    /// One round of a loop. Returns whether the loop continues.
    fn step(&mut self, fold: &Fold, first: CelValue, second: Option<CelValue>) -> Result<bool> {
        self.variables[fold.variable] = Variable::Known(Ok(first));
        if let (Some(slot), Some(value)) = (fold.second_variable, second) {
            self.variables[slot] = Variable::Known(Ok(value));
        }
        match self.value(&fold.condition) {
            Ok(CelValue::Bool(false)) => return Ok(false),
            Err(error) if !error.is_absorbed() => return Err(error),
            _ => {}
        }
        let next = match self.value(&fold.step) {
            Err(error) if !error.is_absorbed() => return Err(error),
            next => next,
        };
        self.variables[fold.accumulator] = Variable::Known(next);
        Ok(true)
    }
}

/// The value of an element or entry; nothing for an optional one without a value.
fn given(value: CelValue, optional: bool, part: &str) -> Result<Option<CelValue>> {
    match (value, optional) {
        (value, false) => Ok(Some(value)),
        (CelValue::Optional(value), true) => Ok(value.map(|value| CelValue::clone(&value))),
        _ => Err(EvaluationError::failed(format!(
            "cannot initialize optional {part} from non-optional value"
        ))),
    }
}

/// The overload that the checker chose, if it is the only one.
fn cost_of(call: &Invocation) -> CallCost {
    match &call.overloads[..] {
        [overload] => overload.cost,
        _ => call.function.cost,
    }
}

fn no_such_overload(call: &Invocation, args: &[CelValue]) -> EvaluationError {
    let names: Vec<&str> = args.iter().map(CelValue::type_name).collect();
    EvaluationError::failed(format!(
        "no such overload: {}({})",
        call.function.name,
        names.join(", ")
    ))
}

/// Returns whether a value can be an argument of a type. Only the first element of lists and maps is checked.
fn is_of(value: &CelValue, of: &Type) -> bool {
    match (of, value) {
        (Type::Dyn | Type::Any | Type::Parameter(_) | Type::Variable(_), _) => true,
        (Type::List(of), CelValue::List(elements)) => {
            elements.first().is_none_or(|element| is_of(element, of))
        }
        (Type::Map(of), CelValue::Map(map)) => map
            .iter()
            .next()
            .is_none_or(|(key, value)| is_of(&key.value(), &of.0) && is_of(value, &of.1)),
        (Type::List(_) | Type::Map(_), _) => false,
        (of, value) => of.name() == value.type_name(),
    }
}
