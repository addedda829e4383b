//! Batches that go through a sieve, with maps of any size: what stays is what a look at every record would keep.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use support::*;
use walrus_log::batch::{Batch, BatchBuilder, ProducerRef, write_offsets};
use walrus_log::{KeyMap, Noted, Offset, Sieve, SieveRules, Sieved};

/// Offset of the first record of each stream.
const BASE: u64 = 1000;

/// Key and value of a record; without a value it is a tombstone.
type Entry = (Option<u8>, Option<Vec<u8>>);

/// A batch of a stream, in front of which so many offsets have no batch, since an earlier compaction has left them out.
#[derive(Clone, Debug)]
struct Sent {
    missing: u64,
    codec: u8,
    producer: Option<ProducerRef>,
    entries: Vec<Entry>,
    /// Whether its records cannot be read, since its producer wrote them so.
    is_unreadable: bool,
}

fn build(sent: &Sent, base: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    if let Some(producer) = sent.producer {
        builder.producer(producer);
    }
    for (index, (key, value)) in (0..).zip(&sent.entries) {
        let key = key.map(|key| [key]);
        builder.push(key.as_ref().map(|key| &key[..]), value.as_deref(), 5 + index, &[("h", Some(b"v"))]);
    }
    let mut bytes = Vec::new();
    let batch = builder.build_in(&mut bytes).unwrap();
    let mut bytes = batch.compressed(sent.codec).unwrap();
    if sent.is_unreadable {
        bytes[61..].fill(0xff);
        write_checksum(&mut bytes);
    }
    write_offsets(&mut bytes, base, 7);
    bytes
}

/// Writes the right checksum into a changed batch.
fn write_checksum(batch: &mut [u8]) {
    let crc = crc_fast::crc32_iscsi(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn parsed(bytes: &[u8]) -> Batch<'_> {
    let (batch, rest) = Batch::parse(bytes).unwrap();
    assert!(rest.is_empty());
    batch
}

/// The batches of a stream, and the offset behind them.
fn stream(sent: &[Sent]) -> (Vec<Vec<u8>>, u64) {
    let (mut batches, mut next) = (Vec::new(), BASE);
    for sent in sent {
        let bytes = build(sent, next + sent.missing);
        next = parsed(&bytes).end_offset();
        batches.push(bytes);
    }
    (batches, next)
}

/// The batches that lie one behind the other in `bytes`; they must cover these offsets.
fn split(mut bytes: &[u8], mut base: u64, end: u64) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = Batch::parse(bytes).unwrap();
        assert_eq!(batch.base_offset(), base);
        base = batch.end_offset();
        batches.push(batch.bytes().to_vec());
        bytes = rest;
    }
    assert_eq!(base, end);
    batches
}

/// The records of the batches that can be read, by offset.
fn records(batches: &[Vec<u8>]) -> BTreeMap<u64, Entry> {
    let mut found = BTreeMap::new();
    for bytes in batches {
        let batch = parsed(bytes);
        let Ok(opened) = batch.open() else { continue };
        for record in batch.header().records_in(&opened).map_while(Result::ok) {
            let key = record.key.map(|key| key[0]);
            found.insert(record.offset, (key, record.value.map(<[u8]>::to_vec)));
        }
    }
    found
}

