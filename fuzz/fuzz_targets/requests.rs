#![no_main]
//! See [`thalweg_fuzz::requests`].

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::requests(data));
