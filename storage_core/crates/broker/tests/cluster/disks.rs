//! Tests with disks that are full, stand still or fail.

use std::time::Duration;

use serde_json::{Value, json};
use walrus_broker::{Broker, Error, PartitionRef};
use walrus_log::{Fault, SimulatedDisk, TailKind};
use walrus_metadata::NodeState;
use walrus_model::{NodeId, Replication};

use crate::client::{options, put, read_values};
use crate::harness::{Cluster, PATIENCE, sealed_count, wait_until};

fn small() -> Value {
    json!({ "log_block_bytes": 64 << 10, "log_blocks_per_file": 4 })
}

fn cluster_on(disks: &[SimulatedDisk]) -> Cluster {
    Cluster::start_on(disks.to_vec(), u32::try_from(disks.len()).unwrap(), small())
}

fn disks(count: usize) -> Vec<SimulatedDisk> {
    (0..count).map(|_| SimulatedDisk::new(TailKind::Mapped)).collect()
}

#[test]
fn a_full_disk_hands_its_segment_on_and_nothing_is_lost() {
    let disks = disks(2);
    let cluster = cluster_on(&disks);
    cluster.block_on(async {
        let topic = PartitionRef::parse("logs", 0).unwrap();
        put(&cluster.broker(1), &topic, "0").await.unwrap();
        let leader = cluster.broker(1).leadership(&topic).unwrap().node;
        disks[leader as usize - 1].set_full(true);
        let padding = "x".repeat(8 << 10);
        for number in 1..200 {
            put(&cluster.broker(1 + number % 2), &topic, &format!("{number}{padding}")).await.unwrap();
        }
        assert_eq!(sealed_count(&cluster.metadata(), "logs"), 1);
        assert_ne!(cluster.broker(1).leadership(&topic).unwrap().node, leader);
        let values = read_values(&cluster.broker(leader), &topic, 0, 200).await;
        assert!((0..).zip(&values).all(|(number, (offset, _))| number == *offset));
    });
}

#[test]
fn a_node_whose_disk_was_full_takes_part_again_by_itself_once_there_is_room() {
    // It used to say so with its next append, and was given nothing to append to: it stayed full until its restart.
    let disks = disks(2);
    let cluster = cluster_on(&disks);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "first")).unwrap();
    let full = cluster.broker(1).leadership(&topic).unwrap().node;
    let other = 3 - full;
    disks[full as usize - 1].set_full(true);
    wait_state(&cluster, full, NodeState::Full);
    wait_until("its segment is passed on", PATIENCE, || {
        cluster.broker(other).leadership(&topic).unwrap().node == other
    });
    cluster.block_on(put(&cluster.broker(full), &topic, "second")).unwrap();

    disks[full as usize - 1].set_full(false);
    wait_state(&cluster, full, NodeState::Up);
    disks[other as usize - 1].set_full(true);
    wait_until("it leads again", PATIENCE, || cluster.broker(full).leadership(&topic).unwrap().node == full);
    cluster.block_on(put(&cluster.broker(other), &topic, "third")).unwrap();
}

#[test]
fn a_follower_whose_disk_is_full_leaves_the_replica_set_and_comes_back() {
    let disks = disks(3);
    let cluster = Cluster::start_linked_on(disks.clone(), small(), Replication::DEFAULT);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "first")).unwrap();
    let leader = cluster.broker(1).leadership(&topic).unwrap().node;
    let full = leader % 3 + 1;
    disks[full as usize - 1].set_full(true);
    let replicas = || {
        let metadata = cluster.metadata();
        let topic = &metadata.topics[&metadata.names["default"]["logs"]];
        let open = topic.partitions[0].segments.last().unwrap();
        open.descriptor.replicas.iter().map(|replica| replica.node.0).collect::<Vec<_>>()
    };
    wait_until("it is stored elsewhere", PATIENCE, || replicas().len() == 2 && !replicas().contains(&full));
    cluster.block_on(put(&cluster.broker(full), &topic, "second")).unwrap();
    disks[full as usize - 1].set_full(false);
    wait_until("it is stored on all again", PATIENCE, || replicas().len() == 3);
    cluster.block_on(put(&cluster.broker(full), &topic, "third")).unwrap();
    let values = cluster.block_on(read_values(&cluster.broker(full), &topic, 0, 3));
    assert_eq!(
        values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
        ["first", "second", "third"]
    );
}

/// Starts three nodes; one record is in, and the disk of the leader does nothing more until it is told to.
fn cluster_whose_leader_stands_still() -> (Cluster, PartitionRef, Broker, SimulatedDisk) {
    let disks = disks(3);
    let cluster = Cluster::start_linked_on(disks.clone(), small(), Replication::DEFAULT);
    let topic = PartitionRef::parse("logs", 0).unwrap();
    cluster.block_on(put(&cluster.broker(1), &topic, "first")).unwrap();
    let leader = cluster.broker(1).leadership(&topic).unwrap().node;
    let stalled = disks[leader as usize - 1].clone();
    stalled.set_stalled(true);
    let broker = cluster.broker(leader);
    (cluster, topic, broker, stalled)
}