/// Lets all batches through a sieve and checks what it says of them.
fn through(keys: &KeyMap, batches: &[Vec<u8>], end: u64, rules: SieveRules) -> (Vec<Vec<u8>>, Sieved) {
    let mut sieve = Sieve::new(keys, Offset(BASE), rules);
    let mut out = Vec::new();
    for bytes in batches {
        sieve.batch(&parsed(bytes), &mut out);
    }
    sieve.finish(Offset(end), &mut out);
    let made = split(&out, BASE, end);
    let count = |batches: &[Vec<u8>]| -> u64 {
        batches.iter().map(|bytes| u64::from(parsed(bytes).header().records_left())).sum()
    };
    let size = |batches: &[Vec<u8>]| -> u64 { batches.iter().map(|bytes| bytes.len() as u64).sum() };
    let sieved = sieve.sieved();
    let expected = Sieved {
        records_kept: count(&made),
        records_gone: count(batches) - count(&made),
        tombstones_kept: records(&made)
            .values()
            .filter(|(key, value)| key.is_some() && value.is_none())
            .count() as u64,
        bytes_in: size(batches),
        bytes_out: size(&made),
    };
    assert_eq!(sieved, expected);
    let is_unreadable =
        |bytes: &&Vec<u8>| parsed(bytes).header().records_left() > 0 && records(&[bytes.to_vec()]).is_empty();
    let unread = made.iter().find(is_unreadable).map(|bytes| Offset(parsed(bytes).base_offset()));
    assert_eq!(sieve.first_unread(), unread);
    (made, sieved)
}

fn rules(start: u64, tombstones_below: u64) -> SieveRules {
    let (start, tombstones_below) = (Offset(start), Offset(tombstones_below));
    SieveRules { start, tombstones_below, batch_bytes_max: 1 << 20 }
}

/// Notes as many batches from the index `from` on as the map takes; gives the index behind them.
fn note_stretch(keys: &mut KeyMap, batches: &[Vec<u8>], from: usize) -> usize {
    keys.clear(Offset(parsed(&batches[from]).base_offset()));
    for (index, bytes) in batches.iter().enumerate().skip(from) {
        match keys.note(&parsed(bytes)) {
            Noted::Taken | Noted::Unreadable => {}
            Noted::Full if index > from => return index,
            other => panic!("{other:?} of the first batch of a stretch"),
        }
    }
    batches.len()
}

/// What must be there of a stream, by a look at every record.
struct Model {
    all: BTreeMap<u64, Entry>,
    /// Offset of the last record of each key.
    last: HashMap<u8, u64>,
    /// Tombstones from here on stay.
    unread: u64,
    start: u64,
}

impl Model {
    fn new(batches: &[Vec<u8>], start: u64) -> Self {
        let all = records(batches);
        let last = all.iter().filter_map(|(offset, (key, _))| Some(((*key)?, *offset))).collect();
        let stays = |bytes: &&Vec<u8>| {
            let batch = parsed(bytes);
            batch.end_offset() > start && records(&[bytes.to_vec()]).is_empty()
        };
        let unread = batches.iter().find(stays).map_or(u64::MAX, |bytes| parsed(bytes).base_offset());
        Self { all, last, unread, start }
    }

    /// The records that are left once all stretches were looked at.
    fn left(&self, tombstones_below: u64) -> BTreeMap<u64, Entry> {
        let stays = |(offset, (key, value)): &(&u64, &Entry)| {
            let is_last = key.is_none_or(|key| self.last[&key] == **offset);
            let is_forgotten =
                key.is_some() && value.is_none() && **offset < tombstones_below.min(self.unread);
            **offset >= self.start && is_last && !is_forgotten
        };
        self.all.iter().filter(stays).map(|(offset, entry)| (*offset, entry.clone())).collect()
    }

    /// Checks what is there between two passes.
    fn check(&self, found: &BTreeMap<u64, Entry>, tombstones_below: u64) {
        for (offset, entry) in found {
            assert_eq!(self.all.get(offset), Some(entry), "offset {offset}");
        }
        for (offset, entry) in self.left(tombstones_below) {
            assert_eq!(found.get(&offset), Some(&entry), "offset {offset} is gone");
        }
        for (offset, (key, _)) in found {
            if let Some(key) = key {
                let is_there = found.contains_key(&self.last[key]);
                assert!(is_there, "offset {offset}: what deletes key {key} is gone");
            }
        }
    }
}

