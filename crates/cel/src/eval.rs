//! Evaluation, within a budget.

use crate::cost::{self, LIST, MAP, MESSAGE, SELECT};
use crate::error::EvaluationError;
use crate::functions::{Context, insert_entry};
use crate::number;
use crate::plan::{Attribute, Fold, Invocation, Node, Qualifier, Root, Slot};
use crate::types::Type;
use crate::value::{Key, Map, Outcome, Steps, Value, contains, equal};
use smallvec::SmallVec;
use std::sync::Arc;

/// The number of steps that comparisons, conversions and searches may take that costs do not cover. They take about a
/// twentieth of a second.
const STEPS_MAX: u64 = 5_000_000;

/// So many steps take as long as a unit of cost.
const STEPS_PER_COST: u64 = 10;

/// So many bytes of a text that a function forms take as long as a unit of cost.
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
pub(crate) struct Budget {
    cost: u64,
    cost_max: u64,
    steps: Steps,
    /// The size of the values that functions formed, in units of cost. Costs do not cover it.
    formed: u64,
}

impl Budget {
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

    fn note_formed(&mut self, value: &Value) {
        let size = match value {
            Value::List(values) => values.len(),
            Value::String(text) => text.len() / BYTES_PER_COST,
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
    /// The value is evaluated when it is used first: the first of these nodes.
    Pending(Arc<[Node; 2]>),
    Known(Outcome),
}

/// Evaluates the nodes of one expression for one device.
pub(crate) struct Evaluator<'e> {
    device: &'e Value,
    variables: Vec<Variable>,
    budget: &'e mut Budget,
}

type Result<T> = std::result::Result<T, EvaluationError>;

impl<'e> Evaluator<'e> {
    pub(crate) fn new(device: &'e Value, slots: usize, budget: &'e mut Budget) -> Self {
        Self {
            device,
            variables: vec![Variable::Empty; slots],
            budget,
        }
    }

