#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::values::parameter_value(data));
