//! The parts of a store that a blow hit, and those of them that a crash could have left just so.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use walrus_log::LogId;

use super::subject::{BLOCK, PAGE, Place, StoredBatch, Structure, Subject, long_number};
use crate::rot::Contents;

/// The damage of a case.
pub(super) struct Hits {
    pub(super) structures: BTreeSet<Structure>,
    /// Offsets whose batches, or the headers in front of them, are not as they were.
    pub(super) offsets: BTreeMap<LogId, BTreeMap<u64, Hit>>,
    /// The last records of the journal look as if they had never been written, and nothing that is left vouches for them.
    pub(super) may_forget: bool,
}

/// The state of a batch that was hit.
#[derive(Clone)]
pub(super) struct Hit {
    pub(super) file: String,
    /// First slot of its block there.
    pub(super) slot: u32,
    /// Whether the place may look as before the batch was written, so that nothing tells the two apart.
    pub(super) is_unwritten: bool,
}

impl Hits {
    pub(super) fn new(subject: &Subject, contents: &Contents) -> Self {
        let now = Now { subject, contents };
        let hit = subject.places.iter().filter(|place| now.is_hit(&place.file, &place.range));
        let structures = hit.map(|place| place.structure).collect();
        let mut offsets: BTreeMap<LogId, BTreeMap<u64, Hit>> = BTreeMap::new();
        for StoredBatch { log, offsets: of_batch, file, header, bytes } in &subject.batches {
            if now.is_hit(file, header) || now.is_hit(file, bytes) {
                let is_unwritten = now.is_unwritten(file, header) && now.is_unwritten(file, bytes);
                let hit = Hit { file: file.clone(), slot: (header.start / BLOCK) as u32, is_unwritten };
                offsets.entry(*log).or_default().extend(of_batch.clone().map(|at| (at, hit.clone())));
            }
        }
        Self { structures, offsets, may_forget: !subject.is_closed && now.may_forget() }
    }
}

/// A store that was hit, beside the store that it was.
struct Now<'a> {
    subject: &'a Subject,
    contents: &'a Contents,
}

impl Now<'_> {
    fn is_hit(&self, file: &str, range: &Range<usize>) -> bool {
        let now = self.contents.get(file).and_then(|bytes| bytes.get(range.clone()));
        now != Some(&self.subject.contents[file][range.clone()])
    }

    /// Whether each page of a range is as it was, or as it was before, or zeros; or the whole file is gone.
    fn is_unwritten(&self, file: &str, range: &Range<usize>) -> bool {
        let Some(bytes) = self.contents.get(file).filter(|bytes| !bytes.is_empty()) else { return true };
        let mut pages = (range.start / PAGE * PAGE..range.end).step_by(PAGE);
        pages.all(|start| {
            let page = start..(start + PAGE).min(self.subject.contents[file].len());
            let Some(now) = bytes.get(page.clone()) else { return false };
            now == &self.subject.contents[file][page.clone()]
                || now.iter().all(|byte| *byte == 0)
                || now == self.subject.before(file, page)
        })
    }

    fn may_forget(&self) -> bool {
        let is_record = |place: &&Place| place.structure == Structure::JournalRecord;
        let is_whole = |place: &&Place| !self.is_hit(&place.file, &place.range);
        let lost: Vec<&Place> = self.subject.places.iter().filter(is_record).skip_while(is_whole).collect();
        let Some(first) = lost.first() else { return false };
        let sequence = long_number(&self.subject.contents[&first.file], first.range.start + 8);
        let looks_unwritten = |place: &&Place| {
            self.is_hit(&place.file, &place.range) && self.is_unwritten(&place.file, &place.range)
        };
        lost.iter().all(looks_unwritten) && sequence > self.vouched_for()
    }

    /// The last record of the journal that something undamaged names as durable.
    fn vouched_for(&self) -> u64 {
        let names = |place: &Place| {
            // The fields are those of docs/internals/format.md.
            let field = match place.structure {
                Structure::End | Structure::JournalHeader => 48,
                Structure::BlockHeader => 104,
                _ => return None,
            };
            let is_whole = !self.is_hit(&place.file, &place.range);
            is_whole.then(|| long_number(&self.subject.contents[&place.file], place.range.start + field))
        };
        self.subject.places.iter().filter_map(names).max().unwrap_or(0)
    }
}
