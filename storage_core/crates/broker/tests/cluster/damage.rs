//! Tests with bits that flip on disks under sealed copies: readers never see them, and the copy is whole again soon.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use walrus_broker::{Broker, Error, PartitionRef};
use walrus_log::{Log, LogId};
use walrus_metadata::{CopyState, Metadata, Segment, SegmentState};
use walrus_model::{Offset, Replication};

use crate::client::{options, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};

const COUNT: usize = 25;

pub(crate) fn value(number: u64) -> String {
    format!("the-value-of-record-{number:05}-{}", "x".repeat(200))
}

/// Starts three nodes with two sealed segments of ten records, verified everywhere, and answers the first of these.
fn start() -> (Cluster, PartitionRef, Segment) {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let cluster = Cluster::start_replicated(3, json!({ "segment_entries_max": 10 }), replication);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(async {
        for number in 0..COUNT as u64 {
            put(&cluster.broker(1), &topic, &value(number)).await.unwrap();
        }
    });
    cluster.keep_copies_until("all copies verified", |metadata| {
        let sealed = sealed(metadata);
        sealed.len() == 2
            && sealed.iter().flat_map(|one| &one.copies).all(|copy| copy.state == CopyState::Verified)
    });
    let first = sealed(&cluster.metadata()).remove(0);
    (cluster, topic, first)
}

fn sealed(metadata: &Metadata) -> Vec<Segment> {
    let topic = &metadata.topics[&metadata.names["default"]["logs"]];
    let all = topic.partitions[0].segments.clone().into_iter();
    all.filter(|segment| matches!(segment.state, SegmentState::Sealed(_))).collect()
}

/// Flips a bit of a record's value in the files of a node.
pub(crate) fn flip(cluster: &Cluster, node: u32, number: u64) {
    let flipped = flip_below(&cluster.data_dir(node).join("log"), value(number).as_bytes());
    assert_eq!(flipped, 1, "the value is in one place of one file");
}

fn flip_below(directory: &Path, needle: &[u8]) -> usize {
    let mut flipped = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            flipped += flip_below(&path, needle);
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for at in memchr_all(&bytes, needle) {
            use std::os::unix::fs::FileExt as _;
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[bytes[at + 5] ^ 0x10], at as u64 + 5).unwrap();
            file.sync_all().unwrap();
            flipped += 1;
        }
    }
    flipped
}

fn memchr_all(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    let is_at = |at: &usize| bytes[*at..].starts_with(needle);
    (0..bytes.len()).filter(|at| bytes[*at] == needle[0]).filter(is_at).collect()
}

fn log_of(broker: &Broker, segment: &Segment) -> Log {
    broker.bucket().log(LogId(segment.descriptor.id.0)).unwrap()
}

/// Whether every batch of a segment can be read from the node's own disk.
fn is_sound(broker: &Broker, segment: &Segment) -> bool {
    let log = log_of(broker, segment);
    let (mut next, end) = (log.base_offset(), log.sealed().unwrap().end);
    while next < end {
        match log.read(next, 1 << 20) {
            Ok(slices) => next = slices.next_offset,
            Err(walrus_log::Error::Corrupted { .. }) => return false,
            Err(error) => panic!("{error}"),
        }
    }
    true
}

fn wait_sound(broker: &Broker, segment: &Segment) {
    wait_until("the copy is mended", PATIENCE * 2, || is_sound(broker, segment));
}

fn check_reads(cluster: &Cluster, topic: &PartitionRef) {
    cluster.block_on(async {
        for id in cluster.ids() {
            let values = read_values(&cluster.broker(id), topic, 0, COUNT).await;
            let expected: Vec<(u64, String)> =
                (0..COUNT as u64).map(|number| (number, value(number))).collect();
            assert_eq!(values, expected);
        }
    });
}

#[test]
fn readers_get_the_right_bytes_of_a_damaged_copy_and_it_is_mended() {
    let (cluster, topic, segment) = start();
    let node = segment.copies[1].replica.node.0;
    flip(&cluster, node, 3);
    flip(&cluster, node, 4);
    flip(&cluster, node, 9);
    assert!(!is_sound(&cluster.broker(node), &segment));
    check_reads(&cluster, &topic);
    wait_sound(&cluster.broker(node), &segment);
    let metrics = cluster.plane(node).prometheus();
    assert!(!metrics.contains("walrus_mended_ranges_total 0"), "{metrics}");
    check_reads(&cluster, &topic);
}

#[test]
fn the_scrub_finds_damage_that_nobody_reads() {
    let (cluster, topic, segment) = start();
    let node = segment.copies[2].replica.node.0;
    cluster.set_config(&[("scrub.interval_ms", 20)]);
    flip(&cluster, node, 0);
    wait_sound(&cluster.broker(node), &segment);
    check_reads(&cluster, &topic);
}

#[test]
fn what_is_damaged_on_every_copy_is_a_loss_that_is_told_and_the_rest_is_read() {
    let (cluster, topic, segment) = start();
    // Damage of different batches on different copies is no loss.
    for (copy, number) in segment.copies.iter().zip([1, 2, 7]) {
        flip(&cluster, copy.replica.node.0, number);
    }
    check_reads(&cluster, &topic);
    for copy in &segment.copies {
        wait_sound(&cluster.broker(copy.replica.node.0), &segment);
    }

    for copy in &segment.copies {
        flip(&cluster, copy.replica.node.0, 5);
    }
    cluster.block_on(async {
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            let read = broker.read(&topic, 5, options(Duration::ZERO)).await;
            let Err(Error::DataLoss { start: 5, end: 6, .. }) = read else { panic!("{read:?}") };
            let before = broker.read(&topic, 0, options(Duration::ZERO)).await.unwrap();
            assert_eq!(before.next_offset, 5, "what lies before is read, up to the loss");
            let behind = read_values(&broker, &topic, 6, COUNT - 6).await;
            assert_eq!(behind[0], (6, value(6)));
        }
    });
    let log = log_of(&cluster.broker(1), &segment);
    assert!(log.read(Offset(5), 1).is_err());
}
