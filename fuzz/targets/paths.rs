//! Normalization and matching of request paths.

#![no_main]

#[path = "../laws.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod laws;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| laws::paths(bytes));
