//! Tests with bits that flip under open segments, mostly while their node is down: what one copy lost comes back from any other,
//! and what all lost is told.

use std::time::Duration;

use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::LogId;
use walrus_metadata::{CopyState, SegmentState};
use walrus_model::{Offset, Replication};

use crate::client::{options, put, read_values};
use crate::damage::{flip, value};
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::replicated::put_until_taken;

const COUNT: u64 = 20;
/// Block size of the harness's stores.
const BLOCK_BYTES: usize = 256 << 10;

fn topic() -> PartitionRef {
    PartitionRef::parse("logs", 0).unwrap()
}

/// Starts three nodes with one open segment, all of it on all disks; answers its leader, and then the others.
fn start() -> (Cluster, [u32; 3]) {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let cluster = Cluster::start_replicated(3, json!({}), replication);
    cluster.block_on(async {
        for number in 0..COUNT {
            put(&cluster.broker(1), &topic(), &value(number)).await.unwrap();
        }
    });
    wait_until("all copies have all", PATIENCE, || cluster.ids().all(|id| has_all(&cluster, id, COUNT)));
    let leader = cluster.broker(1).leadership(&topic()).unwrap().node;
    let mut nodes: Vec<u32> = cluster.ids().collect();
    nodes.sort_by_key(|id| *id != leader);
    (cluster, nodes.try_into().unwrap())
}

/// Whether a node's log of the first segment has every record below an offset, each of them sound.
fn has_all(cluster: &Cluster, id: u32, end: u64) -> bool {
    let metadata = cluster.metadata();
    let segments = &metadata.topics[&metadata.names["default"]["logs"]].partitions[0].segments;
    let Some(log) = cluster.broker(id).bucket().log(LogId(segments[0].descriptor.id.0)) else { return false };
    let mut next = Offset(0);
    while next.0 < end {
        match log.read(next, 1 << 20) {
            Ok(slices) if slices.next_offset > next => next = slices.next_offset,
            _ => return false,
        }
    }
    true
}

fn check_reads(cluster: &Cluster, ids: &[u32], count: u64) {
    cluster.block_on(async {
        for id in ids {
            let values =
                read_values(&cluster.broker(*id), &topic(), 0, usize::try_from(count).unwrap()).await;
            let expected: Vec<(u64, String)> = (0..count).map(|number| (number, value(number))).collect();
            assert_eq!(values, expected);
        }
    });
}

fn lost(cluster: &Cluster) -> Vec<(u64, u64)> {
    let metadata = cluster.metadata();
    let segments = &metadata.topics[&metadata.names["default"]["logs"]].partitions[0].segments;
    let SegmentState::Sealed(value) = &segments[0].state else { panic!("{:?}", segments[0]) };
    value.lost.iter().map(|range| (range.start.0, range.end.0)).collect()
}

/// The copy of such a node was `filling` for good, and the segment silently had two replicas.
#[test]
fn one_rotten_bit_of_a_node_that_restarts_is_mended_and_the_copy_follows_its_leader_again() {
    let (mut cluster, [_, follower, _]) = start();
    cluster.stop(follower);
    flip(&cluster, follower, 3);
    flip(&cluster, follower, COUNT - 1);
    cluster.restart(follower);
    wait_until("the copy is whole", PATIENCE, || has_all(&cluster, follower, COUNT));
    cluster.block_on(async {
        put_until_taken(&cluster.broker(1), &topic(), &value(COUNT)).await;
    });
    wait_until("it follows", PATIENCE, || has_all(&cluster, follower, COUNT + 1));
    wait_until("it has caught up", PATIENCE, || {
        cluster.plane(follower).open_behind(Duration::from_secs(2)) == Some(0)
    });
    check_reads(&cluster, &[follower], COUNT + 1);
}

#[test]
fn a_copy_with_holes_that_nobody_fills_is_told() {
    let (mut cluster, [_, follower, _]) = start();
    for id in cluster.ids() {
        cluster.stop(id);
    }
    flip(&cluster, follower, 3);
    cluster.set_option("lacking_ms_max", json!(1));
    cluster.restart(follower);
    wait_until("it is told", PATIENCE, || cluster.plane(follower).copies_not_whole() == 1);
    assert!(cluster.plane(follower).prometheus().contains("walrus_copies_not_whole 1"));
}

/// A copy whose promises could not be read was skipped, and so the node knew it as whole.
#[test]
fn a_copy_whose_promises_cannot_be_read_is_told_too() {
    let (mut cluster, [_, follower, _]) = start();
    let store = cluster.broker(follower).bucket().store().clone();
    let (promises, _) = store.properties().into_iter().find(|(key, _)| key.starts_with("replica/")).unwrap();
    store.put_property(&promises, b"rubbish").unwrap();
    drop(store);
    for id in cluster.ids() {
        cluster.stop(id);
    }
    cluster.set_option("lacking_ms_max", json!(1));
    cluster.restart(follower);
    wait_until("it is told", PATIENCE, || cluster.plane(follower).copies_not_whole() == 1);
}