/// Acknowledged means on w disks, whichever: a leader whose own disk stands still is not waited for.
#[test]
fn appends_are_acknowledged_by_the_others_while_the_leaders_disk_stands_still() {
    let (cluster, topic, broker, stalled) = cluster_whose_leader_stands_still();
    let acknowledged = ["second", "third"].map(|value| cluster.block_on(put(&broker, &topic, value)));
    stalled.set_stalled(false); // before anything can panic: a node whose disk stands still does not stop
    assert!(acknowledged.iter().all(Result::is_ok), "{acknowledged:?}");
    let values = cluster.block_on(read_values(&broker, &topic, 0, 3));
    assert_eq!(
        values.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(),
        ["first", "second", "third"]
    );
}

/// The answer to an append and that to a read of it come from different disks.
#[test]
fn what_was_acknowledged_is_read_from_the_leader_before_its_own_disk_has_it() {
    let (cluster, topic, broker, stalled) = cluster_whose_leader_stands_still();
    let acknowledged = ["second", "third"].map(|value| cluster.block_on(put(&broker, &topic, value)));
    let pages = cluster.block_on(async {
        let read = |offset| broker.read(&topic, offset, options(Duration::ZERO));
        let released = async { stalled.set_stalled(false) }; // once both wait
        tokio::join!(read(1), read(2), released)
    });
    assert!(acknowledged.iter().all(Result::is_ok), "{acknowledged:?}");
    assert_eq!([pages.0.unwrap().next_offset, pages.1.unwrap().next_offset], [3, 3]);
}

fn wait_state(cluster: &Cluster, node: u32, state: NodeState) {
    wait_until(&format!("node {node} is {state:?}"), PATIENCE, || {
        cluster.metadata().nodes[&NodeId(node)].state == state
    });
}

#[test]
fn alone_on_a_full_disk_appends_fail_cleanly_and_go_on_when_there_is_space() {
    let disks = disks(1);
    let cluster = cluster_on(&disks);
    cluster.block_on(async {
        let (topic, broker) = (PartitionRef::parse("logs", 0).unwrap(), cluster.broker(1));
        let value = "x".repeat(8 << 10);
        put(&broker, &topic, &value).await.unwrap();
        disks[0].set_full(true);
        let mut stored = 1;
        let error = loop {
            match put(&broker, &topic, &value).await {
                Ok(ack) => stored = ack.end_offset,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::NoSpace { node: 1 });
        assert!(error.retryable());
        assert_eq!(
            read_values(&broker, &topic, 0, usize::try_from(stored).unwrap()).await.len() as u64,
            stored
        );
        disks[0].set_full(false);
        assert_eq!(put(&broker, &topic, &value).await.unwrap().base_offset, stored);
    });
}

#[test]
fn an_append_whose_sync_failed_is_never_acknowledged() {
    let disks = disks(1);
    let cluster = cluster_on(&disks);
    cluster.block_on(async {
        let (topic, broker) = (PartitionRef::parse("logs", 0).unwrap(), cluster.broker(1));
        put(&broker, &topic, "kept").await.unwrap();
        for ahead in 0..8 {
            disks[0].fail_call(disks[0].calls() + ahead, Fault::Eio);
        }
        let error = put(&broker, &topic, "lost").await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Storage { .. }), "{error:?}");
        assert!(!error.retryable());
        // Nor does anything after it pretend to be stored.
        let error = put(&broker, &topic, "after").await.unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { .. } | Error::Storage { .. }), "{error:?}");
        assert_eq!(read_values(&broker, &topic, 0, 1).await, [(0, "kept".to_owned())]);
    });
}

/// The threads that work for the network are few: readers that waited for the disk stopped them all, and the node seemed silent.
#[test]
fn a_node_goes_on_while_more_readers_wait_for_its_disk_than_it_has_threads_for_the_network() {
    const READERS: u64 = 4;
    let disks = disks(2);
    let cluster = Cluster::start_on(disks.clone(), 2, json!({ "segment_entries_max": 2 }));
    let old = PartitionRef::parse("old", 0).unwrap();
    cluster.block_on(async {
        for number in 0..10 {
            put(&cluster.broker(1), &old, &number.to_string()).await.unwrap();
        }
        // A sealed segment, and a partition that is led where it lies.
        let metadata = cluster.metadata();
        let partition = &metadata.topics[&metadata.names["default"]["old"]].partitions[0];
        let segment = &partition.segments[0].descriptor;
        let (slow, other) = (segment.leader.node.0, cluster.broker(3 - segment.leader.node.0));
        let mut new = None;
        for number in 0..10 {
            let topic = PartitionRef::parse(&format!("new-{number}"), 0).unwrap();
            put(&other, &topic, "first").await.unwrap();
            new = new.or((other.leadership(&topic).unwrap().node == slow).then_some(topic));
        }
        let new = new.unwrap();
        let disk = &disks[slow as usize - 1];
        let before = disk.reads();
        disk.set_reads_stalled(true);
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (other, old) = (other.clone(), old.clone());
                tokio::spawn(async move { other.read(&old, 0, options(Duration::ZERO)).await })
            })
            .collect();
        while disk.reads() < before + 2 {
            tokio::task::yield_now().await;
        }
        let written = tokio::time::timeout(PATIENCE, put(&other, &new, "second")).await;
        disk.set_reads_stalled(false);
        written.expect("an append that waits for no read").unwrap();
        for reader in readers {
            assert_eq!(reader.await.unwrap().unwrap().batches().count(), 2);
        }
    });
}
