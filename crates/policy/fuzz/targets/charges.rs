//! Charges of request targets, against models of what origins spend on them.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::charges(bytes));
