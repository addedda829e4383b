//! The stores that the campaign damages: lives that ended, their promises, and the place of everything in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Log, LogId, Offset, Options, SimulatedDisk, Store, TailKind};

use crate::facts::{log_id, new_log};
use crate::random::{Random, Value};
use crate::rot::Contents;

pub(super) const PAGE: usize = 4096;
pub(super) const BLOCK: usize = 16 << 10;
/// Records of each of the two logs whose batches are alike.
const ALIKE: u64 = 60;
/// The log with the batch group.
pub(super) const GROUPED: u64 = 5;
/// Offsets of the group's parts there.
pub(super) const GROUPED_OFFSETS: Range<u64> = 1..3;
/// A value whose batch is a quarter of a page.
const ALIKE_BYTES: usize = 954;

/// The kinds of stored structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Structure {
    /// The manifest: who the store is.
    Manifest,
    /// The front of the journal.
    JournalHeader,
    /// A record of the journal: promises.
    JournalRecord,
    /// The end of the journal: how far it is.
    End,
    /// The first page of a block.
    BlockHeader,
    /// A Kafka batch.
    Batch,
    /// The last pages of a block.
    Footer,
}

/// A life that ended, and its promises.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) kind: TailKind,
    pub(super) is_closed: bool,
    pub(super) contents: Contents,
    /// The same store half way through its life.
    pub(super) earlier: Contents,
    pub(super) logs: BTreeMap<LogId, Promised>,
    pub(super) places: Vec<Place>,
    pub(super) batches: Vec<StoredBatch>,
}

/// The place of a structure.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) structure: Structure,
    pub(super) file: String,
    pub(super) range: Range<usize>,
}

/// The place of a batch.
pub(super) struct StoredBatch {
    pub(super) log: LogId,
    pub(super) offsets: Range<u64>,
    pub(super) file: String,
    pub(super) header: Range<usize>,
    pub(super) bytes: Range<usize>,
}

/// The promises of a log.
#[derive(Clone, Default)]
pub(super) struct Promised {
    pub(super) start: u64,
    /// Values by offset, from 0 on; the last one of each counts, those before were cut off by a truncation.
    pub(super) values: Vec<Vec<Value>>,
    pub(super) seal: Option<&'static [u8]>,
    pub(super) cursor: Option<u64>,
}

impl Subject {
    /// The same store as it lies there now, open: what it had promised is all on the disk or in the memory of its process.
    pub(super) fn opened(&self, contents: Contents) -> Self {
        let places = places(&contents);
        let batches = stored_batches(&contents, &places);
        let (earlier, logs) = (self.earlier.clone(), self.logs.clone());
        Self { name: self.name, kind: self.kind, is_closed: true, contents, earlier, logs, places, batches }
    }

    /// The structures of which it has bytes.
    pub(super) fn structures(&self) -> Vec<Structure> {
        let structures: BTreeSet<Structure> = self.places.iter().map(|place| place.structure).collect();
        structures.into_iter().collect()
    }

    /// The bytes that were at a place half way through its life.
    pub(super) fn before(&self, file: &str, range: Range<usize>) -> Vec<u8> {
        let earlier = self.earlier.get(file).and_then(|bytes| bytes.get(range.clone()));
        earlier.map_or_else(|| vec![0; range.len()], <[u8]>::to_vec)
    }
}

pub(super) static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    let kinds = [(TailKind::Mapped, "mapped"), (TailKind::Buffered, "buffered")];
    kinds
        .into_iter()
        .flat_map(|(kind, name)| [true, false].map(|is_closed| live(name, kind, is_closed)))
        .collect()
});

pub(super) fn options() -> Options {
    // Only a close marks what is synced.
    let mark_interval = Duration::from_secs(3600);
    Options { block_bytes: BLOCK as u64, blocks_per_file: 4, mark_interval, ..Options::small() }
}

/// Appends a batch; the offset that it got, once it is durable.
pub(super) fn append(log: &Log, values: &[Value]) -> walrus_log::Result<u64> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(None, Some(&value.to_bytes()), 0, &[]);
    }
    let mut bytes = Vec::new();
    let appended = log.append(&builder.build_in(&mut bytes).expect("small"))?;
    appended.commit.wait()?;
    Ok(appended.base_offset.0)
}

