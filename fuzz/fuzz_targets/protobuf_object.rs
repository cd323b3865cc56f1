//! Protobuf: decoding any bytes ends, without a panic.

#![no_main]

#[path = "../../control-plane/protobuf/tests/fuzz/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::check(bytes));
