//! Runs the target `request_head` of `src/fuzz/` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir::fuzz::request_head(input));
