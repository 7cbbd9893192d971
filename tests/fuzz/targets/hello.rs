#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| redis_dlock::fuzz("hello", data));
