//! The reading of a journal up to its last whole record. The bytes behind it are a torn last group, unless a later
//! record shows that what is missing was durable.

use std::sync::Arc;

use super::files::{journal_name, journal_number, list};
use super::header::{HEADER_BYTES, HeaderBytes, JournalHeader};
use super::record::{KIND_LAST, RECORD_ALIGN, StoredRecord};
use super::state::JournalState;
use crate::disk::{Disk, DiskFile, FileKind};
use crate::error::{Error, Result};
use crate::format::FORMAT_VERSION;
use crate::format::fields::Fields;
use crate::format::manifest::Manifest;
use crate::page::page_up;
use crate::seeded;

/// Range of sequences that a valid record behind damage can have, which bounds the search.
const SEQUENCES_SEARCHED: u64 = 1 << 32;

/// The journal that the store had before this open, read and not yet continued.
pub(crate) struct OldJournal {
    /// Number of the journal; 0 if there is none because the store is new.
    pub(super) number: u64,
    /// Numbers of older journals, which a crash left behind.
    pub(super) older: Vec<u64>,
    pub(super) read: Read,
}

impl OldJournal {
    /// Reads the newest journal. A store without one gets an empty one if it is `new`.
    pub(crate) fn read(disk: &dyn Disk, manifest: Manifest, new: bool) -> Result<Self> {
        let mut older: Vec<u64> = list(disk)?.iter().filter_map(|name| journal_number(name)).collect();
        older.sort_unstable();
        match older.pop() {
            Some(number) => Ok(Self { number, older, read: read_journal(disk, number, manifest)? }),
            None if new => Ok(Self { number: 0, older, read: Read { next_sequence: 1, ..Read::default() } }),
            None => Err(Error::damaged(&disk.path(""), "it has no journal")),
        }
    }

    pub(crate) fn state(&self) -> &JournalState {
        &self.read.state
    }

    /// Sequence of the journal's last whole record.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.read.next_sequence - 1
    }

    /// Sequence of the last record that the journal was made with.
    pub(crate) fn made_sequence(&self) -> u64 {
        self.read.made_sequence
    }

    /// Bytes of a torn last group that are cut.
    pub(crate) fn cut_bytes(&self) -> u64 {
        self.read.cut_bytes
    }

    /// Name of the journal if its header was damaged; its records told what the header had said.
    pub(crate) fn without_header(&self) -> Option<String> {
        self.read.lacks_header.then(|| journal_name(self.number))
    }
}

/// Contents of a journal.
#[derive(Default)]
pub(super) struct Read {
    pub(super) state: JournalState,
    pub(super) next_sequence: u64,
    pub(super) cut_bytes: u64,
    /// Position behind the last record.
    pub(super) end: u64,
    /// Length of the file.
    pub(super) size: u64,
    /// Whether the header is damaged; the first record then tells where the journal begins.
    pub(super) lacks_header: bool,
    /// Sequence of the last record that it was made with, as its header says.
    made_sequence: u64,
}

impl Read {
    /// Gives back the space behind the records.
    pub(super) fn give_back_ahead(&self, disk: &dyn Disk, name: &str) -> Result<()> {
        let failed = |e| Error::io("punch", &disk.path(name), e);
        let ahead = page_up(self.end)..page_up(self.size);
        if ahead.is_empty() {
            return Ok(());
        }
        disk.open(name, 0, FileKind::Pages).and_then(|file| file.discard(ahead)).map_err(failed)
    }
}

