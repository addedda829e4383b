//! Blocks that are gone without a trace: in a file of blocks that lost its end, or under a header that cannot be read. A
//! log that went on in such a block ends earlier than it did, and nothing in the rest of it tells so.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::collections::BTreeMap;

use support::*;
use walrus_log::{CutFile, Offset, Options, SimulatedDisk, Store, TailKind};

const PAGE: usize = 4096;
const BLOCK: usize = 16 << 10;
const FILE: usize = 4 * BLOCK;
const RECORDS: u64 = 60;

type Contents = BTreeMap<String, Vec<u8>>;

fn options() -> Options {
    let mark_interval = std::time::Duration::from_secs(3600); // Only a close writes synced marks.
    Options { block_bytes: BLOCK as u64, blocks_per_file: 4, mark_interval, ..Options::small() }
}

/// A store with an open log of some blocks and a sealed log; it was killed or closed in order.
fn filled(kind: TailKind, closes: bool) -> Contents {
    let disk = SimulatedDisk::new(kind);
    let store = open_on(&disk, &options()).unwrap();
    let [open, sealed] = [1, 2].map(|log| store.create_log(spec(log, "a log")).unwrap());
    for offset in 0..RECORDS {
        append(&open, &numbered(offset, 954)).unwrap();
        if offset < 5 {
            append(&sealed, &numbered(offset, 954)).unwrap();
        }
    }
    sealed.seal(b"").unwrap();
    store.drain();
    if closes {
        store.close().unwrap();
    }
    disk.contents()
}

fn opened(kind: TailKind, contents: &Contents) -> Store {
    open_on(&SimulatedDisk::from_contents(kind, contents), &options()).unwrap()
}

fn log(store: &Store, number: u128) -> walrus_log::Log {
    store.log(walrus_log::LogId(uuid::Uuid::from_u128(number))).unwrap()
}

/// Names of the files of blocks, and the position of the last block in each.
fn last_blocks(contents: &Contents) -> Vec<(String, usize)> {
    let is_block = |bytes: &[u8], at: &usize| bytes[*at..].starts_with(b"WALRUSBK");
    let last = |(name, bytes): (&String, &Vec<u8>)| {
        let last = (0..bytes.len()).step_by(BLOCK).rfind(|at| is_block(bytes, at))?;
        Some((name.clone(), last))
    };
    contents.iter().filter(|(name, _)| name.ends_with(".wal")).filter_map(last).collect()
}

#[test]
fn a_file_that_lost_its_end_is_told_once_and_no_open_log_vouches_for_its_own() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        for closes in [false, true] {
            let contents = filled(kind, closes);
            for (name, last) in last_blocks(&contents) {
                for found in [last.max(1), last + PAGE, last + PAGE + 100, PAGE, FILE - 1] {
                    let what = format!("{kind:?}, closed: {closes}, {name} cut to {found}");
                    let mut cut = contents.clone();
                    cut.get_mut(&name).unwrap().truncate(found);
                    let disk = SimulatedDisk::from_contents(kind, &cut);
                    let store = open_on(&disk, &options()).unwrap();
                    let told = CutFile {
                        path: format!("simulated/{name}"),
                        found_bytes: found as u64,
                        made_bytes: FILE as u64,
                    };
                    assert_eq!(store.report().cut_files, [told], "{what}");
                    assert!(store.report().lost_something(), "{what}");
                    let open = log(&store, 1);
                    let (records, fences) = read_from(&open, Offset(0), 5_000);
                    let is_whole = records.len() as u64 == RECORDS;
                    assert!(is_whole || open.is_suspect() || !fences.is_empty(), "{what}");
                    if !closes {
                        assert!(open.is_suspect(), "{what}");
                    }
                    store.close().unwrap();
                    drop((open, store));
                    let store = open_on(&disk, &options()).unwrap();
                    assert_eq!(store.report().cut_files, [], "{what}: once");
                    assert!(
                        closes || log(&store, 1).is_suspect(),
                        "{what}: until it has heard from the others"
                    );
                }
            }
        }
    }
}

/// A campaign of random damage once found a file of blocks with the bytes of `END`: two pages, of which the first is zeros.
#[test]
fn another_file_in_the_place_of_one_with_blocks_is_told() {
    let contents = filled(TailKind::Mapped, false);
    let (name, _) = last_blocks(&contents).pop().unwrap();
    let mut swapped = contents.clone();
    let mut end = contents["END"].clone();
    end[..PAGE].fill(0);
    swapped.insert(name.clone(), end);
    let store = opened(TailKind::Mapped, &swapped);
    let cut: Vec<_> = store.report().cut_files.iter().map(|file| file.path.clone()).collect();
    assert_eq!(cut, [format!("simulated/{name}")]);
    assert!(log(&store, 1).is_suspect());
}

/// A crash between the making of a file and the setting of its length leaves an empty one.
#[test]
fn an_empty_file_of_blocks_lost_nothing() {
    let mut contents = filled(TailKind::Mapped, true);
    contents.insert("00000077.wal".to_owned(), Vec::new());
    let store = opened(TailKind::Mapped, &contents);
    assert!(!store.report().lost_something(), "{:?}", store.report());
    assert!(!log(&store, 1).is_suspect());
}

/// The header of a killed store's last block alone tells whose it is. When it was damaged, the log once ended in front of
/// the block, and its copy went on as one that has all that it ever acknowledged.
#[test]
fn a_block_that_nobody_can_name_makes_each_open_log_suspect() {
    for kind in [TailKind::Mapped, TailKind::Buffered] {
        let contents = filled(kind, false);
        let (name, last) = last_blocks(&contents).pop().unwrap();
        let mut rotten = contents.clone();
        rotten.get_mut(&name).unwrap()[last + 50] ^= 1;
        let store = opened(kind, &rotten);
        assert_eq!(store.report().unknown_blocks.len(), 1, "{kind:?}");
        assert!(read_from(&log(&store, 1), Offset(0), 5_000).0.len() < RECORDS as usize, "{kind:?}");
        assert!(log(&store, 1).is_suspect(), "{kind:?}");
        assert!(!log(&store, 2).is_suspect(), "{kind:?}: a sealed log knows its end");
    }
}
