//! The path of a request, in any spelling.

#![no_main]

#[path = "../laws.rs"]
#[allow(dead_code, reason = "each target has one of them")]
mod laws;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| laws::paths(bytes));
