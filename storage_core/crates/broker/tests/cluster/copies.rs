//! Tests of the copies of sealed segments: they are made up for after a lost disk, moved off a drained node, gone after a trim,
//! and nothing that was acknowledged goes with them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{Error, PartitionRef};
use walrus_log::LogId;
use walrus_metadata::{Command, CopyState, LEVEL, Metadata, Segment, SegmentCopy, SegmentState, census};
use walrus_model::{NodeId, ReplicaRef, Replication, SegmentId};

use crate::client::{options, put, read_values};
use crate::harness::{Cluster, PATIENCE, sealed_count, wait_until};
use crate::replicated::put_until_taken;

fn start(nodes: u32) -> (Cluster, PartitionRef) {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let cluster = Cluster::start_replicated(nodes, json!({ "segment_entries_max": 10 }), replication);
    (cluster, PartitionRef::parse("logs", 0).unwrap())
}

fn segments(metadata: &Metadata) -> Vec<Segment> {
    let topic = &metadata.topics[&metadata.names["default"]["logs"]];
    topic.partitions[0].segments.clone()
}

fn sealed(metadata: &Metadata) -> Vec<Segment> {
    let all = segments(metadata).into_iter();
    all.filter(|segment| matches!(segment.state, SegmentState::Sealed(_))).collect()
}

/// Whether every sealed segment has three verified copies, and these are what they are said to be.
fn are_whole(cluster: &Cluster, metadata: &Metadata) -> bool {
    sealed(metadata).iter().all(|segment| {
        let SegmentState::Sealed(value) = &segment.state else { return false };
        let is_whole = |copy: &walrus_metadata::SegmentCopy| {
            let log = cluster.broker(copy.replica.node.0).bucket().log(LogId(segment.descriptor.id.0));
            let sealed = log.and_then(|log| log.sealed());
            copy.state == CopyState::Verified
                && sealed.is_some_and(|sealed| (sealed.end.0, sealed.digest) == (value.end.0, value.digest.0))
        };
        segment.copies.len() == 3 && segment.copies.iter().all(is_whole)
    })
}

fn write(cluster: &Cluster, topic: &PartitionRef, through: u32, values: std::ops::Range<u32>) {
    cluster.block_on(async {
        for value in values {
            put_until_taken(&cluster.broker(through), topic, &value.to_string()).await;
        }
    });
}

/// Checks that every node that is left reads all values in their order; a client that repeats may have put one twice.
fn check_reads(cluster: &Cluster, topic: &PartitionRef, nodes: &[u32], count: u32) {
    cluster.block_on(async {
        for node in nodes {
            let values = read_values(&cluster.broker(*node), topic, 0, count as usize).await;
            let mut distinct: Vec<u32> = values.iter().map(|(_, value)| value.parse().unwrap()).collect();
            distinct.dedup();
            let expected: Vec<u32> = (0..u32::try_from(distinct.len()).unwrap()).collect();
            assert_eq!(distinct, expected);
        }
    });
}

#[test]
fn a_lost_disk_is_made_up_for_on_the_nodes_that_are_left() {
    let (mut cluster, topic) = start(4);
    write(&cluster, &topic, 1, 0..45);
    cluster.keep_copies_until("all copies verified", |metadata| are_whole(&cluster, metadata));
    let lost = sealed(&cluster.metadata())[0].copies[0].replica;
    cluster.stop(lost.node.0);
    cluster.command(Command::RemoveNode { node: lost.node, disk: lost.disk, lost: true, replaced_by: None });
    let left: Vec<u32> = cluster.ids().filter(|id| *id != lost.node.0).collect();
    write(&cluster, &topic, left[0], 45..60);
    cluster.keep_copies_until("three copies again", |metadata| {
        let is_off = |segment: &Segment| segment.copies.iter().all(|copy| copy.replica.disk != lost.disk);
        sealed(metadata).len() >= 5 && sealed(metadata).iter().all(is_off) && are_whole(&cluster, metadata)
    });
    check_reads(&cluster, &topic, &left, 60);
}

