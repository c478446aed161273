//! Runs the target `cache_control` of `src/fuzz/` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir::fuzz::cache_control(input));
