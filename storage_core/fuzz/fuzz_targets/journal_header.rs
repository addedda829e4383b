#![no_main]

use walrus_log::fuzzing::Decoder;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| Decoder::JournalHeader.run(bytes));
