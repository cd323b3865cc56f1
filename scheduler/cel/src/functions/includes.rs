//! `includes`: whether an attribute has a value, which may be one of a list.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, equal};

/// Values of list attributes.
pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "includes", "dra_includes_dyn_dyn", ".dyn, dyn -> bool" => includes;
};

/// The maximum number of values that `includes` checks.
const INCLUDED_VALUES_MAX: usize = 48;

/// Returns whether a value is equal to another one, or a list has an equal element.
fn includes(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [target, value] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let elements = match target {
        CelValue::List(elements) => &elements[..],
        other => std::slice::from_ref(other),
    };
    for (index, element) in elements.iter().enumerate() {
        if index >= INCLUDED_VALUES_MAX {
            return Err(EvaluationError::failed(format!(
                "'includes' function cannot be applied to lists longer than {INCLUDED_VALUES_MAX} values"
            )));
        }
        match equal(element, value, cx.steps) {
            Ok(true) => return Ok(CelValue::Bool(true)),
            Err(error) if !error.is_absorbed() => return Err(error),
            _ => {}
        }
    }
    Ok(CelValue::Bool(false))
}
