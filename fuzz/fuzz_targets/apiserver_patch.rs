//! The API server: applying any patch ends, without a panic.

#![no_main]
#![allow(dead_code)]

#[path = "../../control-plane/apiserver/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::patch(bytes));
