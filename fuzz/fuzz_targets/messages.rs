#![no_main]
//! See [`thalweg_fuzz::messages`].

libfuzzer_sys::fuzz_target!(|data: &[u8]| thalweg_fuzz::messages(data));
