//! The limits of an expression and its evaluation.

/// The longest expression, in bytes, as the API allows it.
pub const EXPRESSION_LENGTH_MAX: usize = 10 * 1024;

/// The most that one evaluation may cost, and the largest estimate that the API server accepts, in CEL cost units. A
/// unit is the cost of reading a field.
pub const COST_MAX: u64 = 1_000_000;

/// The depth to which brackets, operators and selections may be nested.
pub const DEPTH_MAX: u16 = 250;

/// The depth to which a tree may be once its macros were expanded.
pub(crate) const EXPANDED_DEPTH_MAX: usize = 4 * DEPTH_MAX as usize;

/// The most nodes of a tree once its macros were expanded. `sortBy`, `optMap` and `optFlatMap` copy their operand.
pub(crate) const NODES_MAX: usize = 64 * 1024;

/// The most parts of a type, such as the eight of `map(string, list(map(int, list(bool))))`.
pub(crate) const TYPE_PARTS_MAX: usize = 1024;

/// The most errors that are reported for one expression.
pub(crate) const ERRORS_MAX: usize = 100;

/// The stack that reading, checking and evaluating an expression gets.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// The largest text, in bytes, and the longest list that an expression can form. Its estimate of costs does not cover
/// all functions that form values.
pub(crate) const VALUE_SIZE_MAX: usize = 4 << 20;

/// The memory that a regular expression may need, in bytes.
pub(crate) const REGEX_SIZE_MAX: usize = 20 << 20;

/// The depth to which a regular expression may be nested after its translation, which adds a group for each repetition.
pub(crate) const REGEX_NESTING_MAX: u32 = 1000;
