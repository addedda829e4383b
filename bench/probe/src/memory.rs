//! The least that storing a record without a sync costs: its bytes copied into memory that is there, and a CRC-32C.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use crc_fast::{CrcAlgorithm, checksum};
use walrus_bench_sample::{Payload, Sample, closed_loop};

const RECORD_BYTES: usize = 1024;
/// Larger than the caches, as a log is.
const MEMORY_BYTES: usize = 256 << 20;
/// Timed together, because reading the clock costs a tenth of one copy.
const RECORDS_PER_CALL: u64 = 1024;

/// Copy and checksum of one record.
pub(crate) fn record_copy(duration: Duration) -> Result<Sample> {
    let mut memory = vec![1_u8; MEMORY_BYTES]; // not zeros: those would be pages that are not there yet
    let mut payload = Payload::new(RECORD_BYTES);
    let places = (MEMORY_BYTES / RECORD_BYTES) as u64;
    let latencies = closed_loop(duration, |call| {
        for number in call * RECORDS_PER_CALL..(call + 1) * RECORDS_PER_CALL {
            let at = usize::try_from(number % places)? * RECORD_BYTES;
            let place = &mut memory[at..at + RECORD_BYTES];
            place.copy_from_slice(payload.record(number));
            black_box(checksum(CrcAlgorithm::Crc32Iscsi, place));
        }
        Ok(())
    })?;
    let nanos = 1e9 / (latencies.per_second() * RECORDS_PER_CALL as f64);
    Ok(Sample::new(nanos, "ns/record"))
}
