//! Device selectors: compiling and evaluating any text ends, without a panic.

#![no_main]

#[path = "../../scheduler/cel/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|text: &str| check::check(text));
