#![no_main]
//! See [`thalweg_fuzz::batches`].

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::batches(data));
