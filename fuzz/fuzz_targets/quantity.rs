//! Quantities: parsing any text ends, without a panic, and its canonical form is the same amount.

#![no_main]
#![allow(dead_code)]

#[path = "../../control-plane/apiserver/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::quantity(bytes));