/// A life with two logs of equal batches, a sealed one, one that was trimmed and truncated, and one with a batch group.
fn live(name: &'static str, kind: TailKind, is_closed: bool) -> Subject {
    let disk = SimulatedDisk::new(kind);
    let store = Store::open_on(Arc::new(disk.clone()), options()).expect("a new store");
    let logs = [1, 2, 3, 4, 5]
        .map(|log| store.create_log(new_log(log_id(log), format!("log {log}"))).expect("a new log"));
    let mut promised: BTreeMap<LogId, Promised> =
        logs.iter().map(|log| (log.id(), Promised::default())).collect();
    let mut random = Random(7);
    let mut numbers = 1 << 40..;
    let mut value = |bytes| Value { number: numbers.next().expect("without end"), bytes };
    let mut put = |log: &Log, values: Vec<Value>| {
        let base = append(log, &values).expect("an append") as usize;
        let known = &mut promised.get_mut(&log.id()).expect("known").values;
        for (offset, value) in (base..).zip(values) {
            known.resize_with(known.len().max(offset + 1), Vec::new);
            known[offset].push(value);
        }
    };
    let mut earlier = Contents::new();
    for i in 0..ALIKE {
        for log in &logs[..2] {
            put(log, vec![value(ALIKE_BYTES)]);
        }
        if i % 2 == 0 {
            let count = 1 + random.below(3);
            put(&logs[2], (0..count).map(|_| value(60 + random.below(900) as usize)).collect());
            put(&logs[3], vec![value(300)]);
        }
        match i {
            20 => earlier = disk.contents(),
            30 => logs[3].truncate_to(Offset(10)).expect("a truncation"),
            40 => logs[3].delete_before(Offset(4)).expect("a trim"),
            _ => {}
        }
    }
    put(&logs[4], vec![value(500)]);
    let group = [value(3000), value(3000)];
    let parts = group.map(|value| {
        let mut bytes = Vec::new();
        BatchBuilder::new().push(None, Some(&value.to_bytes()), 0, &[]).build(&mut bytes).expect("small");
        bytes
    });
    let batches = parts.each_ref().map(|bytes| Batch::parse(bytes).expect("just built").0);
    logs[4].append_group(&batches).expect("a group");
    put(&logs[4], Vec::from([value(500)]));
    let known = promised.get_mut(&logs[4].id()).expect("known");
    for (offset, value) in (1..).zip(group) {
        known.values[offset] = vec![value];
    }
    logs[2].seal(b"the end").expect("a seal");
    logs[0].cursor("strict").and_then(|cursor| cursor.batch_read(6000, true)).expect("a read");
    store.put_property("key", b"value").expect("a property");
    for (log, seal) in logs.iter().zip([None, None, Some(&b"the end"[..]), None, None]) {
        let known = promised.get_mut(&log.id()).expect("known");
        (known.start, known.seal) = (log.start_offset().0, seal);
        known.cursor = log.cursors().first().map(|(_, at)| at.0);
    }
    store.drain();
    if is_closed {
        store.close().expect("a close in order");
    }
    let contents: Contents = disk.contents().into_iter().filter(|(name, _)| name != "LOCK").collect();
    let places = places(&contents);
    let batches = stored_batches(&contents, &places);
    Subject { name, kind, is_closed, contents, earlier, logs: promised, places, batches }
}

/// The places of all structures.
fn places(contents: &Contents) -> Vec<Place> {
    let mut places = Vec::new();
    for (name, bytes) in contents {
        let mut add = |structure, range| places.push(Place { structure, file: name.clone(), range });
        match name.as_str() {
            "MANIFEST" => add(Structure::Manifest, 0..bytes.len()),
            "END" => {
                let pages = (0..bytes.len()).step_by(PAGE).filter(|at| bytes[*at] != 0);
                pages.for_each(|at| add(Structure::End, at..at + 60));
            }
            name if name.starts_with("journal-") => {
                add(Structure::JournalHeader, 0..96);
                let mut at = 96;
                while let Some(length) = number(bytes, at + 4).filter(|_| number(bytes, at + 8) != Some(0)) {
                    let size = (32 + length as usize).next_multiple_of(8);
                    add(Structure::JournalRecord, at..at + size);
                    at += size;
                }
            }
            _ => {
                for block in
                    (0..bytes.len()).step_by(BLOCK).filter(|at| bytes[*at..].starts_with(b"WALRUSBK"))
                {
                    add(Structure::BlockHeader, block..block + 200);
                    let mut at = block + PAGE;
                    while bytes[at + 16] == 2 {
                        let field = bytes[at + 8..at + 12].try_into().expect("four bytes");
                        let size = 12 + u32::from_be_bytes(field) as usize;
                        add(Structure::Batch, at..at + size);
                        at += size;
                    }
                    let trailer = block + BLOCK - 96;
                    if bytes[trailer..].starts_with(b"WALRUSFT") {
                        add(Structure::Footer, trailer..trailer + 96);
                    }
                }
            }
        }
    }
    places
}

/// The batches with their logs, which the header of the block in front of them names.
fn stored_batches(contents: &Contents, places: &[Place]) -> Vec<StoredBatch> {
    let of_kind = places.iter().filter(|place| place.structure == Structure::Batch);
    let batch = |Place { file, range, .. }: &Place| {
        let bytes = &contents[file];
        let block = range.start / BLOCK * BLOCK;
        let log = uuid::Uuid::from_slice(&bytes[block + 32..block + 48]).expect("sixteen bytes");
        let (batch, _) = Batch::parse(&bytes[range.clone()]).expect("undamaged");
        let offsets = batch.base_offset()..batch.end_offset();
        StoredBatch {
            log: LogId(log),
            offsets,
            file: file.clone(),
            header: block..block + PAGE,
            bytes: range.clone(),
        }
    };
    of_kind.map(batch).collect()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of eight bytes.
pub(super) fn long_number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
