//! Pages of records that an owner has read ahead of its cursors, so that a `GET` is not a read of the log. There are a few for
//! all cursors of one owner; the least recently used ones are dropped.

use std::collections::VecDeque;

use bytes::Bytes;
use walrus_log::batch::Batch;

use super::progress::CursorKey;
use crate::node::error::{Error, Result};
use crate::reading::reader::ReadPage;

/// Limit on the bytes that the pages of one owner keep; the newest page stays whatever its size.
const BYTES_MAX: usize = 8 << 20;

/// Values of consecutive entries of one partition.
#[derive(Debug)]
pub(super) struct Page {
    key: CursorKey,
    /// First offset that the page answers for.
    start: u64,
    /// First offset behind those that the page answers for.
    end: u64,
    /// Offsets and values, ascending; offsets may be missing where the log was compacted.
    entries: Vec<(u64, Bytes)>,
    bytes: usize,
}

/// What is known about an offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The value of the entry at the offset.
    Entry(Bytes),
    /// No entry has this offset; the next one has the offset `exists` at least.
    Absent { exists: u64 },
    /// No page answers for the offset.
    Unread,
}

/// The pages of one owner, the most recently used one first.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: VecDeque<Page>,
}

impl Page {
    /// The entries of `page` from `start`, up to the end of the batch that fills the page. A record without a value is an
    /// entry without bytes.
    pub(super) fn open(key: CursorKey, start: u64, page: &ReadPage) -> Result<Self> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for stored in &page.pieces {
            // The bytes are copied, for those of an answer count against the budget as long as anybody has them.
            let stored = &Bytes::copy_from_slice(stored);
            let mut rest = &stored[..];
            while !rest.is_empty() {
                let (batch, behind) = Batch::parse(rest).map_err(unreadable)?;
                // Compressed records may be a thousand times as large as the page that was read.
                if bytes > BYTES_MAX {
                    return Ok(Self { key, start, end: batch.base_offset(), entries, bytes });
                }
                rest = behind;
                let opened = batch.open_shared(stored).map_err(unreadable)?;
                bytes += opened.len();
                for record in batch.header().records_in(&opened) {
                    let record = record.map_err(unreadable)?;
                    if record.offset >= start {
                        let value = record.value.map_or(Bytes::new(), |value| opened.slice_ref(value));
                        entries.push((record.offset, value));
                    }
                }
            }
        }
        Ok(Self { key, start, end: page.next_offset, entries, bytes })
    }
}

fn unreadable(problem: impl std::fmt::Display) -> Error {
    Error::InvalidBatch { problem: format!("GET cannot read it: {problem}; read the topic through gRPC") }
}

impl Pages {
    pub(super) fn find(&mut self, key: CursorKey, offset: u64) -> Lookup {
        let covers = |page: &Page| page.key == key && (page.start..page.end).contains(&offset);
        let Some(at) = self.pages.iter().position(covers) else { return Lookup::Unread };
        if at > 0
            && let Some(page) = self.pages.remove(at)
        {
            self.pages.push_front(page);
        }
        let page = &self.pages[0];
        match page.entries.binary_search_by_key(&offset, |(offset, _)| *offset) {
            Ok(index) => Lookup::Entry(page.entries[index].1.clone()),
            Err(index) => {
                Lookup::Absent { exists: page.entries.get(index).map_or(page.end, |(offset, _)| *offset) }
            }
        }
    }

