//! Runs the target `webhook` of `src/fuzz/` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir::fuzz::webhook(input));
