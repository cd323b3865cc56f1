//! The API server: parsing any selector, quantity or continue token ends, without a panic.

#![no_main]
#![allow(dead_code)]

#[path = "../../crates/apiserver/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::query(bytes));
