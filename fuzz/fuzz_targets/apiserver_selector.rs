//! The API server: parsing any selector of labels or fields ends, without a panic, and lists are narrowed by it.

#![no_main]
#![allow(dead_code)]

#[path = "../../control-plane/apiserver/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::selector(bytes));
