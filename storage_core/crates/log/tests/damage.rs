//! Bytes that change behind the engine's back: they are found, and fenced or refused, but never served as something else.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_log::{Error, LogId, Offset, Options, SimulatedDisk, TailKind};

fn options() -> Options {
    Options { block_bytes: 16 << 10, blocks_per_file: 3, ..Options::small() }
}

fn id(log: u128) -> LogId {
    LogId(uuid::Uuid::from_u128(log))
}

/// A store with two logs over several blocks, one of them sealed. It was closed in order, so that everything is proven
/// durable.
fn small_store(kind: TailKind) -> (SimulatedDisk, [Vec<Vec<u8>>; 2]) {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &options()).unwrap();
    let logs = [1, 2].map(|log| store.create_log(spec(log, "log")).unwrap());
    let mut expected = [Vec::new(), Vec::new()];
    for i in 0..32 {
        let log = i as usize % 2;
        let value = numbered(i, 100 + 300 * (i as usize % 4));
        append(&logs[log], &value).unwrap();
        expected[log].push(value);
    }
    logs[1].seal(b"v").unwrap();
    logs[0].cursor("c").unwrap().read_next(true).unwrap();
    store.drain();
    store.close().unwrap();
    (disk, expected)
}

/// Opens the store and reads everything; each value must be the one that was appended, or its loss must be told. Returns
/// whether everything is there.
fn check(
    contents: &BTreeMap<String, Vec<u8>>,
    kind: TailKind,
    expected: &[Vec<Vec<u8>>; 2],
    what: &str,
) -> bool {
    let disk = SimulatedDisk::from_contents(kind, contents);
    let store = match open_on(&disk, &options()) {
        Ok(store) => store,
        Err(Error::Damaged { .. } | Error::UnsupportedFormat { .. } | Error::InvalidOption { .. }) => {
            return false;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let mut is_whole = true;
    for (log, expected) in [1, 2].into_iter().zip(expected) {
        let log = store.log(id(log)).unwrap_or_else(|| panic!("{what}: log {log} is gone"));
        let (records, fences) = read_from(&log, Offset(0), 4000);
        for (offset, value) in &records {
            assert_eq!(value, &expected[*offset as usize], "{what}: wrong bytes at {offset}");
        }
        let fenced: u64 = fences.iter().map(|(start, end)| end - start).sum();
        assert_eq!(records.len() as u64 + fenced, expected.len() as u64, "{what}: {fences:?}");
        is_whole &= fences.is_empty();
        // A log that is not sealed takes later records.
        if !log.is_sealed() {
            let at = append(&log, b"later").unwrap();
            assert_eq!(at, Offset(expected.len() as u64), "{what}");
            assert!(!log.read(at, 1).unwrap().batches.is_empty(), "{what}");
        }
    }
    is_whole
}

#[test]
fn no_flipped_byte_is_served() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let (disk, expected) = small_store(kind);
        let contents = disk.contents();
        assert!(check(&contents, kind, &expected, "nothing flipped"));
        let (mut harmless, mut found) = (0, 0);
        for (name, bytes) in contents.iter().filter(|(name, _)| *name != "LOCK") {
            for (position, &byte) in bytes.iter().enumerate() {
                // Every byte that is not zero near the start of a page is flipped, and a sample of the rest.
                let is_near = byte != 0 && (position % 4096 < 200 || position % 3 == 0);
                if !is_near && position % 331 != 0 {
                    continue;
                }
                let mut contents = contents.clone();
                contents.get_mut(name).unwrap()[position] ^= 1 << (position % 8);
                let whole = check(&contents, kind, &expected, &format!("{kind:?}: {name} byte {position}"));
                if whole { harmless += 1 } else { found += 1 }
            }
        }
        assert!(harmless > 100 && found > 1000, "{harmless} {found}");
    }
}

