//! HTTP/1.1 responses as the client receives them.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::response_head(bytes));