/// The metadata have forgotten that the first of two copies was given up, and now give up the second one.
#[test]
fn a_copy_that_is_given_up_stays_until_others_say_that_they_keep_theirs() {
    let replication = Replication { factor: 1, write_quorum: 1 };
    let cluster = Cluster::start_replicated(2, json!({ "segment_entries_max": 10 }), replication);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    write(&cluster, &topic, 1, 0..15);
    let states = |metadata: &Metadata| -> Vec<(NodeId, CopyState)> {
        let copies = sealed(metadata).into_iter().next().map(|segment| segment.copies);
        copies.into_iter().flatten().map(|copy| (copy.replica.node, copy.state)).collect()
    };
    let until = |what: &str, wanted: &[(NodeId, CopyState)]| {
        wait_until(what, PATIENCE, || states(&cluster.metadata()) == wanted);
    };
    let is_sealed = || matches!(states(&cluster.metadata())[..], [(_, CopyState::Verified)]);
    wait_until("one copy is verified", PATIENCE, is_sealed);
    let segment = sealed(&cluster.metadata()).remove(0);
    let first = segment.copies[0].replica;
    let other = NodeId(3 - first.node.0);
    let second = ReplicaRef { node: other, disk: cluster.disk(other.0) };
    let set = |added: Vec<ReplicaRef>, given_up: Vec<ReplicaRef>| {
        let (topic, segment) = (segment.descriptor.topic, segment.descriptor.id);
        let version = sealed(&cluster.metadata())[0].version;
        cluster.command(Command::SetCopies { topic, partition: 0, segment, version, added, given_up });
    };
    set(vec![second], Vec::new());
    until("both are verified", &[(first.node, CopyState::Verified), (other, CopyState::Verified)]);
    let before = sealed(&cluster.metadata()).remove(0);
    set(Vec::new(), vec![first]);
    until("the first one is gone", &[(other, CopyState::Verified)]);

    cluster.rewrite(|metadata| {
        let listed =
            metadata.topics.get_mut(&before.descriptor.topic).map(Arc::make_mut).expect("it is there");
        let partition = Arc::make_mut(&mut listed.partitions[0]);
        let mut copies = before.copies.clone();
        copies[1].state = CopyState::Leaving;
        partition.segments[0].copies = copies;
    });
    until("the first one is there again", &[(first.node, CopyState::Verified)]);
    check_reads(&cluster, &topic, &[1, 2], 15);
}

#[test]
fn a_node_that_lacks_what_was_acknowledged_in_open_segments_knows_it_and_one_that_follows_does_not() {
    let (mut cluster, topic) = start(3);
    write(&cluster, &topic, 1, 0..3);
    let leader = segments(&cluster.metadata()).pop().unwrap().descriptor.leader.node.0;
    let behind = |cluster: &Cluster, id: u32| cluster.plane(id).open_behind(PATIENCE);
    for id in cluster.ids() {
        assert_eq!(behind(&cluster, id), Some(0), "node {id} follows");
    }
    let follower = cluster.ids().find(|id| *id != leader).unwrap();
    cluster.stop_unnoticed(leader);
    let soon = Duration::from_millis(100);
    assert_eq!(cluster.plane(follower).open_behind(soon), Some(1), "nobody says how far its segment is");
    cluster.restart(leader);
    write(&cluster, &topic, follower, 3..5);
    wait_until("all follow again", PATIENCE, || cluster.ids().all(|id| behind(&cluster, id) == Some(0)));
}

