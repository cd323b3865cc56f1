//! Estimated costs: the maximum cost of an evaluation for any device.
//!
//! The API server refuses selectors whose estimate is above [`crate::COST_MAX`]. The rules and figures are taken from
//! the CEL implementation of Kubernetes and its libraries.

mod calls;

use crate::ast::{Comprehension, Expr, ExprId, FunctionCall, Literal, NodeKind};
use crate::call_cost::{CallCost, LIST, MAP, MESSAGE, SELECT, scaled};
use crate::check::{Checked, Reference};
use crate::types::Type;
use rustc_hash::FxHashMap;

/// The least and the most that something can cost, or the least and the largest size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CostRange {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl CostRange {
    const ZERO: Self = Self::exactly(0);
    const ONE: Self = Self::exactly(1);
    const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    /// The union of no ranges.
    const NONE: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    const fn exactly(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// The sizes of the keys (or indexes) and values of a list or map.
#[derive(Debug, Clone, Copy)]
struct EntrySizes {
    is_list: bool,
    key: CostRange,
    value: CostRange,
}

impl EntrySizes {
    fn union(self, other: Self) -> Self {
        Self {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A variable of a loop or a binding.
#[derive(Debug, Clone, Default)]
struct Local {
    path: Vec<String>,
    size: Option<CostRange>,
    entries: Option<EntrySizes>,
}

/// The most that an evaluation of an expression can cost.
pub(crate) fn estimate(checked: &Checked) -> u64 {
    let mut estimator = Estimator {
        checked,
        paths: FxHashMap::default(),
        sizes: FxHashMap::default(),
        entries: FxHashMap::default(),
        scope: Vec::new(),
    };
    estimator.cost(&checked.ast.root).max
}

struct Estimator<'c> {
    checked: &'c Checked,
    /// The paths from a variable to a node.
    paths: FxHashMap<ExprId, Vec<String>>,
    sizes: FxHashMap<ExprId, CostRange>,
    entries: FxHashMap<ExprId, EntrySizes>,
    scope: Vec<(&'c str, Local)>,
}

impl<'c> Estimator<'c> {
    fn type_of(&self, expr: &Expr) -> &'c Type {
        self.checked.type_of(expr.id)
    }

    fn local(&self, name: &str) -> Option<&Local> {
        let found = self.scope.iter().rev().find(|(known, _)| *known == name);
        found.map(|(_, local)| local)
    }

    fn path(&self, expr: &Expr) -> Vec<String> {
        if let NodeKind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn size(&mut self, expr: &Expr) -> Option<CostRange> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        match &expr.kind {
            NodeKind::Literal(literal) => {
                let size = match literal {
                    Literal::String(text) => text.chars().count(),
                    Literal::Bytes(bytes) => bytes.len(),
                    _ => 1,
                };
                return Some(CostRange::exactly(size as u64));
            }
            NodeKind::List(elements) => return Some(CostRange::exactly(elements.len() as u64)),
            NodeKind::Map(entries) => return Some(CostRange::exactly(entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.size_of_path(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if self.type_of(expr).is_scalar() {
            return Some(CostRange::ONE);
        }
        match &expr.kind {
            NodeKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_of_path(&self, path: &[String]) -> Option<CostRange> {
        let max = self.checked.environment.size_max(path)?;
        Some(CostRange { min: 0, max })
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> CostRange {
        self.size(expr).unwrap_or(CostRange::UNKNOWN)
    }

    fn entry_sizes(&self, expr: &Expr) -> Option<EntrySizes> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            NodeKind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn cost(&mut self, expr: &'c Expr) -> CostRange {
        match &expr.kind {
            NodeKind::Literal(_) => CostRange::ZERO,
            NodeKind::Ident(name) => {
                let name = name.strip_prefix('.').unwrap_or(name);
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.to_owned()],
                };
                self.paths.insert(expr.id, path);
                CostRange::exactly(SELECT)
            }
            NodeKind::Select {
                operand,
                field,
                test_only,
            } => {
                let cost = self.cost(operand);
                if *test_only {
                    return cost;
                }
                let mut path = self.path(operand);
                path.push(field.clone());
                self.paths.insert(expr.id, path);
                match self.type_of(operand) {
                    Type::Map(_) | Type::Object(_) => cost.plus(CostRange::exactly(SELECT)),
                    _ => cost,
                }
            }
            NodeKind::Call(call) => self.call(expr, call),
            NodeKind::List(elements) => {
                let mut sum = CostRange::exactly(LIST);
                let mut sizes = CostRange::NONE;
                if elements.is_empty() {
                    sizes.min = 0;
                }
                for element in elements {
                    sum = sum.plus(self.cost(&element.value));
                    sizes = sizes.union(self.size_or_unknown(&element.value));
                }
                self.entries.insert(
                    expr.id,
                    EntrySizes {
                        is_list: true,
                        key: CostRange::ONE,
                        value: sizes,
                    },
                );
                sum
            }
            NodeKind::Map(entries) => {
                let mut sum = CostRange::exactly(MAP);
                let (mut keys, mut values) = (CostRange::NONE, CostRange::NONE);
                if entries.is_empty() {
                    (keys.min, values.min) = (0, 0);
                }
                for entry in entries {
                    sum = sum
                        .plus(self.cost(&entry.key))
                        .plus(self.cost(&entry.value));
                    keys = keys.union(self.size_or_unknown(&entry.key));
                    values = values.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(
                    expr.id,
                    EntrySizes {
                        is_list: false,
                        key: keys,
                        value: values,
                    },
                );
                sum
            }
            NodeKind::Struct { fields, .. } => {
                let mut sum = CostRange::exactly(MESSAGE);
                for field in fields {
                    sum = sum.plus(self.cost(&field.value));
                }
                sum
            }
            NodeKind::Comprehension(fold) if fold.is_binding() => self.binding(expr, fold),
            NodeKind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn call(&mut self, expr: &'c Expr, call: &'c FunctionCall) -> CostRange {
        if let Some(Reference::Call { function, .. }) = self.checked.reference(expr.id)
            && function.name == "dyn"
            && let [arg] = &call.args[..]
        {
            let cost = self.cost(arg).plus(CostRange::ONE);
            self.copy_sizes(expr, arg);
            return cost;
        }
        let arg_costs: Vec<CostRange> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let mut sum = CostRange::ZERO;
        let Some(Reference::Call {
            overloads,
            is_namespaced,
            ..
        }) = self.checked.reference(expr.id)
        else {
            return CostRange::ZERO;
        };
        let target = call.target.as_deref().filter(|_| !is_namespaced);
        if let Some(target) = target {
            sum = sum.plus(self.cost(target));
        }
        let operands: Vec<&Expr> = target.into_iter().chain(&call.args).collect();
        // The overload of an optional field has no declaration of its own.
        let rules: Vec<(&str, CallCost)> = if overloads.is_empty() {
            vec![("select_optional_field", CallCost::One)]
        } else {
            let rules = overloads.iter();
            rules.map(|overload| (overload.id, overload.cost)).collect()
        };
        let mut cost = CostRange::NONE;
        let mut result_size: Option<CostRange> = None;
        for (id, rule) in rules {
            let (one, size) = self.call_cost(expr, rule, &operands, &arg_costs);
            cost = cost.union(one);
            if let Some(size) = size {
                result_size = Some(result_size.map_or(size, |known| known.union(size)));
            }
            if let ("index_list" | "index_map", [container, ..]) = (id, &call.args[..]) {
                result_size = self.entry_sizes(container).map(|entries| entries.value);
                let mut path = self.path(container);
                let step = if id == "index_list" {
                    "@items"
                } else {
                    "@values"
                };
                path.push(step.to_owned());
                self.paths.insert(expr.id, path);
            }
            if result_size.is_none() {
                result_size = self.size(expr);
            }
        }
        if let Some(size) = result_size {
            self.sizes.insert(expr.id, size);
        }
        sum.plus(cost)
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entry_sizes(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn bound_to(&mut self, expr: &Expr) -> Local {
        Local {
            path: self.path(expr),
            size: self.size(expr),
            entries: self.entry_sizes(expr),
        }
    }

    fn binding(&mut self, expr: &'c Expr, fold: &'c Comprehension) -> CostRange {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        let local = self.bound_to(&fold.init);
        self.scope.push((&fold.accumulator, local));
        let cost = cost.plus(self.cost(&fold.result));
        self.scope.pop();
        self.copy_sizes(expr, &fold.result);
        cost
    }

    fn fold(&mut self, expr: &'c Expr, fold: &'c Comprehension) -> CostRange {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        let accumulated = self.bound_to(&fold.init);
        self.scope.push((&fold.accumulator, accumulated));
        let entries = self.entry_sizes(&fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.type_of(&fold.range), Type::List(_)),
        };
        let path = self.path(&fold.range);
        let local = |step: &str, size: Option<CostRange>| {
            let mut path = path.clone();
            path.push(step.to_owned());
            Local {
                path,
                size,
                entries: None,
            }
        };
        let keys = entries.map(|entries| entries.key);
        let values = entries.map(|entries| entries.value);
        match &fold.second_variable {
            Some(second) => {
                let (key, value) = if is_list {
                    ("@indices", "@items")
                } else {
                    ("@keys", "@values")
                };
                self.scope.push((&fold.variable, local(key, keys)));
                self.scope.push((second, local(value, values)));
            }
            None if is_list => self.scope.push((&fold.variable, local("@items", values))),
            None => self.scope.push((&fold.variable, local("@keys", keys))),
        }
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.scope.pop();
        if fold.second_variable.is_some() {
            self.scope.pop();
        }
        sum = sum.plus(self.cost(&fold.result));
        self.scope.pop();
        let count = self.size_or_unknown(&fold.range);
        sum = sum.plus(count.times(each));
        match &fold.init.kind {
            NodeKind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            NodeKind::List(_) | NodeKind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entry_sizes(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }
}
