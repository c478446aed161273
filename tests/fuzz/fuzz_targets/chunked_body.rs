//! Runs the target `chunked_body` of `src/fuzz/` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| weir::fuzz::chunked_body(input));
