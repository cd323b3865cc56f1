//! The API server: any continue token is refused, or leads to the end of the list.

#![no_main]
#![allow(dead_code)]

#[path = "../../control-plane/apiserver/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::continue_token(bytes));