pub(super) fn read_journal(disk: &dyn Disk, number: u64, manifest: Manifest) -> Result<Read> {
    let name = journal_name(number);
    let path = disk.path(&name);
    let failed = |e| Error::io("read", &path, e);
    let file: Arc<dyn DiskFile> = disk.open(&name, 0, FileKind::Pages).map_err(failed)?;
    let mut bytes = Vec::new();
    let file_bytes = usize::try_from(file.size_bytes().map_err(failed)?).unwrap_or(usize::MAX);
    file.read(0, file_bytes, &mut bytes).map_err(failed)?;
    let damaged = |reason: String| Error::damaged(&path, reason);
    let Front { next_sequence, made_sequence, lacks_header } =
        front(&bytes, number, manifest).map_err(|what| match what {
            HeaderBytes::Other(found) => {
                Error::UnsupportedFormat { path: path.clone(), found, supported: FORMAT_VERSION }
            }
            HeaderBytes::Damaged(reason) => damaged(reason.to_owned()),
            HeaderBytes::Header(_) => {
                damaged("it belongs to another store, or has another number".to_owned())
            }
        })?;
    let size = bytes.len() as u64;
    let mut read = Read { next_sequence, size, made_sequence, lacks_header, ..Read::default() };
    let mut position = HEADER_BYTES;
    while let Some(stored) =
        StoredRecord::decode(&bytes[position..]).filter(|s| s.sequence == read.next_sequence)
    {
        let place = format!("record {} at byte {position}", stored.sequence);
        let Some(record) = stored.record() else {
            if stored.kind <= KIND_LAST {
                return Err(damaged(format!("{place} is too short or too long for its kind")));
            }
            // The checksum is right, so another program promised something that must not be forgotten.
            let path = format!("{path}, the kind of {place},");
            let (found, supported) = (u32::from(stored.kind), u32::from(KIND_LAST));
            return Err(Error::UnsupportedFormat { path, found, supported });
        };
        if !read.state.apply(&record) {
            return Err(damaged(format!("{place} contradicts those before it")));
        }
        read.next_sequence += 1;
        position += stored.size;
    }
    // Behind the last good record lies nothing, the rest of a group that was not synced, or damage. It is damage if a
    // later record shows that what is missing was durable.
    let wanted = read.next_sequence;
    let rest = &bytes[position..];
    if records_behind(rest, wanted).any(|stored| stored.sequence > wanted && stored.proven >= wanted)
        && !seeded!(JournalCut)
    {
        return Err(damaged(format!("record {wanted} at byte {position} was durable and cannot be read")));
    }
    let torn = rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    read.cut_bytes = torn as u64;
    read.end = position as u64;
    Ok(read)
}

/// Finds valid records behind the last one that could be read, of the sequence that is missing or a later one.
pub(super) fn records_behind(rest: &[u8], wanted: u64) -> impl Iterator<Item = StoredRecord<'_>> {
    let is_later = move |start: &usize| {
        let later = Fields(rest.get(start + 8..).unwrap_or_default()).u64();
        later.is_some_and(|sequence| sequence >= wanted && sequence - wanted <= SEQUENCES_SEARCHED)
    };
    let starts = (0..rest.len()).step_by(RECORD_ALIGN).filter(is_later);
    starts.filter_map(|start| StoredRecord::decode(&rest[start..]))
}

/// The beginning of a journal.
pub(super) struct Front {
    /// Sequence of the journal's first record.
    pub(super) next_sequence: u64,
    /// Sequence of the last record that the journal was made with; 0 if the header is damaged.
    pub(super) made_sequence: u64,
    lacks_header: bool,
}

/// Reads the beginning of a journal. Its header can be derived: records have checksums of their own, so a damaged header
/// costs nothing as long as the first record is there.
pub(super) fn front(bytes: &[u8], number: u64, manifest: Manifest) -> Result<Front, HeaderBytes> {
    match JournalHeader::decode(bytes) {
        HeaderBytes::Header(header) if (header.number, header.manifest.store) == (number, manifest.store) => {
            let (next_sequence, made_sequence) = (header.first_sequence, header.made_sequence);
            Ok(Front { next_sequence, made_sequence, lacks_header: false })
        }
        HeaderBytes::Damaged(reason) => {
            let first = bytes
                .get(HEADER_BYTES..)
                .and_then(StoredRecord::decode)
                .ok_or(HeaderBytes::Damaged(reason))?;
            Ok(Front { next_sequence: first.sequence, made_sequence: 0, lacks_header: true })
        }
        other => Err(other),
    }
}