#[test]
fn copies_are_made_no_faster_than_is_allowed() {
    const BYTES_PER_SECOND: u64 = 50_000;
    let (mut cluster, topic) = start(4);
    cluster.set_config(&[("copies.bytes_per_second", BYTES_PER_SECOND)]);
    cluster.block_on(async {
        for _ in 0..25 {
            put_until_taken(&cluster.broker(1), &topic, &"x".repeat(4_000)).await;
        }
    });
    cluster.keep_copies_until("all copies verified", |metadata| are_whole(&cluster, metadata));
    let before = Instant::now();
    let lost = sealed(&cluster.metadata())[0].copies[0].replica;
    cluster.stop(lost.node.0);
    cluster.command(Command::RemoveNode { node: lost.node, disk: lost.disk, lost: true, replaced_by: None });
    cluster.keep_copies_until("three copies again", |metadata| are_whole(&cluster, metadata));
    let took_ms = u64::try_from(before.elapsed().as_millis()).unwrap();
    let copied = |id: u32| {
        let metrics = cluster.plane(id).prometheus();
        let line = metrics.lines().find_map(|line| line.strip_prefix("walrus_copied_bytes_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let copied: Vec<u64> = cluster.ids().filter(|id| *id != lost.node.0).map(copied).collect();
    assert!(copied.iter().sum::<u64>() > 40_000, "{copied:?}");
    assert!(copied.iter().all(|bytes| bytes * 1_000 <= took_ms * BYTES_PER_SECOND + 1_000), "{copied:?}");
}

#[test]
fn a_drained_node_ends_with_nothing_and_is_taken_out_and_a_cancelled_one_goes_on() {
    let (cluster, topic) = start(4);
    write(&cluster, &topic, 1, 0..45);
    cluster.keep_copies_until("all copies verified", |metadata| are_whole(&cluster, metadata));
    // The leader of the open segment, which is the hardest one to empty.
    let open = segments(&cluster.metadata()).pop().unwrap().descriptor;
    let (node, disk) = (open.leader.node, cluster.disk(open.leader.node.0));
    let drain = |draining| Command::DrainNode { node, disk, draining };
    cluster.command(drain(true));
    cluster.command(drain(false));
    cluster.command(drain(true));
    cluster.keep_copies_until("nothing is stored there", |metadata| {
        let stored = |segment: &Segment| segment.stored_on().any(|replica| replica.disk == disk);
        !segments(metadata).iter().any(stored) && are_whole(&cluster, metadata)
    });
    let broker = cluster.broker(node.0);
    let listed =
        |id: LogId| segments(&cluster.metadata()).iter().any(|one| one.descriptor.id == SegmentId(id.0));
    let left = broker.bucket().store().logs();
    assert!(left.iter().all(|log| !listed(log.id())), "{left:?}");
    cluster.command(Command::RemoveNode { node, disk, lost: false, replaced_by: None });
    let others: Vec<u32> = cluster.ids().filter(|id| *id != node.0).collect();
    write(&cluster, &topic, others[0], 45..50);
    check_reads(&cluster, &topic, &others, 50);
}

#[test]
fn a_copy_that_was_moved_away_can_come_back() {
    let (cluster, topic) = start(4);
    write(&cluster, &topic, 1, 0..25);
    cluster.keep_copies_until("all copies verified", |metadata| are_whole(&cluster, metadata));
    for round in 0..2_u32 {
        for id in cluster.ids() {
            let (node, disk) = (NodeId(id), cluster.disk(id));
            cluster.command(Command::DrainNode { node, disk, draining: true });
            cluster.keep_copies_until("moved away", |metadata| {
                let stored = |segment: &Segment| segment.stored_on().any(|replica| replica.disk == disk);
                !segments(metadata).iter().any(stored) && are_whole(&cluster, metadata)
            });
            cluster.command(Command::DrainNode { node, disk, draining: false });
        }
        write(&cluster, &topic, 1, 25 + round * 5..30 + round * 5);
    }
    let all: Vec<u32> = cluster.ids().collect();
    check_reads(&cluster, &topic, &all, 35);
}

#[test]
fn what_was_promised_about_sealed_segments_leaves_the_journal_and_a_trim_leaves_one_tombstone() {
    let (cluster, topic) = start(3);
    write(&cluster, &topic, 1, 0..45);
    let keys = |id: u32, prefix: &str| {
        let properties = cluster.broker(id).bucket().store().properties();
        properties.iter().filter(|(key, _)| key.starts_with(prefix)).count()
    };
    cluster.keep_copies_until("only the open segment's promises are left", |metadata| {
        are_whole(&cluster, metadata) && cluster.ids().all(|id| keys(id, "replica/") <= 1)
    });
    let before = cluster.metadata();
    let trimmed_count = sealed_count(&before, "logs") - 1;
    let trimmed = trimmed_count as u64;
    cluster.block_on(async { cluster.broker(2).trim(&topic, trimmed).await }).unwrap();
    let old = segments(&before);
    let is_gone = |cluster: &Cluster| {
        cluster.ids().all(|id| {
            let here = |segment: &Segment| cluster.broker(id).bucket().log(LogId(segment.descriptor.id.0));
            keys(id, "trimmed/") == 1 && old[..trimmed_count].iter().all(|one| here(one).is_none())
        })
    };
    cluster.keep_copies_until("the trimmed logs are deleted", |_| is_gone(&cluster));

    // Metadata that forget the trim are told: nobody answers for what is gone as if it had never been.
    cluster.rewrite(|metadata| {
        let id = before.names["default"]["logs"];
        metadata.topics.insert(id, before.topics[&id].clone());
    });
    cluster.keep_copies_until("the trim is decided again", |metadata| {
        metadata.topics[&metadata.names["default"]["logs"]].partitions[0].trimmed_below == trimmed
    });
    cluster.block_on(async {
        put(&cluster.broker(1), &topic, "45").await.unwrap();
    });
}

/// The one copy that was listed instead was to be filled for ever: its node was never caught up, and nobody said what was lost.
#[test]
fn a_segment_all_of_whose_disks_are_gone_is_told_as_lost_and_holds_nobody_up() {
    let replication = Replication { factor: 1, write_quorum: 1 };
    let mut cluster = Cluster::start_replicated(3, json!({ "segment_entries_max": 10 }), replication);
    cluster.command(Command::RaiseLevel { level: LEVEL });
    let topic = PartitionRef::parse("logs", 0).unwrap();
    write(&cluster, &topic, 1, 0..45);
    let are_verified = |metadata: &Metadata| {
        let is_verified = |segment: &Segment| {
            let mut copies = segment.copies.iter();
            segment.copies.len() == 1 && copies.all(|copy| copy.state == CopyState::Verified)
        };
        sealed(metadata).iter().all(is_verified)
    };
    cluster.keep_copies_until("all copies verified", are_verified);
    let open = segments(&cluster.metadata()).pop().unwrap().descriptor.leader.node;
    let gone = |metadata: &Metadata| {
        sealed(metadata).into_iter().find(|segment| segment.copies[0].replica.node != open)
    };
    let lost = gone(&cluster.metadata()).expect("the leader rotates");
    let (replica, place) = (lost.copies[0].replica, lost.descriptor.clone());
    let SegmentState::Sealed(value) = &lost.state else { panic!("{lost:?}") };
    cluster.stop(replica.node.0);
    let left: Vec<u32> = cluster.ids().filter(|id| *id != replica.node.0).collect();
    cluster.command(Command::RemoveNode {
        node: replica.node,
        disk: replica.disk,
        lost: true,
        replaced_by: None,
    });
    let now = |metadata: &Metadata| {
        segments(metadata).into_iter().find(|one| one.descriptor.id == place.id).unwrap()
    };
    // The disk had other segments too, which are told as lost one after the other.
    let is_told = |segment: &Segment| {
        let is_there = |copy: &SegmentCopy| copy.state == CopyState::Verified && copy.replica != replica;
        segment.is_lost() || segment.copies.iter().any(is_there)
    };
    cluster.keep_copies_until("it is told as lost", |metadata| {
        now(metadata).is_lost() && sealed(metadata).iter().all(is_told)
    });

    let alive = left.iter().map(|id| NodeId(*id)).collect();
    let seen = census(&cluster.metadata(), &alive);
    assert!(seen.nodes.values().all(|load| load.filling == 0), "{seen:?}");
    assert_eq!((seen.under_replicated, seen.spare_nodes), (0, Some(0)), "{seen:?}");
    let told = |id: &u32| {
        let metrics = cluster.plane(*id).prometheus();
        let line = metrics.lines().find_map(|line| line.strip_prefix("walrus_lost_ranges_total "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let count = sealed(&cluster.metadata()).iter().filter(|segment| segment.is_lost()).count() as u64;
    wait_until("each is told", PATIENCE, || left.iter().map(told).sum::<u64>() >= count);
    assert_eq!(left.iter().map(told).sum::<u64>(), count, "once");
    let base = place.base_offset.unwrap().0;
    cluster.block_on(async {
        for id in &left {
            let read = cluster.broker(*id).read(&topic, base, options(Duration::ZERO)).await;
            match read {
                Err(Error::DataLoss { start, end, .. }) => assert_eq!((start, end), (base, value.end.0)),
                other => panic!("node {id}: {other:?}"),
            }
        }
    });
}
