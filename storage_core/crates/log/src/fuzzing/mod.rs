//! The entry points of the fuzz targets, through which a test replays their corpus too. Each decoder takes any bytes, first
//! as they are, then with the right checksum, so that the code behind the checksum is reached. Values that are decoded
//! and encoded again must stay the same.

mod block;

use crate::batch::Batch;
use crate::format::block_header::{BlockHeader, HeaderPage};
use crate::format::footer::{Footer, TRAILER_BYTES};
use crate::format::manifest::Manifest;
use crate::format::{checksum, checksum_around};
use crate::producers::ProducerTable;
use crate::resources::journal::fuzzing as journal;

/// A decoder of bytes that come from disks and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// A Kafka batch and its records.
    Batch,
    /// The header page of a block.
    BlockHeader,
    /// The footer of a block.
    Footer,
    /// The store's manifest.
    Manifest,
    /// Records of a journal, back to back.
    Journal,
    /// A journal from its header on.
    JournalHeader,
    /// The two pages of the file END, each of which gets half of the bytes.
    End,
    /// The data of a block behind its header, after 10 bytes that choose how it is walked.
    Block,
    /// A producer table, as footers and journals hold it.
    Producers,
}

/// All decoders, by the name of their fuzz target.
pub const DECODERS: [(&str, Decoder); 9] = [
    ("batch", Decoder::Batch),
    ("block_header", Decoder::BlockHeader),
    ("footer", Decoder::Footer),
    ("manifest", Decoder::Manifest),
    ("journal", Decoder::Journal),
    ("journal_header", Decoder::JournalHeader),
    ("end", Decoder::End),
    ("block", Decoder::Block),
    ("producers", Decoder::Producers),
];

impl Decoder {
    /// Decodes the bytes, and panics if a decoder gives a wrong answer.
    pub fn run(self, bytes: &[u8]) {
        match self {
            Self::Batch => batches(bytes),
            Self::BlockHeader => {
                block_header(bytes);
                let mut right = bytes.to_vec();
                if right.len() >= 16 {
                    let crc = checksum_around(&right, 12);
                    right[12..16].copy_from_slice(&crc.to_le_bytes());
                    block_header(&right);
                }
            }
            Self::Footer => footer(bytes),
            Self::Manifest => {
                with_checksum(
                    bytes,
                    bytes.len().saturating_sub(4),
                    0..bytes.len().saturating_sub(4),
                    manifest,
                );
            }
            Self::Journal => journal::records(bytes),
            Self::JournalHeader => journal::header(bytes),
            Self::End => journal::end(bytes),
            Self::Block => block::data(bytes),
            Self::Producers => producers(bytes),
        }
    }
}

/// Calls `decode` with the bytes, and again with the checksum of `range` written at `at`.
fn with_checksum(bytes: &[u8], at: usize, range: std::ops::Range<usize>, decode: impl Fn(&[u8])) {
    decode(bytes);
    if let Some(covered) = bytes.get(range) {
        let crc = checksum(covered);
        let mut right = bytes.to_vec();
        if let Some(place) = right.get_mut(at..at + 4) {
            place.copy_from_slice(&crc.to_le_bytes());
            decode(&right);
        }
    }
}

fn batches(bytes: &[u8]) {
    parse_batch(bytes);
    // The checksum covers everything from the attributes on.
    if let Some(covered) = bytes.get(21..) {
        let crc = checksum(covered);
        let mut right = bytes.to_vec();
        right[17..21].copy_from_slice(&crc.to_be_bytes());
        parse_batch(&right);
    }
}

fn parse_batch(bytes: &[u8]) {
    let Ok((batch, rest)) = Batch::parse(bytes) else { return };
    assert_eq!(batch.bytes().len() + rest.len(), bytes.len());
    if batch.is_compressed()
        && let Ok(opened) = batch.open()
    {
        let are_whole = batch.header().records_in(&opened).all(|record| record.is_ok());
        assert_eq!(batch.walk_records().is_ok(), are_whole, "both ways see the same");
    }
    let records: Vec<_> = batch.records().collect();
    if batch.verify_records().is_ok() && !batch.is_compressed() {
        assert_eq!(records.len(), batch.header().records_left() as usize);
        assert!(records.iter().all(Result::is_ok));
    }
}

fn block_header(bytes: &[u8]) {
    if let HeaderPage::Header(header) = BlockHeader::decode(bytes) {
        assert_eq!(BlockHeader::decode(&header.encode()), HeaderPage::Header(header));
    }
}

fn footer(bytes: &[u8]) {
    decode_footer(bytes);
    let Some(trailer) = bytes.len().checked_sub(TRAILER_BYTES as usize) else { return };
    let mut right = bytes.to_vec();
    let place = trailer + 12..trailer + 16;
    right[place.clone()].fill(0);
    let crc = checksum(&right);
    right[place].copy_from_slice(&crc.to_le_bytes());
    decode_footer(&right);
}

fn decode_footer(bytes: &[u8]) {
    // The size is a field of 32 bits, whatever the page holds.
    if let Some(announced) = Footer::announced_bytes(bytes) {
        assert!(announced <= u64::from(u32::MAX));
    }
    if let Some(footer) = Footer::decode(bytes) {
        assert!(footer.entries.len() * 20 <= bytes.len());
        assert!(footer.entries.iter().all(|entry| entry.offset >= footer.base_offset));
    }
}

fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode(), bytes);
    }
}

fn producers(bytes: &[u8]) {
    if let Some(table) = ProducerTable::decode(bytes) {
        assert_eq!(ProducerTable::decode(&table.encode()), Some(table));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_random_bytes_break_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            for (_, decoder) in DECODERS {
                decoder.run(&bytes);
            }
        }
    }

    #[test]
    fn no_input_that_fuzzing_found_worth_keeping_breaks_a_decoder() {
        for (name, decoder) in DECODERS {
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
            let files = fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
            let mut count = 0;
            for file in files {
                let bytes = fs::read(file.unwrap().path()).unwrap();
                decoder.run(&bytes);
                // The fuzzer would also come to inputs that are cut off.
                (0..bytes.len()).step_by(bytes.len() / 16 + 1).for_each(|end| decoder.run(&bytes[..end]));
                count += 1;
            }
            assert!(count > 0, "{} is empty", corpus.display());
        }
    }
}
