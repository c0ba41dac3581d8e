//! Fields that decide what the cache stores and reuses.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::cache(bytes));
