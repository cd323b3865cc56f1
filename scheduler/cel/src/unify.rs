//! Type inference: the compatibility of types, and the types bound to type parameters.

use crate::types::Type;
use std::cell::Cell;
use std::sync::Arc;

/// The number of comparisons of types that an expression can need. Inferred types can refer to each other, so that
/// their expansions grow exponentially with the length of an expression.
const COMPARISONS_MAX: u32 = 1 << 20;

/// The most parts that one expanded type can have.
const PARTS_MAX: usize = crate::limits::TYPE_PARTS_MAX;

/// The bindings of the variables of the types of an expression.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    bindings: Vec<Option<Type>>,
    /// The former bindings, to be restored when types do not fit together.
    changes: Vec<(u32, Option<Type>)>,
    comparisons: u32,
    too_large: Cell<bool>,
}

impl Inference {
    /// A new variable.
    pub(crate) fn variable(&mut self) -> Type {
        let number = u32::try_from(self.bindings.len()).unwrap_or(u32::MAX);
        self.bindings.push(None);
        Type::Variable(number)
    }

    /// Returns whether types grew beyond the limit for comparison.
    pub(crate) fn is_too_large(&self) -> bool {
        self.too_large.get() || self.comparisons > COMPARISONS_MAX
    }

    fn binding(&self, of: &Type) -> Option<&Type> {
        match of {
            Type::Variable(number) => self.bindings.get(*number as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        if let Type::Variable(number) = variable
            && let Some(binding) = self.bindings.get_mut(*number as usize)
        {
            let before = binding.replace(to);
            self.changes.push((*number, before));
        }
    }

    /// Returns whether a value of the second type can be used as one of the first. Variables are bound if so.
    pub(crate) fn is_assignable(&mut self, to: &Type, from: &Type) -> bool {
        self.are_assignable(std::slice::from_ref(to), std::slice::from_ref(from))
    }

    /// Returns whether each value can be used. Variables are bound if all can.
    pub(crate) fn are_assignable(&mut self, to: &[Type], from: &[Type]) -> bool {
        let before = self.changes.len();
        let fit =
            to.len() == from.len() && to.iter().zip(from).all(|(to, from)| self.fit(to, from));
        if !fit {
            for (number, binding) in self.changes.drain(before..).rev() {
                self.bindings[number as usize] = binding;
            }
        }
        fit
    }

    fn fit(&mut self, a: &Type, b: &Type) -> bool {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return false;
        }
        // A variable on the right is bound first, as in cel-go.
        if matches!(b, Type::Variable(_)) {
            let (fits, is_bound) = self.substitutes(a, b);
            if fits || is_bound {
                return fits;
            }
        }
        if matches!(a, Type::Variable(_)) {
            return self.substitutes(b, a).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            // Only these types have null as a value.
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Object(_)
                    | Type::Message(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.fit(a, b)
            }
            (Type::Map(a), Type::Map(b)) => self.fit(&a.0, &b.0) && self.fit(&a.1, &b.1),
            (a, b) => a == b,
        }
    }

    /// Returns whether a type can be bound to a variable, and whether the variable was bound already.
    fn substitutes(&mut self, of: &Type, variable: &Type) -> (bool, bool) {
        if of == variable {
            return (true, true);
        }
        let Some(bound) = self.binding(variable).cloned() else {
            if self.is_free_of(of, variable) {
                self.bind(variable, of.clone());
                return (true, false);
            }
            return (false, false);
        };
        if *of == bound {
            return (true, true);
        }
        if !self.fit(of, &bound) {
            return (false, true);
        }
        let general = most_general(of, &bound);
        if self.is_free_of(&general, variable) {
            self.bind(variable, general);
        }
        (true, true)
    }

    /// Returns whether a variable does not occur in a type.
    fn is_free_of(&mut self, within: &Type, variable: &Type) -> bool {
        self.comparisons += 1;
        if within == variable || self.comparisons > COMPARISONS_MAX {
            return false;
        }
        match within {
            Type::Variable(_) => match self.binding(within).cloned() {
                None => true,
                Some(bound) => self.is_free_of(&bound, variable),
            },
            Type::List(of) | Type::Optional(of) | Type::Type(Some(of)) => {
                self.is_free_of(of, variable)
            }
            Type::Map(entry) => {
                self.is_free_of(&entry.0, variable) && self.is_free_of(&entry.1, variable)
            }
            _ => true,
        }
    }

    /// The type with its variables replaced by their bindings. Unbound variables remain, or become `dyn`.
    pub(crate) fn resolve(&self, of: &Type, unbound_is_dyn: bool) -> Type {
        self.expand(of, unbound_is_dyn, &mut PARTS_MAX.clone())
    }

    fn expand(&self, of: &Type, unbound_is_dyn: bool, left: &mut usize) -> Type {
        let Some(rest) = left.checked_sub(1) else {
            self.too_large.set(true);
            return Type::Error;
        };
        *left = rest;
        if let Some(bound) = self.binding(of) {
            return self.expand(bound, unbound_is_dyn, left);
        }
        match of {
            Type::Variable(_) if unbound_is_dyn => Type::Dyn,
            Type::List(of) => Type::list(self.expand(of, unbound_is_dyn, left)),
            Type::Optional(of) => Type::optional(self.expand(of, unbound_is_dyn, left)),
            Type::Type(Some(of)) => {
                Type::Type(Some(Arc::new(self.expand(of, unbound_is_dyn, left))))
            }
            Type::Map(entry) => Type::map(
                self.expand(&entry.0, unbound_is_dyn, left),
                self.expand(&entry.1, unbound_is_dyn, left),
            ),
            other => other.clone(),
        }
    }
}

/// The type of a declaration with variables for its parameters.
pub(crate) fn instantiate(of: &Type, variables: &mut dyn FnMut(&'static str) -> Type) -> Type {
    match of {
        Type::Parameter(name) => variables(name),
        Type::List(of) => Type::list(instantiate(of, variables)),
        Type::Optional(of) => Type::optional(instantiate(of, variables)),
        Type::Type(Some(of)) => Type::Type(Some(Arc::new(instantiate(of, variables)))),
        Type::Map(entry) => {
            let key = instantiate(&entry.0, variables);
            Type::map(key, instantiate(&entry.1, variables))
        }
        other => other.clone(),
    }
}

/// The more general of two types that fit together.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if is_as_general(a, b) { a } else { b }.clone()
}

fn is_as_general(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Variable(_) | Type::Parameter(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Variable(_) | Type::Parameter(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
            is_as_general(a, b)
        }
        (Type::Map(a), Type::Map(b)) => is_as_general(&a.0, &b.0) && is_as_general(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}
