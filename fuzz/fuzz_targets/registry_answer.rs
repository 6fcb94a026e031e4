#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::registry_answer(data));
