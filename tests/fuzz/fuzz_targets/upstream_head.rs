//! Runs the target `upstream_head` of `src/fuzz/` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir::fuzz::upstream_head(input));
