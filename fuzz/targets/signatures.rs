//! The fields of a signed request.

#![no_main]

#[path = "../laws.rs"]
#[allow(dead_code, reason = "each target has one of them")]
mod laws;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| laws::signatures(bytes));