#[test]
fn damage_found_by_a_reader_is_fenced_exactly() {
    let disk = SimulatedDisk::new(TailKind::Buffered);
    let store = open_on(&disk, &Options::small()).unwrap();
    let log = store.create_log(spec(1, "a")).unwrap();
    for i in 0..300 {
        append(&log, &numbered(i, 700)).unwrap();
    }
    store.drain();
    // Offset 20 lies in the first block, which is closed.
    let bytes = &disk.contents()["00000001.wal"];
    let value = numbered(20, 700);
    let position = bytes.windows(700).position(|window| window == value).unwrap();
    disk.flip("00000001.wal", position + 300, 4);
    let error = log.read(Offset(20), 1).unwrap_err();
    assert!(matches!(error, Error::Corrupted { start: Offset(20), end: Offset(21), .. }), "{error}");
    let (records, fences) = read_from(&log, Offset(0), 10_000);
    assert_eq!(fences, [(20, 21)]);
    assert_eq!(records.len(), 299);
    assert_eq!(store.stats().corrupted_ranges, 1);
}

#[test]
fn files_cut_at_any_length_are_refused_or_fenced() {
    let kind = TailKind::Buffered;
    let (disk, expected) = small_store(kind);
    let contents = disk.contents();
    for (name, bytes) in contents.iter().filter(|(name, _)| name.ends_with(".wal") || *name == "MANIFEST") {
        for step in 0..24 {
            let length = bytes.len() * step / 24;
            let mut contents = contents.clone();
            contents.get_mut(name).unwrap().truncate(length);
            check(&contents, kind, &expected, &format!("{name} cut to {length} bytes"));
        }
    }
}

#[test]
fn lost_files_are_noticed() {
    let kind = TailKind::Buffered;
    let (disk, expected) = small_store(kind);
    let contents = disk.contents();
    for name in contents.keys().filter(|name| *name != "LOCK") {
        let mut contents = contents.clone();
        contents.remove(name);
        let holds_something = disk.contents()[name].iter().any(|byte| *byte != 0);
        let is_whole = check(&contents, kind, &expected, &format!("without {name}"));
        // The manifest can be made again from journal and blocks, and the journal is whole without END.
        let is_derived = ["MANIFEST", "END"].contains(&name.as_str());
        assert_eq!(is_whole, !holds_something || is_derived, "{name}");
    }
}

/// The version is under the checksum. One flipped bit in it once closed the whole store, and a repair refused as well.
#[test]
fn no_flipped_bit_of_manifest_journal_header_or_block_header_closes_the_store() {
    let kind = TailKind::Buffered;
    let (disk, expected) = small_store(kind);
    let contents = disk.contents();
    // The spare holds nothing, since the next journal overwrites it.
    let holds_something = |name: &str| !["LOCK", "journal.spare"].contains(&name);
    for (name, bytes) in contents.iter().filter(|(name, _)| holds_something(name)) {
        let fronts: Vec<usize> = match name.as_str() {
            "MANIFEST" => (0..44).collect(),
            name if name.starts_with("journal") => (0..96).collect(),
            "END" => continue,
            _ => (0..bytes.len()).step_by(16 << 10).flat_map(|block| block..block + 24).collect(),
        };
        for position in fronts {
            for bit in 0..8 {
                let mut contents = contents.clone();
                contents.get_mut(name).unwrap()[position] ^= 1 << bit;
                let what = format!("{name} byte {position} bit {bit}");
                let disk = SimulatedDisk::from_contents(kind, &contents);
                let store = open_on(&disk, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
                if !name.ends_with(".wal") {
                    assert_eq!(store.report().made_again, std::slice::from_ref(name), "{what}");
                    drop(store);
                    assert!(check(&contents, kind, &expected, &what), "{what}: something is lost");
                }
            }
        }
    }
}

#[test]
fn a_manifest_is_made_again_from_the_blocks_alone_and_not_from_those_of_two_stores() {
    let kind = TailKind::Buffered;
    let (one, expected) = small_store(kind);
    let (other, _) = small_store(kind);
    let without = |name: &str| {
        let contents = one.contents().into_iter().filter(|(known, _)| known != name);
        contents.collect::<BTreeMap<_, _>>()
    };
    // The manifest is made as it was, for the same store and with the same sizes.
    let made = SimulatedDisk::from_contents(kind, &without("MANIFEST"));
    let again = open_on(&made, &Options::default()).unwrap();
    assert_eq!((again.block_bytes(), again.report().made_again.len()), (16 << 10, 1));
    drop(again);
    assert_eq!(made.contents()["MANIFEST"], one.contents()["MANIFEST"]);
    assert!(check(&without("MANIFEST"), kind, &expected, "without a manifest"));
    // A journal of another store tells another manifest than the blocks of this one.
    let mut mixed = without("MANIFEST");
    for (name, bytes) in other.contents().into_iter().filter(|(name, _)| name.starts_with("journal")) {
        mixed.insert(name, bytes);
    }
    let error = open_on(&SimulatedDisk::from_contents(kind, &mixed), &options()).map(drop).unwrap_err();
    assert!(error.to_string().contains("two stores"), "{error}");
}

/// Under the right checksum another version is no damage.
#[test]
fn another_format_is_refused_by_name() {
    let (disk, _) = small_store(TailKind::Buffered);
    let names: Vec<_> = disk.contents().into_keys().filter(|name| name != "LOCK").collect();
    for name in &names {
        for version in [1, 9] {
            let mut contents = disk.contents();
            let bytes = contents.get_mut(name).unwrap();
            if bytes.len() > 4096 && !bytes.starts_with(b"WALRUS") {
                continue; // The first slot of the file is free.
            }
            bytes[8] = version;
            let sign = |bytes: &mut [u8], at: usize| {
                bytes[at..at + 4].fill(0);
                let crc = crc_fast::crc32_iscsi(bytes);
                bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            };
            match name.as_str() {
                "MANIFEST" => {
                    let crc = crc_fast::crc32_iscsi(&bytes[..40]);
                    bytes[40..].copy_from_slice(&crc.to_le_bytes());
                }
                name if name.starts_with("journal") => sign(&mut bytes[..96], 12),
                _ => sign(&mut bytes[..4096], 12),
            }
            let disk = SimulatedDisk::from_contents(TailKind::Buffered, &contents);
            let error = open_on(&disk, &options()).map(drop).unwrap_err();
            let Error::UnsupportedFormat { found, supported: 4, .. } = error else {
                panic!("{name}: {error}")
            };
            assert_eq!(found, u32::from(version), "{name}");
        }
    }
}

#[test]
fn a_second_opener_is_told_that_the_directory_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), &Options::small());
    let error = walrus_log::Store::open(directory.path(), Options::small()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use"));
    drop(store);
    open(directory.path(), &Options::small());
}

