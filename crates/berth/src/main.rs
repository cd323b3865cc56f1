//! The berth command: parses, wires, runs.
fn main() {}
