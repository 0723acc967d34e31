#![no_main]
//! See [`thalweg_fuzz::recovery`].

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::recovery(data));