    pub(super) fn insert(&mut self, page: Page) {
        self.pages.push_front(page);
        let mut bytes: usize = self.pages.iter().map(|page| page.bytes).sum();
        while bytes > BYTES_MAX && self.pages.len() > 1 {
            bytes -= self.pages.pop_back().map_or(0, |page| page.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use walrus_log::batch::{BatchBuilder, write_offsets};
    use walrus_model::TopicId;

    use super::*;

    fn key(topic: u128) -> CursorKey {
        CursorKey { topic: TopicId::from_u128(topic), partition: 0 }
    }

    fn batch(base_offset: u64, values: &[&str]) -> Bytes {
        let mut builder = BatchBuilder::new();
        for value in values {
            builder.push(None, Some(value.as_bytes()), 0, &[]);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        write_offsets(&mut bytes, base_offset, 0);
        bytes.into()
    }

    fn read(pieces: Vec<Bytes>, next_offset: u64) -> ReadPage {
        ReadPage { pieces, next_offset, high_watermark: next_offset, log_start: 0 }
    }

    #[test]
    fn a_page_knows_its_entries_and_what_is_missing_between_them() {
        let mut pages = Pages::default();
        let page = read(vec![batch(10, &["a", "b", "c"]), batch(20, &["d"])], 25);
        pages.insert(Page::open(key(1), 11, &page).unwrap());
        assert_eq!(pages.find(key(1), 10), Lookup::Unread, "the page was read from 11");
        assert_eq!(pages.find(key(1), 11), Lookup::Entry(Bytes::from_static(b"b")));
        assert_eq!(pages.find(key(1), 13), Lookup::Absent { exists: 20 });
        assert_eq!(pages.find(key(1), 20), Lookup::Entry(Bytes::from_static(b"d")));
        assert_eq!(pages.find(key(1), 21), Lookup::Absent { exists: 25 });
        assert_eq!(pages.find(key(1), 25), Lookup::Unread);
        assert_eq!(pages.find(key(2), 11), Lookup::Unread, "another topic's");
    }

    #[test]
    fn the_least_recently_used_page_goes_first() {
        let big = "x".repeat(3 << 20);
        let mut pages = Pages::default();
        for topic in 1..=2 {
            pages.insert(Page::open(key(topic), 0, &read(vec![batch(0, &[&big])], 1)).unwrap());
        }
        assert_ne!(pages.find(key(1), 0), Lookup::Unread);
        pages.insert(Page::open(key(3), 0, &read(vec![batch(0, &[&big])], 1)).unwrap());
        assert_eq!(pages.find(key(2), 0), Lookup::Unread);
        assert_ne!(pages.find(key(1), 0), Lookup::Unread);
    }

    /// What a producer compressed with zstd: "walrus walrus walrus " and an empty value.
    fn compressed(base_offset: u64) -> Bytes {
        let mut bytes = ZSTD.to_vec();
        write_offsets(&mut bytes, base_offset, 0);
        bytes.into()
    }

    #[rustfmt::skip]
    const ZSTD: [u8; 102] = [
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5a, 0x00, 0x00, 0x00, 0x00,
        0x02, 0x78, 0x50, 0x79, 0xc0, 0x00, 0x04, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x28, 0xb5, 0x2f,
        0xfd, 0x20, 0x28, 0x05, 0x01, 0x00, 0xd0, 0x40, 0x00, 0x00, 0x00, 0x02, 0x6b, 0x2a, 0x77, 0x61,
        0x6c, 0x72, 0x75, 0x73, 0x20, 0x02, 0x02, 0x68, 0x02, 0x31, 0x0c, 0x00, 0x02, 0x02, 0x01, 0x00,
        0x00, 0x01, 0x00, 0x92, 0x8b, 0x12,
    ];

    #[test]
    fn a_compressed_batch_is_opened() {
        let mut pages = Pages::default();
        let stored = [batch(10, &["a"]), compressed(11), batch(13, &["b"])].concat();
        pages.insert(Page::open(key(1), 10, &read(vec![stored.into()], 14)).unwrap());
        assert_eq!(pages.find(key(1), 11), Lookup::Entry(Bytes::from_static(b"walrus walrus walrus ")));
        assert_eq!(pages.find(key(1), 12), Lookup::Entry(Bytes::new()));
        assert_eq!(pages.find(key(1), 13), Lookup::Entry(Bytes::from_static(b"b")));
    }

    #[test]
    fn a_page_ends_where_it_is_full_however_much_was_read() {
        let big = "x".repeat(BYTES_MAX);
        let page = Page::open(key(1), 0, &read(vec![batch(0, &[&big]), batch(1, &["a"])], 2)).unwrap();
        assert_eq!((page.entries.len(), page.end), (1, 1));
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let problem =
            Page::open(key(1), 0, &read(vec![Bytes::from_static(b"no batch at all")], 1)).unwrap_err();
        assert!(matches!(problem, Error::InvalidBatch { .. }));
    }
}
