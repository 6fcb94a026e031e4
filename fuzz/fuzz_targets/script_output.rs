#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::answers::script_output(data));