/// Readers failed until the segment was sealed, though two good copies were there.
#[test]
fn rot_under_a_leader_that_runs_is_mended_from_the_others_and_readers_notice_nothing() {
    let (cluster, [leader, other, _]) = start();
    // Another block: what the last one holds is in memory.
    let large = "y".repeat(BLOCK_BYTES / 2);
    for _ in 0..3 {
        cluster.block_on(put(&cluster.broker(leader), &topic(), &large)).unwrap();
    }
    flip(&cluster, leader, 3);
    flip(&cluster, leader, 9);
    assert!(!has_all(&cluster, leader, COUNT));
    check_reads(&cluster, &[other, leader], COUNT);
    wait_until("the copy is whole", PATIENCE, || has_all(&cluster, leader, COUNT));
    let ack = cluster.block_on(put(&cluster.broker(other), &topic(), "more")).unwrap();
    assert_eq!(ack.base_offset, COUNT + 3);
    assert_eq!(cluster.broker(other).leadership(&topic()).unwrap().number, 0, "the segment goes on");
}

/// The rotten bit is one of the leader's here, whose segment is recovered.
#[test]
fn one_rotten_bit_of_a_leader_that_restarts_is_mended_and_all_copies_are_whole() {
    let (mut cluster, [leader, other, _]) = start();
    cluster.stop(leader);
    flip(&cluster, leader, 0);
    cluster.restart(leader);
    cluster.block_on(async {
        put_until_taken(&cluster.broker(other), &topic(), &value(COUNT)).await;
    });
    wait_until("all copies are whole", PATIENCE, || cluster.ids().all(|id| has_all(&cluster, id, COUNT)));
    assert_eq!(lost(&cluster), []);
    cluster.wait_until_whole();
    check_reads(&cluster, &[leader, other], COUNT + 1);
}

/// The partition was dead, though every record had two good copies.
#[test]
fn rot_at_different_records_of_two_nodes_loses_nothing_though_the_third_is_away() {
    let (mut cluster, [leader, second, third]) = start();
    for id in [leader, second, third] {
        cluster.stop(id);
    }
    for (id, number) in [(leader, 3), (leader, 12), (second, 7), (second, 13)] {
        flip(&cluster, id, number);
    }
    cluster.restart(leader);
    cluster.restart(second);
    cluster.block_on_long(async {
        put_until_taken(&cluster.broker(leader), &topic(), &value(COUNT)).await;
    });
    check_reads(&cluster, &[leader, second], COUNT + 1);
    assert_eq!(lost(&cluster), []);
    cluster.restart(third);
    cluster.wait_until_whole();
    check_reads(&cluster, &[third], COUNT + 1);
}

#[test]
fn what_rotted_on_every_disk_is_told_and_left_out_by_all_copies_alike() {
    let (mut cluster, nodes) = start();
    for id in nodes {
        cluster.stop(id);
        flip(&cluster, id, 5);
    }
    // This record rots on one disk only, and comes back.
    flip(&cluster, nodes[0], 9);
    for id in nodes {
        cluster.restart(id);
    }
    cluster.block_on_long(async {
        put_until_taken(&cluster.broker(1), &topic(), &value(COUNT)).await;
    });
    assert_eq!(lost(&cluster), [(5, 6)]);
    cluster.wait_until_whole();
    cluster.keep_copies_until("all copies verified", |metadata| {
        let segments = &metadata.topics[&metadata.names["default"]["logs"]].partitions[0].segments;
        segments[0].copies.len() == 3
            && segments[0].copies.iter().all(|copy| copy.state == CopyState::Verified)
    });
    cluster.set_config(&[("scrub.interval_ms", 20)]);
    cluster.block_on(async {
        for id in cluster.ids() {
            let broker = cluster.broker(id);
            let read = broker.read(&topic(), 5, options(Duration::ZERO)).await;
            let Err(Error::DataLoss { start: 5, end: 6, .. }) = read else { panic!("{read:?}") };
            assert_eq!(read_values(&broker, &topic(), 0, 5).await.last().unwrap(), &(4, value(4)));
            let behind = read_values(&broker, &topic(), 6, usize::try_from(COUNT - 5).unwrap()).await;
            assert_eq!((&behind[0], behind.len()), (&(6, value(6)), 15));
        }
    });
    wait_until("the scrub finds nothing more", PATIENCE, || {
        let metrics = cluster.plane(nodes[0]).prometheus();
        !metrics.contains("walrus_scrubbed_bytes_total 0") && metrics.contains("walrus_copies_damaged 0")
    });
}