#[test]
fn a_directory_that_is_a_file_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = walrus_log::Store::open(file.path(), Options::small()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let wrong = Options { block_bytes: 5000, ..Options::small() };
    assert!(matches!(
        walrus_log::Store::open(file.path(), wrong),
        Err(Error::InvalidOption { option: "block_bytes", .. })
    ));
}

/// The block was once scanned at each open, and nobody was told; the footer of a sealed log's last block was never written
/// again.
#[test]
fn a_damaged_footer_costs_a_scan_is_told_and_is_written_again() {
    let kind = TailKind::Buffered;
    let (disk, expected) = small_store(kind);
    let contents = disk.contents();
    let trailers = |(name, bytes): (&String, &Vec<u8>)| {
        let found = bytes.windows(8).enumerate().filter(|(_, window)| *window == b"WALRUSFT");
        found.map(|(at, _)| (name.clone(), at)).collect::<Vec<_>>()
    };
    let trailers: Vec<(String, usize)> = contents.iter().flat_map(trailers).collect();
    assert!(trailers.len() > 1, "{trailers:?}");
    for (name, at) in trailers {
        let mut damaged = contents.clone();
        damaged.get_mut(&name).unwrap()[at + 50] ^= 1;
        let what = format!("{name} at {at}");
        assert!(check(&damaged, kind, &expected, &what), "{what}: something is lost");
        let disk = SimulatedDisk::from_contents(kind, &damaged);
        let store = open_on(&disk, &options()).unwrap();
        let report = store.report().clone();
        let [told] = &report.made_again[..] else { panic!("{what}: {report:?}") };
        assert!(told.starts_with(&format!("{name}: footer of slot ")), "{what}: {told}");
        assert!(!report.lost_something(), "{what}: {report:?}");
        store.drain();
        store.close().unwrap();
        drop(store);
        assert_eq!(disk.contents()[&name][at..at + 96], contents[&name][at..at + 96], "{what}");
        let again = open_on(&disk, &options()).unwrap();
        assert!(again.report().made_again.is_empty(), "{what}: it is told once");
    }
}