/// Compacts a stream in stretches as long as a map of this memory allows, each pass over the batches of the one before.
fn in_stretches(
    batches: &[Vec<u8>],
    end: u64,
    memory: usize,
    model: &Model,
    tombstones_below: u64,
) -> Vec<Vec<u8>> {
    let mut keys = KeyMap::with_memory(memory).unwrap();
    let mut now = batches.to_vec();
    let mut noted_to = BASE;
    while let Some(from) = now.iter().position(|bytes| parsed(bytes).base_offset() >= noted_to) {
        let to = note_stretch(&mut keys, &now, from);
        noted_to = parsed(&now[to - 1]).end_offset();
        // A tombstone whose stretch has not come yet stays, for nothing in front of it was made old by it.
        let below = tombstones_below.min(noted_to);
        (now, _) = through(&keys, &now, end, rules(model.start, below));
        model.check(&records(&now), tombstones_below);
    }
    now
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let value = prop_oneof![
        Just(None),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        (any::<u8>(), 0..3000_usize).prop_map(|(byte, size)| Some(vec![byte; size])),
    ];
    (prop::option::weighted(0.85, 0..12_u8), value)
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let producer =
        (0..3_i64, 0..1000_i32).prop_map(|(id, base_sequence)| ProducerRef { id, epoch: 0, base_sequence });
    (
        prop_oneof![4 => Just(0), 1 => 1..5_u64],
        0..=4_u8,
        prop::option::of(producer),
        prop::collection::vec(any_entry(), 1..=6),
        prop::bool::weighted(0.03),
    )
        .prop_map(|(missing, codec, producer, entries, is_unreadable)| Sent {
            missing,
            codec,
            producer,
            entries,
            is_unreadable,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(300) as u32))]

    #[test]
    fn what_stays_is_what_a_look_at_every_record_keeps_however_the_stretches_are_cut(
        sent in prop::collection::vec(any_sent(), 1..50),
        memories in [128..600_usize, 128..6000_usize],
        behind in 0..9_u64,
        parts in [0..=100_u64, 0..=100_u64, 0..=100_u64],
    ) {
        let (batches, end) = stream(&sent);
        let end = end + behind;
        let part = |percent: u64| BASE + (end - BASE) * percent / 100;
        let [start, first, second] = parts;
        // Half of the streams begin with records that were deleted.
        let start = if start > 50 { BASE } else { part(start) };
        let tombstones = part(first.min(second))..part(first.max(second));
        let model = Model::new(&batches, start);
        let once = in_stretches(&batches, end, memories[0], &model, tombstones.start);
        prop_assert_eq!(records(&once), model.left(tombstones.start));
        let otherwise = in_stretches(&batches, end, memories[1], &model, tombstones.start);
        prop_assert_eq!(&once, &otherwise);
        // What stays of a batch has its header, and no two batches without records could be one.
        let before: HashMap<u64, &Vec<u8>> =
            batches.iter().map(|bytes| (parsed(bytes).base_offset(), bytes)).collect();
        for bytes in once.iter().filter(|bytes| parsed(bytes).header().records_left() > 0) {
            let (after, before) = (parsed(bytes), parsed(before[&parsed(bytes).base_offset()]));
            let fields = |batch: &Batch<'_>| {
                let header = *batch.header();
                (header.leader_epoch, header.producer, header.base_timestamp, header.max_timestamp,
                    header.last_offset_delta, header.codec())
            };
            prop_assert_eq!(fields(&after), fields(&before));
        }
        let is_gap = |bytes: &Vec<u8>| parsed(bytes).header().records_left() == 0;
        prop_assert!(!once.windows(2).any(|pair| is_gap(&pair[0]) && is_gap(&pair[1])));
        // More tombstones go in a later pass, when no map knows their keys any more.
        let (later, _) = through(&KeyMap::with_memory(0).unwrap(), &once, end, rules(start, tombstones.end));
        prop_assert_eq!(records(&later), model.left(tombstones.end));
        // Another pass with the same rules changes nothing.
        let again = in_stretches(&later, end, memories[1], &Model::new(&later, start), tombstones.end);
        prop_assert_eq!(again, later);
    }
}

