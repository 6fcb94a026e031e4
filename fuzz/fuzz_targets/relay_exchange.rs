#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::relay_exchange(data));
