//! Ready batches: what is measured is the broker, not the making of batches.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use walrus_bench_sample::Payload;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef};

/// Different batches that take turns.
const POOL: usize = 16;
/// Where a batch has its checksum, what that covers, its producer, and its records.
const CRC_AT: usize = 17;
const COVERED_FROM: usize = 21;
const PRODUCER_AT: usize = 43;
const RECORDS_AT: usize = 61;
/// What compressed records consist of.
const WORDS: [&str; 8] =
    ["departure", "arrival", "delayed", "cancelled", "boarding", "runway", "gate", "carrier"];

/// How the records of a batch are compressed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Codec {
    None,
    Lz4,
}

/// Batches of one producer, each of which gets its sequence as it is sent.
#[derive(Clone)]
pub(crate) struct Ready {
    pool: Vec<Vec<u8>>,
    records: u32,
}

impl Ready {
    /// Batches of `records` records of `record_bytes` each. Compressed ones hold text, and others bytes that do not compress.
    pub(crate) fn new(codec: Codec, records: usize, record_bytes: usize, timestamp_ms: i64) -> Result<Self> {
        let mut payload = Payload::with_pool(record_bytes, records * POOL);
        let mut builder = BatchBuilder::new();
        let mut pool = Vec::with_capacity(POOL);
        for number in 0..POOL {
            // The fields of a producer must be there; what they say is written over.
            builder.producer(ProducerRef { id: 0, epoch: 0, base_sequence: 0 });
            for record in 0..records {
                let bytes = payload.record((number * records + record) as u64);
                let text = (codec == Codec::Lz4).then(|| text(bytes));
                builder.push(None, Some(text.as_deref().unwrap_or(bytes)), timestamp_ms, &[]);
            }
            let mut bytes = Vec::new();
            let batch = builder.build_in(&mut bytes)?;
            pool.push(if codec == Codec::Lz4 { batch.compressed(3)? } else { bytes });
        }
        Ok(Self { pool, records: u32::try_from(records)? })
    }

    /// The bytes of a batch; all of them have about as many.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.pool[0].len()
    }

    /// Batch `number` of a producer, with its sequence.
    pub(crate) fn batch(&mut self, producer: (i64, i16), number: u64) -> &[u8] {
        let sequence = sequence(number, self.records);
        let place = place(number);
        let batch = &mut self.pool[place];
        batch[PRODUCER_AT..PRODUCER_AT + 8].copy_from_slice(&producer.0.to_be_bytes());
        batch[PRODUCER_AT + 8..PRODUCER_AT + 10].copy_from_slice(&producer.1.to_be_bytes());
        batch[PRODUCER_AT + 10..PRODUCER_AT + 14].copy_from_slice(&sequence.to_be_bytes());
        let crc = crc_fast::crc32_iscsi(&batch[COVERED_FROM..]);
        batch[CRC_AT..COVERED_FROM].copy_from_slice(&crc.to_be_bytes());
        batch
    }

    /// Checks that a stored batch is number `number` of its producer, byte for byte.
    pub(crate) fn check(&self, stored: &Batch<'_>, number: u64) -> Result<()> {
        let found = stored.producer().map(|producer| producer.base_sequence);
        let expected = sequence(number, self.records);
        ensure!(found == Some(expected), "found sequence {found:?}, and {expected} was sent");
        let is_same = stored.bytes()[RECORDS_AT..] == self.pool[place(number)][RECORDS_AT..];
        ensure!(is_same, "batch {number} of a producer is not what was sent");
        Ok(())
    }
}

/// Sequences count records, and begin anew behind 2^31.
fn sequence(number: u64, records: u32) -> i32 {
    ((number * u64::from(records)) % (1 << 31)) as i32
}

fn place(number: u64) -> usize {
    usize::try_from(number % POOL as u64).unwrap_or(0)
}

/// Text of as many bytes as there are here, which choose its words.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 16);
    for byte in bytes {
        text.extend_from_slice(WORDS[usize::from(byte % 8)].as_bytes());
        text.push(b' ');
        if text.len() >= bytes.len() {
            break;
        }
    }
    text.truncate(bytes.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_its_sequence_and_its_checksum_and_is_known_again() {
        for codec in [Codec::None, Codec::Lz4] {
            let mut ready = Ready::new(codec, 10, 100, 1).expect("batches");
            let number = 3 + 2 * POOL as u64;
            let bytes = ready.batch((42, 7), number).to_vec();
            let (batch, rest) = Batch::parse(&bytes).expect("its checksum is right");
            assert!(rest.is_empty());
            assert_eq!(
                batch.producer(),
                Some(ProducerRef {
                    id: 42,
                    epoch: 7,
                    base_sequence: i32::try_from(number * 10).expect("few")
                })
            );
            assert_eq!(batch.is_compressed(), codec == Codec::Lz4);
            ready.check(&batch, number).expect("what was sent");
            ready.check(&batch, number + POOL as u64).expect_err("another sequence");
            let mut other = bytes.clone();
            *other.last_mut().expect("bytes") ^= 1;
            let crc = crc_fast::crc32_iscsi(&other[COVERED_FROM..]).to_be_bytes();
            other[CRC_AT..COVERED_FROM].copy_from_slice(&crc);
            let (batch, _) = Batch::parse(&other).expect("its checksum is right");
            ready.check(&batch, number).expect_err("another byte");
        }
    }

    #[test]
    fn sequences_begin_anew_behind_the_greatest_one() {
        assert_eq!(sequence(1 << 31, 100), 0);
        assert_eq!(sequence((1 << 31) / 100, 100), i32::MAX - 47);
    }
}
