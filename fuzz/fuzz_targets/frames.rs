#![no_main]
//! See [`thalweg_fuzz::frames`].

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::frames(data));
