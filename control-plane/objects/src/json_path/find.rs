//! The evaluation of a path.

use super::{JsonPath, PathNode, Slice};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The limit of intermediate values; a path that exceeds it has no values. Paths such as `...*...*` find values many
/// times.
const FOUND_MAX: usize = 20_000;

/// Values of an object, and literals of the path.
type Found<'v> = Vec<Cow<'v, Value>>;

impl JsonPath {
    /// The values at the path, none where a field is missing. `None`: the path cannot be followed in this value, for
    /// example because a position is behind the end of a list.
    pub(crate) fn find<'v>(&self, value: &'v Value) -> Option<Found<'v>> {
        let mut search = Search { left: FOUND_MAX };
        search.path(self, vec![Cow::Borrowed(value)])
    }
}

struct Search {
    /// The number of values that may still be found.
    left: usize,
}

impl Search {
    fn path<'v>(&mut self, path: &JsonPath, from: Found<'v>) -> Option<Found<'v>> {
        path.0.iter().try_fold(from, |from, node| {
            let found = self.node(node, from)?;
            self.left = self.left.checked_sub(found.len())?;
            Some(found)
        })
    }

    fn node<'v>(&mut self, node: &PathNode, from: Found<'v>) -> Option<Found<'v>> {
        let each = |literal: Value| Some(vec![Cow::Owned(literal); from.len()]);
        match node {
            PathNode::Text(text) => Some(vec![Cow::Owned(text.as_str().into())]),
            PathNode::Int(number) => each((*number).into()),
            PathNode::Float(number) => each((*number).into()),
            PathNode::Bool(flag) => each((*flag).into()),
            PathNode::Keyword => None,
            PathNode::Field(name) => Some(fields(name, from)),
            PathNode::Slice(slice) => slice.entries(from),
            PathNode::All => Some(from.iter().flat_map(members).collect()),
            PathNode::Descent => {
                let mut found = Vec::new();
                self.descend(from, &mut found)?;
                Some(found)
            }
            PathNode::Union(paths) => {
                let mut found = Vec::new();
                for path in paths {
                    found.extend(self.path(path, from.clone())?);
                }
                Some(found)
            }
            PathNode::Having(path) => {
                self.filter(from, |search, entry| {
                    // An entry in which the evaluation fails has no value.
                    let found = search.path(path, vec![entry.clone()]);
                    Some(found.is_some_and(|found| !found.is_empty()))
                })
            }
            PathNode::Comparing(left, operator, right) => self.filter(from, |search, entry| {
                let left = search.path(left, vec![entry.clone()])?;
                if left.is_empty() {
                    return Some(false);
                }
                let right = search.path(right, vec![entry.clone()])?;
                match (&left[..], &right[..]) {
                    (_, []) => Some(false),
                    ([left], [right]) => compares(left, operator, right),
                    _ => None,
                }
            }),
        }
    }

    /// The values and all below them that have members.
    fn descend<'v>(&mut self, from: Found<'v>, found: &mut Found<'v>) -> Option<()> {
        for value in from {
            let below = members(&value);
            self.left = self.left.checked_sub(below.len())?;
            if !below.is_empty() {
                found.push(value);
                self.descend(below, found)?;
            }
        }
        Some(())
    }

    fn filter<'v>(
        &mut self,
        from: Found<'v>,
        mut is_kept: impl FnMut(&mut Self, &Cow<'v, Value>) -> Option<bool>,
    ) -> Option<Found<'v>> {
        let mut found = Vec::new();
        for value in from {
            value.as_array()?;
            for entry in members(&value) {
                if is_kept(self, &entry)? {
                    found.push(entry);
                }
            }
        }
        Some(found)
    }
}

/// The fields of this name.
fn fields<'v>(name: &str, from: Found<'v>) -> Found<'v> {
    let field = |value: Cow<'v, Value>| match value {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        // Literals have no fields.
        Cow::Owned(_) => None,
    };
    from.into_iter().filter_map(field).collect()
}

/// The values within a value. For a text, they are its bytes, as in Go.
fn members<'v>(value: &Cow<'v, Value>) -> Found<'v> {
    match value {
        Cow::Borrowed(Value::Array(list)) => list.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        value => match value.as_str() {
            Some(text) => text.bytes().map(|byte| Cow::Owned(byte.into())).collect(),
            None => Vec::new(),
        },
    }
}

impl Slice {
    /// The entries at the positions. `None`: a value is not a list, or a list does not have the positions.
    fn entries<'v>(self, from: Found<'v>) -> Option<Found<'v>> {
        let mut found = Vec::new();
        for value in from.iter().filter(|value| !value.is_null()) {
            let list = match value {
                Cow::Borrowed(Value::Array(list)) => list,
                _ => return None,
            };
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            let from_end = |at: i64| at.checked_add(length);
            let start = match self.start.unwrap_or(0) {
                start if start < 0 => from_end(start)?,
                start => start,
            };
            let end = match self.end {
                None => length,
                // The last entry is `[-1]`: its end is zero.
                Some(end) if end < 0 || (end == 0 && self.is_single) => from_end(end)?,
                Some(end) => end,
            };
            // An empty range ends the search, as in kubectl: the lists that follow are not read.
            if start == end {
                return Some(found);
            }
            if start >= length {
                return None;
            }
            let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
            let step = match self.step {
                None => 1,
                Some(step) => usize::try_from(step).ok().filter(|step| *step > 0)?,
            };
            found.extend(list.get(range)?.iter().step_by(step).map(Cow::Borrowed));
        }
        Some(found)
    }
}

/// Compares values of one type. `None`: they are of different types, or their type has no such comparison.
fn compares(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let is_float = |value: &Value| value.is_f64() || value.as_i64().is_none();
    let order = match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => match operator {
            "==" | "!=" => Some(left.cmp(right)),
            _ => return None,
        },
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(number), Value::Number(other)) => match (is_float(left), is_float(right)) {
            (false, false) => Some(number.as_i64().cmp(&other.as_i64())),
            (true, true) => number.as_f64().partial_cmp(&other.as_f64()),
            _ => return None,
        },
        _ => return None,
    };
    Some(match operator {
        "==" => order == Some(Ordering::Equal),
        "!=" => order != Some(Ordering::Equal),
        "<" => order == Some(Ordering::Less),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">" => order == Some(Ordering::Greater),
        ">=" => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        _ => return None,
    })
}
