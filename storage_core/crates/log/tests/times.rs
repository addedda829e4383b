//! Offsets by time: a search finds the same as a look at every record, whatever the order of timestamps.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests unwrap, and their numbers are small"
)]

mod support;

use std::ops::Range;

use support::*;
use walrus_log::batch::{Batch, BatchBuilder};
use walrus_log::{Log, Offset, Options, SimulatedDisk, TailKind, TimeSearch, TimedOffset};

/// Appends a batch of records with these timestamps, compressed with a codec of Kafka's numbers.
fn append_at(log: &Log, timestamps: &[i64], codec: u8) {
    let mut builder = BatchBuilder::new();
    for &timestamp in timestamps {
        builder.push(None, Some(&[7; 500]), timestamp, &[]);
    }
    let mut bytes = Vec::new();
    let built: Batch<'_> = builder.build_in(&mut bytes).unwrap();
    let bytes = built.compressed(codec).unwrap();
    log.append(&Batch::parse(&bytes).unwrap().0).unwrap().commit.wait().unwrap();
}

/// What a look at every record finds: the first that is not older, and the first of the newest.
fn expected(timestamps: &[i64], within: &Range<usize>, wanted: i64) -> (TimeSearch, TimeSearch) {
    let here = || within.start..within.end.min(timestamps.len());
    let answer = |at: Option<usize>| TimeSearch {
        found: at.map(|at| TimedOffset { offset: Offset(at as u64), timestamp_ms: timestamps[at] }),
        has_skipped: false,
    };
    let newest = here().max_by_key(|&at| (timestamps[at], std::cmp::Reverse(at)));
    (answer(here().find(|&at| timestamps[at] >= wanted)), answer(newest))
}

#[test]
fn a_search_by_time_finds_what_a_look_at_every_record_finds() {
    let mut random = Random(5);
    for run in 0..effort(12) {
        let disk = SimulatedDisk::new(TailKind::Buffered);
        let mut store = open_on(&disk, &Options { block_bytes: 16 << 10, ..Options::small() }).unwrap();
        let mut log = store.create_log(spec(1, "t")).unwrap();
        let mut timestamps: Vec<i64> = Vec::new();
        // Timestamps rise, jump around one time, or fall, depending on the run.
        let (drift, spread) = ([1, 0, -1][run as usize % 3], [1, 40, 400][run as usize / 3 % 3]);
        for step in 0..60_i64 {
            let made: Vec<i64> =
                (0..1 + random.below(6)).map(|_| step * 10 * drift + random.below(spread) as i64).collect();
            append_at(&log, &made, random.below(5) as u8);
            timestamps.extend(made);
            match random.below(12) {
                0 => {
                    let start = log.start_offset().0;
                    let before = start + random.below((log.end_offset().0 - start) / 3 + 1);
                    log.delete_before(Offset(before)).unwrap();
                }
                1 => {
                    drop((log, store));
                    store = open_on(&disk, &Options::small()).unwrap();
                    log = store.logs().remove(0);
                }
                _ => {}
            }
            let start = log.start_offset().0 as usize;
            for _ in 0..8 {
                let wanted = random.below(2000) as i64 - 700;
                let length = timestamps.len() as u64;
                let asked = random.below(length) as usize..random.below(length + 4) as usize;
                for within in [start..usize::MAX, start.max(asked.start)..asked.end] {
                    let told = format!("run {run}, step {step}, time {wanted}, offsets {within:?}");
                    let (first, newest) = expected(&timestamps, &within, wanted);
                    let range = || Offset(within.start as u64)..Offset(within.end as u64);
                    assert_eq!(log.find_by_timestamp(wanted, range()).unwrap(), first, "{told}");
                    assert_eq!(log.find_newest(range()).unwrap(), newest, "{told}");
                }
            }
        }
    }
}