/// A batch of two records whose producer compressed it with more patience than is had here, and the bytes that would be
/// left of it without the first one.
fn strongly_compressed() -> (Vec<u8>, usize) {
    let mut random = Random(1);
    let words: Vec<String> =
        (0..300).map(|_| format!("{:x} ", random.next() >> (24 + random.next() % 32))).collect();
    let text: String = (0..3000).map(|_| words[(random.next() % 300) as usize].as_str()).collect();
    let entries = vec![(Some(1), Some(b"x".to_vec())), (Some(2), Some(text.into_bytes()))];
    let sent = Sent { missing: 0, codec: 0, producer: None, entries, is_unreadable: false };
    let mut bytes = build(&sent, BASE);
    let rest = build(&Sent { codec: 4, entries: sent.entries[1..].to_vec(), ..sent }, BASE + 1);
    let strong = zstd::encode_all(&bytes[61..], 19).unwrap();
    bytes.truncate(61);
    bytes.extend_from_slice(&strong);
    bytes[22] |= 4;
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    write_checksum(&mut bytes);
    assert!(rest.len() > bytes.len());
    (bytes, rest.len())
}

#[test]
fn what_is_left_may_be_longer_than_the_batch_was_up_to_the_limit() {
    let (bytes, rest_bytes) = strongly_compressed();
    let deleting = Sent {
        missing: 0,
        codec: 0,
        producer: None,
        entries: vec![(Some(1), None), (Some(3), None)],
        is_unreadable: false,
    };
    let behind = build(&deleting, BASE + 2);
    let mut keys = KeyMap::with_memory(1 << 10).unwrap();
    keys.clear(Offset(BASE));
    for batch in [&bytes, &behind] {
        assert_eq!(keys.note(&parsed(batch)), Noted::Taken);
    }
    for (batch_bytes_max, left, unread) in [
        (rest_bytes + 20, vec![BASE + 1], None),
        (bytes.len(), vec![BASE, BASE + 1, BASE + 2, BASE + 3], Some(Offset(BASE))),
    ] {
        let rules = SieveRules { batch_bytes_max, ..rules(BASE, u64::MAX) };
        let mut sieve = Sieve::new(&keys, Offset(BASE), rules);
        let mut out = Vec::new();
        sieve.batch(&parsed(&bytes), &mut out);
        assert!(out.len() > bytes.len() || unread.is_some());
        sieve.batch(&parsed(&behind), &mut out);
        sieve.finish(Offset(BASE + 4), &mut out);
        let made = split(&out, BASE, BASE + 4);
        assert_eq!(records(&made).into_keys().collect::<Vec<_>>(), left);
        assert_eq!(sieve.first_unread(), unread);
    }
}

#[test]
fn a_batch_with_more_records_than_the_map_holds_makes_nothing_old_and_is_sieved_all_the_same() {
    let entries = |count: u8| (0..count).map(|key| (Some(key), Some(vec![key]))).collect();
    let sent = |entries| Sent { missing: 0, codec: 3, producer: None, entries, is_unreadable: false };
    let (batches, end) = stream(&[sent(entries(3)), sent(entries(200)), sent(entries(2))]);
    let mut keys = KeyMap::with_memory(1 << 10).unwrap();
    keys.clear(Offset(BASE));
    let noted: Vec<_> = batches.iter().map(|bytes| keys.note(&parsed(bytes))).collect();
    assert_eq!(noted, [Noted::Taken, Noted::Full, Noted::Taken]);
    let (made, sieved) = through(&keys, &batches, end, rules(BASE, 0));
    assert_eq!((sieved.records_gone, sieved.records_kept), (4, 201));
    assert_eq!(records(&made).into_keys().take(2).collect::<Vec<_>>(), [BASE + 2, BASE + 5]);
}
