#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| walrus_broker::fuzzing::kafka_frames(bytes));