    pub(crate) fn value(&mut self, node: &Node) -> Outcome {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => {
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
            Node::And(operands) => self.logical(operands, false),
            Node::Or(operands) => self.logical(operands, true),
            Node::Equal { operands, negated } => {
                let (function, overload) = if *negated {
                    ("_!=_", "not_equals")
                } else {
                    ("_==_", "equals")
                };
                let values = match (self.value(&operands[0]), self.value(&operands[1])) {
                    (Ok(a), Ok(b)) => [a, b],
                    (a, b) => return Err(self.failed_call(function, overload, [a, b])),
                };
                // Values that cannot be compared are unequal to `!=`, and an error to `==`.
                let result = match equal(&values[0], &values[1], &mut self.budget.steps) {
                    Err(error) if *negated && error.is_absorbed() => true,
                    equal => equal? != *negated,
                };
                let result = Value::Bool(result);
                let cost = cost::actual::of_call(function, overload, &values, &result);
                self.budget.charge(cost)?;
                Ok(result)
            }
            Node::NotStrictlyFalse(operand) => {
                let value = match self.value(operand) {
                    Ok(Value::Bool(value)) => value,
                    Err(error) if !error.is_absorbed() => return Err(error),
                    _ => true,
                };
                self.budget.charge(1)?;
                Ok(Value::Bool(value))
            }
            Node::IsOneOf(value, constants) => {
                let value = self.value(value)?;
                contains(constants, &value, &mut self.budget.steps).map(Value::Bool)
            }
            Node::Or2 { operands, unwrap } => match self.value(&operands[0])? {
                Value::Optional(None) => self.value(&operands[1]),
                Value::Optional(Some(value)) if *unwrap => Ok(Value::clone(&value)),
                other => Ok(other),
            },
            Node::Call(call) => {
                let mut args = SmallVec::new();
                self.args(call, &mut args)?;
                self.call(call, &args)
            }
            Node::List(elements) => self.list(elements).map(Value::list),
            Node::Map(entries) => {
                let map = self.map(entries);
                self.constructed(map, MAP)
            }
            Node::Message(name, fields) => {
                let message = self.message(name, fields);
                self.constructed(message, MESSAGE)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { slot, parts } => {
                self.variables[*slot] = Variable::Pending(parts.clone());
                let result = self.value(&parts[1]);
                self.variables[*slot] = Variable::Empty;
                result
            }
            Node::Append(slot, elements) => {
                let list = self.taken(*slot)?;
                self.budget.charge(SELECT)?;
                let added = match &**elements {
                    Node::List(elements) => self.list(elements)?,
                    other => match self.value(other)? {
                        Value::List(added) => added.to_vec(),
                        _ => return Err(EvaluationError::no_such_overload()),
                    },
                };
                self.budget.charge(1)?;
                let Value::List(mut list) = list else {
                    return Err(EvaluationError::no_such_overload());
                };
                Arc::make_mut(&mut list).extend(added);
                Ok(Value::List(list))
            }
            Node::Insert(slot, call) => self.insert(*slot, call),
        }
    }

    /// `&&`, or `||` if `decides` is true: an operand that decides makes errors of the other one irrelevant.
    fn logical(&mut self, operands: &[Node; 2], decides: bool) -> Outcome {
        let mut first_error = None;
        for operand in operands {
            let error = match self.value(operand) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvaluationError::no_such_overload(),
                Err(error) if error.is_absorbed() => error,
                Err(error) => return Err(error),
            };
            first_error = first_error.or(Some(error));
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!decides)),
        }
    }

    /// The value of a variable.
    fn variable(&mut self, slot: Slot) -> Outcome {
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
    fn taken(&mut self, slot: Slot) -> Outcome {
        match std::mem::replace(&mut self.variables[slot], Variable::Empty) {
            Variable::Known(value) => value,
            _ => Err(EvaluationError::failed("no such attribute(s)")),
        }
    }

    /// The value of an attribute, without what reading it costs.
    fn attribute(&mut self, attribute: &Attribute) -> Outcome {
        let value = match &attribute.root {
            // The device is not copied for each selection.
            Root::Device => {
                let device = self.device;
                return self.qualified(device, attribute);
            }
            Root::Slot(slot) => self.variable(*slot)?,
            Root::Take(slot) => self.taken(*slot)?,
            Root::Value(node) => self.value(node)?,
            Root::Conditional(parts) => match self.value(&parts[0])? {
                Value::Bool(true) => self.branch(&parts[1])?,
                Value::Bool(false) => self.branch(&parts[2])?,
                _ => return Err(EvaluationError::no_such_overload()),
            },
        };
        if attribute.qualifiers.is_empty() {
            return reread(value);
        }
        self.qualified(&value, attribute)
    }

    /// A branch of a conditional: reading it costs nothing in itself.
    fn branch(&mut self, node: &Node) -> Outcome {
        match node {
            Node::Attribute(attribute) => self.attribute(attribute),
            other => reread(self.value(other)?),
        }
    }

    /// The value that the qualifiers select from a value.
    fn qualified(&mut self, root: &Value, attribute: &Attribute) -> Outcome {
        let mut is_optional = false;
        let mut current: Option<Value> = None;
        let last = attribute.qualifiers.len();
        for (index, qualifier) in attribute.qualifiers.iter().enumerate() {
            let of = current.as_ref().unwrap_or(root);
            let of = match of {
                Value::Optional(None) if index == 0 => return Ok(self.absent(attribute)),
                Value::Optional(Some(value)) if index == 0 => {
                    is_optional = true;
                    native(value)?
                }
                other => other.clone(),
            };
            let is_test = attribute.test_only && index + 1 == last;
            is_optional = is_optional || qualifier.optional;
            let presence = is_test || is_optional;
            let found = match self.key(qualifier) {
                Ok(key) => selected(&of, &key, presence),
                Err(error) => Err(error),
            };
            let is_paid = match &found {
                Ok(Some(_)) => true,
                Ok(None) => !is_optional,
                Err(error) => error.is_absorbed() && !is_optional,
            };
            if is_paid {
                self.budget.charge(SELECT)?;
            }
            let found = found?;
            if is_test {
                return Ok(Value::Bool(found.is_some()));
            }
            match found {
                Some(value) => current = Some(value),
                None => return Ok(self.absent(attribute)),
            }
        }
        let value = current.unwrap_or_else(|| root.clone());
        if is_optional {
            Ok(Value::some(value))
        } else {
            Ok(value)
        }
    }

    fn absent(&self, attribute: &Attribute) -> Value {
        if attribute.test_only {
            Value::Bool(false)
        } else {
            Value::Optional(None)
        }
    }

    fn key(&mut self, qualifier: &Qualifier) -> Outcome {
        match &qualifier.key {
            Node::Const(value) => Ok(value.clone()),
            Node::Attribute(attribute) => self.attribute(attribute),
            other => self.value(other),
        }
    }

    /// Pays for a call whose arguments have an error: `&&` and `||` may ignore it. Returns the first error.
    fn failed_call(
        &mut self,
        function: &str,
        overload: &str,
        args: impl IntoIterator<Item = Outcome>,
    ) -> EvaluationError {
        let mut first_error = None;
        let mut values: SmallVec<[Value; 3]> = SmallVec::new();
        for arg in args {
            match arg {
                Ok(value) => values.push(value),
                Err(error) if !error.is_absorbed() => return error,
                Err(error) => {
                    first_error.get_or_insert(error);
                    values.push(Value::Null);
                }
            }
        }
        let cost = cost::actual::of_call(function, overload, &values, &Value::Null);
        match self.budget.charge(cost) {
            Ok(()) => first_error.unwrap_or_else(EvaluationError::no_such_overload),
            Err(error) => error,
        }
    }

    fn args(&mut self, call: &Invocation, args: &mut SmallVec<[Value; 3]>) -> Result<()> {
        let count = call.args.len();
        for (index, arg) in call.args.iter().enumerate() {
            match self.value(arg) {
                Ok(value) => args.push(value),
                // Of two arguments, the second one is evaluated all the same.
                Err(error) if count <= 2 || index + 1 == count => {
                    if !error.is_absorbed() {
                        return Err(error);
                    }
                    let mut all: SmallVec<[Outcome; 3]> = args.drain(..).map(Ok).collect();
                    all.push(Err(error));
                    if let Some(next) = call.args.get(index + 1) {
                        all.push(self.value(next));
                    }
                    return Err(self.failed_call(call.function.name, known_overload(call), all));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn no_overload(&mut self, call: &Invocation, args: &[Value]) -> EvaluationError {
        let cost =
            cost::actual::of_call(call.function.name, known_overload(call), args, &Value::Null);
        match self.budget.charge(cost) {
            Ok(()) => no_such_overload(call, args),
            Err(error) => error,
        }
    }

    fn call(&mut self, call: &Invocation, args: &[Value]) -> Outcome {
        let is_match = |types: &[Type]| {
            types.len() == args.len() && types.iter().zip(args).all(|(of, arg)| is_of(arg, of))
        };
        let chosen = match &call.overloads[..] {
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
        let mut cx = Context {
            steps: &mut self.budget.steps,
            pattern: call.pattern.as_ref(),
        };
        let result = (overload.implementation)(&mut cx, args);
        let returned = match &result {
            Ok(value) => value,
            Err(error) if error.is_absorbed() => &Value::Null,
            Err(error) => return Err(error.clone()),
        };
        let known = known_overload(call);
        let cost = cost::actual::of_call(call.function.name, known, args, returned);
        self.budget.charge(cost)?;
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

    fn list(&mut self, elements: &[(Node, bool)]) -> Result<Vec<Value>> {
        let list = self.elements(elements);
        self.constructed(list, LIST)
    }

    fn elements(&mut self, elements: &[(Node, bool)]) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(elements.len());
        for (node, optional) in elements {
            match (self.value(node)?, optional) {
                (value, false) => values.push(value),
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(value)), true) => values.push(Value::clone(&value)),
                _ => {
                    return Err(EvaluationError::failed(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
            }
        }
        Ok(values)
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Outcome {
        let mut map = Map::default();
        for (key, value, optional) in entries {
            let key = self.value(key)?;
            let value = self.value(value)?;
            let key = Key::new(&key)
                .ok_or_else(|| EvaluationError::failed("unsupported type of a map's key"))?;
            match (value, optional) {
                (value, false) => map.insert(key, value),
                (Value::Optional(None), true) => map.remove(&key),
                (Value::Optional(Some(value)), true) => map.insert(key, Value::clone(&value)),
                _ => {
                    return Err(EvaluationError::failed(
                        "cannot initialize optional entry from non-optional value",
                    ));
                }
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn message(&mut self, name: &Arc<str>, fields: &[(Arc<str>, Node, bool)]) -> Outcome {
        let mut values = Map::default();
        for (field, node, optional) in fields {
            let key = Key::String(Arc::clone(field));
            match (self.value(node)?, optional) {
                (value, false) => values.insert(key, value),
                (Value::Optional(None), true) => {}
                (Value::Optional(Some(value)), true) => values.insert(key, Value::clone(&value)),
                _ => {
                    return Err(EvaluationError::failed(
                        "cannot initialize optional entry from non-optional value",
                    ));
                }
            }
        }
        Ok(Value::Message(Arc::new((Arc::clone(name), values))))
    }

    fn insert(&mut self, slot: Slot, call: &Invocation) -> Outcome {
        let map = self.taken(slot)?;
        self.budget.charge(SELECT)?;
        let mut args = SmallVec::new();
        self.args(call, &mut args)?;
        let Value::Map(mut map) = map else {
            return Err(EvaluationError::no_such_overload());
        };
        let entries = Arc::make_mut(&mut map);
        match &args[..] {
            [key, value] => insert_entry(entries, key, value.clone())?,
            [Value::Map(more)] => {
                for (key, value) in more.iter() {
                    insert_entry(entries, &key.value(), value.clone())?;
                }
            }
            _ => return Err(EvaluationError::no_such_overload()),
        }
        self.budget.charge(1)?;
        Ok(Value::Map(map))
    }

    fn fold(&mut self, fold: &Fold) -> Outcome {
        let range = self.value(&fold.range)?;
        let init = self.value(&fold.init);
        self.variables[fold.accumulator] = Variable::Known(init);
        match (&range, fold.second_variable) {
            (Value::List(elements), None) => {
                for element in elements.iter() {
                    if !self.step(fold, element.clone(), None)? {
                        break;
                    }
                }
            }
            (Value::List(elements), Some(_)) => {
                for (index, element) in (0_i64..).zip(elements.iter()) {
                    if !self.step(fold, Value::Int(index), Some(element.clone()))? {
                        break;
                    }
                }
            }
            (Value::Map(map), second) => {
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
        self.variables[fold.variable] = Variable::Empty;
        let result = self.value(&fold.result);
        self.variables[fold.accumulator] = Variable::Empty;
        result
    }

    /// One round of a loop. Returns whether it goes on.
    fn step(&mut self, fold: &Fold, first: Value, second: Option<Value>) -> Result<bool> {
        self.variables[fold.variable] = Variable::Known(Ok(first));
        if let (Some(slot), Some(value)) = (fold.second_variable, second) {
            self.variables[slot] = Variable::Known(Ok(value));
        }
        match self.value(&fold.condition) {
            Ok(Value::Bool(false)) => return Ok(false),
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

/// The value of a variable or a branch. Upstream takes the value of an optional out of it and puts it back.
fn reread(value: Value) -> Outcome {
    match value {
        Value::Optional(Some(value)) => native(&value).map(Value::some),
        other => Ok(other),
    }
}

/// The value of an optional as upstream reads it. It cannot read back most types of Kubernetes, takes types for texts,
/// and optionals for their values.
fn native(value: &Value) -> Outcome {
    match value {
        Value::Quantity(_) | Value::Semver(_) | Value::Ip(_) | Value::Cidr(_) | Value::Url(_) => {
            Err(EvaluationError::failed(format!(
                "unsupported conversion of {} inside of an optional",
                value.type_name()
            )))
        }
        Value::Type(name) => Ok(Value::text(name)),
        Value::Optional(None) => Ok(Value::Null),
        Value::Optional(Some(value)) => native(value),
        other => Ok(other.clone()),
    }
}

/// The overload that the checker chose, if it is the only one.
fn known_overload(call: &Invocation) -> &'static str {
    match &call.overloads[..] {
        [overload] => overload.id,
        _ => "",
    }
}

fn no_such_overload(call: &Invocation, args: &[Value]) -> EvaluationError {
    let names: Vec<&str> = args.iter().map(Value::type_name).collect();
    EvaluationError::failed(format!(
        "no such overload: {}({})",
        call.function.name,
        names.join(", ")
    ))
}

/// The value that a key selects from a value; nothing if it is missing and that is no error.
fn selected(of: &Value, key: &Value, presence: bool) -> Result<Option<Value>> {
    let missing = || {
        let shown = crate::functions::convert(key).unwrap_or_else(|_| key.type_name().to_owned());
        EvaluationError::failed(format!("no such key: {shown}"))
    };
    match of {
        Value::Message(message) => match message.1.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if presence => Ok(None),
            None => Err(missing()),
        },
        Value::Map(map) => match map.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if presence => Ok(None),
            None => Err(missing()),
        },
        Value::List(elements) => {
            let index = match *key {
                Value::Int(index) => usize::try_from(index).ok(),
                Value::Uint(index) => usize::try_from(index).ok(),
                Value::Double(index) => match number::lossless_i64(index) {
                    Some(index) => usize::try_from(index).ok(),
                    None => return Err(EvaluationError::failed("unsupported index value")),
                },
                _ => {
                    return Err(EvaluationError::failed(format!(
                        "unsupported index type '{}' in list",
                        key.type_name()
                    )));
                }
            };
            match index.and_then(|index| elements.get(index)) {
                Some(value) => Ok(Some(value.clone())),
                None if presence => Ok(None),
                None => {
                    let shown = crate::functions::convert(key).unwrap_or_default();
                    Err(EvaluationError::failed(format!(
                        "index out of bounds: {shown}"
                    )))
                }
            }
        }
        _ if presence => Ok(None),
        _ => Err(missing()),
    }
}

/// Returns whether a value can be an argument of a type. Of lists and maps, the first element is looked at.
fn is_of(value: &Value, of: &Type) -> bool {
    match (of, value) {
        (Type::Dyn | Type::Any | Type::Parameter(_) | Type::Variable(_), _) => true,
        (Type::List(of), Value::List(elements)) => {
            elements.first().is_none_or(|element| is_of(element, of))
        }
        (Type::Map(of), Value::Map(map)) => map
            .iter()
            .next()
            .is_none_or(|(key, value)| is_of(&key.value(), &of.0) && is_of(value, &of.1)),
        (Type::List(_) | Type::Map(_), _) => false,
        (of, value) => of.name() == value.type_name(),
    }
}
