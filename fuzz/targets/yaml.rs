//! The configuration file.

#![no_main]

#[path = "../invariants/config.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::yaml(bytes));
