//! Fuzzing of the readers of journals and END: any bytes as they are, and behind checksums that were made right, so
//! that the code behind the checksums is reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::end::{self, END_NAME, End, EndFile, Page};
use super::files::journal_name;
use super::header::{HEADER_BYTES, HeaderBytes, JournalHeader};
use super::read::read_journal;
use super::record::{StoredRecord, fuzz_seal};
use super::{JournalState, salvage};
use crate::disk::{Disk, SimulatedDisk, TailKind};
use crate::format::checksum_around;
use crate::format::fields::Fields;
use crate::format::manifest::Manifest;
use crate::page::PAGE_BYTES;

/// Position of the checksum in the header of a journal and in a page of END.
const CHECKSUM_AT: usize = 12;

/// Decodes records back to back, and checks that known ones are the same when they are encoded again.
pub(crate) fn records(bytes: &[u8]) {
    let mut state = JournalState::default();
    let mut rest = bytes.to_vec();
    loop {
        fuzz_seal(&mut rest);
        let Some(stored) = StoredRecord::decode(&rest) else { return };
        if let Some(record) = stored.record() {
            let mut again = Vec::new();
            record.encode(stored.sequence, stored.proven, &mut again);
            assert_eq!(StoredRecord::decode(&again).and_then(|stored| stored.record()), Some(record.clone()));
            state.apply(&record);
        }
        let size = stored.size;
        rest.drain(..size);
    }
}

/// Reads a journal that begins with these bytes as a start does and, where that refuses, as a repair does.
pub(crate) fn header(bytes: &[u8]) {
    journal(bytes);
    let mut right = bytes.to_vec();
    let Some(front) = right.get_mut(..HEADER_BYTES) else { return };
    let crc = checksum_around(front, CHECKSUM_AT);
    front[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
    if let HeaderBytes::Header(header) = JournalHeader::decode(&right) {
        assert_eq!(JournalHeader::decode(&header.encode()), HeaderBytes::Header(header));
    }
    journal(&right);
    let mut position = HEADER_BYTES;
    while position < right.len() {
        fuzz_seal(&mut right[position..]);
        let Some(stored) = StoredRecord::decode(&right[position..]) else { break };
        position += stored.size;
    }
    journal(&right);
}

fn journal(bytes: &[u8]) {
    let decoded = match JournalHeader::decode(bytes) {
        HeaderBytes::Header(header) => Some((header.number, header.manifest)),
        HeaderBytes::Other(_) | HeaderBytes::Damaged(_) => None,
    };
    let (number, manifest) = decoded
        .unwrap_or((1, Manifest { store: uuid::Uuid::nil(), block_bytes: 1 << 20, blocks_per_file: 100 }));
    let files = BTreeMap::from([(journal_name(number), bytes.to_vec())]);
    let disk = SimulatedDisk::from_contents(TailKind::Buffered, &files);
    match read_journal(&disk, number, manifest) {
        Ok(read) => {
            assert!(read.next_sequence > 0, "sequences begin at 1");
            assert!(read.end + read.cut_bytes <= bytes.len() as u64);
        }
        Err(refused) => {
            let salvaged = salvage(&disk, manifest);
            assert!(salvaged.is_err() || salvaged.is_ok_and(|it| it.damage.is_some()), "{refused}");
        }
    }
}

/// Reads END with two pages that begin with these halves, writes it, and reads it again.
pub(crate) fn end(bytes: &[u8]) {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let pages = [first, second].map(|half| {
        let mut page = half[..half.len().min(PAGE_BYTES as usize)].to_vec();
        page.resize(PAGE_BYTES as usize, 0);
        page
    });
    file_of_end(&pages);
    file_of_end(&pages.map(|mut page| {
        let crc = checksum_around(&page, CHECKSUM_AT);
        page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }));
}

fn file_of_end(pages: &[Vec<u8>; 2]) {
    let store = Fields(&pages[0][16..]).uuid().unwrap_or_default();
    for page in pages {
        if let Page::End(turn, end) = end::decode(page, store) {
            let again = end::decode(&end::encode(store, turn, end), store);
            assert!(matches!(again, Page::End(of_page, same) if (of_page, same) == (turn, end)));
        }
    }
    let files = BTreeMap::from([(END_NAME.to_owned(), pages.concat())]);
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::from_contents(TailKind::Buffered, &files));
    let Ok(read) = EndFile::read(&disk, store) else { return };
    let next = End { number: 7, sequence: 9, is_closed: true, boot: None };
    read.file.write(|| next);
    assert_eq!(
        EndFile::read(&disk, store).expect("both pages are ours").end,
        Some(next),
        "the last word counts"
    );
}
