//! Tests with disks that cannot tell what they have promised. A damaged tombstone was passed over, and the copies that it stands
//! for answered as if they had never held anything; a journal that had lost its end was noted in a metric, and the node voted
//! again. Copies whose own promises are damaged are in `rot`.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use serde_json::json;
use walrus_broker::{PartitionRef, StartError};
use walrus_log::{Options, Store};
use walrus_model::Replication;

use crate::client::{named, put, read_values};
use crate::harness::Cluster;
use crate::replicated::put_until_taken;

const VICTIM: u32 = 3;

fn orders() -> PartitionRef {
    PartitionRef::parse("orders", 0).unwrap()
}

/// Starts three nodes with a segment that all store, and stops the last one.
fn stopped() -> Cluster {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let mut cluster = Cluster::start_replicated(3, json!({}), replication);
    cluster.block_on(async {
        let broker = cluster.broker(1);
        broker.create_topic(&named("orders"), 1).await.unwrap();
        for number in 0..10 {
            put(&broker, &orders(), &number.to_string()).await.unwrap();
        }
    });
    cluster.stop(VICTIM);
    cluster
}

fn store(cluster: &Cluster) -> Store {
    let options = Options { block_bytes: 256 << 10, blocks_per_file: 16, ..Options::default() };
    Store::open(cluster.data_dir(VICTIM).join("log"), options).unwrap()
}

/// Checks that the two nodes that are left have all records, and take more.
fn check_others(cluster: &Cluster) {
    let next = cluster.block_on(put_until_taken(&cluster.broker(1), &orders(), "10"));
    assert_eq!(next, 10);
}

#[test]
fn a_tombstone_that_cannot_be_read_is_told_and_its_node_does_not_answer() {
    let cluster = stopped();
    let store = store(&cluster);
    let key = format!("trimmed/{}/0", uuid::Uuid::new_v4());
    store.put_property(&key, b"what was here before").unwrap();
    store.close().unwrap();
    drop(store);
    let refused = cluster.refused_start(VICTIM);
    assert!(matches!(refused, StartError::Unreadable { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&key), "{refused}");
    check_others(&cluster);
}

#[test]
fn a_node_whose_journal_lost_its_end_does_not_vote_again() {
    let cluster = stopped();
    lose_the_end(&cluster);
    for _ in 0..2 {
        let refused = cluster.refused_start(VICTIM);
        let disk = cluster.disk(VICTIM);
        assert!(matches!(refused, StartError::LostPromises { disk: told } if told == disk), "{refused:?}");
        assert!(refused.to_string().contains("another disk"), "{refused}");
    }
    check_others(&cluster);
}

/// Cuts the second half off what the victim's journal holds.
fn lose_the_end(cluster: &Cluster) {
    let folder = cluster.data_dir(VICTIM).join("log");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let journal = names.into_iter().find(|path| path.to_string_lossy().contains("journal-")).unwrap();
    let bytes = std::fs::read(&journal).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let file = OpenOptions::new().write(true).open(&journal).unwrap();
    file.write_all_at(&vec![0; bytes.len() - used / 2], (used / 2) as u64).unwrap();
}

/// Ten records are on all three disks and ten more on two of them. One of the two is lost, the other forgot its votes: the
/// records were there, on a disk that nobody asked, and the partition took no more.
#[test]
fn records_that_only_a_disk_without_votes_still_has_are_read_again() {
    let replication = Replication { factor: 3, write_quorum: 2 };
    let mut cluster = Cluster::start_replicated(3, json!({}), replication);
    let put_all = |cluster: &Cluster, via: u32, numbers: std::ops::Range<u64>| {
        cluster.block_on(async {
            for number in numbers {
                let next = put_until_taken(&cluster.broker(via), &orders(), &number.to_string()).await;
                assert_eq!(next, number);
            }
        });
    };
    cluster.block_on(cluster.broker(VICTIM).create_topic(&named("orders"), 1)).unwrap();
    put_all(&cluster, VICTIM, 0..10);
    let leader =
        cluster.metadata().topics.values().next().unwrap().partitions[0].segments[0].descriptor.leader.node.0;
    let [behind, lost]: [u32; 2] = {
        let mut others: Vec<u32> = (1..=2).collect();
        others.sort_by_key(|node| *node == leader); // the leader goes on
        others.try_into().unwrap()
    };
    cluster.stop(behind);
    put_all(&cluster, VICTIM, 10..20);
    cluster.stop(lost);
    cluster.stop(VICTIM);
    lose_the_end(&cluster);
    cluster.restart(behind);
    let back = cluster.come_back_as_another(VICTIM);
    cluster.join(); // for the next segment
    cluster.declare_gone(lost);
    put_all(&cluster, back, 20..21);
    let read = cluster.block_on(read_values(&cluster.broker(behind), &orders(), 0, 21));
    assert_eq!(read, (0..21).map(|number| (number, number.to_string())).collect::<Vec<_>>());
}
